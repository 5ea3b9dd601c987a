"""The table of speed can be printed; nothing is said here of how fast anything is."""

import ast
import csv
import math
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import topologies
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from tests.benchmarks import against, arena, roofline, samples, scale, stored, sweeps, versions
from tests.benchmarks.__main__ import ROWS, cells, draw, draw_markdown, find
from tests.benchmarks.figure import Figure, of_trials, show, slopes
from tests.benchmarks.peers import fkm, fkm_twin, quality
from tests.support.each import each


@pytest.mark.slow
def test_two_rows_with_tiny_sizes(monkeypatch):
    monkeypatch.setattr(sweeps, "UPDATES", {(2, 2, 400): 1.0, (3, 4, 300): 1.0})
    monkeypatch.setattr(sweeps, "_MILLION", 200)
    monkeypatch.setattr(sweeps, "_THOUSAND", 50)
    figures = find("updates")(True) + find("growth")(False)
    assert [figure.what for figure in figures] == [
        "device-updates on one thread, k = 2, d = 2, 20 devices",
        "device-updates on one thread, k = 3, d = 4, 15 devices",
        "cost of a device-update, 200 devices over 50",
    ]
    assert all(0 < figure.value < math.inf for figure in figures)
    assert len(draw(figures)) == 4 and len(draw_markdown(figures)) == 5


def test_the_loop_over_devices_computes_what_the_sweep_does():
    stage = arena.build(30, 3, 2)
    against.check(stage, against.take(stage, 30))


def test_devices_without_points_or_links_play_as_many_rounds_as_are_asked_for():
    stage = arena.build(20, 3, 2)
    centroids = stage.without_links().play(1)[0].state.centroids
    assert not np.array_equal(centroids, stage.play(1)[0].state.centroids)
    still = stage.without_links().without_points()
    assert len(still.play(3)[1]) == 1 and len(still.clock(3)) == 3
    assert stage.without_points().devices.indptr[-1] == stage.topology.indptr[-1]


def test_an_update_is_counted_by_its_formula():
    assert roofline.count(4, 2) == (2400 + 200 + 6 * (96 + 16), 1600 + 128 + 6 * 68)


def test_a_figure_knows_whether_it_meets_its_target():
    assert Figure("a", 2.0, "x", "at least", 2.0).verdict == "met"
    assert Figure("a", 2.0, "x", "more than", 2.0).verdict == "MISSED"
    assert Figure("a", 2.0, "x", "at most", 1.9).verdict == "MISSED"
    assert cells(Figure("a", 2.0, "GB/s")) == ("a", "2 GB/s", "", "", "")


def test_times_are_shown_in_their_unit():
    assert [show(1.5), show(0.0254), show(3.4e-6), show(7e-8)] == ["1.5 s", "25.4 ms", "3.4 µs", "70 ns"]


def test_a_slope_is_the_time_of_one_step():
    assert slopes([1.0, 2.0, 1.0], [3.0, 4.0, 9.0], 10) == pytest.approx([0.2, 0.2, 0.8])


def test_a_figure_of_trials_that_differ_has_no_verdict():
    calm = of_trials("a", [1.0, 1.1, 1.05], ("x", "at most", 1.3))
    assert (calm.value, calm.verdict) == (1.05, "met")
    wild = of_trials("a", [0.5, 1.1, 2.0], ("x", "at most", 1.3))
    assert wild.verdict == "too noisy" and cells(wild)[1] == "0.8 to 1.55 x"
    hidden = of_trials("a", [-0.3, 0.241, 0.2], ("x", "at least", 1.0))
    assert cells(hidden) == ("a", "not measurable", "at least 1 x", "too noisy", "")


def test_a_stored_table_replaces_the_one_before(tmp_path):
    path = tmp_path / "speed.csv"
    head = "id,setting,row,statistic,value,unit,seeds,command,version,machine,date\n"
    path.write_text(
        f"{head}benchmarks.1,,old,measured,3 s,,-,x,0,any,2020-01-01\nother.1,,a,value,1,,-,x,0,any,2020-01-01\n"
    )
    line = dict(zip(("what", "measured", "target", "result", "from"), cells(Figure("job", 2.0, "s")), strict=True))
    stored.write([line], "abcdef12", "a machine", path)
    with path.open(newline="") as file:
        first, other = csv.DictReader(file)
    assert (first["id"], first["row"], first["statistic"], first["value"]) == ("benchmarks.1", "job", "measured", "2 s")
    assert first["version"].endswith("at abcdef12") and first["machine"] == "a machine"
    assert other["id"] == "other.1"


