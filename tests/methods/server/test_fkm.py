import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans

import p2pkm
from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.kernels import reference as plain
from p2pkm.methods.server.fkm import FKM
from tests.support.sampling import thin
from tests.support.server import clients_of, serve


def squared(a, b):
    return ((np.asarray(a)[:, None] - np.asarray(b)[None]) ** 2).sum(axis=2)


def client_round(points, model, *, keep_empty=False, steps=1, minimum=2):
    """The client's part of Algorithm 1 for one client, by the book."""
    labels = squared(points, model).argmin(axis=1)
    rows = model.copy() if keep_empty else model[[c for c in range(len(model)) if (labels == c).any()]]
    for _ in range(steps):
        distances = squared(points, rows)
        labels, lowest = distances.argmin(axis=1), distances.min(axis=1)
        for c in [c for c in range(len(rows)) if keep_empty and not (labels == c).any()]:
            free = [r for r in range(len(points)) if (labels == labels[r]).sum() > 1 and lowest[r] > 0]
            if free:
                farthest = max(free, key=lambda r: (lowest[r], -r))
                labels[farthest], lowest[farthest] = c, 0.0
        members = [points[labels == c] for c in range(len(rows))]
        rows = np.array([own.mean(axis=0) if len(own) else row for own, row in zip(members, rows, strict=True)])
    counts = np.bincount(squared(points, rows).argmin(axis=1), minlength=len(rows))
    kept = counts >= minimum
    return np.column_stack((rows, counts))[kept]


def blobs(rng, sizes, d=2):
    return [rng.normal(rng.uniform(-8, 8, d), 1.0, (m, d)) for m in sizes]


@pytest.mark.parametrize("options", thin([{}, {"keep_empty": True}, {"local_steps": 3}, {"min_count": 1}], 2))
@pytest.mark.sample(2)
def test_every_uplink_is_that_of_the_naive_client(options):
    naive = {
        "keep_empty": options.get("keep_empty", False),
        "steps": options.get("local_steps", 1),
        "minimum": options.get("min_count", 2),
    }
    for seed in range(20):
        rng = np.random.default_rng(seed)
        data = [*blobs(rng, rng.integers(0, 30, 4)), rng.normal(size=(9, 2))]
        models = [serve(FKM(5, **options), data, rounds=r, seed=seed).model for r in (1, 2)]
        uplinks = serve(FKM(5, **options), data, rounds=3, seed=seed).uplinks
        for model, said in zip(models, uplinks[1:], strict=True):
            for points, table in zip(data, said, strict=True):
                expected = client_round(points, model, **naive) if len(points) else np.zeros((0, 3))
                assert_allclose(table, expected.reshape(-1, 3), rtol=1e-9, atol=1e-9)


def test_the_first_message_counts_points_by_their_nearest_seed():
    rng = np.random.default_rng(1)
    data = blobs(rng, (30, 20))
    for points, table in zip(data, serve(FKM(4, min_count=1), data).uplinks[0], strict=True):
        assert not [row for row in table[:, :2] if not (points == row).all(axis=1).any()]  # seeds are points
        assert_array_equal(table[:, 2], np.bincount(squared(points, table[:, :2]).argmin(axis=1), minlength=4))


@pytest.mark.parametrize("seeding", ["lloyd", "random"])
@pytest.mark.parametrize("steps", [1, 100])
def test_the_first_message_after_lloyd_steps(seeding, steps):
    rng = np.random.default_rng(2)
    data = blobs(rng, (40, 3))
    table = serve(FKM(4, seeding=seeding, local_steps=steps, client_n_init=3, min_count=1), data).uplinks[0][0]
    labels = squared(data[0], table[:, :2]).argmin(axis=1)
    assert_array_equal(table[:, 2], np.bincount(labels, minlength=4))
    if steps == 100:  # converged: every centroid is the mean of its points
        assert_allclose(table[:, :2], [data[0][labels == c].mean(axis=0) for c in range(4)])
    one = serve(FKM(4, seeding=seeding, local_steps=steps, client_n_init=1, min_count=1), data).uplinks[0][0]
    cost = [squared(data[0], rows[:, :2]).min(axis=1).sum() for rows in (table, one)]
    assert cost[0] <= cost[1]


