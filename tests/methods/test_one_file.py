"""A method is ONE file and one entry: the house gives it plan, resume, the same bits, disclosure and the catalogue."""

import json
import re
import sys
from pathlib import Path

import pytest

import p2pkm
from p2pkm.core.errors import ExperimentError
from p2pkm.methods.registry import METHODS, find
from tests.support.each import each
from tests.support.install_plugin import install, site
from tests.support.methods import LEARNERS
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here, ranks, there
from tests.support.sampling import thin

__all__ = ["site"]  # a fixture
PEER = '''
"""A peer method."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from p2pkm.core.messages import DenseMessages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.init.value import Init


@register("tug")
class TugState(NamedTuple):
    """centroids float64[n, k, d], converged bool[n]."""

    centroids: np.ndarray
    converged: np.ndarray


@dataclass(frozen=True)
class Tug(MethodBase):
    """Halve the way to the neighbors, centroid by centroid.

    Notes
    -----
    **Messages.** The k centroids.
    """

    k: int
    name: ClassVar[str] = "tug"
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 5
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.CENTROIDS, init=Init.bounding_box()
    )

    def initial_state(self, devices, start):
        """Start from the seeds."""
        return TugState(start.centroids, np.zeros(len(devices), np.bool_))

    def message(self, state, devices):
        """Send all centroids."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state, inbox, devices):
        """Step to the mean of the own points of each cluster, then average with the neighbors."""
        centroids = state.centroids.copy()
        for i in range(len(devices)):
            points = devices.points[devices.offsets[i] : devices.offsets[i + 1]]
            label = ((points[:, None] - centroids[i]) ** 2).sum(axis=2).argmin(axis=1)
            for c in set(label):
                centroids[i, c] = points[label == c].mean(axis=0)
            for e in range(devices.indptr[i], devices.indptr[i + 1]):
                if inbox.slots[e] >= 0:
                    centroids[i] = 0.5 * (centroids[i] + inbox.tables[inbox.slots[e], : self.k])
        return TugState(centroids, state.converged)
'''
SERVED = '''
"""A method with a server."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits


@dataclass(frozen=True)
class Pool(ServerMethodBase):
    """Cluster the centroids of all clients, anew in every round.

    Notes
    -----
    **Messages.** Up: at most k centroids with counts. Down: k centroids.
    """

    k: int
    name: ClassVar[str] = "tug"
    traits: ClassVar[ServerTraits] = ServerTraits(message_content=MessageContent.CENTROIDS)
    default_rounds: ClassVar[int] = 5

    def report(self, clients, model):
        """Cluster the own points."""
        local, counts, _ = clients.kmeans(self.k, Stream.CLIENT, starts=1)
        counts = np.where(local[:, :, 0] < np.inf, counts, np.inf)
        return Report(*pack(np.concatenate((local, counts[:, :, None]), axis=2)), local)

    def aggregate(self, hub, tables, model):
        """Cluster the rows of all clients."""
        rows = np.concatenate(tables)
        search = Search(self.k, Stream.SERVER, starts=1)
        found, _, _ = cluster(hub.kernels, hub.shared_key, rows[:, :-1], rows[:, -1], search)
        return found
'''
TABLES = '''
"""A peer method of one function."""

from dataclasses import dataclass
from typing import ClassVar

from p2pkm.methods.building_blocks.table_method import TableMethod


@dataclass(frozen=True)
class Tug(TableMethod):
    """Average with the neighbors.

    Notes
    -----
    **Messages.** The k centroids.
    """

    name: ClassVar[str] = "tug"

    def combine(self, device):
        """Average the rows of the neighbors and the means of the local points."""
        return (device.sums + device.tables.sum(axis=0)) / (device.counts + len(device.tables))[:, None]
'''
FILES = {"peer": (PEER, "tug_plugin:Tug"), "server": (SERVED, "tug_plugin:Pool")}
RUN = ("--data", "grid16:points=9", "--clusters", 4, "--devices", 6, "--algorithm", "tug", "--rounds", 5, "--no-plot")
PATH = Path(p2pkm.__file__).parents[1]


@pytest.fixture(params=FILES)
def kind(request, site):
    """Install the package: one module, one entry point."""
    module, place = FILES[request.param]
    install(site, "tug-plugin", module, {"p2pkm.algorithms": {"tug": place}})
    return request.param


