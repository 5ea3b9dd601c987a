"""Rules that bound what a neighbor can do, as a change of what was received: the update itself stays what it is.

Both see a neighbor's table from the own centroids: every own centroid c receives, of each neighbor, the row nearest to
it, as c plus a difference, and the rule bounds the differences. Rows that are nobody's nearest are not received. So
where neighbors agree nothing changes, and a table counts once for every own centroid, however many rows it puts
together.
"""

from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.total_variation import received_edges, squared

RULES = ("clip", "trim")
# Neighbors that a device needs so that a rule acts: clip bounds the farther of two, trim keeps one of three.
LEAST = {"clip": 2, "trim": 3}
_SHARE = 4  # one of so many neighbors may be Byzantine


def robust_filter(rule: str, centroids: Floats, inbox: Inbox, devices: Devices) -> Inbox:
    """Return what the active devices are to take as received.

    clip: a difference that is longer than the radius of its centroid is shortened to it; the radius is the lower median
    of the lengths over the g neighbors, the (g + 1) / 2-th smallest, rounded down. That is the self-centered clipping
    of He, Karimireddy and Jaggi (2022), with matched rows. Of two neighbors the farther one is clipped to the nearer.

    trim: in each coordinate the b smallest and the b largest of the g neighbors' differences count as 0, b the smaller
    of g / 4 rounded up and (g - 1) / 2 rounded down: nothing is trimmed where g is below 3. That is the trimmed mean by
    coordinates of Yin, Chen, Ramchandran and Bartlett (2018), around the own row.

    Parameters
    ----------
    rule : {"clip", "trim"}
    centroids : float64[n, k, d]
        The own ones; absent rows are +inf.

    Returns
    -------
    Inbox
        With a table of its own for every edge that an awake device receives.
    """
    n, k, d = centroids.shape
    edges = received_edges(inbox, devices.active_devices[devices.sources])
    edges = edges[inbox.rows_of(edges) > 0]
    own, b = devices.sources[edges], len(edges)
    mine, theirs = centroids[own], inbox.tables_of(edges, k, d)
    theirs[np.arange(theirs.shape[1]) >= inbox.rows_of(edges)[:, None]] = np.inf
    nearest = squared(mine, theirs).argmin(axis=2)
    real = mine[:, :, 0] < np.inf
    apart = np.take_along_axis(theirs, nearest[:, :, None], axis=1) - np.where(real[:, :, None], mine, 0.0)
    _bound(apart, own, _clip if rule == "clip" else _trim)
    order = np.argsort(~real, axis=1, kind="stable")[:, :, None]
    tables, rows = np.zeros((max(n, b), k, d)), np.zeros(max(n, b), np.int64)
    tables[:b], rows[:b] = np.take_along_axis(mine + apart, order, axis=1), real.sum(axis=1)
    return inbox.with_tables(edges, tables, rows)


def _bound(apart: Floats, own: Integers, rule: Any) -> None:
    """Let a rule bound the differences float64[b, k, d] of each device int64[b], ascending, in place."""
    degrees = np.bincount(own)
    for degree in np.unique(degrees[degrees > 1]):
        edges = np.flatnonzero(degrees[own] == degree)
        group = apart[edges].reshape(-1, degree, *apart.shape[1:])
        rule(group)
        apart[edges] = group.reshape(-1, *apart.shape[1:])


def _clip(group: Floats) -> None:
    """Clip the differences float64[q, g, k, d] in place."""
    degree = group.shape[1]
    lengths = np.zeros(group.shape[:3])
    for f in range(group.shape[3]):
        lengths += group[:, :, :, f] * group[:, :, :, f]
    radius = np.sort(lengths, axis=1)[:, (degree - 1) // 2, None]
    far = lengths > radius
    share = np.sqrt(np.where(far, radius, 1.0) / np.where(far, lengths, 1.0))
    group *= share[:, :, :, None]


def _trim(group: Floats) -> None:
    """Trim the differences float64[q, g, k, d] in place."""
    degree = group.shape[1]
    most = min(-(-degree // _SHARE), (degree - 1) // 2)
    order = np.argsort(group, axis=1, kind="stable")
    for cut in (order[:, :most], order[:, degree - most :]):
        np.put_along_axis(group, cut, 0.0, axis=1)
