"""Estimate of GTVMin's coupling from the differences between neighbors: sums over links along a spanning tree."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import label
from p2pkm.core.expected_messages import ByRound, Known, tables
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.protocols import MethodBase
from p2pkm.core.sorting import blocks
from p2pkm.core.states import optional, register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.coupling_choice import CHOICES, ESTIMATED, Components, choose_couplings
from p2pkm.methods.building_blocks.gtv_objective import divide_by_degrees
from p2pkm.methods.building_blocks.shares import Shares, count_excess, find_penalties, find_strength, penalize
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    Tree,
    local_tree,
    send_to_children,
    send_to_parents,
    single_rows,
    source_devices,
)
from p2pkm.methods.init.registry import InitContext, bounded_spanning_tree
from p2pkm.network.graph import Topology

# Degrees of freedom of the distribution of differences with a weight for each link.
_FREEDOM = 8.0
# Smallest mean squared difference, in units of the noise of a point: where devices do not differ, coupling is strong.
_LEAST_DIFFERENCE = 1e-4
# Smallest median of squared differences, in units of their mean.
_LEAST_MEDIAN = 1e-2
# Share of m_i / k points from which on a device counts a cluster as its own. Of an absent cluster a device only has
# points that are cut off from neighboring clusters, whose mean says nothing about a difference.
_PRESENT = 0.5
# Levels of squared differences, eight to a power of two, and the number of counts in which they are searched twice.
_LEVELS_PER_OCTAVE = 8
_BRANCHES = 16
# By square roots alone: logarithms differ in the last bit between processors.
_EIGHTHS = np.cumprod(np.append(1.0, np.full(_LEVELS_PER_OCTAVE - 1, np.sqrt(np.sqrt(np.sqrt(2.0))))))
# Columns up: squared error, points, clusters with points, three sums over links, and with shares two terms of the
# strength of their prior. Columns down: variance and difference, and with shares the strength.
_SUMS = 6
_ANSWER = 2
# Arrays as large as a block of received clusters while they are compared.
_COMPARED = 8


@register("coupling-estimate:links")
class LinkDifferences(NamedTuple):
    """Differences between the two ends of each link, equal at both ends.

    Attributes
    ----------
    edge_squares : float64[e, k]
        Squared distance of the local means of a cluster; 0 unless both ends have it.
    edge_variances : float64[e, k]
        ``1 / n_ic + 1 / n_jc``; 0 unless both ends have the cluster.
    """

    edge_squares: Floats
    edge_variances: Floats


@register("coupling-estimate:walk")
class EstimateWalk(NamedTuple):
    """Data of a batch during the tree passes.

    Attributes
    ----------
    routes : LocalTree
    clusters : float64[n, k, d + 1]
        Mean and number of points of each local cluster.
    sums : float64[n, w]
        Row of a device and its descendants in the current pass up.
    answers : float64[n, a]
        Row of the current pass down.
    noise : float64[n, a]
        Variance of a coordinate within clusters, mean squared difference of neighbors (0: none can be estimated), and
        with shares the strength of their prior.
    links : LinkDifferences or None
        None if links have no weights of their own: with millions of devices, it takes gigabytes.
    """

    routes: LocalTree
    clusters: Floats
    sums: Floats
    answers: Floats
    noise: Floats
    links: LinkDifferences | None


class Strengths(NamedTuple):
    """Estimated strengths of the links.

    Attributes
    ----------
    is_known : bool[n]
        Whether a coupling could be estimated; otherwise it is strong.
    coupling : float64[n]
        Coupling that corresponds to the mean strength.
    edge_alpha : float64[e]
        Strength of each edge.
    edge_weights : float64[e] or None
        Weight of each edge relative to a usual one.
    """

    is_known: Mask
    coupling: Floats
    edge_alpha: Floats
    edge_weights: Floats | None


@register("coupling-estimate")
class CouplingEstimateState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids of the previous stage.
    converged : bool[n]
    edge_alpha : float64[e]
        Strength of each link, for methods that estimate it; 0 until the end.
    edge_estimated : float64[e] or None
        Weight of each link relative to a usual one; None without weights of links.
    coupling : float64[n] or None
        Coupling that corresponds to the mean strength. None unless it is estimated.
    walk : EstimateWalk or None
        None after the last turn.
    shares : Shares or None
        Shares of the clusters, if the method uses them.
    chosen : int64[n] or None
        Position in `CHOICES`, 0 if nothing could be estimated; None unless the coupling is estimated.
    trials : Trials or None
        Candidates of ``coupling="auto"``.
    """

    centroids: Floats
    converged: Mask
    edge_alpha: Floats
    edge_estimated: Floats | None
    coupling: Floats | None
    walk: EstimateWalk | None
    shares: Shares | None = None
    chosen: Integers | None = None
    trials: Any = None


