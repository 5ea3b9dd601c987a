"""Snapshot of a network between two exchanges, by device and edge, for any number of ranks and rank partition."""

from typing import Any, Protocol

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.network import ledger_state
from p2pkm.network.graph import LARGE
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import Ledger
from p2pkm.network.mailbox import Mailbox


class Transport(Protocol):
    """Attributes of a network that `snapshot` and `restore` use.

    Attributes
    ----------
    placement : LocalSubgraph
        Subgraph of this rank.
    ledger : Ledger
    stage, turn : int
        Number of the stage, and of its next exchange.
    memory : Mailbox
    """

    placement: LocalSubgraph
    ledger: Ledger
    stage: int
    turn: int
    memory: Mailbox

    def halo_exchange_uncounted(self, values: Floats) -> Floats:
        """Return the values of local and halo devices, uncounted."""

    def total(self, counts: Integers) -> Integers:
        """Sum integers over all ranks."""


def snapshot(network: Transport) -> dict[str, Any]:
    """Return stage, turn, received tables and ledger, for `p2pkm.engine.state_tree`."""
    subgraph = network.placement
    senders, edges = network.ledger.counted
    # Array types must be equal on all ranks.
    has_edges, is_wide = network.total(np.array([edges.size, edges.dtype == np.int64])) > 0
    edges = edges.astype(np.int64 if is_wide else np.int32, copy=False)
    if has_edges and not edges.size:
        edges = np.zeros((len(subgraph.indices), 4), edges.dtype)
    has_exchanges = subgraph.edge_counts.size <= LARGE
    return {
        "stage": network.stage,
        "turn": network.turn,
        "memory": network.memory.snapshot(),
        "senders": senders,
        "refused": network.ledger.refused,
        "edge_sent": edges if has_edges else None,
        "exchanges": ledger_state.to_state(network.ledger, subgraph, network.total) if has_exchanges else None,
    }


def restore(network: Transport, state: dict[str, Any]) -> Inbox:
    """Restore a snapshot; return the inbox of its last exchange."""
    stored = state["exchanges"]
    edges = np.zeros((0, 4), np.int64) if state["edge_sent"] is None else state["edge_sent"]
    exchanges = [] if stored is None else ledger_state.from_state(stored, network.placement.indptr)
    network.ledger.restore(state["senders"], edges, exchanges)
    network.ledger.refused = state["refused"].copy()
    network.stage = state["stage"]
    network.turn = state["turn"]
    return network.memory.restore(state["memory"], network.halo_exchange_uncounted)
