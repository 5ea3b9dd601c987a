"""What each device starts from, for every seeding, and on data that is hardly any data."""

from dataclasses import replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known
from p2pkm.core.messages import Inbox
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.init import pipelines, registry
from p2pkm.methods.init.bounding_box import BoundingBox
from p2pkm.methods.init.flooded_summaries import FloodedSummaries
from p2pkm.methods.init.leader_broadcast import Leader, elect
from p2pkm.methods.init.min_id_agreement import MinIdAgreement
from p2pkm.methods.init.pipelines import choosing_stage, imputing_stage, scaling_stage
from p2pkm.methods.init.registry import INITS, InitContext
from p2pkm.methods.init.select_candidate import SelectCandidate
from p2pkm.network.graph import Topology
from tests.support.play_rounds import arrange, loss, play, points_of
from topologies import ring

RING = [(i, (i + 1) % 6) for i in range(6)]


def blobs(*sizes, d=2, seed=0):
    """Return so many points for each device, from three clusters."""
    rng = np.random.default_rng(seed)
    return [rng.normal(rng.integers(0, 3, (size, 1)) * 8.0, 1.0, (size, d)) for size in sizes]


def sow(name, table, k, seed=0, **options):
    """Return the last state of a seeding stage, after as many rounds as a run allows."""
    setting = InitContext(table.topology, table.devices.sizes, shared_key(seed), k, table.devices.d)
    return play(INITS[name](setting, **options)[0], table, np.zeros((len(table.devices), k, 1)),
                table.topology.hops + 2)[1]  # fmt: skip


@pytest.mark.slow
def test_own_seeds_are_distinct_own_points():
    data = [*blobs(9, 5, 0), np.array([[1.0, 1.0]] * 4), *blobs(2, 7)]
    table = arrange(data, RING)
    centroids = sow("local", table, 3).centroids
    for points, rows in zip(data, centroids, strict=True):
        real = rows[np.isfinite(rows[:, 0])]
        assert len(real) == min(3, len(np.unique(points, axis=0)) if len(points) else 0)
        assert not [row for row in real if not (points == row).all(axis=1).any()]
        assert len(np.unique(real, axis=0)) == len(real)
    keys = table.devices.keys
    expected = table.devices.kernels.kmeans(
        table.devices.points,
        table.devices.point_weights,
        table.devices.point_weights,
        table.devices.offsets,
        3,
        1,
        1,
        0,
        np.zeros(len(keys)),
        keys,
        Stream.LOCAL,
        0,
    )
    assert_array_equal(centroids, expected[0])
    assert (sow("local", arrange(data, RING, seed=1), 3).centroids != centroids).any()


@pytest.mark.parametrize("sizes", [(3, 4, 5, 2, 1, 6), (0, 4, 0, 0, 1, 0), (1, 0, 0, 0, 0, 0)])
def test_the_box_is_the_bounding_box_on_every_device(sizes):
    data = blobs(*sizes)
    state, every = sow("bounding-box", arrange(data, RING, seed=4), 3, 4), np.concatenate(data)
    lower, upper = every.min(axis=0), every.max(axis=0)
    assert_array_equal(state.box, np.broadcast_to([lower, upper], (6, 2, 2)))
    places = uniforms(shared_key(4), Stream.BOX, [0], 6).reshape(3, 2)
    assert_allclose(state.centroids, np.broadcast_to(lower + places * (upper - lower), (6, 3, 2)))
    assert_array_equal(state.centroids, np.broadcast_to(state.centroids[:1], (6, 3, 2)))
    assert state.converged.all()


def test_what_lies_beyond_an_empty_table_widens_no_box():
    table = arrange([np.ones((1, 2)), np.zeros((0, 2))], [(0, 1)])
    setting = InitContext(table.topology, table.devices.sizes, shared_key(0), 2, 2)
    (stage,) = INITS["bounding-box"](setting)
    state = stage.initial_state(table.devices, None)
    leftover = Inbox(np.full((2, 2, 2), 7.0), np.array([2, 0]), np.array([1, 0]), np.array([1, 0]))
    after = stage.update(state, leftover, table.devices.at_turn(1, 0, np.ones(2, bool)))
    assert_array_equal(after.box, [np.ones((2, 2)), np.full((2, 2), 7.0)])


