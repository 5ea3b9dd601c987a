"""Which coupling suits a graph: the excess that noise leaves, the rule, its relaxation, and the rehearsal.

The theorem behind it is in docs/proofs.md, "What a coupling leaves of the noise".
"""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.network.graph import Topology
from topologies.single_thread import single_thread

WEAK, STRONG = 10.0, 30.0
_LARGE, _LONG = 10, 8  # from this many devices or this diameter on the least coupling is the stronger one
_LADDER = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
_EXCESS = 1e-3  # of the cost ratio, that the rule allows
_HIGHEST = 1.999  # relaxation
_MOST = 5_000  # devices that a rehearsal solves for
_FEW = 64  # devices up to which it does so without sparse matrices
_MEAN, _WORST = 2e-3, 6e-3  # the same of the rehearsal: of the mean device, of the worst one


def least_coupling(total: int, hops: int) -> float:
    """Return the smallest coupling on a graph of so many devices and hops."""
    return STRONG if total >= _LARGE or hops >= _LONG else WEAK


def predict_excess(topology: Topology, coupling: float, points: int, k: int) -> float:
    """Return the excess of the mean cost ratio from noise alone, with labels fixed, that a coupling leaves.

    E(c) = (1 / (n n_c)) sum_q (1 + 2 c mu_q)^-2 over all but one eigenvalue of each component, n_c = m / (n k); see
    `topologies.measures.residual_noise`. It supposes points dealt at random to devices of equal size and k clusters of
    equal size and spread, and that no point changes its label. Where clusters overlap, points do, and the measured
    excess is larger: see docs/proofs.md.
    """
    return float(_spread(topology, (coupling,), points, k)[0])


def choose_coupling(topology: Topology, points: int, k: int) -> float:
    """Return the smallest coupling of the ladder 10 (below ten devices), 30, 100, 300, ... with an excess <= .001.

    The ladder ends at 100,000.
    """
    ladder = _climb(topology)
    suits = _spread(topology, ladder, points, k, _EXCESS) <= _EXCESS
    return ladder[int(np.argmax(suits))] if suits.any() else ladder[-1]


def relax(coupling: float) -> float:
    """Return theta = 2 / (1 + sqrt(1 - rho^2)), rho = 2c / (1 + 2c): optimal over-relaxation of the slowest mode.

    At most 1.999, for theorem 2 needs less than 2.
    """
    return min(2 / (1 + (1 + 4 * coupling) ** 0.5 / (1 + 2 * coupling)), _HIGHEST)


class Rehearsal(NamedTuple):
    """What a rehearsal found: the coupling, and at it the excess of the mean and the worst device, labels fixed."""

    coupling: float
    mean: float
    worst: float


def rehearse(topology: Topology, counts: Floats, sums: Floats, loss: float, base: float) -> Rehearsal:
    """Return the first coupling of the ladder with which GTVMin would end close to the pooled means of its clusters.

    ``(diag(n_.c) + 2 L_alpha) w_c = S_.c`` with n_ic points of device i at centroid c and their sum S_ic is where it
    ends if no point changes its cluster. The excess of device i is ``sum_c N_c |w_ic - mu_c|^2`` over the cost of the
    pooled means mu_c, N_c the points of all devices at c. A coupling will do if the excess is at most .002 for the mean
    device and .006 for the worst; if none of them does, it is the last one.

    Parameters
    ----------
    counts : float64[k, n]
    sums : float64[k, n, d]
        Of the offsets of the points from the start's centroid.
    loss : float
        Cost of the start on all points.
    base : float
        Strength of a link between devices of degree 1 at coupling 1: m / (n k).
    """
    _, exponent = np.frexp(np.sqrt(loss))  # in units of a power of two, so that tiny coordinates do not overflow
    sums, loss = np.ldexp(sums, -exponent), float(np.ldexp(loss, -2 * exponent))
    heavy = counts.sum(axis=1)
    means = sums.sum(axis=1) / np.where(heavy > 0, heavy, 1)[:, None]
    cost = loss - float((heavy * (means**2).sum(axis=1)).sum())
    found, laplacian = Rehearsal(0.0, np.inf, np.inf), _laplacian(topology, base)
    here = np.flatnonzero(heavy) if cost > 0 else np.zeros(0, np.int64)
    offsets = sums[here] - counts[here, :, None] * means[here, None]
    for coupling in _climb(topology):
        deviations = _deviate(coupling * laplacian, counts[here], offsets)
        excess = (heavy[here, None] / cost * deviations).sum(axis=0)
        found = Rehearsal(coupling, float(excess.mean()), float(excess.max()))
        if found.mean <= _MEAN and found.worst <= _WORST:
            break
    return found


def check_rehearsal(topology: Topology) -> None:
    """Refuse a graph on which there is no rehearsal.

    Raises
    ------
    ExperimentError
        If it is disconnected, changes, or has more than 5,000 devices.
    """
    if why := why_no_rehearsal(topology):
        raise ExperimentError(f"coupling is rehearsal, but {why}; take auto, or a number")


def why_no_rehearsal(topology: Topology) -> str:
    """Return why there is no rehearsal on a graph, nothing if there is."""
    if topology.components.max() > 0:
        return "the graph is disconnected, and each of its components would need a coupling of its own"
    if topology.varying is not None:
        return "the links change, and it knows one graph alone"
    return "" if topology.n <= _MOST else f"the graph has {topology.n:,} devices; up to {_MOST:,} are possible"


def _laplacian(topology: Topology, base: float) -> Any:
    """Return 2 L_alpha at coupling 1, [n, n]: an array for few devices, sparse for more."""
    degrees, at = np.maximum(topology.degrees, 1).astype(np.float64), (topology.sources, topology.indices)
    alpha = base * topology.weights / np.sqrt(degrees[at[0]] * degrees[at[1]])
    if topology.n <= _FEW:
        links = np.zeros((topology.n, topology.n))
        links[at] = alpha
        return 2 * (np.diag(links.sum(axis=0)) - links)
    from scipy.sparse import csc_array, diags_array

    sparse = csc_array((alpha, at), (topology.n, topology.n))
    return 2 * (diags_array(sparse.sum(axis=0)) - sparse)


def _deviate(laplacian: Any, counts: Floats, offsets: Floats) -> Floats:
    """Return how far each device's centroids end from the pooled means, squared, float64[k, n]."""
    if isinstance(laplacian, np.ndarray):
        with single_thread():
            found = np.linalg.solve(laplacian + counts[:, :, None] * np.eye(len(laplacian)), offsets)
    else:
        from scipy.sparse import diags_array
        from scipy.sparse.linalg import spsolve

        systems = ((diags_array(one) + laplacian).tocsc() for one in counts)
        with single_thread("scipy.sparse.linalg"):
            found = np.array([np.reshape(spsolve(*one), one[1].shape) for one in zip(systems, offsets, strict=True)])
    deviations: Floats = (found.reshape(offsets.shape) ** 2).sum(axis=2)
    return deviations


def _climb(topology: Topology) -> tuple[float, ...]:
    """Return the ladder from the least coupling on this graph on."""
    least = least_coupling(topology.n, topology.hops)
    return tuple(one for one in _LADDER if one >= least)


def _spread(topology: Topology, couplings: tuple[float, ...], points: int, k: int, enough: float = 0.0) -> Floats:
    """Return the expected excess at each coupling, float64[couplings]; NaN after the first of `enough`, see there."""
    from topologies.measures import residual_noise

    each = points / (topology.n * k)
    found: Floats = residual_noise(topology, couplings, enough=enough * each) / each
    return found
