"""What the ranks other than rank 0 do: run what rank 0 prepared and broadcasts.

This module is all that such a rank imports of the program, so it imports nothing that rank 0 alone needs: no readers of
files, no families of graphs, no partitions, no run folders, no figures (`tests/test_architecture.py`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from p2pkm.core.errors import DataError
from p2pkm.engine.build_run import build_run
from p2pkm.engine.receive_shard import receive_part
from p2pkm.engine.run_job import run_job
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.network.graph import Topology
from p2pkm.network.transport import World


def worker_loop(world: World, errands: Mapping[str, Callable[[World, dict[str, Any]], None]]) -> int:
    """Do what rank 0 broadcasts until it says how to end; return the exit code.

    Parameters
    ----------
    errands : mapping
        What to call for an order that is not a run, by the name in it.
    """
    with asked_to_stop() as interrupted:  # also while waiting: rank 0 decides what becomes of its first Ctrl-C
        while True:
            order = world.broadcast(None)
            if "exit" in order:
                return int(order["exit"])
            errand = next((errands[name] for name in errands if name in order), partial(_join, interrupted=interrupted))
            errand(world, order)


def _join(world: World, order: dict[str, Any], interrupted: Callable[[], int]) -> None:
    """Run what rank 0 runs."""
    experiment = RunOptions.from_mapping(json.loads(order["experiment"].tobytes()), "the experiment")
    algorithm = parse_method(experiment).build(experiment.draft_k)  # registers its states
    try:
        part = receive_part(world, order, world.scatter(None))
    except DataError:
        return  # rank 0 says so
    run = build_run(algorithm, experiment, _read_topology(order, experiment, algorithm), None, ranks=world.size,
                    arrays=order)  # fmt: skip
    run_job(run, replace(part, interrupted=interrupted), world)


def _read_topology(order: dict[str, Any], experiment: RunOptions, algorithm: Any) -> Any:
    """Build the topology from what was broadcast; a graph that changes anew, for its rounds may be endless."""
    if "changing" not in order:
        return Topology.from_arrays(order)
    return build_topology(parse_graph(experiment, algorithm), experiment.devices, 1)
