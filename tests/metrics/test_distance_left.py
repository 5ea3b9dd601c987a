"""How far a run that stopped is from where it would end, and the rounds of initialization."""

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.metrics.closing_table import list_summary_rows
from p2pkm.metrics.optional import estimate_distance, expect_rate
from topologies import measures


def solve(n, graph, rounds=None, **options):
    points, labels = p2pkm.grid16(points=94, seed=0)
    shards = p2pkm.Shards.deal(points, np.arange(len(points)) % n, devices=n, labels=labels)
    method = p2pkm.GTVMin(16, **options)
    return p2pkm.simulate(method, topologies.build(graph, n), shards, rounds=rounds, baselines=False), points


@pytest.mark.slow
@pytest.mark.parametrize(("n", "graph"), [(16, "ring"), (100, "path")])
def test_the_distance_left_is_about_what_more_rounds_travel(n, graph):
    (stopped, points), (ended, _) = (
        solve(n, graph, coupling=30, **more) for more in ({}, {"rounds": 600, "tol": 1e-9})
    )
    scale = np.sqrt(points.var(axis=0).sum())
    left = np.abs(stopped.centroids - ended.centroids).max() / scale
    assert stopped.summary["termination"] == "converged" and left > 5e-3  # more than five times tol
    assert left / 2 < stopped.summary["distance_left"] < 2 * left
    assert ended.summary["distance_left"] < 1e-6


@pytest.mark.slow
def test_a_short_run_at_strong_coupling_is_told_to_be_far_from_its_end():
    """1,200 rounds go 0.22 further and are not at the end; a fit to the 20 of this run alone says 0.018."""
    summary = solve(300, "ring", coupling=300)[0].summary
    assert summary["termination"] == "converged" and summary["distance_left"] > 0.08


def test_estimates():
    assert estimate_distance(0.5, 0.75, 0.5) == estimate_distance(0.5, 0.5, 0.75) == 2
    assert estimate_distance(0.5, None, 0.75) == estimate_distance(0.5, 1.2, 0.75) == 2
    assert estimate_distance(0.5, None, None) is estimate_distance(0.5, 1.0, None) is None


@pytest.mark.parametrize("theta", [1.0, 1.2, 1.5, 1.9])
@pytest.mark.parametrize("coupling", [0.5, 10, 300])
def test_the_expected_rate_is_that_of_an_even_ring(coupling, theta):
    ring = topologies.ring(12)
    found = measures.predict(ring, coupling=coupling, colors=np.arange(12) % 2, theta=theta)
    assert expect_rate(coupling, theta, "colored") == pytest.approx(found.contraction_colored.value)
    assert expect_rate(coupling, 1.0, "jacobi") == pytest.approx(found.contraction.value)


def test_rounds_before_are_shown():
    result = solve(16, "ring", coupling=30)[0]
    stages = {record["stage"]: record["round"] for record in result.rounds}
    summary = result.summary
    assert summary["rounds"] == stages.pop("gtvmin")
    assert summary["rounds_before"] == sum(stages.values()) > 0
    rows = {row[0]: row[1:] for row in list_summary_rows(summary, [])}
    assert rows["initialization rounds"][0] == str(summary["rounds_before"])
    assert f"{summary['rounds_before']} more for initialization" in rows["rounds"][1] and "distance to limit" in rows


def test_nothing_is_estimated_without_rounds_or_an_objective():
    assert solve(16, "ring", rounds=0)[0].summary["distance_left"] is None


@pytest.mark.slow
def test_rounds_before_count_a_stage_as_often_as_it_is_played():
    """Init d2-sampling repeats stages; the milestones, in brackets from the start, count them all."""
    result, _ = solve(16, "ring", init="d2-sampling", coupling=30)
    ends = [one["round"] for one, after in zip(result.rounds, result.rounds[1:], strict=False) if not after["round"]]
    stages = [one["stage"] for one in result.rounds if not one["round"]]
    assert len(set(stages)) < len(stages) == len(ends) + 1
    assert result.summary["rounds_before"] == sum(ends)
