"""Choice of the number of clusters at the root of a spanning tree, from summary rows of all devices."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import RaggedArray, Tables
from p2pkm.core.states import register
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, Decision, Verdict, decide, tabulate
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, single_rows
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.methods.init.tree_summaries import BOX_DOWN, ROWS_UP, TreePassState, gather_received, start_broadcast

# Largest number of summary rows per device.
_ROWS = 32
# Bytes of the encoded number of clusters.
_CHOICE_BYTES = 2


@register("number-of-clusters")
class ChooseKState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, 1, d]
        Always +inf: the stage finds no centroids.
    converged : bool[n]
    walk : TreePassState or None
        None after the last tree pass.
    chosen : int64[n]
        Number of clusters; 0 until the device has received it.
    table : RaggedArray
        Indices at each root, see `p2pkm.methods.building_blocks.number_of_clusters.tabulate`.
    verdict : int64[n]
        `p2pkm.methods.building_blocks.number_of_clusters.Verdict` at each root; 0 at the other devices.
    """

    centroids: Floats
    converged: Mask
    walk: TreePassState | None
    chosen: Integers
    table: RaggedArray
    verdict: Integers


@dataclass(frozen=True)
class ChooseK(TreeRows):
    """Choice of the number of clusters from summary rows (mean, weight, SSE) of all devices.

    Attributes
    ----------
    k : int
        Largest number of clusters considered.

    See Also
    --------
    p2pkm.methods.building_blocks.number_of_clusters.decide : rule by which the root chooses.

    Notes
    -----
    **Update.**

    1. A device with m points computes ``min(32, max(1, m // 2))`` rows; they are collected at the root of a tree.
    2. For each number of clusters from 1 to `k` the root clusters the rows: the best of 8 greedy k-means++ seedings,
       improved by breathing k-means (which adds 3 centroids at first). It computes the indices of
       `p2pkm.methods.building_blocks.number_of_clusters`.
    3. The root chooses the number of the largest Calinski-Harabasz index, another one if clusters are long or of uneven
       size, or 1 if they are not separated. The number is sent down the tree.

    **Messages.** Up at most `rows` rows of d + 2 columns; down one number.

    **Privacy.** As `TreeRows`.
    """

    name: ClassVar[str] = "number-of-clusters"
    needs_within: ClassVar[bool] = True

    @property
    def rows_per_device(self) -> int:
        """Largest number of rows of a device's local points."""
        return _ROWS

    def sends_all(self, known: Known) -> bool:
        """Return False: a device sends at most one row per two points."""
        return False

    def expected_messages(self, known: Known) -> TreePasses:
        """Count rows up and the number of clusters down."""
        *upward, down = super().expected_messages(known).passes
        n = len(self.tree.layer)
        return TreePasses(
            *self.tree,
            (
                *upward,
                TreePass(False, np.ones(n, np.int64), 1, down.exact, 8.0 * _CHOICE_BYTES if self.lean else None),
            ),
        )

    def summarize(self, devices: Devices) -> Tables:
        """Summarize the local points of every device as rows (origin, mean, weight, SSE)."""
        limits = np.minimum(_ROWS, np.maximum(1, devices.sizes // 2))
        return summarize(devices, limits, max(self.least, devices.min_count))

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Summarize the local points; the deepest layer sends first."""
        base, n = super().initial_state(devices, start), len(devices)
        empty = RaggedArray(np.zeros((0, len(COLUMNS))), np.zeros(n, np.int64))
        return ChooseKState(
            np.full((n, 1, devices.d), np.inf), base.converged, base.walk, np.zeros(n, np.int64), empty,
            np.zeros(n, np.int64),
        )  # fmt: skip

    def answer_at_roots(self, state: Any, walk: TreePassState, roots: PendingTables, devices: Devices) -> Any:
        """Choose the number of clusters at each root, and start to send it down."""
        results = [self._decide(rows, devices) for rows in self.collect(roots)]
        decisions = [decision for decision, _ in results]
        tables = [table for _, table in results]
        counts = np.zeros(len(devices), np.int64)
        verdict = np.zeros(len(devices), np.int64)
        counts[roots.senders] = [len(table) for table in tables]
        verdict[roots.senders] = [choice.verdict for choice in decisions]
        chosen = np.array([choice.k for choice in decisions], np.float64)
        down = single_rows(roots.senders, chosen[:, None])
        indices = RaggedArray(np.concatenate((np.zeros((0, len(COLUMNS))), *tables)), counts)
        return state._replace(walk=start_broadcast(walk, down), table=indices, verdict=verdict)

    def finish_broadcast(self, state: Any, walk: TreePassState, tree_pass: int, devices: Devices) -> Any:
        """Adopt the box, or the number of clusters sent down."""
        if tree_pass == BOX_DOWN:
            return super().finish_broadcast(state, walk, tree_pass, devices)
        chosen = gather_received(walk.sent_tables, walk.front.tables.values, len(devices)).flat()[:, 0].astype(np.int64)
        return state._replace(walk=None, converged=np.ones(len(devices), np.bool_), chosen=chosen)

    def count_bytes(self, tables: Tables, tree_pass: int, box: Floats, senders: Integers, devices: Devices) -> Integers:
        """Count the encoded bytes of the tables of some devices."""
        if tree_pass == ROWS_UP:
            return super().count_bytes(tables, tree_pass, box, senders, devices)
        return np.full(len(senders), _CHOICE_BYTES)

    def _decide(self, table: Floats, devices: Devices) -> tuple[Decision, Floats]:
        """Compute the decision and the indices from the rows of a root; weights are in points."""
        if not len(table):
            return Decision(1, Verdict.NONE), np.full((1, len(COLUMNS)), np.nan)
        means, weights, within = Rows.of(table)
        rows = Rows(means, weights / devices.unit, within / devices.unit)
        indices = tabulate(devices.kernels, devices.shared_key, rows, self.k)
        return decide(devices.kernels, devices.shared_key, rows, indices), indices
