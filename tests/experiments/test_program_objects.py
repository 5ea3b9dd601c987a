"""Studies and comparisons with graphs, points, methods and other objects instead of text."""

import dataclasses
import functools
import json
import subprocess
import sys
import threading

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import p2pkm
import p2pkm.experiments.studies.run_study
import topologies
from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.program_object import ProgramObject, is_missing_object, require_object
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.object_content import KINDS, dump, find_digest, restore, wrap
from p2pkm.experiments.studies import engine
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.storage.study_mark import read_names, write_names
from tests.support.each import each
from tests.support.run_cli import here, ranks, there
from tests.support.stored_rows import list_lines, save_as_earlier_version

X, Y = p2pkm.grid16(points=5, seed=0)
DEVICE = p2pkm.partition.dirichlet(Y, 4, alpha=0.3, seed=0)
FRAME = pd.DataFrame(X, columns=["x", "y"]).assign(device=DEVICE, label=Y)
SHARDS = p2pkm.Shards.deal(X, DEVICE, labels=Y)
FEW = {"rounds": 2, "seeds": [0], "progress": False, "baselines": False}
TEXT = {"data": "grid16:points=5,seed=0", "partition": "dirichlet:alpha=0.3,seed=0", "devices": 4, "clusters": 4}


@dataclasses.dataclass(frozen=True, init=False)
class Mine(p2pkm.GTVMin):
    """A method that no package declares."""


WITH_LOCK = Mine(4)
vars(WITH_LOCK)["lock"] = threading.Lock()


def plain(study, *names):
    """Return the metrics of all runs, without names."""
    without = {"algorithm", "graph", "key", "wall_seconds", *study.swept, *names}
    return [{name: value for name, value in row.items() if name not in without} for row in study.rows]


@pytest.fixture
def begun(monkeypatch):
    """Return a list that has an entry for each run that is not read from its row."""
    module = p2pkm.experiments.studies.run_study
    begun, execute = [], module.execute
    monkeypatch.setattr(module, "execute", lambda *arguments: begun.append(1) or execute(*arguments))
    return begun


@functools.cache
def study_by_text():
    return p2pkm.study(
        grid={"algorithm": ["gtvmin:coupling=3", "fkm"], "graph": ["small-world:degree=2,seed=5", "complete"]},
        faults="loss=0.1", **FEW, **TEXT,
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        {"data": SHARDS},
        {"data": FRAME},
        {"data": (X, Y), "partition": TEXT["partition"], "devices": 4},
        {"data": (X, Y), "partition": DEVICE},
        pytest.param({"data": (X, Y), "partition": pd.Series(DEVICE), "devices": 4}, marks=pytest.mark.slow),
        pytest.param({"data": p2pkm.read_table(FRAME)}, marks=pytest.mark.slow),
        {"data": FRAME.rename(columns={"device": "ward", "label": "class"}).assign(i=range(80), w="t"),
         "device_column": "ward", "label_column": "class", "columns": ["x", "y"]},
        pytest.param({"data": FRAME.assign(i=range(80), w="t"), "drop": "i,w"}, marks=pytest.mark.slow),
    ],
)  # fmt: skip
@pytest.mark.sample(3)
def test_objects_give_the_bits_of_text(data):
    methods = [p2pkm.GTVMin(4, coupling=3), functools.partial(p2pkm.FKM)]
    graphs = {"a": topologies.small_world(4, degree=2, seed=5), "b": nx.complete_graph(4)}
    study = p2pkm.study(
        grid={"algorithm": methods, "graph": graphs}, faults=p2pkm.Faults(loss=0.1), clusters=4, **FEW, **data
    )
    assert plain(study) == plain(study_by_text())
    assert [(row["algorithm"], row["graph"]) for row in study.rows] == [
        ("GTVMin(4, coupling=3)", "a"), ("GTVMin(4, coupling=3)", "b"), ("FKM()", "server")]  # fmt: skip
    with_simulate = p2pkm.simulate(methods[0], graphs["a"], SHARDS, rounds=2, faults="loss=0.1", baselines=False)
    assert study.rows[0]["centroids_sha256"] == with_simulate.summary["centroids_sha256"]


