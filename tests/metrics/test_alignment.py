"""Deviation from central k-means and consensus variation, by hand and against trying all matchings."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import p2pkm
import topologies
from p2pkm.metrics import alignment
from p2pkm.metrics.alignment import aligned_distance, aligned_distances, distance_to_central, distance_to_neighbors
from tests.support.averages import column
from tests.support.build import build_result


@given(st.integers(0, 2**32 - 1))
def test_the_distance_is_the_least_of_all_matchings(seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(int(rng.integers(1, 6)), 2)) for _ in range(2))
    short, long = sorted((a, b), key=len)
    best = min(sum(((short[c] - long[q]) ** 2).sum() for c, q in enumerate(order))
               for order in permutations(range(len(long)), len(short)))  # fmt: skip
    padded = np.insert(a, 0, np.inf, axis=0)
    assert_allclose([aligned_distance(padded, b), aligned_distance(b, padded)], best)
    assert np.isnan(aligned_distance(np.full((2, 2), np.inf), b))


@given(st.integers(0, 2**32 - 1))
def test_pairs_of_sets_that_are_looked_at_together_are_as_far_apart_as_each_by_itself(seed):
    rng = np.random.default_rng(seed)
    k, c = (int(rng.integers(1, 5)) for _ in range(2))
    one, other = rng.normal(size=(8, k, 2)), rng.normal(size=(8, c, 2))
    if k == c:
        other[:4] = one[:4] + 0.01 * rng.normal(size=(4, k, 2))  # every row is nearest to its own
    other[1:3, 0] = np.inf
    one[2] = np.inf
    each = [aligned_distance(a, b) for a, b in zip(one, other, strict=True)]
    np.testing.assert_array_equal(aligned_distances(one, other), each)


def test_rows_that_are_nearest_one_way_alone_are_matched():
    near, far = np.array([[[1.0], [4.0]]]), np.array([[[0.0], [10.0]]])  # both of the first are nearest to 0
    assert aligned_distances(near, far) == aligned_distances(far, near) == 1 + 36


def play(start, graph, points, **options):
    shards = p2pkm.Shards.from_list(points)
    return p2pkm.simulate(p2pkm.GTVMin(2), graph, shards, rounds=0, start=np.array(start), **options)


def test_both_by_hand():
    points = [column(0, 10), column(0, 10), column(0, 10), column(0, 10)]
    graph = topologies.path(4)
    graph.remove_edge(2, 3)
    start = [column(0, 10), column(12, 0), column(0, np.inf), column(1, 10)]
    result = play(start, graph, points, allow_disconnected=True)
    assert_allclose(np.sort(result.central.ravel()), [0, 10])
    assert_allclose(distance_to_central(result), [0, 4 / 2, 0, 1 / 2])
    assert_allclose(distance_to_neighbors(result), [4 / 2, (4 + 0) / 2 / 2, 0, np.nan])  # 3 has no neighbor
    assert_allclose(result.summary["central_deviation"], 2.5 / 4)
    assert_allclose(result.summary["consensus_variation"], 3 / 3)
    assert_allclose(result.devices["consensus_variation"], distance_to_neighbors(result))


def test_central_centroids_are_kept(tmp_path):
    result = play([column(0, 10), column(12, 0)], topologies.path(2), [column(0, 10), column(0, 10)])
    kept = p2pkm.load(result.save(tmp_path / "kept"))
    assert_allclose(kept.central, result.central)
    assert_allclose(distance_to_central(kept), [0, 2])


def test_without_a_baseline_or_a_neighbor_nothing_is_said():
    result = play([column(0, 10)], topologies.complete(1), [column(0, 10)], baselines=False)
    assert result.central is None
    assert result.summary["central_deviation"] is None and result.summary["consensus_variation"] is None


def test_byzantine_devices_are_in_neither():
    rng = np.random.default_rng(0)
    shards = p2pkm.Shards.from_list([rng.normal(size=(9, 2)) for _ in range(6)])
    result = p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(6), shards, byzantine="1:kind=random", rounds=3)
    for values in (distance_to_central(result), distance_to_neighbors(result)):
        assert np.isnan(values[result.byzantine]).all() and np.isfinite(np.delete(values, result.byzantine)).all()


@pytest.mark.parametrize(("most", "known"), [(2, False), (3, True)])
def test_devices_are_compared_with_central_k_means_up_to_a_limit(monkeypatch, most, known):
    monkeypatch.setattr(alignment, "_PAIRS", most)
    assert np.isnan(distance_to_central(build_result())).tolist() == [not known] * 3
