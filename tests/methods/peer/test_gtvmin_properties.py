"""What must hold for GTVMin on any instance: fixed points, symmetries, scikit-learn's Lloyd on the augmented set."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import p2pkm
from p2pkm.methods.schedules import asynchronous, colored
from tests.support.play_rounds import arrange, last, objective, play, points_of, random_links, squared, variation
from tests.support.sampling import thin

SCHEDULES = [("jacobi", 1.0, 1), ("jacobi", 0.6, 1), ("colored", 1.5, 1), ("colored", 1.0, 1), ("async", 1.5, 1)]
seeds = st.integers(0, 2**32 - 1)


def method(k, alpha, schedule="jacobi", relaxation=1.0, local_steps=1, **options):
    return p2pkm.GTVMin(
        k, alpha=alpha, schedule=schedule, relaxation=relaxation, local_steps=local_steps, tol=0.0, **options
    )


def instance(seed, k=3, d=2, least=0, n=None):
    """Return data (devices without points too), links with weights and starting centroids."""
    rng = np.random.default_rng(seed)
    n = n or int(rng.integers(2, 7))
    data = [rng.normal(0, 3, (int(rng.integers(max(4, least), 12)), d)) for _ in range(n)]
    if least == 0 and n > 2:
        data[2] = np.zeros((0, d))
    data[0] = rng.normal(0, 3, (6, d))
    return data, random_links(rng, n, connected=True), rng.normal(0, 3, (n, k, d)), rng


def sweep(data, links, start, setting, alpha, rounds=4):
    """Return the centroids after some rounds of one schedule."""
    return last(method(len(start[0]), alpha, *setting), arrange(data, links, d=2), start, rounds)


def settle(data, links, start, setting, alpha=0.7):
    """Return the centroids after some rounds, if nothing was tied on the way: there rounding decides."""
    table = arrange(data, links, d=2)
    history, _ = play(method(3, alpha, *setting), table, start, 4)
    assume(not any(tied(table.devices, centroids) for centroids in history[:-1]))
    return history[-1]


def tied(own, centroids):
    """Return whether something has two nearest centroids."""
    sides = [(points_of(own, i), centroids[i]) for i in range(len(own))]
    source = np.repeat(np.arange(len(own)), own.degrees)
    sides += [(centroids[i], centroids[j]) for i, j in zip(source, own.indices, strict=True)]
    gaps = [np.diff(np.sort(squared(*side), axis=1)[:, :2], axis=1) for side in sides]
    return min(gap.min(initial=np.inf) for gap in gaps) < 1e-6


def lloyd(points, weights, centroids):
    """Return scikit-learn's centroids after Lloyd to convergence, None if a cluster empties on the way."""
    for steps in range(1, 100):
        labels = squared(points, centroids).argmin(axis=1)
        if np.bincount(labels, minlength=len(centroids)).min() == 0:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = KMeans(len(centroids), init=centroids, n_init=1, max_iter=1, tol=0.0, algorithm="lloyd").fit(
                points, sample_weight=weights
            )
        before, centroids = centroids, fitted.cluster_centers_
        if steps > 1 and abs(before - centroids).max() < 1e-13:
            return centroids
    raise AssertionError("Lloyd did not end")


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["jacobi", "colored"])
def test_without_links_every_device_runs_lloyd(schedule):
    compared = 0
    for seed in range(12):
        data, links, start, rng = instance(seed, least=6)
        start = np.array([points[rng.choice(len(points), 3, replace=False)] for points in data])
        found = last(method(3, 0.0, schedule), arrange(data, links), start, 40)
        for points, first, centroids in zip(data, start, found, strict=True):
            expected = lloyd(points, None, first)
            if expected is not None:
                compared += 1
                assert_allclose(centroids, expected, atol=1e-10)
    assert compared > 24


@pytest.mark.parametrize(("setting", "seed"), thin(product(SCHEDULES, range(2)), 2))
@pytest.mark.sample(3)
def test_one_cluster_reaches_the_solution_of_the_linear_system(setting, seed):
    data, links, start, _ = instance(seed, k=1, n=5)
    table, alpha = arrange(data, links), 0.8
    found = sweep(data, links, start, setting, alpha, rounds=400 if setting[0] == "colored" else 800)[:, 0]
    laplacian = np.zeros((len(data), len(data)))
    for i, j, weight in links:
        laplacian[[i, j], [i, j]] += alpha * weight
        laplacian[[i, j], [j, i]] -= alpha * weight
    sizes = np.array([len(points) for points in data])
    sums = np.array([points.sum(axis=0) for points in data])
    assert_allclose(found, np.linalg.solve(np.diag(sizes) + 2 * laplacian, sums), atol=1e-8)
    assert_allclose(sizes @ found, sums.sum(axis=0), atol=1e-7)
    assert table.devices.total_weight == sizes.sum()


