"""Groups: the benchmark, the whole recipe, and links that give way with their limits, against plain loops."""

import math
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.engine.loop import Start
from p2pkm.methods.building_blocks.total_variation import lower_quartile, saturated_penalty, saturation_weight
from p2pkm.methods.init.saturation_thresholds import SaturationThresholds
from p2pkm.methods.schedules import asynchronous
from tests.support.play_rounds import arrange, loss, play, points_of, random_links, squared, variation
from tests.support.run_cli import here
from tests.support.sampling import thin

seeds = st.integers(0, 2**32 - 1)


def talk(algorithm, table, start=None, rounds=3):
    """Return the state of a stage that everybody takes part in, after so many rounds."""
    devices, network = table.devices, table.network
    network.open()
    given = None if start is None else Start(np.array(start, float), np.ones(len(devices), bool))
    state = algorithm.initial_state(devices, given)
    inbox = network.exchange(algorithm.message(state, devices))
    for t in range(1, rounds + 1):
        now = devices.at_turn(t, 0, devices.active_devices)
        state = algorithm.update(state, inbox, now)
        inbox = network.exchange(algorithm.message(state, now))
    assert state.converged.all()
    return state


def draw(seed, *, least=0):
    """Return devices with points from two mixtures and random links between them, and centroids."""
    rng = np.random.default_rng(seed)
    n, k, d = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    places = rng.normal(0, 6, (2, k, d))
    sizes = rng.integers(least, 8, n)
    sizes[0] = 3
    data = [places[i % 2, rng.integers(0, k, m)] + rng.normal(size=(m, d)) for i, m in enumerate(sizes)]
    links = random_links(rng, n, rng.choice([0.4, 1.0]))
    start = places[np.arange(n) % 2] + rng.normal(0, rng.choice([0.1, 2.0]), (n, k, d))
    return arrange(data, links, d=d, seed=seed % 1000), start


def quartile(values):
    return np.quantile(values, 0.25) if len(values) else math.nan


# --- the benchmark ---


@pytest.mark.parametrize("second", ["same", "shifted", "fresh"])
def test_two_communities(second):
    made = p2pkm.communities(second=second, seed=3)
    assert made.points.shape == (16 * 24, 2)
    assert made.tests.shape == (16, 400, 2)
    assert_array_equal(made.device, np.repeat(np.arange(16), 24))
    assert_array_equal(made.truth, np.repeat([0, 1], 8))
    one, other = made.centers[0], made.centers[15]
    for centers in (one, other):
        assert np.sqrt(squared(centers, centers) + 99 * np.eye(4)).min() > 5
    assert (np.abs(one) <= 8).all()
    away = np.sqrt(((other - one) ** 2).sum(axis=1))
    assert_allclose(away, {"same": 0.0, "shifted": 4.0}.get(second, away), atol=1e-12)
    assert (second == "fresh") == (np.ptp(away) > 1e-9)
    assert made.labels.max() == (3 if second == "same" else 7)
    drawn = made.points - made.centers[made.device, made.labels % 4]
    assert abs(drawn.std() - 1) < 0.1
    assert_array_equal(made.points, p2pkm.communities(second=second, seed=3).points)


def test_the_devices_of_a_community_have_weights_of_their_own():
    made = p2pkm.communities(points=500, seed=1)
    shares = np.array([np.bincount(made.labels[made.device == i] % 4, minlength=4) for i in range(16)]) / 500
    assert shares.std() > 0.1  # Dirichlet(2): sqrt(3/16/9) = 0.14


def test_the_score_is_the_cost_over_that_of_the_true_centers():
    made = p2pkm.communities(seed=2, devices=3)
    assert_allclose(made.score(made.centers), 1.0)
    centroids = np.full((3, 5, 2), np.inf)
    centroids[:, :2] = [[0.0, 1.0], [3.0, -2.0]]
    expected = [loss(made.tests[i], centroids[i, :2]) / loss(made.tests[i], made.centers[i]) for i in range(3)]
    assert_allclose(made.score(centroids), expected)


