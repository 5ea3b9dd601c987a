"""Rank correlations between measures of graphs and outcomes of runs, and predictions of outcomes on other graphs.

A graph is one observation. Orders of the graphs are permuted for p-values, graphs are drawn with replacement for
intervals, and predictions are scored on graphs that were not used to choose or fit them.
"""

from functools import lru_cache
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from topologies.single_thread import single_thread

# Number of graphs up to which all orders are tried: 40,320 of 8 graphs.
_ALL_ORDERS = 8
# Random orders of more graphs. The smallest p-value is 1e-5, enough for Holm's correction over 5,000 tests.
_ORDERS = 99_999
# Most entries of all random orders together: fewer orders of more than 200 graphs.
_ENTRIES = 20_000_000
# Bootstrap samples of the graphs.
_RESAMPLES = 2_000
# Coverage of the intervals.
_COVERAGE = 0.95
# Most parts of a cross-validation; up to this number, each graph is a part.
_PARTS = 30
# Distance of a leverage from 1 below which a graph alone determines a coefficient, so that it cannot be predicted.
_DETERMINED = 1e-9


class Correlations(NamedTuple):
    """Rank correlations of m measures with q outcomes.

    Attributes
    ----------
    value : float64[m, q]
        Spearman's rank correlation over the graphs.
    low, high : float64[m, q]
        95 % percentile interval of a bootstrap over the graphs.
    p : float64[m, q]
        Two-sided p-value of the permutation test, uncorrected.
    """

    value: Floats
    low: Floats
    high: Floats
    p: Floats


class Predictor(NamedTuple):
    """Best linear predictor of an outcome from one or two measures.

    Attributes
    ----------
    measures : tuple of int
        Columns of the measures with the smallest error of cross-validation over all graphs.
    explained : float
        Share of the variance that is explained on graphs left out, where the measures are chosen on the other graphs;
        0 is the mean of the other graphs, negative values are worse than this mean.
    repeated : float
        Share of the parts without which the same measures are chosen.
    """

    measures: tuple[int, ...]
    explained: float
    repeated: float


@single_thread()
def correlate(x: Floats, y: Floats, seed: int = 0) -> Correlations:
    """Compute rank correlations between measures and outcomes.

    Parameters
    ----------
    x : float64[n, m]
        Measures of n graphs, none of them constant.
    y : float64[n, q]
        Outcomes on these graphs, none of them constant.
    seed : int, default=0
        Seed of the orders and of the bootstrap.
    """
    first, second = (_center(rank(part)) for part in (x, y))
    scale = np.sqrt(np.outer((first**2).sum(axis=0), (second**2).sum(axis=0)))
    products = first.T @ second
    low, high = _bootstrap(x, y, seed)
    return Correlations(products / scale, low, high, _permute(first, second, products, seed))


