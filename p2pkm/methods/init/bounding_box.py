"""Uniform seeds in the common bounding box, found by min/max gossip."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Stream
from p2pkm.core.expected_messages import Known, UntilUnchanged
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.kernels.reference import uniforms


@register("bounding-box")
class BoundingBoxState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]; box: float64[n, 2, d], (+inf, -inf) where nothing is known."""

    centroids: Floats
    converged: Mask
    box: Floats

    @property
    def scaling(self) -> tuple[Floats, Floats]:
        """Return shift and span of min-max scaling, each float64[n, d]; 0 and 1 where nothing is known."""
        known = self.box[:, :1] < np.inf
        low, high = (np.where(known, end, 0.0)[:, 0] for end in (self.box[:, :1], self.box[:, 1:]))
        return low, high - low


@dataclass(frozen=True)
class BoundingBox(MethodBase):
    """``box_i <- (min, max) over i and its neighbors`` until nothing changes, then k uniform points in the box.

    The shared seed draws the points, so all devices of a component end with the same centroids.

    Message: 2 rows whenever the own box has grown.

    Privacy: each number of a corner is a coordinate of some point, at first of a point of the device itself; the
    corners of one point are that point. With a `min_cluster_size` p they are means of the p smallest and of the p
    largest values instead, and a device of fewer points has none.
    """

    name: ClassVar[str] = "bounding-box"
    traits: ClassVar[MethodTraits] = MethodTraits(common_centroids=True)
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> UntilUnchanged:
        """Return two corners."""
        return UntilUnchanged(2, known.features, exact=known.least >= 1)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> BoundingBoxState:
        """Find the own bounding box."""
        box = np.empty((len(devices), 2, devices.d))
        box[:, 0], box[:, 1] = np.inf, -np.inf
        if devices.min_count > 1:
            _blunt(box, devices)
        else:
            owner = np.repeat(np.arange(len(devices)), devices.sizes)
            np.minimum.at(box[:, 0], owner, devices.stored)
            np.maximum.at(box[:, 1], owner, devices.stored)
        return BoundingBoxState(self._draw(box, devices), np.zeros(len(devices), np.bool_), box)

    def message(self, state: BoundingBoxState, devices: Devices) -> DenseMessages:
        """Send the box if it has grown; a device that knows of no point sends an empty table at the opening."""
        rows = np.where(state.box[:, 0, 0] < np.inf, 2, 0)
        return DenseMessages(state.box, np.where(devices.active_devices & ~state.converged, rows, -1))

    def update(self, state: BoundingBoxState, inbox: Inbox, devices: Devices) -> BoundingBoxState:
        """Widen the box by what was received."""
        box = state.box.copy()
        received = inbox.fresh & (inbox.rows_of(slice(None)) == 2)
        owner = devices.sources[received]
        tables = inbox.tables_of(received, 2, box.shape[2])
        np.minimum.at(box[:, 0], owner, tables[:, 0])
        np.maximum.at(box[:, 1], owner, tables[:, 1])
        return BoundingBoxState(self._draw(box, devices), (box == state.box).all(axis=(1, 2)), box)

    def _draw(self, box: Floats, devices: Devices) -> Floats:
        """Return k uniform points in each device's box, float64[n, k, d]; absent where no box is known."""
        places = uniforms(devices.shared_key, Stream.BOX, [0], self.k * devices.d).reshape(1, self.k, devices.d)
        known = box[:, 0, 0] < np.inf
        centroids = np.full((len(box), self.k, devices.d), np.inf)
        centroids[known] = box[known, :1] + places * (box[known, 1:] - box[known, :1])
        return centroids


def _blunt(box: Floats, devices: Devices) -> None:
    """Write the means of the `min_count` smallest and largest values of each coordinate into float64[n, 2, d]."""
    least = devices.min_count
    for i in np.flatnonzero(devices.sizes >= least):
        ascending = np.sort(devices.table(i)[0], axis=0)
        for end, values in enumerate((ascending[:least], ascending[-least:])):
            box[i, end] = np.cumsum(values, axis=0)[-1] / least
