"""Tree Lloyd where devices leave and return: they grow their tree by messages, and anew when one is missing.

In a round each device is present or absent for good, and nothing announces it. With n devices and D = n - 1, the
longest way there can be, a round has three parts, of 2 D, D and D exchanges and a last turn in which is read:

1. Election. A device that received no command in the round before sends ``(stamp, rank, 0)`` to its neighbors. A
   device joins in as soon as it receives such a message. Every device keeps the best triple, a higher stamp first, then
   a lower rank, then fewer hops, forwards it with a hop more when it has become better, and takes the sender as its
   parent. So all devices that are connected take the same one as their root, at the end of shortest paths. The stamp is
   the round of the last command that a device has received, so that one that was away for long does not bring back its
   old table. The rank is the place in the tree that the whole graph would have, root first: it is known to all.
2. Up. After an election: the moments of the points below, and who receives them takes the sender as its child. Else
   sums and cost. A device of which a child is silent stays silent itself.
3. Down. After an election the root sends step, unit and the table that it has come to, from which all begin anew:
   with absolute sums and no cost to compare with. Else moves and a command.

So a missing device makes the root silent, nobody receives a command, and all elect again in the next round; children of
the missing one do so, too. A device that is back received no command either. What a device acts on is what it received
or did not.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, Objective
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import Tree

_TRIPLE, _UNITS = 3, tree_sums.UNITS  # numbers
_TRIPLE_BYTES = 12  # three whole numbers of 4 bytes


@register("regrown-tree")
class Growth(NamedTuple):
    """What a device knows of its tree.

    Attributes
    ----------
    stamp : int64[n]
        Round of the last command; -1: none.
    best : int64[n, 3]
        The best triple: minus the stamp, the rank, hops.
    elects, improved, complete : bool[n]
        Whether it takes part in an election in this round; whether `best` has just become better; whether all children
        have sent.
    moments : float64[n, 1, 4]
        `tree_sums.measure` of the points below, after an election.
    begins : float64[n, h + r, d]
        What comes down after an election: step, unit and grain, h rows, and the table.
    edge_parent, edge_child : bool[e]
    """

    stamp: Integers
    best: Integers
    elects: Mask
    improved: Mask
    complete: Mask
    moments: Floats
    begins: Floats
    edge_parent: Mask
    edge_child: Mask


class TreeMethod(Protocol):
    """Method whose tree is grown by messages, as far as a round uses it."""

    @property
    def k(self) -> int:
        """Return the number of clusters."""

    @property
    def traits(self) -> MethodTraits:
        """Return what it is."""

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""

    @property
    def tree(self) -> Tree:
        """Return the tree that the whole graph would have."""

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening."""

    def moments(self, state: Any, devices: Devices) -> Floats:
        """Return `tree_sums.measure` of the own points with the table from which every device would begin anew."""

    def choose_units(self, state: Any, who: Integers, moments: Floats, devices: Devices) -> Floats:
        """Return step, unit and grain for these points, float64[b, 3]."""

    def restart(self, state: Any, who: Integers, table: Floats, units: Floats) -> Any:
        """Return the state in which some devices begin anew from a table."""

    def latest(self, state: Any) -> Floats:
        """Return the table from which every device would begin anew, float64[n, r, d]."""

    def measure(self, state: Any, devices: Devices) -> Any:
        """Prepare the convergecast in `up`, and an empty command in `down`."""

    def decide(self, state: Any, roots: Integers, devices: Devices) -> Any:
        """Write the commands of the roots into `down`."""

    def apply_commands(self, state: Any, who: Integers, devices: Devices) -> Any:
        """Apply the commands in `down` at some devices."""

    def stops(self, state: Any) -> Mask:
        """Find the devices whose command is to stop, bool[n]."""

    def outgoing(self, state: Any, *, up: bool) -> Floats:
        """Return the tables that go up or down, float64[n, r, w]."""

    def count_wire(self, state: Any, who: Integers, tables: Floats, devices: Devices, *, up: bool) -> Integers:
        """Return the bytes on the wire of the tables of some devices, int64[b]."""


