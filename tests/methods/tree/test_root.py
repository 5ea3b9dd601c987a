"""Decisions of a root, without messages: a table of states and totals, and the commands that follow."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.methods.tree import search, tracking
from p2pkm.methods.tree.command import ADD, ERRORS, FACTOR, KEEP, MOVE, REMOVE, REVERT, STOP, UTILITIES
from p2pkm.methods.tree.root import GROWN, LLOYD, REQUESTED, SHRUNK, Root, Totals, decide
from tests.support.each import each

INF = np.inf
START = Root(cost=INF, errors=np.zeros(4), tried=INF, rows=2, trials=0, phase=LLOYD, steps=0)
# two rows with points, a third one that a trial may have added, and room for a fourth
ROWS = np.array([[0.0], [10.0], [10.5], [INF]])
TOTALS = Totals(
    cost=100.0,
    counts=np.array([3.0, 5.0, 0.0, 0.0]),
    moves=np.array([[1.0], [-1.0], [0.0], [0.0]]),
    errors=np.array([7.0, 9.0, 1.0, 0.0]),
    rows=ROWS,
    is_kept=np.array([True, True, False, False]),
)
STILL = np.zeros((4, 1))


def change(state, fields):
    return state._replace(**fields)


# state, totals, tol, searches -> changes of the state, code
CASES = {
    "first step": ({}, {}, 0.0, False, {"cost": 100.0}, KEEP + MOVE),
    "cost falls": ({"cost": 101.0}, {}, 0.0, False, {"cost": 100.0}, KEEP + MOVE),
    "cost is equal": ({"cost": 100.0}, {}, 0.0, False, {}, REVERT + STOP),
    "cost rises": ({"cost": 99.0}, {}, 0.0, False, {}, REVERT + STOP),
    "cost falls by less than tol": ({"cost": 101.0}, {}, 0.02, False, {"cost": 100.0}, KEEP + STOP),
    "cost falls by more than tol": ({"cost": 103.0}, {}, 0.02, False, {"cost": 100.0}, KEEP + MOVE),
    "no row moves": ({"cost": 101.0}, {"moves": STILL}, 0.0, False, {"cost": 100.0}, KEEP + STOP),
    "finer step": ({"cost": 101.0}, {"halvings": 3}, 0.0, False, {"cost": INF}, KEEP + 3 * FACTOR),
    "finer step, no row moves": ({}, {"halvings": 1, "moves": STILL}, 0.0, False, {"cost": INF}, KEEP + FACTOR),
    "finer step, but the cost rises": ({"cost": 99.0}, {"halvings": 3}, 0.0, False, {}, REVERT + STOP),
    "search begins": ({}, {"moves": STILL}, 0.0, True, {"cost": 100.0, "phase": REQUESTED}, KEEP + ERRORS),
    "search begins from before": ({"cost": 99.0}, {}, 0.0, True, {"phase": REQUESTED}, REVERT + ERRORS),
    "search is over": ({"rows": 0, "cost": 99.0}, {}, 0.0, True, {}, REVERT + STOP),
    "no search without cost": ({}, {"cost": 0.0, "moves": STILL}, 0.0, True, {"cost": 0.0}, KEEP + STOP),
    "first step of a trial": ({"phase": GROWN}, {}, 0.0, True, {"steps": 1}, MOVE),
    "last step before removal": ({"phase": GROWN, "steps": 1}, {}, 0.0, True, {"steps": 2}, MOVE + UTILITIES),
    "removal": ({"phase": GROWN, "steps": 2, "tried": 5.0}, {}, 0.0, True, {"phase": SHRUNK, "steps": 0, "tried": INF},
                REMOVE),
    "step after removal": ({"phase": SHRUNK, "cost": 50.0}, {}, 0.0, True, {"steps": 1, "tried": 100.0}, MOVE),
    "trial is better": ({"phase": SHRUNK, "cost": 101.0, "tried": 100.0}, {}, 0.0, True,
                        {"phase": REQUESTED, "cost": 100.0, "trials": 1}, KEEP + ERRORS),
    "gain is too small": ({"phase": SHRUNK, "cost": 100.0 + 1e-5, "tried": 100.0, "rows": 1}, {}, 0.0, True,
                          {"phase": LLOYD, "cost": INF, "rows": 0, "trials": 1}, REVERT),
    "no row moves after removal": ({"phase": SHRUNK, "cost": 101.0}, {"moves": STILL}, 0.0, True,
                                   {"phase": REQUESTED, "cost": 100.0, "trials": 1}, KEEP + ERRORS),
    "enough steps after removal": ({"phase": SHRUNK, "steps": 4, "cost": 101.0}, {}, 0.0, True,
                                   {"phase": REQUESTED, "cost": 100.0, "trials": 1, "steps": 0}, KEEP + ERRORS),
    "last trial, better": ({"phase": SHRUNK, "cost": 101.0, "tried": 100.0, "trials": search.TRIALS - 1}, {}, 0.0, True,
                           {"phase": LLOYD, "cost": INF, "rows": 0, "trials": search.TRIALS}, KEEP),
}  # fmt: skip


@each("name", CASES)
def test_next_state_and_command(name):
    state, totals, tol, searches, changes, code = CASES[name]
    root = change(START, state)
    after, command = decide(root, change(TOTALS, totals), tol, searches=searches)
    expected = change(root, changes)
    assert command.code == code
    for field, found, wanted in zip(Root._fields, after, expected, strict=True):
        assert_array_equal(found, wanted, err_msg=field)
    assert (command.marks is not None) == (code == REMOVE)


def test_new_rows_are_placed_next_to_those_of_the_largest_errors():
    after, command = decide(START._replace(phase=REQUESTED, cost=100.0), TOTALS, 0.0, searches=True)
    assert_array_equal(after.errors, TOTALS.errors)
    assert (after.phase, after.steps) == (GROWN, 0)
    assert command.code == ADD + FACTOR  # 0.05 of the root mean square distance is less than a step
    assert_array_equal(command.marks, [0, 0, 2, 1])  # of the kept rows 2 has the larger error, then 1
    far = TOTALS._replace(cost=8e4)
    _, command = decide(START._replace(phase=REQUESTED, cost=8e4), far, 0.0, searches=True)
    assert command.code == ADD + 5 * FACTOR  # the distance is 100 steps


def test_a_failed_trial_is_followed_by_one_with_a_row_less():
    errors = np.array([7.0, 9.0, 0.0, 0.0])
    root = START._replace(phase=SHRUNK, cost=50.0, tried=100.0, errors=errors)
    after, command = decide(root, TOTALS, 0.0, searches=True)
    assert (after.phase, after.rows, after.trials, after.cost) == (GROWN, 1, 1, 50.0)
    assert command.code == REVERT + ADD + FACTOR
    assert_array_equal(command.marks, [0, 0, 2, 0])


def test_as_many_rows_are_removed_as_were_added():
    _, command = decide(START._replace(phase=GROWN, steps=2), TOTALS, 0.0, searches=True)
    assert_array_equal(command.marks, [0, 0, 1, 0])  # the least utility
    utilities = TOTALS._replace(errors=np.array([7.0, 0.5, 1.0, 0.0]))
    _, command = decide(START._replace(phase=GROWN, steps=2), utilities, 0.0, searches=True)
    assert_array_equal(command.marks, [0, 1, 0, 0])


def test_a_command_is_written_into_an_empty_table():
    for code, expected in ((KEEP + STOP, [[5, 0]] + [[0, 0]] * 2), (KEEP + MOVE, [[5, 0], [2, 3], [4, 5]])):
        table, moves = np.zeros((3, 2)), np.array([[2.0, 3.0], [4.0, 5.0]])
        _, command = decide(START, TOTALS, 0.0, searches=False)
        command._replace(code=code).write(table, moves)
        assert_array_equal(table[1:], expected[1:])
        assert table[0, 0] == code


# the same for points that change: a root that measured 10 per unit of weight three times, and now 12.5
KNOWN = np.append(np.full(13, INF), [10.0, 10.0, 10.0])
TRACKED = tracking.TrackingRoot(
    cost=80.0, errors=np.zeros(4), phase=tracking.STEP, steps=0, rows=0, looked=0, wait=0, failed=0, risen=False,
    tried=0.0, lows=KNOWN,
)  # fmt: skip
MANY_POINTS = {"counts": np.array([3e5, 5e5, 0.0, 0.0]), "moves": STILL}  # the mean distance varies by less than 1 %
PER_UNIT = 8e5
LATER = {
    "first fit": ({"phase": tracking.FIT, "cost": INF}, {}, {"cost": 100.0}, KEEP + MOVE),
    "fit ends": ({"phase": tracking.FIT, "cost": 100.05}, {}, {"cost": 100.0, "phase": tracking.STEP}, MOVE + STOP),
    "cost has not risen": ({"failed": 2, "tried": 3.0}, {**MANY_POINTS, "cost": 10.0 * PER_UNIT},
                           {"looked": 1, "phase": tracking.STEP, "failed": 0, "tried": 3.0}, MOVE + STOP),
    "cost has risen a little": ({}, {**MANY_POINTS, "cost": 10.4 * PER_UNIT}, {"looked": 1, "risen": True},
                                MOVE + STOP + ERRORS),
    "cost has risen": ({}, {**MANY_POINTS, "cost": 12.5 * PER_UNIT},
                       {"phase": tracking.REQUESTED, "rows": 2, "risen": True, "tried": 12.5, "looked": 1},
                       MOVE + ERRORS),
    "cost has risen, but no trial yet": ({"wait": 2, "failed": 2, "tried": 12.0},
                                         {**MANY_POINTS, "cost": 12.5 * PER_UNIT},
                                         {"phase": tracking.STEP, "risen": True, "wait": 1, "failed": 2, "tried": 12.0},
                                         MOVE + STOP + ERRORS),
    "cost has risen again": ({"wait": 2, "tried": 11.0}, {**MANY_POINTS, "cost": 12.5 * PER_UNIT},
                             {"phase": tracking.REQUESTED, "tried": 12.5, "wait": 1}, MOVE + ERRORS),
    "a trial is due": ({"looked": 4}, {**MANY_POINTS, "cost": 10.0 * PER_UNIT},
                       {"phase": tracking.REQUESTED, "rows": 1, "looked": 5}, MOVE + ERRORS),
    "a step promises much": ({}, {"cost": 80.0}, {"phase": tracking.MORE, "steps": 1}, MOVE),
    "three steps": ({"phase": tracking.MORE, "steps": 2}, {"cost": 80.0}, {"phase": tracking.STEP}, MOVE + STOP),
    "trial steps": ({"phase": tracking.GROWN}, {}, {"steps": 1}, MOVE),
    "removal": ({"phase": tracking.GROWN, "steps": 2}, {}, {"phase": tracking.SHRUNK, "steps": 0}, REMOVE),
    "trial is better": ({"phase": tracking.SHRUNK, "steps": 2, "cost": 101.0, "rows": 1, "failed": 1}, {},
                        {"phase": tracking.STEP, "looked": 0, "failed": 0, "wait": 0}, MOVE + STOP),
    "trial fails": ({"phase": tracking.SHRUNK, "steps": 2, "cost": 100.0, "rows": 1, "failed": 1, "risen": True}, {},
                    {"phase": tracking.STEP, "failed": 2, "wait": 4}, REVERT + STOP + ERRORS),
    "trial with two rows fails": ({"phase": tracking.SHRUNK, "steps": 2, "cost": 100.0, "rows": 2}, {},
                                  {"phase": tracking.GROWN, "rows": 1, "steps": 0}, REVERT + ADD + FACTOR),
}  # fmt: skip


@each("name", LATER)
def test_next_state_and_command_while_points_change(name):
    state, totals, changes, code = LATER[name]
    after, command = tracking.decide(change(TRACKED, state), change(TOTALS, totals), 1e-3)
    assert command.code == code
    for field, wanted in changes.items():
        assert_array_equal(getattr(after, field), wanted, err_msg=field)
    measured = len(after.lows[np.isfinite(after.lows)]) == 4
    assert measured == (name in {"fit ends", "trial is better"} or name.startswith(("cost", "a ")))
