"""Reports: one page for a run, a comparison or a study, without a browser."""

import base64
import gzip
import json
import re
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from p2pkm.analysis.paired_tests import Verdicts
from p2pkm.storage.load import load
from p2pkm.viz.report.encode_arrays import ABSENT, Box, bounding_box, pack, round_singles, shrink_counts, to_steps
from p2pkm.viz.report.html import Html, embed_json, tabulate, tag, write
from p2pkm.viz.report.narrative import describe_ratio
from p2pkm.viz.report.study_page import average_seeds, judge, name_row, runs_by_seed
from tests.support.animation import film, run
from tests.support.run_cli import ROOT, here

EVIL = '</script><b id="evil">&'


class Reader(HTMLParser):
    """Collect elements with their attributes, and the text that can be seen."""

    def __init__(self):
        super().__init__()
        self.found, self.text, self._hidden = [], "", False

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._hidden = False

    def handle_data(self, data):
        if not self._hidden:
            self.text += data


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    return reader


def report(folder, *more):
    ending = here("report", folder, "--format", "json", *more)
    assert ending.code == 0, ending.err
    return json.loads(ending.out)


def unpack(path):
    """Return the data of the replay: what is told, and the arrays by name."""
    text = re.search(r'<script type="application/json" id="replay-data">(.*?)</script>', path.read_text())[1]
    told = json.loads(text)
    raw, start, found = gzip.decompress(base64.b64decode(told["data"])), 0, {}
    types = {"Uint8Array": "u1", "Uint16Array": "u2", "Int16Array": "i2", "Int32Array": "i4", "Uint32Array": "u4",
             "Float32Array": "f4", "Float64Array": "f8"}  # fmt: skip
    for name, kind, size in told["arrays"]:
        found[name] = np.frombuffer(raw, "<" + types[kind], size, start)
        start += found[name].nbytes
    assert start == len(raw)
    return told, found


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    return run(tmp_path_factory.mktemp("report") / "ring")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "compared"
    words = ("--algorithm", "gtvmin,local,kfed", "--graph", "ring,star", "--seeds", "0-1", "--data", "grid16:points=3")
    assert here("compare", *words, "--devices", "4", "--out", folder, "-q", "--no-plot").code == 0
    return folder


# ---------------------------------------------------------------------------------------------------------- pieces


def test_text_and_attributes_are_escaped_and_html_is_not():
    assert tag("p", EVIL, title=EVIL, data_x=1, hidden=True, class_=None).text == (
        '<p title="&lt;/script&gt;&lt;b id=&quot;evil&quot;&gt;&amp;" data-x="1" hidden>'
        "&lt;/script&gt;&lt;b id=&quot;evil&quot;&gt;&amp;</p>"
    )
    assert tag("p", Html("<br>"), tag("br")).text == "<p><br><br></p>"


def test_data_cannot_end_their_element():
    text = embed_json({"name": EVIL}, "x").text
    inner = text.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert "<" not in inner and json.loads(inner) == {"name": EVIL}


def test_tables_know_numbers():
    text = tabulate("t", ["name", "n"], [["a", 1234], ["b", None], ["c", 0.123456]]).text
    assert '<td class="n" data-value="1234.0" data-label="n">1,234</td>' in text
    assert '<td class="n" data-label="n">–</td>' in text
    assert '<td class="n" data-value="0.123456" data-label="n">0.1235</td>' in text
    assert [write(value) for value in (0, 2, 2.0, 12345.6, 1e-9)] == ["0", "2", "2.000", "12,346", "1.000e-09"]


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(1.0, "as much as"), (1.0013, "0.13 % more than"), (5.155, "5.16 times as much as"), (0.97, "3 % less than")],
)
def test_ratios_in_words(ratio, words):
    assert describe_ratio(ratio) == words


