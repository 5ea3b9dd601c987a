"""Summaries collected along a tree: what flooding finds, to the bit, for the bytes of a tree."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from tests.test_every_method import deal

GRAPHS = {
    "path": topologies.path(6),
    "ring": topologies.ring(7),
    "star": topologies.star(6),
    "tree": topologies.tree(9),
    "complete": topologies.complete(5),
    "small world": topologies.small_world(16, degree=4, rewire=0.3, seed=2),
    "one device": topologies.path(1),
    "two devices": topologies.path(2),
    "in parts": nx.union(topologies.path(4), topologies.ring(3), rename=("a", "b")),
}


def seeds(seeding, graph, k=3, **options):
    """Return the run that ends with the seeding."""
    algorithm = p2pkm.GTVMin(k, seeding=seeding)
    given = {"rounds": 0, "seed": 3, "allow_disconnected": True} | options
    return p2pkm.simulate(algorithm, graph, deal(len(graph)), **given)


@pytest.mark.parametrize("candidates", [1, 4])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_finds_what_flooding_finds_to_the_bit(name, candidates):
    found, expected = (seeds(f"{seeding}:candidates={candidates}", GRAPHS[name]) for seeding in ("rooted", "summaries"))
    assert_array_equal(found.centroids, expected.centroids)
    assert np.isfinite(found.centroids).any()


def test_the_ledger_on_a_path_of_four_by_hand():
    """Root 1: device 3 is two links below, 0 and 2 one; k = 2, d = 1."""
    data = [[0.0, 9.0], [1.0, 8.0], [], [2.0]]
    shards = p2pkm.Shards.from_list([np.array(points)[:, None] for points in data])
    algorithm, path = p2pkm.GTVMin(2, seeding="rooted:candidates=3"), topologies.path(4)
    result = p2pkm.simulate(algorithm, path, shards, rounds=0, central=False)
    opening = 2 * 3 * 2 * 8  # GTVMin says its two rows over every link
    pairs = 2 * 2 * 8 + 1 * 2 * 8 + 1 * 2 * 8  # of 0; of 3 to 2; the same from 2 to 1
    candidates, losses, choice = 3 * (3 * 2) * 8, 3 * 3 * 8, 3 * 8  # over three links each
    assert result.summary["bytes"] == pairs + candidates + losses + choice + opening
    assert result.summary["messages"] == 4 * 3 + 2 * 3
    one = p2pkm.simulate(p2pkm.GTVMin(2, seeding="rooted"), path, shards, rounds=0, central=False)
    assert one.summary["bytes"] == pairs + 3 * 2 * 8 + opening


def test_it_costs_a_fraction_of_flooding():
    graph = GRAPHS["small world"]
    tree, flood = (seeds(f"{name}:candidates=5", graph).summary["bytes"] for name in ("rooted", "summaries"))
    assert tree < flood / 3


def test_the_candidate_of_least_loss_wins():
    graph, shards = GRAPHS["ring"], deal(7, seed=5, k=3)
    costs = []
    for q in range(1, 7):
        run = p2pkm.simulate(p2pkm.GTVMin(3, seeding=f"rooted:candidates={q}"), graph, shards, rounds=0, seed=8)
        costs.append(run.summary["ratio_mean"])
    assert all(after <= before + 1e-12 for before, after in pairwise(costs[1:]))
