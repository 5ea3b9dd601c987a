"""What a run leaves behind, the same on every rank."""

import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.validation import as_points, check_magnitude, check_near, match_features
from p2pkm.data.identifiers import are_numbers
from p2pkm.kernels.reference import losses as price_losses
from p2pkm.metrics.clusters import Clusters, arrange, number_clusters
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.ledger import Traffic

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure

    from p2pkm.metrics.replay_frames import Frames
    from topologies import CSRGraph

_TOLD = ("algorithm", "graph", "devices", "clusters", "rounds", "termination", "ratio_mean", "messages", "bytes",
         "wire_bytes")  # fmt: skip
_NAMES = 10  # in a message
_ROUNDED = 2.0**-49  # of the shift: what is left of a value of 0 that was scaled, averaged and scaled back


class Exposure(NamedTuple):
    """What every device, the server included, has seen of others.

    Attributes
    ----------
    devices : int64[n]
        Other devices whose rows it received: neighbors that sent, and those whose tables others forwarded unchanged
        (an upper bound: of floods and trees all that may have come, lost messages and reduced tables included).
    rows : int64[n]
        Rows that it received, repetitions included.
    """

    devices: Integers
    rows: Integers

    def __repr__(self) -> str:
        return short_repr(self)


class HashChain(NamedTuple):
    """The fingerprints of the recorded rounds.

    Attributes
    ----------
    heads : uint8[records, 32]
        SHA-256 of the head before and of the devices' digests in device order.
    digests : uint8[records, n, 32] or None
        SHA-256 of each device's centroids; None if they would fill more than 64 MB.
    """

    heads: Any
    digests: Any

    def __repr__(self) -> str:
        return short_repr(self)


