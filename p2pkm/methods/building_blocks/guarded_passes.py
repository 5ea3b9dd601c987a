"""Passes of GTVMin that the kernels do not have: rows matched optimally, and several passes with a safeguard."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.averaging import find_moves, local_sums
from p2pkm.methods.building_blocks.optimal_matching import pair_rows
from p2pkm.methods.building_blocks.total_variation import received_edges, squared


class PassRule(NamedTuple):
    """How a turn goes.

    Attributes
    ----------
    optimal : bool
        Rows are matched by one optimal matching per link, else each to the nearest row, both ways.
    relaxation : float
        Inside every pass; with a safeguard of the outcome of all passes.
    passes : int
    safeguard : bool
        Keep the outcome of several passes only if it does not raise the surrogate of the first one.
    """

    optimal: bool
    relaxation: float
    passes: int
    safeguard: bool


def run_passes(
    devices: Devices, centroids: Floats, previous: Floats, inbox: Inbox, alpha: Floats, rule: PassRule
) -> tuple[Floats, Floats]:
    """Update every active device; returns centroids and moves as the kernel does (`p2pkm.kernels.reference.gtvmin`).

    With all choices of the first pass held fixed the own objective is ``sum_c D_c |w_c - w1_c|^2`` plus a constant, D_c
    the divisor of that pass and w1_c where it leads. So the safeguard compares two weighted distances to w1.
    """
    theta, table, first, weights = 1.0 if rule.safeguard else rule.relaxation, centroids, centroids, centroids[:, :, 0]
    for number in range(rule.passes):
        best, divisors = _minimize(devices, table, inbox, alpha, optimal=rule.optimal)
        table = _move(table, best, theta)
        if number == 0:
            first, weights = best, divisors
    if rule.safeguard:
        rose = _distance(table, first, weights) > _distance(centroids, first, weights)
        table = _move(centroids, np.where(rose[:, None, None], first, table), rule.relaxation)
    result = np.where(devices.active_devices[:, None, None], table, centroids)
    moves = np.column_stack([find_moves(result, old) for old in (centroids, previous)])
    return result, np.where(devices.active_devices[:, None], moves, 0.0)


def _minimize(devices: Devices, table: Floats, inbox: Inbox, alpha: Floats, *, optimal: bool) -> tuple[Floats, Floats]:
    """Return where one exact pass leads every device, float64[n, k, d], and the divisors D, float64[n, k]."""
    mass, source, d = local_sums(devices, table), devices.sources, table.shape[2]
    for e in received_edges(inbox, devices.active_devices[source]):
        i, theirs = source[e], inbox.tables_of(e, inbox.rows_of(e), d)
        pull = alpha[e] * np.column_stack((theirs, np.ones(len(theirs))))
        if optimal:
            own, other = pair_rows(table[i], theirs, first=bool(devices.ids[i] < devices.indices[e]))
        else:
            own, other = _nearest_both_ways(table[i], theirs)
        np.add.at(mass[i], own, pull[other])
    divisors = mass[:, :, -1]
    moved = (divisors > 0.0) & (table[:, :, 0] < np.inf)
    best = np.where(moved[:, :, None], mass[:, :, :-1] / np.where(moved, divisors, 1.0)[:, :, None], table)
    return best, divisors


def _nearest_both_ways(mine: Floats, theirs: Floats) -> tuple[Integers, Integers]:
    """Return the pairs of E2, each row of theirs with the nearest own one, then those of E3, int64[q] each."""
    apart = squared(mine, theirs)
    if not apart.size or not (mine[:, 0] < np.inf).any():
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    real = np.flatnonzero(mine[:, 0] < np.inf)
    own = np.concatenate((apart.argmin(axis=0), real))
    return own, np.concatenate((np.arange(len(theirs)), apart[real].argmin(axis=1)))


def _move(old: Floats, new: Floats, theta: float) -> Floats:
    """Return how far rows get that go the share theta of their way; absent ones stay absent."""
    if theta == 1.0:
        return new
    with np.errstate(invalid="ignore"):
        return np.where(old < np.inf, old + theta * (new - old), old)


def _distance(table: Floats, first: Floats, weights: Floats) -> Floats:
    """Return ``sum_c D_c |w_c - w1_c|^2`` of every device, float64[n]; absent rows do not count."""
    squares = np.zeros(weights.shape)
    with np.errstate(invalid="ignore"):
        for f in range(table.shape[2]):
            squares += (table[:, :, f] - first[:, :, f]) ** 2
    terms = np.where(first[:, :, 0] < np.inf, weights * squares, 0.0)
    return np.cumsum(terms, axis=1)[:, -1]
