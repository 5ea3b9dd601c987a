"""Choice of the coupling by leave-one-out likelihood: an independent twin, equal runs, and where it is refused."""

import math
from itertools import groupby

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import SparseMessages
from p2pkm.engine.loop import Start
from p2pkm.methods.building_blocks.coupling_choice import CHOICES
from p2pkm.methods.building_blocks.leave_one_out import Mixture, leave_one_out
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.coupling_trials import list_stages
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.methods.schedules import make
from tests.methods.init.test_coupling_estimate import twin
from tests.support.each import each
from tests.support.play_rounds import arrange, describe
from tests.support.run_cli import here, on_ranks, ranks, there

CENTERS = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])


def draw(seed, *, n=10, shift=0.8, alpha=None, each=30):
    """Devices with centers, and with `alpha` shares, of their own; links of a random graph."""
    draws = np.random.default_rng(seed)
    points = []
    for _ in range(n):
        shares = np.full(3, 1 / 3) if alpha is None else draws.dirichlet(np.full(3, alpha))
        clusters = draws.choice(3, each, p=shares)
        points.append(CENTERS[clusters] + shift * draws.normal(size=(3, 2))[clusters] + draws.normal(size=(each, 2)))
    graph = nx.connected_watts_strogatz_graph(n, 4, 0.3, seed=seed)
    return points, [(min(e), max(e), float(draws.integers(1, 3))) for e in graph.edges()]


def play_stages(points, links, weights=None, d=None):
    """Play all stages of a choice from common centroids; return the batch, and name and last state of each stage."""
    table = arrange(points, links, weights=weights, d=d)
    method = GTVMin(3, coupling="auto", relaxation="auto")
    devices, network = table.devices, table.network
    n = len(devices)
    state, states = Start(np.repeat(CENTERS[None], n, axis=0), np.ones(n, np.bool_)), []
    for stage in list_stages(method, describe(table)):
        algorithm = stage.algorithm
        schedule = make(algorithm.schedule, devices, table.topology.colors)

        def deliver(messages):
            is_sparse = isinstance(messages, SparseMessages)
            return network.deliver(messages) if is_sparse else network.exchange(messages)

        network.open()
        state = algorithm.initial_state(devices, state)
        inbox = deliver(algorithm.message(state, devices.at_stage_start(schedule.opening)))
        for t in range(1, stage.rounds + 1):
            for turn, awake in enumerate(schedule.turns(t)):
                now = devices.at_turn(t, turn, awake)
                state = algorithm.update(state, inbox, now)
                inbox = deliver(algorithm.message(state, now))
        states.append((stage.name, state))
    return table, states


def likelihood(points, mass, centroids, support, penalties, s2, m0):
    """Leave-one-out likelihood of one device, point by point: support[c] is what centroid c is a mean of."""
    k = len(centroids)
    squares = ((points[:, None] - centroids[None]) ** 2).sum(axis=2)
    labels = (squares + penalties).argmin(axis=1)
    counts = np.bincount(labels, mass, k)
    total = 0.0
    for x, m, c in zip(points, mass, labels, strict=True):
        weight = counts + support if np.ndim(support) == 0 else np.asarray(support)
        without = centroids.copy()
        without[c] = (weight[c] * centroids[c] - m * x) / (weight[c] - m)  # the mean of all but this point
        rest = counts.copy()
        rest[c] -= m
        shares = (rest + m0) / (rest.sum() + k * m0)
        total += m * math.log((shares * np.exp(-((x - without) ** 2).sum(axis=1) / (2 * s2))).sum())
    return total


