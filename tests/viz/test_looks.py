"""Figures for papers: widths, fonts in the files, nothing cut, and what they draw as a table beside them."""

import csv
import io
import re
import zlib
from itertools import product

import numpy as np
import pytest
from matplotlib import colormaps, rcParams
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

import p2pkm
import topologies
from p2pkm import viz
from p2pkm.core.errors import ExperimentError
from p2pkm.network.graph import Topology
from p2pkm.viz.figure_data import COLUMNS, write_table
from p2pkm.viz.figure_parts import list_axes, thin_ticks
from p2pkm.viz.looks import FIGURE_STYLES
from p2pkm.viz.save_figure import read_kinds, save_figure
from p2pkm.viz.style import CATEGORIES, NONE, choose_text_color, contrast
from tests.support.run_cli import here
from tests.support.sampling import thin


@pytest.fixture(scope="module")
def run():
    X, y = p2pkm.grid16(points=20, seed=0)
    device = p2pkm.partition.dirichlet(y, 6, alpha=0.3, seed=0)
    shards = p2pkm.Shards.deal(X, device, devices=6, labels=y)
    return p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(6), shards, rounds=4, link_model="wan", seed=0)


PATH = [{"coupling": c, "local_fit": 1 + c, "gtv": 9 / (1 + c), "clusterings": 4} for c in (0.0, 0.1, 1.0, 10.0)]
ATTACK = {
    "rows": [{"mu_claimed": 1.0, "mu_measured": 0.8, "mu_error": 0.03, "holds": True, "epsilon_claimed": 4.2,
              "epsilon_found": 3.1, "distance": i, "against": "one"} for i in (1, 2)],
    "what": "gossip", "graph": "ring", "gossips": 20, "receiver": 0,
}  # fmt: skip
QUALITY = [
    {"algorithm": a, "graph": "ring", "ratio_mean": 1 + q, "ratio_low": 1 + q / 2, "ratio_high": 1 + 2 * q, "bytes": b,
     "bytes_busiest": b / 4} for a, q, b in (("gtvmin", 0.002, 9e4), ("treelloyd", 0.001, 1.5e4), ("local", 2.0, 0))
]  # fmt: skip
DRAWN = {
    "convergence": lambda run, ax=None: viz.plot_convergence(run, ax),
    "graph": lambda run, ax=None: viz.plot_graph(run, ax),
    "points": lambda run, ax=None: viz.plot_points(run, ax),
    "partition": lambda run, ax=None: viz.plot_partition(run, ax),
    "bytes": lambda run, ax=None: viz.plot_bytes(run, ax),
    "devices": lambda run, ax=None: viz.plot_devices(run, ax),
    "profile": lambda run, ax=None: viz.plot_profile(run, ax),
    "progress": lambda run, ax=None: viz.plot_progress(run, ax),
    "k": lambda run, ax=None: viz.plot_k(run, ax),
    "drift": lambda run, ax=None: viz.plot_drift(run, ax),
    "topology": lambda run, ax=None: viz.plot_topology(Topology.from_graph(topologies.star(9)), "star", ax),
    "coupling path": lambda run, ax=None: viz.plot_coupling_path(PATH, ax),
    "leaks": lambda run, ax=None: viz.plot_leaks(np.eye(5) / 2, np.arange(5), 1 - np.eye(5, dtype=int), "Leaks", ax),
    "attack": lambda run, ax=None: viz.plot_attack(ATTACK, ax),
    "quality": lambda run, ax=None: viz.plot_quality(QUALITY, ax),
    "features": lambda run, ax=None: viz.plot_features(np.random.default_rng(0).normal(size=(9, 3)), None, ax=ax),
}


FEW = ("graph", "bytes", "quality", "leaks")
EVERY = [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in DRAWN]


def inside(figure):
    """Return whether all that is drawn is inside the figure."""
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    return box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


# ---------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.sample(3)
def test_every_figure_takes_axes_and_returns_a_figure(run, name):
    from matplotlib.figure import Figure

    own, given = DRAWN[name](run), Figure().subplots(1, 2)[1]
    assert isinstance(own, Figure) and own.axes
    assert DRAWN[name](run, given) is given.figure


