"""Reduction of large tables of summary rows to fewer weighted rows, which bounds the messages up a tree."""

from itertools import pairwise

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.messages import Tables, pack
from p2pkm.core.sorting import blocks, find_distinct, offsets_of
from p2pkm.methods.building_blocks.spanning_tree import PendingTables
from p2pkm.methods.building_blocks.weighted_rows import Rows
from p2pkm.methods.init.flooded_summaries import summarize

# Largest number of Lloyd steps.
_LIMIT = 10
# Tables of a device that exist at the same time in `summarize`; sets the block size, and so the memory.
_TABLES_PER_DEVICE = 8
# Rows of the tables that are reduced at the same time.
_ROWS_PER_BLOCK = 1 << 20


def summarize_with_origins(devices: Devices, k: int) -> Tables:
    """Run k-means on every device: rows (origin, centroid, count)."""
    n, end = len(devices), 0
    values = np.empty((n * k, 2 + devices.d))
    rows = np.empty(n, np.int64)
    for block in blocks(n, _TABLES_PER_DEVICE * k * (2 + devices.d)):
        tables, rows[block] = pack(summarize(devices.part(block), k))
        first, end = end, end + int(rows[block].sum())
        values[first:end, 0] = np.repeat(devices.ids[block], rows[block])
        values[first:end, 1:] = tables[np.arange(k) < rows[block, None]]
    return Tables(values[:end], np.cumsum(rows) - rows, rows)


def reduce_tables(front: PendingTables, most: int, devices: Devices) -> PendingTables:
    """Replace each table of more than `most` rows (origin, point, weight[, SSE]) by at most ``most // 2`` rows.

    The rows are clustered by weighted k-means++ and a few Lloyd steps with the random stream of the reducing device,
    which becomes their origin. Weights, weighted means and SSEs are preserved. The reduced tables overwrite the large
    ones in the array of `front`: with millions of devices, another array takes gigabytes.
    """
    rows = front.tables.rows.copy()
    large = np.flatnonzero(rows > most)
    if not len(large):
        return front
    # In blocks, because points, weights and results of all large tables would be as large as the tables themselves.
    ends = offsets_of(rows[large])
    borders = np.append(np.searchsorted(ends, np.arange(0, ends[-1], _ROWS_PER_BLOCK)), len(large))
    for first, last in pairwise(find_distinct(borders).tolist()):
        block = large[first:last]
        reduced = _reduce(front.tables.take(block), front.senders[block], most, devices)
        reduced.copy_to(front.tables.values, front.tables.starts[block])
        rows[block] = reduced.rows
    return PendingTables(front.senders, front.tables._replace(rows=rows))


def _reduce(table: Tables, reducers: Integers, most: int, devices: Devices) -> Tables:
    """Reduce each table to at most ``most // 2`` rows; reducers: int64[t], device of each table."""
    flat, d = table.flat(), devices.d
    points = np.ascontiguousarray(flat[:, 1 : 1 + d])
    weights = np.ascontiguousarray(flat[:, 1 + d])
    within = flat[:, -1].copy() if flat.shape[1] > 2 + d else None
    pooled = points, weights, weights, np.concatenate(([0], np.cumsum(table.rows)))
    streams = devices.keys[reducers], int(Stream.REDUCE), 0
    # Half of `most`: the other half is room for rows that are added on the way up. Otherwise every device above would
    # have to reduce again, which costs time and accuracy.
    centroids, counts, _ = devices.kernels.kmeans(*pooled, most // 2, 1, 1, _LIMIT, np.zeros(len(reducers)), *streams)
    real = counts > 0.0
    row_counts = real.sum(axis=1)
    rows: Floats = np.column_stack((centroids[real], counts[real]))
    if within is not None:
        _, labels = devices.kernels.losses(points, weights, pooled[3], centroids)
        group = np.cumsum(real.ravel())[np.repeat(np.arange(len(reducers)), table.rows) * (most // 2) + labels] - 1
        rows = Rows(points, weights, within).merge(group, centroids[real]).table
    values: Floats = np.column_stack((np.repeat(devices.ids[reducers], row_counts), rows))
    return Tables(values, np.cumsum(row_counts) - row_counts, row_counts)
