"""The number of clusters, chosen at the root of a tree from rows of all devices."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import RaggedArray, Tables
from p2pkm.core.states import register
from p2pkm.methods.building_blocks.number_of_clusters import COLUMNS, Decision, Verdict, decide, tabulate
from p2pkm.methods.building_blocks.spanning_tree import Front
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.methods.init.tree_summaries import BOX, PAIRS, Walk, gather, turn

_ROWS = 32  # of a device, at most
_NUMBER = 2  # bytes of the choice, if it is encoded


@register("number-of-clusters")
class ChoiceState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, 1, d]
        None yet: +inf.
    converged : bool[n]
    walk : Walk or None
        None at the end of the last way.
    chosen : int64[n]
        The number of clusters, 0 until it has come down.
    table : RaggedArray
        Indices at each root, see `p2pkm.methods.building_blocks.number_of_clusters.tabulate`.
    verdict : int64[n, 2]
        Verdict and number of groups of a `p2pkm.methods.building_blocks.number_of_clusters.Decision` at each root, 0
        elsewhere.
    """

    centroids: Floats
    converged: Mask
    walk: Walk | None
    chosen: Integers
    table: RaggedArray
    verdict: Integers


@dataclass(frozen=True)
class ChooseK(TreeRows):
    """Collect rows (mean, weight, SSE) of all devices at the root of a tree, which chooses the number of clusters.

    A device with m points sends ``min(32, max(1, m // 2))`` rows. For every k = 1, ..., `k` the root takes the best of
    8 greedy seedings of the rows, lets it breathe (with 3 centroids at first) and computes the indices of
    `p2pkm.methods.building_blocks.number_of_clusters`. k is that of largest CH, fewer if clusters are long or of uneven
    size, or 1 if they are not clear, see `p2pkm.methods.building_blocks.number_of_clusters.decide`.

    Message: at most `rows` rows up, d + 2 columns; the number down.

    Attributes
    ----------
    k : int
        The largest number that is considered.
    """

    name: ClassVar[str] = "number-of-clusters"
    needs_within: ClassVar[bool] = True

    @property
    def own_rows(self) -> int:
        """Return how many rows a device sends of its own points at most."""
        return _ROWS

    def sends_all(self, known: Known) -> bool:
        """Return False: a device may send a row for two points at most."""
        return False

    def expected_messages(self, known: Known) -> TreePasses:
        """Return rows up, the number down."""
        *upward, down = super().expected_messages(known).passes
        n = len(self.tree.layer)
        return TreePasses(
            *self.tree,
            (
                *upward,
                TreePass(False, np.ones(n, np.int64), 1, down.exact, 8.0 * _NUMBER if self.lean else None),
            ),
        )

    def summarize(self, devices: Devices) -> Tables:
        """Return what every device sends of its own points: rows (origin, mean, weight, SSE)."""
        limits = np.minimum(_ROWS, np.maximum(1, devices.sizes // 2))
        return summarize(devices, limits, max(self.least, devices.min_count))

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Summarize the own points; the deepest layer sends first."""
        rooted, n = super().initial_state(devices, start), len(devices)
        nothing = RaggedArray(np.zeros((0, len(COLUMNS))), np.zeros(n, np.int64))
        return ChoiceState(
            np.full((n, 1, devices.d), np.inf), rooted.converged, rooted.walk, np.zeros(n, np.int64), nothing,
            np.zeros((n, 2), np.int64),
        )  # fmt: skip

    def turn_round(self, state: Any, walk: Walk, roots: Front, devices: Devices) -> Any:
        """Decide, and begin the way of the choice."""
        found = [self._decide(rows, devices) for rows in self.collect(roots)]
        decisions, tables = [decision for decision, _ in found], [table for _, table in found]
        counts, verdict = np.zeros(len(devices), np.int64), np.zeros((len(devices), 2), np.int64)
        counts[roots.who] = [len(table) for table in tables]
        verdict[roots.who] = np.array([[one.verdict, one.groups] for one in decisions], np.int64).reshape(-1, 2)
        chosen = np.array([one.k for one in decisions], np.float64)
        every = np.arange(len(tables))
        down = Front(roots.who, Tables(chosen[:, None], every, np.ones(len(tables), np.int64)))
        indices = RaggedArray(np.concatenate((np.zeros((0, len(COLUMNS))), *tables)), counts)
        return state._replace(walk=turn(walk, down), table=indices, verdict=verdict)

    def arrive(self, state: Any, walk: Walk, way: int, devices: Devices) -> Any:
        """Take the box, or the number that has come down."""
        if way == BOX:
            return super().arrive(state, walk, way, devices)
        chosen = gather(walk.told, walk.front.tables.values, len(devices)).flat()[:, 0].astype(np.int64)
        return state._replace(walk=None, converged=np.ones(len(devices), np.bool_), chosen=chosen)

    def count_bytes(self, tables: Tables, way: int, box: Floats, who: Integers, devices: Devices) -> Integers:
        """Return the bytes of encoded tables of these devices."""
        return super().count_bytes(tables, way, box, who, devices) if way == PAIRS else np.full(len(who), _NUMBER)

    def _decide(self, table: Floats, devices: Devices) -> tuple[Decision, Floats]:
        """Return the decision and the indices of the rows that a root has collected; weights count in points."""
        if not len(table):
            return Decision(1, Verdict.NONE), np.full((1, len(COLUMNS)), np.nan)
        means, weights, within = Rows.of(table)
        rows = Rows(means, weights / devices.unit, within / devices.unit)
        indices = tabulate(devices.kernels, devices.shared_key, rows, self.k)
        return decide(devices.kernels, devices.shared_key, rows, indices), indices
