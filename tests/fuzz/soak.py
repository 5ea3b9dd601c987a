"""Play many rounds on many ranks under faults and watch memory and files: python -m tests.fuzz.soak [ROUNDS RANKS].

What the ranks hold is read from outside at every tenth of the rounds, from the second on: by then all that a run needs
has been made.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_name("RESULTS-soak.md")
FAULTS = "loss=0.1,delay=0.05,link_failure=0.01,dropout=0.01,straggler=0.02"
_PARTS = 10


class Look(NamedTuple):
    """All ranks at one moment: rounds so far, kilobytes of memory in use and open files, of each rank.

    own: the part of the memory that is the rank's alone; the rest are files and what MPI shares among the ranks. total:
    kilobytes of all ranks together, what they share counted once.
    """

    rounds: int
    memory: list[int]
    files: list[int]
    own: list[int]
    total: int


def soak(rounds: int, ranks: int, folder: Path) -> list[Look]:
    """Run, and return what was seen after every tenth of the rounds."""
    every = max(rounds // _PARTS, 1)
    run = folder / "run"
    command = [
        "mpirun", "-n", str(ranks), sys.executable, "-m", "p2pkm", "--graph", "ring", "--devices", "16",
        "--data", "grid16:points=20", "--rounds", str(rounds), "--tol", "0", "--init", "local", "--schedule", "jacobi",
        "--faults", FAULTS, "--record-every", str(every), "--no-plot", "--no-baselines", "--quiet",
        "--checkpoint-every",
        "0",
        "--out", str(run),
    ]  # fmt: skip
    looks: list[Look] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            time.sleep(0.02)
            done = _last_round(run / "rounds.jsonl")
            if done >= (len(looks) + 1) * every:
                looks.append(_look(done, process.pid))
        if process.returncode:
            raise RuntimeError(process.stderr.read() if process.stderr else "the run failed")
    return looks[1:-1] if looks and looks[-1].rounds >= rounds else looks[1:]  # at the end results are gathered


def growth(first: list[int], last: list[int]) -> float:
    """Return by which share the memory of the rank that grew most is larger than it was at first."""
    return max(after / before - 1 for before, after in zip(first, last, strict=True))


def _last_round(path: Path) -> int:
    """Return the round of the last record that has been written in full; stages before the method's have round 0."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.is_file() else []
    return json.loads(lines[-1])["round"] if lines else 0


def _look(rounds: int, launcher: int) -> Look:
    ranks = [
        pid for pid in _below(launcher) if b"p2pkm" in _read(pid, "cmdline") and b"mpirun" not in _read(pid, "cmdline")
    ]
    memory, own = ([_kilobytes(pid, name) for pid in ranks] for name in (b"VmRSS", b"RssAnon"))
    total = sum(_kilobytes(pid, b"\nPss", "smaps_rollup") for pid in ranks)
    return Look(rounds, memory, [len(os.listdir(f"/proc/{pid}/fd")) for pid in ranks], own, total)


def _kilobytes(pid: int, name: bytes, file: str = "status") -> int:
    return int(_read(pid, file).split(name + b":")[1].split()[0])


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and theirs, those without children last."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for child in children:
        further = list(_below(child))
        yield from further or [child]


def main(rounds: int, ranks: int) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        looks = soak(rounds, ranks, Path(folder))
    steady = all(look.files == looks[0].files for look in looks)
    first, last = looks[0], looks[-1]
    grown = growth(first.memory, last.memory)
    text = (
        f"# Last soak\n\n`python -m tests.fuzz.soak {rounds} {ranks}` took {time.monotonic() - began:.0f} s: "
        f"{rounds:,} rounds on {ranks} ranks under `{FAULTS}`. Memory of the rank that grew most, from round "
        f"{first.rounds:,} to round {last.rounds:,}: {grown:+.2%}; of its own memory, without files and what "
        f"MPI shares among ranks: {growth(first.own, last.own):+.2%}; of all ranks together, "
        f"what they share counted once: {growth([first.total], [last.total]):+.2%}. Open files: "
        f"{'constant' if steady else 'NOT constant'}.\n\n"
        "| rounds | memory of a rank, MB, smallest to largest | of it its own | all ranks | open files |\n"
        "|---|---|---|---|---|\n"
    )
    for look in looks:
        memory, own = (f"{min(part) / 1000:.2f} to {max(part) / 1000:.2f}" for part in (look.memory, look.own))
        total, files = f"{look.total / 1000:.2f}", f"{min(look.files)} to {max(look.files)}"
        text += f"| {look.rounds:,} | {memory} | {own} | {total} | {files} |\n"
    RESULTS.write_text(text)
    print(text)
    return int(not steady or grown >= 0.01)


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(given + [10_000, 16][len(given) :])))
