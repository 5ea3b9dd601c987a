"""The rule for the coupling, its relaxation, and the rehearsal on the devices' sums."""

import numpy as np
import pytest

import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.methods.building_blocks.coupling_choice import (
    calibrate_coupling,
    check_calibration,
    choose_coupling,
    optimal_relaxation,
    predict_excess,
)
from p2pkm.network.graph import Topology
from topologies.measures import residual_noise


def build(name, n, **options):
    return Topology.from_graph(topologies.build(name, n, **options))


@pytest.mark.parametrize(("name", "n", "expected"), [
    ("ring", 5, 10), ("ring", 10, 30), ("ring", 32, 100), ("ring", 100, 1000), ("ring", 300, 10_000),
    ("path", 100, 3000), ("complete", 20, 30), ("star", 1, 10), ("path", 2, 10)])  # fmt: skip
def test_the_rule_on_1600_points_of_16_clusters(name, n, expected):
    assert choose_coupling(build(name, n), 1600, 16) == expected


@pytest.mark.parametrize(("name", "n"), [("ring", 32), ("star", 100), ("path", 40)])
def test_it_is_the_smallest_that_will_do(name, n):
    graph = build(name, n)
    found = choose_coupling(graph, 1600, 16)
    assert predict_excess(graph, found, 1600, 16) <= 1e-3
    below = max(one for one in (30, 100, 300, 1000, 3000) if one < found)
    assert predict_excess(graph, below, 1600, 16) > 1e-3


def test_the_excess_is_the_noise_over_the_points_of_a_device_and_cluster():
    graph = build("ring", 20)
    assert predict_excess(graph, 30, 1600, 16) == pytest.approx(residual_noise(graph, [30])[0] / 5)


def test_so_few_points_on_so_long_a_path_that_no_coupling_will_do():
    assert choose_coupling(build("path", 300), 300, 1_000) == 1e5


@pytest.mark.parametrize("c", [1.0, 10.0, 30.0, 1000.0])
def test_the_relaxation_is_the_best_one_of_the_slowest_mode(c):
    """On two colors the mode contracts by Young's formula, best where its discriminant vanishes."""
    theta, mu = optimal_relaxation(c), 2 * c / (1 + 2 * c)
    assert (theta * mu) ** 2 == pytest.approx(4 * (theta - 1))
    assert 1 < theta < 2


def test_without_coupling_there_is_no_relaxation_and_it_never_reaches_2():
    assert optimal_relaxation(0.0) == 1.0
    assert optimal_relaxation(1e5) < optimal_relaxation(1e100) < 2


def sums(n, k, d, seed, *, skew=False):
    """Counts and sums of offsets of devices with noise around common means, and the loss of the start."""
    draws = np.random.default_rng(seed)
    counts = draws.integers(0, 4 if skew else 2, (k, n)) * 5.0 if skew else np.full((k, n), 5.0)
    offsets = draws.normal(size=(k, n, d)) / np.sqrt(np.maximum(counts, 1))[:, :, None]
    return counts, offsets * counts[:, :, None], float(counts.sum() * d)


@pytest.mark.parametrize("few", [14, 13])
@pytest.mark.parametrize("skew", [False, True])
def test_a_rehearsal_solves_the_equations_of_the_method(skew, few, monkeypatch):
    """Against the dense system, device by device: every centroid's excess at the coupling that was found."""
    monkeypatch.setattr("p2pkm.methods.building_blocks.coupling_choice._MAX_DENSE", few)  # more devices: sparse
    n, k, d = 14, 3, 2
    graph = topologies.tree(n)
    topology = Topology.from_graph(graph)
    counts, offsets, loss = sums(n, k, d, 0, skew=skew)
    base = counts.sum() / n / k
    found = calibrate_coupling(topology, counts, offsets, loss, base)
    degree = topology.degrees
    excess, cost = np.zeros(n), loss
    for c in range(k):
        heavy, mean = counts[c].sum(), offsets[c].sum(axis=0) / counts[c].sum()
        matrix = np.diag(counts[c])
        for i, j in graph.edges:
            alpha = 2 * found.coupling * base / np.sqrt(degree[i] * degree[j])
            matrix[[i, j], [i, j]] += alpha
            matrix[[i, j], [j, i]] -= alpha
        ends = np.linalg.solve(matrix, offsets[c])
        excess += heavy * ((ends - mean) ** 2).sum(axis=1)
        cost -= heavy * (mean**2).sum()
    assert found.mean == pytest.approx(excess.mean() / cost)
    assert found.worst == pytest.approx(excess.max() / cost)
    assert found.mean <= 2e-3 and found.worst <= 6e-3


def test_a_rehearsal_takes_more_where_few_devices_have_a_cluster():
    graph = build("ring", 32)
    even = calibrate_coupling(graph, *sums(32, 4, 2, 1), 5.0)
    counts = np.zeros((4, 32))
    counts[np.arange(8) // 2, np.arange(0, 32, 4)] = 80.0  # of every cluster two devices have all points
    offsets = counts[:, :, None] * np.random.default_rng(0).normal(size=(4, 32, 2)) / 3
    skewed = calibrate_coupling(graph, counts, offsets, float(counts.sum() * 2), 5.0)
    assert skewed.coupling > even.coupling


def test_there_is_nothing_to_rehearse_where_nothing_varies():
    graph = build("ring", 12)
    assert calibrate_coupling(graph, np.ones((2, 12)), np.zeros((2, 12, 1)), 0.0, 1.0) == (30.0, 0.0, 0.0)
    one = calibrate_coupling(build("star", 1), np.ones((2, 1)), np.zeros((2, 1, 1)), 4.0, 1.0)
    assert one == (10.0, 0.0, 0.0)


@pytest.mark.parametrize(("graph", "why"), [
    (Topology.from_links(4, np.array([[0, 1, 1.0], [2, 3, 1.0]])), "disconnected"),
    (build("ring", 5_001), "5,001 devices"),
    (build("one-peer-exponential", 8), "links change")])  # fmt: skip
def test_where_there_is_no_rehearsal(graph, why):
    with pytest.raises(ExperimentError, match=why):
        check_calibration(graph)


def test_tiny_coordinates_are_rehearsed_alike():
    graph, (counts, offsets, loss) = build("ring", 12), sums(12, 3, 2, 4)
    found = calibrate_coupling(graph, counts, offsets, loss, 5.0)
    assert calibrate_coupling(graph, counts, np.ldexp(offsets, -500), float(np.ldexp(loss, -1000)), 5.0) == found
    tiny = calibrate_coupling(graph, counts, offsets * 1e-160, loss * 1e-160**2, 5.0)
    assert tiny.coupling == found.coupling and tiny.mean == pytest.approx(found.mean, rel=1e-2)
