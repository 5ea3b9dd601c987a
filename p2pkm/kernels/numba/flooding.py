"""Compiled flooding: who holds which version of whose table, and what is news."""

import numpy as np
from numba import njit


def merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, values):
    """Take in the tables that were just heard; see `p2pkm.kernels.reference.merge`."""
    bits, largest = (tables.view(np.int64), values.view(np.int64)), np.iinfo(versions.dtype).max
    return _merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest)


@njit(cache=True, nogil=True)
def _merge(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest):
    versions = versions.copy()
    n, total = versions.shape
    said, stored = bits
    news = np.zeros(versions.shape, np.bool_)
    newest = np.full(total, -1)  # the last table found of each origin; before: the one found before it
    found, number, before, count = np.empty((4, 4), np.int64), np.empty(4, np.int64), np.empty(4, np.int64), 0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if not fresh[e]:
                continue
            slot = slots[e]
            heads, q, end = tables[slot, :, 0], 0, rows[slot]
            while q < end:
                first, real = q, 0.0 <= heads[q] < total
                origin = int(heads[q]) if real else -1
                q += 1
                while q < end and (0.0 <= heads[q] < total) == real and (not real or int(heads[q]) == origin):
                    q += 1
                if origin < 0 or versions[i, origin]:
                    continue
                version = 0
                for table in range(firsts[origin], firsts[origin + 1]):
                    if lengths[table] == q - first and _same(said[slot], first, stored, starts[table], q - first):
                        version = table - firsts[origin] + 1
                        break
                one = newest[origin]
                while version == 0 and one >= 0:
                    there = found[one]
                    if there[3] == q - first and _told_alike(said, slot, first, there, stored.shape[1]):
                        version = number[one]
                    one = before[one]
                if version == 0:
                    if count == len(found):
                        found, number, before = _double(found), _double(number), _double(before)
                    last = newest[origin]
                    version = 1 + (number[last] if last >= 0 else firsts[origin + 1] - firsts[origin])
                    found[count] = origin, slot, first, q - first
                    number[count], before[count], newest[origin] = version, last, count
                    count += 1
                if version > largest:
                    return versions, news, found[:0], False
                versions[i, origin], news[i, origin] = version, True
    return versions, news, found[:count], True


@njit(cache=True, nogil=True)
def _same(table, first, stored, start, rows):
    """Return whether rows of a table, their origin left out, are those that are stored from a place on."""
    for q in range(rows):
        for f in range(stored.shape[1]):
            if table[first + q, 1 + f] != stored[start + q, f]:
                return False
    return True


@njit(cache=True, nogil=True)
def _told_alike(said, slot, first, there, width):
    """Return whether rows of a table are those found elsewhere in what was said."""
    for q in range(there[3]):
        for f in range(1, 1 + width):
            if said[slot, first + q, f] != said[there[1], there[2] + q, f]:
                return False
    return True


@njit(cache=True, nogil=True)
def _double(array):
    """Return the array with as much room again."""
    return np.concatenate((array, array))


@njit(cache=True, nogil=True)
def bundle(news, versions, firsts, starts, lengths, values):
    """Write flooded tables one after another; see `p2pkm.kernels.reference.bundle`."""
    n, width = news.shape[0], values.shape[1]
    rows = np.zeros(n, np.int64)
    for i in range(n):
        for origin in np.nonzero(news[i])[0]:
            rows[i] += lengths[firsts[origin] + versions[i, origin] - 1]
    said = np.zeros((n, max(1, rows.max() if n > 0 else 1), 1 + width))
    for i in range(n):
        q = 0
        for origin in np.nonzero(news[i])[0]:
            table = firsts[origin] + versions[i, origin] - 1
            for row in range(starts[table], starts[table] + lengths[table]):
                said[i, q, 0] = origin
                said[i, q, 1:] = values[row]
                q += 1
    return said, rows
