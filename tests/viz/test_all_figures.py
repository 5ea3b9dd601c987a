"""Pictures of every kind of run, films, and what notebooks show; the figures of the run folder: test_plots."""

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm import viz as plots
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.viz.color_by import read_edges, read_nodes
from p2pkm.viz.notebook import show_card
from p2pkm.viz.save_figure import save_figure
from tests.support.run_cli import here
from tests.support.sampling import thin

PICTURES = {
    "convergence": plots.plot_convergence,
    "graph": plots.plot_graph,
    "disagreement": lambda result, ax=None: plots.plot_graph(result, ax, nodes="disagreement", edges="bytes"),
    "ratio": lambda result, ax=None: plots.plot_graph(result, ax, nodes="ratio"),
    "points": plots.plot_points,
    "devices": plots.plot_devices,
    "progress": lambda result, ax=None: plots.plot_progress(result, ax, against="bytes"),
}


def deal(n, d=2, points=3, labeled=True):
    draw = np.random.default_rng(n + d)
    X = [draw.normal(size=(points + i % 3, d)) for i in range(n)]
    return p2pkm.Shards.from_list(X, labels=[np.arange(len(x)) % 2 for x in X] if labeled else None)


def solve(algorithm, graph, shards, **options):
    return p2pkm.simulate(algorithm, graph, shards, **{"rounds": 3} | options)


KINDS = {
    "mesh": lambda: solve(p2pkm.GTVMin(2), topologies.small_world(12, degree=4, seed=1), deal(12), link_model="wan"),
    "ten features": lambda: solve(p2pkm.GTVMin(3), topologies.ring(30), deal(30, d=10)),
    "one feature": lambda: solve(p2pkm.GTVMin(2), topologies.path(4), deal(4, d=1)),
    "no labels": lambda: solve(p2pkm.GTVMin(2), topologies.star(5), deal(5, labeled=False)),
    "groups": lambda: solve(p2pkm.GTVMin(2, groups=True), topologies.communities(8, bridges=2), deal(8)),
    "server": lambda: solve(p2pkm.FKM(2), None, deal(6), link_model="wan"),
    "one shot": lambda: solve(p2pkm.KFED(2), None, deal(6)),
    "averages": lambda: solve(p2pkm.ConsensusLloyd(2), topologies.complete(5), deal(5)),
    "changing": lambda: solve(p2pkm.GTVMin(2), topologies.one_peer_exponential(8), deal(8)),
    "one device": lambda: solve(p2pkm.GTVMin(2), topologies.ring(1), deal(1)),
}


class Runs(dict):
    """Runs by kind, each played when it is asked for."""

    def __missing__(self, kind):
        return self.setdefault(kind, KINDS[kind]())


@pytest.fixture(scope="module")
def runs():
    return Runs()


def render(ax):
    ax.figure.canvas.draw()
    return ax.figure.axes[0]


@pytest.mark.parametrize(("kind", "picture"), thin(product(KINDS, PICTURES), 9))
@pytest.mark.sample(3)
def test_every_kind_of_run_is_drawn(runs, kind, picture):
    ax = render(PICTURES[picture](runs[kind]))
    assert ax.get_title(loc="left")


@pytest.mark.parametrize("picture", thin(PICTURES, 3))
@pytest.mark.sample(3)
def test_drawn_into_given_axes_and_from_a_folder(runs, picture, tmp_path):
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert PICTURES[picture](runs["mesh"].save(tmp_path / "run"), ax) is ax.figure
    render(ax)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files_of_every_kind(runs, kind, tmp_path):
    path, _ = save_figure(lambda: plots.plot_devices(runs["mesh"]), tmp_path, "devices", (kind,))
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    assert path.read_bytes().startswith(head)


# --------------------------------------------------------------------------------------------------------- graph


def test_what_the_colors_of_devices_and_links_say(runs):
    result = runs["mesh"]
    topology, ledger = result.topology, result.ledger
    sums = [result.gtv[topology.sources == i].sum() for i in range(12)]
    np.testing.assert_allclose(read_nodes(result, "disagreement").values, sums)
    assert read_nodes(result, "ratio").values.mean() == pytest.approx(result.summary["ratio_mean"])
    assert read_nodes(result, "ratio").values.max() == result.summary["ratio_worst"]
    busy = read_nodes(result, "bytes_busiest")
    assert busy.values.max() == result.summary["bytes_busiest"] and busy.label == "plain bytes of the busiest device"
    both = read_edges(result, "bytes").values
    for value, i, j in zip(both, topology.sources, topology.indices, strict=True):
        over = ((ledger.src == i) & (ledger.dst == j)) | ((ledger.src == j) & (ledger.dst == i))
        assert value == ledger.bytes[over].sum()


