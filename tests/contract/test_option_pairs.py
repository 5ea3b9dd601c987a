"""Parts that were made one by one, together: liars, faults, withheld rows, checkpoints, studies and reports."""

import json
import math
import re

import pytest

from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import SMALL, here, solve

TROUBLE = ("--faults", "loss=0.2,dropout=0.1", "--byzantine", "1:kind=nan", "--min-cluster-size", "2")


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _verdict(page):
    return re.search(r'class="verdict">(.*?)</p>', page.read_text("utf-8"), re.DOTALL).group(1)


def test_a_device_that_hears_only_nonsense_has_no_limits_and_the_objective_stays_a_number():
    summary = solve("--devices", 6, "--data", "grid16:points=4", "-k", 4, "--rounds", 3, "--partition", "iid",
                    "--robust", "saturate", "--byzantine", "2:kind=nan")  # fmt: skip
    assert summary["messages_rejected"] > 0 and math.isfinite(summary["objective"])


def test_a_dry_run_over_seeds_runs_nothing(tmp_path):
    ending = here(*SMALL, "--seeds", "3,5", "--dry-run", "--format", "json", "--out", "never")
    assert ending.summary["seeds"] == [3, 5] and [run["seed"] for run in ending.summary["runs"]] == [3, 5]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_folders_of_several_runs_are_told_from_damaged_ones(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text('devices = 4\ndata = "grid16:points=5"\nrounds = 1\nseeds = "0"\n[grid]\ngraph = ["ring"]\n')
    small = (*SMALL, "--rounds", "1", "-q")
    assert here(*small, "--seeds", "0,1", "--out", "seeds").code == 0
    assert here(*small, "--coupling-path", "10,1", "--out", "path").code == 0
    assert here("compare", *small, "--algorithm", "gtvmin", "--seeds", "0", "--out", "comparison").code == 0
    assert here("sweep", study, "--no-plot", "-q", "--out", "study").code == 0
    held = {
        "seeds": "2 runs. Use the folder of one run, such as seeds",
        "path": "a path of couplings",
        "comparison": "a comparison",
        "study": "a study",
    }
    for folder, words in held.items():
        for command in (("verify",), ("verify", "--files-only"), ("animate",)):
            ending = here(*command, folder)
            assert (ending.code, ending.out) == (3, "") and f"it contains {words}" in ending.err, ending
    assert here("verify", "seeds/seed-1").code == 0


@pytest.mark.parametrize("command", ["verify", "resume"])
def test_elsewhere_it_is_said_where_a_run_with_relative_paths_was_begun(tmp_path, monkeypatch, command):
    (tmp_path / "mine.csv").write_text("\n".join(f"{i},{i * i % 7}" for i in range(20)))
    assert here("--data", "mine.csv", "-k", 2, "--devices", 3, "--no-plot", "-q", "--out", "run").code == 0
    manifest = tmp_path / "run" / "manifest.json"
    if command == "resume":
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"state": "interrupted"}))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    ending = here(command, "../run")
    assert ending.code == 3 and f"started in {tmp_path}: try again from there" in ending.err
    monkeypatch.chdir(tmp_path)
    assert here(command, "run").code == 0


@pytest.mark.slow
def test_the_table_and_the_report_of_a_run_tell_what_struck_it(tmp_path):
    ending = here(*SMALL, *TROUBLE, "--out", "run", "-q")
    assert "minimum cluster size" in ending.out and here("report", "run").code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    said = _verdict(tmp_path / "run" / "report.html")
    assert f"Under faults (loss=0.2,dropout=0.1) {summary['messages_lost']} of the messages were lost" in said
    assert "1 device sent Byzantine messages (1:kind=nan" in said
    assert "Clusters of fewer than 2 points were suppressed in all messages." in said
    assert f"{summary['messages_rejected']} messages were rejected as malformed." in said


@pytest.mark.slow
def test_the_report_of_a_comparison_tells_what_struck_all_runs_and_how_to_repeat_them(tmp_path):
    assert here(*SMALL, *TROUBLE, "--checkpoint-every", 2, "--require-converged", "--out", "run", "-q").code in {0, 5}
    words = ("--algorithm", "gtvmin,fkm", "--seeds", "0", "--rounds", "2", "--no-plot", "-q")
    assert here("compare", "--config", "run/config.toml", *words, "--out", "both").code == 0
    assert here("report", "both").code == 0
    page = tmp_path / "both" / "report.html"
    assert "All runs with --faults loss=0.2,dropout=0.1, --byzantine 1:kind=nan" in _verdict(page)
    again = re.search(r"<pre>(python -m p2pkm compare .*?)</pre>", page.read_text("utf-8")).group(1)
    assert "--checkpoint-every" not in again and "--rank-partition" not in again
    rows = [json.loads(line) for line in (tmp_path / "both" / "study.jsonl").read_text().splitlines()]
    assert not [row for row in rows if not (row["messages_lost"] > 0 and row["messages_rejected"] > 0)]
    assert not [row for row in rows if not row["unavailable_fraction"] >= 0]


