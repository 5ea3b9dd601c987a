"""DWF k-means: rounds by hand, the published update in plain loops, and its relation to Lloyd's algorithm."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import p2pkm
from p2pkm.methods.server.dwfkm import DWFKM
from tests.support.server import serve


def draw(seed, n=4, m=12, k=3, sd=1.0):
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 12, (k, 2))
    return [centers[rng.integers(0, k, m)] + rng.normal(0, sd, (m, 2)) for _ in range(n)]


def nearest(x, rows):
    return min(range(len(rows)), key=lambda c: math.dist(x, rows[c]))


def local_lloyd(points, rows, steps):
    for _ in range(steps):
        labels = [nearest(x, rows) for x in points]
        members = [[x for x, label in zip(points, labels, strict=True) if label == c] for c in range(len(rows))]
        rows = [np.mean(part, axis=0) if part else rows[c] for c, part in enumerate(members)]
    return rows


def average(data, rows, steps):
    """Take one round of the published update."""
    sums, totals = np.zeros_like(rows), np.zeros(len(rows))
    for points in data:
        if not len(points):
            continue
        local = local_lloyd(points, rows, steps)
        for x in points:
            c = nearest(x, rows)
            sums[c] += local[c]
            totals[c] += 1
    return np.where(totals[:, None] > 0, sums / np.maximum(totals, 1)[:, None], rows)


def test_two_clients_by_hand():
    """Both clients send their two clusters; the server clusters 0.5, 10, 1 and 12; then counts weigh the means."""
    data = [np.array([[0.0], [1.0], [10.0]]), np.array([[1.0], [12.0], [12.0], [12.0]])]
    first, later = (serve(DWFKM(2), data, rounds=rounds) for rounds in (1, 2))
    assert_allclose(np.sort(first.model[:, 0]), [0.75, 11.0])
    # (2 * 0.5 + 1 * 1) / 3 and (1 * 10 + 3 * 12) / 4
    assert_allclose(np.sort(later.model[:, 0]), [2 / 3, 11.5])
    assert [table[:, 1].tolist() for table in later.uplinks[1]] in ([[2.0, 1.0], [1.0, 3.0]], [[1.0, 2.0], [3.0, 1.0]])


@pytest.mark.parametrize("clusters", [1, 2])
def test_rows_of_a_first_report_are_not_averaged_by_their_number(clusters):
    """Where messages are lost, the server holds first reports, or gets them again, when it has centroids."""
    first = serve(DWFKM(2), [np.array([[12.0], [0.0]][:clusters]), np.array([[0.0], [12.0]])], rounds=1).uplinks[0][0]
    assert len(first) == clusters and not first[:, 1].any()
    model = np.array([[1.0], [11.0]])
    later = np.array([[2.0, 3.0], [10.0, 1.0]])
    assert_array_equal(DWFKM(2).aggregate(None, [first, later], model), later[:, :1])
    assert_array_equal(DWFKM(2).aggregate(None, [first], model), model)


@pytest.mark.parametrize("steps", [1, 5])
def test_a_round_is_the_published_update(steps):
    for seed in range(4):
        # Overlapping clusters, so that local steps change the number of points of a cluster.
        data = draw(seed, m=30, sd=4.0)
        data[1] = data[1][:0]
        before, after = (serve(DWFKM(3, local_steps=steps), data, rounds=rounds).model for rounds in (1, 2))
        assert_allclose(after, average(data, before, steps), atol=1e-12)


def test_a_cluster_without_points_of_a_client_keeps_its_row_there():
    data = [np.array([[0.0], [1.0]]), np.array([[10.0], [11.0]])]
    served = serve(DWFKM(2), data, rounds=3)
    rows = served.model[:, 0]
    assert_allclose(np.sort(rows), [0.5, 10.5])
    for table, present in zip(served.uplinks[2], (rows.argmin(), rows.argmax()), strict=True):
        assert table[1 - present, 1] == 0.0 and table[present, 1] == 2.0


def test_with_one_local_step_it_ends_at_a_lloyd_point_of_the_pooled_points():
    data = draw(3, n=5, m=20)
    result = p2pkm.simulate(DWFKM(3, local_steps=1), None, p2pkm.Shards.from_list(data))
    assert result.summary["termination"] == "converged"
    pooled = np.concatenate(data)
    reference = KMeans(3, init=result.server_centroids, n_init=1, tol=0.0).fit(pooled)
    assert_allclose(reference.cluster_centers_, result.server_centroids, atol=1e-6)


def test_rows_travel_with_counts_and_a_device_without_points_sends_none():
    result = p2pkm.simulate(DWFKM(2), None, p2pkm.Shards.from_list([*draw(1, n=2, k=2), np.zeros((0, 2))]), rounds=2)
    up, down = 2 * 2 * 3, 3 * 2 * 2
    assert result.summary["bytes"] == 8 * (3 * up + 2 * down)
    assert result.summary["rounds"] == 2


def test_fewer_distinct_points_than_clusters_give_fewer_rows():
    served = serve(DWFKM(3), [np.zeros((4, 1)), np.ones((2, 1))], rounds=2)
    assert_array_equal(np.sort(served.model[:, 0]), [0.0, 1.0])


@pytest.mark.parametrize("options", [{"local_steps": 0}, {"client_n_init": 0}, {"server_n_init": 0}, {"tol": -1.0}])
def test_parameters_out_of_range_are_rejected(options):
    with pytest.raises(p2pkm.ExperimentError, match=next(iter(options))):
        DWFKM(3, **options)
