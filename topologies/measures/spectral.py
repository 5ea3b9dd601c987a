"""Spectral measures of graphs: speed of averaging and resistance, from the Laplacian and the Metropolis matrix."""

import math
from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.measures.lanczos import Spectrum, find_both, find_spectrum, sample_spectrum
from topologies.measures.types import (
    EXACT,
    AnyGraph,
    Floats,
    Mask,
    Measure,
    read,
    to_matrix,
)
from topologies.mixing import metropolis_weights

DECAY = 0.95  # Vogels et al. fitted 0.951 to the training of ResNet-20 on CIFAR-10
_DISCONNECTED = "no path between some devices"
_SINGLE = "a single device"
_SURE = 1e-4  # relative error of the effective neighbors due to the number of steps
_POOR = 0.5  # the same error from which on the value is reported as a bound only


def algebraic_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the second smallest eigenvalue of the Laplacian D - A, without weights of links.

    Fiedler, "Algebraic connectivity of graphs", 1973. Up to 1,000 devices, all eigenvalues are computed. Above,
    Lanczos' recurrence gives an estimate that converges from above.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int, default=0
        Seed of the random vectors of an estimate.
    """
    links = read(graph)
    return find_connectivity(links, find_spectrum(*laplacian(links), seed))


def spectral_gap(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute 1 - |second largest eigenvalue by modulus| of the Metropolis matrix.

    Averaging with W_ij = 1 / (1 + max(deg_i, deg_j)) and W_ii = 1 - sum_j W_ij contracts by 1 - gap per round (Xiao,
    Boyd and Lall, "A scheme for robust distributed sensor fusion based on average consensus", 2005).

    Parameters
    ----------
    graph, seed
        As in `algebraic_connectivity`.
    """
    links = read(graph)
    return find_gap(links, find_spectrum(*mixing_laplacian(links), seed))


def effective_neighbors(graph: AnyGraph, *, decay: float = DECAY, seed: int = 0) -> Measure:
    """Compute the effective number of neighbors n_W(decay) of the Metropolis matrix W, from 1 (isolated) to n.

    For the process x <- W (sqrt(decay) x + noise), it is the variance of an isolated device, 1 / (1 - decay), divided
    by the mean variance of the devices. With the eigenvalues l_i of a symmetric W, n_W = 1 / (1 - decay) / mean_i(l_i^2
    / (1 - decay l_i^2)). The decay is a property of the problem: close to 1, all devices contribute. Vogels, Hendrikx
    and Jaggi, "Beyond spectral gap: the role of the topology in decentralized learning", NeurIPS 2022.

    Up to 1,000 devices, all eigenvalues are computed. Above, a Gauss quadrature over random vectors is used. With
    a = decay^(-1/2) and r = a + sqrt(a^2 - 1), its error after m steps is at most 2 a r^(1 - 2m) / (1 - decay) of the
    mean, twice the error of the best polynomial of degree 2m - 1 (Chebyshev's for 1 / (a - l)). The number of steps is
    chosen so that this is negligible compared with the standard error, which is reported. If that takes too long, the
    bound of the error is reported; the value is then too high.

    Parameters
    ----------
    graph, seed
        As in `algebraic_connectivity`.
    decay : float, default=0.95
        From 0 to less than 1.
    """
    links = read(graph)
    check_decay(decay)
    return count_neighbors(links, sample_mixing(links, decay, seed), decay)