@pytest.mark.parametrize(("options", "words"), [
    (("--byzantine", "4"), "byzantine is 4 of 4 devices"),
    (("--byzantine", "1", "--algorithm", "local"), "cannot be combined with local: the method sends nothing"),
    (("--min-cluster-size", "3", "--algorithm", "ffcm1"), "--min-cluster-size 3 cannot be combined with ffcm1"),
])  # fmt: skip
def test_a_plan_refuses_what_a_run_refuses(options, words):
    plain = ("--devices", "4", "--data", "grid16:points=5", "--rounds", "2", *options)
    ending = here("plan", *plain)
    assert ending.code == 2 and words in ending.err and words in here(*plain, "--out", "none").err


@pytest.mark.slow
def test_a_plan_is_no_more_exact_where_rows_may_be_withheld():
    plain = ("plan", "--devices", "4", "--data", "grid16:points=5", "--rounds", "2", "--format", "json")
    exact = [[stage["total"]["exact_bytes"] for stage in here(*plain, *more).summary["stages"]]
             for more in ((), ("--min-cluster-size", "3"), ("--byzantine", "1:kind=nan"))]  # fmt: skip
    assert any(exact[0]) and not any(exact[1] + exact[2])


def _trace(path, count):
    """Write a trace that loses the first messages of some devices to their next neighbor."""
    lines = [{"kind": "loss", "round": t, "src": i, "dst": i + 1} for t in range(6) for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
def test_a_study_does_not_take_rows_of_another_trace_or_graph_for_its_own(tmp_path):
    words = ("compare", "--data", "grid16:points=5", "--devices", 4, "--rounds", 5, "--algorithm", "gtvmin", "--seeds",
             "0", "--no-plot", "-q", "--format", "json", "--graph", "file:g.edges", "--faults", "t.jsonl",
             "--out", "kept")  # fmt: skip

    def once(links, count):
        (tmp_path / "g.edges").write_text(links)
        _trace(tmp_path / "t.jsonl", count)
        return here(*words).summary["rows"][0]

    first = once("0 1\n1 2\n2 3\n", 1)
    assert once("0 1\n1 2\n2 3\n", 1) == first
    other = once("0 1\n1 2\n2 3\n", 3)
    assert other["messages_lost"] > first["messages_lost"] and other["key"] != first["key"]
    assert once("0 1\n1 2\n2 3\n3 0\n", 3)["messages"] > other["messages"]


def test_a_run_does_not_go_on_under_another_trace(tmp_path, monkeypatch):
    _trace(tmp_path / "t.jsonl", 1)
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*SMALL, "--faults", "t.jsonl", "--checkpoint-every", 1, "-q", "--out", "run").code == 0
    copy = sorted((tmp_path / "copies").iterdir())[0]
    _trace(tmp_path / "t.jsonl", 2)
    ending = here("resume", copy)
    assert ending.code == 3 and "the fault trace t.jsonl differs from that of the original run" in ending.err
    _trace(tmp_path / "t.jsonl", 1)
    assert difference(tmp_path / "run", resume(copy)) == ""


def test_the_star_says_how_much_of_a_ring_s_trace_it_leaves_out(tmp_path):
    assert here("faults", "loss=0.3,dropout=0.1", "--devices", 4, "--rounds", 9, "--out", "t.jsonl").code == 0
    lost = (json.loads(line)["kind"] == "loss" for line in (tmp_path / "t.jsonl").read_text().splitlines())
    ending = here(*SMALL, "--algorithm", "fkm", "--faults", "t.jsonl", "--out", "none", "-q")
    assert f"{sum(lost)} events of the fault trace are about links or a server that are not in the graph" in ending.out


def test_a_comparison_with_a_method_that_can_never_run_ends_before_the_first_run():
    words = (
        "--algorithm",
        "gtvmin,mufc",
        "--faults",
        "loss=0.1",
        "--seeds",
        "0",
        "--rounds",
        "1",
        "-q",
        "--out",
        "none",
    )
    ending = here("compare", *SMALL, *words)
    assert (ending.code, ending.out) == (2, "")
    assert (
        "the run with algorithm = mufc: --faults cannot be combined with mufc: the method adds up masked tables"
        in ending.err
    )
