"""Shares of the clusters at each device in GTVMin's assignment: a mixture for each device.

A point of device i belongs to the cluster with the least ``|x - w_ic|^2 - 2 s2 log p_ic``. Without the second term the
many points of a large cluster pull the centroid of an absent one towards them, until it splits the large one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.chunks import label
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register
from p2pkm.methods.building_blocks.averaging import max_moves
from p2pkm.methods.building_blocks.gtvmin_steps import Moved, Turn
from p2pkm.methods.building_blocks.total_variation import received_edges

# Smallest and largest strength of the prior, in points per cluster. At the largest one all shares are nearly equal.
_WEAKEST = 1e-2
_STRONGEST = 1e3
# Numbers in the place of one share while its logarithm is computed.
_LOGARITHM = 16


@register("shares")
class Shares(NamedTuple):
    """Shares of a batch.

    Attributes
    ----------
    penalties : float64[n, k]
        ``-2 s2 log p_ic``, added to the squared distance of a point to centroid c.
    noise : float64[n]
        s2, the variance of a coordinate within clusters; 0: without penalties.
    prior : float64[n]
        m0, strength of the prior in points per cluster.
    """

    penalties: Floats
    noise: Floats
    prior: Floats


def without_shares(n: int, k: int) -> Shares:
    """Create shares that are not used, for states that may have some: states have the same arrays on all ranks."""
    return Shares(np.zeros((n, k)), np.zeros(n), np.zeros(n))


def find_penalties(shares: Shares | None) -> Floats | None:
    """Return the penalties of the assignment, float64[n, k]; None if no device uses shares."""
    return shares.penalties if shares is not None and shares.noise.any() else None


def count_excess(counts: Floats) -> Floats:
    """Compute two terms of the strength of the prior for each device, float64[n, 2], see `find_strength`.

    Parameters
    ----------
    counts : float64[n, k]
        Number of points of each cluster.
    """
    k = counts.shape[1]
    totals = np.cumsum(counts, axis=1)[:, -1]
    deviations = np.cumsum((counts - totals[:, None] / k) ** 2, axis=1)[:, -1]
    rest = 1.0 - 1.0 / k
    return np.column_stack((deviations - totals * rest, np.maximum(totals * (totals - 1.0), 0.0) * rest))


def find_strength(excess: float, pairs: float, k: int) -> float:
    """Compute the strength m0 of the prior, in points per cluster, from the sums of the terms of all devices.

    With shares from a Dirichlet distribution of k parameters m0, and m_i points, ::

        E sum_c (n_ic - m_i / k)^2 = m_i (1 - 1/k) (1 + (m_i - 1) / (1 + k m0))

    so that the ratio of the two sums estimates ``1 / (1 + k m0)``.
    """
    if not (excess > 0.0 and pairs > 0.0):
        return _STRONGEST
    return min(max((pairs / excess - 1.0) / k, _WEAKEST), _STRONGEST)


def penalize(counts: Floats, noise: Floats, prior: Floats) -> Shares:
    """Compute the shares ``p_ic = (n_ic + m0) / (m_i + k m0)`` of counts, float64[n, k], and their penalties.

    Devices without noise do not use shares: their penalties are 0.
    """
    n, k = counts.shape
    used, penalties = noise > 0.0, np.zeros((n, k))
    # In blocks, because a number of Python takes four times the memory of one in an array.
    for block in blocks(n, _LOGARITHM * k):
        own = used[block]
        shares = counts[block][own] + prior[block][own, None]
        shares /= np.cumsum(counts[block][own], axis=1)[:, -1:] + k * prior[block][own, None]
        # math.log: the last bit of np.log depends on the position in the array.
        logarithms = np.array([math.log(share) for share in shares.ravel().tolist()]).reshape(shares.shape)
        penalties[block][own] = -2.0 * noise[block][own, None] * logarithms
    return Shares(penalties, noise, prior)


def minimize_by_shares(method: Any, turn: Turn) -> Moved:
    """Assign local points by distance and share, then minimize over shares and centroids at the active devices.

    Cluster c of a device corresponds to cluster c of its neighbors, because all start from common centroids.
    """
    devices, state, inbox = turn.devices, turn.state, turn.inbox
    table, shares = state.centroids, state.shares
    k, d = table.shape[1:]
    weights, sums = np.zeros(table.shape[:2]), np.zeros(table.shape)
    points, masses, _ = devices.kernel_inputs
    for span, rows, offsets, _, labels in label(devices, table, penalties=shares.penalties):
        _, weights[span], sums[span], _ = devices.kernels.cluster_moments(
            points[rows], masses[rows], offsets, labels, np.zeros((span.stop - span.start, k, d))
        )
    updated = penalize(weights / devices.unit, shares.noise, shares.prior)
    edges = received_edges(inbox, devices.active_edges & devices.active_devices[devices.sources])
    pull = 2.0 * turn.alpha[edges]
    received = inbox.tables_of(edges, k, d)
    np.add.at(weights, devices.sources[edges], pull[:, None])
    np.add.at(sums, devices.sources[edges], pull[:, None, None] * received)
    active = devices.active_devices[:, None]
    moves = active & (weights > 0.0) & (table[:, :, 0] < np.inf)
    best = sums / np.where(weights > 0.0, weights, 1.0)[:, :, None]
    with np.errstate(invalid="ignore"):
        moved = np.where(moves[:, :, None], table + turn.theta[:, None, None] * (best - table), table)
    distances = np.column_stack([max_moves(moved, old) for old in (table, state.previous)])
    penalties = np.where(active, updated.penalties, shares.penalties)
    return Moved(moved, distances[devices.active], state.quiet, shares._replace(penalties=penalties))


def minimize_by_choice(minimize: Callable[[Any, Turn], Moved], method: Any, turn: Turn) -> Moved:
    """Minimize by shares at the active devices that use them, and by `minimize` at the others."""
    state, devices = turn.state, turn.devices
    has_shares = state.shares.noise > 0.0
    centroids, shares, moves = state.centroids, state.shares, np.zeros((len(devices), 2))
    for step, chosen in ((minimize, ~has_shares), (minimize_by_shares, has_shares)):
        acting = devices.at_turn(devices.round, devices.turn, devices.active_devices & chosen)
        # Without an acting device, too, `minimize` copies the centroids that a later color writes to.
        if step is minimize_by_shares and not len(acting.active):
            continue
        part = turn._replace(state=state._replace(centroids=centroids, shares=shares), devices=acting)
        moved = step(method, part)
        centroids, moves[acting.active] = moved.centroids, moved.moves
        shares = shares if moved.shares is None else moved.shares
    return Moved(centroids, moves[devices.active], state.quiet, shares)


def add_terms(shares: Shares, centroids: Floats, devices: Devices) -> Floats:
    """Compute what shares add to the local loss (6) of each device in the objective, float64[n].

    With weights m_x of the points and the mean weight u of a point ::

        sum_x m_x (min_c (|x - w_c|^2 + b_c) - min_c |x - w_c|^2) + u m0 sum_c b_c

    for the penalties b_c; the last term is that of the prior.
    """
    extra = devices.unit * shares.prior * np.cumsum(shares.penalties, axis=1)[:, -1]
    pairs = zip(label(devices, centroids, penalties=shares.penalties), label(devices, centroids), strict=True)
    for penalized, nearest in pairs:
        extra[nearest.span] += np.where(np.isfinite(nearest.losses), penalized.losses - nearest.losses, 0.0)
    return extra


def link_variation(devices: Devices, tables: Floats, slots: Any) -> Floats:
    """Compute twice the squared distance of the centroids of equal number at both ends of each link, float64[e].

    It is stored at the lower end; absent centroids add nothing.
    """
    found = np.zeros(len(devices.indices))
    lower = np.flatnonzero(devices.ids[devices.sources] < devices.indices)
    one, other = tables[devices.sources[lower]], tables[slots[lower]]
    with np.errstate(invalid="ignore"):
        squares = np.where(np.isfinite(one) & np.isfinite(other), (one - other) ** 2, 0.0)
    width = tables.shape[1] * tables.shape[2]
    found[lower] = 2.0 * np.cumsum(squares.reshape(len(lower), width), axis=1)[:, -1]
    return found
