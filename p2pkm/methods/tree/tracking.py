"""Tree Lloyd on points that change: few Lloyd steps along the tree, and a search when the cost has risen."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import Known, TreePasses
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MethodTraits
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.tree import search
from p2pkm.methods.tree.command import ERRORS, KEEP, MOVE, REVERT, STOP, UTILITIES, Command, read_codes
from p2pkm.methods.tree.root import Totals, add_rows, remove_rows
from p2pkm.methods.tree.treelloyd import SearchingOnGraph, TreeLloyd, TreeLloydState, decode_rows, replace_rows
from p2pkm.network.graph import Topology

# Rounds from one measurement to the next.
_INTERVAL = 2
# Last measurements with which the cost is compared. A rise is significant above a relative threshold of their lower
# quartile: this one, or that many standard deviations of the mean squared distance of as many Gaussian points, if that
# is more. Half of the threshold leads to another step (docs/howto/streams.md).
_MEMORY = 16
_RISE = 0.05
_RISE_DEVIATIONS = 1.5
# Measurements since the last trial after which a trial is made without a rise.
_TRIAL_INTERVAL = 5
# Rows that a trial after a rise adds.
_MOST = 2
# Lloyd steps after rows were added, and after rows were removed.
_STEPS_GROWN = 2
_STEPS_SHRUNK = 2
# Largest number of Lloyd steps in a round, and relative decrease of the cost that leads to another one.
_MOST_STEPS = 3
_WORTH = 5e-3
# Relative decrease of the cost for which a trial is kept.
_GAIN = 1e-3
# Measurements without a trial after no failed trial, after one, and after more.
_WAITS = (0, 2, 4)
# Largest number of tree passes (up and down) in a round.
_PASSES = 2 + _MOST * (_STEPS_GROWN + _STEPS_SHRUNK + 2)
# Least squared error within clusters for the choice of the step, relative to that around the mean of the initial
# centroids.
_LEAST = 2.0**-12
# Step relative to the standard deviation within clusters.
_FINENESS = 2.0**-4
# Points that differ by less than this, relative to the largest coordinate, are equal up to rounding. The step is then
# this fraction of the largest coordinate, or _UNKNOWN if all coordinates are 0.
_EQUAL = 2.0**-46
_COARSE = 2.0**-30
_UNKNOWN = 2.0**-20
# Binary digits of a cost in messages, and approximate fraction of bits used by all passes of a round, for `p2pkm plan`.
_DIGITS = 16
_USED = 0.1
# Phases of a root: Lloyd steps of round 1; measurement and step; further steps of a round; errors of the rows were
# requested; steps after rows were added; steps after as many rows were removed.
FIT, STEP, MORE, REQUESTED, GROWN, SHRUNK = range(6)


@register("treelloyd:tracking-root")
class TrackingRoot(NamedTuple):
    """State of a root. As a part of a batch's state each field has a row per device, undefined except at roots.

    Attributes
    ----------
    cost : float
        Last measured pooled cost, or that of the table before a trial, in squared steps times units of weight.
    errors : float64[r]
        Errors of the rows of the table before a trial.
    phase, steps : int
        Phase, and tree passes in it.
    rows : int
        Rows to add in a trial.
    looked, wait, failed : int
        Measurements since the last trial; measurements until the next trial; failed trials in a row since the cost has
        risen.
    risen : bool
        Whether the cost has risen enough for a step in the next round.
    tried : float
        Cost per unit of weight at the last trial after a rise.
    lows : float64[16]
        Costs per unit of weight of the last measurements, the newest last; +inf: none.
    """

    cost: Any
    errors: Any
    phase: Any
    steps: Any
    rows: Any
    looked: Any
    wait: Any
    failed: Any
    risen: Any
    tried: Any
    lows: Any


@dataclass(frozen=True)
class TrackingTreeLloyd(TreeLloyd):
    """Variant of `TreeLloyd` for points that arrive, leave and move during the run.

    A pass is what a round is in `TreeLloyd`: changes of sums and costs up the tree, moves down. The integers and
    messages are the same, with costs in 24 bits.

    Notes
    -----
    **Update.** In round 1 all devices take Lloyd steps until the relative decrease of the cost is below `tol`, at most
    13. From then on every second round has up to three passes. The root measures the cost per unit of weight, and all
    devices take a Lloyd step. They take another step as long as the last one decreases the cost by more than 0.5 % even
    if no point changes its cluster, that is by ``sum_c n_c |z_c|^2``.

    The cost is compared with the lower quartile of the last 16 measurements. It has risen if it is higher by 5 %, or by
    1.5 standard deviations ``sqrt(2 / (d m))`` of the mean squared distance of m Gaussian points, if that is more. If
    it is higher by half of that, the next round has a step, too. If it has risen, or 5 measurements after the last
    trial, the root starts a trial in the same round:

    1. Add two rows, or one without a rise, next to those of largest error.
    2. Take two steps, remove as many rows of least utility, and take two more steps.
    3. Keep the result if the cost has decreased by more than 0.1 %. Otherwise return to the table before, and after a
       trial with two rows try one.

    After a failure of both, the next two measurements are without a trial, after further failures the next four, unless
    the cost rises again by as much.

    The grid step is ``2^-4`` of the standard deviation of a coordinate within the initial clusters, but at least
    ``2^-10`` of that around the mean of the initial centroids. If all points are equal at first, it is ``2^-30`` of the
    largest coordinate, or ``2^-20`` if that is 0. Sums have the grain of `TreeLloyd`.

    **Convergence.** Not guaranteed: a table is used before its cost is known.
    """

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        traits = super().traits
        reason = "adds up sums along a tree; while points change, all devices must take part in every round"
        incompatible_with = {**traits.incompatible_with, Condition.LOSSY_LINKS: reason}
        return replace(traits, guarantees_descent=False, tolerates_absence=False, incompatible_with=incompatible_with)

    def on(self, topology: Topology) -> "TrackingOnGraph":
        """Bind the method to a spanning tree of the graph."""
        return TrackingOnGraph(self, build_spanning_tree(topology))


@dataclass(frozen=True)
class TrackingOnGraph(SearchingOnGraph):
    """`TrackingTreeLloyd` along trees: a round has several passes of `SearchingOnGraph`, most of them silent."""

    cost_bytes: ClassVar[int] = 3

    @property
    def row_capacity(self) -> int:
        """Largest number of rows of a table."""
        return self.k + _MOST

    @property
    def schedule(self) -> str:
        """Schedule: a round has the turns of all passes."""
        return f"jacobi*{_PASSES * (2 * self.depth + 1)}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count the messages of all passes of a round, as an upper bound."""
        single_pass = super().expected_messages(known)
        possible = tuple(
            tree_pass._replace(certain=False, bits=_USED * (tree_pass.bits or 64.0))
            for tree_pass in single_pass.later_passes
        )
        return single_pass._replace(
            passes=single_pass.passes + possible * (_PASSES - 1), later_passes=possible * _PASSES
        )

    def start_roots(self, n: int, rows: int) -> TrackingRoot:
        """Create the states of n roots before their first round; no cost is known."""
        zeros = np.zeros(n, np.int64)
        return TrackingRoot(
            cost=np.full(n, np.inf),
            errors=np.zeros((n, rows)),
            phase=zeros + FIT,
            steps=zeros,
            rows=zeros,
            looked=zeros,
            wait=zeros,
            failed=zeros,
            risen=np.zeros(n, np.bool_),
            tried=np.zeros(n),
            lows=np.full((n, _MEMORY), np.inf),
        )

    def moments(self, state: TreeLloydState, devices: Devices) -> Floats:
        """Compute `tree_sums.measure` of the local points, with a lower bound of the cost, float64[n, 1, 4].

        The bound is a fraction of the cost around the mean of the initial centroids.
        """
        table = state.reference
        present = np.isfinite(table[:, :, :1])
        count = np.maximum(present.sum(axis=1, keepdims=True), 1)
        mean = np.where(present, table, 0.0).sum(axis=1, keepdims=True) / count
        moments = tree_sums.measure(devices, table)
        around_mean = tree_sums.measure(devices, mean)
        moments[:, :, 1] = np.maximum(moments[:, :, 1], _LEAST * around_mean[:, :, 1])
        return moments

    def choose_units(self, state: TreeLloydState, members: Integers, moments: Floats, devices: Devices) -> Floats:
        """Choose a step that is a fixed fraction of the standard deviation for any number of points, float64[b, 3]."""
        units = super().choose_units(state, members, moments, devices)
        weight = moments[:, 0, 0]
        rows = state.reference[members]
        spread = np.sqrt(moments[:, 0, 1] / rows.shape[2] / np.where(weight > 0.0, weight, 1.0))
        largest = np.where(np.isfinite(rows), np.abs(rows), 0.0).max(axis=(1, 2), initial=0.0)
        # Equal points may separate later, so they need a step, too.
        step_of_equal = np.where(largest > 0.0, _COARSE * largest, _UNKNOWN)
        step = np.where(spread > _EQUAL * largest, _FINENESS * spread, step_of_equal)
        units[:, 0] = tree_sums.shorten(np.where(weight > 0.0, step, 0.0))
        return units

    def message(self, state: TreeLloydState, devices: Devices) -> DenseMessages:
        """Send the tables of the current pass, if it is the turn of the layer."""
        return super().message(state, self._within(devices))

    def outgoing(self, state: TreeLloydState, *, up: bool) -> Floats:
        """Select the tables for parents or children; costs have 24 bits."""
        tables = super().outgoing(state, up=up)
        if up:
            tables[:, -1, 0] = search.shorten(tables[:, -1, 0], _DIGITS)
        return tables

    def update(self, state: TreeLloydState, inbox: Inbox, devices: Devices) -> TreeLloydState:
        """Activate devices for a step, then act as in a round of `TreeLloyd`."""
        if devices.turn == 0 and devices.round > 1:
            # A step of 0: without points no row moves.
            idle = state.units[:, 0] == 0.0
            if devices.round % _INTERVAL:
                # Between measurements a STOP command with ERRORS requests a step in this round.
                idle = idle | ((read_codes(state.down) & ERRORS) == 0)
            state = state._replace(converged=idle)
        if self._is_idle(state):
            return state
        return super().update(state, inbox, self._within(devices))

    def _within(self, devices: Devices) -> Devices:
        """Set round and turn of the batch to those of the pass: passes are numbered from 1 over all rounds."""
        if devices.round == 0:
            return devices
        number, turn = divmod(devices.turn, 2 * self.depth + 1)
        return devices.at_turn((devices.round - 1) * _PASSES + number + 1, turn, devices.active_devices)

    def _is_idle(self, state: TreeLloydState) -> bool:
        """Tell whether all devices of the batch are idle and their tables have the common size."""
        return state.up.shape[1] == self.row_capacity + 1 and bool(state.converged.all())

    def prepare_convergecast(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Prepare the tables of a step; idle devices keep their last sums and their last command."""
        if self._is_idle(state):
            return state
        prepared = super().prepare_convergecast(state, devices)
        idle = state.converged[:, None, None]
        has_same_shape = state.down.shape == prepared.down.shape
        down = np.where(idle, state.down, prepared.down) if has_same_shape else prepared.down
        return prepared._replace(sent_sums=np.where(idle, state.sent_sums, prepared.sent_sums), down=down)

    def choose_command(self, root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
        """Decide at one root: compute its next state and its command."""
        return decide(root, totals, self.method.tol)

    def apply_commands(self, state: TreeLloydState, members: Integers, devices: Devices) -> TreeLloydState:
        """Apply the commands; devices that stop record their table."""
        state = super().apply_commands(state, members, devices)
        stopped = members[self.stops(state)[members]]
        if not len(stopped):
            return state
        table, reference = state.table[stopped], state.reference[stopped]
        rows = decode_rows(reference, state.units[stopped], table)
        order = np.argsort(~np.isfinite(rows[:, :, 0]), axis=1, kind="stable")[:, : self.k]
        return state._replace(
            centroids=replace_rows(state.centroids, stopped, np.take_along_axis(rows, order[:, :, None], axis=1)),
            accepted=replace_rows(state.accepted, stopped, table),
            accepted_reference=replace_rows(state.accepted_reference, stopped, reference),
        )


def decide(root: TrackingRoot, totals: Totals, tol: float) -> tuple[TrackingRoot, Command]:
    """Decide on the next command; `tol` is the relative decrease of the cost below which round 1 ends."""
    root, command = _choose(root._replace(steps=root.steps + 1), totals, tol)
    if command.code & STOP and root.risen:
        # With STOP, ERRORS requests a step in the next round instead of errors.
        command = command._replace(code=command.code + ERRORS)
    return root, command


def _choose(root: TrackingRoot, totals: Totals, tol: float) -> tuple[TrackingRoot, Command]:
    """Decide by the phase."""
    if root.phase == FIT:
        return _fit(root, totals, tol)
    if root.phase == STEP:
        return _step(root, totals)
    if root.phase == MORE:
        return _continue(root, totals)
    if root.phase == REQUESTED:
        return _grow(root._replace(errors=totals.errors, cost=totals.cost), totals, int(root.rows), KEEP)
    if root.phase == GROWN:
        if root.steps <= _STEPS_GROWN:
            return root, Command(MOVE + (UTILITIES if root.steps == _STEPS_GROWN else 0))
        return root._replace(phase=SHRUNK, steps=0), remove_rows(totals)
    if root.steps <= _STEPS_SHRUNK and totals.moves.any():
        return root, Command(MOVE)
    return _judge(root, totals)


def _fit(root: TrackingRoot, totals: Totals, tol: float) -> tuple[TrackingRoot, Command]:
    """Decide after a Lloyd step of round 1."""
    before, now = float(root.cost), totals.cost
    decreases = before == np.inf or before - now >= tol * before
    root = root._replace(cost=now)
    if totals.moves.any() and decreases and root.steps < _PASSES - 1:
        return root, Command(KEEP + MOVE)
    return _remember(root._replace(phase=STEP), totals), Command(MOVE + STOP)


def _step(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide after a measurement: take a step, and request errors of the rows if a trial is due."""
    known = root.lows[np.isfinite(root.lows)]
    low = float(np.quantile(known, 0.25)) if len(known) else np.inf
    root = _remember(root, totals)
    mean = root.lows[-1]
    looked = root.looked + 1
    numbers = max(totals.weight, 1.0) * totals.moves.shape[1]
    rise = max(_RISE, _RISE_DEVIATIONS * float(np.sqrt(2.0 / numbers)))
    risen = mean > (1.0 + rise) * low
    due = risen and (root.wait == 0 or mean > (1.0 + rise) * root.tried)
    root = root._replace(
        cost=totals.cost,
        looked=looked,
        tried=mean if due else root.tried,
        risen=mean > (1.0 + rise / 2.0) * low,
        wait=max(root.wait - 1, 0),
        failed=root.failed if risen else 0,
    )
    if due or looked >= _TRIAL_INTERVAL:
        return root._replace(phase=REQUESTED, rows=_MOST if due else 1), Command(MOVE + ERRORS)
    return _continue(root._replace(steps=1), totals)


def _continue(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide on a further step in a round: it is the last one if the expected decrease is small.

    If no point changes its cluster, the cost decreases by n_c |z_c|^2 in each row, otherwise by more.
    """
    gain = float(np.cumsum(totals.counts[:, None] * totals.moves**2)[-1])
    continues = gain > _WORTH * totals.cost and root.steps < _MOST_STEPS
    root = root._replace(cost=totals.cost, phase=MORE if continues else STEP)
    return root, Command(MOVE if continues else MOVE + STOP)


def _grow(root: TrackingRoot, totals: Totals, rows: int, code: int) -> tuple[TrackingRoot, Command]:
    """Start a trial with additional rows."""
    command = add_rows(totals, root.errors, rows, root.cost, code)
    return root._replace(phase=GROWN, rows=rows, steps=0), command


def _judge(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide at the end of a trial."""
    better = totals.cost < root.cost * (1.0 - _GAIN)
    if not better and root.rows > 1:
        return _grow(root, totals, int(root.rows) - 1, REVERT)
    failed = 0 if better else root.failed + int(root.risen)
    root = root._replace(phase=STEP, looked=0, failed=failed, wait=_WAITS[min(int(failed), len(_WAITS) - 1)])
    if not better:
        return root, Command(REVERT + STOP)
    return _remember(root, totals), Command(MOVE + STOP)


def _remember(root: TrackingRoot, totals: Totals) -> TrackingRoot:
    """Replace the oldest cost per unit of weight by the current one."""
    mean = totals.cost / totals.weight if totals.weight > 0.0 else np.inf
    return root._replace(lows=np.append(root.lows[1:], mean))
