"""Short real runs with a clock: rounds of a method, and exchanges between two ranks."""

import json
import shutil
import subprocess
import sys
import time
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.messages import DenseMessages
from p2pkm.data.random import generator
from p2pkm.data.shards import Shards
from p2pkm.engine.run_options import RunOptions
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.transport import World
from p2pkm.network.world import connect

_BOX, _NEAR = 10.0, 0.1  # half the side of the box of the means; how far the start is from them
_ROUNDS, _NEVER = 4, 10**9
_EXCHANGES, _SMALL, _LARGE = 200, 8, 1 << 20  # bytes of a row
_LIMIT = 300  # seconds


class Seconds(NamedTuple):
    """What a trial took: from the start to the end of the opening, and each round."""

    opening: float
    rounds: list[float]


def play(world: World, algorithm: Any, topology: Topology, points: int, features: int) -> Seconds:
    """Run some rounds on random points, the same number at each device, without seeding; every rank calls it alike."""
    from p2pkm.engine.build_run import RunConfig
    from p2pkm.engine.run_job import RankPart, RootHooks, run_job

    placement = place(topology, world.rank, world.size)
    n, each, k = len(placement.ids), -(-points // topology.clients), algorithm.k
    sizes = np.where(placement.ids == topology.hub, 0, each)
    means = generator(0, "means").uniform(-_BOX, _BOX, (k, features))
    rng = generator(world.rank, "trial")
    own = means[rng.integers(0, k, sizes.sum())]
    own += rng.standard_normal(own.shape)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    shards = Shards(own, offsets, np.ones(len(own)), None, np.arange(len(own)))
    start = None
    if topology.hub < 0 and algorithm.traits.init is not None:
        start = means + _NEAR * rng.standard_normal((n, k, features))
    clock = _Clock([], [])
    rounds = min(_ROUNDS, algorithm.default_rounds)
    config = RunConfig(algorithm, topology, rounds=rounds, record_every=_NEVER, baselines=False)
    hooks = RootHooks(begin=clock.begin, sink=clock.record)
    run_job(config, RankPart(shards, start, interrupted=clock.tick), world, hooks)
    return clock.read()


class _Clock(NamedTuple):
    """Stamps of the run: when it began and its records were made, and the ends of opening and rounds."""

    stamps: list[float]
    ends: list[float]

    def begin(self) -> None:
        self.stamps.append(time.perf_counter())

    def record(self, record: dict[str, Any]) -> None:
        self.stamps.append(time.perf_counter())

    def tick(self) -> bool:
        self.ends.append(time.perf_counter())
        return False

    def read(self) -> Seconds:
        """Return the seconds; what the monitor did between opening and first round is in neither."""
        if len(self.stamps) < 2:  # a rank that gets no records
            return Seconds(0.0, [])
        starts = [self.stamps[1], *self.ends[1:-1]]
        rounds = [end - start for start, end in zip(starts, self.ends[1:], strict=False)]
        return Seconds(self.ends[0] - self.stamps[0], rounds)


def exchange(world: World) -> tuple[float, float]:
    """Return the seconds of an exchange of a small table between two neighboring ranks, and bytes per second."""
    ranks = Topology.from_links(world.size, np.array([(r, r + 1, 1.0) for r in range(world.size - 1)]).reshape(-1, 3))
    placement, took = place(ranks, world.rank, world.size), []
    for size, times in ((_SMALL, _EXCHANGES), (_LARGE, _EXCHANGES // 10)):
        network = world.network(placement)
        network.open()
        messages = DenseMessages(np.zeros((1, 1, size // 8)), np.ones(1, np.int64))
        network.exchange(messages)
        stamps = [time.perf_counter()]
        for _ in range(times):
            network.exchange(messages)
            stamps.append(time.perf_counter())
        network.close()
        took.append(float(np.median(np.diff(stamps))))
    return took[0], _LARGE / max(took[1] - took[0], 1e-9)


def launch(ranks: int, task: dict[str, Any]) -> dict[str, Any] | None:
    """Run `main` on so many ranks of this machine and return what it prints; None if that is not possible."""
    command = [sys.executable, "-m", __name__, json.dumps(task)]
    if ranks > 1:
        folders = str(Path(sys.executable).parent)
        starter = shutil.which("mpirun", path=folders) or shutil.which("mpirun") or shutil.which("mpiexec")
        if starter is None:
            return None
        command = [starter, "-n", str(ranks), *command]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return found if found is not None and found["ranks"] == ranks else None


def main(argument: str) -> None:
    """Do a task and print what came out on rank 0: an experiment to play, or nothing but exchanges."""
    task = json.loads(argument)
    world = connect()
    found: dict[str, Any] = {"ranks": world.size}
    if "experiment" in task:
        from p2pkm.experiments.plan.draft import build_plan

        plan = build_plan(RunOptions.from_mapping(task["experiment"], "the plan"), world.size)
        taken = play(world, endless(plan.algorithm), plan.topology, plan.size.points, plan.size.features)
        found |= taken._asdict()
    else:
        found["latency"], found["bandwidth"] = exchange(world)
    if world.rank == 0:
        print(json.dumps(found), flush=True)


def endless(algorithm: Any) -> Any:
    """Return the same method with a tolerance of 0, so that it does not converge within a few rounds."""
    other = copy(algorithm)
    if "tol" in vars(other):
        object.__setattr__(other, "tol", 0.0)
    return other


if __name__ == "__main__":
    main(sys.argv[1])
