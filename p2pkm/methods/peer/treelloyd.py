"""Tree Lloyd: exact k-means steps on the points of all devices, by whole-number sums along a spanning tree."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, TreeWalk, Way
from p2pkm.core.messages import DenseMessages, Inbox, silence
from p2pkm.core.protocols import MethodBase, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.core.wire_format import integer_bytes
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

_FINENESS = 9  # the step is 2^-9 of the root of the total variance
_KEEP, _BACK, _MOVE, _STOP = 1, 2, 4, 8  # what an order tells, added up
_COST, _ORDER = 8, 1  # bytes


@register("treelloyd")
class TreeLloydState(NamedTuple):
    """State of a batch; whole numbers are float64.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        The last table whose pooled cost is known not to have risen, and the one before.
    converged : bool[n]
    reference : float64[n, k, d]
        The table at the start; +inf where a row is absent.
    units : float64[n, 2]
        Step of the grid and unit of the weights.
    kept, table : float64[n, k, d]
        Steps from the reference: of `centroids`, and of the table that is tried.
    own : float64[n, k, d + 1]
        Sums and counts of the own points as they were last sent.
    sums : float64[n, k, d + 1]
        Sums and counts of all points below, and the own ones.
    costs : float64[n]
        At a root the pooled cost of `kept`, +inf before it is known.
    up, down : float64[n, r, w]
        What each device sends to its parent and to its children.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    reference: Floats
    units: Floats
    kept: Floats
    table: Floats
    own: Floats
    sums: Floats
    costs: Floats
    up: Floats
    down: Floats


@dataclass(frozen=True)
class TreeLloyd(MethodBase):
    r"""Add up the clusters of all devices along a spanning tree, and take the same Lloyd step everywhere.

    All devices hold the same table ``w_c = R_c + s Z_c``: R is the table at the start, Z whole numbers, 0 at first,
    and ``s = 2^-9 sqrt(total variance)`` the step of a grid. A round is one step:

    * up: with the n_ic own points nearest to w_c, device i adds ``S_ic = rint(sum (x - R_c) / s)`` and n_ic to what its
      children sent and sends to its parent by how much this has changed, and the cost of all points below.
    * at the root: ``z_c = rint(S_c / n_c) - Z_c`` of the sums of all devices; 0 where n_c is 0.
    * down: z; all set ``Z <- Z + z``.

    If the pooled cost of a table did not fall, all go back to the table before and stop. They stop, too, when z is 0
    and when the cost fell by less than `tol` of itself. The tree is breadth first from the middle of each component of
    the graph and known to all; each component has a clustering of its own. In a first round the total variance goes up
    and s comes down. A star is a tree of depth 1: so a server would run the same.

    Message: k rows (S, n) and a row with the cost up, k rows z and a row with an order down, once per link and round.
    On the wire: whole numbers in Rice code, costs in 8 bytes, orders in 1 byte.

    Guarantee: the pooled cost of the recorded tables never rises, in whatever order sums are added; the last table is a
    Lloyd point of all points on the grid if no step made the cost rise and tol is 0. Whole numbers add up without
    rounding, so sums do not depend on the tree.

    Privacy: a leaf sends sums and counts of its own points to its parent, and then by how much they changed: where one
    point changes its cluster, that is this point, rounded to the grid. Nobody receives what is not below it in the
    tree; all receive the centroids. `min_cluster_size` is refused for that reason.

    Parameters
    ----------
    k : int
        Number of clusters.
    init : Init or str
        How all devices get the same first centroids; not `local`.
    tol : float
        Relative fall of the pooled cost below which all stop.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or an initialization leaves devices with different centroids.

    References
    ----------
    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982. I. S. Dhillon,
    D. S. Modha, "A data-clustering algorithm on distributed memory multiprocessors", 1999: the same sums with a
    reduction of all processors.
    """

    k: int
    _: KW_ONLY
    init: Init | str = "tree-summaries:candidates=5"
    tol: float = 1e-5

    name: ClassVar[str] = "treelloyd"
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        init = Init.of(self.init)
        object.__setattr__(self, "init", init)
        whole(self.k, 1, "clusters")
        positive(self.tol, "tol", zero=True)
        if init.name == "local" or "hops" in dict(init.options):
            raise ExperimentError(
                f"init is {init}, which gives devices different centroids; {self.name} adds up rows by their number, "
                "so all need the same ones. Take tree-summaries, flooded-summaries without hops, leader or bounding-box"
            )

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            no_suppression="sends by how much sums of single devices change, which may be by a single point",
            needs_reliable_links="adds up changes along a tree, each of which must arrive in its turn",
            needs_static_links="adds up sums along a spanning tree, whose links have to last",
            needs_honest_messages=True,
            needs_shared_start=True,
            init=self.init,
            has_objective=True,
            guarantees_descent=True,
        )

    def on(self, topology: Topology) -> "OverTree":
        """Return the algorithm that the loop runs, over a spanning tree of the graph."""
        return OverTree(self, grow(topology))


