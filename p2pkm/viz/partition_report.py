"""Who has which points: a table and a figure of a partition."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.brief import short_repr
from p2pkm.core.chunks import iter_chunks
from p2pkm.core.late_binding import call
from p2pkm.kernels.reference import count_class_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.data.shards import Shards

_LISTED = 20  # devices that the table shows one by one


class PartitionReport(NamedTuple):
    """How points are dealt to devices; print it, show it in a notebook, or `plot` it.

    Attributes
    ----------
    sizes : int64[n]
        Points of each device.
    classes : int64[n, c] or None
        Points of each class on each device; None without labels.
    """

    sizes: Integers
    classes: Integers | None

    @property
    def figures(self) -> dict[str, Any]:
        """Return the main figures: devices, points, smallest, largest and empty devices, mean classes per device."""
        found: dict[str, Any] = {
            "devices": len(self.sizes), "points": int(self.sizes.sum()), "smallest": int(self.sizes.min()),
            "largest": int(self.sizes.max()), "empty": int((self.sizes == 0).sum()),
        }  # fmt: skip
        if self.classes is not None:
            present = (self.classes > 0).sum(axis=1)[self.sizes > 0]
            found |= {"classes": self.classes.shape[1], "classes_per_device": float(np.mean(present))}
        return found

    def __str__(self) -> str:
        """Return the figures, and the first devices one by one."""
        lines = [", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.figures.items())]
        for i in range(min(len(self.sizes), _LISTED)):
            row = "" if self.classes is None else "  classes " + " ".join(f"{count:5d}" for count in self.classes[i])
            lines.append(f"device {i:4d}: {self.sizes[i]:6d} points{row}")
        if len(self.sizes) > _LISTED:
            lines.append(f"... and {len(self.sizes) - _LISTED} more devices")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw the devices x classes map (without labels: points per device)."""
        from p2pkm.viz import plot_partition_of

        return plot_partition_of(self.sizes, self.classes, ax)


def partition_report(shards: "Shards") -> PartitionReport:
    """Report how points are dealt to devices.

    Parameters
    ----------
    shards : Shards

    Returns
    -------
    PartitionReport
        A table if printed, a figure if plotted.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.grid16(points=20)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4), labels=y)
    >>> report = p2pkm.partition_report(shards)
    >>> str(report).splitlines()[0]
    'devices 4, points 320, smallest 80, largest 80, empty 0, classes 16, classes per device 16'
    """
    classes = None
    if shards.labels is not None:
        count = int(shards.labels.max(initial=-1)) + 1
        classes = np.zeros((shards.n, count), np.int64)
        for own, rows in iter_chunks(shards.offsets):
            offsets, labels = shards.offsets[own.start : own.stop + 1] - rows.start, shards.labels[rows]
            classes[own] = count_class_labels(offsets, labels, np.zeros_like(labels), count, 1)[:, :, 0]
    return PartitionReport(shards.sizes, classes)
