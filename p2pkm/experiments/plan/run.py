"""The command `plan`: what a run would need, as text and as JSON, and whether it can run here."""

import json
import sys
from dataclasses import replace
from typing import Any, NamedTuple

from p2pkm.core.errors import DataError
from p2pkm.core.expected_messages import Volume
from p2pkm.core.mpi_environment import launched, local_size
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import tell
from p2pkm.experiments.plan.draft import RunPlan, build_plan
from p2pkm.experiments.plan.free_memory import available_memory
from p2pkm.experiments.plan.memory_check import weigh_plan
from p2pkm.experiments.plan.memory_model import MemoryEstimate, MemoryInputs, need, refuse, together
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.experiments.plan.pilot import estimate_seconds
from p2pkm.experiments.plan.split import RANKS, Split, divide, split
from p2pkm.experiments.plan.text import show
from p2pkm.methods.init.pipelines import describe_graph_use
from p2pkm.network.rank_partition import check_rank_partition
from p2pkm.network.world import connect


class PlanOptions(NamedTuple):
    """How to plan: ranks of the run (None: those that are running), and how to print."""

    ranks: int | None = None
    json: bool = False


def run_plan_command(experiment: RunOptions, wanted: PlanOptions) -> int:
    """Print what a run would need, and return 0 if it can be started here.

    The JSON object has ``experiment`` (the resolved options), ``points features devices links``, ``links_in_use`` (of a
    graph that changes, else null), ``ranks``, ``memory``
    (a row for every number of ranks: bytes of ``rank0`` and of each ``other`` rank by part, their ``peak``, and what
    all ``together`` need on one machine), ``memory_free``, ``stages`` (``name rounds known all_rounds``; for
    ``opening``, ``first`` round and ``total``: ``messages bytes exact_messages exact_bytes``; not exact: at most),
    ``split`` (a row for every number of ranks: ``devices`` and ``halo_size`` of the rank with the most, ``edge_cut``
    and ``rank_partition``), ``pilot`` (see `p2pkm.experiments.plan.pilot.estimate_seconds`),
    ``excess_predicted`` of the cost ratio, from noise alone with labels fixed, and ``excess_auto`` (``coupling
    excess``; null where theory is silent),
    and ``refusals`` (texts).

    Raises
    ------
    P2PKMError
        Why a run would be refused, after everything is printed.
    """
    if experiment.faults is not None:  # from --config
        print("p2pkm: planned without faults: docs/faults.md describes what a run under faults sends", file=sys.stderr)
        experiment = replace(experiment, faults=None, stale_policy=None)
    world = connect()
    check_rank_partition(experiment.rank_partition, wanted.ranks or world.size)
    plan = build_plan(experiment, world.size if launched() else None)
    for note in describe_graph_use(plan.algorithm, plan.topology):
        tell(note)
    ranks = wanted.ranks or world.size
    limit, refusals = available_memory(), [] if plan.refusal is None else [plan.refusal]
    parts = [split(plan.topology, divide(plan, r, ranks)) for r in sorted({ranks, *RANKS})]
    loads = {part.ranks: weigh_plan(plan, part.ranks, part.ghosts) for part in parts}
    try:
        refuse(loads[ranks], limit, local_size())
    except DataError as error:
        refusals.insert(0, error)
    found = describe(plan, ranks) | {"memory": [_remember(load) for load in loads.values()], "memory_free": limit}
    found |= {"split": [_lay_out(part) for part in parts], "pilot": estimate_seconds(plan)}
    found["refusals"] = [str(refusal) for refusal in refusals]
    if wanted.json:
        print(json.dumps(found), flush=True)
    else:
        show(found, sys.stdout)
    if refusals:
        raise refusals[0]
    return 0


def describe(plan: RunPlan, ranks: int) -> dict[str, Any]:
    """Return what is certain: sizes, messages and bytes."""
    stages, asked = [], plan.experiment
    for course in stage_traffic(plan):
        known: dict[str, Any] = {"name": course.name, "rounds": course.rounds, "known": course.volume is not None,
                                 "all_rounds": asked.all_rounds}  # fmt: skip
        if course.volume is not None:
            volumes = {"opening": course.volume(0), "first": course.volume(1), "total": course.total()}
            known |= {name: _figures(volume) for name, volume in volumes.items()}
        stages.append(known)
    return {
        "experiment": asked.to_mapping(), "points": plan.size.points, "features": plan.size.features,
        "devices": plan.topology.clients, "links": len(plan.topology.indices) // 2, "links_in_use": plan.used,
        "ranks": ranks, "stages": stages, "excess_auto": _predict_auto(plan),
        "excess_predicted": _predict(plan),
    }  # fmt: skip


def _figures(volume: Volume) -> dict[str, Any]:
    """Return what is sent; encoded: whether the bytes on the wire are about so many."""
    found = volume._asdict()
    return found | {"wire_bytes": volume.wire_bytes, "encoded": found.pop("wire") is not None}


def _predict(plan: RunPlan) -> float | None:
    """Return the expected excess of the mean cost ratio over 1, None without a theorem for it."""
    objective = plan.algorithm.objective
    return None if objective is None else objective.predict_excess(plan.topology, plan.size.points)


def _predict_auto(plan: RunPlan) -> dict[str, float] | None:
    """Return the coupling that auto would take, and the excess expected with it; None where that means nothing."""
    from p2pkm.methods.building_blocks.coupling_choice import choose_coupling, predict_excess

    topology, points, k = plan.topology, plan.size.points, plan.algorithm.k
    if _predict(plan) is None:
        return None
    best = choose_coupling(topology, points, k)
    return {"coupling": best, "excess": predict_excess(topology, best, points, k)}


def _remember(load: MemoryInputs) -> dict[str, Any]:
    ranks = {"rank0": _parts(need(load)), "other": _parts(need(load, first=False))}
    return {"ranks": load.ranks, **ranks, "together": together(load, load.ranks)}


def _parts(one: MemoryEstimate) -> dict[str, int]:
    return one._asdict() | {"held": one.held, "peak": one.peak}


def _lay_out(part: Split) -> dict[str, Any]:
    return {"ranks": part.ranks, "devices": part.devices, "edge_cut": part.cut, "halo_size": part.ghosts,
            "rank_partition": part.placement}  # fmt: skip
