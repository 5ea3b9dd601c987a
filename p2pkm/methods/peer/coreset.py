"""Distributed coreset (Balcan, Ehrlich, Liang 2013): every device clusters a small weighted sample."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.expected_messages import ByRound, FloodThenPool, Known, Volume, tables
from p2pkm.core.messages import DenseMessages, Inbox, pack, silence
from p2pkm.core.protocols import MethodBase, OnGraph, Pipeline
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import one_of, whole
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.flooding import Flood, begin, group, receive, send
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow, ways
from p2pkm.methods.init.pipelines import check_flooding
from p2pkm.network.graph import Topology

_STARTS, _LIMIT = 3, 300  # of a device's own k-means; Lloyd steps on the coreset


@dataclass(frozen=True)
class Coreset(MethodBase):
    r"""Sample points where they are badly served by their device's own k-means, share the sample, cluster it.

    Device i has centroids B_i, k-means of its own points (best of 3); s_q is the squared distance of its point q to
    them, c_i the sum of all s_q. All devices learn C = sum_i c_i. Then, with t = `size`::

        t_i = t c_i / C, rounded up with the probability of its fraction, else down
        draw t_i own points q with replacement, with probability s_q / c_i each
        w_q = C / (t s_q);   w_b = |P_b| - sum of w_q over the drawn q in P_b

    where P_b are the points nearest to b in B_i; a point drawn twice counts twice. The rows (q, w_q) and (b, w_b) of
    all devices are the coreset. Weighted k-means of it, best of `n_init`, a negative weight taken as 0, gives the
    centroids: with the shared seed all devices end with the same rows. Every component of the graph has its own C, t
    points and centroids.

    Message: with spread "flood" c_i, then the rows of d + 1 columns, each once over every link and direction; the id of
    the origin travels uncounted, a device without points sends an empty table. With spread "tree", along a
    breadth-first tree from a middle of the graph that all can compute: the sum of the c_i up and C down, one number per
    link each, the rows up in one table per link, the k centroids down. One round of as many turns as the graph's extent
    asks for.

    Guarantee: the weights add up to the number of points, whatever is drawn. On average over the draws t points are
    drawn, whatever the number of devices, and the weighted cost of any centroids is their cost on all points.

    Link weights: ignored; rows travel over every link, or along a spanning tree of fewest hops.

    Privacy: no guarantee; ships RAW points. Every device sees the drawn points of all others with "flood", the root and
    those on the way see them with "tree"; beside them the centroids, costs and counts of single devices.

    Parameters
    ----------
    k : int
        Number of clusters.
    size : int
        Points to draw, over all devices of a component, on average.
    spread : {"flood", "tree"}
        How costs and rows travel.
    n_init : int
        The k-means of the coreset is the best of so many seedings.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    M.-F. Balcan, S. Ehrlich, Y. Liang, "Distributed k-means and k-median clustering on general topologies", NIPS 2013:
    Algorithms 1 and 2.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Coreset(3, size=9), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 2), result.summary["raw_points_disclosed"]
    (1.11, 8)
    """

    k: int
    _: KW_ONLY
    size: int = 200
    spread: Literal["flood", "tree"] = "flood"
    n_init: int = 50

    name: ClassVar[str] = "coreset"
    traits: ClassVar[MethodTraits] = MethodTraits(
        floods=True,  # in a tree, too, a device keeps a bit per origin
        needs_static_links="spreads its summaries over links that have to last",
        needs_reliable_links="draws by the costs of all devices, each of which must arrive everywhere in its turn",
        no_suppression="sends raw points",
    )
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self.size, 1, "size")
        whole(self.n_init, 1, "n_init")
        one_of(self.spread, ("flood", "tree"), "spread")

    def stages(self, at: Any) -> Pipeline:
        """Reject graphs that are too large for a bit per origin at every device."""
        check_flooding(at, self.name, "another method")
        return Pipeline()

    def on(self, topology: Topology) -> "Flooded | CoresetOnTree":
        """Return the algorithm that the loop runs: when who sends depends on the whole graph."""
        return Flooded(self, max(1, topology.hops)) if self.spread == "flood" else CoresetOnTree(self, grow(topology))

    def begin(self, devices: Devices) -> "CoresetState":
        """Return the state in which every device has clustered its own points; it holds no table yet."""
        own, counts, _ = devices.kmeans(self.k, Stream.SUMMARY, starts=_STARTS)
        own, _ = pack(np.where((counts > 0.0)[:, :, None], own, np.inf))
        costs, _ = devices.kernels.losses(*devices.kernel_inputs, own)
        nothing = begin(devices, np.zeros((len(devices), 1, 1)), np.zeros(len(devices), np.int64))
        return CoresetState(np.full_like(own, np.inf), np.zeros(len(devices), np.bool_), own, costs, nothing)

    def draw(self, devices: Devices, own: Floats, totals: Floats) -> tuple[Floats, Integers]:
        """Return each device's part of the coreset.

        Parameters
        ----------
        own : float64[n, k, d]
            B_i.
        totals : float64[n]
            C.

        Returns
        -------
        tables : float64[n, k + t, d + 1]
            Rows (b, w_b), then (q, w_q).
        rows : int64[n]
        """
        _, labels = devices.kernels.losses(*devices.kernel_inputs, own)
        parts = []
        for i, key in enumerate(devices.keys):
            one = slice(devices.offsets[i], devices.offsets[i + 1])
            centroids = own[i, own[i, :, 0] < np.inf]
            parts.append(self._sample(*devices.table(i), centroids, labels[one], (int(key), totals[i])))
        rows = np.array([len(part) for part in parts], np.int64)
        tables = np.zeros((len(parts), self.k + self.size, devices.d + 1))  # as large as any that may arrive
        for i, part in enumerate(parts):
            tables[i, : len(part)] = part
        return tables, rows

    def _sample(
        self, points: Floats, weights: Floats, centroids: Floats, labels: Integers, known: tuple[int, float]
    ) -> Floats:
        """Return one device's part; known: the key of its random streams, and C."""
        key, total = known
        squared = np.zeros(len(points))
        for column, coordinates in zip(points.T, centroids.T, strict=True):
            squared += (column - coordinates[labels]) ** 2
        cumulative = np.cumsum(np.append(0.0, weights * squared))
        share = self.size * min(cumulative[-1] / total, 1.0) if total > 0.0 else 0.0  # C may have come as less
        count = int(share) + int(uniforms(key, Stream.CHOICE, [1], 1)[0, 0] < share % 1.0)
        draws = uniforms(key, Stream.CHOICE, [0], count)[0] * cumulative[-1]
        drawn = np.searchsorted(cumulative[1:], draws, side="right")
        worth = total / (self.size * squared[drawn])
        mass = np.bincount(labels, weights, len(centroids))
        mass = mass - np.bincount(labels[drawn], worth, len(centroids))
        return np.column_stack((np.concatenate((centroids, points[drawn])), np.concatenate((mass, worth))))

    def cluster(self, devices: Devices, flood: Flood, members: Integers) -> Floats:
        """Return the centroids of the tables that the given devices hold, float64[members, k, d]."""
        if len(members) == 0:
            return np.zeros((0, self.k, devices.d))
        collections, which = group(flood, members)
        clipped = [np.column_stack((rows[:, :-1], np.maximum(rows[:, -1], 0.0))) for rows in collections]
        return devices.pooled_kmeans(clipped, self.k, Stream.CLUSTER, starts=self.n_init, limit=_LIMIT, first=0)[which]


