"""Every public figure refuses an object that it cannot draw by an error of ours that says what it expects."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

import p2pkm
import topologies
from p2pkm import viz
from p2pkm.core.errors import P2PKMError
from tests.viz.test_looks import ATTACK, PATH, QUALITY, run  # noqa: F401 - a fixture

ROWS = [{"algorithm": name, "graph": graph, "seed": seed, "error": None, "ratio_mean": 1.0 + seed, "bytes": 10.0,
         "rounds_to_1pct": 3, "spectral_gap": 0.1, "effective_neighbors": 2.0}
        for name in ("a", "b") for graph in ("ring", "star") for seed in (0, 1)]  # fmt: skip
DEEP = p2pkm.DeepTable((
    {"name": "a", "seed": 0, "accuracy": 0.9, "accuracy_few": 0.8, "bytes": 9, "bytes_busiest": 5},
))
FAILED = p2pkm.Study([ROWS[0] | {"error": "TrainingError: the loss is nan"}])
MORE = {  # arguments after the first, and words
    "animate": ("x.gif",), "draw_all": ("figures",), "draw_bench": (Path("figures"),),
    "draw_comparison": (Path("figures"),),
    "draw_study": (Path("figures"),), "plot_heatmap": ("algorithm", "seed"), "plot_columns": ("algorithm",),
    "plot_topology": ("a graph",),
    "plot_leaks": (np.arange(4), np.ones((4, 4), int), "leaks"), "plot_nearest": (np.eye(4), np.eye(4)),
    "plot_partition_of": (None,),
}  # fmt: skip
OWN = {  # what a figure draws, of the things below
    **{name: {"run"} for name in (
        "animate", "draw_all", "overview", "plot_bytes", "plot_convergence", "plot_devices", "plot_drift", "plot_graph",
        "plot_k", "plot_partition", "plot_points", "plot_profile", "plot_progress",
    )},
    **{name: {"study", "frame", "rows"} for name in (
        "plot_seeds", "plot_differences", "plot_study_quality", "plot_measures", "plot_heatmap", "plot_columns",
    )},
    "draw_study": {"study", "frame", "rows", "failed study", "list"}, "plot_accuracy": {"deep"},
    "plot_attack": {"attack"}, "plot_coupling_path": {"path rows"}, "plot_graphs": set(), "plot_leaks": {"square"},
    "plot_features": {"square", "rows of numbers"}, "plot_nearest": {"square"},
    "plot_partition_of": {"whole numbers", "nx graph"}, "plot_quality": {"quality"},
    "draw_comparison": {"study", "frame", "rows", "failed study", "list"},
    "plot_topology": {"topology"}, "overlay": set(), "plot_explained": set(),
    **{name: set() for name in ("draw_bench", "plot_bench_fronts", "plot_bench_map", "plot_bench_profiles")},
}  # fmt: skip


@pytest.fixture(scope="module")
def things(run):  # noqa: F811
    study = p2pkm.Study(ROWS)
    return {
        "run": run, "study": study, "frame": study.to_frame(), "rows": ROWS, "failed study": FAILED, "deep": DEEP,
        "topology": run.topology, "nx graph": topologies.ring(4), "attack": ATTACK, "path rows": PATH,
        "quality": QUALITY, "square": np.eye(4) / 2, "rows of numbers": np.ones((5, 2)), "whole numbers": [3, 1, 2],
        "nothing": None, "number": 3, "text": "/no such folder", "dict": {}, "list": [], "list of dict": [{}],
        "object": object(), "class": p2pkm.GTVMin, "shards": p2pkm.Shards.deal(np.ones((4, 2)), [0, 1, 2, 3]),
    }  # fmt: skip


def test_the_list_is_whole():
    assert set(OWN) == set(viz.__all__)


@pytest.mark.parametrize("name", viz.__all__)
@pytest.mark.sample(5)
def test_what_a_figure_cannot_draw(name, things, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for what, thing in things.items():
        if what in OWN[name]:
            continue
        with pytest.raises(P2PKMError) as error:
            getattr(viz, name)(thing, *MORE.get(name, ()))
            pytest.fail(f"{name} takes {what}")
        assert str(error.value), what
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ax", [Figure(), np.array([1]), "ax", 3], ids=["figure", "array", "text", "number"])
@pytest.mark.parametrize("name", ["plot_bytes", "plot_graph", "plot_seeds", "plot_topology", "plot_accuracy"])
def test_axes_that_are_none(name, ax, things):
    what = things[{"plot_seeds": "study", "plot_topology": "topology", "plot_accuracy": "deep"}.get(name, "run")]
    with pytest.raises(P2PKMError, match="expected the axes of a matplotlib figure"):
        getattr(viz, name)(what, *MORE.get(name, ()), ax=ax)


@pytest.mark.parametrize(
    ("name", "what", "words"),
    [
        ("plot_accuracy", "deep", {"figure": "x"}), ("plot_accuracy", "deep", {"against": "x"}),
        ("plot_seeds", "study", {"figure": "x"}), ("plot_differences", "study", {"figure": "x"}),
        ("plot_study_quality", "study", {"against": "x"}), ("plot_measures", "study", {"measures": ("x",)}),
        ("plot_measures", "study", {"value": "x"}), ("plot_quality", "quality", {"against": "x"}),
        ("plot_graph", "run", {"nodes": "x"}), ("plot_graph", "run", {"edges": "x"}),
        ("plot_progress", "run", {"against": "x"}), ("plot_devices", "run", {"devices": [99]}),
        ("plot_devices", "run", {"devices": []}), ("plot_devices", "run", {"devices": ["a"]}),
        ("plot_devices", "run", {"devices": -1}), ("animate", "run", {"fps": 0}), ("animate", "run", {"fps": "a"}),
        ("draw_all", "run", {"kinds": ("tiff",)}),
    ],
)  # fmt: skip
def test_options_that_do_not_exist(name, what, words, things, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(P2PKMError):
        getattr(viz, name)(things[what], *MORE.get(name, ()), **words)


def test_the_message_names_what_draws_it(things):
    with pytest.raises(P2PKMError, match=r"type Result; expected a DeepTable.*p2pkm.viz.plot_bytes\(result\)"):
        viz.plot_accuracy(things["run"])
    with pytest.raises(P2PKMError, match=r"type Study; expected a Result.*study.plot\(\)"):
        viz.plot_bytes(things["study"])
