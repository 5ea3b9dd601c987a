"""Texts of all figures with real names: inside the figure, without overlap, in every style and two fonts."""

import csv
import io
from functools import cache, partial

import networkx as nx
import numpy as np
import pytest
from matplotlib.figure import Figure

import p2pkm
import topologies
from p2pkm import viz
from p2pkm.analysis.bench_statistics import summarize
from p2pkm.viz import settings
from p2pkm.viz.drawn_text import has_conflicts
from p2pkm.viz.figure_data import write_table
from p2pkm.viz.figures.graph_comparison import _MEASURES, Panel
from p2pkm.viz.looks import FIGURE_STYLES
from p2pkm.viz.names import break_name, name_graph, name_run
from tests.support.bench_rows import draw_rows
from tests.support.drawn_text import find_outside, find_overlaps, list_boxes
from tests.support.each import each
from tests.viz.test_explained_figure import explained
from tests.viz.test_looks import ATTACK, PATH

NAMES = (
    "Universitätsklinikum Münster A", "Universitätsklinikum Köln <BB>", "Städtisches Krankenhaus Görlit",
    "Sankt-Elisabeth-Hospital Lüneb", "Krankenhaus_Märkisch-Oderland1", "Klinik für Innere Medizin Jöhl",
    "Bürgerspital <Haus 2> Nürtinge", "MVZ Größenwahn & Söhne (Nord)!", "Ärztehaus am Überseepark 12/34",
    "KrankenhausverbundSüdöstlichOs", "Praxis Dr. Öztürk <Übergabe> 3", "Diakonie-Klinikum Schwäb. Hall",
)  # fmt: skip
FILE = "file:data/krankenhäuser_in_nordrhein.gml"
METHODS = ("gtvmin:coupling=strong,relaxation=auto", "consensus:steps=5", "treelloyd:groups=auto")
GRAPHS = {"small-world:degree=4,rewire=0.1": (0.1, 5.0, 40), FILE: (0.11, 5.1, 20), "complete": (1.0, 16.0, 2)}
OWNER = np.arange(240) % 12


def named(graph):
    return nx.relabel_nodes(graph, dict(enumerate(NAMES)))


def solve(method, graph, d=2, labeled=True, **options):
    draw = np.random.default_rng(d)
    points = draw.normal(size=(240, d)) + 3 * draw.integers(0, 3, size=(240, 1))
    labels = draw.integers(0, 3, 240) if labeled else None
    owner, count = (OWNER, 12) if graph is not None else (np.array(NAMES)[OWNER], None)
    shards = p2pkm.Shards.deal(points, owner, devices=count, labels=labels)
    return p2pkm.simulate(method, graph, shards, **{"rounds": 3} | options)


@pytest.fixture(scope="module")
def runs():
    mesh = named(topologies.small_world(12, degree=4, seed=1))
    ring = named(topologies.ring(12))
    return {
        "mesh": solve(p2pkm.GTVMin(3), mesh, link_model="wan"),
        "one feature": solve(p2pkm.GTVMin(3), mesh, d=1),
        "eight features": solve(p2pkm.GTVMin(3), ring, d=8, labeled=False),
        "server": solve(p2pkm.FKM(3), None),
        "groups": solve(p2pkm.GTVMin(3, groups=True), named(topologies.communities(12, bridges=2))),
        "k": solve(p2pkm.GTVMin(3), ring, clusters="auto", k_max=9, rounds=1),
        "stream": solve(p2pkm.TreeLloyd(3), ring, rounds=6, stream="drawn:kind=jump,at=3,share=0.5"),
    }


def rows(couplings=(1.0, 10.0)):
    return [
        {"algorithm": method, "graph": graph, "seed": seed, "coupling": coupling, "error": None,
         "ratio_mean": 1 + rounds / 100 / coupling + 0.01 * seed * i, "bytes": 1000 * rounds * (i + 1),
         "virtual_seconds": 1.0 * rounds, "rounds_to_1pct": rounds + seed, "spectral_gap": gap,
         "effective_neighbors": effective}
        for i, method in enumerate(METHODS) for graph, (gap, effective, rounds) in GRAPHS.items()
        for coupling in couplings for seed in range(3)
    ]  # fmt: skip


def quality():
    return [
        {"algorithm": method, "graph": graph, "ratio_mean": 1 + 0.002 * (i + j + 1), "ratio_low": 1 + 0.001 * (i + 1),
         "ratio_high": 1 + 0.004 * (i + 1) * (j + 1), "bytes": 9e4 * i * (j + 2), "bytes_busiest": 1e4}
        for i, method in enumerate(METHODS) for j, graph in enumerate(GRAPHS)
    ]  # fmt: skip


