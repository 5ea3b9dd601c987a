"""The compiled kernels against their plain twins, NumPy's Philox and scikit-learn's k-means."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

from p2pkm.core.batch import trials
from p2pkm.core.messages import InternedTables, Tables, pack
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.numba import threads
from p2pkm.kernels.numba.philox import _philox, _uniform
from p2pkm.kernels.reference.kmeans import run_lloyd
from p2pkm.methods.building_blocks.flooding import store_tables

FORMS = pytest.mark.parametrize("form", [plain, compiled], ids=["plain", "compiled"])
# Compilation for float32 takes longer than all these tests.
TYPES = pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])


def draw_points(rng, n, d, dtype="float64"):
    """Draw points of n devices, some of them without any; whole numbers, so that ties are frequent, or not.

    Some are more than a block; some without weights.
    """
    sizes = rng.integers(0, rng.choice([12, 12, 360]), n) * (rng.random(n) < 0.8)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    points = rng.normal(0, 2, (offsets[-1], d))
    points = points.round() if rng.random() < 0.5 else points
    weights = rng.integers(1, 4, offsets[-1]) * (1.0 if rng.random() < 0.5 else rng.random())
    weights = weights.astype(float) if rng.random() < 0.7 else np.empty(0)
    return np.ascontiguousarray(points, dtype), weights, offsets


def draw_centroids(rng, n, k, d):
    """Draw centroids with ties and absent rows; some devices have none at all."""
    centroids = rng.normal(0, 2, (n, k, d))
    centroids = centroids.round() if rng.random() < 0.5 else centroids
    centroids[rng.random((n, k)) < rng.choice([0.0, 0.3])] = np.inf
    centroids[rng.random(n) < 0.1] = np.inf
    return centroids


def draw_graph(rng, n):
    """Return indptr and indices of a random graph."""
    upper = np.triu(rng.random((n, n)) < 0.5, 1)
    links = upper | upper.T
    return np.concatenate(([0], np.cumsum(links.sum(axis=1)))).astype(np.int64), np.nonzero(links)[1].astype(np.int64)


def draw_shape(rng, n, k, d):
    """Draw numbers of devices, clusters and features below the given ones, sometimes of several vectors."""
    wide, long = rng.random() < 0.3, rng.random() < 0.05
    return tuple(int(rng.integers(1, most)) for most in (n, 20 if wide else k, 90 if long else 30 if wide else d))


def freeze(array):
    """Return a read-only view, as an inbox holds it."""
    view = array.view()
    view.flags.writeable = False
    return view


def kmeans_case(seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    n, k, d = draw_shape(rng, 5, 7, 5)
    keys = rng.integers(0, 2**64, n, dtype=np.uint64)
    count, starts, limit = trials(k, bool(rng.integers(2))), int(rng.integers(1, 4)), int(rng.choice([0, 1, 3, 300]))
    points, weights, offsets = draw_points(rng, n, d, dtype)
    odds, tols = [weights, np.ones(len(points))][rng.integers(2)], rng.choice([0.0, 0.5], n)
    numbers = int(rng.integers(1, 20)), int(rng.integers(0, 50))
    return (points, weights, odds, offsets, k, count, starts, limit, tols, keys, *numbers)


def refine_case(seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    n, k, d = draw_shape(rng, 5, 7, 5)
    points, weights, offsets = draw_points(rng, n, d, dtype)
    start, rows = rng.normal(0, 3, (n, k, d)).round(), rng.integers(0, k + 1, n)
    limit, fill = int(rng.choice([0, 1, 3, 300])), bool(rng.integers(2))
    return points, weights, offsets, start, rows, limit, rng.choice([0.0, 0.5], n), fill


def gtvmin_case(seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    n, k, d = draw_shape(rng, 6, 6, 5)
    indptr, indices = draw_graph(rng, n)
    tables = rng.normal(0, 2, (n, k + 1, d + 1)).round(int(rng.integers(0, 2)) * 3)
    rows = rng.integers(-1, k + 2, n)
    slots = np.where((rows[indices] >= 0) & (rng.random(len(indices)) < 0.9), indices, -1)
    alpha = rng.choice([0.0, 0.1, 1.0, 7.0], len(indices)) * rng.choice([1.0, 1 / 3])
    theta = rng.choice([1.0, 0.5, 1.5, 1.9], n)
    options = theta, int(rng.integers(1, 4)), bool(rng.integers(2)), bool(rng.integers(2))
    who = np.flatnonzero(rng.random(n) < 0.8)
    centroids = draw_centroids(rng, n, k, d)
    if seed % 2:  # everybody moves at once, and most have said what they hold
        who, (tables, rows) = np.arange(n), pack(centroids)
        tables = tables + (rng.random(n) < 0.2)[:, None, None]
    if seed % 4 == 3:  # and all have
        centroids = rng.normal(0, 2, (n, k, d)).round(int(rng.integers(0, 2)) * 3)
        tables, rows, slots = centroids, np.full(n, k), indices
    previous = np.where(centroids < np.inf, rng.normal(size=centroids.shape), np.inf)
    return (*draw_points(rng, n, d, dtype), centroids, previous, who, indptr, freeze(tables), rows, slots, alpha,
            *options, False)  # fmt: skip


@FORMS
def test_an_update_in_place_is_the_same_update(form):
    for seed in range(0, 40, 2):
        case = gtvmin_case(seed)
        apart, moves = form.gtvmin(*case)
        table = case[3].copy()
        within, same_moves = form.gtvmin(*case[:3], table, *case[4:-1], True)
        assert within is table
        assert_array_equal(within, apart)
        assert_array_equal(same_moves, moves)


def test_rows_at_the_edge_of_what_is_near_are_matched_as_by_a_search():
    rng = np.random.default_rng(0)
    centroids = np.array([[[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
    for step in (0.5, 0.999, 1.0 - 1e-9, 1.0, 1.001, 1.5):  # half of the least distance is 1
        table = centroids.copy()
        table[0, 0, 0] = step
        case = (*draw_points(rng, 1, 2), centroids, centroids, np.arange(1), np.array([0, 1]), freeze(table),
                np.full(1, 3), np.zeros(1, int), np.full(1, 2.0), np.ones(1), 1, True, False, False)  # fmt: skip
        assert_same(case, "gtvmin")


def test_a_bound_from_the_device_before_takes_no_wrong_row_for_the_nearest():
    """The first one's rows are 10 apart and 21.96 < 5^2, but row 0 of the last is nearest to row 1 of the second."""
    centroids = np.zeros((3, 5, 2))
    centroids[:, :, 0] = 10.0 * np.arange(5)
    centroids[1, 1, 0], centroids[2, 0, 0] = 7.0, 3.6
    indptr, indices = np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])
    case = (*draw_points(np.random.default_rng(0), 3, 2), centroids, centroids, np.arange(3), indptr, freeze(centroids),
            np.full(3, 5), indices, np.full(4, 2.0), np.ones(3), 1, True, False, False)  # fmt: skip
    assert_same(case, "gtvmin")


