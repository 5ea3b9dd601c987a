"""References of the benchmark: cost of the best known clustering of the points of each task.

A reference holds for points and a number of clusters, whatever their partition. It names its points by their checksum,
so that costs of other points are never compared with it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError
from p2pkm.core.units import count
from p2pkm.data.sources import SOURCES, follows_graph, parse_source
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.bench.suites import Task
from p2pkm.experiments.run import OutputOptions, assemble, execute
from p2pkm.metrics.result import Result
from p2pkm.network.local import LocalWorld
from p2pkm.storage.save import write_bytes
from topologies.single_thread import single_thread

NAME = "references.json"  # file in the folder of a benchmark
_SHIPPED = files(__package__) / NAME
# Options of a task that the points depend on.
_POINTS = ("data", "scale", "missing", "label_column", "device_column", "columns", "drop", "encode", "weight_column")
# Restarts of k-means++, reduced for large points to about this number of distances in all, at least _LEAST.
_STARTS, _DISTANCES, _LEAST = 100, 3e9, 10
_STEPS = 20  # estimated Lloyd steps of a restart
# Methods that find better optima than k-means++, by moving centroids and by single coordinates; runs of each.
_METHODS, _SEARCHES = ("treelloyd", "cdkm"), 3
_ITERATIONS = 1000
_SITES = 2  # devices of these runs, which do not matter for a search on the pooled points
# Relative difference of two costs that rounding explains.
ROUNDING = 1e-9


class Reference(NamedTuple):
    """Best known clustering of points.

    Attributes
    ----------
    cost : float
        Sum of squared distances to the nearest centroids.
    points_sha256 : str
        Checksum of the points, see `p2pkm.Shards.checksum`.
    source : str
        How it was found.
    """

    cost: float
    points_sha256: str
    source: str


class References:
    """References by task and seed.

    Parameters
    ----------
    known : dict of str to Reference
        References by the name of their points, see `name_points`.
    """

    def __init__(self, known: dict[str, Reference]) -> None:
        self._known = known

    @classmethod
    def load(cls, folder: Path | None) -> "References":
        """Load the references that ship with the package, and those of a folder, which have precedence.

        Raises
        ------
        DataError
            If a file is damaged.
        """
        known = _read(_SHIPPED.read_text("utf-8"), NAME) if _SHIPPED.is_file() else {}
        path = None if folder is None else folder / NAME
        if path is not None and path.is_file():
            known |= _read(path.read_text("utf-8"), str(path))
        return cls(known)

    def find(self, task: Task, seed: int) -> Reference | None:
        """Return the reference of a task, None if there is none."""
        return self._known.get(name_points(task, seed))

    def complete(self, tasks: Sequence[Task], tell: Any = lambda note: None, *, renew: bool = False) -> None:
        """Search the references that are missing or, with `renew`, all of them."""
        missing = {name_points(task, seed): (task, seed) for task in tasks for seed in task.seeds}
        missing = {name: where for name, where in missing.items() if renew or name not in self._known}
        for number, (name, (task, seed)) in enumerate(missing.items(), 1):
            tell(f"reference {number} of {len(missing)}: best of many runs of k-means for {name}")
            self._known[name] = search(task, seed)

    def improve(self, task: Task, seed: int, cost: float, source: str) -> bool:
        """Replace a reference if the cost is lower by more than rounding; return whether it was."""
        name = name_points(task, seed)
        if cost >= self._known[name].cost * (1 - ROUNDING):
            return False
        self._known[name] = self._known[name]._replace(cost=cost, source=source)
        return True

    def by_name(self, name: str) -> Reference | None:
        """Return the reference of points by their name, see `name_points`; None if there is none."""
        return self._known.get(name)

    def join(self, other: "References") -> str | None:
        """Take the lower costs of other references of the same points; return the name of points that differ."""
        for name, reference in other._known.items():
            known = self._known.setdefault(name, reference)
            if known.points_sha256 != reference.points_sha256:
                return name
            if reference.cost < known.cost * (1 - ROUNDING):
                self._known[name] = reference
        return None

    def save(self, folder: Path, names: Iterable[str] | None = None) -> None:
        """Write the references, or only those of some points, into a folder."""
        known = self._known if names is None else {name: self._known[name] for name in set(names) & self._known.keys()}
        lines = [f" {json.dumps(name)}: {json.dumps(list(known[name]))}" for name in sorted(known)]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
        write_bytes(folder, NAME, lambda file: file.write(text.encode()))


def name_points(task: Task, seed: int) -> str:
    """Name the points of a task: data, number of clusters, and the seed if it matters."""
    options = task.options
    parts = [task.data if task.file is None else f"file {task.file}", f"k={options.clusters}"]
    parts += [f"{name}={getattr(options, name)}" for name in _POINTS[1:] if getattr(options, name) != _USUAL[name]]
    return " ".join(parts + [f"seed={seed}"] * _differ_by_seed(task.data))


def _differ_by_seed(data: str) -> bool:
    """Return whether the points of a spec differ by the seed of the run."""
    source = parse_source(data)
    is_drawn = source.name in SOURCES and "seed" in signature(SOURCES[source.name]).parameters
    return is_drawn and "seed" not in source.options


_USUAL = {name: getattr(RunOptions(), name) for name in _POINTS}


def search(task: Task, seed: int) -> Reference:
    """Search the best clustering of the points of a task: k-means++ restarts, and runs of treelloyd.

    Raises
    ------
    P2PKMError
        If the points cannot be used.
    """
    # The same reference for the same points, whatever seeds are selected.
    seed = seed if _differ_by_seed(task.data) else 0
    options = RunOptions(
        **{name: getattr(task.options, name) for name in _POINTS},
        clusters=task.options.clusters, partition="iid", algorithm="treelloyd",
        # The number of devices changes points that differ between devices.
        devices=None if follows_graph(parse_source(task.data)) else _SITES,
        seed=seed, out="none", plot=False, baselines=False,
    )  # fmt: skip
    with single_thread():
        results = [_cluster(replace(options, algorithm=name), seed + i) for name in _METHODS for i in range(_SEARCHES)]
        shards = assemble(options, LocalWorld()).points
        points, weights = shards.points.astype(np.float64), shards.weights
        if results[0].scaling is not None:
            shift, span = results[0].scaling
            points = (points - shift[0]) / span[0]
        costs = [
            (_refine(points, weights, centroids), f"{result.summary['algorithm']}, then Lloyd steps")
            for result, centroids in ((result, result.centroids[result.best]) for result in results)
            if np.isfinite(centroids).all()
        ]
        k = results[0].centroids.shape[1]
        starts = int(np.clip(_DISTANCES / (points.size * k * _STEPS), _LEAST, _STARTS))
        costs.append((_restart(points, weights, k, starts, seed), count(starts, "k-means++ start")))
    cost, source = min(costs)
    return Reference(cost, shards.checksum(), source)


def _cluster(options: RunOptions, seed: int) -> Result:
    """Cluster the points of a run with a seed that changes only the search."""
    run = replace(assemble(options, LocalWorld()), seed=seed)
    return execute(run, LocalWorld(), None, OutputOptions(quiet=True))


def _refine(points: Floats, weights: Floats, centroids: Floats) -> float:
    """Return the cost after Lloyd steps from centroids, until no label changes."""
    from sklearn.cluster import KMeans

    fitted = KMeans(len(centroids), init=centroids, n_init=1, max_iter=_ITERATIONS, tol=0.0).fit(
        points, sample_weight=weights
    )
    return compute_cost(points, weights, fitted.cluster_centers_)


def _restart(points: Floats, weights: Floats, k: int, starts: int, seed: int) -> float:
    """Return the lowest cost of k-means from several k-means++ starts."""
    from sklearn.cluster import KMeans

    fitted = KMeans(k, n_init=starts, max_iter=_ITERATIONS, tol=0.0, random_state=seed % 2**32).fit(
        points, sample_weight=weights
    )
    return compute_cost(points, weights, fitted.cluster_centers_)


def compute_cost(points: Floats, weights: Floats, centroids: Floats) -> float:
    """Compute the sum of weighted squared distances of points to their nearest centroids."""
    nearest = np.full(len(points), np.inf)
    for centroid in centroids:
        np.minimum(nearest, ((points - centroid) ** 2).sum(axis=1), out=nearest)
    return float((weights * nearest).sum())


def _read(text: str, where: str) -> dict[str, Reference]:
    """Read a file of references."""
    try:
        return {
            name: Reference(float(cost), str(checksum), str(source))
            for name, (cost, checksum, source) in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{where} cannot be read: {error}; expected references by points. Remove the file") from None
