"""The figures: they draw what the result says, in any case that a result can be, and the same bytes every time."""

import json
import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm import viz as plots
from p2pkm.metrics.result import Census, Result
from p2pkm.network.graph import Topology
from p2pkm.network.ledger import Traffic
from p2pkm.viz.color_by import cost_per_point, read_edges
from p2pkm.viz.figures.convergence import place_rounds
from p2pkm.viz.graph_layout import place_devices
from tests.support.sampling import thin

DRAWN = [plots.plot_convergence, plots.plot_graph, plots.plot_points, plots.plot_partition, plots.plot_bytes]
NAMES = ("convergence", "graph", "points", "partition", "bytes")


def record(stage, t, **figures):
    return {"stage": stage, "round": t, "objective": None, "gtv": None, "ratio_mean": None} | figures


TWO_STAGES = [
    record("local", 0),
    record("local", 1, gtv=8.0, ratio_mean=3.0),
    record("gtvmin", 0, gtv=8.0, ratio_mean=3.0, objective=50.0),
    record("gtvmin", 2, gtv=4.0, objective=40.0),
    record("gtvmin", 4, gtv=2.0, ratio_mean=1.25, objective=30.0),
]


def traffic(topology):
    e = len(topology.indices)
    src, dst = topology.sources, topology.indices
    messages, volume = np.arange(e) + 1, 100 * (src + 1) + dst
    return fill(Traffic, Traffic._fields, src=src, dst=dst, messages=messages, bytes=volume)


def fill(kind, names, **known):
    """Make up a record of which the figures use only a part."""
    return kind(**(dict.fromkeys(names) | known))


def census(n, d, classes, draw):
    sizes = draw.integers(1, 9, n)
    owner = np.repeat(np.arange(n), sizes)
    kind = draw.integers(0, classes, len(owner)) if classes else np.full(len(owner), -1)
    table = None
    if classes:
        table = np.zeros((n, classes), np.int64)
        np.add.at(table, (owner, kind), 1)
    return Census(sizes, None, None, None, table, None, draw.normal(size=(len(owner), d)), owner, kind,
                  np.full(len(owner), -1))  # fmt: skip


def make(graph, k=3, d=2, classes=4, rounds=TWO_STAGES):
    """Make up a result with numbers that can be told apart."""
    topology, draw = Topology.from_networkx(graph), np.random.default_rng(5)
    n, links = topology.n, topology.sources < topology.indices
    gtv = np.zeros(len(topology.indices))
    for e, (i, j) in enumerate(zip(topology.sources, topology.indices, strict=True)):
        gtv[e] = 1 + 0.1 * max(i, j) + 0.01 * min(i, j)
    assert links.sum() * 2 == len(gtv)
    summary = {"algorithm": "gtvmin", "devices": n, "termination": "converged", "k_chosen": None, "stream": None}
    return fill(
        Result, [field.name for field in fields(Result)], centroids=draw.normal(size=(n, k, d)), rounds=list(rounds),
        summary=summary, ledger=traffic(topology), topology=topology, losses=np.arange(1.0, n + 1), gtv=gtv,
        census=census(n, d, classes, draw), best=0, notes=[], devices={},
    )  # fmt: skip


@pytest.fixture(scope="module")
def solved():
    X, y = p2pkm.grid16(points=20, seed=0)
    device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
    graph = topologies.small_world(16, degree=4, rewire=0.1, seed=1)
    return p2pkm.simulate(p2pkm.GTVMin(16), graph, p2pkm.Shards.deal(X, device, devices=16, labels=y), rounds=5)


def on_axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def render(ax):
    ax.figure.canvas.draw()  # where missing glyphs and broken scales come to light
    return ax.figure.axes[0]


def collection(ax, label):
    (found,) = [one for one in ax.collections if one.get_label().startswith(label)]
    return found


def colored(ax):
    """Return the devices with a cost: the only collection of points with values."""
    from matplotlib.collections import PathCollection

    return next(
        (one for one in ax.collections if isinstance(one, PathCollection) and one.get_array() is not None), None
    )


def lines(ax):
    from matplotlib.collections import LineCollection

    return next((one for one in ax.collections if isinstance(one, LineCollection)), None)


# ---------------------------------------------------------------------------------------------------- all figures


