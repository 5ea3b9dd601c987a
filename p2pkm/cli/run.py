"""Commands of p2pkm that run, compare, plan and verify, and the group that holds all commands."""

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from p2pkm.cli.animate import animate
from p2pkm.cli.attack import attack
from p2pkm.cli.bench import bench
from p2pkm.cli.completion import complete
from p2pkm.cli.faults import faults
from p2pkm.cli.help import GroupedCommand, RootCommand
from p2pkm.cli.options import option, with_format, with_options, with_retries, without
from p2pkm.cli.privacy import privacy
from p2pkm.cli.report import report
from p2pkm.cli.resume import resume_command
from p2pkm.cli.study import study_group, sweep
from p2pkm.cli.summary_table import Terminal
from p2pkm.cli.tables import data, predict
from p2pkm.cli.topology import topology
from p2pkm.core.errors import ExperimentError
from p2pkm.core.version import __version__
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.storage.toml import read_toml

_HELP = "Simulate federated and decentralized k-means: devices on a graph exchange messages with their neighbors."
_EPILOG = """Exit codes: 0 done, 2 wrong command line, 3 wrong data or graph, 4 MPI, a rank or the disk failed,
5 not converged with --require-converged, 6 verify found a difference, 7 devices ended without centroids,
130 interrupted, 143 ended by SIGTERM."""


def _print_all_options(context: click.Context, _: click.Parameter, value: bool) -> None:
    """Print the help with all options, and exit."""
    if value and not context.resilient_parsing and isinstance(context.command, RootCommand):
        click.echo(context.command.format_all_options(context))
        context.exit()


@click.group(cls=RootCommand, invoke_without_command=True, help=_HELP, epilog=_EPILOG,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})  # fmt: skip
@with_options
@option("--help-all", is_flag=True, is_eager=True, expose_value=False, callback=_print_all_options,
              help="Show all options and exit.")  # fmt: skip
@click.version_option(__version__)
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int | None:
    """Run one experiment, unless a command is named."""
    if context.invoked_subcommand is None:
        return _run(options)
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in options):
        raise click.UsageError(f"options must follow the command: p2pkm {context.invoked_subcommand} ...")
    return None


