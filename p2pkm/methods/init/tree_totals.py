"""Totals of all devices by one pass up and one pass down a spanning tree: bases of scaling, imputation and choice."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.sorting import find_runs
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    Tree,
    local_tree,
    source_devices,
    walk_tree,
)


@register("tree-totals")
class TreeTotalsState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids of the previous stage; +inf if there is none.
    converged : bool[n]
    totals : float64[n, w]
        Total of a device and its descendants so far.
    agreed : float64[n, v]
        Result for all devices of the component; NaN until the device has received it.
    routes : LocalTree or None
        None after the last turn.
    """

    centroids: Floats
    converged: Mask
    totals: Floats
    agreed: Floats
    routes: LocalTree | None

    @property
    def scaling(self) -> tuple[Floats, Floats]:
        """Shift and span of scaling, each float64[n, d]: the halves of the result."""
        d = self.agreed.shape[1] // 2
        return self.agreed[:, :d], self.agreed[:, d:]

    @property
    def filling(self) -> Floats:
        """Values that replace missing ones, float64[n, d]: the result."""
        return self.agreed


class UpAndDown(MethodBase, ABC):
    """One pass up a spanning tree, which combines one row of each device, and one pass down with the result.

    Subclasses define the state that the passes begin with, how rows are combined, the result that the root sends down,
    and the state at the end. A state has the fields `totals`, `agreed` and `routes` of `TreeTotalsState`. Both passes
    are one round; each takes as many turns as the tree has layers below the root. A device combines its row with those
    of its children in ascending id, so the bits depend on the tree, but not on the number of ranks.

    Attributes
    ----------
    tree : Tree
    """

    tree: Tree

    @property
    def schedule(self) -> str:
        """Schedule: both tree passes are turns of one round."""
        return f"jacobi*{2 * max(1, int(self.tree.layer.max()))}"

    @abstractmethod
    def merge(self, totals: Floats, receivers: Integers, rows: Floats) -> Floats:
        """Combine the totals of devices, float64[n, w], with the rows that they received, in the order of the rows.

        Parameters
        ----------
        receivers : int64[f]
            Position of the receiver of each row, ascending.
        """

    @abstractmethod
    def conclude(self, totals: Floats) -> Floats:
        """Compute the result from totals, float64[b, w] to float64[b, v]."""

    @abstractmethod
    def finish(self, state: Any, devices: Devices) -> Any:
        """Compute the last state, from the result in `state.agreed`."""

    def message(self, state: Any, devices: Devices) -> SparseMessages:
        """Send totals to the parents or the result to the children, one layer per turn."""
        return walk_tree(state.routes, devices, up=state.totals, down=state.agreed)

    def update(self, state: Any, inbox: Delivery, devices: Devices) -> Any:
        """Combine received totals, or adopt the received result."""
        if state.routes is None:
            return state
        depth = state.routes.depth
        receivers = source_devices(devices, inbox.edges)
        rows = inbox.tables.flat()
        if devices.turn < depth:
            state = state._replace(totals=self.merge(state.totals, receivers, rows))
            return self.conclude_at_roots(state) if devices.turn == depth - 1 else state
        agreed = state.agreed.copy()
        agreed[receivers] = rows
        state = state._replace(agreed=agreed)
        return state if devices.turn < 2 * depth - 1 else self.finish(state, devices)

    def conclude_at_roots(self, state: Any) -> Any:
        """Compute the result at the roots from the combined rows."""
        assert state.routes is not None
        roots = state.routes.layer(0)
        agreed = state.agreed.copy()
        agreed[roots] = self.conclude(state.totals[roots])
        return state._replace(agreed=agreed)


@dataclass(frozen=True)
class TreeTotals(UpAndDown, ABC):
    """Total of one row of each device, computed from its local points.

    Attributes
    ----------
    k : int
        Number of clusters.
    tree : Tree
    """

    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER)
    k: int
    tree: Tree

    @abstractmethod
    def count_columns(self, d: int) -> tuple[int, int]:
        """Count the numbers of a row up and of a row down."""

    @abstractmethod
    def measure(self, devices: Devices) -> Floats:
        """Compute the row of each device from its local points, float64[n, w]."""

    def expected_messages(self, known: Known) -> TreePasses:
        """Count a row up and a row down every link of the tree."""
        up, down = self.count_columns(known.features)
        single_row = np.ones(len(self.tree.layer), np.int64)
        passes = TreePass(True, single_row, up, single_row > 0), TreePass(False, single_row, down, single_row > 0)
        return TreePasses(*self.tree, passes)

    def initial_state(self, devices: Devices, start: Any) -> TreeTotalsState:
        """Compute the rows of the local points; the deepest layer sends first."""
        n, d = len(devices), devices.d
        centroids = np.full((n, self.k, d), np.inf) if start is None else start.centroids
        agreed = np.full((n, self.count_columns(d)[1]), np.nan)
        routes = local_tree(self.tree, devices)
        state = TreeTotalsState(centroids, np.zeros(n, np.bool_), self.measure(devices), agreed, routes)
        return self.conclude_at_roots(state)

    def finish(self, state: TreeTotalsState, devices: Devices) -> TreeTotalsState:
        """End the stage."""
        return state._replace(converged=np.ones(len(devices), np.bool_), routes=None)


@dataclass(frozen=True)
class PairwiseTotals(TreeTotals):
    """Totals whose rows are combined two at a time."""

    @abstractmethod
    def combine(self, first: Floats, second: Floats) -> Floats:
        """Combine the rows of `first` with those of `second`, float64[b, w] each."""

    def merge(self, totals: Floats, receivers: Integers, rows: Floats) -> Floats:
        """Combine the totals of devices with the rows that they received, one child after the other."""
        merged = totals.copy()
        firsts = find_runs(receivers)
        if len(firsts) == len(receivers):
            # Each has received from one child, as in all turns on a path and nearly all on a ring.
            merged[receivers] = self.combine(merged[receivers], rows)
            return merged
        counts = np.diff(firsts, append=len(receivers))
        # Devices with many children last, so that those with a further child are the end of the list.
        order = np.argsort(counts, kind="stable")
        firsts, counts = firsts[order], counts[order]
        for child in range(int(counts.max(initial=0))):
            chosen = firsts[counts.searchsorted(child, side="right") :] + child
            parents = receivers[chosen]
            merged[parents] = self.combine(merged[parents], rows[chosen])
        return merged


def positive(weights: Floats) -> Floats:
    """Replace weights of 0 by 1, as divisors."""
    return np.where(weights > 0.0, weights, 1.0)
