"""Two versions of the packages side by side: another revision of git, measured by the rows of this folder."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from tests.benchmarks.figure import Figure, of_trials

_ROOT = Path(__file__).parents[2]
_PACKAGES = ("p2pkm", "topologies")


@contextmanager
def check_out(revision: str | None) -> Iterator[Path | None]:
    """Yield a folder with the packages of a revision and the tests of this one; None without a revision.

    Raises
    ------
    SystemExit
        If git does not know the revision.
    """
    if revision is None:
        yield None
        return
    done = subprocess.run(["git", "-C", str(_ROOT), "archive", revision, *_PACKAGES], capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"--against is {revision}; expected a revision of git: {done.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory(prefix="p2pkm-benchmarks-") as folder:
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        shutil.copytree(_ROOT / "tests", Path(folder, "tests"), ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder)


def relate(pairs: Sequence[tuple[Sequence[Figure], Sequence[Figure]]]) -> list[Figure]:
    """Return the ratio new over old of each figure, the median over turns of (old, new)."""
    ratios = []
    for versions in zip(*(zip(old, new, strict=True) for old, new in pairs), strict=True):
        before, after = versions[0]
        trials = [new.value / old.value if old.value > 0.0 else 0.0 for old, new in versions]
        note = f"{after.value:.3g} against {before.value:.3g} {after.unit} in the first turn"
        ratios.append(of_trials(f"{after.what}: new over old", trials, ("x", "", 0.0), note))
    return ratios
