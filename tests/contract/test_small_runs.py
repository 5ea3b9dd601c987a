"""Every graph, source and partition once from the command line, and the smallest and oddest experiments."""

import json
from itertools import product

import networkx as nx
import numpy as np
import pytest

from p2pkm.data.partition import PARTITIONS
from p2pkm.data.sources import SOURCES
from tests.support.run_cli import here, solve
from tests.support.sampling import thin
from topologies import FAMILIES


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", thin(sorted(FAMILIES.keys() - {"file", "gallery"}), 3))
@pytest.mark.sample(5)
def test_graph(name):
    keys = {"small-world": ":degree=2", "random-regular": ":degree=2", "caveman": ":size=4", "erdos-renyi": ":p=0.6"}
    n = {"karate": 34, "davis": 32, "les-miserables": 77, "florentine": 15, "margulis": 9}.get(name, 8)
    summary = solve("--graph", name + keys.get(name, ""), "--devices", n, "--rounds", 5)
    assert summary["devices"] == n
    assert summary["graph"].partition(":")[0] == name


def test_karate_and_its_weights():
    words = (
        "--data",
        "grid16:points=5",
        "--rounds",
        3,
        "--coupling",
        30,
        "--out",
        "none",
        "--format",
        "json",
        "--graph",
    )
    plain, weighted = (here(*words, f"karate:weighted={word}").summary for word in ("no", "yes"))
    assert plain["devices"] == weighted["devices"] == 34
    assert plain["centroids_sha256"] != weighted["centroids_sha256"]


@pytest.mark.parametrize("name", ["ring.graphml", "ring.edgelist", "ring.csv", "ring.json", "ring.npz"])
@pytest.mark.sample(3)
def test_graph_file(tmp_path, name):
    ring, path = nx.cycle_graph(4), tmp_path / name
    if name.endswith("graphml"):
        nx.write_graphml(ring, path)
    elif name.endswith("json"):
        path.write_text(json.dumps(nx.node_link_data(ring, edges="edges")))
    elif name.endswith("npz"):
        from scipy import sparse

        sparse.save_npz(path, sparse.csr_array(nx.to_numpy_array(ring)))
    else:
        path.write_text("source,target\n0,1\n1,2\n2,3\n0,3\n" if name.endswith("csv") else "0 1\n1 2\n2 3\n0 3\n")
    expected = solve()
    assert solve("--graph", f"file:{name}")["centroids_sha256"] == expected["centroids_sha256"]


def test_weights_multiply_alpha(tmp_path):
    (tmp_path / "heavy.edgelist").write_text("0 1 2\n1 2 2\n2 3 2\n0 3 2\n")
    assert solve("--graph", "file:heavy.edgelist", "--alpha", 1)["objective"] == solve("--alpha", 2)["objective"]


def test_several_components(tmp_path):
    (tmp_path / "two.edgelist").write_text("0 1\n2 3\n")
    summary = solve("--graph", "file:two.edgelist", "--allow-disconnected")
    assert summary["devices"] == 4 and summary["centroid_sets"] > 1


@pytest.mark.parametrize("name", thin(sorted(SOURCES.keys() - {"file", "digits"}), 3))
@pytest.mark.sample(3)
def test_data(name):
    keys = {"grid16": ":points=4", "blobs": ":points=5,clusters=3", "slike": ":points=4", "balls": ":points=5",
            "communities": ":devices=4", "mixture": ":points=40", "shapes": ":points=3,side=8"}  # fmt: skip
    clusters = {
        "grid16": 16,
        "blobs": 3,
        "slike": 15,
        "balls": 4,
        "iris": 3,
        "wine": 3,
        "communities": 4,
        "device-clusters": 4,
        "shapes": 6,
        "breast-cancer": 2,
        "mixture": 8,
    }
    assert solve("--data", name + keys.get(name, ""), "--rounds", 3)["clusters"] == clusters[name]


