"""Graphs: colors, layers, components, the opposite of every edge."""

import numpy as np

from p2pkm.core.sorting import find_distinct

BLOCK = 4_096  # devices whose terms are added up first


def color(indptr, indices):
    """Give every device the smallest color that no lower neighbor has, in ascending id.

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
        taken = {colors[j] for j in neighbors[first:last] if j < i}
        color = 0
        while color in taken:
            color += 1
        colors[i] = color
    return np.array(colors, np.int64)


def layers(indptr, indices, roots):
    """Search breadth first from all roots at once.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int64[e]
        Neighbors of each device.
    roots : int64[r]

    Returns
    -------
    int64[n]
        Number of links to the nearest root, -1 where there is no path.
    """
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


def components(indptr, indices):
    """Give every device the number of its component, counted by their lowest devices.

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
    """Find the opposite (j, i) of every directed edge (i, j) of a graph.

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
    """Take steps of Lanczos' recurrence with three matrices of the same links at once, without the mean of all devices.

    Matrix c is ``diag(rows[:, c]) - S_c`` with the strengths S_c of the links; its null vector is (1, ..., 1). The
    recurrence is that of Lanczos (1950), without reorthogonalization.

    Parameters
    ----------
    indptr : int64[n + 1]
    indices : int32[e]
        Neighbors of each device.
    strengths : float64[e, 3]
        Of every directed edge, for each matrix.
    rows : float64[n, 3]
        Sums of the strengths of each device.
    before, vectors : float64[n, 3]
        The last vector, of length 1, and the next one, of the length `norms`; at first zeros, and what the recurrence
        begins with.
    norms : float64[3]
    steps : int
        How many.

    Returns
    -------
    before, vectors : float64[n, 3]
        As above, to go on with.
    diagonal, beside : float64[steps, 3]
        Of the tridiagonal matrices; the last row of `beside` holds the new norms.
    """
    n, diagonal, beside = len(before), np.empty((steps, 3)), np.empty((steps, 3))
    sources, blocks = np.repeat(np.arange(n), np.diff(indptr)), np.arange(n) // BLOCK

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
        norms = beside[step] = np.sqrt(total(vectors * vectors))
    return before, vectors, diagonal, beside
