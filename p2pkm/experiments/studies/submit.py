"""Submission of a study to the queue of a cluster: an array of jobs with shares of its runs, and a last one."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.mpi_environment import THREADS
from p2pkm.core.units import count
from p2pkm.experiments.console import print_note
from p2pkm.experiments.studies.engine import writing
from p2pkm.experiments.studies.run_study import StudyPlan
from p2pkm.experiments.studies.study_command import make_design
from p2pkm.experiments.studies.study_file import StudyFile
from p2pkm.storage.lock import check_not_locked
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_folder import mark_folder, open_folder
from p2pkm.storage.study_mark import MARK

JOBS = "jobs"  # folder of the scripts, of what the jobs print, and of their numbers
_NUMBERS = "submitted.json"


class Scheduler(NamedTuple):
    """Commands and options of a scheduler.

    Attributes
    ----------
    submit : tuple of str
        Command that submits a script and prints the number of the job.
    options : tuple of str
        Options of all jobs; ``{name}`` and ``{jobs}`` stand for their name and the folder of what they print.
    array : tuple of str
        Options of an array of ``{tasks}`` jobs.
    after : tuple of str
        Options of a job that waits until the job ``{job}`` has ended, however.
    variable : str
        Variable with the number of a job in its array, from 1.
    queue : tuple of str
        Command that prints the job ``{job}`` as long as it is in the queue.
    """

    submit: tuple[str, ...]
    options: tuple[str, ...]
    array: tuple[str, ...]
    after: tuple[str, ...]
    variable: str
    queue: tuple[str, ...]


SCHEDULERS = {
    "slurm": Scheduler(
        ("sbatch", "--parsable"),
        # A job that is started again goes on where the first start ended.
        ("--job-name={name}", "--ntasks=1", "--requeue", "--open-mode=append", "--output={jobs}/output.txt"),
        ("--array=1-{tasks}",),
        ("--dependency=afterany:{job}",),
        "SLURM_ARRAY_TASK_ID",
        ("squeue", "--noheader", "--jobs={job}"),
    ),
    "pbs": Scheduler(
        ("qsub",),
        ("-N", "{name}", "-r", "y", "-j", "oe", "-o", "{jobs}"),
        ("-J", "1-{tasks}"),
        ("-W", "depend=afterany:{job}"),
        "PBS_ARRAY_INDEX",
        ("qstat", "{job}"),
    ),
}


class Submission(NamedTuple):
    """Scheduler, number of tasks and options of a job array.

    Attributes
    ----------
    scheduler : str
        "slurm" or "pbs".
    tasks : int
        Number of jobs in the array.
    options : sequence of str
        Further options of the command that submits, such as ``--time=02:00:00``.
    """

    scheduler: str
    tasks: int
    options: Sequence[str] = ()


def submit_study(study: StudyFile, where: str, out: str | None, submission: Submission, *, dry_run: bool) -> int:
    """Write the scripts of a study into its folder and submit them, or print them; return the exit code.

    Parameters
    ----------
    study : StudyFile
    where : str
        Source of the study in messages.
    out : str or None
        Folder of the study, which all nodes can read and write; None: that of the study file.
    submission : Submission
    dry_run : bool
        Print scripts and commands, and do nothing.

    Raises
    ------
    P2PKMError
        If an entry of the study cannot be used, its folder is in use or its jobs are in the queue, or the scheduler
        refuses.
    """
    out = out or study.base.get("out")
    if out in (None, "none"):
        raise ExperimentError("study submit requires a folder that all nodes share. Add --out FOLDER")
    design = make_design(study, where, out)
    folder = Path(str(out)).resolve()
    plan = StudyPlan(design.cells, design.keys, folder)
    tasks = min(submission.tasks, max(len(plan.missing), 1))
    scheduler = SCHEDULERS[submission.scheduler]
    scripts = {"array.sh": _write_array(folder, tasks, scheduler), "last.sh": _write_last(folder)}
    names = {"name": f"p2pkm-{folder.name}", "jobs": str(folder / JOBS), "tasks": str(tasks), "job": "NUMBER"}
    if dry_run:
        for name, script in scripts.items():
            print(f"# {folder / JOBS / name}\n{script}")
        for command in _list_commands(scheduler, submission, folder, names):
            print(shlex.join(command))
        return 0
    if shutil.which(scheduler.submit[0]) is None:
        raise ExperimentError(
            f"{scheduler.submit[0]} is not installed here. Call study submit on a login node of the cluster, or look "
            "at the scripts with --dry-run"
        )
    _check_unused(folder, plan)
    open_folder(str(folder), design.kind)
    mark_folder(folder, design.kind, design.to_mapping(), shared=False)
    with writing(folder):
        (folder / JOBS).mkdir(exist_ok=True)
        for name, script in scripts.items():
            write_bytes(folder / JOBS, name, methodcaller("write", script.encode()))
    array = _submit(_list_commands(scheduler, submission, folder, names)[0])
    # Before the last job: if that is refused, the array is not submitted again unknowingly.
    write_json(folder / JOBS, _NUMBERS, {"scheduler": submission.scheduler, "jobs": [array]})
    last = _submit(_list_commands(scheduler, submission, folder, names | {"job": array})[1])
    write_json(folder / JOBS, _NUMBERS, {"scheduler": submission.scheduler, "jobs": [array, last]})
    print(
        f"{count(len(plan.missing), 'run')} in {count(tasks, 'job')} of array {array}; job {last} makes the table\n"
        f"progress: python -m p2pkm study status {folder}"
    )
    return 0


def _write_array(folder: Path, tasks: int, scheduler: Scheduler) -> str:
    """Return the script of a job of the array, which executes its share."""
    study, out = shlex.quote(str(folder / MARK)), shlex.quote(str(folder))
    return _write_script(f'study {study} --out {out} --quiet --part "${scheduler.variable}/{tasks}"')


def _write_last(folder: Path) -> str:
    """Return the script of the last job, which executes what the others have not, and makes table and figures."""
    return _write_script(f"resume {shlex.quote(str(folder))} --quiet")


def _write_script(words: str) -> str:
    return (
        "#!/bin/bash\n"
        "# Written by p2pkm study submit.\n"
        f"cd {shlex.quote(os.getcwd())} || exit\n"
        f"export {' '.join(f'{name}=1' for name in THREADS)}\n"
        f"exec {shlex.quote(sys.executable)} -m p2pkm {words}\n"
    )


def _list_commands(
    scheduler: Scheduler, submission: Submission, folder: Path, names: dict[str, str]
) -> tuple[list[str], list[str]]:
    """Return the commands that submit the array and the last job."""

    def fill(*parts: Sequence[str]) -> list[str]:
        return [text.format(**names) for part in parts for text in part]

    start = fill(scheduler.submit, scheduler.options)
    array = [*start, *fill(scheduler.array), *submission.options, str(folder / JOBS / "array.sh")]
    last = [*start, *fill(scheduler.after), *submission.options, str(folder / JOBS / "last.sh")]
    return array, last


def _check_unused(folder: Path, plan: StudyPlan) -> None:
    """Check that no job and no process works on a study.

    Raises
    ------
    ExperimentError
        If one does.
    """
    check_not_locked(folder)
    if workers := plan.stored.count_workers():
        raise ExperimentError(
            f"{folder} is in use: {count(workers, 'process', 'es')} execute its runs. Wait for them, or end them"
        )
    try:
        numbers: Any = json.loads((folder / JOBS / _NUMBERS).read_bytes())
        waiting = [job for job in numbers["jobs"] if _is_queued(SCHEDULERS[numbers["scheduler"]], job)]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if waiting:
        raise ExperimentError(
            f"the jobs {', '.join(waiting)} of {folder} are in the queue. Wait for them, or cancel them first; "
            "a second submission would be the same runs"
        )


def _is_queued(scheduler: Scheduler, job: str) -> bool:
    if shutil.which(scheduler.queue[0]) is None:
        return False
    command = [text.format(job=job) for text in scheduler.queue]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0 and bool(done.stdout.strip())


def _submit(command: Sequence[str]) -> str:
    """Submit a job and return its number.

    Raises
    ------
    NetworkError
        If the scheduler refuses it.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()
        raise NetworkError(f"{shlex.join(command)} failed: {reason}. Change the options after --")
    if done.stderr.strip():
        print_note(done.stderr.strip())
    # Slurm appends the cluster to the number.
    return done.stdout.strip().partition(";")[0]
