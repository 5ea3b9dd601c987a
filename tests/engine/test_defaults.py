"""What a run fills in where the method leaves coupling, relaxation, accept test and start to it."""

import json
from pathlib import Path

import networkx as nx
import pytest

import p2pkm
import topologies
from p2pkm.channel.quantization import Quantization
from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import PointCount
from p2pkm.engine.build_run import RunConfig, build_run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_method, record_defaults
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import find
from p2pkm.network.graph import Topology
from tests.contract.test_every_method import deal
from tests.support.methods import METHODS, build
from tests.support.run_cli import here

TREE, FLOOD = "tree-summaries:candidates=5", "flooded-summaries:candidates=5"
BEST = ("rehearsal", "auto", True)
RULE = ("auto", "auto", True)
USUAL = (None, None, None)


def resolve(method, graph=None, **options):
    """Return the method of a run on so many points as its graph has devices, times ten."""
    return plan(method, graph, **options).algorithm


def plan(method, graph=None, **options):
    """Return the same run."""
    topology = Topology.from_graph(topologies.ring(12) if graph is None else graph)
    points = PointCount(topology.n, 10 * topology.n, 2)
    return build_run(method, RunOptions(**options), topology, points)


@pytest.mark.parametrize("name", METHODS)
def test_a_configured_method_is_configured_again_to_the_same(name):
    graph = topologies.star(5) if needs_hub(build(name, 3)) else None
    run = plan(build(name, 3), graph)
    outline = run.outline._replace(points=120)
    once = run.algorithm.configure(outline)
    assert once.configure(outline) == once and once.prefers_integers == run.algorithm.prefers_integers


def filled(method):
    return method.coupling, method.relaxation, method.accept


@pytest.mark.parametrize(("method", "options", "expected", "init"), [
    ({}, {}, BEST, TREE),
    ({"schedule": "jacobi"}, {}, BEST, TREE),
    ({"schedule": "async"}, {}, BEST, TREE),
    ({"init": "bounding-box"}, {}, BEST, "bounding-box"),
    ({}, {"link_model": "wan"}, BEST, TREE),
    ({}, {"quantize": "rice"}, BEST, TREE),
    ({}, {"byzantine": "0"}, BEST, TREE),
    ({}, {"min_cluster_size": 2}, RULE, TREE),
    ({"relaxation": 1.2}, {}, ("rehearsal", 1.2, True), TREE),
    ({"accept": False}, {}, ("rehearsal", "auto", False), TREE),
    ({"coupling": "auto"}, {}, ("auto", None, None), TREE),
    ({"coupling": 3.0}, {}, (3.0, None, None), TREE),
    ({"alpha": 3.0}, {}, USUAL, TREE),
    ({"groups": True}, {}, USUAL, "global"),
    ({"init": "local"}, {}, USUAL, "local"),
    ({"init": "flooded-summaries:hops=1"}, {}, USUAL, "flooded-summaries:hops=1"),
    ({"robust": "clip"}, {}, USUAL, TREE),
    ({"robust": "saturate"}, {}, USUAL, TREE),
    ({"matching": "optimal"}, {}, USUAL, TREE),
    ({"normalize_losses": True}, {}, USUAL, TREE),
    ({"star_term": False}, {}, USUAL, TREE),
    ({"update": "as-printed"}, {}, USUAL, TREE),
    ({"schedule": "jacobi", "safeguard": True}, {}, USUAL, TREE),
    ({}, {"start": [[0.0]]}, USUAL, "global"),
    ({}, {"noise": 0.1}, USUAL, FLOOD),
    ({}, {"faults": "loss=0.1"}, USUAL, FLOOD),
    ({}, {"byzantine": "1"}, USUAL, FLOOD),
    ({"schedule": "async"}, {"link_model": "wan"}, USUAL, FLOOD),
])  # fmt: skip
def test_a_run_fills_in_what_it_can_use(method, options, expected, init):
    found = resolve(p2pkm.GTVMin(3, **method), **options)
    assert filled(found) == expected
    assert str(found.init) == init
    if "start" not in options:
        assert resolve(found, **options) == found  # what was filled in can be asked for


