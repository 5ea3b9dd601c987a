"""Robust aggregation of client rows at a server: means or medians that a few Byzantine clients cannot move far."""

from typing import Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.program_function import check_returned, is_function, name_function

# At most one of 4 clients, rounded up, is assumed to be Byzantine.
_CLIENTS_PER_BYZANTINE = 4
# Tukey's fences: interquartile ranges beyond the quartiles.
_WHISKER = 1.5


def drop_outliers(tables: list[Floats]) -> list[Floats]:
    """Remove the rows outside Tukey's fences from tables of rows and counts, float64[r, d + 1].

    A row is outside if one of its coordinates is more than 1.5 interquartile ranges beyond the quartiles over all rows.
    This also removes true clusters that are farther away.
    """
    rows = np.concatenate(tables)[:, :-1]
    low, high = np.quantile(rows, (0.25, 0.75), axis=0)
    margin = _WHISKER * (high - low)
    lower, upper = low - margin, high + margin
    return [table[((table[:, :-1] >= lower) & (table[:, :-1] <= upper)).all(axis=1)] for table in tables]


def robust_aggregate(tables: list[Floats], reference: Floats, rule: Any) -> Floats:
    """Aggregate the rows of the clients by a robust rule, coordinate by coordinate: one row per reference row.

    Every row of a client is assigned to the nearest reference row. The value of a client there is the mean of its rows,
    weighted by their counts. Of the q values, "trim" computes the mean without the b smallest and the b largest, with b
    the smaller of q / 4, rounded up, and (q - 1) / 2, rounded down; "median" computes the median. All clients have the
    same weight, because counts may be forged. A reference row without assigned rows is unchanged.

    Parameters
    ----------
    tables : list of float64[r, d + 1]
        (row, count) of every client.
    reference : float64[k, d]
    rule : {"trim", "median"} or callable
        A function takes the values of the q clients, float64[q, d], and returns float64[d].
    """
    k, d = reference.shape
    sums, counts = np.zeros((len(tables), k, d)), np.zeros((len(tables), k))
    for client, table in enumerate(tables):
        rows, weights = table[:, :-1], table[:, -1]
        nearest = ((rows[:, None] - reference[None]) ** 2).sum(axis=2).argmin(axis=1)
        np.add.at(sums[client], nearest, rows * weights[:, None])
        np.add.at(counts[client], nearest, weights)
    result = reference.copy()
    for c in range(k):
        contributes = counts[:, c] > 0.0
        if contributes.any():
            result[c] = _aggregate(sums[contributes, c] / counts[contributes, c, None], rule)
    return result


def _aggregate(values: Floats, rule: Any) -> Any:
    """Apply the rule to the values of the clients, float64[q, d]."""
    if is_function(rule):
        returned, shape = rule(values), values.shape[1:]
        return check_returned(returned, shape, f"robust={name_function(rule)}", "one value per feature")
    ascending = np.sort(values, axis=0)
    return _trimmed_mean(ascending) if rule == "trim" else _median(ascending)


def _trimmed_mean(ascending: Floats) -> Any:
    """Compute the mean without the smallest and largest values of each column."""
    q = len(ascending)
    most = min(-(-q // _CLIENTS_PER_BYZANTINE), (q - 1) // 2)
    return np.cumsum(ascending[most : q - most], axis=0)[-1] / (q - 2 * most)


def _median(ascending: Floats) -> Any:
    """Compute the median of each column."""
    q = len(ascending)
    return (ascending[(q - 1) // 2] + ascending[q // 2]) / 2.0
