"""Points of a rank that change during a run: applies a data stream, round by round."""

from dataclasses import replace
from typing import TYPE_CHECKING

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.shards import Shards

if TYPE_CHECKING:
    from p2pkm.data.stream import PointStream


class PointFeed:
    """Points of the local devices in the current round of the method's stage.

    Parameters
    ----------
    stream : PointStream
    raw : Shards
        Local points at the start, before scaling.
    units : (float64[n, d], float64[n, d]) or None
        Shift and span that the local devices scale by.
    devices : Devices

    Attributes
    ----------
    shards : Shards
        Local points, scaled.
    """

    def __init__(
        self, stream: "PointStream", raw: Shards, units: tuple[Floats, Floats] | None, devices: Devices
    ) -> None:
        self.stream = stream
        self._raw = raw
        self._units = units
        self._ids = devices.ids
        self.shards = self._scale()

    def advance(self, t: int) -> bool:
        """Apply the changes of round t; return whether the points of any device of the system change in it."""
        has_changes = self.stream.has_changes(t)
        if has_changes:
            self._raw = self.stream.change(t, self._raw, self._ids)
            self.shards = self._scale()
        return has_changes

    def replay_until(self, t: int) -> bool:
        """Apply the changes of rounds 1 to t, after a resume; return whether any points changed."""
        # A list, not a generator: `any` must not stop at the first round with changes.
        return any([self.advance(passed) for passed in range(1, t + 1)])

    def with_points(self, devices: Devices) -> Devices:
        """Return the batch with the current points; constants of the run, such as the total weight, do not change."""
        shards = self.shards
        return replace(devices, stored=shards.points, offsets=shards.offsets, point_weights=shards.weights)

    def _scale(self) -> Shards:
        """Scale the points; their classes are removed, because those of new points are unknown."""
        shards, units = replace(self._raw, labels=None), self._units
        return shards if units is None else replace(shards, points=rescale(shards.points, shards.offsets, *units))
