"""What the colors of devices, links and points in a picture of the graph stand for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.metrics.registry import find

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result


class ColorScale(NamedTuple):
    """A figure of every device, or of every directed edge.

    Attributes
    ----------
    values : float64[n] or float64[e]
        NaN where it is not known; inf: a device without centroids.
    label : str
        What it is, with its unit.
    unknown : str
        What is to be said of devices where it is not known.
    unit : str
        To be written after every number.
    numbers : str
        What the values number, such as groups, each with a color of its own; empty: values are quantities.
    """

    values: Floats
    label: str
    unknown: str = ""
    unit: str = ""
    numbers: str = ""


class PointColors(NamedTuple):
    """What colors the points of the sample.

    Attributes
    ----------
    kinds : int64[s]
        Each with a color of its own; -1: not known.
    label : str
        What they are; empty if nothing is known.
    """

    kinds: Integers
    label: str


def read_points(result: "Result") -> PointColors:
    """Return the true classes of the points in the sample, without labels the clusters that they were assigned to."""
    census = result.census
    if (census.sample_class >= 0).any():
        return PointColors(census.sample_class, "true class")
    kinds = result.number_alike(census.sample_device, census.sample_cluster)
    return PointColors(kinds, "cluster" if (kinds >= 0).any() else "")


def cost_per_point(losses: Floats, sizes: Integers) -> Floats:
    """Return each device's cost per point, float64[n]; NaN without points, inf without a centroid for them."""
    return np.where(sizes > 0, losses / np.maximum(sizes, 1), np.nan)


def read_nodes(result: "Result", name: str) -> ColorScale:
    """Return what a name of `DEVICES`, or the key of a figure that every device has, stands for, of all and a hub."""
    figures = {key: partial(_read_figure, name=key) for key in result.devices}
    return _find({**DEVICES, **figures}, name, "nodes")(result)


def read_edges(result: "Result", name: str) -> ColorScale:
    """Return what a name of `LINKS` stands for, alike in both directions."""
    return _find(LINKS, name, "edges")(result)


def _find(
    known: Mapping[str, Callable[["Result"], ColorScale]], name: str, what: str
) -> Callable[["Result"], ColorScale]:
    if name not in known:
        raise ExperimentError(f"{what} is {name!r}; expected {', '.join(known)}")
    return known[name]


def _complete(result: "Result", values: Floats) -> Floats:
    """Return the figures of the devices, and NaN for a hub."""
    full = np.full(result.topology.n, np.nan)
    full[: len(values)] = values[: len(full)]
    return full


def _read_cost(result: "Result") -> ColorScale:
    values = _complete(result, cost_per_point(result.losses, result.census.sizes))
    unknown = "device without points" if result.topology.hub < 0 else "server, device without points"
    return ColorScale(values, "cost per point of a device\n(squared distance)", unknown)


def _read_disagreement(result: "Result") -> ColorScale:
    topology = result.topology
    sums = np.bincount(topology.sources, result.gtv, topology.n)[: topology.clients]
    return ColorScale(
        _complete(result, sums.astype(np.float64)), "disagreement with neighbors:\nGTV of a device's links", "server"
    )


def _read_ratio(result: "Result") -> ColorScale:
    known = np.full(result.topology.n, np.nan) if result.ratios is None else result.ratios
    return ColorScale(_complete(result, known), "cost on all points\nover central k-means", "ratio not known")


def _read_group(result: "Result") -> ColorScale:
    known = np.full(result.topology.clients, np.nan) if result.groups is None else result.groups.astype(np.float64)
    return ColorScale(_complete(result, known), "group", "no groups", numbers="group")


def _read_figure(result: "Result", name: str) -> ColorScale:
    return ColorScale(_complete(result, result.devices[name]), find(name).axis, "not known")


def _read_gtv(result: "Result") -> ColorScale:
    values = np.where(np.isfinite(result.gtv), result.gtv, np.nan)
    return ColorScale(values, "GTV of a link\n(squared distance)")


def _read_bytes(result: "Result") -> ColorScale:
    volume = result.ledger.bytes.astype(np.float64)
    return ColorScale(volume + volume[result.topology.mirror], "bytes over a link,\nboth ways", unit="B")


DEVICES: Mapping[str, Callable[["Result"], ColorScale]] = {
    "cost": _read_cost,
    "disagreement": _read_disagreement,
    "ratio": _read_ratio,
    "group": _read_group,
}
LINKS: Mapping[str, Callable[["Result"], ColorScale]] = {"gtv": _read_gtv, "bytes": _read_bytes}
