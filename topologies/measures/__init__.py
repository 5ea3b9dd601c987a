"""Measures of graphs, and predictions for GTVMin; each value states whether it is exact.

>>> import topologies
>>> from topologies import measures
>>> measures.diameter(topologies.ring(16))
Measure(value=8, exact=True, how='')
>>> round(measures.predict(topologies.ring(16), coupling=10).contraction.value, 4)
0.9524

Every measure takes a networkx.Graph or a CSRGraph. Up to 1,000 devices, all measures except the connectivities of dense
graphs are exact. Above, they are estimated by sampling and Lanczos' recurrence, so that a million devices take seconds;
`how` names the method and its error.
"""

from topologies.csr_graph import CSRGraph
from topologies.measures.centrality import betweenness, closeness, count_within
from topologies.measures.connectivity import edge_connectivity, find_cut, vertex_connectivity
from topologies.measures.degrees import clustering, degrees, hub_load
from topologies.measures.distances import Distances, diameter, find_distances, mean_path
from topologies.measures.known import LARGE, SharedResults, explore
from topologies.measures.lanczos import Spectrum, find_spectrum
from topologies.measures.noise import residual_noise
from topologies.measures.path_load import path_load
from topologies.measures.predictions import Fit, Prediction, fit, fitted, predict
from topologies.measures.spectral import (
    DECAY,
    algebraic_connectivity,
    check_decay,
    count_neighbors,
    effective_neighbors,
    effective_resistance,
    find_connectivity,
    find_gap,
    find_mixing,
    find_resistance,
    kirchhoff_index,
    laplacian,
    spectral_gap,
)
from topologies.measures.time_varying import (
    active_degrees,
    contraction_per_round,
    effective_neighbors_over_time,
    varies,
)
from topologies.measures.types import EXACT, AnyGraph, Changing, Measure, read

__all__ = [
    "EXACT",
    "LARGE",
    "Changing",
    "Fit",
    "Measure",
    "Prediction",
    "SharedResults",
    "active_degrees",
    "algebraic_connectivity",
    "betweenness",
    "closeness",
    "clustering",
    "contraction_per_round",
    "count_within",
    "degrees",
    "describe",
    "diameter",
    "edge_connectivity",
    "effective_neighbors",
    "effective_neighbors_over_time",
    "effective_resistance",
    "explore",
    "find_cut",
    "fit",
    "fitted",
    "hub_load",
    "kirchhoff_index",
    "mean_path",
    "path_load",
    "predict",
    "read",
    "residual_noise",
    "spectral_gap",
    "vertex_connectivity",
]


def describe(
    graph: AnyGraph, *, decay: float = DECAY, seed: int = 0, known: SharedResults | None = None
) -> dict[str, Measure]:
    """Compute all measures of a graph.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
        For a time-varying graph, `spectral_gap` and `effective_neighbors` are those of its rounds; the other measures
        are those of all links that are ever active.
    decay : float, default=0.95
        Parameter of `effective_neighbors`.
    seed : int, default=0
        Seed of all samples.
    known : SharedResults, optional
        Results of `explore` for the same static graph, decay and seed.

    Returns
    -------
    dict of str to Measure
    """
    links = read(graph)
    check_decay(decay)
    if known is not None:
        mixing = _collect_mixing(links, known.mixing, known.mixing_sample, decay)
        return _collect_measures(links, known.distances, known.resistors, seed) | mixing
    # Each of the three computations takes seconds on a large graph.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2 if len(links) > EXACT else 1) as pool:
        spectrum = pool.submit(lambda: find_spectrum(*laplacian(links), seed))
        rounds = (
            pool.submit(_describe_rounds, graph, decay, seed)
            if varies(graph)
            else pool.submit(_describe_mixing, links, decay, seed)
        )
        distances = pool.submit(find_distances, links, seed).result()
        resistors = spectrum.result()
    return _collect_measures(links, distances, resistors, seed) | rounds.result()


def _collect_measures(links: CSRGraph, distances: Distances, resistors: Spectrum, seed: int) -> dict[str, Measure]:
    """Collect the measures that static and time-varying graphs share."""
    low, mean, high = degrees(links)
    return {
        "devices": Measure(len(links)),
        "links": Measure(links.number_of_edges()),
        "degree_min": low,
        "degree_mean": mean,
        "degree_max": high,
        "diameter": distances.diameter,
        "mean_path": distances.mean_path,
        "clustering": clustering(links, seed=seed),
        "algebraic_connectivity": find_connectivity(links, resistors),
        "effective_resistance": find_resistance(links, resistors),
        "edge_connectivity": edge_connectivity(links, seed=seed),
        "vertex_connectivity": vertex_connectivity(links, seed=seed),
        "hub_load": hub_load(links),
        "path_load": path_load(links, seed=seed),
    }


def _describe_mixing(links: CSRGraph, decay: float, seed: int) -> dict[str, Measure]:
    """Compute the measures of averaging over all links of a static graph."""
    return _collect_mixing(links, *find_mixing(links, decay, seed), decay)


def _collect_mixing(links: CSRGraph, mixing: Spectrum, sample: Spectrum, decay: float) -> dict[str, Measure]:
    """Collect the measures of averaging from the spectrum of I - W, and from the one that `sample_mixing` returns."""
    return {"spectral_gap": find_gap(links, mixing), "effective_neighbors": count_neighbors(links, sample, decay)}


def _describe_rounds(graph: Changing, decay: float, seed: int) -> dict[str, Measure]:
    """Compute the measures of the rounds of a time-varying graph."""
    factor = contraction_per_round(graph, seed=seed)
    return {
        "period": Measure(graph.period, how="" if graph.period else "not periodic"),
        "active_degree": active_degrees(graph),
        "spectral_gap": factor._replace(value=1 - (factor.value or 0.0)),
        "effective_neighbors": effective_neighbors_over_time(graph, decay=decay, seed=seed),
    }
