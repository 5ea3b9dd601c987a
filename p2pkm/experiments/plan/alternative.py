"""What `treelloyd` would have paid for a run that another method has made."""

from typing import Any

from p2pkm.core.errors import P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.core.units import write_size
from p2pkm.data.size_estimate import Size
from p2pkm.engine.build_run import check_fit, check_options
from p2pkm.experiments.config import METHOD_FIELDS, Experiment, Prepared
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.message_counts import stage_traffic
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.init.pipelines import needs_hub, stages
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.peer.treelloyd import TreeLloyd
from p2pkm.metrics.result import Result


def note_treelloyd(prepared: Prepared, result: Result) -> list[str]:
    """Return a note if `treelloyd` would send fewer bytes on the wire in as many rounds, else nothing."""
    paid, summary = result.summary["wire_bytes"], result.summary
    found = _price(prepared, int(summary["clusters"]), int(summary["rounds"])) if paid else None
    if found is None or not 0 < found < paid:
        return []
    return [
        f"--algorithm treelloyd would take about {write_size(found)} on the wire for as many rounds, "
        f"{max(100 * found / paid, 0.1):.2g} % of what was sent"
    ]


def _price(prepared: Prepared, k: int, rounds: int) -> int | None:
    """Return about how many bytes on the wire `treelloyd` takes; None if it cannot take the place of the method."""
    run, shards = prepared.run, prepared.shards
    traits, topology = run.algorithm.traits, run.topology
    if needs_hub(run.algorithm) or traits.init is None or traits.groups or run.stream or not shards.in_memory:
        return None
    others: dict[str, Any] = {"algorithm": "treelloyd", "quantize": "none"} | dict.fromkeys(METHOD_FIELDS)
    asked = Experiment(**vars(prepared.experiment) | others)
    method = TreeLloyd(k)
    try:
        check_options(method, vars(asked))
        check_fit(method, topology, shards)
    except P2PKMError:
        return None
    setting = InitContext(topology, shards.sizes, shared_key(run.seed), k, shards.d)
    played = stages(method, setting, rounds, seeded=False)
    plan = RunPlan(asked, method, topology, Size(shards.m, shards.d), shards.sizes, True, played, None, Spec("", {}),
                   None)  # fmt: skip
    return sum(course.total().wire_bytes for course in stage_traffic(plan))