def test_one_round_by_hand():
    """Client 0 says (0, 3) and (10, 2), client 1 says (12, 2) and (1, 4): the server finds 4/7 and 11."""
    data = [[[-1.0], [0.0], [1.0], [9.0], [11.0]], [[12.0], [12.0], [1.0], [1.0], [1.0], [1.0]]]
    devices, _ = clients_of(data)
    tables = [np.array([[0.0, 3.0], [10.0, 2.0]]), np.array([[12.0, 2.0], [1.0, 4.0]])]
    found = np.sort(FKM(2).aggregate(devices, tables, np.full((2, 1), np.inf)), axis=0)
    assert_allclose(found, [[4 / 7], [11.0]])
    unweighted = np.sort(FKM(2, weighted=False).aggregate(devices, tables, np.full((2, 1), np.inf)), axis=0)
    assert_allclose(unweighted, [[0.5], [11.0]])
    model = np.array([[4 / 7], [11.0]])
    said = FKM(2).report(devices.at_turn(1, 1, np.array([True, True, False])), np.stack([model] * 3))
    assert_allclose(said.values[0, :2], [[0.0, 3.0], [10.0, 2.0]])
    assert_allclose(said.values[1, :2], [[1.0, 4.0], [12.0, 2.0]])
    assert_array_equal(said.rows, [2, 2, 0])


def test_the_server_clusters_as_scikit_learn_does_from_the_same_seeds():
    rng = np.random.default_rng(3)
    devices, _ = clients_of([[[0.0, 0.0]]])
    for seed in range(30):
        rows = np.column_stack((rng.normal(0, 4, (25, 2)), rng.integers(2, 40, 25)))
        ones = np.ones(25)
        step = devices.at_turn(seed, 0, devices.active_devices)
        found = FKM(4, server_n_init=1, server_seeding="unweighted").aggregate(step, [rows], np.full((4, 2), np.inf))
        seeds, _, _ = cluster(plain, devices.shared_key, rows[:, :2], rows[:, 2],
                              Search(4, Stream.SERVER, limit=0, first=seed), ones)  # fmt: skip
        oracle = KMeans(4, init=seeds, n_init=1, max_iter=300, tol=1e-4).fit(rows[:, :2], sample_weight=rows[:, 2])
        assert_allclose(found, oracle.cluster_centers_, rtol=1e-9)


def test_the_ledger_on_four_clients_by_hand():
    rng = np.random.default_rng(4)
    data = [*blobs(rng, (20, 12, 7)), np.zeros((0, 2))]
    for rounds in (1, 3):
        played = serve(FKM(3), data, rounds=rounds)
        last = serve(FKM(3), data, rounds=rounds + 1).uplinks[-1]
        rows = sum(len(table) for tables in [*played.uplinks, last] for table in tables)
        assert played.ledger == (4 * (rounds + 1) + 4 * rounds, 8 * (3 * rows + 2 * 3 * 4 * rounds))


@given(st.integers(0, 10_000), st.integers(1, 5), st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any),
       st.sampled_from(["plusplus", "lloyd", "random"]), st.booleans())  # fmt: skip
def test_rows_of_fewer_points_never_leave_a_client(seed, minimum, sizes, seeding, keep):
    rng = np.random.default_rng(seed)
    data = [rng.integers(0, 4, (m, 2)).astype(float) for m in sizes]  # with duplicates
    played = serve(FKM(3, min_count=minimum, seeding=seeding, keep_empty=keep), data, rounds=3, seed=seed, d=2)
    for tables in played.uplinks:
        for points, table in zip(data, tables, strict=True):
            assert (table[:, 2] >= minimum).all()
            assert table[:, 2].sum() <= len(points)


