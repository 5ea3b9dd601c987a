"""Choice of the coupling: expected excess, rule for a graph, optimal relaxation, and calibration on local sums.

The underlying theorem is in docs/explain/proofs.md, "What a coupling leaves of the noise".
"""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.network.graph import Topology
from topologies.single_thread import single_thread

# Smallest coupling of small graphs, and of large ones.
WEAK = 10.0
STRONG = 30.0
# Smallest number of devices, and smallest diameter, of a large graph.
_LARGE = 10
_LONG = 8
# Couplings that are tried, in this order, about half a decade apart.
_LADDER = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
# Largest excess of the mean cost ratio that the rule without messages accepts: 0.1 %.
_EXCESS = 1e-3
# Largest excess that the calibration accepts: 0.2 % for the mean device, 0.6 % for the worst one.
_MEAN = 2e-3
_WORST = 6e-3
# Largest relaxation factor: theorem 3 requires less than 2.
_MAX_RELAXATION = 1.999
# Largest number of devices for which the root solves the equations of the calibration.
_MAX_DEVICES = 5_000
# Largest number of devices for which dense matrices are used.
_MAX_DENSE = 64


def least_coupling(total: int, hops: int) -> float:
    """Compute the smallest coupling on a graph with `total` devices and diameter `hops`."""
    return STRONG if total >= _LARGE or hops >= _LONG else WEAK


def predict_excess(topology: Topology, coupling: float, points: int, k: int) -> float:
    """Compute the expected excess of the mean cost ratio from sampling noise at a coupling c.

    ``E(c) = (1 / (n n_c)) sum_q (1 + 2 c mu_q)^-2`` over all eigenvalues but one of each component, with
    n_c = m / (n k); see `topologies.measures.residual_noise`. Assumptions: a random partition into devices of equal
    size, k clusters of equal size and spread, and fixed labels. If clusters overlap, points change their labels, and
    the measured excess is larger; see docs/explain/proofs.md.
    """
    return float(_expected_excess(topology, (coupling,), points, k)[0])


def choose_coupling(topology: Topology, points: int, k: int) -> float:
    """Choose the smallest of the couplings 10 (small graphs only), 30, 100, 300, ... with an expected excess <= 0.001.

    If none of them suffices, the result is the largest one, 100,000.
    """
    ladder = _couplings_from_least(topology)
    suffices = _expected_excess(topology, ladder, points, k, _EXCESS) <= _EXCESS
    return ladder[int(np.argmax(suffices))] if suffices.any() else ladder[-1]


def optimal_relaxation(coupling: float) -> float:
    """Compute the optimal over-relaxation of the slowest mode, at most 1.999.

    ``theta = 2 / (1 + sqrt(1 - rho^2))`` with ``rho = 2 c / (1 + 2 c)``.
    """
    return min(2 / (1 + (1 + 4 * coupling) ** 0.5 / (1 + 2 * coupling)), _MAX_RELAXATION)


class Calibration(NamedTuple):
    """Result of a calibration.

    Attributes
    ----------
    coupling : float
    mean : float
        Expected excess of the mean device, for fixed labels.
    worst : float
        Expected excess of the worst device, for fixed labels.
    """

    coupling: float
    mean: float
    worst: float


def calibrate_coupling(topology: Topology, counts: Floats, sums: Floats, loss: float, base: float) -> Calibration:
    """Find the smallest coupling at which GTVMin would end near the pooled means of its clusters.

    For fixed labels GTVMin converges to the solution of ``(diag(n_.c) + 2 L_alpha) w_c = S_.c``, with n_ic points of
    device i at centroid c and their sum S_ic. The excess of device i is ``sum_c N_c |w_ic - mu_c|^2`` divided by the
    cost of the pooled means mu_c, with N_c points of all devices at c. A coupling is accepted if the excess is at most
    0.002 for the mean device and 0.006 for the worst one. If none is, the result is the largest coupling tried.

    Parameters
    ----------
    counts : float64[k, n]
        Weight of the points of each device at each centroid.
    sums : float64[k, n, d]
        Sums of the offsets of these points from the initial centroid.
    loss : float
        Cost of the initial centroids on all points.
    base : float
        Strength of a link between devices of degree 1 at coupling 1: m / (n k).
    """
    # In units of a power of two near the spread, so that tiny coordinates do not underflow and large ones not overflow.
    _, exponent = np.frexp(np.sqrt(loss))
    sums = np.ldexp(sums, -exponent)
    loss = float(np.ldexp(loss, -2 * exponent))
    totals = counts.sum(axis=1)
    means = sums.sum(axis=1) / np.where(totals > 0, totals, 1)[:, None]
    cost = loss - float((totals * (means**2).sum(axis=1)).sum())
    result = Calibration(0.0, np.inf, np.inf)
    laplacian = _laplacian(topology, base)
    # With cost 0 any coupling is exact, and the excess is undefined.
    clusters = np.flatnonzero(totals) if cost > 0 else np.zeros(0, np.int64)
    offsets = sums[clusters] - counts[clusters, :, None] * means[clusters, None]
    for coupling in _couplings_from_least(topology):
        deviations = _squared_deviations(coupling * laplacian, counts[clusters], offsets)
        excess = (totals[clusters, None] / cost * deviations).sum(axis=0)
        result = Calibration(coupling, float(excess.mean()), float(excess.max()))
        if result.mean <= _MEAN and result.worst <= _WORST:
            break
    return result