@pytest.mark.parametrize("plot", thin(DRAWN, 2))
@pytest.mark.sample(3)
def test_draws_into_the_given_axes_and_opens_its_own(plot):
    result, ax = make(topologies.ring(5)), on_axes()
    figure = ax.figure
    assert plot(result, ax) is figure
    assert ax.figure is figure
    assert render(ax).get_title(loc="left")
    own = plot(result)
    assert own.figure is not figure
    render(own)


CASES = {
    "one device": lambda: make(topologies.ring(1), k=1, classes=0),
    "two devices": lambda: make(topologies.ring(2)),
    "one feature": lambda: make(topologies.path(4), d=1),
    "ten features": lambda: make(topologies.star(6), d=10),
    "more features than points": lambda: make(topologies.path(2), d=40),
    "no labels": lambda: make(topologies.complete(4), classes=0),
    "one class": lambda: make(topologies.ring(4), classes=1),
    "no central solution": lambda: make(topologies.ring(4), rounds=[{**one, "ratio_mean": None} for one in TWO_STAGES]),
    "a single record": lambda: make(topologies.ring(4), rounds=[record("local", 0, gtv=0.0)]),
    "nothing known": lambda: make(topologies.ring(4), rounds=[record("local", 0), record("local", 1)]),
    "no records": lambda: make(topologies.ring(4), rounds=[]),
    "infinite figures": lambda: make(
        topologies.ring(4), rounds=[record("local", 0, gtv=np.inf), record("local", 1, gtv=np.nan, ratio_mean=1e300)]
    ),
    "better than central": lambda: make(
        topologies.ring(4), rounds=[record("local", t, ratio_mean=1 + x) for t, x in enumerate((5.0, 0.1, 0.0, -0.01))]
    ),
    "hundreds of devices": lambda: make(topologies.grid(240), classes=0),
    "many stages": lambda: make(
        topologies.ring(3),
        rounds=[record("local" if s % 2 else "bounding-box", 0, objective=1.0 + s) for s in range(90)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_edge_cases_are_drawn(case):
    result = CASES[case]()
    for plot in DRAWN:
        assert render(plot(result)).get_title(loc="left")


@pytest.mark.slow
def test_devices_without_points_or_centroids_and_links_without_a_value():
    result = make(topologies.ring(6))
    sizes, losses, gtv = result.census.sizes.copy(), result.losses.copy(), result.gtv.copy()
    sizes[0], losses[0], losses[1], gtv[0] = 0, 0.0, np.inf, np.inf
    centroids = result.centroids.copy()
    centroids[1], centroids[2, 1:] = np.inf, np.inf
    result = replace(result, losses=losses, gtv=gtv, centroids=centroids, census=result.census._replace(sizes=sizes))
    ax = render(plots.plot_graph(result))
    assert len(colored(ax).get_offsets()) == 4
    assert len(collection(ax, "device without points").get_offsets()) == 1
    assert len(collection(ax, "device without centroids").get_offsets()) == 1
    shown = collection(render(plots.plot_points(result)), "centroid of a device").get_offsets()
    assert len(shown) == 6 * 3 - 3 - 2
    lost = replace(result, centroids=np.full_like(centroids, np.inf), losses=np.full(6, np.inf))
    for plot in DRAWN:
        render(plot(lost))


@pytest.mark.slow
def test_nobody_has_any_point():
    result = make(topologies.ring(3), d=5)
    nothing = result.census._replace(
        sizes=np.zeros(3, np.int64), classes=np.zeros((3, 4), np.int64), sample=np.zeros((0, 5)),
        sample_device=np.zeros(0, np.int64), sample_class=np.zeros(0, np.int64), sample_cluster=np.zeros(0, np.int64),
    )  # fmt: skip
    for plot in DRAWN:
        render(plot(replace(result, census=nothing)))
        render(plot(replace(result, census=nothing._replace(classes=None))))


@pytest.mark.slow
def test_import_is_free_and_pyplot_stays_out(tmp_path):
    program = (
        "import sys, numpy as np, p2pkm.viz as plots; print('matplotlib' in sys.modules);"
        "ax = plots.plot_partition_of(np.array([1, 2]), None); ax.figure.savefig(sys.argv[1]);"
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x.png")], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True", "False"]


# ---------------------------------------------------------------------------------------------------- convergence


def test_stages_stand_one_after_the_other():
    places, spans = place_rounds(TWO_STAGES)
    assert places.tolist() == [0, 1, 2, 4, 6]
    assert [(span.name, span.first, span.last) for span in spans] == [("local", 0, 1), ("gtvmin", 2, 6)]


def test_a_stage_that_comes_again_is_another_stage():
    _, spans = place_rounds([record("a", 0), record("a", 1), record("a", 0), record("a", 1), record("a", 2)])
    assert [(span.first, span.last) for span in spans] == [(0, 1), (2, 4)]


def test_convergence_draws_the_records_with_gaps():
    ax = render(plots.plot_convergence(make(topologies.ring(4))))
    excess, objective, gtv = (panel.lines[0] for panel in ax.child_axes)
    assert [panel.get_ylabel() for panel in ax.child_axes] == [
        "excess cost (%)",
        "squared distance",
        "squared distance",
    ]
    np.testing.assert_allclose(excess.get_ydata(), [np.nan, 200, 200, np.nan, 25])
    np.testing.assert_allclose(objective.get_ydata(), [np.nan, np.nan, 50, 40, 30])
    np.testing.assert_allclose(gtv.get_ydata(), [np.nan, 8, 8, 4, 2])
    for line in (excess, objective, gtv):
        assert line.get_xdata().tolist() == [0, 1, 2, 4, 6]
    assert [panel.texts[0].get_text() for panel in ax.child_axes] == ["25", "30", "2"]  # the last values
    first, *_, last = (panel.bbox for panel in ax.child_axes)
    assert (first.y1, last.y0) == pytest.approx((ax.bbox.y1, ax.bbox.y0))


def test_convergence_says_where_quality_was_best_if_it_got_worse():
    rounds = [record("gtvmin", t, ratio_mean=ratio) for t, ratio in enumerate((3.0, 1.25, 1.5))]
    result = make(topologies.ring(4), rounds=rounds)
    ax = plots.plot_convergence(replace(result, summary=result.summary | {"ratio_best": 1.25})).axes[0]
    best, last = ax.child_axes[0].texts[:2]
    assert (best.get_text(), best.xy) == ("best: 25, then worse", (1.0, 25.0))
    assert (last.get_text(), last.xy) == ("50", (2.0, 50.0))
    chosen = result.summary | {"ratio_best": 1.25, "coupling_chosen": "links"}  # a clustering for each device is meant
    (last,) = plots.plot_convergence(replace(result, summary=chosen)).axes[0].child_axes[0].texts[:1]
    assert last.get_text() == "50"


def test_convergence_marks_the_stages():
    top, *_, bottom = render(plots.plot_convergence(make(topologies.ring(4)))).child_axes
    names = {text.get_text(): text for text in top.texts}
    assert {"local", "gtvmin"} <= names.keys()
    assert names["local"].xy[0] == 0.5
    assert names["gtvmin"].xy[0] == 4
    (band,) = top.patches
    assert (band.get_x(), band.get_width()) == (-0.5, 2)
    ticks = dict(zip(bottom.get_xticks(), [tick.get_text() for tick in bottom.get_xticklabels()], strict=True))
    assert ticks[0] == ticks[2] == "0"
    assert ticks[6] == "4"
    assert {text.get_text() for text in top.get_xticklabels()} == {""}


def test_convergence_leaves_out_what_nobody_knows():
    known = [record("local", t, gtv=1.0 + t) for t in range(3)]
    ax = render(plots.plot_convergence(make(topologies.ring(3), rounds=known)))
    (panel,) = ax.child_axes
    assert panel.lines[0].get_ydata().tolist() == [1, 2, 3]


def test_a_lonely_value_in_a_long_run_is_marked():
    rounds = [record("local", t, ratio_mean=1.5 if t == 70 else None, gtv=1.0) for t in range(80)]
    excess, gtv = render(plots.plot_convergence(make(topologies.ring(3), rounds=rounds))).child_axes
    assert excess.lines[0].get_markevery() == [70]
    assert gtv.lines[0].get_markevery() == []


@pytest.mark.parametrize(
    ("values", "scale"),
    [((1.0, 2.0), "linear"), ((1.0, 500.0), "log"), ((0.0, 1.0, 500.0), "symlog"), ((0, 0), "linear")],
)
@pytest.mark.sample(3)
def test_scales_follow_the_values(values, scale):
    rounds = [record("local", t, gtv=value) for t, value in enumerate(values)]
    (panel,) = render(plots.plot_convergence(make(topologies.ring(3), rounds=rounds))).child_axes
    assert panel.get_yscale() == scale
    assert any(text.get_text() for text in panel.get_yticklabels())


def test_rounding_is_neither_an_excess_nor_an_axis_full_of_it():
    rounds = [record("local", t, ratio_mean=1 + 1e-10, gtv=5 + 1e-10 * t) for t in range(3)]
    excess, gtv = render(plots.plot_convergence(make(topologies.ring(3), rounds=rounds))).child_axes
    assert excess.lines[0].get_ydata().tolist() == [0, 0, 0] and excess.get_ylim() == (-0.1, 1)
    assert gtv.get_ylim() == (4.5, 5.5)


# ---------------------------------------------------------------------------------------------------------- graph


def test_graph_draws_every_device_and_link():
    result = make(topologies.small_world(12, degree=4, rewire=0.3, seed=2))
    ax = render(plots.plot_graph(result))
    nodes, links = colored(ax), lines(ax)
    np.testing.assert_allclose(nodes.get_array(), result.losses / result.census.sizes)
    assert len(links.get_segments()) == 24
    assert (np.diff(links.get_array()) >= 0).all()  # the largest on top
    here = {tuple(np.round(place, 9)): i for i, place in enumerate(nodes.get_offsets())}
    drawn = {
        frozenset(here[tuple(np.round(end, 9))] for end in segment): value
        for segment, value in zip(links.get_segments(), links.get_array(), strict=True)
    }
    assert drawn.keys() == {frozenset(edge) for edge in result.graph.edges}
    for edge, value in drawn.items():
        assert value == pytest.approx(1 + 0.1 * max(edge) + 0.01 * min(edge))
    assert sorted(text.get_text() for text in ax.texts) == sorted(str(i) for i in range(12))
    labels = [bar.get_ylabel().split("\n")[0] for bar in ax.child_axes]
    assert labels == ["cost per point of a device", "total variation of a link"]
    assert "12 devices, 24 links" in ax.get_title(loc="left")


def test_bytes_of_a_link_are_those_of_both_ways():
    result = make(topologies.path(3))  # links 0-1, 1-0, 1-2, 2-1
    heard = result.ledger._replace(bytes=np.array([1, 20, 300, 4000]))
    assert read_edges(replace(result, ledger=heard), "bytes").values.tolist() == [21, 21, 4300, 4300]


def test_cost_per_point():
    costs = cost_per_point(np.array([6.0, 0.0, np.inf]), np.array([3, 0, 2]))
    np.testing.assert_array_equal(costs, [2.0, np.nan, np.inf])


def test_graph_says_that_all_agree_instead_of_an_empty_color_bar():
    result = make(topologies.ring(4))
    ax = render(plots.plot_graph(replace(result, gtv=np.zeros_like(result.gtv))))
    assert "all neighbors agree" in ax.get_title(loc="left")
    assert len(ax.child_axes) == 1
    lost = replace(result, gtv=np.zeros_like(result.gtv), centroids=np.full_like(result.centroids, np.inf))
    apart = replace(result, losses=np.zeros_like(result.losses))  # a color bar is left out, too
    assert not any("agree" in plots.plot_graph(other).axes[0].get_title(loc="left") for other in (lost, apart))


def test_color_bars_of_a_graph_stand_beside_it_one_above_the_other():
    figure = plots.plot_graph(make(topologies.ring(4)))
    nodes, links = (bar.get_window_extent() for bar in figure.axes[0].child_axes)
    assert 0 <= links.y0 < links.y1 < nodes.y0 < nodes.y1 <= figure.bbox.y1


def test_graph_of_one_device_has_no_links():
    ax = render(plots.plot_graph(make(topologies.ring(1))))
    assert lines(ax) is None
    assert len(colored(ax).get_offsets()) == 1
    assert ax.get_title(loc="left") == "Communication graph: 1 device, 0 links"


def test_of_many_links_a_sample_is_drawn_and_the_title_says_so():
    result = make(topologies.complete(120), classes=0)
    ax, again = plots.plot_graph(result).axes[0], plots.plot_graph(result).axes[0]
    assert len(lines(ax).get_segments()) == 5_000
    assert "sample of 5,000 links" in ax.get_title(loc="left")
    np.testing.assert_array_equal(lines(ax).get_array(), lines(again).get_array())


def test_rings_and_complete_graphs_are_circles_and_stars_wheels():
    for graph in (topologies.ring(9), topologies.complete(7)):
        places = place_devices(Topology.from_networkx(graph))
        np.testing.assert_allclose(np.linalg.norm(places, axis=1), 1)
    places = place_devices(Topology.from_networkx(topologies.star(8)))
    np.testing.assert_allclose(np.sort(np.linalg.norm(places, axis=1)), [0] + [1] * 7, atol=1e-12)


def test_a_ring_in_any_order_is_drawn_without_crossings():
    order = np.random.default_rng(1).permutation(30)
    links = np.array([(order[i], order[(i + 1) % 30], 1.0) for i in range(30)])
    topology = Topology.from_links(30, links)
    places = place_devices(topology)
    lengths = np.linalg.norm(places[topology.sources] - places[topology.indices], axis=1)
    np.testing.assert_allclose(lengths, 2 * np.sin(np.pi / 30))


@pytest.mark.parametrize("rows", [6, 24])
def test_a_grid_looks_like_a_grid(rows):
    topology = Topology.from_networkx(topologies.grid(rows * rows, rows=rows))
    places = place_devices(topology)
    assert len(np.unique(np.round(places, 6), axis=0)) == rows * rows
    lengths = np.linalg.norm(places[topology.sources] - places[topology.indices], axis=1)
    assert lengths.max() < 2.5 * lengths.min()


@pytest.mark.parametrize(
    "graph",
    [topologies.path(420), topologies.barbell(9), topologies.tree(40), topologies.erdos_renyi(60, seed=0)],
    ids=["path", "barbell", "tree", "erdos-renyi"],
)
def test_no_two_devices_stand_on_each_other(graph):
    places = place_devices(Topology.from_networkx(graph))
    assert np.isfinite(places).all()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2) + 10 * np.eye(len(places))
    assert gaps.min() > 1e-3 * np.ptp(places, axis=0).max()


def turn_eigenvectors(matrix, eigh=np.linalg.eigh):
    """Return eigenvalues and eigenvectors like eigh, with another basis for each group of equal eigenvalues."""
    lengths, vectors = eigh(matrix)
    random = np.random.default_rng(1)
    for group in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(lengths) > 1e-9 * lengths[-1]) + 1):
        turn, _ = np.linalg.qr(random.standard_normal((len(group), len(group))))
        vectors[:, group] = vectors[:, group] @ turn
    return lengths, vectors


