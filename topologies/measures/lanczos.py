"""The spectrum of a symmetric matrix: its eigenvalues, or, of a large one, a few that stand for all of them.

Lanczos' recurrence from a random vector gives, after t steps, t Ritz values and weights: the Gauss quadrature of the
spectrum as this vector sees it. Its ends approach those of the spectrum, and sums over it those over all eigenvalues
(Golub and Meurant, "Matrices, Moments and Quadrature", 2010; Ubaru, Chen and Saad, "Fast estimation of tr(f(A)) via
stochastic Lanczos quadrature", 2017). It keeps three vectors, so a million devices fit. Where it is slow because the
graph is long and thin, the inverse is walked through instead: a sparse factorisation costs little there. That resolves
the low end alone. A sum over the whole spectrum of a function that is smooth there takes few steps of the matrix
itself, and how many is known beforehand (`sample_spectrum`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from topologies.csr_graph import CSRGraph
from topologies.measures.types import EXACT, Floats, Measure, find_sources
from topologies.single_thread import single_thread

Make: TypeAlias = Callable[[], tuple[Any, Floats]]  # a matrix and its null vector
Advance: TypeAlias = Callable[..., tuple[Floats, Floats, Floats, Floats]]

_WORK = 720_000_000  # entries of the matrix, times steps, that a recurrence may take
_MOST = 2_000  # steps
_RITZ = 8_000  # steps of all probes together: each has its own Ritz values to find
_CLOSE = 0.01  # of an end of the spectrum: its residual, when a recurrence may stop; the error is about its square
_POOR = 0.5  # of an end: the residual from which on it is only a bound
_FACTORED = 20_000  # devices on cycles, up to which a factorisation costs little whatever the graph
_PROBES = 200_000  # devices and probes together: many vectors of few entries are as good as one of many
_SAMPLED, _SAMPLES, _SHARE = 500_000, 200, 4  # the same, probes at most, and part of the work, where few steps do


class Spectrum(NamedTuple):
    """Eigenvalues without the one of the null vector, or Ritz values that stand for them.

    Attributes
    ----------
    values : float64[v]
        Ascending.
    weights : float64[v]
        How many eigenvalues each one stands for.
    error : float
        Residual of the lowest, relative to it; 0 if the eigenvalues themselves are known.
    how : str
        Empty for eigenvalues.
    probes : int
    steps : int
        Of the recurrence; 0 if it has seen everything that its vectors see.
    """

    values: Floats
    weights: Floats
    error: float = 0.0
    how: str = ""
    probes: int = 0
    steps: int = 0

    @property
    def exact(self) -> bool:
        """Return whether these are the eigenvalues."""
        return not self.probes

    def low(self) -> Measure:
        """Return the lowest eigenvalue; an estimate is never below it, but for rounding."""
        return Measure(float(self.values[0]), self.exact, self._tell_end())

    def sum(self, function: Callable[[Floats], Floats]) -> Measure:
        """Return the sum of a function over all eigenvalues, and how far an estimate may be off."""
        total, error = self.estimate(function)
        if self.exact or not total:
            return Measure(total, self.exact, self.how)
        ends = f"; {_tell_residual(self.error, 'the low end counts too little')}" if self.error > _CLOSE else ""
        return Measure(total, False, f"{self.how}{ends}; standard error {100 * error / abs(total):.2g} %")

    def estimate(self, function: Callable[[Floats], Floats]) -> tuple[float, float]:
        """Return the sum of a function over all eigenvalues, and its standard error.

        Of a random unit vector u of N entries, N u'Fu has the variance 2 N / (N + 2) sum_i (f_i - mean f)^2.
        """
        import numpy as np

        values = function(self.values)
        total = float((self.weights * values).sum())
        if self.exact:
            return total, 0.0
        away = values - total / self.weights.sum()
        return total, float(np.sqrt(2 * (self.weights * away**2).sum() / self.probes))

    def _tell_end(self) -> str:
        if self.exact:
            return ""
        return f"{self.how}; {_tell_residual(self.error, 'an upper bound')}"


def find_spectrum(matrix: Any, null: Floats, seed: int) -> Spectrum:
    """Return the spectrum of a positive semidefinite matrix without its null vector.

    Parameters
    ----------
    matrix : csr_array[n, n]
    null : float64[n]
        The null vector, of length 1 and nowhere 0.
    seed : int
        Of the probes in a matrix of more than 1,000 rows.
    """
    import numpy as np

    n = len(null)
    if n <= EXACT:
        with single_thread():
            values = np.linalg.eigvalsh(matrix.toarray())[1:]
        values[np.abs(values) <= 1e-13 * n * np.abs(values).max(initial=0.0)] = 0.0
        return Spectrum(values, np.ones(n - 1))
    return _find(matrix, null, seed)[0]


def find_both(matrix: Any, null: Floats, steps: int, seed: int) -> tuple[Spectrum, Spectrum]:
    """Return what `find_spectrum` and `sample_spectrum` do, by one walk where the second would repeat the first."""
    found, path = _find(matrix, null, seed)
    return found, gather_sample(path, matrix.nnz, lambda: (matrix, null), steps, seed)


def gather_sample(path: "Path", entries: int, make: Make, steps: int, seed: int) -> Spectrum:
    """Return what `sample_spectrum` does, from a walk through a matrix with so many entries if that is the same."""
    steps, probes = _count_steps(path.size, entries, steps)
    if path.probes == probes and len(path.diagonal) >= steps:
        return path.gather((0, -1), steps)
    return sample_spectrum(*make(), steps, seed)


def _find(matrix: Any, null: Floats, seed: int) -> tuple[Spectrum, "Path"]:
    """Return the spectrum of a large matrix, and the walk through it."""
    starts = _draw(len(null), seed)
    path = _walk(lambda v: matrix @ v, starts, null, _limit(matrix.nnz + len(null), starts), (0, -1))
    return gather_spectrum(path, matrix.nnz, lambda: (matrix, null), seed), path


def gather_spectrum(path: "Path", entries: int, make: Make, seed: int) -> Spectrum:
    """Return the spectrum from a walk through a matrix with so many entries, or through its inverse."""
    found, n, links = path.gather((0, -1)), path.size, (entries - path.size) // 2
    if found.error > _CLOSE and min(n, 2 * (links - n) + 2) <= _FACTORED:
        matrix, null = make()
        found = _invert(matrix, _draw(n, seed), null, float(found.values[-1]))
    return found


def walk_three(advance: Advance, links: CSRGraph, strengths: Sequence[Floats], seed: int) -> list["Path"]:
    """Walk through the Laplacians of three strengths of the directed edges, side by side, until all ends stand still.

    Parameters
    ----------
    advance : callable
        `p2pkm.kernels.reference.lanczos`, or what does the same.
    links : CSRGraph
        Of so many devices that `find_spectrum` takes one probe.
    strengths : three of float64[2 * links]
    seed : int

    Returns
    -------
    list of Path
        One for each of the strengths.
    """
    import numpy as np

    n, sources = len(links), find_sources(links)
    rows = np.stack([np.bincount(sources, one, n) for one in strengths], axis=1)
    given = links.indptr, links.indices.astype(np.int32), np.stack(strengths, axis=1), rows
    del sources
    start = _draw(n, seed)
    limit = _limit(len(links.indices) + 2 * n, start)
    vectors = np.repeat(start - start.mean(), 3, axis=1)
    before, beside = np.zeros_like(vectors), [np.linalg.norm(vectors, axis=0)]
    diagonal: list[Floats] = []
    look = 20
    while True:
        steps = min(look, limit) - len(diagonal)
        before, vectors, main, next_to = advance(*given, before, vectors, beside[-1], steps)
        diagonal += list(main)
        beside += list(next_to)
        paths = [Path([row[[c]] for row in diagonal], [row[[c]] for row in beside[1:]], n).cut() for c in range(3)]
        still = all(_gauge(*_diagonalize(path.diagonal, path.beside, 0), (0, -1)) <= _CLOSE for path in paths)
        if len(diagonal) == limit or still:
            return paths
        look += look // 2


def _draw(n: int, seed: int) -> Floats:
    """Return the vectors that a walk begins with, float64[n, probes]."""
    import numpy as np

    return np.random.default_rng(seed).normal(size=(n, int(np.clip(_PROBES // n, 1, 64))))


def sample_spectrum(matrix: Any, null: Floats, steps: int, seed: int) -> Spectrum:
    """Return the quadrature of so many steps, exact for polynomials of degree 2 steps - 1, from as many probes as pay.

    Parameters
    ----------
    matrix, null, seed
        As of `find_spectrum`, of more than 1,000 rows.
    steps : int
        Fewer are taken where they would take long.
    """
    import numpy as np

    steps, probes = _count_steps(len(null), matrix.nnz, steps)
    starts = np.random.default_rng(seed).normal(size=(len(null), probes))
    return _walk(lambda v: matrix @ v, starts, null, steps, (0, -1), close=0.0).gather((0, -1))


def _count_steps(n: int, entries: int, wanted: int) -> tuple[int, int]:
    """Return how many of the steps wanted `sample_spectrum` takes, and from how many probes."""
    cost = entries + n
    steps = max(min(wanted, _WORK // cost, _MOST, n - 1), 1)
    return steps, max(min(_SAMPLED // n, _WORK // _SHARE // (cost * steps), _SAMPLES), 1)


def _limit(work: int, starts: Floats) -> int:
    """Return how many steps a walk may take, if one costs so much for each probe."""
    import numpy as np

    n, probes = starts.shape
    return int(np.clip(_WORK // (work * probes), 20, min(_MOST, _RITZ // probes, n - 1)))


def _walk(
    apply: Callable[[Floats], Floats],
    starts: Floats,
    null: Floats,
    limit: int,
    ends: tuple[int, ...],
    close: float = _CLOSE,
) -> "Path":
    """Walk from all starts at once until the ends of the spectrum stand still.

    Parameters
    ----------
    apply : callable
        Multiplies the matrix with float64[n, probes].
    limit : int
        Steps at most.
    ends : tuple of int
        Of the lowest (0) and the highest eigenvalue (-1), those that matter.
    close : float
        Their residual, relative to them, at which to stop.
    """
    import numpy as np

    probes = starts.shape[1]
    before, v, beta = np.zeros_like(starts), _part(starts, null), np.zeros(probes)
    v /= np.linalg.norm(v, axis=0)
    diagonal, beside = [], []
    look = 20
    while True:
        w, scratch = apply(v), before
        w -= np.multiply(before, beta, out=scratch)
        diagonal.append(np.einsum("ij,ij->j", v, w))
        w -= np.multiply(v, diagonal[-1], out=scratch)
        along = np.multiply(null[:, None], w, out=scratch).sum(axis=0)  # by BLAS it would depend on the threads
        w -= np.multiply(null[:, None], along, out=scratch)
        beta = np.sqrt(np.multiply(w, w, out=scratch).sum(axis=0))
        beside.append(beta)
        complete = _is_complete(diagonal[-1], beta)
        done = len(diagonal) == limit or complete
        if done or len(diagonal) == look:
            look += look // 2
            if done or _gauge(*_diagonalize(diagonal, beside, 0), ends) <= close:
                break
        w /= np.where(beta > 0, beta, 1.0)
        before, v = v, w
    return Path(diagonal, beside, len(null), complete)


def _is_complete(main: Floats, next_to: Floats) -> bool:
    """Return whether a step left nothing to see but rounding."""
    return bool(next_to.max() <= 1e-12 * abs(main).max())


class Path(NamedTuple):
    """What a recurrence tells of a matrix.

    Attributes
    ----------
    diagonal, beside : list of float64[probes]
        Its coefficients at each step.
    size : int
        Rows of the matrix.
    complete : bool
        Whether it has seen all there is to see.
    """

    diagonal: list[Floats]
    beside: list[Floats]
    size: int
    complete: bool = False

    @property
    def probes(self) -> int:
        """Return how many vectors the recurrence began with."""
        return len(self.diagonal[0])

    def cut(self) -> "Path":
        """Return it without the steps after one that left nothing to see."""
        for count, (main, next_to) in enumerate(zip(self.diagonal, self.beside, strict=True), 1):
            if _is_complete(main, next_to):
                return Path(self.diagonal[:count], self.beside[:count], self.size, complete=True)
        return self

    def gather(self, ends: tuple[int, ...], steps: int | None = None) -> Spectrum:
        """Put the quadratures of all probes together, after so many steps."""
        import numpy as np

        total = self.size - 1
        diagonal, beside, probes = self.diagonal[:steps], self.beside[:steps], self.probes
        count = len(diagonal)
        parts = [_diagonalize(diagonal, beside, probe) for probe in range(probes)]
        values, weights = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        error, order = min(_gauge(*part, ends) for part in parts), np.argsort(values)
        how = f"Lanczos, {count} steps from {probes} random vector{'s' * (probes > 1)}"
        seen = 0 if self.complete and count == len(self.diagonal) else count
        return Spectrum(values[order], weights[order] * total / probes, error, how, probes, seen)


def _gauge(values: Floats, weights: Floats, errors: Floats, ends: tuple[int, ...]) -> float:
    """Return the largest residual at these ends, relative to the eigenvalue."""
    return max(float(errors[end] / max(abs(values[end]), 1e-300)) for end in ends)


@single_thread("scipy.linalg")
def _diagonalize(diagonal: list[Floats], beside: list[Floats], probe: int) -> tuple[Floats, Floats, Floats]:
    """Return Ritz values, weights (together 1) and residuals of one probe, each float64[steps]."""
    import numpy as np
    from scipy.linalg import eigh_tridiagonal

    main, next_to = (np.array([row[probe] for row in rows]) for rows in (diagonal, beside))
    ends = np.flatnonzero(next_to <= 1e-12 * np.abs(main).max())
    steps = int(ends[0]) + 1 if len(ends) else len(main)  # beyond, the recurrence has seen everything
    values, vectors = eigh_tridiagonal(main[:steps], next_to[: steps - 1])
    return values, vectors[0] ** 2, next_to[steps - 1] * np.abs(vectors[-1])


@single_thread("scipy.sparse.linalg")
def _invert(matrix: Any, starts: Floats, null: Floats, high: float) -> Spectrum:
    """Return the spectrum from the inverse on what is orthogonal to the null vector.

    Without its first row and column the matrix of a connected graph is regular.
    """
    import numpy as np
    from scipy.sparse.linalg import splu

    solver = splu(matrix[1:, 1:].tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                  options={"SymmetricMode": True})  # fmt: skip

    def apply(v: Floats) -> Floats:
        return _part(np.concatenate((np.zeros((1, v.shape[1])), solver.solve(v[1:]))), null)

    path = _walk(apply, starts, null, _limit(matrix.nnz + solver.nnz, starts), (-1,))
    found = path.gather((-1,))
    values = np.append(1 / found.values[::-1], high)
    return found._replace(values=values, weights=np.append(found.weights[::-1], 0.0), how=f"{found.how}, inverted")


def _part(v: Floats, null: Floats) -> Floats:
    """Return what of the columns is orthogonal to the null vector."""
    return v - null[:, None] * (null[:, None] * v).sum(axis=0)


def find_radius(matrix: Any, seed: int) -> Measure:
    """Return the largest eigenvalue of a symmetric matrix without negative entries."""
    import numpy as np

    n = matrix.shape[0]
    if n <= EXACT:
        with single_thread():
            return Measure(float(np.linalg.eigvalsh(matrix.toarray())[-1]))
    return walk_to_top(lambda v: matrix @ v, n, matrix.nnz, seed)


def walk_to_top(apply: Callable[[Floats], Floats], n: int, work: int, seed: int) -> Measure:
    """Return the largest eigenvalue of the symmetric matrix that `apply` multiplies by; an estimate from below."""
    import numpy as np

    starts = 1 + np.random.default_rng(seed).random((n, 1))
    path = _walk(apply, starts, np.zeros(n), _limit(work + n, starts), (-1,), close=0.1 * _CLOSE)
    found = path.gather((-1,))
    return Measure(float(found.values[-1]), False, f"{found.how}; {_tell_residual(found.error, 'a lower bound')}")


def _tell_residual(error: float, bound: str) -> str:
    return f"residual {100 * error:.2g} %" if error < _POOR else f"not converged: {bound}"
