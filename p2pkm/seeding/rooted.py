"""Seeds from the summaries of all devices, collected along a tree: what a flood finds, for far fewer bytes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from p2pkm.devices import Devices, Floats, Integers, Mask
from p2pkm.mail import Inbox, Mail, pack, silence
from p2pkm.seeding.choose import price
from p2pkm.seeding.summaries import cluster_pairs, summarize
from p2pkm.spread.flood import Flood, begin, hear
from p2pkm.spread.tree import Tree, ways

_PAIRS, _CANDIDATES, _LOSSES, _CHOICE = range(4)  # up, down, up, down


class RootedState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the candidates, or the chosen one, have come down.
    settled : bool[n]
    flood : Flood
        Pairs that have come up to each device, its own included.
    candidates : float64[n, q, k, d]
    losses : float64[n, q]
        What the candidates cost on the own points and on those below.
    choice : int64[n]
    """

    centroids: Floats
    settled: Mask
    flood: Flood
    candidates: Floats
    losses: Floats
    choice: Integers


@dataclass(frozen=True)
class Rooted:
    """Collect the pairs (centroid, count) of all devices at the root of a tree, and send clusterings down.

    As `Summaries` with all hops, but each pair travels only the links between its device and the root, which alone
    clusters. With several candidates the losses of all devices are summed on their way up, and the number of the
    smallest sum (lowest index on ties) comes down. The tree, breadth first from the middle of each component, is known
    to all, like the colours. Each way takes as many turns as the tree has layers below its root; all are one round.

    Message: pairs up, d + 1 columns; k rows per candidate down; one row of losses up and of the choice down.

    Attributes
    ----------
    k : int
    tree : Tree
    candidates : int
    """

    k: int
    tree: Tree
    candidates: int = 1

    @property
    def depth(self) -> int:
        """Return how many turns a way takes."""
        return max(1, int(self.tree.layer.max()))

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{self.depth * (2 if self.candidates == 1 else 4)}"

    def init(self, devices: Devices, start: Any) -> RootedState:
        """Summarise the own points."""
        n, q = len(devices), self.candidates
        candidates = np.full((n, q, self.k, devices.d), np.inf)
        flood = begin(devices, *pack(summarize(devices, self.k)))
        none = np.zeros(n, np.bool_)
        return RootedState(candidates[:, 0].copy(), none, flood, candidates, np.zeros((n, q)), np.zeros(n, np.int64))

    def message(self, state: RootedState, devices: Devices) -> Mail:
        """Say to the parent or to the children what is due, if it is the layer's turn."""
        way, step = divmod(devices.turn + 1 if devices.step else 0, self.depth)
        if way == (2 if self.candidates == 1 else 4):
            return silence(len(devices), 1, 1)
        up = way in (_PAIRS, _LOSSES)
        speaks = self.tree.layer[devices.ids] == (self.depth - step if up else step)
        edges = ways(self.tree, devices, speaks)[0 if up else 1]
        values, rows = self._say(state, devices, way, speaks)
        heard = (devices.degrees == 0) & (devices.step == 0)  # who is alone says it to nobody, but is not done
        heard[devices.sources[edges]] = True
        pairs = way == _PAIRS
        return Mail(values, np.where(heard, rows, -1), edges=edges, header=int(pairs), ragged=pairs)

    def _say(self, state: RootedState, devices: Devices, way: int, speaks: Mask) -> tuple[Floats, Integers]:
        n = len(devices)
        if way == _PAIRS:
            return devices.kernels.bundle(state.flood.known & speaks[:, None], *state.flood[2:])
        if way == _CANDIDATES:  # every candidate has k rows, those that are absent at +inf: they keep their place
            values = state.candidates.reshape(n, self.candidates * self.k, devices.d)
            return values, np.where(np.isfinite(values).any(axis=(1, 2)), values.shape[1], 0)
        row = state.losses if way == _LOSSES else state.choice[:, None].astype(np.float64)
        return row[:, None], np.ones(n, np.int64)

    def update(self, state: RootedState, inbox: Inbox, devices: Devices) -> RootedState:
        """Take in what came up or down; at the end of a way, turn it round."""
        way, step = divmod(devices.turn, self.depth)
        state = self._hear(state, inbox, devices, way)
        if step < self.depth - 1:
            return state
        roots = np.flatnonzero(self.tree.parent[devices.ids] < 0)
        if way == _PAIRS:
            candidates = state.candidates.copy()
            candidates[roots] = cluster_pairs(devices, state.flood, roots, (self.candidates, self.k))
            return state._replace(candidates=candidates)
        if way == _LOSSES:
            choice = state.choice.copy()
            choice[roots] = np.argmin(state.losses[roots], axis=1)
            return state._replace(choice=choice)
        if way == _CANDIDATES and self.candidates > 1:
            return state._replace(losses=price(devices, state.candidates))
        chosen = state.candidates[np.arange(len(devices)), state.choice]
        return state._replace(centroids=chosen, settled=np.ones(len(devices), np.bool_))

    def _hear(self, state: RootedState, inbox: Inbox, devices: Devices, way: int) -> RootedState:
        if way == _PAIRS:
            return state._replace(flood=hear(state.flood, inbox, devices))
        edges = np.flatnonzero(inbox.fresh)
        who, slots = devices.sources[edges], inbox.slots[edges]
        tables = inbox.tables[slots]
        if way == _CANDIDATES:
            candidates = state.candidates.copy()
            real = (inbox.rows[slots] > 0)[:, None, None, None]
            q, k, d = candidates.shape[1:]
            candidates[who] = np.where(real, tables[:, : q * k, :d].reshape(-1, q, k, d), np.inf)
            return state._replace(candidates=candidates)
        if way == _LOSSES:
            losses = state.losses.copy()
            np.add.at(losses, who, tables[:, 0, : self.candidates])
            return state._replace(losses=losses)
        choice = state.choice.copy()
        choice[who] = tables[:, 0, 0].astype(np.int64)
        return state._replace(choice=choice)
