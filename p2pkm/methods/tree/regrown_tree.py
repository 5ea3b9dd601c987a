"""Tree Lloyd with devices that leave and return: they elect a root and build a spanning tree by messages.

Absence is not announced: devices infer it from missing messages. In a round each device is present or absent
throughout. With n devices the longest possible path has D = n - 1 links, so a round has three parts of 2 D, D and D
exchanges, and a last turn to read messages. An election needs 2 D exchanges: the first call reaches the future root
after at most D, and its triple reaches all devices after D more.

1. Election. A device without a command in the previous round sends ``(stamp, rank, 0)`` to its neighbors; a device
   joins when it receives such a triple. Each device stores the best triple: first the higher stamp, then the lower
   rank, then fewer hops. It forwards the triple with one more hop when it has improved, and takes the sender as its
   parent. So all connected devices agree on one root, along shortest paths. The stamp is the round of the device's last
   command, so a device that was absent for long does not bring back an old table. The rank is the position in the
   spanning tree of the whole graph, root first, which all devices know.
2. Up. After an election devices send the moments of the points below them, and a receiver takes the sender as its
   child. Otherwise they send sums and cost. A device with a silent child stays silent.
3. Down. After an election the root sends step, unit, grain and its latest table, from which all devices restart: with
   absolute sums, and without a cost to compare with. Otherwise it sends a command, with moves.

So an absent device makes the root silent, no device receives a command, and all elect again in the next round. A device
that returns has received no command either, so it starts an election.
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

# Numbers in an election message, and in the head of a restart message (step, unit, grain).
_TRIPLE = 3
_UNITS = tree_sums.UNITS
# Encoded bytes of an election message: three integers of 4 bytes.
_TRIPLE_BYTES = 12


@register("regrown-tree")
class ElectionState(NamedTuple):
    """Local part of a tree that devices build by messages.

    Attributes
    ----------
    stamp : int64[n]
        Round of the last command; -1: none.
    best : int64[n, 3]
        Best triple so far: minus stamp, rank, hops to the root.
    elects, improved, complete : bool[n]
        elects: the device takes part in an election in this round. improved: `best` has changed in this turn. complete:
        all children have sent.
    moments : float64[n, 1, 4]
        Moments of the points below the device, after an election; see `tree_sums.measure`.
    begins : float64[n, h + r, d]
        Restart message of the root after an election: h rows of step, unit and grain, then the table.
    edge_parent, edge_child : bool[e]
        Edges to the parent and to the children.
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
    """Functions of a tree method that `ElectedTreeMethod` calls."""

    @property
    def k(self) -> int:
        """Number of clusters."""

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method."""

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""

    @property
    def tree(self) -> Tree:
        """Spanning tree of the whole graph."""

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Create the state before the initial exchange."""

    def moments(self, state: Any, devices: Devices) -> Floats:
        """Compute the moments of the local points for the table of a restart, float64[n, 1, 4]."""

    def choose_units(self, state: Any, members: Integers, moments: Floats, devices: Devices) -> Floats:
        """Choose step, unit and grain for points of these moments, float64[b, 3]."""

    def restart(self, state: Any, members: Integers, table: Floats, units: Floats) -> Any:
        """Restart some devices from a table, on a new grid."""

    def latest(self, state: Any) -> Floats:
        """Choose the table from which a device would restart, float64[n, r, d]."""

    def prepare_convergecast(self, state: Any, devices: Devices) -> Any:
        """Prepare the convergecast in `up`, and an empty command in `down`."""

    def write_commands(self, state: Any, roots: Integers, devices: Devices) -> Any:
        """Write the commands of the roots into `down`."""

    def apply_commands(self, state: Any, members: Integers, devices: Devices) -> Any:
        """Apply the commands in `down` at some devices."""

    def stops(self, state: Any) -> Mask:
        """Find the devices whose command is to stop, bool[n]."""

    def outgoing(self, state: Any, *, up: bool) -> Floats:
        """Select the tables for parents or children, float64[n, r, w]."""

    def count_encoded_bytes(
        self, state: Any, members: Integers, tables: Floats, devices: Devices, *, up: bool
    ) -> Integers:
        """Count the encoded bytes of the tables of some devices, int64[b]."""