@cache
def ranking():
    return summarize(draw_rows(seeds=1))


def panels(runs):
    topology = runs["mesh"].topology
    figures = {key: {"value": 1234.5, "exact": False} for key in _MEASURES}
    return [Panel(name, topology, None, figures) for name in GRAPHS]


def attack(what):
    return ATTACK | {"what": what, "rows": [ATTACK["rows"][0] | {"against": name, "distance": i}
                                            for i, name in enumerate(NAMES[:4])]}  # fmt: skip


def draw_leaks(runs, ax=None, names=NAMES):
    leak = np.random.default_rng(0).uniform(size=(len(names), len(names)))
    hops = 1 - np.eye(len(names), dtype=int)
    return viz.plot_leaks(leak, np.arange(len(names)), hops, FILE, ax, names=names)


def draw_overlay(runs, ax=None, **options):
    labels = [METHODS[0], METHODS[0], f"{METHODS[1]} on {FILE}"]
    return viz.overlay([runs["mesh"], runs["one feature"], runs["groups"]], labels, ax, **options)


PLOTS = {
    "graph": viz.plot_graph, "points": viz.plot_points, "devices": viz.plot_devices, "bytes": viz.plot_bytes,
    "partition": viz.plot_partition, "convergence": viz.plot_convergence,
}  # fmt: skip
# Runs of which a plot has the same texts as of the mesh.
SAME = {"points": ("groups",), "devices": ("server", "groups"), "partition": ("one feature", "server", "groups")}
DRAWN = {
    **{f"{name}, {kind}": lambda runs, ax=None, plot=plot, kind=kind: plot(runs[kind], ax)
       for kind in ("mesh", "one feature", "eight features", "server", "groups") for name, plot in PLOTS.items()
       if kind not in SAME.get(name, ())},
    "groups": lambda runs, ax=None: viz.plot_graph(runs["groups"], ax, nodes="group"),
    "disagreement": lambda runs, ax=None: viz.plot_graph(runs["mesh"], ax, nodes="disagreement", edges="bytes"),
    "topology": lambda runs, ax=None: viz.plot_topology(runs["k"].topology, FILE, ax),
    "profile": lambda runs, ax=None: viz.plot_profile(runs["eight features"], ax),
    "progress": lambda runs, ax=None: viz.plot_progress(runs["mesh"], ax),
    "k": lambda runs, ax=None: viz.plot_k(runs["k"], ax),
    "drift": lambda runs, ax=None: viz.plot_drift(runs["stream"], ax),
    "coupling path": lambda runs, ax=None: viz.plot_coupling_path(PATH, ax),
    "attack, gossip": lambda runs, ax=None: viz.plot_attack(attack("gossip"), ax),
    "attack, coalition": lambda runs, ax=None: viz.plot_attack(attack("coalition"), ax),
    "leaks": draw_leaks,
    "quality": lambda runs, ax=None: viz.plot_quality(quality(), ax),
    "study quality": lambda runs, ax=None: viz.plot_study_quality(rows(), ax),
    "heatmap": lambda runs, ax=None: viz.plot_heatmap(rows(), "algorithm", "graph", ax=ax),
    "measures": lambda runs, ax=None: viz.plot_measures(rows((1.0,)), ax),
    "seeds": lambda runs, ax=None: viz.plot_seeds(rows((1.0,)), ax),
    "differences": lambda runs, ax=None: viz.plot_differences(rows((1.0,)), ax),
    "columns": lambda runs, ax=None: viz.plot_columns(rows(), "graph", color="algorithm", ax=ax),
    "columns of numbers": lambda runs, ax=None: viz.plot_columns(rows(), "bytes", color="graph", ax=ax),
    "explained": lambda runs, ax=None: viz.plot_explained(explained(("tracking:gossips=1,init=leader", "gtvmin")), ax),
    "bench map": lambda runs, ax=None: viz.plot_bench_map(ranking(), ax),
    "bench profiles": lambda runs, ax=None: viz.plot_bench_profiles(ranking(), ax),
    "bench fronts": lambda runs, ax=None: viz.plot_bench_fronts(ranking(), ax),
    "graphs": lambda runs, ax=None: viz.plot_graphs(panels(runs), ax),
    "overlay": draw_overlay,
    "overlay of bytes": partial(draw_overlay, show="bytes"),
    "overlay of cost": partial(draw_overlay, show="cost"),
    "features": lambda runs, ax=None: viz.plot_features(np.random.default_rng(0).normal(size=(60, 3)),
                                                        np.arange(60) % 4, ax, names=NAMES[:4]),
}  # fmt: skip


