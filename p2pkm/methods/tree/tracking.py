"""Tree Lloyd on points that change: few exact steps along the tree, and breathing where the cost has risen."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import Known, TreeWalk
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import grow
from p2pkm.methods.tree import search, treelloyd
from p2pkm.methods.tree.treelloyd import OverTree, TreeLloyd, TreeLloydState
from p2pkm.network.graph import Topology

_EVERY = 2  # rounds from one step to the next
_MEMORY = 16  # measurements with which the cost is compared
_RISE = 0.05  # relative rise above a quarter of these for which rows are tried; half of it: another step
_CHANCE = 1.5  # or so many standard deviations of the mean squared distance of so many points, if that is more
_LOOK = 5  # measurements after which rows are tried anyway
_MOST = 2  # rows that are added at first
_GROWN, _SHRUNK = 2, 2  # Lloyd steps before and after rows are taken out
_MOST_STEPS, _WORTH = 3, 5e-3  # steps of a round, and the relative fall of the cost that leads to another one
_GAIN = 1e-3  # relative fall of the cost for which a trial is kept
_WAITS = (0, 2, 4)  # measurements without a trial after no failure, one, and more
_WALKS = 2 + _MOST * (_GROWN + _SHRUNK + 2)  # up and down the tree in a round, at most
_LEAST = 2.0**-12  # of the squares around the mean of the start: within clusters there are as many
_FINENESS = 2.0**-4  # of the standard deviation within clusters: the step
_ALIKE = 2.0**-46  # of the largest coordinate: points that differ by less are alike but for rounding
_COARSE, _UNKNOWN = 2.0**-30, 2.0**-20  # the step then: of the largest coordinate; where all are 0
_DIGITS = 16  # of a cost, in binary
_USED = 0.1  # of the bits of all walks, on average
_FIT, _STEP, _MORE, _ASKED, _GROW, _SHRINK = range(6)  # phases of a root
_PHASE, _ROWS, _STEPS, _LOOKED, _RISEN, _TRIED, _WAIT, _FAILED, _LOWS = range(9)  # columns of what a root remembers


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

    def on(self, topology: Topology) -> "TrackOverTree":
        """Return the algorithm that the loop runs, over a spanning tree of the graph."""
        return TrackOverTree(self, grow(topology))


@dataclass(frozen=True)
class TrackOverTree(OverTree):
    """`TrackingTreeLloyd` along trees: so many walks of `OverTree` are a round; most of them are silent."""

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

    def initial_state(self, devices: Devices, start: Any) -> TreeLloydState:
        """Start from the centroids of the last stage; a root remembers no cost."""
        state = super().initial_state(devices, start)
        memory = np.zeros((len(devices), _LOWS + _MEMORY))
        memory[:, _LOWS:] = np.inf
        return state._replace(trial=memory)

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
                asleep = asleep | ((state.down[:, 0, 0].astype(np.int64) & treelloyd._PHI) == 0)
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
        """Begin a step where there is one; who rests remembers what it sent last, and its last order."""
        if self._rests(state):
            return state
        found = super().measure(state, devices)
        rests = state.converged[:, None, None]
        down = np.where(rests, state.down, found.down) if state.down.shape == found.down.shape else found.down
        return found._replace(own=np.where(rests, state.own, found.own), down=down)

    def decide(self, state: TreeLloydState, roots: Integers, devices: Devices) -> TreeLloydState:
        """Return the state in which the roots have made up their orders."""
        sums = state.sums.copy()
        sums[roots] += state.up[roots, :-1, : sums.shape[2]]
        moves = tree_sums.find_moves(sums[roots], state.table[roots], state.units[roots, 2])
        state = state._replace(sums=sums, costs=state.costs.copy(), down=state.down.copy(), trial=state.trial.copy(),
                               phi=state.phi.copy())  # fmt: skip
        for root, move in zip(roots.tolist(), moves, strict=True):
            state.trial[root, _STEPS] += 1
            order = self._choose_order(state, root, move)
            if order & treelloyd._STOP and state.trial[root, _RISEN]:
                order += treelloyd._PHI  # a step in the next round, too
            state.down[root, 0, 0] += order
            if order & treelloyd._MOVE:
                state.down[root, 1:] = move
        return state

    def _choose_order(self, state: TreeLloydState, root: int, move: Floats) -> int:
        """Return the order of a root that has received all sums."""
        memory, now = state.trial[root], float(state.up[root, -1, 0])
        phase, steps = int(memory[_PHASE]), memory[_STEPS]
        if phase == _FIT:
            return self._fit(state, root, move, now)
        if phase == _STEP:
            return _step(state, root, move, now)
        if phase == _MORE:
            return _go_on(state, root, move, now)
        if phase == _ASKED:
            state.phi[root], state.costs[root] = state.up[root, :-1, -1], now
            return _add(state, root, int(memory[_ROWS]), treelloyd._KEEP)
        if phase == _GROW:
            last = treelloyd._UTILITY if steps == _GROWN else 0
            return treelloyd._MOVE + last if steps <= _GROWN else _remove(state, root)
        return treelloyd._MOVE if steps <= _SHRUNK and move.any() else _judge(state, root, now)

    def _fit(self, state: TreeLloydState, root: int, move: Floats, now: float) -> int:
        """Return the order of a root after a Lloyd step of round 1."""
        memory, before = state.trial[root], float(state.costs[root])
        state.costs[root] = now
        falls = before == np.inf or before - now >= self.method.tol * before
        if move.any() and falls and memory[_STEPS] < _WALKS - 1:
            return treelloyd._KEEP + treelloyd._MOVE
        memory[_PHASE] = _STEP
        _remember(state, root, now)
        return treelloyd._MOVE + treelloyd._STOP

    def obey(self, state: TreeLloydState, who: Integers, devices: Devices) -> TreeLloydState:
        """Follow the orders; who rests from now on keeps the table that it has come to."""
        state = super().obey(state, who, devices)
        rests = who[(state.down[who, 0, 0].astype(np.int64) & treelloyd._STOP) > 0]
        if not len(rests):
            return state
        table, reference = state.table[rests], state.reference[rests]
        rows = treelloyd._place(reference, state.units[rests], table)
        order = np.argsort(~np.isfinite(rows[:, :, 0]), axis=1, kind="stable")[:, : self.k]
        put = treelloyd._put
        return state._replace(
            centroids=put(state.centroids, rests, np.take_along_axis(rows, order[:, :, None], axis=1)),
            kept=put(state.kept, rests, table), kept_reference=put(state.kept_reference, rests, reference),
        )  # fmt: skip


def _step(state: TreeLloydState, root: int, move: Floats, now: float) -> int:
    """Return the order of a root that has measured: a step, and the errors of the rows if it is time to look."""
    memory = state.trial[root]
    known = memory[_LOWS:][np.isfinite(memory[_LOWS:])]
    low = float(np.quantile(known, 0.25)) if len(known) else np.inf
    mean = _remember(state, root, now)
    memory[_LOOKED] += 1
    numbers = max(float(state.sums[root, :, -1].sum()), 1.0) * state.table.shape[2]
    rise = max(_RISE, _CHANCE * float(np.sqrt(2.0 / numbers)))
    risen = mean > (1.0 + rise) * low
    due = risen and (memory[_WAIT] == 0 or mean > (1.0 + rise) * memory[_TRIED])
    memory[_TRIED] = mean if due else memory[_TRIED]
    memory[_RISEN] = mean > (1.0 + rise / 2.0) * low
    memory[_WAIT], memory[_FAILED] = max(memory[_WAIT] - 1, 0), memory[_FAILED] * risen
    state.costs[root] = now
    if due or memory[_LOOKED] >= _LOOK:
        memory[_PHASE], memory[_ROWS] = _ASKED, _MOST if due else 1
        return treelloyd._MOVE + treelloyd._PHI
    memory[_STEPS] = 1
    return _go_on(state, root, move, now)


def _go_on(state: TreeLloydState, root: int, move: Floats, now: float) -> int:
    """Return the order of a root for a step of a round: the last one if it promises little.

    If no point changes its cluster, the cost falls by n_c |z_c|^2 in each row, else by more.
    """
    memory, gain = state.trial[root], float(np.cumsum(state.sums[root, :, -1:] * move**2)[-1])
    state.costs[root] = now
    again = gain > _WORTH * now and memory[_STEPS] < _MOST_STEPS
    memory[_PHASE] = _MORE if again else _STEP
    return treelloyd._MOVE + (0 if again else treelloyd._STOP)


def _add(state: TreeLloydState, root: int, rows: int, word: int) -> int:
    """Return the order to begin a trial with so many rows."""
    memory = state.trial[root]
    memory[_PHASE], memory[_ROWS], memory[_STEPS] = _GROW, rows, 0
    order, _ = treelloyd._grow(state, root, search.Trial(rows=float(rows)), word)
    return order


def _remove(state: TreeLloydState, root: int) -> int:
    """Return the order to take out as many rows as were added, those that are missed least."""
    memory, one = state.trial[root], [root]
    memory[_PHASE], memory[_STEPS] = _SHRINK, 0
    rows = treelloyd._place(state.reference[one], state.units[one], state.table[one])[0]
    added = np.isfinite(rows[:, 0]).sum() - np.isfinite(state.kept_reference[root, :, 0]).sum()
    state.down[root, 1 + search.choose_least(state.up[root, :-1, -1], rows, int(added)), 0] = 1.0
    return treelloyd._REMOVE


def _judge(state: TreeLloydState, root: int, now: float) -> int:
    """Return the order of a root at the end of a trial."""
    memory, better = state.trial[root], now < state.costs[root] * (1.0 - _GAIN)
    if not better and memory[_ROWS] > 1:
        return _add(state, root, int(memory[_ROWS]) - 1, treelloyd._BACK)
    memory[_PHASE], memory[_LOOKED] = _STEP, 0
    memory[_FAILED] = 0 if better else memory[_FAILED] + memory[_RISEN]
    memory[_WAIT] = _WAITS[min(int(memory[_FAILED]), len(_WAITS) - 1)]
    if not better:
        return treelloyd._BACK + treelloyd._STOP
    _remember(state, root, now)
    return treelloyd._MOVE + treelloyd._STOP


def _remember(state: TreeLloydState, root: int, now: float) -> float:
    """Return the cost for a unit of weight, which the root keeps in the place of the oldest one."""
    memory = state.trial[root]
    mass = float(state.sums[root, :, -1].sum())
    mean = now / mass if mass > 0.0 else np.inf
    memory[_LOWS:] = np.append(memory[_LOWS + 1 :], mean)
    return mean
