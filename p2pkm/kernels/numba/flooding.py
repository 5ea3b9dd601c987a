"""Compiled flooding of tables."""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend, helper, kernel, normalize_layout


def merge_flooded(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, values):
    """Merge the received tables into the stored ones; see `p2pkm.kernels.reference.merge_flooded`."""
    tables, rows, slots, fresh, indptr, versions = normalize_layout(tables, rows, slots, fresh, indptr, versions)
    firsts, starts, lengths, values = normalize_layout(firsts, starts, lengths, values)
    bits = tables.view(np.int64), values.view(np.int64)
    largest = np.iinfo(versions.dtype).max
    # One table per origin suffices if tables are forwarded unchanged; otherwise the kernel is called again with more.
    capacity = versions.shape[1]
    while True:
        new_tables = np.empty((capacity, 6), np.int64)
        merged, is_new, count, fits = _merge_flooded(
            tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest, new_tables
        )
        if count <= capacity:
            return merged, is_new, new_tables[:count, :4].copy(), fits
        capacity *= 4


@compiled_backend(1)
def _merge_flooded(tables, rows, slots, fresh, indptr, versions, firsts, starts, lengths, bits, largest, new_tables):
    """Return versions, `is_new`, the number of new tables (above the capacity: call again with more), and `fits`.

    Parameters
    ----------
    new_tables : int64[capacity, 6]
        Origin, slot, first row, number of rows and version of each new table, and the index of the previous new table
        of the same origin, -1: none.
    """
    versions = versions.copy()
    n, total = versions.shape
    sent, stored = bits
    is_new = np.zeros(versions.shape, np.bool_)
    count = 0
    newest = np.full(total, -1)  # last new table of each origin
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
                    if lengths[table] == q - first and _is_equal(sent, slot, first, stored, starts[table], q - first):
                        version = table - firsts[origin] + 1
                    table += 1
                if version == 0:
                    version = _find(sent, slot, first, q - first, newest[origin], new_tables)
                if version == 0:
                    if count == len(new_tables):
                        return versions, is_new, count + 1, True
                    last = newest[origin]
                    version = 1 + (new_tables[last, 4] if last >= 0 else firsts[origin + 1] - firsts[origin])
                    new_tables[count, 0] = origin
                    new_tables[count, 1] = slot
                    new_tables[count, 2] = first
                    new_tables[count, 3] = q - first
                    new_tables[count, 4] = version
                    new_tables[count, 5] = last
                    newest[origin] = count
                    count += 1
                if version > largest:
                    return versions, is_new, 0, False
                versions[i, origin] = version
                is_new[i, origin] = True
    return versions, is_new, count, True


@helper(inline="always")
def _is_equal(sent, slot, first, stored, start, rows):
    """Return whether rows of a received table, without their origin, equal the stored rows from `start` on."""
    for q in range(rows):
        for f in range(stored.shape[1]):
            if sent[slot, first + q, 1 + f] != stored[start + q, f]:
                return False
    return True


@helper(inline="always")
def _find(sent, slot, first, rows, last, new_tables):
    """Return the version of equal rows among the new tables, 0: none; last: last new table of their origin."""
    number = last
    while number >= 0:
        other = sent[new_tables[number, 1], :, 1:]
        if new_tables[number, 3] == rows and _is_equal(sent, slot, first, other, new_tables[number, 2], rows):
            return new_tables[number, 4]
        number = new_tables[number, 5]
    return 0


@kernel
def concatenate_tables(selected, versions, firsts, starts, lengths, values):
    """Concatenate the selected tables of every device; see `p2pkm.kernels.reference.concatenate_tables`."""
    (n, total), width = selected.shape, values.shape[1]
    rows, most = np.zeros(n, np.int64), 1
    for i in range(n):
        for origin in range(total):
            if selected[i, origin]:
                rows[i] += lengths[firsts[origin] + versions[i, origin] - 1]
        most = max(most, rows[i])
    sent = np.zeros((n, most, 1 + width))
    for i in range(n):
        q = 0
        for origin in range(total):
            if not selected[i, origin]:
                continue
            table = firsts[origin] + versions[i, origin] - 1
            for row in range(starts[table], starts[table] + lengths[table]):
                sent[i, q, 0] = origin
                for f in range(width):
                    sent[i, q, 1 + f] = values[row, f]
                q += 1
    return sent, rows