def run(*more):
    ending = here(*RUN, "--out", "none", "--format", "json", *more)
    assert ending.code == 0, ending.err
    return ending.summary


@pytest.mark.sample(2)
def test_it_is_planned(kind):
    ending = here("plan", *RUN[:-1], "--ranks", 1, "--format", "json")
    assert ending.code == 0, ending.err
    last, summary = json.loads(ending.out)["stages"][-1], run()
    assert last["known"] and last["rounds"] == 5
    if kind == "peer":  # 12 directed edges, the opening and five rounds, 4 rows of 2 numbers
        assert last["total"]["messages"] == 6 * 12 and last["total"]["bytes"] == 6 * 12 * 4 * 2 * 8
        assert last["total"]["messages"] <= summary["messages"]  # with those of the seeding
    else:
        assert last["total"]["messages"] == 6 * 6 + 5 * 6 == summary["messages"]
        assert last["total"]["bytes"] >= summary["bytes"]


@pytest.mark.slow
@pytest.mark.parametrize("every", thin([3, 1], 2))
def test_it_is_resumed_from_its_checkpoints(kind, every, tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    with monkeypatch.context() as patched:
        keep_all(patched, place / "run", place / "copies")
        assert here(*RUN, "--checkpoint-every", 1, "-q", "--out", place / "run").code == 0
    copies = sorted((place / "copies").iterdir())
    assert len(copies) >= 5
    for copy in copies[::every]:
        assert difference(place / "run", resume(copy)) == "", copy


@pytest.mark.mpi
def test_it_has_the_same_bits_on_ranks(kind, site):
    words = ("-m", "p2pkm", *RUN, "--out", "none", "--format", "json")
    endings = [there(*start, *words, PYTHONPATH=f"{PATH}:{site}") for start in ([sys.executable], ranks(3))]
    assert len({json.loads(ending.out)["chain_sha256"] for ending in endings}) == 1


def test_its_disclosure_is_counted_and_small_clusters_are_suppressed(kind):
    summary = run()
    assert summary["raw_points_disclosed"] is not None and summary["max_peers_observed"] >= 1
    assert run("--min-cluster-size", 5)["raw_points_disclosed"] == 0


def test_it_stands_in_the_catalogue(kind):
    assert "tug" in here("algorithms").out
    described = json.loads(here("algorithms", "tug", "--format", "json").out)
    described = described[0] if isinstance(described, list) else described
    assert described["server"] is (kind == "server") and described["message"]


@pytest.mark.parametrize(("file", "before", "after", "words"), [
    (PEER, "class Tug(MethodBase):", "class Tug:", "expected a subclass of p2pkm.core.protocols.MethodBase"),
    (PEER, "    traits:", "    habits:", "lacks traits"),
    (PEER, '    schedule: ClassVar[str] = "jacobi"\n', "", "lacks schedule"),
    (PEER, "    def update(", "    def improve(", "lacks update"),
    (PEER, "    k: int\n", "", "lacks k"),
    (TABLES, "    def combine(", "    def merge(", "lacks combine"),
    (SERVED, "    def aggregate(", "    def collect(", "lacks aggregate"),
])  # fmt: skip
@pytest.mark.sample(3)
def test_what_it_does_not_declare_is_named(site, file, before, after, words):
    assert before in file
    install(
        site,
        "tug-plugin",
        file.replace(before, after),
        {"p2pkm.algorithms": {"tug": f"tug_plugin:{'Pool' if file is SERVED else 'Tug'}"}},
    )
    with pytest.raises(ExperimentError, match=words):
        find("tug")
    ending = here(*RUN, "--out", "none")
    assert ending.code == 2 and words in ending.err.replace("\n", " ") and "Traceback" not in ending.err


@each("name", METHODS)
def test_every_method_says_whether_it_guarantees_privacy(name):
    docstring = find(name)(2).__class__.__doc__
    if name in LEARNERS:
        assert re.search(r"^    (Privacy: no|\*\*Privacy\.\*\* No) guarantee\b", docstring, re.MULTILINE)
        return
    level = r"(No guarantee\b|Complete: |\(epsilon, delta\)-differential privacy for each point)"
    for heading in (r"Messages\.\*\* ", r"Convergence\.\*\* ", rf"Privacy\.\*\* {level}"):
        assert re.search(rf"^    \*\*{heading}", docstring, re.MULTILINE), heading