@pytest.mark.parametrize(
    ("name", "n"),
    [(name, 16) for name in ("grid", "torus", "hypercube", "exponential", "circular-ladder", "wheel", "bipartite",
                             "margulis", "d-cliques", "barbell", "caveman", "path", "tree", "erdos-renyi")]
    + [("hypercube", 64), ("torus", 441), ("hypercube", 512)],
)  # fmt: skip
def test_a_layout_is_the_same_on_every_processor(monkeypatch, name, n):
    """Where eigenvalues are equal, LAPACK's vectors depend on the processor; their signs always do."""
    topology = Topology.from_graph(topologies.build(name, n, light=True))
    expected = place_devices(topology)
    monkeypatch.setattr(np.linalg, "eigh", turn_eigenvectors)
    np.testing.assert_allclose(place_devices(topology), expected, rtol=0, atol=1e-6)


def test_graphs_in_pieces_have_a_layout():
    links = np.array([(0, 1, 1.0), (1, 2, 1.0), (3, 4, 1.0), (4, 5, 1.0), (6, 7, 1.0)])
    places = place_devices(Topology.from_links(9, links))
    assert np.isfinite(places).all()
    assert len(np.unique(np.round(places, 6), axis=0)) == 9
    many = np.array([(2 * i, 2 * i + 1, 1.0) for i in range(250)])
    assert np.isfinite(place_devices(Topology.from_links(500, many))).all()