@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (5, 2), (3, 1), (6, 3), (8, 8), (11, 9)], ids=str)
@pytest.mark.sample(3)
def test_devices_that_nearly_agree_match_as_by_a_search(shape):
    """One row of each device lies off where all others have it, mostly towards another row, up to half of the way."""
    (k, d), n, rng = shape, 7, np.random.default_rng(0)
    for seed in range(40):
        base = rng.normal(0, 3, (k, d))
        centroids = base + rng.choice([0.0, 1e-3, 0.1]) * rng.normal(size=(n, k, d))
        for i in range(n):
            c, q = rng.choice(k, 2, replace=False)
            centroids[i, c] += rng.uniform(0, 0.5) * (base[q] - base[c])
        indptr, indices = draw_graph(rng, n)
        slots = np.where(rng.random(len(indices)) < 0.98, indices, -1)
        alpha, star = rng.choice([0.3, 7.0], len(indices)), bool(rng.integers(2))
        case = (*draw_points(rng, n, d), centroids, centroids, np.arange(n), indptr, freeze(centroids), np.full(n, k),
                slots, alpha, np.ones(n), 1, star, seed % 5 == 0, False)  # fmt: skip
        assert_same(case, "gtvmin")


def assert_same(case, name):
    """Run both forms of a kernel; neither may write into what it was given."""
    copies = [np.copy(one) if isinstance(one, np.ndarray) else one for one in case]
    results = [getattr(form, name)(*case) for form in (plain, compiled)]
    for one, before in zip(case, copies, strict=True):
        assert_array_equal(one, before)
    pair = [one if isinstance(one, tuple) else (one,) for one in results]
    for a, b in zip(*(map(np.asarray, one) for one in pair), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kmeans_equals_its_twin(dtype):
    for seed in range(240):
        assert_same(kmeans_case(seed, dtype), "kmeans")


@TYPES
@pytest.mark.parametrize("k", [2, 3, 9, 25, 60])
def test_seeds_of_blocks_of_any_length_equal_their_twins(k, dtype):
    sizes = np.array([1, 7, 8, 9, 515, 1035])
    points = np.random.default_rng(k).normal(size=(sizes.sum(), 3)).astype(dtype)
    weights, keys = np.ones(len(points)), np.arange(len(sizes), dtype=np.uint64)
    offsets = np.concatenate(([0], sizes.cumsum()))
    assert_same((points, weights, weights, offsets, k, trials(k), 2, 1, np.zeros(len(sizes)), keys, 1, 0), "kmeans")


def test_starts_that_are_seeded_together_are_those_that_are_seeded_one_by_one(monkeypatch):
    cases = [kmeans_case(seed) for seed in range(20)]
    together = [plain.kmeans(*case) for case in cases]
    monkeypatch.setitem(run_lloyd.__globals__, "_MAX_DISTANCES", 1)  # of the module, which a function hides
    for case, found in zip(cases, together, strict=True):
        for one, other in zip(plain.kmeans(*case), found, strict=True):
            assert_array_equal(one, other)


@TYPES
def test_refine_equals_its_twin(dtype):
    for seed in range(240):
        assert_same(refine_case(seed, dtype), "refine")


@pytest.mark.slow
@TYPES
def test_gtvmin_equals_its_twin(dtype):
    for seed in range(400):
        assert_same(gtvmin_case(seed, dtype), "gtvmin")


@TYPES
def test_losses_price_and_gtv_equal_their_twins(dtype):
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n, k, d, q, classes = (int(rng.integers(low, most)) for low, most in ((1, 6), (1, 6), (1, 5), (0, 5), (0, 4)))
        points, weights, offsets = draw_points(rng, n, d, dtype)
        centroids = draw_centroids(rng, n, k, d)
        assert_same((points, weights, offsets, centroids), "losses")
        labels = rng.integers(0, max(classes, 1), len(points))
        assert_same((points, weights, offsets, labels, classes, draw_centroids(rng, q, k, d)), "evaluate_costs")
        indptr, indices = draw_graph(rng, n)
        assert_same((centroids, np.arange(n), indptr, indices, indices), "gtv")


def test_prices_over_blocks_of_many_devices_equal_their_twins():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, m, k, d = (int(rng.integers(low, most)) for low, most in ((1, 90), (0, 900), (1, 20), (1, 5)))
        offsets = np.append(0, np.sort(rng.integers(0, m + 1, n)))
        offsets[-1] = m
        points, weights, sets = rng.normal(size=(m, d)), rng.random(m), draw_centroids(rng, 7, k, d)
        given = weights if rng.random() < 0.5 else weights[:0]
        assert_same((points, given, offsets, rng.integers(0, 3, m), seed % 2 * 3, sets), "evaluate_costs")


@pytest.mark.parametrize("rice", [True, False])
def test_lengths_on_the_wire_equal_their_twins(rice):
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, k, d = (int(rng.integers(low, most)) for low, most in ((0, 6), (1, 20), (1, 12)))
        top = 2 ** int(rng.integers(0, 62))
        tables = rng.integers(-top, top + 1, (n, k, d)) >> rng.integers(0, 62, (n, k, d))
        tables[rng.random((n, k)) < rng.random()] = 0
        rows = rng.integers(-1, k + 1, n)
        whole = seed % 2 == 0
        for i in range(0 if whole else n):
            tables[i, max(rows[i], 0) :] = 0
        found = compiled.integer_bits(tables, None if whole else rows, rice=rice)
        assert_array_equal(found, plain.integer_bits(tables, None if whole else rows, rice=rice))
        assert found.dtype == np.int64 and found.shape == (n,)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_numbers_are_as_wide_as_the_largest_in_size_needs(bits):
    numbers = np.array([1, -1])[:, None] * 2 ** (bits - 1) + np.array([-1, 0])
    tables = numbers.reshape(4, 1, 1)  # below and at the power of two, and minus it, and below
    expected = [3 + 1 + wide for wide in (bits, 2 * bits, 2 * bits, bits)]
    assert compiled.integer_bits(tables, rice=False).tolist() == expected
    assert plain.integer_bits(tables, rice=False).tolist() == expected


@TYPES
def test_sums_and_tables_equal_their_twins(dtype):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, k, d, classes = (int(rng.integers(1, most)) for most in (90, 6, 5, 4))
        points, weights, offsets = draw_points(rng, n, d, dtype)
        given = weights if rng.random() < 0.5 else weights[:0]
        assert_same((points, given, offsets, rng.normal(size=d)), "moments")
        labels = rng.integers(-1, k, len(points))
        assert_same((offsets, rng.integers(0, classes, len(points)), labels, classes, k), "count_class_labels")
        centroids = freeze(rng.normal(size=(n, k, d)))
        centroids = np.where(np.arange(k)[:, None] <= labels.max(initial=-1), centroids, np.inf)
        assert_same((points, given, offsets, labels, centroids), "cluster_moments")
        graph = tuple(freeze(part) for part in draw_graph(rng, min(n, 12)))
        assert_same(graph, "mirror")


@pytest.mark.parametrize("n", [3, 40, 9_000])
def test_recurrences_equal_their_twins_on_any_number_of_threads(n, monkeypatch):
    rng = np.random.default_rng(n)
    indptr, indices = draw_graph(rng, n) if n < 100 else (np.arange(n + 1) * 2, rng.integers(0, n, 2 * n))
    sizes = (len(indices), n, n, n)
    tables = [freeze(rng.random((size, 3))) for size in sizes]
    arrays = (freeze(indptr), freeze(indices.astype(np.int32)), *tables, np.array([1.0, 0.0, 2.0]), 4)
    assert_same(arrays, "lanczos")
    monkeypatch.setattr(threads, "_MIN_WORK", 1_000)
    assert_same(arrays, "lanczos")


@FORMS
def test_moments_by_hand(form):
    found = form.moments(np.array([[1.0], [3.0], [5.0]]), np.array([1.0, 2.0, 1.0]), np.array([0, 2, 2, 3]), np.ones(1))
    assert_array_equal(found, [[3, 4, 8], [0, 0, 0], [1, 4, 16]])


@FORMS
def test_moments_of_clusters_by_hand(form):
    points, weights = np.array([[1.0], [3.0], [5.0], [9.0]]), np.array([1.0, 2.0, 1.0, 4.0])
    labels, centroids = np.array([1, 1, -1, 0]), np.array([[[7.0], [2.0]], [[8.0], [np.inf]]])
    found = form.cluster_moments(points, weights, np.array([0, 3, 4]), labels, centroids)
    for part, wanted in zip(
        found, ([[0, 2], [1, 0]], [[0, 3], [4, 0]], [[0, 1], [4, 0]], [[0, 3], [4, 0]]), strict=True
    ):
        assert_array_equal(part.reshape(2, 2), wanted)
    assert found[0].dtype == np.int64


def test_layers_in_lists_equal_those_in_arrays(monkeypatch):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 25))
        indptr, indices = draw_graph(rng, n) if seed % 2 else (np.arange(n + 1), rng.permutation(n))
        case = indptr, indices, rng.integers(0, n, int(rng.integers(1, 4)))
        assert_same(case, "layers")
        lists = plain.layers(*case)
        with monkeypatch.context() as patch:
            patch.setattr("p2pkm.kernels.reference.graph._FEW", 0)
            assert_array_equal(plain.layers(*case), lists)
        assert lists.dtype == np.int64


