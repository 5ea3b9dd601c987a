"""Commands ``p2pkm study``, whose usual one is also called ``sweep``: studies, their status and extension."""

import json
from pathlib import Path

import click

from p2pkm.cli.options import option, with_format, with_retries
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
missing runs are executed. The folder contains study.jsonl with one line per run (p2pkm.load_study reads it;
with pyarrow also study.parquet), traces.jsonl, figures and the study file.
"""


@click.command(
    "sweep",
    short_help="Run a study from a TOML file (study run = sweep).",
    help=_HELP,
    epilog="p2pkm study status FOLDER shows what has ended, runs or failed; p2pkm study extend FOLDER adds seeds and "
    "values. Exit codes: 0 done, 2 wrong command line or study file, 3 wrong data or graph, 4 a run failed (its row "
    "contains the reason), 130 interrupted.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("study", metavar="STUDY.toml", type=click.Path(), required=False)
@option("--out", metavar="FOLDER", help="Folder of the study, or none.  [default: runs/<time>-sweep]")
@option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine; under "
              "mpirun the ranks share the runs.")  # fmt: skip
@option("--part", metavar="i/n", help="Share i of n of the runs, for several jobs with the same --out; a final "
              "run without --part makes the table.")  # fmt: skip
@with_retries
@option("--example", is_flag=True, help="Example of a study file on standard output.")
@option("--dry-run", is_flag=True, help="Validation only; the runs are listed.")
@option("--plot/--no-plot", default=None, help="Figures in the folder.  [default: yes, no with json]")
@with_format
@option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def sweep(
    study: str | None, out: str | None, jobs: int, part: str | None, retry_failed: bool,
    retry_rejected: bool, example: bool, dry_run: bool, plot: bool | None,
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
            "study requires a study file: p2pkm study STUDY.toml. An example is printed by p2pkm study --example"
        )
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.engine import Execution
    from p2pkm.experiments.studies.run_study import check_jobs, list_retries
    from p2pkm.experiments.studies.study_command import run_study_command
    from p2pkm.experiments.studies.study_file import read_study

    manner = OutputOptions(console=Terminal(), json=form == "json", dry_run=dry_run, quiet=quiet)
    check_jobs(jobs)
    retry = list_retries(failed=retry_failed, rejected=retry_rejected)
    return run_study_command(
        read_study(study),
        study,
        out,
        manner,
        Execution(jobs, retry, part),
        plot=plot,
    )


class StudyCommands(click.Group):
    """Commands of studies; a study file in place of a name is run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the name of the usual command before its arguments, unless another one is named."""
        return super().parse_args(ctx, args if args and args[0] in self.commands else ["run", *args])


@click.group("study", cls=StudyCommands, short_help="Run a study from a TOML file; status, extend, submit.",
             context_settings={"help_option_names": ["-h", "--help"]})  # fmt: skip
def study_group() -> None:
    """Run a study file, show the status of a study, extend it, or submit it to the queue of a cluster."""


study_group.add_command(sweep, "run")


@study_group.command("status", short_help="What has ended, runs or failed; commands.",
                     epilog="Exit codes: 0 shown, 3 no study in the folder.")  # fmt: skip
@click.argument("folder", type=click.Path(path_type=Path))
@option("--commands", is_flag=True, help="Instead, the command that repeats each run, one per line.")
@with_format
def status_command(folder: Path, commands: bool, form: str) -> int:
    """Show what of a study has ended, is in progress, has failed and why, by option, and the remaining time.

    It can be called while the study runs, on any machine that reads the folder. The commands of --commands write a run
    folder each, with the same results as the rows, except for secret noise; files are named as in the study. With
    --format json, they are listed by the keys of the rows.
    """
    from p2pkm.experiments.studies.status import list_commands, read_status

    if commands:
        found = list_commands(folder)
        click.echo(json.dumps(found) if form == "json" else "\n".join(found.values()))
        return 0
    status = read_status(folder)
    click.echo(status.to_json() if form == "json" else status.format())
    return 0


@study_group.command("extend", short_help="Add seeds or values, and run what is missing.",
                     epilog="Exit codes: those of p2pkm study.")  # fmt: skip
@click.argument("folder", type=click.Path(path_type=Path))
@option("--seeds", metavar="LIST", help="Further seeds, such as 5-9.")
@option("--add", "values", metavar="OPTION=VALUE", multiple=True,
        help="Further value of an option of [grid], such as graph=torus; can be repeated.")  # fmt: skip
@option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes on this machine.")
@with_format
@option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
def extend_command(
    folder: Path, seeds: str | None, values: tuple[str, ...], jobs: int, form: str, quiet: bool
) -> int:  # fmt: skip
    """Add seeds or values to the study in a folder, and run what is missing; what has ended is not repeated."""
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.engine import Execution
    from p2pkm.experiments.studies.extend import extend_study
    from p2pkm.experiments.studies.run_study import check_jobs

    check_jobs(jobs)
    output = OutputOptions(console=Terminal(), json=form == "json", quiet=quiet)
    return extend_study(folder, seeds, values, output, Execution(jobs))


@study_group.command(
    "submit",
    short_help="Submit to the queue of a cluster.",
    epilog="Exit codes: 0 submitted, 2 wrong command line or study file, 3 wrong data, 4 refused by the queue.",
)
@click.argument("study", metavar="STUDY.toml", type=click.Path())
@click.argument("scheduler_options", metavar="[-- OPTIONS OF SBATCH OR QSUB]", nargs=-1, type=click.UNPROCESSED)
@option("--out", metavar="FOLDER", help="Folder of the study, which all nodes can read and write.")
@option("--slurm", "scheduler", flag_value="slurm", default=True, help="Submit with sbatch (default).")
@option("--pbs", "scheduler", flag_value="pbs", help="Submit with qsub; not tried on a PBS.")
@option("--tasks", type=click.IntRange(1, 10_000), default=8, show_default=True, help="Jobs of the array.")
@option("--dry-run", is_flag=True, help="Scripts and commands are printed, and nothing is submitted.")
def submit_command(
    study: str, scheduler_options: tuple[str, ...], out: str | None, scheduler: str, tasks: int, dry_run: bool
) -> int:  # fmt: skip
    """Submit a study as an array of jobs with equal shares of its runs, and a last job that makes table and figures.

    The last job waits for the others, and executes what they have not. All jobs store their rows in one folder;
    p2pkm study status FOLDER shows the progress.
    """
    from p2pkm.core.cache import shared_cache
    from p2pkm.experiments.studies.study_file import read_study
    from p2pkm.experiments.studies.submit import Submission, submit_study

    with shared_cache():
        return submit_study(
            read_study(study), study, out, Submission(scheduler, tasks, scheduler_options), dry_run=dry_run
        )
