"""Calls of the command line in tests: in this process, in a new process, or under mpirun."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from p2pkm.cli.main import main

ROOT = Path(__file__).parents[2]
SMALL = ("--data", "grid16:points=5", "--devices", "4", "--rounds", "20", "--no-plot")
FILES = {"config.toml", "manifest.json", "rounds.jsonl", "centroids.npz", "summary.json"}
# Threads of scikit-learn and of BLAS sleep while they wait for each other, and leave their cores to other workers.
SLEEPING_THREADS = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "4"}
NO_MPIRUN = "there is no mpirun beside Python or on the PATH"
MPIRUN = shutil.which("mpirun", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


class StageResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        """Parsed output, which must be a single JSON object without NaN or Infinity."""
        assert self.code in {0, 5}, self.err
        assert self.out.count("\n") == 1 and self.out.endswith("\n")
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} in JSON")


def fill(defaults: Sequence[str], arguments: Iterable[object]) -> list[str]:
    """Put those options of `defaults` that the arguments do not set before them."""
    words = [str(argument) for argument in arguments]
    given = {word.partition("=")[0].replace("--no-", "--") for word in words}
    is_kept, kept = True, []
    for word in defaults:
        if word.startswith("--"):
            is_kept = word.replace("--no-", "--") not in given
        kept += [word] if is_kept else []
    return kept + words


def _fill_small(arguments: Sequence[object]) -> list[str]:
    """Drop the options of SMALL that other arguments set."""
    words = [str(argument) for argument in arguments]
    for start in range(len(words)):
        if tuple(words[start : start + len(SMALL)]) == SMALL:
            return words[:start] + fill(SMALL, words[start + len(SMALL) :])
    return words


def here(*arguments: object) -> StageResult:
    """Run the command line in this process; other options replace those of SMALL."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(_fill_small(arguments))
    return StageResult(code, out.getvalue(), err.getvalue())


def solve(*arguments: object) -> dict[str, Any]:
    """Run a small experiment in this process without files, and return its JSON object; its options can be replaced."""
    return here(*fill((*SMALL, "--out", "none", "--format", "json"), arguments)).summary


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without variables of launchers, and with additional ones."""
    launcher = ("PMI", "OMPI_", "SLURM_", "MPIR_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_NUM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launcher)}
    return kept | SLEEPING_THREADS | {"PYTHONPATH": str(ROOT)} | more


def ranks(count: int, seconds: int = 60) -> list[str]:
    """Return the command prefix that runs a Python program on several ranks, with a time limit in seconds."""
    if MPIRUN is None:
        pytest.skip(NO_MPIRUN)
    limit = ["timeout", "-k", "2", str(seconds)] if shutil.which("timeout") else []
    return [*limit, str(MPIRUN), "-n", str(count), sys.executable]


def there(*words: object, cwd: Path | None = None, **more: str) -> StageResult:
    """Run a program to its end."""
    done = subprocess.run(
        _fill_small(words), capture_output=True, text=True, env=environment(**more), cwd=cwd, timeout=90,
        check=False,
    )  # fmt: skip
    return StageResult(done.returncode, done.stdout, done.stderr)


def on_ranks(count: int, commands: Iterable[Sequence[object]], **more: str) -> list[StageResult]:
    """Run command lines one after the other on the same ranks: to start a rank takes longer than a small run."""
    program = ROOT / "tests/support/programs/commands.py"
    words = [*ranks(count, 250), str(program), json.dumps([_fill_small(command) for command in commands])]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(**more), timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [StageResult(*json.loads(line)) for line in done.stdout.splitlines()]


def listed(folder: Path) -> set[str]:
    """List all paths below a folder, without a Path for each: every rejected input lists a folder twice."""
    found, start = set(), os.path.join(folder, "")
    for place, folders, files in os.walk(folder):
        inside = os.path.join(place, "")[len(start) :]
        found.update(inside + name for name in (*folders, *files))
    return found


@contextlib.contextmanager
def small_disk(place, size):
    """Yield a new folder on a disk of a size such as 64k; requires root."""
    place.mkdir()
    mount = shutil.which("mount")
    if not mount or subprocess.run([mount, "-t", "tmpfs", "-o", f"size={size}", "none", place], check=False,
                                   capture_output=True).returncode:  # fmt: skip
        pytest.skip("a small disk cannot be mounted here: only root may")
    yield place
    subprocess.run(["umount", "-l", place], check=True)
