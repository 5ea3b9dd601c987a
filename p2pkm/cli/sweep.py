"""Command line of ``p2pkm sweep``: studies."""

import click

from p2pkm.cli.options import with_format
from p2pkm.cli.summary_table import Terminal

_HELP = """Run what a study file asks for, every run once for each seed, as one table.

The file holds options of all runs, by their names on the command line, then any of these:

\b
seeds = "0-4"              or [0, 1, 2]; default 0-4
[grid]                     every combination of these lists
graph = ["ring", "grid"]
[[runs]]                   or one by one, each with all of the grid
algorithm = "gtvmin"

Methods with a server run once, as their own star. A study that was interrupted goes on with p2pkm
resume FOLDER, or the same --out; only what is new or failed is run. The folder holds study.jsonl, one line per run
(p2pkm.load_study reads it, also as study.parquet if pyarrow is there), traces.jsonl, figures and the study file.
"""


@click.command(
    "sweep",
    short_help="Run a study from a TOML file.",
    help=_HELP,
    epilog="Exit codes: 0 done, 2 wrong command line or study file, 3 data or a graph that can never work, 4 a run "
    "failed (its row shows why), 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("study", metavar="STUDY.toml", type=click.Path(), required=False)
@click.option("--out", metavar="FOLDER", help="Folder of the study, or none.  [default: runs/<time>-sweep]")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the runs are dealt to the ranks instead.")  # fmt: skip
@click.option("--part", metavar="i/n", help="Run the i-th of n shares, as one of several jobs with the same --out; "
              "a last sweep without --part makes the table.")  # fmt: skip
@click.option("--example", is_flag=True, help="Print a study file to begin with.")
@click.option("--dry-run", is_flag=True, help="Check everything, list the runs, and stop.")
@click.option("--plot/--no-plot", default=None, help="Draw figures into the folder.  [default: on, off with json]")
@with_format
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def sweep(  # noqa: PLR0913 - one parameter per option
    study: str | None, out: str | None, jobs: int, part: str | None, example: bool, dry_run: bool, plot: bool | None,
    form: str, quiet: bool,
) -> int:  # fmt: skip
    """Run the study."""
    from p2pkm.core.errors import ExperimentError

    if example:
        from p2pkm.experiments.studies.study_file import EXAMPLE

        click.echo(EXAMPLE, nl=False)
        return 0
    if study is None:
        raise ExperimentError("sweep needs a study file, as in p2pkm sweep STUDY.toml; --example prints one")
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.sweep import lead_sweep

    manner = OutputOptions(console=Terminal(), json=form == "json", dry_run=dry_run, quiet=quiet)
    return lead_sweep(study, out, jobs, manner, plot=plot, part=part)