def test_coordinates_are_steps_of_a_box():
    box = Box(np.array([0.0, -1.0]), np.array([2.0, 1.0]))
    steps, outside = box.place(np.array([[0.0, -1.0], [2.0, 1.0], [1.0, 0.0], [np.inf, np.inf], [3.0, 0.0]]))
    np.testing.assert_array_equal(steps, [[0, 0], [8191, 8191], [4096, 4096], [ABSENT] * 2, [ABSENT] * 2])
    assert outside == 1


def test_the_box_follows_centroids_but_not_far():
    points = np.array([[0.0, 0.0], [1.0, 1.0]])
    box = bounding_box(points, np.array([[1.5, 0.5], [90.0, 0.5], [np.inf, np.inf]]))
    assert 2.0 <= box.high[0] < 2.2 and 1.0 <= box.high[1] < 1.1
    assert bounding_box(np.zeros((0, 2)), np.full((1, 2), np.inf)).high.tolist() == [1.0, 1.0]
    one = bounding_box(np.full((1, 2), 3.0), np.zeros((0, 2)))
    assert (one.low < 3).all() and (one.high > 3).all()


def test_packed_numbers_come_back():
    values = np.array([0.0, 1.23456789e-7, -9.87654321e8, np.inf, np.nan, 1.0], np.float32)
    np.testing.assert_allclose(round_singles(values), values, rtol=1e-5)
    many = np.random.default_rng(0).lognormal(0, 9, 1_000).astype(np.float32)
    np.testing.assert_allclose(round_singles(many), many, rtol=2.0**-17)
    moves = np.array([[1, 65535], [0, 65535], [65535, 3]], np.uint16)
    np.testing.assert_array_equal(np.cumsum(to_steps(moves), axis=0, dtype=np.uint16), moves)
    assert shrink_counts([2**32 - 1]).dtype == np.uint32 and shrink_counts([2**40]).tolist() == [2.0**40]
    packed = pack({"a": np.arange(3, dtype=np.uint16), "b": np.array([0.5], np.float64)})
    assert packed["arrays"] == [["a", "Uint16Array", 3], ["b", "Float64Array", 1]]
    assert (
        gzip.decompress(base64.b64decode(packed["data"]))
        == np.arange(3, dtype="<u2").tobytes() + np.float64(0.5).tobytes()
    )


# --------------------------------------------------------------------------------------------------------- of a run


@pytest.mark.slow
def test_a_run_says_what_it_was_and_how_to_repeat_it(ring):
    film(ring)
    written = report(ring)
    path = ring / "report.html"
    assert written == {"report": str(path), "kind": "run", "bytes": path.stat().st_size, "replay": True}
    summary, text = json.loads((ring / "summary.json").read_text()), read(path).text
    for words in (
        "gtvmin on ring, 16 devices", "16 devices on ring computed 16 clusters with gtvmin", "converged",
        f"python -m p2pkm --config {ring}/config.toml", f"python -m p2pkm verify {ring}", summary["chain_sha256"],
        summary["centroids_sha256"], f"{summary['bytes']:,}", f"{summary['messages']:,}", 'graph = "ring"',
        describe_ratio(summary["ratio_mean"]), "numpy", "Busiest devices (10 of 16)", "Busiest links (10 of 16)",
    ):  # fmt: skip
        assert words in text, words
    assert not [name for name in ring.iterdir() if "partial" in name.name]


@pytest.mark.slow
def test_the_page_asks_nobody_for_anything(ring):
    report(ring)
    reader = read(ring / "report.html")
    places = [
        value for tag, attrs in reader.found for name, value in attrs.items()
        if name in ("src", "href", "xlink:href", "action", "srcset") and not value.startswith(("data:", "#"))
    ]  # fmt: skip
    assert places == []
    (policy,) = [
        attrs["content"] for tag, attrs in reader.found if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-")
    ids = [attrs["id"] for _, attrs in reader.found if "id" in attrs]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_stages_add_up(ring):
    report(ring)
    records = [json.loads(line) for line in (ring / "rounds.jsonl").read_text().splitlines()]
    table = re.search(r"<caption>Stages</caption>.*?</table>", (ring / "report.html").read_text(), re.DOTALL)[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]]
    # The estimates of the coupling are stages of the same name, one after the other.
    stages = [
        one["stage"]
        for at, one in enumerate(records)
        if not at or one["round"] == 0 or records[at - 1]["stage"] != one["stage"]
    ]
    assert [row[0] for row in rows] == stages
    assert sum(int(row[3].replace(",", "")) for row in rows) == records[-1]["bytes"]
    assert rows[-1][1] == str(records[-1]["round"])