def check(figure):
    with settings.use_own_settings():
        drawn = list_boxes(figure)
        assert find_outside(figure, drawn) == [] and find_overlaps(figure, drawn) == []


# The narrowest style has the wider font, and the largest font is that of slides; the other two have more room.
LOOKS = [
    *[(name, look) for name in DRAWN for look in ("column", "slide")],
    *[(name, (None, "page")[number // 3 % 2]) for number, name in enumerate(DRAWN) if number % 3 == 0],
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "look"), LOOKS)
def test_texts_are_inside_and_apart(runs, monkeypatch, name, look):
    if look == "column":
        monkeypatch.setitem(settings.FONTS, "font.family", "DejaVu Serif")
    with p2pkm.style(look):
        figure = DRAWN[name](runs)
    assert look is None or figure.get_figwidth() == FIGURE_STYLES[look].width
    check(figure)


@pytest.mark.slow
@pytest.mark.parametrize("look", [None, *FIGURE_STYLES])
def test_names_of_twenty_devices_fit_beside_a_matrix(look):
    with p2pkm.style(look):
        check(draw_leaks(None, names=[*NAMES, *(name[::-1] for name in NAMES[:8])]))


@pytest.mark.slow
def test_names_of_a_narrow_graph_are_inside_and_apart(runs):
    with p2pkm.style("column"):
        check(viz.plot_graph(runs["mesh"]))


def test_overlaps_and_texts_outside_are_found():
    figure = Figure(figsize=(2, 1))
    figure.text(0.5, 0.5, "one", rotation=30)
    assert find_outside(figure) == find_overlaps(figure) == [] and not has_conflicts(figure)
    figure.text(0.52, 0.5, "two")
    assert find_overlaps(figure) == [("one", "two")] and has_conflicts(figure)
    figure = Figure(figsize=(2, 1))
    figure.text(0.9, 0.5, "too far right")
    assert find_outside(figure) == ["too far right"] and has_conflicts(figure)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graph, mesh", "bytes, mesh", "partition, mesh", "topology", "leaks"])
def test_the_table_has_every_name_in_full(runs, name):
    with p2pkm.style("column"):
        table = list(csv.DictReader(io.StringIO(write_table(DRAWN[name](runs)))))
    assert {row[column] for row in table for column in ("name", "x_name", "y_name")} - {""} >= set(NAMES)


@pytest.mark.slow
def test_panels_have_full_names_in_the_table(runs):
    with p2pkm.style("column"):
        table = list(csv.DictReader(io.StringIO(write_table(viz.plot_devices(runs["mesh"])))))
    assert {row["panel"] for row in table} == {f"{name}: 20 points" for name in NAMES}


ONES = [name for name in DRAWN if ", " not in name or name.endswith("mesh") or name.startswith("attack")]


@pytest.mark.parametrize("name", [name if name in ("graph, mesh", "overlay", "leaks")
                                  else pytest.param(name, marks=pytest.mark.slow) for name in ONES])  # fmt: skip
@pytest.mark.sample(3)
def test_the_rest_of_a_figure_is_left_alone(runs, name):
    def draw(plot):
        figure = Figure(figsize=(9, 4), dpi=60)
        drawn, neighbor = figure.subplots(1, 2)
        neighbor.plot([1, 2], [3, 4], label="a")
        neighbor.legend()
        neighbor.set_title("neighbor")
        figure.suptitle("all")
        if plot:
            with p2pkm.style("slide"):
                DRAWN[name](runs, drawn)
        drawn.set_visible(False)
        for more in figure.axes[2:]:
            more.set_visible(False)
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())

    np.testing.assert_array_equal(draw(True), draw(False))


@each(
    ("spec", "name"),
    [("ring", "ring"), ("file:a/b/abilene.gml", "abilene.gml"), ("file:abilene.gml,isolated=drop", "abilene.gml"),
     ("gallery:abilene", "abilene"), ("small-world:degree=4", "small-world"), (None, "")],
)  # fmt: skip
def test_names_of_graphs_in_titles(spec, name):
    assert name_graph(spec) == name
    assert name_run({"algorithm": "gtvmin:coupling=2", "graph": spec}) == (f"gtvmin on {name}" if name else "gtvmin")


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [("short", 5, ["short"]), ("one two three", 7, ["one two", "three"]), ("file:a/b", 5, ["file:", "a/b"]),
     ("abcdefgh", 3, ["abc", "def", "gh"]), ("Sankt-Elisabeth-Hospital", 16, ["Sankt-Elisabeth-", "Hospital"])],
)  # fmt: skip
def test_names_are_broken_after_punctuation(name, width, lines):
    assert break_name(name, width).split("\n") == lines
