"""Centroids of a device that joins after a run: GTVMin's update with the centroids of all other devices fixed."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Inbox, pack
from p2pkm.kernels import select_kernels
from p2pkm.methods.building_blocks.shares import penalize
from p2pkm.methods.peer.gtvmin import GTVMin, GTVMinState

# Largest number of updates. The objective falls in every update until labels and matches stay: usually in 2 to 20.
_LIMIT = 1_000


class Pull(NamedTuple):
    """Attraction of a new device by its neighbors.

    Attributes
    ----------
    tables : float64[q, k, d]
        Centroids of the neighbors, in ascending number; absent ones are +inf.
    alpha : float64[q]
        Strength of the new links.
    noise, prior : float
        Noise s2 and strength m0 of the prior of the shares, see `p2pkm.methods.building_blocks.shares`; NaN without.
    unit : float
        Mean weight of a point of the run.
    min_count : int
        Suppression threshold of the run.
    """

    tables: Floats
    alpha: Floats
    noise: float
    prior: float
    unit: float
    min_count: int

    @property
    def has_shares(self) -> bool:
        """Whether labels depend on the shares of the clusters."""
        return not np.isnan(self.noise)


def adapt_device(points: Floats, weights: Floats, pull: Pull) -> tuple[Floats, Floats | None]:
    """Repeat GTVMin's update for a new device until its centroids stay, from the mean of its neighbors' centroids.

    Parameters
    ----------
    points : float64[m, d]
        Points of the device, in the units of the centroids.
    weights : float64[m]
    pull : Pull

    Returns
    -------
    centroids : float64[k, d]
        Absent if no neighbor has the centroid.
    penalties : float64[k] or None
        Penalties of the labels; None without shares.
    """
    k = pull.tables.shape[1]
    method = GTVMin(k, coupling=1.0, relaxation=1.0, tol=0.0, shares=pull.has_shares)
    devices, inbox = _build_device(points, weights, pull), _receive(pull.tables)
    state = _start(pull)
    for _ in range(_LIMIT):
        before, state = state, method.update(state, inbox, devices)
        same_labels = state.shares is None or np.array_equal(state.shares.penalties, before.shares.penalties)
        if same_labels and np.array_equal(state.centroids, before.centroids):
            break
    return state.centroids[0], None if state.shares is None else state.shares.penalties[0]


def _start(pull: Pull) -> GTVMinState:
    """Start from the mean of the neighbors' centroids, and from equal shares."""
    present = pull.tables[:, :, :1] < np.inf
    counts = np.count_nonzero(present, axis=0)
    sums = np.cumsum(np.where(present, pull.tables, 0.0), axis=0)[-1]
    centroids = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)[None]
    none, zeros = np.zeros(1, np.bool_), np.zeros(1, np.int8)
    noise, prior = np.array([pull.noise]), np.array([pull.prior])
    return GTVMinState(
        centroids=centroids, previous=centroids, converged=none, oscillating=none, echo=none, calm=zeros, quiet=zeros,
        edge_alpha=pull.alpha, edge_limit=None, edge_weight=None,
        shares=penalize(np.zeros(centroids.shape[:2]), noise, prior) if pull.has_shares else None,
    )  # fmt: skip


def _receive(tables: Floats) -> Inbox:
    """Build the inbox of the device: its own slot, then the tables of its neighbors."""
    values, rows = pack(np.concatenate((np.full((1, *tables.shape[1:]), np.inf), tables)))
    slots = np.arange(1, len(values))
    return Inbox(values, rows, slots, slots)


def _build_device(points: Floats, weights: Floats, pull: Pull) -> Devices:
    """Build a batch of the device alone, with a link to each of its neighbors."""
    q, one = len(pull.tables), np.ones(1, np.bool_)
    neighbors: Integers = np.arange(1, 1 + q)
    return Devices(
        ids=np.zeros(1, np.int64),
        stored=np.require(points, np.float64, ["C", "W"]),
        offsets=np.array([0, len(points)]),
        point_weights=weights,
        indptr=np.array([0, q]),
        indices=neighbors,
        mirror=np.full(q, -1),
        link_weights=np.ones(q),
        active_edges=np.ones(q, np.bool_),
        degrees=np.array([q]),
        neighbor_degrees=np.ones(q, np.int64),
        varying=False,
        averaging_weights=None,
        keys=np.zeros(1, np.uint64),
        shared_key=0,
        total=1 + q,
        server=-1,
        hops=1,
        # The update reads only their ratio, the mean weight of a point.
        total_points=1,
        total_weight=pull.unit,
        weighted=True,
        data_std=0.0,
        kernels=select_kernels(1, 1, points.size * pull.tables.shape[1]),
        round=1,
        turn=0,
        active_devices=one,
        min_count=pull.min_count,
    )
