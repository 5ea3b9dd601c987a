"""Graphs that change: masks, the papers' exact means, and every definition written out once more."""

import math
import subprocess
import sys
import typing
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from tests.support.each import each
from topologies import GraphError
from topologies.csr_graph import sources
from topologies.families.random import draw_seeds
from topologies.time_varying import random as drawn
from topologies.time_varying.graph import Exchange, record

NAMES = sorted(topologies.TIME_VARYING)
DRAWN = ["edge-markov", "peer-sampler", "random-matchings", "random-waypoint"]
SIZES = {"hyper-hypercube": 16, "inner-outer-exponential": 20, "inner-outer-ring": 20}


def build(name, **options):
    return topologies.build(name, SIZES.get(name, 17), **options)


def links(graph, turn):
    """Return the links in use as pairs, the lower end first."""
    found = zip(sources(graph.union).tolist(), graph.indices.tolist(), graph.active(turn).tolist(), strict=True)
    return sorted((i, j) for i, j, on in found if on and i < j)


def matrix(graph, turn):
    result = np.zeros((graph.n, graph.n))
    result[sources(graph.union), graph.indices] = graph.mixing(turn)
    return result + np.diag(1 - result.sum(axis=1))


def test_links_of_a_device_with_itself_are_dropped_with_their_shares():
    ends, share = np.array([[0, 1, 2], [1, 1, 0]]), np.array([0.25, 0.5, 0.125])
    graph = record(3, [Exchange(*ends, share)], "by hand")
    assert links(graph, 0) == [(0, 1), (0, 2)]
    assert matrix(graph, 0).tolist() == [[0.625, 0.25, 0.125], [0.25, 0.75, 0.0], [0.125, 0.0, 0.875]]


def product(graph):
    result = np.eye(graph.n)
    for turn in range(graph.period):
        result = matrix(graph, turn) @ result
    return result


# --- what all have in common ---


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_masks_are_symmetric_and_cover_a_connected_union(name):
    graph = build(name)
    topologies.check(graph.union)
    assert graph.union.connected
    rounds = graph.period or 40
    for turn in range(rounds):
        mask = graph.active(turn)
        assert mask.dtype == np.bool_ and mask.shape == graph.indices.shape
        entry = {pair: on for pair, on in zip(zip(sources(graph.union), graph.indices, strict=True), mask, strict=True)}
        assert not [((i, j), on) for (i, j), on in entry.items() if entry[j, i] != on]
        assert graph.degrees(turn).tolist() == [sum(i in link for link in links(graph, turn)) for i in range(graph.n)]
        topologies.check(graph.at(turn))
        assert graph.at(turn).number_of_edges() == mask.sum() / 2
    if graph.period:
        assert np.any([graph.active(turn) for turn in range(rounds)], axis=0).all()
        assert (graph.active(3) == graph.active(3 + 2 * graph.period)).all()


@each("name", NAMES)
def test_mixing_is_symmetric_doubly_stochastic_and_zero_where_nobody_talks(name):
    graph = build(name)
    for turn in range(min(graph.period or 9, 40)):
        mixing, shares = matrix(graph, turn), graph.mixing(turn)
        assert np.allclose(mixing, mixing.T) and np.allclose(mixing.sum(axis=0), 1)
        assert mixing.diagonal().min() >= 0
        assert ((shares > 0) == graph.active(turn)).all()


@pytest.mark.parametrize("name", DRAWN)
def test_without_a_paper_the_mixing_is_that_of_metropolis_for_the_active_degrees(name):
    graph = build(name)
    degrees = graph.degrees(5)
    mixing = matrix(graph, 5)
    for i, j in links(graph, 5):
        assert mixing[i, j] == 1 / (1 + max(degrees[i], degrees[j]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_the_same_options_give_the_same_rounds_in_any_order(name):
    one, other = build(name), build(name)
    assert (one.indptr == other.indptr).all() and (one.indices == other.indices).all()
    ahead = [one.active(turn) for turn in range(12)]
    for turn in (11, 3, 4, 0, 7, 7, 8):
        assert (other.active(turn) == ahead[turn]).all()
    if name in DRAWN:
        assert build(name, seed=1).active(0).tolist() != ahead[0].tolist()


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"inner-outer-exponential", "inner-outer-ring", "peer-sampler"}))
@pytest.mark.parametrize("n", [1, 2])
def test_one_and_two_devices(name, n):
    graph = topologies.build(name, n)
    assert (len(graph), graph.number_of_nodes(), graph.number_of_edges()) == (n, n, n - 1)
    assert graph.active(0).shape == (2 * (n - 1),)
    assert links(graph, 0) in ([], [(0, 1)])


