"""Couplings from differences between neighbors: an independent twin, cases by hand, and where there is no estimate."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.methods.building_blocks.coupling_choice import CHOICES, choose_coupling
from p2pkm.methods.init.coupling_estimate import CouplingEstimate, level_values
from p2pkm.methods.peer.gtvmin import GTVMin
from tests.support.each import each
from tests.support.play_rounds import arrange, describe, play
from tests.support.run_cli import here, on_ranks


def estimate(points, links, start, *, weigh=False, weights=None):
    """Play the stage, and return its last state and the batch."""
    table = arrange(points, links, weights=weights, d=start.shape[2])
    method = GTVMin(start.shape[1], coupling="links" if weigh else "bayes")
    return play(CouplingEstimate.of(method, describe(table)), table, start, 1)[1], table


def twin(points, links, start, *, nu=None, weights=None):
    """Strength of each link, and its weight, literally from the equations; None if nothing can be estimated."""
    n, k, d = start.shape
    weights = np.ones(sum(map(len, points))) if weights is None else weights
    unit, mass = weights.mean(), np.split(weights, np.cumsum([len(part) for part in points])[:-1])
    counts, means, error, cells, total = np.zeros((n, k)), np.zeros((n, k, d)), 0.0, 0, 0.0
    for i in range(n):
        label = np.array([min(range(k), key=lambda c: ((x - start[i, c]) ** 2).sum()) for x in points[i]], int)
        for c in range(k):
            own, by = points[i][label == c], mass[i][label == c] / unit
            if len(own):
                counts[i, c], means[i, c] = by.sum(), np.average(own, axis=0, weights=by)
                error += (by * ((own - means[i, c]) ** 2).sum(axis=1)).sum()
                cells, total = cells + 1, total + by.sum()
    s2 = error / max(1.0, total - cells) / d
    has = counts >= np.maximum(1.0, counts.sum(axis=1, keepdims=True) / k / 2)
    ratio = pairs = precision = 0.0
    beyond = {}
    for i, j, _ in links:
        for c in np.flatnonzero(has[i] & has[j]):
            v = 1 / counts[i, c] + 1 / counts[j, c]
            g = ((means[i, c] - means[j, c]) ** 2).sum()
            ratio, pairs, precision = ratio + g / v, pairs + 1, precision + 1 / v
            beyond.setdefault((i, j), []).append(max(g - d * s2 * v, 0.0))
    if not pairs or s2 <= 0:
        return None
    delta = max((ratio - pairs * d * s2) / precision, 1e-4 * d * s2)
    factor = dict.fromkeys([(i, j) for i, j, _ in links], 1.0)
    if nu:
        least = max(delta * 1e-2, 1e-4 * d * s2)
        middle = sorted(np.mean(t) for t in beyond.values())[(len(beyond) - 1) // 2]
        delta = least * 2.0 ** (max(0, np.ceil(8 * np.log2(max(middle, least) / least) - 1e-9)) / 8)
        for link, t in beyond.items():
            p = d * len(t)
            factor[link] = (nu + p) / (nu + p * np.mean(t) / delta)
    base = d * s2 * unit * (n - 1) / (2 * delta * sum(a for _, _, a in links))
    return {(i, j): (a * base * factor[i, j], factor[i, j]) for i, j, a in links}


def world(seed, *, n=12, k=4, d=3):
    """Devices whose centers differ, some of which lack clusters or all points; a graph with weights of links."""
    draws = np.random.default_rng(seed)
    centers = draws.uniform(-8, 8, (k, d)) + draws.normal(size=(n, k, d)) * draws.uniform(0.1, 1.5, (n, 1, 1))
    points = []
    for i in range(n):
        clusters = draws.choice(draws.choice(k, draws.integers(1, k + 1), replace=False), draws.integers(1, 40))
        points.append(centers[i, clusters] + draws.normal(size=(len(clusters), d)))
    points[3] = points[3][:0]
    graph = nx.connected_watts_strogatz_graph(n, 4, 0.4, seed=seed)
    links = [(min(e), max(e), float(draws.integers(1, 4))) for e in graph.edges()]
    weights = draws.integers(1, 4, sum(map(len, points))).astype(float)
    return points, links, np.repeat(centers.mean(axis=0)[None], n, axis=0), weights


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("nu", [None, 8])
@pytest.mark.parametrize("seed", range(4))
def test_the_equations(seed, nu, weighted):
    points, links, start, weights = world(seed)
    weights = weights if weighted else None
    state, table = estimate(points, links, start, weigh=nu is not None, weights=weights)
    expected, devices = twin(points, links, start, nu=nu, weights=weights), table.devices
    ends = [(min(e), max(e)) for e in zip(devices.sources.tolist(), devices.indices.tolist(), strict=True)]
    assert_allclose(state.edge_alpha, [expected[e][0] for e in ends], rtol=1e-9)
    if nu is None:
        assert state.edge_estimated is None
    else:
        assert_allclose(state.edge_estimated, [expected[e][1] for e in ends], rtol=1e-9)
        assert np.ptp(state.edge_estimated) > 0.1
    assert_array_equal(state.edge_alpha, state.edge_alpha[table.topology.mirror])
    assert state.converged.all() and state.walk is None


def test_two_devices_by_hand():
    """s2 = 4 / (4 - 2), g = 16, v = 1: delta = 16 - 2, alpha = s2 (n - 1) / (2 delta)."""
    points = [np.array([[0.0], [2.0]]), np.array([[4.0], [6.0]])]
    state, _ = estimate(points, [(0, 1)], np.zeros((2, 1, 1)))
    assert_allclose(state.edge_alpha, 2.0 * 1 / (2 * 14.0))
    # One link of the median level 14, rounded up to the next of 0.14 2^(q / 8): its weight is nearly 1.
    state, _ = estimate(points, [(0, 1)], np.zeros((2, 1, 1)), weigh=True)
    scale = next(0.14 * 2 ** (q / 8) for q in range(100) if 0.14 * 2 ** (q / 8) >= 14.0)
    assert_allclose(state.edge_estimated, (8 + 1) / (8 + 14.0 / scale))
    assert_allclose(state.edge_alpha, 2.0 / (2 * scale) * state.edge_estimated)


def test_a_link_across_a_border_weighs_less_than_those_within():
    draws = np.random.default_rng(0)
    points = [draws.normal(size=(60, 2)) + 9.0 * (i > 3) + 0.4 * draws.normal(size=2) for i in range(8)]
    state, table = estimate(points, [(i, i + 1) for i in range(7)], np.zeros((8, 1, 2)), weigh=True)
    links = {
        (i, j): w for i, j, w in zip(table.devices.sources, table.devices.indices, state.edge_estimated, strict=True)
    }
    border = links.pop((3, 4))
    assert border == links.pop((4, 3)) < 0.1 < min(links.values())


@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize(("points", "start"), [
    ([np.array([[0.0], [1.0]]), np.array([[9.0], [10.0]])], [[0.0], [9.0]]),  # no link whose ends share a cluster
    ([np.array([[0.0], [0.0]]), np.array([[3.0], [3.0]])], [[0.0], [3.0]]),  # no noise
    ([np.array([[0.0], [1.0]])], [[0.0], [9.0]]),  # one device
    ([np.zeros((0, 1)), np.array([[0.0], [1.0]])], [[0.0], [9.0]]),  # the neighbor has no points
])  # fmt: skip
def test_the_coupling_is_strong_if_nothing_can_be_estimated(points, start, weigh):
    links = [(i, i + 1) for i in range(len(points) - 1)]
    state, table = estimate(points, links, np.repeat(np.array(start)[None], len(points), axis=0), weigh=weigh)
    strong = choose_coupling(table.topology, sum(map(len, points)), 2)
    assert_array_equal(state.edge_alpha, GTVMin(2, coupling=strong).objective.link_alpha(table.devices))
    assert_array_equal(state.coupling, strong)
    assert not weigh or (state.edge_estimated == 1.0).all()


@pytest.mark.parametrize("weigh", [False, True])
def test_it_scales_with_weights_and_not_with_units(weigh):
    points, links, start, weights = world(5)
    once, _ = estimate(points, links, start, weigh=weigh, weights=weights)
    heavy, _ = estimate(points, links, start, weigh=weigh, weights=4.0 * weights)
    assert_array_equal(heavy.edge_alpha, 4.0 * once.edge_alpha)
    far, _ = estimate([p * 2.0**60 for p in points], links, start * 2.0**60, weigh=weigh, weights=weights)
    assert_array_equal(far.edge_alpha, once.edge_alpha)


def test_levels_are_eighths_of_a_power_of_two():
    assert_allclose(level_values(np.arange(256), np.full(256, 3.0)), 3.0 * 2.0 ** (np.arange(256) / 8))


def scatter(*, n=9, seed=0, shift=0.8):
    draws = np.random.default_rng(seed)
    centers = np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 7.0]]) + shift * draws.normal(size=(n, 3, 2))
    points = [centers[i, draws.integers(0, 3, 40)] + draws.normal(size=(40, 2)) for i in range(n)]
    return p2pkm.Shards.from_list(points)


@pytest.mark.parametrize("coupling", ["bayes", "links"])
def test_a_run_estimates_minimizes_and_is_certified(coupling, tmp_path):
    graph, shards = topologies.grid(9), scatter()
    result = p2pkm.simulate(p2pkm.GTVMin(3, coupling=coupling), graph, shards, record_every=1)
    stages = [record["stage"] for record in result.rounds]
    assert list(dict.fromkeys(stages)) == ["tree-summaries", "coupling-estimate", f"interim {coupling}", "gtvmin"]
    assert stages.count("coupling-estimate") == 6  # the initial exchange and one round, three times
    assert result.summary["descent"] == "certified" and result.summary["coupling_choice"] == coupling
    assert 0.0 < result.summary["coupling"] < 30 and result.summary["excess_predicted"] is None
    topology, weights = result.topology, result.link_weights
    assert (weights is None) == (coupling == "bayes")
    if weights is None:
        assert "estimated_weight" not in result.to_networkx().edges[0, 1]
        return
    assert_array_equal(weights, weights[topology.mirror])
    assert result.to_networkx().edges[0, 1]["estimated_weight"] == weights[0] != 1.0
    result.save(tmp_path / "run")
    assert_array_equal(p2pkm.load(tmp_path / "run").link_weights, weights)
    p2pkm.viz.plot_graph(result, edges="weight")


def test_where_devices_differ_the_estimate_beats_the_strong_coupling_on_points_that_nothing_saw():
    shards, graph = scatter(n=25, shift=1.2), topologies.grid(25)
    draws = np.random.default_rng(1)
    own = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [7.0, 0.0], [0.0, 7.0]]) + 1.2 * own.normal(size=(25, 3, 2))
    unseen = centers[:, draws.integers(0, 3, 400)] + draws.normal(size=(25, 400, 2))
    costs = {}
    for coupling in ("strong", "bayes"):
        found = p2pkm.simulate(p2pkm.GTVMin(3, coupling=coupling), graph, shards, baselines=False).centroids
        costs[coupling] = sum(((x[:, None] - w) ** 2).sum(2).min(1).sum() for x, w in zip(unseen, found, strict=True))
    assert costs["bayes"] < 0.8 * costs["strong"]


@pytest.mark.parametrize("change", [
    {"robust": "clip"}, {"robust": "saturate"}, {"groups": True}, {"init": "local"},
    {"init": "flooded-summaries:hops=1"}, {"star_term": False}, {"update": "as-printed"}, {"matching": "optimal"},
    {"normalize_losses": True},
])  # fmt: skip
@pytest.mark.parametrize("coupling", ["bayes", "links"])
def test_parameters_that_change_what_is_estimated_are_refused(coupling, change):
    with pytest.raises(ExperimentError, match="cannot be combined"):
        p2pkm.GTVMin(3, coupling=coupling, **change)


@each("options", [
    {"faults": "loss=0.1"}, {"noise": 0.1}, {"byzantine": 1}, {"min_cluster_size": 3}, {"stream": "drawn:kind=slow"},
    {"schedule": "async", "link_model": "wan"}, {"start": np.zeros((3, 2))},
])  # fmt: skip
def test_runs_that_change_messages_points_or_start_are_refused(options):
    schedule = options.pop("schedule", "colored")
    with pytest.raises(ExperimentError, match=r"cannot be combined"):
        p2pkm.simulate(p2pkm.GTVMin(3, coupling="links", schedule=schedule), topologies.ring(9), scatter(), **options)
    options["schedule"] = schedule


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, 7])
def test_the_same_bits_on_any_number_of_ranks(count):
    words = ("run", "--devices", 14, "--graph", "small-world:degree=4", "--data", "grid16:points=10", "--partition",
             "dirichlet:alpha=0.3", "--no-baselines", "--out", "none", "--format", "json", "-q")  # fmt: skip
    methods = [("--coupling", "bayes"), ("--coupling", "links"), ("--algorithm", "gtvmin:coupling=links,shares=true")]
    commands = [(*words, *method) for method in methods]
    for command, found in zip(commands, on_ranks(count, commands), strict=True):
        expected = here(*command).summary
        for key in ("centroids_sha256", "chain_sha256", "coupling", "bytes", "objective", "ari"):
            assert found.summary[key] == expected[key], (key, command)


@pytest.mark.parametrize("coupling", ["bayes", "links"])
def test_each_component_has_the_estimate_of_it_alone(coupling):
    parts = [world(seed)[:3] for seed in (0, 1)]
    weigh = coupling == "links"
    points = parts[0][0] + parts[1][0] + [np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])]
    links = parts[0][1] + [(12 + i, 12 + j, weight) for i, j, weight in parts[1][1]]
    start = np.concatenate((parts[0][2], parts[1][2], parts[0][2][:1]))
    state, table = estimate(points, links, start, weigh=weigh)
    assert CHOICES[state.chosen[-1]] == "strong" and state.coupling[-1] == 10.0
    for number, part in enumerate(parts):
        alone, _ = estimate(*part, weigh=weigh)
        edges = np.flatnonzero(table.devices.sources // 12 == number)
        assert_array_equal(state.edge_alpha[edges], alone.edge_alpha)
        assert_array_equal(state.coupling[12 * number : 12 * number + 12], alone.coupling)
        if weigh:
            assert_array_equal(state.edge_estimated[edges], alone.edge_estimated)


def test_a_note_says_in_how_many_components_nothing_can_be_estimated():
    graph = nx.disjoint_union(topologies.ring(9), nx.empty_graph(2))
    result = p2pkm.simulate(
        p2pkm.GTVMin(3, coupling="bayes"), graph, scatter(n=11), allow_disconnected=True, quantize="rice"
    )
    assert result.summary["coupling_chosen"] == "strong (2 components), bayes (1 component)"
    assert [note for note in result.notes if note.startswith("coupling=bayes: strong (2 components), bayes (1 comp")]
