"""Few weighted rows that stand for many: what keeps tables bounded on their way up a tree."""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.messages import Tables, pack
from p2pkm.core.sorting import blocks
from p2pkm.methods.building_blocks.spanning_tree import Front
from p2pkm.methods.building_blocks.weighted_rows import Rows
from p2pkm.methods.init.flooded_summaries import summarize

_LIMIT = 10  # Lloyd steps
_SUMMED = 8  # tables of a device that stand at a time while its own points are summed up


def tell_pairs(devices: Devices, k: int) -> Tables:
    """Return the pairs of every device's own k-means as rows (origin, centroid, count)."""
    n, end = len(devices), 0
    values, rows = np.empty((n * k, 2 + devices.d)), np.empty(n, np.int64)
    for some in blocks(n, _SUMMED * k * (2 + devices.d)):
        pairs, rows[some] = pack(summarize(devices.part(some), k))
        first, end = end, end + int(rows[some].sum())
        values[first:end, 0] = np.repeat(devices.ids[some], rows[some])
        values[first:end, 1:] = pairs[np.arange(k) < rows[some, None]]
    return Tables(values[:end], np.cumsum(rows) - rows, rows)


def reduce(front: Front, most: int, devices: Devices) -> Front:
    """Replace each table of more than `most` rows (origin, point, weight[, SSE]) by at most half as many as `most`.

    The rows are clustered by weighted k-means++ and a few Lloyd steps, with the random stream of the device that does
    it, which becomes their origin. Weights and weighted means of what a row stands for are kept, the SSE, too, if there
    is one. The other half is room for what joins on the way, so that not every device has to reduce again, which costs
    time and accuracy.
    """
    large = np.flatnonzero(front.tables.rows > most)
    if not len(large):
        return front
    who, table, d = front.who[large], front.tables.take(large), devices.d
    flat = table.flat()
    points, weights = np.ascontiguousarray(flat[:, 1 : 1 + d]), np.ascontiguousarray(flat[:, 1 + d])
    within = flat[:, -1].copy() if flat.shape[1] > 2 + d else None
    del flat  # of many devices each array counts
    pooled = points, weights, weights, np.concatenate(([0], np.cumsum(table.rows)))
    streams = devices.keys[who], int(Stream.REDUCE), 0
    found, counts, _ = devices.kernels.kmeans(*pooled, most // 2, 1, 1, _LIMIT, np.zeros(len(who)), *streams)
    real = counts > 0.0
    made = real.sum(axis=1)
    rows: Floats = np.column_stack((found[real], counts[real]))
    if within is not None:
        _, labels = devices.kernels.losses(points, weights, pooled[3], found)
        group = np.cumsum(real.ravel())[np.repeat(np.arange(len(who)), table.rows) * (most // 2) + labels] - 1
        rows = Rows(points, weights, within).merge(group, found[real]).table
    values: Floats = np.column_stack((np.repeat(devices.ids[who], made), rows))
    del points, weights, pooled, found, rows
    return Front(front.who, _replace(front.tables, large, Tables(values, np.cumsum(made) - made, made)))


def _replace(tables: Tables, which: Integers, others: Tables) -> Tables:
    """Return the tables with others in the place of some, whose rows are let go."""
    kept = np.ones(len(tables.rows), np.bool_)
    kept[which] = False
    starts, rows, stay = tables.starts.copy(), tables.rows.copy(), int(tables.rows[kept].sum())
    values = np.empty((stay + len(others.values), tables.values.shape[1]))
    starts[kept] = np.cumsum(tables.rows[kept]) - tables.rows[kept]
    tables.take(np.flatnonzero(kept)).copy_to(values, starts[kept])
    values[stay:] = others.values
    starts[which], rows[which] = stay + others.starts, others.rows
    return Tables(values, starts, rows)
