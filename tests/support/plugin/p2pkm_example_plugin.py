"""Example plug-in with a method, an initialization, a partition, a transform and a family of graphs."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import networkx as nx
import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, Transform
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
    """State: centroids float64[n, k, d] and converged bool[n]."""

    centroids: Any
    converged: Any


@dataclass(frozen=True)
class NeighborMean(MethodBase):
    """Lloyd step toward the mean of the centroids of the same index at the neighbors.

    Parameters
    ----------
    k : int
    pull : float
        Weight of the neighbors, from 0 to 1.
    init : Init or str
        Initialization.
    tol : float
        A device has converged if its centroids move by at most `tol`, relative to the scale of the data.

    Notes
    -----
    An example only, not a recommended method.

    **Update.** One round at device i with neighbors j::

        w_i,c <- (1 - pull) (mean of the local points nearest to w_i,c) + pull (mean over j of w_j,c)

    Without local points nearest to w_i,c, only the mean over j remains.

    **Messages.** The k centroids.

    **Privacy.** No guarantee. Neighbors receive the centroids, but no points.
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
        """Properties of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            init=self.init,
            incompatible_with={
                "suppression": "pairs centroids by number, so that no row may be missing",
            },
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", Init.of(self.init))

    def initial_state(self, devices: Devices, start: Any) -> NeighborMeanState:
        """Start from the initial centroids."""
        return NeighborMeanState(start.centroids, np.zeros(len(devices), np.bool_))

    def message(self, state: NeighborMeanState, devices: Devices) -> DenseMessages:
        """Send the centroids."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: NeighborMeanState, inbox: Inbox, devices: Devices) -> NeighborMeanState:
        """Average device by device, with neighbors in ascending order, so that results do not depend on the rank."""
        centroids = state.centroids.copy()
        for i in np.flatnonzero(devices.active_devices):
            # A message may be lost, so that no table, or an old one, is there.
            links = [e for e in range(devices.indptr[i], devices.indptr[i + 1]) if inbox.received[e]]
            received = [inbox.tables_of(e, self.k, devices.d) for e in links]
            target = sum(received, np.zeros_like(centroids[i])) / len(received) if received else state.centroids[i]
            points, weights = devices.table(i)
            label = ((points[:, None] - state.centroids[i]) ** 2).sum(axis=2).argmin(axis=1)
            for c in range(self.k):
                nearest = label == c
                mean = np.average(points[nearest], axis=0, weights=weights[nearest]) if nearest.any() else target[c]
                centroids[i, c] = (1 - self.pull) * mean + self.pull * target[c]
        moves = np.abs(centroids - state.centroids).max(axis=(1, 2))
        return NeighborMeanState(centroids, moves <= self.tol * devices.data_std)


class Gain(Transform):
    """Multiply the coordinates of sent centroids by a factor that approaches 1 with the number of sent tables."""

    name: ClassVar[str] = "gain"
    order: ClassVar[Order] = Order.PERTURB
    acts_on: ClassVar[Any] = (MessageContent.CENTROIDS,)
    # Receivers need no earlier table to read one.
    handles_loss: ClassVar[bool] = True

    def __init__(self, *, size: float = 0.01) -> None:
        self.size = size

    def start(self, stages: Any, devices: Devices, network: Any) -> None:
        """Count the tables of each device; this attribute is saved in checkpoints."""
        self.sent = np.zeros(len(devices), np.int64)

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Multiply the centroids of each device."""
        if not isinstance(messages, DenseMessages):
            return messages
        self.sent = self.sent + (messages.rows > 0)
        factors = 1.0 + self.size / np.maximum(self.sent, 1)
        return messages._replace(values=messages.values * factors[:, None, None])


def common_box(at: InitContext, *, times: int = 1) -> tuple[Any, ...]:
    """Draw uniform centroids in the common bounding box of all devices; `times` repeats the stage."""
    return (BoundingBox(at.k),) * times


def deal_sorted(table: Any, n: int, *, feature: int = 0, minimum: int = 0, seed: int = 0) -> Any:
    """Partition the points in the order of one feature, so that each device has an interval of it."""
    device = np.empty(len(table.points), np.int64)
    device[np.argsort(table.points[:, feature], kind="stable")] = np.arange(len(device)) * n // len(device)
    return device


def double_ring(n: int, *, stride: int = 2) -> nx.Graph:
    """Link each device with the next one and with the one `stride` further."""
    return nx.circulant_graph(n, [1, stride])