def test_tables_of_few_senders_equal_those_of_many(monkeypatch):
    rng = np.random.default_rng(0)
    for count in range(6):
        rows = rng.integers(0, 4, count)
        tables = Tables(rng.normal(size=(9, 2)), rng.integers(0, 6, count), rows)
        flat = tables.flat()
        with monkeypatch.context() as patch:
            patch.setattr("p2pkm.core.messages._FEW_TABLES", 0)
            assert_array_equal(tables.flat(), flat)
        assert flat.shape == (rows.sum(), 2) and not np.shares_memory(flat, tables.values)


def test_sums_of_received_tables_equal_their_twins():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, r, w = (int(rng.integers(1, most)) for most in (14, 7, 5))
        indptr, indices = draw_graph(rng, n)
        # Tables of the stage may have more rows, and more columns, than those of this exchange.
        tables = draw_centroids(rng, n + 3, r + int(rng.integers(0, 2)), w + int(rng.integers(0, 2)))
        slots = np.where(rng.random(len(indices)) < 0.2, -1, rng.integers(0, n + 3, len(indices)))
        start, local = rng.normal(size=(n, r, w)), draw_centroids(rng, n, r, w)
        assert_same((start, local, freeze(tables), indptr, slots, rng.normal(size=len(indices))), "add_differences")