@pytest.mark.parametrize("weighted", [False, True])
def test_leaving_out_a_point_is_what_its_formula_says(weighted):
    points, links = draw(0)
    weights = np.random.default_rng(1).integers(1, 4, 300).astype(float) if weighted else None
    table = arrange(points, links, weights=weights)
    devices, draws = table.devices, np.random.default_rng(2)
    centroids = CENTERS + 0.3 * draws.normal(size=(10, 3, 2))
    pull, penalties = draws.uniform(0.5, 9.0, 10), draws.uniform(0.0, 4.0, (10, 3))
    noise, prior = draws.uniform(0.5, 2.0, 10), draws.uniform(0.1, 5.0, 10)
    found = leave_one_out(devices, centroids, Mixture(noise, prior), pull=pull, penalties=penalties)
    for i in range(10):
        rows, mass = devices.table(i)
        expected = likelihood(rows, mass / devices.unit, centroids[i], pull[i], penalties[i], noise[i], prior[i])
        assert found[i] == pytest.approx(expected, rel=1e-9)


def test_a_centroid_of_one_point_predicts_it_by_the_others():
    table = arrange([np.array([[0.0], [9.0], [10.0]])], [])
    mixture = Mixture(np.ones(1), np.ones(1))
    found = leave_one_out(table.devices, np.array([[[0.0], [9.5]]]), mixture, pull=np.zeros(1))
    # Point 0 is left with the other centroid; the residuals of the others double.
    alone = math.log(3 / 4) - 9.5**2 / 2
    pair = math.log(2 / 4 * math.exp(-0.5) + 2 / 4 * math.exp(-(9.0**2) / 2))
    other = math.log(2 / 4 * math.exp(-0.5) + 2 / 4 * math.exp(-(10.0**2) / 2))
    assert found[0] == pytest.approx(alone + pair + other)
    single = leave_one_out(table.devices, np.array([[[6.0]]]), mixture, pull=np.zeros(1))
    assert np.isfinite(single).all()
    table = arrange([np.array([[1.0]])], [])
    assert leave_one_out(table.devices, np.array([[[1.0]]]), mixture, pull=np.zeros(1))[0] == -np.inf


def lloyd(table, centroids, penalties):
    """Means of the points of all devices, labels by distance and penalty; numbers; and numbers at each device."""
    devices = table.devices
    local = []
    total, counts = np.zeros((3, 2)), np.zeros(3)
    for i in range(len(devices)):
        points, mass = devices.table(i)
        mass = mass / devices.unit
        labels = (((points[:, None] - centroids[None]) ** 2).sum(axis=2) + penalties[i]).argmin(axis=1)
        local.append(np.bincount(labels, mass, 3))
        counts = counts + local[-1]
        for c in range(3):
            total[c] += (mass[labels == c, None] * points[labels == c]).sum(axis=0)
    return total / counts[:, None], counts, np.array(local)