@pytest.mark.slow
def test_the_replay_holds_the_frames(ring):
    frames = film(ring, 6)
    frames["bytes"] += 7  # some of them before the first frame
    np.savez(ring / "frames.npz", **frames)
    report(ring)
    told, found = unpack(ring / "report.html")
    assert (told["devices"], told["links"], told["k"], told["whole"], len(told["frames"])) == (16, 16, 16, True, 6)
    moves = found["centroids"].reshape(6, -1)
    steps = np.cumsum(moves, axis=0, dtype=np.uint16).reshape(frames["centroids"].shape)
    assert (steps[0, 0, 0] == ABSENT).all() and (steps == ABSENT).sum() == 2
    low, high = (np.array(told["cloud"][name]) for name in ("low", "high"))
    places = low + steps / told["cloud"]["levels"] * (high - low)
    known = steps < ABSENT
    np.testing.assert_allclose(places[known], frames["centroids"][known], atol=0.6 * (high - low).max() / 8191)
    np.testing.assert_allclose(found["cost"].reshape(6, 16), frames["cost"], rtol=1e-5)
    np.testing.assert_array_equal(found["sent"].reshape(6, 16).sum(axis=0), frames["bytes"][-1])
    records = [json.loads(line) for line in (ring / "rounds.jsonl").read_text().splitlines()]
    assert [one["bytes"] for one in told["frames"]] == [records[i]["bytes"] for i in frames["record"]]


@pytest.mark.slow
def test_at_most_sixty_frames_are_shown(tmp_path):
    folder = run(tmp_path / "long", "--algorithm", "gossip", "--rounds", "80")
    frames = film(folder, 70)
    report(folder)
    told, found = unpack(folder / "report.html")
    assert len(told["frames"]) == 60
    assert "60 of 70 frames are shown." in read(folder / "report.html").text
    np.testing.assert_array_equal(found["sent"].reshape(60, -1).sum(axis=0), frames["bytes"][-1])


@pytest.mark.slow
def test_thinned_devices_are_said(ring):
    film(ring, 4, every=2)
    report(ring)
    assert "8 of 16 devices and 0 of 16 links are shown" in read(ring / "report.html").text
    owner = load(ring).census.sample_device
    np.testing.assert_array_equal(unpack(ring / "report.html")[1]["pointDevice"], np.where(owner % 2, -1, owner // 2))


@pytest.mark.slow
def test_a_run_without_frames_has_no_replay_and_says_why(ring):
    (ring / "frames.npz").unlink(missing_ok=True)
    assert report(ring)["replay"] is False
    assert "the run folder does not contain frames.npz" in read(ring / "report.html").text


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--data", "iris", "--init", "flooded-summaries", "--coupling", "10"),
        ("--algorithm", "fkm", "--data", "wine", "--scale", "standard"),
        ("--algorithm", "local"),
        ("--devices", "1"),
        ("--no-baselines", "--graph", "star"),
    ],
    ids=" ".join,
)
def test_every_kind_of_run_has_a_page(options, tmp_path):
    folder = run(tmp_path / "run", *options)
    film(folder, 2)
    assert report(folder)["replay"] is True
    unpack(folder / "report.html")
    text = read(folder / "report.html").text
    assert ("the server is the busiest" in text) == ("fkm" in options)
    assert ("per device, the same for all." in text) == ("iris" in options)
    assert ("principal components 1 and 2 of" in text) == ("--data" in options)