def test_the_door():
    assert topologies.FAMILIES.keys().isdisjoint(topologies.TIME_VARYING)
    for name in NAMES:
        typing.get_type_hints(topologies.TIME_VARYING[name])
        for light in (None, True, False):
            graph = build(name, light=light)
            assert type(graph) is topologies.TimeVaryingGraph and graph.name == name


def test_time_varying_graphs_cost_nothing_to_import():
    modules = "topologies.time_varying.random, topologies.time_varying.deterministic"
    code = f"import sys, {modules}; sys.exit(bool({{'numpy', 'scipy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- the exact mean ---


@pytest.mark.parametrize("n", [1, 2, 4, 8, 32])
def test_one_peer_exponential_graphs_of_powers_of_two_average_exactly(n):
    graph = topologies.one_peer_exponential(n)
    assert graph.period == max(1, math.ceil(math.log2(n)))
    assert np.allclose(product(graph), 1 / n, atol=1e-15)
    sent = np.eye(n)
    for t in range(graph.period if n > 1 else 0):  # as in the paper, one way
        sent = (np.eye(n) + np.roll(np.eye(n), 2**t, axis=1)) / 2 @ sent
    assert np.allclose(sent, 1 / n, atol=1e-15)


@pytest.mark.parametrize("n", [3, 6, 8, 11, 17])
def test_one_peer_exponential_links(n):
    graph = topologies.one_peer_exponential(n)
    assert graph.period == math.ceil(math.log2(n))
    for t in range(graph.period):
        assert links(graph, t) == sorted({tuple(sorted((i, (i + 2**t) % n))) for i in range(n)})
        shift = np.roll(np.eye(n), 2**t, axis=1)
        assert np.allclose(matrix(graph, t), np.eye(n) / 2 + (shift + shift.T) / 4)
    assert sorted(graph.union.to_networkx().edges) == sorted(topologies.exponential(n).edges)


@given(n=st.integers(1, 90), peers=st.integers(1, 6))
def test_simple_base_graphs_average_exactly_whatever_the_number(n, peers):
    graph = topologies.simple_base(n, peers=peers)
    assert np.allclose(product(graph), 1 / n, atol=1e-14)
    assert max(graph.degrees(turn).max() for turn in range(graph.period)) <= peers
    assert graph.period <= 2 * math.log(n, peers + 1) + 2 + 1e-9


def test_the_simple_base_2_graph_of_five_devices():
    graph = topologies.simple_base(5)
    assert [links(graph, turn) for turn in range(graph.period)] == [
        [(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 4), (1, 2)], [(0, 1), (2, 3)], [(0, 2), (1, 3)]
    ]  # fmt: skip
    assert matrix(graph, 2)[0, 4] == 0.8 and matrix(graph, 2)[1, 2] == 0.5


def test_the_simple_base_3_graph_of_eleven_devices():
    # 11 = 1 * 9 + 2 * 1: nine average, the other two trade with one each, and everybody averages again
    graph = topologies.simple_base(11, peers=2)
    assert graph.period == 5
    assert links(graph, 0) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (6, 7), (6, 8), (7, 8), (9, 10)]
    assert links(graph, 2) == [(0, 9), (1, 10), (2, 3), (2, 4), (3, 4), (5, 6), (5, 7), (6, 7)]
    assert np.isclose(matrix(graph, 2)[0, 9], 9 / 11) and np.isclose(matrix(graph, 2)[2, 4], 1 / 3)
    assert links(graph, 3) == links(graph, 0)


@each(("n", "peers", "period"), [(1, 1, 1), (8, 1, 3), (12, 2, 3), (12, 3, 2), (36, 5, 2), (7, 6, 1)])
def test_hyper_hypercubes_average_exactly_with_few_factors(n, peers, period):
    graph = topologies.hyper_hypercube(n, peers=peers)
    assert graph.period == period
    assert np.allclose(product(graph), 1 / n, atol=1e-15)
    for turn in range(period):
        assert graph.degrees(turn).max() <= peers
        size = int(graph.degrees(turn)[0]) + 1
        mixing = matrix(graph, turn)
        assert np.allclose(mixing[mixing > 0], 1 / size) and np.allclose(mixing @ mixing, mixing)


def test_a_hyper_hypercube_with_one_peer_is_a_hypercube_bit_by_bit():
    graph = topologies.hyper_hypercube(16)
    for turn in range(4):
        assert links(graph, turn) == [(i, i | 1 << turn) for i in range(16) if not i >> turn & 1]
    assert sorted(graph.union.to_networkx().edges) == sorted(topologies.hypercube(16).edges)


