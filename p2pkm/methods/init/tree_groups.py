"""Groups of devices whose points differ, found from rows of all devices at the root of a tree."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, Tables
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_scalar
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks.device_groups import MOST, find_groups
from p2pkm.methods.building_blocks.device_rows import DeviceRows, price
from p2pkm.methods.building_blocks.spanning_tree import Front, keep, source_of, sum_below
from p2pkm.methods.building_blocks.weighted_rows import Rows
from p2pkm.methods.init.lean import count_centroid_bytes, count_row_bytes, pack_centroids
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.methods.init.tree_summaries import PAIRS, Walk, gather, turn

AUTO = "auto"


@register("tree-groups")
class TreeGroupsState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        The table of the own group; +inf until it has come down.
    converged : bool[n]
    walk : Walk or None
        None at the end of the last way.
    group : int64[n]
    tables : float64[n, G k, d]
        The tables of all groups, one after another; none until they have come down.
    """

    centroids: Floats
    converged: Mask
    walk: Walk | None
    group: Integers
    tables: Floats


@dataclass(frozen=True)
class TreeGroups(TreeRows):
    """Collect rows (mean, weight, SSE) of all devices at the root of a tree, which finds groups and a table for each.

    As `TreeRows`, but the rows of no device are merged with those of others on the way, for the root has to know which
    rows belong together. It searches as `p2pkm.methods.building_blocks.device_groups` says; the tables of all groups
    come down, and every device takes the one of least own loss (lowest number on ties). A device without points takes
    the group of its parent, at the root the first one.

    Message: at most 2 k rows of every device below, d + 2 columns, up; G k rows and one with the sender's group down.

    Privacy: as `TreeRows`; all devices receive the tables of all groups, and children the group of their parent.

    Attributes
    ----------
    groups : int or str
        The number of groups; auto: the root chooses it, at most 8.
    """

    name: ClassVar[str] = "tree-groups"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS,
        needs_honest_messages=True,
        one_round=True,
        common_centroids=True,
    )
    needs_within: ClassVar[bool] = True
    keeps_apart: ClassVar[bool] = True
    groups: int | str = AUTO

    @property
    def most(self) -> int:
        """Return how many rows a message may have: those of all devices."""
        return self.own_rows * len(self.tree.layer)

    def expected_messages(self, known: Known) -> TreePasses:
        """Return rows up, tables and a group down."""
        *box, up, down = super().expected_messages(known).passes
        n = len(self.tree.layer)
        count, sure = count_groups(self.groups, n)
        rows = np.full(n, 1 + self.k * count)
        return TreePasses(
            *self.tree,
            (*box, up, TreePass(False, rows, known.features, up.exact & sure & known.pools(self.k), down.bits)),
        )

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return False: a group may have fewer distinct rows than k."""
        return False

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Summarize the own points; the deepest layer sends first."""
        rooted, n = super().initial_state(devices, start), len(devices)
        return TreeGroupsState(*rooted, np.zeros(n, np.int64), np.zeros((n, 0, devices.d)))

    def turn_round(self, state: Any, walk: Walk, roots: Front, devices: Devices) -> Any:
        """Let the root find the groups, and begin the way of their tables."""
        tables, end = roots.tables.flat(), np.cumsum(roots.tables.rows)
        found = [self._find(one, devices) for one in np.split(tables, end[:-1])[: len(roots.who)]]
        if walk.box is not None:
            found = [self._pack_tables(one, box) for one, box in zip(found, walk.box[roots.who], strict=True)]
        values, heights = np.concatenate((tables[:0, 3:], *found)), np.array([len(one) for one in found], np.int64)
        down = Front(roots.who, Tables(values, np.cumsum(heights) - heights, heights))
        return state._replace(walk=turn(walk, _choose(down, walk.own, self.k)))

    def update(self, state: Any, inbox: Delivery, devices: Devices) -> Any:
        """Take in what came up or down; who has received the tables chooses before the children receive them."""
        walk = state.walk
        if walk is None or devices.turn < (1 - self.first_way) * walk.routes.depth:
            return super().update(state, inbox, devices)
        front = Front(source_of(devices, inbox.edges), keep(inbox.tables, walk.front.tables))
        front = _choose(front, walk.own, self.k)
        walk = walk._replace(front=front, told=(front, walk.told))
        if devices.turn < (2 - self.first_way) * walk.routes.depth - 1:
            return state._replace(walk=walk)
        n, received = len(devices), gather(walk.told, front.tables.values, len(devices)).flat()
        found = received.reshape(n, len(received) // n if n else 1, devices.d)
        group, tables = found[:, -1, 0].astype(np.int64), found[:, :-1]
        return TreeGroupsState(take_group(tables, group, self.k), np.ones(n, np.bool_), None, group, tables)

    def count_bytes(self, tables: Tables, way: int, box: Floats, who: Integers, devices: Devices) -> Integers:
        """Return the bytes of encoded tables of these devices."""
        if way == PAIRS:
            below = sum_below(self.tree, np.ones(len(self.tree.layer), np.int64))[devices.ids[who]]
            return count_row_bytes(tables, box, devices.unit, within=True, below=below)
        if not len(who):
            return np.zeros(0, np.int64)
        sets = tables.flat().reshape(len(who), -1, devices.d)[:, :-1]
        count = sets.shape[1] // self.k  # of groups: this number, then that of the sender's one
        return count_centroid_bytes(sets, box, self.k) + to_bytes(2 * count.bit_length() + (count - 1).bit_length())

    def _pack_tables(self, table: Floats, box: Floats) -> Floats:
        """Return the tables and the group of a root as they are read once they have been encoded."""
        sets = table[:-1].reshape(-1, self.k, table.shape[1])
        packed = pack_centroids(sets, np.repeat(box[None], len(sets), axis=0))
        return np.concatenate((packed.reshape(-1, table.shape[1]), table[-1:]))

    def _find(self, table: Floats, devices: Devices) -> Floats:
        """Return the tables that a root finds, and the first group as its own if it has no points, float64[G k + 1, d].

        table: rows (origin, mean, weight, SSE).
        """
        found = np.full((1, self.k, devices.d), np.inf)
        if len(table):
            table = table[np.argsort(table[:, 0], kind="stable")]
            owner = np.unique(table[:, 0], return_inverse=True)[1]
            rows = DeviceRows(devices.kernels, devices.shared_key, Rows.of(table[:, 1:]), owner, self.k, devices.unit)
            found = find_groups(rows, self.groups if isinstance(self.groups, int) else None)
        return np.concatenate((found.reshape(-1, devices.d), np.zeros((1, devices.d))))


def check_groups(groups: int | str) -> int | Literal["auto"]:
    """Return what `groups` of a method means: a number of groups, or auto, as True says, too."""
    if check_scalar(groups, "groups") is True or groups == AUTO:
        return "auto"
    if isinstance(groups, str):
        raise ExperimentError(f"groups is {groups!r}; expected auto or a whole number of at least 1")
    return check_integer(groups, 1, "groups")


def count_groups(groups: int | str, devices: int) -> tuple[int, bool]:
    """Return how many groups there are at most, and whether just so many."""
    return (groups, True) if isinstance(groups, int) else (min(MOST, devices), False)


def take_group(tables: Floats, group: Integers, k: int) -> Floats:
    """Return the table of each device's group, float64[n, k, ...], of those of all groups, float64[n, G k, ...]."""
    n, rows, *shape = tables.shape
    return tables.reshape(n, rows // k, k, *shape)[np.arange(n), group]


def _choose(front: Front, own: Tables, k: int) -> Front:
    """Return the front with the own group of each device as the last row, instead of that of its parent.

    A device goes by the table that it has received itself; equal ones lie at the same place.
    """
    sent, mine = front.tables, own.take(front.who)
    found, starts, end = [sent.values], np.zeros(len(front.who), np.int64), len(sent.values)
    for start in np.unique(sent.starts):
        here = np.flatnonzero(sent.starts == start)
        table, part = sent.values[start : start + sent.rows[here[0]]], mine.take(here)
        tables = table[:-1].reshape(-1, k, table.shape[1])
        losses = price(Rows.of(part.flat()[:, 1:]), np.repeat(np.arange(len(here)), part.rows), len(here), tables)
        told = np.clip(np.rint(table[-1, 0]), 0, len(tables) - 1)  # of no meaning for those who have points
        names, which = np.unique(np.where(part.rows > 0, np.argmin(losses, axis=0), told), return_inverse=True)
        marked = np.repeat(table[None], len(names), axis=0)
        marked[:, -1, 0] = names
        starts[here] = end + which * len(table)
        found.append(marked.reshape(-1, table.shape[1]))
        end += len(names) * len(table)
    return Front(front.who, Tables(np.concatenate(found), starts, sent.rows))
