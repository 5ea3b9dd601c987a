"""Measures of time-varying graphs, from products of the Metropolis matrices of several rounds."""

import math
from typing import Any, TypeGuard

from topologies.measures.lanczos import estimate_largest
from topologies.measures.spectral import DECAY, check_decay, mixing_laplacian
from topologies.measures.types import EXACT, AnyGraph, Changing, Floats, Integers, Measure, read
from topologies.single_thread import single_thread

_ROUNDS = 32  # rounds that represent a graph without period
_TINY = 1e-9  # norm, or weight of an old round, below which it counts as 0
_WALKS = 8  # simultaneous simulations for a large graph


def varies(graph: AnyGraph) -> TypeGuard[Changing]:
    """Return whether a graph is time-varying: whether it has a method `active`."""
    return hasattr(graph, "active")


def contraction_per_round(graph: Changing, *, rounds: int | None = None, seed: int = 0) -> Measure:
    """Compute the factor per round by which averaging reduces differences between devices, over a period.

    It is the spectral norm of W_T ... W_1 on the complement of (1, ..., 1), to the power 1 / T. W_t is the Metropolis
    matrix of the active links of round t, with active degrees. 0 if a period gives exact averages.

    Parameters
    ----------
    graph : TimeVaryingGraph
        With `indptr`, `indices`, `period` and `active(t)`.
    rounds : int, optional
        T. None: the period, or 32 rounds of a graph without period.
    seed : int, default=0
        Seed of the random vectors of an estimate, above 1,000 devices.
    """
    import numpy as np

    window = choose_rounds(graph, rounds)
    matrices = mix_rounds(graph, window)
    n = len(graph.indptr) - 1
    if n <= EXACT:
        product = np.eye(n) - 1 / n
        for matrix in matrices:
            product = matrix @ product
        with single_thread():
            norm = float(np.linalg.norm(product, 2))
        return _take_root(graph, Measure(norm), window)

    def apply(v: Floats) -> Floats:
        w = v - v.mean(axis=0)
        for matrix in (*matrices, *reversed(matrices)):
            w = matrix @ w
        return w - w.mean(axis=0)

    squared = estimate_largest(apply, n, 2 * sum(matrix.nnz for matrix in matrices), seed)
    return _take_root(graph, squared._replace(value=math.sqrt(max(squared.value or 0.0, 0.0))), window)


def effective_neighbors_over_time(
    graph: Changing, *, decay: float = DECAY, rounds: int | None = None, seed: int = 0
) -> Measure:
    """Compute the effective number of neighbors of a time-varying graph, see `effective_neighbors`.

    The process x <- W_t (sqrt(decay) x + noise) runs until the influence of the initial state is negligible; then the
    variances are averaged over a period. Up to 1,000 devices, the covariance matrix is computed; above, the process is
    simulated.

    Parameters
    ----------
    graph, rounds, seed
        As in `contraction_per_round`.
    decay : float, default=0.95
        From 0 to less than 1.
    """
    import numpy as np

    check_decay(decay)
    window = choose_rounds(graph, rounds)
    matrices = mix_rounds(graph, window)
    n = len(graph.indptr) - 1
    # Rounds after which the weight of the initial state is below `_TINY`.
    warm_up = math.ceil(math.log(_TINY) / math.log(max(decay, _TINY)))
    # The simulation averages over at least 16 rounds to reduce the sampling error.
    periods = 1 if n <= EXACT else math.ceil(16 / window)
    steps = window * (math.ceil(warm_up / window) + periods)
    if n <= EXACT:
        variances = _propagate_covariance(matrices, decay, steps)
    else:
        variances = _simulate_process(matrices, decay, steps, seed)
    value = 1 / (1 - decay) / float(np.mean(variances[-window * periods :]))
    how = "" if n <= EXACT else f"{_WALKS} simulations of {steps} rounds"
    return describe_window(graph, Measure(value, n <= EXACT, how), window)


def choose_rounds(graph: Changing, rounds: int | None) -> int:
    """Choose the number of rounds: as given, the period, or 32 without period."""
    return rounds or graph.period or _ROUNDS


def mix_rounds(graph: Changing, rounds: int) -> list[Any]:
    """Build the Metropolis matrix of the active links of each round, csr_array[n, n]."""
    from scipy.sparse import eye_array

    links = read(graph)
    matrices = []
    for t in range(rounds):
        matrix = eye_array(len(links), format="csr") - mixing_laplacian(links, graph.active(t))[0]
        matrix.eliminate_zeros()
        matrices.append(matrix)
    return matrices


def active_degrees(graph: Changing, *, rounds: int | None = None) -> Measure:
    """Compute the mean number of active links per device and round.

    Parameters
    ----------
    graph, rounds
        As in `contraction_per_round`.
    """
    import numpy as np

    window = choose_rounds(graph, rounds)
    counts: Integers = np.array([np.count_nonzero(graph.active(t)) for t in range(window)])
    return describe_window(graph, Measure(float(counts.mean()) / (len(graph.indptr) - 1)), window)


def _propagate_covariance(matrices: list[Any], decay: float, steps: int) -> list[float]:
    """Compute the mean variance of the devices after each step from the covariance matrix."""
    import numpy as np

    n = matrices[0].shape[0]
    covariance = np.zeros((n, n))
    diagonal = np.arange(n)
    variances = []
    for t in range(steps):
        matrix = matrices[t % len(matrices)]
        covariance *= decay
        covariance[diagonal, diagonal] += 1
        covariance = matrix @ (matrix @ covariance).T
        variances.append(float(covariance.trace()) / n)
    return variances


def _simulate_process(matrices: list[Any], decay: float, steps: int, seed: int) -> list[float]:
    """Simulate the process, and return the mean square of the devices' values after each step."""
    import numpy as np

    rng = np.random.default_rng(seed)
    values = np.zeros((matrices[0].shape[0], _WALKS))
    variances = []
    for t in range(steps):
        values = matrices[t % len(matrices)] @ (math.sqrt(decay) * values + rng.normal(size=values.shape))
        variances.append(float(np.mean(values**2)))
    return variances


def _take_root(graph: Changing, norm: Measure, rounds: int) -> Measure:
    """Compute the contraction per round from the norm of the product of all rounds."""
    value = norm.value or 0.0
    return describe_window(graph, norm._replace(value=0.0 if value < _TINY else value ** (1 / rounds)), rounds)


def describe_window(graph: Changing, measure: Measure, rounds: int) -> Measure:
    """Add the number of rounds to `how`; over a part of a period, the measure is an estimate."""
    is_complete = graph.period is not None and rounds % graph.period == 0
    window = f"over {rounds} round{'s' * (rounds != 1)}"
    how = f"{measure.how}; {window}" if measure.how else window
    return Measure(measure.value, measure.exact and is_complete, how)
