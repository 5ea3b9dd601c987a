"""Spectrum of a symmetric matrix: all eigenvalues or, for a large matrix, a weighted sample of Ritz values.

Lanczos' recurrence from a random vector gives, after t steps, t Ritz values and weights: a Gauss quadrature of the
spectrum, weighted by the vector. Its extreme values approach those of the spectrum, and its sums the sums over all
eigenvalues (Golub and Meurant, "Matrices, Moments and Quadrature", 2010; Ubaru, Chen and Saad, "Fast estimation of
tr(f(A)) via stochastic Lanczos quadrature", 2017). The recurrence keeps three vectors, so a million devices fit into
memory. It converges slowly on long and thin graphs. There a sparse factorization costs little, so the recurrence is run
with the inverse, which resolves the low end only. The sum of a smooth function over the spectrum needs few steps of the
matrix itself, and their number is known in advance (`sample_spectrum`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, Floats, Measure, find_sources
from topologies.single_thread import single_thread

Make: TypeAlias = Callable[[], tuple[Any, Floats]]  # builds a matrix and its null vector
Advance: TypeAlias = Callable[..., tuple[Floats, Floats, Floats, Floats]]

_WORK = 720_000_000  # most entries of the matrix, times steps and probes, of a recurrence
_MOST = 2_000  # most steps
_RITZ = 8_000  # most steps of all probes together, because each probe has a tridiagonal matrix to diagonalize
# Residual of an extreme eigenvalue, relative to it, at which a recurrence stops; the error is about its square.
_CLOSE = 0.01
_POOR = 0.5  # relative residual from which a value is reported as a bound only
# Devices up to which a factorization costs little for any graph, without those that are eliminated without fill-in.
_FACTORED = 20_000
# Devices times probes: many vectors with few entries estimate as well as one vector with many.
_PROBES = 200_000
_SAMPLED = 500_000  # the same for `sample_spectrum`, which takes fewer steps
_SAMPLES = 200  # most probes of `sample_spectrum`
_SHARE = 4  # divisor of `_WORK` for the probes of `sample_spectrum`


class Spectrum(NamedTuple):
    """Eigenvalues without that of the null vector, or Ritz values that represent them.

    Attributes
    ----------
    values : float64[v]
        Ascending.
    weights : float64[v]
        Number of eigenvalues that each value represents.
    error : float
        Residual of the lowest value, relative to it; 0 for eigenvalues.
    how : str
        Method of the estimate; empty for eigenvalues.
    probes : int
        Random start vectors; 0 for eigenvalues.
    steps : int
        Steps of the recurrence; 0 if it has exhausted its Krylov space.
    """

    values: Floats
    weights: Floats
    error: float = 0.0
    how: str = ""
    probes: int = 0
    steps: int = 0

    @property
    def exact(self) -> bool:
        """Whether the values are the eigenvalues."""
        return not self.probes

    def low(self) -> Measure:
        """Return the lowest eigenvalue; up to rounding, an estimate is an upper bound."""
        return Measure(float(self.values[0]), self.exact, self._describe_low())

    def sum(self, function: Callable[[Floats], Floats]) -> Measure:
        """Sum a function over all eigenvalues, with the error of an estimate."""
        total, error = self.estimate(function)
        if self.exact or not total:
            return Measure(total, self.exact, self.how)
        ends = f"; {_describe_residual(self.error, 'the low end has too little weight')}" if self.error > _CLOSE else ""
        return Measure(total, False, f"{self.how}{ends}; standard error {100 * error / abs(total):.2g} %")

    def estimate(self, function: Callable[[Floats], Floats]) -> tuple[float, float]:
        """Sum a function over all eigenvalues, and return the sum with its standard error.

        For a random unit vector u with N entries, N u'Fu has the variance 2 N / (N + 2) sum_i (f_i - mean f)^2.
        """
        import numpy as np

        values = function(self.values)
        total = float((self.weights * values).sum())
        if self.exact:
            return total, 0.0
        deviations = values - total / self.weights.sum()
        return total, float(np.sqrt(2 * (self.weights * deviations**2).sum() / self.probes))

    def _describe_low(self) -> str:
        if self.exact:
            return ""
        return f"{self.how}; {_describe_residual(self.error, 'an upper bound')}"


def find_spectrum(matrix: Any, null: Floats, seed: int) -> Spectrum:
    """Compute the spectrum of a positive semidefinite matrix without its null vector.

    Parameters
    ----------
    matrix : csr_array[n, n]
    null : float64[n]
        Null vector of length 1, without entries of 0.
    seed : int
        Seed of the probes for a matrix of more than 1,000 rows.
    """
    import numpy as np

    n = len(null)
    if n <= EXACT:
        with single_thread():
            values = np.linalg.eigvalsh(matrix.toarray())[1:]
        values[np.abs(values) <= 1e-13 * n * np.abs(values).max(initial=0.0)] = 0.0
        return Spectrum(values, np.ones(n - 1))
    return _estimate_spectrum(matrix, null, seed)[0]


def find_both(matrix: Any, null: Floats, steps: int, seed: int) -> tuple[Spectrum, Spectrum]:
    """Compute the results of `find_spectrum` and `sample_spectrum`, by one recurrence if both would be the same."""
    spectrum, recurrence = _estimate_spectrum(matrix, null, seed)
    return spectrum, gather_sample(recurrence, matrix.nnz, lambda: (matrix, null), steps, seed)


def gather_sample(recurrence: "Recurrence", entries: int, make: Make, steps: int, seed: int) -> Spectrum:
    """Compute the result of `sample_spectrum`, from a given recurrence if it has the same probes and enough steps."""
    steps, probes = _count_steps(recurrence.size, entries, steps)
    if recurrence.probes == probes and len(recurrence.diagonal) >= steps:
        return recurrence.gather((0, -1), steps)
    return sample_spectrum(*make(), steps, seed)


def _estimate_spectrum(matrix: Any, null: Floats, seed: int) -> tuple[Spectrum, "Recurrence"]:
    """Estimate the spectrum of a large matrix, and return it with the recurrence."""
    starts = _draw_starts(len(null), seed)
    limit = _limit_steps(matrix.nnz + len(null), starts)
    recurrence = _run_recurrence(lambda v: matrix @ v, starts, null, limit, (0, -1))
    return gather_spectrum(recurrence, matrix.nnz, lambda: (matrix, null), seed), recurrence


def gather_spectrum(recurrence: "Recurrence", entries: int, make: Make, seed: int) -> Spectrum:
    """Compute the spectrum from a recurrence or, if its low end has not converged, from the inverse matrix."""
    spectrum = recurrence.gather((0, -1))
    n = recurrence.size
    links = (entries - n) // 2
    # Eliminating devices with one or two links creates no fill-in. In the remaining graph, devices have at least three
    # links, so there are at most 2 (links - n) of them.
    if spectrum.error > _CLOSE and min(n, 2 * (links - n) + 2) <= _FACTORED:
        matrix, null = make()
        spectrum = _invert(matrix, _draw_starts(n, seed), null, float(spectrum.values[-1]))
    return spectrum


def run_three_recurrences(
    advance: Advance, links: CSRGraph, strengths: Sequence[Floats], seed: int
) -> list["Recurrence"]:
    """Run the recurrence with the Laplacians of three strengths of directed edges until all ends have converged.

    Parameters
    ----------
    advance : callable
        Function with the interface of `p2pkm.kernels.reference.lanczos`.
    links : CSRGraph
        Graph with enough devices for one probe, see `find_spectrum`.
    strengths : three of float64[2 * links]
    seed : int

    Returns
    -------
    list of Recurrence
        One for each strength.
    """
    import numpy as np

    n = len(links)
    sources = find_sources(links)
    rows = np.stack([np.bincount(sources, strength, n) for strength in strengths], axis=1)
    arrays = links.indptr, links.indices.astype(np.int32), np.stack(strengths, axis=1), rows
    # One entry per directed edge, which is not needed during the recurrence.
    del sources
    start = _draw_starts(n, seed)
    limit = _limit_steps(len(links.indices) + 2 * n, start)
    vectors = np.repeat(start - start.mean(), 3, axis=1)
    previous = np.zeros_like(vectors)
    off_diagonal = [np.linalg.norm(vectors, axis=0)]
    diagonal: list[Floats] = []
    # Convergence is checked after 20 steps, then at intervals that grow by half.
    next_check = 20
    while True:
        steps = min(next_check, limit) - len(diagonal)
        previous, vectors, main, off_main = advance(*arrays, previous, vectors, off_diagonal[-1], steps)
        diagonal += list(main)
        off_diagonal += list(off_main)
        recurrences = [
            Recurrence([row[[c]] for row in diagonal], [row[[c]] for row in off_diagonal[1:]], n).cut()
            for c in range(3)
        ]
        residuals = [
            _largest_residual(*_diagonalize(recurrence.diagonal, recurrence.off_diagonal, 0), (0, -1))
            for recurrence in recurrences
        ]
        if len(diagonal) == limit or all(residual <= _CLOSE for residual in residuals):
            return recurrences
        next_check += next_check // 2


def _draw_starts(n: int, seed: int) -> Floats:
    """Draw the start vectors of a recurrence, float64[n, probes]."""
    import numpy as np

    return np.random.default_rng(seed).normal(size=(n, int(np.clip(_PROBES // n, 1, 64))))


def sample_spectrum(matrix: Any, null: Floats, steps: int, seed: int) -> Spectrum:
    """Compute a quadrature of the spectrum that is exact for polynomials of degree 2 steps - 1 on each probe.

    Parameters
    ----------
    matrix, null, seed
        As in `find_spectrum`, with more than 1,000 rows.
    steps : int
        Steps of the recurrence; fewer are taken if they would take too long.
    """
    import numpy as np

    steps, probes = _count_steps(len(null), matrix.nnz, steps)
    starts = np.random.default_rng(seed).normal(size=(len(null), probes))
    return _run_recurrence(lambda v: matrix @ v, starts, null, steps, (0, -1), close=0.0).gather((0, -1))


def _count_steps(n: int, entries: int, requested: int) -> tuple[int, int]:
    """Return the numbers of steps and probes of `sample_spectrum`, of at most the requested steps."""
    cost = entries + n
    steps = max(min(requested, _WORK // cost, _MOST, n - 1), 1)
    return steps, max(min(_SAMPLED // n, _WORK // _SHARE // (cost * steps), _SAMPLES), 1)


def _limit_steps(work: int, starts: Floats) -> int:
    """Return the most steps of a recurrence whose steps cost `work` per probe."""
    import numpy as np

    n, probes = starts.shape
    return int(np.clip(_WORK // (work * probes), 20, min(_MOST, _RITZ // probes, n - 1)))


def _run_recurrence(
    apply: Callable[[Floats], Floats],
    starts: Floats,
    null: Floats,
    limit: int,
    ends: tuple[int, ...],
    close: float = _CLOSE,
) -> "Recurrence":
    """Run Lanczos' recurrence from all start vectors at once until the ends of the spectrum have converged.

    Parameters
    ----------
    apply : callable
        Multiplies the matrix by float64[n, probes].
    starts : float64[n, probes]
    null : float64[n]
        Null vector, which is projected out.
    limit : int
        Most steps.
    ends : tuple of int
        Eigenvalues that must converge: 0 for the lowest, -1 for the highest.
    close : float, default=0.01
        Relative residual of these eigenvalues at which the recurrence stops.
    """
    import numpy as np

    probes = starts.shape[1]
    previous = np.zeros_like(starts)
    v = _project_out(starts, null)
    beta = np.zeros(probes)
    v /= np.linalg.norm(v, axis=0)
    diagonal, off_diagonal = [], []
    # Convergence is checked after 20 steps, then at intervals that grow by half.
    next_check = 20
    while True:
        # The previous vectors are not needed after the next line, so their array is used for intermediate results.
        w = apply(v)
        scratch = previous
        w -= np.multiply(previous, beta, out=scratch)
        diagonal.append(np.einsum("ij,ij->j", v, w))
        w -= np.multiply(v, diagonal[-1], out=scratch)
        # Not by BLAS, whose sums depend on the number of threads.
        component = np.multiply(null[:, None], w, out=scratch).sum(axis=0)
        w -= np.multiply(null[:, None], component, out=scratch)
        beta = np.sqrt(np.multiply(w, w, out=scratch).sum(axis=0))
        off_diagonal.append(beta)
        complete = _is_complete(diagonal[-1], beta)
        done = len(diagonal) == limit or complete
        if done or len(diagonal) == next_check:
            next_check += next_check // 2
            if done or _largest_residual(*_diagonalize(diagonal, off_diagonal, 0), ends) <= close:
                break
        w /= np.where(beta > 0, beta, 1.0)
        previous, v = v, w
    return Recurrence(diagonal, off_diagonal, len(null), complete)


def _is_complete(main: Floats, off_main: Floats) -> bool:
    """Return whether the Krylov space is exhausted: the next vectors consist of rounding errors."""
    return bool(off_main.max() <= 1e-12 * abs(main).max())


class Recurrence(NamedTuple):
    """Coefficients of Lanczos' recurrence.

    Attributes
    ----------
    diagonal, off_diagonal : list of float64[probes]
        Entries of the tridiagonal matrices at each step.
    size : int
        Rows of the matrix.
    complete : bool
        Whether the Krylov space is exhausted.
    """

    diagonal: list[Floats]
    off_diagonal: list[Floats]
    size: int
    complete: bool = False

    @property
    def probes(self) -> int:
        """Number of start vectors."""
        return len(self.diagonal[0])

    def cut(self) -> "Recurrence":
        """Remove the steps after the one that exhausted the Krylov space."""
        for count, (main, off_main) in enumerate(zip(self.diagonal, self.off_diagonal, strict=True), 1):
            if _is_complete(main, off_main):
                return Recurrence(self.diagonal[:count], self.off_diagonal[:count], self.size, complete=True)
        return self

    def gather(self, ends: tuple[int, ...], steps: int | None = None) -> Spectrum:
        """Combine the quadratures of all probes after a number of steps; None: all steps."""
        import numpy as np

        total = self.size - 1
        diagonal, off_diagonal = self.diagonal[:steps], self.off_diagonal[:steps]
        probes = self.probes
        count = len(diagonal)
        parts = [_diagonalize(diagonal, off_diagonal, probe) for probe in range(probes)]
        values, weights = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        error = min(_largest_residual(*part, ends) for part in parts)
        order = np.argsort(values)
        how = f"Lanczos, {count} steps from {probes} random vector{'s' * (probes > 1)}"
        limiting_steps = 0 if self.complete and count == len(self.diagonal) else count
        return Spectrum(values[order], weights[order] * total / probes, error, how, probes, limiting_steps)


def _largest_residual(values: Floats, weights: Floats, errors: Floats, ends: tuple[int, ...]) -> float:
    """Return the largest residual at the given ends, relative to the eigenvalue."""
    return max(float(errors[end] / max(abs(values[end]), 1e-300)) for end in ends)


@single_thread("scipy.linalg")
def _diagonalize(diagonal: list[Floats], off_diagonal: list[Floats], probe: int) -> tuple[Floats, Floats, Floats]:
    """Compute Ritz values, weights with sum 1, and residuals of one probe, each float64[steps]."""
    import numpy as np
    from scipy.linalg import eigh_tridiagonal

    main, off_main = (np.array([row[probe] for row in rows]) for rows in (diagonal, off_diagonal))
    # The Krylov spaces of some probes may be exhausted before those of others.
    ends = np.flatnonzero(off_main <= 1e-12 * np.abs(main).max())
    steps = int(ends[0]) + 1 if len(ends) else len(main)
    values, vectors = eigh_tridiagonal(main[:steps], off_main[: steps - 1])
    return values, vectors[0] ** 2, off_main[steps - 1] * np.abs(vectors[-1])


@single_thread("scipy.sparse.linalg")
def _invert(matrix: Any, starts: Floats, null: Floats, high: float) -> Spectrum:
    """Compute the spectrum by the recurrence with the inverse, on the complement of the null vector.

    The matrix of a connected graph is regular without its first row and column.
    """
    import numpy as np
    from scipy.sparse.linalg import splu

    solver = splu(matrix[1:, 1:].tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                  options={"SymmetricMode": True})  # fmt: skip

    def apply(v: Floats) -> Floats:
        return _project_out(np.concatenate((np.zeros((1, v.shape[1])), solver.solve(v[1:]))), null)

    limit = _limit_steps(matrix.nnz + solver.nnz, starts)
    inverse = _run_recurrence(apply, starts, null, limit, (-1,)).gather((-1,))
    values = np.append(1 / inverse.values[::-1], high)
    weights = np.append(inverse.weights[::-1], 0.0)
    return inverse._replace(values=values, weights=weights, how=f"{inverse.how}, inverted")


def _project_out(v: Floats, null: Floats) -> Floats:
    """Subtract the component along the null vector from each column."""
    return v - null[:, None] * (null[:, None] * v).sum(axis=0)


def find_radius(matrix: Any, seed: int) -> Measure:
    """Compute the largest eigenvalue of a symmetric matrix without negative entries."""
    import numpy as np

    n = matrix.shape[0]
    if n <= EXACT:
        with single_thread():
            return Measure(float(np.linalg.eigvalsh(matrix.toarray())[-1]))
    return estimate_largest(lambda v: matrix @ v, n, matrix.nnz, seed)


def estimate_largest(apply: Callable[[Floats], Floats], n: int, work: int, seed: int) -> Measure:
    """Estimate, from below, the largest eigenvalue of the symmetric matrix that `apply` multiplies by."""
    import numpy as np

    starts = 1 + np.random.default_rng(seed).random((n, 1))
    recurrence = _run_recurrence(apply, starts, np.zeros(n), _limit_steps(work + n, starts), (-1,), close=0.1 * _CLOSE)
    spectrum = recurrence.gather((-1,))
    how = f"{spectrum.how}; {_describe_residual(spectrum.error, 'a lower bound')}"
    return Measure(float(spectrum.values[-1]), False, how)


def _describe_residual(error: float, bound: str) -> str:
    return f"residual {100 * error:.2g} %" if error < _POOR else f"not converged: {bound}"
