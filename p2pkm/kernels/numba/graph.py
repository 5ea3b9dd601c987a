"""Compiled walks over a graph, for so many devices that a step of NumPy per device or layer takes too long."""

import numpy as np

from p2pkm.kernels.numba.compiling import behind, kernel
from p2pkm.kernels.numba.simd import fetch
from p2pkm.kernels.numba.threads import divide
from p2pkm.kernels.reference.graph import BLOCK

_AHEAD = 24  # links; their devices' rows are asked for before they are needed


@kernel
def color(indptr, indices):
    """Give every device the smallest color that no lower neighbor has; see `p2pkm.kernels.reference.color`."""
    n = indptr.shape[0] - 1
    colors = np.zeros(n, np.int64)
    most = 0
    for i in range(n):
        most = max(most, indptr[i + 1] - indptr[i])
    seen = np.full(most + 1, -1, np.int64)  # the last device that had a lower neighbor of this color
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] < i:
                seen[colors[indices[e]]] = i
        while seen[colors[i]] == i:
            colors[i] += 1
    return colors


@kernel
def layers(indptr, indices, roots):
    """Search breadth first from all roots at once; see `p2pkm.kernels.reference.layers`."""
    n = indptr.shape[0] - 1
    layer, queue = np.full(n, -1, np.int64), np.empty(n, np.int64)
    last = 0
    for root in roots:
        if layer[root] < 0:
            layer[root], queue[last] = 0, root
            last += 1
    first = 0
    while first < last:
        i = queue[first]
        first += 1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if layer[j] < 0:
                layer[j], queue[last] = layer[i] + 1, j
                last += 1
    return layer


@kernel
def components(indptr, indices):
    """Give every device the number of its component; see `p2pkm.kernels.reference.components`."""
    n = indptr.shape[0] - 1
    component, queue = np.full(n, -1, np.int64), np.empty(n, np.int64)
    count = 0
    for device in range(n):
        if component[device] >= 0:
            continue
        component[device], queue[0] = count, device
        first, last = 0, 1
        while first < last:
            i = queue[first]
            first += 1
            for e in range(indptr[i], indptr[i + 1]):
                j = indices[e]
                if component[j] < 0:
                    component[j], queue[last] = count, j
                    last += 1
        count += 1
    return component


@kernel
def mirror(indptr, indices):
    """Find the opposite of every edge; see `p2pkm.kernels.reference.mirror`."""
    opposite, place = np.empty(indices.shape[0], np.int64), indptr[:-1].copy()
    for i in range(indptr.shape[0] - 1):
        for e in range(indptr[i], indptr[i + 1]):  # neighbors see their own neighbors, too, in ascending order
            opposite[place[indices[e]]] = e
            place[indices[e]] += 1
    return opposite


@behind(3)
def _lanczos(indptr, indices, strengths, rows, norms, main, shift, first, last, before, vectors, sums):
    """Multiply by the matrices, or, with the terms of the `main` diagonal, make what that gave orthogonal.

    The first time ``before`` becomes the image of `vectors`, which becomes the last vector the second time. `sums` of
    the blocks of devices ``first:last`` are those of vectors * image, image and vectors, then of squares.
    """
    n, end, length = vectors.shape[0], indices.shape[0] - 1, np.where(norms > 0.0, norms, 1.0)
    for block in range(first, last):
        sums[block] = 0.0
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            if main.shape[0] > 0:
                for c in range(3):
                    vectors[i, c] /= length[c]
                    before[i, c] = before[i, c] - main[c] * vectors[i, c] - shift[c]
                    sums[block, 0, c] += before[i, c] * before[i, c]
                continue
            one, two, three = 0.0, 0.0, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                fetch(vectors, np.int64(indices[min(e + _AHEAD, end)]))
                j = np.uintp(indices[e])
                one += strengths[e, 0] * vectors[j, 0]
                two += strengths[e, 1] * vectors[j, 1]
                three += strengths[e, 2] * vectors[j, 2]
            for c in range(3):
                product = one if c == 0 else two if c == 1 else three
                before[i, c] = (rows[i, c] * vectors[i, c] - product) / length[c] - norms[c] * before[i, c]
                last_one = vectors[i, c] / length[c]
                sums[block, 0, c] += last_one * before[i, c]
                sums[block, 1, c] += before[i, c]
                sums[block, 2, c] += last_one


def lanczos(indptr, indices, strengths, rows, before, vectors, norms, steps):
    """Take steps of Lanczos' recurrence with three matrices; see `p2pkm.kernels.reference.lanczos`."""
    n, diagonal, beside = len(before), np.empty((steps, 3)), np.empty((steps, 3))
    before, vectors, links = before.copy(), vectors.copy(), (indptr, indices, strengths, rows)
    load = indptr[np.minimum(np.arange(0, n + BLOCK, BLOCK), n)]
    sums, none = np.empty((len(load) - 1, 3, 3)), np.zeros(0)

    def run(main, shift):
        given = (*links, norms, main, shift)
        divide(lambda first, last: _lanczos(*given, first, last, before, vectors, sums), load)
        return np.cumsum(sums, axis=0)[-1]

    for step in range(steps):
        along, drift, mean = run(none, none)
        diagonal[step] = along
        squares = run(along, (drift - along * mean) / n)[0]
        before, vectors = vectors, before
        norms = beside[step] = np.sqrt(squares)
    return before, vectors, diagonal, beside
