"""Whatever was killed goes on in its own folder: a run, one over several seeds, a study, a comparison."""

from collections.abc import Callable
from pathlib import Path

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.experiments.resume import resume
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies import compare, seeds, sweep
from p2pkm.storage.lock import holder


def resume_folder(path: Path, manner: OutputOptions, jobs: int = 1) -> int:
    """Finish what a folder was begun with, and return the exit code; what has ended in it is not computed again.

    Parameters
    ----------
    path : Path
        Of a run, of a run with ``--seeds``, of a study or of a comparison.
    manner : OutputOptions
    jobs : int
        Number of processes of a study or a comparison.

    Raises
    ------
    P2PKMError
        If it is no such folder, somebody is still at it, or what it was begun with has changed.
    """
    many: dict[str, Callable[[], int]] = {
        sweep.MARK: lambda: sweep.run_sweep_command(
            str(path / sweep.MARK), str(path), jobs, manner, plot=None, part=None
        ),
        compare.MARK: lambda: compare.resume_compare(path, jobs, manner),
    }
    for mark, go_on in many.items():
        if (path / mark).is_file():
            if who := holder(path):
                raise DataError(f"{path} is in use: {who} is still at it; wait for it, or end it first")
            return go_on()
    if jobs > 1:
        raise ExperimentError(f"--jobs {jobs} is for studies and comparisons, and {path} is neither; leave it out")
    return seeds.resume_seeds(path, manner) if (path / seeds.MARK).is_file() else resume(path, manner)
