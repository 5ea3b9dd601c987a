"""Lengths of encoded tables: they are those of messages that can be decoded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from p2pkm.core.wire_format import decode, encode, integer_bits, number_bits, to_bytes

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 4))
SIZES = st.sampled_from([0, 1, 3, 100, 127, 128, 2**15 - 1, 2**15, 2**31, 2**40, 2**62 - 1])
TABLES = st.tuples(SHAPES, SIZES).flatmap(
    lambda drawn: arrays(np.int64, drawn[0], elements=st.integers(-drawn[1], drawn[1]))
)


@given(TABLES, st.booleans())
def test_a_table_is_decoded_as_it_was_and_its_length_is_the_counted_one(table, rice):
    bits = encode(table, rice=rice)
    assert_array_equal(decode(bits, *table.shape), table)
    assert len(bits) == integer_bits(table[None], rice=rice)[0]


@given(TABLES)
def test_a_length_does_not_depend_on_the_other_tables(table):
    both = np.stack((table, np.zeros_like(table)))
    assert integer_bits(both)[0] == integer_bits(table[None])[0]
    padded = np.concatenate((table, np.zeros((3, table.shape[1]), np.int64)))  # nor on room for longer ones
    assert integer_bits(padded[None], np.array([len(table)])) == integer_bits(table[None])
    assert integer_bits(padded[None], np.array([len(table)]), rice=False) == integer_bits(table[None], rice=False)


def test_numbers_that_are_not_all_whole_or_too_large_take_64_bits_each():
    whole = np.array([[[1.0, -7.0], [0.0, 0.0]]])
    assert number_bits(whole) == 1 + integer_bits(whole.astype(np.int64))
    for odd in (0.5, 2.0**52, np.inf, np.nan):
        assert number_bits(whole + np.array([[[odd, 0.0], [0.0, 0.0]]])) == 1 + 4 * 64
    assert number_bits(whole + 0.5, np.array([1])) == 1 + 2 * 64


def test_lengths_by_hand():
    table = np.array([[0, 0], [1, -1], [0, 0], [0, 3]])  # zigzag 2, 1, 0, 6
    # parameter 1: 1 + 0 + 0 + 3 ones, 4 zeros, 4 low bits; parameter 0: 9 ones, 4 zeros; parameter 2: 1, 4, 8
    assert encode(table) == "10" + "0101" + "00001" + "100" + "01" + "00" + "11100"
    assert integer_bits(table[None]) == [2 + 4 + 5 + 12]
    assert integer_bits(table[None], rice=False) == [1 + 2 + 4 + 4 * 8]
    assert to_bytes(integer_bits(table[None])) == [3]
    for size, width in ((127, 8), (-128, 8), (128, 16), (-(2**15), 16), (2**15, 32), (2**31, 64)):
        assert integer_bits(np.array([[[size]]]), rice=False) == [1 + 2 + 1 + width]
    assert integer_bits(np.zeros((1, 3, 2), np.int64)) == [1 + 2 + 3]
    # adaptive: 40 rows of 0 have probability 1/2 3/4 5/6 ... 79/80 = 1/11.2
    assert encode(np.zeros((40, 2), np.int64))[:3] == "110"
    assert integer_bits(np.zeros((1, 40, 2), np.int64)) == [3 + 4 + 1]


def test_bits_are_left_over_only_in_a_broken_message():
    with pytest.raises(ValueError, match="1 bits are left over"):
        decode(encode(np.array([[5, 6]])) + "0", 1, 2)


def test_whole_bytes():
    assert_array_equal(to_bytes(np.array([0, 1, 8, 9])), [0, 1, 1, 2])


@pytest.mark.parametrize("rice", [True, False])
def test_a_rank_without_devices_has_no_tables(rice):
    assert integer_bits(np.zeros((0, 3, 2), np.int64), np.zeros(0, np.int64), rice=rice).shape == (0,)
