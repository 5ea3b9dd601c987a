"""Few weighted rows that stand for many: what keeps tables bounded on their way up a tree."""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.messages import Tables, pack
from p2pkm.methods.building_blocks.spanning_tree import Front
from p2pkm.methods.init.flooded_summaries import summarize

_LIMIT = 10  # Lloyd steps


def tell_pairs(devices: Devices, k: int) -> Tables:
    """Return the pairs of every device's own k-means as rows (origin, centroid, count)."""
    pairs, rows = pack(summarize(devices, k))
    real = np.arange(k) < rows[:, None]
    values: Floats = np.column_stack((np.repeat(devices.ids, rows), pairs[real]))
    return Tables(values, np.cumsum(rows) - rows, rows)


def reduce(front: Front, most: int, devices: Devices) -> Front:
    """Replace each table of more than `most` rows (origin, point, weight) by at most half as many as `most`.

    The rows are clustered by weighted k-means++ and a few Lloyd steps, with the random stream of the device that does
    it, which becomes their origin. Weights and weighted means of what a row stands for are kept. The other half is room
    for what joins on the way, so that not every device has to reduce again, which costs time and accuracy.
    """
    large = np.flatnonzero(front.tables.rows > most)
    if not len(large):
        return front
    who, table = front.who[large], front.tables.take(large)
    flat = table.flat()
    points, weights = np.ascontiguousarray(flat[:, 1:-1]), np.ascontiguousarray(flat[:, -1])
    pooled = points, weights, weights, np.concatenate(([0], np.cumsum(table.rows)))
    streams = devices.keys[who], int(Stream.REDUCE), 0
    found, counts, _ = devices.kernels.kmeans(*pooled, most // 2, 1, 1, _LIMIT, np.zeros(len(who)), *streams)
    real = counts > 0.0
    made = real.sum(axis=1)
    values: Floats = np.column_stack((np.repeat(devices.ids[who], made), found[real], counts[real]))
    return Front(front.who, _replace(front.tables, large, Tables(values, np.cumsum(made) - made, made)))


def _replace(tables: Tables, which: Integers, others: Tables) -> Tables:
    """Return the tables with others in the place of some."""
    starts, rows = tables.starts.copy(), tables.rows.copy()
    starts[which], rows[which] = len(tables.values) + others.starts, others.rows
    return Tables(np.concatenate((tables.values, others.values)), starts, rows)
