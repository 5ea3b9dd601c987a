"""Compiled graph kernels, for graphs in which a NumPy call per device or layer takes too long."""

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend, kernel
from p2pkm.kernels.numba.simd import fetch
from p2pkm.kernels.numba.threads import divide
from p2pkm.kernels.reference.graph import BLOCK

# Number of links ahead whose rows are prefetched. 48 to 192 are equally fast on a small world of a million devices; 24
# takes 1.3 times as long.
_AHEAD = 96
# Number of devices ahead in the queue of a search whose links are prefetched; the place of their links twice as early.
_QUEUED = 16


@kernel
def color(indptr, indices):
    """Color the graph greedily in ascending id; see `p2pkm.kernels.reference.color`."""
    n = indptr.shape[0] - 1
    colors = np.zeros(n, np.int64)
    most = 0
    for i in range(n):
        most = max(most, indptr[i + 1] - indptr[i])
    # Last device with a lower neighbor of each color; avoids clearing the array for every device.
    seen = np.full(most + 1, -1, np.int64)
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] < i:
                seen[colors[indices[e]]] = i
        while seen[colors[i]] == i:
            colors[i] += 1
    return colors


@kernel
def layers(indptr, indices, roots):
    """Compute distances from the nearest root by breadth-first search; see `p2pkm.kernels.reference.layers`."""
    n = indptr.shape[0] - 1
    # Half the memory of int64: both arrays are accessed in random order.
    layer, queue = np.full(n, -1, np.int32), np.empty(n, np.int32)
    last = 0
    for root in roots:
        if layer[root] < 0:
            layer[root], queue[last] = 0, root
            last += 1
    first = 0
    while first < last:
        i = queue[first]
        if first + 2 * _QUEUED < last:
            fetch(indptr, np.int64(queue[first + 2 * _QUEUED]))
            later = np.int64(queue[first + _QUEUED])
            fetch(indices, indptr[later])
            fetch(layer, later)
        first += 1
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if layer[j] < 0:
                layer[j], queue[last] = layer[i] + 1, j
                last += 1
    return layer.astype(np.int64)


@kernel
def components(indptr, indices):
    """Find the connected component of every device; see `p2pkm.kernels.reference.components`."""
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
    """Find the reverse of every edge; see `p2pkm.kernels.reference.mirror`."""
    opposite, place = np.empty(indices.shape[0], np.int64), indptr[:-1].copy()
    for i in range(indptr.shape[0] - 1):
        # Devices are visited in ascending order, which is the order of the edges of each neighbor.
        for e in range(indptr[i], indptr[i + 1]):
            opposite[place[indices[e]]] = e
            place[indices[e]] += 1
    return opposite


@compiled_backend(3)
def _lanczos(indptr, indices, strengths, rows, norms, main, shift, first, last, before, vectors, sums):
    """Compute one of the two phases of a step, for the blocks of devices ``first:last``.

    Without `main` (empty): multiply by the matrices; `before` becomes the image of `vectors`. With `main`, the diagonal
    entries: subtract the components along `vectors` and along the constant vector, and normalize `vectors`. `sums` of a
    block are those of vectors * image, image and vectors in the first phase, and of squares in the second.
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
            product0, product1, product2 = 0.0, 0.0, 0.0
            for e in range(indptr[i], indptr[i + 1]):
                fetch(vectors, np.int64(indices[min(e + _AHEAD, end)]))
                j = np.uintp(indices[e])
                product0 += strengths[e, 0] * vectors[j, 0]
                product1 += strengths[e, 1] * vectors[j, 1]
                product2 += strengths[e, 2] * vectors[j, 2]
            for c, product in enumerate((product0, product1, product2)):
                before[i, c] = (rows[i, c] * vectors[i, c] - product) / length[c] - norms[c] * before[i, c]
                normalized = vectors[i, c] / length[c]
                sums[block, 0, c] += normalized * before[i, c]
                sums[block, 1, c] += before[i, c]
                sums[block, 2, c] += normalized


def lanczos(indptr, indices, strengths, rows, before, vectors, norms, steps):
    """Run steps of the Lanczos recurrence for three matrices; see `p2pkm.kernels.reference.lanczos`."""
    n = len(before)
    diagonal = np.empty((steps, 3))
    off_diagonal = np.empty((steps, 3))
    before = before.copy()
    vectors = vectors.copy()
    links = indptr, indices, strengths, rows
    load = indptr[np.minimum(np.arange(0, n + BLOCK, BLOCK), n)]
    sums = np.empty((len(load) - 1, 3, 3))
    empty = np.zeros(0)

    def run(main, shift):
        args = (*links, norms, main, shift)
        divide(lambda first, last: _lanczos(*args, first, last, before, vectors, sums), load)
        return np.cumsum(sums, axis=0)[-1]

    for step in range(steps):
        along, drift, mean = run(empty, empty)
        diagonal[step] = along
        squares = run(along, (drift - along * mean) / n)[0]
        before, vectors = vectors, before
        norms = off_diagonal[step] = np.sqrt(squares)
    return before, vectors, diagonal, off_diagonal
