"""How fast news spreads: measures from the spectra of the Laplacian and of the Metropolis matrix."""

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

DECAY = 0.95  # what Vogels et al. fitted to the training of ResNet-20 on CIFAR-10 is 0.951
_APART = "no path between some devices"
_ALONE = "a single device"
_SURE = 1e-4  # of the effective neighbors: what too few steps of an estimate may cost
_POOR = 0.5  # the same, from which on it is only a bound


def algebraic_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the second smallest eigenvalue of the Laplacian D - A; the weights of links are not looked at.

    Fiedler, "Algebraic connectivity of graphs", 1973. Up to 1,000 devices all eigenvalues are computed, above Lanczos'
    recurrence approaches it from above.

    Parameters
    ----------
    graph : networkx.Graph or CSRGraph
    seed : int
        Of the random vectors of an estimate.
    """
    links = read(graph)
    return find_connectivity(links, find_spectrum(*laplacian(links), seed))


def spectral_gap(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return 1 - |second largest eigenvalue by modulus| of the Metropolis matrix.

    Averaging by W_ij = 1 / (1 + max(deg_i, deg_j)), W_ii = 1 - sum_j W_ij, contracts by 1 - gap a round (Xiao, Boyd and
    Lall, "A scheme for robust distributed sensor fusion based on average consensus", 2005).

    Parameters
    ----------
    graph, seed
        As of `algebraic_connectivity`.
    """
    links = read(graph)
    return find_gap(links, find_spectrum(*mixing_laplacian(links), seed))


def effective_neighbors(graph: AnyGraph, *, decay: float = DECAY, seed: int = 0) -> Measure:
    """Return the effective number of neighbors n_W(decay) of the Metropolis matrix W, from 1 (alone) to n.

    In the process x <- W (sqrt(decay) x + noise) it is the variance that a device alone, 1 / (1 - decay), has over the
    mean variance of the devices; with the eigenvalues l_i of a symmetric W,
    n_W = 1 / (1 - decay) / mean_i(l_i^2 / (1 - decay l_i^2)). The decay is a property of the problem: near 1, all
    devices count. Vogels, Hendrikx and Jaggi, "Beyond spectral gap: the role of the topology in decentralized
    learning", NeurIPS 2022.

    Up to 1,000 devices from all eigenvalues, above from a Gauss quadrature over random vectors. With a = decay^(-1/2)
    and r = a + sqrt(a^2 - 1) its m steps miss at most 2 a r^(1 - 2m) / (1 - decay) of the mean, twice the error of the
    best polynomial of degree 2m - 1 (Chebyshev's for 1 / (a - l)); so many are taken that this is nothing beside the
    standard error, which is given. Where that would take too long, what they miss is given: the figure is too high.

    Parameters
    ----------
    graph, seed
        As of `algebraic_connectivity`.
    decay : float
        From 0 to below 1.
    """
    links = read(graph)
    check_decay(decay)
    return count_neighbors(links, sample_mixing(links, decay, seed), decay)


