"""Base of the common peer method: every device sends a table to every neighbor, and makes a new one from what came."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.errors import ContractError
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.methods.building_blocks.averaging import has_converged, local_sums
from p2pkm.methods.building_blocks.total_variation import received_edges
from p2pkm.methods.init.value import Init


@register("tables")
class TableState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    """

    centroids: Floats
    converged: Mask


class Neighborhood(NamedTuple):
    """What one device has: its centroids and points, and the tables of its neighbors.

    Attributes
    ----------
    centroids : float64[k, d]
        Centroids of the device; absent ones are +inf.
    sums : float64[k, d]
        Weighted sum of the local points nearest to each centroid.
    counts : float64[k]
        Weight of these points, 1 for each point without weights.
    tables : float64[b, k, d]
        Centroids last received from each neighbor with an active link, in ascending number of the neighbor; absent
        ones are +inf, so that differences of two absent ones are NaN.
    link_weights : float64[b]
        Weights of the links to these neighbors, 1 on graphs without weights.
    unit : float
        Mean weight of a point. A constant in points is multiplied by it, so that the unit of weights does not matter.
    """

    centroids: Floats
    sums: Floats
    counts: Floats
    tables: Floats
    link_weights: Floats
    unit: float


@dataclass(frozen=True)
class TableMethod(MethodBase, ABC):
    """Method in which every device sends its k centroids to every neighbor, once per round.

    A subclass is a frozen dataclass with a `name` and a function `combine`; its fields are further parameters. All
    devices must start from the same centroids, because centroids are paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    init : Init or str
        Initialization; all devices must receive the same centroids.
    tol : float
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance).

    Attributes
    ----------
    link_weights : str
        Effect of link weights, if `combine` reads them; empty: ignored.
    """

    k: int
    _: KW_ONLY
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 150
    link_weights: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Parse and validate the parameters."""
        object.__setattr__(self, "init", Init.of(self.init))
        check_integer(self.k, 1, "clusters")
        check_positive(self.tol, "tol", zero=True)

    @abstractmethod
    def combine(self, device: Neighborhood) -> Floats:
        """Return the new centroids of a device, float64[k, d]; a row that is not finite does not move."""

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            init=self.init,
            link_weights=self.link_weights,
            needs_shared_start=True,
            incompatible_with={
                "suppression": "pairs rows by their number, so that none can be left out",
            },
            follows_points=True,
        )

    def expected_messages(self, known: Known) -> EveryTurn:
        """Count k rows per edge in every turn."""
        return EveryTurn(self.k, known.features, absent_rows=True)

    def initial_state(self, devices: Devices, start: Any) -> TableState:
        """Start from the centroids of the last stage."""
        return TableState(start.centroids, np.zeros(len(devices), np.bool_))

    def message(self, state: TableState, devices: Devices) -> DenseMessages:
        """Send all k rows, in their order."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: TableState, inbox: Inbox, devices: Devices) -> TableState:
        """Combine the tables of every active device with its own, one device at a time."""
        before = state.centroids
        sums = local_sums(devices, before)
        received = received_edges(inbox, devices.active_edges)
        first = np.searchsorted(received, devices.indptr)
        centroids = before.copy()
        for i in devices.active:
            edges = received[first[i] : first[i + 1]]
            device = Neighborhood(
                # A copy: `combine` may write to what it gets.
                centroids=before[i].copy(),
                sums=sums[i, :, :-1],
                counts=sums[i, :, -1],
                tables=inbox.tables_of(edges, *before.shape[1:]),
                link_weights=devices.link_weights[edges],
                unit=devices.unit,
            )
            # Absent centroids and clusters without weight: inf - inf and 0 / 0, rows that do not move.
            with np.errstate(invalid="ignore", divide="ignore"):
                new = np.asarray(self.combine(device), np.float64)
            if new.shape != before[i].shape:
                raise ContractError(
                    f"{type(self).__name__}.combine returned an array of shape {new.shape}; expected "
                    f"{before[i].shape}, a row for each centroid"
                )
            if not np.isfinite(new).all():
                self._check_absent(new, device, before[i], inbox.tables_of(edges, *before.shape[1:]), devices.ids[i])
            moves = np.isfinite(new).all(axis=1) & np.isfinite(before[i, :, 0])
            centroids[i, moves] = new[moves]
        converged = has_converged(centroids, before, self.tol * devices.data_std)
        return TableState(centroids, np.where(devices.active_devices, converged, state.converged))

    def _check_absent(self, new: Floats, device: Neighborhood, before: Floats, tables: Floats, number: int) -> None:
        """Reject rows that are not finite for clusters with points and finite centroids at device and all neighbors.

        Other rows may be: 0 / 0 in a cluster without points or neighbors, and inf - inf of an absent centroid.
        """
        known = (device.counts > 0.0) & np.isfinite(before).all(axis=1) & np.isfinite(tables).all(axis=(0, 2))
        wrong = np.flatnonzero(known & ~np.isfinite(new).all(axis=1))
        if len(wrong) and len(tables):
            raise ContractError(
                f"{type(self).__name__}.combine returned {new[wrong[0]]} for cluster {wrong[0]} of device {number}, "
                "which has points there, and finite centroids from its neighbors; expected finite numbers. Rows of "
                "clusters without points or neighbors may be NaN: they do not move"
            )
