"""Conversion of the exchanges of a ledger to arrays by device and edge, for checkpoints, and back."""

from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.messages import RaggedArray
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import PART, ExchangeRecord, Ledger


def to_state(ledger: Ledger, subgraph: LocalSubgraph, total: Callable[[Any], Any]) -> dict[str, Any]:
    """Convert the exchanges for `p2pkm.engine.state_tree`; exchanges that are equal on all ranks are stored once.

    Parameters
    ----------
    ledger : Ledger
    subgraph : LocalSubgraph
    total : callable
        Sums integers over ranks.
    """
    indptr = subgraph.indptr
    n = len(indptr) - 1
    e = int(indptr[-1])
    exchanges = ledger.exchanges
    # Fingerprints of the whole system are sums over ranks. The odd factor of the rank distinguishes exchanges in which
    # ranks swap their messages.
    salted = np.array(ledger.digests, np.int64).reshape(-1, 2) * (2 * subgraph.rank + 1)
    fingerprints = total(salted & PART)
    _, first, pattern = np.unique(fingerprints, axis=0, return_index=True, return_inverse=True)
    distinct = [exchanges[i] for i in first]
    # An exchange must be stored in the same form on all ranks, also if only one rank has a mask or encoded bytes.
    is_masked = total(
        np.array([item.edges is not None and item.edges.dtype == np.bool_ for item in distinct], np.int64)
    )
    has_wire = total(np.array([item.wire is not None for item in distinct], np.int64))
    is_sparse = [item.edges is not None and item.edges.dtype != np.bool_ for item in distinct]
    masks = [_mask(item, e) for item, masked in zip(distinct, is_masked > 0, strict=True) if masked]
    empty = np.zeros(0, np.int64)
    edges = [
        item.edges if item.edges is not None and sparse else empty
        for item, sparse in zip(distinct, is_sparse, strict=True)
    ]
    sources = [np.searchsorted(indptr, indices, side="right") - 1 for indices in edges]
    wires = [
        (item.sent_rows[0], item.lengths) if encoded else (empty, empty)
        for item, encoded in zip(distinct, has_wire > 0, strict=True)
    ]
    return {
        "when": [
            [item.stage, item.turn, item.row_bytes, int(number)]
            for item, number in zip(exchanges, pattern.ravel(), strict=True)
        ],
        "sparse": is_sparse,
        "masked": (is_masked > 0).tolist(),
        "wired": (has_wire > 0).tolist(),
        "sent": _by_device([item.sent_rows for item in distinct], n),
        "wire": _by_device(wires, n),
        "over": _by_device(
            [(source, indices - indptr[source]) for source, indices in zip(sources, edges, strict=True)], n
        ),
        "edge_masks": np.stack(masks, axis=1) if masks else np.zeros((e, 0), np.bool_),
    }


def from_state(state: dict[str, Any], indptr: Integers) -> list[ExchangeRecord]:
    """Restore the exchanges of the local devices from the result of `to_state`, on any rank partition."""
    count = len(state["sparse"])
    masks = iter(state["edge_masks"].T)
    sent_rows, sparse_edges, wires = (_by_pattern(state[name], count) for name in ("sent", "over", "wire"))
    patterns: list[tuple[Any, Any, Any, Any]] = []
    for (senders, rows), (source, offset), (_, lengths), is_sparse, is_masked, has_wire in zip(
        sent_rows, sparse_edges, wires, state["sparse"], state["masked"], state["wired"], strict=True
    ):
        edges = None
        if is_masked:
            edges = next(masks).copy()
        elif is_sparse:
            edges = indptr[source] + offset
        patterns.append((rows, edges, senders, lengths if has_wire else None))
    exchanges = []
    for stage, turn, row_bytes, number in state["when"]:
        rows, edges, senders, wire = patterns[number]
        exchanges.append(ExchangeRecord(stage, turn, rows, row_bytes, edges, senders, wire))
    return exchanges


def _mask(exchange: ExchangeRecord, e: int) -> Any:
    """Return the edges of a dense exchange, bool[e]."""
    return np.ones(e, np.bool_) if exchange.edges is None else exchange.edges


def _by_device(parts: list[tuple[Integers, Integers]], n: int) -> RaggedArray:
    """Sort the entries (device, value) of all parts by device; return rows (number of the part, value)."""
    number = np.repeat(np.arange(len(parts)), [len(device) for device, _ in parts])
    device, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(device, kind="stable")
    return RaggedArray(np.column_stack((number, value))[order].astype(np.int32), np.bincount(device, minlength=n))


def _by_pattern(entries: RaggedArray, count: int) -> list[tuple[Integers, Integers]]:
    """Invert `_by_device`: return the entries (device, value) of every part."""
    owner = np.repeat(np.arange(len(entries.counts)), entries.counts)
    order = np.argsort(entries.values[:, 0], kind="stable")
    ends = np.searchsorted(entries.values[order, 0], np.arange(1, count))
    return list(
        zip(np.split(owner[order], ends), np.split(entries.values[order, 1].astype(np.int64), ends), strict=True)
    )
