"""Inputs of the memory model for an experiment or a plan, and the memory check before a run."""

from typing import Any

from p2pkm.core.errors import P2PKMError
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.mpi_environment import local_size
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.spec import Spec
from p2pkm.core.traits import MessageContent
from p2pkm.data.size_estimate import Size, has_header
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import RunSpecs
from p2pkm.experiments.plan.draft import RunPlan, resolve_experiment
from p2pkm.experiments.plan.free_memory import available_memory
from p2pkm.experiments.plan.memory_model import MemoryInputs, check_fits_memory
from p2pkm.experiments.plan.volume import count_flood_steps
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.metrics.monitor import usual_every
from p2pkm.network.graph import LARGE, Topology

_DEGREE = 2  # minimum degree assumed for a graph whose spec has none, and mean degree of a star
# Bytes of a stored round of a time-varying graph, per edge in use, and in addition with given mixing weights.
_EDGE_IN_ROUND, _EDGE_WEIGHT = 4, 8
_DRAWN_EDGE = 9  # bytes per directed edge if each round is drawn and not stored
# Copies of all points: by server methods, and by those whose clients send their points to the server.
_SERVER_COPIES, _SHIPPED_COPIES = 2, 5


def check_memory(specs: RunSpecs, ranks: int | None) -> None:
    """Check that a run fits into the memory of this machine, before anything is read or built.

    Other errors are ignored: later checks report them with better messages.

    Parameters
    ----------
    specs : RunSpecs
    ranks : int or None
        Number of MPI ranks; None without MPI.

    Raises
    ------
    DataError
        If the run does not fit; the message lists remedies.
    """
    limit = available_memory()
    if limit is None:
        return
    try:
        # Without a header, the size is known only after reading the file, which would then be read twice.
        # The points of an object are in memory already.
        if isinstance(specs.source, ProgramObject) or not has_header(specs.source):
            return
        resolved, method, size = resolve_experiment(specs, ranks, count=False)
    except (P2PKMError, OSError):
        return
    if resolved.devices is None:
        # The number of nodes of a graph file is not known yet, and is limited by the file.
        return
    n = resolved.devices
    edges = n * int(specs.graph.options.get("degree", _DEGREE)) if not needs_hub(method) else _DEGREE * n
    inputs = memory_inputs(resolved, specs.partition, method, size, (n, edges), ranks or 1)
    check_fits_memory(inputs, limit, local_size())


def memory_inputs(
    experiment: RunOptions,
    partition: Spec | ProgramObject | None,
    method: Any,
    size: Size,
    graph: tuple[int, int],
    ranks: int,
) -> MemoryInputs:
    """Collect the inputs of the memory model; `graph` is the number of devices and of directed edges."""
    records = (experiment.rounds or 0) // (experiment.record_every or usual_every(graph[0])) + 2
    known = Known(graph[0], size.points, size.distinct, size.features, 0, True, size.weighted)
    pattern = method.expected_messages(known)
    ships_points = isinstance(pattern, Reports) and pattern.by_points
    copies = _SHIPPED_COPIES if ships_points else _SERVER_COPIES
    reader = "first"
    if size.stored:
        from p2pkm.data.out_of_core.shards import needs_complete_partition

        spec = partition if isinstance(partition, Spec) else Spec("column", {})
        reader = "drawn" if needs_complete_partition(spec) else "each"
    return MemoryInputs(
        size.points,
        size.features,
        *graph,
        method.k,
        records,
        experiment.baselines,
        ranks=ranks,
        value_bytes=4 if experiment.dtype == "float32" else 8,
        server_copies=copies if needs_hub(method) else 0,
        reader=reader,
        trains_networks=method.traits.derives_features,
        # Whether the preferred coupling can be used is known only to a plan; check for the larger memory.
        compares_couplings="auto" in (method.traits.coupling_choice, method.preferred.get("coupling")),
    )


def plan_memory_inputs(plan: RunPlan, ranks: int, halo: int) -> MemoryInputs:
    """Collect the inputs of the memory model for a plan on a number of ranks."""
    topology = plan.topology
    graph = topology.n, len(topology.indices)
    inputs = memory_inputs(plan.experiment, plan.partition, plan.algorithm, plan.size, graph, ranks)
    chooses = any(stage.name == "coupling-choice" for stage in plan.stages)
    inputs = _add_graph_history(plan, inputs._replace(halo=halo, compares_couplings=chooses))
    floods = [
        traits
        for traits in (stage.algorithm.traits for stage in plan.stages)
        if traits.message_content is MessageContent.SUMMARIES
    ]
    if not floods:
        return inputs
    steps = count_flood_steps(topology, floods[0].hops)
    if steps is None:
        arriving = float(topology.n)
    else:
        arriving = max(step.tables for step in steps) / max(len(topology.indices), 1)
    return inputs._replace(flooded_rows=plan.algorithm.k, arriving_tables=arriving)


def _add_graph_history(plan: RunPlan, inputs: MemoryInputs) -> MemoryInputs:
    """Add the rounds of a time-varying graph and the masks of edges in use that the ledger stores."""
    topology, graph, links = plan.topology, plan.topology.varying, plan.links_in_use
    if graph is None or links is None:
        return inputs
    per_edge = _EDGE_IN_ROUND + (_EDGE_WEIGHT if graph.own_mixing is not None else 0)
    history = int(2 * links * per_edge) * graph.period if graph.period else _DRAWN_EDGE * len(topology.indices)
    exchanges = (plan.experiment.rounds or 0) * _count_turns(plan.algorithm, topology) + 1
    return inputs._replace(graph_history_bytes=max(history, 1), exchanges=exchanges if topology.n <= LARGE else 0)


def _count_turns(algorithm: Any, topology: Topology) -> int:
    """Count the exchanges of a round."""
    schedule, _, turns = algorithm.on(topology).schedule.partition("*")
    if schedule == "colored":
        return int(topology.colors.max(initial=0)) + 1
    return int(turns or (2 if schedule == "star" else 1))