@FORMS
def test_differences_are_added_to_their_receiver_in_the_order_of_its_links(form):
    # The first device adds 1e16 and -1e16 before 1, and the absent row of the third table to no sum.
    tables = np.array([[[0.0], [1.0]], [[1e16], [2.0]], [[-1e16], [np.inf]], [[1.0], [4.0]]])
    indptr, slots = np.array([0, 3, 4, 5, 5]), np.array([1, 2, 3, 0, -1])
    sums, counts = form.add_differences(np.zeros((4, 2, 1)), tables, tables, indptr, slots, np.array([1, 1, 1, 0.5, 1]))
    assert_array_equal(sums[:, :, 0], [[1.0, 4.0], [-5e15, -0.5], [0.0, 0.0], [0.0, 0.0]])
    assert_array_equal(counts, [[3, 2], [1, 1], [0, 0], [0, 0]])


def draw_held(rng, n, r, w):
    """Return what n devices hold that have flooded nothing yet: their own table each."""
    rows = rng.integers(0, r + 1, n)
    return InternedTables(np.eye(n, dtype=np.uint8), np.arange(n + 1), np.cumsum(rows) - rows, rows,
                    rng.normal(size=(rows.sum(), w)))  # fmt: skip


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.sample(2)
def test_flooding_kernels_equal_their_twins_in_every_round(noise):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, r, w = (int(rng.integers(1, most)) for most in (8, 4, 4))
        indptr, indices = draw_graph(rng, n)
        held = draw_held(rng, n, r, w)
        news = held.versions > 0
        for _ in range(n):
            assert_same((news, *held), "concatenate_tables")
            values, rows = plain.concatenate_tables(news, *held)
            values[:, :, 1:] += noise * rng.integers(-1, 2, values.shape)[:, :, 1:]
            values[rng.random(values.shape[:2]) < 0.05 * noise, 0] = rng.choice([-1.0, n, np.nan])
            fresh = (rows[indices] > 0) & (rng.random(len(indices)) < 0.9)
            slots = np.where(fresh, indices, -1)
            case = freeze(values), rows, slots, fresh, indptr, *held
            assert_same(case, "merge_flooded")
            versions, news, found, fits = plain.merge_flooded(*case)
            assert fits
            assert noise or not len(found)
            held = store_tables(held, values, found)._replace(versions=versions)


