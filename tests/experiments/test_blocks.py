"""Shares and blocks of studies: each run once, equal points together, and no share much longer than the others."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies import blocks
from p2pkm.experiments.studies.blocks import Block, Cost, deal, divide_study, estimate_cost, select_share
from tests.support.run_cli import there

SMALL = {"data": "grid16:points=5", "devices": 4, "plot": False}
costs = st.builds(Cost, st.floats(0, 100), st.floats(0.01, 100))


def study(algorithms=("consensus",), graphs=("ring",), seeds=1, devices=(4,), **options):
    return [
        RunOptions(**SMALL | {"devices": n, "graph": graph, "algorithm": algorithm, "seed": seed} | options)
        for n in devices for graph in graphs for algorithm in algorithms for seed in range(seeds)
    ]  # fmt: skip


def shares_of(cells, count):
    shares = [select_share(cells, index, count) for index in range(count)]
    assert sorted(number for share in shares for number in share) == list(range(len(cells)))
    assert all(share == sorted(share) for share in shares)
    return shares


@given(st.lists(st.tuples(st.integers(0, 4), costs), min_size=1, max_size=30), st.integers(1, 9))
def test_every_run_is_in_one_share_and_no_share_is_longer_than_it_must_be(runs, count):
    """The bound of Graham (1966) for lists: the mean, and what cannot be divided."""
    cells = [RunOptions(**SMALL, seed=seed, rounds=number + 1) for number, (seed, _) in enumerate(runs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "estimate_cost", lambda cell: runs[cell.rounds - 1][1])
        shares = shares_of(cells, count)
        divided = divide_study(cells, count)
        dealt = blocks._balance(cells, count)
    assert sorted(number for block in divided for number in block) == list(range(len(cells)))
    for block in divided:
        assert len({cells[number].seed for number in block}) == 1
    if count > 1:
        assert [list(block.runs) for block in dealt] == divided
        sizes = [block.cost for block in dealt]
        assert sizes == sorted(sizes, reverse=True)
        loads = [sum(block.cost for block in share) for share in deal(dealt, count)]
        single = max((cost.common + cost.own for _, cost in runs), default=0.0)
        assert max(loads) <= max(1.1 * sum(loads) / count, sum(loads) / count + single) * (1 + 1e-9)
    assert len(shares) == count


def test_blocks_are_dealt_the_largest_first_to_the_shortest_share():
    own = [Block((number,), (Cost(0.0, cost),)) for number, cost in enumerate([7.0, 5.0, 4.0, 3.0, 1.0])]
    assert [[block.runs[0] for block in share] for share in deal(own, 2)] == [[0, 3], [1, 2, 4]]


def test_a_block_pays_once_for_what_its_runs_share():
    block = Block((3, 5, 8), (Cost(10.0, 1.0), Cost(10.0, 2.0), Cost(10.0, 4.0)))
    assert block.cost == 17.0
    assert [half.runs for half in block.halve()] == [(8,), (3, 5)]
    assert sum(half.cost for half in block.halve()) == 27.0


def test_as_many_shares_as_methods_hold_all_methods_each():
    """By stride each of them would hold one method on all graphs and seeds."""
    methods = ["consensus", "epidemic", "gossip", "coreset"]
    cells = study(methods, ["ring", "complete"], seeds=6)
    for share in shares_of(cells, 4):
        assert {cells[number].algorithm for number in share} == set(methods)
        # Three of the twelve pairs of graph and seed: no points are prepared in two shares.
        assert len({(cells[number].graph, cells[number].seed) for number in share}) == 3


def test_large_graphs_are_spread_over_the_shares():
    """Contiguous shares would give all runs on the largest graphs to the last one."""
    cells = study(["consensus", "coreset"], devices=(4, 16, 64, 400), seeds=4, data="grid16:points=50")
    for share in shares_of(cells, 4):
        assert sorted(cells[number].devices for number in share).count(400) == 2


def test_one_block_is_divided_if_workers_would_be_idle():
    cells = study(["gossip"], rounds=5) + study(["gossip"], rounds=6) + study(["gossip"], rounds=400, all_rounds=True)
    assert divide_study(cells, 1) == [[0, 1, 2]]
    assert divide_study(cells, 2) == [[2], [0, 1]]
    assert shares_of(cells, 2) == [[2], [0, 1]]


def test_points_and_graph_make_a_block():
    same = study(["consensus", "epidemic"], rounds=3) + study(init="local") + study(record_every=2)
    assert divide_study(same, 1) == [[0, 1, 2, 3]]
    others = [{"seeds": 2}, {"graphs": ["star"]}, {"devices": [5]}, {"data": "grid16:points=6"}, {"clusters": 3},
              {"partition": "iid"}, {"dtype": "float32"}, {"missing": "drop"}, {"header": "no"}]  # fmt: skip
    for options in others:
        cells = [*same, study(**options)[-1]]
        assert sorted(map(len, divide_study(cells, 1))) == [1, 4]


def test_the_estimate_grows_with_all_that_makes_a_run_longer(tmp_path):
    base = {"data": "grid16:points=50", "devices": 16, "rounds": 20, "all_rounds": True}

    def seconds(**options):
        cost = estimate_cost(RunOptions(**base | options))
        return cost.common + cost.own

    usual = seconds()
    assert usual > 0
    for options in ({"rounds": 200}, {"data": "grid16:points=5000"}, {"devices": 400}, {"graph": "complete"},
                    {"clusters": 64}, {"algorithm": "epidemic"}, {"data": "blobs:features=50"}):  # fmt: skip
        assert seconds(**options) > usual
    assert seconds(baselines=False) < usual
    # A rejected run takes no time; files are measured by their bytes and not read.
    assert seconds(graph="nowhere") == seconds(data="absent.csv") == seconds(data="digits:x=1") == 0.0
    tmp_path.joinpath("table.csv").write_bytes(b"\0" * 10**6)
    assert seconds(data=str(tmp_path / "table.csv")) > seconds(data="grid16:points=1")


@pytest.mark.slow
def test_shares_that_other_processes_select_are_the_same():
    cells = study(["consensus", "epidemic", "gossip"], ["ring", "erdos-renyi:p=0.9"], seeds=3)
    program = (
        "import json, sys\nfrom p2pkm.engine.run_options import RunOptions\n"
        "from p2pkm.experiments.studies.blocks import select_share\n"
        "cells = [RunOptions(**cell) for cell in json.loads(sys.argv[1])]\n"
        "print(json.dumps([select_share(cells, index, 4) for index in range(4)]))"
    )
    words = json.dumps([cell.to_mapping() for cell in cells])
    for hashing in ("1", "2"):
        printed = there(sys.executable, "-c", program, words, PYTHONHASHSEED=hashing).out
        assert json.loads(printed) == shares_of(cells, 4)
