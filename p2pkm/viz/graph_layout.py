"""Where devices stand in a drawing of their graph."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Floats, Integers
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    from p2pkm.network.graph import Topology

_EXACT = 400  # devices; above, only distances to a few pivots are looked at
_SOLVED = 5_000  # devices; above, they stand in a circle
_LONG = 150  # hops; graphs that are longer are bent to a circle
_PIVOTS = 16
_STEPS = 50
_POWER = 512  # iterations; vectors whose eigenvalue is 5 % smaller vanish


def place_devices(topology: "Topology") -> Floats:
    """Return where each device stands, float64[n, 2]; the same at every call and on every processor.

    Rings and complete graphs are circles, stars a wheel. In other graphs distances on paper follow the numbers of
    hops: stress majorisation (Gansner, Koren, North, 2004) up to 400 devices, pivot multidimensional scaling (Brandes,
    Pich, 2006) up to 5,000, a circle in the order of the devices above. Very long ones are bent to a circle, too.
    """
    n, degrees = topology.n, topology.degrees
    if n > _SOLVED or n <= 3 or (degrees == n - 1).all():
        return _circle(np.arange(n))
    if (degrees == 2).all() and not topology.components.any():
        return _circle(_walk(topology))
    if (np.sort(degrees)[:-1] == 1).all() and degrees.max() == n - 1:
        return _wheel(int(degrees.argmax()), n)
    if topology.hops > _LONG:
        return _circle(_sort_along(topology))
    if n > _EXACT:
        return _scale_pivots(topology)
    return _majorize(_count_hops(topology))


def _circle(order: Integers) -> Floats:
    """Return points on a circle, the first on top, clockwise; order[i] is the place of device i."""
    n = len(order)
    if n == 1:
        return np.zeros((1, 2))
    angle = np.pi / 2 - 2 * np.pi * order / n
    if n == 2:
        angle = angle + np.pi / 2
    return np.column_stack((np.cos(angle), np.sin(angle)))


def _wheel(hub: int, n: int) -> Floats:
    """Return the hub in the middle and all others on a circle."""
    places = np.zeros((n, 2))
    places[np.arange(n) != hub] = _circle(np.arange(n - 1))
    return places


def _walk(topology: "Topology") -> Integers:
    """Return each device's place along a ring, int64[n]."""
    order = np.zeros(topology.n, np.int64)
    before, here = -1, 0
    for place in range(topology.n):
        order[here] = place
        left, right = topology.indices[topology.indptr[here] : topology.indptr[here + 1]]
        before, here = here, int(left if left != before else right)
    return order


def _sort_along(topology: "Topology") -> Integers:
    """Return each device's place from one end of the graph to the other, int64[n]."""
    end = int(topology.layers(0).argmax())
    return np.argsort(np.argsort(topology.layers(end), kind="stable"))


def _count_hops(topology: "Topology") -> Floats:
    """Return the number of hops between any two devices, float64[n, n]; between components, one more than the most."""
    n = topology.n
    ends = np.concatenate((topology.indices, np.arange(n)))  # with a loop each, so that nobody's part is empty
    starts = np.concatenate((topology.sources, np.arange(n)))
    ends = ends[np.argsort(starts, kind="stable")]
    first = topology.indptr[:-1] + np.arange(n)
    hops, reached = np.zeros((n, n)), np.eye(n, dtype=np.bool_)
    while True:
        further = np.logical_or.reduceat(reached[ends], first, axis=0)
        if (further == reached).all():
            break
        hops += ~reached
        reached = further
    hops[~reached] = hops.max() + 1
    return hops


@single_thread()
def _majorize(hops: Floats) -> Floats:
    """Return the layout of least stress, sum over pairs of (distance - hops)^2 / hops^2, by majorisation."""
    n = len(hops)
    apart = hops + np.eye(n)
    weights = apart**-2.0
    np.fill_diagonal(weights, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1 / n) - 1 / n
    wanted = weights * hops
    places = _embed(hops**2) + 0.1 * _circle(np.arange(n))  # the circle parts devices with equal distances
    for _ in range(_STEPS):
        across, along = (np.subtract.outer(axis, axis) for axis in places.T)
        pull = wanted / np.maximum(np.sqrt(across * across + along * along), 1e-9)
        places = inverse @ (pull.sum(axis=1)[:, None] * places - pull @ places)
    return places


@single_thread()
def _embed(squares: Floats) -> Floats:
    """Return the two leading directions of doubly centered squared distances, float64[n, 2].

    Parameters
    ----------
    squares : float64[n, p]
        Squared distances of the devices to some or all of them.
    """
    centered = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    lengths, vectors = np.linalg.eigh(centered.T @ centered / 4)  # far cheaper than the singular values
    lengths = np.maximum(lengths, 1e-12 * lengths[-1])
    return centered @ _choose_plane(lengths, vectors) / (2 * lengths[:-3:-1] ** 0.25)


def _choose_plane(lengths: Floats, vectors: Floats) -> Floats:
    """Return orthonormal vectors for the two largest eigenvalues, float64[p, 2], the same on every processor.

    LAPACK's eigenvectors differ between processors: in their signs, and where eigenvalues are equal, as in symmetric
    graphs, also in their directions. Power iteration of two fixed vectors, in closed form, depends on the matrix alone.
    """
    angle = np.arange(len(lengths)) ** 2  # squared: neither vector has the symmetries of a torus or a hypercube
    plane = np.zeros((len(lengths), 2))
    for column, fixed in enumerate((np.cos(angle), np.sin(angle))):
        kept = np.minimum(lengths / lengths[-1 - column], 1.0) ** _POWER
        vector = vectors @ (kept * (vectors.T @ fixed))
        vector -= plane @ (plane.T @ vector)
        plane[:, column] = vector / np.linalg.norm(vector)
    return plane


def _scale_pivots(topology: "Topology") -> Floats:
    """Return a layout from the numbers of hops to a few pivots, each as far as possible from those before."""
    hops: list[Integers] = []
    pivot, nearest = 0, np.full(topology.n, topology.n)
    for _ in range(_PIVOTS):
        layer = topology.layers(pivot)
        hops.append(np.where(layer < 0, layer.max() + 1, layer))
        nearest = np.minimum(nearest, hops[-1])
        pivot = int(nearest.argmax())
    return _embed(np.column_stack(hops).astype(np.float64) ** 2)
