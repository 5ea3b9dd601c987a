"""The adaptive code: what is counted by formula is the length of a message that can be read."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.adaptive_code import (
    bounded_bits,
    decision_bits,
    length_bits,
    log_factorials,
    order_bits,
    tally,
    unbounded_bits,
    whole_bits,
)
from p2pkm.core.arithmetic_coder import Coder

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(-(2**62), 2**62))


def test_decisions_by_hand():
    # noes and yeses with probabilities 1/2, 3/4, 5/6 and 1/8
    assert_allclose(decision_bits(np.array([0, 1, 2, 3, 3]), np.array([0, 0, 0, 0, 1])),
                    -np.log2([1, 1 / 2, 3 / 8, 5 / 16, 5 / 128]), atol=1e-12)  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30))
def test_the_length_of_decisions_does_not_depend_on_their_order(drawn):
    writer = Coder()
    for yes, context in drawn:
        writer.split(context, 1, int(yes))
    counts = np.array([[sum(c == context and y == yes for y, c in drawn) for context in range(4)] for yes in (0, 1)])
    assert_allclose(float(writer.size), 2.0 ** -decision_bits(*counts).sum(), rtol=1e-9)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12))
def test_unbounded_numbers_are_read_as_they_were(rows):
    writer, numbers = Coder(), np.array(rows, np.int64).reshape(-1, 2)
    for row in numbers.tolist():
        for f, one in enumerate(row):
            writer.unbounded(f, one)
    two = np.concatenate((numbers, numbers[:1]))  # and of another message
    owner = np.append(np.zeros(len(numbers), np.int64), np.ones(len(two) - len(numbers), np.int64))
    bits = unbounded_bits(two, owner, 2)[0].sum()
    assert_allclose(float(writer.size), 2.0**-bits, rtol=1e-6)
    reader = Coder(writer.finish(int(whole_bits(bits))))
    assert [[reader.unbounded(f, None) for f in range(2)] for _ in rows] == numbers.tolist()


@given(st.lists(st.integers(0, 31), max_size=20), st.lists(st.integers(0, 1), max_size=8), st.integers(0, 9))
def test_rows_in_no_order_save_the_orders(one, other, count):
    writer = Coder()
    assert writer.unordered("one", 5, one) == sorted(one)
    assert writer.unordered("one", 5, other) == sorted(other)  # what was learned from the first helps
    assert writer.count(count) == count
    assert writer.bounded("two", 3, 5) == 5
    keys, group = np.array(one + other, np.int64), np.repeat([0, 1], [len(one), len(other)])
    bits = bounded_bits(keys[:, None], np.zeros(len(keys), np.int64), np.array([[5]]))[0]
    bits += 3 + 2 * (count + 1).bit_length() - 1 - order_bits(keys, group, 2).sum()
    assert_allclose(float(writer.size), 2.0**-bits, rtol=1e-9)
    reader = Coder(writer.finish(int(whole_bits(np.float64(bits)))))
    assert reader.unordered("one", 5, len(one)) == sorted(one)
    assert reader.unordered("one", 5, len(other)) == sorted(other)
    assert reader.count(None) == count
    assert reader.bounded("two", 3, None) == 5


def test_lengths_of_columns_are_those_of_each():
    rng = np.random.default_rng(3)
    numbers, owner = rng.integers(0, 8, (40, 3)), rng.integers(0, 2, 40)
    widths = np.array([[3, 5, 3], [4, 3, 3]])
    alone = np.zeros(40, np.int64)
    one = [
        [
            bounded_bits(numbers[owner == i, f : f + 1], alone[owner == i], widths[i : i + 1, f : f + 1])[0]
            for f in range(3)
        ]
        for i in range(2)
    ]
    assert_allclose(bounded_bits(numbers, owner, widths), np.sum(one, axis=1))
    assert_array_equal(bounded_bits(numbers[:0], owner[:0], widths), [0, 0])


def test_lengths_of_columns_of_wide_numbers_are_those_of_each():
    """Above 2^62 pairs of a column and a number, which int64 cannot tell apart by their product."""
    rng = np.random.default_rng(3)
    numbers, owner = rng.integers(0, 2**52, (60, 300)), np.repeat(np.arange(20), 3)
    numbers[1::3] = numbers[::3]
    widths = np.full((20, 300), 52)
    one = [bounded_bits(numbers[owner == i], np.zeros(3, np.int64), widths[i : i + 1])[0] for i in range(20)]
    assert_allclose(bounded_bits(numbers, owner, widths), one)


def test_rounding_of_logarithms_makes_no_message_too_short():
    bits = 8.0 + np.array([-1e-9, 0.0, 1e-9])
    assert_array_equal(whole_bits(bits), 10)


def test_what_is_too_short_is_refused():
    writer = Coder()
    writer.plain(6, 33)
    with pytest.raises(ValueError, match="bits is 3; expected enough bits"):
        writer.finish(3)
    assert writer.finish(6) == "100001"  # its interval is the one of these bits, both ends alike
    with pytest.raises(ValueError, match="symbol is None; expected an integer to encode"):
        writer.split("a", 1, None)


def test_lengths_cost_one_decision_each():
    histogram = np.zeros(64, np.int64)
    histogram[[0, 1, 4]] = 3, 2, 1
    wanted = sum(decision_bits(np.array([a]), np.array([b]))[0] for a, b in ((3, 3), (2, 1), (0, 1), (0, 1), (1, 0)))
    assert length_bits(histogram) == pytest.approx(wanted)


def test_log_factorials_are_sums_of_logarithms():
    whole, half = (part[:21] for part in log_factorials(20))
    assert_allclose(whole, [np.log2(np.arange(1.0, m + 1)).sum() for m in range(21)])
    assert_allclose(half, [np.log2(np.arange(1.0, m + 1) - 0.5).sum() for m in range(21)])


def test_lengths_of_numbers_are_their_bit_lengths():
    numbers = [0, 1, -1, 2, 3, -4, 2**31, 2**61, -(2**62), 2**62 - 1, 2**63 - 1]
    histogram, fixed = tally(np.array(numbers)[:, None], np.zeros(len(numbers), np.int64), 1)
    lengths = [abs(number).bit_length() for number in numbers]
    assert histogram[0, 0].tolist() == [lengths.count(length) for length in range(64)]
    assert fixed.tolist() == [[sum(lengths)]]