@FORMS
def test_flooded_tables_reach_a_rank_that_held_none(form):
    held = InternedTables(np.zeros((1, 3), np.uint8), np.zeros(4, int), *np.zeros((2, 0), int), np.zeros((0, 1)))
    tables = np.array([[[1.0, 5.0], [1.0, 6.0], [2.0, 7.0]]])
    one = np.array([3]), np.array([0]), np.array([True]), np.array([0, 1])
    versions, news, found, _ = form.merge_flooded(freeze(tables), *one, *held)
    assert_array_equal(versions, [[0, 1, 1]])
    assert_array_equal(news, versions > 0)
    assert_array_equal(found, [[1, 0, 0, 2], [2, 0, 2, 1]])
    held = store_tables(held, tables, found)
    assert_array_equal(held.store_firsts, [0, 0, 1, 2])
    assert_array_equal(held.store_values[:, 0], [5.0, 6.0, 7.0])


@FORMS
def test_of_tables_that_differ_each_receiver_holds_the_one_that_it_received(form):
    """Device 0 sends its table [5], changed on the way to 1 and 2; 3 receives what 0 holds, 4 hears 1 before 3."""
    held = InternedTables(
        np.eye(5, 1, dtype=np.uint8), np.array([0, 1]), np.zeros(1, int), np.ones(1, int), np.array([[5.0]])
    )
    told = np.array([[[0.0, 5.0]], [[0.0, 6.0]], [[0.0, 6.0]], [[0.0, -0.0]]])
    slots, indptr = np.array([1, 2, 0, 3, 0]), np.array([0, 0, 1, 2, 3, 5])
    versions, _, found, _ = form.merge_flooded(freeze(told), np.ones(4, int), slots, np.ones(5, bool), indptr, *held)
    assert_array_equal(versions[:, 0], [1, 2, 2, 1, 3])
    assert_array_equal(found[:, 1], [1, 3])


