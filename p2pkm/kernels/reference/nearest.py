"""The nearest of several centroids, and the sums of the points that chose each one."""

import numpy as np

_LONG = 64  # features from which on a point's distances are added up in lanes
_FEW, _LANES = 8, 128  # labels whose sums go side by side in the plane; points of a block there


def _squared(a, b):
    """Return the squared distances of the rows of a to the rows of b, float64[a, b], summed in feature order.

    Those to one row of b stand side by side in memory: of many points and few centroids that is several times as fast.
    """
    total = None
    for x, y in zip(np.ascontiguousarray(a.T), b.T, strict=True):
        square = x - y[:, None]
        square *= square
        total = square if total is None else np.add(total, square, out=total)
    return np.zeros((len(a), len(b))) if total is None else total.T


def measure_distances(points, centroids):
    """Compute squared distances [m, k] of points to centroids; from 64 features in eight lanes, see `lanes.reach`."""
    d = points.shape[1]
    if d < _LONG:
        return _squared(points, centroids)
    lanes = np.zeros((points.shape[0], centroids.shape[0], 8))
    for first in range(0, d, 8):
        part = slice(first, first + 8)
        difference = points[:, None, part] - centroids[None, :, part]
        lanes[:, :, : difference.shape[2]] += difference * difference
    for half in (4, 2, 1):
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes[:, :, 0]


def find_nearest(distances):
    """Find index and value of each row's least distance, lowest index on ties; -1 and inf if none is finite."""
    if distances.shape[1] == 0:
        return np.full(len(distances), -1), np.full(len(distances), np.inf)
    labels = np.argmin(distances, axis=1)
    lowest = np.min(distances, axis=1)
    return np.where(lowest < np.inf, labels, -1), lowest


def _plain(points, weights):
    """Return points and weights, float64[m, d] and float64[m]; no weights stand for 1 each."""
    return np.asarray(points, np.float64), weights if len(weights) == len(points) else np.ones(len(points))


def _sums(points, weights, labels, rows):
    """Return the weighted sums and counts of the points by label (-1: of none), added in the order of the points.

    Of two features and few labels: eight sums side by side in each block of points, see `lanes.sum_where`.
    """
    if points.shape[1] == 2 and rows <= _FEW:
        values = np.column_stack((weights[:, None] * points, weights))
        total = np.zeros((rows, 3))
        for first in range(0, len(points), _LANES):
            block, hit = values[first : first + _LANES], labels[first : first + _LANES, None] == np.arange(rows)
            lanes = np.zeros((-(-len(block) // 8), 8, rows, 3))
            lanes.reshape(-1, rows, 3)[: len(block)] = np.where(hit[:, :, None], block[:, None], 0.0)
            side = np.cumsum(lanes, axis=0)[-1]
            for half in (4, 2, 1):
                side = side[:half] + side[half:]
            total += side[0]
        return total[:, :2], total[:, 2]
    if labels.min(initial=0) < 0:
        real = labels >= 0
        points, weights, labels = points[real], weights[real], labels[real]
    sums = np.empty((rows, points.shape[1] + 1))
    for f, x in enumerate((*points.T, 1.0)):
        sums[:, f] = np.bincount(labels, weights=weights * x, minlength=rows)
    return sums[:, :-1], sums[:, -1]