@dataclass(frozen=True)
class CouplingEstimate(MethodBase):
    """Maximum a posteriori coupling of GTVMin: neighbors differ by a Gaussian or Student-t field on the graph.

    Attributes
    ----------
    method : GTVMin
        Method whose coupling is estimated, or with shares only the noise.
    topology : Topology
    tree : Tree
    components : Components

    Notes
    -----
    **Objective.** Let the true centroids be a Gaussian field on the graph, whose density falls with
    ``exp(-a/2 sum_E A_ij |w_i - w_j|^2)`` for links E with weights A_ij, and let points have the variance s2 in each
    coordinate. The maximum a posteriori estimate is then GTVMin with ``alpha_ij = A_ij a s2 / 2``, because its penalty
    counts each pair of centroids in both directions. Neighbors differ by ``d R_ij / a`` in the mean square. The
    effective resistances R_ij of a connected graph of n devices satisfy ``sum_E A_ij R_ij = n - 1``. With delta, the
    mean squared difference beyond noise of neighbors, and all sums over one component of the graph::

        alpha_ij = A_ij d s2 (n - 1) / (2 delta sum_E A_ij)

    With coupling "links" it is a Student-t field with nu = 8. A link on which p coordinates are compared, with the mean
    squared difference t beyond noise, has the weight ``(nu + p) / (nu + p t / scale)``, which multiplies alpha_ij. The
    scale is the median of t, rounded up to an eighth of a power of two, and replaces delta.

    Clusters count where both ends have at least half of m_i / k points. If neighbors have no such cluster in common,
    or points do not differ from their means, the coupling is strong, as for the component alone. Other couplings stay
    as they are.

    **Update.** All in one round:

    1. Each device assigns its points to its centroids, and sends mean and number of points of each cluster to its
       neighbors.
    2. Up: squared error E, number of points m, number h of clusters with points, and over links and clusters that both
       ends have, with the squared distance g of their means and ``v = 1 / n_ic + 1 / n_jc``, the sums of g / v, 1 and
       1 / v. Down: ``s2 = E / ((m - h) d)`` and ``delta = (sum g / v - d s2 sum 1) / sum 1 / v``.
    3. With coupling "links": up 16 counts of links by t, down the chosen interval of levels; twice.

    With `GTVMin.shares` the noise also gives the penalties of the assignment, and two sums over devices the strength of
    the prior of the shares; clusters are then those of the last such assignment.

    **Messages.** k rows of d + 1 columns to each neighbor. Up one row of 6 columns, with shares 8, with coupling
    "links" two more of 16; down as many rows of 2, with shares 3.

    **Privacy.** No guarantee. Neighbors receive mean and number of points of every local cluster. A parent receives
    sums over the subtree of a device.
    """

    name: ClassVar[str] = "coupling-estimate"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER, needs_honest_messages=True, one_round=True
    )
    method: Any
    topology: Topology
    tree: Tree
    components: Components

    @classmethod
    def of(cls, method: Any, at: InitContext) -> "CouplingEstimate":
        """Create the stage for a method on a graph."""
        tree, components = bounded_spanning_tree(at), Components.of(at.topology, at.sizes, at.weights)
        return cls(method, at.topology, tree, components)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.method.k)

    @property
    def _weighs_links(self) -> bool:
        """Whether each link has a weight."""
        return bool(self.method.coupling == "links")

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count the columns of the first row up, and of the first one down."""
        return (_SUMS + 2, _ANSWER + 1) if self.method.shares else (_SUMS, _ANSWER)

    @property
    def _later_answer(self) -> int:
        """Columns of the rows down after the first ones."""
        return _ANSWER + 1 if self.method.shares else _ANSWER

    @property
    def _passes(self) -> int:
        """Number of passes up; each is followed by one down."""
        return 3 if self._weighs_links else 1

    @property
    def schedule(self) -> str:
        """Schedule: all tree passes are turns of one round, after a turn that reads the means of the neighbors."""
        return f"jacobi*{1 + 2 * self._passes * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> ByRound:
        """Count the means over every link, and all rows along the tree."""
        tree_links = int((self.tree.parent >= 0).sum())
        opening = tables(len(self.topology.indices), self.k, known.features + 1)
        columns, answer = self.count_columns(known.features)
        along_tree = tables(tree_links, 1, columns) + tables(tree_links, 1, answer)
        for _ in range(self._passes - 1):
            along_tree += tables(tree_links, 1, _BRANCHES) + tables(tree_links, 1, self._later_answer)
        return ByRound(opening, along_tree)

    def initial_state(self, devices: Devices, start: Any) -> CouplingEstimateState:
        """Assign the local points to the local centroids."""
        n, e = len(devices), len(devices.indices)
        penalties = find_penalties(optional(start, "shares"))
        clusters, errors = measure_clusters(devices, start.centroids, penalties)
        counts = clusters[:, :, -1]
        columns, answer = self.count_columns(devices.d)
        sums = np.zeros((n, columns))
        if self.method.shares:
            sums[:, _SUMS : _SUMS + 2] = count_excess(counts)
        sums[:, 0] = errors
        sums[:, 1] = np.cumsum(counts, axis=1)[:, -1]
        sums[:, 2] = np.count_nonzero(counts, axis=1)
        links = _without_differences(e, self.k) if self._weighs_links else None
        # Takes no memory; updates replace it.
        none = np.broadcast_to(0.0, (n, answer))
        walk = EstimateWalk(local_tree(self.tree, devices), clusters, sums, none, none, links)
        link_weights = np.ones(e) if self._weighs_links else None
        return CouplingEstimateState(start.centroids, np.zeros(n, np.bool_), np.zeros(e), link_weights, None, walk)

    def message(self, state: CouplingEstimateState, devices: Devices) -> SparseMessages:
        """Send means to all neighbors, then sums to the parents and answers to the children, one layer per turn."""
        walk = state.walk
        if walk is None:
            return SparseMessages.empty()
        n = len(devices)
        if devices.round == 0:
            firsts, rows = np.arange(n) * self.k, np.full(n, self.k)
            senders = np.flatnonzero(self.list_senders(state))
            edges = np.flatnonzero(devices.active_edges & self.list_senders(state)[devices.sources])
            tables = Tables(walk.clusters.reshape(n * self.k, devices.d + 1), firsts, rows).take(senders)
            return SparseMessages(senders, tables, edges)
        tree_pass, step = divmod(devices.turn, walk.routes.depth)
        if tree_pass % 2:
            layer = walk.routes.layer(step)
            answers = walk.answers[layer] if tree_pass == 1 else walk.answers[layer, : self._later_answer]
            return send_to_children(walk.routes, single_rows(layer, answers), step, devices)
        layer = walk.routes.layer(walk.routes.depth - step)
        return send_to_parents(walk.routes, single_rows(layer, walk.sums[layer]))

    def list_senders(self, state: CouplingEstimateState) -> Mask:
        """Find the devices that compare their means with those of their neighbors, bool[n]."""
        return np.ones(len(state.converged), np.bool_)

    def update(self, state: CouplingEstimateState, inbox: Delivery, devices: Devices) -> CouplingEstimateState:
        """Compare received means, add received sums, or adopt the received answer."""
        walk = state.walk
        if walk is None:
            return state
        if devices.turn == 0:
            return state._replace(walk=self._compare(walk, inbox, devices))
        received = inbox.tables.flat()
        tree_pass, step = divmod(devices.turn - 1, walk.routes.depth)
        receivers = source_devices(devices, inbox.edges)
        is_last = step == walk.routes.depth - 1
        if tree_pass % 2 == 0:
            sums = walk.sums.copy()
            np.add.at(sums, receivers, received)
            walk = walk._replace(sums=sums)
            return state._replace(walk=self._conclude_at_roots(walk, tree_pass // 2, devices) if is_last else walk)
        answers = walk.answers.copy()
        answers[receivers, : received.shape[1]] = received
        walk = walk._replace(answers=answers)
        if not is_last:
            return state._replace(walk=walk)
        number = tree_pass // 2
        if number == 0:
            walk = walk._replace(noise=answers)
        if number < self._passes - 1:
            return state._replace(walk=walk._replace(sums=self._count_links(walk, number, devices)))
        return self._finish(state, walk, devices)

    def _compare(self, walk: EstimateWalk, inbox: Delivery, devices: Devices) -> EstimateWalk:
        """Compare the local clusters with those of the neighbors; add g / v, 1 and 1 / v over the links of each device.

        They are added at the lower end of a link, over its clusters.
        """
        e = len(devices.indices)
        terms, sums = np.zeros((3, e)), walk.sums.copy()
        links = _without_differences(e, self.k) if self._weighs_links else None
        for edges, squares, variances in compare_clusters(walk.clusters, inbox, devices):
            shared = variances > 0.0
            divisors = np.where(shared, variances, 1.0)
            for row, term in zip(terms, (squares / divisors, shared, shared / divisors), strict=True):
                row[edges] = np.cumsum(term, axis=1, dtype=np.float64)[:, -1]
            if links is not None:
                links.edge_squares[edges], links.edge_variances[edges] = squares, variances
        sources = devices.sources
        lower = devices.ids[sources] < devices.indices
        sources = sources[lower]
        for column, row in zip(range(3, _SUMS), terms, strict=True):
            sums[:, column] = np.bincount(sources, row[lower], len(devices))
        return walk._replace(sums=sums, links=links)

    def _conclude_at_roots(self, walk: EstimateWalk, number: int, devices: Devices) -> EstimateWalk:
        """Compute the answer of pass `number` at the root from the sums of all devices."""
        answers = walk.answers.copy()
        for root in walk.routes.layer(0):
            if number == 0:
                answers[root, :2] = estimate_noise(walk.sums[root, :_SUMS], devices.d)
                if self.method.shares:
                    excess, pairs = walk.sums[root, _SUMS : _SUMS + 2].tolist()
                    answers[root, 2] = find_strength(excess, pairs, self.k)
            else:
                block, rank = walk.answers[root, :2] if number == 2 else (0.0, np.ceil(walk.sums[root].sum() / 2))
                branch, rest = _find_branch(walk.sums[root], rank)
                answers[root, :2] = _BRANCHES * block + branch, rest
        return walk._replace(answers=answers)

    def _count_links(self, walk: EstimateWalk, number: int, devices: Devices) -> Floats:
        """Count the links of each device by intervals of levels, then by the levels of the chosen interval."""
        shifts, shared = _shift_links(walk, devices)
        levels = _find_levels(shifts, _least_scale(walk.noise, devices)[devices.sources])
        counted = (shared > 0) & (devices.ids[devices.sources] < devices.indices)
        if number == 1:
            counted &= levels // _BRANCHES == walk.answers[devices.sources, 0]
        edges = np.flatnonzero(counted)
        branches = levels[edges] // _BRANCHES if number == 0 else levels[edges] % _BRANCHES
        cells = devices.sources[edges] * _BRANCHES + branches
        counts = np.bincount(cells, minlength=len(devices) * _BRANCHES)
        return counts.reshape(len(devices), _BRANCHES).astype(np.float64)

    def _finish(self, state: CouplingEstimateState, walk: EstimateWalk, devices: Devices) -> CouplingEstimateState:
        """Compute the strength of every link; both ends have the same numbers."""
        strong = self.choose_strong(devices, walk.noise[:, 1] == 0.0)
        found = self.find_strengths(walk, devices, strong, weigh=self._weighs_links)
        is_estimated = self.method.coupling in ESTIMATED
        return CouplingEstimateState(
            centroids=state.centroids,
            converged=np.ones(len(devices), np.bool_),
            edge_alpha=found.edge_alpha,
            edge_estimated=found.edge_weights,
            coupling=found.coupling if is_estimated else None,
            walk=None,
            shares=self.find_shares(walk) if self.method.shares else None,
            chosen=np.where(found.is_known, CHOICES.index(self.method.coupling), 0) if is_estimated else None,
        )

    def find_shares(self, walk: EstimateWalk) -> Shares:
        """Compute shares and penalties of the local clusters from the answers of the root."""
        return penalize(walk.clusters[:, :, -1], walk.noise[:, 0], walk.noise[:, _ANSWER])

    def choose_strong(self, devices: Devices, needed: Mask) -> Floats:
        """Choose the coupling "strong" for the component of each device, float64[n]; 0 unless needed, bool[n]."""
        couplings = np.zeros(len(devices))
        numbers = self.components.number[devices.ids[needed]]
        couplings[needed] = choose_couplings(self.topology, self.components, self.k, numbers)
        return couplings

    def find_strengths(self, walk: EstimateWalk, devices: Devices, strong: Floats, *, weigh: bool) -> Strengths:
        """Compute the strength of every link from the answers of the root.

        Parameters
        ----------
        walk : EstimateWalk
        devices : Devices
        strong : float64[n]
            Coupling where nothing can be estimated.
        weigh : bool
            Whether each link has a weight.
        """
        d, sources = devices.d, devices.sources
        noise, difference = walk.noise[:, 0], walk.noise[:, 1]
        is_known = difference > 0.0
        link_weights = None
        if weigh:
            least = _least_scale(walk.noise, devices)
            difference = np.where(is_known, level_values(walk.answers[:, 0].astype(np.int64), least), 0.0)
            shifts, shared = _shift_links(walk, devices)
            compared = d * shared
            excess = shifts / np.where(is_known, difference, 1.0)[sources]
            link_weights = np.where(is_known[sources], (_FREEDOM + compared) / (_FREEDOM + compared * excess), 1.0)
        own = self.components.number[devices.ids]
        links, weight = self.components.links[own], self.components.weight[own]
        # Point weights in place of numbers of points, as in the objective.
        precision = d * noise * devices.unit * (self.components.devices[own] - 1) / np.where(is_known, difference, 1.0)
        alpha = devices.link_weights * (precision / np.where(links > 0.0, 2.0 * links, 1.0))[sources]
        if link_weights is not None:
            alpha = alpha * link_weights
        coupling = precision * self.k / np.where(weight > 0.0, weight, 1.0)
        if not is_known.all():
            # Without noise or clusters in common: on all devices of a component or on none.
            alpha = np.where(is_known[sources], alpha, spread_coupling(strong, self.components, self.k, devices))
            coupling = np.where(is_known, coupling, strong)
        return Strengths(is_known, coupling, alpha * devices.active_edges, link_weights)


def spread_coupling(coupling: Floats, components: Components, k: int, devices: Devices) -> Floats:
    """Compute alpha_ij of every edge, float64[e], for a coupling of each component, float64[n], as for it alone."""
    own = components.number[devices.ids]
    mean = components.weight[own] / components.devices[own]
    return divide_by_degrees((coupling * mean / k)[devices.sources], devices)


def measure_clusters(devices: Devices, centroids: Floats, penalties: Floats | None) -> tuple[Floats, Floats]:
    """Compute mean and number of points of each local cluster, float64[n, k, d + 1], and squared errors, float64[n].

    The numbers are weights in units of the mean weight of a point. The mean of a cluster without points is 0. The error
    is the sum of squared distances of the points from the mean of their cluster.
    """
    n, k, d = centroids.shape
    clusters, errors = np.zeros((n, k, d + 1)), np.zeros(n)
    points, weights, _ = devices.kernel_inputs
    for span, rows, offsets, _, labels in label(devices, centroids, penalties=penalties):
        _, masses, first, second = devices.kernels.cluster_moments(
            points[rows], weights[rows], offsets, labels, centroids[span]
        )
        counted = masses > 0.0
        offset = first / np.where(counted, masses, 1.0)[:, :, None]
        # A cluster with points has a centroid; absent centroids are +inf.
        clusters[span, :, :d] = np.where(counted[:, :, None], centroids[span] + offset, 0.0)
        clusters[span, :, d] = masses / devices.unit
        within = np.cumsum(np.maximum(second - first * offset, 0.0), axis=2)[:, :, -1]
        errors[span] = np.cumsum(within, axis=1)[:, -1] / devices.unit
    return clusters, errors


def _without_differences(e: int, k: int) -> LinkDifferences:
    return LinkDifferences(np.zeros((e, k)), np.zeros((e, k)))


def compare_clusters(clusters: Floats, inbox: Delivery, devices: Devices) -> Iterator[tuple[Integers, Floats, Floats]]:
    """Compare the local clusters with those received over edges.

    In blocks: with millions of devices, the clusters at both ends of all edges take gigabytes.

    Parameters
    ----------
    clusters : float64[n, k, d + 1]
        Mean and number of points of each local cluster.
    inbox : Delivery
        The same of the neighbors.

    Yields
    ------
    edges : int64[b]
    squares, variances : float64[b, k]
        As in `LinkDifferences`.
    """
    (_, k, width), sources = clusters.shape, devices.sources
    for block in blocks(len(inbox.edges), _COMPARED * k * width):
        edges = inbox.edges[block]
        local, other = clusters[sources[edges]], inbox.tables.take(block).flat().reshape(len(edges), k, width)
        shared = find_present(local[:, :, -1]) & find_present(other[:, :, -1])
        squares = np.zeros((len(edges), k))
        for f in range(width - 1):
            squares += (local[:, :, f] - other[:, :, f]) ** 2
        one = np.where(shared, local[:, :, -1], 1.0)
        two = np.where(shared, other[:, :, -1], 1.0)
        yield edges, np.where(shared, squares, 0.0), np.where(shared, 1.0 / one + 1.0 / two, 0.0)


def find_present(counts: Floats) -> Mask:
    """Find the clusters with at least half of m_i / k points, and at least one, bool[b, k]."""
    totals = np.cumsum(counts, axis=1)[:, -1:]
    present: Mask = counts >= np.maximum(1.0, _PRESENT * totals / counts.shape[1])
    return present


def estimate_noise(sums: Floats, d: int) -> tuple[float, float]:
    """Compute the variance within clusters and the mean squared difference of neighbors from the sums of all devices.

    The second one is 0 if there is no noise, or no link whose ends have a cluster in common.
    """
    error, points, cells, ratios, pairs, precisions = sums.tolist()
    noise = error / max(1.0, points - cells) / d
    if not (noise > 0.0 and pairs > 0.0):
        return noise, 0.0
    return noise, max((ratios - pairs * d * noise) / precisions, _LEAST_DIFFERENCE * d * noise)


def level_values(levels: Integers, least: Floats) -> Floats:
    """Compute the squared differences of levels, 2^(1/8) apart; level 0 is the smallest one, `least`."""
    octaves, eighths = np.divmod(levels, _LEVELS_PER_OCTAVE)
    values: Floats = np.ldexp(least * _EIGHTHS[eighths], octaves)
    return values


def _find_levels(shifts: Floats, least: Floats) -> Integers:
    """Find the smallest level that is at least as large as each squared difference, at most 255."""
    levels = np.zeros(len(shifts), np.int64)
    # Bisection over the levels, because a logarithm differs in its last bit between processors.
    for bit in (128, 64, 32, 16, 8, 4, 2, 1):
        levels += np.where(shifts > level_values(levels + bit - 1, least), bit, 0)
    return levels


def _find_branch(counts: Floats, rank: float) -> tuple[int, float]:
    """Find the first count at which the sum reaches a rank, and the rank within it."""
    ends = np.cumsum(counts)
    branch = min(int(np.searchsorted(ends, rank)), len(counts) - 1)
    return branch, rank - float(ends[branch] - counts[branch])


def _shift_links(walk: EstimateWalk, devices: Devices) -> tuple[Floats, Integers]:
    """Compute the mean squared difference beyond noise of each link, float64[e], and its number of shared clusters."""
    assert walk.links is not None
    squares, variances = walk.links
    shared = np.count_nonzero(variances, axis=1)
    excess = np.empty(len(squares))
    for block in blocks(len(squares), squares.shape[1]):
        noise = devices.d * walk.noise[devices.sources[block], :1] * variances[block]
        excess[block] = np.cumsum(np.maximum(squares[block] - noise, 0.0), axis=1)[:, -1]
    return excess / np.maximum(shared, 1), shared


def _least_scale(noise: Floats, devices: Devices) -> Floats:
    """Compute the smallest scale of differences of each device, float64[n], from variance and mean difference."""
    least: Floats = np.maximum(_LEAST_MEDIAN * noise[:, 1], _LEAST_DIFFERENCE * devices.d * noise[:, 0])
    return least