# --------------------------------------------------------------------------------------------------------- points


def test_points_draws_the_sample_and_every_centroid():
    result = make(topologies.ring(5), k=3)
    ax = render(plots.plot_points(result))
    np.testing.assert_array_equal(collection(ax, "point").get_offsets(), result.census.sample)
    np.testing.assert_array_equal(collection(ax, "centroid of a device").get_offsets(), result.centroids.reshape(-1, 2))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("feature 0", "feature 1")
    colors = collection(ax, "point").get_facecolors()
    kinds = result.census.sample_class
    assert len(np.unique(colors, axis=0)) == len(np.unique(kinds)) == 4
    for kind in range(4):
        assert len(np.unique(colors[kinds == kind], axis=0)) == 1


def test_points_without_labels_are_gray():
    ax = render(plots.plot_points(make(topologies.ring(5), classes=0)))
    (color,) = np.unique(collection(ax, "point").get_facecolors(), axis=0)
    assert color[0] == color[1] == color[2]


def test_points_with_one_feature_stand_on_their_devices():
    result = make(topologies.ring(4), k=2, d=1)
    ax = render(plots.plot_points(result))
    offsets = collection(ax, "centroid of a device").get_offsets()
    np.testing.assert_array_equal(offsets[:, 0], result.centroids.ravel())
    np.testing.assert_array_equal(offsets[:, 1], np.repeat(np.arange(4), 2))
    np.testing.assert_array_equal(collection(ax, "point").get_offsets()[:, 1], result.census.sample_device)


