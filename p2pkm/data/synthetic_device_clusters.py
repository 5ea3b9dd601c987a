"""Gaussian clusters whose centers differ between devices, along a graph or otherwise, with test points."""

from functools import wraps
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import topologies
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import families
from p2pkm.core.sorting import narrow
from p2pkm.core.spec import complete, parse
from p2pkm.core.validation import LARGEST, check_choice, check_integer, check_positive
from p2pkm.data.random import draw_separated, generator
from p2pkm.data.shards import Shards
from p2pkm.data.table import Table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Along = Literal["graph", "groups", "few", "other-graph", "none"]

# Sign for a comma in the spec of a graph that is a value of another spec.
_COMMA = ";"
_DEVICES = 16  # of a graph without a size of its own
# Smoothing: steps, and the size of a step in units of the largest eigenvalue of the Laplacian, which the largest sum of
# the degrees of two neighbors bounds. After them, the mode of eigenvalue v has the factor (1 - _STEP v / bound)^_STEPS,
# about exp(-12 v / bound); a step of 1 would remove the only mode of two devices.
_STEPS, _STEP = 16, 0.75
# With along="few" one device in _RARE differs from the others, but at least _ODD devices do.
_RARE, _ODD = 10, 2
# Fewest points of a device with sizes that differ.
_LEAST = 2


class DeviceClusters(NamedTuple):
    """Data of `device_clusters`.

    Attributes
    ----------
    points : float64[m, d]
        Points, sorted by device.
    labels : int64[m]
        Cluster of each point: cluster c of all devices is the same class.
    device : int64[m]
        Device of each point.
    centers : float64[n, k, d]
        True centers of each device.
    tests : Table
        Test points of each device, from its distribution, with labels and devices.
    groups : int64[n] or None
        Group of each device with ``along="groups"``.
    """

    points: Floats
    labels: Integers
    device: Integers
    centers: Floats
    tests: Table
    groups: Integers | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def shards(self) -> Shards:
        """Points, test points and true centers, for `p2pkm.simulate`."""
        return Shards.deal(self.tabulate())

    def tabulate(self) -> Table:
        """Return a table of the points, with the test points and the true centers."""
        n, k, _ = self.centers.shape
        labels = self.labels.astype(narrow(k))
        return Table(self.points, labels, k, device=self.device, groups=self.groups, owners=np.arange(n),
                     tests=self.tests, centers=self.centers)  # fmt: skip


