"""Polynomials modulo a prime p: lists of coefficients in ascending order, the last not 0; 0 is the empty list."""

from itertools import zip_longest

Polynomial = list[int]


def multiply(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Multiply two polynomials as one product of two integers, in a base that no coefficient can exceed.

    The result has ``len(a) + len(b) - 1`` coefficients even if the last ones of a factor are 0.
    """
    if not a or not b:
        return []
    width = (2 * p.bit_length() + min(len(a), len(b)).bit_length() + 7) // 8
    left = _pack(a, width)
    # Python squares an integer faster than it multiplies two.
    product = left * (left if a is b else _pack(b, width))
    size = (len(a) + len(b) - 1) * width
    digits = product.to_bytes(size, "little")
    return [int.from_bytes(digits[i : i + width], "little") % p for i in range(0, size, width)]


def divide(a: Polynomial, b: Polynomial, p: int) -> tuple[Polynomial, Polynomial]:
    """Divide a by b, which is not 0, into quotient and remainder."""
    rest = a.copy()
    quotient = [0] * max(len(a) - len(b) + 1, 0)
    degree = len(b) - 1
    inverse = pow(b[-1], -1, p)
    for i in reversed(range(len(quotient))):
        factor = quotient[i] = rest.pop() * inverse % p
        rest[i:] = [(r - factor * c) % p for r, c in zip(rest[i:], b[:degree], strict=True)]
    return quotient, _trim(rest)


def subtract(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Subtract b from a."""
    return _trim([(u - v) % p for u, v in zip_longest(a, b, fillvalue=0)])


def gcd(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    """Compute the greatest common divisor, with leading coefficient 1, by Euclid's algorithm; a or b is not 0."""
    while b:
        a, b = b, divide(a, b, p)[1]
    inverse = pow(a[-1], -1, p)
    return [c * inverse % p for c in a]


def power(shift: int, exponent: int, modulus: Polynomial, p: int) -> Polynomial:
    """Compute (x + shift)^exponent modulo a polynomial of leading coefficient 1 and degree at least 1."""
    inverse = _invert(modulus[::-1], len(modulus) - 1, p)
    result = [1]
    for bit in f"{exponent:b}":
        result = multiply(result, result, p)
        if bit == "1":
            result = [(low + shift * high) % p for low, high in zip([0, *result], [*result, 0], strict=True)]
        result = _reduce(result, modulus, inverse, p)
    return result


def _reduce(a: Polynomial, modulus: Polynomial, inverse: Polynomial, p: int) -> Polynomial:
    """Reduce a modulo the modulus.

    In reversed order a division is a product of power series: ``rev(quotient) = rev(a) / rev(modulus)`` up to its
    length.
    """
    degree = len(modulus) - 1
    excess = len(a) - degree
    if excess <= 0:
        return _trim(a)
    backwards = multiply(a[::-1][:excess], inverse[:excess], p)[:excess]
    return subtract(a[:degree], multiply(backwards[::-1], modulus, p)[:degree], p)


def _invert(a: Polynomial, terms: int, p: int) -> Polynomial:
    """Compute the first terms of the power series 1/a with a_0 = 1, by Newton's iteration g <- g (2 - a g)."""
    inverse = [1]
    while len(inverse) < terms:
        known = min(2 * len(inverse), terms)
        error = multiply(a[:known], inverse, p)[:known]
        inverse = multiply(inverse, [(2 - error[0]) % p, *(-c % p for c in error[1:])], p)[:known]
    return inverse


def _pack(a: Polynomial, width: int) -> int:
    """Pack the coefficients into an integer, as digits of `width` bytes."""
    return int.from_bytes(b"".join([c.to_bytes(width, "little") for c in a]), "little")


def _trim(a: Polynomial) -> Polynomial:
    """Remove the zeros at the end of a."""
    size = len(a)
    while size and a[size - 1] == 0:
        size -= 1
    return a[:size]
