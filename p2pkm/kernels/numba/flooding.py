"""Compiled flooding: who holds which version of whose table, and what is news."""

import numpy as np

from p2pkm.kernels.numba.compiling import alike, behind, helper, kernel


def merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, values):
    """Take in the tables that were just received; see `p2pkm.kernels.reference.merge`."""
    tables, rows, slots, fresh, indptr, versions = alike(tables, rows, slots, fresh, indptr, versions)
    firsts, starts, lengths, values = alike(firsts, starts, lengths, values)
    bits, largest = (tables.view(np.int64), values.view(np.int64)), np.iinfo(versions.dtype).max
    room = versions.shape[1]  # for one table of each origin: what is passed on unchanged needs no more
    while True:
        found = np.empty((room, 6), np.int64)
        held, news, count, fits = _merge(
            tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest, found
        )
        if count <= room:
            return held, news, found[:count, :4].copy(), fits
        room *= 4


@behind(1)
def _merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest, found):
    """Return versions, news, how many tables were found (more than there is room for: begin anew), and `fits`.

    found : int64[room, 6]
        Origin, slot, first row and rows of each table found, its version, and the one of its origin found before it.
    """
    versions = versions.copy()
    n, total = versions.shape
    sent, stored = bits
    news = np.zeros(versions.shape, np.bool_)
    newest, count = np.full(total, -1), 0  # the last table found of each origin
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if not fresh[e]:
                continue
            slot, q, end = slots[e], 0, rows[slots[e]]
            while q < end:
                head, first = tables[slot, q, 0], q
                q += 1
                while q < end and tables[slot, q, 0] == head:
                    q += 1
                if not 0.0 <= head < total:
                    continue
                origin = int(head)
                if versions[i, origin]:
                    continue
                version, table = 0, firsts[origin]
                while version == 0 and table < firsts[origin + 1]:
                    if lengths[table] == q - first and _same(sent, slot, first, stored, starts[table], q - first):
                        version = table - firsts[origin] + 1
                    table += 1
                if version == 0:
                    version = _find(sent, slot, first, q - first, newest[origin], found)
                if version == 0:
                    if count == len(found):
                        return versions, news, count + 1, True
                    last = newest[origin]
                    version = 1 + (found[last, 4] if last >= 0 else firsts[origin + 1] - firsts[origin])
                    found[count, 0], found[count, 1], found[count, 2], found[count, 3] = origin, slot, first, q - first
                    found[count, 4], found[count, 5], newest[origin] = version, last, count
                    count += 1
                if version > largest:
                    return versions, news, 0, False
                versions[i, origin], news[i, origin] = version, True
    return versions, news, count, True


@helper(inline="always")
def _same(sent, slot, first, stored, start, rows):
    """Return whether rows of a table, their origin left out, are those that are stored from a place on."""
    for q in range(rows):
        for f in range(stored.shape[1]):
            if sent[slot, first + q, 1 + f] != stored[start + q, f]:
                return False
    return True


@helper(inline="always")
def _find(sent, slot, first, rows, one, found):
    """Return the version of rows that were found before, 0 if not; one: the last that was found of their origin."""
    while one >= 0:
        if found[one, 3] == rows and _same(sent, slot, first, sent[found[one, 1], :, 1:], found[one, 2], rows):
            return found[one, 4]
        one = found[one, 5]
    return 0


@kernel
def bundle(news, versions, firsts, starts, lengths, values):
    """Write flooded tables one after another; see `p2pkm.kernels.reference.bundle`."""
    (n, total), width = news.shape, values.shape[1]
    rows, most = np.zeros(n, np.int64), 1
    for i in range(n):
        for origin in range(total):
            if news[i, origin]:
                rows[i] += lengths[firsts[origin] + versions[i, origin] - 1]
        most = max(most, rows[i])
    sent = np.zeros((n, most, 1 + width))
    for i in range(n):
        q = 0
        for origin in range(total):
            if not news[i, origin]:
                continue
            table = firsts[origin] + versions[i, origin] - 1
            for row in range(starts[table], starts[table] + lengths[table]):
                sent[i, q, 0] = origin
                for f in range(width):
                    sent[i, q, 1 + f] = values[row, f]
                q += 1
    return sent, rows
