"""Consensus Lloyd: Metropolis weights on the path and complete graphs."""

import numpy as np
from numpy.testing import assert_allclose

from p2pkm.methods.peer.consensus import ConsensusLloyd
from tests.support.averages import column, lloyd, scene, states
from tests.support.play_rounds import arrange, last

PATH = [(0, 1), (1, 2)]
P = np.array([[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_gossip_on_a_path_of_three():
    table = arrange([column(3), np.zeros((0, 1)), np.zeros((0, 1))], PATH)
    found, _ = states(ConsensusLloyd(1, gossips=400), table, np.zeros((3, 1, 1)), 1)
    for turn, expected in ((0, [3, 0, 0]), (1, [2, 1, 0]), (2, [5 / 3, 1, 1 / 3]), (399, [1, 1, 1])):
        close(found[turn].averages[:, 0, 0], expected)
        close(found[turn].averages[:, 0, 1], np.array(expected) / 3)


def test_the_weights_of_a_path_of_three():
    for i in range(3):
        data = [column(1) if j == i else np.zeros((0, 1)) for j in range(3)]
        found, _ = states(ConsensusLloyd(1, gossips=2), arrange(data, PATH, d=1), np.zeros((3, 1, 1)), 1)
        close(found[1].averages[:, 0, 0], P[:, i])


def test_on_a_complete_graph_one_gossip_is_a_central_lloyd_step():
    data, _, table, start = scene("complete")
    found = last(ConsensusLloyd(4, gossips=1), table, start, 3)
    pooled = start[0]
    for _ in range(3):
        pooled = lloyd(data, pooled)
    close(found[:, :3], [pooled[:3]] * 4)
