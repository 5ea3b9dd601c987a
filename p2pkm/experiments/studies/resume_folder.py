"""Resumption of the contents of a folder: a run, runs with several seeds, a study, a comparison or a benchmark."""

from pathlib import Path

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.experiments.bench.run_bench import BenchDesign, read_mark_of
from p2pkm.experiments.resume import resume
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.coupling_path import restore_path
from p2pkm.experiments.studies.engine import IN_THIS_PROCESS, Execution, conduct_command
from p2pkm.experiments.studies.seeds import restore_seeds
from p2pkm.experiments.studies.study_command import run_study_command
from p2pkm.experiments.studies.study_file import restore_study
from p2pkm.storage.lock import describe_lock_holder
from p2pkm.storage.study_mark import BENCH, COMPARISON, MARK, PATH, SEEDS, SWEEP, read_mark


def resume_folder(path: Path, output: OutputOptions, execution: Execution = IN_THIS_PROCESS) -> int:
    """Complete the runs of a folder and return the exit code; finished runs are not repeated.

    Parameters
    ----------
    path : Path
        Folder of a run, of a run with ``--seeds``, of a study, of a comparison or of a benchmark.
    output : OutputOptions
    execution : Execution
        Of a study, a comparison or a benchmark.

    Raises
    ------
    P2PKMError
        If the folder holds none of these, is used by another process, or its configuration or data have changed.
    """
    asked = read_mark(path)
    kind = asked.get("kind")
    if kind in (SWEEP, COMPARISON, BENCH):
        if process := describe_lock_holder(path):
            raise DataError(f"{path} is in use by {process}. Wait until it ends, or stop it first")
        if kind == BENCH:
            return conduct_command(lambda: BenchDesign(read_mark_of(path)), str(path), output, execution)
        where = str(path / MARK)
        return run_study_command(restore_study(asked, where), where, str(path), output, execution)
    if execution.jobs > 1:
        raise ExperimentError(
            f"--jobs {execution.jobs} cannot be used with {path}: it holds no study, comparison or benchmark. Remove "
            "--jobs"
        )
    if kind == SEEDS:
        return conduct_command(lambda: restore_seeds(path, asked), str(path), output, shares=False)
    # Earlier versions wrote a path of couplings without what was asked.
    if kind == PATH and "couplings" in asked:
        return conduct_command(lambda: restore_path(path, asked), str(path), output, shares=False)
    return resume(path, output)
