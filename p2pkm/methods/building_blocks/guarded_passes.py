"""Update passes of GTVMin that the kernels do not implement: optimal matching, and several passes with a safeguard."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import local_sums, max_moves
from p2pkm.methods.building_blocks.optimal_matching import match_rows
from p2pkm.methods.building_blocks.total_variation import received_edges, squared_distances


class PassRule(NamedTuple):
    """Options of the update in a turn.

    Attributes
    ----------
    optimal : bool
        Match rows by one optimal matching per link; otherwise each row to the nearest one, in both directions.
    relaxation : float64[n]
        Relaxation factor of each device in each pass; with a safeguard, of the result of all passes.
    passes : int
        Number of passes.
    safeguard : bool
        Accept the result of several passes only if it does not increase the surrogate of the first one.
    """

    optimal: bool
    relaxation: Floats
    passes: int
    safeguard: bool


def run_passes(
    devices: Devices, centroids: Floats, previous: Floats, inbox: Inbox, alpha: Floats, rule: PassRule
) -> tuple[Floats, Floats]:
    """Update every active device; the results are those of the kernel `p2pkm.kernels.reference.gtvmin`.

    For fixed assignments and matches of the first pass, the local objective is ``sum_c D_c |w_c - w1_c|^2`` plus a
    constant, with the divisor D_c and the minimizer w1_c of that pass. So the safeguard compares two weighted distances
    to w1.
    """
    theta = np.ones(len(devices)) if rule.safeguard else rule.relaxation
    table, first, weights = centroids, centroids, centroids[:, :, 0]
    for number in range(rule.passes):
        best, divisors = _minimize(devices, table, inbox, alpha, optimal=rule.optimal)
        table = _move(table, best, theta)
        if number == 0:
            first, weights = best, divisors
    if rule.safeguard:
        is_worse = _distance(table, first, weights) > _distance(centroids, first, weights)
        table = _move(centroids, np.where(is_worse[:, None, None], first, table), rule.relaxation)
    result = np.where(devices.active_devices[:, None, None], table, centroids)
    moves = np.column_stack([max_moves(result, old) for old in (centroids, previous)])
    return result, np.where(devices.active_devices[:, None], moves, 0.0)


def _minimize(devices: Devices, table: Floats, inbox: Inbox, alpha: Floats, *, optimal: bool) -> tuple[Floats, Floats]:
    """Compute the minimizer of one exact pass, float64[n, k, d], and the divisors D, float64[n, k]."""
    sums, source, d = local_sums(devices, table), devices.sources, table.shape[2]
    for e in received_edges(inbox, devices.active_devices[source]):
        i = source[e]
        received = inbox.tables_of(e, inbox.rows_of(e), d)
        weighted = alpha[e] * np.column_stack((received, np.ones(len(received))))
        if optimal:
            rows, matches = match_rows(table[i], received, first=bool(devices.ids[i] < devices.indices[e]))
        else:
            rows, matches = _match_nearest(table[i], received)
        np.add.at(sums[i], rows, weighted[matches])
    divisors = sums[:, :, -1]
    is_moved = (divisors > 0.0) & (table[:, :, 0] < np.inf)
    best = np.where(is_moved[:, :, None], sums[:, :, :-1] / np.where(is_moved, divisors, 1.0)[:, :, None], table)
    return best, divisors


def _match_nearest(table: Floats, received: Floats) -> tuple[Integers, Integers]:
    """Match rows by (E2), each received row to the nearest local one, then by (E3), vice versa; int64[q] each."""
    distances = squared_distances(table, received)
    if not distances.size or not (table[:, 0] < np.inf).any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    real = np.flatnonzero(table[:, 0] < np.inf)
    rows = np.concatenate((distances.argmin(axis=0), real))
    return rows, np.concatenate((np.arange(len(received)), distances[real].argmin(axis=1)))


def _move(old: Floats, new: Floats, theta: Floats) -> Floats:
    """Move the rows of each device by its share theta of the way from old to new; absent rows stay absent."""
    share = theta[:, None, None]
    with np.errstate(invalid="ignore"):
        moved = np.where(old < np.inf, old + share * (new - old), old)
    return np.where(share == 1.0, new, moved)


def _distance(table: Floats, first: Floats, weights: Floats) -> Floats:
    """Compute ``sum_c D_c |w_c - w1_c|^2`` of every device, float64[n]; absent rows do not count."""
    squares = np.zeros(weights.shape)
    with np.errstate(invalid="ignore"):
        for f in range(table.shape[2]):
            squares += (table[:, :, f] - first[:, :, f]) ** 2
    terms = np.where(first[:, :, 0] < np.inf, weights * squares, 0.0)
    return np.cumsum(terms, axis=1)[:, -1]
