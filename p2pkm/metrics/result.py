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
from p2pkm.core.chunks import add_penalties, widen
from p2pkm.core.errors import DataError
from p2pkm.core.late_binding import call
from p2pkm.core.validation import as_floats, as_points, check_magnitude, check_near, match_features, name_features
from p2pkm.data.identifiers import are_numbers
from p2pkm.data.shards import unweighted
from p2pkm.kernels.reference import losses as price_losses
from p2pkm.metrics.clusters import Clusters, arrange, number_along_links, number_clusters
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.ledger import Traffic

if TYPE_CHECKING:
    from pathlib import Path

    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure

    from p2pkm.data.schema import Schema
    from p2pkm.metrics.personal import PersonalScores
    from p2pkm.metrics.replay_frames import Frames
    from topologies import CSRGraph

_IN_REPR = ("algorithm", "graph", "devices", "clusters", "rounds", "termination", "ratio_mean", "messages", "bytes",
         "wire_bytes", "failure")  # fmt: skip
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


class NewLinks(NamedTuple):
    """What the links of a device that joins after a run need, see `Result.adapt`.

    Attributes
    ----------
    strength : float64[n]
        Strength alpha of a new link of weight 1 to each device: the mean over its links, or over all links for a device
        without.
    by_degree : bool[n]
        Whether it is that for a new device with one link, and is divided by the root of the number of its links.
    unit : float
        Mean weight of a point.
    noise, prior : float64[n] or None
        Noise s2 and strength of the prior of the shares of clusters; None without shares. NaN at devices that have
        chosen none.
    """

    strength: Floats
    by_degree: Mask
    unit: float
    noise: Floats | None = None
    prior: Floats | None = None

    def __repr__(self) -> str:
        return short_repr(self)


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
    personal : PersonalScores or None
        Scores of each device on its test points; None without. `save` keeps those in `devices`.
    link_weights : float64[e] or None
        `gtvmin` with ``coupling="links"``: weight of each edge of the topology in the objective, equal in both
        directions, 1 for a usual difference between its ends. None for other runs.
    couplings : float64[n] or None
        `gtvmin` with a coupling that was estimated or chosen from the points: coupling of each device, equal within a
        connected component. None for other runs, in which ``summary["coupling"]``, if any, is that of all devices.
    label_penalties : float64[n, k] or None
        `gtvmin` with ``shares=True``: penalty of each cluster of a device, which labels and `predict` add to the
        squared distance of a point to its centroid. None for other runs.
    new_links : NewLinks or None
        `gtvmin` with its usual update, on a graph with links: strength of links for `adapt`. None for other runs.

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
    personal: "PersonalScores | None" = None
    link_weights: Floats | None = None
    couplings: Floats | None = None
    label_penalties: Floats | None = None
    new_links: NewLinks | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features; by default ``feature 0``, ``feature 1``, ...."""
        return self.features or tuple(f"feature {j}" for j in range(self.centroids.shape[2]))

    @property
    def learned(self) -> Any:
        """`LearnedFeatures` of `deepfeca` and `deepgossip` (parameters, features, labels); None for other methods."""
        return call("learned", self)

    @cached_property
    def cluster_numbers(self) -> Integers:
        """Cluster number of each centroid of each device, int64[n, k]: cluster c is the one that neighbors call c.

        The numbers are those of the device with the lowest pooled cost, `best`, and go from neighbor to neighbor; see
        `p2pkm.metrics.clusters.number_along_links`. With a server, devices are matched with `best`.
        """
        topology = self.topology
        if topology.hub >= 0:
            return number_clusters(self.centroids, self.centroids[self.best])
        return number_along_links(self.centroids, self.best, topology.indptr, topology.indices)

    @cached_property
    def clusters(self) -> Clusters:
        """Clusters of all devices with a common numbering, `cluster_numbers`, in units of the data."""
        census = self.census
        number = self.cluster_numbers
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
        ordered = self._number_server_rows(self.server_centroids)
        return ordered if self.scaling is None else scale_back(ordered, *(part[-1] for part in self.scaling))

    def _number_server_rows(self, centroids: Floats) -> Floats:
        """Sort the server's centroids by cluster number, float64[k, d]."""
        rows = np.full((1, max(len(centroids), self.centroids.shape[1]), self.centroids.shape[2]), np.inf)
        rows[0, : len(centroids)] = centroids
        ordered: Floats = arrange(rows, number_clusters(rows, self.centroids[self.best]))[0]
        return ordered

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
        neighbors: Any = None,
        check_ranges: bool = True,
        **form: Any,
    ) -> Integers:
        """Find the nearest centroid of each point, int64[m], or with shares of clusters the most probable one.

        Parameters
        ----------
        X : array_like of float64[m, d], DataFrame of pandas or polars, pyarrow.Table, str or Path
            Points. Columns of a data frame are matched with the features by name. If the run has read a table, a table
            or a file with the same columns: categories, dates and missing values are treated as in the run, and rows
            that still have a missing value get -1.
        device : int or str, optional
            Number (from 0) or name of the device whose centroids are used. If all names are numbers, such as site
            codes, a number is a name. None: the device with the lowest pooled cost.
        neighbors : sequence of int or str, or mapping, optional
            The points are those of a device that was not in the run, whose neighbors these devices are: its centroids
            are those of `adapt` for all points. Labels are then numbered as in `clusters`.
        check_ranges : bool
            Whether to reject a column of a table whose median is far outside of the range in the run.
        **form
            Options that describe the table instead of its columns, if they differ from those of the run: `na`,
            `decimal`, `thousands`, `separator`, `encoding`, `sheet`, `header` and `dates` of
            `p2pkm.read_table`.

        Raises
        ------
        DataError
            If the points do not match the features or are not finite, or the device does not exist or is without
            centroids; with `neighbors` as in `adapt`.

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
        if device is not None and neighbors is not None:
            raise DataError(
                f"device={device!r} and neighbors cannot be combined: neighbors are those of a device that was not in "
                "the run. Remove one of them"
            )
        table = self._read_rows(X, check_ranges, form)
        if table is not None:
            complete = ~np.isnan(table).any(axis=1)
            labels = np.full(len(table), -1)
            labels[complete] = self.predict(table[complete], device, neighbors=neighbors)
            return labels
        points = self._check_points(X)
        if not len(points):
            return np.zeros(0, np.int64)
        if neighbors is None:
            chosen = self.best if device is None else self.find_device(device)
            points, centroids = self._scale(points, chosen), self.centroids[chosen]
            penalties = None if self.label_penalties is None else self.label_penalties[chosen]
        else:
            chosen, points, centroids, penalties = self._adapt(points, unweighted(len(points)), neighbors)
        real = centroids[:, 0] < np.inf
        if not real.any():
            remedy = "Choose another device"
            if not (self.centroids < np.inf).any():
                remedy = f"Repeat the run: {self.summary.get('failure') or 'no device has a centroid'}"
            raise DataError(f"device {self.topology.label(chosen)} has 0 centroids; expected at least one. {remedy}")
        check_near(points, centroids[real], "X and the centroids")
        sets = centroids[None]
        if penalties is not None:
            points, sets = widen(points), add_penalties(sets, penalties[None])
        _, labels = price_losses(points, np.ones(len(points)), np.array([0, len(points)]), sets)
        return labels

    def adapt(
        self, X: Any, neighbors: Any = None, *, weights: Any = None, check_ranges: bool = True, **form: Any  # noqa: N803
    ) -> Floats:  # fmt: skip
        """Compute the centroids of a device that was not in the run, float64[k, d], without a new run.

        The centroids of all other devices are fixed. For `gtvmin` the device starts from the mean of its neighbors'
        centroids and repeats the update of the method, Lloyd's assignment with the pulls of its neighbors and, with
        ``shares=True``, with its shares of the clusters, until its centroids stay. Other methods have an answer only if
        the result has one clustering for all devices, or for the group or component of the neighbors: this one.

        Parameters
        ----------
        X : array_like of float64[m, d], DataFrame, pyarrow.Table, str or Path
            Points of the device, in units of the data, as in `predict`.
        neighbors : sequence of int or str, or mapping of these to float
            Numbers or names of the devices to which the new device has links; a mapping gives the weights of the links,
            which are 1 otherwise. Methods with one clustering for all devices do not need them.
        weights : array_like of float[m], optional
            Weight of each point; None: 1.
        check_ranges, **form
            As in `predict`.

        Returns
        -------
        float64[k, d]
            In units of the data; row c is cluster c of `clusters`, and +inf if no neighbor has it.

        Raises
        ------
        DataError
            If points or weights do not match the run, a neighbor does not exist or is without centroids, or the method
            has neither one clustering nor an update for a new device.

        Notes
        -----
        The strength alpha of a new link follows from the run. With `alpha`, ``coupling="bayes"`` and ``"links"`` it is
        the mean strength of the links that the neighbor has in the run. With another coupling this mean is taken before
        the division by the root of the product of the degrees, and is divided by that of the number of neighbors and
        the degree of the neighbor in the run. Both are multiplied by the weight of the new link; with ``"links"`` it
        stands for the estimated weight, too.

        A device that was in the run and has converged gets its own centroids for its own points and neighbors, as far
        as the start leads there: the objective has several minima.

        Examples
        --------
        >>> import p2pkm
        >>> import topologies
        >>> shards = p2pkm.Shards.from_list([[[0.0], [9.0]], [[1.0], [8.0]], [[0.0], [8.0]]])
        >>> result = p2pkm.simulate(p2pkm.GTVMin(2, coupling=1.0), topologies.ring(3), shards)
        >>> sorted(result.adapt([[2.0], [11.0]], neighbors=[0, 2]).round(1).ravel().tolist())
        [0.8, 9.3]
        """
        table = self._read_rows(X, check_ranges, form)
        if table is not None and np.isnan(table).any():
            row = int(np.flatnonzero(np.isnan(table).any(axis=1))[0])
            raise DataError(f"row {row} of X has a missing value; expected complete rows. Remove these rows")
        points = self._check_points(X if table is None else table)
        chosen, _, centroids, _ = self._adapt(points, _check_weights(weights, len(points)), neighbors)
        if self.scaling is None:
            return centroids
        return scale_back(centroids, *(part[chosen] for part in self.scaling))

    def _check_points(self, X: Any) -> Floats:  # noqa: N803 - as in `predict`
        """Check points in units of the data, float64[m, d]."""
        ordered = match_features(X, None if self.derived else self.features)
        points: Floats = as_points(ordered, empty=True).astype(np.float64, copy=False)
        check_magnitude(points, "X")
        d = self.centroids.shape[2]
        if len(points) and points.shape[1] != d:
            raise DataError(f"X has shape {points.shape}; expected (m, {d})")
        return points

    def _scale(self, points: Floats, device: int) -> Floats:
        """Scale points as the device has scaled its own."""
        if self.scaling is None:
            return points
        shift, span = (part[device] for part in self.scaling)
        scaled: Floats = (points - shift) / span
        check_magnitude(scaled, "X, scaled as in the run,")
        return scaled

    def _adapt(self, points: Floats, weights: Floats, neighbors: Any) -> tuple[int, Floats, Floats, Floats | None]:
        """Compute the centroids of a new device in scaled units, in the order of cluster numbers.

        Returns
        -------
        like : int
            Device whose scaling the new device has.
        points : float64[m, d]
            Scaled points.
        centroids : float64[k, d]
        penalties : float64[k] or None
            Penalties of the labels; None without shares.
        """
        if not len(points):
            raise DataError("X has 0 points; expected at least one point of the new device")
        ids, link_weights = self._find_neighbors(neighbors)
        links, topology = self.new_links, self.topology
        if links is None:
            like, centroids = self._find_common(ids)
            return like, self._scale(points, like), centroids, None
        if not len(ids):
            raise DataError(
                f"neighbors is {neighbors!r}, but the centroids of {self.summary['algorithm']} depend on those of the "
                "neighbors; expected at least one device. Use neighbors=[0, 1], numbers or names of devices of the run"
            )
        for i in ids.tolist():
            if not (self.centroids[i] < np.inf).any():
                raise DataError(
                    f"neighbor {topology.label(i)} has 0 centroids; expected at least one. Choose another neighbor"
                )
        from p2pkm.metrics.adaptation import Pull, adapt_device

        like, numbers = int(ids[0]), self.cluster_numbers[ids]
        alpha = links.strength[ids] * link_weights
        alpha = np.where(links.by_degree[ids], alpha / np.sqrt(len(ids)), alpha)
        noise, prior = (np.nan if part is None else float(part[like]) for part in (links.noise, links.prior))
        pull = Pull(
            arrange(self.centroids[ids], numbers), alpha, noise, prior, links.unit,
            int(self.summary.get("min_cluster_size") or 0),
        )  # fmt: skip
        points = self._scale(points, like)
        check_near(points, pull.tables[pull.tables[:, :, 0] < np.inf], "X and the centroids")
        return like, points, *adapt_device(points, weights, pull)

    def _find_neighbors(self, neighbors: Any) -> tuple[Integers, Floats]:
        """Return numbers of the neighbors of a new device, int64[q], ascending, and the weights of its links."""
        if neighbors is None:
            neighbors = ()
        listed = (neighbors,) if isinstance(neighbors, (str, Integral)) else tuple(neighbors)
        ids = np.array([self.find_device(neighbor, "neighbor") for neighbor in listed], np.int64)
        if len(set(ids.tolist())) < len(ids):
            raise DataError(
                f"neighbors contain a device twice: {list(listed)!r}; expected each device once. Remove one"
            )
        values = [neighbors[name] for name in listed] if isinstance(neighbors, Mapping) else np.ones(len(ids))
        weights = as_floats(values, "weights of the links")
        if weights.shape != ids.shape or not (np.isfinite(weights) & (weights > 0.0)).all():
            raise DataError(
                f"weights of the links are {list(values)!r}; expected one positive number for each neighbor"
            )
        order = np.argsort(ids)
        return ids[order], weights[order]

    def _find_common(self, ids: Integers) -> tuple[int, Floats]:
        """Find the clustering that all devices of a result share, or those of the groups of the neighbors.

        Returns
        -------
        device : int
            A device with these centroids.
        centroids : float64[k, d]
            In the order of cluster numbers.
        """
        if self.server_centroids is not None:
            return self.best, self._number_server_rows(self.server_centroids)
        groups = self.topology.components[: len(self.centroids)] if self.groups is None else self.groups
        alike = np.isin(groups, groups[ids]) if len(ids) else np.ones(len(groups), np.bool_)
        like = int(ids[0]) if len(ids) else self.best
        tables = self.centroids[alike[: len(self.centroids)]]
        if not (tables < np.inf).any():
            raise DataError("no device has a centroid; expected at least one. Repeat the run")
        if (tables == self.centroids[like]).all():
            return like, arrange(self.centroids[like][None], self.cluster_numbers[like][None])[0]
        name = self.summary["algorithm"]
        raise DataError(
            f"{name} gives the devices different centroids, and this result does not contain an update for a new "
            "device; expected one clustering for all devices, or gtvmin with its usual update (without robust, "
            "normalize_losses, matching=optimal, update=as-printed and star_term=false) on a graph with links. Repeat "
            "the run with --algorithm gtvmin, or with --algorithm treelloyd"
        )

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

    def find_device(self, device: int | str, what: str = "device") -> int:
        """Return the number of a device given by number or name; `what` is its name in messages."""
        n = len(self.centroids)
        names = (self.topology.names or ())[: len(self.centroids)]
        codes = bool(names) and are_numbers(np.array(names, object))
        if str(device) in names and (isinstance(device, str) or codes):
            return names.index(str(device))
        number = int(device) if isinstance(device, Integral) and not codes else -1
        if isinstance(device, bool) or not 0 <= number < n:
            named = f", or one of {', '.join(map(repr, names[:_NAMES]))}{', ...' * (n > _NAMES)}" if names else ""
            raise DataError(f"{what} is {device!r}; expected 0 to {n - 1}{named}")
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
        ``messages`` and ``bytes`` of both directions, and ``estimated_weight`` if weights of links were estimated.
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
        if self.link_weights is not None:
            estimated = zip(
                topology.sources.tolist(), topology.indices.tolist(), self.link_weights.tolist(), strict=True
            )
            for i, j, weight in estimated:
                edges[min(i, j), max(i, j)]["estimated_weight"] = weight
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


def _check_weights(weights: Any, m: int) -> Floats:
    """Check the weights of m points, float64[m]; None: all are 1."""
    if weights is None:
        return unweighted(m)
    values = as_floats(weights, "weights")
    if values.shape != (m,) or not (np.isfinite(values) & (values >= 0.0)).all():
        raise DataError(f"weights have shape {values.shape}; expected ({m},) finite numbers of at least 0")
    return np.ascontiguousarray(values)


def scale_back(rows: Floats, shift: Floats, span: Floats) -> Floats:
    """Convert rows to units of the data, float64[..., d]; rounding errors of 0 become 0, absent rows stay +inf."""
    values = rows * span + shift
    return np.where(np.isinf(rows), rows, np.where(np.abs(values) <= _ROUNDED * np.abs(shift), 0.0, values))