@pytest.mark.slow
def test_one_feature_has_a_line_per_device(tmp_path):
    lines = [f"{0.1 * i + 5 * (i % 3):.2f}" for i in range(64)]
    (tmp_path / "line.csv").write_text("\n".join(["x", *lines]) + "\n")
    folder = run(tmp_path / "run", "--data", tmp_path / "line.csv", "-k", "3", "--partition", "iid")
    film(folder, 3)
    report(folder)
    told, found = unpack(folder / "report.html")
    cloud = told["cloud"]
    assert cloud["names"] == ["x", "device"] and cloud["line"] is True
    steps = np.cumsum(found["centroids"].reshape(3, -1), axis=0, dtype=np.uint16).reshape(3, 16, 3, 2)
    points, centroids = (
        cloud["low"][1] + places[..., 1] / cloud["levels"] * (cloud["high"][1] - cloud["low"][1])
        for places in (found["points"].reshape(-1, 2), steps)
    )
    np.testing.assert_allclose(points, load(folder).census.sample_device, atol=0.01)
    known = steps[..., 1] < ABSENT
    lines = np.broadcast_to(np.arange(16)[:, None], known.shape)
    np.testing.assert_allclose(centroids[known], lines[known], atol=0.01)
    assert known.any()


@pytest.mark.slow
def test_a_page_of_64_devices_is_small(tmp_path):
    folder = run(tmp_path / "run", "--devices", "64", "--data", "grid16:points=200", "--graph", "grid",
                 "--rounds", "70", "--algorithm", "gossip")  # fmt: skip
    film(folder, 60)
    assert report(folder)["bytes"] < 2_000_000


# ------------------------------------------------------------------------------------------------------- other names


@pytest.mark.slow
def test_names_cannot_become_elements(tmp_path):
    folder = run(tmp_path / '<b id="evil">')
    film(folder, 4)
    for name in ("summary.json", "manifest.json"):
        content = json.loads((folder / name).read_text())
        content |= {key: EVIL for key in ("graph", "data", "algorithm", "partition", "termination", "host", "mpi")}
        content["command"] = ["p2pkm", EVIL]
        (folder / name).write_text(json.dumps(content))
    (folder / "config.toml").write_text(f"data = '{EVIL}'\n")
    text = (folder / "rounds.jsonl").read_text().replace('"gtvmin"', json.dumps(EVIL))
    (folder / "rounds.jsonl").write_text(text)
    report(folder)
    reader = read(folder / "report.html")
    assert not [attrs for tag, attrs in reader.found if tag == "b" or attrs.get("id") == "evil"]
    assert reader.text.count(EVIL) >= 5
    assert len(re.findall("<script", (folder / "report.html").read_text())) == 3
    told, _ = unpack(folder / "report.html")
    assert EVIL in {frame["stage"] for frame in told["frames"]}


# -------------------------------------------------------------------------------------------------------- many runs


@pytest.mark.slow
def test_a_comparison_has_its_table_differences_and_command(compared):
    assert report(compared)["kind"] == "comparison"
    text = read(compared / "report.html").text
    for words in ("Comparison of 8 runs over algorithm, graph, seed", "8 runs completed, none failed", "gtvmin on ring",
                  "local against gtvmin on star", "Relative to gtvmin, same seeds and tests",
                  "plain bytes of the busiest device",
                  "Quality against plain bytes",
                  "compare --algorithm gtvmin,local,kfed --graph ring,star --seeds 0-1 --devices 4 "
                  "--data grid16:points=3 --no-plot"):  # fmt: skip
        assert words in text, words


def _told(rows, axes=("algorithm", "graph", "seed")):
    """Return the words of the verdict on these runs."""
    means = average_seeds(rows, ["algorithm", "graph"])
    verdicts = Verdicts({name_row(row, axes[:2]): runs_by_seed(row) for row in means}, "ratio_mean")
    return judge(means, axes, (len(rows), 0), verdicts)