def test_nothing_to_aggregate_leaves_devices_without_centroids_and_later_rounds_keep_the_model():
    data = [np.arange(3.0)[:, None], np.zeros((0, 1))]
    played = serve(FKM(3, min_count=2), data, rounds=3)
    assert len(played.model) == 0
    assert played.ledger == (2 + 3 * 4, 0)
    devices, _ = clients_of(data)
    model = np.array([[1.0], [2.0], [np.inf]])
    assert_array_equal(FKM(3).aggregate(devices, [np.zeros((0, 2))] * 2, model), [[1.0], [2.0]])


def test_fewer_rows_at_the_server_than_clusters():
    data = [np.array([[0.0], [0.0], [0.1]]), np.array([[5.0], [5.0], [5.0]])]
    played = serve(FKM(4, min_count=1), data, rounds=4)
    assert 1 < len(played.model) <= 4


def test_a_run_beats_devices_alone_and_repeats_its_bits():
    X, y = p2pkm.grid16(points=50, seed=0)
    owner = p2pkm.partition.dirichlet(y, 5, alpha=0.3, seed=0)
    shards = p2pkm.Shards.deal(X, owner, devices=5, labels=y)
    one, two = (p2pkm.simulate(p2pkm.FKM(16, tol=0.0), None, shards, rounds=10, seed=0) for _ in range(2))
    assert one.summary["centroids_sha256"] == two.summary["centroids_sha256"]
    assert one.summary["messages"] == 5 * 11 + 5 * 10
    assert one.summary["ratio_mean"] < 1.01 < one.summary["ratio_local_only"]
    assert one.server_centroids.shape == (16, 2)
    assert one.centroids.shape == (5, 16, 2)
    assert_array_equal(one.centroids[3], one.server_centroids)
    assert one.summary["ari_clients"] == one.rounds[-1]["ari_clients"]
    assert one.summary["loss_global"] == pytest.approx(one.summary["ratio_mean"])
    assert one.summary["rows_at_server"] == sum(one.ledger.rows[(one.ledger.turn == 18) & (one.ledger.sender < 5)])
    assert [record["round"] for record in one.rounds] == list(range(11))


@pytest.mark.parametrize(
    "options", [{"seeding": "own"}, {"server_seeding": "x"}, {"client_n_init": 0}, {"min_count": 0}, {"local_steps": 0}]
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ExperimentError, match=next(iter(options))):
        FKM(3, **options)


@pytest.mark.parametrize("seeding", ["weighted", "unweighted"])
def test_the_servers_seeds_heed_the_counts_only_if_asked_to(seeding):
    """One row stands for nearly all points: weighted, it is drawn first; unweighted, as rarely as the others."""
    devices, _ = clients_of([[[0.0]]])
    rows = np.column_stack((np.arange(20.0), np.ones(20)))
    rows[13, 1] = 1e9
    counts = np.ones(20) if seeding == "unweighted" else rows[:, 1]
    for step in range(20):
        found = FKM(4, server_n_init=1, server_seeding=seeding).aggregate(
            devices.at_turn(step, 0, devices.active_devices), [rows], np.full((4, 1), np.inf)
        )
        search = Search(4, Stream.SERVER, tol=1e-4 * rows[:, 0].var(), first=step)
        expected, _, _ = cluster(plain, devices.shared_key, rows[:, :1], rows[:, 1], search, counts)
        assert_array_equal(found, expected[np.isfinite(expected[:, 0])])
        seeds, _, _ = cluster(plain, devices.shared_key, rows[:, :1], rows[:, 1], search._replace(limit=0), counts)
        assert (seeds[0, 0] == 13.0) or seeding == "unweighted"


def test_a_row_of_a_single_point_is_the_clients_own():
    devices, _ = clients_of([[[0.0], [9.0], [9.0]]])
    now, model = devices.at_turn(1, 0, devices.active_devices), np.tile([[0.0], [9.0]], (len(devices), 1, 1))
    local = FKM(2, min_count=2, keep_empty=True).report(now, model).local
    assert np.sort(local[0, :, 0]).tolist() == [0.0, 9.0]


