"""What ARCHITECTURE.md calls one file and one entry: each is added here, and a run from the command line uses it.

Methods and server methods: tests/methods/test_one_file.py; transforms: tests/channel/test_transforms.py; figures of the
summary: tests/metrics/test_registry.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import topologies
from p2pkm.data.partition import PARTITIONS
from p2pkm.data.readers.any_format import SUFFIXES
from p2pkm.data.readers.columns import FileContents
from p2pkm.data.sources import SOURCES, Table
from p2pkm.methods.init.bounding_box import BoundingBox
from p2pkm.methods.init.registry import INITS
from p2pkm.network.link_model import PROFILES, LinkModel
from tests.support.run_cli import here, solve

PAGE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text("utf-8").partition("## Adding things")[2]


@pytest.fixture(autouse=True)
def _stand_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def two_rings(n: int, *, bridges: int = 1):
    """Return two rings of half of the devices each, with some links between them."""
    graph = topologies.ring(n // 2)
    graph.add_edges_from([(n // 2 + u, n // 2 + v) for u, v in list(graph.edges)])
    graph.add_edges_from([(i, n // 2 + i) for i in range(bridges)])
    return graph


def test_a_graph(monkeypatch):
    monkeypatch.setitem(topologies.FAMILIES, "two-rings", two_rings)
    summary = solve("--graph", "two-rings:bridges=2", "--devices", 8)
    assert (summary["graph"], summary["devices"]) == ("two-rings:bridges=2", 8)
    assert here("topology", "describe", "two-rings", "--devices", 8).code == 0
    assert "Did you mean 'two-rings'?" in here("--graph", "two-ring", "--out", "none").err


def test_a_partition(monkeypatch):
    def alternate(table, n, *, first: int = 0, minimum: int = 0, seed: int = 0):
        return (np.arange(len(table.points)) + first) % n

    monkeypatch.setitem(PARTITIONS, "alternate", alternate)
    assert solve("--partition", "alternate:first=1")["partition"] == "alternate:first=1,minimum=0,seed=0"


def test_a_data_source(monkeypatch):
    def line(*, points: int = 40, seed: int = 0):
        return Table(np.linspace(0.0, 1.0, points)[:, None], None)

    monkeypatch.setitem(SOURCES, "line", line)
    summary = solve("--data", "line:points=24", "--clusters", 3, "--partition", "iid")
    assert summary["data"].startswith("line:points=24") and summary["ratio_mean"] < 2.0


def test_a_file_format(monkeypatch, tmp_path):
    def read_words(path, label, device):
        return FileContents(np.array([line.split() for line in path.read_text().splitlines()], np.float64), None, None)

    monkeypatch.setitem(SUFFIXES, ".points", read_words)
    (tmp_path / "my.points").write_text("".join(f"{i} {i * i % 7}\n" for i in range(20)))
    assert solve("--data", "my.points", "--clusters", 2, "--partition", "iid")["data"] == "file:my.points"


@pytest.mark.slow
def test_an_initialization(monkeypatch):
    def corner(at, *, times: int = 1):
        return (BoundingBox(at.k),) * times

    monkeypatch.setitem(INITS, "corner", corner)
    found, known = (solve("--init", name, "--rounds", 3) for name in ("corner:times=1", "bounding-box"))
    assert found["init"] == "corner" and found["chain_sha256"] == known["chain_sha256"]
    twice = solve("--init", "corner:times=2", "--rounds", 3)
    assert twice["init"] == "corner:times=2" and twice["messages"] > known["messages"]
    assert "init corner:times is 0" in here("--init", "corner:times=0", "--out", "none").err


def test_a_link_model(monkeypatch):
    monkeypatch.setitem(
        PROFILES, "moon", lambda *, latency=1.3: replace(LinkModel.wan(latency=latency), profile="moon")
    )
    assert solve("--link-model", "moon")["virtual_seconds"] > 10 * solve("--link-model", "wan")["virtual_seconds"]


@pytest.mark.parametrize("entry", [
    "topologies/registry.py:FAMILIES", "data/partition:PARTITIONS", "data/sources.py:SOURCES",
    "data/readers/any_format.py:SUFFIXES", "methods/init/registry.py:INITS",
    "network/link_model.py:PROFILES", "methods/registry.py:METHODS", "metrics/registry.py:METRICS",
    "channel/registry.py:TRANSFORMS",
])  # fmt: skip
def test_the_page_names_the_entry(entry):
    assert f"`{entry}`" in PAGE
    module, name = (
        entry.replace("/__init__.py", "").removesuffix(f":{entry.rpartition(':')[2]}"),
        entry.rpartition(":")[2],
    )
    place = module.removesuffix(".py").replace("/", ".")
    imported = __import__(place if place.startswith("topologies") else f"p2pkm.{place}", fromlist=[name])
    assert len(getattr(imported, name)) > 3
