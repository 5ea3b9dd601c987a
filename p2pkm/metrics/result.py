"""Result of a run, identical on all ranks."""

import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.validation import as_points, check_magnitude, check_near, match_features, name_features
from p2pkm.data.identifiers import are_numbers
from p2pkm.kernels.reference import losses as price_losses
from p2pkm.metrics.clusters import Clusters, arrange, number_clusters
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.ledger import Traffic

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure

    from p2pkm.data.schema import Schema
    from p2pkm.metrics.replay_frames import Frames
    from topologies import CSRGraph

_IN_REPR = ("algorithm", "graph", "devices", "clusters", "rounds", "termination", "ratio_mean", "messages", "bytes",
         "wire_bytes")  # fmt: skip
# Largest number of names in a message.
_NAMES = 10
# Values up to this share of the shift are rounding errors of 0 that was scaled, averaged and scaled back.
_ROUNDED = 2.0**-49


class Exposure(NamedTuple):
    """Exposure: data of other devices that each device, including the server, has received.

    Attributes
    ----------
    devices : int64[n]
        Number of other devices whose rows it received: neighbors that sent, and devices whose tables were forwarded
        unchanged. An upper bound: lost messages and reduced tables of floods and trees are counted.
    rows : int64[n]
        Number of rows that it received, with repetitions.
    """

    devices: Integers
    rows: Integers

    def __repr__(self) -> str:
        return short_repr(self)


class Disclosed(NamedTuple):
    """Disclosed points: local points that a device sent unchanged, with every receiver.

    Entries are in ascending (device, row, receiver). A point that was sent to a neighbor several times has one entry,
    of the first exchange. Lost messages are included. Receivers may have forwarded the row.

    Attributes
    ----------
    device : int64[q]
        Device of the point.
    row : int64[q]
        Row of the point in the input array, counted from 0.
    receiver : int64[q]
        Neighbor to which it was sent; the number of devices for the server.
    stage : str[q]
        Name of the stage, as in `Result.rounds`.
    round, turn : int64[q]
        Round of the stage, and turn of the round from 1; 0 at the initial exchange.
    names : tuple of str
        Names or numbers of all devices and, at the end, of the server.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> shards = p2pkm.Shards.from_list([[[0.0], [9.0]], [[0.1]]])
    >>> result = p2pkm.simulate(p2pkm.ConsensusLloyd(2, init="local"), topologies.path(2), shards)
    >>> result.disclosed.table()
      device  row to      stage  round  turn
    0      0    0  1  consensus      0     0
    1      0    1  1  consensus      0     0
    2      1    2  0  consensus      0     0
    """

    device: Integers
    row: Integers
    receiver: Integers
    stage: Any
    round: Integers
    turn: Integers
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return short_repr(self)

    def table(self) -> "pd.DataFrame":
        """Convert to a pandas DataFrame with the names of the devices, as in disclosed.csv of the run folder."""
        import pandas as pd

        return pd.DataFrame(self.to_columns())

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays by name, without the names of the devices."""
        return {name: value for name, value in self._asdict().items() if name != "names"}

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns of `table` by name."""
        device, receiver = ([self.names[i] for i in ids.tolist()] for ids in (self.device, self.receiver))
        return {"device": device, "row": self.row.tolist(), "to": receiver, "stage": self.stage.tolist(),
                "round": self.round.tolist(), "turn": self.turn.tolist()}  # fmt: skip


class HashChain(NamedTuple):
    """Hash chain over the records of a run.

    Attributes
    ----------
    heads : uint8[records, 32]
        SHA-256 of the previous head and of the devices' digests in device order.
    digests : uint8[records, n, 32] or None
        SHA-256 of each device's centroids; None if these take more than 64 MB.
    """

    heads: Any
    digests: Any

    def __repr__(self) -> str:
        return short_repr(self)