def test_the_verdict_of_many_runs_names_all_that_is_alike_what_is_never_reached_and_what_got_worse():
    def runs(name, ratios, best, rounds):
        return [{"algorithm": name, "graph": "ring", "seed": seed, "error": None, "ratio_mean": ratio,
                 "ratio_worst": ratio, "ari": None, "bytes": 10,
                 "ratio_best": best or ratio, "ratio_best_stage": name, "ratio_best_round": 7,
                 "rounds_to_1pct_of_central": rounds, "method_rounds_to_1pct_of_central": rounds and rounds - 2}
                for seed, ratio in enumerate(ratios)]  # fmt: skip

    noise = (1.001, 1.002, 1.003, 1.002, 1.0015)
    rows = [*runs("a", noise, None, 9), *runs("b", [one + 1e-5 for one in noise[::-1]], None, 6),
            *runs("w", (1.0, 1.2, 1.0, 1.3, 1.25), None, None),
            *runs("c", [one + 0.5 for one in noise], 1.02, None)]  # fmt: skip
    text = _told(rows)
    assert "Equivalent to it: b on ring. Not distinguished from it: w on ring." in text
    assert "Worst: c on ring" in text and "Never within 1 % of it: w on ring; c on ring." in text
    assert "first: b on ring, after 4 rounds (6 with initialization)" in text
    assert "got worse before the end of c on ring, in 5 of 5 runs, most from ratio 1.0200 in round 7 of c" in text
    many = [row for number in range(9) for row in runs(f"m{number}", noise, None, 6)]
    text = _told(many)
    assert not [number for number in range(1, 9) if f"m{number} on ring" not in text.split("Equivalent to it: ")[1]]
    assert "Last" not in text and "and 6 more" not in text
    same = [row for name, rounds in (("a", 6), ("b", 6), ("d", 3)) for row in runs(name, (1.003, 1.002), None, rounds)]
    assert "first: a on ring and b on ring, after 4 rounds (6 with initialization)" in _told(same[:4])
    assert "first: d on ring, after 1 round (3 with initialization)" in _told(same)
    few = _told([rows[0], rows[5]])
    assert "Lowest cost: a" in few and "fewer than 5 seeds" in few and "Best" not in few and "Last" not in few


