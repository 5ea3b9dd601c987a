"""Swaps: the choice against brute force, the escape from a trap, and the guarantee for (7)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.messages import DenseMessages, pack
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.centroid_swaps import best_swap, local_objective, swap_centroids
from tests.methods.peer.test_gtvmin_descent import draw, objectives
from tests.support.play_rounds import arrange, last, loss, play, points_of, random_links, squared, variation

seeds = st.integers(0, 2**32 - 1)
LUMPS = [[0.0], [0.1], [10.0], [10.1], [20.0], [20.1]]
TRAP = [[0.0], [0.1], [15.05]]  # two centroids share a lump, one serves two


def hear(table, start):
    """Return what everybody hears after all have said their centroids."""
    table.network.open()
    return table.network.exchange(DenseMessages(*pack(np.array(start, float))))


def eight(table, centroids, i, alpha, others):
    """Return (8) of device i by the textbook; centroids and others without absent rows."""
    devices = table.devices
    links = range(devices.indptr[i], devices.indptr[i + 1])
    total = loss(points_of(devices, i), centroids)
    return total + sum(alpha[e] * variation(centroids, others[devices.indices[e]]) for e in links)


def test_a_trapped_device_moves_a_centroid_to_one_of_its_points():
    table = arrange([LUMPS], [])
    method = p2pkm.GTVMin(3, alpha=1.0, swaps=True)
    assert loss(np.array(LUMPS), last(p2pkm.GTVMin(3, alpha=1.0), table, [TRAP], 30)[0]) > 50
    found, state = play(method, table, [TRAP], 20)
    assert_allclose(np.sort(found[-1][0], axis=0), [[0.05], [10.05], [20.05]])
    assert loss(np.array(LUMPS), found[3][0]) > 50  # nothing happens before the fourth round
    assert loss(np.array(LUMPS), found[4][0]) < 1
    assert state.quiet[0] == 3 and state.converged[0]


def test_a_neighbors_row_is_a_candidate():
    table = arrange([[], LUMPS], [(0, 1)])  # device 0 has no points to draw from
    start = np.array([[[0.0], [0.1], [16.0]], [[0.05], [10.05], [20.05]]])
    inbox, alpha = hear(table, start), np.ones(2)
    moved, better = swap_centroids(table.devices, start, inbox, alpha, np.array([True, False]))
    assert_array_equal(better, [True, False])
    assert_allclose(np.sort(moved[0], axis=0), start[1])
    assert_array_equal(moved[1], start[1])


@given(seeds)
def test_the_swap_is_the_cheapest_removal_and_the_best_gain(seed):
    rng = np.random.default_rng(seed)
    n, k, d = int(rng.integers(1, 5)), int(rng.integers(2, 5)), int(rng.integers(1, 3))
    data = [rng.normal(0, 4, (int(rng.integers(0, 8)) + (i == 0), d)) for i in range(n)]
    table, start = arrange(data, random_links(rng, n), d=d), rng.normal(0, 4, (n, k, d))
    devices, inbox = table.devices, hear(table, start)
    alpha = devices.link_weights
    for i in range(n):
        found = best_swap(devices, i, start[i], inbox, alpha)
        points, links = points_of(devices, i), range(devices.indptr[i], devices.indptr[i + 1])
        draws = uniforms(int(devices.keys[i]), Stream.SWAP, [0], 8)[0]
        drawn = [points[int(u * len(points))] for u in draws if len(points)]
        candidates = [*(row for e in links for row in start[devices.indices[e]]), *drawn]
        if not candidates:
            assert_array_equal(found, start[i])
            continue
        removed = int(np.argmin([eight(table, np.delete(start[i], c, 0), i, alpha, start) for c in range(k)]))
        costs = []
        for candidate in candidates:
            tried = start[i].copy()
            tried[removed] = candidate
            costs.append(eight(table, tried, i, alpha, start))
        assert_array_equal(np.delete(found, removed, 0), np.delete(start[i], removed, 0))
        assert eight(table, found, i, alpha, start) <= min(costs) * (1 + 1e-9) + 1e-9


@given(seeds)
def test_the_own_objective_is_equation_8(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    table = arrange([rng.normal(0, 4, (int(rng.integers(1, 8)), 2)) for _ in range(n)], random_links(rng, n))
    start = rng.normal(0, 4, (n, 3, 2))
    alpha = table.devices.link_weights
    expected = [eight(table, start[i], i, alpha, start) for i in range(n)]
    assert_allclose(local_objective(table.devices, start, hear(table, start), alpha), expected)


def test_what_does_not_help_is_not_kept():
    best = np.array([[[0.05], [10.05], [20.05]]])
    table = arrange([LUMPS], [])
    moved, better = swap_centroids(table.devices, best, hear(table, best), np.zeros(0), np.array([True]))
    assert not better.any()
    assert_array_equal(moved, best)


def test_absent_rows_stay_absent_and_a_single_row_stays():
    table = arrange([LUMPS], [])
    for row in (5.0, np.inf):
        start = np.array([[[np.inf], [row], [np.inf]]])
        moved, better = swap_centroids(table.devices, start, hear(table, start), np.zeros(0), np.array([True]))
        assert_array_equal(moved, start)
        assert not better.any()
    start = np.array([[[0.0], [np.inf], [0.1]]])
    moved, better = swap_centroids(table.devices, start, hear(table, start), np.zeros(0), np.array([True]))
    assert better[0] and np.isinf(moved[0, 1, 0]) and np.isfinite(moved[0, [0, 2]]).all()


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["colored", "async"])
def test_the_objective_never_rises_with_swaps(schedule):
    swapped = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        k, d = int(rng.integers(2, 5)), int(rng.integers(1, 4))
        data, links, start, mass, component = draw(seed, k, d)
        table = arrange(data, links, d=d, weights=mass, seed=seed)
        method = p2pkm.GTVMin(k, alpha=1.0, schedule=schedule, relaxation=1.5, tol=0.0, swaps=True)
        assert method.traits.guarantees_descent
        history, _ = play(method, table, start, 9)
        without, _ = play(p2pkm.GTVMin(k, alpha=1.0, schedule=schedule, relaxation=1.5, tol=0.0), table, start, 9)
        swapped += (history[-1] != without[-1]).any()
        seen = objectives(history, table, method, component)
        allowed = 1e-9 * np.maximum(seen[:-1], 1e-9 * seen[0])
        assert (np.diff(seen, axis=0) <= allowed).all()
    assert swapped > 12


def test_news_travel_one_hop_per_round_with_swaps():
    rng, ring = np.random.default_rng(0), [(i, (i + 1) % 13) for i in range(13)]
    data, start = [rng.normal(0, 3, (9, 2)) for _ in range(13)], rng.normal(0, 3, (13, 3, 2))
    stirred = start.copy()
    stirred[6] += 1.0
    method = p2pkm.GTVMin(3, alpha=0.1, schedule="jacobi", swaps=True)
    calm, other = (play(method, arrange(data, ring), one, 5)[0] for one in (start, stirred))
    for t, (a, b) in enumerate(zip(calm, other, strict=True)):
        assert (np.abs(np.flatnonzero((a != b).any(axis=(1, 2))) - 6) <= t).all()
    plain, _ = play(p2pkm.GTVMin(3, alpha=0.1, schedule="jacobi"), arrange(data, ring), start, 5)
    assert (calm[4] != plain[4]).any()


def test_nothing_is_claimed_where_neighbors_swap_at_once():
    assert p2pkm.GTVMin(2, schedule="jacobi").traits.guarantees_descent
    assert not p2pkm.GTVMin(2, schedule="jacobi", swaps=True).traits.guarantees_descent


def test_swaps_rescue_own_seeds():
    rng = np.random.default_rng(0)
    places = squared(np.zeros((1, 1)), np.arange(6.0)[:, None] ** 2)[0]  # far apart
    shards = p2pkm.Shards.from_list([rng.normal(places[:, None], 0.1, (6, 1)).repeat(4, axis=0) for _ in range(6)])
    graph = p2pkm.Topology.from_links(6, np.array([[i, i + 1, 1.0] for i in range(5)]))
    ratios = [
        p2pkm.simulate(p2pkm.GTVMin(6, init="local", swaps=swaps), graph, shards, seed=1).summary["ratio_mean"]
        for swaps in (False, True)
    ]
    assert ratios[0] > 2 * ratios[1]
