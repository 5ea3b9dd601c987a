"""Decisions of the root of a spanning tree: from its state and the totals of a round to a command."""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.states import register
from p2pkm.methods.tree import search
from p2pkm.methods.tree.command import ADD, ERRORS, FACTOR, KEEP, MOVE, REMOVE, REVERT, STOP, UTILITIES, Command

# Phases of a root: Lloyd steps; errors of the rows were requested; Lloyd steps after rows were added; Lloyd steps after
# as many rows were removed.
LLOYD, REQUESTED, GROWN, SHRUNK = range(4)


@register("treelloyd:root")
class Root(NamedTuple):
    """State of a root. As a part of a batch's state each field has a row per device, undefined except at roots.

    Attributes
    ----------
    cost : float
        Pooled cost of the certified table, in squared steps times units of weight; +inf: unknown.
    errors : float64[r]
        Errors of the rows of the certified table.
    tried : float
        Pooled cost of the last table of a trial; +inf: unknown.
    rows, trials : int
        Rows to add in a trial, and trials so far.
    phase, steps : int
        Phase, and Lloyd steps in it.
    """

    cost: Any
    errors: Any
    tried: Any
    rows: Any
    trials: Any
    phase: Any
    steps: Any


class Totals(NamedTuple):
    """Sums over all devices for the tried table, at the root.

    Attributes
    ----------
    cost : float
        Pooled cost, in squared steps times units of weight.
    counts : float64[r]
        Weight of the points of each row, in units.
    moves : float64[r, d]
        Steps from each row to the mean of its points.
    errors : float64[r]
        Errors or utilities of the rows, if the last command requested them.
    rows : float64[r, d]
        Rows of the tried table; absent rows are +inf.
    is_kept : bool[r]
        Rows that are present in the certified table.
    halvings : int
        Number of times that the step can be halved at this cost.
    """

    cost: float
    counts: Floats
    moves: Floats
    errors: Floats
    rows: Floats
    is_kept: Mask
    halvings: int = 0

    @property
    def weight(self) -> float:
        """Weight of all points, in units."""
        return float(self.counts.sum())


def start_roots(n: int, rows: int) -> Root:
    """Create the states of n roots before their first round, for tables of `rows` rows."""
    unknown, zeros = np.full(n, np.inf), np.zeros(n, np.int64)
    return Root(unknown, np.zeros((n, rows)), unknown, np.full(n, search.MOST), zeros, zeros + LLOYD, zeros)


def decide(root: Root, totals: Totals, tol: float, *, searches: bool) -> tuple[Root, Command]:
    """Decide on the next command.

    Parameters
    ----------
    tol : float
        Relative decrease of the pooled cost below which Lloyd steps end.
    searches : bool
        Whether trials with other rows follow the Lloyd steps, see `p2pkm.methods.tree.search`.

    Returns
    -------
    root : Root
        State after the decision.
    command : Command
    """
    if root.phase == LLOYD:
        return _step(root, totals, tol, searches=searches)
    if root.phase == REQUESTED:
        return _grow(root._replace(errors=totals.errors), totals, 0)
    root = root._replace(steps=root.steps + 1)
    if root.phase == GROWN:
        if root.steps <= search.GROWN:
            return root, Command(MOVE + (UTILITIES if root.steps == search.GROWN else 0))
        return root._replace(tried=np.inf, phase=SHRUNK, steps=0), remove_rows(totals)
    if root.steps <= search.SHRUNK and totals.moves.any() and totals.cost < root.tried:
        return root._replace(tried=totals.cost), Command(MOVE)
    return _judge(root, totals)


def _step(root: Root, totals: Totals, tol: float, *, searches: bool) -> tuple[Root, Command]:
    """Decide after a Lloyd step."""
    before, now = float(root.cost), totals.cost
    decreased = now < before
    root = root._replace(cost=now if decreased else before)
    if decreased and not (before < np.inf and before - now < tol * before):
        if totals.halvings:
            # The next round computes the cost of the same table in units of the new step, so the old value is unknown.
            return root._replace(cost=np.inf), Command(KEEP + FACTOR * totals.halvings)
        if totals.moves.any():
            return root, Command(KEEP + MOVE)
    code = KEEP if decreased else REVERT
    if searches and root.rows and root.cost > 0.0:
        return root._replace(phase=REQUESTED), Command(code + ERRORS)
    return root, Command(code + STOP)


def _judge(root: Root, totals: Totals) -> tuple[Root, Command]:
    """Decide at the end of a trial."""
    better = totals.cost < root.cost * (1.0 - search.GAIN)
    root = root._replace(
        cost=totals.cost if better else root.cost, rows=root.rows - (not better), trials=root.trials + 1, steps=0
    )
    if not root.rows or root.trials >= search.TRIALS:
        # The search is over. Final Lloyd steps start from the certified table, whose cost is computed again.
        return root._replace(cost=np.inf, rows=0, phase=LLOYD), Command(KEEP if better else REVERT)
    return (root._replace(phase=REQUESTED), Command(KEEP + ERRORS)) if better else _grow(root, totals, REVERT)


def _grow(root: Root, totals: Totals, code: int) -> tuple[Root, Command]:
    """Start a trial."""
    command = add_rows(totals, root.errors, int(root.rows), root.cost, code)
    return root._replace(phase=GROWN, steps=0), command


def add_rows(totals: Totals, errors: Floats, rows: int, cost: float, code: int) -> Command:
    """Create a command for new rows next to the rows of largest error of the certified table."""
    chosen = search.choose_largest(errors, np.flatnonzero(totals.is_kept), rows)
    marks = np.zeros(len(totals.is_kept))
    marks[np.flatnonzero(~totals.is_kept)[: len(chosen)]] = 1.0 + chosen
    return Command(code + ADD + FACTOR * int(search.placement_distance(float(cost), totals.weight)), marks)


def remove_rows(totals: Totals) -> Command:
    """Create a command for the removal of as many rows as were added, those of least utility."""
    added = np.isfinite(totals.rows[:, 0]).sum() - totals.is_kept.sum()
    marks = np.zeros(len(totals.is_kept))
    marks[search.choose_least(totals.errors, totals.rows, int(added))] = 1.0
    return Command(REMOVE, marks)
