"""Sums along a tree against those of all devices: exact, unless a tree loses or repeats tables."""

import json

import networkx as nx
import numpy as np
import pytest

import p2pkm
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.metrics.closing_rows import describe_broken_bound, format_tree, list_warnings
from tests.support.run_cli import here, ranks, there

OPTIONS = ("", ":search=breathing", ":groups=2", ":local_steps=3", ":tol=0")


def run(method, graph, seed=0, **options):
    rng = np.random.default_rng(seed)
    n = len(graph)
    points = rng.normal(size=(5 * n, 2)) * 10.0 ** rng.integers(-6, 7)
    shards = p2pkm.Shards.deal(points, np.arange(len(points)) % n)
    given = None if method.startswith("fedlloyd") else graph
    fixed = {"clusters": 3, "baselines": False, "progress": False, "allow_disconnected": True}
    return p2pkm.simulate(method, given, shards, **fixed | options).summary


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_sums_along_a_tree_are_exact(options, seed):
    graph = nx.connected_watts_strogatz_graph(9, 4, 0.4, seed=seed)
    assert run(f"treelloyd{options}", graph, seed)["tree_error"] == 0
    if ":groups" not in options:
        assert run(f"fedlloyd{options}", graph, seed)["tree_error"] == 0
        # Parts of a graph end in different rounds.
        parts = nx.disjoint_union(graph, nx.path_graph(2 + seed))
        assert run(f"treelloyd{options}", parts, seed)["tree_error"] == 0


def test_sums_are_exact_while_points_arrive():
    graph = nx.cycle_graph(7)
    for kind in ("jump", "slow"):
        assert run("treelloyd", graph, stream=f"drawn:kind={kind},share=0.3,at=2", rounds=12)["tree_error"] == 0


def test_other_methods_have_no_tree():
    assert run("consensus", nx.cycle_graph(5))["tree_error"] is None
    # When devices leave, a new tree is built, whose root may not have received the sums of all devices.
    assert run("treelloyd", nx.cycle_graph(5), faults="dropout=0.05", rounds=5)["tree_error"] is None
    assert format_tree({"tree_error": None}) == ("-", "")


def lose_last(tables, inbox, devices, add=tree_sums.add_child_tables):
    """Leave out the tables that arrive at the last device that receives any."""
    total = add(tables, inbox, devices)
    last = devices.sources[np.flatnonzero(inbox.fresh)[-1:]]
    total[last] = tables[last]
    return total


def add_twice(tables, inbox, devices, add=tree_sums.add_child_tables):
    return add(add(tables, inbox, devices), inbox, devices)


@pytest.mark.parametrize("wrong", [lose_last, add_twice])
def test_a_tree_that_loses_or_repeats_a_table_is_found(wrong, monkeypatch):
    """Also where the cost of each round still decreases."""
    monkeypatch.setattr(tree_sums, "add_child_tables", wrong)
    summary = run("treelloyd", nx.cycle_graph(8))
    assert summary["tree_error"] > 0
    assert format_tree(summary)[0] == f"{summary['tree_error']:,}"
    assert f"up to {summary['tree_error']:,}, although they are integers" in describe_broken_bound(summary)
    assert list_warnings(summary)[0].startswith("broken bound")


def test_verify_ends_with_code_6(tmp_path, monkeypatch):
    words = ("--algorithm", "treelloyd", "--devices", "6", "--data", "iris", "-k", "3", "--no-plot", "-q")
    assert here(*words, "--out", tmp_path / "right").code == 0
    assert here("verify", tmp_path / "right").code == 0
    monkeypatch.setattr(tree_sums, "add_child_tables", lose_last)
    assert here(*words, "--out", tmp_path / "wrong").code == 0
    ending = here("verify", tmp_path / "wrong", "--format", "json")
    found = json.loads(ending.out)
    assert ending.code == 6 and found["broken_bound"].startswith("broken bound: sums at the root of the tree")


@pytest.mark.mpi
def test_three_ranks_have_the_same_sums():
    words = ("--algorithm", "treelloyd", "--devices", "7", "--data", "iris", "-k", "3", "--out", "none")
    summary = there(*ranks(3), "-m", "p2pkm", *words, "--format", "json").summary
    assert summary["ranks"] == 3 and summary["tree_error"] == 0
