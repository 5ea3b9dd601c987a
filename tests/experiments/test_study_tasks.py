"""Tasks, refusals as rows, time limits and further link models of a study."""

import json

import pytest

import p2pkm
from tests.support.each import each
from tests.support.run_cli import here
from tests.support.sampling import thin

SMALL = {"devices": 4, "rounds": 20, "progress": False, "seeds": [0, 1]}
TASKS = [
    {"name": "a", "data": "grid16:points=5", "known": {"radius": 20.0, "epsilon": 8.0}, "reference_cost": 100.0},
    {"name": "b", "data": "iris", "known": {"radius": 10.0, "epsilon": 8.0}, "reference_cost": {0: 50.0, 1: 80.0}},
]


@pytest.mark.slow
def test_tasks_are_combined_with_everything_else():
    found = p2pkm.study(tasks=TASKS, grid={"algorithm": ["consensus", "private", "kfed"]}, **SMALL)
    assert [(row["task"], row["seed"]) for row in found.rows] == [("a", 0), ("a", 1)] * 3 + [("b", 0), ("b", 1)] * 3
    radius = {row["task"]: row["algorithm"] for row in found.rows if row["algorithm"].startswith("private")}
    assert radius == {"a": "private:radius=20,epsilon=8", "b": "private:radius=10,epsilon=8"}
    assert {row["algorithm"] for row in found.rows} >= {"consensus", "kfed"}
    for row in found.rows:
        reference = 100.0 if row["task"] == "a" else [50.0, 80.0][row["seed"]]
        assert row["excess"] == row["cost_mean"] / reference - 1
        assert row["cost_mean"] == pytest.approx(row["ratio_mean"] * row["cost_central"], rel=1e-12)
    assert len(found.configurations()) == 6


def test_tasks_of_a_study_file(tmp_path):
    text = 'devices = 4\nrounds = 3\nplot = false\nseeds = "0"\nrefusals = "rows"\nlink_models = ["lan"]\n[grid]\n'
    text += 'algorithm = ["consensus", "private"]\n[[tasks]]\nname = "a"\ndata = "iris"\nscale = "standard"\n'
    text += "known = { radius = 10.0, epsilon = 8.0 }\nreference_cost = { 0 = 140.0 }\n"
    (tmp_path / "s.toml").write_text(text)
    done = here("sweep", tmp_path / "s.toml", "--out", tmp_path / "s", "-q", "--format", "json")
    assert done.code == 4  # one configuration is rejected
    rows = json.loads(done.out)["rows"]
    assert [row["termination"] for row in rows][1] == "rejected" and "scale" in rows[1]["error"]
    assert rows[0]["task"] == "a" and rows[0]["excess"] == rows[0]["cost_mean"] / 140 - 1
    assert rows[0]["seconds_lan"] > 0
    again = here("resume", tmp_path / "s", "-q", "--format", "json")
    assert json.loads(again.out)["rows"][0] == rows[0]


def test_rejected_configurations_end_a_study_unless_they_are_rows():
    grid = {"algorithm": ["consensus", "private"]}
    with pytest.raises(p2pkm.ExperimentError, match="epsilon"):
        p2pkm.study(grid=grid, data="iris", **SMALL)
    found = p2pkm.study(grid=grid, data="iris", refusals="rows", **SMALL)
    assert [row["termination"] == "rejected" for row in found.rows] == [False, False, True, True]


@each(
    ("options", "message"),
    [
        ({"tasks": [{"data": "iris"}]}, "name is None"),
        ({"tasks": [TASKS[0], TASKS[0]]}, "that no other task has"),
        ({"tasks": [{"name": "a", "known": 3}]}, "known is 3"),
        ({"tasks": [{"name": "a", "reference_cost": 0}]}, "reference_cost"),
        ({"tasks": [{"name": "a", "dat": "iris"}]}, "Did you mean 'data'"),
        ({"tasks": [{"name": "a", "seed": 3}]}, "seed cannot differ"),
        ({"tasks": ["iris"]}, "expected options"),
        ({"refusals": "drop"}, "refusals"),
        ({"time_limit": 0}, "time_limit"),
        ({"link_models": ["moon"]}, "moon"),
        ({"tasks": TASKS, "grid": {"data": ["iris"]}}, "data is set in .*tasks.* and in .*grid"),
    ],
)
def test_mistakes(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        p2pkm.study(**{**SMALL, **options})


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", thin(["gossip", "gtvmin", "kfed"], 3))
def test_times_on_several_link_models_are_those_of_single_runs(algorithm):
    options = {"algorithm": algorithm, "data": "grid16:points=5", "devices": 5, "seeds": [3], "progress": False}
    (row,) = p2pkm.study(link_models=["lan", "edge"], **options).rows
    for name in ("lan", "edge"):
        (alone,) = p2pkm.study(link_model=name, **options).rows
        assert row[f"seconds_{name}"] == alone["virtual_seconds"] > 0
    (both,) = p2pkm.study(link_models=["wan"], link_model="lan", **options).rows
    assert both["virtual_seconds"] == row["seconds_lan"] < both["seconds_wan"]


def test_integers_where_possible():
    rows = p2pkm.study(
        grid={"algorithm": ["consensus", "coreset"], "quantize": ["possible", "rice", "none"]}, data="iris",
        refusals="rows", **{**SMALL, "seeds": [0]},
    ).rows  # fmt: skip
    hashes = [row.get("centroids_sha256") for row in rows]
    assert hashes[0] == hashes[1] != hashes[2] and hashes[3] == hashes[5]
    assert [row.get("message_encoding") for row in rows] == ["integer", "integer", "real", "real", None, "real"]
    assert rows[4]["termination"] == "rejected"
