"""The two steps of federated k-means (FKM) as every peer runs them, in NumPy; the server's k-means is ours."""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST, _TOL = 2, 1e-4  # as in `p2pkm.methods.server.fkm`
_STARTS = 1  # there are ten: rounding would choose among equals


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


def _label(points: Floats, centroids: Floats) -> NDArray[np.int64]:
    nearest: NDArray[np.int64] = np.square(points[:, None] - centroids[None]).sum(axis=2).argmin(axis=1)
    return nearest


def aggregate(tables: list[Floats], k: int, key: int, t: int) -> Floats:
    """Return the server's centroids in round t, from 1."""
    from p2pkm.core.batch import Search, Stream, cluster  # not at the top: a client in another process needs neither
    from p2pkm.kernels import reference

    rows = np.concatenate(tables)
    points, weights = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    tol = _TOL * float(points.var(axis=0).mean())
    search = Search(k, Stream.SERVER, starts=_STARTS, tol=tol, first=t * _STARTS)
    return cluster(reference, key, points, weights, search, np.ones(len(rows)))[0]


def play(task: Task, ask: Callable[[Floats, int], list[Floats]], packages: tuple[str, ...]) -> None:
    """Run the rounds, `ask` being how the simulator asks its clients, and print a line after each."""
    tables, k, server, spent, n = task.first(), task.tables.shape[1], 0.0, 0.0, len(task.points)
    for t in range(1, task.rounds + 1):
        began = time.thread_time()
        model = aggregate(tables, k, task.key, t)
        server += time.thread_time() - began if t > 1 else 0.0
        before = _children() + time.process_time()
        tables = ask(model, t)
        spent += time.process_time() + _children() - before if t > 1 else 0.0
        tell(t, model, packages, Spent((t - 1) * n, spent, server))


class Spent(NamedTuple):
    """Client-updates after the first round, CPU seconds of these, and of the server's k-means beside them."""

    updates: int
    clients: float
    server: float


def tell(t: int, model: Floats, packages: tuple[str, ...], spent: Spent) -> None:
    """Print the centroids of round t, the CPU seconds and the time so far, and versions."""
    found: dict[str, Any] = {"t": t, "model": model.tolist(), **spent._asdict(), "now": time.time(),
                             "cpu": _children() + time.process_time()}  # fmt: skip
    print("\n" + json.dumps(found | {"versions": {name: _find_version(name) for name in packages}}), flush=True)


def _find_version(package: str) -> str:
    """Return the version of a package, which may lie in a working tree."""
    return getattr(sys.modules.get(package), "__version__", None) or version(package)


def list_family(root: int) -> list[tuple[int, float]]:
    """Return the number of a process and of all below it, and their CPU seconds with those of children that ended."""
    found, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            one = int(entry.name)
            parents[one], found[one] = int(fields[1]), (one, sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    family = {root}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return [found[one] for one in family if one in found]


def _children() -> float:
    """Return the CPU seconds of all processes below this one."""
    own, ended = os.getpid(), os.times()
    return ended[2] + ended[3] + sum(cpu for one, cpu in list_family(own) if one != own)