def test_a_notebook_shows_what_is_returned(run):
    assert viz.plot_bytes(run)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_notebook_shows_all_pictures_of_a_result(run):
    assert run.plot()._repr_png_().startswith(b"\x89PNG")


# ------------------------------------------------------------------------------------------------------------ styles


@pytest.mark.parametrize(("name", "look"), thin(product(["graph", "bytes"], ["column", "slide"]), 3))
@pytest.mark.sample(2)
def test_styles_give_width_text_and_room(run, name, look):
    with p2pkm.style(look):
        figure = DRAWN[name](run)
    width, height, points, titled = FIGURE_STYLES[look]
    assert figure.get_figwidth() == width and (height is None or figure.get_figheight() == pytest.approx(height))
    assert inside(figure)
    assert bool(figure.axes[0].get_title(loc="left")) is titled
    legend = figure.axes[0].get_legend()
    shown = [label for ax in list_axes(figure) if ax.axison for label in (ax.xaxis.label, ax.yaxis.label)]
    sizes = {text.get_fontsize() for text in [*shown, *(legend.get_texts() if legend else ())] if text.get_text()}
    assert sizes <= {points}


def test_labels_of_the_color_bars_of_a_column_stand_apart(run):
    with p2pkm.style("column"):
        figure = DRAWN["graph"](run)
    figure.draw_without_rendering()
    bars = [ax for ax in list_axes(figure) if ax.yaxis.label.get_text()]
    assert len(bars) == 2
    parts = [[text.get_window_extent() for text in (bar.yaxis.label, *bar.get_yticklabels())] for bar in bars]
    label = [own[0] for own in parts]
    assert not any(label[one].overlaps(box) for one in (0, 1) for box in parts[1 - one])


@pytest.mark.slow
def test_styles_begin_at_once_and_end_with_the_block(run):
    before = dict(rcParams)
    with p2pkm.style("column"):
        with p2pkm.style("slide"):
            assert viz.plot_bytes(run).get_figwidth() == 10.0
        assert viz.plot_bytes(run).get_figwidth() == 3.3 and rcParams["pdf.fonttype"] == 42
    assert viz.plot_bytes(run).get_figwidth() == 7.0 and dict(rcParams) == before
    inner = p2pkm.style("page")
    assert viz.plot_bytes(run).axes[0].get_title(loc="left") == ""
    inner.__exit__()
    assert dict(rcParams) == before
    with pytest.raises(ExperimentError, match="style is 'poster'; expected column, page, slide, or None"):
        p2pkm.style("poster")


def test_axes_of_the_user_keep_their_size(run):
    from matplotlib.figure import Figure

    own = Figure(figsize=(4, 3)).add_subplot()
    with p2pkm.style("column"):
        viz.plot_bytes(run, own)
    assert own.figure.get_size_inches().tolist() == [4, 3] and own.get_title(loc="left")


# ------------------------------------------------------------------------------------------------------------- files


