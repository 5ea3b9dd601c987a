"""Damage .h5ad files and read each batch in a process of its own: ``python -m tests.fuzz.damaged_files --seconds 600``.

Such files are read by the HDF5 library, which may hang or end the process on what was damaged on purpose;
nothing in Python can stop it. So a batch has a time limit, and the process says before each case which one it is. The
last results stand in RESULTS-damaged.md: an exception that is no P2PKMError is a fault of ours, a hang or an end by a
signal one of the library.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from tests.fuzz.fuzz import mutate
from tests.fuzz.parsers import Files, run

RESULTS = Path(__file__).with_name("RESULTS-damaged.md")
BATCH, PATIENCE = 200, 5  # cases in a process; seconds that a case may take
TAKEN, REFUSED = "taken", "refused in words"


def seeds(folder: Path) -> list[bytes]:
    """Return some files of AnnData as bytes: dense, CSR and CSC, with columns of labels and devices."""
    import anndata
    import pandas
    from scipy import sparse

    points = np.arange(8.0).reshape(4, 2)
    cells = pandas.DataFrame({"label": pandas.Categorical(list("aabb")), "device": [0, 0, 1, 1]}, index=list("wxyz"))
    found = []
    for matrix in (points, sparse.csr_matrix(points), sparse.csc_matrix(points)):
        path = folder / "seed.h5ad"
        anndata.AnnData(matrix, obs=cells).write_h5ad(path)
        found.append(path.read_bytes())
    return found


def work(first: int, last: int, seed: int) -> None:
    """Read some cases, and print before each its number, after it what became of it."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        parser, known = Files(Path(folder)).points("fuzz.h5ad"), seeds(Path(folder))
        for case in range(first, last):
            print(case, end=" ", flush=True)
            data = mutate(random.Random(f"{seed} {case}"), known)
            try:
                word = TAKEN if run(parser, data) else REFUSED
            except Exception as error:
                word = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            print(word, flush=True)


def read_batch(first: int, last: int, seed: int) -> dict[int, str]:
    """Return what became of each case, up to the one that ended the process, if one did."""
    with tempfile.TemporaryFile("w+") as said:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.damaged_files",
            "--work",
            str(first),
            str(last),
            "--seed",
            str(seed),
        ]
        with subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL) as process:
            end = _watch(process, said.fileno())
        said.seek(0)
        cases = {int(number): word for number, _, word in (line.strip().partition(" ") for line in said)}
    return {case: word or end for case, word in cases.items()}


def _watch(process: subprocess.Popen[bytes], said: int) -> str:
    """Wait for a process as long as it says something now and then; return in words how it ended."""

    size, since = -1, time.monotonic()
    while process.poll() is None:
        now = os.fstat(said).st_size
        size, since = (size, since) if now == size else (now, time.monotonic())
        if time.monotonic() - since > PATIENCE + (size == 0) * 60:
            process.kill()
            process.wait()
            return f"hangs for more than {PATIENCE} s"
        time.sleep(0.02)
    return f"ended by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else "ended the process"


def damage(seconds: float, most: int, seed: int) -> tuple[int, Counter[str], list[str]]:
    """Return the number of cases, how often what became of them, and the odd ones by number."""
    began, case, outcomes, odd = time.monotonic(), 0, Counter[str](), []
    while time.monotonic() - began < seconds and case < most:
        found = read_batch(case, min(case + BATCH, most), seed)
        if not found:
            raise RuntimeError("no case was read; is anndata installed?")
        outcomes.update(found.values())
        odd += [f"{number}: {word}" for number, word in found.items() if word not in (TAKEN, REFUSED)]
        case = max(found) + 1
    return case, outcomes, odd


def main() -> int:
    """Damage files for a while; return 1 if anything but a result or an error in words came back."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--seconds", type=float, default=600.0)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--work", type=int, nargs=2, metavar=("FIRST", "LAST"), help="read these cases here")
    given = asked.parse_args()
    if given.work:
        work(*given.work, given.seed)
        return 0
    began = time.monotonic()
    cases, outcomes, odd = damage(given.seconds, sys.maxsize, given.seed)
    rows = "".join(f"| {word} | {count:,} |\n" for word, count in outcomes.most_common())
    text = (
        f"# Damaged .h5ad files, last results\n\n`python -m tests.fuzz.damaged_files`, "
        f"{time.monotonic() - began:.0f} s on {time.strftime('%Y-%m-%d')}, seed {given.seed}, "
        f"h5py {_version('h5py')}: {cases:,} cases.\n\n"
        f"| what became of them | cases |\n|---|---|\n{rows}\nOdd cases by number: {'; '.join(odd[:40]) or 'none'}\n"
    )
    RESULTS.write_text(text)
    print(text)
    return int(bool(odd))


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


if __name__ == "__main__":
    sys.exit(main())
