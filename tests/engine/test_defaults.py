"""Values of coupling, relaxation and start that a run chooses if the method leaves them open."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.channel.quantization import Quantization
from p2pkm.core.errors import ExperimentError
from p2pkm.core.protocols import PointCount
from p2pkm.engine.build_run import Run, build_run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_method, record_defaults
from p2pkm.methods.building_blocks.coupling_choice import choose_coupling
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import find
from p2pkm.network.graph import Topology
from tests.contract.test_every_method import deal
from tests.support.each import each
from tests.support.methods import METHODS, build
from tests.support.run_cli import here

TREE, FLOOD = "tree-summaries:candidates=5", "flooded-summaries:candidates=5"
BEST = ("auto", "auto")
STRONG = ("strong", None)
USUAL = (None, None)


def resolve(method, graph=None, **options):
    """Return the method of a run on so many points as its graph has devices, times ten."""
    return plan(method, graph, **options).algorithm


def plan(method, graph=None, **options):
    """Return the same run."""
    topology = Topology.from_graph(topologies.ring(12) if graph is None else graph)
    points = PointCount(topology.n, 10 * topology.n, 2)
    return build_run(method, RunOptions(**options), topology, points)


@each("name", METHODS)
def test_a_configured_method_is_configured_again_to_the_same(name):
    graph = topologies.star(5) if needs_hub(build(name, 3)) else None
    run = plan(build(name, 3), graph)
    outline = run.outline._replace(points=120)
    once = run.algorithm.configure(outline)
    assert once.configure(outline) == once and once.prefers_integers == run.algorithm.prefers_integers


def filled(method):
    return method.coupling, method.relaxation


@each(("method", "options", "expected", "init"), [
    ({}, {}, BEST, TREE),
    ({"schedule": "jacobi"}, {}, BEST, TREE),
    ({"schedule": "async"}, {}, BEST, TREE),
    ({"init": "bounding-box"}, {}, BEST, "bounding-box"),
    ({}, {"link_model": "wan"}, BEST, TREE),
    ({}, {"quantize": "rice"}, STRONG, TREE),
    ({}, {"quantize": "possible"}, BEST, TREE),
    ({}, {"byzantine": "0"}, BEST, TREE),
    ({}, {"min_cluster_size": 2}, STRONG, TREE),
    ({}, {"rounds": 0}, STRONG, TREE),
    ({"swaps": True}, {}, STRONG, TREE),
    ({"local_steps": 2}, {}, STRONG, TREE),
    ({"relaxation": 1.2}, {}, ("auto", 1.2), TREE),
    ({"coupling": "auto"}, {}, BEST, TREE),
    ({"coupling": "bayes"}, {}, ("bayes", "auto"), TREE),
    ({"coupling": "strong"}, {}, STRONG, TREE),
    ({"coupling": 3.0}, {}, (3.0, None), TREE),
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


def test_strong_follows_from_the_graph_and_the_number_of_points_alone():
    run = p2pkm.simulate(p2pkm.GTVMin(3, coupling="strong"), topologies.ring(24), deal(24))
    number = choose_coupling(Topology.from_graph(topologies.ring(24)), len(deal(24).points), 3)
    assert run.summary["coupling_choice"] == "strong" and run.summary["coupling"] == number > 30


NUMBERS = [  # parameters besides coupling strong, options of the run, and whether its tables travel as integers
    ({}, {}, True), ({"schedule": "async"}, {}, True), ({"relaxation": 1.2}, {}, True),
    ({"init": "rows:lean=true"}, {}, True), ({}, {"link_model": "wan"}, True), ({}, {"byzantine": "0"}, True),
    ({"init": "bounding-box"}, {}, False),
    ({}, {"faults": "loss=0"}, True), ({}, {"quantize": "auto"}, True), ({}, {"quantize": None}, False),
    ({}, {"quantize": "none"}, False), ({"schedule": "jacobi"}, {}, False), ({"local_steps": 2}, {}, False),
    ({"swaps": True}, {}, False), ({"coupling": "auto"}, {}, False), ({"coupling": None}, {}, False),
    ({"coupling": None}, {"quantize": "rice"}, True), ({"coupling": None, "alpha": 3.0}, {}, False),
    ({"coupling": 3.0}, {}, False), ({"coupling": None, "groups": True}, {}, False), ({"init": "local"}, {}, False),
    ({"robust": "clip"}, {}, False),
    ({}, {"start": [[0.0]]}, False), ({}, {"noise": 0.1}, False), ({}, {"faults": "loss=0.1"}, False),
    ({}, {"byzantine": "1"}, False), ({}, {"min_cluster_size": 2}, False), ({}, {"stream": "drawn:kind=slow"}, False),
    ({"schedule": "async"}, {"link_model": "wan"}, False),
]  # fmt: skip


@each(("method", "options", "integers"), NUMBERS)
def test_tables_travel_as_integers_where_they_may(method, options, integers):
    run = plan(p2pkm.GTVMin(3, **{"coupling": "strong"} | method), **options)
    assert (run.channel.find("quantization") is not None) == integers
    numbers = record_defaults(RunOptions(), parse_method(RunOptions()), run).quantize
    assert numbers == Quantization("rice" if integers else "none")
    if "start" not in options:  # what was filled in can be asked for
        again = plan(run.algorithm, **options | {"quantize": numbers})
        assert again.channel.find("quantization") == run.channel.find("quantization")


def test_what_else_does_not_send_integers_by_itself():
    for name in ("consensus", "treelloyd", "local"):
        assert plan(find(name)(3)).channel.find("quantization") is None
    assert plan(p2pkm.GTVMin(16, coupling="strong")).channel.find("quantization") is not None
    assert plan(p2pkm.GTVMin(17, coupling="strong")).channel.find("quantization") is None
    for graph in (topologies.one_peer_exponential(8), topologies.build("ring", 5_001)):
        assert plan(p2pkm.GTVMin(3, coupling="strong"), graph).channel.find("quantization") is None
    with pytest.raises(ExperimentError, match="continues from centroids between the grid points"):
        plan(p2pkm.GTVMin(3, local_steps=2), quantize="rice")


@pytest.mark.slow
def test_the_graph_decides_too():
    for graph, expected, init in (
        (topologies.build("ring", 5_001), BEST, TREE),
        (topologies.build("path", 100_002), USUAL, "global"),
        (topologies.one_peer_exponential(8), USUAL, FLOOD),
    ):
        found = resolve(p2pkm.GTVMin(3), graph)
        assert (*filled(found), str(found.init)) == (*expected, init)


REFUSED = [  # parameters, options, graph, and a word of the reason
    ({"groups": True}, {}, None, "groups"),
    ({"init": "local"}, {}, None, "init='local'"),
    ({"init": "flooded-summaries:hops=1"}, {}, None, "a limit of hops"),
    ({"robust": "clip"}, {}, None, "robust=clip"),
    ({"robust": "saturate"}, {}, None, "robust='saturate'"),
    ({"matching": "optimal"}, {}, None, "matching=optimal"),
    ({"normalize_losses": True}, {}, None, "normalize_losses"),
    ({"star_term": False}, {}, None, "star_term=false"),
    ({"update": "as-printed"}, {}, None, "update=as-printed"),
    ({"schedule": "jacobi", "safeguard": True}, {}, None, "safeguard"),
    ({"swaps": True}, {}, None, "swaps"),
    ({"local_steps": 2}, {}, None, "local_steps"),
    ({}, {"start": [[0.0]]}, None, "start"),
    ({}, {"rounds": 0}, None, "rounds=0"),
    ({}, {"stream": "drawn:kind=slow"}, None, "stream"),
    ({}, {"noise": 0.1}, None, "noise"),
    ({}, {"faults": "loss=0.1"}, None, "faults"),
    ({}, {"byzantine": "1"}, None, "byzantine"),
    ({}, {"min_cluster_size": 2}, None, "min_cluster_size"),
    ({}, {"quantize": "rice"}, None, "quantize"),
    ({"schedule": "async"}, {"link_model": "wan"}, None, "link_model"),
    ({}, {}, topologies.one_peer_exponential(8), "change from round to round"),
    ({}, {}, topologies.build("path", 100_002), "a graph of 100,001 hops"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options", "graph", "word"), REFUSED)
@pytest.mark.sample(5)
def test_what_refuses_a_choice_by_name_is_why_it_is_not_the_default(method, options, graph, word):
    graph = topologies.complete(12) if graph is None else graph
    run = plan(p2pkm.GTVMin(3, **method), graph, **options)
    (note,) = run.notes
    lead, _, reason = note.partition(", not its default coupling=auto: ")
    assert lead.startswith("gtvmin uses coupling=") and word in reason
    with pytest.raises(ExperimentError) as found:
        plan(p2pkm.GTVMin(3, coupling="auto", **method), graph, **options)
    assert reason == str(found.value).partition(". ")[0]


# What the reasons call the parameters and options of `REFUSED`.
NAMES = ("groups", "init", "hops", "robust", "matching", "normalize_losses", "star_term", "update", "safeguard",
         "swaps", "local_steps", "start", "rounds", "stream", "noise", "faults", "byzantine", "min_cluster_size",
         "quantize", "link_model")  # fmt: skip


@pytest.mark.parametrize(("method", "options", "graph", "word"), REFUSED)
@pytest.mark.sample(5)
def test_the_note_names_the_combination_that_is_not_possible_and_no_other(method, options, graph, word):
    (note,) = plan(p2pkm.GTVMin(3, **method), topologies.complete(12) if graph is None else graph, **options).notes
    combination = note.partition(", not its default coupling=auto: ")[2].partition(": ")[0]
    assert re.search("coupling='?auto", combination)
    given = {*method, *options} - {"schedule"} | ({"hops"} if "hops" in word else set())
    if "normalize" in word:
        given = {"normalize_losses"}
    named = {name for name in NAMES if re.search(rf"\b{name}\b", combination.replace("initial", ""))}
    assert named == given


@pytest.mark.parametrize(("method", "options"), [
    ({}, {}), ({"coupling": 3.0}, {"noise": 0.1}), ({"alpha": 3.0}, {"faults": "loss=0.1"}),
    ({"coupling": "strong"}, {"min_cluster_size": 2}),
])  # fmt: skip
def test_there_is_no_note_where_the_choice_runs_or_a_coupling_is_given(method, options):
    assert plan(p2pkm.GTVMin(3, **method), **options).notes == ()


@pytest.mark.slow
def test_the_note_is_one_line_of_the_terminal_and_of_the_result():
    ending = here("--devices", 6, "--data", "grid16:points=6", "--noise", 0.1, "--out", "none", "-q")
    assert ending.out.count("not its default") == 1 and "not its default" not in ending.err
    result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), deal(6), noise=0.1)
    assert sum("not its default" in note for note in result.notes) == 1


@pytest.mark.parametrize(("method", "options"), [
    ({}, {"faults": "loss=0.1"}), ({"groups": True}, {}), ({}, {"min_cluster_size": 2}), ({}, {"quantize": "rice"}),
])  # fmt: skip
@pytest.mark.parametrize("graph", [topologies.ring(6), topologies.ring(24)])
def test_the_note_names_the_coupling_that_the_run_uses(method, options, graph):
    points = deal(len(graph))
    result = p2pkm.simulate(p2pkm.GTVMin(3, **method), graph, points, rounds=3, **options)
    (note,) = (note for note in result.notes if "not its default" in note)
    named = note.partition(",")[0].removeprefix("gtvmin uses coupling=")
    given = named if named == "strong" else float(named)
    again = p2pkm.simulate(p2pkm.GTVMin(3, coupling=given, **method), graph, points, rounds=3, **options)
    assert again.summary["coupling"] == result.summary["coupling"]
    assert np.array_equal(again.centroids, result.centroids)


@each("name", "consensus pushsum tracking admm gossip dgc gossip-sum epidemic".split())
def test_other_methods_start_along_a_tree_or_flood_alike(name):
    assert str(resolve(find(name)(3)).init) == "tree-summaries"
    if name in ("admm", "gossip", "dgc"):
        assert str(resolve(find(name)(3), noise=0.1).init) == "flooded-summaries"


def test_the_experiment_shows_what_was_filled_in():
    config = json.loads(here("--dry-run", "--devices", 8, "--algorithm", "consensus:init=global").out)
    assert config["algorithm"] == "consensus:init=tree-summaries:candidates=5" and "init" not in config
    again = json.loads(here("--dry-run", "--devices", 8).out)
    assert (again["init"], again["coupling"], again["relaxation"]) == (TREE, *BEST)
    given = json.loads(here("--dry-run", "--devices", 8, "--coupling", 3).out)
    assert given["coupling"] == 3.0 and "relaxation" not in given
    run = Run(p2pkm.GTVMin(4, coupling=7.0, init="tree-summaries"), Topology.from_graph(topologies.ring(3)))
    assert record_defaults(RunOptions(), parse_method(RunOptions()), run).coupling == 7.0


def test_a_run_from_the_configuration_of_another_may_be_disturbed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ("--devices", 6, "--data", "grid16:points=6", "--rounds", 2, "--no-plot", "-q")
    assert here(*small, "--out", "run").code == 0
    manifest = json.loads(Path("run/manifest.json").read_text("utf-8"))
    assert manifest["defaults"] == {
        "init": TREE,
        "coupling": "auto",
        "relaxation": "auto",
        "quantize": "none",
    }
    noisy = here("--config", "run/config.toml", "--noise", "0.1", "--out", "none", "--format", "json")
    assert noisy.code == 0, noisy.err
    assert (noisy.summary["coupling"], noisy.summary["init"]) == (10.0, FLOOD)


def test_the_closing_table_names_the_coupling_and_predicts_no_other_method():
    words = ("--devices", 16, "--no-baselines", "--out", "none", "-q", "-v")
    ending = here(*words)
    assert "chosen by leave-one-out likelihood: " in ending.out and "treelloyd" not in ending.out
