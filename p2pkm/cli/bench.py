"""Command ``p2pkm bench``: rank methods on the tasks of a suite."""

from typing import Any

import click

from p2pkm.cli.completion import complete
from p2pkm.cli.options import only, option, with_format, with_retries
from p2pkm.cli.summary_table import Terminal

_HELP = """Rank methods on the tasks of a suite, and write a table of all runs.

p2pkm bench list shows the suites. A run that is rejected, fails or runs out of time is a row with its reason. p2pkm
resume FOLDER, or the same --out, continues an interrupted benchmark. Under mpirun the ranks share the runs. p2pkm bench
merge joins folders of one suite.

With --data FILE, one task on your own table takes the place of a suite; with --test-share methods are ranked by the
test points of each device.

--client-share, --deadline with --link-model, and --stale-policy add an entry with these options for each method that
can run with them, such as fkm (client_share=0.25) beside fkm.
"""
# Options of a run that select and read data of the user.
_OF_DATA = (
    "data", "clusters", "devices", "graph", "partition", "test_share", "label_column", "device_column", "weight_column",
    "columns", "drop", "encode", "missing", "scale", "na", "decimal", "thousands", "separator", "encoding", "sheet",
    "header", "dates", "rename", "skip_rows",
)  # fmt: skip
_OF_ENTRIES = ("client_share", "deadline", "link_model", "stale_policy")


@click.group(
    "bench",
    invoke_without_command=True,
    short_help="Rank methods on the tasks of a suite.",
    help=_HELP,
    epilog="Exit codes: 0 done, also if runs failed, 2 wrong command line or suite, 3 wrong data, 4 a folder cannot "
    "be written, 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@option("--suite", default="core", show_default=True, metavar="NAME", help="Suite, or the path of a suite file.")
@option("--algorithm", "algorithms", multiple=True, metavar="LIST", shell_complete=complete, help="Methods, such "
              "as all,mymethod or gtvmin,fkm:server_n_init=20; can be repeated.  [default: of the suite]")  # fmt: skip
@option("--task", "tasks", multiple=True, metavar="LIST", help="Tasks of the suite.  [default: all]")
@option("--seeds", metavar="LIST", help="Seeds, such as 0-7.  [default: those of the suite]")
@option("--file", "files", multiple=True, metavar="NAME=PATH", help="Data file of a task, for the suite real.")
@option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the ranks share the runs.")  # fmt: skip
@option("--time-limit", type=float, metavar="S", help="Seconds of a run.  [default: as in the suite]")
@option("--margin", type=float, default=0.005, show_default=True, help="Relative difference up to which "
              "two costs are equivalent: 0.005 is 0.5 % (0: none).")  # fmt: skip
@option("--out", metavar="FOLDER", help="Folder of the benchmark, or none.  [default: runs/<time>-bench]")
@option("--plot/--no-plot", default=None, help="Figures and report in the folder.  [default: yes, no with json]")
@option("--dry-run", is_flag=True, help="Validation only; tasks and entries are listed.")
@option("--update-reference", is_flag=True, help="Search the best known clusterings again, and write them into "
              "references.json of --out, without runs.")  # fmt: skip
@only(*_OF_DATA, *_OF_ENTRIES)
@with_retries
@with_format
@option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
@click.pass_context
def bench(
    context: click.Context, /, suite: str, algorithms: tuple[str, ...], tasks: tuple[str, ...], seeds: str | None,
    files: tuple[str, ...], jobs: int, time_limit: float | None, margin: float, out: str | None, plot: bool | None,
    dry_run: bool, update_reference: bool, retry_failed: bool, retry_rejected: bool, form: str, quiet: bool,
    **data: Any,
) -> int:  # fmt: skip
    """Run a benchmark, unless a command is named."""
    if context.invoked_subcommand is not None:
        return 0
    from p2pkm.analysis.paired_tests import check_margin
    from p2pkm.core.spec import split_specs
    from p2pkm.experiments.bench.entries import split_list
    from p2pkm.experiments.bench.run_bench import BenchDesign, BenchOptions, split_options, update_references
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.engine import Execution, conduct_command
    from p2pkm.experiments.studies.run_study import list_retries

    listed = tuple(split_list(",".join(algorithms))) if algorithms else ()
    entry, of_data = split_options(data)
    options = BenchOptions(
        suite, listed, tuple(split_specs(tasks)) if tasks else (), seeds, _read_files(files), time_limit,
        check_margin(margin), form != "json" if plot is None else plot,
        of_data, entry=entry,
    )  # fmt: skip
    manner = OutputOptions(console=Terminal(), json=form == "json", dry_run=dry_run, quiet=quiet)
    if update_reference:
        return update_references(options, out, manner)
    retry = list_retries(failed=retry_failed, rejected=retry_rejected)
    return conduct_command(lambda: BenchDesign(options), out, manner, Execution(jobs, retry))


def _read_files(texts: tuple[str, ...]) -> dict[str, str]:
    """Read the files of tasks, NAME=PATH."""
    from p2pkm.core.errors import ExperimentError

    files = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise ExperimentError(f"--file is {text!r}; expected NAME=PATH, such as mnist=mnist.npz")
        if name in files:
            raise ExperimentError(f"--file {name} is set twice; expected one path. Remove one")
        files[name] = path
    return files


@bench.command("list", short_help="List suites and their tasks.")
@click.argument("suite", required=False)
@with_format
def list_command(suite: str | None, form: str) -> int:
    """List the suites, or the tasks and entries of one."""
    import json

    from p2pkm.experiments.bench.list_suite import describe_suites, format_suites

    suites = describe_suites(suite)
    click.echo(json.dumps(suites) if form == "json" else format_suites(suites))
    return 0


@bench.command("merge", short_help="Join benchmarks of one suite.")
@click.argument("folders", nargs=-1, required=True)
@option("--out", metavar="FOLDER", required=True, help="New folder.")
def merge_command(folders: tuple[str, ...], out: str) -> int:
    """Join the rows of benchmarks of the same version of a suite with the same points, for example of other people."""
    from p2pkm.analysis.bench_statistics import BenchSummary
    from p2pkm.core.units import describe_folder
    from p2pkm.experiments.bench.merge import merge_folders
    from p2pkm.viz import draw_bench

    joined = merge_folders(folders, out)
    ranking = joined.ranking()
    # The ranking by test points has no figures; `merge_folders` has written its text.
    if isinstance(ranking, BenchSummary):
        draw_bench(ranking, out)
    click.echo(f"{ranking.text()}\n{describe_folder(out)}")
    return 0
