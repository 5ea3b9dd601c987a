"""What is refused before any work starts, once method, graph and points are known."""

from typing import Any

from p2pkm.core.errors import DataError, ExperimentError, TopologyError
from p2pkm.core.validation import bounded
from p2pkm.data.out_of_core.shards import Sharded
from p2pkm.data.shards import Shards
from p2pkm.methods.init.pipelines import check_init, check_links, check_size, needs_hub
from p2pkm.network.graph import Topology


def check(
    algorithm: Any,
    topology: Topology,
    shards: Shards | Sharded,
    *,
    rounds: int,
    record_every: int,
    allow_disconnected: bool,
) -> None:
    """Refuse what cannot work, before any work starts; see `simulate` for the errors."""
    for name, value, least in (("rounds", rounds, 0), ("record_every", record_every, 1)):
        if value < least:
            raise ExperimentError(f"{name} is {value}; expected a whole number of at least {least}")
    if not needs_hub(algorithm):
        check_init(algorithm.traits.init, algorithm.k)
        check_links(algorithm, topology)
    check_size(algorithm, topology.clients, shards.m, shards.d)
    if topology.n != shards.n:
        raise TopologyError(
            f"the graph has {topology.n} nodes, but the points are dealt to {shards.n} devices; make them equal"
        )
    if algorithm.k > shards.m:
        raise DataError(f"{algorithm.k} clusters of {shards.m} points; expected at most as many clusters as points")
    if isinstance(shards, Shards):  # what stays on disk is checked by the rank that reads it
        bounded(shards.points, "the points")
    count = int(topology.components.max()) + 1
    if count > 1 and not allow_disconnected:
        raise TopologyError(
            f"the graph is disconnected: it has {count} components, which can never agree. Add links, or pass "
            "--allow-disconnected (allow_disconnected=True in scripts)"
        )
