"""Scores of labels against the truth, from contingency tables int64[..., classes, clusters] alone."""

import numpy as np

from p2pkm.devices import Floats, Integers


def ari(tables: Integers) -> Floats:
    """Return the adjusted Rand index (Hubert and Arabie 1985), float64[...]; 1 where there is nothing to separate."""
    cells = _pairs(tables).sum((-2, -1))
    rows, columns = _pairs(tables.sum(-1)).sum(-1), _pairs(tables.sum(-2)).sum(-1)
    expected = rows * columns / np.maximum(_pairs(tables.sum((-2, -1))), 1.0)
    most = (rows + columns) / 2
    return np.where(most == expected, 1.0, (cells - expected) / np.where(most == expected, 1.0, most - expected))


def nmi(tables: Integers) -> Floats:
    """Return the mutual information over the arithmetic mean of the entropies, float64[...]."""
    total = np.maximum(tables.sum((-2, -1)), 1)
    rows, columns = _entropy(tables.sum(-1), total), _entropy(tables.sum(-2), total)
    joint = _entropy(tables.reshape(*tables.shape[:-2], -1), total)
    information = np.maximum(rows + columns - joint, 0.0)
    return np.where(
        (rows == 0) & (columns == 0), 1.0, 2 * information / np.where(rows + columns == 0, 1, rows + columns)
    )


def purity(tables: Integers) -> Floats:
    """Return the sum of every cluster's majority over the number of points, float64[...]."""
    return tables.max(axis=-2, initial=0).sum(-1) / np.maximum(tables.sum((-2, -1)), 1)


def _pairs(counts: Integers) -> Floats:
    """Return the number of pairs among so many points."""
    return counts * (counts - 1.0) / 2.0


def _entropy(counts: Integers, total: Integers) -> Floats:
    """Return the entropy of the last axis in nats."""
    shares = counts / total[..., None]
    return -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(-1)