@pytest.mark.slow
@FORMS
def test_more_versions_than_a_byte_counts_ask_for_a_wider_number(form):
    n = 300
    held = InternedTables(np.zeros((n, 1), np.uint8), np.zeros(2, int), *np.zeros((2, 0), int), np.zeros((0, 1)))
    told = np.stack((np.zeros(n), np.arange(n)), axis=1)[:, None]
    case = freeze(told), np.ones(n, int), np.arange(n), np.ones(n, bool), np.arange(n + 1)
    assert not form.merge_flooded(*case, *held)[3]
    versions, _, found, fits = form.merge_flooded(*case, *held._replace(versions=held.versions.astype(np.uint16)))
    assert fits
    assert_array_equal(versions[:, 0], 1 + np.arange(n))
    assert len(found) == n


@FORMS
@pytest.mark.sample(2)
def test_a_batch_is_as_many_batches_of_one(form):
    for seed in range(40):
        points, weights, odds, offsets, *rest = kmeans_case(seed)
        k, count, starts, limit, tols, keys, purpose, first = rest
        whole = form.kmeans(points, weights, odds, offsets, *rest)
        for i, own in enumerate(map(slice, offsets[:-1], offsets[1:])):
            part = np.array([0, offsets[i + 1] - offsets[i]])
            its = points[own], weights[own], odds[own], part, k, count, starts, limit  # no weights stay none
            one = form.kmeans(*its, tols[i : i + 1], keys[i : i + 1], purpose, first)
            for a, b in zip(whole, one, strict=True):
                assert_array_equal(a[i : i + 1], b)
        points, weights, offsets, centroids, previous, who, indptr, tables, rows, slots, *rest = gtvmin_case(seed)
        given = points, weights, offsets, centroids, previous, who, indptr, tables, rows, slots, *rest
        whole, _ = form.gtvmin(*given)
        alpha, theta, *options = rest
        for i, own in enumerate(map(slice, offsets[:-1], offsets[1:])):
            links, part = slice(indptr[i], indptr[i + 1]), np.array([0, offsets[i + 1] - offsets[i]])
            mine = centroids[i : i + 1], previous[i : i + 1], np.zeros(int(i in who), np.int64)
            one, _ = form.gtvmin(
                points[own], weights[own], part, *mine, indptr[i : i + 2] - indptr[i], tables, rows, slots[links],
                alpha[links], theta[i : i + 1], *options,
            )  # fmt: skip
            assert_array_equal(whole[i], one[0])


def philox_of_numpy(counter, step, key, purpose):
    """Return one block of numpy's generator, which counts up before it draws its first block."""
    before = (counter + (step << 64) - 1) % 2**256
    return np.random.Philox(counter=before, key=key + (purpose << 64)).random_raw(4)


def test_philox_is_that_of_numpy():
    rng = np.random.default_rng(0)
    words = [0, 1, 2**32, 2**63, 2**64 - 1]
    cases = [(a, b, c, d) for a in words for b in words for c in words for d in (0, 1, 2**64 - 1)]
    cases += [tuple(map(int, row)) for row in rng.integers(0, 2**64, (50, 4), dtype=np.uint64)]
    for counter, step, key, purpose in cases:
        expected = philox_of_numpy(counter, step, key, purpose)
        assert_array_equal(plain.philox(counter, step, key, purpose)[0], expected)
        assert_array_equal(_philox(*map(np.uint64, (counter, step, key, purpose))), expected)


