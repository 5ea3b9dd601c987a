"""FFCM against the published update in plain loops, its kernel against the plain twin, aggregation by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.server.ffcm import FFCM
from tests.support.sampling import thin
from tests.support.server import clients_of, serve

VERSIONS = pytest.mark.parametrize("version", [1, 2])


def fuzzy_case(seed):
    """Draw points of some devices, on a grid or not, and centroids, some of them on points, some twice, some absent."""
    rng = np.random.default_rng(seed)
    n, k, d = (int(rng.integers(1, most)) for most in (5, 6, 4))
    sizes = rng.integers(0, 12, n) * (rng.random(n) < 0.8)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    points, start = rng.normal(0, 2, (offsets[-1], d)), rng.normal(0, 2, (n, k, d))
    if rng.random() < 0.5:
        points, start = points.round(), start.round()  # many zeros, some of them negative
    weights = rng.integers(1, 4, offsets[-1]) * (1.0 if rng.random() < 0.5 else rng.random())
    if rng.random() < 0.3 and len(points):
        start[:, : k // 2] = points[0]
    limit, tol = int(rng.choice([0, 1, 5, 300])), float(rng.choice([0.0, 1e-4]))
    halvings = 0 if rng.random() < 0.5 else int(rng.integers(1, 5))
    return points, weights.astype(float), offsets, start, rng.integers(0, k + 1, n), limit, tol, halvings


@pytest.mark.parametrize("block", thin(range(12), 12))
def test_both_forms_of_the_kernel_give_the_same_bits(block):
    for seed in range(25 * block, 25 * block + 25):
        case = fuzzy_case(seed)
        copies = [np.copy(one) for one in case]
        for one, other in zip(plain.fuzzy_cmeans(*case), compiled.fuzzy_cmeans(*case), strict=True):
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()
        for one, before in zip(case, copies, strict=True):
            assert_array_equal(one, before)


@pytest.mark.parametrize("form", [plain, compiled], ids=["plain", "compiled"])
def test_a_batch_is_as_many_batches_of_one(form):
    for seed in range(20):
        points, weights, offsets, start, rows, *rest = fuzzy_case(seed)
        whole = form.fuzzy_cmeans(points, weights, offsets, start, rows, *rest)
        for i, own in enumerate(map(slice, offsets[:-1], offsets[1:])):
            part = np.array([0, offsets[i + 1] - offsets[i]])
            one = form.fuzzy_cmeans(points[own], weights[own], part, start[i : i + 1], rows[i : i + 1], *rest)
            for a, b in zip(whole, one, strict=True):
                assert_array_equal(a[i : i + 1], b)


# Fuzzy c-means and both aggregations, in plain loops.


def memberships(points, centroids, fuzzifier=2.0):
    table = []
    for x in points:
        distances = [math.dist(x, c) for c in centroids]
        if min(distances) == 0.0:
            table.append([float(b == distances.index(0.0)) for b in range(len(centroids))])
        else:
            table.append([
                1.0 / sum((one / other) ** (2 / (fuzzifier - 1)) for other in distances) for one in distances
            ])
    return table


def local_means(points, centroids, limit=1000, tol=1e-4, fuzzifier=2.0):
    members = memberships(points, centroids, fuzzifier)
    for _ in range(limit):
        new = []
        for c, centroid in enumerate(centroids):
            masses = [row[c] ** fuzzifier for row in members]
            sums = [sum(mass * x[f] for mass, x in zip(masses, points, strict=True)) for f in range(len(centroid))]
            new.append([s / sum(masses) for s in sums] if sum(masses) > 0 else list(centroid))
        before, centroids, members = members, new, memberships(points, new, fuzzifier)
        if math.dist(np.ravel(members), np.ravel(before)) < tol:
            break
    return centroids, [sum(row[c] for row in members) for c in range(len(centroids))]


def lloyd(rows, centroids):
    labels = None
    for _ in range(500):
        before, labels = labels, [min(range(len(centroids)), key=lambda c: math.dist(x, centroids[c])) for x in rows]
        if labels == before:
            break
        assert set(labels) == set(range(len(centroids)))  # nothing empties in these cases
        centroids = [np.mean([x for x, label in zip(rows, labels, strict=True) if label == c], axis=0).tolist()
                     for c in range(len(centroids))]  # fmt: skip
    return centroids


@given(st.integers(0, 2**32 - 1))
def test_the_kernel_is_fuzzy_c_means(seed):
    rng = np.random.default_rng(seed)
    points, start = rng.normal(size=(int(rng.integers(6, 15)), 2)), rng.normal(size=(3, 2))
    start[0] = points[0]  # a point on a centroid
    ones, offsets, rows = np.ones(len(points)), np.array([0, len(points)]), np.array([3])
    for limit, halvings in ((0, 0), (1, 0), (4, 0), (0, 3), (1, 1), (4, 2)):
        centroids, supports = compiled.fuzzy_cmeans(points, ones, offsets, start[None], rows, limit, 1e-4, halvings)
        expected = local_means(points.tolist(), start.tolist(), limit, fuzzifier=1.0 + 0.5**halvings)
        assert_allclose(centroids[0], expected[0], rtol=1e-9, atol=1e-9)
        assert_allclose(supports[0], expected[1], rtol=1e-9, atol=1e-9)
        assert supports.sum() == pytest.approx(len(points))


def test_one_step_by_hand():
    # memberships of 0, 1, 4 in 0 and 2: (1, 0), (1/2, 1/2), (1/5, 4/5)
    points, start = np.array([[0.0], [1.0], [4.0]]), np.array([[[0.0], [2.0]]])
    case = points, np.ones(3), np.array([0, 3]), start, np.array([2])
    assert_allclose(compiled.fuzzy_cmeans(*case, 0, 0.0, 0)[1], [[1.7, 1.3]])
    centroids, _ = compiled.fuzzy_cmeans(*case, 1, 0.0, 0)
    first, second = (0.25 + 0.04 * 4) / (1 + 0.25 + 0.04), (0.25 + 0.64 * 4) / (0.25 + 0.64)
    assert_allclose(centroids, [[[first], [second]]])
    # exponent 1.5: memberships (1, 0), (1/2, 1/2) and, from ratios 1/16 and 1, (1/17, 16/17)
    centroids, _ = compiled.fuzzy_cmeans(*case, 1, 0.0, 1)
    assert_allclose(compiled.fuzzy_cmeans(*case, 0, 0.0, 1)[1], [[1.5 + 1 / 17, 0.5 + 16 / 17]])
    (a, b), (e, f) = (0.5**1.5, (1 / 17) ** 1.5), (0.5**1.5, (16 / 17) ** 1.5)
    assert_allclose(centroids, [[[(a + 4 * b) / (1 + a + b)], [(e + 4 * f) / (e + f)]]])
    heavier = compiled.fuzzy_cmeans(points, np.array([1.0, 2.0, 3.0]), *case[2:], 1, 0.0, 0)[0]
    assert_allclose(heavier[0, 1, 0], (0.5 + 1.92 * 4) / (0.5 + 1.92))


def test_a_point_on_several_centroids_belongs_to_the_first():
    start = np.array([[[5.0], [1.0], [1.0]]])
    one = np.ones((1, 1)), np.ones(1), np.array([0, 1])
    centroids, supports = compiled.fuzzy_cmeans(*one, start, np.array([3]), 1000, 1e-4, 0)
    assert_array_equal(centroids, start)  # no membership, no move
    assert_array_equal(supports, [[0.0, 1.0, 0.0]])


def aggregate(version, tables, model):
    devices, _ = clients_of([np.zeros((1, 1))])
    return FFCM(len(model), version=version).aggregate(devices, [np.array(t, float).reshape(-1, 2) for t in tables],
                                                       np.array(model, float)[:, None])  # fmt: skip


def test_aggregation_by_hand():
    tables = [[[0, 1], [4, 3]], [[2, 1], [8, 1]]]
    assert_array_equal(aggregate(1, tables, [9, 9]), [[1.0], [5.0]])
    # from 0 and 8: 4 is as near to both and goes to the first; then 0, 2, 4 | 8
    assert_array_equal(aggregate(2, tables, [0, 8]), [[2.0], [8.0]])
    # no row is nearest to 100, so it takes the one farthest from 0
    assert_array_equal(aggregate(2, [[[0, 1], [1, 1]], [[2, 1], [2, 1]]], [0, 100]), [[0.5], [2.0]])
    assert_array_equal(np.sort(aggregate(2, [[[0, 9], [11, 1]], [[1, 1], [10, 0]]], [np.inf] * 2), axis=0),
                       [[0.5], [10.5]])  # fmt: skip


def test_the_first_k_means_of_version_2_is_the_best_of_ten_seedings():
    rows = np.random.default_rng(4).normal(size=(40, 1)).cumsum(axis=0)
    devices, _ = clients_of([np.zeros((1, 1))])
    tables, model = [np.column_stack((rows, np.ones(40)))], np.full((9, 1), np.inf)

    def best_of(starts):
        search = Search(9, Stream.SERVER, starts=starts, limit=500)
        return cluster(plain, devices.shared_key, rows, np.ones(40), search)[0]

    assert not np.array_equal(best_of(1), best_of(10))
    assert_array_equal(FFCM(9).aggregate(devices, tables, model), best_of(10))
    assert_array_equal(FFCM(9, server_n_init=1).aggregate(devices, tables, model), best_of(1))
    warm = np.sort(best_of(1), axis=0) + 0.1  # from here on one run from the centroids, whatever the number
    one, other = (FFCM(9, server_n_init=starts).aggregate(devices, tables, warm) for starts in (1, 10))
    assert_array_equal(one, other)


def test_a_row_that_nobody_supports_keeps_its_place():
    assert_array_equal(aggregate(1, [[[0, 1], [4, 0]], [], [[2, 1], [8, 0]]], [7, 9]), [[1.0], [9.0]])
    devices, _ = clients_of([np.zeros((1, 1))])
    first = uniforms(devices.shared_key, Stream.CLIENT, [0], 2)[0]
    assert_array_equal(aggregate(1, [[[0, 1], [4, 0]]], [np.inf, np.inf]), [[0.0], [first[1]]])


@VERSIONS
def test_a_server_without_rows_keeps_its_model(version):
    assert_array_equal(aggregate(version, [[], []], [3.0, np.inf]), [[3.0]])


def test_fewer_distinct_rows_than_clusters_are_the_centroids():
    found = aggregate(2, [[[1, 1], [1, 0], [1, 0]], [[2, 1], [2, 0], [2, 0]]], [np.inf] * 3)
    assert_array_equal(np.sort(found, axis=0), [[1.0], [2.0]])
    assert_array_equal(aggregate(2, [[[1, 1], [3, 0]], [[2, 1], [2, 0]]], [0.0, 3.0, np.inf]), [[1.0], [7 / 3]])


def deal(seed, clients=4, size=20):
    rng = np.random.default_rng(seed)
    means = np.array([[0.0, 0.0], [10.0, 1.0], [4.0, 30.0]])
    return [rng.normal(means[rng.integers(0, 3, size)], 1.0) for _ in range(clients)]


def frame(data):
    """Return the points in units of one smallest and one largest entry, and the way back."""
    low, high = min(part.min() for part in data if len(part)), max(part.max() for part in data if len(part))
    return [(part - low) / (high - low) for part in data], lambda rows: np.asarray(rows) * (high - low) + low


@VERSIONS
@pytest.mark.sample(2)
def test_rounds_follow_the_published_updates(version):
    for seed in range(6):
        data = deal(seed)
        scaled, back = frame(data)
        run = serve(FFCM(3, version=version, fuzzifier=2.0), data, 3, seed=seed)
        first = uniforms(run.devices.shared_key, Stream.CLIENT, [0], 6)[0].reshape(3, 2).tolist()
        said = [local_means(points.tolist(), first) for points in scaled]
        for t in range(3):
            for table, (centroids, supports) in zip(run.uplinks[t], said, strict=True):
                assert_allclose(table, np.column_stack((centroids, supports)), rtol=1e-6, atol=1e-9)
            one = serve(FFCM(3, version=version, fuzzifier=2.0), data, t + 1, seed=seed)
            if version == 1:
                total = sum(np.array(supports) for _, supports in said)
                sums = sum(np.array(supports)[:, None] * np.array(rows) for rows, supports in said)
                model = (sums / total[:, None]).tolist()
            elif t == 0:
                model = frame([*data, one.model])[0][-1].tolist()  # drawn seeds: the test above, and a fixed point
                assert_allclose(lloyd([row for rows, _ in said for row in rows], model), model, rtol=1e-9)
            else:
                model = lloyd([row for rows, _ in said for row in rows], model)
            assert_allclose(one.model, back(model), rtol=1e-6, atol=1e-9)
            said = [local_means(points.tolist(), model) for points in scaled]


@VERSIONS
def test_messages_and_bytes_by_hand(version):
    run = serve(FFCM(3, version=version, fuzzifier=2.0), deal(0, clients=3), 2)
    # opening and two rounds up, 3 rows of 3 numbers; two rounds down, 3 rows of 2; the two rows of the box stage apart
    box = serve(FFCM(3, version=version, fuzzifier=2.0), deal(0, clients=3), 1)
    per_round = (6, 3 * 3 * 3 * 8 + 3 * 3 * 2 * 8)
    assert tuple(np.subtract(run.ledger, box.ledger)) == per_round
    assert len(run.uplinks) == 2


@VERSIONS
def test_clients_with_few_points_or_none(version):
    data = [np.zeros((0, 2)), [[0.2, 0.9]], [[0.0, 0.0], [1.0, 1.0]], np.full((5, 2), 0.5)]
    run = serve(FFCM(3, version=version, fuzzifier=2.0), data, 4)
    for tables in run.uplinks:
        assert [len(table) for table in tables] == [0, 3, 3, 3]
        assert not [table for table in tables if not np.isfinite(table).all()]
        assert [table[:, 2].sum() for table in tables[1:]] == pytest.approx([1.0, 2.0, 5.0])
    assert_array_equal(run.uplinks[0][1], [[0.2, 0.9, 1.0], [0.2, 0.9, 0.0], [0.2, 0.9, 0.0]])
    assert len(run.local[0]) == 0
    assert_array_equal(run.local[1], [[0.2, 0.9]])
    assert np.isfinite(run.model).all()
    assert len(run.model) == 3


def test_one_distinct_point_leaves_one_centroid_to_version_2():
    data = [np.full((3, 2), 4.0), np.full((1, 2), 4.0)]
    run = serve(FFCM(3), data, 3)
    assert_allclose(run.model, [[4.0, 4.0]])
    assert [len(tables[0]) for tables in run.uplinks] == [3, 1, 1]
    assert_allclose(serve(FFCM(3, version=1), data, 3).model[0], [4.0, 4.0])


@VERSIONS
def test_units_do_not_matter(version):
    data = deal(2)
    one, other = serve(FFCM(3, version=version), data, 3), serve(FFCM(3, version=version), [8 * x - 3 for x in data], 3)
    assert_allclose(8 * one.model - 3, other.model, rtol=1e-6)
    for a, b in zip(one.uplinks[2], other.uplinks[2], strict=True):
        assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@VERSIONS
def test_a_weight_is_a_number_of_copies(version, monkeypatch):
    monkeypatch.setattr("p2pkm.methods.server.ffcm._TOL", 1e-11)  # the norm of the memberships grows with the points
    rng = np.random.default_rng(5)
    points, weights = rng.normal(0, 3, (30, 2)), rng.integers(1, 4, 30)
    one = serve(FFCM(4, version=version), [points], 2, weights=weights)
    other = serve(FFCM(4, version=version), [np.repeat(points, weights, axis=0)], 2)
    assert_allclose(one.model, other.model, rtol=1e-7)


@VERSIONS
def test_everybody_settles_where_nothing_moves(version):
    data = [np.repeat([[0.0, 0.0], [1.0, 1.0]], 4, axis=0)] * 3
    assert serve(FFCM(2, version=version), data, 10).state.converged.all()
    assert not serve(FFCM(2, version=version), data, 1).state.converged.any()


@VERSIONS
def test_both_forms_of_the_kernels_give_the_same_run(version):
    one, other = (serve(FFCM(3, version=version), deal(3), 3, kernels=form) for form in (plain, compiled))
    assert_array_equal(one.model, other.model)


@pytest.mark.parametrize(("k", "version"), [(0, 2), (3, 3), (3, 0), (3, "1"), (3, True)])
def test_options_out_of_range(k, version):
    with pytest.raises(ExperimentError):
        FFCM(k, version=version)
    with pytest.raises(ExperimentError, match="server_n_init"):
        FFCM(3, server_n_init=0)


def test_the_name_tells_the_version():
    assert [FFCM(3, version=version).name for version in (1, 2)] == ["ffcm1", "ffcm2"]


@pytest.mark.parametrize("fuzzifier", [1.0, 1.3, 3.0, float("nan")])
def test_exponents_that_need_powers_are_rejected(fuzzifier):
    with pytest.raises(p2pkm.ExperimentError, match=r"fuzzifier is .*; expected 1 \+ 2"):
        p2pkm.FFCM(3, fuzzifier=fuzzifier)


def test_near_one_the_memberships_are_those_of_k_means():
    """With exponent 1.0625 a round is Lloyd's algorithm on well separated clusters."""
    X, y = p2pkm.blobs(clusters=3, points=30, box=30, seed=1)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(90, 3, seed=0), labels=y)
    sharp, soft = (
        p2pkm.simulate(p2pkm.FFCM(3, version=1, fuzzifier=m), None, shards, seed=2).summary["ratio_mean"]
        for m in (1.0625, 2.0)
    )
    assert sharp <= soft


@VERSIONS
def test_the_default_exponent_depends_on_the_version(version):
    data = deal(0, clients=3)
    given = FFCM(3, version=version, fuzzifier={1: 1.0625, 2: 2.0}[version])
    assert_array_equal(serve(FFCM(3, version=version), data, 2).model, serve(given, data, 2).model)
