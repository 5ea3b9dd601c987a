"""Deep clustering without a server: parameters and clusters of the features along a tree, or parameters by gossip."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import ByRound, Known, MessageVolume, tables
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import OnGraph, Work
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import check_integer
from p2pkm.deep.method import TRAITS, DeepMethod, DeepState, flatten, unflatten
from p2pkm.methods.building_blocks.averaging import WEIGHTED, add_received_tables, mix
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree, tree_edges
from p2pkm.network.graph import Topology


@dataclass(frozen=True)
class DeepGossip(DeepMethod):
    r"""Learn features and clusters together as `deepfeca` does, on any graph, with no device that all send to.

    All draw the same parameters theta. With `|D_i|` images and features z_n = f(x_n; theta_i), a round of device i
    is::

        labels:    y_n <- nearest row of C to z_n
        training:  theta_i <- `epochs` epochs of stochastic gradient descent on the y_n, as in `deepfeca`
        averaging: (s, v)_i = (|D_i| theta_i, |D_i|) + sum of (s, v)_j over the children j of i;  at the root
                   theta <- s / v, which goes down to all:  theta_i <- theta
        clusters:  the report of a one-shot method on the new z_n goes up the tree, its aggregate C comes down

    The tree, breadth first from near the middle of each component, is known to all, like the colors; reports are
    forwarded as they are, and the root plays the hub's part of `server`. A first clustering comes before the first
    round, so that labels and C at the end belong to the last theta. So all devices of a component have the parameters
    that `deepfeca` gives the clients of a star, and the same C.

    With `gossips` parameters are averaged by gossip instead, over all links, N_i the neighbors of i::

        averaging: (s, v)_i = (|D_i| theta_i, |D_i|);  `gossips` times
                   (s, v)_i <- (s, v)_i + sum_{j in N_i} P_ij ((s, v)_j - (s, v)_i),  P_ij = 1 / (1 + max(deg_i, deg_j))
                   theta_i <- s / v

    With one gossip and equal numbers of images the parameters are those of D-PSGD; on a complete graph one gossip is
    the exact mean. After few gossips the theta_i differ, and features of different theta_i are not comparable.

    Message: up the tree P + 1 numbers, down P, over its links once a round, as tables of `features` columns, filled up
    with zeros; with `gossips` instead P + 1 numbers to each neighbor in every gossip. Up the tree the rows of all
    reports below, down C, over its links once a round.

    Guarantee: along the tree theta is the mean over the devices of a component, weighted by their numbers of images,
    but for the rounding of sums in another order than a hub's. A gossip keeps the sums of s and v over the devices, so
    theta_i tends to that mean as `gossips` grows. The same bits for any number of ranks, as with `deepfeca`.

    Link weights: with `gossips` they make the mixing matrix, as in `ConsensusLloyd`; along the tree they are ignored.

    Privacy: no guarantee; all devices of a component see theta after every averaging, and a parent the sum of the
    parameters after training below each of its children, so those of a single device where the child is a leaf: from
    the difference to theta images can be reconstructed (gradient inversion). With `gossips` every neighbor sees the
    parameters of a device right after its training, weighted by its number of images, and those before it within a
    gossip. Devices between another one and the root see its report as the root does.

    Parameters
    ----------
    k, server, network, shape, features, classifier, temperature, epochs, batch, rate, momentum, decay, views, horizon
        As in `p2pkm.DeepFeCA`; of `server` the root plays the hub.
    gossips : int, optional
        Turns of gossip in a round that average the parameters; default: the exact mean along the tree.

    Raises
    ------
    ExperimentError, DataError, TrainingError
        As `p2pkm.DeepFeCA`.

    References
    ----------
    X. Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017: D-PSGD. J. Xu,
    H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024: Algorithm 6. The combination is
    ours.

    Examples
    --------
    >>> import p2pkm
    >>> method = p2pkm.DeepGossip(3, network="linear", shape="16x16", features=8)  # a run needs the extra deep
    >>> method.k, method.name
    (3, 'deepgossip')
    """

    _: KW_ONLY
    gossips: int | None = None

    name: ClassVar[str] = "deepgossip"
    schedule: ClassVar[str] = "jacobi"

    @property
    def traits(self) -> MethodTraits:  # type: ignore[override]
        """Return what it is, see `p2pkm.core.traits`."""
        return replace(TRAITS, link_weights=WEIGHTED) if self.gossips else TRAITS

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        super().__post_init__()
        if self.gossips is not None:
            check_integer(self.gossips, 1, "gossips")

    def on(self, topology: Topology) -> "DeepGossipOnGraph":
        """Return the algorithm that the loop runs: how many turns a round has depends on the tree."""
        return DeepGossipOnGraph(self, build_spanning_tree(topology), topology)


@dataclass(frozen=True)
class DeepGossipOnGraph(OnGraph):
    """`DeepGossip` on a graph."""

    method: DeepGossip
    tree: Tree
    topology: Topology
    name: ClassVar[str] = "deepgossip"

    @property
    def depth(self) -> int:
        """Return how many turns a way up or down takes."""
        return max(1, int(self.tree.layer.max()))

    @property
    def agreement(self) -> int:
        """Return the turns from training to the first reports: up and down the tree, or gossips."""
        return self.method.gossips or 2 * self.depth

    @property
    def turns(self) -> int:
        """Return the turns of a round: training, agreement, reports up, centroids down."""
        return self.agreement + 2 * self.depth + 1

    @property
    def schedule(self) -> str:
        """Return the schedule: the first round begins with a clustering."""
        return f"jacobi*{self.turns}+{2 * self.depth}"

    def flops(self, work: Work) -> Integers:
        """Return the operations of a turn: an equal part of a round."""
        return self.method.count_flops(work) // self.turns

    def expected_messages(self, known: Known) -> ByRound:
        """Return reports up and centroids down a tree, parameters up and down it, too, or over all links."""
        learner, layer = self.method.learner(known.features), self.tree.layer
        links, first, n = int((layer > 0).sum()), int((layer == self.depth).sum()), len(layer)
        reports, check_integer, answer = self.method.expected_report(known, learner.width)
        if reports.by_points:  # whose points they are is not known
            opening, climb = check_integer.bytes, self.depth * check_integer.bytes
        else:
            opening, climb = (times * check_integer.bytes // max(n, 1) for times in (first, int(layer.sum())))
        exact = reports.exact and not reports.by_points
        deepest, way = MessageVolume(first, opening, True, exact), MessageVolume(links, climb, True, exact)
        down = MessageVolume(links, links * (answer.bytes // max(n, 1)), True, answer.exact_bytes)
        sums, mean = (-(-numbers // learner.width) for numbers in (learner.parameters + 1, learner.parameters))
        if self.method.gossips:
            averaging = tables(len(self.topology.indices) * self.method.gossips, sums, learner.width)
        else:
            averaging = tables(links, sums, learner.width) + tables(links, mean, learner.width)
        begin = MessageVolume(links - first, climb if reports.by_points else climb - opening, True, exact) + down
        return ByRound(deepest, begin + averaging + way + down, averaging + way + down)

    def initial_state(self, devices: Devices, start: Any) -> DeepState:
        """Draw the parameters; the deepest layer reports first."""
        learned = self.method.begin(devices)
        nothing = np.full((len(devices), self.k, learned.features.values.shape[1]), np.inf)
        state = DeepState(nothing, np.zeros(len(devices), np.bool_), learned, nothing, np.zeros(0, np.int64))
        return self._report(state, devices)

    def message(self, state: DeepState, devices: Devices) -> DenseMessages:
        """Send parameters to all neighbors, or on the way up to the parent and on the way down to the children."""
        place = self._place(devices)
        if place < (self.method.gossips or 0):
            return DenseMessages(state.values, state.rows, ragged=True)
        step = (place - self.agreement) % (2 * self.depth)  # of a walk: parameters along the tree, then reports
        up = step < self.depth
        acts = self.tree.layer[devices.ids] == abs(self.depth - step)  # depth, ..., 1 up; 0, 1, ... down again
        edges = tree_edges(self.tree, devices, acts)[0 if up else 1]
        sending = np.zeros(len(devices), np.bool_)
        sending[devices.sources[edges]] = True
        sending |= (devices.degrees == 0) & (step == 0)
        header = int(up and place >= self.agreement)  # the id of who reports
        return DenseMessages(state.values, np.where(sending, state.rows, -1), edges=edges, header=header, ragged=True)

    def update(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Train, average parameters, collect reports, cluster them at the root, or hand centroids on."""
        place, g = self._place(devices), self.agreement
        if place == 0:
            return self._train(state, devices)
        if place <= g:
            state = self._average(state, inbox, devices)
            return state if place < g else self._report(state, devices)
        if place <= g + self.depth:
            state = self._collect(state, inbox, devices)
            return state if place < g + self.depth else self._cluster(state, devices)
        state = self._take(state, inbox, devices)
        return state if place < g + 2 * self.depth else self._label(state, devices)

    def _place(self, devices: Devices) -> int:
        """Return which turn of a usual round this is; the opening is the one that reports first."""
        if devices.round == 0:
            return self.agreement
        return (devices.turn + (self.agreement + 1 if devices.round == 1 else 0)) % self.turns

    def _train(self, state: DeepState, devices: Devices) -> DeepState:
        """Train, and offer the parameters weighted by the number of images."""
        learned = self.method.train(state.derived, state.centroids, devices)
        sizes = devices.sizes[:, None].astype(np.float64)
        values = flatten(np.concatenate((sizes, sizes * learned.theta), axis=1), state.centroids.shape[2])
        return state._replace(derived=learned, values=values, rows=np.full(len(devices), values.shape[1]))

    def _average(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Mix parameters with the neighbors', or add up those of the children, divide, and take over the root's."""
        place, last = self._place(devices), self.method.gossips or self.depth
        theta, width = state.derived.theta.copy(), state.values.shape[2]
        if place > last:
            edges = np.flatnonzero(inbox.fresh)
            theta[devices.sources[edges]] = unflatten(
                inbox.tables_of(edges, inbox.tables.shape[1], width), theta.shape[1]
            )
        else:
            values = state.values
            values = mix(devices, values, inbox) if self.method.gossips else add_received_tables(devices, inbox, values)
            if place < last:
                return state._replace(values=values)
            flat = unflatten(values, theta.shape[1] + 1)
            known = flat[:, 0] > 0.0  # of an image, else parameters stay; along the tree it is the roots that count
            theta[known] = flat[known, 1:] / flat[known, :1]
        values = flatten(theta.astype(np.float64), width)
        rows = np.full(len(devices), values.shape[1])
        return state._replace(derived=state.derived._replace(theta=theta), values=values, rows=rows)

    def _report(self, state: DeepState, devices: Devices) -> DeepState:
        """Report of the features under the new parameters: rows behind the id of their device."""
        learned = self.method.embed(state.derived, devices)
        values, rows = self.method.report(learned, state.centroids, devices)
        ids = np.broadcast_to(devices.ids[:, None, None], (*values.shape[:2], 1))
        return state._replace(derived=learned, values=np.concatenate((ids, values), axis=2), rows=rows)

    def _collect(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Add the rows from the children to the own ones."""
        held = [state.values[i, :count] for i, count in enumerate(state.rows)]
        for e in np.flatnonzero(inbox.fresh):
            i, table = devices.sources[e], inbox.tables_of(e, inbox.rows_of(e), state.values.shape[2])
            held[i] = np.concatenate((held[i], table))
        rows = np.array([len(one) for one in held], np.int64)
        values = np.zeros((len(devices), max(1, rows.max(initial=0)), state.values.shape[2]))
        for i, one in enumerate(held):
            values[i, : len(one)] = one
        return state._replace(values=values, rows=rows)

    def _cluster(self, state: DeepState, devices: Devices) -> DeepState:
        """Let every root cluster what it has collected, in the order of ids."""
        centroids, everybody = state.centroids.copy(), np.arange(self.topology.n)
        for i in np.flatnonzero(self.tree.parent[devices.ids] < 0):
            table = state.values[i, : state.rows[i]]
            table = table[np.argsort(table[:, 0], kind="stable")]
            reports = np.split(table[:, 1:], np.searchsorted(table[:, 0], everybody)[1:])
            centroids[i] = self.method.aggregate(reports, state.derived, devices)
        return self._hands_on(state, centroids)

    def _take(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Take over what came from the parent."""
        edges, centroids = np.flatnonzero(inbox.fresh), state.centroids.copy()
        real = np.arange(self.k) < inbox.rows_of(edges)[:, None]
        received = inbox.tables_of(edges, self.k, centroids.shape[2])
        centroids[devices.sources[edges]] = np.where(real[:, :, None], received, np.inf)
        return self._hands_on(state, centroids)

    def _hands_on(self, state: DeepState, centroids: Floats) -> DeepState:
        values, rows = pack(centroids)
        return state._replace(centroids=centroids, values=values, rows=rows)

    def _label(self, state: DeepState, devices: Devices) -> DeepState:
        """Label the images; nothing is sent until the next round."""
        centroids = self.method.cluster_alone(state.derived, devices) if self.method.alone else state.centroids
        learned = self.method.label(state.derived, centroids, devices)
        quiet = np.zeros((len(devices), 1, centroids.shape[2]))
        return state._replace(centroids=centroids, derived=learned, values=quiet, rows=np.full(len(devices), -1))
