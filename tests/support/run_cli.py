"""Calls of the command line in tests: in this process, in a new process, or under mpirun."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from p2pkm.cli.main import main

ROOT = Path(__file__).parents[2]
SMALL = ("--data", "grid16:points=5", "--devices", "4", "--rounds", "20", "--no-plot")
FILES = {"config.toml", "manifest.json", "rounds.jsonl", "centroids.npz", "summary.json"}
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


def here(*arguments: object) -> StageResult:
    """Run the command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return StageResult(code, out.getvalue(), err.getvalue())


def solve(*arguments: object) -> dict[str, Any]:
    """Run a small experiment in this process without files, and return its JSON object; later options override."""
    return here(*SMALL, "--out", "none", "--format", "json", *arguments).summary


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without variables of launchers, and with additional ones."""
    launcher = ("PMI", "OMPI_", "SLURM_", "MPIR_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_NUM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(launcher)}
    return kept | {"PYTHONPATH": str(ROOT)} | more


def ranks(count: int) -> list[str]:
    """Return the command prefix that runs a Python program on a number of ranks, for at most a minute."""
    if MPIRUN is None:
        pytest.skip(NO_MPIRUN)
    limit = ["timeout", "-k", "2", "60"] if shutil.which("timeout") else []
    return [*limit, str(MPIRUN), "-n", str(count), sys.executable]


def there(*words: object, cwd: Path | None = None, **more: str) -> StageResult:
    """Run a program to its end."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, env=environment(**more), cwd=cwd, timeout=90,
        check=False,
    )  # fmt: skip
    return StageResult(done.returncode, done.stdout, done.stderr)


def listed(folder: Path) -> set[str]:
    """List all paths below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


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
