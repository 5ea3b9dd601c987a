"""Deep clustering side by side: systems and controls on the same images, splits and starts, and a linear probe."""

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
_PROBED = 3  # devices whose bodies are probed, where they differ
_SCORES = dict(zip(SCORES, (nmi, ari, purity), strict=True))


class _Images(NamedTuple):
    """The images of one seed: those held out are on no device."""

    all: Floats
    classes: NDArray[Any]
    tested: NDArray[np.bool_]
    seed: int
    few: int
    image: tuple[int, ...] | None

    @property
    def own(self) -> Floats:
        """Return those that are on devices."""
        return self.all[~self.tested]


def deep_table(  # noqa: PLR0913 - the public signature
    systems: Mapping[str, Any], data: str | tuple[ArrayLike, ArrayLike | None], *, devices: int = 10,
    partition: str = "iid", rounds: int | None = None, seeds: int | Iterable[int] = 10,
    controls: Iterable[str] = CONTROLS, per_class: int = 5, tell: Callable[[Row], None] | None = None,
    known: Iterable[Row] = (),
) -> DeepTable:  # fmt: skip
    """Run deep clustering in several ways over seeds and judge the features by a linear probe.

    A fifth of every class is held out of everything. A seed decides which, the start of the network, the views, the
    partition and, where `data` is a spec, the images; all systems share it, so differences are paired.

    Parameters
    ----------
    systems : mapping of str to method or (method, graph)
        `p2pkm.DeepFeCA` on the star, `p2pkm.DeepGossip` with its graph. The first one's network and training are
        those of the controls.
    data : str or (images, labels)
        Such as ``"shapes:points=200,side=16"`` or ``"images.npz"``; or array_like of float64[m, d] in [0, 1] and m
        classes.
    devices : int
    partition : str
        Such as ``"dirichlet:alpha=0.3"``.
    rounds : int, optional
        None: the methods' default (30).
    seeds : int or iterable of int
        How many, from 0, or which.
    controls : iterable of str
        Of ``raw pixels``, ``PCA`` (to the body's width), ``untrained body``, ``none`` (every client clusters alone),
        ``central`` (all features in one place) and ``pooled`` (all images in one place: DeepCluster).
    per_class : int
        Labels per class of ``accuracy_few``.
    tell : callable, optional
        Called with every row once it is there.
    known : iterable of dict
        Rows of an earlier table with the same options: their systems and seeds are not run again.

    Raises
    ------
    ExperimentError
        If a name or an option is not known, or JAX is not installed.
    DataError
        If there are no labels, one class alone, or the points are no images.

    Examples
    --------
    >>> table = p2pkm.deep_table(
    ...     {"FeCA": p2pkm.DeepFeCA(30, rate=0.02), "M-Avg": p2pkm.DeepFeCA(30, rate=0.02, server="mavg")},
    ...     "shapes:side=16", partition="dirichlet:alpha=0.3", rounds=10, seeds=3,
    ... )  # doctest: +SKIP
    >>> print(table, table.gap("FeCA", "M-Avg"))  # doctest: +SKIP
    """
    pairs: dict[str, tuple[Any, Any]] = {
        name: one if isinstance(one, tuple) else (one, None) for name, one in systems.items()
    }
    if not pairs or not all(isinstance(method, DeepMethod) for method, _ in pairs.values()):
        raise ExperimentError(
            "systems are no deep methods; expected names and each a p2pkm.DeepFeCA, or (p2pkm.DeepGossip, graph)"
        )
    base = next(iter(pairs.values()))[0]
    wanted = [check_choice(name, CONTROLS, "control") for name in controls]
    shared = set(wanted) & pairs.keys()
    if shared:
        raise ExperimentError(f"{min(shared)!r} names a system and a control; give the system another name")
    star = _as_star(base)
    pairs |= {name: (replace(star, server=name), None) for name in ("none", "central") if name in wanted}
    count = base.default_rounds if rounds is None else check_integer(rounds, 0, "rounds")
    chosen = range(check_integer(seeds, 1, "seeds")) if isinstance(seeds, int) else list(seeds)
    names = [*(name for name in CONTROLS if name in wanted and name not in pairs), *pairs]
    held = {(row["seed"], row["name"]): row for row in known}
    for seed in chosen:
        missing = [name for name in names if (seed, name) not in held]
        if not missing:
            continue
        images = _load(data, seed, per_class)
        shards = _deal(Table(images.own, images.classes[~images.tested]), partition, devices, seed)
        for name in missing:
            method, graph = pairs.get(name, (base, None))
            method = method.for_images(images.image)
            judged = _play(method, graph, shards, images, count) if name in pairs else _control(
                name, method, images, count)  # fmt: skip
            row = {"name": name, "seed": seed, **judged}
            held[seed, name] = row
            if tell is not None:
                tell(row)
    return DeepTable(tuple(held[seed, name] for seed in chosen for name in names))


