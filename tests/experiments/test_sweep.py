import json
import signal
import subprocess
import sys
import time

import pytest

import p2pkm
import p2pkm.experiments.studies.run_study
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import Silent
from p2pkm.experiments.studies.engine import StudyProgress
from p2pkm.experiments.studies.fingerprint import Fingerprints
from p2pkm.experiments.studies.run_study import run_cell
from tests.support.run_cli import environment, here, ranks, there
from tests.support.stored_rows import list_lines, lose_rows

STUDY = """
devices = 4
data = "grid16:points=5"
rounds = 6
plot = false
seeds = "0-1"
[grid]
algorithm = ["gtvmin", "consensus", "fkm"]
graph = ["ring", "path"]
"""
VARYING = ("wall_seconds",)
RUNS = 2 * (2 * 2 + 1)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return path


def table(folder):
    rows = [json.loads(line) for line in (folder / "study.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in VARYING} for row in rows]


@pytest.mark.slow
def test_a_sweep_leaves_one_tidy_table(file, tmp_path):
    ending = here("sweep", file, "--out", tmp_path / "s", "--format", "json", "-q")
    assert ending.code == 0 and not ending.err
    answer = json.loads(ending.out)
    assert (answer["runs"], answer["ended"], answer["failed"]) == (RUNS, RUNS, 0)
    rows = [json.loads(line) for line in (tmp_path / "s/study.jsonl").read_text().splitlines()]
    assert rows == answer["rows"]
    assert len({tuple(row) for row in rows}) == 1  # the same columns in all
    assert not any(isinstance(value, (list, dict)) for row in rows for value in row.values())
    assert [(row["algorithm"], row["graph"], row["seed"]) for row in rows][::2] == [
        ("gtvmin", "ring", 0), ("gtvmin", "path", 0), ("consensus", "ring", 0), ("consensus", "path", 0),
        ("fkm", "server", 0),
    ]  # fmt: skip
    ring = rows[0]
    assert (ring["diameter"], ring["degree_mean"], ring["mean_path"]) == (2, 2.0, 4 / 3)
    assert ring["algebraic_connectivity"] == pytest.approx(2.0)
    assert ring["spectral_gap"] == pytest.approx(2 / 3)
    assert rows[-1]["spectral_gap"] is None  # a server has no graph of devices
    traces = [json.loads(line) for line in (tmp_path / "s/traces.jsonl").read_text().splitlines()]
    assert [one["key"] for one in traces] == [row["key"] for row in rows]
    assert traces[0]["trace"][-1][1] == ring["bytes"]


@pytest.mark.slow
def test_processes_leave_the_same_table_as_one(file, tmp_path):
    assert here("sweep", file, "--out", tmp_path / "one", "-q").code == 0
    assert here("sweep", file, "--out", tmp_path / "two", "--jobs", "2", "-q").code == 0
    assert table(tmp_path / "one") == table(tmp_path / "two")


@pytest.mark.mpi
def test_ranks_leave_the_same_table_as_one(file, tmp_path):
    done = there(*ranks(3), "-m", "p2pkm", "sweep", file, "--out", tmp_path / "three", "-q")
    assert done.code == 0, done.err
    assert here("sweep", file, "--out", tmp_path / "one", "-q").code == 0
    assert table(tmp_path / "one") == table(tmp_path / "three")
    refused = there(*ranks(2), "-m", "p2pkm", "sweep", file, "--jobs", "2")
    assert refused.code == 2 and "mpirun" in refused.out + refused.err


@pytest.mark.slow
def test_shares_of_a_study_meet_in_one_folder(file, tmp_path, monkeypatch):
    computed = []
    execute = p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: computed.append(given[0]) or execute(*given)
    )
    words = ("sweep", file, "--out", tmp_path / "s", "-q", "--format", "json")
    counts = []
    for number in (2, 1, 3):  # in any order
        answer = json.loads(here(*words, "--part", f"{number}/3").out)
        assert answer["part"] == f"{number}/3" and answer["ended"] == answer["runs"] == len(answer["rows"])
        counts.append(answer["runs"])
        assert {path.name for path in (tmp_path / "s").iterdir()} == {"study.toml", "runs"}
    assert sum(counts) == RUNS == len(computed) and max(counts) - min(counts) <= 1
    assert here(*words).code == 0 and len(computed) == RUNS
    assert here("sweep", file, "--out", tmp_path / "one", "-q").code == 0
    assert table(tmp_path / "s") == table(tmp_path / "one")
    assert (tmp_path / "s/study.toml").read_text() == (tmp_path / "one/study.toml").read_text()


def test_shares_may_be_more_than_runs(file, tmp_path):
    ending = here("sweep", file, "--out", tmp_path / "s", "-q", "--part", f"{RUNS + 1}/{RUNS + 1}")
    assert ending.code == 0 and f"part {RUNS + 1}/{RUNS + 1} is stored" in ending.out


@pytest.mark.slow
def test_shares_that_begin_at_once_share_a_folder(file, tmp_path):
    words = [sys.executable, "-m", "p2pkm", "sweep", str(file), "--out", str(tmp_path / "s"), "-q", "--part"]
    jobs = [subprocess.Popen([*words, f"{number}/4"], env=environment(), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True) for number in (1, 2, 3, 4)]  # fmt: skip
    assert [(job.communicate(timeout=100)[1], job.returncode) for job in jobs] == [("", 0)] * 4
    assert len(list_lines(tmp_path / "s")) == RUNS and len(list((tmp_path / "s/runs").iterdir())) <= 4


@pytest.mark.parametrize("part", ["0/3", "4/3", "1", "1/0", "a/b", "1/3/5", "-1/3", "1.0/3"])
@pytest.mark.sample(3)
def test_shares_that_cannot_be(file, tmp_path, part):
    ending = here("sweep", file, "--out", tmp_path / "s", "--part", part)
    assert ending.code == 2 and f"--part is {part}; expected i/n" in ending.err
    assert not (tmp_path / "s").exists()


def test_shares_need_a_place_to_meet(file):
    for out in ([], ["--out", "none"]):
        ending = here("sweep", file, *out, "--part", "1/2")
        assert ending.code == 2 and "Add --out FOLDER" in ending.err


def test_the_number_of_devices_does_not_come_from_the_launcher(file, tmp_path, monkeypatch):
    file.write_text(STUDY.replace("devices = 4", "").replace('"0-1"', "[0]"))
    monkeypatch.setenv("PMI_SIZE", "1")
    assert (
        p2pkm.experiments.studies.run_study.run_cell(
            p2pkm.experiments.studies.run_study.RunOptions(data="grid16:points=5", rounds=2), None
        )["devices"]
        == 16
    )


@pytest.mark.slow
def test_a_study_goes_on_where_it_was(file, tmp_path, monkeypatch):
    computed = []
    execute = p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: computed.append(given[0]) or execute(*given)
    )
    assert here("sweep", file, "--out", tmp_path / "s", "-q").code == 0
    assert len(computed) == RUNS
    before = table(tmp_path / "s")
    lose_rows(tmp_path / "s", 1)
    assert here("sweep", file, "--out", tmp_path / "s", "-q").code == 0
    assert len(computed) == RUNS + 1
    assert table(tmp_path / "s") == before
    file.write_text(STUDY.replace('"0-1"', '"0-2"'))
    assert here("sweep", tmp_path / "s" / "study.toml", "--out", tmp_path / "s", "-q").code == 0
    assert here("sweep", file, "--out", tmp_path / "s", "-q").code == 0
    assert len(computed) == RUNS + 1 + RUNS // 2


