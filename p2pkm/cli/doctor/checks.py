"""What a diagnosis is made of: its lines, and other programs that are asked for a limited time."""

import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

LIMIT = 30  # seconds for a trial in another process
INSTALL = 'pip install "p2pkm[mpich]"'
SAME = f"use the mpirun of the library that mpi4py loads, first on PATH, or a matching pair: {INSTALL}"
_FAMILIES = {"Open MPI": "Open MPI", "Intel(R) MPI": "Intel MPI", "MVAPICH": "MVAPICH", "MPICH": "MPICH",
             "HYDRA": "MPICH"}  # fmt: skip
_OVERSUBSCRIBE = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5; the next one is for Open MPI 4
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_TRIAL = """import os; from mpi4py import MPI
size, rank = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
os.write(1, b"" if rank else b"[together]" if size > 1 else b"[alone]")  # in one piece: two ranks print at once
"""


class Check(NamedTuple):
    """One line of the diagnosis; the status is ok, warn (it runs, perhaps badly) or fail (MPI does not work)."""

    status: str
    check: str
    found: str
    advice: str = ""


def run_command(command: list[str]) -> tuple[int, str]:
    """Run a command for a limited time; return its exit code and all that it printed."""
    quiet: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, timeout=LIMIT, check=False, **quiet)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {LIMIT} s"
    except OSError as error:
        return 126, str(error)
    return done.returncode, f"{done.stderr}\n{done.stdout}".strip()


def start_trial(launcher: list[str]) -> tuple[str, str]:
    """Start a trial under a launcher: ``together``, ``alone`` or ``broken``, and the first line that it printed."""
    code, printed = run_command([*launcher, sys.executable, "-c", _TRIAL])
    if code == 0 and "[together]" in printed:
        return "together", ""
    return ("alone" if "[alone]" in printed else "broken"), first(printed)


def family(text: str) -> str:
    """Return whose MPI wrote this text."""
    return next((name for mark, name in _FAMILIES.items() if mark in text), "unknown MPI")


def oversubscribe() -> str:
    """Return what Open MPI still has to be told for more ranks than cores, and for root."""
    wanted = _OVERSUBSCRIBE | (_ROOT if os.geteuid() == 0 else {})
    lacking = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
    return f"export {' '.join(lacking)}" if lacking else ""


def first(text: str) -> str:
    """Return the first line with words."""
    return next((line.strip() for line in text.splitlines() if re.search("[a-z]", line)), "no output")


def last(text: str) -> str:
    """Return the last line with words."""
    return first("\n".join(reversed(text.splitlines())))
