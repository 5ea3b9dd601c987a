"""What theory predicts for GTVMin on a graph before a run, and what a run shows of it.

For matched centroids of a cluster of which every device has the same number of points, and links of strength s_ij
(alpha in units of that number), GTVMin solves (1 + 2 sum_j s_ij) w_i - 2 sum_j s_ij w_j = m_i, where m_i is the mean of
the device's own points: w = (I + 2 L)^-1 m with the Laplacian L of the strengths.

Where links change, a round of the schedule jacobi is w <- (I + 2 R_t)^-1 (m + 2 S_t w) with the strengths S_t of the
links in use, scaled by the degrees in use, and their row sums R_t. It comes to no rest, but to an orbit as long as the
period T; towards this it contracts by the spectral radius of the product of T rounds, to the power 1 / T in one.
"""

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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

_GOAL = 1e-3  # of the distance at the start, at which `rounds` ends
_PERIODS = 32  # of a power iteration
_SWEEPS, _FEWEST = 400, 40  # the same, of the schedule colored: at most, and at least of large graphs
_WORK = 720_000_000  # entries of the matrix, times sweeps, that they may take
_LARGE = 100_000  # devices above which they are in single precision: it takes half of the memory to walk over
_FLOOR = 1e-12  # of the largest change, below which changes are rounding


class Prediction(NamedTuple):
    """What theory expects of GTVMin for matched centroids.

    Attributes
    ----------
    contraction : Measure
        Asymptotic factor by which a round of the schedule jacobi, theta = 1, brings the centroids closer to where they
        end: 2c / (1 + 2c) on a regular graph at coupling c. Where links change, closer to the orbit that they end on.
    rounds : Measure
        Of this schedule until a thousandth of the distance is left at this rate: about 6.9 (1 + 2c).
    disagreement : Measure
        Share that is left of the longest-lived difference between devices: 1 / (1 + 2 c l) on a regular graph, l the
        second smallest eigenvalue of the normalized Laplacian. None where links change.
    contraction_colored, rounds_colored : Measure
        The same two of a round of the schedule colored: one color after the other, relaxed by theta. None without
        colors and where links change.
    residual_noise : Measure
        Share of the variance of the devices' means that is left in their differences, see `residual_noise`: over the
        number of points that a device has of a cluster, the excess of the cost ratio from noise alone, with labels
        fixed. None where links change.

    Notes
    -----
    Rates are those of the slowest mode, met when all others have died out. A run that starts near its end, as after a
    recipe, or that stops as soon as moves are small, takes fewer rounds, often far fewer.
    """

    contraction: Measure
    rounds: Measure
    disagreement: Measure
    contraction_colored: Measure
    rounds_colored: Measure
    residual_noise: Measure


class Fit(NamedTuple):
    """How fast the records of a run approached their end.

    Attributes
    ----------
    contraction : float or None
        Factor per round; None if there are not three changes to fit to.
    rounds : int
        Over which it was fitted.
    determination : float or None
        R^2 of the straight line through the logarithms of the changes: near 1, the approach was geometric.
    """

    contraction: float | None
    rounds: int
    determination: float | None


def predict(  # noqa: PLR0913 - what is known of the graph, and how it is used
    graph: AnyGraph, *, coupling: float | None = None, strength: float | None = None, seed: int = 0,
    colors: Integers | None = None, theta: float = 1.5, coupled: Spectrum | None = None,
) -> Prediction:  # fmt: skip
    """Predict how fast GTVMin converges on a graph, and how much its devices will differ then.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph
        The weights of its links multiply their strength.
    coupling : float, optional
        c: the strength of a link is c / sqrt(deg_i deg_j).
    strength : float, optional
        The same on every link instead: alpha over the number of points that a device has of a cluster.
    seed : int
        Of the random vectors of an estimate, which there is above 1,000 devices.
    colors : int64[n], optional
        Of the schedule colored: neighbors have different ones, from 0 on.
    theta : float
        Relaxation of the schedule colored.
    coupled : Spectrum, optional
        Of the Laplacian of the strengths, where it is known.

    Raises
    ------
    GraphError
        Unless one of coupling and strength is given, a number of at least 0.
    """
    given, links = _choose(coupling, strength), read(graph)
    if varies(graph):
        contraction = _follow_rounds(graph, given, scaled=strength is None)
        none = Measure(None, how="not predicted: links change")
        return Prediction(contraction, _count_rounds(contraction), none, none, none, none)
    strengths = _measure_strengths(links, given, scaled=strength is None)
    with ThreadPoolExecutor(2 if len(links) > EXACT else 1) as pool:  # each takes seconds on a large graph
        sweeps = None if colors is None else pool.submit(_sweep, links, strengths, colors, theta, seed)
        apart = pool.submit(_find_disagreement, links, strengths, seed, coupled)
        left_over = pool.submit(residual_noise, links, (given,), scaled=strength is None, seed=seed)
        contraction = _find_contraction(links, strengths, seed)
        swept = Measure(None, how="no colors") if sweeps is None else sweeps.result()
        left, noise = apart.result(), float(left_over.result()[0])
    rounds = swept if swept.value is None else _count_rounds(swept)
    probes = count_signs(len(links))
    how = "" if len(links) <= EIGENVALUES else f"{probes} vector{'s' * (probes > 1)} of random signs"
    return Prediction(contraction, _count_rounds(contraction), left, swept, rounds, Measure(noise, not how, how))


