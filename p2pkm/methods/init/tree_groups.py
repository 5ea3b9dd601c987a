"""Groups of devices with different clusterings, found at the root of a spanning tree from rows of all devices."""

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
from p2pkm.methods.building_blocks.device_groups import MAX_GROUPS, find_groups
from p2pkm.methods.building_blocks.device_rows import DeviceRows, device_costs
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, share_equal_tables, source_devices, sum_below
from p2pkm.methods.building_blocks.weighted_rows import Rows
from p2pkm.methods.init.lean import count_centroid_bytes, count_row_bytes, pack_centroids
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.methods.init.tree_summaries import ROWS_UP, TreePassState, gather_received, start_broadcast

AUTO = "auto"


@register("tree-groups")
class TreeGroupsState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids of the device's group; +inf until the end of the last pass.
    converged : bool[n]
    walk : TreePassState or None
        None after the last pass.
    group : int64[n]
        Number of the device's group.
    tables : float64[n, G k, d]
        Centroids of all groups, one group after another; empty until the end of the last pass.
    """

    centroids: Floats
    converged: Mask
    walk: TreePassState | None
    group: Integers
    tables: Floats


@dataclass(frozen=True)
class TreeGroups(TreeRows):
    """Initialization with groups of devices: the root finds groups, and k centroids for each group.

    Attributes
    ----------
    groups : int or {"auto"}, default="auto"
        Number of groups. "auto": the root chooses it, at most 8.

    See Also
    --------
    TreeRows : base class, with the remaining attributes.
    p2pkm.methods.building_blocks.device_groups.find_groups : search at the root.

    Notes
    -----
    **Update.** All in one round:

    1. Rows (mean, weight, SSE) of all devices are collected at the root. Rows of different devices are never merged,
       because the root needs the rows of each device.
    2. The root finds the groups and sends the centroids of all groups down.
    3. Each device selects the group of least local loss, the lowest number on ties. A device without points adopts the
       group of its parent; at the root it is the first group.

    **Messages.** Up at most 2 k rows of d + 2 columns for every device of the subtree; down G k rows, and one row with
    the group of the sender.

    **Privacy.** As `TreeRows`. All devices receive the centroids of all groups; children receive the group of their
    parent.
    """

    name: ClassVar[str] = "tree-groups"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS,
        needs_honest_messages=True,
        one_round=True,
        common_centroids=True,
    )
    needs_within: ClassVar[bool] = True
    keeps_origins: ClassVar[bool] = True
    groups: int | str = AUTO

    @property
    def max_rows(self) -> int:
        """Largest number of rows of a message: those of all devices."""
        return self.rows_per_device * len(self.tree.layer)

    def expected_messages(self, known: Known) -> TreePasses:
        """Count rows up; centroids of all groups and a group number down."""
        *box, up, down = super().expected_messages(known).passes
        n = len(self.tree.layer)
        count, is_exact = count_groups(self.groups, n)
        rows = np.full(n, 1 + self.k * count)
        exact = up.exact & is_exact & known.pools(self.k)
        return TreePasses(*self.tree, (*box, up, TreePass(False, rows, known.features, exact, down.bits)))

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return False: a group may have fewer distinct rows than k."""
        return False

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Summarize the local points; the deepest layer sends first."""
        base, n = super().initial_state(devices, start), len(devices)
        return TreeGroupsState(*base, np.zeros(n, np.int64), np.zeros((n, 0, devices.d)))

    def answer_at_roots(self, state: Any, walk: TreePassState, roots: PendingTables, devices: Devices) -> Any:
        """Find the groups at each root, and start to send their centroids down."""
        flat, ends = roots.tables.flat(), np.cumsum(roots.tables.rows)
        answers = [self._find_groups(table, devices) for table in np.split(flat, ends[:-1])[: len(roots.senders)]]
        if walk.box is not None:
            boxes = walk.box[roots.senders]
            answers = [self._pack_answer(answer, box) for answer, box in zip(answers, boxes, strict=True)]
        values = np.concatenate((flat[:0, 3:], *answers))
        heights = np.array([len(answer) for answer in answers], np.int64)
        down = PendingTables(roots.senders, Tables(values, np.cumsum(heights) - heights, heights))
        return state._replace(walk=start_broadcast(walk, _choose(down, walk.local_tables, self.k)))

    def update(self, state: Any, inbox: Delivery, devices: Devices) -> Any:
        """Collect or adopt received tables; a device selects its group before it sends to its children."""
        walk = state.walk
        if walk is None or devices.turn < (1 - self.first_pass) * walk.routes.depth:
            return super().update(state, inbox, devices)
        tables = share_equal_tables(inbox.tables, walk.front.tables)
        front = _choose(PendingTables(source_devices(devices, inbox.edges), tables), walk.local_tables, self.k)
        walk = walk._replace(front=front, sent_tables=(front, walk.sent_tables))
        if devices.turn < (2 - self.first_pass) * walk.routes.depth - 1:
            return state._replace(walk=walk)
        n = len(devices)
        flat = gather_received(walk.sent_tables, front.tables.values, n).flat()
        received = flat.reshape(n, len(flat) // n if n else 1, devices.d)
        group = received[:, -1, 0].astype(np.int64)
        centroids = received[:, :-1]
        return TreeGroupsState(select_group(centroids, group, self.k), np.ones(n, np.bool_), None, group, centroids)

    def count_bytes(self, tables: Tables, tree_pass: int, box: Floats, senders: Integers, devices: Devices) -> Integers:
        """Count the encoded bytes of the tables of some devices."""
        if tree_pass == ROWS_UP:
            below = sum_below(self.tree, np.ones(len(self.tree.layer), np.int64))[devices.ids[senders]]
            return count_row_bytes(tables, box, devices.unit, within=True, below=below)
        if not len(senders):
            return np.zeros(0, np.int64)
        sets = tables.flat().reshape(len(senders), -1, devices.d)[:, :-1]
        # After the centroids: the number of groups, then the group of the sender.
        count = sets.shape[1] // self.k
        return count_centroid_bytes(sets, box, self.k) + to_bytes(2 * count.bit_length() + (count - 1).bit_length())

    def _pack_answer(self, table: Floats, box: Floats) -> Floats:
        """Round the centroids of a root to their encoded values; its group is unchanged."""
        sets = table[:-1].reshape(-1, self.k, table.shape[1])
        packed = pack_centroids(sets, np.repeat(box[None], len(sets), axis=0))
        return np.concatenate((packed.reshape(-1, table.shape[1]), table[-1:]))

    def _find_groups(self, table: Floats, devices: Devices) -> Floats:
        """Find the groups at a root from rows (origin, mean, weight, SSE): centroids and a group 0, [G k + 1, d].

        The last row is the group of a root without points.
        """
        centroids = np.full((1, self.k, devices.d), np.inf)
        if len(table):
            table = table[np.argsort(table[:, 0], kind="stable")]
            owner = np.unique(table[:, 0], return_inverse=True)[1]
            rows = DeviceRows(devices.kernels, devices.shared_key, Rows.of(table[:, 1:]), owner, self.k, devices.unit)
            centroids = find_groups(rows, self.groups if isinstance(self.groups, int) else None)
        return np.concatenate((centroids.reshape(-1, devices.d), np.zeros((1, devices.d))))


def check_groups(groups: int | str) -> int | Literal["auto"]:
    """Validate the parameter `groups` of a method: a number of groups, or "auto"; True means "auto".

    Raises
    ------
    ExperimentError
        If `groups` is another text or a number below 1.
    """
    if check_scalar(groups, "groups") is True or groups == AUTO:
        return "auto"
    if isinstance(groups, str):
        raise ExperimentError(f"groups is {groups!r}; expected auto or a whole number of at least 1")
    return check_integer(groups, 1, "groups")


def count_groups(groups: int | str, devices: int) -> tuple[int, bool]:
    """Compute the largest number of groups, and whether it is exact."""
    return (groups, True) if isinstance(groups, int) else (min(MAX_GROUPS, devices), False)


def select_group(tables: Floats, group: Integers, k: int) -> Floats:
    """Select the table of each device's group, float64[n, k, ...], from those of all groups, float64[n, G k, ...]."""
    n, rows, *shape = tables.shape
    return tables.reshape(n, rows // k, k, *shape)[np.arange(n), group]


def _choose(front: PendingTables, local_rows: Tables, k: int) -> PendingTables:
    """Select the group of each device, and write it to the last row of its table, instead of the parent's group."""
    received = front.tables
    rows = local_rows.take(front.senders)
    values = [received.values]
    starts = np.zeros(len(front.senders), np.int64)
    end = len(received.values)
    # Equal tables are stored once, so devices with the same start are evaluated together. Each device uses the table
    # that it has received itself.
    for start in np.unique(received.starts):
        members = np.flatnonzero(received.starts == start)
        table = received.values[start : start + received.rows[members[0]]]
        member_rows = rows.take(members)
        centroids = table[:-1].reshape(-1, k, table.shape[1])
        owner = np.repeat(np.arange(len(members)), member_rows.rows)
        losses = device_costs(Rows.of(member_rows.flat()[:, 1:]), owner, len(members), centroids)
        # The group of the parent is used by devices without points only.
        parent_group = np.clip(np.rint(table[-1, 0]), 0, len(centroids) - 1)
        groups, numbers = np.unique(
            np.where(member_rows.rows > 0, np.argmin(losses, axis=0), parent_group), return_inverse=True
        )
        # One copy of the table for each selected group.
        copies = np.repeat(table[None], len(groups), axis=0)
        copies[:, -1, 0] = groups
        starts[members] = end + numbers * len(table)
        values.append(copies.reshape(-1, table.shape[1]))
        end += len(groups) * len(table)
    return PendingTables(front.senders, Tables(np.concatenate(values), starts, received.rows))
