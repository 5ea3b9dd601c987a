"""Roots of polynomials modulo a prime."""

from p2pkm.methods.server.finite_field.polynomials import Polynomial, divide, gcd, power, subtract


def splits(f: Polynomial, p: int) -> bool:
    """Return whether f is a product of different factors x - r, that is: whether it divides x^p - x."""
    return len(f) == 1 or power(0, p, f, p) == divide([0, 1], f, p)[1]


def roots(f: Polynomial, p: int) -> list[int]:
    """Return the roots of an f that `splits`, ascending, by equal-degree splitting (Cantor and Zassenhaus 1981).

    Of the numbers r + shift, half are squares other than 0, whose (p - 1)/2-th power is 1. For two different r there
    is a shift that tells them apart, so trying 0, 1, 2, ... ends; nothing need be drawn.
    """
    found, pending, shift = [], [f], 0
    while pending:
        found += [-g[0] % p for g in pending if len(g) == 2]
        pending = [factor for g in pending if len(g) > 2 for factor in _split(g, shift, p)]
        shift += 1
    return sorted(found)


def _split(f: Polynomial, shift: int, p: int) -> list[Polynomial]:
    """Return the factor of f whose roots plus the shift are squares, not 0, and the other one; either may be 1."""
    squares = gcd(f, subtract(power(shift, p // 2, f, p), [1], p), p)
    return [squares, divide(f, squares, p)[0]]
