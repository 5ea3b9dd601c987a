"""Command line: options and commands."""

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from p2pkm.cli.animate import animate
from p2pkm.cli.attack import attack
from p2pkm.cli.completion import complete
from p2pkm.cli.faults import faults
from p2pkm.cli.options import with_format, with_options, without
from p2pkm.cli.report import report
from p2pkm.cli.resume import resume_command
from p2pkm.cli.summary_table import Terminal
from p2pkm.cli.sweep import sweep
from p2pkm.cli.topology import topology
from p2pkm.core.errors import ExperimentError
from p2pkm.core.version import __version__
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.storage.toml import read_toml

_HELP = """Cluster without a server: devices on a graph exchange messages with their neighbors.

\b
python -m p2pkm --graph ring                       16 devices in one process
mpirun -n 16 python -m p2pkm --graph ring          the same on 16 MPI ranks, with the same bits
"""
_EPILOG = """Exit codes: 0 done, 2 wrong command line, 3 wrong data or graph, 4 MPI, a rank or the disk failed,
5 not converged with --require-converged, 6 verify found a difference, 130 interrupted, 143 ended by SIGTERM."""


@click.group(invoke_without_command=True, help=_HELP, epilog=_EPILOG,
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})  # fmt: skip
@with_options
@click.version_option(__version__)
@click.pass_context
def command(context: click.Context, /, **options: Any) -> int | None:
    """Run one experiment, unless a command says otherwise."""
    if context.invoked_subcommand is None:
        return _run(options)
    if any(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in options):
        raise click.UsageError(f"give the options after the command: p2pkm {context.invoked_subcommand} ...")
    return None


