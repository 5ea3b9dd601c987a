"""Rows and centroids in few bits: what is read, how long it is, and that the start hardly gets worse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.messages import Tables
from p2pkm.methods.init.lean import count_centroid_bytes, count_row_bytes, pack_centroids, pack_rows
from tests.methods.init.test_tree_summaries import GRAPHS, mix, seeds


def draw(seed, rows, most=300):
    """Return tables of rows (origin, mean, weight, SSE) and the box of all of them."""
    rng, total = np.random.default_rng(seed), int(sum(rows))
    flat = np.column_stack((
        np.zeros(total), rng.normal(50, 9, (total, 2)), rng.integers(1, most, total), rng.uniform(0, 40, total),
    ))  # fmt: skip
    counts = np.array(rows)
    box = np.concatenate((flat[:, 1:3].min(axis=0), -flat[:, 1:3].max(axis=0)))
    return Tables(flat, np.cumsum(counts) - counts, counts), np.tile(box, (len(rows), 1))


@given(st.integers(0, 10**6), st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(sum))
def test_what_is_read_is_near_and_stays_as_it_is(seed, rows):
    tables, boxes = draw(seed, rows)
    packed = pack_rows(tables, boxes)
    before, after = tables.flat(), packed.flat()
    span = -boxes[0, 2:] - boxes[0, :2]
    assert (np.abs(after[:, 1:3] - before[:, 1:3]) <= span / 1023 / 2 * (1 + 1e-9) + 1e-12).all()
    assert_array_equal(after[:, 3], before[:, 3])
    assert_allclose(after[:, 4], before[:, 4], rtol=2.0**-11, atol=(span**2).sum() * 2.0**-25)
    assert_array_equal(pack_rows(packed, boxes).flat(), after)
    assert_array_equal(packed.rows, tables.rows)


def test_lengths_by_hand():
    tables = Tables(np.array([[0, 1, 2, 255, 0.5], [0, 1, 2, 256, 0.5], [0, 1, 2, 7, 1], [0, 1, 2, 0.5, 1.0]], float),
                    np.array([0, 0, 2, 3, 0]), np.array([1, 2, 1, 1, 0]))  # fmt: skip
    bits = [2 + 36 + 8, 2 + 2 * (36 + 16), 2 + 36 + 8, 2 + 36 + 32, 2]
    assert_array_equal(count_row_bytes(tables, 2), [-(-one // 8) for one in bits])
    assert_array_equal(count_centroid_bytes(np.array([3, 0]), 2), [9, 0])


def test_centroids_are_near_and_absent_ones_stay_absent():
    box = np.array([0.0, 0.0, -8.0, -4.0])
    found = pack_centroids(np.array([[1.3, 2.7], [np.inf, np.inf]]), box)
    assert (np.abs(found[0] - [1.3, 2.7]) <= np.array([8, 4]) / 4095 / 2).all()
    assert np.isposinf(found[1]).all()


@pytest.mark.parametrize("name", GRAPHS)
def test_all_devices_of_a_component_read_the_same(name):
    result = seeds("rows:lean=true", GRAPHS[name])
    for number in range(result.topology.components.max() + 1):
        own = result.centroids[result.topology.components == number]
        assert np.isfinite(own).all() and len(np.unique(own, axis=0)) == 1


def test_it_takes_a_fraction_of_the_bytes_at_nearly_the_same_cost():
    shards, graph = mix(10, 8, 2, points=60), topologies.ring(10)
    plain, lean = (
        p2pkm.simulate(p2pkm.GTVMin(8, init=init), graph, shards, rounds=0, seed=1)
        for init in ("rows", "rows:lean=true")
    )
    spent = [[r for r in one.rounds if r["stage"] == "rows"][-1] for one in (plain, lean)]
    assert spent[0]["wire_bytes"] == spent[0]["bytes"]
    assert spent[1]["wire_bytes"] < spent[0]["bytes"] / 4
    assert lean.summary["ratio_mean"] < 1.01 * plain.summary["ratio_mean"]
