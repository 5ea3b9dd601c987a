"""Tree Lloyd: exact k-means steps on the points of all devices, by whole-number sums along a spanning tree."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, TreeWalk, Way
from p2pkm.core.messages import DenseMessages, Inbox, silence
from p2pkm.core.protocols import MethodBase, Objective, OnGraph, Pipeline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import one_of, positive, whole
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow
from p2pkm.methods.init.pipelines import group_stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.tree_groups import TreeGroupsState, check_groups, count_groups, take_group
from p2pkm.methods.init.value import Init
from p2pkm.methods.tree import search
from p2pkm.methods.tree.command import (
    ADD,
    BACK,
    ERRORS,
    KEEP,
    MANY,
    MOVE,
    STOP,
    UTILITIES,
    Command,
    change_rows,
    count_bytes,
    read_codes,
)
from p2pkm.methods.tree.regrown_tree import Growth, OverRegrownTree
from p2pkm.methods.tree.root import Root, Totals, decide, start_roots
from p2pkm.network.graph import Topology

_SHORT = 4  # bytes of a number of the first round
_ERROR = 2  # bytes of an error of a row
_UP, _DOWN = 5.0, 3.0  # bits of a number in the first step, about
_INIT = "rows:lean=true"


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
    units : float64[n, 3]
        Step of the grid, unit of the weights and grain of the sums.
    kept, table : float64[n, k, d]
        Steps from the reference: of `centroids`, and of the table that is tried.
    kept_reference : float64[n, k, d]
        The reference of `kept`.
    own : float64[n, k, d + 1]
        Sums and counts of the own points as they were last sent.
    sums : float64[n, k, d + 1]
        Sums and counts of all points below, and the own ones.
    root : Root
        State of the roots.
    up, down : float64[n, r, w]
        What each device sends to its parent and to its children.
    group, tried_group : int64[n] or None
        The groups of the devices, of `centroids` and of the table that is tried; None: all points have one clustering.
    growth : Growth or None
        Each device's part of a tree that is grown by messages; None: the tree of the whole graph.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    reference: Floats
    units: Floats
    kept: Floats
    table: Floats
    kept_reference: Floats
    own: Floats
    sums: Floats
    root: Any
    up: Floats
    down: Floats
    group: Integers | None = None
    tried_group: Integers | None = None
    growth: Growth | None = None


@dataclass(frozen=True)
class TreeLloyd(MethodBase):
    r"""Add up the clusters of all devices along a spanning tree, and take the same Lloyd step everywhere.

    All devices hold the same table ``w_c = R_c + s Z_c``: R is the table at the start, Z whole numbers, 0 at first,
    and s the step of a grid: 0.3 standard errors of the mean of a cluster, ``s = 0.3 sqrt(k / m) sigma`` with m points
    of standard deviation sigma within clusters at the start (at least 2^-6 sigma). A round is one step:

    * up: with the n_ic own points nearest to w_c, device i adds ``S_ic = rint(sum (x - R_c) / (g s))`` and n_ic to what
      its children sent and sends to its parent by how much this has changed, and the cost of all points below.
    * at the root: ``z_c = rint(g S_c / n_c) - Z_c`` of the sums of all devices; 0 where n_c is 0.
    * down: z; all set ``Z <- Z + z``.

    If the pooled cost of a table did not fall, all go back to the table before and stop. They stop, too, when z is 0
    and when the cost fell by less than `tol` of itself. The tree is breadth first from near the middle of each
    component of the graph (`Topology.spanning_tree`) and known to all; each component has a clustering of its own. A
    star is a tree of depth 1: so a server would run the same.

    In a first round weight, cost at the start and the number of rows with points go up, s and the grain g come down, a
    whole number: rounding sums to multiples of g s raises the cost at most as much as rounding rows to multiples of s.
    Once the cost is below a quarter of what s was chosen by, all halve s as often as that and keep the table, and the
    sums change by what they are in the new numbers.

    With `groups` each group of devices has a table of its own. Rows of all devices go up the tree, tables T_1, ..., T_G
    of all groups come down (see `p2pkm.methods.init.tree_groups`), and a step is one of all G k rows: a device takes
    the group g of least own loss ``L_i(T_g)`` in every step, and its points count for the rows of this group alone.
    Where the guarantee says pooled cost, it is then ``F = sum_i min_g L_i(T_g)``.

    Message: k rows (S, n) and a row with the cost up, k rows z and a row with an order down, once per link and round.
    G k rows with groups. On the wire: whole numbers in Rice or adaptive code, costs in 8 bytes, orders in 1 byte.

    Under faults, where devices leave and return: they grow the tree by messages, and anew when one is missing or back;
    see `p2pkm.methods.tree.regrown_tree`. Sums and certificate begin anew each time, from the last table of
    the new root and on a grid of its own, of the points of all devices that are there and connected. Devices that are
    cut off from each other go on separately. Messages between those who are there must arrive.

    Guarantee: the pooled cost of the recorded tables never rises, in whatever order sums are added; the last table is a
    Lloyd point of all points on the grid if no step made the cost rise and tol is 0. Whole numbers add up without
    rounding, so sums do not depend on the tree.

    Link weights: ignored; messages follow a spanning tree of fewest hops.

    Privacy: no guarantee; a leaf sends sums and counts of its own points to its parent, and then by how much they
    changed: where one point changes its cluster, that is this point, rounded to g steps. Nobody receives what is not
    below it in the tree; all receive the centroids, with `groups` those of all groups. The sums of a leaf are in the
    rows of one group, so its parent sees which group it takes. `min_cluster_size` is refused for that reason.

    Parameters
    ----------
    k : int
        Number of clusters.
    init : Init or str
        How all devices get the same first centroids; not `local`.
    tol : float
        Relative fall of the pooled cost below which all stop.
    search : {"none", "breathing"}
        What follows the last step: breathing puts up to 5 rows where the error is large and takes out as many of the
        least utility, at most 10 times, and keeps what lowers the pooled cost; errors and utilities go up the tree as
        16-bit numbers when the root asks for them. See `p2pkm.methods.tree.search`.
    groups : int, "auto" or False
        How many groups of devices have clusterings of their own; auto: the root chooses their number; False: all
        points have one clustering. Groups bring their own start, so `init` stays at its default, and there is no
        search then.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or an initialization leaves devices with different centroids.

    References
    ----------
    S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982. I. S. Dhillon,
    D. S. Modha, "A data-clustering algorithm on distributed memory multiprocessors", 1999: the same sums with a
    reduction of all processors.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.TreeLloyd(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["wire_bytes"]
    (1.003, 168)
    """

    k: int
    _: KW_ONLY
    init: Init | str = _INIT
    tol: float = 1e-5
    search: Literal["none", "breathing"] = "none"
    groups: int | Literal["auto"] | bool = False

    name: ClassVar[str] = "treelloyd"
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"
    objective: ClassVar[Objective] = Objective()
    regrows: ClassVar[bool] = False  # whether devices grow their tree by messages, see `under_faults`

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        init = Init.of(self.init)
        object.__setattr__(self, "init", init)
        whole(self.k, 1, "clusters")
        positive(self.tol, "tol", zero=True)
        one_of(self.search, ("none", "breathing"), "search")
        if self.groups is not False:
            object.__setattr__(self, "groups", check_groups(self.groups))
            asked = {f"init {init}": init != Init.of(_INIT), "search=breathing": self.search != "none"}
            for name in (name for name, given in asked.items() if given):
                raise ExperimentError(
                    f"groups and {name} are both given; leave out one of them: groups bring their own start, and their "
                    "rows are not searched"
                )
        if init.name == "local" or "hops" in dict(init.options):
            raise ExperimentError(
                f"init is {init}, which gives devices different centroids; {self.name} adds up rows by their number, "
                "so all need the same ones. Take rows, tree-summaries, flooded-summaries without hops, leader or "
                "bounding-box"
            )

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            no_suppression="sends by how much sums of single devices change, which may be by a single point",
            needs_reliable_links="adds up sums along a tree, whose messages must arrive in their turn",
            tolerates_absence=True,
            needs_static_links="adds up sums along a spanning tree, whose links have to last",
            needs_honest_messages=True,
            no_quantization="sends whole numbers already",
            needs_shared_start=True,
            init=self.init,
            groups=self.groups,
            follows_points=self.groups is False and self.search == "none",
            guarantees_descent=True,
        )

    def stages(self, at: InitContext) -> Pipeline:
        """Find groups in the place of the initialization, if asked for."""
        return Pipeline(seeding=(group_stage(self, at),)) if self.groups else Pipeline()

    def on(self, topology: Topology) -> "TreeLloydOnGraph | OverRegrownTree":
        """Return the algorithm that the loop runs, over a spanning tree of the graph."""
        on_graph = TreeLloydOnGraph(self, grow(topology))
        return OverRegrownTree(on_graph) if self.regrows else on_graph

    def under_faults(self, topology: Topology) -> "TreeLloyd":
        """Return the method whose devices grow their tree by messages, anew when one is missing."""
        return self.replaced(regrows=True)


@dataclass(frozen=True)
class TreeLloydOnGraph(OnGraph):
    """`TreeLloyd` along trees, layer by layer."""

    method: TreeLloyd
    tree: Tree

    cost_bytes: ClassVar[int] = 8

    @property
    def searches(self) -> bool:
        """Return whether rows are added and taken out."""
        return self.method.search == "breathing"

    @property
    def places(self) -> int:
        """Return how many rows a table has room for."""
        return self.k + search.MOST * self.searches

    @property
    def grouped(self) -> bool:
        """Return whether groups of devices have tables of their own."""
        return self.method.groups is not False

    @property
    def counts(self) -> tuple[int, bool]:
        """Return how many tables there are at most, and whether just so many."""
        return count_groups(self.method.groups, len(self.tree.parent)) if self.grouped else (1, True)

    @property
    def depth(self) -> int:
        """Return how many turns a way takes."""
        return tree_sums.depth_of(self.tree)

    @property
    def schedule(self) -> str:
        """Return the schedule: a round has the turns of both ways, and one in which the last messages are read."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreeWalk:
        """Expect moments up and units down; then sums and a cost up, moves and a command down."""
        (parent, layers), d = self.tree, known.features
        one, sure = np.ones(len(layers), np.int64), np.ones(len(layers), np.bool_)
        count, fixed = self.counts
        rows, sized = one * (self.places * count + 1), sure & fixed
        short = 8.0 * _SHORT
        return TreeWalk(
            parent, layers,
            (Way(True, one, tree_sums.MOMENTS, sure, short), Way(False, one, tree_sums.UNITS, sure, short)),
            (Way(True, rows, d + 1 + self.searches, sized, _UP), Way(False, rows, d, sized, _DOWN)),
        )  # fmt: skip

    def flops(self, work: Work) -> Integers:
        """Count a pass over the own points per round, in shares of what a device receives in it, and the additions."""
        degrees = np.bincount(self.tree.parent[self.tree.parent >= 0], minlength=len(self.tree.parent))
        degrees += self.tree.parent >= 0
        count, _ = self.counts
        passes = work.sizes * (3 * self.k + 2) * work.d * count
        return passes * work.rows // np.maximum(degrees * (self.places * count + 1), 1) + work.rows * (work.d + 1)

    def initial_state(self, devices: Devices, start: Any) -> TreeLloydState:
        """Start from the centroids of the last stage, with room for the rows of a search."""
        n, _, d = start.centroids.shape
        more = np.full((n, self.places - self.k, d), np.inf)
        reference = np.concatenate((start.centroids, more), axis=1) if self.searches else start.centroids
        group = np.zeros(n, np.int64) if self.grouped else None
        if isinstance(start, TreeGroupsState):
            group, reference = start.group, start.tables
        table, sums = np.zeros(reference.shape), np.zeros((*reference.shape[:2], d + 1))
        state = TreeLloydState(
            start.centroids, start.centroids, np.zeros(n, np.bool_), reference, np.zeros((n, tree_sums.UNITS)), table,
            table, reference, sums, sums, self.start_roots(n, reference.shape[1]), np.zeros((n, 1, 1)),
            np.zeros((n, 1, tree_sums.UNITS)), group, group,
        )  # fmt: skip
        return state._replace(up=self.moments(state, devices))

    def message(self, state: TreeLloydState, devices: Devices) -> DenseMessages:
        """Send what is due, if it is the layer's turn."""
        position = tree_sums.due(devices, self.depth)
        if not position.walks:
            return silence(len(devices), 1, 1)
        first = devices.round < 2
        if first:
            tables = tree_sums.shorten(state.up if position.up else state.down)
        else:
            tables = self.outgoing(state, up=position.up)
        sent = tree_sums.send(position, self.tree, devices, tables, ~state.converged)
        who, wire = np.flatnonzero(sent.rows >= 0), np.zeros(len(devices), np.int64)
        if not len(who):
            return sent
        wire[who] = (
            _SHORT * tables.shape[2] if first else self.count_wire(state, who, tables[who], devices, up=position.up)
        )
        return sent._replace(wire=wire)

    def outgoing(self, state: TreeLloydState, *, up: bool) -> Floats:
        """Select the tables of sums, costs and errors for parents, or of commands and moves for children."""
        if not (up and self.searches):
            return state.up if up else state.down
        return put(state.up, (..., -1), search.shorten(state.up[..., -1]))

    def count_wire(
        self, state: TreeLloydState, who: Integers, tables: Floats, devices: Devices, *, up: bool
    ) -> Integers:
        """Return the bytes on the wire of the tables of some devices, int64[b].

        What goes up: whole numbers, the cost, errors if asked for.
        """
        if not up:
            return count_bytes(tables, devices)
        real = np.isfinite(state.reference[who, :, 0]).sum(axis=1)
        changes = tables[:, :-1, :-1] if self.searches else tables[:, :-1]
        errors = np.where(tables[:, -1, -1] > 0.0, _ERROR * real, 0) if self.searches else 0
        return to_bytes(devices.kernels.integer_bits(changes.astype(np.int64))) + self.cost_bytes + errors

    def update(self, state: TreeLloydState, inbox: Inbox, devices: Devices) -> TreeLloydState:
        """Measure at the start of a round; then take in what came up or down, and decide at the roots in between."""
        first, position = devices.round == 1, tree_sums.received(devices, self.depth)
        if devices.turn == 0 and not first:
            state = self.measure(state, devices)
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
            state = self._announce_units(state, who, devices) if first else self.decide(state, who, devices)
        elif position.up:
            return state
        if first:
            state = state._replace(units=put(state.units, who, state.down[who, 0, : tree_sums.UNITS]))
        else:
            state = self.apply_commands(state, who, devices)
        return self._check_termination(state, first=first) if position.ends else state

    def _check_termination(self, state: TreeLloydState, *, first: bool) -> TreeLloydState:
        """Mark devices as converged whose command is to stop, or whose points have no spread."""
        done = state.units[:, 0] == 0.0 if first else self.stops(state)
        return state._replace(converged=state.converged | done)

    def _announce_units(self, state: TreeLloydState, roots: Integers, devices: Devices) -> TreeLloydState:
        """Return the state in which the roots have chosen step and unit."""
        return state._replace(
            down=put(state.down, roots, self.choose_units(state, roots, state.up[roots], devices)[:, None])
        )

    def measure(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Begin a step: prepare what goes up, the change of the own sums, the own cost, and errors if asked for."""
        n, rows, d = state.table.shape
        table = place(state.reference, state.units, state.table)
        if state.tried_group is None:
            own, costs = tree_sums.count_own(devices, table, state.reference, state.units)
        else:
            group, own, costs = self._count_groups(state, state.tried_group, table, devices)
            state = state._replace(tried_group=group)
        scale = state.units[:, 0] ** 2 * state.units[:, 1]
        up = np.zeros((n, rows + 1, d + 1 + self.searches))
        up[:, :rows, : d + 1], up[:, rows, 0] = own - state.own, costs / np.where(scale > 0.0, scale, 1.0)
        if self.searches:
            asked = read_codes(state.down) if devices.round > 2 else np.zeros(n, np.int64)
            for code, utility in ((ERRORS, False), (UTILITIES, True)):
                who = (asked & code) > 0
                if who.any():
                    up[who, rows, -1] = 1.0  # errors were asked for
                    up[who, :rows, -1] = search.sum_errors(devices, table, scale, utility=utility)[who]
        return state._replace(own=own, up=up, down=np.zeros((n, rows + 1, d)))

    def _count_groups(
        self, state: TreeLloydState, present: Integers, table: Floats, devices: Devices
    ) -> tuple[Integers, Floats, Floats]:
        """Return the group of least own loss, int64[n], the present one on ties, and sums and loss with its table."""
        (n, rows, d), k, every = table.shape, self.k, np.arange(len(table))
        sums, costs = np.zeros((n, rows // k, k, d + 1)), np.zeros((n, rows // k))
        for g in range(rows // k):
            own = slice(g * k, g * k + k)
            sums[:, g], costs[:, g] = tree_sums.count_own(devices, table[:, own], state.reference[:, own], state.units)
        least = np.argmin(costs, axis=1) if len(every) else present  # a rank without devices knows no tables
        group = np.where(costs[every, present] > costs[every, least], least, present)
        sums[np.arange(rows // k) != group[:, None]] = 0.0
        return group, sums.reshape(n, rows, d + 1), costs[every, group]

    def decide(self, state: TreeLloydState, roots: Integers, devices: Devices) -> TreeLloydState:
        """Write the commands of the roots, which have received all sums."""
        sums, down = state.sums.copy(), state.down.copy()
        sums[roots] += state.up[roots, :-1, : sums.shape[2]]
        moves = tree_sums.find_moves(sums[roots], state.table[roots], state.units[roots, 2])
        state = state._replace(sums=sums, down=down)
        memory = [one.copy() for one in state.root]
        for i, move in zip(roots.tolist(), moves, strict=True):
            totals = self._total(state, i, move, devices)
            after, command = self.choose_command(type(state.root)(*(one[i] for one in memory)), totals)
            for one, value in zip(memory, after, strict=True):
                one[i] = value
            command.write(down[i], move)
        return state._replace(root=type(state.root)(*memory))

    def start_roots(self, n: int, rows: int) -> Any:
        """Create the states of n roots before their first round."""
        return start_roots(n, rows)

    def choose_command(self, root: Any, totals: Totals) -> tuple[Any, Command]:
        """Decide at a root: its next state, and its command."""
        return decide(root, totals, self.method.tol, searches=self.searches)

    def _total(self, state: TreeLloydState, root: int, moves: Floats, devices: Devices) -> Totals:
        """Collect the totals of a root."""
        cost, units = float(state.up[root, -1, 0]), state.units[[root]]
        rows = place(state.reference[[root]], units, state.table[[root]])[0]
        mass = float(units[0, 1]) * state.sums[root, :, -1:].sum(axis=0)
        real = np.isfinite(state.reference[[root], :, 0]).sum(axis=1)
        wish = tree_sums.find_step(cost * units[:, 1], mass, real, rows.shape[1], devices.unit)
        return Totals(
            cost, state.sums[root, :, -1], moves, state.up[root, :-1, -1], rows,
            np.isfinite(state.kept_reference[root, :, 0]),
            tree_sums.count_halvings(1.0, float(wish[0]), state.table[root]),
        )  # fmt: skip

    def apply_commands(self, state: TreeLloydState, who: Integers, devices: Devices) -> TreeLloydState:
        """Apply the commands that some devices hold."""
        codes, moves = read_codes(state.down[who])[:, None, None], state.down[who, 1:]
        table, reference, own, sums = state.table[who], state.reference[who], state.own[who], state.sums[who]
        kept = np.where(codes & KEEP, table, state.kept[who])
        base = np.where(codes & KEEP, reference, state.kept_reference[who])
        table, found = np.where(codes & BACK, kept, table), np.where(codes & BACK, base, reference)
        table = table + np.where(codes & MOVE, moves, 0.0)
        finer = np.exp2(np.where(codes & ADD, 0, codes // MANY))
        table, kept = table * finer, kept * finer
        units = np.column_stack((state.units[who, 0] / finer[:, 0, 0], state.units[who, 1:]))
        if self.searches:
            table, found = change_rows(table, found, state.down[who], devices)
            fresh = (found != reference).any(axis=2)[:, :, None]  # rows of which nothing was sent
            own, sums = np.where(fresh, 0.0, own), np.where(fresh, 0.0, sums)
        if state.group is not None and state.tried_group is not None:
            group = np.where(codes[:, 0, 0] & KEEP, state.tried_group[who], state.group[who])
            state = state._replace(group=put(state.group, who, group))
        rows = self._choose_rows(state, who, place(base, units, kept))
        return state._replace(
            centroids=put(state.centroids, who, rows), previous=put(state.previous, who, state.centroids[who]),
            kept=put(state.kept, who, kept), table=put(state.table, who, table),
            reference=put(state.reference, who, found), kept_reference=put(state.kept_reference, who, base),
            own=put(state.own, who, own), sums=put(state.sums, who, sums), units=put(state.units, who, units),
        )  # fmt: skip

    def _choose_rows(self, state: TreeLloydState, who: Integers, rows: Floats) -> Floats:
        """Return the centroids of some devices, float64[b, k, d], of all rows of their tables."""
        if self.searches:
            order = np.argsort(~np.isfinite(rows[:, :, 0]), axis=1, kind="stable")[:, : self.k]
            rows = np.take_along_axis(rows, order[:, :, None], axis=1)
        return self._own_rows(state, who, rows)

    def _own_rows(self, state: TreeLloydState, who: Integers, rows: Floats) -> Floats:
        """Return the rows of the groups of some devices."""
        return rows if state.group is None else take_group(rows, state.group[who], self.k)

    def latest(self, state: TreeLloydState) -> Floats:
        """Return the table from which every device would begin anew, float64[n, r, d].

        It is the one that is tried, for that is a Lloyd step from the certified one; amid a search the certified one.
        """
        kept, tried = (place(base, state.units, steps) for base, steps in (
            (state.kept_reference, state.kept), (state.reference, state.table)))  # fmt: skip
        same = (np.isfinite(kept) == np.isfinite(tried)).all(axis=(1, 2))
        return np.where(same[:, None, None], tried, kept)

    def moments(self, state: TreeLloydState, devices: Devices) -> Floats:
        """Return `tree_sums.measure` of the own points with the last table, float64[n, 1, 4]."""
        return tree_sums.measure(devices, self._own_rows(state, np.arange(len(devices)), self.latest(state)))

    def choose_units(self, state: TreeLloydState, who: Integers, moments: Floats, devices: Devices) -> Floats:
        """Return step, unit and grain for points of these moments, float64[b, 3]; see `tree_sums.measure`."""
        reference = state.reference[who]
        rows = np.isfinite(reference[:, :, 0]).sum(axis=1)
        return tree_sums.choose_units(moments, rows, devices.d, devices.unit)

    def restart(self, state: TreeLloydState, who: Integers, table: Floats, units: Floats) -> TreeLloydState:
        """Return the state in which some devices begin anew: from a table, float64[b, r, d], on a grid of its own."""
        rows = self._choose_rows(state, who, table)
        return state._replace(
            centroids=put(state.centroids, who, rows), previous=put(state.previous, who, state.centroids[who]),
            reference=put(state.reference, who, table), kept_reference=put(state.kept_reference, who, table),
            kept=put(state.kept, who, 0.0), table=put(state.table, who, 0.0), units=put(state.units, who, units),
            own=put(state.own, who, 0.0), sums=put(state.sums, who, 0.0),
            root=Root(*map(put, state.root, [who] * len(Root._fields), start_roots(len(who), table.shape[1]))),
        )  # fmt: skip

    def stops(self, state: TreeLloydState) -> Mask:
        """Find the devices whose command is to stop, bool[n]."""
        return (read_codes(state.down) & STOP) > 0


def place(reference: Floats, units: Floats, steps: Floats) -> Floats:
    """Compute the rows of a table of whole numbers, float64[n, r, d]."""
    return reference + units[:, 0, None, None] * steps


def put(values: Any, where: Any, some: Any) -> Any:
    """Copy values and replace some of them."""
    found = values.copy()
    found[where] = some
    return found