@pytest.mark.parametrize(("alpha", "weighted"), [(None, False), (None, True), (0.4, False), (0.4, True)])
@pytest.mark.sample(3)
def test_estimates_likelihoods_and_the_choice_follow_from_the_equations(alpha, weighted):
    points, links = draw(3, alpha=alpha)
    weights = np.random.default_rng(1).integers(1, 4, 300).astype(float) if weighted else None
    table, states = play_stages(points, links, weights)
    devices, n = table.devices, len(table.devices)
    names = [name for name, _ in states]
    assert names == [
        "coupling-estimate", "interim bayes", "coupling-estimate", "interim bayes", "coupling-estimate",
        "interim links", "interim bayes without shares", "interim links without shares", "coupling-choice",
    ]  # fmt: skip
    first, last = states[0][1].trials, states[-2][1].trials
    assert not last.is_strong.any() and last.is_even.all() == (alpha is None)
    ends = [(min(e), max(e)) for e in zip(devices.sources.tolist(), devices.indices.tolist(), strict=True)]
    expected = twin(points, links, np.repeat(CENTERS[None], n, axis=0), weights=weights)
    assert_allclose(first.edge_bayes, [expected[e][0] for e in ends], rtol=1e-9)
    if alpha is None:  # with shares the labels of the estimate are others
        expected = twin(points, links, states[3][1].centroids, nu=8, weights=weights)
        assert_allclose(last.edge_links, [expected[e][0] for e in ends], rtol=1e-9)
        assert_allclose(last.edge_weights, [expected[e][1] for e in ends], rtol=1e-9)
    # Lloyd steps: the first one from the common centroids, two more by distance, and by distance and share.
    means, _, counts = lloyd(table, CENTERS, np.zeros((n, 3)))
    mixtures = [states[step][1].trials.mixture[0] for step in (0, 2, 4)]
    pooled, shared, penalties = (means, None), (means, None), None
    for step, (s2, m0) in enumerate(mixtures):
        if step:
            pooled = lloyd(table, pooled[0], np.zeros((n, 3)))
            shared = lloyd(table, shared[0], penalties)
            counts, m0 = shared[2], mixtures[step - 1][1]
        penalties = -2 * s2 * np.log((counts + m0) / (counts.sum(axis=1, keepdims=True) + 3 * m0))
    # Likelihoods of all candidates that were run.
    s2, m0 = mixtures[-1]
    runs = {False: {"bayes": 3, "links": 5}, True: {"bayes": 6, "links": 7}}
    totals = dict.fromkeys(CHOICES, -math.inf)
    has_shares = alpha is not None
    for other in (False, True) if has_shares else (False,):
        for coupling, position in runs[other].items():
            state = states[position][1]
            name = f"{coupling} with shares" if has_shares and not other else coupling
            pull = 2 * np.bincount(devices.sources, state.edge_alpha, n) / devices.unit
            fixed = state.shares.penalties if name.endswith("shares") else np.zeros((n, 3))
            totals[name] = sum(
                likelihood(devices.table(i)[0], devices.table(i)[1] / devices.unit, state.centroids[i], pull[i],
                           fixed[i], s2, m0)
                for i in range(n)
            )  # fmt: skip
    for name, step, fixed in (("strong", pooled, np.zeros((n, 3))), ("strong with shares", shared, penalties)):
        if name == "strong" or has_shares:
            totals[name] = sum(
                likelihood(devices.table(i)[0], devices.table(i)[1] / devices.unit, step[0], step[1], fixed[i], s2, m0)
                for i in range(n)
            )
    final = states[-1][1]
    root = int(np.flatnonzero(build_spanning_tree(table.topology).parent < 0)[0])
    assert_allclose(final.totals[root], [totals[name] for name in CHOICES], rtol=1e-9)
    best = CHOICES[final.chosen[0]]
    assert_allclose(totals[best], max(totals.values()), rtol=1e-9)  # some are equal but for rounding
    assert (final.chosen == final.chosen[0]).all() and final.converged.all()
    assert (final.edge_estimated == 1.0).all() == (not best.startswith("links"))
    assert final.shares.noise.any() == best.endswith("shares")


SPOTS = np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]])  # without noise
WORLDS = {  # points and links of a component, and what it chooses
    "no difference": (lambda: draw(1, shift=0.0), "strong"),
    "shares alone differ": (lambda: draw(1, n=12, shift=0.0, alpha=0.3), "strong with shares"),
    "all differ": (lambda: draw(2, n=7, shift=1.2), "bayes"),
    "centers and shares differ": (lambda: draw(0, shift=0.5, alpha=0.4), "bayes with shares"),
    "few differ": (lambda: odd_ones(4), "links"),
    "few differ, and shares": (lambda: odd_ones(0, alpha=0.5), "links with shares"),
    "one device": (lambda: (draw(2)[0][:1], []), "strong"),
    "no noise": (lambda: ([SPOTS] * 3, [(0, 1, 1.0), (1, 2, 1.0)]), "strong"),
}


def odd_ones(seed, **options):
    """Points and links of a grid of devices, two of which are far from the others."""
    points, _ = draw(seed, n=16, shift=0.0, each=60, **options)
    for i in (3, 9):
        points[i] = points[i] + 2.0
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 4))
    return points, [(min(e), max(e), 1.0) for e in grid.edges()]