@pytest.mark.slow
def test_one_cluster_tends_to_the_pooled_mean_as_alpha_grows():
    data, links, start, _ = instance(3, k=1, n=3)
    mean, errors = np.concatenate(data).mean(axis=0), []
    for alpha in (10.0, 40.0, 160.0):
        found = last(method(1, alpha, "colored", 1.8), arrange(data, links), start, 1500)
        errors.append(abs(found[:, 0] - mean).max())
    assert errors[2] < 0.02
    assert_allclose(np.array(errors[:-1]) / errors[1:], 4.0, rtol=0.15)  # O(1 / alpha)


@given(seeds, st.sampled_from([0.01, 0.5, 20.0]), st.booleans())
def test_a_centroid_stays_in_the_box_of_own_points_and_neighbors_centroids(seed, alpha, star):
    data, links, start, _ = instance(seed)
    table = arrange(data, links, d=2)
    found = last(method(3, alpha, star_term=star), table, start, 1)
    own = table.devices
    for i in range(len(own)):
        theirs = start[own.indices[own.indptr[i] : own.indptr[i + 1]]].reshape(-1, 2)
        around = np.concatenate((points_of(own, i), theirs))
        recomputed = found[i][(found[i] != start[i]).any(axis=1)]
        assert (recomputed >= around.min(axis=0) - 1e-12).all()
        assert (recomputed <= around.max(axis=0) + 1e-12).all()
        assert star is False or len(recomputed) == 3


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 0.3, 4.0])
def test_without_the_star_term_a_device_runs_lloyd_on_the_augmented_set(alpha):
    compared = 0
    for seed in range(40):
        data, links, start, rng = instance(seed, least=6)
        start[0] = data[0][rng.choice(len(data[0]), 3, replace=False)]
        table = arrange(data, [(i, j) for i, j, _ in links])
        history, state = play(method(3, alpha, star_term=False), table, start, 0)
        own, algorithm = table.devices, method(3, alpha, star_term=False, local_steps=40)
        inbox = table.network.exchange(algorithm.message(state, own))
        awake = np.arange(len(own)) == 0
        moved = algorithm.update(state, inbox, own.at_turn(1, 0, awake)).centroids
        assert_array_equal(moved[1:], history[0][1:])
        rows = start[own.indices[: own.indptr[1]]].reshape(-1, 2)
        weights = np.concatenate((np.ones(len(data[0])), np.full(len(rows), alpha)))
        expected = lloyd(np.concatenate((data[0], rows)), weights, start[0])
        if expected is not None:
            compared += 1
            assert_allclose(moved[0], expected, atol=1e-10)
    assert compared > 30


@given(seeds, st.sampled_from(SCHEDULES))
def test_translation_and_rotation_carry_over(seed, setting):
    data, links, start, rng = instance(seed)
    found = settle(data, links, start, setting)
    shift, angle = rng.normal(0, 10, 2), rng.uniform(0, 7)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = sweep([x @ turn + shift for x in data], links, start @ turn + shift, setting, 0.7)
    assert_allclose(moved, found @ turn + shift, atol=1e-9)


@given(seeds, st.sampled_from(SCHEDULES), st.sampled_from([0.125, 3.7, 100.0]))
def test_scaling_carries_over_and_the_objective_grows_with_its_square(seed, setting, s):
    data, links, start, _ = instance(seed)
    found = settle(data, links, start, setting)
    scaled = sweep([s * x for x in data], links, s * start, setting, 0.7)
    assert_allclose(scaled, s * found, atol=1e-9 * s)
    tables = [arrange([r * x for x in data], links) for r in (1.0, s)]
    one, other = (objective(method(3, 0.7), table, w) for table, w in zip(tables, (found, scaled), strict=True))
    assert other == pytest.approx(s * s * one, rel=1e-9)
    assert one > 0


