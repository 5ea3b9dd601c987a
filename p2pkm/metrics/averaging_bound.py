"""Bound on the speed of averaging by the eigenvalues of its weights, and the measured speed.

An averaging step has columns that add up to 1 and is reversible, so that ``S = D^(-1/2) A D^(1/2)`` is symmetric, with
D the loads of the devices. Let ``y_i = z_i - d_i sum z / sum d`` be the disagreement on a component of the graph. Then
``|D^(-1/2) A y| <= rho |D^(-1/2) y|``, where rho is the largest modulus of an eigenvalue of S without the eigenvalue 1
of each component (docs/explain/proofs.md). The method is measured, not its matrix: by the tables that devices hold.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.averaging_step import AveragingStep
from p2pkm.core.batch import Floats
from p2pkm.core.errors import ContractError
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network
from topologies.single_thread import single_thread

# Largest number of devices whose eigenvalues are computed: above, they take longer than the run.
MOST_DEVICES = 500
# Largest number of values of the tables of all devices that are gathered in a round.
_MOST_VALUES = 2_000_000
# Relative rounding error of one float64 operation.
_ROUNDOFF = 2.0**-53
# Errors of an eigenvalue of modulus at most 1 in units of n times the roundoff, of an exchange in units of its terms,
# and of sums and norms over the devices in units of their number; see docs/explain/proofs.md.
_OF_EIGENVALUE, _OF_EXCHANGE, _OF_SUM = 10.0, 6.0, 3.0
# Largest difference of two mirrored weights that rounding explains.
_REVERSIBLE = 1e-9
# Decimal places of the slack, because eigenvalues may differ in their last bits between processors.
_PLACES = 6


class MeasuredBound(NamedTuple):
    """A bound of a theorem, and what was measured; above the bound the slack is above 1."""

    bound: float
    measured: float

    @property
    def slack(self) -> float:
        """Share of the bound that was reached; rounded, but above 1 exactly if the bound is broken."""
        slack = round(self.measured / self.bound, _PLACES)
        return max(slack, 1.0 + 10.0**-_PLACES) if self.measured > self.bound else min(slack, 1.0)


class AveragingBound:
    """Largest factor per exchange by which disagreement remained in a run, beside its bound.

    All ranks call `observe` for every turn of the method's stage. Rounds that are not recorded are not measured.

    Parameters
    ----------
    step : AveragingStep
    topology : Topology
    network : Network
        Collective operations; nothing is counted as a message.
    every : int
        Number of rounds between two records.
    """

    def __init__(self, step: AveragingStep, topology: Topology, network: Network, every: int) -> None:
        self._step, self._components = step, topology.components
        self._network, self._every = network, every
        self._is_root = network.placement.rank == 0
        # At the start of the round: agreement, and of each column the disagreement and the rounding errors of a round.
        self._start: tuple[Floats, Floats, Floats] | None = None
        self._most_terms = int(topology.degrees.max(initial=0)) + 5
        self.bound = find_contraction(step, topology) if self._is_root else 1.0
        self.largest: float | None = None

    @property
    def measured(self) -> MeasuredBound | None:
        """Bound and measurement; None before the first measured round, and on ranks other than 0."""
        return None if self.largest is None else MeasuredBound(self.bound, self.largest)

    def observe(self, t: int, turn: int, state: Any) -> None:
        """Read the tables before a turn: the first and the last one of a recorded round.

        Parameters
        ----------
        t : int
            Round.
        turn : int
            Number of the turn, from 0.
        state : NamedTuple
            State of the method before the turn.
        """
        if t % self._every or turn not in (0, self._step.turns - 1):
            return
        # Not -1, which NumPy cannot resolve on a rank without devices.
        width = math.prod(state.averages.shape[1:])
        tables = self._network.gather_by_device(state.averages.reshape(len(state.averages), width))
        if tables is None or not self._is_root:
            return
        if turn == 0:
            goal, roots = self._agree(tables), np.sqrt(self._step.loads)[:, None]
            exchanges = self._step.turns - 1
            terms = _OF_EXCHANGE * exchanges * self._most_terms + _OF_SUM * (len(tables) + 4)
            self._start = goal, _norms((tables - goal) / roots), terms * _ROUNDOFF * _norms(tables / roots)
        elif self._start is not None:
            # Agreement is that of the start: a step that loses a part of the sums does not reach it.
            goal, start, errors = self._start
            end = _norms((tables - goal) / np.sqrt(self._step.loads)[:, None])
            # With equal tables on all devices there is nothing but rounding errors to measure.
            is_measurable = start > errors
            left = np.maximum(end - errors, 0.0)[is_measurable] / start[is_measurable]
            factor = float(left.max(initial=0.0)) ** (1.0 / (self._step.turns - 1))
            self.largest = factor if self.largest is None else max(self.largest, factor)
            self._start = None

    def _agree(self, tables: Floats) -> Floats:
        """Compute the tables of agreement: the sum of each component, divided among its devices by their loads."""
        components, loads = self._components, self._step.loads
        count = int(components.max(initial=-1)) + 1
        sums = np.zeros((count, tables.shape[1]))
        np.add.at(sums, components, tables)
        shares: Floats = loads / np.bincount(components, loads, count)[components]
        return shares[:, None] * sums[components]


def _norms(tables: Floats) -> Floats:
    """Compute the Euclidean norm of each column."""
    norms: Floats = np.sqrt(np.square(tables).cumsum(axis=0)[-1])
    return norms


def find_contraction(step: AveragingStep, topology: Topology) -> float:
    """Compute the largest modulus of the eigenvalues that disagreement can have, at most 1, rounded up.

    Raises
    ------
    ContractError
        If the step is not reversible.
    """
    n, components = topology.n, topology.components
    matrix = np.zeros((n, n))
    sources = topology.sources
    matrix[sources, topology.indices] = step.weights
    matrix[np.arange(n), np.arange(n)] = 1.0 - matrix.sum(axis=0)
    roots = np.sqrt(step.loads)
    matrix *= roots / roots[:, None]
    if np.abs(matrix - matrix.T).max() > _REVERSIBLE:
        raise ContractError(
            "averaging_step returned weights that are not reversible with its loads; expected A_ij loads_j equal to "
            "A_ji loads_i on every link. For symmetric weights the loads are 1; omit averaging_step for other ones"
        )
    # The eigenvectors of the eigenvalue 1: the roots of the loads, on each component.
    shares = step.loads / np.bincount(components, step.loads)[components]
    same = components[:, None] == components
    matrix -= np.where(same, np.sqrt(shares[:, None] * shares), 0.0)
    with single_thread():
        values = np.linalg.eigvalsh((matrix + matrix.T) / 2.0)
    return float(min(1.0, np.abs(values).max() + _OF_EIGENVALUE * n * _ROUNDOFF))


def watch_averaging(
    step: AveragingStep | None, topology: Topology, network: Network, every: int, values: int
) -> AveragingBound | None:
    """Create the measurement of a run; None if the theorem has nothing to say, or if it would take too long.

    Parameters
    ----------
    values : int
        Numbers in the table of a device.
    """
    n = topology.n
    if step is None or step.turns < 2 or n > MOST_DEVICES or n * values > _MOST_VALUES or not len(topology.indices):
        return None
    return AveragingBound(step, topology, network, every)


def summarize_averaging(averaging: AveragingBound | None) -> dict[str, float]:
    """Return bound, measured factor and slack for the summary; empty if nothing was measured."""
    measured = None if averaging is None else averaging.measured
    if measured is None:
        return {}
    # Six digits, because the bit-identity of results does not cover eigenvalues.
    values = {"bound": measured.bound, "bound_measured": measured.measured}
    return {key: float(f"{value:.6g}") for key, value in values.items()} | {"bound_slack": measured.slack}
