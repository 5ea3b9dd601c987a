"""Tree Lloyd on points that change: few exact steps along the tree, and breathing where the cost has risen."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import Known, TreeWalk
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import grow
from p2pkm.methods.tree import search
from p2pkm.methods.tree.command import BACK, ERRORS, KEEP, MOVE, STOP, UTILITIES, Command, read_codes
from p2pkm.methods.tree.root import Totals, add_rows, remove_rows
from p2pkm.methods.tree.treelloyd import TreeLloyd, TreeLloydOnGraph, TreeLloydState, place, put
from p2pkm.network.graph import Topology

_EVERY = 2  # rounds from one step to the next
_MEMORY = 16  # measurements with which the cost is compared
_RISE = 0.05  # relative rise above a quarter of these for which rows are tried; half of it: another step
_CHANCE = 1.5  # or so many standard deviations of the mean squared distance of so many points, if that is more
_LOOK = 5  # measurements after which rows are tried anyway
_MOST = 2  # rows that are added at first
_STEPS_GROWN, _STEPS_SHRUNK = 2, 2  # Lloyd steps before and after rows are taken out
_MOST_STEPS, _WORTH = 3, 5e-3  # steps of a round, and the relative fall of the cost that leads to another one
_GAIN = 1e-3  # relative fall of the cost for which a trial is kept
_WAITS = (0, 2, 4)  # measurements without a trial after no failure, one, and more
_WALKS = 2 + _MOST * (_STEPS_GROWN + _STEPS_SHRUNK + 2)  # up and down the tree in a round, at most
_LEAST = 2.0**-12  # of the squares around the mean of the start: within clusters there are as many
_FINENESS = 2.0**-4  # of the standard deviation within clusters: the step
_ALIKE = 2.0**-46  # of the largest coordinate: points that differ by less are alike but for rounding
_COARSE, _UNKNOWN = 2.0**-30, 2.0**-20  # the step then: of the largest coordinate; where all are 0
_DIGITS = 16  # of a cost, in binary
_USED = 0.1  # of the bits of all walks, on average
# Phases of a root: fit in round 1; a measurement and step; further steps of a round; errors of the rows are requested;
# steps after rows were added, and after as many were removed.
FIT, STEP, MORE, ASKED, GROWN, SHRUNK = range(6)


@register("treelloyd:tracking-root")
class TrackingRoot(NamedTuple):
    """State of a root. As a part of a batch's state each field has a row per device, undefined except at roots.

    Attributes
    ----------
    cost : float
        Pooled cost as measured last, or of the table before a trial, in squared steps times units of weight.
    errors : float64[r]
        Errors of the rows of the table before a trial.
    phase, steps : int
        Phase, and tree passes in it.
    rows : int
        Rows to add in a trial.
    looked, wait, failed : int
        Measurements since the last trial; measurements until the next one; failed trials in a row while the cost has
        risen.
    risen : bool
        Whether the cost has risen enough for a step in the next round.
    tried : float
        Cost per unit of weight at the last trial that a rise led to.
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
    """`TreeLloyd` where points arrive, leave and move during the run.

    A walk is what is a round of `TreeLloyd`: sums and costs up the tree as changes, moves down. In round 1 all take
    Lloyd steps until the cost falls by less than `tol`, at most 13. From then on every second round has up to three
    walks: the root learns the cost of the table for a unit of weight, and all take one step, and another one as long as
    this one lets the cost fall by more than 0.5 % even if no point changes its cluster, ``sum_c n_c |z_c|^2``.

    That cost is compared with the lower quartile of the last 16 measurements. Risen means: above it by 5 %, or by 1.5
    standard deviations ``sqrt(2 / (d m))`` of the mean squared distance of m Gaussian points, if that is more. If it is
    above by half of that, the next round has a step, too. If it has risen, and when the last look is 5 measurements
    ago, the root tries in the same round whether other rows are better: two rows, or one if it has not risen, are added
    beside those of the largest error, after two steps the rows that are missed least are taken out, after two more
    steps the trial is kept if the cost has fallen by more than 0.1 %. If not, all go back, and after two rows one is
    tried. After a failure of both the next two measurements bring no trial, after further ones the next four, unless
    the cost has risen again by as much.

    Steps of the grid are ``2^-4`` of the standard deviation of a coordinate within the clusters of the start, but at
    least ``2^-10`` of that around the mean of its rows. Where all points are alike at first they are ``2^-30`` of the
    largest coordinate, and ``2^-20`` if that is 0. Sums have the grain of `TreeLloyd`, costs on the wire 24 bits.

    No descent is claimed: a table is used before its cost is known.
    """

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return replace(super().traits, guarantees_descent=False, tolerates_absence=False)

    def on(self, topology: Topology) -> "TrackingOnGraph":
        """Return the algorithm that the loop runs, over a spanning tree of the graph."""
        return TrackingOnGraph(self, grow(topology))