def effective_resistance(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the mean effective resistance between two devices if every link is a resistor of 1.

    It is 2 / (n - 1) sum_i 1 / l_i over the positive eigenvalues of the Laplacian (Klein and Randić, "Resistance
    distance", 1993).

    Parameters
    ----------
    graph, seed
        As in `algebraic_connectivity`.
    """
    links = read(graph)
    return find_resistance(links, find_spectrum(*laplacian(links), seed))


def kirchhoff_index(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Compute the sum of the effective resistances over all pairs of devices.

    Parameters
    ----------
    graph, seed
        As in `algebraic_connectivity`.
    """
    links = read(graph)
    n = len(links)
    mean = effective_resistance(links, seed=seed)
    return mean._replace(value=0.0 if mean.value is None else mean.value * n * (n - 1) / 2)


def laplacian(links: CSRGraph, strengths: Floats | None = None) -> tuple[Any, Floats]:
    """Return the Laplacian diag(A 1) - A, csr_array[n, n], and its null vector.

    The entries of A are the strengths of the directed edges; None: 1.
    """
    import numpy as np
    from scipy.sparse import diags_array

    n = len(links)
    adjacency = to_matrix(links, strengths)
    rows = adjacency @ np.ones(n)
    return (diags_array(rows) - adjacency).tocsr(), np.full(n, n**-0.5)


def mixing_laplacian(links: CSRGraph, active: Mask | None = None) -> tuple[Any, Floats]:
    """Return I - W, csr_array[n, n], with the Metropolis matrix W of the (active) links, and its null vector."""
    return laplacian(links, mixing_strengths(links, active))


def mixing_strengths(links: CSRGraph, active: Mask | None = None) -> Floats:
    """Return the entry of the Metropolis matrix for each directed edge, float64[2 * links]; 0 if it is inactive."""
    return metropolis_weights(links, active)


def find_connectivity(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Return the algebraic connectivity from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_SINGLE)
    return spectrum.low() if links.connected else Measure(0.0, how=_DISCONNECTED)


def find_gap(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Return the spectral gap from the spectrum of I - W."""
    if len(links) == 1:
        return Measure(1.0)
    if not links.connected:
        return Measure(0.0, how=_DISCONNECTED)
    low = spectrum.low()
    return low._replace(value=min(float(spectrum.values[0]), 2 - float(spectrum.values[-1])))


def sample_mixing(links: CSRGraph, decay: float, seed: int) -> Spectrum:
    """Return the spectrum of I - W; above 1,000 devices, with as many steps as the effective neighbors require."""
    if len(links) <= EXACT:
        return find_spectrum(*mixing_laplacian(links), seed)
    return sample_spectrum(*mixing_laplacian(links), count_steps(len(links), decay), seed)


def find_mixing(links: CSRGraph, decay: float, seed: int) -> tuple[Spectrum, Spectrum]:
    """Return the spectrum of I - W, and the result of `sample_mixing`."""
    if len(links) <= EXACT:
        return (find_spectrum(*mixing_laplacian(links), seed),) * 2
    return find_both(*mixing_laplacian(links), count_steps(len(links), decay), seed)


def count_steps(n: int, decay: float) -> int:
    """Count the steps that the effective neighbors of n devices require."""
    a, r = _quadrature_pole(decay)
    return math.ceil((1 + math.log(2 * a * n / _SURE) / math.log(r)) / 2)


def count_neighbors(links: CSRGraph, spectrum: Spectrum, decay: float) -> Measure:
    """Compute the effective number of neighbors from the spectrum of I - W, or from that of `sample_mixing`."""
    n = len(links)
    # Variance of the mode (1, ..., 1), whose eigenvalue is not in the spectrum.
    mean_variance = 1 / (1 - decay)

    def variance(low: Floats) -> Floats:
        return (1 - low) ** 2 / (1 - decay * (1 - low) ** 2)

    other_variances, error = spectrum.estimate(variance)
    total = mean_variance + other_variances
    if spectrum.exact:
        return Measure(mean_variance * n / total)
    a, r = _quadrature_pole(decay)
    missed = 2 * a * n * mean_variance * r ** (1 - 2 * spectrum.steps) / total if spectrum.steps else 0.0
    bound = f"up to {100 * missed:.2g} % too high" if missed < _POOR else "an upper bound"
    few = f"; too few steps: {bound}" if missed > 10 * _SURE else ""
    return Measure(mean_variance * n / total, False, f"{spectrum.how}{few}; standard error {100 * error / total:.2g} %")


def _quadrature_pole(decay: float) -> tuple[float, float]:
    """Return the pole a of the variance as a function of the eigenvalue, and r: a step reduces the error by r^2."""
    a = 1 / math.sqrt(max(decay, 1e-6))
    return a, a + math.sqrt(a * a - 1)


def check_decay(decay: float) -> None:
    """Check that the process with this decay has a stationary distribution."""
    if not 0 <= decay < 1:
        raise GraphError(f"decay is {decay!r}; expected a number from 0 to less than 1")


def find_resistance(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Compute the mean effective resistance from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_SINGLE)
    if not links.connected:
        return Measure(math.inf, how=_DISCONNECTED)
    total = spectrum.sum(lambda low: 1 / low)
    return total._replace(value=2 / (len(links) - 1) * (total.value or 0.0))
