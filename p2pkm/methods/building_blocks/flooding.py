"""Flooding: every origin's table goes once over every link in each direction, and ends by silence.

Rows sent = sum over devices of degree x sum over origins of rows, per connected component.
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Inbox, Mail
from p2pkm.core.states import register


@register("flood")
class Flood(NamedTuple):
    """What each device of a batch holds of what was flooded.

    Attributes
    ----------
    known, news : bool[n, N]
        Which of the N devices' tables each device holds, and which it heard just now.
    store_tables : float64[N, r, w]
        Every table that some device of the batch holds, once.
    store_rows : int64[N]
        Its rows; -1: no device of the batch holds it.
    """

    known: Mask
    news: Mask
    store_tables: Floats
    store_rows: Integers


def begin(devices: Devices, tables: Floats, rows: Integers) -> Flood:
    """Let every device hold its own table, float64[n, r, w] with rows int64[n], as news."""
    known = np.zeros((len(devices), devices.total), np.bool_)
    known[np.arange(len(devices)), devices.ids] = True
    store_tables = np.zeros((devices.total, *tables.shape[1:]))
    store_rows = np.full(devices.total, -1)
    store_tables[devices.ids], store_rows[devices.ids] = tables, rows
    return Flood(known, known, store_tables, store_rows)


def speak(flood: Flood, devices: Devices) -> Mail:
    """Say what is news; a device without anything says one empty table at the opening and is silent afterwards."""
    values, rows = devices.kernels.bundle(flood.news, flood.store_tables, flood.store_rows)
    heard = devices.awake & (flood.news.any(axis=1) if devices.step else True)
    return Mail(values, np.where(heard, rows, -1), header=1, ragged=True)


def hear(flood: Flood, inbox: Inbox, devices: Devices) -> Flood:
    """Take in what was just heard; only what a device did not hold yet is news."""
    return Flood(*devices.kernels.merge(
        inbox.tables, inbox.rows, inbox.slots, inbox.fresh, devices.indptr, flood.known, *flood[2:]
    ))  # fmt: skip


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
    which = np.empty(len(members), np.int64)
    for position, member in enumerate(members):
        name = flood.known[member].tobytes()
        if name not in seen:
            seen[name] = len(collections)
            origins = np.flatnonzero(flood.known[member])
            tables = [flood.store_tables[origin, : flood.store_rows[origin]] for origin in origins]
            collections.append(np.concatenate(tables))
        which[position] = seen[name]
    return collections, which