def put_together(parts, seed=0):
    """Number the devices of several components in random order, ascending within each; return also these numbers."""
    owner = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(parts)), [len(p) for p, _ in parts]))
    places = [np.flatnonzero(owner == number) for number in range(len(parts))]
    points, links = [None] * len(owner), []
    for place, (own, ties) in zip(places, parts, strict=True):
        for i, rows in zip(place, own, strict=True):
            points[i] = rows
        links += [(place[i], place[j], weight) for i, j, weight in ties]
    return points, links, places


def find_edges(table, place):
    """Edges of some devices, in the order that they have for these devices alone."""
    return np.flatnonzero(np.isin(table.devices.sources, place))


@pytest.mark.parametrize("order", range(3))
@pytest.mark.sample(3)
def test_each_component_estimates_and_chooses_as_if_it_were_alone(order):
    parts = [make() for make, _ in WORLDS.values()]
    points, links, places = put_together(parts, order)
    whole, states = play_stages(points, links)
    for (world, (_, expected)), part, place in zip(WORLDS.items(), parts, places, strict=True):
        _, own = play_stages(*part, d=2)
        edges = find_edges(whole, place)
        assert CHOICES[own[-1][1].chosen[0]] == expected, world
        for (name, state), (_, together) in zip(own, states, strict=True):
            found = {"centroids": place, "shares.noise": place, "edge_alpha": edges, "trials.likelihoods": place}
            found |= {"chosen": place, "coupling": place, "shares.penalties": place, "edge_estimated": edges}
            is_over = state.trials is not None and not state.trials.is_open.any()
            for field, rows in found.items():
                value, other = read(state, field), read(together, field)
                # Estimates and runs of a component whose choice is made mean nothing.
                if value is not None and not (is_over and field not in ("centroids", "trials.likelihoods")):
                    assert_array_equal(other[rows], value, f"{world}: {field} after {name}")


def read(state, path):
    """Read a field of a state, perhaps of a part of it; None if one of them is absent."""
    for name in path.split("."):
        state = None if state is None or name not in state._fields else state[state._fields.index(name)]
    return state


def scatter(seed, **options):
    return p2pkm.Shards.from_list(draw(seed, **options)[0])


