"""Graphs as arrays: the same as networkx's where nothing is drawn, like them in distribution where something is."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import p2pkm
import topologies
from p2pkm.core.errors import TopologyError
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.network.graph import Topology
from tests.support.each import each
from topologies import CSRGraph
from topologies.csr_graph import pack
from topologies.families import csr as large

DRAWN = [
    ("small-world", {"degree": 6, "rewire": 0.2}),
    ("small-world", {"degree": 4, "rewire": 1.0}),
    ("random-regular", {"degree": 5}),
    ("barabasi-albert", {"m": 3}),
    ("random-geometric", {"radius": 0.12}),
]
ALL = [("ring", {}), ("grid", {}), ("torus", {}), ("exponential", {}), *DRAWN]


def edges(graph):
    return sorted(tuple(sorted(link)) for link in graph.edges)


def arrays(graph):
    return graph.indptr.tolist(), graph.indices.tolist()


# --- the same graphs ---


@pytest.mark.parametrize("name", ["ring", "grid", "torus", "exponential"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8, 12, 16, 60, 100])
def test_without_chance_both_forms_are_the_same_graph(name, n):
    light = topologies.build(name, n, light=True)
    topologies.check(light)
    heavy = topologies.build(name, n)
    assert edges(light.to_networkx()) == edges(heavy)
    assert arrays(light) == arrays(CSRGraph.from_networkx(heavy))
    assert (len(light), light.number_of_nodes(), light.number_of_edges()) == (n, n, heavy.number_of_edges())
    assert light.name == name and light.weights is None


@pytest.mark.parametrize("n", [1, 2, 4, 8, 64])
def test_both_forms_of_the_hypercube_are_the_same_graph(n):
    light = topologies.build("hypercube", n, light=True)
    assert arrays(light) == arrays(CSRGraph.from_networkx(topologies.build("hypercube", n)))


@pytest.mark.parametrize(("name", "rows"), [("grid", 1), ("grid", 2), ("torus", 1), ("torus", 2), ("torus", 4)])
def test_sides_of_one_and_two(name, rows):
    light = topologies.build(name, 12, rows=rows, light=True)
    assert edges(light.to_networkx()) == edges(topologies.build(name, 12, rows=rows))


@given(n=st.integers(1, 70), base=st.integers(2, 80))
def test_exponential_graphs_link_over_powers_of_the_base(n, base):
    steps = [base**t for t in range(8) if base**t < n]
    expected = {tuple(sorted((i, (i + step) % n))) for i in range(n) for step in steps}
    assert edges(topologies.exponential(n, base=base)) == sorted(expected)
    assert edges(large.exponential(n, base=base).to_networkx()) == sorted(expected)


def test_exponential_graphs_have_short_ways():
    assert nx.diameter(topologies.exponential(64)) == 3
    assert {degree for _, degree in topologies.exponential(64).degree} == {11}


def test_random_geometric_links_exactly_what_is_near():
    light = large.random_geometric(300, radius=0.15, seed=3)
    from numpy.random import default_rng

    from topologies.families.random import draw_seeds

    for seed in draw_seeds(3, "random-geometric"):  # the first draw that is connected
        place = default_rng(seed).random((300, 2))
        apart = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2))
        graph = nx.from_numpy_array((apart <= 0.15) & ~np.eye(300, dtype=bool))
        if nx.is_connected(graph):
            break
    assert edges(light.to_networkx()) == edges(graph)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 30, 200])
def test_the_usual_radius_connects(n):
    for seed in range(3):
        assert nx.is_connected(topologies.random_geometric(n, seed=seed))
        assert nx.is_connected(large.random_geometric(n, seed=seed).to_networkx())


# --- the same distribution ---


@pytest.mark.parametrize(("name", "options"), DRAWN)
def test_every_draw_is_a_legal_connected_graph_that_the_seed_decides(name, options):
    first, again, other = (topologies.build(name, 300, light=True, seed=seed, **options) for seed in (1, 1, 2))
    topologies.check(first)
    assert nx.is_connected(first.to_networkx())
    assert arrays(first) == arrays(again) != arrays(other)


def figures(graph):
    """Degrees: variance, mean of the squares over links (who links whom); triangles; mean distance from device 0."""
    degree = np.array([graph.degree[i] for i in range(len(graph))], float)
    ends = np.array(list(graph.edges))
    mixed = (degree[ends[:, 0]] * degree[ends[:, 1]]).mean()
    shape = [len(ends), degree.var(), degree.max(), degree[:10].mean(), degree[-100:].mean(), mixed]
    return [*shape, nx.average_clustering(graph), sum(nx.triangles(graph).values()),
            np.mean(list(nx.single_source_shortest_path_length(graph, 0).values()))]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), DRAWN)
def test_both_forms_have_the_same_statistics(name, options):
    """At most 4.5 standard errors apart in the mean of every figure over draws of 400 devices."""
    tables = []
    for light in (False, True):
        graphs = [topologies.build(name, 400, light=light, seed=seed, **options) for seed in range(30)]
        tables.append(np.array([figures(graph.to_networkx() if light else graph) for graph in graphs]))
    error = np.sqrt(sum(table.var(axis=0, ddof=1) / len(table) for table in tables))
    assert (abs(tables[0].mean(axis=0) - tables[1].mean(axis=0)) <= 4.5 * error + 1e-9).all()


@pytest.mark.slow
def test_small_draws_have_the_odds_worked_out_by_hand():
    seen = [edges(large.random_regular(8, degree=2, seed=seed).to_networkx()) for seed in range(400)]
    share = np.mean([(0, 1) in links for links in seen])
    assert abs(share - 2 / 7) < 4.5 * (2 / 7 * 5 / 7 / 400) ** 0.5
    grown = [large.barabasi_albert(4, m=2, seed=seed).to_networkx() for seed in range(400)]
    hub = np.mean([graph.has_edge(3, 0) for graph in grown])  # 1 - P(1 and 2) = 1 - 2 (1/4)(1/3) = 5/6
    assert abs(hub - 5 / 6) < 4.5 * (5 / 36 / 400) ** 0.5


def test_moved_links_keep_one_end_and_leave_no_double_link():
    n, reach = 500, 3
    u, v = large.rewire_lattice(n, reach, 0.3, np.random.default_rng(1))
    assert (u == np.tile(np.arange(n), reach)).all() and (u != v).all()
    assert len(np.unique(np.minimum(u, v) * n + np.maximum(u, v))) == n * reach
    lattice = (u + np.repeat([1, 2, 3], n)) % n
    assert abs((v != lattice).mean() - 0.3) < 4.5 * (0.21 / (n * reach)) ** 0.5
    ends = np.bincount(v[v != lattice] // 50, minlength=10)
    assert abs(ends - ends.mean()).max() < 4.5 * ends.mean() ** 0.5
    u, v = large.rewire_lattice(20, reach, 1.0, np.random.default_rng(1))  # many draws hit a link that is there
    assert (v != (u + np.repeat([1, 2, 3], 20)) % 20).all()


def test_a_link_that_finds_no_free_end_stays():
    light = large.small_world(6, degree=4, rewire=1.0, seed=1)
    topologies.check(light)
    assert light.number_of_edges() == 12
    assert edges(large.small_world(20, degree=4, rewire=0.0).to_networkx()) == edges(nx.circulant_graph(20, [1, 2]))


@each(("n", "m"), [(2, 1), (5, 4), (6, 4), (9, 1), (40, 20), (300, 7)])
def test_new_devices_choose_distinct_ones_before_them(n, m):
    light = large.barabasi_albert(n, m=m, seed=2)
    assert light.number_of_edges() == m * (n - m)
    source = np.repeat(np.arange(n), np.diff(light.indptr))
    before = np.bincount(source[light.indices < source], minlength=n)
    assert before.tolist() == [0] + [1] * m + [m] * (n - m - 1)


def test_a_choice_of_a_choice_is_followed_to_its_end():
    places = np.array([0, 3, 5, 6, 9, 8])  # m = 2; row r: its choices at 4 + 4 r and 5 + 4 r, then itself twice
    assert large.follow_choices(places, 4, 2).tolist() == [0, 3, 3, 6, 6, 3]


@each(("n", "degree"), [(2, 1), (7, 2), (8, 3), (16, 7), (16, 9), (16, 15), (64, 60), (500, 6)])
def test_regular_graphs_are_regular(n, degree):
    light = topologies.build("random-regular", n, degree=degree, light=True)
    topologies.check(light)
    assert np.diff(light.indptr).tolist() == [degree] * n


# --- the door ---


def test_large_graphs_are_light_and_small_ones_are_not(monkeypatch):
    monkeypatch.setattr("topologies.registry.LARGE", 50)
    assert set(topologies.LIGHT) <= set(topologies.FAMILIES)
    for name in topologies.LIGHT.keys() - {"hypercube"}:
        assert type(topologies.build(name, 50)) is nx.Graph
        assert type(topologies.build(name, 52)) is CSRGraph
        assert type(topologies.build(name, 52, light=False)) is nx.Graph
        assert topologies.FAMILIES[name].__kwdefaults__ == topologies.LIGHT[name].__kwdefaults__
    assert type(topologies.build("tree", 52)) is nx.Graph
    assert type(topologies.build("hypercube", 64)) is CSRGraph


def test_families_without_a_light_form_are_converted():
    light = topologies.build("karate", light=True, weighted=True)
    heavy = topologies.karate(weighted=True)
    assert light.weights.sum() == 2 * sum(weight for _, _, weight in heavy.edges(data="weight"))
    back = light.to_networkx()
    assert not [(u, v, weight) for u, v, weight in heavy.edges(data="weight") if back[u][v]["weight"] != weight]
    half = nx.Graph([(0, 1, {"weight": 3}), (1, 2)])
    assert CSRGraph.from_networkx(half).weights.tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("name", "n", "options", "message"),
    [
        ("grid", 7, {}, "Use another number of devices, or set rows=1"),
        ("small-world", 10, {"degree": 3}, "expected an even number"),
        ("random-regular", 7, {"degree": 3}, "Use an even degree"),
        ("barabasi-albert", 2, {}, "the largest legal value is 1"),
        ("exponential", 8, {"base": 1}, "exponential: base is 1; expected a whole number, 2 or more"),
        ("random-geometric", 8, {"radius": 0}, "radius is 0; expected a finite number above 0"),
        ("random-geometric", 30, {"radius": 0.01}, "none of 100 draws for 30 devices was connected. Use a larger rad"),
        ("random-regular", 8, {"seed": -1}, "seed is -1"),
        ("ring", 0, {}, "ring: n is 0"),
        ("ring", 5, {"light_": 2}, "unknown option 'light_'"),
    ],
)
@pytest.mark.parametrize("light", [False, True])
def test_both_forms_refuse_alike(name, n, options, message, light):
    with pytest.raises(topologies.GraphError, match=message):
        topologies.build(name, n, light=light, **options)


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize(
    ("indptr", "indices", "weights", "message"),
    [
        ([0], [], None, "the graph has no devices"),
        ([1, 1], [], None, "indptr does not divide"),
        ([0, 1, 2], [1, 0, 0], None, "indptr does not divide the 3 indices into devices"),
        ([0, 2, 1, 2], [1, 0], None, "indptr does not divide"),
        ([0, 1, 2], [1, 2], None, "indices reach from 1 to 2; expected devices 0 to 1"),
        ([0, 1, 2], [-1, 0], None, "indices reach from -1"),
        ([0, 1, 2], [0, 1], None, "device 0 has a link to itself"),
        ([0, 2, 3, 4], [2, 1, 0, 0], None, "must be strictly ascending"),
        ([0, 2, 4], [1, 1, 0, 0], None, "must be strictly ascending"),
        ([0, 1, 2, 3], [1, 0, 0], None, "at one of its ends only; the penalty between neighbors is symmetric"),
        ([0, 1, 2, 3], [1, 0, 0], [1.0, 1.0, 1.0], "at one of its ends only"),
        ([0, 1, 2, 3], [1, 2, 0], None, "at one of its ends only"),
        ([0, 1, 2], [1, 0], [1.0], "the number of weights is 1; expected 2, one for each index"),
        ([0, 1, 2], [1, 0], [1.0, 0.0], "a weight is not a finite number above 0"),
        ([0, 1, 2], [1, 0], [np.nan, np.nan], "a weight is not a finite number above 0"),
        ([0, 1, 2], [1, 0], [1.0, 2.0], "the ends of a link have different weights"),
    ],
)
def test_arrays_that_are_no_graph(indptr, indices, weights, message, few, monkeypatch):
    monkeypatch.setattr("topologies.checks._FEW", few)  # links that are sorted, not counted
    given = CSRGraph(np.array(indptr), np.array(indices, np.int64), None if weights is None else np.array(weights))
    with pytest.raises(topologies.GraphError, match=message):
        topologies.check(given)
    with pytest.raises(TopologyError, match=message):
        Topology.from_graph(given)


# --- topologies of the simulator ---


def same(one, other):
    return all(np.array_equal(part, other.to_arrays()[name]) for name, part in one.to_arrays().items())


@pytest.mark.parametrize("name", sorted(topologies.DETERMINISTIC))
def test_a_deterministic_family_is_the_same_topology_light_or_not(name):
    assert name in topologies.LIGHT
    for n in (2, 4, 16, 64):
        light, heavy = (Topology.from_graph(topologies.build(name, n, light=form)) for form in (True, False))
        assert same(light, heavy)
        assert light.names is None and heavy.names is None


@pytest.mark.parametrize("few", [0, 10_000])
def test_weights_are_compared_with_those_at_the_other_end(few, monkeypatch):
    monkeypatch.setattr("topologies.checks._FEW", few)
    graph = topologies.build("small-world", 40, light=True)
    weights = 1.0 + (graph.indices + np.arange(40).repeat(np.diff(graph.indptr)))
    topologies.check(CSRGraph(graph.indptr, graph.indices, weights))
    weights[7] += 1
    with pytest.raises(topologies.GraphError, match="the ends of a link have different weights"):
        topologies.check(CSRGraph(graph.indptr, graph.indices, weights))


@pytest.mark.parametrize("many", [0, 50_000])
@pytest.mark.parametrize(("name", "options"), ALL)
def test_light_and_networkx_make_the_same_topology(name, options, many, monkeypatch):
    monkeypatch.setattr("p2pkm.network.graph._MANY", many)
    light = topologies.build(name, 300, light=True, **options)
    topology = Topology.from_graph(light)
    assert same(topology, Topology.from_graph(light.to_networkx()))
    assert Topology.from_graph(topology) is topology
    assert not [part for part in (topology.indptr, topology.indices, topology.colors) if part.dtype != np.int64]


def test_all_arrays_share_one_compilation(monkeypatch):
    monkeypatch.setattr("p2pkm.network.graph._MANY", 0)
    topology = Topology.from_graph(topologies.ring(40))
    assert topology.components.tolist() == [0] * 40 and topology.layers(0).max() == 20
    for name in ("color", "components", "layers"):
        kernel = compiled.entry(name)
        assert len(kernel.signatures) == 1 and not any(array.mutable for array in kernel.signatures[0])


def test_weights_and_narrow_arrays_arrive():
    light = CSRGraph(np.array([0, 1, 3, 4], np.int32), np.array([1, 0, 2, 1], np.int32), np.array([2, 2, 3, 3]))
    topology = Topology.from_graph(light)
    assert topology.weights.tolist() == [2, 2, 3, 3] and topology.indices.dtype == np.int64
    heavy = nx.Graph([(0, 1, {"weight": 2}), (1, 2, {"weight": 3})])
    assert same(topology, Topology.from_networkx(heavy))


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 45))
    ends = st.integers(0, n - 1)
    links = np.array(draw(st.lists(st.tuples(ends, ends), max_size=70)), np.int64).reshape(-1, 2)
    return pack(n, links[:, 0], links[:, 1])


@given(n=st.integers(1, 20), seed=st.integers(0, 99), links=st.integers(0, 200))
@example(n=3, seed=0, links=200)
def test_many_links_are_packed_as_few_are(n, seed, links):
    u, v = np.random.default_rng(seed).integers(n, size=(2, links))
    few = pack(n, u, v)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topologies.csr_graph._MANY", -1)
        many = pack(n, u, v)
    assert np.array_equal(many.indptr, few.indptr) and np.array_equal(many.indices, few.indices)
    assert many.indptr.dtype == many.indices.dtype == np.int64 and many.weights is None


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@given(light=graphs())
def test_walks_against_plain_loops(kernels, light):
    graph, n = light.to_networkx(), len(light)
    parts = [light.indptr.view(), light.indices.view(), np.array([0, n - 1])]
    for part in parts:
        part.flags.writeable = False
    colors = []
    for i in range(n):
        colors.append(min(set(range(n)) - {colors[j] for j in graph[i] if j < i}))
    assert kernels.color(*parts[:2]).tolist() == colors
    numbers = {i: number for number, part in enumerate(nx.connected_components(graph)) for i in part}
    assert kernels.components(*parts[:2]).tolist() == [numbers[i] for i in range(n)]
    away = [nx.single_source_shortest_path_length(graph, root) for root in (0, n - 1)]
    expected = [min((one[i] for one in away if i in one), default=-1) for i in range(n)]
    assert kernels.layers(*parts).tolist() == expected


@given(light=graphs(), many=st.sampled_from([0, 50_000]))
@example(light=large.torus(40), many=0)
@example(light=large.grid(36), many=50_000)
def test_bounds_and_trees_against_plain_loops(light, many):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("p2pkm.network.graph._MANY", many)
        topology = Topology.from_graph(light)
        tree = build_spanning_tree(topology)
    graph, n = light.to_networkx(), len(light)
    parts = [sorted(part) for part in nx.connected_components(graph)]
    ways = dict(nx.all_pairs_shortest_path_length(graph))
    reach = [max(ways[min(part)].values()) if n > 32 else max(max(ways[i].values()) for i in part) for part in parts]
    assert topology.hops == (min(2 * max(reach), n - 1) if n > 32 else max(reach))
    for part in parts:
        one = max(part, key=lambda i: (ways[min(part)][i], -i))
        other = max(part, key=lambda i: (ways[one][i], -i))  # the two ends of a long path
        root = min(part, key=lambda i: (max(ways[one][i], ways[other][i]), i))
        for i in part:
            assert tree.layer[i] == ways[root][i]
            above = [j for j in graph[i] if ways[root][j] == ways[root][i] - 1]
            assert tree.parent[i] == min(above, default=-1)


def test_a_run_takes_either_form():
    shards = p2pkm.Shards.deal(np.random.default_rng(1).normal(size=(240, 2)), np.arange(240) % 12)
    light = topologies.build("small-world", 12, light=True)
    runs = [p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=3) for graph in (light, light.to_networkx())]
    assert np.array_equal(runs[0].centroids, runs[1].centroids)
    assert edges(runs[0].graph) == edges(light.to_networkx())
    with pytest.raises(TopologyError, match="indices reach"):
        p2pkm.simulate(p2pkm.GTVMin(3), CSRGraph(np.array([0, 1, 2]), np.array([5, 0])), shards)


def test_a_hundred_thousand_devices_from_their_name():
    graph = topologies.build("small-world", 120_000, degree=6)
    assert type(graph) is CSRGraph
    topology = Topology.from_graph(graph)
    ends = topology.colors[topology.sources] != topology.colors[topology.indices]
    assert ends.all() and topology.colors.max() < 10 and topology.components.max() == 0
    assert topology.layers(0).max() <= topology.hops < 60


def move_links(links, moving, taken, ends):
    """Move links to ends where none is taken, one after the other; return those that stay."""
    left = []
    for place, end in zip(moving, ends, strict=True):
        link = frozenset((links[place][0], end))
        if len(link) == 1 or link in taken:
            left.append(place)
        else:
            links[place][1] = end
            taken.add(link)
    return left


@pytest.mark.parametrize(("n", "reach", "chance"), [(7, 3, 1.0), (30, 2, 0.5), (41, 15, 0.9)])
def test_links_move_where_none_stands_that_has_not_moved_before(n, reach, chance):
    rng = np.random.default_rng(n)
    links = [[i, (i + step) % n] for step in range(1, reach + 1) for i in range(n)]
    for step in range(reach):
        moving = [step * n + i for i in np.flatnonzero(rng.random(n) < chance)]
        taken, tries = {frozenset(link) for link in links}, 0
        while moving and tries < large._TRIES:
            moving, tries = move_links(links, moving, taken, rng.integers(n, size=len(moving)).tolist()), tries + 1
    u, v = large.rewire_lattice(n, reach, chance, np.random.default_rng(n))
    assert np.column_stack((u, v)).tolist() == links