def test_a_row_that_found_no_points_is_none_of_the_clients_own():
    devices, _ = clients_of([[[0.0], [9.0]]])
    now, model = devices.at_turn(1, 0, devices.active_devices), np.tile([[1.0], [8.0], [50.0]], (len(devices), 1, 1))
    report = FKM(3, min_count=1, keep_empty=True).report(now, model)
    assert_array_equal(report.local[0], [[0.0], [9.0], [np.inf]])
    assert report.rows[0] == 2


def test_both_seedings_give_the_better_result():
    rng = np.random.default_rng(5)
    devices, _ = clients_of([[[0.0, 0.0]]])
    model = np.full((4, 2), np.inf)
    for seed in range(20):
        rows = np.column_stack((rng.normal(0, 4, (25, 2)), rng.integers(2, 400, 25)))
        step = devices.at_turn(seed, 0, devices.active_devices)
        results = {
            seeding: FKM(4, server_n_init=1, server_seeding=seeding).aggregate(step, [rows], model)
            for seeding in ("unweighted", "weighted", "both")
        }
        costs = {
            seeding: (rows[:, 2] * ((rows[:, None, :2] - found) ** 2).sum(axis=2).min(axis=1)).sum()
            for seeding, found in results.items()
        }
        assert costs["both"] == min(costs.values())


def test_a_run_ends_when_the_centroids_settle_in_any_order():
    """The order of the rows changes from round to round, as the seeds are drawn anew in each."""
    X, y = p2pkm.grid16(points=30, seed=1)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(480, 4, seed=0), labels=y)
    ended, longer = (p2pkm.simulate(p2pkm.FKM(16, tol=tol), None, shards, rounds=40) for tol in (1e-3, 0.0))
    assert ended.summary["termination"] == "converged" and ended.summary["rounds"] < 20
    assert (longer.summary["termination"], longer.summary["rounds"]) == ("round-limit", 40)
    assert ended.summary["ratio_mean"] == pytest.approx(longer.summary["ratio_mean"], abs=1e-3)


def test_all_devices_settle_as_each_by_itself():
    devices, _ = clients_of([[[0.0], [10.0]]])
    rng = np.random.default_rng(0)
    before = rng.normal(size=(200, 4, 3))
    after = before[:, rng.permutation(4)] + rng.normal(size=(200, 4, 3)) * rng.choice([0.01, 0.1, 1.0], (200, 1, 1))
    after[rng.random((200, 4)) < 0.2] = np.inf
    before[rng.random((200, 4)) < 0.1] = np.inf

    def settles(rows, earlier):
        rows, earlier = (table[np.isfinite(table[:, 0])] for table in (rows, earlier))
        if not len(rows) or not len(earlier):
            return False
        gaps = squared(rows, earlier)
        return max(gaps.min(axis=0).max(), gaps.min(axis=1).max()) <= (0.1 * devices.data_std) ** 2

    expected = [settles(*tables) for tables in zip(after, before, strict=True)]
    assert FKM(4, tol=0.1).has_settled(after, before, np.ones((200, 1, 1)), devices).tolist() == expected
    assert 20 < sum(expected) < 180


def test_settled_by_hand():
    devices, _ = clients_of([[[0.0], [10.0]]])  # data_std 5, so the tolerance is 0.5
    before = np.array([[[0.0], [10.0], [np.inf]]] * 2)
    span = np.ones((2, 1, 1))
    for rows, expected in (
        ([10.4, 0.4, np.inf], True),
        ([10.6, 0.0, np.inf], False),
        ([0.0, 10.0, 5.0], False),
        ([0.1, np.inf, np.inf], False),
        ([np.inf] * 3, False),
    ):
        after = np.array([[[x] for x in rows]] * 2)
        assert FKM(3, tol=0.1).has_settled(after, before, span, devices).tolist() == [expected] * 2
    assert not FKM(3, tol=0.0).has_settled(before, before, span, devices).any()
