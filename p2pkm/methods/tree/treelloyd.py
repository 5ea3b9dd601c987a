"""Tree Lloyd: Lloyd steps on the pooled points, by integer sums along a spanning tree."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.card import Card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase, Objective, OnGraph, Pipeline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.methods.init.pipelines import Stage, group_stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.tree_groups import TreeGroupsState, check_groups, count_groups, select_group
from p2pkm.methods.init.value import Init
from p2pkm.methods.tree import search
from p2pkm.methods.tree.command import (
    ADD,
    ERRORS,
    FACTOR,
    KEEP,
    MOVE,
    REVERT,
    STOP,
    UTILITIES,
    Command,
    change_rows,
    count_bytes,
    read_codes,
)
from p2pkm.methods.tree.regrown_tree import ElectedTreeMethod, ElectionState
from p2pkm.methods.tree.root import Root, Totals, decide, start_roots
from p2pkm.network.graph import Topology

# Encoded bytes of a number in round 1, and of an error of a row in a search.
_SHORT_BYTES = 4
_ERROR_BYTES = 2
# Approximate encoded bits of a number in the first Lloyd step, up and down, for `p2pkm plan`.
_BITS_UP = 5.0
_BITS_DOWN = 3.0
_INIT = "rows:lean=true"


@register("treelloyd")
class TreeLloydState(NamedTuple):
    """State of a batch; integers are stored as float64.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        Recorded centroids, whose pooled cost has not increased, and those before.
    converged : bool[n]
    reference : float64[n, r, d]
        Initial centroids R, with room for rows of a search; absent rows are +inf.
    units : float64[n, 3]
        Step of the grid, unit of the weights and grain of the sums.
    accepted, table : float64[n, r, d]
        Integers Z of the accepted table, which is recorded in `centroids`, and of the table tried in this round.
    accepted_reference : float64[n, r, d]
        Reference of `accepted`.
    sent_sums : float64[n, r, d + 1]
        Local sums and counts as they were sent last.
    sums : float64[n, r, d + 1]
        Sums and counts of all points below the device and its local points.
    root : Root
        State of the roots.
    up, down : float64[n, h, w]
        Tables for the parent and for the children.
    group, tried_group : int64[n] or None
        Group of each device, in the accepted and in the tried table; None without groups.
    growth : ElectionState or None
        Local part of a tree that is built by messages; None: spanning tree of the whole graph.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    reference: Floats
    units: Floats
    accepted: Floats
    table: Floats
    accepted_reference: Floats
    sent_sums: Floats
    sums: Floats
    root: Any
    up: Floats
    down: Floats
    group: Integers | None = None
    tried_group: Integers | None = None
    growth: ElectionState | None = None