def check_calibration(topology: Topology) -> None:
    """Validate that the coupling can be calibrated on a graph.

    Raises
    ------
    ExperimentError
        If the graph is disconnected, time-varying, or has more than 5,000 devices.
    """
    if reason := calibration_obstacle(topology):
        raise ExperimentError(f"coupling=rehearsal cannot be used: {reason}. Use coupling=auto or a number.")


def calibration_obstacle(topology: Topology) -> str:
    """Describe why the coupling cannot be calibrated on a graph; empty if it can."""
    if topology.components.max() > 0:
        return "the graph is disconnected, and each component would need a separate coupling"
    if topology.varying is not None:
        return "the links change, but the calibration requires a static graph"
    if topology.n > _MAX_DEVICES:
        return f"the graph has {topology.n:,} devices; expected at most {_MAX_DEVICES:,}"
    return ""


def _laplacian(topology: Topology, base: float) -> Any:
    """Compute 2 L_alpha at coupling 1, [n, n]: a dense matrix for up to 64 devices, a sparse one for more."""
    degrees = np.maximum(topology.degrees, 1).astype(np.float64)
    entries = (topology.sources, topology.indices)
    alpha = base * topology.weights / np.sqrt(degrees[entries[0]] * degrees[entries[1]])
    if topology.n <= _MAX_DENSE:
        links = np.zeros((topology.n, topology.n))
        links[entries] = alpha
        return 2 * (np.diag(links.sum(axis=0)) - links)
    from scipy.sparse import csc_array, diags_array

    sparse = csc_array((alpha, entries), (topology.n, topology.n))
    return 2 * (diags_array(sparse.sum(axis=0)) - sparse)


def _squared_deviations(laplacian: Any, counts: Floats, offsets: Floats) -> Floats:
    """Compute the squared distances of the final centroids of each device from the pooled means, float64[k, n]."""
    # One thread: the bits of a solver depend on the number of threads.
    if isinstance(laplacian, np.ndarray):
        with single_thread():
            solutions = np.linalg.solve(laplacian + counts[:, :, None] * np.eye(len(laplacian)), offsets)
    else:
        from scipy.sparse import diags_array
        from scipy.sparse.linalg import spsolve

        matrices = ((diags_array(diagonal) + laplacian).tocsc() for diagonal in counts)
        with single_thread("scipy.sparse.linalg"):
            solutions = np.array([
                np.reshape(spsolve(matrix, side), side.shape) for matrix, side in zip(matrices, offsets, strict=True)
            ])
    deviations: Floats = (solutions.reshape(offsets.shape) ** 2).sum(axis=2)
    return deviations


def _couplings_from_least(topology: Topology) -> tuple[float, ...]:
    """List the couplings to try, from the smallest one on this graph."""
    least = least_coupling(topology.n, topology.hops)
    return tuple(coupling for coupling in _LADDER if coupling >= least)


def _expected_excess(
    topology: Topology, couplings: tuple[float, ...], points: int, k: int, enough: float = 0.0
) -> Floats:
    """Compute the expected excess at each coupling, float64[couplings]; NaN after the first one up to `enough`."""
    from topologies.measures import residual_noise

    points_per_cluster = points / (topology.n * k)
    excess: Floats = residual_noise(topology, couplings, enough=enough * points_per_cluster) / points_per_cluster
    return excess