def test_points_with_many_features_stand_on_principal_components():
    result = make(topologies.ring(4), d=6)
    flat = np.random.default_rng(3).normal(size=(len(result.census.sample), 2)) * [9, 3]
    turn, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(6, 6)))
    sample = flat @ turn[:2] + 7.0
    ax = render(plots.plot_points(replace(result, census=result.census._replace(sample=sample))))
    assert "principal components 1 and 2 of 6 features: 100 % of the variance" in ax.get_title(loc="left")
    shown = collection(ax, "point").get_offsets()
    gaps = np.linalg.norm(shown[:, None] - shown[None], axis=2)
    np.testing.assert_allclose(gaps, np.linalg.norm(flat[:, None] - flat[None], axis=2), atol=1e-9)
    middle = collection(ax, "centroid of a device").get_offsets()
    assert middle.shape == (12, 2)
    assert np.var(shown[:, 0]) > np.var(shown[:, 1])


def test_the_servers_centroids_are_drawn_too():
    server = np.array([[1.0, 2.0], [np.inf, np.inf]])
    for result in (make(topologies.star(4)), make(topologies.star(4), d=1)):
        table = server[:, : result.centroids.shape[2]]
        ax = render(plots.plot_points(replace(result, server_centroids=table)))
        assert len(collection(ax, "centroid of the server").get_offsets()) == 1


