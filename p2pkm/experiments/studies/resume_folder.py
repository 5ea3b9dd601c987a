"""Resumption of the contents of a folder: a run, runs with several seeds, a study, a comparison or a benchmark."""

from collections.abc import Callable
from pathlib import Path

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.experiments.bench import run_bench
from p2pkm.experiments.resume import resume
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies import compare, seeds, sweep
from p2pkm.storage.lock import describe_lock_holder


def resume_folder(path: Path, output: OutputOptions, jobs: int = 1) -> int:
    """Complete the runs of a folder and return the exit code; finished runs are not repeated.

    Parameters
    ----------
    path : Path
        Folder of a run, of a run with ``--seeds``, of a study, of a comparison or of a benchmark.
    output : OutputOptions
    jobs : int
        Number of processes of a study, a comparison or a benchmark.

    Raises
    ------
    P2PKMError
        If the folder holds none of these, is used by another process, or its configuration or data have changed.
    """
    study_file = path / sweep.MARK
    with_marks: dict[str, Callable[[], int]] = {
        sweep.MARK: lambda: sweep.run_sweep_command(str(study_file), str(path), jobs, output, plot=None, part=None),
        compare.MARK: lambda: compare.resume_compare(path, jobs, output),
        run_bench.MARK: lambda: run_bench.resume_bench(path, jobs, output),
    }
    for mark, resume_study in with_marks.items():
        if (path / mark).is_file():
            if process := describe_lock_holder(path):
                raise DataError(f"{path} is in use by {process}. Wait until it ends, or stop it first")
            return resume_study()
    if jobs > 1:
        raise ExperimentError(
            f"--jobs {jobs} cannot be used with {path}: it holds no study, comparison or benchmark. Remove --jobs"
        )
    return seeds.resume_seeds(path, output) if (path / seeds.MARK).is_file() else resume(path, output)