@dataclass(frozen=True)
class OverRegrownTree(MethodBase):
    """A method along a tree, in rounds as above; its state has a field `growth`."""

    method: TreeMethod

    @property
    def k(self) -> int:
        """Return the number of clusters."""
        return self.method.k

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return self.method.traits

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        return self.method.objective

    @property
    def longest(self) -> int:
        """Return the most links from a root to a device; at least one."""
        return max(1, len(self.method.tree.parent) - 1)

    @property
    def schedule(self) -> str:
        """Return the schedule."""
        return f"jacobi*{4 * self.longest + 1}"

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return a state without a tree."""
        state, n, e = self.method.initial_state(devices, start), len(devices), len(devices.indices)
        rows, no, none = self.method.latest(state).shape[1], np.zeros(n, np.bool_), np.zeros(e, np.bool_)
        return state._replace(units=np.ones_like(state.units), growth=Growth(
            np.full(n, -1), np.zeros((n, _TRIPLE), np.int64), no, no, no, np.zeros((n, 1, tree_sums.MOMENTS)),
            np.zeros((n, _head_rows(devices.d) + rows, devices.d)), none, none,
        ))  # fmt: skip

    def message(self, state: Any, devices: Devices) -> DenseMessages:
        """Send what the part of the round asks for; at the opening nothing, to nobody."""
        growth, source, turn = state.growth, devices.sources, devices.turn - 2 * self.longest
        n, none = len(devices), np.zeros(len(devices.indices), np.bool_)
        if devices.round == 0:
            return DenseMessages(np.zeros((n, 1, _TRIPLE)), np.zeros(n, np.int64), edges=none)
        if turn < 0:
            rows = np.where(growth.improved, 1, -1)
            values = growth.best[:, None].astype(np.float64)
            wire = np.full(n, _TRIPLE_BYTES)
            return DenseMessages(values, rows, edges=growth.improved[source] & ~growth.edge_parent, wire=wire)
        up, hops = turn < self.longest, growth.best[:, 2]
        if up:
            sending = (hops == self.longest - turn) & growth.complete & ~state.converged
        else:
            sending = (hops == turn - self.longest) & (growth.stamp == devices.round)
        edges = sending[source] & (growth.edge_parent if up else growth.edge_child)
        alone = sending & (hops == 0)  # a root without children is not done either
        sending = (np.bincount(source[edges], minlength=n) > 0) | alone
        return self._combine(state, sending, edges, devices, up=up)

    def _combine(self, state: Any, sending: Mask, edges: Mask, devices: Devices, *, up: bool) -> DenseMessages:
        """Return the messages of those who walk and of those who begin anew, whose numbers fill rows of one width."""
        growth, plain = state.growth, self.method.outgoing(state, up=up)
        begins, elects = growth.moments if up else growth.begins, growth.elects
        (n, r, w), numbers = plain.shape, begins.shape[1] * begins.shape[2]
        needed = -(-numbers // w)
        flat = np.zeros((n, max(r, needed) * w))
        flat[:, : r * w] = plain.reshape(n, r * w)
        flat[elects, :numbers] = begins.reshape(n, numbers)[elects]
        wire, walks = np.zeros(n, np.int64), np.flatnonzero(sending & ~elects)
        if len(walks):
            wire[walks] = self.method.count_wire(state, walks, plain[walks], devices, up=up)
        real = np.isfinite(begins)
        bitmap = np.where(real.all(axis=(1, 2)), 0, -(-begins.shape[1] // 8))
        unused = 0 if up else _head_rows(w) * w - _UNITS
        wire[elects] = (8 * (real.sum(axis=(1, 2)) - unused) + bitmap)[elects]
        rows = np.where(sending, np.where(elects, needed, r), -1)
        return DenseMessages(flat.reshape(n, max(r, needed), w), rows, edges=edges, wire=wire)

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Read what the part of the round has brought."""
        longest, turn = self.longest, devices.turn - 2 * self.longest
        inbox = inbox._replace(sent=None, over=inbox.fresh & devices.active_devices[devices.sources])
        if devices.turn == 0:
            return self._begin(state, devices)
        if turn <= 0:
            state = _elect(state, inbox, devices, self._rank(devices))
            return self._prepare(state, devices) if turn == 0 else state
        if turn <= longest:
            state = self._take_children(state, inbox, devices, longest - turn)
            return self._decide(state, devices) if turn == longest else state
        state = self._take_parents(state, inbox, devices)
        return self._check_termination(state, devices) if turn == 2 * longest else state

    def _rank(self, devices: Devices) -> Integers:
        """Return the place of each device in the tree of the whole graph, int64[n]."""
        rank = np.empty(len(self.method.tree.layer), np.int64)
        rank[np.argsort(self.method.tree.layer, kind="stable")] = np.arange(len(rank))
        return rank[devices.ids]

    def _begin(self, state: Any, devices: Devices) -> Any:
        """Start an election at devices that received no command in the round before."""
        growth = state.growth
        calls = (growth.stamp != devices.round - 1) & ~state.converged
        growth = growth._replace(elects=np.zeros(len(devices), np.bool_))
        return state._replace(growth=_call(growth, calls, self._rank(devices), devices))

    def _prepare(self, state: Any, devices: Devices) -> Any:
        """Begin the way up: with the moments of the own points after an election, else with a step."""
        growth = state.growth
        return self.method.measure(state, devices)._replace(growth=growth._replace(
            improved=np.zeros_like(growth.elects), complete=np.ones_like(growth.elects),
            moments=self.method.moments(state, devices) if growth.elects.any() else growth.moments,
            edge_child=growth.edge_child & ~growth.elects[devices.sources],
        ))  # fmt: skip

    def _take_children(self, state: Any, inbox: Inbox, devices: Devices, hops: int) -> Any:
        """Take in what children have sent to the devices so many hops from their root."""
        growth, fresh, source = state.growth, inbox.fresh, devices.sources
        elects = growth.elects[source]
        missing = np.bincount(source[growth.edge_child & ~fresh], minlength=len(devices)) > 0
        missing &= (growth.best[:, 2] == hops) & ~growth.elects
        growth = growth._replace(complete=growth.complete & ~missing)
        if (fresh & elects).any():
            (_, _, width), w = growth.moments.shape, state.up.shape[2]
            rows = -(-width // w)
            flat = inbox.tables[:, :rows, :w].reshape(len(inbox.tables), rows * w)[:, None, :width]
            some = inbox._replace(tables=flat, over=fresh & elects)
            moments = tree_sums.merge_children(growth.moments, some, devices)
            growth = growth._replace(moments=moments, edge_child=growth.edge_child | (fresh & elects))
        if (fresh & ~elects).any():
            some = inbox._replace(over=fresh & ~elects)
            state = state._replace(up=tree_sums.add_children(state.up, some, devices))
        return state._replace(growth=growth)

    def _decide(self, state: Any, devices: Devices) -> Any:
        """Decide at the roots that have received everything, and apply their commands to themselves."""
        growth = state.growth
        roots = (growth.best[:, 2] == 0) & growth.complete & ~state.converged & devices.active_devices
        new, old = np.flatnonzero(roots & growth.elects), np.flatnonzero(roots & ~growth.elects)
        if len(new):
            begins, d = growth.begins.copy(), devices.d
            begins[new] = 0.0
            units = self.method.choose_units(state, new, growth.moments[new], devices)
            begins[new, : _head_rows(d)] = _pad(units, _head_rows(d) * d).reshape(len(new), _head_rows(d), d)
            begins[new, _head_rows(d) :] = self.method.latest(state)[new]
            state = state._replace(growth=growth._replace(begins=begins))
        if len(old):
            state = self.method.decide(state, old, devices)
        return self._follow(state, roots, devices)

    def _take_parents(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Take in what the parents have sent, forward it in the next exchange and follow it."""
        edges = np.flatnonzero(inbox.fresh)
        if not len(edges):
            return state
        growth, who = state.growth, devices.sources[edges]
        (_, r, w), elects = state.down.shape, growth.elects[who]
        down, begins = state.down.copy(), growth.begins.copy()
        down[who[~elects]] = inbox.tables_of(edges[~elects], r, w)
        begins[who[elects]] = inbox.tables_of(edges[elects], begins.shape[1], w)
        reached = np.zeros(len(devices), np.bool_)
        reached[who] = True
        return self._follow(state._replace(down=down, growth=growth._replace(begins=begins)), reached, devices)

    def _follow(self, state: Any, reached: Mask, devices: Devices) -> Any:
        """Apply the root's command at the devices that received it in this turn."""
        growth = state.growth
        state = state._replace(growth=growth._replace(stamp=np.where(reached, devices.round, growth.stamp)))
        new, old = np.flatnonzero(reached & growth.elects), np.flatnonzero(reached & ~growth.elects)
        if len(new):
            head = _head_rows(devices.d)
            units = growth.begins[new, :head].reshape(len(new), head * devices.d)[:, :_UNITS]
            state = self.method.restart(state, new, growth.begins[new, head:], units)
        return self.method.apply_commands(state, old, devices) if len(old) else state

    def _check_termination(self, state: Any, devices: Devices) -> Any:
        """Mark devices as converged whose command is to stop, or whose points have no spread."""
        growth = state.growth
        done = np.where(growth.elects, state.units[:, 0] == 0.0, self.method.stops(state))
        return state._replace(converged=state.converged | (done & (growth.stamp == devices.round)))


def _elect(state: Any, inbox: Inbox, devices: Devices, rank: Integers) -> Any:
    """Return the state in which the devices have compared what they received; who receives something takes part."""
    growth, edges = state.growth, np.flatnonzero(inbox.fresh)
    growth = growth._replace(improved=np.zeros(len(devices), np.bool_))
    if not len(edges):
        return state._replace(growth=growth)
    source = devices.sources[edges]
    joins = np.zeros(len(devices), np.bool_)
    joins[source] = True
    growth = _call(growth, joins & ~growth.elects, rank, devices)
    offers = inbox.tables_of(edges, 1, _TRIPLE)[:, 0].astype(np.int64)
    offers[:, 2] += 1
    order = np.lexsort((devices.indices[edges], offers[:, 2], offers[:, 1], offers[:, 0], source))
    order = order[np.diff(source[order], prepend=-1) > 0]  # the best offer of each, from the lowest id
    held = growth.best[source[order]]
    apart = np.sign(offers[order] - held)
    better = order[apart @ (4, 2, 1) < 0]
    who = source[better]
    best, improved, edge_parent = growth.best.copy(), growth.improved.copy(), growth.edge_parent.copy()
    best[who], improved[who] = offers[better], True
    edge_parent[np.isin(devices.sources, who)] = False
    edge_parent[edges[better]] = True
    growth = growth._replace(best=best, improved=improved, edge_parent=edge_parent)
    return state._replace(growth=growth, converged=state.converged & ~growth.elects)


def _call(growth: Growth, who: Mask, rank: Integers, devices: Devices) -> Growth:
    """Return the growth in which some devices take part in an election, each as its own candidate."""
    own = np.column_stack((-growth.stamp, rank, np.zeros(len(rank), np.int64)))
    return growth._replace(
        best=np.where(who[:, None], own, growth.best), elects=growth.elects | who, improved=growth.improved | who,
        edge_parent=growth.edge_parent & ~who[devices.sources],
    )  # fmt: skip


def _head_rows(d: int) -> int:
    """Return how many rows of d numbers step, unit and grain take."""
    return -(-_UNITS // d)


def _pad(values: Floats, width: int) -> Floats:
    """Return rows with zeros behind them up to a width."""
    found = np.zeros((len(values), width))
    found[:, : values.shape[1]] = values
    return found
