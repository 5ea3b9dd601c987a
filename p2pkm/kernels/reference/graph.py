"""Graph kernels: coloring, breadth-first layers, components, reverse edges, Lanczos recurrence."""

import numpy as np

from p2pkm.core.sorting import find_distinct

# Devices whose terms are summed first; the partial sums are then added. Fixed, so that results do not depend on the
# number of threads.
BLOCK = 4_096
# Devices and directed edges up to which lists take less time than arrays, which a search needs in each layer.
_FEW = 1_024


def color(indptr, indices):
    """Color the graph greedily in ascending id: the smallest color that is unused by lower neighbors.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors of each device.

    Returns
    -------
    int64[n]
    """
    colors = [0] * (len(indptr) - 1)
    neighbors = indices.tolist()
    for i, (first, last) in enumerate(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True)):
        used = {colors[j] for j in neighbors[first:last] if j < i}
        color = 0
        while color in used:
            color += 1
        colors[i] = color
    return np.array(colors, np.int64)


def layers(indptr, indices, roots):
    """Compute the distance of every device from the nearest root, by breadth-first search.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors of each device.
    roots : int64[r]

    Returns
    -------
    int64[n]
        Number of links to the nearest root, -1 without a path.
    """
    if len(indptr) + len(indices) <= _FEW:
        return np.array(_walk_lists(indptr.tolist(), indices.tolist(), roots.tolist()), np.int64)
    layer = np.full(len(indptr) - 1, -1)
    depth, front = 0, find_distinct(roots)
    layer[front] = 0
    while len(front):
        depth += 1
        counts = indptr[front + 1] - indptr[front]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        reached = indices[np.repeat(indptr[front], counts) + within]
        front = find_distinct(reached[layer[reached] < 0])
        layer[front] = depth
    return layer


def _walk_lists(indptr, indices, roots):
    """Compute the layers of a small graph, all in lists."""
    layer = [-1] * (len(indptr) - 1)
    for root in roots:
        layer[root] = 0
    depth, front = 0, list(dict.fromkeys(roots))
    while front:
        depth += 1
        reached = []
        for device in front:
            for neighbor in indices[indptr[device] : indptr[device + 1]]:
                if layer[neighbor] < 0:
                    layer[neighbor] = depth
                    reached.append(neighbor)
        front = reached
    return layer


def components(indptr, indices):
    """Find the connected component of every device; components are numbered by their lowest device.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors of each device.

    Returns
    -------
    int64[n]
        Component of each device.
    """
    component, count = np.full(len(indptr) - 1, -1), 0
    for device in range(len(component)):
        if component[device] < 0:
            component[layers(indptr, indices, np.array([device])) >= 0] = count
            count += 1
    return component


def mirror(indptr, indices):
    """Find the reverse edge (j, i) of every directed edge (i, j).

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors of each device, ascending.

    Returns
    -------
    int64[e]
    """
    sources = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return np.lexsort((sources, indices))


def lanczos(indptr, indices, strengths, rows, before, vectors, norms, steps):
    """Run steps of the Lanczos recurrence for three matrices on the same links, orthogonal to the constant vector.

    Matrix c is ``diag(rows[:, c]) - S_c`` with link strengths S_c; its null vector is (1, ..., 1). The recurrence is
    that of Lanczos (1950), without reorthogonalization.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int32[e]
        Neighbors of each device.
    strengths : float64[e, 3]
        Strength of every directed edge, for each matrix.
    rows : float64[n, 3]
        Sum of the strengths of each device.
    before, vectors : float64[n, 3]
        Previous vector of length 1 (zeros in the first step), and present vector of length `norms`.
    norms : float64[3]
    steps : int
        Number of steps.

    Returns
    -------
    before, vectors : float64[n, 3]
        Vectors for the next call.
    diagonal, off_diagonal : float64[steps, 3]
        Entries of the tridiagonal matrices; the last row of `off_diagonal` is the new `norms`.
    """
    n = len(before)
    diagonal = np.empty((steps, 3))
    off_diagonal = np.empty((steps, 3))
    sources = np.repeat(np.arange(n), np.diff(indptr))
    blocks = np.arange(n) // BLOCK

    def total(terms):
        return np.cumsum([np.bincount(blocks, column) for column in terms.T], axis=1)[:, -1]

    for step in range(steps):
        length = np.where(norms > 0, norms, 1.0)
        products = [np.bincount(sources, strengths[:, c] * vectors[indices, c], n) for c in range(3)]
        image = (rows * vectors - np.stack(products, axis=1)) / length - norms * before
        before = vectors / length
        diagonal[step] = total(before * image)
        shift = (total(image) - diagonal[step] * total(before)) / n
        vectors = image - diagonal[step] * before - shift
        norms = off_diagonal[step] = np.sqrt(total(vectors * vectors))
    return before, vectors, diagonal, off_diagonal
