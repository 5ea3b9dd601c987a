"""The page of a report without a browser: contrast, narrow screens, alternative texts, how to repeat it."""

import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.viz.all_figures import list_figures
from p2pkm.viz.report import findings
from p2pkm.viz.report.replay import _select_values
from p2pkm.viz.report.run_page import repeat, show_page
from p2pkm.viz.style import contrast
from tests.support.animation import run
from tests.support.run_cli import ROOT, here

ASSETS = ROOT / "p2pkm" / "viz" / "report" / "assets"
CSS, SCRIPT = (ASSETS / "page.css").read_text(), (ASSETS / "replay.js").read_text()
SCHEMES = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)]
GROUNDS = ("paper", "card", "pale")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = run(tmp_path_factory.mktemp("page") / "ring run")
    assert here("report", folder).code == 0
    return folder, (folder / "report.html").read_text()


# ---------------------------------------------------------------------------------------------------------- contrast


@pytest.mark.parametrize("scheme", SCHEMES, ids=["light", "dark"])
def test_text_can_be_read_on_every_ground(scheme):
    for ink in ("text", "muted", "accent"):
        assert min(contrast(scheme[ink], scheme[ground]) for ground in GROUNDS) >= 4.5, ink
    assert min(contrast(scheme["lit"], scheme[ground]) for ground in GROUNDS) >= 3.0  # lines
    assert contrast(scheme["paper"], scheme["accent"]) >= 4.5  # the button
    assert contrast(scheme["paper"], scheme["muted"]) >= 4.5  # a device whose figure is not known


def test_colors_of_text_are_those_that_were_checked():
    rules = re.sub(r":root \{.*?\}|/\*.*?\*/", "", CSS, flags=re.DOTALL)
    inks = set(re.findall(r"(?<![-\w])color: ([^;]+);", rules)) - {"inherit"}
    assert inks == {f"var(--{name})" for name in ("text", "muted", "accent", "paper")}
    grounds = set(re.findall(r"background: (var\([^)]*\))", rules))
    assert grounds == {f"var(--{name})" for name in (*GROUNDS, "plate", "accent")} - {"var(--pale)"}


def test_numbers_on_devices_can_be_read():
    """The script chooses black or white by luminance, as `choose_text_color` does."""
    limit = float(re.search(r"luminance\(shade\) > ([\d.]+)", SCRIPT)[1])
    table = re.search(r"VIRIDIS = (\[\[.*?\]\]);", SCRIPT, re.DOTALL)[1]
    shades = np.array([[int(part) for part in one.split(",")] for one in re.findall(r"\[(\d+, \d+, \d+)\]", table)])
    for one, other in pairwise(shades / 255):
        for color in one + np.linspace(0, 1, 20)[:, None] * (other - one):
            luminance = (contrast(color, "black") - 1) * 0.05
            assert contrast(color, "black" if luminance > limit else "white") >= 4.5


def test_figures_stay_on_a_light_ground():
    """Color maps keep their meaning in dark mode: nothing is inverted."""
    assert "invert(" not in CSS and "hue-rotate" not in CSS
    assert SCHEMES[0]["plate"] == "#f6f7f9" and "plate" not in SCHEMES[1]
    assert contrast("#222222", SCHEMES[0]["plate"]) >= 4.5


# ----------------------------------------------------------------------------------------------------- narrow screens


class Nesting(HTMLParser):
    """Collect tables, pictures and listings, each with the classes and elements around it."""

    def __init__(self):
        super().__init__()
        self.path, self.found = [], []

    def handle_starttag(self, tag, attrs):
        if tag in ("meta", "link", "br", "img", "input"):
            return
        self.path.append((tag, dict(attrs).get("class") or ""))
        if tag in ("table", "svg"):
            self.found.append((tag, [*self.path]))

    def handle_endtag(self, tag):
        while self.path and self.path.pop()[0] != tag:
            pass


@pytest.mark.slow
def test_what_is_wide_scrolls_by_itself(page):
    nesting = Nesting()
    nesting.feed(re.sub(r"<svg.*?</svg>", "<svg></svg>", page[1], flags=re.DOTALL))
    kinds = {kind for kind, _ in nesting.found}
    assert kinds == {"table", "svg"}
    for kind, path in nesting.found:
        assert (("div", "scroll") if kind == "table" else ("div", "figures")) in path
    for rule in (".scroll { overflow-x: auto", ".figures figure { overflow-x: auto", "white-space: pre-wrap",
                 "overflow-wrap: anywhere", "img, svg, canvas, iframe { max-width: 100%; }"):  # fmt: skip
        assert rule in CSS
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page[1]
    fixed = re.findall(r"(?<![-\w])(?:min-)?width: ([\d.]+)rem", CSS.replace(".figures svg, .figures img", ""))
    assert max(float(size) for size in fixed if float(size) != 30) * 16 < 390 - 26  # 30: what scrolls inside a figure
    least = re.findall(r"minmax\(([^,]+(?:\([^)]*\))?),", CSS)
    assert least and all("min(100%" in one for one in re.findall(r"minmax\((.*?), 1fr\)", CSS))


