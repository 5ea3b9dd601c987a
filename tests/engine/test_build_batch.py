"""The batch of a rank: what every device knows at the start."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import _draw_keys, _measure, count_classes, describe_rank_partition
from p2pkm.kernels import select_kernels
from p2pkm.kernels.reference import philox
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place


def test_keys_drawn_in_blocks_are_those_drawn_at_once():
    ids = np.arange(3, 150_000)
    assert_array_equal(_draw_keys(ids, 7), philox(ids.astype(np.uint64), 0, 7, Stream.KEYS)[:, 0])
    assert _draw_keys(ids[:0], 7).shape == (0,)


def test_there_are_as_many_classes_as_the_rank_with_most_has():
    shards = Shards.deal(np.zeros((4, 1)), np.arange(4) % 2, devices=2, labels=np.array([0, 2, 1, 0]))
    network = SimpleNamespace(allgather_by_device=lambda own: np.concatenate((own, [7, -1])))  # with two more devices
    assert count_classes(shards, network) == 8
    assert count_classes(replace(shards, labels=None), network) == 0


def test_a_division_is_described_where_there_is_one():
    path = Topology.from_links(4, np.array([[i, i + 1, 1.0] for i in range(3)]))
    network = SimpleNamespace(placement=place(path, 0, 2), total=lambda here: 2 * here)  # the other rank has as many
    sizes = np.array([1, 2, 3, 6])
    assert describe_rank_partition(network, sizes, 1) == {}
    assert describe_rank_partition(network, sizes, 2) == {
        "rank_partition": "blocks", "edge_cut": 1, "halo_size": 2, "load_imbalance": 1.5, "load_imbalance_devices": 1.0
    }  # fmt: skip


def test_the_spread_of_all_points_is_around_their_mean():
    points = p2pkm.Shards.from_list([np.array([[3.0, 1.0]]), np.array([[5.0, 1.0], [7.0, 4.0]])])
    together = SimpleNamespace(gather_by_device=lambda rows: rows, total=lambda bits: bits)
    assert_allclose(_measure(points, together, select_kernels(2, 2, 3)), (3.0, np.sqrt((8 + 6) / 3)))
