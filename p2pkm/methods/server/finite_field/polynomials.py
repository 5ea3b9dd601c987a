"""Polynomials modulo a prime p: lists of coefficients in ascending order, the last one not 0; the zero is empty."""

from itertools import zip_longest

Polynomial = list[int]


def multiply(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Return a x b: as one product of two integers, their digits in a base that no coefficient can exceed.

    The result has ``len(a) + len(b) - 1`` coefficients even if the last ones of a factor are 0.
    """
    if not a or not b:
        return []
    width = (2 * p.bit_length() + min(len(a), len(b)).bit_length() + 7) // 8
    left = _pack(a, width)
    product = left * (left if a is b else _pack(b, width))  # squares are cheaper
    size = (len(a) + len(b) - 1) * width
    digits = product.to_bytes(size, "little")
    return [int.from_bytes(digits[i : i + width], "little") % p for i in range(0, size, width)]


def divide(a: Polynomial, b: Polynomial, p: int) -> tuple[Polynomial, Polynomial]:
    """Return quotient and remainder of a by b, which is not 0."""
    rest, quotient, degree = a.copy(), [0] * max(len(a) - len(b) + 1, 0), len(b) - 1
    inverse = pow(b[-1], -1, p)
    for i in reversed(range(len(quotient))):
        factor = quotient[i] = rest.pop() * inverse % p
        rest[i:] = [(r - factor * c) % p for r, c in zip(rest[i:], b[:degree], strict=True)]
    return quotient, _trim(rest)


def subtract(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Return a - b."""
    return _trim([(u - v) % p for u, v in zip_longest(a, b, fillvalue=0)])


def gcd(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Return the greatest common divisor by Euclid's algorithm, with leading coefficient 1; one of them is not 0."""
    while b:
        a, b = b, divide(a, b, p)[1]
    inverse = pow(a[-1], -1, p)
    return [c * inverse % p for c in a]


def power(shift: int, exponent: int, modulus: Polynomial, p: int) -> Polynomial:
    """Return (x + shift)^exponent modulo a polynomial of leading coefficient 1 and degree at least 1."""
    inverse = _invert(modulus[::-1], len(modulus) - 1, p)
    result = [1]
    for bit in f"{exponent:b}":
        result = multiply(result, result, p)
        if bit == "1":
            result = [(low + shift * high) % p for low, high in zip([0, *result], [*result, 0], strict=True)]
        result = _reduce(result, modulus, inverse, p)
    return result


def _reduce(a: Polynomial, modulus: Polynomial, inverse: Polynomial, p: int) -> Polynomial:
    """Return a modulo the modulus.

    Backwards, a division is a product of power series: ``rev(quotient) = rev(a) / rev(modulus)`` up to its length.
    """
    degree = len(modulus) - 1
    excess = len(a) - degree
    if excess <= 0:
        return _trim(a)
    backwards = multiply(a[::-1][:excess], inverse[:excess], p)[:excess]
    return subtract(a[:degree], multiply(backwards[::-1], modulus, p)[:degree], p)


def _invert(a: Polynomial, terms: int, p: int) -> Polynomial:
    """Return the first terms of the power series 1/a, a_0 = 1, by Newton's iteration g <- g (2 - a g)."""
    inverse = [1]
    while len(inverse) < terms:
        known = min(2 * len(inverse), terms)
        error = multiply(a[:known], inverse, p)[:known]
        inverse = multiply(inverse, [(2 - error[0]) % p, *(-c % p for c in error[1:])], p)[:known]
    return inverse


def _pack(a: Polynomial, width: int) -> int:
    """Return the integer that has the coefficients as digits of so many bytes."""
    return int.from_bytes(b"".join([c.to_bytes(width, "little") for c in a]), "little")


def _trim(a: Polynomial) -> Polynomial:
    """Return a without zeros at its end."""
    size = len(a)
    while size and a[size - 1] == 0:
        size -= 1
    return a[:size]
