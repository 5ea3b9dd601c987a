"""Whose tables have reached whom."""

import numpy as np
import pytest

from p2pkm.metrics.disclosure import count_exposure
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic

LINKS = [(0, 1), (1, 2), (2, 3), (4, 5)]  # a path of four devices, and two that keep silent


@pytest.mark.parametrize(
    ("hops", "seen"),
    [
        (1, [0, 1, 1, 0, 0, 0]),  # from neighbors that sent rows
        (2, [2, 3, 3, 2, 1, 1]),  # at most
        (None, [0, 3, 3, 0, 0, 0]),  # who heard anything may have heard of all
    ],
)
def test_whose_rows_a_device_has_seen(hops, seen):
    topology = Topology.from_links(6, np.array([(*link, 1.0) for link in LINKS]))
    rows = np.where(topology.sources == 0, 3, 0)  # 0 sends to 1, which sends to 2; 3 sends an empty table
    rows[(topology.sources == 1) & (topology.indices == 2)] = 5
    sent = [topology.sources, topology.indices, np.sign(rows), 8 * rows, rows]
    found = count_exposure(Traffic(*sent, None, None, None, None, 6, 8 * rows), topology, hops)
    assert found.devices.tolist() == seen
    assert found.rows.tolist() == [0, 3, 5, 0, 0, 0]


def test_what_a_server_sends_is_of_no_device():
    topology = Topology.star(2)
    rows = np.full(4, 2)
    sent = [topology.sources, topology.indices, np.ones(4, np.int64), 8 * rows, rows]
    found = count_exposure(Traffic(*sent, None, None, None, None, 3, 8 * rows), topology, 1)
    assert (found.devices.tolist(), found.rows.tolist()) == ([0, 0, 2], [2, 2, 4])
