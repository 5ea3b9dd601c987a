"""Rank correlations over graphs and predictions of graphs left out, against SciPy and plain loops."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, permutation_test, rankdata, spearmanr

from p2pkm.analysis import rank_correlations
from p2pkm.analysis.rank_correlations import correlate, find_predictors, list_orders, rank_resampled


def draw(n, m, q, seed=0, levels=7):
    """Draw measures and outcomes with ties."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, levels, (n, m)).astype(float), rng.integers(0, levels, (n, q)).astype(float)


@pytest.mark.parametrize("n", [8, 24])
def test_values_are_those_of_scipy(n):
    x, y = draw(n, 4, 3)
    result = correlate(x, y)
    for i in range(4):
        for j in range(3):
            twin = spearmanr(x[:, i], y[:, j])
            assert result.value[i, j] == pytest.approx(twin.statistic, abs=1e-12)
            assert result.low[i, j] <= result.value[i, j] <= result.high[i, j]
            # SciPy approximates the distribution by Student's t.
            assert n == 8 or result.p[i, j] == pytest.approx(twin.pvalue, abs=0.01)


def test_p_values_of_few_graphs_are_exact():
    x, y = draw(6, 2, 2, seed=1)
    result = correlate(x, y)
    for i in range(2):
        ranks = rankdata(x[:, i])
        for j in range(2):
            centered = rankdata(y[:, j]) - 3.5
            twin = permutation_test(
                (ranks,), lambda sample, axis, centered=centered: np.abs(np.sum(sample * centered, axis=axis)),
                permutation_type="pairings", n_resamples=np.inf, vectorized=True, alternative="greater",
            )  # fmt: skip
            assert result.p[i, j] == pytest.approx(twin.pvalue, abs=1e-12)


def test_the_smallest_p_value_is_that_of_kendall():
    x = np.arange(8.0)[:, None]
    result = correlate(x, -np.exp(x))
    twin = kendalltau(x[:, 0], -np.exp(x[:, 0]), method="exact")
    assert result.value.item() == -1.0 == pytest.approx(twin.statistic)
    assert result.p.item() == pytest.approx(twin.pvalue) == pytest.approx(2 / 40320)
    many = correlate(np.arange(12.0)[:, None], np.arange(12.0)[:, None] ** 3)
    assert many.p.item() == pytest.approx(1e-5) and many.low.item() == many.high.item() == 1.0


def test_orders_are_permutations():
    for n, number in ((5, 120), (9, 99_999)):
        orders = list_orders(n, 0)
        assert orders.shape == (number, n)
        assert (np.sort(orders[:50], axis=1) == np.arange(n)).all()


@given(st.lists(st.integers(0, 3), min_size=2, max_size=9), st.integers(0, 99))
def test_ranks_of_a_sample_are_those_of_its_values(values, seed):
    values = np.array(values, float)
    counts = np.random.default_rng(seed).multinomial(len(values), np.full(len(values), 1 / len(values)), 3)
    result = rank_resampled(values, counts)
    for line, count in zip(result, counts, strict=True):
        twin = rankdata(np.repeat(values, count))
        assert np.repeat(line, count).tolist() == twin.tolist()


def test_intervals_are_those_of_resampled_graphs(monkeypatch):
    monkeypatch.setattr(rank_correlations, "_RESAMPLES", 150)
    x, y = draw(12, 2, 1, seed=3)
    result = correlate(x, y, seed=5)
    counts = np.random.default_rng(5).multinomial(12, np.full(12, 1 / 12), 150)
    for i in range(2):
        samples = (np.repeat(np.arange(12), count) for count in counts)
        twin = [spearmanr(x[sample, i], y[sample, 0]).statistic for sample in samples]
        assert [result.low[i, 0], result.high[i, 0]] == pytest.approx(np.quantile(twin, [0.025, 0.975]), abs=1e-12)


def predict(x, y, columns, train, i):
    """Fit a line to training graphs and predict graph i."""
    design = np.column_stack([np.ones(len(x)), x[:, columns]])
    return design[i] @ np.linalg.lstsq(design[train], y[train])[0]


def left_out_error(x, y, columns, train):
    """Sum the squared errors of leave-one-out within the training graphs."""
    total = 0.0
    for i in train:
        rest = [other for other in train if other != i]
        total += (y[i] - predict(x, y, columns, rest, i)) ** 2
    return total


@pytest.mark.parametrize("size", [1, 2])
def test_predictions_are_of_graphs_left_out(size):
    rng = np.random.default_rng(size)
    x = rng.normal(size=(9, 3))
    y = x[:, 1] + 0.7 * rng.normal(size=9)
    errors, references, chosen = 0.0, 0.0, []
    candidates = [list(columns) for columns in combinations(range(3), size)]
    for i in range(9):
        train = [other for other in range(9) if other != i]
        columns = min(candidates, key=lambda columns, train=train: left_out_error(x, y, columns, train))
        errors += (y[i] - predict(x, y, columns, train, i)) ** 2
        references += (y[i] - y[train].mean()) ** 2
        chosen.append(columns)
    best = min(candidates, key=lambda columns: left_out_error(x, y, columns, list(range(9))))
    (result,) = find_predictors(x, y[:, None], size)
    assert list(result.measures) == best
    assert result.explained == pytest.approx(1 - errors / references, abs=1e-9)
    assert result.repeated == pytest.approx(chosen.count(best) / 9)


def test_a_measure_that_only_one_graph_determines_predicts_nothing():
    rng = np.random.default_rng(0)
    x = np.column_stack([[1.0] + [0.0] * 9, rng.normal(size=10)])
    y = np.append(1e3, rng.normal(size=9))
    (result,) = find_predictors(x, y[:, None], 1)
    assert result.measures == (1,)


def test_many_graphs_are_left_out_in_parts():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(70, 2))
    first, second = find_predictors(x, np.column_stack([3 * x[:, 1] + 1, rng.normal(size=70)]), 1)
    assert first.explained == pytest.approx(1.0) and first.repeated == 1.0 and first.measures == (1,)
    assert second.explained < 0.1