@dataclass(frozen=True)
class TreeLloyd(MethodBase):
    r"""Lloyd's algorithm on the pooled points, by integer sums along a spanning tree.

    Each round is one Lloyd step on the pooled points, exact up to rounding to a grid, with two messages per tree link.
    Each component of the graph has its own clustering, the same on all its devices.

    Parameters
    ----------
    k : int
        Number of clusters.
    init : Init or str, default="rows:lean=true"
        Initialization. It must give all devices the same centroids: `local` and a limit of hops are rejected.
    tol : float, default=1e-5
        Stop when the relative decrease of the pooled cost is below `tol`.
    search : {"none", "breathing"}, default="none"
        "breathing": after the last Lloyd step, up to 10 trials that add up to 5 rows where the error is large, remove
        as many rows of least utility, and keep what decreases the pooled cost. See `p2pkm.methods.tree.search`.
    groups : int, "auto" or False, default=False
        Number of groups of devices with separate clusterings. "auto": chosen at the root. Cannot be combined with
        `search` or another `init`. See `p2pkm.methods.init.tree_groups`.
    local_steps : int, default=0
        Largest number of Lloyd steps that each device takes on its local points after the common clustering.
    pull : float, default=0.0
        Weight of a common centroid, in points, in the mean by which a device computes its own centroid. Requires
        `local_steps`.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or the initialization gives devices different centroids.

    See Also
    --------
    GTVMin
        Individual centroids on each device, with messages to neighbors only.
    Ditto
        A common clustering at a server, with a pull in local steps.
    Private
        Sums along a tree with differential privacy.

    Notes
    -----
    **Objective.** The k-means cost of the pooled points. With G groups and their tables T_g, ``F = sum_i min_g
    L_i(T_g)``: in every step each device selects the group of least local loss.

    **Update.** The centroids are ``w_c = R_c + s Z_c`` with the initial centroids R, a grid step s and integers Z, 0 at
    first. The tree is a breadth-first spanning tree from near the middle of the graph. One round, after [1]_ and [2]_:

    1. Up: device i assigns its local points to the nearest centroid; n_ic of them belong to c. It adds
       ``S_ic = rint(sum (x - R_c) / (g s))`` and n_ic to the sums of its children. It sends the change of the result
       since its last message to its parent, with the cost of all points below it.
    2. Root: ``z_c = rint(g S_c / n_c) - Z_c`` from the total sums; 0 if n_c is 0.
    3. Down: z. All devices set ``Z <- Z + z``.

    After a first round the root chooses s, 0.3 standard errors of a cluster mean, and g such that rounding sums raises
    the cost at most as much as rounding centroids (docs/explain/proofs.md).

    With `local_steps` each device then takes Lloyd steps on its local points from the common centroids w; with `pull`
    they decrease ``L_i(v_i) + pull sum_c |v_ic - w_c|^2``.

    **Messages.** Up: k rows (S, n) and one row with the cost. Down: k rows z and one row with a command. With G groups
    G k rows. Encoded as integers in Rice or adaptive code.

    **Convergence.** Without faults, the pooled cost of the recorded centroids never increases: if a step did not
    decrease it, all devices return to the centroids before, and stop. If no step was reverted and `tol` is 0, the
    result is a Lloyd point on the grid.

    **Privacy.** No guarantee. The parent of a leaf receives its local sums and counts, then their changes: if a single
    point changes its cluster, the parent receives this point, rounded to g steps. Other devices receive sums of devices
    below them, and the centroids of all groups. The default `init` sends rows of up to 2 k local clusters per device; a
    row of one point is this point, rounded to a grid, which is not counted as disclosed.

    **Faults.** When a device leaves, the others elect a root and build a new tree, which costs two rounds. A Lloyd step
    needs a round in which no device leaves or returns.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information Theory 28, 1982.
    .. [2] I. S. Dhillon, D. S. Modha, "A data-clustering algorithm on distributed memory multiprocessors", 1999.

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
    local_steps: int = 0
    pull: float = 0.0

    card = Card(
        "treelloyd",
        family="iterative",
        sends="sums",
        points="none",
        line="Lloyd steps on pooled points, integer sums along a tree",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"
    objective: ClassVar[Objective] = Objective()
    # Whether devices build their tree by messages; `under_faults` sets it.
    regrows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Validate the parameters."""
        init = Init.of(self.init)
        object.__setattr__(self, "init", init)
        check_integer(self.k, 1, "clusters")
        check_positive(self.tol, "tol", zero=True)
        check_choice(self.search, ("none", "breathing"), "search")
        check_integer(self.local_steps, 0, "local_steps")
        check_positive(self.pull, "pull", zero=True)
        if self.pull and not self.local_steps:
            raise ExperimentError(
                f"pull is {self.pull:g} without local steps, in which alone it acts. Use "
                f"{self.name}:local_steps=100,pull={self.pull:g}, or remove pull."
            )
        if self.groups is not False:
            object.__setattr__(self, "groups", check_groups(self.groups))
            conflicts = {f"init {init}": init != Init.of(_INIT), "search=breathing": self.search != "none"}
            for name in (name for name, is_set in conflicts.items() if is_set):
                raise ExperimentError(
                    f"groups and {name} cannot be combined: the stage that finds groups gives their initial centroids, "
                    "and tables of groups cannot be searched. Remove one."
                )
        if init.name == "local" or "hops" in dict(init.options):
            raise ExperimentError(
                f"init is {init}, which gives devices different centroids; {self.name} requires equal ones, because it "
                "adds up rows by their number. Use --init rows, tree-summaries, flooded-summaries without hops, leader "
                "or bounding-box."
            )

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.SUMS,
            incompatible_with={
                "suppression": "sends changes of the sums of single devices, which may be a single point",
                Condition.LOSSY_LINKS: "adds up sums along a tree, whose messages must arrive in their turn",
                Condition.CHANGING_LINKS: "adds up sums along a spanning tree, whose links must not change",
                "quantization": "sends integers already",
            },
            tolerates_absence=True,
            needs_honest_messages=True,
            needs_shared_start=True,
            init=self.init,
            groups=self.groups,
            # Local steps are taken once, after the last round.
            follows_points=self.groups is False and self.search == "none" and not self.local_steps,
            guarantees_descent=True,
        )

    def stages(self, at: InitContext) -> Pipeline:
        """Create the stage that finds groups, in place of the initialization, and the stage of local steps."""
        after: tuple[Stage, ...] = ()
        if self.local_steps:
            from p2pkm.methods.tree.local_steps import LocalSteps

            after = (Stage(LocalSteps.name, LocalSteps(self.k, self.local_steps, self.pull), 1, after=True),)
        return Pipeline(seeding=(group_stage(self, at),) if self.groups else None, after=after)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return the number of local steps, for the summary."""
        return {"local_steps": self.local_steps} if self.local_steps else {}

    def on(self, topology: Topology) -> "TreeLloydOnGraph | ElectedTreeMethod":
        """Bind the method to a spanning tree of the graph."""
        kind = SearchingOnGraph if self.search == "breathing" else TreeLloydOnGraph
        on_graph = kind(self, build_spanning_tree(topology))
        return ElectedTreeMethod(on_graph) if self.regrows else on_graph

    def under_faults(self, topology: Topology) -> "TreeLloyd":
        """Create the variant whose devices build their tree by messages."""
        return self.replaced(regrows=True)


@dataclass(frozen=True)
class TreeLloydOnGraph(OnGraph):
    """`TreeLloyd` along trees, layer by layer."""

    method: TreeLloyd
    tree: Tree

    cost_bytes: ClassVar[int] = 8
    # Columns of a table for the parent beyond sums and counts.
    error_columns: ClassVar[int] = 0

    @property
    def row_capacity(self) -> int:
        """Largest number of rows of a table."""
        return self.k

    @property
    def grouped(self) -> bool:
        """Whether groups of devices have separate tables."""
        return self.method.groups is not False

    @property
    def counts(self) -> tuple[int, bool]:
        """Largest number of tables, and whether it is exact."""
        return count_groups(self.method.groups, len(self.tree.parent)) if self.grouped else (1, True)

    @property
    def depth(self) -> int:
        """Number of turns of a pass."""
        return tree_sums.pass_depth(self.tree)

    @property
    def schedule(self) -> str:
        """Schedule: a round has the turns of both passes, and one to read the last messages."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count moments up and units down, then sums and a cost up, moves and a command down."""
        (parent, layers), d = self.tree, known.features
        one_row = np.ones(len(layers), np.int64)
        exact = np.ones(len(layers), np.bool_)
        count, is_exact = self.counts
        rows = one_row * (self.row_capacity * count + 1)
        exact_rows = exact & is_exact
        short = 8.0 * _SHORT_BYTES
        return TreePasses(
            parent,
            layers,
            (
                TreePass(True, one_row, tree_sums.MOMENTS, exact, short),
                TreePass(False, one_row, tree_sums.UNITS, exact, short),
            ),
            (
                TreePass(True, rows, d + 1 + self.error_columns, exact_rows, _BITS_UP),
                TreePass(False, rows, d, exact_rows, _BITS_DOWN),
            ),
        )

    def flops(self, work: Work) -> Integers:
        """Count one pass over the local points per round, in proportion to the received rows, and the additions."""
        degrees = np.bincount(self.tree.parent[self.tree.parent >= 0], minlength=len(self.tree.parent))
        degrees += self.tree.parent >= 0
        count, _ = self.counts
        passes = work.sizes * (3 * self.k + 2) * work.d * count
        return passes * work.rows // np.maximum(degrees * (self.row_capacity * count + 1), 1) + work.rows * (work.d + 1)

    def tree_sums(self, state: TreeLloydState, devices: Devices) -> tuple[Floats, Floats]:
        """Return the sums and counts that each device has sent, and the totals of the roots."""
        is_root = self.tree.parent[devices.ids] < 0
        return state.sent_sums, np.where(is_root[:, None, None], state.sums, 0.0)

    def initial_state(self, devices: Devices, start: Any) -> TreeLloydState:
        """Start from the centroids of the last stage, with room for the rows of a search."""
        n, _, d = start.centroids.shape
        reference = self.make_room(start.centroids)
        group = np.zeros(n, np.int64) if self.grouped else None
        if isinstance(start, TreeGroupsState):
            group, reference = start.group, start.tables
        table = np.zeros(reference.shape)
        sums = np.zeros((*reference.shape[:2], d + 1))
        state = TreeLloydState(
            centroids=start.centroids,
            previous=start.centroids,
            converged=np.zeros(n, np.bool_),
            reference=reference,
            units=np.zeros((n, tree_sums.UNITS)),
            accepted=table,
            table=table,
            accepted_reference=reference,
            sent_sums=sums,
            sums=sums,
            root=self.start_roots(n, reference.shape[1]),
            up=np.zeros((n, 1, 1)),
            down=np.zeros((n, 1, tree_sums.UNITS)),
            group=group,
            tried_group=group,
        )
        return state._replace(up=self.moments(state, devices))

    def make_room(self, centroids: Floats) -> Floats:
        """Add absent rows up to the row capacity, float64[n, r, d]."""
        return centroids

    def message(self, state: TreeLloydState, devices: Devices) -> DenseMessages:
        """Send the tables of the current pass, if it is the turn of the layer."""
        position = tree_sums.send_position(devices, self.depth)
        if not position.is_in_pass:
            return no_messages(len(devices), 1, 1)
        first = devices.round < 2
        if first:
            tables = tree_sums.shorten(state.up if position.up else state.down)
        else:
            tables = self.outgoing(state, up=position.up)
        sent = tree_sums.send_tables(position, self.tree, devices, tables, ~state.converged)
        senders = np.flatnonzero(sent.rows >= 0)
        if not len(senders):
            return sent
        wire = np.zeros(len(devices), np.int64)
        if first:
            wire[senders] = _SHORT_BYTES * tables.shape[2]
        else:
            wire[senders] = self.count_encoded_bytes(state, senders, tables[senders], devices, up=position.up)
        return sent._replace(wire=wire)

    def outgoing(self, state: TreeLloydState, *, up: bool) -> Floats:
        """Select the tables of sums and costs for parents, or of commands and moves for children."""
        return state.up if up else state.down

    def count_encoded_bytes(
        self, state: TreeLloydState, members: Integers, tables: Floats, devices: Devices, *, up: bool
    ) -> Integers:
        """Count the encoded bytes of the tables of some devices, int64[b]; parents receive integers and a cost."""
        if not up:
            return count_bytes(tables, devices)
        return to_bytes(devices.kernels.integer_bits(tables[:, :-1].astype(np.int64))) + self.cost_bytes

    def update(self, state: TreeLloydState, inbox: Inbox, devices: Devices) -> TreeLloydState:
        """Prepare sums at the start of a round, receive tables, decide at the roots, and apply commands."""
        first = devices.round == 1
        position = tree_sums.receive_position(devices, self.depth)
        if devices.turn == 0 and not first:
            state = self.prepare_convergecast(state, devices)
        if not position.is_in_pass:
            return state
        if not position.up:
            members, down = tree_sums.receive_from_parents(state.down, inbox, devices)
            state = state._replace(down=down)
        elif first:
            state = state._replace(up=tree_sums.merge_child_moments(state.up, inbox, devices))
        else:
            state = state._replace(up=tree_sums.add_child_tables(state.up, inbox, devices))
        if position.at_roots:
            members = np.flatnonzero((self.tree.parent[devices.ids] < 0) & ~state.converged)
            state = (
                self._announce_units(state, members, devices) if first else self.write_commands(state, members, devices)
            )
        elif position.up:
            return state
        if first:
            state = state._replace(units=replace_rows(state.units, members, state.down[members, 0, : tree_sums.UNITS]))
        else:
            state = self.apply_commands(state, members, devices)
        return self._check_termination(state, first=first) if position.is_last else state

    def _check_termination(self, state: TreeLloydState, *, first: bool) -> TreeLloydState:
        """Mark devices as converged if their command is STOP, or if their points are equal within clusters."""
        # The step is 0 without points, or if all points equal their centroids: then no row can move.
        done = state.units[:, 0] == 0.0 if first else self.stops(state)
        return state._replace(converged=state.converged | done)

    def _announce_units(self, state: TreeLloydState, roots: Integers, devices: Devices) -> TreeLloydState:
        """Choose step, unit and grain at the roots."""
        return state._replace(
            down=replace_rows(state.down, roots, self.choose_units(state, roots, state.up[roots], devices)[:, None])
        )

    def prepare_convergecast(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Prepare the tables of a step: changes of the local sums, and local cost."""
        n, rows, d = state.table.shape
        table = decode_rows(state.reference, state.units, state.table)
        if state.tried_group is None:
            local, costs = tree_sums.local_grid_sums(devices, table, state.reference, state.units)
        else:
            group, local, costs = self._count_groups(state, state.tried_group, table, devices)
            state = state._replace(tried_group=group)
        scale = state.units[:, 0] ** 2 * state.units[:, 1]
        up = np.zeros((n, rows + 1, d + 1))
        up[:, :rows] = local - state.sent_sums
        up[:, rows, 0] = costs / np.where(scale > 0.0, scale, 1.0)
        return state._replace(sent_sums=local, up=up, down=np.zeros((n, rows + 1, d)))

    def _count_groups(
        self, state: TreeLloydState, present: Integers, table: Floats, devices: Devices
    ) -> tuple[Integers, Floats, Floats]:
        """Select the group of least local loss, int64[n], and compute sums and loss for its table.

        On ties a device stays in its group `present`.
        """
        (n, rows, d), k = table.shape, self.k
        all_devices = np.arange(n)
        groups = rows // k
        sums, costs = np.zeros((n, groups, k, d + 1)), np.zeros((n, groups))
        for g in range(groups):
            group_rows = slice(g * k, g * k + k)
            sums[:, g], costs[:, g] = tree_sums.local_grid_sums(
                devices, table[:, group_rows], state.reference[:, group_rows], state.units
            )
        # On a rank without devices the tables are not known, and argmin of an empty axis fails.
        least = np.argmin(costs, axis=1) if n else present
        group = np.where(costs[all_devices, present] > costs[all_devices, least], least, present)
        sums[np.arange(groups) != group[:, None]] = 0.0
        return group, sums.reshape(n, rows, d + 1), costs[all_devices, group]

    def write_commands(self, state: TreeLloydState, roots: Integers, devices: Devices) -> TreeLloydState:
        """Decide at the roots, which have received all sums, and write their commands into `down`."""
        sums, down = state.sums.copy(), state.down.copy()
        sums[roots] += state.up[roots, :-1, : sums.shape[2]]
        moves = tree_sums.grid_moves(sums[roots], state.table[roots], state.units[roots, 2])
        state = state._replace(sums=sums, down=down)
        root_type = type(state.root)
        fields = [field.copy() for field in state.root]
        for i, move in zip(roots.tolist(), moves, strict=True):
            totals = self._total(state, i, move, devices)
            after, command = self.choose_command(root_type(*(field[i] for field in fields)), totals)
            for field, value in zip(fields, after, strict=True):
                field[i] = value
            command.write(down[i], move)
        return state._replace(root=root_type(*fields))

    def start_roots(self, n: int, rows: int) -> Any:
        """Create the states of n roots before their first round."""
        return start_roots(n, rows)

    def choose_command(self, root: Any, totals: Totals) -> tuple[Any, Command]:
        """Decide at one root: compute its next state and its command."""
        return decide(root, totals, self.method.tol, searches=False)

    def _total(self, state: TreeLloydState, root: int, moves: Floats, devices: Devices) -> Totals:
        """Collect the totals of one root."""
        cost = float(state.up[root, -1, 0])
        units = state.units[[root]]
        weight = float(units[0, 1]) * state.sums[root, :, -1:].sum(axis=0)
        present = np.isfinite(state.reference[[root], :, 0]).sum(axis=1)
        features = state.table.shape[2]
        wish = tree_sums.find_step(cost * units[:, 1], weight, present, features, devices.unit)
        return Totals(
            cost=cost,
            counts=state.sums[root, :, -1],
            moves=moves,
            errors=state.up[root, :-1, -1],
            rows=decode_rows(state.reference[[root]], units, state.table[[root]])[0],
            is_kept=np.isfinite(state.accepted_reference[root, :, 0]),
            halvings=tree_sums.count_halvings(1.0, float(wish[0]), state.table[root]),
        )

    def apply_commands(self, state: TreeLloydState, members: Integers, devices: Devices) -> TreeLloydState:
        """Apply the commands in `down` at some devices."""
        codes = read_codes(state.down[members])[:, None, None]
        moves = state.down[members, 1:]
        table, reference = state.table[members], state.reference[members]
        local, sums = state.sent_sums[members], state.sums[members]
        kept_table = np.where(codes & KEEP, table, state.accepted[members])
        kept_reference = np.where(codes & KEEP, reference, state.accepted_reference[members])
        table = np.where(codes & REVERT, kept_table, table)
        new_reference = np.where(codes & REVERT, kept_reference, reference)
        table = table + np.where(codes & MOVE, moves, 0.0)
        # Halving the step doubles the integers; centroids do not change.
        factor = np.exp2(np.where(codes & ADD, 0, codes // FACTOR))
        table, kept_table = table * factor, kept_table * factor
        units = np.column_stack((state.units[members, 0] / factor[:, 0, 0], state.units[members, 1:]))
        table, new_reference = self.change_rows(table, new_reference, state.down[members], devices)
        local, sums = self.forget_sums(new_reference, reference, (local, sums))
        if state.group is not None and state.tried_group is not None:
            group = np.where(codes[:, 0, 0] & KEEP, state.tried_group[members], state.group[members])
            state = state._replace(group=replace_rows(state.group, members, group))
        rows = self._choose_rows(state, members, decode_rows(kept_reference, units, kept_table))
        return state._replace(
            centroids=replace_rows(state.centroids, members, rows),
            previous=replace_rows(state.previous, members, state.centroids[members]),
            accepted=replace_rows(state.accepted, members, kept_table),
            table=replace_rows(state.table, members, table),
            reference=replace_rows(state.reference, members, new_reference),
            accepted_reference=replace_rows(state.accepted_reference, members, kept_reference),
            sent_sums=replace_rows(state.sent_sums, members, local),
            sums=replace_rows(state.sums, members, sums),
            units=replace_rows(state.units, members, units),
        )

    def change_rows(
        self, table: Floats, reference: Floats, commands: Floats, devices: Devices
    ) -> tuple[Floats, Floats]:
        """Add and remove the rows that commands mark; return table and reference."""
        return table, reference

    def forget_sums(self, reference: Floats, before: Floats, sums: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Set sums to 0 where the reference of a row has changed, so that the next message has absolute sums."""
        return sums

    def _choose_rows(self, state: TreeLloydState, members: Integers, rows: Floats) -> Floats:
        """Choose the centroids of some devices, float64[b, k, d], from all rows of their tables."""
        return self._rows_of_group(state, members, rows)

    def _rows_of_group(self, state: TreeLloydState, members: Integers, rows: Floats) -> Floats:
        """Select the rows of the groups of some devices; all rows without groups."""
        return rows if state.group is None else select_group(rows, state.group[members], self.k)

    def latest(self, state: TreeLloydState) -> Floats:
        """Choose the table from which a device would restart, float64[n, r, d].

        It is the tried table, which is one Lloyd step after the kept table. During a search it is the kept table.
        """
        kept_rows = decode_rows(state.accepted_reference, state.units, state.accepted)
        tried_rows = decode_rows(state.reference, state.units, state.table)
        has_same_rows = (np.isfinite(kept_rows) == np.isfinite(tried_rows)).all(axis=(1, 2))
        return np.where(has_same_rows[:, None, None], tried_rows, kept_rows)

    def moments(self, state: TreeLloydState, devices: Devices) -> Floats:
        """Compute `tree_sums.measure` of the local points for the latest table, float64[n, 1, 4]."""
        return tree_sums.measure(devices, self._rows_of_group(state, np.arange(len(devices)), self.latest(state)))

    def choose_units(self, state: TreeLloydState, members: Integers, moments: Floats, devices: Devices) -> Floats:
        """Choose step, unit and grain for points of these moments, float64[b, 3]; see `tree_sums.measure`."""
        reference = state.reference[members]
        rows = np.isfinite(reference[:, :, 0]).sum(axis=1)
        return tree_sums.choose_units(moments, rows, devices.d, devices.unit)

    def restart(self, state: TreeLloydState, members: Integers, table: Floats, units: Floats) -> TreeLloydState:
        """Restart some devices from a table, float64[b, r, d], on a new grid."""
        rows = self._choose_rows(state, members, table)
        new_roots = start_roots(len(members), table.shape[1])
        return state._replace(
            centroids=replace_rows(state.centroids, members, rows),
            previous=replace_rows(state.previous, members, state.centroids[members]),
            reference=replace_rows(state.reference, members, table),
            accepted_reference=replace_rows(state.accepted_reference, members, table),
            accepted=replace_rows(state.accepted, members, 0.0),
            table=replace_rows(state.table, members, 0.0),
            units=replace_rows(state.units, members, units),
            sent_sums=replace_rows(state.sent_sums, members, 0.0),
            sums=replace_rows(state.sums, members, 0.0),
            root=Root(*map(replace_rows, state.root, [members] * len(Root._fields), new_roots)),
        )

    def stops(self, state: TreeLloydState) -> Mask:
        """Find the devices with the command STOP, bool[n]."""
        return (read_codes(state.down) & STOP) > 0


@dataclass(frozen=True)
class SearchingOnGraph(TreeLloydOnGraph):
    """`TreeLloydOnGraph` with a search: rows are added and removed, and errors of rows are sent on request."""

    error_columns: ClassVar[int] = 1

    @property
    def row_capacity(self) -> int:
        """Largest number of rows of a table."""
        return self.k + search.MOST

    def make_room(self, centroids: Floats) -> Floats:
        """Add absent rows up to the row capacity, float64[n, r, d]."""
        n, k, d = centroids.shape
        return np.concatenate((centroids, np.full((n, self.row_capacity - k, d), np.inf)), axis=1)

    def outgoing(self, state: TreeLloydState, *, up: bool) -> Floats:
        """Select the tables; errors for parents are shortened."""
        tables = super().outgoing(state, up=up)
        return replace_rows(tables, (..., -1), search.shorten(tables[..., -1])) if up else tables

    def count_encoded_bytes(
        self, state: TreeLloydState, members: Integers, tables: Floats, devices: Devices, *, up: bool
    ) -> Integers:
        """Count the encoded bytes, with those of errors if the last command requested them, int64[b]."""
        if not up:
            return super().count_encoded_bytes(state, members, tables, devices, up=False)
        present = np.isfinite(state.reference[members, :, 0]).sum(axis=1)
        errors = np.where(tables[:, -1, -1] > 0.0, _ERROR_BYTES * present, 0)
        return super().count_encoded_bytes(state, members, tables[:, :, :-1], devices, up=True) + errors

    def prepare_convergecast(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Prepare the tables of a step, with the errors that the last command requested in an additional column."""
        prepared = super().prepare_convergecast(state, devices)
        n, rows, _ = prepared.up.shape
        errors = np.zeros((n, rows, 1))
        requests = read_codes(state.down) if devices.round > 2 else np.zeros(n, np.int64)
        for code, utility in ((ERRORS, False), (UTILITIES, True)):
            members = (requests & code) > 0
            if members.any():
                table = decode_rows(state.reference, state.units, state.table)
                scale = state.units[:, 0] ** 2 * state.units[:, 1]
                # The 1 tells `count_encoded_bytes` that the column of errors is sent.
                errors[members, -1, 0] = 1.0
                errors[members, :-1, 0] = search.sum_errors(devices, table, scale, utility=utility)[members]
        return prepared._replace(up=np.concatenate((prepared.up, errors), axis=2))

    def choose_command(self, root: Any, totals: Totals) -> tuple[Any, Command]:
        """Decide at one root: compute its next state and its command."""
        return decide(root, totals, self.method.tol, searches=True)

    def change_rows(
        self, table: Floats, reference: Floats, commands: Floats, devices: Devices
    ) -> tuple[Floats, Floats]:
        """Add and remove the rows that commands mark; return table and reference."""
        return change_rows(table, reference, commands, devices)

    def forget_sums(self, reference: Floats, before: Floats, sums: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Set sums to 0 where the reference of a row has changed, so that the next message has absolute sums."""
        is_new = (reference != before).any(axis=2)[:, :, None]
        local, total = sums
        return np.where(is_new, 0.0, local), np.where(is_new, 0.0, total)

    def _choose_rows(self, state: TreeLloydState, members: Integers, rows: Floats) -> Floats:
        """Choose the first k present rows of the tables."""
        order = np.argsort(~np.isfinite(rows[:, :, 0]), axis=1, kind="stable")[:, : self.k]
        return super()._choose_rows(state, members, np.take_along_axis(rows, order[:, :, None], axis=1))


def decode_rows(reference: Floats, units: Floats, steps: Floats) -> Floats:
    """Compute the rows of a table of integers, float64[n, r, d]."""
    return reference + units[:, 0, None, None] * steps


def replace_rows(values: Any, where: Any, new_values: Any) -> Any:
    """Copy an array and replace a part of it."""
    result = values.copy()
    result[where] = new_values
    return result
