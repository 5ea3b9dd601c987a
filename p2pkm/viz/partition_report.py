"""Report of a partition: a table and a figure of the points and classes of each device."""

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

_LISTED = 20  # devices with a line in the printed table


class PartitionReport(NamedTuple):
    """Numbers of points per device and class; print it, show it in a notebook, or `plot` it.

    Attributes
    ----------
    sizes : int64[n]
        Points of each device.
    classes : int64[n, c] or None
        Points of each class on each device; None without labels.
    names : tuple of str or None
        Names of the devices; None: their numbers.
    """

    sizes: Integers
    classes: Integers | None
    names: tuple[str, ...] | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """Main numbers: devices, points, smallest, largest and empty devices, mean number of classes per device."""
        numbers: dict[str, Any] = {
            "devices": len(self.sizes),
            "points": int(self.sizes.sum()),
            "smallest": int(self.sizes.min()),
            "largest": int(self.sizes.max()),
            "empty": int((self.sizes == 0).sum()),
        }
        if self.classes is not None:
            present = (self.classes > 0).sum(axis=1)[self.sizes > 0]
            numbers |= {"classes": self.classes.shape[1], "classes_per_device": float(np.mean(present))}
        return numbers

    def __str__(self) -> str:
        """Format the main numbers, and one line for each of the first devices."""
        lines = [", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.figures.items())]
        for i in range(min(len(self.sizes), _LISTED)):
            name = f"device {i:4d}" if self.names is None else self.names[i]
            row = "" if self.classes is None else "  classes " + " ".join(f"{count:5d}" for count in self.classes[i])
            lines.append(f"{name:>11}: {self.sizes[i]:6d} points{row}")
        if len(self.sizes) > _LISTED:
            lines.append(f"... and {len(self.sizes) - _LISTED} more devices")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        return str(call("card", self))

    def plot(self, ax: "Axes | None" = None) -> "Figure":
        """Draw a map of devices and classes, or points per device without labels."""
        from p2pkm.viz import plot_partition_of

        return plot_partition_of(self.sizes, self.classes, ax, names=self.names)


def partition_report(shards: "Shards") -> PartitionReport:
    """Count the points of each device, and of each class on each device.

    Parameters
    ----------
    shards : Shards

    Returns
    -------
    PartitionReport
        A table when printed, a figure when plotted.

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
        for devices, rows in iter_chunks(shards.offsets):
            offsets = shards.offsets[devices.start : devices.stop + 1] - rows.start
            labels = shards.labels[rows]
            classes[devices] = count_class_labels(offsets, labels, np.zeros_like(labels), count, 1)[:, :, 0]
    return PartitionReport(shards.sizes, classes, shards.names)
