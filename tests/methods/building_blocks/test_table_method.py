"""The base of peer methods of one function: its rounds by hand, and what is refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import ContractError
from p2pkm.methods.building_blocks.table_method import TableMethod
from p2pkm.testing.trial import CheckError

POINTS = np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0], [1.0, 1.0], [8.0, 8.0], [10.0, 7.0]])
OWNERS = np.array([0, 0, 1, 1, 2, 2])
START = np.array([[0.0, 0.0], [9.0, 9.0], [50.0, 50.0]])


@dataclass(frozen=True, kw_only=True)
class Average(TableMethod):
    """Average of local points and the rows of the neighbors, each with `pull` points."""

    pull: float = 1.0

    name: ClassVar[str] = "average"
    link_weights: ClassVar[str] = "multiply the rows of a neighbor"

    def combine(self, device):
        """Average."""
        pulls = self.pull * device.unit * device.link_weights
        sums = device.sums + (pulls[:, None, None] * device.tables).sum(axis=0)
        return sums / (device.counts + pulls.sum())[:, None]


class Narrow(Average):
    """Average without the last row."""

    def combine(self, device):
        """Forget a row."""
        return super().combine(device)[:-1]


def run(method, graph, **options):
    shards = p2pkm.Shards.deal(POINTS, OWNERS, devices=3)
    return p2pkm.simulate(method, graph, shards, start=np.stack([START] * 3), baselines=False, **options)


def by_hand(centroids, neighbors, weights, pull):
    """Take a round in plain loops; neighbors[i]: numbers of the neighbors of device i."""
    after = centroids.copy()
    for i, near in enumerate(neighbors):
        mine = POINTS[i == OWNERS]
        labels = ((mine[:, None] - centroids[i]) ** 2).sum(axis=2).argmin(axis=1)
        for c in range(len(START)):
            total, weight = mine[labels == c].sum(axis=0), float((labels == c).sum())
            for j, link in zip(near, weights[i], strict=True):
                total, weight = total + pull * link * centroids[j, c], weight + pull * link
            if weight:
                after[i, c] = total / weight
    return after


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_rounds_by_hand(rounds, pull):
    expected = np.stack([START] * 3)
    for _ in range(rounds):
        expected = by_hand(expected, [[1], [0, 2], [1]], [[1.0], [1.0, 1.0], [1.0]], pull)
    result = run(Average(3, pull=pull, tol=0.0), topologies.path(3), rounds=rounds)
    np.testing.assert_allclose(result.centroids, expected, rtol=1e-13)


def test_parameters_are_checked_and_found():
    with pytest.raises(p2pkm.ExperimentError, match="tol is -1"):
        Average(3, tol=-1.0)
    assert Average(3, init="leader", pull=2.0) == Average(3, pull=2.0, init=p2pkm.Init.leader())


def test_a_wrong_shape_is_named():
    with pytest.raises(ContractError, match=r"Narrow.combine returned an array of shape \(2, 2\); expected \(3, 2\)"):
        run(Narrow(3), topologies.path(3), rounds=1)


def test_a_method_without_its_function_is_refused():
    class Unfinished(TableMethod):
        name = "unfinished"

    with pytest.raises(ContractError, match="Unfinished lacks combine"):
        Unfinished(3)
    with pytest.raises(CheckError, match=r"Unfinished\) lacks combine"):
        p2pkm.check_method(Unfinished)


@pytest.mark.slow
def test_it_passes_all_checks():
    p2pkm.check_method(Average)
