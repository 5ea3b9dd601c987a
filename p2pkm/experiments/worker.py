"""Loop of the ranks other than rank 0: execute the runs and tasks that rank 0 broadcasts.

Such a rank imports the program through this module only. To start fast and use little memory, it imports nothing that
only rank 0 needs: no file readers, graph families, partitions, run folders or figures (`tests/test_architecture.py`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from p2pkm.core.errors import DataError
from p2pkm.engine.build_run import build_run
from p2pkm.engine.receive_shard import receive_rank
from p2pkm.engine.run_job import play, report_to_root
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.network.graph import Topology
from p2pkm.network.transport import World


def worker_loop(world: World, tasks: Mapping[str, Callable[[World, dict[str, Any]], None]]) -> int:
    """Execute the orders of rank 0 until one contains an exit code, and return this code.

    Parameters
    ----------
    world : World
    tasks : mapping of str to callable
        Functions for orders other than runs, by the name of the entry that marks such an order.
    """
    # Signals are caught also while waiting: rank 0 decides how to react to the first Ctrl-C.
    with asked_to_stop() as interrupted:
        while True:
            order = world.broadcast(None)
            if "exit" in order:
                return int(order["exit"])
            task = next((tasks[name] for name in tasks if name in order), partial(_join, interrupted=interrupted))
            task(world, order)


def _join(world: World, order: dict[str, Any], interrupted: Callable[[], int]) -> None:
    """Take part in a run of rank 0."""
    options = RunOptions.from_mapping(json.loads(order["experiment"].tobytes()), "the experiment")
    # Building the method imports its module, which registers the state classes that a checkpoint may contain.
    algorithm = parse_method(options).build(options.draft_k)
    part = world.scatter(None)
    topology = _read_topology(order, options, algorithm)
    run = build_run(algorithm, options, topology, None, arrays=order)
    try:
        rank = receive_rank(run, world, order, part)
    except DataError:
        # Rank 0 raises the same error and reports it.
        return
    # A list, which is emptied: this frame must not hold the points while the result is gathered.
    ranks = [replace(rank, interrupted=interrupted)]
    del part, rank
    report_to_root(play(ranks.pop()))


def _read_topology(order: dict[str, Any], experiment: RunOptions, algorithm: Any) -> Any:
    """Read the graph from the order; a time-varying graph is built again, because its rounds may be endless."""
    if "changing" not in order:
        return Topology.from_arrays(order)
    return build_topology(parse_graph(experiment, algorithm), experiment.devices, 1)
