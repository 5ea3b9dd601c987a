"""Noise that a coupling leaves between devices: the bias theorem of docs/explain/proofs.md as a measure of a graph."""

from collections.abc import Sequence
from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.measures.types import AnyGraph, Floats, Integers, count_links, find_sources, read, to_matrix
from topologies.single_thread import single_thread

EIGENVALUES = 2_000  # devices up to which all eigenvalues are computed
_SIGNS = 32_000  # random signs of an estimate, in at least two vectors
_ONE = 100_000  # devices; above, one vector in single precision
_STEPS = 2_000  # most iterations of conjugate gradients
_CLOSE = 1e-4  # relative residual at which conjugate gradients stop


def residual_noise(graph: AnyGraph, couplings: Sequence[float], *, scaled: bool = True, seed: int = 0,
                   enough: float = 0.0) -> Floats:  # fmt: skip
    """Compute ``(1/n) sum_{q > components} (1 + 2 c mu_q)^-2`` for every coupling c, float64[couplings].

    mu_q are the ascending eigenvalues of the Laplacian L with the weights ``w_ij / sqrt(deg_i deg_j)``. If every device
    adds independent noise of variance v to a common value, GTVMin with one matched centroid solves
    ``(I + 2 c L) w = m``. Then v times this value is the mean squared distance of the devices from the mean of their
    component. One eigenvalue of each component is 0 and excluded: its mode is the common mean.

    Up to 2,000 devices, all eigenvalues are computed. Above, Hutchinson's estimator uses 32,000 random signs in at
    least 2 vectors, without the mean of each component, and solves by conjugate gradients. With p vectors, the error is
    about ``sqrt(2 / p)`` over the square root of the number of modes that contribute, a few percent. Above 100,000
    devices, one vector in single precision is used, whose rounding is far below the residual of 1e-4.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or Topology
    couplings : sequence of float
        At least 0.
    scaled : bool, default=True
        False: the weights are w_ij, as with a raw alpha.
    seed : int, default=0
        Seed of the signs.
    enough : float, default=0.0
        Above 2,000 devices, values after the first one of at most `enough` are not computed and NaN.
    """
    import numpy as np

    links = read(graph)
    n = len(links)
    weights = weigh_edges(links, scaled=scaled)
    if n <= EIGENVALUES:
        # Without scipy, whose import takes longer than this: every rank of a run with coupling auto computes it.
        sources = find_sources(links)
        laplacian = np.zeros((n, n))
        laplacian[sources, links.indices] = -weights
        laplacian[np.arange(n), np.arange(n)] = np.bincount(sources, weights, n)
        count = _count_components(sources, np.asarray(links.indices), n)
        with single_thread():
            values = np.maximum(np.linalg.eigvalsh(laplacian)[count:], 0.0)
        return np.array([np.cumsum(np.append(0.0, (1 + 2 * c * values) ** -2.0))[-1] / n for c in couplings])
    from scipy.sparse import csgraph, diags_array

    kind = np.float32 if n > _ONE else np.float64
    adjacent = to_matrix(links, weights.astype(kind, copy=False))
    component = np.zeros(n, np.int64) if links.connected else csgraph.connected_components(adjacent, directed=False)[1]
    laplacian = (diags_array(adjacent @ np.ones(n, kind)) - adjacent).tocsr()
    del adjacent
    probes = np.random.default_rng(seed).choice(np.array([-1.0, 1.0], kind), (n, count_signs(n)))
    probes -= _average(probes, component)[component]
    noise = np.full(len(couplings), np.nan)
    for number, coupling in enumerate(couplings):
        noise[number] = (_solve(laplacian, coupling, probes) ** 2).sum(dtype=np.float64) / probes.size
        if noise[number] <= enough:
            break
    return noise


def count_signs(n: int) -> int:
    """Return the number of vectors of random signs in an estimate for n devices."""
    return 1 if n > _ONE else max(2, _SIGNS // n)


def weigh_edges(links: CSRGraph, *, scaled: bool) -> Floats:
    """Compute the weight of each directed edge at coupling 1, float64[2 * links]."""
    import numpy as np

    weights = np.ones(len(links.indices)) if links.weights is None else np.asarray(links.weights)
    if not scaled:
        return weights
    degrees = count_links(links).astype(np.float64)
    return weights / np.sqrt(degrees[find_sources(links)] * degrees[links.indices])


def _count_components(sources: Integers, targets: Integers, n: int) -> int:
    """Count the connected components: the smallest device of each component spreads along its links."""
    import numpy as np

    smallest, before = np.arange(n), np.zeros(0, np.int64)
    while not np.array_equal(smallest, before):
        before = smallest
        smallest = before.copy()
        np.minimum.at(smallest, sources, before[targets])
        smallest = smallest[smallest]
    return int(np.count_nonzero(smallest == np.arange(n)))


def _average(columns: Floats, component: Integers) -> Floats:
    """Average each column over each component, float64[components, columns]."""
    import numpy as np

    sums = np.stack([np.bincount(component, column) for column in columns.T], axis=1)
    return sums / np.bincount(component)[:, None]


def _solve(laplacian: Any, coupling: float, goals: Floats) -> Floats:
    """Solve (I + 2 c L) x = goal for each column by conjugate gradients with a diagonal preconditioner."""
    import numpy as np

    kind = goals.dtype.type
    twice = kind(2 * coupling)
    scale = 1 / (1 + twice * laplacian.diagonal())[:, None]
    solution = np.zeros_like(goals)
    residual = goals.copy()
    direction = scale * residual
    # Reused for intermediate results: allocating an array for a large graph takes as long as filling it.
    scratch = residual * direction
    size = scratch.sum(axis=0)
    tolerance = _CLOSE**2 * (goals * goals).sum(axis=0)
    for _ in range(_STEPS):
        if (np.multiply(residual, residual, out=scratch).sum(axis=0) <= tolerance).all():
            break
        image = laplacian @ direction
        image *= twice
        image += direction
        step = size / np.multiply(direction, image, out=scratch).sum(axis=0)
        solution += np.multiply(step, direction, out=scratch)
        image *= step
        residual -= image
        preconditioned = np.multiply(scale, residual, out=image)
        previous_size, size = size, np.multiply(residual, preconditioned, out=scratch).sum(axis=0)
        direction *= size / previous_size
        direction += preconditioned
    return solution
