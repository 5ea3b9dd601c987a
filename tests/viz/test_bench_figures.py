"""Figures and report of a benchmark: numbers in them by hand, and files that are complete and repeatable."""

import json
import re

import numpy as np
import pytest

from p2pkm import viz
from p2pkm.analysis.bench_blocks import check_rows, read_blocks
from p2pkm.analysis.bench_statistics import summarize
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.viz.figures.bench_fronts import find_front
from p2pkm.viz.figures.bench_map import average_tasks
from p2pkm.viz.report.bench_page import draw_page
from p2pkm.viz.report.write import write_report
from tests.support.bench_rows import draw_rows, row
from tests.support.drawn_text import find_outside, find_overlaps


@pytest.fixture(scope="module")
def ranking():
    return summarize(draw_rows(seeds=2))


def test_cells_of_the_map_are_means_over_graphs_and_seeds():
    rows = [row("easy", "a", 1e-4, seed=seed) for seed in range(4)] + [row("hard", "a", value, seed=seed)
            for seed, value in enumerate([0.01, 0.04, None, None])]  # fmt: skip
    tasks, cells, failed = average_tasks(read_blocks(check_rows(rows), ()), ["a"])
    assert tasks == ["easy", "hard"]
    assert cells[0] == pytest.approx([1e-4, (0.01 * 0.04) ** 0.25]) and failed[0].tolist() == [0.0, 0.5]
    texts = [text.get_text() for text in viz.plot_bench_map(rows).axes[0].texts]
    assert texts == ["0.38*", "<0.01", "14*"]


@pytest.mark.slow
def test_a_map_of_some_tasks_keeps_the_mean_over_all(ranking):
    def read(tasks):
        ax = viz.plot_bench_map(ranking, tasks=tasks).axes[0]
        return [label.get_text() for label in ax.get_xticklabels()], np.asarray(ax.images[0].get_array())

    (names, cells), (every, complete) = read(["wine-iid"]), read(None)
    assert names == ["all tasks", "wine-iid"]
    np.testing.assert_array_equal(cells, complete[:, [0, every.index("wine-iid")]])


def test_profiles_are_shares_of_runs_and_end_below_1_with_refusals():
    values = [1e-5, 0.002, 0.03, None, 5.0]
    rows = [row("t", "a", value, seed=seed) for seed, value in enumerate(values)]
    (panel,) = viz.plot_bench_profiles(rows).axes[0].child_axes
    (line,) = [line for line in panel.lines if line.get_label() == "a"]
    assert line.get_xdata() == pytest.approx([0.01, 0.01, 0.2, 3.0, 100.0])
    assert line.get_ydata() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.6])


def test_every_main_entry_is_named_in_its_panel(ranking):
    panels = viz.plot_bench_profiles(ranking).axes[0].child_axes
    named = [{text.get_text() for text in panel.texts} for panel in panels]
    trusts = [("no server",), ("server",), ("private", "raw points leave")]
    assert named == [{entry.entry for entry in ranking.main if entry.trust in trust} for trust in trusts]


def test_the_front_has_the_points_that_no_other_exceeds():
    points = np.random.default_rng(0).integers(0, 12, size=(40, 2)).tolist()
    expected = {tuple(a) for a in points if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in points)}
    front = find_front([tuple(point) for point in points])
    assert set(front) == expected and front == sorted(front)


def test_integers_are_filled_and_real_numbers_hollow(ranking):
    ax = viz.plot_bench_fronts(ranking).axes[0]
    white = [len(marks.get_offsets()) for marks in ax.collections if (marks.get_facecolor() == 1.0).all()]
    sent = [entry for entry in ranking.entries if entry.trust != "baseline"]
    assert sum(white) == sum(entry.encoding == "real" for entry in sent) == 2
    assert sum(len(marks.get_offsets()) for marks in ax.collections) == len(sent)
    with pytest.raises(DataError, match="has sent bytes"):
        viz.plot_bench_fronts([row("t", "a", 0.1, bytes_over_raw=0.0)])
    with pytest.raises(ExperimentError, match="against"):
        viz.plot_bench_fronts(ranking, against="seconds")


def test_figures_are_drawn_into_given_axes(ranking):
    from matplotlib.figure import Figure

    for draw in (viz.plot_bench_map, viz.plot_bench_profiles, viz.plot_bench_fronts):
        ax = Figure(figsize=(12, 5)).add_subplot()
        assert draw(ranking, ax) is ax.figure


@pytest.mark.slow
def test_texts_are_inside_and_apart(ranking):
    for draw in (viz.plot_bench_map, viz.plot_bench_profiles, viz.plot_bench_fronts):
        figure = draw(ranking)
        assert find_outside(figure) == [] and find_overlaps(figure) == []


@pytest.mark.slow
def test_the_folder_is_complete_and_repeatable(ranking, tmp_path):
    paths = viz.draw_bench(ranking, tmp_path / "a", ("png", "pdf"))
    names = {"ranking.csv", "ranking.tex", "ranking.txt", "report.html"}
    names |= {f"bench_{name}.{kind}" for name in ("map", "profiles", "fronts") for kind in ("png", "pdf", "data.csv")}
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "a").iterdir()} == names
    for path in viz.draw_bench(ranking.rows, tmp_path / "b", ("png", "pdf")):
        assert path.read_bytes() == (tmp_path / "a" / path.name).read_bytes()


@pytest.mark.slow
def test_the_page_has_every_task_and_method_and_loads_nothing():
    name = "<b>bold</b>"
    rows = [*draw_rows(seeds=1), *(row(f"{data}-iid", name, 0.1) for data in ("grid16", "wine"))]
    page = draw_page(summarize(rows))
    assert name not in page and "&lt;b&gt;bold&lt;/b&gt;" in page
    for entry in summarize(rows).main:
        assert f"{entry.place}. {entry.entry}".replace("<", "&lt;").replace(">", "&gt;") in page
    assert all(f"<summary>{task}: " in page for task in {item["task"] for item in rows})
    assert not re.search(r'(src|href)="(?!#|data:)', page) and "k is 9 (2 runs)" in page


def test_nothing_is_written_for_wrong_input(tmp_path):
    for rows, kinds in (([], ("png",)), ([row("t", "a", 0.1)], ("gif",))):
        with pytest.raises((DataError, ExperimentError)):
            viz.draw_bench(rows, tmp_path / "new", kinds)
    assert not (tmp_path / "new").exists()


def test_the_report_of_a_folder_is_that_of_its_rows(tmp_path, monkeypatch):
    rows = [row("wine-iid", "a", 0.1), row("wine-iid", "b", 0.2)]
    (tmp_path / "bench.json").write_text("{}")
    with pytest.raises(DataError, match=r"study.jsonl: this benchmark has not ended"):
        write_report(tmp_path, {})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    monkeypatch.setattr("p2pkm.viz.report.bench_page.draw_page", lambda ranking: ranking.conclusion())
    report = write_report(tmp_path, {})
    assert report.kind == "benchmark" and report.path.read_text() == summarize(rows).conclusion()
    (tmp_path / "rows.jsonl").write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        write_report(tmp_path, {})
