"""Values that color devices, links and points in figures."""

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
    """Values of all devices or all directed edges that are shown as colors.

    Attributes
    ----------
    values : float64[n] or float64[e]
        NaN: unknown. inf: a device without centroids.
    label : str
        Label of the color bar, with the unit.
    unknown : str
        Legend entry of devices whose value is unknown.
    unit : str
        Written after each number of the color bar.
    numbers : str
        Noun for values that are labels, such as "group": each then has its color. Empty for quantities.
    """

    values: Floats
    label: str
    unknown: str = ""
    unit: str = ""
    numbers: str = ""


class PointColors(NamedTuple):
    """Classes or clusters that color the points of the sample.

    Attributes
    ----------
    kinds : int64[s]
        Class or cluster of each point; -1: unknown.
    label : str
        "true class" or "cluster"; empty if all are unknown.
    """

    kinds: Integers
    label: str


def read_points(result: "Result") -> PointColors:
    """Return the true classes of the sampled points or, without labels, their assigned clusters."""
    census = result.census
    if (census.sample_class >= 0).any():
        return PointColors(census.sample_class, "true class")
    kinds = result.number_alike(census.sample_device, census.sample_cluster)
    return PointColors(kinds, "cluster" if (kinds >= 0).any() else "")


def cost_per_point(losses: Floats, sizes: Integers) -> Floats:
    """Compute each device's cost per point, float64[n]; NaN without points, inf without centroids."""
    return np.where(sizes > 0, losses / np.maximum(sizes, 1), np.nan)


def read_nodes(result: "Result", name: str) -> ColorScale:
    """Return the values of all devices, and of a server, for a name of `DEVICES` or the key of a metric per device."""
    metrics = {key: partial(_read_metric, name=key) for key in result.devices}
    return _find({**DEVICES, **metrics}, name, "nodes")(result)


def read_edges(result: "Result", name: str) -> ColorScale:
    """Return the values of all directed edges for a name of `LINKS`, equal in both directions."""
    return _find(LINKS, name, "edges")(result)


def _find(
    known: Mapping[str, Callable[["Result"], ColorScale]], name: str, what: str
) -> Callable[["Result"], ColorScale]:
    if name not in known:
        raise ExperimentError(f"{what} is {name!r}; expected {', '.join(known)}")
    return known[name]


def _complete(result: "Result", values: Floats) -> Floats:
    """Append NaN for a server to the values of the devices."""
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
    label = "total variation between a\ndevice and its neighbors"
    return ColorScale(_complete(result, sums.astype(np.float64)), label, "server")


def _read_ratio(result: "Result") -> ColorScale:
    ratios = np.full(result.topology.n, np.nan) if result.ratios is None else result.ratios
    return ColorScale(_complete(result, ratios), "cost ratio\n(central k-means: 1)", "cost ratio unknown")


def _read_group(result: "Result") -> ColorScale:
    groups = np.full(result.topology.clients, np.nan) if result.groups is None else result.groups.astype(np.float64)
    return ColorScale(_complete(result, groups), "group", "no groups", numbers="group")


def _read_metric(result: "Result", name: str) -> ColorScale:
    return ColorScale(_complete(result, result.devices[name]), find(name).axis, "unknown")


def _read_gtv(result: "Result") -> ColorScale:
    values = np.where(np.isfinite(result.gtv), result.gtv, np.nan)
    return ColorScale(values, "total variation of a link\n(squared distance)")


def _read_bytes(result: "Result") -> ColorScale:
    volume = result.ledger.bytes.astype(np.float64)
    return ColorScale(volume + volume[result.topology.mirror], "plain bytes over a link,\nboth directions", unit="B")


def _read_link_weights(result: "Result") -> ColorScale:
    unknown = np.full(len(result.topology.indices), np.nan)
    values = unknown if result.link_weights is None else result.link_weights
    return ColorScale(values, "estimated weight of a link\n(1: usual difference)")


DEVICES: Mapping[str, Callable[["Result"], ColorScale]] = {
    "cost": _read_cost,
    "disagreement": _read_disagreement,
    "ratio": _read_ratio,
    "group": _read_group,
}
LINKS: Mapping[str, Callable[["Result"], ColorScale]] = {
    "gtv": _read_gtv,
    "bytes": _read_bytes,
    "weight": _read_link_weights,
}