def test_a_run_is_computed_again_if_a_file_that_it_names_has_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = {
        "p.csv": "x,label\n0,a\n1,b\n5,b\n6,a\n",
        "c.csv": "0\n5\n",
        "g.txt": "0 1\n1 2\n2 3\n",
        "t.jsonl": '{"kind": "loss", "round": 1, "src": 0, "dst": 1}\n',
    }
    for name, text in first.items():
        (tmp_path / name).write_text(text)
    cell = RunOptions(data="p.csv", devices=4, clusters=2, true_centers="c.csv", graph="file:g.txt", faults="t.jsonl")
    row = run_cell(cell)
    assert row["error"] is None
    keys = [row["key"]]
    for name, (old, new) in {"p.csv": ("6,a", "6,b"), "c.csv": ("5", "6"), "g.txt": ("1 2", "0 2"),
                             "t.jsonl": ('"round": 1', '"round": 2')}.items():  # fmt: skip
        (tmp_path / name).write_text(first[name].replace(old, new))
        keys.append(Fingerprints().find(cell))
    assert len(set(keys)) == 5
    for name, text in first.items():
        (tmp_path / name).write_text(text)
    assert Fingerprints().find(cell) == keys[0]


def test_keys_found_together_differ_and_are_those_found_one_by_one():
    cells = [RunOptions(graph=graph, rounds=rounds, seed=seed)
             for graph in ("ring", "path") for rounds in (1, 11) for seed in (0, 1, 11)]  # fmt: skip
    together = Fingerprints().find_all(cells)
    assert len(set(together)) == len(cells)
    assert together == [Fingerprints().find(cell) for cell in reversed(cells)][::-1]


