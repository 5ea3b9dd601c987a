"""Selection of one of several candidate clusterings by the sum of all local losses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox, pack
from p2pkm.core.protocols import MethodBase
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, distinct_collections, receive, send
from p2pkm.methods.init.flooded_summaries import summarize

# Estimated numbers per device in a block of `candidate_costs`.
_NUMBERS_PER_DEVICE = 64


@register("select-candidate")
class SelectCandidateState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        First candidate until the device has selected one.
    converged : bool[n]
        Devices that have selected a candidate.
    candidates : float64[n, q, k, d]
    flood : Flood
    """

    centroids: Floats
    converged: Mask
    candidates: Floats
    flood: Flood


@dataclass(frozen=True)
class SelectCandidate(MethodBase):
    """Selection of the candidate of least pooled cost, by flooding local losses.

    Requires a previous stage whose state has `candidates`.

    Attributes
    ----------
    k : int
        Number of clusters.
    candidates : int, default=1
        Number of candidates.

    Notes
    -----
    **Objective.** ``W <- W^q`` with ``q = argmin_q sum_i L_i(W^q)``, the lowest q on ties; L_i is the local loss (6) of
    Jung 2025.

    **Messages.** The losses of the candidates on local points, one row, flooded. The id of the origin is not counted. A
    device without points sends an empty table.

    **Privacy.** No guarantee. All devices receive the losses of every device: d + 1 losses of a single point reveal its
    position. With a `min_cluster_size` losses are computed on the local summary that was sent before
    (`evaluation_points`), so they reveal nothing more. A device that could not send a summary sends an empty table.
    """

    name: ClassVar[str] = "select-candidate"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER, ends_under_faults=True, common_centroids=True
    )
    k: int
    candidates: int = 1
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Count the losses of all candidates."""
        return Flooding(1, self.candidates)

    def initial_state(self, devices: Devices, start: Any) -> SelectCandidateState:
        """Compute the losses of the candidates on the local points."""
        candidates: Floats = start.candidates
        evaluated = evaluation_points(devices, self.k)
        # Devices that received the same summaries have the same candidates.
        is_new = np.ones(len(candidates), np.bool_)
        is_new[1:] = (candidates[1:] != candidates[:-1]).any(axis=(1, 2, 3))
        losses = candidate_costs(devices, evaluated, candidates[is_new], lambda q, block: candidates[block, q].copy())
        rows = (np.diff(evaluated[2]) > 0).astype(np.int64)
        flood = begin(devices, losses[:, None, :], rows)
        return SelectCandidateState(candidates[:, 0].copy(), np.zeros(len(devices), np.bool_), candidates, flood)

    def message(self, state: SelectCandidateState, devices: Devices) -> DenseMessages:
        """Forward the losses received in the last turn."""
        return send(state.flood, devices)

    def update(self, state: SelectCandidateState, inbox: Inbox, devices: Devices) -> SelectCandidateState:
        """Store received losses; select a candidate if none was new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.new_origins.any(axis=1))
        members = np.flatnonzero(ready & ~state.converged)
        centroids = state.centroids.copy()
        if len(members):
            collections, numbers = distinct_collections(flood, members)
            zero = np.zeros((1, state.candidates.shape[1]))
            # cumsum adds in the order of origins, so that all devices get the same bits.
            totals = [np.cumsum(np.concatenate((zero, losses)), axis=0)[-1] for losses in collections]
            best = np.argmin(totals, axis=1)[numbers]
            centroids[members] = state.candidates[members, best]
        return SelectCandidateState(centroids, ready, state.candidates, flood)


def evaluation_points(devices: Devices, k: int) -> tuple[NDArray[Any], Floats, Integers]:
    """Select the points, weights and offsets on which candidates are evaluated: the local points of each device.

    With a `min_cluster_size`, the summary rows (centroid, count) of each device, which were sent before.
    """
    if devices.min_count < 2:
        return devices.kernel_inputs
    tables, rows = pack(summarize(devices, k))
    real = tables[np.arange(k) < rows[:, None]]
    return np.ascontiguousarray(real[:, :-1]), np.ascontiguousarray(real[:, -1]), np.concatenate(([0], np.cumsum(rows)))


def candidate_costs(
    devices: Devices,
    evaluated: tuple[NDArray[Any], Floats, Integers],
    tables: Floats,
    get_sets: Callable[[int, slice], Floats],
) -> Floats:
    """Compute the cost of each candidate on the evaluation points of every device, float64[n, q].

    Parameters
    ----------
    devices : Devices
    evaluated : tuple
        Result of `evaluation_points`.
    tables : float64[t, q, k, d]
        Distinct candidates of the devices.
    get_sets : callable
        Returns candidate number q of a range of devices, float64[devices, k, d].
    """
    costs = np.empty((len(devices), tables.shape[1]))
    points, weights, offsets = evaluated
    # In blocks of devices: the labels of all points and a candidate of all devices would take gigabytes.
    for number, first in enumerate(find_repeated(tables)):
        if first < number:
            # The order of the centroids has no influence on a cost.
            costs[:, number] = costs[:, first]
            continue
        for block in blocks(len(devices), _NUMBERS_PER_DEVICE):
            rows = slice(int(offsets[block.start]), int(offsets[block.stop]))
            part = points[rows], weights[rows], offsets[block.start : block.stop + 1] - rows.start
            costs[block, number] = devices.kernels.losses(*part, get_sets(number, block))[0]
    return costs


def find_repeated(tables: Floats) -> list[int]:
    """Find for each candidate the first one with the same centroids on all devices, in any order.

    In well-separated clusters, most clusterings of the same rows end with the same centroids. Candidates in which two
    centroids have the same first coordinate may count as different.

    Parameters
    ----------
    tables : float64[t, q, k, d]
    """
    order = tables[..., 0].argsort(axis=2, kind="stable")
    ordered = np.take_along_axis(tables, order[..., None], axis=2)
    numbers = range(tables.shape[1])
    return [next(i for i in numbers if i == q or (ordered[:, i] == ordered[:, q]).all()) for q in numbers]