@dataclass(frozen=True)
class OverTree(MethodBase):
    """`TreeLloyd` along trees, layer by layer."""

    method: TreeLloyd
    tree: Tree

    @property
    def k(self) -> int:
        """Return the number of clusters."""
        return self.method.k

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return self.method.traits

    @property
    def depth(self) -> int:
        """Return how many turns a way takes."""
        return tree_sums.depth_of(self.tree)

    @property
    def schedule(self) -> str:
        """Return the schedule: a round has the turns of both ways, and one in which the last messages are read."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreeWalk:
        """Return the moments up and the units down; then sums and a cost up, moves and an order down."""
        (parent, layers), d = self.tree, known.features
        one, sure = np.ones(len(layers), np.int64), np.ones(len(layers), np.bool_)
        rows = one * (self.k + 1)
        return TreeWalk(
            parent, layers, (Way(True, one, 3 + d, sure), Way(False, one, 2, sure)),
            (Way(True, rows, d + 1, sure), Way(False, rows, d, sure)),
        )  # fmt: skip

    def flops(self, work: Work) -> Integers:
        """Count a pass over the own points per round, in shares of what a device receives in it, and the additions."""
        degrees = np.bincount(self.tree.parent[self.tree.parent >= 0], minlength=len(self.tree.parent))
        degrees += self.tree.parent >= 0
        passes = work.sizes * (3 * self.k + 2) * work.d
        return passes * work.rows // np.maximum(degrees * (self.k + 1), 1) + work.rows * (work.d + 1)

    def link_alpha(self, devices: Devices) -> Floats:
        """Return 0 for every own link, float64[e]: what is minimized is the cost of all points."""
        return np.zeros(len(devices.indices))

    def penalties(self, state: Any, devices: Devices, gtv: Floats) -> Floats:
        """Return 0 for every own link, float64[e]: while all hold the same table, the objective is the pooled cost."""
        return np.zeros(len(devices.indices))

    def initial_state(self, devices: Devices, start: Any) -> TreeLloydState:
        """Start from the centroids of the last stage."""
        n, k, d = start.centroids.shape
        table, sums = np.zeros((n, k, d)), np.zeros((n, k, d + 1))
        return TreeLloydState(
            start.centroids, start.centroids, np.zeros(n, np.bool_), start.centroids, np.zeros((n, 2)), table, table,
            sums, sums, np.full(n, np.inf), tree_sums.measure(devices), np.zeros((n, 1, 2)),
        )  # fmt: skip

    def message(self, state: TreeLloydState, devices: Devices) -> DenseMessages:
        """Send what is due, if it is the layer's turn."""
        position = tree_sums.due(devices, self.depth)
        if not position.walks:
            return silence(len(devices), 1, 1)
        tables = state.up if position.up else state.down
        said = tree_sums.send(position, self.tree, devices, tables, ~state.converged)
        who = np.flatnonzero(said.rows >= 0)
        if devices.round < 2 or not len(who):  # numbers of 8 bytes
            return said
        return said._replace(wire=self._count_bytes(tables, who, up=position.up))

    def _count_bytes(self, tables: Floats, who: Integers, *, up: bool) -> Integers:
        """Return the bytes on the wire of what some devices send, int64[n]: whole numbers, and a cost or an order."""
        wire, k, own = np.zeros(len(tables), np.int64), self.k, tables[who]
        whole = own[:, :k] if up else own[:, 1:]
        wire[who] = integer_bytes(whole.astype(np.int64)) + (_COST if up else _ORDER)
        if not up:
            wire[who[(own[:, 0, 0].astype(np.int64) & _MOVE) == 0]] = _ORDER
        return wire

    def update(self, state: TreeLloydState, inbox: Inbox, devices: Devices) -> TreeLloydState:
        """Measure at the start of a round; then take in what came up or down, and decide at the roots in between."""
        first, position = devices.round == 1, tree_sums.received(devices, self.depth)
        if devices.turn == 0 and not first:
            state = self._measure(state, devices)
        if not position.walks:
            return state
        if not position.up:
            who, down = tree_sums.take_parents(state.down, inbox, devices)
            state = state._replace(down=down)
        elif first:
            state = state._replace(up=tree_sums.merge_children(state.up, inbox, devices))
        else:
            state = state._replace(up=tree_sums.add_children(state.up, inbox, devices))
        if position.at_roots:
            who = np.flatnonzero((self.tree.parent[devices.ids] < 0) & ~state.converged)
            state = _choose_units(state, who) if first else self._decide(state, who)
        elif position.up:
            return state
        state = state._replace(units=_put(state.units, who, state.down[who, 0, :2])) if first else _obey(state, who)
        return _check_termination(state, first=first) if position.ends else state

    def _measure(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Begin a step: prepare what goes up, the change of the own sums and the own cost."""
        n, k, d = state.table.shape
        table = _place(state.reference, state.units, state.table)
        own, costs = tree_sums.count_own(devices, table, state.reference, state.units)
        up = np.zeros((n, k + 1, d + 1))
        up[:, :k], up[:, k, 0] = own - state.own, costs
        return state._replace(own=own, up=up, down=np.zeros((n, k + 1, d)))

    def _decide(self, state: TreeLloydState, roots: Integers) -> TreeLloydState:
        """Return the state in which the roots have made up their orders."""
        k, sums, costs, down = self.k, state.sums.copy(), state.costs.copy(), state.down.copy()
        sums[roots] += state.up[roots, :k]
        before, now = costs[roots], state.up[roots, k, 0]
        moves = tree_sums.find_moves(sums[roots], state.table[roots])
        fell, known = now < before, np.isfinite(before)
        little = known & (before - now < self.method.tol * np.where(known, before, 0.0))
        still = little | ~np.any(moves, axis=(1, 2))
        down[roots, 0, 0] = np.where(fell, np.where(still, _KEEP + _STOP, _KEEP + _MOVE), _BACK + _STOP)
        down[roots, 1:] = np.where((fell & ~still)[:, None, None], moves, 0.0)
        costs[roots] = np.where(fell, now, before)
        return state._replace(sums=sums, costs=costs, down=down)


def _choose_units(state: TreeLloydState, roots: Integers) -> TreeLloydState:
    """Return the state in which the roots have chosen step and unit."""
    units = tree_sums.choose_units(state.up[roots], _FINENESS)
    return state._replace(down=_put(state.down, roots, units[:, None]))


def _obey(state: TreeLloydState, who: Integers) -> TreeLloydState:
    """Return the state in which some devices have followed the order that they hold."""
    told, table = state.down[who, 0, 0].astype(np.int64)[:, None, None], state.table[who]
    kept = np.where(told & _KEEP, table, state.kept[who])
    table = np.where(told & _BACK, kept, table) + state.down[who, 1:]
    before = state.centroids[who]
    return state._replace(
        centroids=_put(state.centroids, who, _place(state.reference[who], state.units[who], kept)),
        previous=_put(state.previous, who, before), kept=_put(state.kept, who, kept),
        table=_put(state.table, who, table),
    )  # fmt: skip


def _check_termination(state: TreeLloydState, *, first: bool) -> TreeLloydState:
    """Return the state in which those are done whose order was to stop, or whose points have no spread."""
    done = state.units[:, 0] == 0.0 if first else (state.down[:, 0, 0].astype(np.int64) & _STOP) > 0
    return state._replace(converged=state.converged | done)


def _place(reference: Floats, units: Floats, steps: Floats) -> Floats:
    """Return where the rows of a table of whole numbers are."""
    return reference + units[:, 0, None, None] * steps


def _put(values: Floats, who: Integers, some: Floats) -> Floats:
    """Return a copy with the values of some devices replaced."""
    found = values.copy()
    found[who] = some
    return found
