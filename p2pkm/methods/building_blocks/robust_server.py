"""What a server makes of its clients' rows if some may be Byzantine: a mean or a median that few cannot move far."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Floats

_SHARE = 4  # one of so many clients may be Byzantine
_WHISKER = 1.5  # interquartile ranges beyond the quartiles: Tukey's fences


def drop_outliers(tables: list[Floats]) -> list[Floats]:
    """Return tables float64[r, d + 1] of rows and counts without the rows outside Tukey's fences.

    A row is outside if a coordinate of it is more than 1.5 interquartile ranges beyond the quartiles over all rows. So
    a true cluster that is farther away than that is lost, too.
    """
    rows = np.concatenate(tables)[:, :-1]
    low, high = np.quantile(rows, (0.25, 0.75), axis=0)
    reach = _WHISKER * (high - low)
    ends = low - reach, high + reach
    return [one[((one[:, :-1] >= ends[0]) & (one[:, :-1] <= ends[1])).all(axis=1)] for one in tables]


def robust_aggregate(tables: list[Floats], reference: Floats, rule: str) -> Floats:
    """Return one row per reference row that the clients agree on, coordinate by coordinate.

    Every row of a client goes to the nearest reference row; what a client has there is its mean, weighted by counts.
    Each coordinate is then the mean of the clients' without the b smallest and the b largest of the q values, b the
    smaller of q / 4 rounded up and (q - 1) / 2 rounded down (trim), or their median. Clients weigh alike, for a count
    may be Byzantine, too. A reference row to which no row comes stays.

    Parameters
    ----------
    tables : list of float64[r, d + 1]
        (row, count) of every client.
    reference : float64[k, d]
    rule : {"trim", "median"}
    """
    k, d = reference.shape
    sums, counts = np.zeros((len(tables), k, d)), np.zeros((len(tables), k))
    for client, table in enumerate(tables):
        rows, weights = table[:, :-1], table[:, -1]
        nearest = ((rows[:, None] - reference[None]) ** 2).sum(axis=2).argmin(axis=1)
        np.add.at(sums[client], nearest, rows * weights[:, None])
        np.add.at(counts[client], nearest, weights)
    result, settle = reference.copy(), _trim if rule == "trim" else _take_median
    for c in range(k):
        there = counts[:, c] > 0.0
        if there.any():
            result[c] = settle(np.sort(sums[there, c] / counts[there, c, None], axis=0))
    return result


def _trim(ascending: Floats) -> Any:
    q = len(ascending)
    most = min(-(-q // _SHARE), (q - 1) // 2)
    return np.cumsum(ascending[most : q - most], axis=0)[-1] / (q - 2 * most)


def _take_median(ascending: Floats) -> Any:
    q = len(ascending)
    return (ascending[(q - 1) // 2] + ascending[q // 2]) / 2.0