# ---------------------------------------------------------------------------------------------------------- the page


@pytest.mark.slow
def test_the_replay_opens_on_the_last_frame(page):
    slider = re.search(r'<input type="range" id="replay-slider" min="0" max="(\d+)" value="(\d+)"', page[1])
    assert slider[1] == slider[2] != "0"
    assert re.search(r'go\(frames - 1\);\s+root\.classList\.add\("ready"\)', SCRIPT)


def test_every_figure_of_a_run_says_what_it_finds(page):
    result = p2pkm.load(page[0])
    told = re.findall(r'<figure tabindex="0" role="group" aria-label="([^"]*)"', page[1])
    assert len(told) == len(list_figures(result)) and all(text.endswith(".") for text in told)
    known = [record["ratio_mean"] for record in result.rounds if record["ratio_mean"] is not None]
    first, last = (f"{100 * (ratio - 1):#.4g}" for ratio in (known[0], known[-1]))
    assert f"changes from {first} % to {last} %" in told[0]
    costs = result.losses / np.maximum(result.census.sizes, 1)
    known = np.flatnonzero(result.census.sizes > 0)
    assert f"highest on device {known[costs[known].argmax()]}, {costs[known].max():#.4g}" in told[1]
    everything = {"convergence", "graph", "points", "partition", "bytes", "groups", "profile", "k", "drift"}
    assert set(findings._DESCRIPTIONS) == everything


def test_stages_and_replay_show_the_test_cost_of_a_run_with_test_points():
    graph = topologies.ring(8)
    tested = p2pkm.simulate("gtvmin:coupling=links", graph, "device-clusters:amplitude=1", clusters=3, rounds=3)
    plain = p2pkm.simulate("gtvmin", graph, "blobs:points=64,clusters=3", devices=8, clusters=3, rounds=3)
    cost = tested.rounds[-1]["test_ratio_common"]
    table = next(part for part in show_page(tested).html.split("<table") if "test/common at the end" in part)
    assert f"{cost:#.4g}" in table
    assert "test/common at the end" not in show_page(plain).html
    shown = [_select_values(run.rounds[-1])["test_ratio_common"] for run in (tested, plain)]
    assert shown == [cost, None]
    assert "if (one.test_ratio_common !== null) parts.push(`test cost " in SCRIPT


@pytest.mark.parametrize(("ranks", "start"), [(1, "python"), (4, "mpirun -n 4 python")])
def test_a_run_is_repeated_on_as_many_ranks(ranks, start, tmp_path):
    summary = {"seed": 0, "ranks": ranks, "wall_seconds": 1.0, "centroids_sha256": "c0ffee", "chain_sha256": None}
    text = repeat(tmp_path, {}, "k = 3", summary).text
    assert f"<pre>{start} -m p2pkm --config {tmp_path}/config.toml\npython -m p2pkm verify {tmp_path}</pre>" in text
    assert "<dd><code>c0ffee</code></dd>" in text and "chain" not in text


@pytest.mark.slow
def test_commands_repeat_the_run_from_anywhere(page, tmp_path):
    folder, text = page
    commands = re.search(r"<h2>How to repeat it</h2>.*?<pre>(.*?)</pre>", text, re.DOTALL)[1]
    again, check = commands.replace("&#x27;", "'").replace("&amp;", "&").splitlines()
    shown = [shlex.split(command.split(" && ")[1]) for command in (again, check)]
    assert os.path.isabs(shown[0][4]) and os.path.isabs(shown[1][4]) and again.startswith("cd /")
    program = f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH; export PYTHONPATH={shlex.quote(str(ROOT))}; "
    done = subprocess.run(["sh", "-c", program + again + f" --out {shlex.quote(str(tmp_path / 'again'))} -q --no-plot"],
                          cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert p2pkm.load(tmp_path / "again").summary["chain_sha256"] == p2pkm.load(folder).summary["chain_sha256"]


@pytest.mark.slow
def test_a_run_from_python_has_a_graph_without_a_name():
    X, y = p2pkm.grid16(points=5, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4), devices=4, labels=y)
    result = p2pkm.simulate(p2pkm.ConsensusLloyd(3), topologies.ring(4), shards, rounds=1)
    page = result.report().html
    assert "on None" not in page and "graph None" not in page
    assert "4 devices on a graph of 4 links computed 3 clusters with consensus." in page
