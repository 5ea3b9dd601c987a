"""Arithmetic modulo a prime of any size, against naive twins and by identities."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from p2pkm.methods.server.finite_field import limbs
from p2pkm.methods.server.finite_field.multisets import UndecodableError, power_sums, recover
from p2pkm.methods.server.finite_field.polynomials import divide, gcd, multiply, power, subtract
from p2pkm.methods.server.finite_field.primes import is_prime, next_prime
from p2pkm.methods.server.finite_field.roots import roots, splits
from tests.support.each import each
from tests.support.sampling import thin

PRIMES = [2, 3, 5, 7, 101, 65537, 2**31 - 1, 2147483659, 2**61 - 1, 2**64 + 13, 2**127 - 1, 2**521 - 1]
primes = st.sampled_from(PRIMES[:-1])


def naive_product(a, b, p):
    result = [0] * (len(a) + len(b) - 1) if a and b else []
    for i, u in enumerate(a):
        for j, v in enumerate(b):
            result[i + j] = (result[i + j] + u * v) % p
    return result


def from_roots(numbers, p):
    f = [1]
    for number in numbers:
        f = naive_product(f, [-number % p, 1], p)
    return f


def value(f, x, p):
    return sum(c * pow(x, i, p) for i, c in enumerate(f)) % p


def naive_sums(counts, length, p):
    return [sum(q * pow(b, i, p) for b, q in counts.items()) % p for i in range(length)]


def random_multiset(rnd, p, size):
    size = min(size, p)
    elements = set()
    while len(elements) < size:
        elements.add(rnd.randrange(p))
    return {b: rnd.randrange(1, p) for b in sorted(elements)}


@st.composite
def polynomials(draw, p, least=0):
    low = draw(st.lists(st.integers(0, p - 1), min_size=max(least - 1, 0), max_size=12))
    return [*low, draw(st.integers(1, p - 1))] if least or draw(st.booleans()) else []


def test_primes_below_a_bound_are_those_of_the_sieve():
    sieve = np.ones(30_000, bool)
    sieve[:2] = False
    for i in range(2, 174):
        sieve[2 * i :: i] = False
    assert [n for n in range(-3, 30_000) if is_prime(n)] == np.flatnonzero(sieve).tolist()


@pytest.mark.parametrize("exponent", [61, 89, 127, 521, 607])
def test_mersenne_primes(exponent):
    assert is_prime(2**exponent - 1)
    assert not is_prime((2**exponent - 1) * (2**61 - 1))


@each(
    "number",
    [561, 2047, 3215031751, 3825123056546413051, 318665857834031151167461, 3317044064679887385961981,
     (2**61 - 1) ** 2, 179 * 181, 2**64, 2**67 - 1],
)  # fmt: skip
def test_numbers_that_look_prime_to_few_bases_are_not(number):
    assert not is_prime(number)


@each(
    ("bound", "prime"),
    [(-5, 2), (0, 2), (2, 3), (7, 11), (2**31, 2147483659), (2**40, 2**40 + 15), (2**64, 2**64 + 13),
     (2**127 - 2, 2**127 - 1)],
)  # fmt: skip
def test_the_next_prime(bound, prime):
    assert next_prime(bound) == prime


@given(st.data(), primes)
def test_the_product_is_the_naive_one(data, p):
    a, b = data.draw(polynomials(p)), data.draw(polynomials(p))
    assert multiply(a, b, p) == naive_product(a, b, p)
    assert multiply(a, a, p) == naive_product(a, a, p)


@pytest.mark.parametrize("p", PRIMES)
@pytest.mark.parametrize("length", [1, 2, 127, 128])
def test_the_largest_coefficients_fit_their_digits(p, length):
    assert multiply([p - 1] * length, [p - 1] * length, p) == naive_product([p - 1] * length, [p - 1] * length, p)


@given(st.data(), primes)
def test_quotient_and_remainder_add_up(data, p):
    a, b = data.draw(polynomials(p)), data.draw(polynomials(p, 1))
    before = a.copy(), b.copy()
    quotient, remainder = divide(a, b, p)
    assert (a, b) == before
    assert len(remainder) < len(b) and (not remainder or remainder[-1])
    assert subtract(a, naive_product(quotient, b, p), p) == remainder


@given(st.data(), st.sampled_from(PRIMES[3:]))
def test_the_common_divisor_has_the_common_roots(data, p):
    numbers = st.lists(st.integers(0, 6), max_size=8)
    left, right = data.draw(numbers), data.draw(numbers)
    scale = data.draw(st.integers(1, p - 1))
    common = [x for x in range(7) for _ in range(min(left.count(x), right.count(x)))]
    scaled = [scale * c % p for c in from_roots(left, p)]
    assert gcd(scaled, from_roots(right, p), p) == from_roots(common, p)
    assert gcd(scaled, [], p) == gcd([], scaled, p) == from_roots(left, p)


@given(st.data(), primes, st.integers(0, 40))
def test_powers_are_repeated_products(data, p, exponent):
    modulus = [*data.draw(polynomials(p, 1)), 1]
    shift, expected = data.draw(st.integers(0, p - 1)), [1]
    for _ in range(exponent):
        expected = divide(naive_product(expected, [shift, 1], p), modulus, p)[1]
    assert power(shift, exponent, modulus, p) == expected


@each("p", [2, 3, 5, 7, 31, 101])
def test_all_elements_of_a_small_field_are_found(p):
    f = [0, p - 1, *[0] * (p - 2), 1] if p > 2 else [0, 1, 1]
    assert splits(f, p)
    assert roots(f, p) == list(range(p))


@given(st.data(), primes)
def test_roots_are_found_in_ascending_order(data, p):
    numbers = sorted(data.draw(st.sets(st.integers(0, p - 1), max_size=12)))
    f = from_roots(numbers, p)
    assert splits(f, p)
    assert roots(f, p) == numbers


@pytest.mark.parametrize("p", PRIMES[1:])
def test_what_does_not_split_is_known(p):
    square = next(x for x in range(2, p) if pow(x, p // 2, p) == p - 1)
    irreducible = [-square % p, 0, 1]
    assert not splits(irreducible, p)
    assert not splits(naive_product(irreducible, [1, 1], p), p)
    assert not splits(from_roots([1, 1], p), p)
    assert not splits(from_roots([0, 0, 2], p), p)


@given(st.data(), primes, st.integers(0, 9))
def test_power_sums_are_the_definition_and_add_up(data, p, length):
    counts = st.dictionaries(st.integers(0, p - 1), st.integers(0, 50), max_size=5)
    one, other = data.draw(counts), data.draw(counts)
    both = {b: one.get(b, 0) + other.get(b, 0) for b in {*one, *other}}
    sums = [power_sums(part, length, p) for part in (one, other, both)]
    assert sums[0] == naive_sums(one, length, p)
    assert [(u + v) % p for u, v in zip(*sums[:2], strict=True)] == sums[2]


def test_a_multiset_by_hand():
    assert power_sums({1: 1, 2: 1, 3: 2}, 6, 101) == [4, 9, 23, 63, 78, 14]
    assert recover([4, 9, 23, 63, 78, 14], 101) == {1: 1, 2: 1, 3: 2}
    assert recover([3, 0], 7) == {0: 3}


@pytest.mark.slow
def test_a_thousand_random_multisets_are_recovered():
    rnd = random.Random(0)
    for trial in range(1000):
        p = PRIMES[trial % 10 if trial % 50 else 10]
        counts = random_multiset(rnd, p, rnd.randrange(10))
        spare = rnd.randrange(3)
        assert recover(naive_sums(counts, 2 * (len(counts) + spare), p), p) == counts


@given(st.data(), primes)
def test_every_multiset_is_recovered(data, p):
    counts = data.draw(st.dictionaries(st.integers(0, p - 1), st.integers(1, p - 1), max_size=10))
    found = recover(power_sums(counts, 2 * len(counts), p), p)
    assert found == counts
    assert list(found) == sorted(counts)


@pytest.mark.parametrize(("p", "size"), thin([(1019, 150), (2**40 + 15, 150), (2**127 - 1, 40)], 2))
@pytest.mark.sample(2)
def test_large_multisets_are_recovered(p, size):
    counts = random_multiset(random.Random(size), p, size)
    assert recover(power_sums(counts, 2 * size, p), p) == counts


def test_neighboring_elements_are_told_apart():
    counts = {b: 1 for b in range(1, 65)}
    assert recover(power_sums(counts, 128, 2147483659), 2147483659) == counts


@pytest.mark.parametrize("p", PRIMES[5:11])
def test_too_many_elements_are_refused(p):
    rnd = random.Random(p)
    for excess in (1, 2, 12):
        counts = random_multiset(rnd, p, 12 + excess)
        with pytest.raises(UndecodableError, match="at most 12 different elements"):
            recover(power_sums(counts, 24, p), p)


def test_sums_of_higher_order_are_refused():
    with pytest.raises(UndecodableError):
        recover([0, 0, 0, 1], 101)


def test_nothing_is_the_empty_multiset():
    assert recover([], 7) == recover([0] * 8, 7) == {}
    assert power_sums({}, 3, 7) == [0, 0, 0]


@given(st.lists(st.integers(0, 2**200 - 1), max_size=5))
def test_limbs_are_exact(numbers):
    table = limbs.split(numbers, 7)
    assert table.shape == (len(numbers), 7)
    assert (table < 2**32).all() and (table == np.floor(table)).all()
    assert limbs.join(table) == numbers
    assert limbs.join(table * 2**20) == [number << 20 for number in numbers]


@pytest.mark.parametrize(("p", "width"), [(2, 1), (2**32 - 5, 1), (2**32 + 15, 2), (2**61 - 1, 2), (2**64 + 13, 3)])
def test_as_many_limbs_as_the_largest_element_needs(p, width):
    assert limbs.width(p) == width
    assert_array_equal(limbs.split([p - 1], width), [[(p - 1) >> 32 * i & 0xFFFFFFFF for i in range(width)]])


def test_roots_are_those_that_flint_finds():
    flint = pytest.importorskip("flint")
    rnd = random.Random(5)
    for p in PRIMES[4:]:
        ring = flint.fmpz_mod_poly_ctx(p)
        for size in (1, 3, 20):
            f = from_roots(random_multiset(rnd, p, size), p)
            theirs = sorted(int(root) for root, _ in ring(f).roots())
            assert roots(f, p) == theirs
            f = [rnd.randrange(p) for _ in range(size)] + [1]
            found = ring(f).roots()
            assert splits(f, p) == (len(found) == size and all(times == 1 for _, times in found))
