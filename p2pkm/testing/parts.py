"""Parts of a batch, divided as ranks would divide it, and comparison of their arrays."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.contract import list_fields
from p2pkm.core.messages import Delivery, Inbox, SparseMessages, Tables, expand_ranges

# Conditions on device ids that divide a batch as ranks would: one device, no device, some devices, the rest.
_PARTS: tuple[Callable[[Integers], Any], ...] = (
    lambda ids: ids == 0,
    lambda ids: ids < 0,
    lambda ids: ids % 3 == 1,
    lambda ids: (ids > 0) & (ids % 3 != 1),
)


class Part(NamedTuple):
    """Part of a batch of all devices.

    Attributes
    ----------
    positions : int64[p]
        Positions of the devices in the full batch, which equal their ids.
    edges : int64[e]
        Positions of the edges that start at these devices.
    """

    positions: Integers
    edges: Integers

    @property
    def name(self) -> str:
        """Name of the part in messages."""
        ids = ", ".join(map(str, self.positions))
        return f"the batch of devices {ids}" if len(self.positions) else "the batch of no devices"


def divide(devices: Devices) -> list[Part]:
    """Divide a batch of all devices into one device, no device, some devices, and the rest."""
    return [choose_part(devices, rule(devices.ids)) for rule in _PARTS]


def choose_part(devices: Devices, chosen: Mask) -> Part:
    """Select the marked devices and their edges."""
    positions = np.flatnonzero(chosen)
    return Part(positions, expand_ranges(devices.indptr[positions], np.diff(devices.indptr)[positions]))


def renumber(part: Part) -> Part:
    """Renumber devices and edges from 0, as in the batch of the part."""
    return Part(np.arange(len(part.positions)), np.arange(len(part.edges)))


def select_part(devices: Devices, part: Part) -> Devices:
    """Build the batch of a rank that hosts only these devices."""
    i, edges = part
    rows = expand_ranges(devices.offsets[i], devices.sizes[i])
    # Index -1, the mirror of an edge to another rank, reads the additional last entry, which stays -1.
    place = np.full(len(devices.indices) + 1, -1)
    place[edges] = np.arange(len(edges))
    weights, lengths = devices.point_weights, np.diff(devices.indptr)[i]
    means = devices.neighbor_mean_weights
    return replace(
        devices,
        ids=devices.ids[i],
        stored=devices.stored[rows],
        offsets=np.concatenate(([0], np.cumsum(devices.sizes[i]))),
        # Equal weights are a zero-stride view of one number and stay one.
        point_weights=weights[rows] if any(weights.strides) else weights[: len(rows)],
        indptr=np.concatenate(([0], np.cumsum(lengths))),
        indices=devices.indices[edges],
        mirror=place[devices.mirror[edges]],
        link_weights=devices.link_weights[edges],
        active_edges=devices.active_edges[edges],
        degrees=devices.degrees[i],
        neighbor_degrees=devices.neighbor_degrees[edges],
        averaging_weights=None if devices.averaging_weights is None else devices.averaging_weights[edges],
        keys=devices.keys[i],
        active_devices=devices.active_devices[i],
        grid=None if devices.grid is None else devices.grid._replace(step=devices.grid.step[i]),
        secrets=None if devices.secrets is None else devices.secrets._replace(keys=devices.secrets.keys[i]),
        neighbor_mean_weights=None if means is None else means[edges],
    )


def slice_state(tree: Any, part: Part, devices: Devices) -> Any:
    """Select the part of the start of a stage: centroids, or a state of arrays by device and by edge."""
    if fields := list_fields(tree):
        return type(tree)(*(
            value[part.edges] if name.startswith("edge_") and isinstance(value, np.ndarray)
            else slice_state(value, part, devices)
            for name, value in zip(fields, tree, strict=True)
        ))  # fmt: skip
    by_device = isinstance(tree, np.ndarray) and tree.ndim and len(tree) == len(devices)
    return tree[part.positions] if by_device else tree


def list_messages(messages: Any, part: Part) -> list[Any]:
    """List the table of each device of a part, and at the end the edges in use, for comparison."""
    if isinstance(messages, SparseMessages):
        tables = {int(v): messages.tables.take(np.array([i])).flat() for i, v in enumerate(messages.senders)}
        sent = [(int(v) in tables, tables.get(int(v), np.zeros(0))) for v in part.positions]
        return [*sent, np.isin(part.edges, messages.edges)]
    listed: list[Any] = []
    for v in part.positions:
        rows = int(messages.rows[v])
        wire = None if messages.wire is None or rows < 0 else int(messages.wire[v])
        listed.append((rows, messages.values[v, : max(rows, 0)], wire))
    return [*listed, None if messages.edges is None else messages.edges[part.edges]]


def receive_part(inbox: Any, sent: Any, part: Part, devices: Devices) -> Any:
    """Build the inbox of a part: tables of its devices first, then tables of their neighbors in other parts."""
    if isinstance(inbox, Delivery):
        return _receive_sparse(inbox, sent, part, devices)
    halo = np.setdiff1d(devices.indices[part.edges], part.positions)
    order = np.concatenate((part.positions, halo)).astype(np.int64)
    place = np.full(len(inbox.tables) + 1, -1)
    place[order] = np.arange(len(order))
    return Inbox(
        inbox.tables[order],
        inbox.rows[order],
        place[inbox.slots[part.edges]],
        place[inbox.senders[part.edges]],
        None if inbox.sent is None else inbox.sent[order],
        None if inbox.open_edges is None else inbox.open_edges[part.edges],
    )


def _receive_sparse(delivery: Delivery, sent: SparseMessages, part: Part, devices: Devices) -> Delivery:
    """Build the delivery of a part: its tables first, then the received tables from other parts."""
    to_part = np.isin(delivery.edges, part.edges)
    tables, senders = delivery.tables.take(np.flatnonzero(to_part)), devices.indices[delivery.edges[to_part]]
    local = sent.tables
    values, starts, end = [local.values], [], len(local.values)
    for number, sender in enumerate(senders):
        position = np.flatnonzero(part.positions == sender)
        if len(position):
            starts.append(int(local.starts[np.flatnonzero(sent.senders == position[0])[0]]))
            continue
        values.append(tables.take(np.array([number])).flat())
        starts.append(end)
        end += len(values[-1])
    edges = np.searchsorted(part.edges, delivery.edges[to_part])
    return Delivery(edges, Tables(np.concatenate(values), np.array(starts, np.int64), tables.rows))


def same_bits(a: Any, b: Any) -> bool:
    """Check whether arrays, or tuples of arrays, are bit-identical."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)
