"""Which points and devices stand for all where there are too many, and that it is said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import p2pkm
from p2pkm.metrics import cost_ratio
from p2pkm.metrics.cost_ratio import CostEvaluator, draw_stratified, gather_points
from tests.support.play_rounds import arrange

LINE = [(i, i + 1) for i in range(19)]


def price(central=None, points=3):
    """Return an evaluator of 20 devices with some points each."""
    table = arrange([np.full((points, 2), float(i)) for i in range(20)], LINE)
    return CostEvaluator(table.devices, np.zeros(20 * points), 0, table.network, central)


def test_nothing_is_noted_where_all_devices_and_points_are_looked_at(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_PRICED", 60)
    prices = price(np.zeros((1, 2)))
    assert prices.notes == [] and len(prices.alone) == 20
    prices.evaluate(np.zeros((20, 1, 2)), closing=True, final=True)
    assert prices.notes == []
    monkeypatch.setattr(cost_ratio, "_PRICED", 59)
    monkeypatch.setattr(cost_ratio, "_RUN", 1)
    assert price().notes == ["cost and scores of all points are over a sample of 59 of 60 points"]


@pytest.mark.parametrize(("most", "count"), [(20 * (60 * 6 + 64 * 20), 20), (19 * (60 * 6 + 64 * 20), 19), (0, 16)])
def test_as_many_devices_are_priced_as_the_work_allows_but_16_at_least(most, count):
    found = price()._choose(6, most)
    assert len(found) == count and (np.diff(found) > 0).all() and 0 <= found[0] <= found[-1] < 20


def test_of_a_sample_each_is_compared_with_what_it_would_reach_alone(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_IN_THE_END", 0)
    prices = price(np.zeros((1, 2)))
    assert len(prices._alone) == 16
    costs = ((np.arange(20.0) - np.arange(20.0)[:, None]) ** 2).sum(axis=1)  # the points of device i are at i
    np.testing.assert_allclose(prices.alone, (costs / costs[0])[prices._alone])


@pytest.mark.parametrize(("most", "looked"), [(20 * 60 * 3 * 2, True), (20 * 60 * 3 * 2 - 1, False)])
def test_costs_are_looked_at_in_every_round_while_that_is_little_work(monkeypatch, most, looked):
    monkeypatch.setattr(cost_ratio, "_EVERY_ROUND", most)
    prices = price(np.zeros((3, 2)))
    assert (prices.evaluate(np.zeros((20, 3, 2)), closing=False, final=False) is not None) == looked
    assert prices.evaluate(np.zeros((20, 3, 2)), closing=True, final=True) is not None


def test_only_models_of_the_sample_are_gathered(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_UNCOMPARED", 0)
    prices, sizes = price(), []

    class Network(type(prices._network)):
        def allgather_by_device(self, values, counts=None):
            sizes.append((len(values), counts.sum(), len(counts)))
            return values

    prices._network = Network(prices._network.placement)
    result = prices.evaluate(np.arange(20.0)[:, None, None] * np.ones((20, 1, 2)), closing=True, final=True)
    assert sizes == [(16, 16, 20)]
    costs = 3 * 2 * ((np.arange(20.0) - np.arange(20.0)[:, None]) ** 2).sum(axis=1)
    assert len(result.devices) == 16
    np.testing.assert_allclose(result.costs, costs[result.devices])


@pytest.mark.parametrize("compared", [True, False])
def test_without_a_baseline_fewer_devices_are_priced(compared):
    prices, asked = price(np.zeros((1, 2)) if compared else None), []
    prices._choose = lambda numbers, most: asked.append((numbers, most)) or prices._scored
    prices.evaluate(np.zeros((20, 3, 2)), closing=True, final=True)
    assert asked == [(6, cost_ratio._IN_THE_END if compared else cost_ratio._UNCOMPARED)]


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0 - 2.0**-53, None])
@pytest.mark.parametrize(("n", "most"), [(10, 4), (7, 7), (5001, 5000), (1500, 1000), (1_000_003, 1_000), (3, 1)])
def test_a_sample_has_one_number_of_each_part_and_none_twice(monkeypatch, draw, n, most):
    if draw is not None:
        monkeypatch.setattr(cost_ratio, "uniforms", lambda key, purpose, steps, count: np.full((1, count), draw))
    found, parts = draw_stratified(n, most, 7, 0), np.arange(most)
    assert len(found) == most and (np.diff(found) > 0).all() and 0 <= found[0] <= found[-1] < n
    assert (parts * n // most <= found).all() and (found <= -(-(parts + 1) * n // most)).all()


def test_a_sample_of_points_is_of_all_devices(monkeypatch):
    shards = p2pkm.Shards.from_list([np.arange(16.0).reshape(8, 2), np.arange(16.0, 24.0).reshape(4, 2)])
    network = arrange([np.zeros((1, 1))] * 2, [(0, 1)]).network
    monkeypatch.setattr(cost_ratio, "_POOLED", 24)
    pooled, note = gather_points(shards, 7, network)
    assert len(pooled.points) == 12 and note is None
    monkeypatch.setattr(cost_ratio, "_POOLED", 8)
    pooled, note = gather_points(shards, 7, network)
    assert (pooled.points[:, 0] // 6).tolist() == [0, 1, 2, 3]  # one of three points that follow each other
    assert note == "central k-means ran on a sample of 4 of 12 points"


def test_the_memory_of_evaluated_costs_is_bounded(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_REMEMBERED", 100)
    prices = price(np.zeros((1, 2)))
    for step in range(30):
        prices.evaluate(np.full((20, 1, 2), float(step)), closing=False, final=False)
        assert len(prices._cached_costs) * 8 <= 100 + 8


def test_costs_of_many_points_use_a_sample_of_runs_of_points(monkeypatch):
    monkeypatch.setattr(cost_ratio, "_PRICED", 6)
    monkeypatch.setattr(cost_ratio, "_RUN", 2)
    table = arrange([np.arange(7.0)[:, None], 7.0 + np.arange(5.0)[:, None]], [(0, 1)])
    prices = CostEvaluator(table.devices, np.arange(12), 12, table.network, None)
    points, _, offsets, classes = prices._sample
    assert len(points) == 6 and points[:, 0].tolist() == classes.tolist() and offsets[-1] == 6
    assert (points[0::2] + 1.0 == points[1::2]).all() and (points[0::2] % 2.0 == 0.0).all()
    assert (points[: offsets[1]] < 7.0).all() and (points[offsets[1] :] >= 7.0).all()


def test_contingency_tables_are_of_the_last_record_only():
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    prices = CostEvaluator(table.devices, np.arange(5) % 2, 2, table.network, np.zeros((1, 1)))
    tables = [prices.evaluate(np.zeros((2, 1, 1)), closing=True, final=final).tables for final in (False, True)]
    assert tables[0].size == 0 and tables[1].tolist() == [[[3], [2]]] * 2


def test_without_a_baseline_costs_are_evaluated_at_the_end_only():
    table = arrange([np.ones((3, 1)), np.zeros((2, 1))], [(0, 1)])
    prices = CostEvaluator(table.devices, np.zeros(5), 0, table.network, None)
    assert prices.evaluate(np.zeros((2, 1, 1)), closing=False, final=False) is None
    assert prices.evaluate(np.zeros((2, 1, 1)), closing=True, final=False) is None
    assert prices.evaluate(np.zeros((2, 1, 1)), closing=True, final=True).costs.tolist() == [3.0, 3.0]


@given(st.integers(0, 9), st.integers(1, 3), st.integers(1, 4))
def test_rows_are_added_one_after_the_other_whatever_the_block(count, width, block):
    values = np.random.default_rng(count).normal(size=(count, width)) * 10.0 ** np.arange(width)
    expected = np.zeros(width)
    for row in values:
        expected = expected + row
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost_ratio, "_ROWS", block)
        assert_array_equal(cost_ratio._add_rows(values), expected)
