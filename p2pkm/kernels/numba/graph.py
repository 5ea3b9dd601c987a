"""Compiled walks over a graph, for so many devices that a step of NumPy per device or layer takes too long."""

import numpy as np

from p2pkm.kernels.numba.compiling import kernel


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