def test_two_versions_are_related_row_by_row():
    def figures(seconds, memory):
        return [Figure("time", seconds, "s", "at most", 1.0), Figure("memory", memory, "GB")]

    ratios = versions.relate([(figures(2.0, 4.0), figures(1.0, 4.0)), (figures(4.0, 4.0), figures(2.4, 4.0))] * 2)
    assert [(ratio.what, ratio.value) for ratio in ratios] == [
        ("time: new over old", pytest.approx(0.55)), ("memory: new over old", 1.0),
    ]  # fmt: skip


def test_a_sample_belongs_to_the_outermost_named_function_of_the_program():
    frames = None
    for name, module in (("main", "__main__"), ("run_stage", "p2pkm.a"), ("send", "p2pkm.b"), ("record", "p2pkm.b"),
                         ("send", "numpy")):  # fmt: skip
        code = SimpleNamespace(co_name=name)
        frames = SimpleNamespace(f_back=frames, f_code=code, f_globals={"__name__": module})
    parts = {"run_stage": "loop", "record": "records", "send": "messages"}
    assert samples.find_part(frames, parts) == "messages"
    assert samples.find_part(frames, {"run_stage": "loop"}) == "loop"
    assert samples.find_part(frames, {}) == samples.find_part(None, parts) == "preparation"


@pytest.mark.slow
@pytest.mark.skipif(not Path(__file__).parents[2].joinpath(".git").exists(), reason="not a clone of the repository")
def test_a_revision_is_measured_by_its_own_packages():
    with versions.check_out("HEAD") as home:
        assert (home / "p2pkm/__init__.py").is_file() and (home / "tests/benchmarks/__main__.py").is_file()
        command = [sys.executable, "-c", "import p2pkm; print(p2pkm.__file__)"]
        done = subprocess.run(
            command, cwd=home, env=os.environ | {"PYTHONPATH": str(home)}, capture_output=True, text=True
        )
        assert Path(done.stdout.strip()).is_relative_to(home)
    with (
        pytest.raises(SystemExit, match="--against is nosuch; expected a revision of git"),
        versions.check_out("nosuch"),
    ):
        pass


def test_every_row_is_found_and_another_name_is_refused():
    assert all(callable(find(name)) for name in ROWS)
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", "nonsense"], capture_output=True, text=True, timeout=60,
        env=os.environ,
    )  # fmt: skip
    assert done.returncode == 2 and "nonsense" in done.stderr and "roofline" in done.stderr


def test_centroids_of_a_peer_are_compared_whatever_their_order():
    ours = [[0.0, 1.0], [2.0, 3.0]]
    assert fkm.measure_gap(ours[::-1], ours) == 0.0
    assert fkm.measure_gap([[0.0, 1.0], [0.0, 1.0]], ours) == 2.0  # a centroid that nobody is near to counts, too


def test_a_row_of_a_peer_leaves_the_server_out():
    line = {"t": 2, "model": [[0.0]], "now": 14.0, "cpu": 3.0, "versions": {"numpy": "2"}}
    ours = [line | {"updates": 100, "clients": 1.0, "server": 1.0}] * 2
    seen = fkm.Seen([line | {"updates": 10, "clients": 1.0, "server": 3.0}], 5_000_000, 10.0, "")
    assert fkm.cells("pfl", 10, seen, ours) == (
        "pfl (numpy 2)", "10", "10", "10.0 x", "2", "2", "4.0 s, 3.0 s", "5 MB", "equal (0.0e+00)")  # fmt: skip
    assert fkm.cells("pfl", 10, seen._replace(rounds=[]), ours)[2] == "no round"


def test_the_family_of_a_process_has_its_children():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert {os.getpid(), child.pid} <= {one for one, _ in fkm_twin.list_family(os.getpid())}
    assert os.getpid() not in {one for one, _ in fkm_twin.list_family(child.pid)}
    child.communicate(b"\n")


