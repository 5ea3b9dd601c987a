"""Variation between the centroids of neighbors, and saturating penalties of links.

Both ends of a link compute the same bits: each adds the same two partial sums, and each partial sum is over the rows of
one end, in the order of that end.
"""

import math
from collections.abc import Iterator

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Inbox

# Distances that are computed at the same time: 16 MB.
_BLOCK = 1 << 21


def variation(devices: Devices, tables: Floats, inbox: Inbox, edges: Integers) -> Floats:
    """Compute the variation (4) of Jung 2025 between local and last received tables, float64[b].

    Parameters
    ----------
    tables : float64[n, k, d]
        Local centroids; absent rows are +inf.
    edges : int64[b]
        Edges over which a table was received.
    """
    values = [np.zeros(0)]
    for from_local, from_neighbor in _nearest_distances(devices, tables, inbox, edges):
        values.append(_add(from_local) + _add(from_neighbor))
    return np.concatenate(values)


def lower_quartile(devices: Devices, values: Floats, edges: Integers) -> Floats:
    """Compute the lower quartile of the edge values of each device, with linear interpolation, float64[n].

    Parameters
    ----------
    values : float64[b]
    edges : int64[b]
        Edges with these values; the quartile of a device without any is NaN.
    """
    owner = devices.sources[edges]
    ascending = values[np.lexsort((values, owner))]
    counts = np.bincount(owner, minlength=len(devices))
    with_values = np.flatnonzero(counts)
    position = 0.25 * (counts[with_values] - 1)
    low = position.astype(np.int64)
    share = position - low
    low += (np.cumsum(counts) - counts)[with_values]
    high = low + (share > 0.0)
    result = np.full(len(devices), np.nan)
    result[with_values] = ascending[low] + share * (ascending[high] - ascending[low])
    return result


def received_edges(inbox: Inbox, candidates: Mask) -> Integers:
    """Find the edges of a mask, bool[e], over which a table was ever received."""
    return np.flatnonzero(candidates & inbox.received)


def saturation_weight(limit: Floats, gtv: Floats) -> Floats:
    """Compute phi'(d) of links with variation d: 1 up to the limit d0, d0 / d above."""
    is_saturated = gtv > limit
    return np.where(is_saturated, limit, 1.0) / np.where(is_saturated, gtv, 1.0)


def saturate_alpha(
    limit: Floats | None, weight: Floats | None, centroids: Floats, inbox: Inbox, devices: Devices
) -> Floats | None:
    """Update the factor ``min(1, d0 / d)`` of each link's strength at the active devices.

    Parameters
    ----------
    limit : float64[e] or None
        Variation d0 above which a link saturates; +inf: never.
    weight : float64[e] or None
        Previous factors. None: no link saturates.
    centroids : float64[n, k, d]
        Local centroids.
    """
    if limit is None or weight is None:
        return weight
    factors = weight.copy()
    edges = received_edges(inbox, (limit < np.inf) & devices.active_devices[devices.sources])
    factors[edges] = saturation_weight(limit[edges], variation(devices, centroids, inbox, edges))
    return factors


def saturated_penalty(limit: Floats, gtv: Floats) -> Floats:
    """Compute phi(d) of links with variation d: d up to the limit d0, d0 (1 + log(d / d0)) above."""
    result = np.minimum(gtv, limit)
    # math.log: the last bit of np.log depends on the position in the array.
    for e in np.flatnonzero((gtv > limit) & (limit > 0.0)):
        result[e] *= 1.0 + math.log(gtv[e] / limit[e])
    return result


def squared_distances(a: Floats, b: Floats) -> Floats:
    """Compute the squared distances between rows, float64[..., p, q], of float64[..., p, d] and float64[..., q, d].

    The distance to an absent row (+inf) is +inf. Features are added in order.
    """
    result = np.zeros((*a.shape[:-1], b.shape[-2]))
    with np.errstate(invalid="ignore"):
        for f in range(a.shape[-1]):
            difference = a[..., :, None, f] - b[..., None, :, f]
            result += difference * difference
    result[np.isnan(result)] = np.inf
    return result


def _nearest_distances(
    devices: Devices, tables: Floats, inbox: Inbox, edges: Integers
) -> Iterator[tuple[Floats, Floats]]:
    """Yield, for blocks of edges, the squared distance of each row to the nearest row of the other end, both ways.

    The distance of an absent row is 0.
    """
    k, d = tables.shape[1:]
    source, rows = devices.sources[edges], inbox.rows_of(edges)
    step = max(1, _BLOCK // (k * k))
    for first in range(0, len(edges), step):
        block = slice(first, first + step)
        local, received = tables[source[block]], inbox.tables_of(edges[block], k, d)
        received[np.arange(received.shape[1]) >= rows[block, None]] = np.inf
        distances = squared_distances(local, received)
        from_local = distances.min(axis=2, initial=np.inf)
        from_neighbor = distances.min(axis=1, initial=np.inf)
        yield _zero_where_infinite(from_local), _zero_where_infinite(from_neighbor)


def _zero_where_infinite(values: Floats) -> Floats:
    """Replace +inf by 0."""
    return np.where(values < np.inf, values, 0.0)


def _add(values: Floats) -> Floats:
    """Add the values of each row of float64[b, k], in order."""
    return np.cumsum(values, axis=1)[:, -1] if values.shape[1] else np.zeros(len(values))
