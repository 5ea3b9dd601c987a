"""Arrays of a broadcast, which the ranks of a machine hold once."""

import json
import mmap
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.network.shared_arrays import read_slots, write_slots
from tests.support.programs import shared
from tests.support.run_cli import ranks, there

# Differ by the number of ranks, or from run to run.
OWN = {"ranks", "rank_partition", "edge_cut", "halo_size", "load_imbalance", "load_imbalance_devices", "wall_seconds",
       "compile_seconds"}  # fmt: skip


def test_arrays_are_read_where_they_were_written():
    arrays = {"odd": np.arange(7, dtype=np.uint8), "table": np.arange(6.0).reshape(2, 3), "flags": np.ones(3, np.bool_)}
    slots = read_slots(write_slots(arrays))
    assert [slot.name for slot in slots] == list(arrays)
    assert all(slot.first % 64 == 0 for slot in slots)
    memory = mmap.mmap(-1, slots[-1].first + slots[-1].size)
    for slot in slots:
        slot.view(memory)[...] = arrays[slot.name]
    for slot in slots:
        assert slot.view(memory).dtype == arrays[slot.name].dtype
        assert_array_equal(slot.view(memory), arrays[slot.name])


def play(count, mode):
    """Run on some ranks; return the summary without what may differ, and the private bytes of each rank."""
    ending = there(*ranks(count), str(shared.__file__), mode)
    assert ending.code == 0, ending.err
    lines = sorted(map(json.loads, ending.out.splitlines()), key=lambda line: line["rank"])
    assert [line["rank"] for line in lines] == list(range(count)) and not any(line["code"] for line in lines)
    summary = {name: value for name, value in lines[0]["summary"].items() if name not in OWN}
    return summary, [line["private"] for line in lines]


@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the file is one of Linux")
def test_ranks_of_a_machine_hold_the_graph_once_and_compute_the_same_bits():
    """No rank has a page of the graph or the tree for itself: it would have some if one built or received a copy."""
    alone, _ = play(1, "none")
    assert len(alone["centroids_sha256"]) == 64 and alone["bytes"] > 0
    for count in (2, 3):
        summary, private = play(count, "all")
        assert summary == alone
        assert private == [dict.fromkeys((*shared.NAMES, "parent", "layer"), 0)] * count


@pytest.mark.mpi
@pytest.mark.parametrize("mode", ["none", "refused"])
def test_copies_where_the_file_cannot_be_opened_give_the_same_bits(mode):
    summary, private = play(3, mode)
    assert summary == play(2, "all")[0]
    assert private == [dict.fromkeys((*shared.NAMES, "parent", "layer"))] * 3
