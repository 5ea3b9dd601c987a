"""Devices with points on a small world, and the seconds of their rounds, played by the simulator's own loop."""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np

import topologies
from p2pkm.core.batch import Devices, Floats, Integers, Kernels
from p2pkm.data.shards import Shards, unweighted
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.loop import RunContext, StageResult, Start, run_stage
from p2pkm.kernels import numba as compiled
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.peer.gtvmin import GTVMin
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.transport import Network
from p2pkm.network.world import connect

POINTS, DEGREE = 100, 6  # of each device
_BOX, _NEAR, _PIECE = 10.0, 0.1, 1 << 20  # half the side of the means' box, the start's distance, points of a draw


class Blind(NamedTuple):
    """A monitor that looks at nothing."""

    network: Network

    def record(self, *given: Any, **more: Any) -> None:
        """Record nothing."""


@dataclass(frozen=True)
class Arena:
    """What a stage is played on; means: float64[k, d], what the points are drawn around."""

    topology: Topology
    devices: Devices
    network: Network
    means: Floats

    @property
    def data(self) -> int:
        """Return the bytes of the points, two tables of centroids and the graph."""
        links = self.topology.indptr.nbytes + self.topology.indices.nbytes + self.topology.weights.nbytes
        return int(self.devices.stored.nbytes + 2 * len(self.devices) * self.means.nbytes + links)

    def start(self) -> Floats:
        """Return centroids to start from, the means with some noise, float64[n, k, d]."""
        centroids = np.random.default_rng(1).standard_normal((len(self.devices), *self.means.shape))
        centroids *= _NEAR
        centroids += self.means
        return centroids

    def play(self, rounds: int, schedule: str = "jacobi") -> tuple[StageResult, list[float]]:
        """Play at most so many rounds of GTVMin from the start, without a monitor; return the seconds of each, too."""
        stamps: list[float] = []

        def stamp() -> bool:
            stamps.append(time.perf_counter())
            return False

        algorithm: Any = GTVMin(len(self.means), schedule=schedule, tol=0.0)  # type: ignore[arg-type]
        monitor: Any = Blind(self.network)
        context = RunContext(self.devices, self.topology.colors, monitor, stamp)
        stage, everybody = Stage("gtvmin", algorithm, rounds), np.ones(len(self.devices), np.bool_)
        # The start has no name here: like a run, the stage holds the only reference to it, and frees it.
        ending = run_stage(stage, Start(self.start(), everybody), context, is_method_stage=False)
        return ending, np.diff(stamps).tolist()

    def clock(self, rounds: int, schedule: str = "jacobi") -> list[float]:
        """Return the seconds of so many rounds, in several goes if all devices converge before."""
        seconds: list[float] = []
        while len(seconds) < rounds:
            seconds += self.play(rounds, schedule)[1]
        return seconds

    def without_points(self) -> "Arena":
        """Return the same devices with links alone."""
        empty = {"stored": self.devices.stored[:0], "offsets": np.zeros(len(self.devices) + 1, np.int64)}
        return replace(self, devices=replace(self.devices, **empty, point_weights=unweighted(0)))

    def without_links(self) -> "Arena":
        """Return devices of the same points that do not know each other."""
        alone = Topology.from_links(self.topology.n, np.zeros((0, 3)))
        return _populate(alone, self.devices.stored, self.devices.offsets, self.means)


def build(n: int, k: int, d: int, graph: topologies.CSRGraph | None = None) -> Arena:
    """Lay out n devices of 100 points each on a small world, or another graph; this rank draws those of its own."""
    topology = Topology.from_graph(graph or topologies.build("small-world", n, degree=DEGREE, light=True))
    means = np.random.default_rng(0).uniform(-_BOX, _BOX, (k, d))
    world = connect()
    own = len(place(topology, world.rank, world.size).ids)
    rng, points = np.random.default_rng([2, world.rank]), np.empty((own * POINTS, d))
    for first in range(0, len(points), _PIECE):  # the peak of memory shall be that of the rounds
        piece = points[first : first + _PIECE]
        rng.standard_normal(out=piece)
        piece += means[rng.integers(0, k, len(piece))]
    return _populate(topology, points, np.arange(own + 1) * POINTS, means)


def _populate(topology: Topology, points: Any, offsets: Integers, means: Floats) -> Arena:
    """Host the devices, and play a round so that everything is compiled and at its place."""
    world = connect()
    network = world.network(place(topology, world.rank, world.size))
    shards, kernels = Shards(points, offsets, unweighted(len(points)), None, 0), cast(Kernels, compiled)
    arena = Arena(topology, build_batch(topology, shards, network, 0, kernels), network, means)
    arena.play(1)
    return arena
