"""Graphs that change: measures of the product of the Metropolis matrices of several rounds."""

import math
from typing import Any, TypeGuard

from topologies.measures.lanczos import walk_to_top
from topologies.measures.spectral import DECAY, check_decay, mixing_laplacian
from topologies.measures.types import EXACT, AnyGraph, Changing, Floats, Integers, Measure, read
from topologies.single_thread import single_thread

_ROUNDS = 32  # looked at of a graph that never repeats itself
_TINY = 1e-9  # what a norm, or the weight of an old round, counts as 0 below
_WALKS = 8  # of a large graph, side by side


def varies(graph: AnyGraph) -> TypeGuard[Changing]:
    """Return whether a graph changes from round to round: whether it has a method `active`."""
    return hasattr(graph, "active")


def contraction_per_round(graph: Changing, *, rounds: int | None = None, seed: int = 0) -> Measure:
    """Return by which factor a round of averaging brings devices closer, in the mean over a period.

    The spectral norm of W_T ... W_1 on what is orthogonal to (1, ..., 1), to the power 1 / T, where W_t is the
    Metropolis matrix of the links that are active in round t, with the ACTIVE degrees. 0 if a period averages exactly.

    Parameters
    ----------
    graph : TimeVaryingGraph
        Has `indptr`, `indices`, `period` and `active(t)`.
    rounds : int, optional
        T. None: the period; 32 rounds of a graph that never repeats itself.
    seed : int
        Of the random vectors of an estimate, which there is above 1,000 devices.
    """
    import numpy as np

    chosen = choose_rounds(graph, rounds)
    matrices = mix_rounds(graph, chosen)
    n = len(graph.indptr) - 1
    if n <= EXACT:
        product = np.eye(n) - 1 / n
        for matrix in matrices:
            product = matrix @ product
        with single_thread():
            norm = float(np.linalg.norm(product, 2))
        return _tell(graph, Measure(norm), chosen)

    def apply(v: Floats) -> Floats:
        w = v - v.mean(axis=0)
        for matrix in (*matrices, *reversed(matrices)):
            w = matrix @ w
        return w - w.mean(axis=0)

    squared = walk_to_top(apply, n, 2 * sum(matrix.nnz for matrix in matrices), seed)
    return _tell(graph, squared._replace(value=math.sqrt(max(squared.value or 0.0, 0.0))), chosen)


def effective_neighbors_over_time(
    graph: Changing, *, decay: float = DECAY, rounds: int | None = None, seed: int = 0
) -> Measure:
    """Return the effective number of neighbors when the links change: see `effective_neighbors`.

    The process x <- W_t (sqrt(decay) x + noise) runs until what was before no longer counts; then the variances are
    averaged over a period. Up to 1,000 devices it is the covariance matrix that runs, above the process itself.

    Parameters
    ----------
    graph, rounds, seed
        As of `contraction_per_round`.
    decay : float
        From 0 to below 1.
    """
    import numpy as np

    check_decay(decay)
    chosen = choose_rounds(graph, rounds)
    matrices, n = mix_rounds(graph, chosen), len(graph.indptr) - 1
    before = math.ceil(math.log(_TINY) / math.log(max(decay, _TINY)))
    periods = 1 if n <= EXACT else math.ceil(16 / chosen)
    steps = chosen * (math.ceil(before / chosen) + periods)
    variances = _spread(matrices, decay, steps) if n <= EXACT else _play(matrices, decay, steps, seed)
    value = 1 / (1 - decay) / float(np.mean(variances[-chosen * periods :]))
    how = "" if n <= EXACT else f"{_WALKS} random walks over {steps} rounds"
    return describe_window(graph, Measure(value, n <= EXACT, how), chosen)


def choose_rounds(graph: Changing, rounds: int | None) -> int:
    """Return over how many rounds a graph is looked at."""
    return rounds or graph.period or _ROUNDS


def mix_rounds(graph: Changing, rounds: int) -> list[Any]:
    """Return the Metropolis matrix of the active links of each round, csr_array[n, n]."""
    from scipy.sparse import eye_array

    links = read(graph)
    matrices = []
    for t in range(rounds):
        matrix = eye_array(len(links), format="csr") - mixing_laplacian(links, graph.active(t))[0]
        matrix.eliminate_zeros()
        matrices.append(matrix)
    return matrices


def active_degrees(graph: Changing, *, rounds: int | None = None) -> Measure:
    """Return the mean number of active links of a device and round.

    Parameters
    ----------
    graph, rounds
        As of `contraction_per_round`.
    """
    import numpy as np

    chosen = choose_rounds(graph, rounds)
    counts: Integers = np.array([np.count_nonzero(graph.active(t)) for t in range(chosen)])
    return describe_window(graph, Measure(float(counts.mean()) / (len(graph.indptr) - 1)), chosen)


def _spread(matrices: list[Any], decay: float, steps: int) -> list[float]:
    """Return the mean variance of the devices after each step, by the covariance matrix."""
    import numpy as np

    n = matrices[0].shape[0]
    covariance, diagonal, found = np.zeros((n, n)), np.arange(n), []
    for t in range(steps):
        matrix = matrices[t % len(matrices)]
        covariance *= decay
        covariance[diagonal, diagonal] += 1
        covariance = matrix @ (matrix @ covariance).T
        found.append(float(covariance.trace()) / n)
    return found


def _play(matrices: list[Any], decay: float, steps: int, seed: int) -> list[float]:
    """Return the mean square of the devices' numbers after each step, by random walks."""
    import numpy as np

    draw, n = np.random.default_rng(seed), matrices[0].shape[0]
    walks, found = np.zeros((n, _WALKS)), []
    for t in range(steps):
        walks = matrices[t % len(matrices)] @ (math.sqrt(decay) * walks + draw.normal(size=walks.shape))
        found.append(float(np.mean(walks**2)))
    return found


def _tell(graph: Changing, norm: Measure, rounds: int) -> Measure:
    """Return the contraction per round from the norm of the product."""
    value = norm.value or 0.0
    return describe_window(graph, norm._replace(value=0.0 if value < _TINY else value ** (1 / rounds)), rounds)


def describe_window(graph: Changing, measure: Measure, rounds: int) -> Measure:
    """State over which rounds a figure was taken; over a part of them it is an estimate."""
    whole = graph.period is not None and rounds % graph.period == 0
    window = f"over {rounds} round{'s' * (rounds != 1)}"
    how = f"{measure.how}; {window}" if measure.how else window
    return Measure(measure.value, measure.exact and whole, how)
