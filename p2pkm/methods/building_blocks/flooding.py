"""Flooding: the table of every origin is sent once over every link in each direction, until no device sends.

A device stores and forwards, for each origin, the first table that it receives; if several arrive in one exchange, the
one from the neighbor with the lowest id. Equal tables are stored once per batch (`p2pkm.core.messages.InternedTables`).

Rows sent, per connected component: (sum of the degrees of all devices) x (sum of the rows of all origins).
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox, InternedTables, expand_ranges
from p2pkm.core.states import register

_WIDER = {np.dtype(np.uint8): np.uint16, np.dtype(np.uint16): np.uint32}


@register("flood")
class Flood(NamedTuple):
    """Flooded tables at the devices of a batch.

    Attributes
    ----------
    held : InternedTables
        Tables that each device stores.
    new_origins : bool[n, N]
        Origins, of all N devices, whose tables the device received in this turn and will forward.
    """

    held: InternedTables
    new_origins: Mask

    @property
    def known(self) -> Mask:
        """Origins whose tables each device stores, bool[n, N]."""
        known: Mask = self.held.versions > 0
        return known


def begin(devices: Devices, tables: Floats, rows: Integers) -> Flood:
    """Start a flood with the local table of every device, float64[n, r, w] with int64[n] rows."""
    n, r, _ = tables.shape
    is_local = np.zeros((n, devices.total), np.bool_)
    is_local[np.arange(n), devices.ids] = True
    firsts = np.searchsorted(devices.ids, np.arange(devices.total + 1))
    values = tables[np.arange(r) < rows[:, None]]
    stored = InternedTables(is_local.astype(np.uint8), firsts, np.cumsum(rows) - rows, rows.copy(), values)
    return Flood(stored, is_local)


def send(flood: Flood, devices: Devices) -> DenseMessages:
    """Forward the tables received in the last turn; in the initial exchange a device without any sends an empty one."""
    values, rows = devices.kernels.concatenate_tables(flood.new_origins, *flood.held)
    sending = devices.active_devices & (flood.new_origins.any(axis=1) if devices.round else True)
    return DenseMessages(values, np.where(sending, rows, -1), header=1, ragged=True)


def receive(flood: Flood, inbox: Inbox, devices: Devices) -> Flood:
    """Store received tables; only those of new origins will be forwarded."""
    held = flood.held
    received = (inbox.tables, inbox.rows, inbox.slots, inbox.fresh, devices.indptr)
    versions, is_new, added, fits = devices.kernels.merge_flooded(*received, *held)
    # More versions of a table than its integer type can number: repeat with a wider type.
    while not fits:
        held = held._replace(versions=held.versions.astype(_WIDER[held.versions.dtype]))
        versions, is_new, added, fits = devices.kernels.merge_flooded(*received, *held)
    return Flood(store_tables(held, inbox.tables, added)._replace(versions=versions), is_new)


def store_tables(held: InternedTables, tables: Floats, added: Integers) -> InternedTables:
    """Copy tables that no device of the batch stores yet; `added`: their list, as `merge_flooded` returns it."""
    if not len(added):
        return held
    origin, slot, first, rows = added.T
    width, old = held.store_values.shape[1], len(held.store_values)
    values = tables[np.repeat(slot, rows), expand_ranges(first, rows), 1 : 1 + width]
    origins = np.concatenate((held.store_origins, origin))
    order = np.argsort(origins, kind="stable")
    return InternedTables(
        held.versions,
        np.searchsorted(origins[order], np.arange(len(held.store_firsts))),
        np.concatenate((held.store_starts, old + np.cumsum(rows) - rows))[order],
        np.concatenate((held.store_rows, rows))[order],
        np.concatenate((held.store_values, values)),
    )


def distinct_collections(flood: Flood, members: Integers) -> tuple[list[Floats], Integers]:
    """List the distinct collections of tables that some devices store.

    Devices with the same tables can then share one computation.

    Parameters
    ----------
    members : int64[g]
        Positions in the batch.

    Returns
    -------
    collections : list of float64[rows, w]
        Tables one after another, in ascending order of their origins.
    numbers : int64[g]
        Index of the collection of each device.
    """
    indices: dict[bytes, int] = {}
    collections: list[Floats] = []
    numbers = np.empty(len(members), np.int64)
    held = flood.held
    for position, member in enumerate(members):
        key = held.versions[member].tobytes()
        if key not in indices:
            indices[key] = len(collections)
            tables = held.find(member)
            collections.append(held.store_values[expand_ranges(held.store_starts[tables], held.store_rows[tables])])
        numbers[position] = indices[key]
    return collections, numbers