def test_uniforms_are_the_upper_bits_of_the_stream():
    key, purpose, step = 2**63 + 12345, 7, 3
    expected = np.concatenate([philox_of_numpy(block, step, key, purpose) for block in range(5)])[:18]
    draws = plain.uniforms(key, purpose, [0, step], 18)
    assert draws.shape == (2, 18)
    assert_array_equal(draws[1], (expected >> np.uint64(11)) * 2.0**-53)
    assert_array_equal(draws[1], [_uniform(np.uint64(key), purpose, step, number) for number in range(18)])
    many = plain.uniforms(key, purpose, range(500), 40)
    assert 0.0 <= many.min() < 0.001
    assert 0.999 < many.max() < 1.0
    assert abs(many.mean() - 0.5) < 0.01
    assert len(np.unique(many)) == many.size


def lloyd(points, weights, centroids):
    """Run plain Lloyd steps to unchanged labels; return centroids, labels, cost and whether a cluster emptied."""
    labels = np.full(len(points), -1)
    for _ in range(300):
        distances = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
        before, labels = labels, distances.argmin(axis=1)
        members = np.bincount(labels, minlength=len(centroids))
        if (members == 0).any() or np.array_equal(before, labels):
            break
        centroids = np.array([
            np.average(points[labels == c], axis=0, weights=weights[labels == c]) for c in range(len(centroids))
        ])
    return centroids, labels, (weights * distances.min(axis=1)).sum(), (members == 0).any()


@FORMS
@pytest.mark.sample(2)
def test_kmeans_is_that_of_scikit_learn_from_the_same_seeds(form):
    compared = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        k, d = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        points, weights = rng.normal(0, 3, (60, d)), rng.uniform(0.5, 2, 60)
        fixed = points, weights, weights, np.array([0, 60]), k, trials(k), 1
        keys = np.array([seed], np.uint64)
        seeds, _, _ = form.kmeans(*fixed, 0, np.zeros(1), keys, 1, 0)
        centroids, counts, costs = form.kmeans(*fixed, 300, np.zeros(1), keys, 1, 0)
        assert not [row for row in seeds[0] if not (points == row).all(axis=1).any()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            oracle = KMeans(k, init=seeds[0], n_init=1, algorithm="lloyd", tol=0.0, max_iter=300).fit(
                points, sample_weight=weights
            )
        naive, labels, cost, emptied = lloyd(points, weights, seeds[0])
        if emptied:
            continue
        compared += 1
        assert costs[0] <= oracle.inertia_ * (1 + 1e-9)
        assert costs[0] == pytest.approx(cost, rel=1e-9)
        assert_allclose(centroids[0], naive, rtol=1e-9, atol=1e-12)
        assert_array_equal(form.losses(points, weights, np.array([0, 60]), centroids)[1], oracle.labels_)
        assert_allclose(counts[0], np.bincount(labels, weights, k))
    assert compared > 30


@FORMS
def test_weighted_points_are_repeated_points(form):
    compared = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        points, times, k = rng.integers(-20, 20, (25, 2)).astype(float), rng.integers(1, 5, 25), int(rng.integers(1, 5))
        rest = k, trials(k), 1, 300, np.zeros(1), np.array([seed], np.uint64), 1, 0
        mass = times.astype(float)
        heavy = form.kmeans(points, mass, mass, np.array([0, 25]), *rest)
        repeated = np.repeat(points, times, axis=0)
        ones = np.ones(len(repeated))
        light = form.kmeans(repeated, ones, ones, np.array([0, len(repeated)]), *rest)
        start, _, _ = form.kmeans(points, mass, mass, np.array([0, 25]), k, trials(k), 1, 0, *rest[4:])
        if not lloyd(points, times, start[0])[3]:
            compared += 1
            for a, b in zip(heavy, light, strict=True):
                assert_allclose(a, b, rtol=1e-12)
    assert compared > 50


@FORMS
def test_the_best_of_several_starts_wins_and_the_first_on_ties(form):
    rng = np.random.default_rng(5)
    points, weights, offsets, keys = rng.normal(size=(40, 2)), np.ones(40), np.array([0, 40]), np.array([9], np.uint64)
    own = points, weights, weights, offsets
    singles = [form.kmeans(*own, 6, 1, 1, 300, np.zeros(1), keys, 1, first) for first in range(3, 11)]
    best = min(singles, key=lambda one: one[2][0])
    found = form.kmeans(*own, 6, 1, 8, 300, np.zeros(1), keys, 1, 3)
    for a, b in zip(found, best, strict=True):
        assert_array_equal(a, b)
    assert len({float(one[2][0]) for one in singles}) > 1


@FORMS
def test_fewer_distinct_points_than_clusters_leave_rows_absent(form):
    points = np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0], [1.0, 2.0]])
    offsets, keys = np.array([0, 4, 4]), np.array([1, 2], np.uint64)
    ones = np.ones(4)
    centroids, counts, costs = form.kmeans(points, ones, ones, offsets, 4, 3, 5, 300, np.zeros(2), keys, 1, 0)
    assert_array_equal(np.sort(centroids[0, :2], axis=0), [[1.0, 2.0], [5.0, 5.0]])
    assert np.isposinf(centroids[0, 2:]).all()
    assert np.isposinf(centroids[1]).all()
    assert_array_equal(np.sort(counts[0]), [0, 0, 1, 3])
    assert_array_equal(counts[1], 0)
    assert_array_equal(costs, 0)


