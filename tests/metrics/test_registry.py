"""A figure is registered once: whatever lists figures reads the registry."""

import csv
import importlib.util
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.analysis.study_table import Study
from p2pkm.experiments.studies.compare import tabulate
from p2pkm.metrics import registry, stream_figures
from p2pkm.metrics.registry import METRICS, Metric, ShownIn
from tests.docs.check_blocks import PAGES
from tests.support.build import build_result
from tests.support.each import each
from tests.support.run_cli import here

ROOT = Path(__file__).parents[2]
SMALL = ("--data", "grid16:points=5", "--clusters", "3", "--devices", "4", "--rounds", "2", "--no-plot", "-q")

STUDY = """
data = "grid16:points=5"
devices = 4
rounds = 1
plot = false
seeds = "0"
[grid]
graph = ["ring", "path"]
"""


def middle(result):
    """Return the first coordinate of each device's first centroid."""
    return result.centroids[:, 0, 0]


@pytest.fixture
def extra(monkeypatch):
    """Register one more figure of every device: one function, one entry."""
    one = Metric("middle", "first coordinate", "of the first centroid", per_device=True, compute=middle)
    monkeypatch.setattr(registry, "METRICS", (*METRICS, one))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_entry_is_enough_for_the_files_and_the_table_of_a_run(extra, place):
    ended = here(*SMALL, "--out", "run")
    result = p2pkm.load("run")
    values = np.load("run/devices.npz")["middle"]
    assert_array_equal(values, result.centroids[:, 0, 0])
    assert_array_equal(values, result.devices["middle"])
    summary = json.loads((place / "run" / "summary.json").read_text())
    assert_allclose(summary["middle"], values.mean())
    assert re.search(r"^  first coordinate +\S+  of the first centroid$", ended.out, re.MULTILINE)


@pytest.mark.slow
def test_one_entry_is_enough_for_the_report_of_a_run(extra, place):
    assert here(*SMALL, "--out", "run").code == 0 and here("report", "run").code == 0
    page = (place / "run" / "report.html").read_text("utf-8")
    assert '<th scope="row">first coordinate</th>' in page
    assert page.count('<span title="of the first centroid">first coordinate</span>') == 1  # of the devices


@pytest.mark.slow
def test_one_entry_is_enough_for_studies_comparisons_and_seeds(extra, place):
    words = ("--graph", "ring,path", "--seeds", "0,1")
    ended = here("compare", "--algorithm", "gtvmin", *words, *SMALL, "--out", "both")
    assert ended.code == 0 and "first coordinate" in ended.out
    compared = json.loads((place / "both" / "summary.json").read_text())
    rows = [json.loads(line) for line in (place / "both" / "study.jsonl").read_text().splitlines()]
    assert compared["table"][0]["middle"] == pytest.approx(np.mean([row["middle"] for row in rows[:2]]))
    with open(place / "both" / "study.csv") as file:
        assert "middle" in next(csv.reader(file))
    assert "first coordinate" in tabulate(compared | {"failed": 0})
    (place / "study.toml").write_text(STUDY)
    swept = here("sweep", "study.toml", "--out", "s", "--format", "json", "-q")
    assert not [row for row in json.loads(swept.out)["rows"] if row["middle"] is None]
    assert "first coordinate" in here("sweep", "study.toml", "--out", "s", "-q").out
    assert '<th title="of the first centroid">first coordinate</th>' in Study.load("s")._repr_html_()
    seeds = here(*SMALL, "--seeds", "0,1", "--out", "none")
    assert re.search(r"^  first coordinate +\S+ +\S+ +\S+$", seeds.out, re.MULTILINE)


@pytest.mark.slow
def test_one_entry_is_enough_for_the_report_of_a_comparison(extra, place):
    words = ("--graph", "ring,path", "--seeds", "0,1")
    assert here("compare", "--algorithm", "gtvmin", *words, *SMALL, "--out", "both").code == 0
    assert here("report", "both").code == 0
    page = (place / "both" / "report.html").read_text("utf-8")
    assert page.count('<span title="of the first centroid">first coordinate</span>') == 2  # means, and all runs


def test_every_figure_of_a_run_is_registered_and_every_key_is_there():
    summary = here(*SMALL, "--out", "none", "--format", "json").summary
    assert list(summary) == registry.summary_keys() == [metric.key for metric in METRICS]
    assert len(set(summary)) == len(summary)