def test_the_communities_of_graph_and_data_are_the_same():
    for n in (2, 3, 7, 16):
        graph, truth = topologies.communities(n, seed=4), p2pkm.communities(devices=n).truth
        assert sum(truth[i] != truth[j] for i, j in graph.edges) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"second": "other"}, "second is 'other'"), ({"devices": 1}, "devices is 1"), ({"clusters": 401}, "at most 400")],
)
def test_options_out_of_range(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.communities(**options)


def split():
    """Return a path of four devices, the first two with other points than the last two."""
    rng = np.random.default_rng(0)
    data = [rng.normal(5.0 * (i // 2), 0.1, (6, 2)) for i in range(4)]
    return arrange(data, [(0, 1), (1, 2), (2, 3)]), data


# --- limits and weights ---


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9))
def test_the_lower_quartile_is_interpolated(values):
    table = arrange([[[0.0]]] * (len(values) + 2), [(0, j) for j in range(1, len(values) + 1)])
    found = lower_quartile(table.devices, np.array(values), np.arange(len(values)))
    assert_allclose(found[0], np.quantile(values, 0.25), rtol=1e-12, atol=1e-300)
    assert np.isnan(found[1:]).all()


@given(seeds)
def test_the_limit_of_a_link_is_the_smaller_quartile_of_its_ends(seed):
    table, start = draw(seed)
    devices = table.devices
    state = talk(SaturationThresholds(start.shape[1]), table, start, rounds=2)
    pairs = list(zip(devices.sources, devices.indices, strict=True))
    apart = np.array([variation(start[i], start[j]) for i, j in pairs])
    q = [quartile(apart[devices.sources == i]) for i in range(len(devices))]
    assert_allclose(state.edge_limit, [min(q[i], q[j]) for i, j in pairs])
    mirrored = np.array([pairs.index((j, i)) for i, j in pairs], int)
    assert_array_equal(state.edge_limit, state.edge_limit[mirrored])  # the same bits at both ends
    assert_array_equal(state.centroids, start)


def test_weights_are_the_slope_of_the_penalty():
    limit, apart = np.array([4.0, 4.0, 4.0, np.inf, 0.0, 0.0]), np.array([1.0, 4.0, 8.0, 7.0, 3.0, 0.0])
    assert_array_equal(saturation_weight(limit, apart), [1.0, 1.0, 0.5, 1.0, 0.0, 1.0])
    assert_array_equal(saturated_penalty(limit, apart), [1.0, 4.0, 4.0 * (1 + math.log(2)), 7.0, 0.0, 0.0])
    step = 1e-6
    slope = (saturated_penalty(limit[:4], apart[:4] + step) - saturated_penalty(limit[:4], apart[:4] - step)) / (
        2 * step
    )
    assert_allclose(slope, saturation_weight(limit[:4], apart[:4]), rtol=1e-6)


class Limited(NamedTuple):
    """What comes out of a stage before: centroids and limits of links."""

    centroids: np.ndarray
    edge_limit: np.ndarray


def give_way(method, table, start, limit, rounds):
    """Return the centroids after every turn of links that give way, and the last state."""

    class Seeded:
        schedule, message, update = method.schedule, staticmethod(method.message), staticmethod(method.update)

        @staticmethod
        def initial_state(devices, given):
            return method.initial_state(devices, Limited(given.centroids, np.array(limit, float)))

    return play(Seeded, table, start, rounds)


@given(seeds)
def test_a_turn_is_that_of_fixed_links_of_less_strength(seed):
    table, start = draw(seed)
    devices = table.devices
    pairs = list(zip(devices.sources, devices.indices, strict=True))
    limit = {link: 10 ** np.random.default_rng(seed).uniform(-1, 3) for link in map(frozenset, pairs)}
    limits = [limit[frozenset(pair)] for pair in pairs]
    shares = [min(1.0, limits[e] / variation(start[i], start[j])) for e, (i, j) in enumerate(pairs)]
    method = p2pkm.GTVMin(start.shape[1], alpha=2.0, schedule="jacobi")
    found, state = give_way(method, table, start, limits, 1)
    assert_allclose(state.edge_weight, shares)
    strengths = devices.link_weights * shares
    weighted = [(i, j, strengths[e]) for e, (i, j) in enumerate(pairs) if i < j]
    data = [points_of(devices, i) for i in range(len(devices))]
    expected, _ = play(method, arrange(data, weighted, d=devices.d), start, 1)
    assert_allclose(found[-1], expected[-1])


@given(seeds, st.sampled_from(["colored", "async", "jacobi"]))
def test_the_objective_of_links_that_give_way_never_rises(seed, schedule):
    table, start = draw(seed)
    devices, rng = table.devices, np.random.default_rng(seed)
    limit = 10 ** rng.uniform(-2, 3, (len(devices),) * 2)
    limits = np.maximum(limit, limit.T)[devices.sources, devices.indices]
    theta = 1.0 if schedule == "jacobi" else float(rng.uniform(0.2, 1.95))
    method = p2pkm.GTVMin(
        start.shape[1], alpha=10 ** rng.uniform(-1, 1.5), schedule=schedule, relaxation=theta, tol=0.0
    )
    history, state = give_way(method, table, start, limits, 6)
    seen = []
    for centroids in history:
        apart = devices.kernels.gtv(centroids, devices.ids, devices.indptr, devices.indices, devices.indices)
        local, _ = devices.kernels.losses(devices.points, devices.point_weights, devices.offsets, centroids)
        seen.append(local.sum() + method.objective.penalties(state, devices, apart).sum())
    assert (np.diff(seen) <= 1e-9 * np.maximum(seen[:-1], 1e-9 * seen[0])).all()


def test_only_awake_devices_weigh_their_links_anew():
    table = arrange([[[0.0]], [[9.0]]], [(0, 1)])
    method = p2pkm.GTVMin(1, alpha=1.0)
    state = method.initial_state(table.devices, Limited(np.array([[[0.0]], [[9.0]]]), np.array([1.0, 1.0])))
    inbox = table.network.exchange(method.message(state, table.devices))
    state = method.update(state, inbox, table.devices.at_turn(1, 0, np.array([True, False])))
    assert_allclose(state.edge_weight, [1 / (2 * 81), 1.0])


def test_a_link_out_of_use_lets_both_ends_wake():
    table = arrange([[[0.0]]] * 2, [(0, 1)])
    apart = table.devices.with_active_edges(np.zeros(2, bool), np.zeros(2, np.int64))
    for t in range(1, 9):
        assert next(asynchronous(table.devices).turns(t)).sum() == 1
        assert next(asynchronous(apart).turns(t)).all()
    assert_array_equal(apart.degrees, 0)
    assert_array_equal(p2pkm.GTVMin(1, coupling=1.0).objective.link_alpha(apart), 0.0)


def test_only_neighbors_know_after_one_turn():
    rng, ring = np.random.default_rng(0), [(i, (i + 1) % 9) for i in range(9)]
    data, start = [rng.normal(0, 3, (6, 2)) for _ in range(9)], rng.normal(0, 3, (9, 3, 2))
    stirred = start.copy()
    stirred[4] += 1.0
    method = p2pkm.GTVMin(3, alpha=1.0, schedule="jacobi")
    calm, other = (give_way(method, arrange(data, ring), one, np.full(18, 20.0), 2)[0] for one in (start, stirred))
    reached = [set(np.flatnonzero((a != b).any(axis=(1, 2)))) for a, b in zip(calm, other, strict=True)]
    assert reached[1] <= {3, 4, 5} and reached[1] & {3, 5}
    assert reached[2] <= set(range(2, 7)) and reached[2] - {3, 4, 5}


# --- the whole recipe ---


def stages(result):
    """Return messages and bytes of the stages, one after the other, with their names."""
    found, before = [], (0, 0)
    last = [*result.rounds[1:], {"round": 0}]
    for record, after in zip(result.rounds, last, strict=True):
        if after["round"] == 0:
            now = record["messages"], record["bytes"]
            found.append((record["stage"], now[0] - before[0], now[1] - before[1]))
            before = now
    return found


@pytest.mark.parametrize("robust", ["none", "saturate"])
def test_the_ledger_by_hand(robust):
    """Device 1 is the root, 3 two links below it; 4 rows of 2 + 2 columns each, 2 groups of 2 rows and one down."""
    table, data = split()
    result = p2pkm.simulate(p2pkm.GTVMin(2, groups=2, robust=robust, tol=0.0), table.topology,
                            p2pkm.Shards.from_list(data), rounds=3, baselines=False)  # fmt: skip
    e, kept = 6, 4  # directed edges, in all and after the cut
    tree = ("tree-groups", 3 + 3, 8 * ((4 + 4 + 8) * 4 + 3 * 5 * 2))
    links = ("group-links", e + kept, 8 * (e + kept))
    limits = ("saturation-thresholds", kept + kept, 8 * (kept * 2 * 2 + kept))

    def sweeps(name, rounds):
        return name, kept * (rounds + 1), 8 * kept * 2 * 2 * (rounds + 1)

    more = [sweeps("warmup", 8), limits] if robust == "saturate" else []
    assert stages(result) == [tree, links, *more, sweeps("gtvmin", 3)]
    assert_array_equal(result.ledger.messages.reshape(3, 2)[1], [2, 2])  # the cut link: rows or tables, and the group
    assert_array_equal(result.groups, [0, 0, 1, 1])


@pytest.mark.slow
def test_the_run_ends_by_itself_certified_and_finds_the_communities():
    made, graph = p2pkm.communities(seed=1), topologies.communities(16, bridges=4, seed=1)
    shards = p2pkm.Shards.deal(made.points, made.device, labels=made.labels)
    result = p2pkm.simulate(p2pkm.GTVMin(4, groups=True), graph, shards, baselines=False)
    assert result.summary["termination"] == "converged"
    assert {record["descent"] for record in result.rounds if record["stage"] == "gtvmin"} == {"certified"}
    assert_array_equal(result.groups, made.truth)
    assert made.score(result.centroids).max() < 1.1
    assert result.summary["coupling"] == 10.0
    flat = p2pkm.simulate(p2pkm.GTVMin(4), graph, shards, baselines=False)
    assert made.score(flat.centroids).mean() > 2
    assert_array_equal(flat.groups, 0)


@pytest.mark.slow
def test_groups_in_the_summary_and_on_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--graph", "communities:bridges=2", "--data", "communities", "--out", "run", "--format", "json")
    result = here(*words, "--groups")
    assert (result.summary["groups"], result.summary["groups_ari"], result.summary["devices"]) == (2, 1.0, 16)
    assert result.summary["partition"].startswith("column")
    assert any("2 groups" in note for note in p2pkm.load("run").notes)
    assert_array_equal(p2pkm.load("run").groups, np.repeat([0, 1], 8))
    other = here("--out", "none", "--format", "json", "--data", "grid16:points=5", "--devices", 4).summary
    assert (other["groups"], other["groups_ari"]) == (1, None)
    words = ("--out", "none", "--format", "json", "--data", "communities", "--rounds", 2)
    served = here(*words, "--algorithm", "fkm").summary
    assert (served["groups"], served["groups_ari"]) == (None, None)


@pytest.mark.parametrize(
    ("sizes", "graph"),
    thin(
        product(
            [[3], [3, 0], [2, 2], [0, 3, 0, 0], [1, 1, 1, 1, 1]],
            [topologies.path, topologies.complete, topologies.star],
        ),
        4,
    ),
)
@pytest.mark.sample(3)
def test_few_devices_with_few_points(sizes, graph):
    rng = np.random.default_rng(len(sizes))
    shards = p2pkm.Shards.from_list([rng.normal(0, 5, (size, 2)) for size in sizes])
    result = p2pkm.simulate(p2pkm.GTVMin(2, groups=True), graph(len(sizes)), shards, rounds=60)
    assert result.summary["descent"] in {"certified", "not claimed"}
    assert len(result.groups) == len(sizes)


def test_a_given_start_is_refused():
    table, data = split()
    with pytest.raises(p2pkm.ExperimentError, match="groups compute initial centroids of their own"):
        p2pkm.simulate(p2pkm.GTVMin(2, groups=True), table.topology, p2pkm.Shards.from_list(data),
                       start=np.zeros((4, 2, 2)))  # fmt: skip


@pytest.mark.parametrize("bridges", thin([1, 32], 2))
def test_the_number_of_groups_may_be_given_and_bridges_do_not_matter(bridges):
    made, graph = p2pkm.communities(seed=214), topologies.communities(16, bridges=bridges, seed=214)
    shards = p2pkm.Shards.deal(made.points, made.device)
    for groups in ("auto", 2):
        result = p2pkm.simulate(p2pkm.GTVMin(4, groups=groups), graph, shards, seed=214, baselines=False)
        assert_array_equal(result.groups, made.truth)
