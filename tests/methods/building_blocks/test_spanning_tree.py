"""What comes down a tree is stored once while it is passed on unchanged, and as it was received where it is not."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from p2pkm.core.messages import Delivery, Tables
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, append_received, share_equal_tables

HELD = Tables(np.arange(8.0).reshape(4, 2), np.array([0, 2]), np.array([2, 2]))


def test_a_table_that_equals_one_that_is_held_is_that_one():
    heard = Tables(np.arange(8.0).reshape(4, 2), np.array([2, 0, 2]), np.array([2, 2, 2]))
    found = share_equal_tables(heard, HELD)
    assert found.values is HELD.values
    assert_array_equal(found.starts, [2, 0, 2])
    assert_array_equal(found.rows, [2, 2, 2])


def test_a_table_that_was_changed_is_added_once_and_what_pointed_into_the_old_values_points_to_the_same_rows():
    values = np.array([[9.0, 9.0], [0.0, 1.0], [2.0, 3.0], [9.0, 9.0]])
    heard = Tables(values, np.array([0, 1, 3, 0]), np.array([1, 2, 1, 0]))
    found = share_equal_tables(heard, HELD)
    assert_array_equal(found.values[:4], HELD.values)
    assert_array_equal(found.flat(), heard.flat())
    assert_array_equal(found.starts[:3], [4, 0, 4])
    assert len(found.values) == 5
    values[:] = -1.0
    assert_array_equal(found.values[4], [9.0, 9.0])


def test_equal_numbers_of_other_bits_are_another_table():
    held = Tables(np.zeros((1, 1)), np.zeros(1, np.int64), np.ones(1, np.int64))
    found = share_equal_tables(Tables(np.array([[-0.0]]), np.zeros(1, np.int64), np.ones(1, np.int64)), held)
    assert_array_equal(found.starts, [1])


def test_nothing_heard_is_nothing():
    nobody = np.zeros(0, np.int64)
    found = share_equal_tables(Tables(np.zeros((0, 2)), nobody, nobody), HELD)
    assert found.values is HELD.values
    assert len(found.rows) == 0


@pytest.mark.parametrize("seed", range(5))
def test_own_rows_stand_before_those_received_by_neighbor(seed):
    rng = np.random.default_rng(seed)
    n, degrees = 6, rng.integers(0, 4, 6)
    devices = SimpleNamespace(indptr=np.concatenate(([0], np.cumsum(degrees))))
    values = rng.random((40, 3))

    def draw(count):
        return Tables(values, rng.integers(0, 35, count), rng.integers(0, 5, count))

    who = np.flatnonzero(rng.random(n) < 0.7)
    edges = np.flatnonzero(np.isin(np.repeat(np.arange(n), degrees), who) & (rng.random(degrees.sum()) < 0.8))
    own, heard = PendingTables(who, draw(len(who))), Delivery(edges, draw(len(edges)))
    found = append_received(own, heard, devices)
    assert_array_equal(found.senders, who)
    for number, device in enumerate(who):
        parts = [own.tables.take(np.array([number])).flat()]
        mine = (edges >= devices.indptr[device]) & (edges < devices.indptr[device + 1])
        parts.append(heard.tables.take(np.flatnonzero(mine)).flat())
        assert_array_equal(found.tables.take(np.array([number])).flat(), np.concatenate(parts))