def effective_resistance(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the mean resistance between two devices if every link is a resistor of 1.

    2 / (n - 1) sum_i 1 / l_i over the positive eigenvalues of the Laplacian (Klein and Randić, "Resistance distance",
    1993).

    Parameters
    ----------
    graph, seed
        As of `algebraic_connectivity`.
    """
    links = read(graph)
    return find_resistance(links, find_spectrum(*laplacian(links), seed))


def kirchhoff_index(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the sum of the resistances over all pairs of devices.

    Parameters
    ----------
    graph, seed
        As of `algebraic_connectivity`.
    """
    links = read(graph)
    n = len(links)
    mean = effective_resistance(links, seed=seed)
    return mean._replace(value=0.0 if mean.value is None else mean.value * n * (n - 1) / 2)


def laplacian(links: CSRGraph, strengths: Floats | None = None) -> tuple[Any, Floats]:
    """Return diag(A 1) - A, csr_array[n, n], and its null vector.

    A has these strengths of the directed edges, else 1.
    """
    import numpy as np
    from scipy.sparse import diags_array

    n, adjacency = len(links), to_matrix(links, strengths)
    rows = adjacency @ np.ones(n)
    return (diags_array(rows) - adjacency).tocsr(), np.full(n, n**-0.5)


def mixing_laplacian(links: CSRGraph, active: Mask | None = None) -> tuple[Any, Floats]:
    """Return I - W, csr_array[n, n], with the Metropolis matrix W of the (active) links, and its null vector."""
    return laplacian(links, mixing_strengths(links, active))


def mixing_strengths(links: CSRGraph, active: Mask | None = None) -> Floats:
    """Return the entry of the Metropolis matrix of each directed edge, float64[2 * links]; 0 if it is not active."""
    return metropolis_weights(links, active)


def find_connectivity(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Return the algebraic connectivity from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_ALONE)
    return spectrum.low() if links.connected else Measure(0.0, how=_APART)


def find_gap(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Return the spectral gap from the spectrum of I - W."""
    if len(links) == 1:
        return Measure(1.0)
    if not links.connected:
        return Measure(0.0, how=_APART)
    low = spectrum.low()
    return low._replace(value=min(float(spectrum.values[0]), 2 - float(spectrum.values[-1])))


def sample_mixing(links: CSRGraph, decay: float, seed: int) -> Spectrum:
    """Return the spectrum of I - W, above 1,000 devices as many steps of it as the effective neighbors need."""
    if len(links) <= EXACT:
        return find_spectrum(*mixing_laplacian(links), seed)
    return sample_spectrum(*mixing_laplacian(links), count_steps(len(links), decay), seed)


def find_mixing(links: CSRGraph, decay: float, seed: int) -> tuple[Spectrum, Spectrum]:
    """Return the spectrum of I - W, and what `sample_mixing` returns."""
    if len(links) <= EXACT:
        return (find_spectrum(*mixing_laplacian(links), seed),) * 2
    return find_both(*mixing_laplacian(links), count_steps(len(links), decay), seed)


def count_steps(n: int, decay: float) -> int:
    """Return how many steps the effective neighbors of n devices need."""
    a, r = _find_pole(decay)
    return math.ceil((1 + math.log(2 * a * n / _SURE) / math.log(r)) / 2)


def count_neighbors(links: CSRGraph, spectrum: Spectrum, decay: float) -> Measure:
    """Return the effective number of neighbors from the spectrum of I - W, all of it or what `sample_mixing` finds."""
    n, together = len(links), 1 / (1 - decay)  # the variance of the mean of all

    def vary(low: Floats) -> Floats:
        return (1 - low) ** 2 / (1 - decay * (1 - low) ** 2)

    rest, error = spectrum.estimate(vary)
    total = together + rest
    if spectrum.exact:
        return Measure(together * n / total)
    a, r = _find_pole(decay)
    missed = 2 * a * n * together * r ** (1 - 2 * spectrum.steps) / total if spectrum.steps else 0.0
    bound = f"up to {100 * missed:.2g} % too high" if missed < _POOR else "an upper bound"
    few = f"; too few steps: {bound}" if missed > 10 * _SURE else ""
    return Measure(together * n / total, False, f"{spectrum.how}{few}; standard error {100 * error / total:.2g} %")


def _find_pole(decay: float) -> tuple[float, float]:
    """Return where the variance of a mode has its pole, a, and by which factor r a step of a quadrature gains twice."""
    a = 1 / math.sqrt(max(decay, 1e-6))
    return a, a + math.sqrt(a * a - 1)


def check_decay(decay: float) -> None:
    """Refuse a decay with which the process has no limit."""
    if not 0 <= decay < 1:
        raise GraphError(f"decay is {decay!r}; expected a number from 0 to below 1")


def find_resistance(links: CSRGraph, spectrum: Spectrum) -> Measure:
    """Return the mean resistance from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_ALONE)
    if not links.connected:
        return Measure(math.inf, how=_APART)
    total = spectrum.sum(lambda low: 1 / low)
    return total._replace(value=2 / (len(links) - 1) * (total.value or 0.0))