SMALL_WORLD = topologies.small_world(10, degree=4, seed=1)
SAME = {  # graph and points, and what is chosen for them
    "strong": (SMALL_WORLD, lambda: scatter(1, shift=0.0)),
    "bayes with shares": (SMALL_WORLD, lambda: scatter(3, shift=0.5, alpha=0.4)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_choice_equals_the_run_with_this_coupling(name):
    graph, draw_points = SAME[name]
    shards = draw_points()
    found = p2pkm.simulate(p2pkm.GTVMin(3, coupling="auto"), graph, shards)
    assert found.summary["coupling_chosen"] == name and found.summary["descent"] == "certified"
    assert f"coupling=auto chose {name}, by leave-one-out likelihood" in found.notes
    assert found.link_weights is None and (found.label_penalties is None) == ("shares" not in name)
    method = p2pkm.GTVMin(3, coupling=name.split()[0], shares="shares" in name, relaxation="auto")
    alone = p2pkm.simulate(method, graph, shards, quantize="none")
    assert alone.centroids.tobytes() == found.centroids.tobytes()
    # Of strong alone, the coupling follows from the graph, without messages.
    assert (alone.couplings is None) == (name == "strong") and (found.couplings == found.summary["coupling"]).all()
    assert alone.summary["coupling_chosen"] == (None if name == "strong" else name.split()[0])
    assert alone.summary["coupling"] == found.summary["coupling"]
    # A device that joins has the rule of the chosen coupling: links of bayes are alike whatever the degrees.
    assert found.new_links.by_degree.all() == (name == "strong")
    points = CENTERS[[0, 1, 1, 2]] + 0.5
    joined = [result.adapt(points, neighbors=[0, 1]) for result in (alone, found)]
    assert joined[0].tobytes() == joined[1].tobytes()


def test_links_are_chosen_where_few_devices_differ_and_their_weights_are_kept(tmp_path):
    points, _ = draw(4, n=16, shift=0.0, each=60)
    for i in (3, 9):
        points[i] = points[i] + 4.0
    result = p2pkm.simulate("gtvmin:coupling=auto", topologies.torus(16), p2pkm.Shards.from_list(points), clusters=3)
    assert result.summary["coupling_chosen"].startswith("links")
    topology, weights = result.topology, result.link_weights
    sources = np.repeat(np.arange(16), np.diff(topology.indptr))
    odd = np.isin(sources, (3, 9)) | np.isin(topology.indices, (3, 9))
    assert weights[odd].max() < 0.2 * weights[~odd].min()
    result.save(tmp_path / "run")
    loaded = p2pkm.load(tmp_path / "run")
    assert_array_equal(loaded.link_weights, weights)
    assert loaded.summary["coupling_chosen"] == result.summary["coupling_chosen"]


def test_a_choice_that_is_clear_at_once_costs_one_estimate():
    found = p2pkm.simulate("gtvmin:coupling=auto", SMALL_WORLD, scatter(1, shift=0.0), clusters=3, record_every=1)
    # What the devices leave out has no record.
    recorded = [(record["stage"], record["round"]) for record in found.rounds if record["stage"] != "gtvmin"]
    assert recorded[-3:] == [("coupling-estimate", 0), ("coupling-estimate", 1), ("coupling-choice", 0)]


@pytest.mark.parametrize("link_model", [None, "wan"])
def test_records_show_what_ran_and_no_step_back_before_the_choice(link_model):
    points = scatter(2, n=10, shift=1.2)  # shares are even
    found = p2pkm.simulate("gtvmin", SMALL_WORLD, points, clusters=3, record_every=1, link_model=link_model)
    names = [name for name, _ in groupby(found.rounds, key=lambda record: record["stage"])]
    assert names == [
        "tree-summaries", "coupling-estimate", "interim bayes", "coupling-estimate", "interim bayes",
        "coupling-estimate", "interim links", "coupling-choice", "gtvmin",
    ]  # fmt: skip
    last, choice = (
        [record for record in found.rounds if record["stage"] == name] for name in ("interim links", "coupling-choice")
    )
    assert (choice[0]["gtv"], choice[0]["ratio_mean"]) == (last[-1]["gtv"], last[-1]["ratio_mean"])
    if link_model:
        seconds = [record["virtual_seconds"] for record in found.rounds]
        assert seconds == sorted(seconds) and seconds[-1] == found.summary["virtual_seconds"]


REFUSED = [  # parameters of the method, options of the run, and a part of the error
    ({"matching": "optimal"}, {}, "coupling=auto and matching=optimal cannot be combined"),
    ({"local_steps": 2}, {}, "it may choose shares"),
    ({"init": "flooded-summaries:hops=1"}, {}, "initial centroids that all devices agreed on"),
    ({"schedule": "async"}, {"link_model": "wan"}, "compared by messages that arrive at once"),
    ({}, {"byzantine": 1}, "compared by messages that arrive unchanged"),
    ({}, {"start": np.repeat(CENTERS[None], 7, axis=0)}, "all must have agreed on the start by messages"),
    ({}, {"quantize": "rice"}, "gtvmin with coupling=auto: the method may choose shares"),
]


@each(("method", "options", "reason"), REFUSED, ids=str)
def test_where_nothing_can_be_chosen_the_choice_is_refused(method, options, reason):
    with pytest.raises(ExperimentError, match=reason):
        p2pkm.simulate(p2pkm.GTVMin(3, coupling="auto", **method), "complete", scatter(0, n=7), rounds=5, **options)


PARTS = {  # of a run: points and links of a component
    "bayes with shares": lambda: draw(0, shift=0.5, alpha=0.4),
    "strong": lambda: draw(1, shift=0.0),
    "bayes": lambda: draw(2, n=7, shift=1.2),
    "one device": lambda: (draw(2, alpha=0.1)[0][:1], []),
    "no points": lambda: ([np.zeros((0, 2))] * 2, [(0, 1, 1.0)]),
}


def run_parts(parts, **options):
    """Run the default method on components, whose devices are numbered one after the other."""
    graph, points = nx.Graph(), []
    for own, links in parts:
        first = len(points)
        points += list(own)
        graph.add_nodes_from(range(first, len(points)))
        graph.add_weighted_edges_from((first + i, first + j, weight) for i, j, weight in links)
    options = {"rounds": 6, "baselines": False, "allow_disconnected": True, "record_every": 1} | options
    return p2pkm.simulate(p2pkm.GTVMin(3), graph, p2pkm.Shards.from_list(points), **options)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.sample(3)
def test_a_run_in_parts_is_the_run_of_each_part(first):
    """The first one has the same numbers of devices as alone, so the same draws. A stage ends for all at one time."""
    parts = [make() for make in PARTS.values()]
    parts = parts[first:] + parts[:first]
    whole, alone = run_parts(parts, all_rounds=True), run_parts(parts[:1], all_rounds=True)
    n, e = len(alone.centroids), len(alone.topology.indices)
    assert whole.centroids[:n].tobytes() == alone.centroids.tobytes()
    assert_array_equal(whole.couplings[:n], alone.couplings)
    assert_array_equal(whole.label_penalties[:n], 0.0 if alone.label_penalties is None else alone.label_penalties)
    assert_array_equal(whole.new_links.strength[:n], alone.new_links.strength if e else whole.new_links.strength[:n])
    for name in ("messages", "bytes", "edge_rows"):
        assert_array_equal(whole.ledger._asdict()[name][:e], alone.ledger._asdict()[name])
    points = np.concatenate(parts[0][0])
    assert_array_equal(whole.predict(points, device=0), alone.predict(points, device=0))
    if e:  # in any order: clusters are numbered by a device that may be in another component
        joined = [sorted(result.adapt(points[:9], neighbors=[0, 1]).tolist()) for result in (whole, alone)]
        assert joined[0] == joined[1]


def test_one_line_says_which_choice_is_in_how_many_components(tmp_path):
    result = run_parts([make() for make in PARTS.values()], rounds=60)
    chosen = "strong (3 components), bayes (1 component), bayes with shares (1 component)"
    assert result.summary["coupling_chosen"] == chosen and result.summary["descent"] == "certified"
    assert [note for note in result.notes if "coupling" in note] == [
        f"coupling=auto chose {chosen}, by leave-one-out likelihood"
    ]
    # The couplings differ, so their mean over devices is told, and no relaxation.
    assert 0.0 < result.summary["coupling"] < 30.0 and result.summary["relaxation"] is None
    # Those of the devices are equal within a component.
    firsts = result.couplings[[0, 10, 20, 27, 28]]
    assert_array_equal(result.couplings, np.repeat(firsts, [len(make()[0]) for make in PARTS.values()]))
    assert firsts[[1, 3, 4]].tolist() == [30.0, 10.0, 10.0] and (firsts[[0, 2]] < 1.0).all()
    assert result.summary["coupling"] == pytest.approx(result.couplings.mean(), rel=1e-12)
    assert result.link_weights is None and (result.label_penalties[:10] > 0.0).all()
    result.save(tmp_path / "run")
    loaded = p2pkm.load(tmp_path / "run")
    assert_array_equal(loaded.couplings, result.couplings)
    for name, part in result.new_links._asdict().items():
        assert_array_equal(loaded.new_links._asdict()[name], part)
    points = draw(3)[0][0]
    for ids in ([0, 1], [10, 11], [20], [0, 12]):
        assert loaded.adapt(points, neighbors=ids).tobytes() == result.adapt(points, neighbors=ids).tobytes()


def test_a_component_of_one_device_is_strong_without_shares():
    points, links = draw(3, shift=0.5, alpha=0.4)
    lone = [np.concatenate((CENTERS[[0] * 90] + part, CENTERS[[1] * 4] / 2, CENTERS[[2] * 3] / 2))
            for part in np.random.default_rng(0).normal(size=(5, 90, 2))]  # fmt: skip
    result = run_parts([(points, links), *(([one], []) for one in lone)])
    assert result.summary["coupling_chosen"].startswith("strong (5 components), ")
    assert run_parts([([lone[0]], [])]).summary["coupling_chosen"] == "strong"


@pytest.mark.parametrize(("points", "n"), [
    ([np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]])] * 3, 3),  # no noise
    ([np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0], [1.0, 0.0]])], 1),  # one device
    ([np.zeros((0, 2)), np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0], [1.0, 0.0]])], 2),  # an empty neighbor
    ([np.zeros((0, 2))] * 2 + [np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0], [1.0, 0.0]])], 3),  # two of them
    # Ends of the link without a cluster in common.
    ([np.array([[0.0, 0.0], [0.3, 0.0], [9.0, 0.0], [9.3, 0.0]]), np.array([[50.0, 0.0], [50.4, 0.0]])], 2),
])  # fmt: skip
@pytest.mark.sample(3)
def test_where_nothing_can_be_estimated_strong_is_chosen(points, n):
    shards = p2pkm.Shards.from_list(points)
    for name in ("auto", "bayes", "links"):
        found = p2pkm.simulate(p2pkm.GTVMin(3, coupling=name), topologies.path(n), shards)
        assert found.summary["coupling_chosen"] == "strong"
        assert [note for note in found.notes if note.startswith(f"coupling={name}")]


