"""Links inside groups: those whose ends have taken the same table."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits


@register("group-links")
class GroupLinksState(NamedTuple):
    """centroids, converged; group: int64[n]; edge_active: bool[e]; edge_degrees: int64[e], links the neighbor keeps."""

    centroids: Floats
    converged: Mask
    group: Integers
    edge_active: Mask
    edge_degrees: Integers


@dataclass(frozen=True)
class GroupLinks(MethodBase):
    """Keep the links whose ends are in the same group, as `p2pkm.methods.init.tree_groups` found it.

    The centroids stay as they are.

    Message: one row with the own group; then one row with the number of links that stay, over these.

    Privacy: neighbors see the group of a device.
    """

    name: ClassVar[str] = "group-links"
    traits: ClassVar[MethodTraits] = MethodTraits(needs_honest_messages=True, cuts_links=True, common_centroids=True)
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Return a number, twice."""
        return UntilUnchanged(1, 1)

    def initial_state(self, devices: Devices, start: Any) -> GroupLinksState:
        """Take centroids and groups of the stage before."""
        asleep = np.zeros(len(devices), np.bool_)
        degrees = devices.neighbor_degrees.astype(np.int64)
        return GroupLinksState(start.centroids, asleep, start.group, devices.active_edges, degrees)

    def message(self, state: GroupLinksState, devices: Devices) -> DenseMessages:
        """Send the own group, then the number of links that stay."""
        if devices.round == 0:
            return DenseMessages(state.group.astype(np.float64)[:, None, None], np.ones(len(devices), np.int64))
        kept = state.edge_active
        degrees = np.bincount(devices.sources[kept], minlength=len(devices)).astype(np.float64)
        rows = np.full(len(devices), 1 if devices.round == 1 else -1)
        return DenseMessages(degrees[:, None, None], rows, edges=kept)

    def update(self, state: GroupLinksState, inbox: Inbox, devices: Devices) -> GroupLinksState:
        """Choose the links to keep, then learn how many each neighbor keeps."""
        if devices.round == 1:
            same = inbox.tables_of(slice(None), 1, 1)[:, 0, 0] == state.group[devices.sources]
            return state._replace(edge_active=devices.active_edges & inbox.fresh & same)
        degrees, fresh = np.zeros(len(devices.indices), np.int64), np.flatnonzero(inbox.fresh)
        degrees[fresh] = np.rint(inbox.tables_of(fresh, 1, 1)[:, 0, 0])
        return state._replace(edge_degrees=degrees, converged=np.ones(len(devices), np.bool_))
