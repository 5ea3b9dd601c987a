"""Run folders with a synthetic frames.npz, whose numbers are all different."""

from pathlib import Path

import numpy as np

import p2pkm
import topologies
from p2pkm.storage.load import load
from tests.support.run_cli import fill, here


def run(folder: Path, *more: object) -> Path:
    """Run a small experiment and return its folder."""
    words = ("--data", "grid16:points=10", "--devices", "16", "--rounds", "20", "--no-plot", "-q")
    ending = here(*fill(words, (*more, "--out", folder)))
    assert ending.code == 0, ending.err
    return folder


def save_large(folder: Path, n: int = 2_000) -> Path:
    """Save the result of a short run on many devices, as a script does."""
    X, y = p2pkm.grid16(points=n // 4, seed=0)
    device = p2pkm.partition.iid(len(y), n, seed=0)
    shards = p2pkm.Shards.deal(X, device, devices=n, labels=y)
    graph = topologies.small_world(n, degree=4, rewire=0.1, seed=1)
    return p2pkm.simulate(p2pkm.GTVMin(4, init="local"), graph, shards, rounds=1, baselines=False).save(folder)


def film(folder: Path, frames: int = 5, every: int = 1) -> dict[str, np.ndarray]:
    """Write frames.npz with one of every `every` devices into a folder, and return its arrays.

    There are at most as many frames as records. Centroids approach their final positions by 0.3 per frame, device and
    row; one row is absent in the first frame.
    """
    result = load(folder)
    frames = min(frames, len(result.rounds))
    topology, n = result.topology, len(result.centroids)
    device = np.arange(0, n, every)
    left = np.arange(frames)[::-1, None, None, None]
    v, k, d = len(device), *result.centroids.shape[1:]
    offset = 0.3 * (1 + np.arange(v)[:, None, None] % 7 + 0.1 * np.arange(k)[:, None]) * np.array([1.0, -0.5] * d)[:d]
    centroids = (result.centroids[device] + 0.2 * left * offset).astype(np.float32)
    centroids[0, 0, 0] = np.inf
    known = np.append(device, n) if topology.hub >= 0 else device
    inside = np.isin(topology.sources, known) & np.isin(topology.indices, known) & (topology.sources < topology.indices)
    low, high = topology.sources[inside], topology.indices[inside]
    links, steps = np.arange(len(low)), np.arange(frames)[:, None]
    cost = (100 + np.arange(v) + 10 * steps).astype(np.float32)
    cost[0, -1] = np.nan
    arrays = {
        "record": np.unique(np.linspace(0, len(result.rounds) - 1, frames).astype(np.int64)),
        "device": device, "centroids": centroids, "cost": cost,
        "disagreement": (0.5 * np.arange(v) + steps).astype(np.float32), "edge_a": low, "edge_b": high,
        "gtv": (0.25 * links + steps).astype(np.float32), "bytes": steps * (links % 3) * 1_000,
    }  # fmt: skip
    np.savez(folder / "frames.npz", **arrays)
    return arrays
