"""Sums over the tables that every device received."""

from typing import Any

import numpy as np


def add_differences(start: Any, local: Any, tables: Any, indptr: Any, slots: Any, weights: Any) -> Any:
    """Add weight x (received - local) of every received table to the table of its receiver, in the order of the links.

    Numbers that are not finite at one of both ends are ignored.

    Parameters
    ----------
    start : float64[n, r, w]
        Tables to which the differences are added.
    local : float64[n, r, w]
        Tables of the devices.
    tables, slots : float64[s, >= r, >= w], int64[e]
        Last tables, and the slot of the table received over each link; -1: the link is ignored.
    indptr : int64[n + 1]
        Links ``indptr[i]:indptr[i + 1]`` belong to device i, neighbors in ascending id.
    weights : float64[e]

    Returns
    -------
    sums : float64[n, r, w]
    counts : int64[n, r]
        Number of received tables whose row is finite, like that of the device, in its first column.
    """
    sums = start.copy()
    n, r, w = sums.shape
    counts = np.zeros((n, r), np.int64)
    links = np.flatnonzero(slots >= 0)
    first = np.searchsorted(links, indptr)
    degrees = np.diff(first)
    order = np.argsort(-degrees, kind="stable")
    # The first link of every device, then the second one, and so on.
    for number in range(degrees.max(initial=0)):
        owner = order[: np.searchsorted(-degrees[order], -number)]
        link = links[first[owner] + number]
        # inf - inf of absent rows is NaN.
        with np.errstate(invalid="ignore"):
            differences = tables[slots[link], :r, :w] - local[owner]
            is_shared = np.isfinite(differences)
            sums[owner] += np.where(is_shared, weights[link, None, None] * differences, 0.0)
        counts[owner] += is_shared[:, :, 0]
    return sums, counts
