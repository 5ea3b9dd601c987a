"""Raced seeding: the winner is drawn with D^2 weighting from all points, whatever the partition."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

import p2pkm
from p2pkm.methods.init.distributed_d2_sampling import DistributedD2Sampling
from tests.support.play_rounds import arrange
from tests.support.sampling import thin
from tests.support.stages import state_of

POINTS = np.array([[0.0], [1.0], [3.0], [7.0], [7.5], [20.0]])


def shards(device, weights=None):
    return p2pkm.Shards.deal(POINTS, np.array(device), devices=3, weights=weights)


def winners(device, number, start, trials=700, weights=None, **options):
    """Count how often each point wins the race for seed `number`."""
    counts = np.zeros(len(POINTS), int)
    for seed in range(trials):
        centroids = state_of(
            DistributedD2Sampling(2, number, 1, **options),
            nx.path_graph(3),
            shards(device, weights),
            seed=seed,
            start=start,
        ).centroids
        assert (centroids == centroids[0]).all()
        counts[np.flatnonzero(POINTS[:, 0] == centroids[0, number, 0])[0]] += 1
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("device", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1], [2, 1, 0, 2, 1, 0]])
def test_the_first_seed_is_drawn_by_weight_from_all_points(device):
    weights = np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0])
    counts = winners(device, 0, None, weights=weights)
    assert chisquare(counts, counts.sum() * weights / weights.sum()).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("device", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1]])
def test_the_next_seed_is_drawn_by_squared_distance_from_all_points(device):
    start = np.full((3, 2, 1), np.inf)
    start[:, 0] = 7.0
    counts = winners(device, 1, start)
    squared = (POINTS[:, 0] - 7.0) ** 2
    assert counts[3] == 0
    assert chisquare(np.delete(counts, 3), np.delete(counts.sum() * squared / squared.sum(), 3)).pvalue > 1e-3


def test_every_contender_of_a_device_is_drawn_by_weight():
    weights = np.array([1.0, 2.0, 0.0, 1.0, 3.0, 0.0])
    algorithm, table = DistributedD2Sampling(2, 0, 700), arrange([POINTS], [], weights=weights)
    drawn = algorithm.initial_state(table.devices, None).best[0, :, 1]
    counts = (drawn[:, None] == POINTS[:, 0]).sum(axis=0)
    assert not counts[weights == 0.0].any() and counts.sum() == 700
    assert chisquare(counts[weights > 0.0], 100.0 * weights[weights > 0.0]).pvalue > 1e-3


def test_an_empty_table_says_nothing_whatever_was_left_over_in_its_place():
    algorithm, table = DistributedD2Sampling(1, 0, 1), arrange([POINTS, []], [(0, 1)])
    before = algorithm.initial_state(table.devices, None)
    inbox = table.network.exchange(algorithm.message(before, table.devices.at_stage_start(np.ones(2, bool))))
    inbox = inbox._replace(tables=np.where(inbox.rows[:, None, None] > 0, inbox.tables, 0.0))
    after = algorithm.update(before, inbox, table.devices.at_turn(1, 0, np.ones(2, bool)))
    assert_array_equal(after.best, before.best[[0, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("device", [[0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 1]])
def test_uniform_draws_are_by_weight_from_the_points_that_remain(device):
    start, weights = np.full((3, 2, 1), np.inf), np.array([1.0, 2.0, 1.0, 1.0, 3.0, 1.0])
    start[:, 0] = 7.0
    counts = winners(device, 1, start, weights=weights, uniform=True)
    assert counts[3] == 0
    expected = np.delete(weights, 3)
    assert chisquare(np.delete(counts, 3), counts.sum() * expected / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize(
    "spec",
    thin(
        [
            "d2-sampling",
            "d2-sampling:greedy=false",
            "d2-sampling:draw=centroids",
            "d2-sampling:greedy=false,draw=uniform",
        ],
        2,
    ),
)
@pytest.mark.sample(2)
def test_all_devices_get_the_same_seeds(spec):
    X, y = p2pkm.grid16(points=30, seed=3)
    device = p2pkm.partition.dirichlet(y, 9, alpha=0.1, seed=3)
    given = p2pkm.Shards.deal(X, device, devices=9)
    result = p2pkm.simulate(p2pkm.GTVMin(16, init=spec), nx.cycle_graph(9), given, rounds=0, baselines=False)
    assert np.isfinite(result.centroids).all()
    assert (result.centroids == result.centroids[0]).all()
    if spec != "d2-sampling:draw=centroids":  # they are raw points, and different ones
        seeds = {tuple(row) for row in result.centroids[0]}
        assert len(seeds) == 16 and seeds <= {tuple(row) for row in X}


@pytest.mark.slow
def test_greedy_races_reach_what_central_kmeans_reaches():
    X, y = p2pkm.grid16(points=50, seed=0)
    given = p2pkm.Shards.deal(X, p2pkm.partition.dirichlet(y, 8, alpha=0.3, seed=0), devices=8)
    greedy, plain = (
        np.mean([
            p2pkm.simulate(p2pkm.GTVMin(16, init=spec), nx.cycle_graph(8), given, seed=seed).summary["ratio_mean"]
            for seed in range(4)
        ])
        for spec in ("d2-sampling", "d2-sampling:greedy=false")
    )
    assert greedy < 1.2 < plain


def test_fewer_distinct_points_than_seeds_leave_rows_absent():
    given = p2pkm.Shards.from_list([[[1.0]] * 3, np.zeros((0, 1)), [[2.0]] * 2])
    result = p2pkm.simulate(p2pkm.GTVMin(4, init="d2-sampling"), nx.path_graph(3), given, rounds=0, baselines=False)
    assert (np.isfinite(result.centroids).sum(axis=(1, 2)) == 2).all()
