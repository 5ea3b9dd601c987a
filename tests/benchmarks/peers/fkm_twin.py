"""The two steps of federated k-means (FKM) as every peer runs them, in NumPy; the server's k-means is ours."""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Search, Stream, cluster
from p2pkm.kernels import reference

_LEAST, _STARTS, _TOL = (
    2,
    1,
    1e-4,
)  # as in `p2pkm.methods.server.fkm`, but one seeding: rounding would choose among equals


class Task(NamedTuple):
    """What all peers are given: points float64[n, m, d], first tables float64[n, k, d + 1], rounds, the shared key."""

    points: Floats
    tables: Floats
    rounds: int
    key: int

    @classmethod
    def read(cls, path: str) -> "Task":
        """Read what `p2pkm`'s run wrote; the points stay on disk until they are read."""
        folder = Path(path)
        points, tables = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("points", "tables"))
        return cls(points, tables, int(sys.argv[3]), json.loads((folder / "key.json").read_text()))

    def first(self) -> list[Floats]:
        """Return the first message of every client, rows (centroid, count)."""
        return [one[np.isfinite(one[:, 0])] for one in self.tables]


def step(points: Floats, model: Floats) -> Floats:
    """Return a client's answer to the server's centroids: a Lloyd step from those with points, and numbers."""
    nearest = _label(points, model)
    counts = np.bincount(nearest, minlength=len(model))
    there = counts > 0
    sums = np.stack([np.bincount(nearest, column, len(model)) for column in points.T], axis=1)
    means = sums[there] / counts[there, None]
    counts = np.bincount(_label(points, means), minlength=len(means))
    kept = counts >= _LEAST
    return np.column_stack((means[kept], counts[kept]))


def _label(points: Floats, centroids: Floats) -> Integers:
    nearest: Integers = np.square(points[:, None] - centroids[None]).sum(axis=2).argmin(axis=1)
    return nearest


def aggregate(tables: list[Floats], k: int, key: int, t: int) -> Floats:
    """Return the server's centroids in round t, from 1."""
    rows = np.concatenate(tables)
    points, weights = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    tol = _TOL * float(points.var(axis=0).mean())
    search = Search(k, Stream.SERVER, starts=_STARTS, tol=tol, first=t * _STARTS)
    return cluster(reference, key, points, weights, search, np.ones(len(rows)))[0]


def play(
    task: Task, ask: Callable[[Floats, int], list[Floats]], packages: tuple[str, ...], *, alone: bool = True
) -> None:
    """Run the rounds, `ask` being how the simulator asks its clients, and print what came out.

    alone: whether the clients are in this process, whose clock then tells what they take.
    """
    tables, k, model, server, spent = task.first(), task.tables.shape[1], np.zeros(0), 0.0, 0.0
    for t in range(1, task.rounds + 1):
        began = time.thread_time()
        model = aggregate(tables, k, task.key, t)
        server += time.thread_time() - began
        began = time.process_time()
        tables = ask(model, t)
        spent += time.process_time() - began if t > 1 else 0.0
    tell(model, server, packages, spent if alone else None)


def tell(model: Floats, server: float, packages: tuple[str, ...], spent: float | None) -> None:
    """Print the last centroids, CPU seconds of the server's k-means and of all rounds but one, and versions."""
    found: dict[str, Any] = {"model": model.tolist(), "server": server, "spent": spent}
    print("\n" + json.dumps(found | {"versions": {name: version(name) for name in packages}}), flush=True)
