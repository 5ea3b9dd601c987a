"""Roots of polynomials modulo a prime."""

from p2pkm.methods.server.finite_field.polynomials import Polynomial, divide, gcd, power, subtract


def splits(f: Polynomial, p: int) -> bool:
    """Test whether f is a product of different factors x - r, that is, whether it divides x^p - x."""
    return len(f) == 1 or power(0, p, f, p) == divide([0, 1], f, p)[1]


def roots(f: Polynomial, p: int) -> list[int]:
    """Compute the roots of an f that `splits`, ascending, by equal-degree splitting (Cantor and Zassenhaus 1981).

    About half of the numbers r + shift are squares other than 0, whose (p - 1)/2-th power is 1. For two different r
    some shift separates them, so trying 0, 1, 2, ... ends, and no random numbers are needed.
    """
    results: list[int] = []
    pending = [f]
    shift = 0
    while pending:
        results += [-g[0] % p for g in pending if len(g) == 2]
        pending = [factor for g in pending if len(g) > 2 for factor in _split(g, shift, p)]
        shift += 1
    return sorted(results)


def _split(f: Polynomial, shift: int, p: int) -> list[Polynomial]:
    """Split f into the factor whose roots plus the shift are squares, not 0, and the other factor; either may be 1."""
    squares = gcd(f, subtract(power(shift, p // 2, f, p), [1], p), p)
    return [squares, divide(f, squares, p)[0]]