def test_the_corners_of_just_enough_points_are_their_mean_and_fewer_have_none():
    data = [np.array([[1.0], [2.0], [9.0]]), np.array([[4.0], [5.0]]), np.array([[1.0], [2.0], [6.0], [9.0]])]
    devices = replace(arrange(data, [(0, 1), (1, 2)]).devices, min_count=3)
    box = BoundingBox(2).initial_state(devices, None).box[:, :, 0]
    assert_array_equal(box, [[4.0, 4.0], [np.inf, -np.inf], [3.0, 17.0 / 3.0]])


def test_components_have_their_own_boxes():
    data = [*blobs(3, 2), *blobs(4, 0, seed=1), np.zeros((0, 2)), np.zeros((0, 2))]
    state = sow("bounding-box", arrange(data, [(0, 1), (2, 3), (4, 5)]), 2)
    assert_array_equal(state.box[0], state.box[1])
    assert_array_equal(state.box[3], [data[2].min(axis=0), data[2].max(axis=0)])
    assert np.isposinf(state.centroids[4:]).all()


def test_the_tree_is_breadth_first_with_the_lowest_parent():
    # 0 - 1, 0 - 2, 1 - 3, 2 - 3, 3 - 4 from 0: 3 could hang on 1 or 2
    topology = arrange(blobs(*[1] * 5), [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]).topology
    assert_array_equal(topology.grow(np.array([0]))[0], [-1, 0, 0, 1, 3])
    assert_array_equal(topology.grow(np.array([4]))[0], [1, 3, 3, 4, -1])


@pytest.mark.parametrize("seed", range(5))
def test_all_devices_have_the_leaders_own_seeds(seed):
    data = blobs(2, 9, 0, 8, 1, 3)
    table = arrange(data, RING, seed=seed)
    state = sow("leader", table, 3, seed)
    (leader,) = elect(table.topology, table.devices.sizes, 3, shared_key(seed))
    assert leader in (1, 3, 5)
    assert leader == (1, 3, 5)[int(uniforms(shared_key(seed), Stream.LEADER, [0], 1)[0, 0] * 3)]
    assert_array_equal(state.centroids, np.broadcast_to(sow("local", table, 3, seed).centroids[leader], (6, 3, 2)))
    assert state.converged.all()


def test_the_largest_device_leads_where_none_has_k_points():
    table = arrange(blobs(1, 2, 0, 2, 1, 0), [(0, 1), (1, 2), (3, 4), (4, 5)])
    assert_array_equal(elect(table.topology, table.devices.sizes, 3, 7), [1, 3])
    state = sow("leader", table, 3)
    assert_array_equal(np.isfinite(state.centroids[:, :, 0]).sum(axis=1), 2)
    assert_array_equal(state.centroids[:3], np.broadcast_to(state.centroids[1], (3, 3, 2)))
    leads = {int(elect(arrange(blobs(*[3] * 6), RING).topology, np.full(6, 3), 3, key)[0]) for key in range(80)}
    assert leads == set(range(6))


def cluster(table, members, k, starts=20, first=0):
    """Return the clustering of the members' summaries, in ascending origin."""
    own, counts, _ = table.devices.kmeans(k, Stream.SUMMARY, starts=3)
    pairs = [np.column_stack((own[i], counts[i]))[counts[i] > 0] for i in sorted(members)]
    return table.devices.pooled_kmeans(
        [np.concatenate(pairs)], k, Stream.CLUSTER, starts=starts, limit=100, first=first
    )[0]


def test_all_devices_cluster_all_summaries_alike():
    for sizes in ((9, 8, 7, 5, 6, 9), (9, 0, 2, 0, 0, 6)):
        table = arrange(blobs(*sizes), RING)
        state = sow("flooded-summaries", table, 3)
        assert_array_equal(state.centroids, np.broadcast_to(cluster(table, range(6), 3), (6, 3, 2)))
        assert state.converged.all()
        assert_allclose(np.sort(state.centroids[0, :, 0]), [0, 8, 16], atol=2)


def test_the_only_clustering_is_the_best_of_twenty_starts():
    rng = np.random.default_rng(3)
    table = arrange([rng.uniform(size=(30, 2)) for _ in range(6)], RING)
    found = sow("flooded-summaries", table, 8).centroids
    assert_array_equal(found, np.broadcast_to(cluster(table, range(6), 8), (6, 8, 2)))
    assert (found[0] != cluster(table, range(6), 8, starts=10)).any()


