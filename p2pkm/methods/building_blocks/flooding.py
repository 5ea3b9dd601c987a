"""Flooding: every origin's table goes once over every link in each direction, and ends by silence.

A device holds of each origin the table that it received first, from the neighbor of lowest id if several come at once,
and forwards that one. Equal tables are stored once per batch (`p2pkm.core.messages.InternedTables`), whichever device
holds them.

Rows sent = sum over devices of degree x sum over origins of rows, per connected component.
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import DenseMessages, Inbox, InternedTables, expand_ranges
from p2pkm.core.states import register

_WIDER = {np.dtype(np.uint8): np.uint16, np.dtype(np.uint16): np.uint32}


@register("flood")
class Flood(NamedTuple):
    """What each device of a batch holds of what was flooded.

    Attributes
    ----------
    held : InternedTables
        The tables that each device holds.
    news : bool[n, N]
        Those of which of the N devices it received just now.
    """

    held: InternedTables
    news: Mask

    @property
    def known(self) -> Mask:
        """Return which of the N devices' tables each device holds, bool[n, N]."""
        known: Mask = self.held.versions > 0
        return known


def begin(devices: Devices, tables: Floats, rows: Integers) -> Flood:
    """Let every device hold its own table, float64[n, r, w] with rows int64[n], as news."""
    n, r, _ = tables.shape
    own = np.zeros((n, devices.total), np.bool_)
    own[np.arange(n), devices.ids] = True
    firsts = np.searchsorted(devices.ids, np.arange(devices.total + 1))
    values = tables[np.arange(r) < rows[:, None]]
    return Flood(InternedTables(own.astype(np.uint8), firsts, np.cumsum(rows) - rows, rows.copy(), values), own)


def send(flood: Flood, devices: Devices) -> DenseMessages:
    """Send what is news; a device without anything sends one empty table at the opening and is silent afterwards."""
    values, rows = devices.kernels.concatenate_tables(flood.news, *flood.held)
    sending = devices.active_devices & (flood.news.any(axis=1) if devices.round else True)
    return DenseMessages(values, np.where(sending, rows, -1), header=1, ragged=True)


def receive(flood: Flood, inbox: Inbox, devices: Devices) -> Flood:
    """Take in what was just received; only what a device did not hold yet is news."""
    held, came = flood.held, (inbox.tables, inbox.rows, inbox.slots, inbox.fresh, devices.indptr)
    versions, news, found, fits = devices.kernels.merge_flooded(*came, *held)
    while not fits:
        held = held._replace(versions=held.versions.astype(_WIDER[held.versions.dtype]))
        versions, news, found, fits = devices.kernels.merge_flooded(*came, *held)
    return Flood(store_tables(held, inbox.tables, found)._replace(versions=versions), news)


def store_tables(held: InternedTables, tables: Floats, found: Integers) -> InternedTables:
    """Add a copy of tables that no device in the batch held; found: as `merge_flooded` returns it."""
    if not len(found):
        return held
    origin, slot, first, rows = found.T
    width, old = held.store_values.shape[1], len(held.store_values)
    added = tables[np.repeat(slot, rows), expand_ranges(first, rows), 1 : 1 + width]
    origins = np.concatenate((held.store_origins, origin))
    order = np.argsort(origins, kind="stable")
    return InternedTables(
        held.versions,
        np.searchsorted(origins[order], np.arange(len(held.store_firsts))),
        np.concatenate((held.store_starts, old + np.cumsum(rows) - rows))[order],
        np.concatenate((held.store_rows, rows))[order],
        np.concatenate((held.store_values, added)),
    )


def group(flood: Flood, members: Integers) -> tuple[list[Floats], Integers]:
    """Return the distinct collections that the given devices hold, and which of them each device holds.

    Devices that hold the same tables share one computation.

    Parameters
    ----------
    members : int64[g]
        Positions in the batch.

    Returns
    -------
    collections : list of float64[rows, w]
        The tables one after another, origins in ascending order.
    which : int64[g]
    """
    seen: dict[bytes, int] = {}
    collections: list[Floats] = []
    which, held = np.empty(len(members), np.int64), flood.held
    for position, member in enumerate(members):
        name = held.versions[member].tobytes()
        if name not in seen:
            seen[name] = len(collections)
            tables = held.find(member)
            collections.append(held.store_values[expand_ranges(held.store_starts[tables], held.store_rows[tables])])
        which[position] = seen[name]
    return collections, which