def device_clusters(
    *, graph: str | Any = None, devices: int | None = None, along: Along = "graph", amplitude: float = 1.0,
    clusters: int = 4, features: int = 2, points: int = 20, tests: int = 100, separation: float = 3.0,
    groups: int = 3, class_alpha: float | None = None, size_alpha: float | None = None, freedom: float | None = None,
    seed: int = 0,
) -> DeviceClusters:  # fmt: skip
    """Draw unit Gaussians whose centers differ between devices, with test points of each device.

    A common clustering does not suit the devices, and a device alone has few points: neighbors that are alike help.

    Parameters
    ----------
    graph : str, networkx.Graph or CSRGraph, optional
        Similarity graph: neighbors have similar centers. Text such as ``"torus"``, with ; for a comma, such as
        ``"small-world:degree=4;rewire=0.2"``. None: a ring; on the command line and in studies the communication graph,
        which server methods do not use.
    devices : int, optional
        Number of devices; None: that of the nodes of a graph of fixed size, else 16.
    along : {"graph", "groups", "few", "other-graph", "none"}
        How the centers of clusters differ between devices.

        * "graph": smoothly along the graph: neighbors have similar centers.
        * "groups": connected groups of devices, `groups` in number, have the same centers.
        * "few": a tenth of the devices, at least two, differ from all others.
        * "other-graph": as "graph", on the graph with its devices in random order, so that neighbors are not similar.
        * "none": not at all: a common clustering is best.
    amplitude : float
        Standard deviation of each coordinate of a center over the devices, in units of that of the points of a
        cluster, with two features; with d features it is multiplied by sqrt(2 / d). At least 0.
    clusters, features : int
        Number of clusters k, and of features.
    points : int
        Points of each device; with `size_alpha` the mean.
    tests : int
        Test points of each device.
    separation : float
        Smallest distance of two base centers, which are uniform in a cube of side
        ``2 * separation * clusters ** (1 / features)``.
    groups : int
        Number of groups.
    class_alpha : float, optional
        Shares of the clusters at a device are drawn from a Dirichlet distribution with this concentration, such as
        0.3; None: equal shares.
    size_alpha : float, optional
        The same for the sizes of the devices, which have at least 2 points each; None: equal sizes.
    freedom : float, optional
        Degrees of freedom, above 2, of Student's t, whose tails are heavy, with variance 1; None: Gaussian.
    seed : int
        Whole number from 0.

    Raises
    ------
    ExperimentError
        If a value is out of range, or the graph cannot be built.

    Notes
    -----
    The centers of device i are ``base + amplitude * sqrt(2 / features) * f_i``. All coordinates of f have mean 0 and
    variance 1 over the devices; for "graph" they are random numbers after diffusion along the graph.

    Examples
    --------
    >>> import p2pkm
    >>> data = p2pkm.device_clusters(graph="torus", devices=36, amplitude=0.7)
    >>> data.points.shape, data.centers.shape, data.tests.points.shape
    ((720, 2), (36, 4, 2), (3600, 2))
    >>> result = p2pkm.simulate("gtvmin:coupling=1", "torus", data.shards)
    >>> result.summary["test_ratio_common"] < 1 and result.summary["test_ratio_alone"] < 1
    True
    """
    check_choice(along, ("graph", "groups", "few", "other-graph", "none"), "along")
    k, d = check_integer(clusters, 1, "clusters"), check_integer(features, 1, "features")
    m, least = check_integer(points, 1, "points"), check_integer(tests, 1, "tests")
    size = check_positive(amplitude, "amplitude", zero=True, most=LARGEST) * np.sqrt(2.0 / d)
    gap = check_positive(separation, "separation", most=LARGEST)
    if freedom is not None and check_positive(freedom, "freedom") <= 2.0:
        raise ExperimentError(f"freedom is {freedom:g}; expected a number above 2, so that the variance is finite")
    indptr, indices = read_links(graph, devices, check_integer(seed, 0, "seed"))
    n = len(indptr) - 1
    if check_integer(groups, 1, "groups") > n and along == "groups":
        raise ExperimentError(f"groups is {groups}; expected at most {n}, the number of devices")
    rng = generator(seed, "device clusters")
    base = draw_separated(rng, k, d, side=2.0 * gap * k ** (1.0 / d), separation=gap)
    field, group = _draw_field(rng, along, (indptr, indices), k * d, groups)
    centers = base + size * field.reshape(n, k, d)
    counts = np.full(n, m)
    if size_alpha is not None:
        shares = rng.dirichlet(np.full(n, check_positive(size_alpha, "size_alpha")))
        counts = min(m, _LEAST) + rng.multinomial(n * (m - min(m, _LEAST)), shares)
    ends = np.tile(np.arange(1, k + 1) / k, (n, 1))
    if class_alpha is not None:
        ends = np.cumsum(rng.dirichlet(np.full(k, check_positive(class_alpha, "class_alpha")), n), axis=1)
    parts = [_draw_points(rng, centers, ends, sizes, freedom) for sizes in (counts, np.full(n, least))]
    (X, labels, device), of_tests = parts  # noqa: N806 - the name of all points
    test_points, test_labels, test_device = of_tests
    tested = Table(test_points, test_labels.astype(narrow(k)), k, device=test_device)
    return DeviceClusters(X, labels, device, centers, tested, group)


@wraps(device_clusters)
def tabulate(**options: Any) -> Table:
    """Draw `device_clusters` as a table for the command line."""
    table, graph = device_clusters(**options).tabulate(), options.get("graph") or "ring"
    if options.get("along", "graph") not in ("graph", "groups") or not isinstance(graph, str):
        return table
    return table._replace(notes=(f"the true centers of the devices differ along {graph.replace(_COMMA, ',')}",))


def nest(graph: str) -> str:
    """Write the spec of a graph as a value of another spec."""
    return graph.replace(",", _COMMA)