@dataclass(frozen=True)
class ElectedTreeMethod(MethodBase):
    """Tree method with elections, in rounds as above; the state has a field `growth`."""

    method: TreeMethod

    @property
    def k(self) -> int:
        """Number of clusters."""
        return self.method.k

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return self.method.traits

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        return self.method.objective

    @property
    def longest(self) -> int:
        """Largest possible number of links D from a root to a device; at least one."""
        return max(1, len(self.method.tree.parent) - 1)

    @property
    def schedule(self) -> str:
        """Schedule: elections, both passes, and a turn to read the last messages."""
        return f"jacobi*{4 * self.longest + 1}"

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Create the state of devices without a tree."""
        state = self.method.initial_state(devices, start)
        n = len(devices)
        rows = self.method.latest(state).shape[1]
        no_devices = np.zeros(n, np.bool_)
        no_edges = np.zeros(len(devices.indices), np.bool_)
        growth = ElectionState(
            stamp=np.full(n, -1),
            best=np.zeros((n, _TRIPLE), np.int64),
            elects=no_devices,
            improved=no_devices,
            complete=no_devices,
            moments=np.zeros((n, 1, tree_sums.MOMENTS)),
            begins=np.zeros((n, _head_rows(devices.d) + rows, devices.d)),
            edge_parent=no_edges,
            edge_child=no_edges,
        )
        return state._replace(units=np.ones_like(state.units), growth=growth)

    def message(self, state: Any, devices: Devices) -> DenseMessages:
        """Send triples, tables up or tables down, by the part of the round."""
        growth = state.growth
        source = devices.sources
        turn = devices.turn - 2 * self.longest
        n = len(devices)
        if devices.round == 0:
            # Tables over no edge: silence in the initial exchange would end the run.
            no_edges = np.zeros(len(devices.indices), np.bool_)
            return DenseMessages(np.zeros((n, 1, _TRIPLE)), np.zeros(n, np.int64), edges=no_edges)
        if turn < 0:
            rows = np.where(growth.improved, 1, -1)
            values = growth.best[:, None].astype(np.float64)
            wire = np.full(n, _TRIPLE_BYTES)
            return DenseMessages(values, rows, edges=growth.improved[source] & ~growth.edge_parent, wire=wire)
        up = turn < self.longest
        hops = growth.best[:, 2]
        if up:
            sending = (hops == self.longest - turn) & growth.complete & ~state.converged
        else:
            sending = (hops == turn - self.longest) & (growth.stamp == devices.round)
        edges = sending[source] & (growth.edge_parent if up else growth.edge_child)
        # A root without children sends a table over no edge: it has not converged, and silence would end the run.
        single_root = sending & (hops == 0)
        sending = (np.bincount(source[edges], minlength=n) > 0) | single_root
        return self._pack_messages(state, sending, edges, devices, up=up)

    def _pack_messages(self, state: Any, sending: Mask, edges: Mask, devices: Devices, *, up: bool) -> DenseMessages:
        """Pack tables of the current pass and restart messages into messages of one width."""
        growth = state.growth
        plain = self.method.outgoing(state, up=up)
        restart = growth.moments if up else growth.begins
        elects = growth.elects
        (n, r, w), numbers = plain.shape, restart.shape[1] * restart.shape[2]
        needed = -(-numbers // w)
        flat = np.zeros((n, max(r, needed) * w))
        flat[:, : r * w] = plain.reshape(n, r * w)
        flat[elects, :numbers] = restart.reshape(n, numbers)[elects]
        wire = np.zeros(n, np.int64)
        members = np.flatnonzero(sending & ~elects)
        if len(members):
            wire[members] = self.method.count_encoded_bytes(state, members, plain[members], devices, up=up)
        # Restart messages have 8 bytes per finite number, and one bit per row if some rows are absent.
        present = np.isfinite(restart)
        bitmap = np.where(present.all(axis=(1, 2)), 0, -(-restart.shape[1] // 8))
        padding = 0 if up else _head_rows(w) * w - _UNITS
        wire[elects] = (8 * (present.sum(axis=(1, 2)) - padding) + bitmap)[elects]
        rows = np.where(sending, np.where(elects, needed, r), -1)
        return DenseMessages(flat.reshape(n, max(r, needed), w), rows, edges=edges, wire=wire)

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Process the messages of the current part of the round."""
        longest = self.longest
        turn = devices.turn - 2 * self.longest
        inbox = inbox._replace(sent=None, open_edges=inbox.fresh & devices.active_devices[devices.sources])
        if devices.turn == 0:
            return self._start_elections(state, devices)
        if turn <= 0:
            state = _compare_offers(state, inbox, devices, self._rank(devices))
            return self._start_convergecast(state, devices) if turn == 0 else state
        if turn <= longest:
            state = self._receive_from_children(state, inbox, devices, longest - turn)
            return self._decide_at_roots(state, devices) if turn == longest else state
        state = self._receive_from_parents(state, inbox, devices)
        return self._check_termination(state, devices) if turn == 2 * longest else state

    def _rank(self, devices: Devices) -> Integers:
        """Compute the position of each device in the spanning tree of the whole graph, root first, int64[n]."""
        rank = np.empty(len(self.method.tree.layer), np.int64)
        rank[np.argsort(self.method.tree.layer, kind="stable")] = np.arange(len(rank))
        return rank[devices.ids]

    def _start_elections(self, state: Any, devices: Devices) -> Any:
        """Start an election at devices without a command in the previous round."""
        growth = state.growth
        candidates = (growth.stamp != devices.round - 1) & ~state.converged
        growth = growth._replace(elects=np.zeros(len(devices), np.bool_))
        return state._replace(growth=_join_election(growth, candidates, self._rank(devices), devices))

    def _start_convergecast(self, state: Any, devices: Devices) -> Any:
        """Start the pass up: with the moments of the local points after an election, otherwise with sums and cost."""
        growth = state.growth
        growth = growth._replace(
            improved=np.zeros_like(growth.elects),
            complete=np.ones_like(growth.elects),
            moments=self.method.moments(state, devices) if growth.elects.any() else growth.moments,
            edge_child=growth.edge_child & ~growth.elects[devices.sources],
        )
        return self.method.prepare_convergecast(state, devices)._replace(growth=growth)

    def _receive_from_children(self, state: Any, inbox: Inbox, devices: Devices, hops: int) -> Any:
        """Receive the tables of children at the devices `hops` links from their root."""
        growth = state.growth
        fresh = inbox.fresh
        source = devices.sources
        elects = growth.elects[source]
        missing = np.bincount(source[growth.edge_child & ~fresh], minlength=len(devices)) > 0
        missing &= (growth.best[:, 2] == hops) & ~growth.elects
        growth = growth._replace(complete=growth.complete & ~missing)
        if (fresh & elects).any():
            (_, _, width), w = growth.moments.shape, state.up.shape[2]
            rows = -(-width // w)
            flat = inbox.tables[:, :rows, :w].reshape(len(inbox.tables), rows * w)[:, None, :width]
            selected = inbox._replace(tables=flat, open_edges=fresh & elects)
            moments = tree_sums.merge_child_moments(growth.moments, selected, devices)
            growth = growth._replace(moments=moments, edge_child=growth.edge_child | (fresh & elects))
        if (fresh & ~elects).any():
            selected = inbox._replace(open_edges=fresh & ~elects)
            state = state._replace(up=tree_sums.add_child_tables(state.up, selected, devices))
        return state._replace(growth=growth)

    def _decide_at_roots(self, state: Any, devices: Devices) -> Any:
        """Decide at the roots with complete totals, and apply their commands to themselves."""
        growth = state.growth
        roots = (growth.best[:, 2] == 0) & growth.complete & ~state.converged & devices.active_devices
        new, old = np.flatnonzero(roots & growth.elects), np.flatnonzero(roots & ~growth.elects)
        if len(new):
            begins = growth.begins.copy()
            d = devices.d
            begins[new] = 0.0
            units = self.method.choose_units(state, new, growth.moments[new], devices)
            begins[new, : _head_rows(d)] = _pad(units, _head_rows(d) * d).reshape(len(new), _head_rows(d), d)
            begins[new, _head_rows(d) :] = self.method.latest(state)[new]
            state = state._replace(growth=growth._replace(begins=begins))
        if len(old):
            state = self.method.write_commands(state, old, devices)
        return self._apply_commands(state, roots, devices)

    def _receive_from_parents(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Receive the tables of parents, store them for the children, and apply them."""
        edges = np.flatnonzero(inbox.fresh)
        if not len(edges):
            return state
        growth = state.growth
        members = devices.sources[edges]
        (_, r, w), elects = state.down.shape, growth.elects[members]
        down, begins = state.down.copy(), growth.begins.copy()
        down[members[~elects]] = inbox.tables_of(edges[~elects], r, w)
        begins[members[elects]] = inbox.tables_of(edges[elects], begins.shape[1], w)
        reached = np.zeros(len(devices), np.bool_)
        reached[members] = True
        return self._apply_commands(state._replace(down=down, growth=growth._replace(begins=begins)), reached, devices)

    def _apply_commands(self, state: Any, reached: Mask, devices: Devices) -> Any:
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
        """Mark devices as converged if their command is STOP, or if their points are equal within clusters."""
        growth = state.growth
        done = np.where(growth.elects, state.units[:, 0] == 0.0, self.method.stops(state))
        return state._replace(converged=state.converged | (done & (growth.stamp == devices.round)))


def _compare_offers(state: Any, inbox: Inbox, devices: Devices, rank: Integers) -> Any:
    """Compare received triples with the best so far; a device that receives a triple joins the election."""
    growth = state.growth
    edges = np.flatnonzero(inbox.fresh)
    growth = growth._replace(improved=np.zeros(len(devices), np.bool_))
    if not len(edges):
        return state._replace(growth=growth)
    source = devices.sources[edges]
    joins = np.zeros(len(devices), np.bool_)
    joins[source] = True
    growth = _join_election(growth, joins & ~growth.elects, rank, devices)
    offers = inbox.tables_of(edges, 1, _TRIPLE)[:, 0].astype(np.int64)
    offers[:, 2] += 1
    order = np.lexsort((devices.indices[edges], offers[:, 2], offers[:, 1], offers[:, 0], source))
    # The first entry of each device after sorting: the best offer, of equal ones that of the lowest id.
    order = order[np.diff(source[order], prepend=-1) > 0]
    current = growth.best[source[order]]
    signs = np.sign(offers[order] - current)
    # Lexicographic comparison of triples: the weights 4, 2, 1 let an earlier difference outweigh all later ones.
    better = order[signs @ (4, 2, 1) < 0]
    members = source[better]
    best, improved, edge_parent = growth.best.copy(), growth.improved.copy(), growth.edge_parent.copy()
    best[members], improved[members] = offers[better], True
    edge_parent[np.isin(devices.sources, members)] = False
    edge_parent[edges[better]] = True
    growth = growth._replace(best=best, improved=improved, edge_parent=edge_parent)
    return state._replace(growth=growth, converged=state.converged & ~growth.elects)


def _join_election(growth: ElectionState, candidates: Mask, rank: Integers, devices: Devices) -> ElectionState:
    """Enter some devices into an election, each with itself as root."""
    initial = np.column_stack((-growth.stamp, rank, np.zeros(len(rank), np.int64)))
    return growth._replace(
        best=np.where(candidates[:, None], initial, growth.best),
        elects=growth.elects | candidates,
        improved=growth.improved | candidates,
        edge_parent=growth.edge_parent & ~candidates[devices.sources],
    )


def _head_rows(d: int) -> int:
    """Compute the number of rows of d numbers for step, unit and grain."""
    return -(-_UNITS // d)


def _pad(values: Floats, width: int) -> Floats:
    """Append zeros to rows up to a width."""
    padded = np.zeros((len(values), width))
    padded[:, : values.shape[1]] = values
    return padded
