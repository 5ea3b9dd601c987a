"""Reports in a browser: what the replay draws and says, by mouse, keyboard and touch, on narrow and large pages."""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from p2pkm.storage.load import load
from p2pkm.viz.projection import choose_projection
from tests.support.animation import film, run, save_large
from tests.support.run_cli import here

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see .ci/extended")
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_PACKAGE = find_spec("axe_playwright_python")
_AXE = os.environ.get("AXE_CORE") or (_PACKAGE and Path(_PACKAGE.origin).with_name("axe.min.js"))
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(_CHROMIUM is None, reason="there is no chromium on the PATH: see .ci/extended"),
]

# Notes what is drawn on each canvas since it was last wiped: marks by kind, and lines with their color and width.
SPY = """
window.drawn = {};
const pens = CanvasRenderingContext2D.prototype;
const note = (pen, kind, values) => {
  const name = pen.canvas.id;
  if (name) ((window.drawn[name] ??= {})[kind] ??= []).push(values);
};
for (const kind of ["moveTo", "lineTo", "arc", "rect"]) {
  const draw = pens[kind];
  pens[kind] = function (...values) { note(this, kind, values); draw.apply(this, values); };
}
const wipe = pens.clearRect;
pens.clearRect = function (...values) { window.drawn[this.canvas.id] = {}; wipe.apply(this, values); };
const stroke = pens.stroke;
pens.stroke = function () {
  const lines = window.drawn[this.canvas.id]?.lineTo?.length ?? 0;
  note(this, "stroke", [this.strokeStyle, this.lineWidth, lines]);
  stroke.apply(this);
};
"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """A run on a ring of 16, its frames by hand, with its page."""
    folder = run(tmp_path_factory.mktemp("browser") / "ring", "-k", "3")
    frames = film(folder, 6)
    assert here("report", folder).code == 0
    return folder, frames


class Opened:
    """A page with all that it asked for and complained of."""

    def __init__(self, browser, path, width=1200, *, replay=True, **options):
        options = {"viewport": {"width": width, "height": 900}} | options
        self.context = browser.new_context(**options)
        self.context.add_init_script(SPY)
        self.page = self.context.new_page()
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.url = path.as_uri()
        self.page.goto(self.url)
        if replay:
            self.page.wait_for_selector("#replay.ready", timeout=20_000)
            self.page.locator("#replay").scroll_into_view_if_needed()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.context.close()
        if kind is None:
            assert self.complaints == []
            assert self.requests == [self.url]

    @property
    def frame(self):
        return int(self.page.input_value("#replay-slider"))

    def go(self, frame):
        move = "(slider, t) => { slider.value = t; slider.dispatchEvent(new Event('input')); }"
        self.page.locator("#replay-slider").evaluate(move, frame)

    def wait(self, frame):
        """Wait until the replay has come to a frame by itself."""
        for _ in range(200):
            if self.frame >= frame:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"still at frame {self.frame}")

    def drawn(self, canvas, kind):
        return np.array(self.page.evaluate("([c, k]) => drawn[`replay-${c}`][k] ?? []", [canvas, kind]))

    def crosses(self):
        """Return the middles of the crosses in the cloud, in the order of drawing."""
        return self.drawn("cloud", "moveTo")[::2] + 4.0

    def devices(self):
        """Return where the devices stand in the graph; nothing may be chosen."""
        return self.drawn("graph", "arc")[:, :2]

    def tip(self):
        """Return the figures of the device that is pointed at, by name."""
        tip = self.page.locator("#replay-tip")
        if not tip.is_visible():
            return {}
        names, values = tip.locator("dt").all_inner_texts(), tip.locator("dd").all_inner_texts()
        return {"name": tip.locator("strong").inner_text()} | dict(zip(names, values, strict=True))

    def point(self, place, canvas="graph"):
        box = self.page.locator(f"#replay-{canvas}").bounding_box()
        self.page.mouse.move(box["x"] + place[0], box["y"] + place[1])

    def overflow(self):
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def straighten(drawn, wanted):
    """Return the largest distance in pixels between what is drawn and the best upright picture of what is wanted."""
    worst = 0.0
    for axis in range(2):
        line = np.column_stack((np.ones(len(wanted)), wanted[:, axis]))
        found = np.linalg.lstsq(line, drawn[:, axis], rcond=None)[0]
        assert found[1] > 0 if axis == 0 else found[1] < 0  # upwards on the page is less
        worst = max(worst, float(np.abs(line @ found - drawn[:, axis]).max()))
    return worst


def figure(text):
    return float("nan") if text == "–" else float(text.replace(",", ""))


# --------------------------------------------------------------------------------------------------------- the slider


def test_the_drawn_centroids_are_those_of_every_frame(browser, ring):
    folder, frames = ring
    drawn, wanted = [], []
    with Opened(browser, folder / "report.html") as opened:
        for t in range(6):
            opened.go(t)
            table = frames["centroids"][t].reshape(-1, 2)
            drawn.append(opened.crosses())
            wanted.append(table[np.isfinite(table).all(axis=1)])
            assert len(drawn[-1]) == len(wanted[-1]) == 48 - (t == 0)
    assert straighten(np.concatenate(drawn), np.concatenate(wanted)) < 0.5
    assert np.abs(drawn[1] - drawn[2]).max() > 3  # they do move


def test_more_features_are_seen_along_principal_components(browser, tmp_path):
    folder = run(tmp_path / "run", "--data", "iris")
    frames = film(folder, 3)
    assert here("report", folder).code == 0
    with Opened(browser, folder / "report.html") as opened:
        opened.go(1)
        table = frames["centroids"][1].reshape(-1, 4).astype(float)
        wanted = choose_projection(load(folder)).place(table[np.isfinite(table).all(axis=1)])
        assert straighten(opened.crosses(), wanted) < 0.5


def test_the_slider_moves_by_mouse(browser, ring):
    with Opened(browser, ring[0] / "report.html") as opened:
        opened.go(0)
        box = opened.page.locator("#replay-slider").bounding_box()
        middle = box["y"] + box["height"] / 2
        before = opened.crosses()
        opened.page.mouse.click(box["x"] + 0.6 * box["width"], middle)
        assert opened.frame == 3 and len(opened.crosses()) != len(before)
        opened.page.mouse.down()
        opened.page.mouse.move(box["x"] + box["width"] - 2, middle, steps=4)
        opened.page.mouse.up()
        assert opened.frame == 5


def test_keys_step_jump_and_play(browser, ring):
    with Opened(browser, ring[0] / "report.html") as opened:
        for where in ("#replay-slider", "#replay-graph", "#replay-play"):
            opened.page.focus(where)
            for key, frame in (("End", 5), ("ArrowRight", 5), ("ArrowLeft", 4), ("Home", 0), ("ArrowLeft", 0),
                               ("ArrowRight", 1)):  # fmt: skip
                opened.page.keyboard.press(key)
                assert opened.frame == frame, (where, key)
            opened.page.keyboard.press("Space")
            assert opened.page.get_attribute("#replay-play", "aria-label") == "Pause", where
            opened.page.keyboard.press("Space")
            assert opened.page.get_attribute("#replay-play", "aria-label") == "Play", where
        said = opened.page.get_attribute("#replay-slider", "aria-valuetext")
        assert said.endswith(f"frame {opened.frame + 1} of 6")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_play_advances_to_the_end_and_pause_stops(browser, ring, motion):
    with Opened(browser, ring[0] / "report.html", reduced_motion=motion) as opened:
        opened.page.click("#replay-play")
        opened.wait(2)
        if motion == "reduce":  # nothing glides: what is drawn is a frame
            table = ring[1]["centroids"][opened.frame].reshape(-1, 2)
            assert straighten(opened.crosses(), table) < 0.5
        opened.page.click("#replay-play")
        here = opened.frame
        opened.page.wait_for_timeout(900)
        assert opened.frame == here < 5
        opened.page.click("#replay-play")
        opened.wait(5)
        assert opened.page.get_attribute("#replay-play", "aria-label") == "Play"
        opened.page.click("#replay-play")
        assert opened.frame == 0


def test_the_frame_is_told_in_words(browser, ring):
    folder, frames = ring
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    with Opened(browser, folder / "report.html") as opened:
        opened.go(5)
        last, said = records[frames["record"][5]], opened.page.inner_text("#replay-now")
        assert said.startswith(f"{last['stage']}, round {last['round']} · ")
        assert f"{last['converged']} of 16 converged" in said


# ---------------------------------------------------------------------------------------------------------- a device


def test_hover_shows_the_figures_of_the_file(browser, ring):
    folder, frames = ring
    result = load(folder)
    with Opened(browser, folder / "report.html") as opened:
        places = opened.devices()
        assert len(places) == 16
        for t, i in ((0, 0), (3, 5), (5, 15)):
            opened.point((1, 1))
            opened.go(t)
            opened.point(places[i])
            tip = opened.tip()
            linked = (frames["edge_a"] == i) | (frames["edge_b"] == i)
            assert tip["name"] == f"Device {i}"
            assert figure(tip["points"]) == result.census.sizes[i]
            assert figure(tip["neighbors"]) == 2
            assert figure(tip["cost"]) == pytest.approx(frames["cost"][t, i], rel=1e-3)
            assert figure(tip["cost per point"]) == pytest.approx(
                frames["cost"][t, i] / result.census.sizes[i], rel=1e-3
            )
            assert figure(tip["total variation"]) == pytest.approx(frames["disagreement"][t, i], rel=1e-3)
            assert figure(tip["bytes so far"]) == frames["bytes"][t, linked].sum()
        opened.point((1, 1))
        assert opened.tip() == {}


def test_unknown_figures_are_dashes(browser, ring):
    folder, frames = ring
    t, i = np.argwhere(np.isnan(frames["cost"]))[0]
    with Opened(browser, folder / "report.html") as opened:
        opened.go(int(t))
        opened.page.fill("#replay-device", str(i))
        assert opened.tip()["cost"] == opened.tip()["cost per point"] == "–"
        opened.page.fill("#replay-device", "16")
        assert opened.tip() == {}
        assert "not among those shown" in opened.page.evaluate(
            "document.getElementById('replay-device').validationMessage"
        )


def test_a_centroid_names_its_device_and_a_click_keeps_it(browser, ring):
    with Opened(browser, ring[0] / "report.html") as opened:
        opened.go(1)
        crosses = opened.crosses()
        apart = np.linalg.norm(crosses[:, None] - crosses[None], axis=2) + 1e3 * np.eye(len(crosses))
        lonely = int(apart.min(axis=1).argmax())
        opened.point(crosses[lonely], "cloud")
        assert opened.tip()["name"] == f"Device {lonely // 3}"
        opened.page.mouse.click(*_place(opened, "cloud", crosses[lonely]))
        opened.point((2, 2), "cloud")
        assert opened.tip()["name"] == f"Device {lonely // 3}"
        assert opened.page.input_value("#replay-device") == str(lonely // 3)
        opened.page.focus("#replay-cloud")
        opened.page.keyboard.press("Escape")
        assert opened.tip() == {}


def _place(opened, canvas, place):
    box = opened.page.locator(f"#replay-{canvas}").bounding_box()
    return box["x"] + place[0], box["y"] + place[1]


def test_links_are_lit_by_bytes_of_the_step_or_gtv(browser, ring):
    _, frames = ring
    sent = np.diff(frames["bytes"], axis=0, prepend=0)
    with Opened(browser, ring[0] / "report.html") as opened:
        for t, name, lit in ((0, "sent", 0), (3, "sent", (sent[3] > 0).sum()), (3, "gtv", 16)):
            opened.page.select_option("#replay-links", name)
            opened.go(t)
            strokes = opened.page.evaluate("drawn['replay-graph'].stroke")
            assert strokes[0][2] == 16 - lit  # dark ones first
            assert strokes[6][2] == 16
        assert "total variation of a link" in opened.page.inner_text("#replay-graph-key")
        opened.page.select_option("#replay-devices", "disagreement")
        assert "total variation between a device and its neighbors" in opened.page.inner_text("#replay-graph-key")


def test_a_server_is_a_square_in_the_middle(browser, tmp_path):
    folder = run(tmp_path / "run", "--algorithm", "fkm", "-k", "3")
    frames = film(folder, 3)
    assert here("report", folder).code == 0
    with Opened(browser, folder / "report.html") as opened:
        opened.go(2)
        ((left, top, width, height),) = opened.drawn("graph", "rect")
        opened.point((left + width / 2, top + height / 2))
        tip = opened.tip()
        assert (tip["name"], tip["neighbors"]) == ("Server", "16")
        assert figure(tip["bytes so far"]) == frames["bytes"][2].sum()


def test_touch(browser, ring):
    with Opened(browser, ring[0] / "report.html", 400, has_touch=True, is_mobile=True) as opened:
        opened.page.locator("#replay-graph").scroll_into_view_if_needed()
        place = opened.devices()[4]
        opened.page.touchscreen.tap(*_place(opened, "graph", place))
        assert opened.tip()["name"] == "Device 4"
        opened.page.tap("#replay-play")
        opened.wait(1)


# ------------------------------------------------------------------------------------------------------ every page


def test_the_replay_opens_on_the_last_frame_and_plays_from_the_first(browser, ring):
    with Opened(browser, ring[0] / "report.html") as opened:
        assert opened.frame == 5
        opened.page.click("#replay-play")
        assert opened.frame < 5
        opened.wait(5)


@pytest.mark.skipif(_AXE is None, reason="there is no axe.min.js: pip install axe-playwright-python, or AXE_CORE")
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violations(browser, ring, scheme, width):
    with Opened(browser, ring[0] / "report.html", width, color_scheme=scheme, bypass_csp=True) as opened:
        opened.page.add_script_tag(content=Path(_AXE).read_text("utf-8"))
        found = opened.page.evaluate("axe.run().then((found) => found.violations)")
        told = [(one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        assert not told


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_into_390_pixels_in_both_schemes(browser, ring, scheme):
    with Opened(browser, ring[0] / "report.html", 390, color_scheme=scheme) as opened:
        opened.page.fill("#replay-device", "3")
        assert opened.overflow() <= 0
        tip, stage = (opened.page.locator(name).bounding_box() for name in ("#replay-tip", ".stage"))
        assert stage["x"] <= tip["x"] and tip["x"] + tip["width"] <= stage["x"] + stage["width"]
        cut = opened.page.evaluate(
            "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, .figures figure, svg')"
            "&& one.offsetParent && one.getBoundingClientRect().right > innerWidth + 1)"
            ".map((one) => one.outerHTML.slice(0, 90))"
        )
        assert cut == []
        sizes = opened.page.evaluate(
            "[...document.querySelectorAll('p, td, th, dd, dt, label, button')].filter(one => one.offsetParent)"
            ".map(one => parseFloat(getComputedStyle(one).fontSize))"
        )
        assert min(sizes) >= 12
        ground, ink = opened.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        brightness = [sum(int(part) for part in color[4:-1].split(",")) for color in (ground, ink)]
        assert (brightness[0] > brightness[1]) == (scheme == "light")


def test_nothing_on_a_phone_scrolls_sideways(browser, ring):
    with Opened(browser, ring[0] / "report.html", 320) as opened:
        wide = opened.page.evaluate("""[...document.querySelectorAll("main *")].filter((part) =>
            /auto|scroll/.test(getComputedStyle(part).overflowX) && part.scrollWidth > part.clientWidth + 1).length""")
        assert opened.overflow() <= 0 and wide == 0


def test_names_stay_text_in_a_browser(browser, tmp_path):
    evil = '</script><b id="evil">'
    folder = run(tmp_path / "run", "--algorithm", "gtvmin")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"data": evil, "algorithm": evil}))
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    named = [record | {"stage": evil} if record["stage"] == "gtvmin" else record for record in records]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in named))
    stages = [named[record]["stage"] for record in film(folder, len(named))["record"]]
    assert here("report", folder).code == 0
    with Opened(browser, folder / "report.html") as opened:
        opened.go(stages.index(evil))
        assert opened.page.inner_text("#replay-now").startswith(evil)
        assert opened.page.locator("b").count() == 0


def test_two_thousand_devices_load_and_scrub(browser, tmp_path):
    folder = save_large(tmp_path / "large")
    frames = film(folder, 3)
    written = here("report", folder, "--format", "json")
    assert json.loads(written.out)["bytes"] < 4_000_000
    with Opened(browser, folder / "report.html") as opened:
        assert len(opened.devices()) == 2_000
        for t in (0, 2, 1):
            opened.go(t)
            dots = opened.drawn("cloud", "rect")
            assert len(dots) == np.isfinite(frames["centroids"][t]).all(axis=2).sum()
        opened.page.fill("#replay-device", "1999")
        assert figure(opened.tip()["cost"]) == pytest.approx(frames["cost"][1, 1999], rel=1e-3)


def test_tables_sort_by_a_click(browser, tmp_path):
    words = ("--algorithm", "gtvmin,local,kfed", "--graph", "ring", "--seeds", "0", "--data", "grid16:points=3")
    assert here("compare", *words, "--devices", "4", "--out", tmp_path / "compared", "-q", "--no-plot").code == 0
    assert here("report", tmp_path / "compared").code == 0
    with Opened(browser, Path(tmp_path / "compared" / "report.html"), 400, replay=False) as opened:
        assert opened.overflow() <= 0
        table = opened.page.locator("table.sortable").first
        place = [name.strip() for name in table.locator("thead th").all_inner_texts()].index("bytes")
        button, column = table.get_by_role("button", name="bytes", exact=True), f"tbody tr > :nth-child({place + 1})"
        for direction in ("ascending", "descending"):
            button.click()
            values = [figure(text) for text in table.locator(column).all_inner_texts()]
            assert values == sorted(values, reverse=direction == "descending") and len(set(values)) == 3
            assert table.locator(f"th[aria-sort={direction}]").count() == 1