@single_thread()
def fit(values: Sequence[float], rounds: Sequence[int] | None = None) -> Fit:
    """Fit v_t = v + a q^t to values that approach an unknown limit.

    The changes v_s - v_t over equal numbers of rounds follow the same q, so q is the slope of a straight line through
    their logarithms. Its first third, where the start still shows, and changes that are rounding are left out.

    Parameters
    ----------
    values : sequence of float
        Such as the objective of each record: its distance to the end is quadratic, so the centroids contract by the
        square root of what is found.
    rounds : sequence of int, optional
        Of the records; None: 0, 1, 2, ...
    """
    import numpy as np

    heights = np.asarray(values, np.float64)
    times = np.arange(len(heights)) if rounds is None else np.asarray(rounds)
    if len(heights) != len(times):
        raise GraphError(f"there are {len(heights)} values of {len(times)} rounds; give one for each")
    steps = np.diff(times)
    usual = steps == (steps[0] if len(steps) else 0)  # the last record of a stage may come early
    changes, when = np.abs(np.diff(heights))[usual], times[:-1][usual]
    real = changes > _FLOOR * max(changes.max(initial=0.0), np.abs(heights).max(initial=0.0))
    until = len(real) if real.all() else int(np.argmin(real))
    first = until // 3
    if until - first < 3:
        return Fit(None, 0, None)
    t, logs = when[first:until], np.log(changes[first:until])
    slope = np.polyfit(t, logs, 1)
    spread = float(((logs - logs.mean()) ** 2).sum())
    missed = float(((logs - np.polyval(slope, t)) ** 2).sum())
    return Fit(float(np.exp(slope[0])), int(t[-1] - t[0] + steps[0]), 1 - missed / spread if spread else 1.0)


def fitted(trace: Sequence[Mapping[str, Any]], what: str = "objective") -> Fit:
    """Fit the contraction per round of the last stage of a run: see `fit`.

    Parameters
    ----------
    trace : sequence of mapping
        The records of a run in order, each with `stage`, `round` and figures, None where one is not known.
    what : str
        Which figure: `objective`, or `gtv`, the distance between neighbors.
    """
    known = [record for record in trace if record["stage"] == trace[-1]["stage"] and record[what] is not None]
    return fit([float(record[what]) for record in known], [int(record["round"]) for record in known])


def measure_strengths(links: CSRGraph, coupling: float | None, strength: float | None) -> Floats:
    """Return the strength of each directed edge, float64[2 * links], as `predict` takes it."""
    return _measure_strengths(links, _choose(coupling, strength), scaled=strength is None)


def _choose(coupling: float | None, strength: float | None) -> float:
    """Return the one that is given."""
    if (coupling is None) == (strength is None):
        raise GraphError("give either coupling or strength")
    given = coupling if strength is None else strength
    if given is None or not 0 <= given < math.inf:
        raise GraphError(f"coupling or strength is {given!r}; expected a number of at least 0")
    return given


def _measure_strengths(links: CSRGraph, given: float, *, scaled: bool, active: Mask | None = None) -> Floats:
    """Return the strength of each directed edge, float64[2 * links]; 0 if it is not active."""
    import numpy as np

    strengths = np.full(len(links.indices), float(given))
    if scaled:
        degrees = count_active(links, active)
        products = degrees.repeat(count_links(links)) * degrees[links.indices]
        strengths /= np.sqrt(np.maximum(products, 1).astype(np.float64))
    strengths = strengths if links.weights is None else strengths * links.weights
    return strengths if active is None else np.where(active, strengths, 0.0)


