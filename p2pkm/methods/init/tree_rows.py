"""Initialization by a thorough search among summary rows of all devices, collected at the root of a spanning tree."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.methods.building_blocks.breathing import search_centroids
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, single_rows, source_devices
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.lean import (
    count_box_bytes,
    count_centroid_bytes,
    count_row_bytes,
    expect_bits,
    local_box,
    pack_centroids,
    pack_rows,
    settle_step,
    widen_boxes,
)
from p2pkm.methods.init.tree_summaries import (
    BOX_DOWN,
    BOX_UP,
    ROWS_UP,
    TreePassState,
    TreeSummaries,
    TreeSummariesState,
    gather_received,
    start_broadcast,
)

# Limits of the number of searches, of which the best result counts.
_MIN_SEARCHES = 3
_MAX_SEARCHES = 12
# Rows x clusters x features of all searches beyond the smallest number: about a tenth of a second on one core.
_WORK = 2_000_000
# Relative difference of costs below which two results count as equally good: rounding errors.
_ROUNDING = 1e-9
# Number of centroids that breathing k-means adds at first.
_BREATH = 5


@dataclass(frozen=True)
class TreeRows(TreeSummaries):
    """Initialization by a thorough search among summary rows (mean, weight, SSE) of all devices.

    Attributes
    ----------
    per_cluster : int, default=2
        Rows of a device per cluster.
    least : int, default=1
        Smallest number of points of a row.
    lean : bool, default=False
        Use compact integer encoding, see `p2pkm.methods.init.lean`.

    See Also
    --------
    TreeSummaries : base class, with the remaining attributes.

    Notes
    -----
    **Objective.** ``B(C) = sum_r n_r min_c |a_r - c|^2 + sum_r SSE_r``, an upper bound of the pooled cost of C.

    **Update.** All in one round:

    1. With `lean`, up and down: the devices agree on the box of all means and on a step.
    2. Each device clusters its points into at most ``per_cluster * k`` rows, which are collected at the root.
    3. The root uses the best of several searches by B: greedy k-means++, improved by breathing k-means [1]_, which adds
       5 centroids at first. There are 3 to 12 searches, fewer for many rows, clusters and features. They end when two
       have found the least B.
    4. The k centroids are sent down.

    **Messages.** Up at most `rows` rows of d + 2 columns; down k rows. With `lean`, first 2 d + 2 numbers up and down;
    then coordinates are integers in steps (rows) or quarter steps (centroids), and rows are sent without their order
    and their SSE, which is the same for all centroids. Senders compute with the encoded values, so B minus the SSE
    bounds the cost up to this rounding.

    **Privacy.** No guarantee. The devices on the path to the root receive the rows of a device. A row of one point is
    that point; mean and SSE of two points with one feature reveal both. With ``least=2`` rows of one point are merged
    with the nearest row, so no point is sent unchanged. With `lean` rows of one point are rounded to a grid, and not
    counted as disclosed. A `min_cluster_size` p merges all rows of fewer than p points.

    References
    ----------
    .. [1] B. Fritzke, "The breathing k-means algorithm", 2020, arXiv:2006.15666.
    """

    name: ClassVar[str] = "rows"
    extra: ClassVar[int] = 2
    # Whether the origin of rows is sent. If not, rows of several devices are forwarded as if they were of one device.
    keeps_origins: ClassVar[bool] = False
    per_cluster: int = 2
    least: int = 1
    lean: bool = False

    @property
    def first_pass(self) -> int:
        """Number of the first tree pass."""
        return BOX_UP if self.lean else ROWS_UP

    def expected_messages(self, known: Known) -> TreePasses:
        """Count the box up and down, with compact encoding, then the messages of `TreeSummaries`."""
        walk = super().expected_messages(known)
        if not self.lean:
            return walk
        single_row = np.ones(len(walk.layer), np.int64)
        d = known.features
        box_bits, row_bits, centroid_bits = expect_bits(d, self.k, within=self.needs_within)
        up, down = walk.passes
        box = tuple(TreePass(is_up, single_row, 2 * d + 2, single_row > 0, box_bits) for is_up in (True, False))
        return walk._replace(passes=(*box, up._replace(bits=row_bits), down._replace(bits=centroid_bits)))

    def initial_state(self, devices: Devices, start: Any) -> TreeSummariesState:
        """Summarize the local points; the deepest layer sends first."""
        state = super().initial_state(devices, start)
        walk = state.walk
        if not self.lean or walk is None:
            return state
        boxes = local_box(walk.local_tables, devices, self.k, within=self.needs_within)
        return state._replace(
            walk=walk._replace(box=boxes, front=single_rows(walk.front.senders, boxes[walk.front.senders]))
        )

    def update(self, state: TreeSummariesState, inbox: Delivery, devices: Devices) -> TreeSummariesState:
        """Extend boxes in the pass up, where the roots also fix the step; other passes are those of `TreeSummaries`."""
        walk = state.walk
        if walk is None or walk.box is None or self.first_pass + devices.turn // walk.routes.depth != BOX_UP:
            return super().update(state, inbox, devices)
        depth, step = walk.routes.depth, devices.turn
        layer = walk.routes.layer(depth - 1 - step)
        children = np.searchsorted(layer, source_devices(devices, inbox.edges))
        boxes = widen_boxes(walk.box[layer], children, inbox.tables.flat())
        if step < depth - 1:
            return state._replace(walk=walk._replace(front=single_rows(layer, boxes)))
        return state._replace(walk=start_broadcast(walk, single_rows(layer, settle_step(boxes))))

    def finish_broadcast(
        self, state: TreeSummariesState, walk: TreePassState, tree_pass: int, devices: Devices
    ) -> TreeSummariesState:
        """Encode the local rows in the box that all devices have received, or adopt the centroids."""
        if tree_pass != BOX_DOWN:
            return super().finish_broadcast(state, walk, tree_pass, devices)
        box = gather_received(walk.sent_tables, walk.front.tables.values, len(devices)).flat()
        rows = pack_rows(
            walk.local_tables, box, devices.unit, within=self.needs_within, with_origins=self.keeps_origins
        )
        walk = walk._replace(box=box, sent_tables=None, local_tables=rows)
        deepest = np.union1d(walk.routes.layer(walk.routes.depth), np.flatnonzero(devices.degrees == 0))
        return state._replace(walk=walk._replace(front=PendingTables(deepest, walk.local_tables.take(deepest))))

    def pack(self, front: PendingTables, walk: TreePassState, devices: Devices) -> PendingTables:
        """Round tables to their encoded values, with compact encoding."""
        if walk.box is None:
            return front
        box = walk.box[front.senders]
        tables = pack_rows(front.tables, box, devices.unit, within=self.needs_within, with_origins=self.keeps_origins)
        return front._replace(tables=tables)

    def answer_at_roots(
        self, state: TreeSummariesState, walk: TreePassState, roots: PendingTables, devices: Devices
    ) -> TreeSummariesState:
        """Search for centroids at each root, and start to send them down."""
        state = super().answer_at_roots(state, walk, roots, devices)
        if walk.box is None or state.walk is None:
            return state
        return state._replace(walk=start_broadcast(state.walk, self.pack_down(state.walk.front, walk.box, devices)))

    def pack_down(self, front: PendingTables, box: Floats, devices: Devices) -> PendingTables:
        """Round the centroids of the roots to their encoded values."""
        # The table of a root that has collected nothing is empty.
        rows = front.tables.rows
        sets = front.tables.flat().reshape(-1, self.k, devices.d)
        owner = np.repeat(front.senders, rows // self.k)
        packed = pack_centroids(sets, box[owner]).reshape(-1, devices.d)
        return front._replace(tables=Tables(packed, np.cumsum(rows) - rows, rows))

    def encode(self, messages: SparseMessages, tree_pass: int, walk: TreePassState, devices: Devices) -> SparseMessages:
        """Add the encoded bytes to messages, with compact encoding."""
        if not self.lean:
            return messages
        tables, senders = messages.tables, messages.senders
        if tree_pass in (BOX_UP, BOX_DOWN):
            return messages._replace(wire=count_box_bytes(tables.flat().reshape(-1, 2 * devices.d + 2)))
        box = np.zeros((0, 2 * devices.d + 2)) if walk.box is None else walk.box[senders]
        return messages._replace(wire=self.count_bytes(tables, tree_pass, box, senders, devices))

    def count_bytes(self, tables: Tables, tree_pass: int, box: Floats, senders: Integers, devices: Devices) -> Integers:
        """Count the encoded bytes of the tables of some devices."""
        if tree_pass == ROWS_UP:
            return count_row_bytes(tables, box, devices.unit, within=self.needs_within)
        sets = np.full((len(senders), self.k, devices.d), np.inf)
        sets[tables.rows > 0] = tables.flat().reshape(-1, self.k, devices.d)
        return count_centroid_bytes(sets, box, self.k)

    @property
    def rows_per_device(self) -> int:
        """Largest number of rows of a device's local points."""
        return self.per_cluster * self.k

    def sends_all(self, known: Known) -> bool:
        """Check whether every device is certain to have `rows_per_device` rows."""
        return self.least == 1 and super().sends_all(known)

    def summarize(self, devices: Devices) -> Tables:
        """Summarize the local points of every device as rows (origin, mean, weight, SSE)."""
        return summarize(devices, np.full(len(devices), self.rows_per_device), max(self.least, devices.min_count))

    def find_candidates(self, devices: Devices, collections: list[Floats]) -> Floats:
        """Search for the best centroids among the rows of each root, float64[collections, 1, k, d]."""
        centroids = np.full((len(collections), 1, self.k, devices.d), np.inf)
        for position, table in enumerate(collections):
            if len(table):
                centroids[position, 0] = self._search(devices, Rows.of(table))
        return centroids

    def _search(self, devices: Devices, rows: Rows) -> Floats:
        """Find the best centroids of several searches, float64[k, d]; the first ones if several are equally good."""
        most = min(_MAX_SEARCHES, max(_MIN_SEARCHES, _WORK // (rows.means.size * self.k)))
        results = list[tuple[Floats, float]]()
        best: list[Floats] = []
        while len(results) < _MIN_SEARCHES or (len(best) < 2 and len(results) < most):
            result = search_centroids(
                devices.kernels, devices.shared_key, rows.means, rows.weights, self.k,
                most=_BREATH, seedings=1, first=len(results),
            )  # fmt: skip
            results.append(result)
            least = min(cost for _, cost in results) * (1.0 + _ROUNDING)
            best = [centroids for centroids, cost in results if cost <= least]
        return best[0]
