"""Multisets of numbers modulo a prime as power sums, and back: what sums of sparse histograms need to travel."""

from collections.abc import Mapping
from operator import mul

from p2pkm.methods.server.finite_field.polynomials import Polynomial
from p2pkm.methods.server.finite_field.roots import roots, splits


class UndecodableError(ValueError):
    """Report power sums that belong to no multiset of so few different elements."""


def power_sums(counts: Mapping[int, int], length: int, p: int) -> list[int]:
    """Return ``S_i = sum_j q_j b_j^(i - 1) mod p`` for i = 1, ..., length, of elements b_j and counts q_j.

    Sums of two multisets add up to those of both together.
    """
    sums, terms = [], [count % p for count in counts.values()]
    for _ in range(length):
        sums.append(sum(terms) % p)
        terms = [term * element % p for term, element in zip(terms, counts, strict=True)]
    return sums


def recover(sums: list[int], p: int) -> dict[int, int]:
    """Return the elements, ascending, and their counts of the multiset with these 2K power sums modulo a prime p.

    By Prony's method: the sums obey a linear recurrence whose characteristic polynomial has the elements as roots.
    Exact if there are at most K different elements, different modulo p, with counts from 1 to p - 1.

    Raises
    ------
    UndecodableError
        If the sums belong to no such multiset. (Those of more than K elements nearly always look like K elements from a
        larger field; about one polynomial in K! has its roots in this one, and then a wrong multiset comes back.)
    """
    locator = _recurrence(sums, p)[::-1]
    if 2 * (len(locator) - 1) > len(sums) or not splits(locator, p):
        raise UndecodableError(
            f"{len(sums)} power sums modulo {p} are not those of at most {len(sums) // 2} different elements; expected "
            "the sums of all parts of the multiset: if each part was masked, every mask must be in the total"
        )
    return {element: _count(element, locator, sums, p) for element in roots(locator, p)}


def _recurrence(sums: list[int], p: int) -> Polynomial:
    """Return the shortest c with c_0 = 1 and ``sum_j c_j S_(i-j) = 0`` (Massey 1969); its length is order + 1."""
    current, previous, order, gap, last = [1], [1], 0, 1, 1
    for i in range(len(sums)):
        error = sum(map(mul, current, reversed(sums[i - order : i + 1]))) % p
        if error:
            factor, old = error * pow(last, -1, p) % p, current
            current = old + [0] * (gap + len(previous) - len(old))
            for j, c in enumerate(previous, gap):
                current[j] = (current[j] - factor * c) % p
            if 2 * order <= i:
                order, previous, last, gap = i + 1 - order, old, error, 0
        gap += 1
    return current


def _count(element: int, locator: Polynomial, sums: list[int], p: int) -> int:
    """Return how often an element occurs.

    The quotient h of the locator by x - element is 0 at all others, so ``sum_i h_i S_(i+1) = count x h(element)``.
    """
    coefficient = total = value = 0
    order = len(locator) - 1
    for above, power_sum in zip(reversed(locator[1:]), reversed(sums[:order]), strict=True):
        coefficient = (coefficient * element + above) % p
        total += coefficient * power_sum
        value = (value * element + coefficient) % p
    return total * pow(value, -1, p) % p
