"""Tables on their way to every device."""

import numpy as np


def merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, values):
    """Take in the tables just received: who holds which version of which origin's table now, and what is new.

    Of an origin that a device does not hold yet it takes the first table that came, as it came. Tables are equal if all
    their bits are.

    Parameters
    ----------
    tables, rows, slots, fresh, indptr
        As in `gtvmin`; column 0 of a row is the id of the device that it comes from, and rows of one origin stand
        together. Rows from an origin that there is not are ignored.
    versions, firsts, starts, lengths, values
        What the devices held; see `p2pkm.core.messages.InternedTables`.

    Returns
    -------
    versions : uint[n, N]
        A new array.
    news : bool[n, N]
    found : int64[f, 4]
        Tables that no device of the batch held: origin, slot, first row and number of rows in `tables`. Each is the
        next version of its origin.
    fits : bool
        Whether every version has a number of the type of `versions`; if not, what is returned is of no meaning.
    """
    numbers = {}
    for origin in range(len(firsts) - 1):
        for number, table in enumerate(range(firsts[origin], firsts[origin + 1]), 1):
            numbers[origin, values[starts[table] : starts[table] + lengths[table]].tobytes()] = number
    most = firsts[1:] - firsts[:-1]
    versions, found, (n, total) = versions.copy(), [], versions.shape
    news, largest = np.zeros(versions.shape, np.bool_), np.iinfo(versions.dtype).max
    for i in range(n):
        for e in np.flatnonzero(fresh[indptr[i] : indptr[i + 1]]) + indptr[i]:
            table = tables[slots[e], : rows[slots[e]], : 1 + values.shape[1]]
            ends = np.flatnonzero(np.diff(table[:, 0], append=np.nan) != 0.0) + 1
            for first, last in zip([0, *ends[:-1]], ends, strict=False):
                head = table[first, 0]
                origin = int(head) if 0.0 <= head < total else -1
                if origin < 0 or versions[i, origin]:
                    continue
                name = origin, table[first:last, 1:].tobytes()
                if name not in numbers:
                    most[origin] += 1
                    numbers[name] = most[origin]
                    found.append((origin, slots[e], first, last - first))
                if numbers[name] > largest:
                    return versions, news, np.zeros((0, 4), np.int64), False
                versions[i, origin], news[i, origin] = numbers[name], True
    return versions, news, np.array(found, np.int64).reshape(-1, 4), True


def bundle(news, versions, firsts, starts, lengths, values):
    """Write the rows of every device's new origins one after another, the origin's id in front.

    Returns
    -------
    values : float64[n, r, 1 + w]
    rows : int64[n]
    """
    n = len(news)
    who, origin = np.nonzero(news)
    table = firsts[origin] + versions[who, origin] - 1
    rows = np.bincount(who, lengths[table], minlength=n).astype(np.int64)
    sent = np.zeros((n, max(1, rows.max(initial=0)), 1 + values.shape[1]))
    q = np.zeros(n, np.int64)
    for i, j, first, count in zip(who, origin, starts[table], lengths[table], strict=True):
        sent[i, q[i] : q[i] + count, 0] = j
        sent[i, q[i] : q[i] + count, 1:] = values[first : first + count]
        q[i] += count
    return sent, rows