@pytest.mark.slow
def test_a_comparison_of_objects_is_that_of_text(tmp_path):
    specs = p2pkm.compare("gtvmin,fkm", "ring,complete", out=tmp_path / "a", **FEW, **TEXT)
    study = p2pkm.compare({"ours": p2pkm.GTVMin, "server": p2pkm.FKM(4)}, [topologies.ring(4), topologies.complete(4)],
                          reference="server", clusters=4, data=FRAME, out=tmp_path / "b", **FEW)  # fmt: skip
    assert plain(study) == plain(specs)
    assert [*study.configurations()] == [
        "ours on Graph(4 devices, 4 links)", "ours on Graph(4 devices, 6 links)", "server with a server"]  # fmt: skip
    summary = json.loads((tmp_path / "b/summary.json").read_text())
    assert summary["reference"] == "server" and summary["differences"][0]["algorithm"] == "ours"
    assert "(object " not in (tmp_path / "b/study.csv").read_text() + json.dumps(summary)
    assert p2pkm.load_study(tmp_path / "b").rows == study.rows
    alone = p2pkm.compare(p2pkm.GTVMin(4), topologies.ring(4), reference=p2pkm.GTVMin(4), data=SHARDS, **FEW)
    assert plain(alone) == plain(specs)[:1]


@pytest.mark.slow
def test_finished_runs_are_found_by_content(tmp_path, begun):
    def run(graph, method, data, **more):
        return p2pkm.study(grid={"graph": graph, "algorithm": [method]}, data=data, out=tmp_path, **FEW, **more)

    first = run({"a": topologies.path(4)}, p2pkm.GTVMin(4), FRAME)
    second = run({"a": nx.path_graph(4)}, p2pkm.GTVMin(4), FRAME.copy())
    assert len(begun) == 1 and second.rows == first.rows
    renamed = run({"b": topologies.path(4)}, p2pkm.GTVMin(4), {"mine": FRAME})
    assert len(begun) == 1 and [row["graph"] for row in renamed.rows] == ["b"]
    heavy = topologies.path(4)
    heavy.edges[0, 1]["weight"] = 2.0
    changed = [(heavy, p2pkm.GTVMin(4), FRAME), (topologies.path(4), p2pkm.GTVMin(4, coupling=2), FRAME),
               (topologies.path(4), p2pkm.GTVMin(4), FRAME.assign(x=-FRAME.x)),
               (topologies.path(4), p2pkm.GTVMin(4), SHARDS)]  # fmt: skip
    for number, (graph, method, data) in enumerate(changed, 2):
        run([graph], method, data)
        assert len(begun) == number


def test_what_an_interrupted_study_has_stored_has_names(tmp_path):
    graphs = {"first": topologies.path(4), "second": topologies.star(4)}
    study = p2pkm.study(grid={"graph": graphs}, data=SHARDS, clusters=4, out=tmp_path, **FEW)
    (tmp_path / "study.jsonl").unlink()
    stored = p2pkm.load_study(tmp_path)
    assert stored.configurations() == study.configurations() and sorted(stored.rows, key=str) == sorted(
        study.rows, key=str
    )


def test_a_command_says_how_a_study_of_objects_goes_on(tmp_path):
    p2pkm.study(grid={"graph": {"town": topologies.path(4)}}, data=SHARDS, clusters=4, out=tmp_path / "s", **FEW)
    p2pkm.compare("gtvmin", {"town": topologies.path(4)}, data=SHARDS, clusters=4, out=tmp_path / "c", **FEW)
    for folder in ("s", "c"):
        ending = here("resume", tmp_path / folder)
        assert (
            ending.code == 2 and "'town', an object of a Python program" in ending.err and "(object" not in ending.err
        )
        assert here("report", tmp_path / folder).code == 0
        assert "run the program again, with the same folder" in (tmp_path / folder / "report.html").read_text()


def test_values_have_names_too(tmp_path):
    grid = {"coupling": {"weak": 1, "strong": 30.0}, "faults": {"lossy": p2pkm.Faults(loss=0.2), "late": "max_delay=2"},
            "graph": {"loop": "ring"}}  # fmt: skip
    study = p2pkm.study(grid=grid, out=tmp_path, **FEW, **TEXT)
    names = [(row["coupling"], row["faults"], row["graph"]) for row in study.rows]
    assert names == [(a, b, "loop") for a in ("weak", "strong") for b in ("lossy", "late")]
    assert here("resume", tmp_path, "-q").code == 0 and p2pkm.load_study(tmp_path).rows == study.rows


