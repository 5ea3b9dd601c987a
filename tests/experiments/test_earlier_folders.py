"""Folders of studies that version 0.1.0 and the development versions after it have written are still read."""

import json
import shutil
from pathlib import Path

import pytest

import p2pkm
from p2pkm.experiments.bench.suites import read_suite
from p2pkm.storage.run_status import describe_run_collection
from p2pkm.storage.study_mark import read_mark
from tests.support.run_cli import here

EARLIER = Path(__file__).with_name("earlier_folders")


@pytest.fixture
def folders(tmp_path):
    return shutil.copytree(EARLIER, tmp_path / "earlier")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_studies_and_comparisons_are_loaded_with_their_rows(folders):
    assert p2pkm.load_study(folders / "sweep").rows == lines(folders / "sweep/study.jsonl")
    compared = p2pkm.load_study(folders / "comparison")
    assert compared.margin == 0.01
    assert compared.rows == [
        {name: value for name, value in row.items() if name != "trace"}
        for row in lines(folders / "comparison/rows.jsonl")
    ]
    (folders / "comparison/rows.jsonl").unlink()  # as after a kill
    (kept,) = p2pkm.load_study(folders / "comparison").rows
    assert kept["ratio_mean"] in [row["ratio_mean"] for row in compared.rows]


def test_a_comparison_is_continued_in_the_form_of_today(folders):
    ending = here("resume", folders / "comparison", "-q")
    assert ending.code == 0 and "compared with fkm, same seeds" in ending.out
    found, before = p2pkm.load_study(folders / "comparison"), lines(folders / "comparison/rows.jsonl")
    names = ("algorithm", "graph", "seed", "devices", "points_sha256")
    assert [[row[name] for name in names] for row in found.rows] == [[row[name] for name in names] for row in before]
    assert found.margin == 0.01 and read_mark(folders / "comparison")["reference"] == "fkm"
    words = ("compare", "--algorithm", "local,fkm", "--graph", "path", "--seeds", "0-1", "--devices", "2", "--data",
             "grid16:points=2", "--rounds", "1", "--no-plot", "-q", "--out", folders / "comparison")  # fmt: skip
    assert here(*words).code == 0 and len(p2pkm.load_study(folders / "comparison").rows) == 4


@pytest.mark.slow
def test_a_report_shows_an_earlier_comparison_and_its_command(folders):
    assert here("report", folders / "comparison").code == 0
    page = (folders / "comparison/report.html").read_text()
    words = (
        "compare --algorithm local,fkm --graph path --seeds 0 --devices 2 --data grid16:points=2 --rounds 1 --no-plot"
    )
    assert words in page


def test_a_benchmark_is_loaded_and_continued(folders):
    before = p2pkm.Benchmark.load(folders / "bench")
    assert before.rows == lines(folders / "bench/rows.jsonl")
    # Its tasks have other seeds today, so a benchmark of the suite's first version would not be continued.
    mark = folders / "bench/bench.json"
    mark.write_text(json.dumps(json.loads(mark.read_text()) | {"version": read_suite("core").version}))
    assert here("resume", folders / "bench", "-q").code == 0
    names = ("task", "graph", "seed", "entry", "status")
    after = p2pkm.Benchmark.load(folders / "bench")
    assert [[row[name] for name in names] for row in after.rows] == [
        [row[name] for name in names] for row in before.rows
    ]


@pytest.mark.slow
def test_a_report_shows_an_earlier_benchmark(folders):
    assert here("report", folders / "bench").code == 0


def test_seeds_and_paths_are_known_for_what_they_are(folders):
    # Another program may give other results, so that earlier seeds are not continued.
    ending = here("resume", folders / "seeds")
    assert ending.code in (2, 3)
    assert "differ from those of the original runs" in ending.err or "was started with p2pkm" in ending.err
    assert "a path of couplings" in describe_run_collection(folders / "path")
    ending = here("resume", folders / "path")
    assert ending.code == 3 and "it contains a path of couplings" in ending.err


@pytest.mark.parametrize("folder", ["sweep", "comparison", "bench", "seeds", "path"])
def test_another_kind_of_study_does_not_take_the_folder(folders, folder):
    study = folders / "s.toml"
    study.write_text('rounds = 1\ndata = "grid16:points=2"\nseeds = [0]\n[grid]\ngraph = ["ring", "path"]\n')
    words = ("sweep", study) if folder != "sweep" else ("bench", "--task", "few-iid", "--algorithm", "local")
    before = {path: path.read_bytes() for path in (folders / folder).rglob("*") if path.is_file()}
    ending = here(*words, "--out", folders / folder)
    assert ending.code == 2 and "is not empty and does not hold a" in ending.err
    assert before == {path: path.read_bytes() for path in (folders / folder).rglob("*") if path.is_file()}
