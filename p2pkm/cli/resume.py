"""Command line of ``p2pkm resume``: go on with a run, or with many."""

from pathlib import Path

import click

from p2pkm.cli.options import with_format
from p2pkm.cli.summary_table import Terminal


@click.command("resume", short_help="Go on with a run or a study that was killed.", epilog="Exit codes: those of "
               "the run or the study; 3 a folder that is neither, a run that still goes on, or points, graph or "
               "options that have changed, 2 another version of p2pkm.")  # fmt: skip
@click.argument("folder", type=click.Path())
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes of a study or a "
              "comparison on this machine.")  # fmt: skip
@with_format
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("-v", "--verbose", is_flag=True, help="A line for every recorded round.")
def resume_command(folder: str, jobs: int, form: str, quiet: bool, verbose: bool) -> int:
    """Go on with what was killed or interrupted, in its folder: a run, --seeds, a study, a comparison.

    A run goes on from its last checkpoint, on any number of ranks, also another than before: mpirun -n 3 python -m
    p2pkm resume RUN. It ends with the same bits as the run without interruption. A run killed before its first
    checkpoint starts anew. Runs of --seeds, of a study or of a comparison that have ended are not repeated. Of what is
    finished the summary is printed again.
    """
    from p2pkm.experiments.run import OutputOptions
    from p2pkm.experiments.studies.resume_folder import resume_folder

    manner = OutputOptions(console=Terminal(), json=form == "json", quiet=quiet, verbose=verbose)
    return resume_folder(Path(folder), manner, jobs)