def collected(option, values):
    program = ProgramValues("study(...)")
    values_taken = program.take_list(option, values, "values")
    names = program.collect().get(option, {})
    return [names.get(value, str(value)) for value in values_taken]


def weighted(graph, weight):
    nx.set_edge_attributes(graph, weight, "weight")
    return graph


@pytest.mark.slow
def test_partitions_are_values_of_a_grid(tmp_path, begun):
    names = np.array(["Oulu", "Turku", "Vaasa", "Espoo"])[DEVICE]
    partitions = {"mine": DEVICE, "text": TEXT["partition"], "named": names}

    def run(partitions):
        return p2pkm.study(
            grid={"partition": partitions}, data=(X, Y), clusters=4, graph="complete", out=tmp_path, **FEW
        )

    with pytest.raises(DataError, match="partition few has 79 entries"):
        run(partitions | {"few": DEVICE[:-1]})
    assert not begun
    study = run(partitions)
    assert [row["partition"] for row in study.rows] == ["mine", "text", "named"] and study.rows[1]["devices"] == 16
    dealt = p2pkm.simulate(p2pkm.GTVMin(4), topologies.complete(4), SHARDS, rounds=2, baselines=False)
    assert study.rows[0]["centroids_sha256"] == dealt.summary["centroids_sha256"]
    given = p2pkm.study(data=(X, Y), devices=names, clusters=4, graph="complete", out=tmp_path, **FEW)
    assert len(begun) == 3 and given.rows[0]["centroids_sha256"] == study.rows[2]["centroids_sha256"]
    with pytest.raises(ExperimentError, match="both say the device of each row"):
        p2pkm.study(data=(X, Y), devices=names, partition=DEVICE)
    assert len(begun) == 3 and run({"same": DEVICE.astype(np.int32)}).rows[0]["partition"] == "same"
    assert len(begun) == 3


@pytest.mark.slow
def test_partitions_reach_other_processes():
    studies = [p2pkm.study(grid={"partition": [DEVICE, DEVICE[::-1]]}, data=(X, Y), clusters=4, jobs=jobs, **FEW)
               for jobs in (1, 2)]  # fmt: skip
    assert plain(studies[0]) == plain(studies[1])


def test_rows_that_are_left_out_belong_to_no_device():
    frame = pd.DataFrame(X.copy(), columns=["x", "y"])
    frame.loc[[3, 50], "x"] = np.nan
    remaining = np.delete(np.arange(80), [3, 50])
    study = p2pkm.study(data=frame, partition=DEVICE, missing="drop", clusters=4, **FEW)
    expected = p2pkm.study(data=p2pkm.Shards.deal(X[remaining], DEVICE[remaining]), clusters=4, **FEW)
    assert study.rows[0]["centroids_sha256"] == expected.rows[0]["centroids_sha256"]


