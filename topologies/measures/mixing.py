"""How fast news spreads: measures from the spectra of the Laplacian and of the Metropolis matrix."""

import math
from typing import Any

from topologies.graph import GraphError
from topologies.light import LightGraph
from topologies.measures.reading import (
    AnyGraph,
    Floats,
    Mask,
    Measure,
    count_links,
    find_sources,
    join,
    read,
    to_matrix,
)
from topologies.measures.spectrum import Spectrum, find_spectrum

DECAY = 0.95  # what Vogels et al. fitted to the training of ResNet-20 on CIFAR-10 is 0.951
_APART = "no path between some devices"
_ALONE = "a single device"


def algebraic_connectivity(graph: AnyGraph, *, seed: int = 0) -> Measure:
    """Return the second smallest eigenvalue of the Laplacian D - A; the weights of links are not looked at.

    Fiedler, "Algebraic connectivity of graphs", 1973. Up to 1,000 devices all eigenvalues are computed, above Lanczos'
    recurrence approaches it from above.

    Parameters
    ----------
    graph : networkx.Graph or LightGraph
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
    """Return the effective number of neighbours n_W(decay) of the Metropolis matrix W, from 1 (alone) to n.

    In the process x <- W (sqrt(decay) x + noise) it is the variance that a device alone, 1 / (1 - decay), has over the
    mean variance of the devices; with the eigenvalues l_i of a symmetric W,
    n_W = 1 / (1 - decay) / mean_i(l_i^2 / (1 - decay l_i^2)). The decay is a property of the problem: near 1, all
    devices count. Vogels, Hendrikx and Jaggi, "Beyond spectral gap: the role of the topology in decentralized
    learning", NeurIPS 2022.

    Parameters
    ----------
    graph, seed
        As of `algebraic_connectivity`.
    decay : float
        From 0 to below 1.
    """
    links = read(graph)
    return count_neighbors(links, find_spectrum(*mixing_laplacian(links), seed), decay)


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


def laplacian(links: LightGraph, strengths: Floats | None = None) -> tuple[Any, Floats]:
    """Return diag(A 1) - A, csr_array[n, n], and its null vector.

    A has these strengths of the directed edges, else 1.
    """
    import numpy as np
    from scipy.sparse import diags_array

    n, adjacency = len(links), to_matrix(links, strengths)
    rows = adjacency @ np.ones(n)
    return (diags_array(rows) - adjacency).tocsr(), np.full(n, n**-0.5)


def mixing_laplacian(links: LightGraph, active: Mask | None = None) -> tuple[Any, Floats]:
    """Return I - W, csr_array[n, n], with the Metropolis matrix W of the (active) links, and its null vector."""
    import numpy as np

    sources, targets = find_sources(links), links.indices
    degrees = count_links(links) if active is None else np.bincount(sources[active], minlength=len(links))
    strengths = 1.0 / (1 + np.maximum(degrees[sources], degrees[targets]))
    return laplacian(links, strengths if active is None else np.where(active, strengths, 0.0))


def find_connectivity(links: LightGraph, spectrum: Spectrum) -> Measure:
    """Return the algebraic connectivity from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_ALONE)
    return spectrum.low() if join(links) else Measure(0.0, how=_APART)


def find_gap(links: LightGraph, spectrum: Spectrum) -> Measure:
    """Return the spectral gap from the spectrum of I - W."""
    if len(links) == 1:
        return Measure(1.0)
    if not join(links):
        return Measure(0.0, how=_APART)
    low = spectrum.low()
    return low._replace(value=min(float(spectrum.values[0]), 2 - float(spectrum.values[-1])))


def count_neighbors(links: LightGraph, spectrum: Spectrum, decay: float) -> Measure:
    """Return the effective number of neighbours from the spectrum of I - W."""
    check_decay(decay)

    def vary(low: Floats) -> Floats:
        return (1 - low) ** 2 / (1 - decay * (1 - low) ** 2)

    rest = spectrum.sum(vary)
    together = 1 / (1 - decay)  # the variance of the mean of all
    return rest._replace(value=together * len(links) / (together + (rest.value or 0.0)))


def check_decay(decay: float) -> None:
    """Refuse a decay with which the process has no limit."""
    if not 0 <= decay < 1:
        raise GraphError(f"decay is {decay!r}; expected a number from 0 to below 1")


def find_resistance(links: LightGraph, spectrum: Spectrum) -> Measure:
    """Return the mean resistance from the spectrum of the Laplacian."""
    if len(links) == 1:
        return Measure(None, how=_ALONE)
    if not join(links):
        return Measure(math.inf, how=_APART)
    total = spectrum.sum(lambda low: 1 / low)
    return total._replace(value=2 / (len(links) - 1) * (total.value or 0.0))
