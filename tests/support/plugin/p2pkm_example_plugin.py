"""A method, an initialization, a partition and a family of graphs that another package adds to p2pkm."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import networkx as nx
import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.init.bounding_box import BoundingBox
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.value import Init


@register("neighbor-mean")
class NeighborMeanState(NamedTuple):
    """Centroids float64[n, k, d] and converged bool[n]."""

    centroids: Any
    converged: Any


@dataclass(frozen=True)
class NeighborMean(MethodBase):
    """Move every centroid towards those of the same number at the neighbors, then take a Lloyd step.

    One round at device i with neighbors j::

        w_i,c <- (1 - pull) mean of the own points nearest to w_i,c + pull mean over j of w_j,c

    Without own points near by only the second term is left.

    Message: the k centroids.
    Privacy: neighbors see the centroids, nobody sees points.

    Parameters
    ----------
    k : int
    pull : float
        0 to 1.
    init : Init or str
        As of other methods.
    tol : float
        Largest move, relative to the scale of the data, at which a device has converged.

    References
    ----------
    An example, of no merit.
    """

    k: int
    _: KW_ONLY
    pull: float = 0.5
    init: Init | str = "bounding-box"
    tol: float = 1e-3

    name: ClassVar[str] = "neighbor-mean"
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 50

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(message_content=MessageContent.CENTROIDS, init=self.init)

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", Init.of(self.init))

    def initial_state(self, devices: Devices, start: Any) -> NeighborMeanState:
        """Start from the seeds."""
        return NeighborMeanState(start.centroids, np.zeros(len(devices), np.bool_))

    def message(self, state: NeighborMeanState, devices: Devices) -> DenseMessages:
        """Say the centroids."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: NeighborMeanState, inbox: Inbox, devices: Devices) -> NeighborMeanState:
        """Average, device by device and neighbors in ascending id: the same bits wherever a device is hosted."""
        centroids = state.centroids.copy()
        for i in np.flatnonzero(devices.active_devices):
            links = range(devices.indptr[i], devices.indptr[i + 1])
            heard = [inbox.tables_of(e, self.k, devices.d) for e in links]
            theirs = sum(heard, np.zeros_like(centroids[i])) / len(heard) if heard else state.centroids[i]
            points, weights = devices.table(i)
            label = ((points[:, None] - state.centroids[i]) ** 2).sum(axis=2).argmin(axis=1)
            for c in range(self.k):
                near = label == c
                mine = np.average(points[near], axis=0, weights=weights[near]) if near.any() else theirs[c]
                centroids[i, c] = (1 - self.pull) * mine + self.pull * theirs[c]
        moves = np.abs(centroids - state.centroids).max(axis=(1, 2))
        return NeighborMeanState(centroids, moves <= self.tol * devices.data_std)


def common_box(at: InitContext, *, times: int = 1) -> tuple[Any, ...]:
    """Draw uniform centroids in the bounding box that all devices agree on, so many times."""
    return (BoundingBox(at.k),) * times


def deal_sorted(table: Any, n: int, *, feature: int = 0, minimum: int = 0, seed: int = 0) -> Any:
    """Deal the points in the order of one feature, so that a device has a slice of space."""
    device = np.empty(len(table.points), np.int64)
    device[np.argsort(table.points[:, feature], kind="stable")] = np.arange(len(device)) * n // len(device)
    return device


def double_ring(n: int, *, stride: int = 2) -> nx.Graph:
    """Link every device with the next one and with that `stride` further."""
    return nx.circulant_graph(n, [1, stride])
