from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.averaging import local_sums
from p2pkm.methods.init.value import Init


@register("matched")
class MatchedState(NamedTuple):
    """centroids: float64[n, k, d]; converged: bool[n]; pairs: float64[n, k, d + 1], a Lloyd step and counts."""

    centroids: Any
    converged: Any
    pairs: Any


@dataclass(frozen=True)
class Matched(MethodBase):
    """Lloyd steps, averaged with the matching centroids of the neighbors."""

    k: int
    _: KW_ONLY
    init: Init | str = "flooded-summaries"
    tol: float = 1e-4  # a converged device moved no coordinate by more than tol * devices.data_std

    name: ClassVar[str] = "matched"
    schedule: ClassVar[str] = "jacobi"  # all devices act in every turn
    default_rounds: ClassVar[int] = 50

    @property
    def traits(self) -> MethodTraits:
        """Properties of the method, see `p2pkm.core.traits`."""
        return MethodTraits(message_content=MessageContent.CENTROIDS, init=self.init)

    def expected_messages(self, known: Known) -> EveryTurn:
        """Predict the messages for `plan`: in every turn k rows of a centroid and its count."""
        return EveryTurn(self.k, known.features + 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", Init.of(self.init))  # text is parsed here only

    def initial_state(self, devices: Devices, start: Any) -> MatchedState:
        """Take the first Lloyd step."""
        return MatchedState(start.centroids, np.zeros(len(devices), np.bool_), step(devices, start.centroids))

    def message(self, state: MatchedState, devices: Devices) -> DenseMessages:
        """Send the centroids with their counts, without rows of absent centroids (+inf)."""
        return DenseMessages(state.pairs, np.where(devices.active_devices, count_rows(state.pairs), -1))

    def update(self, state: MatchedState, inbox: Inbox, devices: Devices) -> MatchedState:
        """Average with the received tables, then take the next Lloyd step."""
        centroids = state.centroids.copy()
        for i in np.flatnonzero(devices.active_devices):  # built-in methods do this for all devices at once
            local = state.pairs[i, : count_rows(state.pairs[i])]
            sums = local[:, :-1] * local[:, -1:]
            counts = local[:, -1].copy()
            for edge in range(devices.indptr[i], devices.indptr[i + 1]):  # neighbors in ascending id
                count = inbox.rows_of(edge)
                if devices.active_edges[edge] and count >= 0:  # an active link over which a table was received
                    table = inbox.tables_of(edge, count, local.shape[1])
                    rows, partners = match(local[:, :-1], table[:, :-1])
                    sums[rows] += table[partners, :-1] * table[partners, -1:]
                    counts[rows] += table[partners, -1]
            present = np.flatnonzero(counts)  # a centroid without weight does not move
            centroids[i, present] = sums[present] / counts[present, None]
        with np.errstate(invalid="ignore"):  # absent rows: inf - inf
            moves = np.fmax.reduce(np.abs(centroids - state.centroids), axis=(1, 2), initial=0.0)
        converged = np.where(devices.active_devices, moves <= self.tol * devices.data_std, state.converged)
        return MatchedState(centroids, converged, step(devices, centroids))


def step(devices, centroids):
    """Compute the centroids after a Lloyd step on local points, with their counts, float64[n, k, d + 1]."""
    sums = local_sums(devices, centroids)  # small clusters are left out with --min-cluster-size
    counts = sums[:, :, -1:]
    new = np.where(counts > 0.0, sums[:, :, :-1] / np.where(counts > 0.0, counts, 1.0), centroids)
    return np.concatenate((new, counts), axis=2)


def count_rows(tables):
    """Count the rows before the absent ones."""
    return (tables[..., 0] < np.inf).sum(axis=-1)


def match(rows, others):
    """Pair rows of two tables with the least sum of squared distances."""
    from scipy.optimize import linear_sum_assignment  # imported late: sixteen ranks import it sixteen times

    return linear_sum_assignment(((rows[:, None] - others) ** 2).sum(axis=2))