# ------------------------------------------------------------------------------------------------------ partition


def test_partition_draws_the_counts():
    result = make(topologies.ring(5), classes=3)
    ax = render(plots.plot_partition(result))
    table = result.census.classes
    np.testing.assert_array_equal(ax.images[0].get_array().filled(0), table.T)
    assert ax.images[0].get_array().mask.sum() == (table == 0).sum()
    written = {tuple(int(x) for x in text.get_position()): int(text.get_text()) for text in ax.texts}
    assert written == {place: number for place, number in np.ndenumerate(table) if number}


def test_partition_of_many_devices_is_a_map_without_numbers():
    classes = np.random.default_rng(0).integers(0, 5, (6_001, 3))
    ax = render(plots.plot_partition_of(classes.sum(axis=1), classes))
    assert not ax.texts
    shown = ax.images[0].get_array().filled(0)
    assert shown.shape == (3, 1501)
    np.testing.assert_allclose(shown[:, 0], classes[:4].mean(axis=0))
    np.testing.assert_allclose(shown[:, -1], classes[6_000:].mean(axis=0))


def test_partition_without_labels_draws_a_bar_per_device():
    ax = render(plots.plot_partition_of(np.array([3, 0, 7]), None))
    assert [bar.get_height() for bar in ax.patches] == [3, 0, 7]
    assert ax.get_title(loc="left") == "Partition: 10 points on 3 devices, 1 without points"


def test_partition_of_many_devices_without_labels_is_sorted():
    sizes = np.random.default_rng(0).integers(0, 50, 300)
    ax = render(plots.plot_partition_of(sizes, None))
    corners = ax.collections[0].get_paths()[0].vertices
    heights = [corners[np.abs(corners[:, 0] - i) < 0.49][:, 1].max(initial=0) for i in (0, 299)]
    assert heights[0] == sizes.max()
    assert not ax.patches


# ---------------------------------------------------------------------------------------------------------- bytes


