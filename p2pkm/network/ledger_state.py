"""The exchanges of a run as arrays by device and edge, and back: what a checkpoint keeps of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.messages import RaggedArray
from p2pkm.network.halo import LocalSubgraph
from p2pkm.network.ledger import PART, ExchangeRecord, Ledger


def freeze(ledger: Ledger, placement: LocalSubgraph, total: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the exchanges as `p2pkm.engine.state_tree` takes them; one stands for all that are alike on all ranks.

    Parameters
    ----------
    ledger : Ledger
    placement : LocalSubgraph
    total : callable
        Adds up whole numbers over ranks.
    """
    indptr = placement.indptr
    n, e, exchanges, none = len(indptr) - 1, int(indptr[-1]), ledger.exchanges, np.zeros(0, np.int64)
    salted = np.array(ledger.digests, np.int64).reshape(-1, 2) * (2 * placement.rank + 1)  # ranks may send the same
    words = total(salted & PART)
    _, first, which = np.unique(words, axis=0, return_index=True, return_inverse=True)
    distinct = [exchanges[i] for i in first]
    masked = total(np.array([one.edges is not None and one.edges.dtype == np.bool_ for one in distinct], np.int64)) > 0
    masks = [_mask(one, e) for one, some in zip(distinct, masked, strict=True) if some]
    listed = [one.edges is not None and one.edges.dtype != np.bool_ for one in distinct]
    wired = total(np.array([one.wire is not None for one in distinct], np.int64)) > 0
    sparse = [one.edges if one.edges is not None and some else none for one, some in zip(distinct, listed, strict=True)]
    sources = [np.searchsorted(indptr, edges, side="right") - 1 for edges in sparse]
    wires = [(one.sent_rows[0], one.lengths) if has else (none, none) for one, has in zip(distinct, wired, strict=True)]
    return {
        "when": [
            [one.stage, one.turn, one.row_bytes, int(number)]
            for one, number in zip(exchanges, which.ravel(), strict=True)
        ],
        "sparse": listed,
        "masked": masked.tolist(),
        "wired": wired.tolist(),
        "sent": _by_device([one.sent_rows for one in distinct], n),
        "wire": _by_device(wires, n),
        "over": _by_device([(who, edges - indptr[who]) for who, edges in zip(sources, sparse, strict=True)], n),
        "edge_masks": np.stack(masks, axis=1) if masks else np.zeros((e, 0), np.bool_),
    }


def thaw(kept: dict[str, Any], indptr: Integers) -> list[ExchangeRecord]:
    """Return the exchanges of these devices from what `freeze` returned, on any placement."""
    count, masks = len(kept["sparse"]), iter(kept["edge_masks"].T)
    sent_rows, over, wires = (_by_pattern(kept[name], count) for name in ("sent", "over", "wire"))
    patterns: list[tuple[Any, Any, Any, Any]] = []
    for (who, rows), (source, offset), (_, lengths), sparse, masked, wired in zip(
        sent_rows, over, wires, kept["sparse"], kept["masked"], kept["wired"], strict=True
    ):
        edges = next(masks).copy() if masked else indptr[source] + offset if sparse else None
        patterns.append((rows, edges, who, lengths if wired else None))
    found = []
    for stage, turn, row_bytes, number in kept["when"]:
        rows, edges, who, wire = patterns[number]
        found.append(ExchangeRecord(stage, turn, rows, row_bytes, edges, who, wire))
    return found


def _mask(exchange: ExchangeRecord, e: int) -> Any:
    return np.ones(e, np.bool_) if exchange.edges is None else exchange.edges


def _by_device(parts: list[tuple[Integers, Integers]], n: int) -> RaggedArray:
    """Return (number of the part, value) of every entry (device, value), by device."""
    number = np.repeat(np.arange(len(parts)), [len(who) for who, _ in parts])
    who, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.argsort(who, kind="stable")
    return RaggedArray(np.column_stack((number, value))[order].astype(np.int32), np.bincount(who, minlength=n))


def _by_pattern(entries: RaggedArray, count: int) -> list[tuple[Integers, Integers]]:
    """Return the entries (device, value) of every part."""
    owner = np.repeat(np.arange(len(entries.counts)), entries.counts)
    order = np.argsort(entries.values[:, 0], kind="stable")
    ends = np.searchsorted(entries.values[order, 0], np.arange(1, count))
    return list(
        zip(np.split(owner[order], ends), np.split(entries.values[order, 1].astype(np.int64), ends), strict=True)
    )
