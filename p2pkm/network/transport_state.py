"""What a network knows between two exchanges, by device and edge, so that one on any other placement can go on."""

from typing import Any

import numpy as np

from p2pkm.core.messages import Inbox
from p2pkm.network import ledger_state as history
from p2pkm.network.graph import LARGE


def snapshot(network: Any) -> dict[str, Any]:
    """Return stage and turn, what was received, and the ledger, as `p2pkm.engine.state_tree` takes them."""
    placement = network.placement
    senders, edges = network.ledger.counted
    some, wide = network.total(np.array([edges.size, edges.dtype != np.int32])) > 0
    edges = edges.astype(np.int64 if wide else np.int32, copy=False)  # alike on all ranks
    kept = placement.edge_counts.size <= LARGE
    return {
        "stage": network._stage,
        "turn": network._turn,
        "memory": network._memory.snapshot(),
        "senders": senders,
        "refused": network.ledger.refused,
        "edge_sent": (edges if edges.size else np.zeros((len(placement.indices), 4), edges.dtype)) if some else None,
        "exchanges": history.freeze(network.ledger, placement, network.total) if kept else None,
    }


def restore(network: Any, kept: dict[str, Any]) -> Inbox:
    """Go on from a snapshot; return the inbox of its last exchange."""
    exchanges = kept["exchanges"]
    edges = np.zeros((0, 4), np.int64) if kept["edge_sent"] is None else kept["edge_sent"]
    found = [] if exchanges is None else history.thaw(exchanges, network.placement.indptr)
    network.ledger.restore(kept["senders"], edges, found)
    network.ledger.refused = kept["refused"].copy()
    network._stage, network._turn = kept["stage"], kept["turn"]
    return network._memory.restore(kept["memory"], network.halo_exchange_uncounted)
