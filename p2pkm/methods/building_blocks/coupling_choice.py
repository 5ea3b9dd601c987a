"""Choice of the coupling: expected excess, rule for a graph, and optimal relaxation.

The underlying theorem is in docs/explain/proofs.md, "What a coupling leaves of the noise".
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.sorting import find_distinct, find_runs, sort_by
from p2pkm.core.spec import suggest
from p2pkm.core.units import count
from p2pkm.core.validation import check_positive
from p2pkm.network.graph import Topology

# Couplings that are chosen by name; those that stages before the method estimate from differences between neighbors.
ESTIMATED = ("bayes", "links", "auto")
COUPLINGS = ("strong", *ESTIMATED)
# Couplings of which "auto" chooses one. Of equal ones the first is chosen.
WITHOUT_SHARES = ("strong", "bayes", "links")
CHOICES = (*WITHOUT_SHARES, *(f"{name} with shares" for name in WITHOUT_SHARES))
# Smallest coupling of small graphs, and of large ones.
WEAK = 10.0
STRONG = 30.0
# Smallest number of devices, and smallest diameter, of a large graph.
_LARGE = 10
_LONG = 8
# Couplings that are tried, in this order, about half a decade apart.
_LADDER = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
# Largest excess of the mean cost ratio that the rule without messages accepts: 0.1 %.
_EXCESS = 1e-3
# Largest relaxation factor: theorem 3 requires less than 2.
_MAX_RELAXATION = 1.999


class Components(NamedTuple):
    """Connected components of a graph, each with a coupling of its own. Public, like the number of all points.

    Attributes
    ----------
    number : int64[N]
        Component of each device of the system.
    devices, points : int64[c]
        Number of devices of each component, and of their points.
    weight : float64[c]
        Weight of these points.
    links : float64[c]
        Sum of the weights of its links.
    """

    number: Integers
    devices: Integers
    points: Integers
    weight: Floats
    links: Floats

    @classmethod
    def of(cls, topology: Topology, sizes: Integers, weights: Floats | None) -> "Components":
        """Add up the numbers of points of all devices, int64[N], their weights (None: 1 each), and the links."""
        number = topology.components
        devices = np.bincount(number)
        lower = topology.sources < topology.indices
        # In the order of devices and links, as for a component alone.
        points: Floats = np.bincount(number, sizes).astype(np.float64)
        weight: Floats = points if weights is None else np.bincount(number, weights).astype(np.float64)
        owner = number[topology.sources[lower]]
        links: Floats = np.bincount(owner, topology.weights[lower], len(devices)).astype(np.float64)
        return cls(number, devices, points.astype(np.int64), weight, links)


def name_choices(chosen: Integers) -> str:
    """Name the choice of all components, int64[c], positions in `CHOICES`; with their numbers if choices differ."""
    counts = np.bincount(chosen, minlength=len(CHOICES)).tolist()
    made = {name: number for name, number in zip(CHOICES, counts, strict=True) if number}
    if len(made) == 1:
        return next(iter(made))
    return ", ".join(f"{name} ({count(number, 'component')})" for name, number in made.items())


def for_each_coupling(compute: Callable[[float], float], couplings: Floats) -> Floats:
    """Compute a function of the coupling of each device, float64[n], once for each coupling."""
    firsts = find_runs(couplings)
    values = {coupling: compute(coupling) for coupling in set(couplings[firsts].tolist())}
    found = np.array([values[coupling] for coupling in couplings[firsts].tolist()])
    return np.repeat(found, np.diff(firsts, append=len(couplings)))


def check_coupling(value: object, most: float = sys.float_info.max) -> None:
    """Validate a coupling: a number of at least 0 and at most `most`, or a name.

    Raises
    ------
    ExperimentError
    """
    if value in COUPLINGS:
        return
    if isinstance(value, str):
        raise ExperimentError(f"coupling is {value!r}; expected a number, or a name. {suggest(value, COUPLINGS)}")
    check_positive(value, "coupling", zero=True, most=most)


def least_coupling(total: int, hops: int) -> float:
    """Compute the smallest coupling on a graph with `total` devices and diameter `hops`."""
    return STRONG if total >= _LARGE or hops >= _LONG else WEAK


def predict_excess(topology: Topology, coupling: float, points: int, k: int) -> float:
    """Compute the expected excess of the mean cost ratio from sampling noise at a coupling c.

    ``E(c) = (1 / (n n_c)) sum_q (1 + 2 c mu_q)^-2`` over all eigenvalues but one of each component, with
    n_c = m / (n k); see `topologies.measures.residual_noise`. Assumptions: a random partition into devices of equal
    size, k clusters of equal size and spread, and fixed labels. If clusters overlap, points change their labels, and
    the measured excess is larger; see docs/explain/proofs.md.
    """
    return float(_expected_excess(topology, (coupling,), points, k)[0])


def choose_coupling(topology: Topology, points: int, k: int) -> float:
    """Choose the smallest of the couplings 10 (small graphs only), 30, 100, 300, ... with an expected excess <= 0.001.

    If none of them suffices, the result is the largest one, 100,000. Without points all suffice.
    """
    ladder = _couplings_from_least(topology)
    if not points:
        return ladder[0]
    suffices = _expected_excess(topology, ladder, points, k, _EXCESS) <= _EXCESS
    return ladder[int(np.argmax(suffices))] if suffices.any() else ladder[-1]


def choose_couplings(topology: Topology, components: Components, k: int, numbers: Integers) -> Floats:
    """Choose the coupling of components, float64[s], by their numbers: each as if its graph and points were all."""
    if not len(numbers):
        return np.zeros(0)
    rows, offsets = sort_by(components.number, len(components.devices))
    members = rows.astype(np.int64, copy=False)
    chosen = np.zeros(len(components.devices))
    for number in find_distinct(numbers).tolist():
        graph = topology.select(members[offsets[number] : offsets[number + 1]])
        chosen[number] = choose_coupling(graph, int(components.points[number]), k)
    return chosen[numbers]


def optimal_relaxation(coupling: float) -> float:
    """Compute the optimal over-relaxation of the slowest mode, at most 1.999.

    ``theta = 2 / (1 + sqrt(1 - rho^2))`` with ``rho = 2 c / (1 + 2 c)``.
    """
    return min(2 / (1 + (1 + 4 * coupling) ** 0.5 / (1 + 2 * coupling)), _MAX_RELAXATION)


def _couplings_from_least(topology: Topology) -> tuple[float, ...]:
    """List the couplings to try, from the smallest one on this graph."""
    least = least_coupling(topology.n, topology.hops)
    return tuple(coupling for coupling in _LADDER if coupling >= least)


def _expected_excess(
    topology: Topology, couplings: tuple[float, ...], points: int, k: int, enough: float = 0.0
) -> Floats:
    """Compute the expected excess at each coupling, float64[couplings]; NaN after the first one up to `enough`."""
    from topologies.measures import residual_noise

    points_per_cluster = points / (topology.n * k)
    excess: Floats = residual_noise(topology, couplings, enough=enough * points_per_cluster) / points_per_cluster
    return excess