class Census(NamedTuple):
    """Final labels: devices, labels and cluster statistics of all points at the end of a run.

    Points are in ascending (device, row).

    Attributes
    ----------
    sizes : int64[n]
        Number of points of each device.
    labels, device, row : int64[m] or None
        Label of each point (row of its device's centroids; -1 if the device is without centroids), its device, and its
        row in the input array; None above 10 million points.
    classes : int64[n, c] or None
        Number of points of each true class on each device; None without true classes.
    scores : float64[n, 3] or None
        Adjusted Rand index, NMI and purity of the local points of each device.
    sample : float64[s, d]
        Points for figures: all points, or a random sample of 5,000.
    sample_device, sample_class : int64[s]
        Devices and true classes of the sample (-1 without true classes).
    sample_cluster : int64[s]
        Labels of the sample; -1 if a device is without centroids, or labels are not known.
    cluster_sizes, cluster_means, cluster_deviations : int64[n, k], float64[n, k, d], float64[n, k, d], or None
        Number, mean and standard deviation of the points of each centroid of a device; None for large runs.
    cluster_weights : float64[n, k] or None
        Sum of the weights of these points.
    cluster_medians : float64[n, k, d] or None
        Their medians in units of the data; None above 1 million coordinates.
    pooled_medians : float64[k, d] or None
        Medians of the points of all devices, by the cluster numbers of `Result.clusters`, in units of the data.
    is_share : bool[d] or None
        Features that are 0 or 1, whose mean is a share.
    sample_silhouette : float64[s] or None
        Silhouettes of the sample, labeled by the model of the server or, without a server, of the best device; None
        without ``--silhouette``.
    sample_number : int64[s] or None
        Cluster numbers of these labels.
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
    cluster_weights: Floats | None = None
    cluster_medians: Floats | None = None
    pooled_medians: Floats | None = None
    is_share: Mask | None = None
    sample_silhouette: Floats | None = None
    sample_number: Integers | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def device_silhouettes(self) -> Floats | None:
        """Mean silhouette of the points of each device in the sample, float64[n]; NaN without points."""
        if self.sample_silhouette is None:
            return None
        counts = np.bincount(self.sample_device, minlength=len(self.sizes))
        sums = np.bincount(self.sample_device, self.sample_silhouette, len(self.sizes))
        means: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return means


@dataclass(frozen=True, eq=False)
class Result:
    """Result of a run.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Model of each device; absent centroids are +inf.
    server_centroids : float64[k, d] or None
        Model of the server; None without a server.
    rounds : list of dict
        Records of the monitor, as in rounds.jsonl of the run folder.
    summary : dict
        Metrics of the run, as in summary.json of the run folder.
    ledger : Traffic
        Messages and bytes of each edge.
    topology : Topology
        Graph of the run.
    losses : float64[n]
        Cost (6) of each device on its local points; inf for devices with points but without centroids.
    gtv : float64[e]
        Disagreement (4) of the two ends of each edge of the topology, equal in both directions.
    census : Census
        Final labels and cluster statistics.
    chain : HashChain
        Hash chain over the records.
    best : int
        Device whose centroids have the lowest pooled cost.
    scaling : tuple of (float64[n, d], float64[n, d]) or None
        Shift and span by which each device scaled its features. Centroids and sample are in scaled units, and `predict`
        scales its input.
    groups : int64[n] or None
        Group of each device, numbered by the lowest device. `treelloyd` with groups: devices with the same clustering.
        `gtvmin`: devices that are connected by active links with more than half of their initial strength. None for
        other methods.
    notes : list of str
        Notes on the interpretation of the metrics, such as the use of samples.
    frames : Frames or None
        At most 60 frames for replay; None if none were recorded.
    ratios : float64[n] or None
        Cost ratio of each device; NaN if not known.
    byzantine : int64[b] or None
        Ids of the Byzantine devices.
    exposure : Exposure or None
        Data of other devices that each device received.
    central : float64[k, d] or None
        Centroids of central k-means, in the units of `centroids`; None without baseline.
    devices : dict of str to float64[n]
        Metrics of `p2pkm.metrics.registry` with a value per device, by key, as in devices.npz of the run folder. Some
        have a value for the server at the end.
    features : tuple of str, length d, or None
        Names of the features, if known.
    derived : dict of str to array
        Other results of a method, by name, such as `features`, float64[m, D]: learned features of the points in the
        order of `Census.device`. Then centroids, costs and labels are in the space of these features, and so is the
        input of `predict`. Empty for other methods.
    disclosed : Disclosed or None
        Points that devices sent unchanged, and their receivers; None if not recorded: for more than 250,000 points, or
        1 million pairs of a point and a neighbor of its device.
    schema : Schema or None
        Columns of the table of the run, with which `predict` reads new rows; None for points without a table.
    copied : dict of str to array, or None
        Columns that were copied from the table, in the order of `labels`.
    times : dict of str to float
        Simulated seconds on further link models, which a study requests; they are not saved.

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
    disclosed: Disclosed | None = None
    schema: "Schema | None" = None
    copied: dict[str, Any] | None = None
    times: dict[str, float] = field(default_factory=dict)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; by default ``feature 0``, ``feature 1``, ...."""
        return self.features or tuple(f"feature {j}" for j in range(self.centroids.shape[2]))

    @property
    def learned(self) -> Any:
        """`LearnedFeatures` of `deepfeca` and `deepgossip` (parameters, features, labels); None for other methods."""
        return call("learned", self)

    @cached_property
    def clusters(self) -> Clusters:
        """Clusters of all devices with a common numbering, in units of the data.

        The numbers are those of the device with the lowest pooled cost, `best`; the centroids of all other devices are
        matched with its centroids one to one.
        """
        census = self.census
        number = number_clusters(self.centroids, self.centroids[self.best])
        means = None if census.cluster_means is None else arrange(self._unscale(census.cluster_means), number)
        widths = census.cluster_deviations
        if widths is not None and self.scaling is not None:
            widths = widths * self.scaling[1][: len(widths), None]
        sizes, weights, medians = (
            None if part is None else arrange(part, number)
            for part in (census.cluster_sizes, census.cluster_weights, census.cluster_medians)
        )
        n = len(self.centroids)
        return Clusters(
            number, arrange(self._unscale(self.centroids), number), sizes,
            means, None if widths is None else arrange(widths, number), weights, medians, census.pooled_medians,
            census.is_share, *self._average_silhouettes(), None if self.scaling is None else self.scaling[1][:n],
            self.feature_names, tuple(self.topology.label(i) for i in range(n)),
        )  # fmt: skip

    def _average_silhouettes(self) -> tuple[Floats | None, Floats | None]:
        """Compute the mean silhouettes of `Clusters`: of each cluster on each device, and of each device."""
        census, (n, k, _) = self.census, self.centroids.shape
        of_devices = census.device_silhouettes
        if census.sample_silhouette is None or census.sample_number is None or of_devices is None:
            return None, None
        # A server may have more centroids than the devices.
        is_known = census.sample_number < k
        cells = (census.sample_device * k + census.sample_number)[is_known]
        counts = np.bincount(cells, minlength=n * k).reshape(n, k)
        sums = np.bincount(cells, census.sample_silhouette[is_known], n * k).reshape(n, k)
        counts, sums = np.vstack((counts, counts.sum(axis=0))), np.vstack((sums, sums.sum(axis=0)))
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return means, np.append(of_devices, census.sample_silhouette.mean())

    @property
    def labels(self) -> Integers:
        """Label of each point by its device, int64[m], in the order of the input rows.

        Labels are numbered as in `clusters`; -1 if the device does not have a centroid.

        Raises
        ------
        DataError
            If the run has more than 10 million points.
        """
        census = self.census
        if census.labels is None or census.device is None or census.row is None:
            raise DataError(
                "labels of runs with more than 10 million points are not stored. Use predict for each device"
            )
        return self.number_alike(census.device, census.labels)[np.argsort(census.row, kind="stable")]

    def number_alike(self, device: Integers, row: Integers) -> Integers:
        """Convert rows of devices' centroids to the numbers of `clusters`, int64[m]; -1 stays -1."""
        return np.where(row < 0, -1, self.clusters.number[device, np.maximum(row, 0)])

    def server_rows(self) -> Floats | None:
        """Return the server's centroids, numbered as in `clusters`, in units of the data; None without a server."""
        if self.server_centroids is None:
            return None
        rows = np.full((1, max(len(self.server_centroids), self.centroids.shape[1]), self.centroids.shape[2]), np.inf)
        rows[0, : len(self.server_centroids)] = self.server_centroids
        ordered = arrange(rows, number_clusters(rows, self.centroids[self.best]))[0]
        return ordered if self.scaling is None else scale_back(ordered, *(part[-1] for part in self.scaling))

    def _unscale(self, rows: Floats) -> Floats:
        """Convert rows[n, k, d] of all devices to units of the data."""
        if self.scaling is None:
            return rows
        return scale_back(rows, *(part[: len(rows), None] for part in self.scaling))

    @property
    def graph(self) -> "nx.Graph | CSRGraph":
        """Communication graph of devices 0 to n - 1, and of the server n in a star; edges have a `weight`.

        A networkx.Graph; above 100,000 devices, a topologies.CSRGraph. Nodes have a `name` if devices have names.
        """
        return self._build_csr() if self.topology.n > LARGE else self._build_networkx()

    def _build_networkx(self) -> "nx.Graph":
        graph = self._build_csr().to_networkx()
        for i, name in enumerate(self.topology.names or ()):
            graph.nodes[i]["name"] = name
        return graph

    def _build_csr(self) -> "CSRGraph":
        from topologies import CSRGraph

        return CSRGraph(self.topology.indptr, self.topology.indices, self.topology.weights)

    def predict(
        self,
        X: Any,  # noqa: N803 - scikit-learn's name
        device: int | str | None = None,
        *,
        check_ranges: bool = True,
        **form: Any,
    ) -> Integers:
        """Find the nearest centroid of each point, int64[m].

        Parameters
        ----------
        X : array_like of float64[m, d], DataFrame of pandas or polars, pyarrow.Table, str or Path
            Points. Columns of a data frame are matched with the features by name. If the run has read a table, a table
            or a file with the same columns: categories, dates and missing values are treated as in the run, and rows
            that still have a missing value get -1.
        device : int or str, optional
            Number (from 0) or name of the device whose centroids are used. If all names are numbers, such as site
            codes, a number is a name. None: the device with the lowest pooled cost.
        check_ranges : bool
            Whether to reject a column of a table whose median is far outside of the range in the run.
        **form
            Options that describe the table instead of its columns, if they differ from those of the run: `na`,
            `decimal`, `thousands`, `separator`, `encoding`, `sheet` and `header` of `p2pkm.read_table`.

        Raises
        ------
        DataError
            If the points do not match the features or are not finite, or the device does not exist or is without
            centroids.

        Examples
        --------
        >>> import p2pkm
        >>> import topologies
        >>> patients = {"age": [31, 72, 29, 70], "bmi": [22.5, 30, 23, 29], "device": ["a", "a", "b", "b"]}
        >>> table = p2pkm.read_table(patients)
        >>> result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.path(2), table)
        >>> first, second = result.predict({"age": ["30,5", "71"], "bmi": ["22,0", "30,5"]}, decimal=",")
        >>> bool(first != second)
        True
        """
        chosen = self.best if device is None else self.find_device(device)
        table = self._read_rows(X, check_ranges, form)
        if table is not None:
            complete = ~np.isnan(table).any(axis=1)
            labels = np.full(len(table), -1)
            labels[complete] = self.predict(table[complete], device)
            return labels
        points = match_features(X, None if self.derived else self.features)
        points = check_magnitude(as_points(points, empty=True), "X")
        centroids = self.centroids[chosen]
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
            raise DataError(f"device {chosen} has 0 centroids; expected at least one. Choose another device")
        check_near(points, centroids[real], "X and the centroids")
        _, labels = price_losses(points, np.ones(len(points)), np.array([0, len(points)]), centroids[None])
        return labels

    def _read_rows(self, X: Any, check_ranges: bool, form: dict[str, Any]) -> Any:  # noqa: N803 - as in `predict`
        """Read a file, or a table with the columns of the table of the run, float64[m, d]; None: X contains points."""
        names = list(X) if isinstance(X, Mapping) else list(map(str, name_features(X) or ()))
        is_file = isinstance(X, (str, os.PathLike))
        has_points = self.schema is None or self.schema.is_plain or self.features is None
        has_points = has_points or not names or set(names) == set(self.feature_names)
        if not (is_file or form or isinstance(X, Mapping)) and has_points:
            return None
        if self.derived:
            raise DataError("the clusters are of learned features, which a table does not contain. Use another method")
        from p2pkm.data.new_rows import read_new_rows
        from p2pkm.data.schema import Schema

        schema = self.schema or Schema.of_features(self.feature_names)
        return read_new_rows(X, schema, check_ranges=check_ranges, form=form).points

    def find_device(self, device: int | str) -> int:
        """Return the number of a device given by number or name."""
        n = len(self.centroids)
        names = (self.topology.names or ())[: len(self.centroids)]
        codes = bool(names) and are_numbers(np.array(names, object))
        if str(device) in names and (isinstance(device, str) or codes):
            return names.index(str(device))
        number = int(device) if isinstance(device, Integral) and not codes else -1
        if isinstance(device, bool) or not 0 <= number < n:
            named = f", or one of {', '.join(map(repr, names[:_NAMES]))}{', ...' * (n > _NAMES)}" if names else ""
            raise DataError(f"device is {device!r}; expected 0 to {n - 1}{named}")
        return number

    def save(self, path: "str | Path") -> "Path":
        """Write the result to a new or empty folder for `p2pkm.load`; under MPI, call it on a single rank."""
        folder: Path = call("save", self, path)
        return folder

    def report(self) -> Any:
        """Build the report of the run with its replay, for a notebook; its method `save` writes a single HTML file.

        Returns
        -------
        p2pkm.viz.report.page.Page
        """
        return call("report", self)

    def plot(self) -> "Figure":
        """Draw all plots of the result in a single figure."""
        figure: Figure = call("overview", self)
        return figure

    def to_frame(self) -> "pd.DataFrame":
        """Convert the recorded rounds to a pandas DataFrame with one row per record."""
        import pandas as pd

        return pd.DataFrame(self.rounds)

    def to_networkx(self) -> "nx.Graph":
        """Convert the graph to networkx, with metrics as attributes.

        Attributes of nodes: ``name`` (if devices have names), ``x`` and ``y`` (if nodes have coordinates), ``points``,
        ``loss`` (local cost), ``sent_bytes`` and ``received_bytes``. Attributes of edges: ``weight``, ``gtv``,
        ``messages`` and ``bytes`` of both directions.
        """
        graph, (nodes, edges) = self._build_networkx(), self.list_graph()
        for i, figures in enumerate(nodes):
            graph.nodes[i].update(figures)
        for link, figures in edges.items():
            graph.edges[link].update(figures)
        return graph

    def list_graph(self) -> tuple[list[dict[str, Any]], dict[tuple[int, int], dict[str, Any]]]:
        """List the attributes of `to_networkx` for every node, and for every edge by its lower and upper end."""
        topology = self.topology
        ledger = self.ledger
        nodes = topology.list_attributes()
        for end, name in ((ledger.src, "sent_bytes"), (ledger.dst, "received_bytes")):
            for node, volume in zip(nodes, np.bincount(end, ledger.bytes, minlength=topology.n).tolist(), strict=True):
                # np.bincount with weights returns floats.
                node[name] = int(volume)
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
        known = [(name.replace("_", " "), self.summary.get(name)) for name in _IN_REPR]
        metrics = ", ".join(
            f"{name}: {f'{value:,.5g}' if isinstance(value, float) else value}"
            for name, value in known
            if value is not None
        )
        return "\n".join(textwrap.wrap(f"<Result {metrics}>", 100, max_lines=5, placeholder=" ...>"))

    def _repr_html_(self) -> str:
        return str(call("card", self))


def scale_back(rows: Floats, shift: Floats, span: Floats) -> Floats:
    """Convert rows to units of the data, float64[..., d]; rounding errors of 0 become 0, absent rows stay +inf."""
    values = rows * span + shift
    return np.where(np.isinf(rows), rows, np.where(np.abs(values) <= _ROUNDED * np.abs(shift), 0.0, values))
