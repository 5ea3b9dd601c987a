"""The command `plan`: what a run would need, as text, as JSON and as a picture, and whether it can run here."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.expected_messages import Volume
from p2pkm.core.mpi_environment import launched, local_size
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import tell
from p2pkm.experiments.plan import time_model as speed
from p2pkm.experiments.plan import virtual_time as life
from p2pkm.experiments.plan.calibration import launch
from p2pkm.experiments.plan.draft import RunPlan, build_plan
from p2pkm.experiments.plan.free_memory import available
from p2pkm.experiments.plan.memory_check import weigh_plan
from p2pkm.experiments.plan.memory_model import MemoryEstimate, MemoryInputs, need, refuse, together
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.experiments.plan.text import show
from p2pkm.methods.init.pipelines import describe_graph_use
from p2pkm.network.rank_partition import check_rank_partition
from p2pkm.network.world import connect

_MEASURED = (1, 2)


class Wanted(NamedTuple):
    """How to plan: ranks of the run (None: those that are running), link, whether to measure, how to print."""

    ranks: int | None = None
    latency: float | None = None
    bandwidth: float | None = None
    measure: bool = False
    json: bool = False


def lead_plan(experiment: RunOptions, wanted: Wanted) -> int:
    """Print what a run would need, and return 0 if it can be started here.

    The JSON object has ``experiment`` (the resolved options), ``points features devices links``, ``links_in_use`` (of a
    graph that changes, else null), ``ranks``, ``memory``
    (a row for every number of ranks: bytes of ``rank0`` and of each ``other`` rank by part, their ``peak``, and what
    all ``together`` need on one machine), ``memory_free``, ``stages`` (``name rounds known all_rounds``; for
    ``opening``, ``first`` round and ``total``: ``messages bytes exact_messages exact_bytes``; not exact: at most),
    ``costs`` and ``link`` (seconds and bytes per second, see `p2pkm.experiments.plan.time_model`), ``strong`` and
    ``weak`` (``ranks seconds ...``) and ``measured`` (``ranks seconds predicted error``; empty unless asked for),
    ``excess_predicted`` of the cost ratio, from noise alone with labels fixed, and ``excess_auto`` (``coupling
    excess``; null where theory is silent),
    ``virtual`` (see `p2pkm.experiments.plan.virtual_time.tell`), ``refusals`` (texts) and ``figures``.

    Raises
    ------
    P2PKMError
        Why a run would be refused, after everything is printed.
    """
    for name in ("latency", "bandwidth"):
        value = getattr(wanted, name)
        if value is not None and not 0 < value < float("inf"):
            raise ExperimentError(f"{name} is {value}; expected a number above 0")
    if experiment.faults is not None:  # from --config
        print("p2pkm: planned without faults: docs/faults.md describes what a run under faults sends", file=sys.stderr)
        experiment = replace(experiment, faults=None, stale_policy=None)
    world = connect()
    check_rank_partition(experiment.rank_partition, wanted.ranks or world.size)
    plan = build_plan(experiment, world.size if launched() else None)
    for note in describe_graph_use(plan.algorithm, plan.topology):
        tell(note)
    ranks = wanted.ranks or world.size
    limit, refusals = available(), [] if plan.refusal is None else [plan.refusal]
    parts = [speed.split(plan.topology, speed.divide(plan, r, ranks)) for r in sorted({ranks, *speed.RANKS})]
    loads = {part.ranks: weigh_plan(plan, part.ranks, part.ghosts) for part in parts}
    try:
        refuse(loads[ranks], limit, local_size())
    except DataError as error:
        refusals.insert(0, error)
    found = describe(plan, ranks) | {"memory": [_remember(load) for load in loads.values()], "memory_free": limit}
    found |= _time(plan, wanted, parts, {r: limit is None or together(load, r) <= limit for r, load in loads.items()})
    found["virtual"] = life.tell(plan)
    found["refusals"] = [str(refusal) for refusal in refusals]
    found["figures"] = _draw(found, experiment.out)
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
        "excess_predicted": plan.algorithm.predict_excess(plan.topology, plan.size.points),
    }  # fmt: skip


def _figures(volume: Volume) -> dict[str, Any]:
    """Return what is sent; encoded: whether the bytes on the wire are about so many."""
    found = volume._asdict()
    return found | {"wire_bytes": volume.wire_bytes, "encoded": found.pop("wire") is not None}


def _predict_auto(plan: RunPlan) -> dict[str, float] | None:
    """Return the coupling that auto would take, and the excess expected with it; None where that means nothing."""
    from p2pkm.methods.building_blocks.coupling_choice import choose_coupling, predict_excess

    topology, points, k = plan.topology, plan.size.points, plan.algorithm.k
    if plan.algorithm.predict_excess(topology, points) is None:
        return None
    best = choose_coupling(topology, points, k)
    return {"coupling": best, "excess": predict_excess(topology, best, points, k)}


def _remember(load: MemoryInputs) -> dict[str, Any]:
    ranks = {"rank0": _parts(need(load)), "other": _parts(need(load, first=False))}
    return {"ranks": load.ranks, **ranks, "together": together(load, load.ranks)}


def _parts(one: MemoryEstimate) -> dict[str, int]:
    return one._asdict() | {"held": one.held, "peak": one.peak}


def _time(plan: RunPlan, wanted: Wanted, parts: list[speed.Split], fits: dict[int, bool]) -> dict[str, Any]:
    """Return costs, curves and, if asked for, what real rounds took."""
    costs = speed.calibrate(plan)
    link = speed.measure_link(connect(), wanted.latency, wanted.bandwidth)
    rows = speed.strong(plan, costs, link, parts)
    measured = []
    for row in rows if wanted.measure and not launched() else ():
        if row["ranks"] in _MEASURED and fits[row["ranks"]]:
            taken = launch(row["ranks"], {"experiment": plan.experiment.to_mapping()})
            measured += [] if taken is None or not taken["rounds"] else [_compare(row, taken["rounds"])]
    return {"costs": costs._asdict(), "link": link._asdict(), "strong": rows, "weak": speed.weak(plan, costs, link),
            "measured": measured}  # fmt: skip


def _compare(row: dict[str, Any], rounds: list[float]) -> dict[str, Any]:
    """Return the best of the measured rounds beside the prediction, which comes from best rounds, too."""
    seconds = min(rounds)
    error = row["seconds"] / seconds - 1.0
    return {"ranks": row["ranks"], "seconds": seconds, "predicted": row["seconds"], "error": error}


def _draw(found: dict[str, Any], out: str | None) -> list[str]:
    """Draw the curves into the folder that was asked for, if any."""
    if out in (None, "none"):
        return []
    from p2pkm.viz.figures.scaling import plot_scaling
    from p2pkm.viz.save_figure import save_figure

    try:
        paths = save_figure(lambda: plot_scaling(found), Path(str(out)), "scaling")
    except OSError as error:
        raise ExperimentError(f"--out {out} cannot be written: {error.strerror or error}") from None
    return [str(path) for path in paths]
