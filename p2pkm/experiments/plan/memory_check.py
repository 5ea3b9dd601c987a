"""The load of an experiment on memory, and the check before a run."""

from typing import Any

from p2pkm.core.errors import P2PKMError
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.mpi_environment import local_size
from p2pkm.core.spec import Spec
from p2pkm.core.traits import MessageContent
from p2pkm.data.out_of_core.shards import draws
from p2pkm.data.size_estimate import Size, has_header
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import RunSpecs
from p2pkm.experiments.plan.draft import RunPlan, resolve_experiment
from p2pkm.experiments.plan.free_memory import available_memory
from p2pkm.experiments.plan.memory_model import MemoryInputs, refuse
from p2pkm.experiments.plan.volume import flood
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.monitor import usual_every
from p2pkm.network.graph import LARGE, Topology

_DEGREE = 2  # of a graph whose spec has no degree, at least; and of a star
_ENTRY, _SHARE, _CHAIN = 4, 8, 9  # bytes per link in use and round, with own weights; per directed edge if drawn anew
_SERVED, _SHIPPED = 2, 5  # tables of all points: of methods with a server, and where all points go there


def check_memory(specs: RunSpecs, ranks: int | None) -> None:
    """Refuse a run that cannot fit into the memory of this machine, before anything is read or built.

    What is wrong otherwise is left to those who say so better.

    Parameters
    ----------
    ranks : int or None
        Number of MPI ranks; None without MPI.

    Raises
    ------
    DataError
        If it cannot, with what to change.
    """
    limit = available_memory()
    if limit is None:
        return
    try:
        if not has_header(specs.source):  # to look would be to read it twice
            return
        resolved, method, size = resolve_experiment(specs, ranks, count=False)
    except (P2PKMError, OSError):
        return
    if resolved.devices is None:  # a graph in a file has as many as a file holds
        return
    n = resolved.devices
    edges = n * int(specs.graph.options.get("degree", _DEGREE)) if not needs_hub(method) else _DEGREE * n
    refuse(weigh(resolved, specs.partition, method, size, (n, edges), ranks or 1), limit, local_size())


def weigh(
    experiment: RunOptions, partition: Spec | None, method: Any, size: Size, graph: tuple[int, int], ranks: int
) -> MemoryInputs:
    """Return the load of an experiment; graph: devices and directed edges."""
    records = (experiment.rounds or 0) // (experiment.record_every or usual_every(graph[0])) + 2
    drawn = draws(partition or Spec("column", {}))
    sent = method.expected_messages(Known(graph[0], size.points, size.distinct, size.features, 0, True))
    ships = isinstance(sent, Reports) and sent.by_points
    return MemoryInputs(
        size.points, size.features, *graph, method.k, records, experiment.baselines, ranks=ranks,
        word=4 if experiment.dtype == "float32" else 8,
        copies=(_SHIPPED if ships else _SERVED) if needs_hub(method) else 0,
        reading="first" if not size.stored else "drawn" if drawn else "each", compiles=method.traits.derives_features,
    )  # fmt: skip


def weigh_plan(plan: RunPlan, ranks: int, ghosts: int) -> MemoryInputs:
    """Return the load of a plan on so many ranks."""
    topology = plan.topology
    load = weigh(plan.experiment, plan.partition, plan.algorithm, plan.size, (topology.n, len(topology.indices)), ranks)
    load = _weigh_changes(plan, load._replace(ghosts=ghosts))
    floods = [
        one
        for one in (stage.algorithm.traits for stage in plan.stages)
        if one.message_content is MessageContent.SUMMARIES
    ]
    if not floods:
        return load
    waves = flood(topology, floods[0].hops)
    swell = topology.n if waves is None else max(wave.tables for wave in waves) / max(len(topology.indices), 1)
    return load._replace(flooded=plan.algorithm.k, swell=swell)


def _weigh_changes(plan: RunPlan, load: MemoryInputs) -> MemoryInputs:
    """Add what a graph that changes takes: its rounds, and the masks that the ledger keeps."""
    topology, graph, used = plan.topology, plan.topology.varying, plan.used
    if graph is None or used is None:
        return load
    each = _ENTRY + (_SHARE if graph.own_mixing is not None else 0)
    tape = int(2 * used * each) * graph.period if graph.period else _CHAIN * len(topology.indices)
    exchanges = (plan.experiment.rounds or 0) * _count_turns(plan.algorithm, topology) + 1
    return load._replace(tape=max(tape, 1), exchanges=exchanges if topology.n <= LARGE else 0)


def _count_turns(algorithm: Any, topology: Topology) -> int:
    """Return the number of exchanges of a round."""
    word, _, turns = algorithm.on(topology).schedule.partition("*")
    if word == "colored":
        return int(topology.colors.max(initial=0)) + 1
    return int(turns or (2 if word == "star" else 1))
