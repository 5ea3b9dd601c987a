"""Flooding of tables: merge received tables, and select those to forward."""

import numpy as np


def merge_flooded(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, values):
    """Merge the received tables into the stored ones.

    A device stores the first table that it receives of each origin. Tables are equal if all bits are equal.

    Parameters
    ----------
    tables, rows, slots, fresh, indptr
        As in `gtvmin`, with `p2pkm.core.messages.Inbox.fresh`. Column 0 of a row is the id of its origin; rows of an
        origin are contiguous. Rows of unknown origins are ignored.
    versions, firsts, starts, lengths, values
        Stored tables before the exchange, see `p2pkm.core.messages.InternedTables`.

    Returns
    -------
    versions : uint[n, N]
        Versions after the exchange, a new array.
    is_new : bool[n, N]
        Origins whose table the device has received in this exchange.
    new_tables : int64[f, 4]
        Tables that were not stored in the batch: origin, slot, first row and number of rows in `tables`. Each is the
        next version of its origin.
    fits : bool
        Whether all versions fit the type of `versions`; otherwise the other results are undefined.
    """
    numbers = {}
    for origin in range(len(firsts) - 1):
        for number, table in enumerate(range(firsts[origin], firsts[origin + 1]), 1):
            numbers[origin, values[starts[table] : starts[table] + lengths[table]].tobytes()] = number
    n_versions = firsts[1:] - firsts[:-1]
    n, total = versions.shape
    versions = versions.copy()
    new_tables = []
    is_new = np.zeros(versions.shape, np.bool_)
    largest = np.iinfo(versions.dtype).max
    for i in range(n):
        for e in np.flatnonzero(fresh[indptr[i] : indptr[i + 1]]) + indptr[i]:
            table = tables[slots[e], : rows[slots[e]], : 1 + values.shape[1]]
            ends = np.flatnonzero(np.diff(table[:, 0], append=np.nan) != 0.0) + 1
            for first, last in zip([0, *ends[:-1]], ends, strict=False):
                head = table[first, 0]
                origin = int(head) if 0.0 <= head < total else -1
                if origin < 0 or versions[i, origin]:
                    continue
                key = origin, table[first:last, 1:].tobytes()
                if key not in numbers:
                    n_versions[origin] += 1
                    numbers[key] = n_versions[origin]
                    new_tables.append((origin, slots[e], first, last - first))
                if numbers[key] > largest:
                    return versions, is_new, np.zeros((0, 4), np.int64), False
                versions[i, origin] = numbers[key]
                is_new[i, origin] = True
    return versions, is_new, np.array(new_tables, np.int64).reshape(-1, 4), True


def concatenate_tables(selected, versions, firsts, starts, lengths, values):
    """Concatenate the rows of the selected origins of every device, with the id of the origin in column 0.

    Parameters
    ----------
    selected : bool[n, N]
        Origins whose table is included.
    versions, firsts, starts, lengths, values
        Stored tables, see `p2pkm.core.messages.InternedTables`.

    Returns
    -------
    values : float64[n, r, 1 + w]
    rows : int64[n]
    """
    n = len(selected)
    device, origin = np.nonzero(selected)
    table = firsts[origin] + versions[device, origin] - 1
    rows = np.bincount(device, lengths[table], minlength=n).astype(np.int64)
    sent = np.zeros((n, max(1, rows.max(initial=0)), 1 + values.shape[1]))
    q = np.zeros(n, np.int64)
    for i, j, first, count in zip(device, origin, starts[table], lengths[table], strict=True):
        sent[i, q[i] : q[i] + count, 0] = j
        sent[i, q[i] : q[i] + count, 1:] = values[first : first + count]
        q[i] += count
    return sent, rows