@pytest.mark.slow
def test_failed_runs_are_named_with_their_errors(compared, tmp_path):
    for name in ("study.toml", "summary.json"):
        (tmp_path / name).write_text((compared / name).read_text())
    rows = [json.loads(line) for line in (compared / "study.jsonl").read_text().splitlines()]
    failed = {"algorithm": "mufc", "graph": "server", "seed": 1, "error": f"DataError: {EVIL}", "termination": "failed"}
    (tmp_path / "study.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, failed]))
    report(tmp_path)
    text = read(tmp_path / "report.html").text
    assert "8 runs completed, 1 failed." in text and f"mufc with a server, seed 1DataError: {EVIL}" in text


def test_a_study_has_its_axes_figures_and_file(tmp_path, monkeypatch):
    rows = [
        {"algorithm": "gtvmin", "graph": graph, "coupling": coupling, "seed": seed, "error": None, "devices": 16,
         "ratio_mean": 1.5 + seed / 100 if graph == "ring" else 1.1, "ratio_worst": 2.0 + seed,
         "bytes": 1000 * coupling, "spectral_gap": 0.1}
        for graph in ("ring", "star") for seed in (0, 1) for coupling in (1, 10)
    ]  # fmt: skip
    rows.append({"algorithm": "gtvmin", "graph": "moon", "coupling": 1, "seed": 0, "error": "TopologyError: no moon"})
    (tmp_path / "study.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "study.toml").write_text('seeds = "0-1"\n')
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "heat_map.svg").write_text(
        "<svg xmlns='http://www.w3.org/2000/svg'><script>x</script></svg>"
    )
    monkeypatch.chdir(tmp_path.parent)
    assert report(tmp_path.name)["kind"] == "study"
    reader = read(tmp_path / "report.html")
    for words in ("Study of 9 runs over algorithm, graph, coupling, seed", "Lowest cost: gtvmin on star, coupling 1,",
                  "Highest cost: gtvmin on ring, coupling 10, 50 % more than", "TopologyError: no moon",
                  "No test was made: there are 2 common seeds", "Failed runs are left out: 1 of 1 of gtvmin on moon",
                  'seeds = "0-1"',
                  f"python -m p2pkm study {tmp_path}/study.toml"):  # fmt: skip
        assert words in reader.text, words
    (picture,) = [attrs for tag, attrs in reader.found if tag == "img"]
    assert picture["alt"] == "heat map" and picture["src"].startswith("data:image/svg+xml;base64,")
    labels = [attrs["aria-label"] for tag, attrs in reader.found if tag == "figure"]
    assert [label[:18] for label in labels] == ["Small multiples: t", "Configurations rel", "heat map"]
    sentence = (
        "Over 2 seeds, gtvmin on star, coupling 1 has the lowest mean cost relative to central k-means of 4 "
        "configurations, 1.1000. Not distinguished from it: gtvmin on star, coupling 10 (cost +0 %, requires about"
    )
    assert sentence in reader.text and sentence in labels[1]
    assert "tied" not in reader.text and reader.text.count("not distinguished") >= 3


# ------------------------------------------------------------------------------------------------------------ refusals


def refuse(folder, *more):
    ending = here("report", folder, *more)
    assert ending.out == "" and ending.err.count("\n") == 1, ending.err
    return ending.code, ending.err


def test_folders_that_hold_nothing_to_report(tmp_path, ring):
    code, message = refuse(tmp_path / "no")
    assert code == 3 and "no does not exist; expected the folder of a run, a comparison or a study" in message
    assert "is not the folder of a run" in refuse(tmp_path)[1]
    assert "it contains 1 run. Use the folder of one run, such as" in refuse(ring.parent)[1]
    assert refuse(ring / "summary.json")[0] == 3
    (tmp_path / "comparison.json").write_text("{}")
    code, message = refuse(tmp_path)
    assert code == 3 and "this comparison has not ended. Run the same command again to complete it" in message


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("running", "has not ended: it was killed. Resume it with"),
        ("failed", "has not ended: it failed"),
        ("interrupted", "has not ended: it was interrupted"),
    ],
)
def test_runs_without_results(state, words, tmp_path):
    (tmp_path / "config.toml").write_text("")
    (tmp_path / "manifest.json").write_text(json.dumps({"state": state}))
    code, message = refuse(tmp_path)
    assert code == 3 and words in message
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_an_interrupted_run_with_results_has_a_page(tmp_path):
    folder = run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"termination": "interrupted"}))
    report(folder)
    assert "This run was interrupted" in read(folder / "report.html").text


def test_damaged_files_are_named(tmp_path):
    folder = run(tmp_path / "run")
    (folder / "frames.npz").write_bytes(b"nothing")
    code, message = refuse(folder)
    assert code == 3 and "frames.npz is not a .npz archive" in message
    (folder / "frames.npz").unlink()
    arrays = film(folder)
    np.savez(folder / "frames.npz", **(arrays | {"cost": arrays["cost"][:, :3]}))
    assert "frames.npz: the shape of cost does not match the centroids. Restore the file" in refuse(folder)[1]
    (folder / "manifest.json").write_text("{")
    assert "cannot be read: JSONDecodeError" in refuse(folder)[1]


@pytest.mark.slow
def test_out(ring, tmp_path):
    assert report(ring, "--out", tmp_path / "page.html")["report"] == str(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")
    assert here("report", ring, "--out", tmp_path / "page.html").out.startswith(f"written: {tmp_path}/page.html (")
    assert refuse(ring, "--out", tmp_path)[0] == 2
    code, message = refuse(ring, "--out", tmp_path / "no" / "page.html")
    assert code == 2 and "is not a writable folder. Choose another file" in message


@pytest.mark.slow
def test_the_wheel_holds_what_pages_are_made_of(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (path,) = wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(path).namelist()
    for name in ("page.css", "replay.js", "tables.js"):
        assert f"p2pkm/viz/report/assets/{name}" in names
    assert Path(path).is_file()