def test_the_busiest_device_sends_and_receives():
    row = run_cell(RunOptions(data="grid16:points=5", devices=4, algorithm="fkm", rounds=3, plot=False), None)
    assert row["bytes_busiest"] == row["bytes"]  # all of it goes over the server


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_a_study_that_can_go_on(file, tmp_path, jobs):
    file.write_text(STUDY.replace("points=5", "points=400").replace('"0-1"', '"0-39"'))
    words = [sys.executable, "-m", "p2pkm", "sweep", str(file), "--out", str(tmp_path / "s"), "--jobs", str(jobs)]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 100
    while not list_lines(tmp_path / "s") and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "continue with: python -m p2pkm resume" in out
    rows = table(tmp_path / "s")
    assert 0 < len(rows) < 5 * 40
    assert not [row for row in rows if row["error"] is not None]
    assert {row["key"] for row in rows} <= list_lines(tmp_path / "s").keys()


@pytest.mark.slow
def test_a_failed_run_is_a_row_and_code_4_and_is_tried_again_if_asked(file, tmp_path, monkeypatch):
    execute = p2pkm.experiments.studies.run_study.execute

    def fail(prepared, *more):
        if (prepared.options.algorithm, prepared.options.seed) == ("gtvmin", 1):
            raise p2pkm.DataError("seed 1 is unlucky")
        return execute(prepared, *more)

    monkeypatch.setattr(p2pkm.experiments.studies.run_study, "execute", fail)
    ending = here("sweep", file, "--out", tmp_path / "s")
    assert ending.code == 4
    assert "2 runs failed" in ending.out and "seed 1 is unlucky" in ending.err
    rows = table(tmp_path / "s")
    failed = [row for row in rows if row["error"]]
    assert [(row["graph"], row["termination"], row["ratio_mean"]) for row in failed] == [
        ("ring", "failed", None), ("path", "failed", None)
    ]  # fmt: skip
    monkeypatch.undo()
    again = here("sweep", file, "--out", tmp_path / "s")
    assert again.code == 4 and "2 stored runs ended without a result; --retry-failed repeats them" in again.err
    assert here("sweep", file, "--out", tmp_path / "s", "-q", "--retry-rejected").code == 4
    assert here("sweep", file, "--out", tmp_path / "s", "-q", "--retry-failed").code == 0
    assert not [row for row in table(tmp_path / "s") if row["error"]]