def test_nobody_clusters_before_a_turn_has_brought_nothing_new():
    table = arrange(blobs(9, 8, 7, 5), [(0, 1), (1, 2), (2, 3)])
    history, _ = play(FloodedSummaries(3), table, np.zeros((4, 3, 2)), 5)
    assert_array_equal(np.isfinite(history).all(axis=(2, 3)).argmax(axis=0), [4, 3, 3, 4])


def test_summaries_of_some_hops_stay_within_them():
    for hops in (1, 2):
        table = arrange(blobs(9, 8, 7, 5, 6, 9, 8, 7), [(i, i + 1) for i in range(7)])
        state = sow("flooded-summaries", table, 3, hops=hops)
        for i in range(8):
            around = range(max(0, i - hops), min(7, i + hops) + 1)
            assert_array_equal(state.centroids[i], cluster(table, around, 3), err_msg=f"{hops} hops, device {i}")


@pytest.mark.parametrize("sizes", [(9, 0, 8), (9, 0, 0, 8), (0, 0, 9, 0, 0, 0, 8, 0)])
def test_summaries_of_some_hops_pass_devices_without_points(sizes):
    n = len(sizes)
    for hops in range(1, n):
        table = arrange(blobs(*sizes), [(i, i + 1) for i in range(n - 1)])
        state = sow("flooded-summaries", table, 3, hops=hops)
        for i in range(n):
            around = [j for j in range(max(0, i - hops), min(n - 1, i + hops) + 1) if sizes[j]]
            expected = cluster(table, around, 3) if around else np.full((3, 2), np.inf)
            assert_array_equal(state.centroids[i], expected, err_msg=f"{hops} hops, device {i}")


def test_late_summaries_are_clustered_again():
    table = arrange(blobs(9, 0, 0, 0, 0, 8), [(i, i + 1) for i in range(5)])  # nothing new for a while
    state = sow("flooded-summaries", table, 3)
    assert_array_equal(state.centroids, np.broadcast_to(cluster(table, (0, 5), 3), (6, 3, 2)))


def test_several_candidates_come_from_different_starts():
    table = arrange(blobs(5, 4, 7, 5, 6, 9), RING)
    state = sow("flooded-summaries", table, 6, candidates=5)
    for q in range(5):
        expected = cluster(table, range(6), 6, starts=10, first=10 * q)
        assert_array_equal(state.candidates[:, q], np.broadcast_to(expected, (6, 6, 2)))
    assert len(np.unique(state.candidates[0], axis=0)) > 1
    assert_array_equal(state.centroids, state.candidates[:, 0])


@pytest.mark.parametrize("seed", [0, 1, 2, 5])
def test_candidates_are_different_sets_where_there_are_so_many_minima(seed):
    rng = np.random.default_rng(seed)
    table = arrange([rng.uniform(size=(12, 2)) for _ in range(6)], RING)
    state = sow("flooded-summaries", table, 3, candidates=5)
    tries = [cluster(table, range(6), 3, starts=10, first=10 * q) for q in range(5)]
    tries += [cluster(table, range(6), 3, starts=1, first=50 + number) for number in range(50)]
    first = list(dict.fromkeys(one[np.lexsort(one.T)].tobytes() for one in tries))[:5]
    assert len(first) > 1
    for q, one in enumerate(state.candidates[0]):
        assert one[np.lexsort(one.T)].tobytes() == first[q if q < len(first) else 0]
    assert_array_equal(state.candidates[0, 0], tries[0])


def test_fewer_minima_than_candidates_leave_some_of_them_alike():
    table = arrange([np.array([[0.0, 0.0]]), np.array([[9.0, 9.0]]), *[np.zeros((0, 2))] * 4], RING)
    state = sow("flooded-summaries", table, 2, candidates=4)
    for q in range(4):
        assert_array_equal(np.sort(state.candidates[0, q], axis=0), [[0.0, 0.0], [9.0, 9.0]])


