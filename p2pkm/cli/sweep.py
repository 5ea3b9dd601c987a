"""Command ``p2pkm sweep``: parameter studies."""

import click

from p2pkm.cli.options import with_format
from p2pkm.cli.summary_table import Terminal

_HELP = """Run all combinations of a study file, once per seed, and print one table.

The file contains options of all runs, by their names on the command line, then any of these:

\b
seeds = "0-4"              or [0, 1, 2]; default 0-4
[grid]                     every combination of these lists
graph = ["ring", "grid"]
[[runs]]                   or one by one, each combined with the grid
algorithm = "gtvmin"

Methods with a server run once, as a star. p2pkm resume FOLDER, or the same --out, continues an interrupted study: only
new and failed runs are executed. The folder contains study.jsonl with one line per run (p2pkm.load_study reads it;
with pyarrow also study.parquet), traces.jsonl, figures and the study file.
"""


@click.command(
    "sweep",
    short_help="Run a study from a TOML file.",
    help=_HELP,
    epilog="Exit codes: 0 done, 2 wrong command line or study file, 3 wrong data or graph, 4 a run failed (its row "
    "contains the reason), 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("study", metavar="STUDY.toml", type=click.Path(), required=False)
@click.option("--out", metavar="FOLDER", help="Folder of the study, or none.  [default: runs/<time>-sweep]")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the ranks share the runs.")  # fmt: skip
@click.option("--part", metavar="i/n", help="Share i of n of the runs, for several jobs with the same --out; a final "
              "sweep without --part makes the table.")  # fmt: skip
@click.option("--example", is_flag=True, help="Example of a study file on standard output.")
@click.option("--dry-run", is_flag=True, help="Validation only; the runs are listed.")
@click.option("--plot/--no-plot", default=None, help="Figures in the folder.  [default: yes, no with json]")
@with_format
@click.option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def sweep(  # noqa: PLR0913 - one parameter per option
    study: str | None, out: str | None, jobs: int, part: str | None, example: bool, dry_run: bool, plot: bool | None,
    form: str, quiet: bool,
) -> int:  # fmt: skip
    """Run a study, or print an example of a study file."""
    from p2pkm.core.errors import ExperimentError

    if example:
        from p2pkm.experiments.studies.study_file import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        return 0
    if study is None:
        raise ExperimentError(
            "sweep requires a study file: p2pkm sweep STUDY.toml. An example is printed by p2pkm sweep --example"
        )
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.sweep import run_sweep_command

    manner = OutputOptions(console=Terminal(), json=form == "json", dry_run=dry_run, quiet=quiet)
    return run_sweep_command(study, out, jobs, manner, plot=plot, part=part)