def test_mistakes_are_refused_before_anything_is_written(file, tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.tex").write_text("precious")
    bad, worse = tmp_path / "bad.toml", tmp_path / "worse.toml"
    bad.write_text("[grid]\ngrahp = ['ring']")
    worse.write_text("devices = 4\n[grid]\ngraph = ['random-regular:degree=9']")
    for words, code in (
        ((), 2),
        ((tmp_path / "none.toml",), 2),
        ((bad,), 2),
        ((worse,), 3),
        ((file, "--jobs", "0"), 2),
        ((tmp_path / "none.toml", "--jobs", "2"), 2),
        ((file, "--out", used), 2),
        ((file, "--out", file), 2),
    ):
        ending = here("sweep", *words, *(("--out", tmp_path / "new") if "--out" not in words else ()))
        assert ending.code == code, (words, ending.err)
        assert ending.err and "Traceback" not in ending.err and "mpirun" not in ending.err
    assert not (tmp_path / "new").exists()
    assert [path.name for path in used.iterdir()] == ["thesis.tex"]


def test_the_folder_of_a_comparison_is_not_taken_for_a_study(file, tmp_path):
    words = ("compare", "--algorithm", "gtvmin", "--data", "grid16:points=5", "--devices", "4", "--rounds", "2",
             "--seeds", "0", "--no-plot", "-q")  # fmt: skip
    assert here(*words, "--out", tmp_path / "c").code == 0
    ending = here("sweep", file, "--out", tmp_path / "c")
    assert ending.code == 2 and "does not hold a sweep" in ending.err
    study = p2pkm.Study.load(tmp_path / "c")
    assert study.rows[0]["diameter"] == 2 and "trace" not in study.rows[0]


def test_a_dry_run_says_which_runs_there_are(file, tmp_path):
    ending = here("sweep", file, "--dry-run", "--out", tmp_path / "s")
    assert ending.code == 0 and not (tmp_path / "s").exists()
    assert ending.out.splitlines()[0] == "10 runs: 5 with seeds 0, 1 each"
    assert "algorithm = fkm" in ending.out
    (tmp_path / "one.toml").write_text('seeds = [3]\n[grid]\nalgorithm = ["gtvmin"]\n')
    assert here("sweep", tmp_path / "one.toml", "--dry-run").out.splitlines()[0] == "1 run: 1 with seed 3 each"
    found = json.loads(here("sweep", file, "--dry-run", "--format", "json").out)
    assert found["runs"] == len(found["cells"]) == RUNS


def test_the_example_and_the_help_show_a_study_file(tmp_path):
    example = here("sweep", "--example")
    assert example.code == 0
    (tmp_path / "e.toml").write_text(example.out)
    assert here("sweep", tmp_path / "e.toml", "--dry-run").out.startswith("50 runs: 10 with seeds 0, 1, 2, 3, 4 each")
    assert "[[runs]]" in here("sweep", "--help").out


def test_rounds_that_were_asked_for_stand_beside_those_that_were_run(file, tmp_path):
    file.write_text('devices = 4\ndata = "grid16:points=5"\nplot = false\nseeds = [0]\n[grid]\nrounds = [1, 2]\n')
    ending = here("sweep", file, "--out", tmp_path / "s", "-q")
    assert ending.code == 0
    assert [(row["rounds_asked"], row["rounds"]) for row in table(tmp_path / "s")] == [(1, 1), (2, 2)]
    assert "rounds_asked" in ending.out


@pytest.mark.slow
def test_a_table_is_read_as_a_frame(file, tmp_path):
    assert here("sweep", file, "--out", tmp_path / "s", "-q").code == 0
    study = p2pkm.load_study(tmp_path / "s")
    assert len(study.rows) == RUNS and study.path == tmp_path / "s"
    page = study._repr_html_()
    assert "Study of 10 runs" in page and page.count("<tr>") == 11 and "and" not in page.split("</table>")[1]
    import pandas

    frame = study.to_frame()
    assert isinstance(frame, pandas.DataFrame) and frame.shape[0] == RUNS
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "s/study.parquet").to_pylist() == study.rows


@pytest.mark.slow
def test_what_an_interrupted_study_has_kept_can_be_read(file, tmp_path):
    assert here("sweep", file, "--out", tmp_path / "s", "-q").code == 0
    (tmp_path / "s/study.jsonl").unlink()
    assert len(p2pkm.Study.load(tmp_path / "s").rows) == RUNS
    with pytest.raises(p2pkm.DataError, match="not the folder of a study"):
        p2pkm.load_study(tmp_path)


def test_the_time_left_is_told_by_the_last_runs_and_not_by_the_first(monkeypatch, capsys):
    """The first run takes five minutes of compilation, the others a second: 97 s are left, not eight hours."""
    now = [0.0]
    monkeypatch.setattr("p2pkm.experiments.studies.engine.time.monotonic", lambda: now[0])
    told = StudyProgress(Silent(), quiet=False)
    row = {"algorithm": "fkm", "graph": "server", "seed": 0, "error": None, "ratio_mean": 1.0}
    for number, end in enumerate((300.0, 301.0, 302.0), 1):
        now[0] = end
        told(row, number, 100)
    assert "left" not in capsys.readouterr().err
    for number in range(4, 101):
        now[0] += 1.0
        told(row, number, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "5 of 100: fkm with a server, seed 0: ratio 1.0000, about 95 s left"
    assert "left" not in lines[-1]
