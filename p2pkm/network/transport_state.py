"""What a network knows between two exchanges, by device and edge, so that one on any other placement can go on."""

from typing import Any, Protocol

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.network import ledger_state as history
from p2pkm.network.graph import LARGE
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox


class Transport(Protocol):
    """Fields of both networks that a checkpoint needs.

    Attributes
    ----------
    placement : LocalSubgraph
    ledger : Ledger
    stage, turn : int
        Number of the stage, and of the next exchange in it.
    memory : Mailbox
    """

    placement: LocalSubgraph
    ledger: Ledger
    stage: int
    turn: int
    memory: Mailbox

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of own devices and ghosts, uncounted."""

    def total(self, counts: Integers) -> Integers:
        """Return the sums of whole numbers over ranks, on every rank."""


def snapshot(network: Transport) -> dict[str, Any]:
    """Return stage and turn, what was received, and the ledger, as `p2pkm.engine.state_tree` takes them."""
    placement = network.placement
    senders, edges = network.ledger.counted
    some, wide = network.total(np.array([edges.size, edges.dtype != np.int32])) > 0
    edges = edges.astype(np.int64 if wide else np.int32, copy=False)  # alike on all ranks
    kept = placement.edge_counts.size <= LARGE
    return {
        "stage": network.stage,
        "turn": network.turn,
        "memory": network.memory.snapshot(),
        "senders": senders,
        "refused": network.ledger.refused,
        "edge_sent": (edges if edges.size else np.zeros((len(placement.indices), 4), edges.dtype)) if some else None,
        "exchanges": history.freeze(network.ledger, placement, network.total) if kept else None,
    }


def restore(network: Transport, kept: dict[str, Any]) -> Inbox:
    """Go on from a snapshot; return the inbox of its last exchange."""
    exchanges = kept["exchanges"]
    edges = np.zeros((0, 4), np.int64) if kept["edge_sent"] is None else kept["edge_sent"]
    found = [] if exchanges is None else history.thaw(exchanges, network.placement.indptr)
    network.ledger.restore(kept["senders"], edges, found)
    network.ledger.refused = kept["refused"].copy()
    network.stage, network.turn = kept["stage"], kept["turn"]
    return network.memory.restore(kept["memory"], network.halo_exchange_uncounted)