def fonts(pdf):
    """Return the fonts of a PDF by their subtype, and whether a file of each is in it."""
    parts = [pdf]
    for found in re.finditer(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            parts.append(zlib.decompress(found[1]))
        except zlib.error:
            continue
    whole = b"\n".join(parts)
    return set(re.findall(rb"/Subtype /(Type0|Type1|Type3|CIDFontType2|TrueType)", whole)), b"/FontFile2" in whole


@pytest.mark.slow
def test_fonts_are_in_the_file_as_truetype(run, tmp_path):
    pdf, svg, _ = save_figure(lambda: viz.plot_bytes(run), tmp_path, "bytes", ("pdf", "svg"))
    kinds, embedded = fonts(pdf.read_bytes())
    assert kinds and not kinds & {b"Type1", b"Type3"} and embedded
    assert ">device<" in svg.read_text()
    viz.plot_bytes(run).savefig(tmp_path / "own.pdf")  # without save_figure, too
    assert b"Type3" not in fonts((tmp_path / "own.pdf").read_bytes())[0]


def test_kinds_of_files():
    assert read_kinds("png, .PDF,png") == ("png", "pdf")
    with pytest.raises(ExperimentError, match="figures is 'png,gif'; expected a list of png, svg, pdf, pgf"):
        read_kinds("png,gif")


def test_pgf_needs_tex(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ExperimentError, match=r"pgf requires xelatex, which is not on the PATH\. Install TeX Live"):
        read_kinds("pgf")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert read_kinds("pgf,pdf") == ("pgf", "pdf")


@pytest.mark.slow
def test_the_option_chooses_the_kinds(tmp_path):
    words = ("--devices", "3", "--data", "grid16:points=3", "-k", "2", "--rounds", "2", "-q")
    assert here(*words, "--figures", "pdf", "--out", tmp_path / "run").code == 0
    names = {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    assert {"graph.pdf", "graph.data.csv"} <= names and not any(name.endswith((".png", ".svg")) for name in names)
    assert 'figures = "pdf"' in (tmp_path / "run" / "config.toml").read_text()


def test_wrong_kinds_are_refused_before_any_work(tmp_path):
    ended = here("--figures", "png,jpg", "--out", tmp_path / "run")
    assert ended.code == 2 and "expected a list of png, svg, pdf, pgf" in ended.err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("mu", [1.0, 0.05])
def test_what_an_attack_measured_stands_inside_the_axes_with_its_error(mu):
    """A mark outside would have lost its number."""
    row = ATTACK["rows"][0] | {"mu_claimed": mu, "mu_measured": mu}
    ax = viz.plot_attack(ATTACK | {"rows": [row]}).axes[0]
    claimed, measured = ax.texts
    assert (claimed.xy[1], measured.xy[1]) == (mu, mu + 4 * row["mu_error"])
    middles = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
    assert [claimed.xy[0], measured.xy[0]] == pytest.approx(middles)
    assert measured.xy[1] < ax.get_ylim()[1] <= 10 * measured.xy[1]


def test_an_unbounded_mu_has_the_highest_bar_and_says_so():
    rows = [ATTACK["rows"][0] | {"mu_claimed": 1.0, "mu_measured": mu, "mu_error": 0.0, "holds": False}
            for mu in (3.0, None)]  # fmt: skip
    ax = viz.plot_attack(ATTACK | {"rows": rows}).axes[0]
    heights = {text.get_text(): text.xy[1] for text in ax.texts}
    assert max(heights, key=heights.get) == "unbounded" and 3.0 < heights["unbounded"] < ax.get_ylim()[1]


# ------------------------------------------------------------------------------------------------------------ tables


def read(figure):
    return list(csv.DictReader(io.StringIO(write_table(figure))))


def column(rows, name):
    return [float(row[name]) if row[name] else np.nan for row in rows]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.sample(3)
def test_the_table_has_what_the_axes_have(run, name):
    figure = DRAWN[name](run)
    rows, every = read(figure), list_axes(figure)
    bars = {id(marks.colorbar.ax) for ax in every for marks in (*ax.collections, *ax.images) if marks.colorbar}
    every = [ax for ax in every if id(ax) not in bars]
    caps = sum(len(part[1]) for ax in every for part in (one.lines for one in ax.containers if hasattr(one, "lines")))
    whole = [line for ax in every for line in ax.lines if line.get_transform() == ax.transData]
    marks = [line.get_xydata() for line in whole]
    found = np.column_stack((column((r for r in rows if r["kind"] == "line" and r["x"] and r["y"]), "x"),
                             column((r for r in rows if r["kind"] == "line" and r["x"] and r["y"]), "y")))  # fmt: skip
    if not caps:
        known = [part[np.isfinite(part).all(axis=1)] for part in marks]
        np.testing.assert_array_equal(found, np.concatenate([*known, np.zeros((0, 2))]))
    cells = sum(int(np.isfinite(np.ma.filled(image.get_array().astype(float), np.nan)).sum()) for ax in every
                for image in ax.images)  # fmt: skip
    assert sum(row["kind"] == "cell" for row in rows) == cells
    links = sum(len(part.get_segments()) for ax in every for part in ax.collections if isinstance(part, LineCollection))
    assert sum(row["kind"] in ("link", "interval") for row in rows) == links


def test_bars_points_and_names_are_told(run):
    rows = read(viz.plot_bytes(run))
    sent = [row for row in rows if row["series"] == "sent"]
    ledger = np.bincount(run.ledger.src, run.ledger.bytes, minlength=6)
    assert column(sent, "x") == list(range(6)) and [b - a for a, b in zip(
        column(sent, "y"), column(sent, "y_end"), strict=True)] == ledger.tolist()  # fmt: skip
    assert {(row["kind"], row["x_label"], row["y_label"]) for row in rows} == {
        ("bar", "device", "plain bytes sent + received")
    }
    points = [row for row in read(viz.plot_points(run)) if row["series"].startswith("point")]
    np.testing.assert_array_equal(np.column_stack((column(points, "x"), column(points, "y"))), run.census.sample)
    shown = [row for row in read(viz.plot_graph(run)) if row["kind"] == "point"]
    np.testing.assert_allclose(column(shown, "value"), run.losses / run.census.sizes)
    assert shown[0]["value_label"] == "cost per point of a device (squared distance)"
    named = viz.plot_partition_of(np.array([3, 1]), None, names=["north", "south"])
    assert [row["x_name"] for row in read(named) if row["kind"] == "bar"] == ["north", "south"]


def test_steps_are_told_with_both_ends_and_what_they_stand_on():
    ax = Figure().add_subplot()
    ax.stairs([3, 1], [0, 2, 5], baseline=[1, 0], label="received")
    steps = [(row["kind"], row["series"], *column([row], "x"), *column([row], "x_end"), *column([row], "y"),
              *column([row], "y_end")) for row in read(ax.figure)]  # fmt: skip
    assert steps == [("step", "received", 0, 2, 1, 3), ("step", "received", 2, 5, 0, 1)]


def test_cells_of_a_map_are_where_they_are_drawn():
    classes = np.array([[1, 0], [2, 3], [0, 4]])
    rows = [row for row in read(viz.plot_partition_of(classes.sum(axis=1), classes)) if row["kind"] == "cell"]
    found = {(int(row["x"]), int(row["y"])): int(row["value"]) for row in rows}
    assert found == {place: number for place, number in np.ndenumerate(classes) if number}


def test_every_file_has_its_table_beside_it(run, tmp_path):
    figure, table = save_figure(lambda: viz.plot_bytes(run), tmp_path, "bytes", ("svg",))
    assert [figure.name, table.name] == ["bytes.svg", "bytes.data.csv"]
    assert table.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert table.read_text() == write_table(viz.plot_bytes(run))


# ---------------------------------------------------------------------------------------------------------- contrast


def test_ink_can_be_read_on_every_color():
    assert contrast("black", "white") == pytest.approx(21) and contrast("#777777", "white") == pytest.approx(
        4.478, abs=1e-3
    )
    shades = [colormaps[name](at) for name in ("viridis", "cividis") for at in np.linspace(0, 1, 64)]
    assert min(contrast(choose_text_color(color), color) for color in [*shades, *CATEGORIES]) >= 4.5


def test_gray_cells_are_distinct_from_white_and_from_all_colors_of_a_map():
    shades = colormaps["viridis"](np.linspace(0, 1, 64))[:, :3]
    assert contrast(NONE, "white") >= 1.6
    assert min(np.abs(shades - to_rgb(NONE)).max(axis=1)) >= 0.3
    for figure in (viz.plot_partition_of([2, 1], np.array([[2, 0], [0, 1]])),
                   viz.plot_leaks(np.eye(2), np.arange(2), 1 - np.eye(2, dtype=int), "")):  # fmt: skip
        panel = next(ax for ax in list_axes(figure) if ax.images)
        assert to_hex(panel.get_facecolor()).upper() == NONE
        assert any("gray: none" in ax.get_ylabel() for ax in list_axes(figure))
    full = viz.plot_partition_of([2, 2], np.ones((2, 2), int))
    assert not any("gray" in ax.get_ylabel() for ax in list_axes(full))


def test_numbers_that_touch_are_thinned_until_they_do_not():
    figure = Figure(figsize=(1.0, 1.0))
    axis = figure.add_subplot()
    axis.set_xlim(-0.5, 2.5)
    axis.set_xticks([0, 1, 2], [f"{number:015d}" for number in range(3)])
    thin_ticks(figure)
    assert len([label for label in axis.get_xticklabels() if label.get_text()]) < 3
