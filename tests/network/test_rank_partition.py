"""Who hosts whom: the rule that chooses, what it costs, and that no bit of a result depends on it."""

import json
import os
import sys
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import expand_ranges
from p2pkm.network.graph import Topology, sort_stably
from p2pkm.network.halo import place
from p2pkm.network.rank_partition import RankPartition, check_rank_partition, choose, count_cut, divide, imbalance
from tests.network.test_transport import draw
from tests.support.programs import placement as placement_program
from tests.support.run_cli import ROOT, here, ranks, there

graphs = st.builds(draw, st.integers(1, 15), st.floats(0, 1), st.integers(0, 2**32 - 1))
RING, SHUFFLED = Topology.from_graph(topologies.ring(24)), Topology.from_graph(placement_program.shuffled_ring(24))
EVEN = np.full(24, 5)
AROUND = np.argsort([
    int(i) for i in nx.dfs_preorder_nodes(placement_program.shuffled_ring(24), 0)
])  # place on the ring


@cache
def in_process():
    return {record["name"]: record["found"] for record in placement_program.runs(["blocks"])}


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 5])  # on two ranks one division leaves a rank empty
def test_no_bit_depends_on_the_placement(size):
    pytest.importorskip("pymetis")
    ending = there(*ranks(size), "-W", "error", placement_program.__file__)
    assert ending.code == 0, ending.err[-3000:]
    lines = [json.loads(line) for line in ending.out.splitlines() if line.startswith("{")]
    assert len(lines) == len(in_process()) * len(placement_program.DIVISIONS)
    wrong = [(line["name"], line["division"]) for line in lines if line["found"] != in_process()[line["name"]]]
    assert wrong == []
    assert not [line for line in lines if line["placed"]["rank_partition"] != line["division"]]
    cuts = {line["division"]: line["placed"]["edge_cut"] for line in lines if line["name"] == "colored"}
    assert cuts["metis"] < min(cuts["blocks"], cuts["interleaved"])


@given(graphs, st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_cut_and_ghosts_are_those_of_a_naive_count(topology, size, seed):
    owner = np.random.default_rng(seed).integers(0, size, topology.n)
    division = RankPartition.by_owner("anywhere", owner, size)
    links = [(i, int(j)) for i in range(topology.n) for j in topology.indices[slice(*topology.indptr[i : i + 2])]]
    crossing = [(i, j) for i, j in links if owner[i] != owner[j]]
    assert count_cut(topology, division) == len([i for i, j in crossing if i < j])
    parts = [place(topology, rank, size, division) for rank in range(size)]
    assert sum(len(part.ghosts) for part in parts) == len({(int(owner[i]), j) for i, j in crossing})
    assert sum(len(peer.send_edges) for part in parts for peer in part.peers) == len(crossing)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(4, 6), st.integers(0, 2**32 - 1))
def test_what_ranks_give_comes_back_in_the_order_of_the_devices(owner, size, seed):
    n = len(owner)
    division = RankPartition.by_owner("some", np.array(owner), size)
    assert_array_equal(division.owner, owner)
    assert_array_equal(np.concatenate([division.of(rank) for rank in range(size)]), np.argsort(owner, kind="stable"))
    counts = np.random.default_rng(seed).integers(0, 4, n)
    assert_array_equal(division.rows(None), [owner.count(rank) for rank in range(size)])
    assert_array_equal(division.rows(counts), [counts[np.array(owner) == rank].sum() for rank in range(size)])
    rows = [[(i, row) for row in range(counts[i])] for i in range(n)]
    by_rank = [pair for rank in range(size) for i in division.of(rank) for pair in rows[i]]
    expected = np.array([pair for one in rows for pair in one], int).reshape(-1, 2)
    assert_array_equal(division.arrange(np.array(by_rank, int).reshape(-1, 2), counts), expected)
    of_devices = np.concatenate([division.of(rank) for rank in range(size)])
    assert_array_equal(division.arrange(of_devices, None), np.arange(n))


def test_uneven_blocks_need_no_order():
    division = RankPartition.by_owner("found", np.array([0, 0, 0, 2, 2]), 4)
    assert division.order is None
    assert_array_equal(division.bounds, [0, 3, 3, 5, 5])
    part = place(Topology.from_graph(topologies.path(5)), 2, 4, division)
    assert_array_equal(part.ids, [3, 4])
    assert_array_equal(part.ghosts, [2])
    assert isinstance(part.edges, slice)


def test_in_one_process_the_arrays_of_the_graph_are_those_of_the_batch():
    graph = topologies.build("ring", 6, light=True)
    part = place(Topology.from_graph(graph), 0, 1)
    assert part.senders is part.indices and np.shares_memory(part.indices, graph.indices)
    for array in (graph.indptr, graph.indices):
        array.flags.writeable = False
    part = place(Topology.from_graph(graph), 0, 1)
    assert part.indices.flags.writeable and part.indptr.flags.writeable


