"""Shared results of the measures of a very large graph, computed once with compiled kernels."""

from typing import Any, NamedTuple, Protocol

from topologies.csr_graph import CSRGraph
from topologies.measures.distances import Distances, find_distances
from topologies.measures.lanczos import (
    Recurrence,
    Spectrum,
    gather_sample,
    gather_spectrum,
    run_three_recurrences,
)
from topologies.measures.predictions import measure_strengths
from topologies.measures.spectral import count_steps, laplacian, mixing_strengths
from topologies.measures.types import Floats, Integers

LARGE = 100_000  # devices; above, Lanczos' recurrence has one start vector


class Kernels(Protocol):
    """Compiled functions of graphs as arrays, documented in `p2pkm.kernels.reference`."""

    def layers(self, indptr: Integers, indices: Integers, roots: Integers) -> Integers:
        """Count the hops from each device to the nearest root."""

    def lanczos(self, *arrays: Any) -> tuple[Floats, Floats, Floats, Floats]:
        """Run steps of Lanczos' recurrence with three matrices at once."""


class SharedResults(NamedTuple):
    """Results of `explore` that `describe` and `predict` share.

    Attributes
    ----------
    distances : Distances
    resistors : Spectrum
        Spectrum of the Laplacian.
    mixing : Spectrum
        Spectrum of I - W with the Metropolis matrix W.
    mixing_sample : Spectrum
        The same with as many steps as the effective neighbors require.
    coupled : Spectrum
        Spectrum of the Laplacian of the link strengths of GTVMin.
    """

    distances: Distances
    resistors: Spectrum
    mixing: Spectrum
    mixing_sample: Spectrum
    coupled: Spectrum


def explore(
    links: CSRGraph, kernels: Kernels, *, decay: float, seed: int, coupling: float | None = None,
    strength: float | None = None,
) -> SharedResults:  # fmt: skip
    """Compute distances and three spectra of a graph of more than 100,000 devices at the same time.

    Parameters
    ----------
    links : CSRGraph
    kernels : Kernels
    decay, seed
        As in `describe`.
    coupling, strength
        As in `predict`.

    Returns
    -------
    SharedResults
        For `describe` and `predict`.

    Raises
    ------
    GraphError
        As in `predict`.
    """
    import numpy as np

    entries = len(links.indices) + len(links)
    coupled = measure_strengths(links, coupling, strength)
    strengths = np.ones(len(links.indices)), mixing_strengths(links), coupled

    def gather(number: int, recurrence: Recurrence) -> Spectrum:
        return gather_spectrum(recurrence, entries, lambda: laplacian(links, strengths[number]), seed)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        distances = pool.submit(find_distances, links, seed, kernels.layers)
        recurrences = run_three_recurrences(kernels.lanczos, links, strengths, seed)
        resistors, mixing, coupled_spectrum = (
            gather(number, recurrence) for number, recurrence in enumerate(recurrences)
        )
        mixing_sample = gather_sample(
            recurrences[1], entries, lambda: laplacian(links, strengths[1]), count_steps(len(links), decay), seed
        )
        return SharedResults(distances.result(), resistors, mixing, mixing_sample, coupled_spectrum)