def rank(values: Floats) -> Floats:
    """Compute average ranks from 1 on along the first axis."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=0), np.float64)


def _center(ranks: Floats) -> Floats:
    """Return twice the distance of ranks from their mean: whole numbers, so that sums and comparisons are exact."""
    return 2.0 * ranks - (len(ranks) + 1)


def _permute(first: Floats, second: Floats, products: Floats, seed: int) -> Floats:
    """Compute p-values: the share of orders whose correlation is at least as large, the present order included."""
    orders = list_orders(len(first), seed)
    limits = np.abs(products)
    # Of all orders, one is the present one; random orders are counted in addition to it.
    extreme = np.zeros(products.shape) + (len(first) > _ALL_ORDERS)
    for number in range(second.shape[1]):
        permuted = second[:, number][orders] @ first
        extreme[:, number] += np.count_nonzero(np.abs(permuted) >= limits[:, number], axis=0)
    return extreme / (len(orders) + (len(first) > _ALL_ORDERS))


@lru_cache(maxsize=2)
def list_orders(n: int, seed: int) -> Integers:
    """List orders of n graphs, uint16[orders, n]: all of them for up to 8 graphs, else 99,999 random ones."""
    if n <= _ALL_ORDERS:
        return np.array(list(permutations(range(n))), np.uint16)
    count = min(_ORDERS, _ENTRIES // n)
    return np.random.default_rng(seed).permuted(np.tile(np.arange(n, dtype=np.uint16), (count, 1)), axis=1)


def _bootstrap(x: Floats, y: Floats, seed: int) -> tuple[Floats, Floats]:
    """Compute percentile intervals of the rank correlations over samples of graphs with replacement."""
    n = len(x)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), _RESAMPLES)
    first, second = (
        np.stack([rank_resampled(column, counts) - (n + 1) / 2.0 for column in part.T], axis=1) for part in (x, y)
    )
    weighted = first * counts[:, None, :]
    products = weighted @ second.transpose(0, 2, 1)
    squares = (weighted * first).sum(axis=2)[:, :, None] * (second**2 * counts[:, None, :]).sum(axis=2)[:, None, :]
    # In a sample of few graphs, all values may be equal; such a sample has no correlation.
    with np.errstate(invalid="ignore"):
        values = products / np.sqrt(np.where(squares > 0.0, squares, np.nan))
    tail = (1.0 - _COVERAGE) / 2.0
    low, high = np.nanquantile(values, (tail, 1.0 - tail), axis=0)
    return low, high


def rank_resampled(values: Floats, counts: Integers) -> Floats:
    """Compute average ranks within samples that contain value i counts[b, i] times, float64[samples, n]."""
    unique, group = np.unique(values, return_inverse=True)
    sizes = np.zeros((len(counts), len(unique)))
    for number, column in enumerate(group):
        sizes[:, column] += counts[:, number]
    last = np.cumsum(sizes, axis=1)
    return ((2.0 * last - sizes + 1.0) / 2.0)[:, group]


@single_thread()
def find_predictors(x: Floats, y: Floats, size: int) -> list[Predictor]:
    """Find the measures, `size` of them, that predict each outcome best on graphs left out.

    The model is linear with least squares. A part of the graphs is left out at a time: measures are chosen by
    cross-validation on the other graphs and fitted to them, and predict the part.

    Parameters
    ----------
    x : float64[n, m]
        Measures of n graphs, in the order of preference where errors are equal; none of them constant.
    y : float64[n, q]
        Outcomes on these graphs, none of them constant.
    size : int
        Number of measures of a predictor, at most m.

    Returns
    -------
    list of Predictor
        One for each outcome.
    """
    n = len(x)
    candidates = list(combinations(range(x.shape[1]), size))
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    designs = np.stack([np.column_stack([np.ones(n), scaled[:, list(columns)]]) for columns in candidates])
    best = _choose(designs, y)
    parts = np.arange(n) % min(n, _PARTS)
    errors, mean_errors = np.empty_like(y), np.empty_like(y)
    repeated = np.zeros(y.shape[1])
    for part in range(parts.max() + 1):
        left_out = parts == part
        chosen = _choose(designs[:, ~left_out], y[~left_out])
        repeated += chosen == best
        for number, candidate in enumerate(chosen):
            design = designs[candidate]
            solution = np.linalg.pinv(design[~left_out]) @ y[~left_out, number]
            errors[left_out, number] = y[left_out, number] - design[left_out] @ solution
        mean_errors[left_out] = y[left_out] - y[~left_out].mean(axis=0)
    explained = 1.0 - (errors**2).sum(axis=0) / (mean_errors**2).sum(axis=0)
    repeated /= parts.max() + 1
    return [
        Predictor(candidates[candidate], float(share), float(same))
        for candidate, share, same in zip(best, explained, repeated, strict=True)
    ]


def _choose(designs: Floats, y: Floats) -> Integers:
    """Choose the design, float64[candidates, n, p], with the smallest error of leave-one-out for each outcome."""
    hats = designs @ np.linalg.pinv(designs)
    free = 1.0 - np.diagonal(hats, axis1=1, axis2=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = (y[None] - hats @ y) / free[:, :, None]
    squares = np.where(free[:, :, None] > _DETERMINED, errors**2, np.inf).sum(axis=1)
    # Rounding must not decide between candidates that are equal, such as two measures in proportion.
    nearly = squares <= squares.min(axis=0) * (1.0 + 1e-9)
    return np.asarray(nearly.argmax(axis=0))