def read_links(graph: Any, devices: int | None, seed: int) -> tuple[Integers, Integers]:
    """Build a similarity graph from text, or convert one; return its links as compressed rows.

    Parameters
    ----------
    graph : str, graph or None
        None: a ring.
    devices : int or None
    seed : int
        Of a random graph whose text lacks a seed.

    Raises
    ------
    ExperimentError
        If the graph cannot be built, or has another number of devices.
    """
    number = None if devices is None else check_integer(devices, 1, "devices")
    try:
        if graph is None or isinstance(graph, str):
            text = "ring" if graph is None else graph.replace(_COMMA, ",")
            kinds = families(text)
            spec = complete(parse(text, kinds, "graph"), kinds, seed)
            size = number if spec.name in topologies.FIXED else number or _DEVICES
            light = True if spec.name in topologies.DETERMINISTIC else None
            graph = topologies.build(spec.name, size, light=light, **spec.options)
        topologies.check(graph)
    except topologies.GraphError as error:
        raise ExperimentError(f"graph {graph} of device-clusters: {error}") from None
    if isinstance(graph, topologies.TimeVaryingGraph):
        graph = graph.union
    csr = graph if isinstance(graph, topologies.CSRGraph) else topologies.CSRGraph.from_networkx(graph)
    if number not in (None, len(csr)):
        raise ExperimentError(
            f"devices is {number}, but the graph of device-clusters has {len(csr)} nodes; expected the same number. "
            "Remove devices, or use another graph"
        )
    return np.asarray(csr.indptr, np.int64), np.asarray(csr.indices, np.int64)


def _draw_field(
    rng: np.random.Generator, along: str, links: tuple[Integers, Integers], columns: int, groups: int
) -> tuple[Floats, Integers | None]:
    """Draw the differences of the devices, float64[n, columns] of mean 0 and variance 1, and their groups."""
    n = len(links[0]) - 1
    if along == "none":
        return np.zeros((n, columns)), None
    if along == "groups":
        group = _grow_groups(rng, links, groups)
        return _standardize(rng.standard_normal((groups, columns))[group]), group
    if along == "few":
        field, count = np.zeros((n, columns)), min(n, max(_ODD, n // _RARE))
        field[rng.choice(n, count, replace=False)] = rng.standard_normal((count, columns)) * np.sqrt(n / count)
        return field, None
    field = _diffuse(rng.standard_normal((n, columns)), *links)
    return (field[rng.permutation(n)] if along == "other-graph" else field), None


def _diffuse(field: Floats, indptr: Integers, indices: Integers) -> Floats:
    """Smooth each column along the links, by steps in which each device moves towards its neighbors.

    Sums are over the neighbors in their order, in every column alike: the same bits on every machine.
    """
    degrees = np.diff(indptr)
    source = np.repeat(np.arange(len(degrees)), degrees)
    bound = int((degrees[source] + degrees[indices]).max(initial=1))
    smooth = _standardize(field)
    for column, values in enumerate(np.ascontiguousarray(smooth.T)):
        for _ in range(_STEPS):
            sums = np.bincount(source, values[indices], len(values))
            values += _STEP / bound * (sums - degrees * values)
        smooth[:, column] = values
    return _standardize(smooth)


def _standardize(field: Floats) -> Floats:
    """Give each column mean 0 and variance 1, unless it is constant; sums in the order of the devices."""
    centered = field - np.cumsum(field, axis=0)[-1] / len(field)
    variance = np.cumsum(centered * centered, axis=0)[-1] / len(field)
    standardized: Floats = centered / np.sqrt(np.where(variance > 0.0, variance, 1.0))
    return standardized


def _grow_groups(rng: np.random.Generator, links: tuple[Integers, Integers], groups: int) -> Integers:
    """Divide the devices into connected groups: each device belongs to the nearest of some random devices.

    Devices without a path to any of these have random groups.
    """
    indptr, indices = (part.tolist() for part in links)
    n = len(indptr) - 1
    first, other = rng.choice(n, groups, replace=False), rng.integers(0, groups, n)
    group = [-1] * n
    for number, i in enumerate(first.tolist()):
        group[i] = number
    # Devices in the order in which they are reached; the list grows while it is read.
    reached = first.tolist()
    for i in reached:
        for j in indices[indptr[i] : indptr[i + 1]]:
            if group[j] < 0:
                group[j] = group[i]
                reached.append(j)
    return np.where(np.array(group) < 0, other, group)


def _draw_points(
    rng: np.random.Generator, centers: Floats, ends: Floats, sizes: Integers, freedom: float | None
) -> tuple[Floats, Integers, Integers]:
    """Draw points of each device, float64[m, d], their clusters and devices; `ends`: cumulated shares."""
    n, k, d = centers.shape
    device = np.repeat(np.arange(n), sizes)
    drawn, labels = rng.random(len(device)), np.zeros(len(device), np.int64)
    for c in range(k - 1):
        labels += drawn >= ends[device, c]
    if freedom is None:
        noise = rng.standard_normal((len(device), d))
    else:
        noise = rng.standard_t(freedom, (len(device), d)) / np.sqrt(freedom / (freedom - 2.0))
    return centers[device, labels] + noise, labels, device