def test_a_division_travels():
    for division in (RankPartition.blocks(7, 3), RankPartition.by_owner("odd", np.arange(7) % 2, 2)):
        arrays = {name: np.array(part) for name, part in division.to_arrays().items()}
        back = RankPartition.from_arrays(arrays)
        assert back.name == division.name
        assert_array_equal(back.owner, division.owner)
        assert (back.order is None) == (division.order is None)


def test_spans_put_runs_end_to_end():
    assert_array_equal(expand_ranges(np.array([5, 0, 9]), np.array([2, 0, 3])), [5, 6, 9, 10, 11])


@given(st.lists(st.integers(0, 2**40) | st.integers(0, 9), max_size=40))
def test_numbers_are_sorted_as_the_stable_sort_does(numbers):
    given_numbers = np.array(numbers, np.int64)
    assert_array_equal(sort_stably(given_numbers), np.argsort(given_numbers, kind="stable"))


def test_numbers_are_sorted_by_each_of_their_bits():
    assert_array_equal(sort_stably(1 << np.arange(62)[::-1]), np.arange(62)[::-1])


@given(graphs)
def test_the_mirror_of_a_graph_is_the_way_back(topology):
    assert_array_equal(topology.sources[topology.mirror], topology.indices)
    assert_array_equal(topology.indices[topology.mirror], topology.sources)


def test_imbalance_is_the_largest_over_the_mean():
    assert imbalance(np.array([3, 1, 2])) == 1.5
    assert imbalance(np.array([0, 0])) == 1.0


class Cut(NamedTuple):
    """Parts of a graph, as pymetis returns them."""

    vertex_part: list


def metis_finds(monkeypatch, owner, *loads):
    """Replace pymetis by a package that finds these owners, None: it fails; loads: lists that get the loads."""

    def part_graph(size, links, *, vweights, recursive):
        assert owner is not None and recursive and links == len(owner)
        for kept in loads:
            kept.append(vweights)
        return Cut(list(owner))

    package = ModuleType("pymetis")
    package.__spec__, package.part_graph = ModuleSpec("pymetis", None), part_graph
    package.CSRAdjacency = lambda indptr, indices: len(indptr) - 1
    monkeypatch.setitem(sys.modules, "pymetis", package)


def test_the_smaller_cut_wins(monkeypatch):
    halves = np.arange(24) // 12
    for owner in (1 - halves, np.roll(halves, 1)):  # of a ring the same cut
        metis_finds(monkeypatch, owner)
        assert choose(RING, EVEN, 2).name == "blocks"
        assert choose(RING, EVEN, 2, "metis").name == "metis"
    metis_finds(monkeypatch, halves[AROUND])
    found = choose(SHUFFLED, EVEN, 2)
    assert found.name == "metis"
    assert (count_cut(SHUFFLED, found), count_cut(SHUFFLED, RankPartition.blocks(24, 2))) == (2, 10)
    assert choose(SHUFFLED, EVEN, 2, "blocks").name == "blocks"


def test_a_small_cut_does_not_win_by_uneven_loads(monkeypatch):
    third = (AROUND >= 8).astype(int)
    metis_finds(monkeypatch, third)
    assert choose(SHUFFLED, EVEN, 2).name == "blocks"
    assert choose(SHUFFLED, EVEN, 2, "metis").name == "metis"
    uneven = np.where(np.arange(24) < 12, 30, 1)  # blocks are uneven here, and METIS's less
    assert 1.05 < imbalance(np.bincount(third, 1 + uneven)) < imbalance(np.array([31, 2]))
    assert choose(SHUFFLED, uneven, 2).name == "metis"


def test_with_one_rank_or_one_device_each_nothing_is_computed(monkeypatch):
    metis_finds(monkeypatch, None)
    for wish in ("auto", "metis", "blocks"):
        for size in (1, 24, 25):
            assert choose(SHUFFLED, EVEN, size, wish).name == "blocks"
    star = Topology.star(23)
    assert choose(star, EVEN, 3).name == "blocks"


def test_points_and_devices_are_balanced_by_metis_also_in_a_star_if_it_is_asked_for(monkeypatch):
    loads = []
    metis_finds(monkeypatch, np.arange(24) % 2, loads)
    for topology in (Topology.star(23), SHUFFLED):
        assert choose(topology, np.arange(24), 2, "metis").name == "metis"
        assert_array_equal(loads.pop(), 1 + np.arange(24))


def test_without_pymetis_auto_means_blocks_and_metis_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert choose(SHUFFLED, EVEN, 2).name == "blocks"
    with pytest.raises(ExperimentError, match=r"requires pymetis.*pip install \"p2pkm\[metis\]\""):
        check_rank_partition("metis")
    for wish in ("auto", "blocks"):
        check_rank_partition(wish)
    metis_finds(monkeypatch, None)
    check_rank_partition("metis")


