"""Layout of graphs: positions of devices in a drawing."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Floats, Integers
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    from p2pkm.network.graph import Topology

_EXACT = 400  # devices; above, only the distances to `_PIVOTS` pivots count
_SOLVED = 5_000  # devices; above, they are placed on a circle
_LONG = 150  # hops; a longer graph is placed along a circle
_PIVOTS = 16
_STEPS = 50  # iterations of the majorization
_SMALL = 0.02  # radius of the circle of devices at equal coordinates, relative to the drawing
# Exponent of the power iteration in closed form: an eigenvalue 5 % smaller than the largest is scaled by 4e-12.
_POWER = 512


def place_devices(topology: "Topology") -> Floats:
    """Compute the position of each device, float64[n, 2], equal at every call and on every processor.

    Nodes with coordinates are at these, and nodes at equal coordinates on a small circle around them. Otherwise,
    rings and complete graphs are circles; stars are wheels. In other graphs, distances in the drawing approximate hop
    counts: stress majorization (Gansner, Koren, North, 2004) up to 400 devices, pivot multidimensional scaling
    (Brandes, Pich, 2006) up to 5,000. Larger graphs, and graphs with a path of more than 150 hops, are circles.
    """
    n, degrees = topology.n, topology.degrees
    if topology.places is not None:
        return _separate(topology.places)
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
    """Place devices clockwise on a circle from the top; order[i] is the position of device i."""
    n = len(order)
    if n == 1:
        return np.zeros((1, 2))
    angle = np.pi / 2 - 2 * np.pi * order / n
    if n == 2:
        angle = angle + np.pi / 2
    return np.column_stack((np.cos(angle), np.sin(angle)))


def _separate(places: Floats) -> Floats:
    """Move devices at equal coordinates to a small circle around them."""
    unique, group, sizes = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    if len(unique) == len(places):
        return places
    radius = _SMALL * float(np.ptp(places, axis=0).max())
    separated = places.copy()
    for number in np.flatnonzero(sizes > 1):
        members = np.flatnonzero(group == number)
        separated[members] += radius * _circle(np.arange(len(members)))
    return separated


def _wheel(hub: int, n: int) -> Floats:
    """Place the hub in the middle and all other devices on a circle."""
    places = np.zeros((n, 2))
    places[np.arange(n) != hub] = _circle(np.arange(n - 1))
    return places


def _walk(topology: "Topology") -> Integers:
    """Compute each device's place along a ring, int64[n]."""
    order = np.zeros(topology.n, np.int64)
    previous, current = -1, 0
    for place in range(topology.n):
        order[current] = place
        left, right = topology.indices[topology.indptr[current] : topology.indptr[current + 1]]
        previous, current = current, int(left if left != previous else right)
    return order


def _sort_along(topology: "Topology") -> Integers:
    """Compute each device's place from one end of the graph to the other, int64[n]."""
    end = int(topology.layers(0).argmax())
    return np.argsort(np.argsort(topology.layers(end), kind="stable"))


def _count_hops(topology: "Topology") -> Floats:
    """Count the hops between all pairs, float64[n, n]; between components, one more than the largest count."""
    n = topology.n
    # One self-loop per device, because reduceat does not handle empty segments.
    ends = np.concatenate((topology.indices, np.arange(n)))
    starts = np.concatenate((topology.sources, np.arange(n)))
    ends = ends[np.argsort(starts, kind="stable")]
    first = topology.indptr[:-1] + np.arange(n)
    hops = np.zeros((n, n))
    reached = np.eye(n, dtype=np.bool_)
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
    """Minimize the stress, the sum over pairs of (distance - hops)^2 / hops^2, by majorization."""
    n = len(hops)
    weights = (hops + np.eye(n)) ** -2.0
    np.fill_diagonal(weights, 0.0)
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.inv(laplacian + 1 / n) - 1 / n
    targets = weights * hops
    # The small circle separates devices that have equal distances to all others.
    places = _embed(hops**2) + 0.1 * _circle(np.arange(n))
    for _ in range(_STEPS):
        dx, dy = (np.subtract.outer(axis, axis) for axis in places.T)
        forces = targets / np.maximum(np.sqrt(dx * dx + dy * dy), 1e-9)
        places = inverse @ (forces.sum(axis=1)[:, None] * places - forces @ places)
    return places


@single_thread()
def _embed(squares: Floats) -> Floats:
    """Compute the two leading directions of doubly centered squared distances, float64[n, 2].

    Parameters
    ----------
    squares : float64[n, p]
        Squared distances of the devices to some or all of them.
    """
    centered = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    # Eigenvectors of a p x p matrix are far cheaper than singular vectors of an n x p one.
    lengths, vectors = np.linalg.eigh(centered.T @ centered / 4)
    lengths = np.maximum(lengths, 1e-12 * lengths[-1])
    return centered @ _choose_plane(lengths, vectors) / (2 * lengths[:-3:-1] ** 0.25)


def _choose_plane(lengths: Floats, vectors: Floats) -> Floats:
    """Compute orthonormal vectors for the two largest eigenvalues, float64[p, 2], equal on every processor.

    LAPACK's eigenvectors differ between processors: in their signs and, for equal eigenvalues, as in symmetric graphs,
    in their directions. Power iteration of two fixed vectors, in closed form, depends on the matrix alone.
    """
    # The square makes both vectors differ from the symmetries of a torus or a hypercube.
    angle = np.arange(len(lengths)) ** 2
    plane = np.zeros((len(lengths), 2))
    for column, fixed in enumerate((np.cos(angle), np.sin(angle))):
        factors = np.minimum(lengths / lengths[-1 - column], 1.0) ** _POWER
        vector = vectors @ (factors * (vectors.T @ fixed))
        vector -= plane @ (plane.T @ vector)
        plane[:, column] = vector / np.linalg.norm(vector)
    return plane


def _scale_pivots(topology: "Topology") -> Floats:
    """Compute a layout from hop counts to a few pivots, each as far as possible from the previous ones."""
    hops: list[Integers] = []
    pivot = 0
    nearest = np.full(topology.n, topology.n)
    for _ in range(_PIVOTS):
        layer = topology.layers(pivot)
        hops.append(np.where(layer < 0, layer.max() + 1, layer))
        nearest = np.minimum(nearest, hops[-1])
        pivot = int(nearest.argmax())
    return _embed(np.column_stack(hops).astype(np.float64) ** 2)
