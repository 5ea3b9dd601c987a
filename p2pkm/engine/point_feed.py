"""The points of a rank where they change during a run: what a data stream does to them, round by round."""

from dataclasses import replace

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import rescale
from p2pkm.data.shards import Shards
from p2pkm.data.stream import PointStream


class PointFeed:
    """The points of the own devices in the current round of the method's stage.

    Parameters
    ----------
    stream : PointStream
    raw : Shards
        The own points at the start, before any scaling.
    units : (float64[n, d], float64[n, d]) or None
        Shift and span that the own devices scale by.
    ids : int64[n]
        Of the own devices.

    Attributes
    ----------
    own : Shards
        The own points, scaled.
    """

    def __init__(self, stream: PointStream, raw: Shards, units: tuple[Floats, Floats] | None, devices: Devices) -> None:
        self.stream, self._raw, self._units, self._ids = stream, raw, units, devices.ids
        self.own = self._scale()

    def advance(self, t: int) -> bool:
        """Let the points change as they do at the start of round t; return whether those of any device do."""
        breaks = self.stream.breaks(t)
        if breaks:
            self._raw = self.stream.change(t, self._raw, self._ids)
            self.own = self._scale()
        return breaks

    def catch_up(self, t: int) -> bool:
        """Let the points change as they did in all rounds up to t; return whether those of any device did."""
        return any([self.advance(passed) for passed in range(1, t + 1)])

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with these points; what all devices knew at the start stays as it was."""
        own = self.own
        return replace(devices, stored=own.points, offsets=own.offsets, point_weights=own.weights)

    def _scale(self) -> Shards:
        """Return the points in the units of the devices; classes of new points are not known."""
        own, units = replace(self._raw, labels=None), self._units
        return own if units is None else replace(own, points=rescale(own.points, own.offsets, *units))