@pytest.mark.parametrize("seed", range(8))
def test_the_candidate_of_least_summed_loss_is_chosen(seed):
    rng = np.random.default_rng(seed)
    table = arrange(blobs(5, 0, 7, 1, 6, 9, seed=seed), RING)
    candidates = rng.normal(6, 5, (5, 3, 2))
    start = type("State", (), {"candidates": np.repeat(candidates[None], 6, axis=0)})
    algorithm, own, network = SelectCandidate(3), table.devices, table.network
    state = algorithm.initial_state(own, start)
    inbox = network.exchange(algorithm.message(state, own.at_stage_start(np.ones(6, bool))))
    for t in range(1, 6):
        now = own.at_turn(t, 0, np.ones(6, bool))
        state = algorithm.update(state, inbox, now)
        inbox = network.exchange(algorithm.message(state, now))
        assert_array_equal(state.centroids[~state.converged], candidates[np.zeros((~state.converged).sum(), int)])
    costs = [sum(loss(points_of(own, i), one) for i in range(6)) for one in candidates]
    assert_array_equal(state.centroids, np.broadcast_to(candidates[np.argmin(costs)], (6, 3, 2)))
    assert state.converged.all()


def test_the_first_candidate_wins_ties():
    table = arrange(blobs(5, 4), [(0, 1)])
    rows = np.random.default_rng(0).normal(size=(3, 2))
    candidates = np.array([rows + 100, rows, rows[::-1], rows])
    start = type("State", (), {"candidates": np.repeat(candidates[None], 2, axis=0)})
    algorithm = SelectCandidate(3)
    state = algorithm.initial_state(table.devices, start)
    for t in (1, 2):
        inbox = table.network.exchange(algorithm.message(state, table.devices.at_turn(t - 1, 0, np.ones(2, bool))))
        state = algorithm.update(state, inbox, table.devices.at_turn(t, 0, np.ones(2, bool)))
    assert_array_equal(state.centroids, np.broadcast_to(rows, (2, 3, 2)))


@pytest.mark.parametrize("done", [[], [2], [1, 3]])
def test_all_take_what_the_lowest_of_those_has_who_were_done_else_the_lowest_of_all(done):
    table = arrange([*blobs(5, 4, 6, 3), np.zeros((0, 2))], [(i, i + 1) for i in range(4)])
    candidates = np.random.default_rng(0).normal(size=(5, 2, 3, 2))
    candidates[4] = np.inf  # has nothing
    start = SimpleNamespace(candidates=candidates, converged=np.isin(np.arange(5), [*done, 4]))
    algorithm, everybody = MinIdAgreement(3), np.ones(5, bool)
    state = algorithm.initial_state(table.devices, start)
    for t in range(1, 9):
        inbox = table.network.exchange(algorithm.message(state, table.devices.at_turn(t - 1, 0, everybody)))
        state = algorithm.update(state, inbox, table.devices.at_turn(t, 0, everybody))
    assert_array_equal(state.candidates, np.broadcast_to(candidates[min(done, default=0)], (5, 2, 3, 2)))


@pytest.mark.parametrize("candidates", [1, 2])
def test_where_messages_may_be_lost_devices_agree_on_what_they_hold_and_on_what_they_choose(candidates):
    setting = InitContext(arrange(blobs(5, 4), [(0, 1)]).topology, np.array([5, 4]), 0, 3, 2, faults_apply=True)
    stages = [type(one) for one in INITS["flooded-summaries"](setting, candidates=candidates)]
    assert stages == [FloodedSummaries, MinIdAgreement, *[SelectCandidate, MinIdAgreement] * (candidates > 1)]


def test_a_leader_is_sure_to_find_all_where_one_that_all_can_hear_has_so_many_different_points():
    leader, known = Leader(3, np.array([-1])), Known(2, 5, 5, 2, 0, True)  # one of two has three of the five
    assert leader.finds_all(known, False)
    for less in ({"connected": False}, {"distinct": 4}, {"clients": 3}):
        assert not leader.finds_all(known._replace(**less), False)


@pytest.mark.parametrize(
    ("stage", "instead"),
    [
        (lambda at: scaling_stage("standard", at), "points that are already scaled"),
        (lambda at: scaling_stage("minmax", at), "points that are already scaled"),
        (lambda at: imputing_stage("mean", at), "missing='drop'"),
        (lambda at: imputing_stage("median", at), "missing='drop'"),
        (lambda at: choosing_stage(p2pkm.TreeLloyd(3), at), "clusters with a number"),
        (lambda at: INITS["tree-summaries"](at), "init='local'"),
    ],
)
def test_a_tree_that_is_too_deep_is_refused_with_what_needs_none(monkeypatch, stage, instead):
    monkeypatch.setattr("p2pkm.methods.init.registry.DEEPEST", 1)
    links = [(i, i + 1) for i in range(4)]
    setting = InitContext(arrange(blobs(5, 4, 3, 3, 3), links).topology, np.full(5, 4), 0, 3, 2)
    with pytest.raises(ExperimentError, match=f"has 2 layers; expected at most 1, .* or {instead}"):
        stage(setting)


