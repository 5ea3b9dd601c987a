"""Tables on their way to everybody."""

import numpy as np


def merge(tables, rows, slots, fresh, indptr, known, store_tables, store_rows):
    """Take in the tables that were just heard: who knows which origin now, and what was new to each device.

    Parameters
    ----------
    tables, rows, slots, fresh, indptr
        As in `gtvmin`; column 0 of a row is the id of the device that it comes from.
    known : bool[n, N]
        Which of the N devices' tables each device of the batch holds.
    store_tables, store_rows : float64[N, r, w], int64[N]
        Every table that some device of the batch holds, once; rows -1: none does.

    Returns
    -------
    known, news, store_tables, store_rows
        New arrays; `news` is bool[n, N].
    """
    known, store_tables, store_rows = known.copy(), store_tables.copy(), store_rows.copy()
    news = np.zeros(known.shape, np.bool_)
    for i in range(len(known)):
        for e in np.flatnonzero(fresh[indptr[i] : indptr[i + 1]]) + indptr[i]:
            table = tables[slots[e], : rows[slots[e]], : 1 + store_tables.shape[2]]
            origins = table[:, 0].astype(np.int64)
            unknown = origins[~known[i, origins]]
            known[i, unknown] = news[i, unknown] = True
            for origin in np.unique(origins[store_rows[origins] < 0]):
                own = table[origins == origin, 1:]
                store_rows[origin] = len(own)
                store_tables[origin, : len(own)] = own
    return known, news, store_tables, store_rows


def bundle(news, store_tables, store_rows):
    """Write the rows of every device's new origins one after another, the origin's id in front.

    Returns
    -------
    values : float64[n, r, 1 + w]
    rows : int64[n]
    """
    rows = news @ np.maximum(store_rows, 0)
    values = np.zeros((len(news), max(1, rows.max(initial=0)), 1 + store_tables.shape[2]))
    for i in range(len(news)):
        q = 0
        for origin in np.flatnonzero(news[i]):
            end = q + store_rows[origin]
            values[i, q:end, 0] = origin
            values[i, q:end, 1:] = store_tables[origin, : store_rows[origin]]
            q = end
    return values, rows