@given(n=st.integers(1, 400), most=st.integers(2, 12))
def test_factors_are_as_few_as_possible(n, most):
    from topologies.time_varying.deterministic import is_smooth, split_factors

    smooth = all(n % p for p in range(most + 1, n + 1) if all(p % q for q in range(2, p)))
    assert is_smooth(n, most) == smooth
    if not smooth:
        return
    reach, rounds = {n}, 0  # what is left of n after so many factors
    while 1 not in reach:
        reach, rounds = {left // f for left in reach for f in range(2, most + 1) if left % f == 0}, rounds + 1
    assert len(split_factors(n, most)) == rounds
    assert math.prod(split_factors(n, most)) == n and max(split_factors(n, most), default=1) <= most


# --- machines ---


@each(("n", "size"), [(16, 4), (20, 4), (24, 3), (24, 8), (8, 8), (6, 1), (3, 3)])
def test_inner_outer_links(n, size):
    graph, machines = topologies.inner_outer_exponential(n, size=size), n // size
    for turn in range(graph.period):
        out, expected = turn % size, set()
        step = 2 ** (turn // size % max(1, math.ceil(math.log2(machines))))
        for machine in range(machines if machines > 1 else 0):
            expected.add(frozenset((machine * size + out, (machine + step) % machines * size + out)))
        ring = [member for member in range(size) if member != out]
        step = 2 ** (turn % max(1, math.ceil(math.log2(len(ring))))) if len(ring) > 1 else 0
        for machine in range(machines):
            for place, member in enumerate(ring if step else ()):
                other = ring[(place + step) % len(ring)]
                expected.add(frozenset((machine * size + member, machine * size + other)))
        assert links(graph, turn) == sorted(tuple(sorted(link)) for link in expected)
    used = {
        (i % size, (j - i) // size)
        for turn in range(graph.period)
        for i, j in links(graph, turn)
        if i % size == j % size
    }
    assert all((member, distance) in used for member in range(size) for distance in (1, 2, 4) if distance < machines)


def test_inner_outer_ring_goes_round_inside_and_outside():
    graph = topologies.inner_outer_ring(8, size=4)  # machines 0-3 and 4-7; one member of each goes outside
    assert graph.period == 4
    assert links(graph, 0) == [(0, 4), (1, 2), (1, 3), (2, 3), (5, 6), (5, 7), (6, 7)]
    assert links(graph, 3) == [(0, 1), (0, 2), (1, 2), (3, 7), (4, 5), (4, 6), (5, 6)]
    three = topologies.inner_outer_ring(15, size=5)
    assert {(1, 6), (6, 11), (1, 11)} <= set(links(three, 1)) and (0, 2) in links(three, 1)


# --- by chance ---


def test_peer_samplers_are_regular_and_fresh():
    graph = topologies.peer_sampler(30, degree=3, period=10, seed=2)
    rounds = [links(graph, turn) for turn in range(10)]
    assert len({tuple(one) for one in rounds}) == 10
    for turn in range(10):
        assert (graph.degrees(turn) == 3).all() and graph.at(turn).connected


@pytest.mark.parametrize("n", [10, 11])
def test_random_matchings_pair_everybody_alike(n):
    graph = topologies.random_matchings(n, period=3000, seed=1)
    counts = np.zeros((n, n))
    for turn in range(graph.period):
        pairs = links(graph, turn)
        assert len(pairs) == n // 2 and len({i for pair in pairs for i in pair}) == n // 2 * 2
        for pair in pairs:
            counts[pair] += 1
    expected = 3000 * (n // 2) / math.comb(n, 2)
    drawn_pairs = counts[np.triu_indices(n, 1)]
    assert abs(drawn_pairs - expected).max() < 5 * expected**0.5


@pytest.mark.parametrize(("on", "off"), [(0.1, 0.3), (0.5, 0.5), (0.9, 0.8), (1.0, 1.0), (1.0, 0.2), (0.05, 1.0)])
def test_edge_markov_is_the_chain_played_forward(on, off):
    graph = topologies.edge_markov(7, on=on, off=off, seed=5)
    pairs = list(combinations(range(7), 2))
    low, high = sorted((on, 1 - off))
    state = None
    for turn in range(30):
        u = np.random.default_rng((5, turn)).random(21)
        if state is None:
            state = u < on / (on + off)
        else:
            state = np.where(u < low, True, np.where(u >= high, False, state ^ (on > 1 - off)))
        fresh = topologies.edge_markov(7, on=on, off=off, seed=5)
        expected = [pair for pair, here in zip(pairs, state, strict=True) if here]
        assert links(graph, turn) == expected == links(fresh, turn)


@pytest.mark.parametrize(("on", "off"), [(0.1, 0.3), (0.8, 0.6)])
def test_edge_markov_has_its_probabilities(on, off):
    graph = topologies.edge_markov(40, on=on, off=off, seed=3)
    states = np.array([graph.active(turn) for turn in range(200)])
    before, after = states[:-1], states[1:]
    assert abs(states.mean() - on / (on + off)) < 0.01
    assert abs(after[~before].mean() - on) < 0.01 and abs((~after)[before].mean() - off) < 0.01
    assert abs(states[0].mean() - on / (on + off)) < 0.06


def test_edge_markov_switches_the_links_of_another_graph():
    graph = topologies.edge_markov(20, over="small-world", on=0.5, seed=4)
    assert sorted(graph.union.to_networkx().edges) == sorted(topologies.small_world(20, seed=4).edges)
    assert sorted(topologies.edge_markov(16, over="torus").union.to_networkx().edges) == sorted(
        topologies.torus(16).edges
    )


def test_random_waypoint_links_those_who_are_near():
    graph = topologies.random_waypoint(25, radius=0.3, speed=0.1, period=20, seed=6)
    first = next(draw_seeds(6, "random-waypoint"))
    places = drawn.random_waypoints(25, 0.1, np.random.default_rng(first))
    before = None
    for turn in range(20):
        now = next(places)
        assert now.min() >= 0 and now.max() <= 1
        if before is not None:
            moved = np.linalg.norm(now - before, axis=1)
            assert moved.max() <= 0.1 + 1e-12 and np.median(moved) > 0.099
        near = [(i, j) for i, j in combinations(range(25), 2) if np.linalg.norm(now[i] - now[j]) <= 0.3]
        assert links(graph, turn) == near
        before = now


# --- refusals ---


@pytest.mark.parametrize(
    ("name", "n", "options", "message"),
    [
        ("one-peer-exponential", 0, {}, "one-peer-exponential: n is 0"),
        ("hyper-hypercube", 12, {}, r"above peers \+ 1 = 2\. Use 8 or 16 devices, peers=2, or the graph simple-base"),
        ("hyper-hypercube", 22, {"peers": 4}, r"Use 20 or 24 devices, peers=10"),
        ("hyper-hypercube", 12, {"peers": 0}, "peers is 0"),
        ("simple-base", 5, {"peers": 0}, "simple-base: peers is 0"),
        ("inner-outer-exponential", 10, {}, "expected a divisor of 10, .* one of 1, 5, 10"),
        ("inner-outer-ring", 10, {}, "inner-outer-ring: size is 4; .* one of 1, 5, 10"),
        ("inner-outer-exponential", 2, {"size": 2}, "size is 2; .* one of 1"),
        ("peer-sampler", 4, {}, "peer-sampler: degree is 4; .* the largest legal value is 3"),
        ("peer-sampler", 7, {"degree": 3}, "peer-sampler: degree is 3 for 7 devices"),
        ("peer-sampler", 9, {"period": 0}, "peer-sampler: period is 0"),
        ("random-matchings", 9, {"period": 1}, r"none of 100 draws for 9 devices was connected\. Use a larger period"),
        ("random-matchings", 9, {"seed": -1}, "seed is -1"),
        ("edge-markov", 9, {"on": 0}, "on is 0 and off is 0.3; expected numbers above 0"),
        ("edge-markov", 9, {"off": 1.5}, "off is 1.5; expected a number from 0 to 1"),
        ("edge-markov", 9, {"over": "rings"}, "unknown graph 'rings'. Did you mean 'ring'"),
        ("edge-markov", 9, {"over": "random-matchings"}, "a time-varying graph; expected a static one"),
        ("random-waypoint", 9, {"speed": 0}, "speed is 0; expected a finite number above 0"),
        ("random-waypoint", 9, {"radius": -1}, "random-waypoint: radius is -1"),
        ("random-waypoint", 30, {"radius": 0.001}, r"none of 100 draws .*\. Use a larger"),
        ("random-matching", 9, {}, "unknown graph 'random-matching'. Did you mean 'random-matchings'"),
    ],
)
def test_refusals_name_the_remedy(name, n, options, message):
    with pytest.raises(GraphError, match=message):
        topologies.build(name, n, **options)
