"""Initialization by uniform random centroids in the bounding box of all points, which min/max gossip computes."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.kernels.reference import uniforms


@register("bounding-box")
class BoundingBoxState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    box : float64[n, 2, d]
        Lower and upper corner; (+inf, -inf) until the device has a box.
    """

    centroids: Floats
    converged: Mask
    box: Floats


@dataclass(frozen=True)
class BoundingBox(MethodBase):
    """Initialization by k uniform random points in the common bounding box.

    All devices of a component end with the same box and the same centroids.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Update.**

    1. Each device computes the box of its local points.
    2. ``box_i <- (min, max)`` over the boxes of i and its neighbors, until no box changes.
    3. The shared seed draws k points, uniformly in the box.

    **Messages.** The 2 corners to each neighbor, whenever the local box has grown.

    **Privacy.** No guarantee. Each number of a corner is a coordinate of some point, at first of a local point. The
    corners of a device with one point are that point. With a `min_cluster_size` p the corners are means of the p
    smallest and of the p largest values of each feature, and a device with fewer points sends none.
    """

    name: ClassVar[str] = "bounding-box"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER, common_centroids=True)
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Count two corners."""
        return UntilUnchanged(2, known.features, exact=known.least >= 1)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> BoundingBoxState:
        """Compute the bounding box of the local points."""
        box = local_boxes(devices)
        return BoundingBoxState(self._draw(box, devices), np.zeros(len(devices), np.bool_), box)

    def message(self, state: BoundingBoxState, devices: Devices) -> DenseMessages:
        """Send the box if it has grown; a device without a box sends an empty table in the initial exchange."""
        rows = np.where(state.box[:, 0, 0] < np.inf, 2, 0)
        return DenseMessages(state.box, np.where(devices.active_devices & ~state.converged, rows, -1))

    def update(self, state: BoundingBoxState, inbox: Inbox, devices: Devices) -> BoundingBoxState:
        """Extend the box by the received ones."""
        box = state.box.copy()
        received = inbox.fresh & (inbox.rows_of(slice(None)) == 2)
        owner = devices.sources[received]
        tables = inbox.tables_of(received, 2, box.shape[2])
        np.minimum.at(box[:, 0], owner, tables[:, 0])
        np.maximum.at(box[:, 1], owner, tables[:, 1])
        return BoundingBoxState(self._draw(box, devices), (box == state.box).all(axis=(1, 2)), box)

    def _draw(self, box: Floats, devices: Devices) -> Floats:
        """Draw k uniform points in each device's box, float64[n, k, d]; absent at devices without a box."""
        positions = uniforms(devices.shared_key, Stream.BOX, [0], self.k * devices.d).reshape(1, self.k, devices.d)
        has_box = box[:, 0, 0] < np.inf
        centroids = np.full((len(box), self.k, devices.d), np.inf)
        centroids[has_box] = box[has_box, :1] + positions * (box[has_box, 1:] - box[has_box, :1])
        return centroids


def local_boxes(devices: Devices) -> Floats:
    """Compute lower and upper corner of the local points, float64[n, 2, d]; (+inf, -inf) for a device without a box.

    With a `min_cluster_size` p, the corners are means of the p smallest and of the p largest values of each feature,
    and a device with fewer points has no box.
    """
    box = np.empty((len(devices), 2, devices.d))
    box[:, 0], box[:, 1] = np.inf, -np.inf
    if devices.min_count > 1:
        _write_suppressed_bounds(box, devices)
    else:
        owner = np.repeat(np.arange(len(devices)), devices.sizes)
        np.minimum.at(box[:, 0], owner, devices.stored)
        np.maximum.at(box[:, 1], owner, devices.stored)
    return box


def _write_suppressed_bounds(box: Floats, devices: Devices) -> None:
    """Write the means of the `min_count` smallest and largest values of each feature into float64[n, 2, d]."""
    count = devices.min_count
    for i in np.flatnonzero(devices.sizes >= count):
        ascending = np.sort(devices.table(i)[0], axis=0)
        for corner, values in enumerate((ascending[:count], ascending[-count:])):
            # cumsum adds in order, so that the bits do not depend on the vectors of the processor.
            box[i, corner] = np.cumsum(values, axis=0)[-1] / count
