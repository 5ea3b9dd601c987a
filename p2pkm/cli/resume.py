"""Command line of ``p2pkm resume``: go on with a run."""

from pathlib import Path

import click

from p2pkm.cli.options import with_format
from p2pkm.cli.summary_table import Terminal


@click.command("resume", short_help="Go on with a run that was killed.", epilog="Exit codes: those of the run; 3 a "
               "folder that is no run, a run that still goes on, or points, graph or options that have changed, 2 "
               "another version of p2pkm.")  # fmt: skip
@click.argument("run", type=click.Path())
@with_format
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("-v", "--verbose", is_flag=True, help="A line for every recorded round.")
def resume_command(run: str, form: str, quiet: bool, verbose: bool) -> int:
    """Go on with a run that was killed or interrupted, from the last checkpoint in its folder.

    On any number of ranks, also another than before: mpirun -n 3 python -m p2pkm resume RUN. It ends with the same bits
    as the run without interruption. A run killed before its first checkpoint starts anew; of a finished one the summary
    is printed again.
    """
    from p2pkm.experiments.resume import resume
    from p2pkm.experiments.run import OutputOptions

    return resume(Path(run), OutputOptions(console=Terminal(), json=form == "json", quiet=quiet, verbose=verbose))