@each(
    ("option", "values", "names"),
    [
        ("graph", [nx.path_graph(3), weighted(nx.path_graph(3), 2.0), "ring"],
         ["Graph(3 devices, 2 links)", "Graph(3 devices, 2 links) #2", "ring"]),
        ("graph", [nx.karate_club_graph(), topologies.one_peer_exponential(4)],
         ["Zachary's Karate Club", "one-peer-exponential(4 devices, 6 links)"]),
        ("graph", {"a": "ring", "b": nx.path_graph(2)}, ["a", "b"]),
        ("data", [X, (X, Y), FRAME, SHARDS, p2pkm.read_table(FRAME), X + 1],
         ["array(80 x 2)", "array(80 x 2) #2", "DataFrame(80 x 4)", "Shards(4 devices, 80 points)", "Table(80 x 2)",
          "array(80 x 2) #3"]),
        ("algorithm", [p2pkm.GTVMin(4), p2pkm.GTVMin(4, coupling=2), p2pkm.GTVMin, p2pkm.LocalOnly(4),
                       functools.partial(p2pkm.FKM, server_n_init=2)],
         ["GTVMin(4)", "GTVMin(4, coupling=2)", "GTVMin", "local", "FKM(server_n_init=2)"]),
        ("algorithm", {"none": p2pkm.LocalOnly, "ours": Mine(3)}, ["local: none", "ours"]),
        ("partition", [DEVICE, DEVICE[::-1], "iid"],
         ["array(80 points, 4 devices)", "array(80 points, 4 devices) #2", "iid"]),
        ("true_centers", [np.zeros((3, 2))], ["array(3 x 2)"]),
        ("columns", [["a", "b"], "a", ["c, d"]], ["a,b", "a", '"c, d"']),
    ],
)  # fmt: skip
def test_objects_are_called_what_they_are(option, values, names):
    assert collected(option, values) == names
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: p2pkm.study(grid={"graph": {"ring": nx.path_graph(4)}, "algorithm": ["gtvmin", "gtvmin"]}),
         ExperimentError, "contains 'gtvmin' twice"),
        (lambda: p2pkm.study(grid={"graph": [nx.path_graph(4), nx.path_graph(4)]}), ExperimentError,
         "contains 'Graph(4 devices, 3 links)' twice"),
        (lambda: p2pkm.compare("gtvmin", [nx.path_graph(4), nx.path_graph(4)]), ExperimentError,
         "graphs has Graph(4 devices, 3 links) twice"),
        (lambda: p2pkm.study(grid={"graph": {"a": nx.path_graph(4), "b": nx.path_graph(4)}}), ExperimentError,
         "graph has one value under the names 'a' and 'b'"),
        (lambda: p2pkm.study(runs=[{"graph": {"a": nx.path_graph(4)}}, {"graph": {"a": nx.path_graph(3)}}]),
         ExperimentError, "two values of graph are called 'a'"),
        (lambda: p2pkm.study(runs=[{"graph": {"ring": nx.path_graph(4)}}, {"graph": "ring"}]), ExperimentError,
         "two values of graph are called 'ring'"),
        (lambda: p2pkm.study(grid={"graph": {"server": nx.path_graph(4)}}), ExperimentError, "the star of a server"),
        (lambda: p2pkm.study(grid={"graph": {3: nx.path_graph(4)}}), ExperimentError, "called 3; expected text"),
        (lambda: p2pkm.study(grid={"graph": {"a\nb": nx.path_graph(4)}}), ExperimentError,
         "expected text in one line"),
        (lambda: p2pkm.study(grid={"graph": nx.path_graph(4)}), ExperimentError,
         "expected a list of values. Use [...]"),
        (lambda: p2pkm.study(grid={"data": FRAME}), ExperimentError, "grid['data'] is of type DataFrame"),
        (lambda: p2pkm.study(grid={"faults": [None, "loss=0.1"]}), ExperimentError, "contains None; expected values"),
        (lambda: p2pkm.study(graph={"a": "ring", "b": "star"}), ExperimentError, "graph has 2 named values"),
        (lambda: p2pkm.study(grid={"graph": [object()]}), TopologyError, "expected a networkx.Graph"),
        (lambda: p2pkm.study(grid={"graph": [nx.DiGraph([(0, 1)])]}), TopologyError, "directed"),
        (lambda: p2pkm.study(grid={"algorithm": [object()]}), ExperimentError, "or its class"),
        (lambda: p2pkm.study(grid={"algorithm": [functools.partial(p2pkm.GTVMin, 3)]}), ExperimentError,
         "or its class"),
        (lambda: p2pkm.study(algorithm=functools.partial(p2pkm.GTVMin, cuopling=3)), ExperimentError,
         "a partial call of GTVMin with cuopling; expected parameters except k. Did you mean 'coupling'?"),
        (lambda: p2pkm.study(grid={"algorithm": [WITH_LOCK]}, data=SHARDS), ExperimentError,
         "algorithm of type Mine has no content that can be compared: TypeError: cannot pickle"),
        (lambda: p2pkm.study(data=object()), DataError, "data are of type object; expected text, an array"),
        (lambda: p2pkm.study(data=FRAME.drop(columns="device"), device_column="ward"), DataError,
         "device_column is 'ward'"),
        (lambda: p2pkm.study(data=X[:, 0]), DataError, "expected (points, features)"),
        (lambda: p2pkm.study(data=(X, Y[:-1])), DataError, "the labels of the pair"),
        (lambda: p2pkm.study(data=(FRAME, Y)), ExperimentError, "data DataFrame(80 x 4) has labels twice"),
        (lambda: p2pkm.study(data=SHARDS, partition="iid"), ExperimentError, "its points belong to devices already"),
        (lambda: p2pkm.study(data=SHARDS, columns="x"), ExperimentError, "has been read already"),
        (lambda: p2pkm.study(data=SHARDS, partition=DEVICE), ExperimentError,
         "partition array(80 points, 4 devices) cannot be combined with data Shards(4 devices, 80 points)"),
        (lambda: p2pkm.study(data=X, partition=DEVICE[:-1]), DataError,
         "partition array(79 points, 4 devices) has 79 entries; expected 80, the device of each row"),
        (lambda: p2pkm.study(data="grid16:points=5", partition={"mine": DEVICE[:-1]}), DataError,
         "partition mine has 79 entries; expected 80"),
        (lambda: p2pkm.study(data=X, partition=DEVICE + 0.5), DataError, "numbers with a fraction"),
        (lambda: p2pkm.study(data=X, partition=DEVICE[:, None]), DataError,
         "partition is of type ndarray and shape (80, 1); expected text"),
        (lambda: p2pkm.study(data=X, partition=DEVICE.tolist()), DataError, "partition is of type list"),
        (lambda: p2pkm.study(data=X, partition=np.where(DEVICE == 0, None, "a")), DataError,
         "the values of partition are missing at row"),
        (lambda: p2pkm.study(data=X, partition=DEVICE, devices=3), DataError,
         "devices is 3, but a row belongs to device 3"),
        (lambda: p2pkm.study(data=SHARDS, devices=5), ExperimentError,
         "devices is 5, but the points of Shards(4 devices, 80 points) belong to 4 devices"),
        (lambda: p2pkm.study(data=SHARDS, graph=nx.path_graph(5)), TopologyError,
         "graph Graph(5 devices, 4 links) has 5 nodes; expected 4"),
        (lambda: p2pkm.study(data=SHARDS, algorithm=p2pkm.GTVMin(4), clusters=5), ExperimentError,
         "clusters is 5, but algorithm GTVMin(4) has 4"),
        (lambda: p2pkm.study(data=SHARDS, algorithm={"ours": p2pkm.GTVMin(4)}, coupling=3), ExperimentError,
         "coupling 3.0 cannot be combined with algorithm ours"),
        (lambda: p2pkm.study(data=SHARDS, true_centers=np.zeros((2, 3))), DataError, "true_centers has shape (2, 3)"),
        (lambda: p2pkm.study(data="object:0123456789abcdef"), ExperimentError, "an object of a Python program"),
        (lambda: p2pkm.compare([3], data=SHARDS), ExperimentError, "such as gtvmin:coupling=30 or p2pkm.GTVMin(16)"),
        (lambda: p2pkm.compare([p2pkm.GTVMin(4)], reference="ours", data=SHARDS), ExperimentError,
         "expected one of the compared methods: GTVMin(4)"),
        (lambda: p2pkm.compare({"a": "gtvmin,fkm"}), ExperimentError, "'a' is 'gtvmin,fkm'; expected one value"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_any_work(call, kind, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as refusal:
        call()
    assert words in str(refusal.value) and "(object " not in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_the_number_of_clusters_can_be_chosen_with_a_method_object():
    chosen = {"clusters": "auto", "k_max": 4}
    study = p2pkm.study(algorithm=p2pkm.GTVMin(2), data=SHARDS, **chosen, **FEW)
    assert plain(study) == plain(p2pkm.study(**FEW, **TEXT | chosen)) and study.rows[0]["error"] is None


def test_kinds_of_frames_have_one_content():
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    frame = FRAME.assign(w=pd.array([None, *range(79)], dtype="Int64"), t=pd.Categorical(["a", "b"] * 40))
    kinds = [frame, polars.from_pandas(frame), arrow.Table.from_pandas(frame), frame.set_index(frame.index + 5)]
    assert len({find_digest("data", kind) for kind in kinds}) == 1
    changed_frames = [
        frame.rename(columns={"x": "z"}),
        frame.iloc[::-1],
        frame.assign(t="a"),
        frame[["y", "x"]],
        frame.assign(w=1),
    ]
    assert len({find_digest("data", kind) for kind in (frame, *changed_frames)}) == 6


def test_attributes_that_link_models_read_are_content():
    plain, slow = nx.path_graph(3), nx.path_graph(3)
    nx.set_edge_attributes(slow, 0.5, "latency")
    assert find_digest("graph", plain) == find_digest("graph", nx.Graph([(1, 2), (0, 1)])) != find_digest("graph", slow)
    study = [p2pkm.study(graph=graph, data=p2pkm.Shards.deal(X, Y % 3, labels=Y), link_model=p2pkm.LinkModel.of("lan"),
                         clusters=4, **FEW).rows[0] for graph in (plain, slow)]  # fmt: skip
    assert study[0]["virtual_seconds"] < study[1]["virtual_seconds"]


@pytest.mark.slow
def test_references_are_equal_in_every_process():
    program = (
        "import p2pkm, topologies; from p2pkm.experiments.object_content import find_digest as of; "
        "X, y = p2pkm.grid16(points=5); "
        "print(of('graph', topologies.one_peer_exponential(4)), of('graph', topologies.ring(4)), "
        "of('algorithm', p2pkm.GTVMin(4)), of('algorithm', p2pkm.GTVMin), of('data', (X, y)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    graphs = topologies.one_peer_exponential(4), topologies.ring(4)
    known = [*(find_digest("graph", graph) for graph in graphs), find_digest("algorithm", p2pkm.GTVMin(4)),
             find_digest("algorithm", p2pkm.GTVMin), find_digest("data", (X, Y))]  # fmt: skip
    assert done.stdout.split() == known


@pytest.mark.slow
def test_the_code_of_a_script_is_content(tmp_path):
    def run(step, comment):
        script = tmp_path / "script.py"
        script.write_text(
            "import dataclasses, p2pkm\nfrom p2pkm.experiments.object_content import find_digest\n"
            f"def step(): return {step}\n# {comment}\n"
            "@dataclasses.dataclass(frozen=True, init=False)\nclass Mine(p2pkm.GTVMin):\n    'Use step.'\n"
            "print(find_digest('algorithm', Mine(3)))\n"
        )
        done = there(sys.executable, script)
        assert done.code == 0, done.err
        return done.out

    assert run(1, "a") == run(1, "b") != run(2, "a")


PROGRAM = """
import dataclasses, json, sys
import p2pkm, topologies

@dataclasses.dataclass(frozen=True, init=False)
class Mine(p2pkm.GTVMin):
    "A method of a script."

X, y = p2pkm.grid16(points=5)
shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4), labels=y)
graphs = {"a": topologies.ring(4), "b": topologies.complete(4), "c": topologies.one_peer_exponential(4)}
study = p2pkm.study(grid={"graph": graphs, "algorithm": [Mine(4), p2pkm.FKM]}, clusters=4, data=shards, rounds=2,
                    seeds=[0, 1], jobs=int(sys.argv[1]), progress=False, out=sys.argv[2])
rows = [{name: value for name, value in row.items() if name != "wall_seconds"} for row in study.rows]
sys.stdout.write(json.dumps(rows) + "\\n")
try:
    p2pkm.compare("gtvmin", topologies.ring(5), data=shards)
except p2pkm.TopologyError as error:
    sys.stdout.write(f"refused {error}\\n")
"""


@pytest.mark.mpi
def test_processes_and_ranks_share_the_runs_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    outputs = []
    for number, jobs in enumerate((1, 2)):
        done = there(sys.executable, script, jobs, tmp_path / str(number))
        assert done.code == 0, done.err
        outputs.append(done.out.splitlines())
    done = there(*ranks(2), script, 1, tmp_path / "2")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert outputs[0] == outputs[1] and len(outputs[0]) == 2 and "refused the run with" in outputs[0][1]
    assert sorted(lines) == sorted(outputs[0] * 2)
    assert not any(row["error"] for row in json.loads(lines[0] if lines[0][0] == "[" else lines[-1]))
    listed = [sorted(list_lines(tmp_path / str(number))) for number in range(3)]
    assert listed[0] == listed[1] == listed[2] and len(listed[0]) == 8


def test_an_object_that_a_process_lacks_is_named():
    graph = wrap("graph", nx.path_graph(3))
    assert require_object(graph, "graph") is graph.value and require_object("ring", "graph") is None
    graph.label = "town"
    with pytest.raises(ExperimentError, match="graph is 'town', an object of a Python program"):
        require_object(graph.describe(), "graph")


def test_objects_are_equal_by_content_whatever_they_are_called():
    one, same, other = (wrap("graph", graph) for graph in (nx.path_graph(3), nx.path_graph(3), nx.path_graph(4)))
    same.label = "another name"
    assert one == same != other and len({one, same, other}) == 2 and one != one.describe()
    options = [RunOptions(graph=graph) for graph in (one, same)]
    assert options[0] == options[1] and options[0].identify() == options[1].identify()
    assert options[0].to_mapping()["graph"] == one.describe() != options[1].to_mapping()["graph"]
    copied = restore(dump(one))
    assert isinstance(copied, ProgramObject) and copied == one and copied.describe() == one.describe()


def test_folders_of_earlier_versions_name_their_objects(tmp_path):
    old, names = "object:0123456789abcdef", [{"option": "graph", "name": "town", "value": "object:0123456789abcdef"}]
    (tmp_path / "s").mkdir()
    (tmp_path / "s/study.toml").write_text(
        f'devices = 4\nseeds = "0"\n[grid]\ngraph = ["{old}", "ring"]\n'
        f'[[names]]\noption = "graph"\nname = "town"\nvalue = "{old}"\n'
    )
    row = {
        "key": "key",
        "algorithm": "gtvmin",
        "graph": old,
        "seed": 0,
        "error": f"on {old}",
        "options": {"graph": old, "seed": 0},
    }
    (tmp_path / "s/runs").mkdir()
    save_as_earlier_version(tmp_path / "s/runs/key.json", row)
    (tmp_path / "c").mkdir()
    comparison = {"base": {"devices": 4}, "algorithms": ["gtvmin"], "graphs": [old], "seeds": [0], "names": names}
    (tmp_path / "c/comparison.json").write_text(json.dumps(comparison | {"reference": "gtvmin", "margin": 0.005}))
    loaded = p2pkm.load_study(tmp_path / "s").rows
    assert [(row["graph"], row["error"]) for row in loaded] == [("town", "on town")]
    for folder in ("s", "c"):
        ending = here("resume", tmp_path / folder)
        assert ending.code == 2 and "graph is 'town', an object of a Python program" in ending.err


def test_names_in_a_study_file_are_read_as_written():
    names = {"graph": {"object:a": "town"}, "coupling": {3.0: "weak", None: "usual"}}
    assert read_names(write_names(names), "s.toml") == names
    for wrong in ([{"option": "graph"}], [3], "x", [{"option": 1, "name": "a"}]):
        with pytest.raises(ExperimentError, match=r"s.toml: names contains .*; expected tables"):
            read_names(wrong, "s.toml")


def test_every_kind_has_a_digest_and_a_label():
    samples = {"graph": nx.path_graph(2), "data": X, "algorithm": p2pkm.GTVMin(2), "true_centers": [[0.0, 1.0]],
               "partition": DEVICE}  # fmt: skip
    assert set(samples) == set(KINDS)
    for option, value in samples.items():
        wrapped = wrap(option, value)
        assert len(wrapped.digest) == 16 and wrapped.label and is_missing_object(wrapped.describe())


@pytest.mark.slow
def test_a_notebook_shows_a_bar_and_then_the_table(monkeypatch):
    shown = []
    monkeypatch.setattr("p2pkm.experiments.progress_line.NotebookOutput.show", lambda self, text: shown.append(text))
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    study = p2pkm.compare([p2pkm.GTVMin(4), "fkm"], topologies.ring(4), data=SHARDS, seeds=[0, 1], rounds=2, clusters=4)
    assert len(shown) == 5 and shown[1].startswith("[############............] 2 of 4 runs, about ")
    assert "GTVMin(4) on Graph(4 devices, 4 links)" in shown[-1] and len(study.rows) == 4
    p2pkm.study(grid={"graph": ["ring", "complete"]}, seeds=[0], rounds=2, devices=4, data="grid16:points=5")
    assert len(shown) == 8 and "ring" in shown[-1] and shown[-2].startswith("[########################] 2 of 2 runs")
    p2pkm.study(**FEW, **TEXT)
    assert len(shown) == 8
    assert engine.in_notebook()