def test_a_step_of_a_peers_client_drops_rows_of_less_than_two_points():
    points = np.array([[0.0, 0.0], [2.0, 0.0], [10.0, 0.0]])
    assert fkm_twin.step(points, np.array([[1.0, 0.0], [9.0, 0.0], [99.0, 0.0]])).tolist() == [[1.0, 0.0, 2.0]]


def test_what_is_compared_in_quality_is_priced_alike():
    points = quality.unbalanced(4, 0)
    assert quality.price(points, np.array([points.mean(axis=0), [np.inf, np.inf]])) == pytest.approx(
        ((points - points.mean(axis=0)) ** 2).sum())  # fmt: skip


@pytest.mark.parametrize(
    ("graph", "ranks", "n"), [("torus", 4, 64), ("torus", 1, 64), ("random-regular:degree=4", 4, 4000)]
)
def test_sizes_of_a_rank_follow_from_the_graph(graph, ranks, n):
    family, _, options = graph.partition(":")
    options = {"degree": 4} if options else {}
    topology = Topology.from_graph(topologies.build(family, n, light=True, **options))
    part, sizes = place(topology, ranks // 2, ranks), scale.place(graph, ranks, n)
    cut = sum(len(peer.send_edges) for peer in part.peers)
    tolerance = 0.05 if options else 0.0
    assert (len(part.ids), topology.n, len(part.peers)) == (sizes["local"], sizes["total"], sizes["peers"])
    assert len(part.ghosts) == pytest.approx(sizes["halo"], rel=tolerance)
    assert cut == pytest.approx(sizes["cut"], rel=tolerance)


def test_constants_of_scale_are_those_that_made_the_measurements():
    def build(role, local, total, halo):
        sizes = {"local": local, "total": total, "halo": halo, "cut": 2 * halo, "peers": 1}
        remote = total - local
        values = {
            "peak": {"root": 50, "worker": 40}[role] + 7 * local + 3 * total + halo, "cpu": 0.5 * local,
            "tables": 176 * halo * 5, "sparse": 30 * sizes["cut"] + 8 * 5, "uncounted": 9 * halo,
            "broadcast": 48 * total if role == "worker" else 0, "gathered": 8 * remote,
        }  # fmt: skip
        return scale.Rank(role, sizes, dict.fromkeys(scale.PHASES, 5), dict.fromkeys(scale.PHASES, values))

    shapes = [("root", 100, 100, 0), ("root", 200, 200, 0), ("root", 100, 400, 10), ("worker", 300, 400, 10)]
    shapes += [("root", 300, 400, 80), ("worker", 100, 400, 80), ("worker", 100, 200, 30), ("root", 100, 200, 30)]
    constants = scale.fit([build(*shape) for shape in shapes])
    expected = build("worker", 1000, 64_000, 500)
    predicted = scale.predict(constants, *expected[:3])
    for quantity in scale.FORMS:
        assert predicted.add_up(quantity) == pytest.approx(expected.add_up(quantity), rel=1e-6), quantity


@pytest.mark.mpi
@pytest.mark.slow
def test_each_rank_is_measured():
    root, worker = scale.measure("torus", 2, 400, 0.25, 3)
    assert (root.sizes["local"], worker.sizes["local"], root.sizes["halo"]) == (100, 300, 40)
    for rank in (root, worker):
        assert set(rank.phases) == set(scale.PHASES) and rank.turns == root.turns
        # A table of 10 x 2 numbers and its header row.
        assert rank.add_up("tables") == rank.turns["rounds"] * 40 * 8 * 22 > 0
        assert rank.add_up("sparse") > 0 and rank.add_up("peak") > 30e6 and rank.add_up("cpu") > 0
    assert worker.add_up("broadcast") > root.add_up("broadcast")


def list_imports(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in {
            "p2pkm",
            "topologies",
            "tests",
        }:
            yield from ((node.module, name.name) for name in node.names)


@each("path", sorted(Path(__file__).parent.rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_exists(path):
    for module, name in list_imports(path):
        assert hasattr(import_module(module), name) or find_spec(f"{module}.{name}"), f"{module} has no {name}"