class Census(NamedTuple):
    """Where the points are and how they were labeled, in ascending (device, row).

    Attributes
    ----------
    sizes : int64[n]
        Points of each device.
    labels, device, row : int64[m] or None
        Centroid that each point chose on its own device (-1: the device has none), that device, and the row of the
        point in the user's array; None above 10 million points.
    classes : int64[n, c] or None
        Points of each true class on each device; None without labels.
    scores : float64[n, 3] or None
        Adjusted Rand index, NMI and purity of each device's own points.
    sample : float64[s, d]
        Points for pictures: all of them, or a seeded sample of 5,000.
    sample_device, sample_class : int64[s]
        Their devices and classes (-1 without labels).
    sample_cluster : int64[s]
        Row of their device's centroids that they chose; -1: none, or not known.
    cluster_sizes, cluster_means, cluster_deviations : int64[n, k], float64[n, k, d], float64[n, k, d], or None
        Points of each row of a device's centroids, their mean and their standard deviation; None of large runs.
    """

    sizes: Integers
    labels: Integers | None
    device: Integers | None
    row: Integers | None
    classes: Integers | None
    scores: Floats | None
    sample: Floats
    sample_device: Integers
    sample_class: Integers
    sample_cluster: Integers
    cluster_sizes: Integers | None = None
    cluster_means: Floats | None = None
    cluster_deviations: Floats | None = None

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of a run.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Every device's centroids; absent rows are +inf.
    server_centroids : float64[k, d] or None
        The global model of a server method.
    rounds : list of dict
        What the monitor recorded: rounds.jsonl of the run folder.
    summary : dict
        The closing JSON object of the command line.
    ledger : Traffic
        What was sent over each edge.
    topology : Topology
    losses : float64[n]
        Cost (6) of each device on its own points; inf where a device has points and no centroid.
    gtv : float64[e]
        Disagreement (4) of the two ends of each directed edge of the topology, the same in both directions.
    census : Census
        Where the points are and how they were labeled.
    chain : HashChain
    best : int
        The device whose centroids cost least on all points.
    scaling : tuple of (float64[n, d], float64[n, d]) or None
        Shift and span of every feature that each device scaled its points by; the centroids and the sample are in these
        units, and `predict` scales what it gets.
    groups : int64[n] or None
        Group of each device, numbered by their lowest device: which table it took, of `treelloyd` with groups; of
        `gtvmin` what is connected by links in use that kept more than half of their strength. None for other methods.
    notes : list of str
        What a reader of the figures should know, such as a sample that stands for the whole.
    frames : Frames or None
        The run in at most 60 pictures, for replay; None if there are none.
    ratios : float64[n] or None
        Cost of each device's centroids on all points over the central cost; NaN where it is not known.
    byzantine : int64[b] or None
        The Byzantine devices.
    exposure : Exposure or None
    central : float64[k, d] or None
        Centroids of central k-means, the baseline, in the units of `centroids`; None: there was none.
    devices : dict of str to float64[n]
        The figures of `p2pkm.metrics.registry` that every device has a value of, by key; the server's, too, if the
        figure has one: devices.npz of the run folder.
    features : tuple of str, length d, or None
        Names of the features, if the data have any.
    derived : dict of str to array
        What a method computed of the points besides centroids, by name: `features`, float64[m, D], the features of
        every point in the order of `Census.device`, and what else its states have in `derived`. Then all centroids,
        costs and labels are in the space of these features, which `predict` takes, too. Empty for other methods.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(3), shards)
    >>> result.centroids.shape, result.clusters.points.sum(axis=0).tolist()
    ((3, 3, 2), [8, 8, 8])
    >>> bool((result.predict(X) == result.labels).all())
    True
    """

    centroids: Floats
    server_centroids: Floats | None
    rounds: list[dict[str, Any]]
    summary: dict[str, Any]
    ledger: Traffic
    topology: Topology
    losses: Floats
    gtv: Floats
    census: Census
    chain: HashChain
    best: int
    notes: list[str] = field(default_factory=list)
    scaling: tuple[Floats, Floats] | None = None
    groups: Integers | None = None
    frames: "Frames | None" = None
    ratios: Floats | None = None
    byzantine: Integers | None = None
    exposure: Exposure | None = None
    central: Floats | None = None
    devices: dict[str, Floats] = field(default_factory=dict)
    features: tuple[str, ...] | None = None
    derived: dict[str, Any] = field(default_factory=dict)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Return what the features are called; without names ``feature 0``, ``feature 1``, ...."""
        return self.features or tuple(f"feature {j}" for j in range(self.centroids.shape[2]))

    @property
    def learned(self) -> Any:
        """Return the `LearnedFeatures` of `deepfeca` and `deepgossip`: parameters, features, labels; else None."""
        return call("learned", self)

    @cached_property
    def clusters(self) -> Clusters:
        """Return the clusters of all devices under one numbering, in the units of the data.

        The numbers are those of the device that `predict` takes by default: the rows of every other device are matched
        with its rows one to one.
        """
        census = self.census
        number = number_clusters(self.centroids, self.centroids[self.best])
        means = None if census.cluster_means is None else arrange(self._unscale(census.cluster_means), number)
        widths = census.cluster_deviations
        if widths is not None and self.scaling is not None:
            widths = widths * self.scaling[1][: len(widths), None]
        return Clusters(
            number, arrange(self._unscale(self.centroids), number),
            None if census.cluster_sizes is None else arrange(census.cluster_sizes, number),
            means, None if widths is None else arrange(widths, number),
        )  # fmt: skip

    @property
    def labels(self) -> Integers:
        """Return the cluster of each point by its own device, int64[m], in ascending row of the data.

        They are numbered as in `clusters`; -1: the device has no centroid.

        Raises
        ------
        DataError
            If the run was too large to keep them.
        """
        census = self.census
        if census.labels is None or census.device is None or census.row is None:
            raise DataError("above 10 million points labels are not kept; predict gives them, device by device")
        return self.number_alike(census.device, census.labels)[np.argsort(census.row, kind="stable")]

    def number_alike(self, device: Integers, row: Integers) -> Integers:
        """Return the clusters of `clusters` that rows of devices' centroids are, int64[m]; -1 stays -1."""
        return np.where(row < 0, -1, self.clusters.number[device, np.maximum(row, 0)])

    def server_rows(self) -> Floats | None:
        """Return the server's centroids numbered as in `clusters`, in the units of the data; None without a server."""
        if self.server_centroids is None:
            return None
        rows = np.full((1, max(len(self.server_centroids), self.centroids.shape[1]), self.centroids.shape[2]), np.inf)
        rows[0, : len(self.server_centroids)] = self.server_centroids
        ordered = arrange(rows, number_clusters(rows, self.centroids[self.best]))[0]
        return ordered if self.scaling is None else _scale_back(ordered, *(part[-1] for part in self.scaling))

    def _unscale(self, rows: Floats) -> Floats:
        """Return rows[n, k, d] of every device in the units of the data."""
        if self.scaling is None:
            return rows
        return _scale_back(rows, *(part[: len(rows), None] for part in self.scaling))

    @property
    def graph(self) -> "nx.Graph | CSRGraph":
        """Return the communication graph: devices 0 to n - 1, of a star the server n too; links have a `weight`.

        A networkx.Graph, above 100,000 devices a topologies.CSRGraph. Where devices have names, nodes have a `name`.
        """
        return self._light() if self.topology.n > LARGE else self._draw_up()

    def _draw_up(self) -> "nx.Graph":
        graph = self._light().to_networkx()
        for i, name in enumerate(self.topology.names or ()):
            graph.nodes[i]["name"] = name
        return graph

    def _light(self) -> "CSRGraph":
        from topologies import CSRGraph

        return CSRGraph(self.topology.indptr, self.topology.indices, self.topology.weights)

    def predict(self, X: Any, device: int | str | None = None) -> Integers:  # noqa: N803 - scikit-learn's name
        """Return the nearest centroid of each point, int64[m].

        Parameters
        ----------
        X : array_like of float64[m, d]
            Columns of a data frame are found by the names of the features, in any order.
        device : int or str, optional
            Device whose centroids are used: its number from 0, or its name; where all names are numbers, such as site
            codes, a number is a name. None: the device whose set costs least on all points of the run.

        Raises
        ------
        DataError
            If the points have other features or are not finite numbers, or the device does not exist or has
            no centroid.
        """
        chosen = self.best if device is None else self._find_device(device)
        points = match_features(X, None if self.derived else self.features)
        points, centroids = check_magnitude(as_points(points, empty=True), "X"), self.centroids[chosen]
        if not len(points):
            return np.zeros(0, np.int64)
        if points.shape[1] != centroids.shape[1]:
            raise DataError(f"X has shape {points.shape}; expected (m, {centroids.shape[1]})")
        if self.scaling is not None:
            points = check_magnitude(
                (points - self.scaling[0][chosen]) / self.scaling[1][chosen], "X, scaled as in the run,"
            )
        real = centroids[:, 0] < np.inf
        if not real.any():
            raise DataError(f"device {chosen} has no centroid; choose another one")
        check_near(points, centroids[real], "X and the centroids")
        _, labels = price_losses(points, np.ones(len(points)), np.array([0, len(points)]), centroids[None])
        return labels

    def _find_device(self, device: int | str) -> int:
        """Return the number of a device that is given by number or name."""
        n, names = len(self.centroids), (self.topology.names or ())[: len(self.centroids)]
        codes = bool(names) and are_numbers(np.array(names, object))
        if str(device) in names and (isinstance(device, str) or codes):
            return names.index(str(device))
        number = int(device) if isinstance(device, Integral) and not codes else -1
        if isinstance(device, bool) or not 0 <= number < n:
            named = f", or one of {', '.join(map(repr, names[:_NAMES]))}{', ...' * (n > _NAMES)}" if names else ""
            raise DataError(f"device is {device!r}; expected 0 to {n - 1}{named}")
        return number

    def save(self, path: str | Path) -> Path:
        """Write the result into a new or empty folder, which `p2pkm.load` reads; under MPI, call it on one rank."""
        folder: Path = call("save", self, path)
        return folder

    def report(self) -> Any:
        """Return the report of the run with its replay, which a notebook shows; its `save` writes it as one HTML file.

        Returns
        -------
        p2pkm.viz.report.page.Page
        """
        return call("report", self)

    def plot(self) -> "Figure":
        """Return one figure with all pictures of the result; a notebook shows it."""
        figure: Figure = call("overview", self)
        return figure

    def to_frame(self) -> "pd.DataFrame":
        """Return the recorded rounds as a pandas DataFrame, one row per record."""
        import pandas as pd

        return pd.DataFrame(self.rounds)

    def to_networkx(self) -> "nx.Graph":
        """Return the graph with figures as attributes.

        Nodes: ``name`` where devices have names, ``points``, ``loss`` (own cost), ``sent_bytes``, ``received_bytes``;
        edges: ``weight``, ``gtv``, ``messages`` and ``bytes`` over both directions.
        """
        graph, (nodes, edges) = self._draw_up(), self.list_graph()
        for i, figures in enumerate(nodes):
            graph.nodes[i].update(figures)
        for link, figures in edges.items():
            graph.edges[link].update(figures)
        return graph

    def list_graph(self) -> tuple[list[dict[str, Any]], dict[tuple[int, int], dict[str, Any]]]:
        """Return what `to_networkx` says of every node, and of every edge from its lower end to the other one."""
        topology, ledger = self.topology, self.ledger
        named: list[dict[str, Any]] = [{"name": name} for name in topology.names or ()]
        nodes = named or [{} for _ in range(topology.n)]
        for end, name in ((ledger.src, "sent_bytes"), (ledger.dst, "received_bytes")):
            for node, volume in zip(nodes, np.bincount(end, ledger.bytes, minlength=topology.n).tolist(), strict=True):
                node[name] = int(volume)  # of floats, as bincount adds them up
        for node, points, loss in zip(nodes, self.census.sizes.tolist(), self.losses.tolist(), strict=False):
            node |= {"points": points, "loss": loss}
        if topology.hub >= 0:
            nodes[topology.hub] |= {"points": 0, "loss": 0.0, "server": True}
        edges: dict[tuple[int, int], dict[str, Any]] = {}
        links = zip(topology.sources.tolist(), topology.indices.tolist(), topology.weights.tolist(), strict=True)
        for i, j, weight in links:
            if i < j:
                edges[i, j] = {"weight": weight}
        figures = zip(*(part.tolist() for part in (*ledger[:4], self.gtv)), strict=True)
        for i, j, messages, volume, gtv in figures:
            edge = edges[min(i, j), max(i, j)]
            edge["gtv"] = gtv
            edge["messages"] = edge.get("messages", 0) + messages
            edge["bytes"] = edge.get("bytes", 0) + volume
        return nodes, edges

    def __repr__(self) -> str:
        known = [(name.replace("_", " "), self.summary.get(name)) for name in _TOLD]
        told = ", ".join(
            f"{name}: {f'{value:,.5g}' if isinstance(value, float) else value}"
            for name, value in known
            if value is not None
        )
        return "\n".join(textwrap.wrap(f"<Result {told}>", 100, max_lines=5, placeholder=" ...>"))

    def _repr_html_(self) -> str:
        return str(call("card", self))


def _scale_back(rows: Floats, shift: Floats, span: Floats) -> Floats:
    """Return rows in the units of the data, float64[..., d]: what only rounding keeps from 0 is 0; absent ones +inf."""
    found = rows * span + shift
    return np.where(np.isinf(rows), rows, np.where(np.abs(found) <= _ROUNDED * np.abs(shift), 0.0, found))