def test_digits():
    summary = solve("--data", "digits:components=3", "--rounds", 1, "--init", "bounding-box", "--no-baselines")
    assert (summary["clusters"], summary["data"]) == (10, "digits:components=3")


@pytest.mark.parametrize("name", sorted(PARTITIONS.keys() - {"column"}))
@pytest.mark.sample(3)
def test_partition(name):
    assert solve("--partition", f"{name}:minimum=3", "--rounds", 3)["partition"].startswith(f"{name}:")


def _write(path, delimiter):
    rows = [(f"{i % 3}", i % 3 + 0.1 * i, -float(i), f"d{i % 5}") for i in range(30)]
    lines = [delimiter.join(map(str, row)) for row in [("label", "x", "y", "client"), *rows]]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(("name", "delimiter"), [("points.csv", ","), ("points.tsv", "\t")])
@pytest.mark.sample(2)
def test_text_file(tmp_path, name, delimiter):
    """Label and client are found by name; the column of clients sets the number of devices."""
    _write(tmp_path / name, delimiter)
    words = ("--out", "none", "--format", "json", "--data")
    summary = here(*words, name).summary
    assert (summary["clusters"], summary["devices"], summary["data"]) == (3, 5, f"file:{name}")
    assert summary["partition"] == "column:minimum=0,seed=0" and summary["ari"] is not None
    given = here(*words, f"file:{name}", "--label-column", "0", "--device-column", "client").summary
    assert given["centroids_sha256"] == summary["centroids_sha256"]
    assert here(*words, name, "--partition", "iid").summary["devices"] == 16


@pytest.mark.parametrize("name", ["points.npy", "points.npz"])
def test_array_file(tmp_path, name):
    X = np.random.default_rng(0).normal(size=(20, 3))
    if name.endswith("npy"):
        np.save(tmp_path / name, X)
    else:
        np.savez(tmp_path / name, X=X)
    summary = solve("--data", name, "-k", 2)
    assert summary["partition"] == "iid:minimum=0,seed=0"
    assert [summary[key] for key in ("ari", "nmi", "purity", "ari_clients")] == [None] * 4


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("schedule", ["colored", "jacobi", "async"])
@pytest.mark.sample(3)
def test_one_and_two_devices(devices, schedule):
    summary = solve("--devices", devices, "--schedule", schedule, "--rounds", 60)
    assert summary["devices"] == devices and summary["termination"] in {"converged", "round-limit", "silent"}
    assert (summary["messages"] == 0) == (devices == 1)
    assert summary["ratio_mean"] is not None


SHAPES = {
    "one-cluster": ("-k", 1),
    "empty-devices": ("--devices", 12, "--partition", "dirichlet:alpha=1e-9"),
    "more-devices-than-points": ("--data", "grid16:points=1", "--devices", 40, "--partition", "iid"),
    "fewer-points-than-clusters": ("--data", "grid16:points=1", "--devices", 8, "--partition", "iid"),
    "as-many-clusters-as-points": ("-k", 80),
    "duplicates": ("--data", "grid16:points=5,sd=0", "-k", 30),
    "constant": ("--data", "constant.csv", "-k", 3),
    "one-feature": ("--data", "line.csv", "-k", 3),
    "local": ("--alpha", 0),
    "strong": ("--alpha", 1e9),
}


@pytest.mark.parametrize(
    ("name", "start"),
    thin(product(SHAPES, [(), ("--init", "local"), ("--init", "bounding-box"), ("--init", "leader")]), 3),
)
@pytest.mark.sample(5)
def test_shape(tmp_path, name, start):
    (tmp_path / "constant.csv").write_text("1,2\n" * 12)
    (tmp_path / "line.csv").write_text("".join(f"{i}\n" for i in range(12)))
    summary = solve(*SHAPES[name], *start)
    assert summary["termination"] in {"converged", "round-limit", "silent"}
    assert summary["objective"] >= 0
    assert summary["descent"] == "certified"
