"""Comparison of deep clustering systems and controls by a linear probe, on equal images, splits and networks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import Spec, complete
from p2pkm.core.validation import as_points, check_choice, check_integer
from p2pkm.data.assign import assign
from p2pkm.data.partition import known as known_partitions
from p2pkm.data.sources import load, parse_source
from p2pkm.data.table import Table
from p2pkm.deep.deep_table import SCORES, UNTRAINED, DeepTable, Row
from p2pkm.deep.deepfeca import DeepFeCA
from p2pkm.deep.linear_probe import Probe, check_labels, hold_out, linear_probe
from p2pkm.deep.method import DeepMethod
from p2pkm.deep.pooled import deep_cluster
from p2pkm.experiments.config import parse_partition
from p2pkm.experiments.simulate import simulate
from p2pkm.kernels.streams import shared_key
from p2pkm.metrics.clustering import ari, nmi, purity
from topologies.single_thread import single_thread

CONTROLS = ("raw pixels", "PCA", UNTRAINED, "none", "central", "pooled")
# Devices whose bodies are probed, if they differ.
_PROBED_DEVICES = 3
_SCORES = dict(zip(SCORES, (nmi, ari, purity), strict=True))


class _Images(NamedTuple):
    """Images of one seed; held-out ones (`tested`) are not on any device."""

    all: Floats
    classes: NDArray[Any]
    tested: NDArray[np.bool_]
    seed: int
    few: int
    image: tuple[int, ...] | None

    @property
    def on_devices(self) -> Floats:
        """Images that are on devices."""
        return self.all[~self.tested]


def deep_table(
    systems: Mapping[str, Any], data: str | tuple[ArrayLike, ArrayLike | None], *, devices: int = 10,
    partition: str = "iid", rounds: int | None = None, seeds: int | Iterable[int] = 10,
    controls: Iterable[str] = CONTROLS, per_class: int = 5, tell: Callable[[Row], None] | None = None,
    known: Iterable[Row] = (),
) -> DeepTable:  # fmt: skip
    """Run deep clustering systems over seeds, and evaluate their features by a linear probe.

    One fifth of each class is held out from all training. A seed determines the held-out images, the initial network,
    the views, the partition and, if `data` is a spec, the images. All systems share it, so differences are paired.

    Parameters
    ----------
    systems : mapping of str to method or (method, graph)
        `p2pkm.DeepFeCA` on the star, `p2pkm.DeepGossip` with its graph. The controls use network and training of the
        first system.
    data : str or (images, labels)
        Such as ``"shapes:points=200,side=16"`` or ``"images.npz"``; or array_like of float64[m, d] in [0, 1] and m
        classes.
    devices : int
        Number of devices that have images.
    partition : str
        Such as ``"dirichlet:alpha=0.3"``.
    rounds : int, optional
        Default: that of the methods (30).
    seeds : int or iterable of int
        Number of seeds, from 0, or the seeds.
    controls : iterable of str
        * "raw pixels": the images as features.
        * "PCA": principal components, as many as the width of the body.
        * "untrained body": the initial network.
        * "none": every client clusters its features without the others.
        * "central": all features are sent to the server.
        * "pooled": all images are pooled (DeepCluster).
    per_class : int
        Labels per class of ``accuracy_few``.
    tell : callable, optional
        Called with every row when it is complete.
    known : iterable of dict
        Rows of an earlier table with the same options: their systems and seeds are not run again.

    Raises
    ------
    ExperimentError
        If a name or an option is unknown, or JAX is not installed.
    DataError
        If labels are missing, all images have the same class, or the points are not images.

    Examples
    --------
    >>> table = p2pkm.deep_table(
    ...     {"FeCA": p2pkm.DeepFeCA(30, rate=0.02), "M-Avg": p2pkm.DeepFeCA(30, rate=0.02, server="mavg")},
    ...     "shapes:side=16", partition="dirichlet:alpha=0.3", rounds=10, seeds=3,
    ... )  # doctest: +SKIP
    >>> print(table, table.gap("FeCA", "M-Avg"))  # doctest: +SKIP
    """
    pairs: dict[str, tuple[Any, Any]] = {
        name: system if isinstance(system, tuple) else (system, None) for name, system in systems.items()
    }
    if not pairs or not all(isinstance(method, DeepMethod) for method, _ in pairs.values()):
        raise ExperimentError(
            "systems are not deep methods; expected a dict such as {'FeCA': p2pkm.DeepFeCA(10)}, with values DeepFeCA "
            "or (DeepGossip, graph)"
        )
    base = next(iter(pairs.values()))[0]
    control_names = [check_choice(name, CONTROLS, "control") for name in controls]
    shared = set(control_names) & pairs.keys()
    if shared:
        raise ExperimentError(f"{min(shared)!r} names a system and a control; rename the system")
    star = _as_star(base)
    pairs |= {name: (replace(star, server=name), None) for name in ("none", "central") if name in control_names}
    count = base.default_rounds if rounds is None else check_integer(rounds, 0, "rounds")
    chosen = range(check_integer(seeds, 1, "seeds")) if isinstance(seeds, int) else list(seeds)
    names = [*(name for name in CONTROLS if name in control_names and name not in pairs), *pairs]
    rows = {(row["seed"], row["name"]): row for row in known}
    for seed in chosen:
        missing = [name for name in names if (seed, name) not in rows]
        if not missing:
            continue
        images = _load(data, seed, per_class)
        shards = _deal(Table(images.on_devices, images.classes[~images.tested]), partition, devices, seed)
        for name in missing:
            method, graph = pairs.get(name, (base, None))
            method = method.for_images(images.image)
            if name in pairs:
                measured = _measure_system(method, graph, shards, images, count)
            else:
                measured = _measure_control(name, method, images, count)
            row = {"name": name, "seed": seed, **measured}
            rows[seed, name] = row
            if tell is not None:
                tell(row)
    return DeepTable(tuple(rows[seed, name] for seed in chosen for name in names))


def _as_star(method: DeepMethod) -> DeepMethod:
    """Return the method with a server that has the same network and training."""
    fields = {name: value for name, value in vars(method).items() if name in DeepFeCA.__dataclass_fields__}
    return DeepFeCA(**fields)


def _load(data: str | tuple[ArrayLike, ArrayLike | None], seed: int, few: int) -> _Images:
    labels: ArrayLike | None
    if isinstance(data, str):
        source = load(parse_source(data), seed=seed)
        points, labels, image = source.points, source.labels, source.image
    else:
        points, labels, image = as_points(data[0], "images"), data[1], None
    classes = check_labels(labels, len(points))
    return _Images(np.asarray(points, np.float64), classes, hold_out(classes, seed), seed, few, image)


def _deal(table: Table, partition: str, devices: int, seed: int) -> Any:
    spec = parse_partition(partition) or Spec("iid", {})
    assert isinstance(spec, Spec)
    return assign(table, complete(spec, known_partitions(partition), seed), devices, "float64")


def _measure_control(name: str, base: DeepMethod, images: _Images, rounds: int) -> Row:
    """Measure a control that sends no messages."""
    learner, scores = base.learner(images.all.shape[1]), _score(None, images)
    if name == "raw pixels":
        body = images.all
    elif name == "PCA":
        body = _reduce(images, learner.embed(learner.init(shared_key(images.seed)), images.all[:1])[0].shape[1])
    else:
        theta = learner.init(shared_key(images.seed))
        if name == "pooled":
            theta, _, labels = deep_cluster(base, images.on_devices, rounds=rounds, seed=images.seed)
            scores = _score((labels, images.classes[~images.tested]), images)
        body = learner.embed(theta, images.all)[0]
    return {**_probe([body], images), **scores, "bytes": None, "bytes_busiest": None}


def _measure_system(method: DeepMethod, graph: Any, shards: Any, images: _Images, rounds: int) -> Row:
    """Run and measure a system."""
    result = simulate(method, graph, shards, rounds=rounds, seed=images.seed, baselines=False, progress=False)
    learned, learner = result.learned, method.learner(images.all.shape[1])
    # Every deep method learns features.
    assert learned is not None
    n = len(learned.theta)
    # With a server, all devices have equal parameters. Without one, probe devices that are evenly spread over the ids.
    spread_ids = {i * (n - 1) // max(1, _PROBED_DEVICES - 1) for i in range(_PROBED_DEVICES)}
    chosen = [n - 1] if graph is None else sorted(spread_ids)
    bodies = [learner.embed(learned.theta[i], images.all)[0] for i in chosen]
    sent = {name: result.summary[name] for name in ("bytes", "bytes_busiest")}
    return {**_probe(bodies, images), **_score((learned.labels, shards.labels), images), **sent}


def _probe(bodies: list[Floats], images: _Images) -> Row:
    """Compute the mean accuracies of a linear probe over the bodies of some devices."""
    probes = [
        linear_probe(body, images.classes, seed=images.seed, per_class=images.few, held_out=images.tested)
        for body in bodies
    ]
    return dict(zip(Probe._fields, np.mean(probes, axis=0).tolist(), strict=True))


def _score(labeled: tuple[Integers, Any] | None, images: _Images) -> Row:
    """Compute the scores of labels, int64[t, m], against classes, for all clusterings and for the last one."""
    if labeled is None or not len(labeled[0]):
        return {"by_round": None, **dict.fromkeys(_SCORES)}
    labels, classes = labeled
    tables = np.zeros((len(labels), int(images.classes.max()) + 1, int(labels.max(initial=0)) + 1), np.int64)
    for table, row in zip(tables, labels, strict=True):
        np.add.at(table, (classes[row >= 0], row[row >= 0]), 1)
    scores = {name: [float(value) for value in score(tables)] for name, score in _SCORES.items()}
    return {"by_round": scores, **{name: values[-1] for name, values in scores.items()}}


@single_thread()
def _reduce(images: _Images, width: int) -> Floats:
    """Project all images to the first principal components of those on devices."""
    middle = images.on_devices.mean(axis=0)
    axes = np.linalg.svd(images.on_devices - middle, full_matrices=False)[2][:width]
    return (images.all - middle) @ axes.T