@register("coreset")
class CoresetState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the coreset is clustered.
    converged : bool[n]
    own : float64[n, k, d]
        B_i.
    costs : float64[n]
        c_i; in a tree later the sum over those below, then C.
    flood : Flood
        Costs (flooding alone), then parts of the coreset, that each device holds.
    """

    centroids: Floats
    converged: Mask
    own: Floats
    costs: Floats
    flood: Flood


@dataclass(frozen=True)
class Flooded(OnGraph):
    """`Coreset` by flooding: what is known to be everywhere after so many turns needs no further sign.

    In turn h, a bound on the diameter, all costs have arrived and been passed on; in turn 2 h all rows have arrived.
    """

    method: Coreset
    hops: int

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(floods=True, hops=self.hops)

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{2 * self.hops + 1}"

    def expected_messages(self, known: Known) -> FloodThenPool:
        """Return the costs, then the rows of the coreset."""
        rows = known.clients * self.k + self.method.size + known.clients - 1  # numbers drawn are rounded up at most
        return FloodThenPool(self.hops, rows, known.features + 1)

    def initial_state(self, devices: Devices, start: Any) -> CoresetState:
        """Cluster the own points; only a device that has points has a cost to send."""
        state = self.method.begin(devices)
        rows = (devices.sizes > 0).astype(np.int64)
        return state._replace(flood=begin(devices, state.costs[:, None, None], rows))

    def message(self, state: CoresetState, devices: Devices) -> DenseMessages:
        """Forward what is news."""
        return silence(len(devices), 1, 1) if _over(devices) else send(state.flood, devices)

    def update(self, state: CoresetState, inbox: Inbox, devices: Devices) -> CoresetState:
        """Take in costs, then rows; draw when all costs are there, cluster when all rows are."""
        if _over(devices):
            return state
        flood, everybody = receive(state.flood, inbox, devices), np.arange(len(devices))
        if devices.turn == self.hops:
            collections, which = group(flood, everybody)
            totals = np.array([np.cumsum(np.append(0.0, costs))[-1] for costs in collections])[which]
            flood = begin(devices, *self.method.draw(devices, state.own, totals))
        elif devices.turn == 2 * self.hops:
            found = self.method.cluster(devices, flood, everybody)
            state = state._replace(centroids=found, converged=np.ones(len(devices), np.bool_))
        return state._replace(flood=flood)


@dataclass(frozen=True)
class CoresetOnTree(OnGraph):
    """`Coreset` along trees, layer by layer: costs up, their sum down, rows up, centroids down.

    Each way takes as many turns as the deepest tree has layers below its root.
    """

    method: Coreset
    tree: Tree
    traits: ClassVar[MethodTraits] = MethodTraits(floods=True)

    @property
    def depth(self) -> int:
        """Return how many turns a way takes."""
        return max(1, int(self.tree.layer.max()))

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{4 * self.depth}"

    def expected_messages(self, known: Known) -> ByRound:
        """Return costs up, their sum down, rows up, centroids down."""
        layers, size, n, d = self.tree.layer, self.method.size, known.clients, known.features
        links, first = int((layers > 0).sum()), int((layers == self.depth).sum())
        rows = int(layers.sum()) * self.k + int(layers.max()) * (size + n - 1)
        rest = tables(2 * links - first, 1, 1) + Volume(links, 8 * rows * (d + 1), True, False)
        return ByRound(
            tables(first, 1, 1), rest + tables(links, self.k, d, full=known.distinct == known.points >= self.k)
        )

    def initial_state(self, devices: Devices, start: Any) -> CoresetState:
        """Cluster the own points."""
        return self.method.begin(devices)

    def message(self, state: CoresetState, devices: Devices) -> DenseMessages:
        """Send to the parent or to the children what is due, if it is the layer's turn."""
        way, step = divmod(devices.turn + 1 if devices.round else 0, self.depth)
        if way == 4 or _over(devices):
            return silence(len(devices), 1, 1)
        due = self.tree.layer[devices.ids] == (step if way % 2 else self.depth - step)
        edges = ways(self.tree, devices, due)[way % 2]
        if way == 2:
            values, rows = devices.kernels.bundle(state.flood.known & due[:, None], *state.flood.held)
        elif way == 3:
            values, rows = pack(state.centroids)
        else:
            values, rows = state.costs[:, None, None], np.ones(len(devices), np.int64)
        sending = (devices.degrees == 0) & (devices.round == 0)  # without links it sends to no device, but is not done
        sending[devices.sources[edges]] = True
        return DenseMessages(values, np.where(sending, rows, -1), edges=edges, header=int(way == 2), ragged=way == 2)

    def update(self, state: CoresetState, inbox: Inbox, devices: Devices) -> CoresetState:
        """Take in what came up or down; draw when C is known everywhere, cluster when all rows are at the root."""
        if _over(devices):
            return state
        way, step = divmod(devices.turn, self.depth)
        state = self._receive(state, inbox, devices, way)
        if step < self.depth - 1 or way == 0:
            return state
        if way == 1:
            return state._replace(flood=begin(devices, *self.method.draw(devices, state.own, state.costs)))
        if way == 3:
            return state._replace(converged=np.ones(len(devices), np.bool_))
        roots = np.flatnonzero(self.tree.parent[devices.ids] < 0)
        centroids = state.centroids.copy()
        centroids[roots] = self.method.cluster(devices, state.flood, roots)
        return state._replace(centroids=centroids)

    def _receive(self, state: CoresetState, inbox: Inbox, devices: Devices, way: int) -> CoresetState:
        """Add the children's costs, take over the sum, take in the children's rows, or take over the centroids."""
        if way == 2:
            return state._replace(flood=receive(state.flood, inbox, devices))
        edges = np.flatnonzero(inbox.fresh)
        who, costs, centroids = devices.sources[edges], state.costs.copy(), state.centroids.copy()
        if way == 0:
            np.add.at(costs, who, inbox.tables_of(edges, 1, 1)[:, 0, 0])
        elif way == 1:
            costs[who] = inbox.tables_of(edges, 1, 1)[:, 0, 0]
        else:
            real = np.arange(self.k) < inbox.rows_of(edges)[:, None]
            centroids[who] = np.where(real[:, :, None], inbox.tables_of(edges, self.k, devices.d), np.inf)
        return state._replace(costs=costs, centroids=centroids)


def _over(devices: Devices) -> bool:
    """Return whether all is done: a run that plays all of its rounds comes back."""
    return devices.round > 1