def test_an_empty_cluster_takes_the_point_of_largest_weighted_distance():
    points, centroids = np.array([[0.0], [1.0], [10.0]]), np.array([[0.0], [100.0], [200.0]])
    found, counts, cost = run_lloyd(points, np.ones(3), 300, 0.0, True, centroids.copy())
    assert_array_equal(found[:, 0], [0.0, 10.0, 1.0])  # 10 is the farthest, then 1; the last point is not taken away
    assert_array_equal(counts, 1)
    assert cost == 0.0
    found, _, _ = run_lloyd(points, np.array([1.0, 200.0, 1.0]), 1, 0.0, True, centroids[:2].copy())
    assert found[1, 0] == 1.0  # 200 x 1 is more than 1 x 100
    for seed in range(200):
        rng = np.random.default_rng(seed)
        points, rows = rng.normal(0, 2, (int(rng.integers(1, 9)), 2)).round(), int(rng.integers(1, 6))
        weights, start = rng.uniform(0.5, 3, len(points)), rng.normal(0, 20, (rows, 2)).round()
        mine, whole = int(rng.choice([0, 1, 2, 300])), np.array([0, len(points)])
        twin = compiled.refine(points, weights, whole, start[None], np.array([rows]), mine, np.zeros(1), True)
        for a, b in zip(twin, run_lloyd(points, weights, mine, 0.0, True, start), strict=True):
            assert_array_equal(a[0], b)


@pytest.mark.slow
def test_arrays_on_disk_of_other_types_are_told_apart(tmp_path):
    for dtype in ("float64", "float32"):
        np.save(tmp_path / "points.npy", np.array([[0.1], [2.0], [8.0], [12.0]], dtype))
        points = np.load(tmp_path / "points.npy", mmap_mode="r")
        case = points, np.ones(4), np.array([0, 1, 4]), np.array([2.0])
        assert_array_equal(compiled.moments(*case)[:, 1], [float(points[0, 0]) - 2.0, 16.0])
        assert_same(case, "moments")


def test_arrays_of_any_layout_share_one_compilation():
    rng = np.random.default_rng(5)
    points, weights, offsets, keys = (
        rng.normal(size=(50, 9)),
        np.ones(50),
        np.array([0, 25, 50]),
        np.arange(2, dtype="u8"),
    )
    wide = rng.normal(size=(2, 4, 7))
    views = (points[:, 2:7].copy(), wide[:, :, :5].copy()), (points[:, 2:7], wide[:, :, :5])
    found, counts = [], []
    for own, sets in (*views, tuple(map(np.asfortranarray, views[0])), tuple(map(freeze, views[0]))):
        rows, tols = np.full(2, 4), np.zeros(2)
        found.append((
            *compiled.losses(own, weights, offsets, sets),
            *compiled.evaluate_costs(own, weights, offsets, rows, 0, sets),
            *compiled.refine(own, weights, offsets, sets, rows, 3, tols, True),
            *compiled.kmeans(own, weights, weights, offsets, 4, 2, 1, 3, tols, keys, 1, 0),
        ))  # fmt: skip
        counts.append([
            len(compiled.entry(name).signatures) for name in ("losses", "evaluate_costs", "refine", "kmeans")
        ])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            assert_array_equal(one, same)
    assert_array_equal(found[0][1], plain.losses(*views[0][:1], weights, offsets, views[0][1])[1])
    assert counts.count(counts[0]) == len(counts)