def _as_star(method: DeepMethod) -> DeepMethod:
    """Return the form with a server that has the network and the training of a method."""
    fields = {name: value for name, value in vars(method).items() if name in DeepFeCA.__dataclass_fields__}
    return DeepFeCA(**fields)


def _load(data: str | tuple[ArrayLike, ArrayLike | None], seed: int, few: int) -> _Images:
    labels: ArrayLike | None
    if isinstance(data, str):
        found = load(parse_source(data), seed=seed)
        points, labels, image = found.points, found.labels, found.image
    else:
        points, labels, image = as_points(data[0], "images"), data[1], None
    classes = check_labels(labels, len(points))
    return _Images(np.asarray(points, np.float64), classes, hold_out(classes, seed), seed, few, image)


def _deal(table: Table, partition: str, devices: int, seed: int) -> Any:
    known = known_partitions(partition)
    return assign(table, complete(parse_partition(partition) or Spec("iid", {}), known, seed), devices, "float64")


def _control(name: str, base: DeepMethod, images: _Images, rounds: int) -> Row:
    """Return the row of a control that sends nothing."""
    learner, scores = base.learner(images.all.shape[1]), _score(None, images)
    if name == "raw pixels":
        body = images.all
    elif name == "PCA":
        body = _reduce(images, learner.embed(learner.init(shared_key(images.seed)), images.all[:1])[0].shape[1])
    else:
        theta = learner.init(shared_key(images.seed))
        if name == "pooled":
            theta, _, labels = deep_cluster(base, images.own, rounds=rounds, seed=images.seed)
            scores = _score((labels, images.classes[~images.tested]), images)
        body = learner.embed(theta, images.all)[0]
    return {**_probe([body], images), **scores, "bytes": None, "bytes_busiest": None}


def _play(
    method: DeepMethod, graph: Any, shards: Any, images: _Images, rounds: int
) -> Row:  # fmt: skip
    """Return the row of a system."""
    result = simulate(method, graph, shards, rounds=rounds, seed=images.seed, baselines=False, progress=False)
    learned, learner = result.learned, method.learner(images.all.shape[1])
    assert learned is not None  # every deep method learns
    n = len(learned.theta)
    chosen = [n - 1] if graph is None else sorted({i * (n - 1) // max(1, _PROBED - 1) for i in range(_PROBED)})
    bodies = [learner.embed(learned.theta[i], images.all)[0] for i in chosen]
    sent = {name: result.summary[name] for name in ("bytes", "bytes_busiest")}
    return {**_probe(bodies, images), **_score((learned.labels, shards.labels), images), **sent}


def _probe(bodies: list[Floats], images: _Images) -> Row:
    found = [
        linear_probe(body, images.classes, seed=images.seed, per_class=images.few, held_out=images.tested)
        for body in bodies
    ]
    return dict(zip(Probe._fields, np.mean(found, axis=0).tolist(), strict=True))


def _score(labeled: tuple[Integers, Any] | None, images: _Images) -> Row:
    """Return the scores of pseudo-labels int64[t, m] against classes, of all clusterings and of the last."""
    if labeled is None or not len(labeled[0]):
        return {"by_round": None, **dict.fromkeys(_SCORES)}
    labels, classes = labeled
    tables = np.zeros((len(labels), int(images.classes.max()) + 1, int(labels.max(initial=0)) + 1), np.int64)
    for table, row in zip(tables, labels, strict=True):
        np.add.at(table, (classes[row >= 0], row[row >= 0]), 1)
    scores = {name: [float(one) for one in score(tables)] for name, score in _SCORES.items()}
    return {"by_round": scores, **{name: values[-1] for name, values in scores.items()}}


@single_thread()
def _reduce(images: _Images, width: int) -> Floats:
    """Return the principal components of the images on devices, as many as the body is wide."""
    middle = images.own.mean(axis=0)
    axes = np.linalg.svd(images.own - middle, full_matrices=False)[2][:width]
    return (images.all - middle) @ axes.T