CASES = {
    "one device": ([[[0.0], [1.0], [5.0]]], 2),
    "two devices": ([[[0.0], [1.0]], [[5.0]]], 2),
    "one cluster": ([[[0.0], [1.0]], [[5.0]], [[2.0], [3.0]]], 1),
    "one point each": ([[[0.0]], [[1.0]], [[5.0]], [[6.0]]], 2),
    "devices without points": ([np.zeros((0, 1)), [[0.0], [4.0], [9.0]], np.zeros((0, 1)), [[1.0]]], 3),
    "one device has all": ([np.zeros((0, 1)), np.zeros((0, 1)), [[0.0], [4.0], [9.0]]], 3),
    "duplicates": ([[[2.0]] * 5, [[2.0]] * 3, [[3.0]] * 2], 3),
    "one point many times": ([[[2.0]] * 5, [[2.0]] * 3], 2),
    "constant features": ([[[1.0, 7.0], [2.0, 7.0]], [[8.0, 7.0]], [[9.0, 7.0]]], 2),
    "as many clusters as points": ([[[0.0], [1.0]], [[5.0]]], 3),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeding", ["global", "local", "bounding-box", "leader", "flooded-summaries", "flooded-summaries:hops=1"]
)
@pytest.mark.parametrize("case", CASES)
def test_hardly_any_data_is_no_problem(case, seeding):
    data, k = CASES[case]
    for schedule in ("colored", "jacobi", "async"):
        method = p2pkm.GTVMin(k, init=seeding, schedule=schedule)
        result = p2pkm.simulate(method, topologies.path(len(data)), p2pkm.Shards.from_list(data), rounds=30)
        real = np.isfinite(result.centroids).all(axis=2)
        assert_array_equal(real, np.isfinite(result.centroids).any(axis=2))
        assert not np.isnan(result.centroids).any()
        assert real[[i for i, points in enumerate(data) if len(points)]].any(axis=1).all()
        assert result.summary["termination"] in {"converged", "oscillating", "round-limit", "silent"}
        assert result.summary["descent"] == "certified"
        if seeding in {"global", "leader", "flooded-summaries"}:
            assert real.any(axis=1).all()
        if case == "one point many times":
            assert (result.centroids[real] == 2.0).all()


def test_without_links_every_seeding_stays_at_home():
    data = blobs(4, 5, 0)
    for seeding in ("global", "local", "bounding-box", "leader", "flooded-summaries"):
        method, shards = p2pkm.GTVMin(2, relaxation=1.0, init=seeding), p2pkm.Shards.from_list(data)
        result = p2pkm.simulate(method, nx.empty_graph(3), shards, rounds=5, allow_disconnected=True)
        assert np.isposinf(result.centroids[2]).all()
        assert result.summary["bytes"] == 0
        for points, rows in zip(data[:2], result.centroids[:2], strict=True):
            assert (rows >= points.min(axis=0) - 1e-9).all()
            assert (rows <= points.max(axis=0) + 1e-9).all()


def test_flooding_is_decided_from_clusters_and_coordinates(monkeypatch):
    asked = []
    monkeypatch.setattr(pipelines, "can_flood", lambda _, k, d: asked.append((k, d)) or True)
    shards = p2pkm.Shards.from_list([np.arange(20.0).reshape(10, 2) + i for i in range(4)])
    p2pkm.simulate(p2pkm.GTVMin(3), ring(4), shards, rounds=1, baselines=False, byzantine=p2pkm.Byzantine(1))
    assert asked == [(3, 2)]


@pytest.mark.parametrize(("memory", "rows", "possible"), [(1984, 96, True), (1983, 96, False), (1984, 95, False)])
def test_summaries_are_flooded_if_memory_and_rows_suffice(monkeypatch, memory, rows, possible):
    ring = Topology.from_links(4, np.array([[0, 1, 1.0], [1, 2, 1.0], [2, 3, 1.0], [0, 3, 1.0]]))
    monkeypatch.setattr(registry, "_MAX_FLOOD_MEMORY", memory)  # 4 n^2 + 24 n * 2 in a layer * k (d + 2)
    monkeypatch.setattr(registry, "_MAX_FLOOD_ROWS", rows)  # 8 directed edges * n * (k + 1)
    assert registry.can_flood(ring, 2, 3) == possible
