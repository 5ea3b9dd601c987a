"""How much noise a coupling leaves between devices: the bias theorem of docs/proofs.md as figures of a graph."""

from collections.abc import Sequence
from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.measures.types import AnyGraph, Floats, Integers, count_links, find_sources, read, to_matrix
from topologies.single_thread import single_thread

EIGENVALUES = 2_000  # devices; up to here all eigenvalues are computed
_SIGNS = 32_000  # random signs of an estimate, in two vectors at least
_ONE = 100_000  # devices; above, one vector, in single precision
_STEPS, _CLOSE = 2_000, 1e-4  # of conjugate gradients; relative residual at which they end


def residual_noise(graph: AnyGraph, couplings: Sequence[float], *, scaled: bool = True, seed: int = 0,
                   enough: float = 0.0) -> Floats:  # fmt: skip
    """Return ``(1/n) sum_{q > components} (1 + 2 c mu_q)^-2`` for every coupling c, float64[couplings].

    mu_q are the eigenvalues, ascending, of the Laplacian L with the weights ``w_ij / sqrt(deg_i deg_j)``. If every
    device adds independent noise of variance v to a common value, GTVMin with one matched centroid solves
    ``(I + 2 c L) w = m``, and the mean squared distance of the devices from the mean of their component is v times
    this figure. One eigenvalue of each component is 0 and left out: its mode is the common mean.

    Up to 2,000 devices all eigenvalues are computed. Above, Hutchinson's estimator: 32,000 random signs, in 2 vectors
    or more, without the mean of each component, solved by conjugate gradients; with p vectors the error is about
    ``sqrt(2 / p)`` over the root of the number of modes that count, a few percent. Above 100,000 devices it is one
    vector, in single precision, which the residual of 1e-4 is far from.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or Topology
    couplings : sequence of float
        At least 0.
    scaled : bool
        False: the weights are w_ij alone, as with a raw alpha.
    seed : int
        Of the signs.
    enough : float
        Above 2,000 devices figures after the first one of at most this are not computed: NaN.
    """
    import numpy as np
    from scipy.sparse import csgraph, diags_array

    links = read(graph)
    n = len(links)
    kind = np.float32 if n > _ONE else np.float64
    adjacent = to_matrix(links, weigh_edges(links, scaled=scaled).astype(kind, copy=False))
    count, component = csgraph.connected_components(adjacent, directed=False)
    laplacian = (diags_array(adjacent @ np.ones(n, kind)) - adjacent).tocsr()
    if n <= EIGENVALUES:
        with single_thread():
            values = np.maximum(np.linalg.eigvalsh(laplacian.toarray())[count:], 0.0)
        return np.array([np.cumsum(np.append(0.0, (1 + 2 * c * values) ** -2.0))[-1] / n for c in couplings])
    del adjacent
    probes = np.random.default_rng(seed).choice(np.array([-1.0, 1.0], kind), (n, count_signs(n)))
    probes -= _average(probes, component)[component]
    found = np.full(len(couplings), np.nan)
    for number, coupling in enumerate(couplings):
        found[number] = (_solve(laplacian, coupling, probes) ** 2).sum(dtype=np.float64) / probes.size
        if found[number] <= enough:
            break
    return found


def count_signs(n: int) -> int:
    """Return how many vectors of random signs an estimate for n devices takes."""
    return 1 if n > _ONE else max(2, _SIGNS // n)


def weigh_edges(links: CSRGraph, *, scaled: bool) -> Floats:
    """Compute the weight of each directed edge at coupling 1, float64[2 * links]."""
    import numpy as np

    weights = np.ones(len(links.indices)) if links.weights is None else np.asarray(links.weights)
    if not scaled:
        return weights
    degrees = count_links(links).astype(np.float64)
    return weights / np.sqrt(degrees[find_sources(links)] * degrees[links.indices])


def _average(columns: Floats, component: Integers) -> Floats:
    """Return the mean of each column over each component, float64[components, columns]."""
    import numpy as np

    sums = np.stack([np.bincount(component, column) for column in columns.T], axis=1)
    return sums / np.bincount(component)[:, None]


def _solve(laplacian: Any, coupling: float, goals: Floats) -> Floats:
    """Return x with (I + 2 c L) x = goal for each column, by conjugate gradients with a diagonal preconditioner."""
    import numpy as np

    kind = goals.dtype.type
    twice = kind(2 * coupling)
    scale = 1 / (1 + twice * laplacian.diagonal())[:, None]
    found, rest = np.zeros_like(goals), goals.copy()
    way = scale * rest
    room = rest * way  # of large graphs each new array takes as long to make as to fill
    size = room.sum(axis=0)
    least = _CLOSE**2 * (goals * goals).sum(axis=0)
    for _ in range(_STEPS):
        if (np.multiply(rest, rest, out=room).sum(axis=0) <= least).all():
            break
        image = laplacian @ way
        image *= twice
        image += way
        step = size / np.multiply(way, image, out=room).sum(axis=0)
        found += np.multiply(step, way, out=room)
        image *= step
        rest -= image
        ahead = np.multiply(scale, rest, out=image)
        before, size = size, np.multiply(rest, ahead, out=room).sum(axis=0)
        way *= size / before
        way += ahead
    return found
