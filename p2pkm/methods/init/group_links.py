"""Removal of the links between groups of devices."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits


@register("group-links")
class GroupLinksState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    group : int64[n]
        Number of each device's group.
    edge_active : bool[e]
        Edges within a group.
    edge_degrees : int64[e]
        Number of links that the neighbor keeps.
    """

    centroids: Floats
    converged: Mask
    group: Integers
    edge_active: Mask
    edge_degrees: Integers


@dataclass(frozen=True)
class GroupLinks(MethodBase):
    """Removal of links whose ends are in different groups, as found by `TreeGroups`.

    Later stages use the remaining links only. The centroids do not change.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Messages.** One row with the group of the sender over all links; then one row with the number of remaining links,
    over these links.

    **Privacy.** No guarantee. Neighbors receive the group of a device.
    """

    name: ClassVar[str] = "group-links"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER, needs_honest_messages=True, cuts_links=True, common_centroids=True
    )
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Count one number per message."""
        return UntilUnchanged(1, 1)

    def initial_state(self, devices: Devices, start: Any) -> GroupLinksState:
        """Adopt centroids and groups of the previous stage."""
        converged = np.zeros(len(devices), np.bool_)
        degrees = devices.neighbor_degrees.astype(np.int64)
        return GroupLinksState(start.centroids, converged, start.group, devices.active_edges, degrees)

    def message(self, state: GroupLinksState, devices: Devices) -> DenseMessages:
        """Send the group, then the number of remaining links."""
        if devices.round == 0:
            return DenseMessages(state.group.astype(np.float64)[:, None, None], np.ones(len(devices), np.int64))
        edges = state.edge_active
        degrees = np.bincount(devices.sources[edges], minlength=len(devices)).astype(np.float64)
        rows = np.full(len(devices), 1 if devices.round == 1 else -1)
        return DenseMessages(degrees[:, None, None], rows, edges=edges)

    def update(self, state: GroupLinksState, inbox: Inbox, devices: Devices) -> GroupLinksState:
        """Select the links to keep, then store the number of links that each neighbor keeps."""
        if devices.round == 1:
            same = inbox.tables_of(slice(None), 1, 1)[:, 0, 0] == state.group[devices.sources]
            return state._replace(edge_active=devices.active_edges & inbox.fresh & same)
        degrees = np.zeros(len(devices.indices), np.int64)
        fresh = np.flatnonzero(inbox.fresh)
        degrees[fresh] = np.rint(inbox.tables_of(fresh, 1, 1)[:, 0, 0])
        return state._replace(edge_degrees=degrees, converged=np.ones(len(devices), np.bool_))
