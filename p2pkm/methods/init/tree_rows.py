"""One clustering from many rows of all devices, collected along a tree, and a thorough search among them."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.methods.building_blocks.breathing import search
from p2pkm.methods.building_blocks.spanning_tree import Front, single_rows, source_of
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.lean import (
    count_box_bytes,
    count_centroid_bytes,
    count_row_bytes,
    expect_bits,
    own_box,
    pack_centroids,
    pack_rows,
    settle,
    widen,
)
from p2pkm.methods.init.tree_summaries import (
    BOX,
    ENDS,
    PAIRS,
    RootedState,
    TreeSummaries,
    Walk,
    gather,
    turn,
)

_FEWEST, _MOST = 3, 12  # searches, of which the best one counts
# Rows x clusters x features of all searches beyond the fewest: about a tenth of a second on one core.
_WORK = 2_000_000
_ROUNDING = 1e-9  # relative, of a cost: starts that differ by less are equally good
_BREATH = 5  # centroids that breathing adds at first


@dataclass(frozen=True)
class TreeRows(TreeSummaries):
    """Collect rows (mean, weight, SSE) of all devices at the root of a tree, and send one clustering of them down.

    As `TreeSummaries`, but every device clusters its points into ``per_cluster`` times k rows, and the root takes the
    best of several searches by ``B(C) = sum_r n_r min_c |a_r - c|^2 + sum_r SSE_r``: greedy k-means++ on the rows, then
    breathing k-means (Fritzke 2020, with 5 centroids at first). There are at least 3 searches and at most 12, fewer if
    there are many rows, clusters and features; they end when two have found the least B. B is at least the cost on all
    points, so what comes down costs at most that.

    With `lean` the devices first agree along the tree on the box of all means and on a step (2 d + 2 numbers up and
    down). Coordinates are then whole numbers of steps, those of the centroids of quarter steps; rows are sent in no
    order, by an adaptive code (`p2pkm.methods.init.lean`), and without their SSE, which is the same for all
    centroids. What is read is what was encoded, so that B less the SSE bounds the cost up to this rounding.

    Message: at most `rows` rows up, d + 2 columns; k rows down.

    Privacy: a row of one point is that point, and of two points with one feature mean and SSE reveal both. With
    ``least=2`` a row of one point is merged with its nearest row, so that no point leaves its device; with a
    `min_cluster_size` p all rows of fewer than p points are.

    Attributes
    ----------
    per_cluster : int
        Rows of a device for each of the k clusters.
    least : int
        Points that a row must stand for.
    lean : bool
        Whether rows and centroids are sent in few bits.
    """

    name: ClassVar[str] = "rows"
    extra: ClassVar[int] = 2
    keeps_apart: ClassVar[bool] = False  # rows of several devices go on as if they were of one
    per_cluster: int = 2
    least: int = 1
    lean: bool = False

    @property
    def first_way(self) -> int:
        """Return the number of the first way."""
        return ENDS if self.lean else PAIRS

    def expected_messages(self, known: Known) -> TreePasses:
        """Return what `TreeSummaries` does, after the ends of the box and the box."""
        walk = super().expected_messages(known)
        if not self.lean:
            return walk
        one, d = np.ones(len(walk.layer), np.int64), known.features
        ends, row, centroid = expect_bits(d, self.k, within=self.needs_within)
        up, down = walk.passes
        box = tuple(TreePass(way, one, 2 * d + 2, one > 0, ends) for way in (True, False))
        return replace(walk, passes=(*box, up._replace(bits=row), down._replace(bits=centroid)))

    def initial_state(self, devices: Devices, start: Any) -> RootedState:
        """Summarize the own points; the deepest layer sends first."""
        state = super().initial_state(devices, start)
        walk = state.walk
        if not self.lean or walk is None:
            return state
        boxes = own_box(walk.own, devices, self.k, within=self.needs_within)
        return state._replace(walk=walk._replace(box=boxes, front=single_rows(walk.front.who, boxes[walk.front.who])))

    def update(self, state: RootedState, inbox: Delivery, devices: Devices) -> RootedState:
        """Take in what came up or down; boxes are widened on their way up, and the roots agree on the step."""
        walk = state.walk
        if walk is None or walk.box is None or self.first_way + devices.turn // walk.routes.depth != ENDS:
            return super().update(state, inbox, devices)
        depth, step = walk.routes.depth, devices.turn
        layer = walk.routes.layer(depth - 1 - step)
        children = np.searchsorted(layer, source_of(devices, inbox.edges))
        boxes = widen(walk.box[layer], children, inbox.tables.flat())
        if step < depth - 1:
            return state._replace(walk=walk._replace(front=single_rows(layer, boxes)))
        return state._replace(walk=turn(walk, single_rows(layer, settle(boxes))))

    def arrive(self, state: RootedState, walk: Walk, way: int, devices: Devices) -> RootedState:
        """Encode the own rows in the box that has come to all devices, or take the centroids."""
        if way != BOX:
            return super().arrive(state, walk, way, devices)
        box = gather(walk.told, walk.front.tables.values, len(devices)).flat()
        own = pack_rows(walk.own, box, devices.unit, within=self.needs_within, apart=self.keeps_apart)
        walk = walk._replace(box=box, told=None, own=own)
        deepest = np.union1d(walk.routes.layer(walk.routes.depth), np.flatnonzero(devices.degrees == 0))
        return state._replace(walk=walk._replace(front=Front(deepest, walk.own.take(deepest))))

    def pack(self, front: Front, walk: Walk, devices: Devices) -> Front:
        """Return the tables as they are read once they have been encoded, if they are."""
        if walk.box is None:
            return front
        return front._replace(
            tables=pack_rows(
                front.tables, walk.box[front.who], devices.unit, within=self.needs_within, apart=self.keeps_apart
            )
        )

    def turn_round(self, state: RootedState, walk: Walk, roots: Front, devices: Devices) -> RootedState:
        """Let each root search among what it has collected, and begin the way of what it finds down."""
        state = super().turn_round(state, walk, roots, devices)
        if walk.box is None or state.walk is None:
            return state
        return state._replace(walk=turn(state.walk, self.pack_down(state.walk.front, walk.box, devices)))

    def pack_down(self, front: Front, box: Floats, devices: Devices) -> Front:
        """Return the sets of k centroids of the roots as they are read once they have been encoded."""
        rows = front.tables.rows  # none where a root has collected nothing
        sets = front.tables.flat().reshape(-1, self.k, devices.d)
        owner = np.repeat(front.who, rows // self.k)
        packed = pack_centroids(sets, box[owner]).reshape(-1, devices.d)
        return front._replace(tables=Tables(packed, np.cumsum(rows) - rows, rows))

    def encode(self, messages: SparseMessages, way: int, walk: Walk, devices: Devices) -> SparseMessages:
        """Return the messages with their bytes on the wire, if they are encoded."""
        if not self.lean:
            return messages
        tables, who = messages.tables, messages.senders
        if way in (ENDS, BOX):
            return messages._replace(wire=count_box_bytes(tables.flat().reshape(-1, 2 * devices.d + 2)))
        box = np.zeros((0, 2 * devices.d + 2)) if walk.box is None else walk.box[who]
        return messages._replace(wire=self.count_bytes(tables, way, box, who, devices))

    def count_bytes(self, tables: Tables, way: int, box: Floats, who: Integers, devices: Devices) -> Integers:
        """Return the bytes of encoded tables of these devices."""
        if way == PAIRS:
            return count_row_bytes(tables, box, devices.unit, within=self.needs_within)
        sets = np.full((len(who), self.k, devices.d), np.inf)
        sets[tables.rows > 0] = tables.flat().reshape(-1, self.k, devices.d)
        return count_centroid_bytes(sets, box, self.k)

    @property
    def own_rows(self) -> int:
        """Return how many rows a device sends of its own points at most."""
        return self.per_cluster * self.k

    def sends_all(self, known: Known) -> bool:
        """Return whether every device has so many rows for sure."""
        return self.least == 1 and super().sends_all(known)

    def summarize(self, devices: Devices) -> Tables:
        """Return what every device sends of its own points: rows (origin, mean, weight, SSE)."""
        return summarize(devices, np.full(len(devices), self.own_rows), max(self.least, devices.min_count))

    def find(self, devices: Devices, collections: list[Floats]) -> Floats:
        """Return what each root finds among its rows, the first of those as good, float64[collections, 1, k, d]."""
        found = np.full((len(collections), 1, self.k, devices.d), np.inf)
        for place, table in enumerate(collections):
            if len(table):
                found[place, 0] = self._search(devices, Rows.of(table))
        return found

    def _search(self, devices: Devices, rows: Rows) -> Floats:
        """Return the best centroids of several searches, float64[k, d]."""
        most = min(_MOST, max(_FEWEST, _WORK // (rows.means.size * self.k)))
        tries = list[tuple[Floats, float]]()
        good: list[Floats] = []
        while len(tries) < _FEWEST or (len(good) < 2 and len(tries) < most):
            tries.append(search(devices.kernels, devices.shared_key, rows.means, rows.weights, self.k,
                                most=_BREATH, seedings=1, first=len(tries)))  # fmt: skip
            least = min(cost for _, cost in tries) * (1.0 + _ROUNDING)
            good = [one for one, cost in tries if cost <= least]
        return good[0]