def test_bytes_are_those_of_the_ledger():
    result = make(topologies.path(3))
    ax = render(plots.plot_bytes(result))
    sent, received = ([bar.get_height() for bar in bars] for bars in ax.containers)
    # 0->1: 101, 1->0: 200, 1->2: 202, 2->1: 301
    assert sent == [101, 402, 301]
    assert received == [200, 402, 202]
    assert [bar.get_y() for bar in ax.containers[1]] == sent
    assert ax.get_title(loc="left") == "Traffic: 804 B of plain bytes in 10 messages"


def test_bytes_of_many_devices_are_sorted():
    result = make(topologies.star(150))
    ledger = result.ledger
    sent, received = (np.bincount(end, ledger.bytes) for end in (ledger.src, ledger.dst))
    low, high = (patch.get_data() for patch in render(plots.plot_bytes(result)).patches)
    np.testing.assert_array_equal(high.values, np.sort(sent + received)[::-1])
    assert low.values.sum() == sent.sum()
    assert low.values[0] == sent[0]
    np.testing.assert_array_equal(high.baseline, low.values)


def test_silence_is_said():
    ax = render(plots.plot_bytes(make(topologies.ring(1))))
    assert [text.get_text() for text in ax.texts] == ["nothing was sent"]


# ------------------------------------------------------------------------------------------------------- draw_all


@pytest.mark.slow
def test_draw_all_writes_the_same_files_every_time(solved, tmp_path):
    paths = plots.draw_all(solved, tmp_path / "deep" / "figures")
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in NAMES for kind in ("png", "svg", "data.csv")]
    assert sorted(paths) == sorted((tmp_path / "deep" / "figures").iterdir())
    for path in paths:
        start = path.read_bytes()[:300]
        head = {".png": b"\x89PNG", ".svg": b"<?xml", ".csv": b"panel,series,"}[path.suffix]
        assert start.startswith(head)
        assert path.stat().st_size > (1_000 if path.suffix == ".csv" else 5_000)
    again = plots.draw_all(solved, str(tmp_path / "again"))
    for one, other in zip(paths, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


@pytest.mark.slow
def test_draw_all_leaves_the_settings_of_the_user_alone(tmp_path):
    import matplotlib as mpl

    before = json.dumps({name: str(value) for name, value in mpl.rcParams.items()})
    plots.draw_all(make(topologies.ring(3)), tmp_path)
    assert json.dumps({name: str(value) for name, value in mpl.rcParams.items()}) == before


def test_convergence_shows_the_test_cost_where_devices_differ():
    result = p2pkm.simulate("gtvmin:coupling=links", topologies.ring(8), "device-clusters:amplitude=1", clusters=3)
    tests, ratio = result.summary["test_ratio_common"], result.summary["ratio_mean"]
    assert tests < 1 < ratio
    panels = plots.plot_convergence(result).axes[0].child_axes
    assert [panel.lines[0].get_ydata()[-1] for panel in panels] == [
        tests,
        *map(result.summary.get, ("objective", "gtv")),
    ]
    drawn = plots.plot_progress(result, against="bytes").axes[0]
    assert drawn.lines[0].get_ydata()[-1] == tests and "common" in drawn.get_ylabel()
    assert plots.overlay([result]).axes[0].lines[0].get_ydata()[-1] == tests
    # For a method whose devices agree, the excess is a measure of quality, too.
    common = p2pkm.simulate("treelloyd", topologies.ring(8), "device-clusters:amplitude=1", clusters=3)
    panels = plots.plot_convergence(common).axes[0].child_axes
    assert panels[0].lines[0].get_ydata()[-1] == common.summary["test_ratio_common"]
    assert panels[1].lines[0].get_ydata()[-1] == pytest.approx(100 * (common.summary["ratio_mean"] - 1))


@pytest.mark.slow
def test_figures_agree_with_a_real_run(solved):
    panels = render(plots.plot_convergence(solved)).child_axes
    assert panels[0].lines[0].get_ydata()[-1] == pytest.approx(100 * (solved.summary["ratio_mean"] - 1))
    assert panels[1].lines[0].get_ydata()[-1] == solved.summary["objective"]
    assert panels[2].lines[0].get_ydata()[-1] == solved.summary["gtv"]
    sent, received = (sum(bar.get_height() for bar in bars) for bars in plots.plot_bytes(solved).axes[0].containers)
    assert sent == received == solved.summary["bytes"]
    links = lines(plots.plot_graph(solved).axes[0])
    assert links.get_array().sum() == pytest.approx(solved.summary["gtv"])
    assert plots.plot_partition(solved).axes[0].images[0].get_array().sum() == 320
