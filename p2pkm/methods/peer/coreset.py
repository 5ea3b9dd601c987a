"""Distributed coreset (Balcan, Ehrlich and Liang 2013): k-means of a small weighted sample of all points."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import ByRound, FloodThenPool, Known, MessageVolume, tables
from p2pkm.core.messages import DenseMessages, Inbox, no_messages, pack
from p2pkm.core.protocols import MethodBase, OnGraph, Pipeline
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.flooding import Flood, begin, distinct_collections, receive, send
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree, tree_edges
from p2pkm.methods.init.pipelines import check_flooding
from p2pkm.network.graph import Topology

# Initializations of the k-means of local points.
_LOCAL_INITS = 3
# Largest number of Lloyd steps on the coreset.
_LIMIT = 300
# Default of the size: points per cluster, and smallest number.
_SIZE_PER_CLUSTER = 20
_LEAST_SIZE = 200
# Passes along a tree, in their order.
_COSTS_UP, _TOTAL_DOWN, _ROWS_UP, _CENTROIDS_DOWN = range(4)
_PASSES = 4


@dataclass(frozen=True)
class Coreset(MethodBase):
    r"""Weighted k-means on a sample of points shared by all devices (distributed coreset).

    Each device draws local points with probabilities proportional to their squared distances from its local centroids.
    Devices share these points and centroids with weights, and cluster them with the shared seed. Each component of the
    graph has its own coreset.

    Parameters
    ----------
    k : int
        Number of clusters.
    size : int, optional
        Expected number of drawn points in a component. Default: 20 k, but at least 200.
    spread : {"tree", "flood"}, default="tree"
        "tree": costs and rows travel along a breadth-first spanning tree. "flood": over all links, which gives the same
        centroids for several times the bytes.
    n_init : int, default=50
        Initializations of the k-means of the coreset; the best result counts.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    Central
        k-means of all points at a server.

    Notes
    -----
    **Update.** Algorithms 1 and 2 of [1]_. Device i has centroids B_i from k-means of its local points (best of 3). s_q
    is the squared distance of its point q to them, and c_i the sum of all s_q. All devices receive C = sum_i c_i. With
    t = `size`::

        t_i = t c_i / C, rounded up with the probability of its fraction, otherwise down
        draw t_i local points q with replacement, with probability s_q / c_i
        w_q = C / (t s_q);   w_b = |P_b| - sum of w_q over the drawn q in P_b

    P_b are the points nearest to b in B_i; a point drawn twice counts twice. The rows (q, w_q) and (b, w_b) of all
    devices form the coreset. Weighted k-means of it gives the centroids; negative weights count as 0.

    **Messages.** In one round. "flood": c_i, then the rows of d + 1 columns, each once over every link and direction.
    "tree": one number per link up (sums of c_i) and down (C), then one table of rows per link up and the k centroids
    down.

    **Convergence.** One-shot. In expectation t points are drawn, and the weighted cost of any centroids equals their
    cost on the pooled points.

    **Privacy.** No guarantee; sends RAW points. With "flood" all devices receive the drawn points, centroids, costs and
    counts of all others, with "tree" the root and the devices on the path to it.

    References
    ----------
    .. [1] M.-F. Balcan, S. Ehrlich, Y. Liang, "Distributed k-means and k-median clustering on general topologies", NIPS
       2013.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Coreset(3, size=9), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 2), result.summary["raw_points_disclosed"]
    (1.11, 5)
    """

    k: int
    _: KW_ONLY
    size: int | None = None
    spread: Literal["tree", "flood"] = "tree"
    n_init: int = 50

    card = Card(
        "coreset",
        family="one-shot",
        sends="points",
        points="sample",
        line="k-means on a weighted sample of the pooled points",
        paper={"size": 200, "spread": "flood"},
        source="[1], Algorithms 1 and 2, on general graphs; the size is the first of p2pkm",
    )
    name: ClassVar[str] = card.name
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER,
        # Along a tree, too, each device stores one bit per origin.
        floods=True,
        incompatible_with={
            Condition.CHANGING_LINKS: "spreads its summaries over links that must not change",
            Condition.LOSSY_LINKS: "draws points by the costs of all devices, which must arrive in the same turn",
            "suppression": "sends raw points",
        },
    )
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        if self.size is not None:
            check_integer(self.size, 1, "size")
        check_integer(self.n_init, 1, "n_init")
        check_choice(self.spread, ("tree", "flood"), "spread")

    @property
    def expected_size(self) -> int:
        """Expected number of drawn points."""
        return max(_LEAST_SIZE, _SIZE_PER_CLUSTER * self.k) if self.size is None else self.size

    def stages(self, at: Any) -> Pipeline:
        """Reject graphs that are too large for one bit per origin at every device."""
        check_flooding(at, self.name, "another method")
        return Pipeline()

    def on(self, topology: Topology) -> "CoresetByFlooding | CoresetOnTree":
        """Bind the method to a graph, whose diameter or spanning tree sets the number of turns."""
        if self.spread == "flood":
            return CoresetByFlooding(self, max(1, topology.hops))
        return CoresetOnTree(self, build_spanning_tree(topology))

    def begin(self, devices: Devices) -> "CoresetState":
        """Cluster the local points; no device has a table to send yet."""
        local, counts, _ = devices.kmeans(self.k, Stream.SUMMARY, starts=_LOCAL_INITS)
        local, _ = pack(np.where((counts > 0.0)[:, :, None], local, np.inf))
        costs, _ = devices.kernels.losses(*devices.kernel_inputs, local)
        no_tables = begin(devices, np.zeros((len(devices), 1, 1)), np.zeros(len(devices), np.int64))
        return CoresetState(np.full_like(local, np.inf), np.zeros(len(devices), np.bool_), local, costs, no_tables)

    def draw(self, devices: Devices, local_centroids: Floats, totals: Floats) -> tuple[Floats, Integers]:
        """Draw the part of each device in the coreset.

        Parameters
        ----------
        local_centroids : float64[n, k, d]
            B_i.
        totals : float64[n]
            C, as each device received it.

        Returns
        -------
        tables : float64[n, k + t, d + 1]
            Rows (b, w_b), then (q, w_q).
        rows : int64[n]
        """
        _, labels = devices.kernels.losses(*devices.kernel_inputs, local_centroids)
        parts = []
        for i, key in enumerate(devices.keys):
            points_of_device = slice(devices.offsets[i], devices.offsets[i + 1])
            centroids = local_centroids[i, local_centroids[i, :, 0] < np.inf]
            parts.append(self._sample(*devices.table(i), centroids, labels[points_of_device], (int(key), totals[i])))
        rows = np.array([len(part) for part in parts], np.int64)
        # All tables have the size of the largest table that may arrive.
        tables = np.zeros((len(parts), self.k + self.expected_size, devices.d + 1))
        for i, part in enumerate(parts):
            tables[i, : len(part)] = part
        return tables, rows

    def _sample(
        self, points: Floats, weights: Floats, centroids: Floats, labels: Integers, key_and_total: tuple[int, float]
    ) -> Floats:
        """Draw the part of one device from its random streams and the total cost C."""
        key, total = key_and_total
        squared = np.zeros(len(points))
        for column, coordinates in zip(points.T, centroids.T, strict=True):
            squared += (column - coordinates[labels]) ** 2
        cumulative = np.cumsum(np.append(0.0, weights * squared))
        # The received C may be below the local cost, so the share is capped.
        share = self.expected_size * min(cumulative[-1] / total, 1.0) if total > 0.0 else 0.0
        count = int(share) + int(uniforms(key, Stream.CHOICE, [1], 1)[0, 0] < share % 1.0)
        draws = uniforms(key, Stream.CHOICE, [0], count)[0] * cumulative[-1]
        drawn = np.searchsorted(cumulative[1:], draws, side="right")
        drawn_weights = total / (self.expected_size * squared[drawn])
        centroid_weights = np.bincount(labels, weights, len(centroids))
        centroid_weights = centroid_weights - np.bincount(labels[drawn], drawn_weights, len(centroids))
        rows = np.concatenate((centroids, points[drawn]))
        return np.column_stack((rows, np.concatenate((centroid_weights, drawn_weights))))

    def cluster(self, devices: Devices, flood: Flood, members: Integers) -> Floats:
        """Cluster the tables that the devices `members` hold, float64[members, k, d].

        Devices with equal tables share one k-means.
        """
        if len(members) == 0:
            return np.zeros((0, self.k, devices.d))
        collections, collection_of_member = distinct_collections(flood, members)
        clipped = [np.column_stack((rows[:, :-1], np.maximum(rows[:, -1], 0.0))) for rows in collections]
        centroids = devices.pooled_kmeans(clipped, self.k, Stream.CLUSTER, starts=self.n_init, limit=_LIMIT, first=0)
        return centroids[collection_of_member]


@register("coreset")
class CoresetState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the coreset is clustered.
    converged : bool[n]
    local_centroids : float64[n, k, d]
        Centroids B_i of the local points.
    costs : float64[n]
        c_i; along a tree then the sum over the devices below, and at last C.
    flood : Flood
        Tables that each device holds: first costs (only with "flood"), then parts of the coreset.
    """

    centroids: Floats
    converged: Mask
    local_centroids: Floats
    costs: Floats
    flood: Flood


