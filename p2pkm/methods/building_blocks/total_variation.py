"""What a device can compute of its links: how far the tables at the two ends are apart.

Both ends of a link come to the same bits: each adds the same two partial sums, and each partial sum runs over the rows
of one end in that end's order.
"""

import math
from collections.abc import Iterator

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Inbox

_BLOCK = 1 << 21  # distances that are held at a time


def variation(devices: Devices, tables: Floats, inbox: Inbox, edges: Integers) -> Floats:
    """Return the variation (4) of Jung 2025 between the own table and what was last received, float64[b].

    Parameters
    ----------
    tables : float64[n, k, d]
        The own centroids; absent rows are +inf.
    edges : int64[b]
        Own edges over which something was received.
    """
    found = [np.zeros(0)]
    for nearest, facing in _compare(devices, tables, inbox, edges):
        found.append(_add(nearest) + _add(facing))
    return np.concatenate(found)


def lower_quartile(devices: Devices, values: Floats, edges: Integers) -> Floats:
    """Return each device's lower quartile of the values of own edges, with linear interpolation, float64[n].

    Parameters
    ----------
    values : float64[b]
    edges : int64[b]
        The edges that have them; a device without any gets nan.
    """
    owner = devices.sources[edges]
    ascending = values[np.lexsort((values, owner))]
    counts = np.bincount(owner, minlength=len(devices))
    some = np.flatnonzero(counts)
    place = 0.25 * (counts[some] - 1)
    low = place.astype(np.int64)
    share = place - low
    low += (np.cumsum(counts) - counts)[some]
    high = low + (share > 0.0)
    result = np.full(len(devices), np.nan)
    result[some] = ascending[low] + share * (ascending[high] - ascending[low])
    return result


def received_edges(inbox: Inbox, among: Mask) -> Integers:
    """Return the own edges of a mask over which something was ever received."""
    return np.flatnonzero(among & inbox.received)


def saturation_weight(limit: Floats, gtv: Floats) -> Floats:
    """Return phi'(d) of links whose variation is d: 1 up to the limit d0, d0 / d beyond."""
    far = gtv > limit
    return np.where(far, limit, 1.0) / np.where(far, gtv, 1.0)


def saturate_alpha(
    limit: Floats | None, weight: Floats | None, centroids: Floats, inbox: Inbox, devices: Devices
) -> Floats | None:
    """Return which share of the strength of each own link is left, ``min(1, d0 / d)``, new at the active devices.

    Parameters
    ----------
    limit, weight : float64[e] or None
        Variation d0 from which on links give way, +inf: never; share that was left before. None: all of it, always.
    centroids : float64[n, k, d]
        The own ones.
    """
    if limit is None or weight is None:
        return weight
    left, edges = weight.copy(), received_edges(inbox, (limit < np.inf) & devices.active_devices[devices.sources])
    left[edges] = saturation_weight(limit[edges], variation(devices, centroids, inbox, edges))
    return left


def saturated_penalty(limit: Floats, gtv: Floats) -> Floats:
    """Return phi(d) of links whose variation is d: d up to the limit d0, d0 (1 + log(d / d0)) beyond."""
    result = np.minimum(gtv, limit)
    for e in np.flatnonzero((gtv > limit) & (limit > 0.0)):  # np.log differs in the last bit from place to place
        result[e] *= 1.0 + math.log(gtv[e] / limit[e])
    return result


def squared(a: Floats, b: Floats) -> Floats:
    """Return the squared distances of all rows of float64[..., p, d] to those of float64[..., q, d], in their order.

    Where one of two rows is absent (+inf) the distance is +inf.
    """
    result = np.zeros((*a.shape[:-1], b.shape[-2]))
    with np.errstate(invalid="ignore"):
        for f in range(a.shape[-1]):
            difference = a[..., :, None, f] - b[..., None, :, f]
            result += difference * difference
    result[np.isnan(result)] = np.inf
    return result


def _compare(devices: Devices, tables: Floats, inbox: Inbox, edges: Integers) -> Iterator[tuple[Floats, Floats]]:
    """Yield blocks of edges: squared distance of each row to the nearest of the other end, both ways.

    Rows that are not there have the distance 0.
    """
    k, d = tables.shape[1:]
    source, rows = devices.sources[edges], inbox.rows_of(edges)
    step = max(1, _BLOCK // (k * k))
    for first in range(0, len(edges), step):
        part = slice(first, first + step)
        own, other = tables[source[part]], inbox.tables_of(edges[part], k, d)
        other[np.arange(other.shape[1]) >= rows[part, None]] = np.inf
        distances = squared(own, other)
        nearest, facing = distances.min(axis=2, initial=np.inf), distances.min(axis=1, initial=np.inf)
        yield _real(nearest), _real(facing)


def _real(values: Floats) -> Floats:
    return np.where(values < np.inf, values, 0.0)


def _add(values: Floats) -> Floats:
    """Return the sums of the rows of float64[b, k], one after the other."""
    return np.cumsum(values, axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))