def test_shares_are_chosen_and_not_asked_for():
    with pytest.raises(ExperimentError, match="auto chooses whether shares are used"):
        p2pkm.GTVMin(3, coupling="auto", shares=True)


@pytest.mark.mpi
@pytest.mark.parametrize("count", [3, 7])
def test_the_same_bits_on_any_number_of_ranks(count):
    """On 7 ranks two of them have none of 5 devices."""
    commands = [
        ("--devices", devices, "--graph", "small-world:degree=4", "--data", f"device-clusters:{data}", "--coupling",
         "auto", "--no-baselines", "--out", "none", "--format", "json", "-q")
        for data, devices in (("class_alpha=0.3", 14), ("amplitude=0.7", 14), ("along=none", 14),
                              ("class_alpha=0.3", 5), ("along=none,points=100", 5))
    ]  # fmt: skip
    keys = ("centroids_sha256", "chain_sha256", "coupling", "coupling_chosen", "bytes", "objective", "test_ari")
    for words, ending in zip(commands, on_ranks(count, commands), strict=True):
        found, expected = ending.summary, here(*words).summary
        for key in keys:
            assert found[key] == expected[key], (key, words)


COMPONENTS_ON_RANKS = """
from p2pkm.network.world import connect
from tests.methods.init.test_coupling_trials import PARTS, run_parts
result = run_parts([make() for make in PARTS.values()], rounds=20)
if connect().rank == 0:
    print(result.summary["centroids_sha256"], result.summary["chain_sha256"], result.couplings.tobytes().hex())
"""


@pytest.mark.mpi
def test_components_have_the_same_couplings_on_ranks():
    """Rank 0 computes the strong coupling of all components, also of those whose devices it does not host."""
    found = there(*ranks(3), "-c", COMPONENTS_ON_RANKS)
    assert found.code == 0, found.err
    assert found.out == there(*ranks(1), "-c", COMPONENTS_ON_RANKS).out != ""
