"""Results of checks, and commands that are run with a time limit."""

import os
import re
import subprocess
import sys
from typing import Any, NamedTuple

# Seconds until a command is stopped.
LIMIT = 30
INSTALL = 'pip install "p2pkm[mpich]"'
SAME = f"use the mpirun of the library that mpi4py loads, first on PATH, or a matching pair: {INSTALL}"
_FAMILIES = {"Open MPI": "Open MPI", "Intel(R) MPI": "Intel MPI", "MVAPICH": "MVAPICH", "MPICH": "MPICH",
             "HYDRA": "MPICH"}  # fmt: skip
_OVERSUBSCRIBE = {
    # Open MPI 5.
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # Open MPI 4.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# os.write prints in one piece; the output of print() would mix if two ranks print at the same time.
_TRIAL = """import os; from mpi4py import MPI
size, rank = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
os.write(1, b"" if rank else b"[together]" if size > 1 else b"[alone]")
"""


class Check(NamedTuple):
    """Result of a check.

    Attributes
    ----------
    status : {"ok", "warn", "fail"}
        "warn": p2pkm runs, perhaps slowly. "fail": MPI does not work.
    check : str
        Name.
    finding : str
    advice : str
        Command or setting that helps; empty for none.
    """

    status: str
    check: str
    finding: str
    advice: str = ""


def run_command(command: list[str]) -> tuple[int, str]:
    """Run a command with a time limit; return the exit code and the output."""
    quiet: dict[str, Any] = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
    try:
        result = subprocess.run(command, timeout=LIMIT, check=False, **quiet)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {LIMIT} s"
    except OSError as error:
        return 126, str(error)
    return result.returncode, f"{result.stderr}\n{result.stdout}".strip()


def start_trial(launcher: list[str]) -> tuple[str, str]:
    """Start two ranks with a launcher; return ``together``, ``alone`` or ``broken``, and the first line of output."""
    code, printed = run_command([*launcher, sys.executable, "-c", _TRIAL])
    if code == 0 and "[together]" in printed:
        return "together", ""
    return ("alone" if "[alone]" in printed else "broken"), first(printed)


def family(text: str) -> str:
    """Detect the MPI implementation from its output."""
    return next((name for mark, name in _FAMILIES.items() if mark in text), "unknown MPI")


def oversubscribe() -> str:
    """Return the command that lets Open MPI start more ranks than cores, also as root; empty if it is in effect."""
    required = _OVERSUBSCRIBE | (_ROOT if os.geteuid() == 0 else {})
    missing = [f"{name}={value}" for name, value in required.items() if os.environ.get(name) != value]
    return f"export {' '.join(missing)}" if missing else ""


def first(text: str) -> str:
    """Return the first line that contains letters."""
    return next((line.strip() for line in text.splitlines() if re.search("[a-z]", line)), "no output")


def last(text: str) -> str:
    """Return the last line that contains letters."""
    return first("\n".join(reversed(text.splitlines())))
