"""Predictions for GTVMin on a graph before a run, and the contraction that a run shows.

Consider the matched centroids of one cluster, of which every device has the same number of points, and links of
strength s_ij (alpha in units of that number). GTVMin solves (1 + 2 sum_j s_ij) w_i - 2 sum_j s_ij w_j = m_i, where m_i
is the mean of the local points: w = (I + 2 L)^-1 m with the Laplacian L of the strengths.

On a time-varying graph, a round of the schedule jacobi is w <- (I + 2 R_t)^-1 (m + 2 S_t w), with the strengths S_t of
the active links, scaled by active degrees, and their row sums R_t. The iteration converges to an orbit with the period
T of the graph. Per round, the distance to the orbit contracts by the spectral radius of the product of T rounds to the
power 1 / T.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.measures.lanczos import Spectrum, find_radius, find_spectrum
from topologies.measures.noise import EIGENVALUES, count_signs, residual_noise
from topologies.measures.spectral import laplacian
from topologies.measures.time_varying import choose_rounds, describe_window, varies
from topologies.measures.types import (
    EXACT,
    AnyGraph,
    Changing,
    Floats,
    Integers,
    Mask,
    Measure,
    count_active,
    count_links,
    read,
    to_matrix,
)
from topologies.single_thread import single_thread

_GOAL = 1e-3  # final distance of `rounds`, relative to the initial distance
_PERIODS = 32  # periods of a power iteration on a time-varying graph
_ROUNDS = 400  # most rounds of a power iteration with the schedule colored
_FEWEST = 40  # least rounds of it, for large graphs
_WORK = 720_000_000  # most entries of the matrix, times rounds, between the two
_LARGE = 100_000  # devices; above, the power iteration is in single precision, which halves the memory traffic
_FLOOR = 1e-12  # relative size of changes below which they are rounding errors


class Prediction(NamedTuple):
    """Predicted convergence of GTVMin for matched centroids.

    Attributes
    ----------
    contraction : Measure
        Asymptotic factor per round of the distance to the limit, with schedule jacobi and theta = 1:
        2c / (1 + 2c) on a regular graph at coupling c. On a time-varying graph, of the distance to the limiting orbit.
    rounds : Measure
        Rounds of this schedule until a thousandth of the distance remains: about 6.9 (1 + 2c).
    disagreement : Measure
        Remaining share of the most persistent difference between devices: 1 / (1 + 2 c l) on a regular graph, with the
        second smallest eigenvalue l of the normalized Laplacian. None on a time-varying graph.
    contraction_colored, rounds_colored : Measure
        The same as the first two for the schedule colored: one color after the other, with relaxation theta. None
        without colors and on a time-varying graph.
    residual_noise : Measure
        Share of the variance of local means that remains in the differences between devices, see `residual_noise`.
        Divided by the points per device and cluster, it is the excess of the cost ratio due to noise alone, for fixed
        labels. None on a time-varying graph.

    Notes
    -----
    Rates are those of the slowest mode, after all others have decayed. A run takes fewer rounds, often far fewer, if
    its initial centroids are close to the limit, or if it stops at the first small change.
    """

    contraction: Measure
    rounds: Measure
    disagreement: Measure
    contraction_colored: Measure
    rounds_colored: Measure
    residual_noise: Measure


class Fit(NamedTuple):
    """Fitted rate of convergence of the records of a run.

    Attributes
    ----------
    contraction : float or None
        Factor per round; None with fewer than three changes.
    rounds : int
        Rounds of the fit.
    determination : float or None
        R^2 of the linear fit to the logarithms of the changes: close to 1 for geometric convergence.
    """

    contraction: float | None
    rounds: int
    determination: float | None


def predict(
    graph: AnyGraph, *, coupling: float | None = None, strength: float | None = None, seed: int = 0,
    colors: Integers | None = None, theta: float = 1.5, coupled: Spectrum | None = None,
) -> Prediction:  # fmt: skip
    """Predict the rate of convergence of GTVMin on a graph, and the differences between devices that remain.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
        Weights of links multiply their strength.
    coupling : float, optional
        Coupling c: the strength of a link is c / sqrt(deg_i deg_j).
    strength : float, optional
        Strength of every link instead of `coupling`: alpha divided by the points per device and cluster.
    seed : int, default=0
        Seed of the random vectors of an estimate, above 1,000 devices.
    colors : int64[n], optional
        Color of each device in the schedule colored, from 0 on; neighbors have different colors.
    theta : float, default=1.5
        Relaxation of the schedule colored.
    coupled : Spectrum, optional
        Spectrum of the Laplacian of the strengths, if known.

    Raises
    ------
    GraphError
        If not exactly one of `coupling` and `strength` is given, or if it is not a number of at least 0.
    """
    value = _choose(coupling, strength)
    links = read(graph)
    if varies(graph):
        contraction = _find_orbit_contraction(graph, value, scaled=strength is None)
        none = Measure(None, how="not predicted for time-varying graphs")
        return Prediction(contraction, _count_rounds(contraction), none, none, none, none)
    strengths = _measure_strengths(links, value, scaled=strength is None)
    # Each of the four computations takes seconds on a large graph.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2 if len(links) > EXACT else 1) as pool:
        colored = (
            None if colors is None else pool.submit(_find_colored_contraction, links, strengths, colors, theta, seed)
        )
        disagreement = pool.submit(_find_disagreement, links, strengths, seed, coupled)
        noise = pool.submit(residual_noise, links, (value,), scaled=strength is None, seed=seed)
        contraction = _find_contraction(links, strengths, seed)
        contraction_colored = Measure(None, how="no colors") if colored is None else colored.result()
    rounds_colored = contraction_colored if contraction_colored.value is None else _count_rounds(contraction_colored)
    probes = count_signs(len(links))
    how = "" if len(links) <= EIGENVALUES else f"{probes} vector{'s' * (probes > 1)} of random signs"
    return Prediction(
        contraction,
        _count_rounds(contraction),
        disagreement.result(),
        contraction_colored,
        rounds_colored,
        Measure(float(noise.result()[0]), not how, how),
    )


@single_thread()
def fit(values: Sequence[float], rounds: Sequence[int] | None = None) -> Fit:
    """Fit v_t = v + a q^t to values that converge to an unknown limit v.

    Changes over equal numbers of rounds decrease by the same q, so log q is the slope of a linear fit to their
    logarithms. The first third, which still depends on the initial values, and rounding errors are excluded.

    Parameters
    ----------
    values : sequence of float
        For example the objective of each record. Its distance to the limit is quadratic in that of the centroids, so
        the centroids contract by the square root of the fitted factor.
    rounds : sequence of int, optional
        Rounds of the records; None: 0, 1, 2, ...
    """
    import numpy as np

    heights = np.asarray(values, np.float64)
    times = np.arange(len(heights)) if rounds is None else np.asarray(rounds)
    if len(heights) != len(times):
        raise GraphError(f"the number of values is {len(heights)}; expected {len(times)}, one for each round")
    steps = np.diff(times)
    # The last record of a stage may follow the previous one after fewer rounds.
    usual = steps == (steps[0] if len(steps) else 0)
    changes = np.abs(np.diff(heights))[usual]
    starts = times[:-1][usual]
    real = changes > _FLOOR * max(changes.max(initial=0.0), np.abs(heights).max(initial=0.0))
    until = len(real) if real.all() else int(np.argmin(real))
    first = until // 3
    if until - first < 3:
        return Fit(None, 0, None)
    t = starts[first:until]
    logs = np.log(changes[first:until])
    slope = np.polyfit(t, logs, 1)
    spread = float(((logs - logs.mean()) ** 2).sum())
    missed = float(((logs - np.polyval(slope, t)) ** 2).sum())
    return Fit(float(np.exp(slope[0])), int(t[-1] - t[0] + steps[0]), 1 - missed / spread if spread else 1.0)


def fitted(trace: Sequence[Mapping[str, Any]], what: str = "objective") -> Fit:
    """Fit the contraction per round of the last stage of a run, see `fit`.

    Parameters
    ----------
    trace : sequence of mapping
        Records of a run in order, each with `stage`, `round` and metrics; unknown metrics are None.
    what : str, default="objective"
        Metric: `objective`, or `gtv` for the total variation.
    """
    known = [record for record in trace if record["stage"] == trace[-1]["stage"] and record[what] is not None]
    return fit([float(record[what]) for record in known], [int(record["round"]) for record in known])


def measure_strengths(links: CSRGraph, coupling: float | None, strength: float | None) -> Floats:
    """Compute the strength of each directed edge, float64[2 * links], from the parameters of `predict`."""
    return _measure_strengths(links, _choose(coupling, strength), scaled=strength is None)


def _choose(coupling: float | None, strength: float | None) -> float:
    """Return the coupling or the strength, whichever is not None."""
    if (coupling is None) == (strength is None):
        raise GraphError("exactly one of coupling and strength must be set")
    value = coupling if strength is None else strength
    if value is None or not 0 <= value < math.inf:
        raise GraphError(f"coupling or strength is {value!r}; expected a number of at least 0")
    return value


def _measure_strengths(links: CSRGraph, value: float, *, scaled: bool, active: Mask | None = None) -> Floats:
    """Compute the strength of each directed edge, float64[2 * links]; 0 if it is inactive."""
    import numpy as np

    strengths = np.full(len(links.indices), float(value))
    if scaled:
        degrees = count_active(links, active).astype(np.float64)
        products = degrees.repeat(count_links(links))
        products *= degrees[links.indices]
        np.maximum(products, 1.0, out=products)
        strengths /= np.sqrt(products, out=products)
    strengths = strengths if links.weights is None else strengths * links.weights
    return strengths if active is None else np.where(active, strengths, 0.0)


@single_thread()
def _find_orbit_contraction(graph: Changing, coupling: float, *, scaled: bool) -> Measure:
    """Compute the spectral radius of the product of the rounds of a period, to the power 1 / rounds.

    The entries of the product are at least 0, so power iteration of a positive vector converges to the radius.
    """
    import numpy as np

    rounds = choose_rounds(graph, None)
    links = read(graph)
    matrices = []
    for t in range(rounds):
        matrix = to_matrix(links, 2 * _measure_strengths(links, coupling, scaled=scaled, active=graph.active(t)))
        matrix.eliminate_zeros()
        matrices.append((matrix, 1 + matrix @ np.ones(len(links))))
    if len(links) <= EXACT:
        product = np.eye(len(links))
        for matrix, rows in matrices:
            product = (matrix @ product) / rows[:, None]
        radius = Measure(float(np.abs(np.linalg.eigvals(product)).max()))
    else:
        radius = _grow(matrices, len(links))
    value = (radius.value or 0.0) ** (1 / rounds)
    return describe_window(graph, radius._replace(value=value), rounds)


def _grow(matrices: list[tuple[Any, Floats]], n: int) -> Measure:
    """Compute the factor by which a positive vector grows per period, the geometric mean over the later half."""
    import numpy as np

    vector = np.ones(n)
    grown: list[float] = []
    for _ in range(_PERIODS):
        for matrix, rows in matrices:
            vector = (matrix @ vector) / rows
        grown.append(float(np.abs(vector).sum()))
        if grown[-1] == 0.0:
            return Measure(0.0, False, f"power iteration, {len(grown)} periods")
        vector /= grown[-1]
    value = float(np.exp(np.mean(np.log(grown[_PERIODS // 2 :]))))
    return Measure(value, False, f"power iteration, {_PERIODS} periods")


def _find_contraction(links: CSRGraph, strengths: Floats, seed: int) -> Measure:
    """Compute the spectral radius of (I + 2 R)^-1 2 S with the strengths S and their row sums R."""
    import numpy as np

    matrix = to_matrix(links, 2 * strengths)
    rows = matrix @ np.ones(len(links))
    # With equal row sums, (1, ..., 1) is the eigenvector of the radius.
    if rows.max() - rows.min() <= 1e-12 * rows.max():
        return Measure(float(rows[0] / (1 + rows[0])))
    # Similarity transformation to a symmetric matrix with the same eigenvalues.
    scale = 1 / np.sqrt(1 + rows)
    matrix.data *= np.repeat(scale, count_links(links))
    matrix.data *= scale[links.indices]
    return find_radius(matrix, seed)


@single_thread()
def _find_colored_contraction(links: CSRGraph, strengths: Floats, colors: Integers, theta: float, seed: int) -> Measure:
    """Compute the spectral radius of a round of successive over-relaxation, one color after the other.

    Up to 1,000 devices, all eigenvalues are computed. Above, it is the mean factor of the norm of a random vector in
    the later half of 40 to 400 rounds; a mean, because complex eigenvalues make the factor oscillate.
    """
    import numpy as np

    n = len(links)
    matrix = to_matrix(links, 2 * strengths)
    matrix.data *= np.repeat(1 / (1 + matrix @ np.ones(n)), count_links(links))
    members = [np.flatnonzero(colors == color) for color in range(int(colors.max()) + 1)]
    parts: list[tuple[Any, Any]] = [(rows, matrix[rows]) for rows in members]
    # The rows of the matrix are copied into parts.
    del matrix

    def run_round(vectors: Floats) -> Floats:
        for rows, part in parts:
            vectors[rows] += theta * (part @ vectors - vectors[rows])
        return vectors

    if n <= EXACT:
        return Measure(float(np.abs(np.linalg.eigvals(run_round(np.eye(n)))).max()))
    vector = np.random.default_rng(seed).normal(size=n)
    logs = list[float]()
    if n > _LARGE:
        vector = vector.astype(np.float32)
        parts = [(rows, part.astype(np.float32)) for rows, part in parts]
    # In the order of colors, the entries of a color are a slice of the vector.
    order = np.concatenate(members)
    place = np.empty(n, np.int32)
    place[order] = np.arange(n, dtype=np.int32)
    vector = vector[order]
    first = 0
    for number, (rows, part) in enumerate(parts):
        part.indices = place[part.indices]
        parts[number] = slice(first, first + len(rows)), part
        first += len(rows)
    rounds = int(np.clip(_WORK // (len(links.indices) + n), _FEWEST, _ROUNDS))
    for _ in range(rounds):
        vector = run_round(vector)
        size = float(np.linalg.norm(vector))
        if size == 0.0:
            return Measure(0.0, False, f"power iteration, {len(logs) + 1} rounds")
        logs.append(math.log(size))
        vector /= size
    later = logs[rounds // 2 :]
    return Measure(math.exp(sum(later) / len(later)), False, f"power iteration, {rounds} rounds")


def _count_rounds(contraction: Measure) -> Measure:
    value = contraction.value or 0.0
    return contraction._replace(value=math.log(_GOAL) / math.log(value) if value else 0.0)


def _find_disagreement(links: CSRGraph, strengths: Floats, seed: int, known: Spectrum | None) -> Measure:
    """Compute 1 / (1 + 2 l) with the second smallest eigenvalue l of the Laplacian of the strengths."""
    if len(links) == 1:
        return Measure(None, how="a single device")
    if not strengths.any() or not links.connected:
        return Measure(1.0)
    low = (known or find_spectrum(*laplacian(links, strengths), seed)).low()
    # The value decreases with the eigenvalue, so an upper bound of l gives a lower bound.
    how = low.how.replace("an upper bound", "a lower bound")
    return Measure(1 / (1 + 2 * (low.value or 0.0)), low.exact, how)