def test_a_server_has_no_color_and_no_ratio_is_none(runs):
    assert np.isnan(read_nodes(runs["server"], "disagreement").values).tolist() == [False] * 6 + [True]
    alone = replace(runs["mesh"], ratios=None)
    assert np.isnan(read_nodes(alone, "ratio").values).all()
    render(plots.plot_graph(alone, nodes="ratio"))


def test_ratios_survive_the_disk(runs, tmp_path):
    again = p2pkm.load(runs["mesh"].save(tmp_path / "run"))
    np.testing.assert_array_equal(again.ratios, runs["mesh"].ratios)


def test_unknown_names_are_refused(runs):
    with pytest.raises(
        ExperimentError,
        match="nodes is 'loss'; expected cost, disagreement, ratio, group, central_deviation, "
        "consensus_variation, centroids_held, bytes_busiest",
    ):
        plots.plot_graph(runs["mesh"], nodes="loss")
    with pytest.raises(ExperimentError, match="edges is 'rows'; expected gtv, bytes"):
        plots.plot_graph(runs["mesh"], edges="rows")
    with pytest.raises(ExperimentError, match="against is 'time'; expected virtual_seconds, bytes"):
        plots.plot_progress(runs["mesh"], against="time")


# ----------------------------------------------------------------------------------------- devices and progress


@pytest.mark.slow
def test_every_device_has_a_panel_with_its_own_points_and_centroids(runs):
    result = runs["mesh"]
    ax = plots.plot_devices(result).axes[0]
    ax.figure.draw_without_rendering()
    panels = ax.child_axes
    assert len(panels) == 12
    assert ax.get_legend().get_window_extent().y0 >= max(panel.get_tightbbox().y1 for panel in panels)
    for i, panel in enumerate(panels):
        _, own, centroids = panel.collections
        np.testing.assert_allclose(own.get_offsets(), result.census.sample[result.census.sample_device == i])
        np.testing.assert_allclose(centroids.get_offsets(), result.centroids[i])
        assert panel.get_title(loc="left") == f"device {i}: {result.census.sizes[i]} points"


@pytest.mark.slow
def test_of_many_devices_some_are_drawn_and_the_title_says_so(runs):
    ax = plots.plot_devices(runs["ten features"]).axes[0]
    assert len(ax.child_axes) == 25
    assert "30 devices (25 shown)\nprincipal components 1 and 2 of 10 features" in ax.get_title(loc="left")
    chosen = plots.plot_devices(runs["ten features"], devices=[3, 29]).axes[0]
    assert [panel.get_title(loc="left").split(":")[0] for panel in chosen.child_axes] == ["device 3", "device 29"]


def test_progress_goes_by_the_records(runs):
    result = runs["mesh"]
    whole = render(plots.plot_progress(result)).lines[0]
    known = [one for one in result.rounds if one["ratio_mean"] is not None]
    np.testing.assert_allclose(whole.get_xdata(), [one["virtual_seconds"] for one in known])
    np.testing.assert_allclose(whole.get_ydata(), [100 * (one["ratio_mean"] - 1) for one in known])


def test_progress_needs_a_network_and_a_comparison(runs):
    with pytest.raises(DataError, match=r"not contain simulated time\. .*link_model='wan'.*against='bytes'"):
        plots.plot_progress(runs["groups"])
    rounds = [{**one, "ratio_mean": None} for one in runs["mesh"].rounds]
    with pytest.raises(DataError, match="not compared with central"):
        plots.plot_progress(replace(runs["mesh"], rounds=rounds))


# --------------------------------------------------------------------------------------------------------- films


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mesh", "server", "ten features", "one feature", "one device", "averages"])
def test_a_film_shows_every_frame_and_rests_on_the_last(runs, kind, tmp_path):
    from PIL import Image

    result = cut_short(runs[kind])
    path = plots.animate(result, tmp_path / "new" / "film.gif", fps=10)
    with Image.open(path) as film:
        shown = sum(_durations(film))
        assert film.convert("RGB").getpixel((1, film.height - 1)) == (255, 255, 255)  # in the palette of all frames
    assert shown == 100 * (len(result.frames.record) - 1 + 6)  # frames that are alike are one that lasts longer
    assert [file.name for file in path.parent.iterdir()] == ["film.gif"]


