"""What it costs to be ready for the worst: an empty fault trace, and checkpoints of a large run."""

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from p2pkm.engine.checkpointing import Checkpointer
from p2pkm.storage import checkpoint
from tests.benchmarks.figure import Figure, show
from tests.support.run_cli import here

_TRIALS = 5
_EMPTY = {"loss=0": ("--faults", "loss=0"), "a trace that says nothing": ("--faults", "trace.jsonl")}


def measure(quick: bool) -> list[Figure]:
    """Return processor time under an empty trace over that without, and the share of checkpoints in a run."""
    return [*_measure_empty(500 if quick else 5_000), _measure_share(2_000 if quick else 100_000)]


def _words(devices: int, rounds: int) -> tuple[str, ...]:
    return (
        "--devices", str(devices), "--data", f"blobs:clusters=4,points={devices}", "-k", "4", "--partition", "iid",
        "--graph", "small-world:degree=6", "--init", "local", "--rounds", str(rounds), "--tol", "0", "--no-baselines",
        "--no-plot", "--quiet",
    )  # fmt: skip


def _measure_empty(devices: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        trace.write_text(f'{{"kind": "trace", "devices": {devices}}}\n')
        more = {
            "": (),
            **{name: (words[0], words[1].replace("trace.jsonl", str(trace))) for name, words in _EMPTY.items()},
        }
        taken: dict[str, list[float]] = {name: [] for name in more}
        for _ in range(_TRIALS + 1):
            for name, words in more.items():
                taken[name].append(_clock(*_words(devices, 30), "--out", "none", *words))
    least = {name: min(times[1:]) for name, times in taken.items()}
    what = f"run of {devices:,} devices x 30 sweeps under an empty trace over one without"
    return [
        Figure(
            f"{what}: {name}", least[name] / least[""], "x", "at most", 1.02, f"{show(least[name])}, {show(least[''])}"
        )
        for name in _EMPTY
    ]


def _measure_share(devices: int) -> Figure:
    """Return the share of one checkpoint in the time until the next one by default."""
    save, taken = Checkpointer.save, []

    def timed(self: Checkpointer, *arguments: Any, **more: Any) -> None:
        began = time.process_time()
        save(self, *arguments, **more)
        taken.append(time.process_time() - began)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(Checkpointer, "save", timed)
        _clock(*_words(devices, 4), "--out", f"{folder}/run", "--checkpoint-every", "1")
    seconds = max(taken)
    share = seconds / (seconds + max(checkpoint._PAUSE, seconds / checkpoint._SHARE))
    what = f"share of checkpoints in a run of {devices:,} devices, one about every 30 s"
    return Figure(
        what, share, "", "at most", 0.03, f"{show(seconds)} of processor time each, the largest of {len(taken)}"
    )


def _clock(*words: str) -> float:
    """Return the processor time of a command in this process."""
    began = time.process_time()
    ending = here(*words)
    if ending.code:
        raise RuntimeError(ending.err)
    return time.process_time() - began