@dataclass(frozen=True)
class CoresetByFlooding(OnGraph):
    """`Coreset` by flooding, with a fixed number of turns.

    With a bound h on the diameter, all costs have arrived everywhere in turn h, and all rows in turn 2 h. So devices
    need no message that flooding has ended.
    """

    method: Coreset
    hops: int

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(message_content=MessageContent.OTHER, floods=True, hops=self.hops)

    @property
    def schedule(self) -> str:
        """Schedule: all turns belong to one round."""
        return f"jacobi*{2 * self.hops + 1}"

    def expected_messages(self, known: Known) -> FloodThenPool:
        """Count the costs, then the rows of the coreset."""
        # Each device rounds its number of drawn points up at most, so the sum exceeds `size` by less than one per
        # device.
        rows = known.clients * self.k + self.method.expected_size + known.clients - 1
        return FloodThenPool(self.hops, rows, known.features + 1)

    def initial_state(self, devices: Devices, start: Any) -> CoresetState:
        """Cluster the local points; devices with points send their cost."""
        state = self.method.begin(devices)
        rows = (devices.sizes > 0).astype(np.int64)
        return state._replace(flood=begin(devices, state.costs[:, None, None], rows))

    def message(self, state: CoresetState, devices: Devices) -> DenseMessages:
        """Forward the tables that arrived in the last exchange."""
        return no_messages(len(devices), 1, 1) if _is_finished(devices) else send(state.flood, devices)

    def update(self, state: CoresetState, inbox: Inbox, devices: Devices) -> CoresetState:
        """Receive costs, then rows; draw once all costs have arrived, cluster once all rows have arrived."""
        if _is_finished(devices):
            return state
        flood = receive(state.flood, inbox, devices)
        all_devices = np.arange(len(devices))
        if devices.turn == self.hops:
            collections, collection_of_device = distinct_collections(flood, all_devices)
            # cumsum adds in the order of the devices; the order of np.sum depends on the length.
            totals = np.array([np.cumsum(np.append(0.0, costs))[-1] for costs in collections])[collection_of_device]
            flood = begin(devices, *self.method.draw(devices, state.local_centroids, totals))
        elif devices.turn == 2 * self.hops:
            centroids = self.method.cluster(devices, flood, all_devices)
            state = state._replace(centroids=centroids, converged=np.ones(len(devices), np.bool_))
        return state._replace(flood=flood)