def cut_short(result):
    """Return the result with the first, one middle and the last of its frames."""
    found = result.frames
    chosen = sorted({0, len(found.record) // 2, len(found.record) - 1})
    parts = {name: getattr(found, name)[chosen] for name in ("record", "centroids", "cost", "disagreement", "gtv")}
    return replace(result, frames=found._replace(**parts, bytes=found.bytes[chosen]))


def _durations(film):
    for number in range(film.n_frames):
        film.seek(number)
        yield film.info["duration"]


def test_films_that_cannot_be_made(runs, tmp_path, monkeypatch):
    with pytest.raises(ExperimentError, match=r"expected a suffix \.gif or \.mp4"):
        plots.animate(runs["mesh"], tmp_path / "film.avi")
    with pytest.raises(DataError, match="has not recorded frames"):
        plots.animate(replace(runs["mesh"], frames=None), tmp_path / "film.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(ExperimentError, match="cannot be written"):
        plots.animate(runs["one device"], tmp_path / "file" / "film.gif")
    monkeypatch.setattr("matplotlib.animation.FFMpegWriter.isAvailable", lambda: False)
    with pytest.raises(ExperimentError, match="ffmpeg, which is not installed"):
        plots.animate(runs["mesh"], tmp_path / "film.mp4")


@pytest.mark.slow
def test_animate_on_the_command_line(runs, tmp_path):
    runs["one device"].save(tmp_path / "run")
    assert here("animate", tmp_path / "run").out == f"written: {tmp_path / 'run' / 'figures' / 'replay.gif'}\n"
    assert (tmp_path / "run" / "figures" / "replay.gif").read_bytes().startswith(b"GIF89a")
    assert here("animate", tmp_path / "none").code == 3
    assert here("animate", tmp_path / "run", "--out", "film.avi").code == 2


# ----------------------------------------------------------------------------------------------------- notebooks


def shown(runs):
    graph = topologies.CSRGraph.from_networkx(topologies.ring(5), "<five>")
    return {
        "result": runs["mesh"],
        "topology": p2pkm.Topology.from_graph(topologies.ring(5)),
        "star": p2pkm.Topology.star(3),
        "shards": deal(4),
        "partition": p2pkm.partition_report(deal(4)),
        "graph": graph,
        "changing": topologies.one_peer_exponential(8),
    }


@pytest.mark.slow
def test_notebooks_show_a_table_and_a_picture(runs):
    for name, one in shown(runs).items():
        html = one._repr_html_()
        assert html.count("<table>") == 1, name
        assert ("data:image/png;base64," in html) != ("<svg" in html), name


def test_a_graph_in_a_notebook_has_all_its_links(runs):
    html = shown(runs)["graph"]._repr_html_()
    assert html.count("<circle") == 5 and len(re.findall(r"M[^ML]*L", html)) == 5
    assert "&lt;five&gt;" in html and "<five>" not in html
    assert "<svg" not in topologies.CSRGraph.from_networkx(topologies.ring(501))._repr_html_()


@pytest.mark.slow
def test_without_matplotlib_the_table_is_there(runs, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no fonts")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", fail)
    for one in shown(runs).values():
        assert "<table>" in one._repr_html_()
        assert "<img" not in one._repr_html_()


def test_names_in_notebooks_are_escaped():
    html = show_card("<b>", {"<i>": "<script>", "number": 12345, "share": 0.123456, "none": None}, lambda: 1 / 0)
    assert "<b>" not in html and "<i>" not in html and "<script>" not in html
    assert "12,345" in html and "0.1235" in html and "<img" not in html


@pytest.mark.slow
def test_an_animation_without_a_file_plays_in_a_notebook(runs, tmp_path):
    shown = plots.animate(cut_short(runs["one device"]))
    assert shown.gif.startswith(b"GIF8") and "data:image/gif;base64,R0lG" in shown._repr_html_()
    assert shown.save(tmp_path / "film.gif").read_bytes() == shown.gif
    with pytest.raises(ExperimentError, match=r"expected a suffix \.gif"):
        shown.save(tmp_path / "film.mp4")


def test_names_of_devices_are_in_an_animation_and_a_partition_report(runs):
    from p2pkm.viz.animation import _set_up

    graph = topologies.ring(4)
    shards = p2pkm.Shards.deal(np.arange(16.0).reshape(8, 2), ["Oulu", "Ii", "Pori", "Turku"] * 2)
    result = p2pkm.simulate(p2pkm.GTVMin(1), graph, shards, rounds=1)
    texts = {text.get_text() for text in _set_up(result, result.frames).figure.axes[0].texts}
    assert {"Oulu", "Ii", "Pori", "Turku"} <= texts
    report = p2pkm.partition_report(shards)
    assert "Oulu" in str(report)
    assert "Oulu" in [label.get_text() for label in report.plot().axes[0].get_xticklabels()]
