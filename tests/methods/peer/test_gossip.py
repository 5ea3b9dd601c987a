"""Gossip matching: maximal matchings, meetings with known numbers, and a twin that tries every pairing."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import philox
from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.methods.peer.gossip import GossipMatching, average_pair
from tests.support.averages import GRAPHS, column, deal, draw, scene, seeds, states, sums
from tests.support.play_rounds import arrange


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def run(table, start, rounds, **options):
    k = np.shape(start)[1]
    return states(GossipMatching(k, **{"share": 0.5} | options).on(table.topology), table, start, rounds)


def links_of(topology):
    return list(zip(topology.sources.tolist(), topology.indices.tolist(), strict=True))


@given(seeds, st.integers(1, 5))
def test_a_matching_is_maximal_and_takes_links_in_ascending_key(graph, t):
    table, _ = draw(graph)
    topology, key = table.topology, table.devices.shared_key
    partner = match(topology, key, t)
    links = [(i, j) for i, j in links_of(topology) if i < j]
    draws = {link: int(philox(link[0] * topology.n + link[1], t, key, Stream.MATCH)[0, 0]) for link in links}
    expected = np.full(topology.n, -1)
    for i, j in sorted(links, key=draws.get):
        if expected[i] < 0 and expected[j] < 0:
            expected[i], expected[j] = j, i
    assert_array_equal(partner, expected)
    assert not any(partner[i] < 0 and partner[j] < 0 for i, j in links)


def test_matchings_differ_from_round_to_round_and_seed_to_seed():
    n, links = 40, [(i, (i + 1) % 40) for i in range(40)]
    tables = [arrange(deal(n, empty=False), links, seed=seed) for seed in (0, 1)]
    found = np.array([[match(one.topology, one.devices.shared_key, t) for t in range(1, 101)] for one in tables])
    assert len(np.unique(found.reshape(200, n), axis=0)) > 190
    assert (found >= 0).any(axis=1).all()
    assert 0.8 < (found >= 0).mean() < 0.92  # random greedy on a ring joins 1 - e^-2 of the devices


def test_two_devices_first_rounds_and_limit():
    # c = (2, 1); halfway to the own mean: 1/2 and 5; met at 2; blended with 3/2 each: 10/7 (7/4) and 26/5 (5/4)
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    found, _ = run(table, np.zeros((2, 1, 1)), 60)
    close(found[0].blended[:, 0], [[0.5, 2], [5, 1]])
    close(found[1].centroids.ravel(), [2, 2])
    close(found[1].blended[:, 0], [[10 / 7, 7 / 4], [26 / 5, 5 / 4]])
    close([found[t].centroids[0, 0, 0] for t in (2, 3, 60)], [3, 3.5, 4])
    assert_array_equal(found[0].centroids, 0.0)


def pairings(mine, theirs):
    """Return the cheapest pairing of the rows of two tables by trying all, as (i, j)."""
    short, long = (mine, theirs) if len(mine) <= len(theirs) else (theirs, mine)
    cost = lambda order: sum(((short[a, :-1] - long[b, :-1]) ** 2).sum() for a, b in enumerate(order))  # noqa: E731
    best = min(permutations(range(len(long)), len(short)), key=cost)
    return [(a, b) if short is mine else (b, a) for a, b in enumerate(best)]


def twin(data, topology, key, start, rounds, share):
    """Return the centroids after so many rounds, by plain loops."""
    w = np.array(start)
    c = np.array([sums(points, rows)[:, -1] for points, rows in zip(data, w, strict=True)])
    for t in range(1, rounds + 1):
        for i, points in enumerate(data):
            own = sums(points, w[i])
            for row in np.flatnonzero(own[:, -1] + c[i] > 0):
                weight = share * own[row, -1] + (1 - share) * c[i, row]
                w[i, row] = (share * own[row, :-1] + (1 - share) * c[i, row] * w[i, row]) / weight
            c[i] = (1 - share) * c[i] + share * own[:, -1]
        for i, j in enumerate(match(topology, key, t)):
            if i < j:
                bring_together(w, c, i, j)
    return w


def bring_together(w, c, i, j):
    real = [np.flatnonzero(w[end][:, 0] < np.inf) for end in (i, j)]
    ends = [np.column_stack((w[end], c[end]))[rows] for end, rows in zip((i, j), real, strict=True)]
    for p, q in pairings(*ends):
        a, b = real[0][p], real[1][q]
        weight = c[i, a] + c[j, b]
        if weight > 0:
            w[i, a] = w[j, b] = (c[i, a] * w[i, a] + c[j, b] * w[j, b]) / weight
            c[i, a] = c[j, b] = weight / 2


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("share", [0.5, 0.04])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sample(5)
def test_the_twin_finds_the_same(name, share, kernels):
    data, _, table, start = scene(name, kernels=kernels)
    found, _ = run(table, start, 5, share=share)
    expected = twin(data, table.topology, table.devices.shared_key, start, 5, share)
    assert_allclose(found[-1].centroids[:, :3], expected[:, :3], atol=1e-9)
    assert np.isinf(found[-1].centroids[:, 3]).all()


@given(seeds)
def test_a_meeting_leaves_both_ends_equal_and_keeps_what_they_had(graph):
    table, start = draw(graph)
    start[np.isinf(start)] = 7.0  # all rows are there
    found, _ = run(table, start, 4)
    for t, (before, after) in enumerate(pairwise(found), 1):
        for i, j in enumerate(match(table.topology, table.devices.shared_key, t)):
            if i < j:
                meetings = [
                    average_pair(before.blended[a], before.blended[b], first=a == i) for a, b in ((i, j), (j, i))
                ]
                assert_array_equal(after.centroids[i], meetings[0][:, :-1])
                assert_array_equal(after.centroids[j], meetings[1][:, :-1])
                known = [one[one[:, -1] > 0] for one in meetings]
                rows = [one[np.lexsort(one.T)] for one in known]
                assert_array_equal(*rows)  # bit for bit
                had = np.concatenate((before.blended[i], before.blended[j]))
                assert_allclose(had[:, -1].sum(), 2 * rows[0][:, -1].sum(), atol=1e-11)
                kept = 2 * (rows[0][:, -1:] * rows[0][:, :-1]).sum(axis=0)
                assert_allclose((had[:, -1:] * had[:, :-1]).sum(axis=0), kept, atol=1e-10)
            elif j < 0:
                assert_array_equal(after.centroids[i], before.blended[i][:, :-1])


def test_rows_held_in_another_order_are_paired():
    mine, theirs = np.array([[0, 1], [10, 3]], float), np.array([[12, 1], [2, 1]], float)
    close(average_pair(mine, theirs, first=True), [[1, 1], [10.5, 2]])
    close(average_pair(theirs, mine, first=False), [[10.5, 2], [1, 1]])


def test_ties_fall_alike_at_both_ends():
    # all pairings of 2 and 3 with the two 1 cost the same, and the transposed problem has another of them as answer
    mine, theirs = np.array([[3, 1], [2, 2], [2, 4]], float), np.array([[1, 8], [1, 16], [0, 32]], float)
    for first in (True, False):
        one, other = average_pair(mine, theirs, first=first), average_pair(theirs, mine, first=not first)
        assert_array_equal(one[np.argsort(one[:, 1])], other[np.argsort(other[:, 1])])


def test_rows_without_a_partner_or_any_confidence_stay_and_absent_ones_meet_nobody():
    mine = np.array([[np.inf, 0], [0, 1], [50, 2], [8, 0]])
    close(average_pair(mine, np.array([[2.0, 3.0], [9.0, 0.0]]), first=True), [[np.inf, 0], [1.5, 2], [50, 2], [8, 0]])
    close(average_pair(mine, np.zeros((0, 2)), first=False), mine)


def test_a_device_without_points_takes_what_the_other_knows():
    table = arrange([column(0, 2), np.zeros((0, 1))], [(0, 1)])
    found, _ = run(table, np.full((2, 1, 1), 9.0), 1)
    close(found[0].blended[:, 0], [[5, 2], [9, 0]])
    close(found[1].centroids.ravel(), [5, 5])


def test_a_device_alone_goes_halfway_to_its_means():
    table = arrange([column(0, 2, 10)], [])
    found, said = run(table, [column(3, 20)], 40)
    close(found[1].centroids[0], column(3.5, 20))  # 3 keeps 0, 2 and 10: mean 4
    close(found[40].centroids[0], column(4, 20))
    assert_array_equal([messages.rows for messages in said], 2)  # to nobody, but it is not done


def test_only_the_two_of_a_meeting_hear_each_other():
    n, links = 9, [(i, (i + 1) % 9) for i in range(9)]
    start = np.random.default_rng(0).normal(0, 3, (n, 3, 2))
    for data_too in (False, True):
        other = start.copy()
        data = deal(n, empty=False)
        stirred = [points + data_too * (i == 4) for i, points in enumerate(data)]
        other[4] += 0.0 if data_too else 1.0
        table = arrange(data, links)
        calm, moved = run(table, start, 2)[0], run(arrange(stirred, links), other, 2)[0]
        reached = {4}
        for t in (1, 2):
            partner = match(table.topology, table.devices.shared_key, t)
            reached |= {int(partner[i]) for i in reached} - {-1}
            changed = np.flatnonzero((calm[t].centroids != moved[t].centroids).any(axis=(1, 2)))
            assert set(changed) == reached


def test_messages_by_hand():
    n, links = 5, [(i, i + 1) for i in range(4)]
    data, start = deal(n, empty=False), np.random.default_rng(0).normal(size=(n, 3, 2))
    start[2, 1] = np.inf
    table = arrange(data, links)
    _, said = run(table, start, 4)
    rows = np.array([3, 3, 2, 3, 3])
    for t, messages in enumerate(said, 1):
        partner = match(table.topology, table.devices.shared_key, t)
        assert_array_equal(messages.rows, np.where(partner >= 0, rows, -1))
        pairs = [link for link, goes in zip(links_of(table.topology), messages.edges, strict=True) if goes]
        assert pairs == [(i, j) for i, j in enumerate(partner) if j >= 0]
    spoken = [match(table.topology, table.devices.shared_key, t) >= 0 for t in (1, 2, 3, 4)]
    assert table.network.ledger.totals == (np.sum(spoken), sum(rows[one].sum() for one in spoken) * 3 * 8)


def test_settled_means_that_no_coordinate_moved():
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    scale = table.devices.data_std
    for tol, converged in ((2.01, True), (1.99, False)):  # from 0 to 2
        found, _ = run(table, np.zeros((2, 1, 1)), 1, tol=tol / scale)
        assert_array_equal(found[1].converged, converged)
        assert not found[0].converged.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"share": 0.0}, "share is 0.0; expected a finite number above 0 and at most 1"),
        ({"tol": -1.0}, "tol is -1.0; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        GossipMatching(**{"k": 3} | options)


def test_defaults():
    method = GossipMatching(3)
    assert (method.schedule, str(method.init)) == ("jacobi", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol, method.share) == ("gossip", 150, 1e-5, 0.04)
