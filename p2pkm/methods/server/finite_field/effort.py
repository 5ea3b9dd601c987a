"""How long arithmetic modulo a large prime takes: an estimate from counted operations, right to a factor of about 3."""

from math import log2

_MULTIPLY = 3.2e-11  # seconds of a product of two integers of b bits, over b^1.585 (Karatsuba)
_REDUCE = 2.2e-12  # seconds of a product modulo a prime of b bits, over b^2
_CALL = 1.5e-7  # seconds that a product takes at least
_TRIED = 0.0755  # numbers per bit that no small prime divides before a prime comes
_BASES = 40  # powers that show a number to be prime


def estimate(bits: int, largest: int, clients: int, local_k: int) -> float:
    """Return the seconds of one secure aggregation on one core, from the prime to the bins.

    Parameters
    ----------
    bits : int
        Of the prime.
    largest : int
        How many different bins there can be at most.
    clients, local_k : int
        Number of clients, and of seeds of each.
    """
    most, sums = min(clients * local_k, largest), 2 * clients * local_k
    power = bits * _modulo(bits)
    prime = (_TRIED * bits + _BASES) * power
    masked = sums * (clients * local_k + 8 * clients) * _modulo(bits)
    recurrence = sums * most * (_product(bits) + _modulo(bits))
    levels = [2.0**level for level in range(round(log2(most)) + 1)]
    split = _square(most, bits) + sum(parts * _square(most / parts, bits) for parts in levels)
    return prime + masked + recurrence + bits * split + 6 * most * most * _modulo(bits)


def _square(degree: float, bits: int) -> float:
    """Return the seconds of one squaring modulo a polynomial: three products of polynomials."""
    return 3 * (_product(degree * (2 * bits + log2(degree + 1))) + degree * (_modulo(bits) + 5 * _CALL))


def _product(bits: float) -> float:
    return float(_CALL + _MULTIPLY * bits**1.585)


def _modulo(bits: int) -> float:
    return _CALL + _REDUCE * bits * bits