@pytest.mark.parametrize("words", [(), ("plan",), ("plan", "--ranks", "1"), ("sweep", "study.toml")])
def test_every_command_refuses_metis_without_pymetis(words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('rank_partition = "metis"\nrounds = 1\n[grid]\ngraph = ["ring", "star"]\n')
    options = () if "sweep" in words else ("--rank-partition", "metis")
    ending = here(*words, *options, *(() if "plan" in words else ("--out", "none")))
    assert ending.code == 2 and "requires pymetis" in ending.err
    with pytest.raises(ExperimentError, match="requires pymetis"):
        p2pkm.simulate(p2pkm.GTVMin(1), topologies.ring(4), p2pkm.Shards.from_list([np.zeros((2, 1))] * 4),
                       rank_partition="metis")  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 2])
def test_ranks_refuse_metis_without_pymetis(size, tmp_path):
    tmp_path.joinpath("sitecustomize.py").write_text("import sys\nsys.modules['pymetis'] = None\n")
    words = ("-m", "p2pkm", "--rank-partition", "metis", "--rounds", 1, "--out", "none")
    ending = there(*ranks(size), *words, PYTHONPATH=os.pathsep.join((str(tmp_path), str(ROOT))))
    assert ending.code == 2 and ending.err.count("requires pymetis") == 1


def test_unknown_placements_are_refused():
    shards = p2pkm.Shards.from_list([np.zeros((2, 1))] * 4)
    with pytest.raises(ExperimentError, match="rank_partition is 'random'; expected one of auto, blocks, metis"):
        p2pkm.simulate(p2pkm.GTVMin(1), topologies.ring(4), shards, rank_partition="random")
    ending = here("--rank-partition", "random", "--out", "none")
    assert ending.code == 2
    assert "rank_partition" in ending.err and "metis" in ending.err


@pytest.mark.parametrize("size", [2, 3, 7, 16])
def test_metis_cuts_less_where_labels_say_nothing_and_keeps_ranks_even(size):
    pytest.importorskip("pymetis")
    grid = nx.convert_node_labels_to_integers(topologies.grid(400))
    order = np.random.default_rng(0).permutation(400).tolist()
    topology = Topology.from_graph(nx.relabel_nodes(grid, dict(enumerate(order))))
    sizes = np.random.default_rng(1).integers(0, 40, 400)
    found = choose(topology, sizes, size)
    assert found.name == "metis"
    assert count_cut(topology, found) < 0.5 * count_cut(topology, RankPartition.blocks(400, size))
    assert imbalance(found.rows(1 + sizes)) <= 1.05


def test_metis_leaves_no_rank_empty_where_devices_are_few():
    pytest.importorskip("pymetis")
    for n, size in ((17, 16), (24, 16), (5, 3)):
        found = choose(Topology.from_graph(topologies.ring(n)), np.full(n, 4), size, "metis")
        assert found.name == "metis"
        assert found.rows(None).min() > 0


def test_hubs_are_balanced():
    pytest.importorskip("pymetis")
    star = Topology.from_graph(topologies.star(1000))
    hubs = Topology.from_graph(topologies.barabasi_albert(1000, m=3, seed=1))
    for topology in (star, hubs):
        found = choose(topology, np.full(1000, 20), 4)
        assert imbalance(found.rows(None)) <= 1.05
        assert count_cut(topology, found) <= count_cut(topology, RankPartition(("blocks"), divide(1000, 4)))


@pytest.mark.mpi
def test_the_command_line_says_how_devices_are_placed(tmp_path):
    """One line at the start, the figures in the summary, and the same bits, also if the points are scaled."""
    pytest.importorskip("pymetis")
    words = ("--graph", "grid:rows=2", "--devices", 24, "--data", "blobs:clusters=3,points=60", "--scale", "standard",
             "--rounds", 5, "--out", "none")  # fmt: skip
    alone = here(*words, "--format", "json").summary
    assert alone["rank_partition"] is None and alone["edge_cut"] is None
    ending = there(*ranks(3), "-m", "p2pkm", *words, "--rank-partition", "metis", "--format", "json", cwd=tmp_path)
    summary = ending.summary
    assert ending.err.startswith(
        f"p2pkm: rank partition metis: edge cut {summary['edge_cut']}, halo {summary['halo_size']}; load imbalance "
    )
    assert "3 ranks on one machine pay off from about 100,000 points" in ending.err
    assert summary["rank_partition"] == "metis"
    assert summary["load_imbalance"] >= 1.0 and summary["load_imbalance_devices"] >= 1.0
    for name in ("centroids_sha256", "chain_sha256", "messages", "bytes", "ratio_mean", "ari"):
        assert summary[name] == alone[name]
    quiet = there(*ranks(2), "-m", "p2pkm", *words, "--rank-partition", "blocks", "-q", cwd=tmp_path)
    assert quiet.code == 0 and "rank partition" not in quiet.err and "pay off" not in quiet.err
    many = ("--graph", "ring", "--devices", 16, "--data", "grid16:points=6300", "-k", 16, "--rounds", 1)
    large = there(*ranks(2), "-m", "p2pkm", *many, "--no-baselines", "--out", "none", cwd=tmp_path)
    assert "rank partition" in large.err and "pay off" not in large.err