def check_entry(metric):
    assert metric.label and metric.meaning and not metric.meaning.endswith(".")
    assert not metric.per_device or metric.compute is not None
    assert metric.better or ShownIn.PAIRED not in metric.tables, "give better=, or tables= without ShownIn.PAIRED"
    assert registry.find(metric.key) is metric
    assert metric.heading.lower() == f"{metric.label}: {metric.meaning}".lower() and not metric.heading[0].islower()


@each("metric", METRICS)
def test_an_entry_says_what_its_figure_is(metric):
    check_entry(metric)


def test_the_documentation_lists_every_figure():
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.list_metrics()
    rows = re.findall(r"^\| `(\w+)`(\*?)( [↓↑])? \| (.+) \|$", text, re.MULTILINE)
    repeated = re.findall(r"`(\w+)`", text.partition("## Repeated options")[2].partition("##")[0])
    assert {"graph", "seed", "noise_seed"} < set(repeated) and not {"epsilon", "ratio_mean"} & set(repeated)
    assert sorted([*repeated, *(row[0] for row in rows)]) == sorted(registry.summary_keys())
    sections = re.split(r"^## (?:With )?", text, flags=re.MULTILINE)
    for key, per_device, better, meaning in rows:
        m = registry.find(key)
        assert (bool(per_device), better.strip()) == (m.per_device, {"lower": "↓", "higher": "↑"}.get(m.better, ""))
        words = meaning.replace("**", "")
        assert m.meaning in words and m.unit in words
        (section,) = (one for one in sections if f"`{key}`" in one)
        assert m.needs in section.partition("\n")[0] or m.needs in words


def test_keys_that_pages_and_examples_read_exist():
    paths = [*PAGES, *(ROOT / "docs").glob("*.py"), *(ROOT / "examples").rglob("*.py")]
    text = "\n".join(path.read_text("utf-8") for path in paths if path.suffix in (".md", ".py"))
    read, own = set(re.findall(r"summary\[[\"'](\w+)[\"']\]", text)), set(re.findall(r"metrics=(\w+)", text))
    assert own < read and read - own <= set(registry.summary_keys())


@pytest.mark.slow
def test_the_example_of_the_page_runs_and_keeps_the_rules_of_an_entry(monkeypatch):
    monkeypatch.setattr(registry, "METRICS", METRICS)
    page = (ROOT / "docs" / "howto" / "pass-a-function.md").read_text("utf-8").partition("## A metric")[2]
    (code,) = re.findall(r"```python run\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "pass-a-function.md", "exec"), {})
    check_entry(registry.METRICS[-1])
    summary = here(*SMALL, "--out", "none", "--format", "json").summary
    assert np.isfinite(summary["highest"])


def test_what_no_device_has_is_null_and_what_one_lacks_is_left_out():
    table = (
        Metric("some", "some", "x", per_device=True, compute=lambda result: np.array([1.0, np.nan, 3.0])),
        Metric("most", "most", "x", per_device=True, compute=lambda _: np.array([1.0, np.nan, 3.0]), reduce=np.max),
        Metric("none", "none", "x", per_device=True, compute=lambda result: np.full(3, np.nan)),
        Metric("one", "one", "x", compute=lambda result: np.int64(4)),
    )
    result = SimpleNamespace(centroids=np.zeros((3, 1, 1)), ledger=SimpleNamespace(devices=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "METRICS", table)
        figures, devices = registry.measure(result)
    assert figures == {"some": 2.0, "most": 3.0, "none": None, "one": 4} and json.dumps(figures)
    assert list(devices) == ["some", "most", "none"]


def test_an_axis_label_names_the_unit_once():
    for one in METRICS:
        unit = f" ({one.unit})" if one.unit and one.unit not in one.label else ""
        assert one.axis == one.label + unit
    assert len({one.axis == one.label for one in METRICS}) == 2


def test_metrics_of_a_stream_use_the_rounds_of_the_method():
    rounds = [{"stage": "start", "round": 0, "wire_bytes": 3, "ratio_mean": 9.0}]
    for t, ratio in enumerate((8.0, 1.25, 1.75, None, 1.5)):
        rounds.append({"stage": "m", "round": t, "wire_bytes": 10 * t + 7, "ratio_mean": ratio})
    figures = stream_figures.worst_excess, stream_figures.mean_excess, stream_figures.bytes_per_round
    for stream, count, wanted in (("drawn", 6, (0.75, 0.5, 10.0)), ("drawn", 2, (None,) * 3), (None, 6, (None,) * 3)):
        result = build_result(rounds=rounds[:count], summary={"algorithm": "m", "stream": stream})
        assert tuple(figure(result) for figure in figures) == wanted
