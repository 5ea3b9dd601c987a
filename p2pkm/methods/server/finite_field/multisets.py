"""Coding of multisets of numbers modulo a prime as power sums, for sums of sparse histograms in short messages."""

from collections.abc import Mapping
from operator import mul

from p2pkm.methods.server.finite_field.polynomials import Polynomial
from p2pkm.methods.server.finite_field.roots import roots, splits


class UndecodableError(ValueError):
    """Power sums do not belong to a multiset with the expected number of different elements."""


def power_sums(counts: Mapping[int, int], length: int, p: int) -> list[int]:
    """Compute ``S_i = sum_j q_j b_j^(i - 1) mod p`` for i = 1, ..., length, from elements b_j and counts q_j.

    Power sums of two multisets add up to those of their union.
    """
    sums, terms = [], [count % p for count in counts.values()]
    for _ in range(length):
        sums.append(sum(terms) % p)
        terms = [term * element % p for term, element in zip(terms, counts, strict=True)]
    return sums


def recover(sums: list[int], p: int) -> dict[int, int]:
    """Recover the multiset with these 2K power sums modulo a prime p: elements, ascending, and their counts.

    By Prony's method: the sums obey a linear recurrence whose characteristic polynomial has the elements as roots.
    Exact if there are at most K different elements, different modulo p, with counts from 1 to p - 1.

    Raises
    ------
    UndecodableError
        If the sums do not belong to such a multiset. Sums of more than K elements are nearly always detected, because
        they look like K elements of a larger field. About one polynomial in K! has its roots in this field; then a
        wrong multiset is returned.
    """
    locator = _recurrence(sums, p)[::-1]
    if 2 * (len(locator) - 1) > len(sums) or not splits(locator, p):
        raise UndecodableError(
            f"{len(sums)} power sums modulo {p} do not belong to at most {len(sums) // 2} different elements; expected "
            "the total of all parts of the multiset. If each part was masked, add the tables of all clients."
        )
    return {element: _count(element, locator, sums, p) for element in roots(locator, p)}


def _recurrence(sums: list[int], p: int) -> Polynomial:
    """Find the shortest c with c_0 = 1 and ``sum_j c_j S_(i-j) = 0`` (Massey 1969); its length is order + 1."""
    current = [1]
    previous = [1]
    order = 0
    gap = 1
    last = 1
    for i in range(len(sums)):
        error = sum(map(mul, current, reversed(sums[i - order : i + 1]))) % p
        if error:
            factor = error * pow(last, -1, p) % p
            old = current
            current = old + [0] * (gap + len(previous) - len(old))
            for j, c in enumerate(previous, gap):
                current[j] = (current[j] - factor * c) % p
            if 2 * order <= i:
                order, previous, last, gap = i + 1 - order, old, error, 0
        gap += 1
    return current


def _count(element: int, locator: Polynomial, sums: list[int], p: int) -> int:
    """Count the occurrences of an element.

    The quotient h of the locator by x - element is 0 at all other elements, so ``sum_i h_i S_(i+1) = count
    h(element)``.
    """
    coefficient = total = value = 0
    order = len(locator) - 1
    for above, power_sum in zip(reversed(locator[1:]), reversed(sums[:order]), strict=True):
        coefficient = (coefficient * element + above) % p
        total += coefficient * power_sum
        value = (value * element + coefficient) % p
    return total * pow(value, -1, p) % p