@command.command(
    "run", cls=GroupedCommand, short_help="Run one experiment (default).", epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
@with_options
def run_command(**options: Any) -> int:
    """Run one experiment; the same as no command."""
    return _run(options)


@command.command(
    "compare",
    cls=GroupedCommand,
    short_help="Compare methods on graphs, over seeds.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option(
    "--algorithm",
    "algorithms",
    metavar="LIST",
    multiple=True,
    shell_complete=complete,
    default=("gtvmin,fkm,local",),
    show_default=True,
    help="Methods, such as gtvmin,fkm:server_n_init=20,feca; can be repeated.",
)
@option(
    "--graph",
    "graphs",
    metavar="LIST",
    multiple=True,
    shell_complete=complete,
    default=("ring",),
    show_default=True,
    help="Graphs of the peer-to-peer methods; methods with a server run once, as a star.",
)
@option("--seeds", metavar="LIST", default="0-4", show_default=True, help="Seeds, such as 0-11.")
@option("--reference", metavar="METHOD", help="Reference of the paired differences.  [default: the first method]")
@option("--margin", type=float, default=0.005, show_default=True, help="Relative difference up to which "
              "two costs are equivalent: 0.005 is 0.5 % (0: none).")  # fmt: skip
@option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the ranks share the runs.")  # fmt: skip
@with_retries
@option("--devices", type=int, help="Number of devices, the same for all.  [default: 16]")
@option("--out", metavar="FOLDER", help="Folder of the comparison, or none.  [default: runs/<time>-...]")
@without("graph", "devices", "algorithm", "seed", "seeds", "coupling_path", "out", "force", "dry_run", "verbose",
          "rank_partition", "require_converged", "checkpoint_every")  # fmt: skip
def compare_command(**options: Any) -> int:
    """Run methods on graphs over seeds, all on the same points: a table, paired differences and a figure.

    p2pkm resume FOLDER, or the same --out, continues an interrupted comparison. Under mpirun the ranks share the runs.
    Exit code 4 if a run failed; its row contains the reason.
    """
    from p2pkm.analysis.paired_tests import check_margin
    from p2pkm.core.spec import split_specs
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.compare import make_comparison
    from p2pkm.experiments.studies.engine import Execution
    from p2pkm.experiments.studies.run_study import list_retries
    from p2pkm.experiments.studies.seeds import parse_seeds
    from p2pkm.experiments.studies.study_command import run_study_command

    methods, graphs = split_specs(options["algorithms"]), split_specs(options["graphs"])
    asked = {"seeds": parse_seeds(options["seeds"]), "margin": check_margin(options["margin"])}
    manner = OutputOptions(console=Terminal(), json=options["form"] == "json", quiet=options["quiet"])
    experiment = _read_experiment(options)
    usual = RunOptions().to_mapping()
    # The configuration of a run (--config) has a method, a graph, a seed and a folder of its own. A comparison shows
    # how each run ended.
    varied = ("algorithm", "graph", "seed", "out", "require_converged")
    of_runs = {
        name: value
        for name, value in experiment.to_mapping().items()
        if value != usual.get(name) and name not in varied
    }
    where = "the command line"
    study = make_comparison(of_runs | asked, methods, graphs, options["reference"], where)
    retry = list_retries(failed=options["retry_failed"], rejected=options["retry_rejected"])
    execution = Execution(options["jobs"], retry)
    return run_study_command(study, where, experiment.out, manner, execution, plot=experiment.plot)


@command.command(
    "plan", cls=GroupedCommand, short_help="Estimate memory, plain bytes and seconds of a run.",
    epilog="Exit codes: 0 the run is possible, 2 wrong command line, 3 wrong data or graph, or too little memory.",
)  # fmt: skip
@without("seeds", "coupling_path", "out", "force", "dry_run", "quiet", "verbose", "plot", "require_converged",
          "checkpoint_every")  # fmt: skip
@option("--ranks", type=click.IntRange(1, 100_000), help="MPI ranks of the run.  [default: the current ones]")
def plan_command(ranks: int | None, **options: Any) -> int:
    """Estimate memory, messages, plain bytes and seconds of a run, without running it.

    Messages and plain bytes are exact if they do not depend on the data, else "at most". Seconds are extrapolated
    linearly from a pilot run of at most 2,000 devices and two rounds in this process. Exit code 3 if the run does not
    fit into memory; the environment variable P2PKM_MEMORY, such as 8G, sets the free memory.
    """
    from p2pkm.experiments.plan.run import PlanOptions, run_plan_command

    return run_plan_command(_read_experiment(options), PlanOptions(ranks, options["form"] == "json"))


@command.command("verify", short_help="Repeat a run and compare it bit by bit.")
@click.argument("run", type=click.Path())
@option("--ranks", type=int, help="MPI ranks of the repetition.  [default: the current ones]")
@option("--files-only", is_flag=True, help="Comparison of files with their checksums only.")
@with_format
def verify_command(run: str, ranks: int | None, files_only: bool, form: str) -> int:
    """Compare every file of a run with its checksum, then repeat the run and compare it bit by bit.

    Exit code 6 if there is a difference; the output names the changed files, or the first round that differs.
    """
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.verify import verify

    return verify(Path(run), ranks, OutputOptions(json=form == "json"), files_only=files_only)


@command.command("compile", short_help="Compile the kernels before the first run.")
def compile_command() -> int:
    """Compile the kernels now, so that the first run starts without delay."""
    from p2pkm.kernels import compile_ahead, compiles

    compile_ahead(helped=True)
    disabled = "NUMBA_DISABLE_JIT is set: runs use the kernels without compilation, with the same results"
    click.echo("the kernels are compiled" if compiles() else disabled)
    return 0


@command.command("algorithms", short_help="List the methods, or explain one.")
@click.argument("name", required=False, shell_complete=complete)
@option("--full", is_flag=True, help="Docstring of the method, with all parameters.")
@with_format
def algorithms_command(name: str | None, full: bool, form: str) -> int:
    """List the methods, or explain one: messages, privacy, convergence, options, source."""
    from p2pkm.cli.algorithms import describe, explain

    click.echo(json.dumps(describe(name)) if form == "json" else explain(name, full=full))
    return 0


# Unknown options are arguments here, so that `p2pkm help --graph` works like `p2pkm help graph`.
@command.command(
    "help", short_help="Explain an option or a command.", context_settings={"ignore_unknown_options": True}
)
@click.argument("topic", required=False)
def help_command(topic: str | None) -> int:
    """Explain an option, such as graph, faults or link-model, or a command; without TOPIC, list the options."""
    from p2pkm.cli.help import explain_topic, list_topics

    click.echo(list_topics() if topic is None else explain_topic(topic))
    return 0


command.add_command(topology)
command.add_command(study_group)
command.add_command(sweep)
command.add_command(bench)
command.add_command(attack)
command.add_command(privacy)
command.add_command(animate)
command.add_command(report)
command.add_command(data)
command.add_command(predict)
command.add_command(resume_command)
command.add_command(faults)


@command.command("doctor", short_help="Check Python, MPI, kernels and disk.")
@with_format
@option("--hostfile", metavar="FILE", help="Host file of mpirun, to check and to start a rank on each host.")
def doctor_command(form: str, hostfile: str | None) -> int:
    """Check Python, MPI, threads, compiled kernels and the disk, and suggest fixes."""
    from p2pkm.cli.doctor import diagnose

    return diagnose(as_json=form == "json", host_file=hostfile)


def _run(options: dict[str, Any]) -> int:
    """Run an experiment once, for several seeds, or for several couplings."""
    from p2pkm.experiments.run import OutputOptions, run_on_root

    experiment = _read_experiment(options)
    if options["seeds"] is not None:
        from p2pkm.experiments.studies.seeds import Seeds, parse_seeds

        if options["seed"] is not None:
            raise ExperimentError(
                "--seed cannot be combined with --seeds: each run has its own seed. Remove one of them"
            )
        seeds = parse_seeds(options["seeds"])
    flags = {name: options[name] for name in ("force", "dry_run", "quiet", "verbose")}
    # Next steps are printed for new users, who have set no option yet.
    is_default = experiment == RunOptions()
    console = Terminal(verbose=options["verbose"])
    manner = OutputOptions(console=console, json=options["form"] == "json", guide=is_default, **flags)
    if options["coupling_path"] is None and options["seeds"] is None:
        return run_on_root(experiment, manner)

    from p2pkm.experiments.studies.engine import conduct_command

    if options["coupling_path"] is None:
        return conduct_command(lambda: Seeds(experiment, seeds), experiment.out, manner, shares=False)

    from p2pkm.experiments.studies.coupling_path import CouplingPath, parse_couplings

    if options["seeds"] is not None:
        raise ExperimentError(
            "--coupling-path cannot be combined with --seeds: a path has one seed. Remove one of them"
        )
    couplings = parse_couplings(options["coupling_path"])
    return conduct_command(lambda: CouplingPath(experiment, couplings), experiment.out, manner, shares=False)


def _read_experiment(options: dict[str, Any]) -> RunOptions:
    """Combine the options with those of the file of --config; the command line has precedence."""
    explicit = {name: value for name, value in options.items() if name in OPTIONS and value is not None}
    config = options["config"]
    # A key that the command line replaces may be written with dashes in the file.
    of_file = {} if config is None else read_toml(config)
    merged = {key: value for key, value in of_file.items() if key.replace("-", "_") not in explicit} | explicit
    if options["form"] == "json":
        merged = {"plot": False} | merged
    source = "the command line" if config is None else f"{config} or on the command line"
    return RunOptions.from_mapping(merged, source)