@dataclass(frozen=True)
class TrackingOnGraph(TreeLloydOnGraph):
    """`TrackingTreeLloyd` along trees: so many walks of `TreeLloydOnGraph` are a round; most of them are silent."""

    cost_bytes: ClassVar[int] = 3

    @property
    def searches(self) -> bool:
        """Return True: rows are added and taken out."""
        return True

    @property
    def places(self) -> int:
        """Return how many rows a table has room for."""
        return self.k + _MOST

    @property
    def schedule(self) -> str:
        """Return the schedule: a round has the turns of all walks."""
        return f"jacobi*{_WALKS * (2 * self.depth + 1)}"

    def expected_messages(self, known: Known) -> TreeWalk:
        """Return the ways of all walks of a round: at most so many."""
        one = super().expected_messages(known)
        again = tuple(way._replace(certain=False, bits=_USED * (way.bits or 64.0)) for way in one.again)
        return replace(one, ways=one.ways + again * (_WALKS - 1), again=again * _WALKS)

    def start_roots(self, n: int, rows: int) -> TrackingRoot:
        """Create the states of n roots before their first round; no cost is known."""
        zeros = np.zeros(n, np.int64)
        return TrackingRoot(
            np.full(n, np.inf), np.zeros((n, rows)), zeros + FIT, zeros, zeros, zeros, zeros, zeros,
            np.zeros(n, np.bool_), np.zeros(n), np.full((n, _MEMORY), np.inf),
        )  # fmt: skip

    def moments(self, state: TreeLloydState, devices: Devices) -> Floats:
        """Return `tree_sums.measure` of the own points; the cost is at least a share of that of the mean row."""
        table = state.reference
        real = np.isfinite(table[:, :, :1])
        mean = np.where(real, table, 0.0).sum(axis=1, keepdims=True) / np.maximum(real.sum(axis=1, keepdims=True), 1)
        found, around = (tree_sums.measure(devices, one) for one in (table, mean))
        found[:, :, 1] = np.maximum(found[:, :, 1], _LEAST * around[:, :, 1])
        return found

    def choose_units(self, state: TreeLloydState, who: Integers, moments: Floats, devices: Devices) -> Floats:
        """Return a step that is the same share of the standard deviation for any number of points, float64[b, 3]."""
        found = super().choose_units(state, who, moments, devices)
        mass, rows = moments[:, 0, 0], state.reference[who]
        spread = np.sqrt(moments[:, 0, 1] / rows.shape[2] / np.where(mass > 0.0, mass, 1.0))
        largest = np.where(np.isfinite(rows), np.abs(rows), 0.0).max(axis=(1, 2), initial=0.0)
        alike = np.where(largest > 0.0, _COARSE * largest, _UNKNOWN)  # they may part later
        step = np.where(spread > _ALIKE * largest, _FINENESS * spread, alike)
        found[:, 0] = tree_sums.shorten(np.where(mass > 0.0, step, 0.0))
        return found

    def message(self, state: TreeLloydState, devices: Devices) -> DenseMessages:
        """Send what is due in the walk, if it is the layer's turn."""
        return super().message(state, self._within(devices))

    def outgoing(self, state: TreeLloydState, *, up: bool) -> Floats:
        """Return what goes up or down; costs are numbers of 24 bits."""
        tables = super().outgoing(state, up=up)
        if up:
            tables[:, -1, 0] = search.shorten(tables[:, -1, 0], _DIGITS)
        return tables

    def update(self, state: TreeLloydState, inbox: Inbox, devices: Devices) -> TreeLloydState:
        """Wake up for a step, then act as in a round of tree Lloyd."""
        if devices.turn == 0 and devices.round > 1:
            asleep = state.units[:, 0] == 0.0  # without points nothing moves
            if devices.round % _EVERY:
                asleep = asleep | ((read_codes(state.down) & ERRORS) == 0)
            state = state._replace(converged=asleep)
        if self._rests(state):
            return state
        return super().update(state, inbox, self._within(devices))

    def _within(self, devices: Devices) -> Devices:
        """Return the batch in the turn of the walk, as if that were a round; 1 is the first walk of all."""
        if devices.round == 0:
            return devices
        walk, turn = divmod(devices.turn, 2 * self.depth + 1)
        return devices.at_turn((devices.round - 1) * _WALKS + walk + 1, turn, devices.active_devices)

    def _rests(self, state: TreeLloydState) -> bool:
        """Return whether no device of the batch has anything to do; its tables have the size that all send."""
        return state.up.shape[1] == self.places + 1 and bool(state.converged.all())

    def measure(self, state: TreeLloydState, devices: Devices) -> TreeLloydState:
        """Begin a step where there is one; who rests remembers what it sent last, and its last command."""
        if self._rests(state):
            return state
        found = super().measure(state, devices)
        rests = state.converged[:, None, None]
        down = np.where(rests, state.down, found.down) if state.down.shape == found.down.shape else found.down
        return found._replace(own=np.where(rests, state.own, found.own), down=down)

    def choose_command(self, root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
        """Decide at a root: its next state, and its command."""
        return decide(root, totals, self.method.tol)

    def apply_commands(self, state: TreeLloydState, who: Integers, devices: Devices) -> TreeLloydState:
        """Apply the commands; devices that stop keep the table that they have."""
        state = super().apply_commands(state, who, devices)
        rests = who[self.stops(state)[who]]
        if not len(rests):
            return state
        table, reference = state.table[rests], state.reference[rests]
        rows = place(reference, state.units[rests], table)
        order = np.argsort(~np.isfinite(rows[:, :, 0]), axis=1, kind="stable")[:, : self.k]
        return state._replace(
            centroids=put(state.centroids, rests, np.take_along_axis(rows, order[:, :, None], axis=1)),
            kept=put(state.kept, rests, table), kept_reference=put(state.kept_reference, rests, reference),
        )  # fmt: skip


def decide(root: TrackingRoot, totals: Totals, tol: float) -> tuple[TrackingRoot, Command]:
    """Decide on the next command; `tol` is the relative fall of the cost that ends the fit of round 1."""
    root, command = _choose(root._replace(steps=root.steps + 1), totals, tol)
    if command.code & STOP and root.risen:
        # a step in the next round, too
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
    if root.phase == ASKED:
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
    falls = before == np.inf or before - now >= tol * before
    root = root._replace(cost=now)
    if totals.moves.any() and falls and root.steps < _WALKS - 1:
        return root, Command(KEEP + MOVE)
    return _remember(root._replace(phase=STEP), totals), Command(MOVE + STOP)


def _step(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide after a measurement: a step, and a request for errors of the rows if a trial is due."""
    known = root.lows[np.isfinite(root.lows)]
    low = float(np.quantile(known, 0.25)) if len(known) else np.inf
    root = _remember(root, totals)
    mean, looked = root.lows[-1], root.looked + 1
    numbers = max(totals.weight, 1.0) * totals.moves.shape[1]
    rise = max(_RISE, _CHANCE * float(np.sqrt(2.0 / numbers)))
    risen = mean > (1.0 + rise) * low
    due = risen and (root.wait == 0 or mean > (1.0 + rise) * root.tried)
    root = root._replace(
        cost=totals.cost, looked=looked, tried=mean if due else root.tried, risen=mean > (1.0 + rise / 2.0) * low,
        wait=max(root.wait - 1, 0), failed=root.failed if risen else 0,
    )  # fmt: skip
    if due or looked >= _LOOK:
        return root._replace(phase=ASKED, rows=_MOST if due else 1), Command(MOVE + ERRORS)
    return _continue(root._replace(steps=1), totals)


def _continue(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide on a step of a round: the last one if it promises little.

    If no point changes its cluster, the cost falls by n_c |z_c|^2 in each row, else by more.
    """
    gain = float(np.cumsum(totals.counts[:, None] * totals.moves**2)[-1])
    again = gain > _WORTH * totals.cost and root.steps < _MOST_STEPS
    root = root._replace(cost=totals.cost, phase=MORE if again else STEP)
    return root, Command(MOVE if again else MOVE + STOP)


def _grow(root: TrackingRoot, totals: Totals, rows: int, code: int) -> tuple[TrackingRoot, Command]:
    """Start a trial with some more rows."""
    command = add_rows(totals, root.errors, rows, root.cost, code)
    return root._replace(phase=GROWN, rows=rows, steps=0), command


def _judge(root: TrackingRoot, totals: Totals) -> tuple[TrackingRoot, Command]:
    """Decide at the end of a trial."""
    better = totals.cost < root.cost * (1.0 - _GAIN)
    if not better and root.rows > 1:
        return _grow(root, totals, int(root.rows) - 1, BACK)
    failed = 0 if better else root.failed + int(root.risen)
    root = root._replace(phase=STEP, looked=0, failed=failed, wait=_WAITS[min(int(failed), len(_WAITS) - 1)])
    if not better:
        return root, Command(BACK + STOP)
    return _remember(root, totals), Command(MOVE + STOP)


def _remember(root: TrackingRoot, totals: Totals) -> TrackingRoot:
    """Replace the oldest cost per unit of weight by that of now."""
    mean = totals.cost / totals.weight if totals.weight > 0.0 else np.inf
    return root._replace(lows=np.append(root.lows[1:], mean))