@given(seeds, st.sampled_from(SCHEDULES), st.integers(2, 5))
def test_each_point_r_times_with_r_alpha_gives_the_same_centroids(seed, setting, r):
    data, links, start, _ = instance(seed)
    found = settle(data, links, start, setting)
    assert_allclose(sweep([np.repeat(x, r, axis=0) for x in data], links, start, setting, 0.7 * r), found, atol=1e-9)
    weighted = arrange(data, links, weights=np.full(sum(map(len, data)), float(r)))
    assert_allclose(last(method(3, 0.7 * r, *setting), weighted, start, 4), found, atol=1e-9)


@given(seeds, st.sampled_from(SCHEDULES))
def test_the_order_of_rows_does_not_matter_without_ties(seed, setting):
    data, links, start, rng = instance(seed)
    orders = np.array([rng.permutation(3) for _ in data])[:, :, None]
    found = settle(data, links, start, setting)
    permuted = sweep(data, links, np.take_along_axis(start, orders, axis=1), setting, 0.7)
    assert_allclose(permuted, np.take_along_axis(found, orders, axis=1), atol=1e-9)


@given(seeds, st.sampled_from(SCHEDULES))
def test_an_isolated_device_is_neutral_at_raw_alpha(seed, setting):
    data, links, start, rng = instance(seed)
    found = settle(data, links, start, setting)
    points, row = rng.normal(0, 3, (7, 2)), rng.normal(0, 3, (1, 3, 2))
    with_it = sweep([*data, points], links, np.concatenate((start, row)), setting, 0.7)
    assert_array_equal(with_it[:-1], found)
    assert (with_it[-1] != row[0]).any()


@given(seeds, st.sampled_from(SCHEDULES))
def test_renaming_devices_renames_their_centroids(seed, setting):
    data, links, start, rng = instance(seed)
    name = rng.permutation(len(data))  # device i is called name[i]
    place = np.argsort(name)
    table = arrange(data, links, d=2)
    renamed = arrange([data[i] for i in place], [(name[i], name[j], w) for i, j, w in links], d=2)
    settle(data, links, start, setting)
    kind, algorithm, schedule, other = setting[0], method(3, 0.7, *setting), None, None
    if kind == "colored":
        schedule = colored(table.devices, table.topology.colors)
        other = colored(renamed.devices, table.topology.colors[place])
    if kind == "async":
        schedule, other = asynchronous(table.devices), asynchronous(renamed.devices, place)
    found, _ = play(algorithm, table, start, 4, schedule)
    again, _ = play(algorithm, renamed, start[place], 4, other)
    assert_allclose(again[:, name], found, rtol=1e-12, atol=1e-12)


@given(seeds, st.integers(1, 4), st.integers(1, 4))
def test_the_variation_is_symmetric_and_zero_for_equal_sets_only(seed, rows, others):
    rng = np.random.default_rng(seed)
    pair = np.full((2, 4, 2), np.inf)
    pair[0, :rows], pair[1, :others] = rng.integers(0, 2, (rows, 2)), rng.integers(0, 2, (others, 2))
    own = arrange([np.zeros((1, 2))] * 2, [(0, 1)]).devices
    values = [
        own.kernels.gtv(sets, own.ids, own.indptr, own.indices, own.indices) for sets in (pair, pair[::-1].copy())
    ]
    assert_array_equal(*values)
    assert_allclose(values[0], [variation(pair[0, :rows], pair[1, :others]), 0.0])
    sets = [{tuple(row) for row in table if np.isfinite(row).all()} for table in pair]
    assert (values[0][0] == 0.0) == (sets[0] == sets[1])


def test_absent_rows_match_nothing_are_not_said_and_stay_absent():
    data, links, start, _ = instance(1)
    start[0, 1] = start[1, [0, 2]] = start[2] = np.inf
    for setting in SCHEDULES:
        table = arrange(data, links, d=2)
        history, _ = play(method(3, 0.7, *setting), table, start, 3)
        for centroids in history:
            assert_array_equal(np.isposinf(centroids), np.isposinf(start))
        spoken = table.network.ledger.exchanges[0].rows
        assert_array_equal(spoken, np.isfinite(start[:, :, 0]).sum(axis=1))
        packed = [row[np.isfinite(row[:, 0])] for row in start]
        for i, rows in enumerate(packed[:2]):  # a device alone on its rows: the same numbers as with them in front
            moved = start.copy()
            moved[i] = np.inf
            moved[i, : len(rows)] = rows
            again, _ = play(method(3, 0.7, *setting), table, moved, 3)
            assert_allclose(np.sort(again[-1], axis=1), np.sort(history[-1], axis=1), rtol=1e-12)
