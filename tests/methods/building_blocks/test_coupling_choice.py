"""The rule for the coupling, and its relaxation."""

import pytest

import topologies
from p2pkm.methods.building_blocks.coupling_choice import (
    choose_coupling,
    optimal_relaxation,
    predict_excess,
)
from p2pkm.network.graph import Topology
from tests.support.each import each
from topologies.measures import residual_noise


def build(name, n, **options):
    return Topology.from_graph(topologies.build(name, n, **options))


@each(("name", "n", "expected"), [
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