@single_thread()
def _follow_rounds(graph: Changing, given: float, *, scaled: bool) -> Measure:
    """Return the spectral radius of the product of the rounds of a period, to the power of one round.

    Its entries are at least 0, so a positive vector that it is multiplied by again and again grows by it in the end.
    """
    import numpy as np

    chosen, links = choose_rounds(graph, None), read(graph)
    matrices = []
    for t in range(chosen):
        matrix = to_matrix(links, 2 * _measure_strengths(links, given, scaled=scaled, active=graph.active(t)))
        matrix.eliminate_zeros()
        matrices.append((matrix, 1 + matrix @ np.ones(len(links))))
    if len(links) <= EXACT:
        product = np.eye(len(links))
        for matrix, rows in matrices:
            product = (matrix @ product) / rows[:, None]
        radius = Measure(float(np.abs(np.linalg.eigvals(product)).max()))
    else:
        radius = _grow(matrices, len(links))
    value = (radius.value or 0.0) ** (1 / chosen)
    return describe_window(graph, radius._replace(value=value), chosen)


def _grow(matrices: list[tuple[Any, Floats]], n: int) -> Measure:
    """Return by how much a positive vector grows, or shrinks, in a period: the mean over the later half of several."""
    import numpy as np

    vector, grown = np.ones(n), []
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
    """Return the spectral radius of (I + 2 R)^-1 2 S with the strengths S and their row sums R."""
    import numpy as np

    matrix = to_matrix(links, 2 * strengths)
    rows = matrix @ np.ones(len(links))
    if rows.max() - rows.min() <= 1e-12 * rows.max():  # then (1, ..., 1) is the eigenvector
        return Measure(float(rows[0] / (1 + rows[0])))
    half = 1 / np.sqrt(1 + rows)
    matrix.data *= np.repeat(half, count_links(links))
    matrix.data *= half[links.indices]
    return find_radius(matrix, seed)


@single_thread()
def _sweep(links: CSRGraph, strengths: Floats, colors: Integers, theta: float, seed: int) -> Measure:
    """Return the spectral radius of a round of successive over-relaxation, one color after the other.

    Up to 1,000 devices from all eigenvalues, above from how the norm of a random vector shrinks in the later half of
    many rounds: complex eigenvalues make it swing, so that is a mean. There are 400, of large graphs fewer, but 40 at
    least.
    """
    import numpy as np

    n, matrix = len(links), to_matrix(links, 2 * strengths)
    matrix.data *= np.repeat(1 / (1 + matrix @ np.ones(n)), count_links(links))
    members = [np.flatnonzero(colors == color) for color in range(int(colors.max()) + 1)]
    parts = [(rows, matrix[rows]) for rows in members]

    def sweep(vectors: Floats) -> Floats:
        for rows, part in parts:
            vectors[rows] += theta * (part @ vectors - vectors[rows])
        return vectors

    if n <= EXACT:
        return Measure(float(np.abs(np.linalg.eigvals(sweep(np.eye(n)))).max()))
    vector, logs = np.random.default_rng(seed).normal(size=n), list[float]()
    if n > _LARGE:
        vector, parts = vector.astype(np.float32), [(rows, part.astype(np.float32)) for rows, part in parts]
    sweeps = int(np.clip(_WORK // (matrix.nnz + n), _FEWEST, _SWEEPS))
    del matrix
    for _ in range(sweeps):
        vector = sweep(vector)
        size = float(np.linalg.norm(vector))
        if size == 0.0:
            return Measure(0.0, False, f"power iteration, {len(logs) + 1} rounds")
        logs.append(math.log(size))
        vector /= size
    later = logs[sweeps // 2 :]
    return Measure(math.exp(sum(later) / len(later)), False, f"power iteration, {sweeps} rounds")


def _count_rounds(contraction: Measure) -> Measure:
    value = contraction.value or 0.0
    return contraction._replace(value=math.log(_GOAL) / math.log(value) if value else 0.0)


def _find_disagreement(links: CSRGraph, strengths: Floats, seed: int, known: Spectrum | None) -> Measure:
    """Return 1 / (1 + 2 l), l the second smallest eigenvalue of the Laplacian of the strengths."""
    if len(links) == 1:
        return Measure(None, how="a single device")
    if not strengths.any() or not links.connected:
        return Measure(1.0)
    low = (known or find_spectrum(*laplacian(links, strengths), seed)).low()
    how = low.how.replace("an upper bound", "a lower bound")  # what rises with the eigenvalue falls here
    return Measure(1 / (1 + 2 * (low.value or 0.0)), low.exact, how)
