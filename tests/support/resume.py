"""Runs with a checkpoint after every round, copies of their folders as after a kill, and comparisons."""

import json
import shutil
from pathlib import Path

import numpy as np

from p2pkm.storage import checkpoint
from p2pkm.storage.checksums import NAME
from tests.support.run_cli import here, listed

OWN = {"wall_seconds", "compile_seconds", "out", "ranks",
       "rank_partition", "edge_cut", "halo_size", "load_imbalance", "load_imbalance_devices"}  # fmt: skip


def keep_all(monkeypatch, folder, copies):
    """Copy the run folder after each checkpoint, as it would be if the run were killed at that moment."""
    put = checkpoint.CheckpointWriter.put

    def copying(self, outline, arrays):
        put(self, outline, arrays)
        shutil.copytree(folder, copies / f"{len(list(copies.iterdir())):04}")

    copies.mkdir()
    monkeypatch.setattr(checkpoint.CheckpointWriter, "put", copying)


ENDED = {0, 7}  # 7: faults have left devices without centroids


def resume(folder, *more):
    """Resume a run in this process."""
    ending = here("resume", folder, "-q", *more)
    assert ending.code in ENDED, ending.err
    return folder


_TIMED = {"manifest.json", "summary.json", NAME}  # they tell when


def difference(one: Path, other: Path) -> str:
    """Describe the first difference of two run folders that an interruption must not cause, "" if there is none."""
    if listed(one) != listed(other):
        return f"files: {sorted(listed(one) ^ listed(other))}"
    for name in sorted(listed(one)):
        if not (one / name).is_file() or name in _TIMED or name.startswith("figures"):
            continue
        if name.endswith(".npz"):
            found = _differing(one / name, other / name)
            if found:
                return f"{name}: {found}"
        elif (one / name).read_bytes() != (other / name).read_bytes():
            return name
    mine, theirs = (json.loads((path / "summary.json").read_text()) for path in (one, other))
    differing = [key for key in mine if key not in OWN and mine[key] != theirs[key]]
    return f"summary: {differing}" if differing else ""


def _differing(one: Path, other: Path) -> list[str]:
    with np.load(one, allow_pickle=False) as mine, np.load(other, allow_pickle=False) as theirs:
        if mine.files != theirs.files:
            return mine.files + theirs.files
        return [name for name in mine.files if not _same(mine[name], theirs[name])]


def _same(one, other):
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
