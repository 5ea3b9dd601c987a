"""Command ``plan``: estimated memory, messages and seconds of a run, as text or JSON, and whether it can run here."""

import json
import sys
from typing import Any, NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.core.expected_messages import MessageVolume
from p2pkm.core.mpi_environment import launched, local_size
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import print_note
from p2pkm.experiments.plan.draft import RunPlan, build_plan
from p2pkm.experiments.plan.free_memory import available_memory
from p2pkm.experiments.plan.memory_check import plan_memory_inputs
from p2pkm.experiments.plan.memory_model import (
    MemoryEstimate,
    MemoryInputs,
    check_fits_memory,
    estimate_memory,
    machine_memory,
)
from p2pkm.experiments.plan.message_counts import StageTraffic, stage_traffic
from p2pkm.experiments.plan.pilot import estimate_seconds
from p2pkm.experiments.plan.split import RANKS, PartitionStats, choose_partition, count_cut_links
from p2pkm.experiments.plan.text import write_plan
from p2pkm.methods.init.pipelines import describe_graph_use
from p2pkm.network.rank_partition import check_rank_partition
from p2pkm.network.world import connect


class PlanOptions(NamedTuple):
    """Options of ``plan``.

    Attributes
    ----------
    ranks : int or None
        Number of ranks of the planned run; None: the number of ranks of this process.
    json : bool
        Print one JSON object instead of text.
    """

    ranks: int | None = None
    json: bool = False


def run_plan_command(experiment: RunOptions, options: PlanOptions) -> int:
    """Print the plan of a run and return 0 if the run can start on this machine.

    The JSON object has these keys:

    * ``experiment``: resolved options.
    * ``points``, ``features``, ``devices``, ``links``, ``ranks``: sizes.
    * ``links_in_use``: mean number per round on a time-varying graph, otherwise null.
    * ``memory``: for each number of ranks, bytes by part of ``rank0`` and of each ``other`` rank, with ``peak``, and of
      all ranks ``together`` on one machine.
    * ``memory_free``: free bytes of this machine.
    * ``not_counted``: faults and deadline, whose effect on messages and seconds is not planned; empty: none.
    * ``stages``: ``name``, ``rounds``, ``known``, ``all_rounds``, ``assumed`` (the method declares no messages, or
      faults change them: the numbers are a guess); and for ``opening`` (round 0), ``first`` round and ``total``:
      ``messages``, ``bytes``, ``exact_messages``, ``exact_bytes`` (false: upper bound, or a guess).
    * ``split``: for each number of ranks, ``devices`` and ``halo_size`` of the rank with the most, ``edge_cut`` and
      ``rank_partition``.
    * ``pilot``: see `p2pkm.experiments.plan.pilot.estimate_seconds`.
    * ``excess_predicted``: excess of the cost ratio from sampling noise with fixed labels; null without a theorem.
    * ``excess_strong``: ``coupling`` and ``excess`` of coupling "strong"; null without a theorem.
    * ``refusals``: error messages.

    Raises
    ------
    P2PKMError
        If the run would be rejected, after everything is printed.
    """
    world = connect()
    ranks = options.ranks or world.size
    check_rank_partition(experiment.rank_partition)
    plan = build_plan(experiment, world.size if launched() else None)
    for note in describe_graph_use(plan.algorithm, plan.topology):
        print_note(note)
    limit, refusals = available_memory(), [] if plan.refusal is None else [plan.refusal]
    partitions = [count_cut_links(plan.topology, choose_partition(plan, r, ranks)) for r in sorted({ranks, *RANKS})]
    inputs = {part.ranks: plan_memory_inputs(plan, part.ranks, part.halo) for part in partitions}
    try:
        check_fits_memory(inputs[ranks], limit, local_size())
    except DataError as error:
        refusals.insert(0, error)
    described = describe_plan(plan, ranks)
    described |= {"memory": [_describe_memory(entry) for entry in inputs.values()], "memory_free": limit}
    described |= {"split": [_describe_partition(part) for part in partitions], "pilot": estimate_seconds(plan)}
    described["refusals"] = [str(refusal) for refusal in refusals]
    if options.json:
        print(json.dumps(described), flush=True)
    else:
        write_plan(described, sys.stdout)
    if refusals:
        raise refusals[0]
    return 0


def describe_plan(plan: RunPlan, ranks: int) -> dict[str, Any]:
    """Describe sizes, messages, bytes and predicted excess of a plan."""
    stages, options = [], plan.experiment
    for traffic in stage_traffic(plan):
        stage: dict[str, Any] = {
            "name": traffic.name,
            "rounds": traffic.rounds,
            "known": traffic.volume is not None,
            "all_rounds": options.all_rounds,
            "assumed": traffic.is_assumed,
        }
        if traffic.volume is not None:
            volumes = {"opening": traffic.volume(0), "first": traffic.volume(1), "total": traffic.total()}
            stage |= {name: _describe_volume(volume, traffic) for name, volume in volumes.items()}
        stages.append(stage)
    return {
        "experiment": options.to_mapping(),
        "points": plan.size.points,
        "features": plan.size.features,
        "devices": plan.topology.clients,
        "links": len(plan.topology.indices) // 2,
        "links_in_use": plan.links_in_use,
        "ranks": ranks,
        "not_counted": plan.not_counted,
        "stages": stages,
        "excess_strong": _predict_strong(plan),
        "excess_predicted": _predict(plan),
    }


def _describe_volume(volume: MessageVolume, traffic: StageTraffic) -> dict[str, Any]:
    """Describe messages and bytes; `encoded` says whether the encoded bytes are estimated separately."""
    described = volume._asdict()
    if traffic.is_assumed:
        described |= {"exact_messages": False, "exact_bytes": False}
    return described | {"wire_bytes": volume.wire_bytes, "encoded": described.pop("wire") is not None}


def _predict(plan: RunPlan) -> float | None:
    """Predict the excess of the mean cost ratio; None without a theorem."""
    objective = plan.algorithm.objective
    return None if objective is None else objective.predict_excess(plan.topology, plan.size.points)


def _predict_strong(plan: RunPlan) -> dict[str, float] | None:
    """Predict the coupling of "strong" and its excess; None without a theorem for the method."""
    from p2pkm.methods.building_blocks.coupling_choice import choose_coupling, predict_excess

    topology, points, k = plan.topology, plan.size.points, plan.algorithm.k
    if _predict(plan) is None:
        return None
    coupling = choose_coupling(topology, points, k)
    return {"coupling": coupling, "excess": predict_excess(topology, coupling, points, k)}


def _describe_memory(inputs: MemoryInputs) -> dict[str, Any]:
    """Describe the memory of rank 0, of each other rank, and of all ranks on one machine."""
    rank0, other = estimate_memory(inputs), estimate_memory(inputs, first=False)
    return {
        "ranks": inputs.ranks,
        "rank0": _describe_estimate(rank0),
        "other": _describe_estimate(other),
        "together": machine_memory(inputs, inputs.ranks),
    }


def _describe_estimate(estimate: MemoryEstimate) -> dict[str, int]:
    return estimate._asdict() | {"held": estimate.resident, "peak": estimate.peak}


def _describe_partition(part: PartitionStats) -> dict[str, Any]:
    return {
        "ranks": part.ranks,
        "devices": part.devices,
        "edge_cut": part.cut,
        "halo_size": part.halo,
        "rank_partition": part.partition,
    }