@command.command("run", epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@with_options
def run_command(**options: Any) -> int:
    """Run one experiment; the same as giving no command."""
    return _run(options)


@command.command(
    "compare",
    short_help="Run methods on graphs over seeds, side by side.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--algorithm",
    "algorithms",
    metavar="LIST",
    multiple=True,
    shell_complete=complete,
    default=("gtvmin,fkm,local",),
    show_default=True,
    help="Methods, as in gtvmin,fkm:server_n_init=20,feca; may be given again.",
)
@click.option(
    "--graph",
    "graphs",
    metavar="LIST",
    multiple=True,
    shell_complete=complete,
    default=("ring",),
    show_default=True,
    help="Graphs for the peer-to-peer methods; methods with a server run once, as a star.",
)
@click.option("--seeds", metavar="LIST", default="0-4", show_default=True, help="Seeds, such as 0-11.")
@click.option("--reference", metavar="METHOD", help="What the others are compared with.  [default: the first method]")
@click.option("--margin", type=float, default=0.005, show_default=True, help="Log ratio of two costs within which they "
              "are equivalent (0: never).")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the runs are dealt to the ranks instead.")  # fmt: skip
@click.option("--devices", type=int, help="Number of devices, the same for all.  [default: 16]")
@click.option("--out", metavar="FOLDER", help="Folder of the comparison, or none.  [default: runs/<time>-...]")
@without("graph", "devices", "algorithm", "seed", "seeds", "coupling_path", "out", "force", "dry_run", "verbose",
          "rank_partition", "require_converged", "checkpoint_every")  # fmt: skip
def compare_command(**options: Any) -> int:
    """Run methods on graphs over seeds, all on the same points; a table, paired differences, and a figure.

    An interrupted comparison goes on with p2pkm resume FOLDER, or the same --out. Under mpirun the runs are dealt to
    the ranks. Code 4 if a run failed; its row gives the reason.
    """
    from p2pkm.core.spec import split_specs
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.compare import Comparison, lead_compare
    from p2pkm.experiments.studies.seeds import parse_seeds
    from p2pkm.storage.paired_tests import check_margin

    lists = split_specs(options["algorithms"]), split_specs(options["graphs"]), parse_seeds(options["seeds"])
    manner = OutputOptions(console=Terminal(), json=options["form"] == "json", quiet=options["quiet"])
    asked = Comparison.of(_read_experiment(options), *lists, options["reference"])
    return lead_compare(asked._replace(margin=check_margin(options["margin"])), manner, options["jobs"])


@command.command("plan", short_help="Estimate memory, bytes and seconds of a run.", epilog="Exit codes: 0 it can "
                 "run, 2 wrong command line, 3 it cannot: wrong data or graph, or too little memory.")  # fmt: skip
@without("seeds", "coupling_path", "out", "force", "dry_run", "quiet", "verbose", "plot", "require_converged", "faults",
          "stale_policy", "checkpoint_every")  # fmt: skip
@click.option("--ranks", type=click.IntRange(1, 100_000), help="Ranks of the run.  [default: those that are running]")
def plan_command(ranks: int | None, **options: Any) -> int:
    """Estimate what a run would need, without running it: memory, messages, bytes and seconds.

    Messages and bytes are exact where they do not depend on the data, else "at most". Seconds are those of a pilot, a
    run of at most 2,000 devices and two rounds in this process, scaled linearly. Code 3 if the run does not fit into
    memory; the environment variable P2PKM_MEMORY, such as 8G, sets the memory that is free.
    """
    from p2pkm.experiments.plan.run import Wanted, lead_plan

    wanted = Wanted(ranks, options["form"] == "json")
    return lead_plan(_read_experiment(options), wanted)


@command.command("verify", short_help="Check the files of a run, then repeat it bit by bit.")
@click.argument("run", type=click.Path())
@click.option("--ranks", type=int, help="Repeat it on so many MPI ranks.  [default: those that are running]")
@click.option("--files-only", is_flag=True, help="Compare every file with its checksum, and do not repeat the run.")
@with_format
def verify_command(run: str, ranks: int | None, files_only: bool, form: str) -> int:
    """Check every file of a run, then repeat the run and compare it bit by bit.

    Code 6 if there is a difference: the names of the files that changed, or the first round that came out otherwise.
    """
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.seeds import verify

    return verify(Path(run), ranks, OutputOptions(json=form == "json"), files_only=files_only)


@command.command("compile", short_help="Compile the kernels ahead of the first run.")
def compile_command() -> int:
    """Compile the kernels ahead, so that the first run does not have to."""
    from p2pkm.kernels import compile_ahead, compiles

    compile_ahead()
    plainly = "NUMBA_DISABLE_JIT lets nothing be compiled: runs take the plain kernels, with the same results"
    click.echo("the kernels are compiled" if compiles() else plainly)
    return 0


@command.command("algorithms", short_help="List the methods, or explain one.")
@click.argument("name", required=False, shell_complete=complete)
@with_format
def algorithms_command(name: str | None, form: str) -> int:
    """List the methods, or explain one: equation, messages, privacy, defaults, source."""
    from p2pkm.cli.algorithms import describe, explain

    if form == "json":
        click.echo(json.dumps(describe(name)))
    else:
        click.echo(explain(name))
    return 0


command.add_command(topology)
command.add_command(sweep)
command.add_command(attack)
command.add_command(animate)
command.add_command(report)
command.add_command(resume_command)
command.add_command(faults)


@command.command("doctor", short_help="Is MPI set up, and what to do if not.")
@with_format
@click.option("--hostfile", metavar="FILE", help="Also look into mpirun's file of hosts, and start a rank on each.")
def doctor_command(form: str, hostfile: str | None) -> int:
    """Check Python, MPI, threads, compiled kernels and the disk, and advise what to do."""
    from p2pkm.cli.doctor import diagnose

    return diagnose(as_json=form == "json", host_file=hostfile)


def _run(options: dict[str, Any]) -> int:
    from p2pkm.experiments.run import OutputOptions, run_on_root

    experiment = _read_experiment(options)
    if options["seeds"] is not None:
        from p2pkm.experiments.studies.seeds import lead_seeds, parse_seeds

        if options["seed"] is not None:
            raise ExperimentError("--seed and --seeds are both given; give one")
        seeds = parse_seeds(options["seeds"])
    untouched = experiment == RunOptions()
    flags = {"guide": untouched} | {name: options[name] for name in ("force", "dry_run", "quiet", "verbose")}
    manner = OutputOptions(console=Terminal(), json=options["form"] == "json", **flags)
    if options["coupling_path"] is not None:
        from p2pkm.experiments.studies.coupling_path import lead_path, parse_couplings

        if options["seeds"] is not None:
            raise ExperimentError("--seeds and --coupling-path are both given; give one")
        return lead_path(experiment, parse_couplings(options["coupling_path"]), manner)
    return run_on_root(experiment, manner) if options["seeds"] is None else lead_seeds(experiment, seeds, manner)


def _read_experiment(options: dict[str, Any]) -> RunOptions:
    """Return what the options and the file of --config say; the command line wins."""
    given = {name: value for name, value in options.items() if name in OPTIONS and value is not None}
    config = options["config"]
    merged = ({} if config is None else read_toml(config)) | given
    if options["form"] == "json":
        merged = {"plot": False} | merged
    where = "the command line" if config is None else f"{config} or on the command line"
    return RunOptions.from_mapping(merged, where)
