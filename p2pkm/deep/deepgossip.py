"""Deep clustering without a server: parameters are averaged along a tree or by gossip, features clustered on a tree."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.card import Card
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
    r"""Deep clustering on any graph: a network and clusters of its features, learned without a server (DeepGossip).

    The counterpart of `DeepFeCA`: the root of a spanning tree clusters the features, and parameters are averaged along
    the tree or by gossip.

    Parameters
    ----------
    k, server, network, shape, features, classifier, temperature, epochs, batch, rate, momentum, decay, views, horizon
        As in `p2pkm.DeepFeCA`. The root acts as the server of the method `server`.
    gossips : int, optional
        Gossip turns in a round that average the parameters; default: the exact mean along the tree.

    Raises
    ------
    ExperimentError, DataError, TrainingError
        As in `p2pkm.DeepFeCA`.

    See Also
    --------
    DeepFeCA
        The same with a server.

    Notes
    -----
    **Update.** All devices start with the same parameters theta. Device i has `|D_i|` images with features
    z_n = f(x_n; theta_i). One round::

        labels:    y_n <- nearest row of C to z_n
        training:  theta_i <- `epochs` epochs of stochastic gradient descent on the y_n, as in `deepfeca`
        averaging: (s, v)_i = (|D_i| theta_i, |D_i|) + sum of (s, v)_j over the children j of i;  at the root
                   theta <- s / v, which is sent down to all devices:  theta_i <- theta
        clusters:  reports of a one-shot method on the new z_n are sent up the tree, its aggregate C down

    A first clustering precedes round 1. All devices of a component have the parameters that `deepfeca` yields on a
    star.

    With `gossips`, all links are used for the average; N_i are the neighbors of i::

        averaging: (s, v)_i = (|D_i| theta_i, |D_i|);  `gossips` times
                   (s, v)_i <- (s, v)_i + sum_{j in N_i} P_ij ((s, v)_j - (s, v)_i),  P_ij = 1 / (1 + max(deg_i, deg_j))
                   theta_i <- s / v

    With one gossip and equal numbers of images this is D-PSGD [1]_. After few gossips the theta_i differ, and features
    of different theta_i are not comparable.

    **Messages.** Once per round and tree link: P + 1 numbers up and P down, as tables of `features` columns; the rows
    of all reports from below up, and C down. With `gossips` the parameters are not sent along the tree, but P + 1
    numbers to each neighbor in every gossip.

    **Link weights.** With `gossips` they define the mixing matrix, as in `ConsensusLloyd`.

    **Convergence.** Not guaranteed. As `gossips` grows, theta_i tends to the mean along the tree.

    **Privacy.** No guarantee. All devices of a component receive theta. A parent receives the sum of the trained
    parameters below each child; with `gossips`, every neighbor receives the parameters of a device. From parameters,
    images can be reconstructed (gradient inversion). Devices on the way to the root receive reports.

    **Differences from the paper.** The combination of DeepFeCA [2]_ with decentralized averages is ours.

    References
    ----------
    .. [1] X. Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017: D-PSGD.
    .. [2] J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024: Algorithm 6.

    Examples
    --------
    >>> import p2pkm
    >>> method = p2pkm.DeepGossip(3, network="linear", shape="16x16", features=8)  # a run needs the extra deep
    >>> method.k, method.name
    (3, 'deepgossip')
    """

    _: KW_ONLY
    gossips: int | None = None

    card = Card(
        "deepgossip",
        family="deep",
        sends="network weights",
        points="none",
        line="learned features and clusters, without a server",
    )
    name: ClassVar[str] = card.name
    schedule: ClassVar[str] = "jacobi"

    @property
    def traits(self) -> MethodTraits:  # type: ignore[override]
        """Properties of the method, see `p2pkm.core.traits`."""
        return replace(TRAITS, link_weights=WEIGHTED) if self.gossips else TRAITS

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        if self.gossips is not None:
            check_integer(self.gossips, 1, "gossips")

    def on(self, topology: Topology) -> "DeepGossipOnGraph":
        """Return the algorithm on a graph, whose tree determines the number of turns of a round."""
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
        """Turns of a pass up or down the tree."""
        return max(1, int(self.tree.layer.max()))

    @property
    def agreement(self) -> int:
        """Turns from training to the first reports: a pass up and one down the tree, or the gossips."""
        return self.method.gossips or 2 * self.depth

    @property
    def turns(self) -> int:
        """Turns of a round: training, averaging, reports up, centroids down."""
        return self.agreement + 2 * self.depth + 1

    @property
    def schedule(self) -> str:
        """Schedule: the first round has additional turns for the first clustering."""
        return f"jacobi*{self.turns}+{2 * self.depth}"

    def flops(self, work: Work) -> Integers:
        """Count the operations of a turn: an equal part of a round."""
        return self.method.count_flops(work) // self.turns

    def expected_messages(self, known: Known) -> ByRound:
        """Predict the messages: reports up and centroids down the tree, parameters along the tree or over all links."""
        learner, layer = self.method.learner(known.features), self.tree.layer
        links, first, n = int((layer > 0).sum()), int((layer == self.depth).sum()), len(layer)
        reports, all_reports, answer = self.method.expected_report(known, learner.width)
        # A report in layer l is sent over l links. If its length depends on the points, only an upper bound is known.
        if reports.by_points:
            initial_bytes, climb_bytes = all_reports.bytes, self.depth * all_reports.bytes
        else:
            hops = first, int(layer.sum())
            initial_bytes, climb_bytes = (times * all_reports.bytes // max(n, 1) for times in hops)
        exact = reports.exact and not reports.by_points
        initial, up = MessageVolume(first, initial_bytes, True, exact), MessageVolume(links, climb_bytes, True, exact)
        down = MessageVolume(links, links * (answer.bytes // max(n, 1)), True, answer.exact_bytes)
        sums, mean = (-(-numbers // learner.width) for numbers in (learner.parameters + 1, learner.parameters))
        if self.method.gossips:
            averaging = tables(len(self.topology.indices) * self.method.gossips, sums, learner.width)
        else:
            averaging = tables(links, sums, learner.width) + tables(links, mean, learner.width)
        # Round 1 also sends the remaining reports of the first clustering.
        rest = climb_bytes if reports.by_points else climb_bytes - initial_bytes
        first_clustering = MessageVolume(links - first, rest, True, exact) + down
        return ByRound(initial, first_clustering + averaging + up + down, averaging + up + down)

    def initial_state(self, devices: Devices, start: Any) -> DeepState:
        """Draw the parameters, and prepare the first reports."""
        learned = self.method.begin(devices)
        absent = np.full((len(devices), self.k, learned.features.values.shape[1]), np.inf)
        state = DeepState(absent, np.zeros(len(devices), np.bool_), learned, absent, np.zeros(0, np.int64))
        return self._report(state, devices)

    def message(self, state: DeepState, devices: Devices) -> DenseMessages:
        """Send parameters to all neighbors in a gossip, otherwise to the parent or the children."""
        turn = self._turn(devices)
        if turn < (self.method.gossips or 0):
            return DenseMessages(state.values, state.rows, ragged=True)
        # Step of a pass up and down the tree: first one for the parameters, then one for reports and centroids.
        step = (turn - self.agreement) % (2 * self.depth)
        up = step < self.depth
        # Layers depth, ..., 1 send up, then layers 0, 1, ... down.
        is_sending_layer = self.tree.layer[devices.ids] == abs(self.depth - step)
        edges = tree_edges(self.tree, devices, is_sending_layer)[0 if up else 1]
        sending = np.zeros(len(devices), np.bool_)
        sending[devices.sources[edges]] = True
        # A device without neighbors counts as sending at the start of a pass: silence would end the stage.
        sending |= (devices.degrees == 0) & (step == 0)
        # Rows of reports begin with the id of their device.
        header = int(up and turn >= self.agreement)
        return DenseMessages(state.values, np.where(sending, state.rows, -1), edges=edges, header=header, ragged=True)

    def update(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Train, average parameters, collect reports, cluster at the root, or receive centroids, by turn."""
        turn, agreement = self._turn(devices), self.agreement
        if turn == 0:
            return self._train(state, devices)
        if turn <= agreement:
            state = self._average(state, inbox, devices)
            return state if turn < agreement else self._report(state, devices)
        if turn <= agreement + self.depth:
            state = self._collect(state, inbox, devices)
            return state if turn < agreement + self.depth else self._cluster(state, devices)
        state = self._receive_centroids(state, inbox, devices)
        return state if turn < agreement + 2 * self.depth else self._label(state, devices)

    def _turn(self, devices: Devices) -> int:
        """Return the turn within a usual round; the initial exchange is that of the first reports."""
        if devices.round == 0:
            return self.agreement
        return (devices.turn + (self.agreement + 1 if devices.round == 1 else 0)) % self.turns

    def _train(self, state: DeepState, devices: Devices) -> DeepState:
        """Train, and prepare the parameters weighted by the number of images."""
        learned = self.method.train(state.derived, state.centroids, devices)
        sizes = devices.sizes[:, None].astype(np.float64)
        values = flatten(np.concatenate((sizes, sizes * learned.theta), axis=1), state.centroids.shape[2])
        return state._replace(derived=learned, values=values, rows=np.full(len(devices), values.shape[1]))

    def _average(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Mix with neighbors or add the sums of children, divide at the end, or receive the mean of the root."""
        turn, last = self._turn(devices), self.method.gossips or self.depth
        theta, width = state.derived.theta.copy(), state.values.shape[2]
        if turn > last:
            edges = np.flatnonzero(inbox.fresh)
            received = inbox.tables_of(edges, inbox.tables.shape[1], width)
            theta[devices.sources[edges]] = unflatten(received, theta.shape[1])
        else:
            values = state.values
            values = mix(devices, values, inbox) if self.method.gossips else add_received_tables(devices, inbox, values)
            if turn < last:
                return state._replace(values=values)
            sums = unflatten(values, theta.shape[1] + 1)
            # Without any image in the sum, the parameters do not change. Along the tree only the roots' sums matter.
            has_images = sums[:, 0] > 0.0
            theta[has_images] = sums[has_images, 1:] / sums[has_images, :1]
        values = flatten(theta.astype(np.float64), width)
        rows = np.full(len(devices), values.shape[1])
        return state._replace(derived=state.derived._replace(theta=theta), values=values, rows=rows)

    def _report(self, state: DeepState, devices: Devices) -> DeepState:
        """Prepare reports of the features under the new parameters; the first column is the id of the device."""
        learned = self.method.embed(state.derived, devices)
        values, rows = self.method.report(learned, state.centroids, devices)
        ids = np.broadcast_to(devices.ids[:, None, None], (*values.shape[:2], 1))
        return state._replace(derived=learned, values=np.concatenate((ids, values), axis=2), rows=rows)

    def _collect(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Append the rows from the children to the collected rows of each device."""
        collected = [state.values[i, :count] for i, count in enumerate(state.rows)]
        for e in np.flatnonzero(inbox.fresh):
            i, table = devices.sources[e], inbox.tables_of(e, inbox.rows_of(e), state.values.shape[2])
            collected[i] = np.concatenate((collected[i], table))
        rows = np.array([len(table) for table in collected], np.int64)
        values = np.zeros((len(devices), max(1, rows.max(initial=0)), state.values.shape[2]))
        for i, table in enumerate(collected):
            values[i, : len(table)] = table
        return state._replace(values=values, rows=rows)

    def _cluster(self, state: DeepState, devices: Devices) -> DeepState:
        """Cluster the collected reports at every root."""
        centroids, all_ids = state.centroids.copy(), np.arange(self.topology.n)
        for i in np.flatnonzero(self.tree.parent[devices.ids] < 0):
            table = state.values[i, : state.rows[i]]
            # Sorted by id, so that the result does not depend on the tree.
            table = table[np.argsort(table[:, 0], kind="stable")]
            reports = np.split(table[:, 1:], np.searchsorted(table[:, 0], all_ids)[1:])
            centroids[i] = self.method.aggregate(reports, state.derived, devices)
        return self._prepare_centroids(state, centroids)

    def _receive_centroids(self, state: DeepState, inbox: Inbox, devices: Devices) -> DeepState:
        """Store the centroids that were received from the parent, and prepare to forward them."""
        edges, centroids = np.flatnonzero(inbox.fresh), state.centroids.copy()
        is_row = np.arange(self.k) < inbox.rows_of(edges)[:, None]
        received = inbox.tables_of(edges, self.k, centroids.shape[2])
        centroids[devices.sources[edges]] = np.where(is_row[:, :, None], received, np.inf)
        return self._prepare_centroids(state, centroids)

    def _prepare_centroids(self, state: DeepState, centroids: Floats) -> DeepState:
        values, rows = pack(centroids)
        return state._replace(centroids=centroids, values=values, rows=rows)

    def _label(self, state: DeepState, devices: Devices) -> DeepState:
        """Label the images; nothing is sent until the next round."""
        centroids = state.centroids
        if self.method.is_local_only:
            centroids = self.method.cluster_locally(state.derived, devices)
        learned = self.method.label(state.derived, centroids, devices)
        no_table = np.zeros((len(devices), 1, centroids.shape[2]))
        return state._replace(centroids=centroids, derived=learned, values=no_table, rows=np.full(len(devices), -1))