NUMBERS = [  # parameters of the method, options of the run, and whether its tables travel as integers
    ({}, {}, True), ({"schedule": "async"}, {}, True), ({"relaxation": 1.2}, {}, True), ({"accept": False}, {}, True),
    ({"init": "rows:lean=true"}, {}, True), ({}, {"link_model": "wan"}, True), ({}, {"byzantine": "0"}, True),
    ({"init": "bounding-box"}, {}, False),
    ({}, {"faults": "loss=0"}, True), ({}, {"quantize": "auto"}, True), ({}, {"quantize": None}, False),
    ({}, {"quantize": "none"}, False), ({"schedule": "jacobi"}, {}, False), ({"local_steps": 2}, {}, False),
    ({"swaps": True}, {}, False), ({"coupling": "auto"}, {}, False), ({"alpha": 3.0}, {}, False),
    ({"groups": True}, {}, False), ({"init": "local"}, {}, False), ({"robust": "clip"}, {}, False),
    ({}, {"start": [[0.0]]}, False), ({}, {"noise": 0.1}, False), ({}, {"faults": "loss=0.1"}, False),
    ({}, {"byzantine": "1"}, False), ({}, {"min_cluster_size": 2}, False), ({}, {"stream": "drawn:kind=slow"}, False),
    ({"schedule": "async"}, {"link_model": "wan"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options", "integers"), NUMBERS)
def test_tables_travel_as_integers_where_they_may(method, options, integers):
    run = plan(p2pkm.GTVMin(3, **method), **options)
    assert (run.channel.find("quantization") is not None) == integers
    numbers = record_defaults(RunOptions(), parse_method(RunOptions()), run).quantize
    assert numbers == Quantization("rice" if integers else "none")
    if "start" not in options:  # what was filled in can be asked for
        again = plan(run.algorithm, **options | {"quantize": numbers})
        assert again.channel.find("quantization") == run.channel.find("quantization")


def test_what_else_does_not_send_integers_by_itself():
    for name in ("consensus", "treelloyd", "local"):
        assert plan(find(name)(3)).channel.find("quantization") is None
    assert plan(p2pkm.GTVMin(16)).channel.find("quantization") is not None
    assert plan(p2pkm.GTVMin(17)).channel.find("quantization") is None
    apart = nx.disjoint_union(topologies.ring(5), topologies.path(2))
    for graph in (topologies.one_peer_exponential(8), apart, topologies.build("ring", 5_001)):
        assert plan(p2pkm.GTVMin(3), graph, allow_disconnected=True).channel.find("quantization") is None
    with pytest.raises(ExperimentError, match="continues from centroids between the grid points"):
        plan(p2pkm.GTVMin(3, local_steps=2), quantize="rice")


def test_the_graph_decides_too():
    apart = nx.disjoint_union(topologies.ring(5), topologies.path(2))
    assert filled(resolve(p2pkm.GTVMin(3), apart, allow_disconnected=True)) == RULE
    large = topologies.build("ring", 5_001)
    assert filled(resolve(p2pkm.GTVMin(3), large)) == RULE
    changing = topologies.one_peer_exponential(8)
    found = resolve(p2pkm.GTVMin(3), changing)
    assert filled(found) == USUAL and str(found.init) == FLOOD


@pytest.mark.parametrize("name", "consensus pushsum tracking admm gossip dgc gossip-sum epidemic".split())
def test_other_methods_start_along_a_tree_or_flood_alike(name):
    assert str(resolve(find(name)(3)).init) == "tree-summaries"
    if name in ("admm", "gossip", "dgc"):
        assert str(resolve(find(name)(3), noise=0.1).init) == "flooded-summaries"


@pytest.mark.parametrize("options", [{"coupling": "rehearsal"}, {"accept": True}])
def test_what_is_asked_for_and_cannot_be_used_is_refused(options):
    for more in ({"init": "local"}, {"groups": True}):
        with pytest.raises(ExperimentError, match=r"cannot be combined with --groups"):
            p2pkm.GTVMin(3, **options, **more)
    with pytest.raises(ExperimentError, match="noise"):
        resolve(p2pkm.GTVMin(3, **options), noise=0.1)


@pytest.mark.parametrize("graph", [topologies.ring(40), topologies.star(30)])
def test_a_plain_run_never_ends_worse_than_its_start(graph):
    for seed in range(2):
        summary = p2pkm.simulate(p2pkm.GTVMin(3), graph, deal(len(graph)), seed=seed).summary
        assert summary["ratio_mean"] <= summary["ratio_start"] * (1 + 1e-12)
        assert summary["coupling_choice"] == "rehearsal"


def test_the_experiment_shows_what_was_filled_in():
    config = json.loads(here("--dry-run", "--devices", 8, "--algorithm", "consensus:init=global").out)
    assert config["algorithm"] == "consensus:init=tree-summaries:candidates=5" and "init" not in config
    again = json.loads(here("--dry-run", "--devices", 8).out)
    assert (again["init"], again["coupling"], again["relaxation"], again["accept"]) == (TREE, *BEST)
    given = json.loads(here("--dry-run", "--devices", 8, "--no-accept", "--coupling", 3).out)
    assert given["coupling"] == 3.0 and given["accept"] is False and "relaxation" not in given
    run = RunConfig(p2pkm.GTVMin(4, coupling=7.0, init="tree-summaries"), Topology.from_graph(topologies.ring(3)))
    assert record_defaults(RunOptions(), parse_method(RunOptions()), run).coupling == 7.0


def test_a_run_from_the_configuration_of_another_may_be_disturbed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--devices", 6, "--data", "grid16:points=6", "--rounds", 2, "--no-plot", "-q")
    assert here(*small, "--out", "run").code == 0
    manifest = json.loads(Path("run/manifest.json").read_text("utf-8"))
    assert manifest["defaults"] == {
        "init": TREE,
        "coupling": "rehearsal",
        "relaxation": "auto",
        "accept": True,
        "quantize": "rice",
    }
    noisy = here("--config", "run/config.toml", "--noise", "0.1", "--out", "none", "--format", "json")
    assert noisy.code == 0, noisy.err
    assert (noisy.summary["coupling"], noisy.summary["init"]) == (10.0, FLOOD)


def test_the_closing_table_names_the_coupling_and_predicts_no_other_method():
    words = ("--devices", 16, "--no-baselines", "--out", "none", "-q", "-v")
    ending = here(*words)
    assert "calibrated on local sums" in ending.out and "treelloyd" not in ending.out
