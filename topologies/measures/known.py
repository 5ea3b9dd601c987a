"""What measures of a very large graph have in common: found once, with compiled kernels, for all of them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from topologies.csr_graph import CSRGraph
from topologies.measures.distances import Distances, find_distances
from topologies.measures.lanczos import Path, Spectrum, gather_sample, gather_spectrum, walk_three
from topologies.measures.predictions import measure_strengths
from topologies.measures.spectral import count_steps, laplacian, mixing_strengths
from topologies.measures.types import Floats, Integers

LARGE = 100_000  # devices; above, a walk through a spectrum takes one vector


class Kernels(Protocol):
    """Compiled walks over the arrays of a graph, as `p2pkm.kernels.reference` documents them."""

    def layers(self, indptr: Integers, indices: Integers, roots: Integers) -> Integers:
        """Return the number of hops from each device to the nearest root."""

    def lanczos(self, *arrays: Any) -> tuple[Floats, Floats, Floats, Floats]:
        """Take steps of Lanczos' recurrence with three matrices at once."""


class SharedResults(NamedTuple):
    """What `describe` and `predict` need not look for again.

    Attributes
    ----------
    distances : Distances
    resistors : Spectrum
        Of the Laplacian.
    mixing, near : Spectrum
        Of I - W with the Metropolis matrix W, and what the effective neighbors take of it.
    coupled : Spectrum
        Of the Laplacian of the strengths of GTVMin.
    """

    distances: Distances
    resistors: Spectrum
    mixing: Spectrum
    near: Spectrum
    coupled: Spectrum


def explore(
    links: CSRGraph, kernels: Kernels, *, decay: float, seed: int, coupling: float | None = None,
    strength: float | None = None,
) -> SharedResults:  # fmt: skip
    """Search a graph of more than 100,000 devices, and walk through three matrices of it side by side.

    Parameters
    ----------
    links : CSRGraph
    kernels : Kernels
    decay, seed
        As of `describe`.
    coupling, strength
        As of `predict`.

    Returns
    -------
    SharedResults
        For `describe` and `predict`.

    Raises
    ------
    GraphError
        As `predict`.
    """
    import numpy as np

    entries = len(links.indices) + len(links)
    coupled = measure_strengths(links, coupling, strength)
    strengths = np.ones(len(links.indices)), mixing_strengths(links), coupled

    def gather(number: int, path: Path) -> Spectrum:
        return gather_spectrum(path, entries, lambda: laplacian(links, strengths[number]), seed)

    with ThreadPoolExecutor(1) as pool:
        far = pool.submit(find_distances, links, seed, kernels.layers)
        paths = walk_three(kernels.lanczos, links, strengths, seed)
        found = [gather(number, path) for number, path in enumerate(paths)]
        near = gather_sample(
            paths[1], entries, lambda: laplacian(links, strengths[1]), count_steps(len(links), decay), seed
        )
        return SharedResults(far.result(), found[0], found[1], near, found[2])
