"""Command ``p2pkm resume``: continuation of an interrupted run, study or comparison."""

from pathlib import Path

import click

from p2pkm.cli.options import option, with_format, with_retries
from p2pkm.cli.summary_table import Terminal


@click.command("resume", short_help="Continue an interrupted run or study.", epilog="Exit codes: those of the run or "
               "the study; 3 no run or study in the folder, a run in progress, or changed points, graph or options; "
               "2 another version of p2pkm.")  # fmt: skip
@click.argument("folder", type=click.Path())
@option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes of a study or a "
              "comparison on this machine.")  # fmt: skip
@with_retries
@with_format
@option("-q", "--quiet", is_flag=True, help="No progress on standard error.")
@option("-v", "--verbose", is_flag=True, help="All metrics, and a line for every recorded round.")
def resume_command(
    folder: str, jobs: int, retry_failed: bool, retry_rejected: bool, form: str, quiet: bool, verbose: bool,
) -> int:  # fmt: skip
    """Continue an interrupted run, --seeds, --coupling-path, study, comparison or benchmark in its folder.

    A run continues from its last checkpoint, on any number of ranks: mpirun -n 3 python -m p2pkm resume RUN. The result
    is bit-identical to that of an uninterrupted run. A run without checkpoint starts from the beginning. Finished runs
    of --seeds, a study or a comparison are not repeated. For a finished run, the summary is printed again.
    """
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.engine import Execution
    from p2pkm.experiments.studies.resume_folder import resume_folder
    from p2pkm.experiments.studies.run_study import list_retries

    console = Terminal(verbose=verbose)
    manner = OutputOptions(console=console, json=form == "json", quiet=quiet, verbose=verbose)
    execution = Execution(jobs, list_retries(failed=retry_failed, rejected=retry_rejected))
    return resume_folder(Path(folder), manner, execution)
