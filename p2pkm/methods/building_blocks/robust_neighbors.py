"""Robust rules that bound the influence of a neighbor by changing received tables; the update is unchanged.

For each local centroid c and each neighbor, the neighbor's row nearest to c is written as c plus a difference, and the
rule bounds the differences. Rows that are not nearest to any local centroid are omitted. So the rules change nothing if
neighbors agree, and a table counts once per local centroid, for any number of rows close together.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.core.program_function import check_returned, is_function, name_function
from p2pkm.methods.building_blocks.total_variation import received_edges, squared_distances

RULES = ("clip", "trim")
# Smallest number of neighbors at which a rule acts: clip bounds the farther of two, trim keeps one of three.
LEAST = {"clip": 2, "trim": 3}
# The rules assume that at most one of 4 neighbors, rounded up, is Byzantine.
_NEIGHBORS_PER_BYZANTINE = 4


def is_filter(rule: Any) -> bool:
    """Check whether a value of `robust` changes received tables: clip, trim or a function of a program."""
    return rule in RULES or is_function(rule)


def least_neighbors(rule: Any) -> int:
    """Return the smallest number of neighbors at which a rule acts; 0 if it changes no tables."""
    return 1 if is_function(rule) else LEAST.get(rule, 0)


def robust_filter(rule: Any, centroids: Floats, inbox: Inbox, devices: Devices) -> Inbox:
    """Apply a robust rule to the tables received by active devices.

    "clip": differences are shortened to the radius of their centroid, the lower median of their lengths over the g
    neighbors: the (g + 1) / 2-th smallest, rounded down. This is self-centered clipping [1]_ with matched rows. Of two
    neighbors the farther one is clipped to the nearer one.

    "trim": in each coordinate, the b smallest and the b largest differences of the g neighbors are set to 0. b is the
    smaller of g / 4, rounded up, and (g - 1) / 2, rounded down; below g = 3 nothing is trimmed. This is the
    coordinate-wise trimmed mean [2]_, centered at the local row.

    Parameters
    ----------
    rule : {"clip", "trim"} or callable
        A function takes the differences of the g neighbors of one device, float64[g, k, d], and returns those that
        are used, in the same shape. Rows of centroids that the device does not have are 0.
    centroids : float64[n, k, d]
        Local centroids; absent rows are +inf.

    Returns
    -------
    inbox : Inbox
        With a separate table for every edge to an active device.

    References
    ----------
    .. [1] L. He, S. P. Karimireddy, M. Jaggi, "Byzantine-robust decentralized learning via self-centered clipping",
       2022.
    .. [2] D. Yin, Y. Chen, K. Ramchandran, P. Bartlett, "Byzantine-robust distributed learning: towards optimal
       statistical rates", 2018.
    """
    n, k, d = centroids.shape
    edges = received_edges(inbox, devices.active_devices[devices.sources])
    edges = edges[inbox.rows_of(edges) > 0]
    receivers, b = devices.sources[edges], len(edges)
    local, received = centroids[receivers], inbox.tables_of(edges, k, d)
    received[np.arange(received.shape[1]) >= inbox.rows_of(edges)[:, None]] = np.inf
    nearest = squared_distances(local, received).argmin(axis=2)
    real = local[:, :, 0] < np.inf
    differences = np.take_along_axis(received, nearest[:, :, None], axis=1) - np.where(real[:, :, None], local, 0.0)
    if is_function(rule):
        differences[~real] = 0.0
        _bound_differences(differences, receivers, 1, lambda group: _call_rule(rule, group))
    else:
        _bound_differences(differences, receivers, 2, _clip if rule == "clip" else _trim)
    order = np.argsort(~real, axis=1, kind="stable")[:, :, None]
    tables = np.zeros((max(n, b), k, d))
    rows = np.zeros(max(n, b), np.int64)
    tables[:b] = np.take_along_axis(local + differences, order, axis=1)
    rows[:b] = real.sum(axis=1)
    return inbox.with_tables(edges, tables, rows)


def _bound_differences(differences: Floats, receivers: Integers, least: int, rule: Callable[[Floats], None]) -> None:
    """Apply a rule to the differences, float64[b, k, d], of each receiver, int64[b] ascending, in place.

    The rule acts from `least` neighbors on.
    """
    degrees = np.bincount(receivers)
    # Devices with the same number of neighbors are processed together.
    for degree in np.unique(degrees[degrees >= least]):
        edges = np.flatnonzero(degrees[receivers] == degree)
        group = differences[edges].reshape(-1, degree, *differences.shape[1:])
        rule(group)
        differences[edges] = group.reshape(-1, *differences.shape[1:])


def _call_rule(rule: Callable[[Floats], Any], group: Floats) -> None:
    """Call a rule of a program for the differences of each device, float64[q, g, k, d], and replace them."""
    for differences in group:
        differences[...] = check_returned(
            rule(differences.copy()), differences.shape, f"robust={name_function(rule)}",
            "differences of each neighbor to the centroids of the device",
        )  # fmt: skip


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
    most = min(-(-degree // _NEIGHBORS_PER_BYZANTINE), (degree - 1) // 2)
    order = np.argsort(group, axis=1, kind="stable")
    for cut in (order[:, :most], order[:, degree - most :]):
        np.put_along_axis(group, cut, 0.0, axis=1)
