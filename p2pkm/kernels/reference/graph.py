"""Graphs: colors, layers, components, the opposite of every edge."""

import numpy as np

from p2pkm.core.sorting import find_distinct


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