@dataclass(frozen=True)
class CoresetOnTree(OnGraph):
    """`Coreset` along spanning trees, in four passes: costs up, their sum down, rows up, centroids down.

    Each pass takes as many turns as the deepest tree has layers below its root.
    """

    method: Coreset
    tree: Tree
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER, floods=True)

    @property
    def depth(self) -> int:
        """Number of turns of a pass."""
        return max(1, int(self.tree.layer.max()))

    @property
    def schedule(self) -> str:
        """Schedule: all turns belong to one round."""
        return f"jacobi*{4 * self.depth}"

    def expected_messages(self, known: Known) -> ByRound:
        """Count costs up, their sum down, rows up and centroids down."""
        layers = self.tree.layer
        size = self.method.expected_size
        n = known.clients
        d = known.features
        links = int((layers > 0).sum())
        first = int((layers == self.depth).sum())
        rows = int(layers.sum()) * self.k + int(layers.max()) * (size + n - 1)
        rest = tables(2 * links - first, 1, 1) + MessageVolume(links, 8 * rows * (d + 1), True, False)
        return ByRound(
            tables(first, 1, 1), rest + tables(links, self.k, d, full=known.distinct == known.points >= self.k)
        )

    def initial_state(self, devices: Devices, start: Any) -> CoresetState:
        """Cluster the local points."""
        return self.method.begin(devices)

    def message(self, state: CoresetState, devices: Devices) -> DenseMessages:
        """Send the table of the current pass to the parent or the children, if it is the turn of the layer."""
        # The initial exchange sends step 0. A message sent after turn t is received in turn t + 1, as step t + 1.
        number, step = divmod(devices.turn + 1 if devices.round else 0, self.depth)
        if number == _PASSES or _is_finished(devices):
            return no_messages(len(devices), 1, 1)
        is_down = number % 2
        due = self.tree.layer[devices.ids] == (step if is_down else self.depth - step)
        edges = tree_edges(self.tree, devices, due)[is_down]
        if number == _ROWS_UP:
            values, rows = devices.kernels.concatenate_tables(state.flood.known & due[:, None], *state.flood.held)
        elif number == _CENTROIDS_DOWN:
            values, rows = pack(state.centroids)
        else:
            values = state.costs[:, None, None]
            rows = np.ones(len(devices), np.int64)
        # A device without links sends a table over no edge: silence would end the run before it has clustered.
        sending = (devices.degrees == 0) & (devices.round == 0)
        sending[devices.sources[edges]] = True
        rows_up = number == _ROWS_UP
        return DenseMessages(values, np.where(sending, rows, -1), edges=edges, header=int(rows_up), ragged=rows_up)

    def update(self, state: CoresetState, inbox: Inbox, devices: Devices) -> CoresetState:
        """Receive tables; draw once C has reached all devices, cluster at the root once all rows have arrived."""
        if _is_finished(devices):
            return state
        number, step = divmod(devices.turn, self.depth)
        state = self._receive(state, inbox, devices, number)
        if step < self.depth - 1 or number == _COSTS_UP:
            return state
        if number == _TOTAL_DOWN:
            return state._replace(flood=begin(devices, *self.method.draw(devices, state.local_centroids, state.costs)))
        if number == _CENTROIDS_DOWN:
            return state._replace(converged=np.ones(len(devices), np.bool_))
        roots = np.flatnonzero(self.tree.parent[devices.ids] < 0)
        centroids = state.centroids.copy()
        centroids[roots] = self.method.cluster(devices, state.flood, roots)
        return state._replace(centroids=centroids)

    def _receive(self, state: CoresetState, inbox: Inbox, devices: Devices, number: int) -> CoresetState:
        """Receive the tables of pass `number`: costs of children, C, rows of children, or centroids."""
        if number == _ROWS_UP:
            return state._replace(flood=receive(state.flood, inbox, devices))
        edges = np.flatnonzero(inbox.fresh)
        receivers = devices.sources[edges]
        costs, centroids = state.costs.copy(), state.centroids.copy()
        if number == _COSTS_UP:
            np.add.at(costs, receivers, inbox.tables_of(edges, 1, 1)[:, 0, 0])
        elif number == _TOTAL_DOWN:
            costs[receivers] = inbox.tables_of(edges, 1, 1)[:, 0, 0]
        else:
            present = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            centroids[receivers] = np.where(present[:, :, None], inbox.tables_of(edges, self.k, devices.d), np.inf)
        return state._replace(costs=costs, centroids=centroids)


def _is_finished(devices: Devices) -> bool:
    """Tell whether the only round has ended; `--all-rounds` calls the method in further rounds."""
    return devices.round > 1
