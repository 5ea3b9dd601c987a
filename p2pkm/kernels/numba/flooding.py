"""Compiled flooding: who knows which origin's table, and what is news."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def merge(tables, rows, slots, fresh, indptr, known, store_tables, store_rows):
    """Take in the tables that were just heard; see `p2pkm.kernels.reference.merge`."""
    known, store_tables, store_rows = known.copy(), store_tables.copy(), store_rows.copy()
    news = np.zeros(known.shape, np.bool_)
    width = store_tables.shape[2]
    for i in range(known.shape[0]):
        for e in range(indptr[i], indptr[i + 1]):
            if not fresh[e]:
                continue
            table = tables[slots[e]]
            q = 0
            while q < rows[slots[e]]:
                origin, first = int(table[q, 0]), q
                while q < rows[slots[e]] and int(table[q, 0]) == origin:
                    q += 1
                if not known[i, origin]:
                    known[i, origin] = news[i, origin] = True
                if store_rows[origin] < 0:
                    store_rows[origin] = q - first
                    store_tables[origin, : q - first] = table[first:q, 1 : 1 + width]
    return known, news, store_tables, store_rows


@njit(cache=True, nogil=True)
def bundle(news, store_tables, store_rows):
    """Write the rows of every device's new origins one after another; see `p2pkm.kernels.reference.bundle`."""
    n, width = news.shape[0], store_tables.shape[2]
    rows = np.zeros(n, np.int64)
    for i in range(n):
        for origin in np.nonzero(news[i])[0]:
            rows[i] += store_rows[origin]
    values = np.zeros((n, max(1, rows.max() if n > 0 else 1), 1 + width))
    for i in range(n):
        q = 0
        for origin in np.nonzero(news[i])[0]:
            for row in range(store_rows[origin]):
                values[i, q, 0] = origin
                values[i, q, 1:] = store_tables[origin, row]
                q += 1
    return values, rows
