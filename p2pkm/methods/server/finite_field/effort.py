"""Estimated time of arithmetic modulo a large prime from counted operations, correct to a factor of about 3."""

from math import log2

# Seconds of a product of two integers of b bits, divided by b^1.585 (Karatsuba).
_MULTIPLY = 3.2e-11
# Seconds of a product modulo a prime of b bits, divided by b^2.
_REDUCE = 2.2e-12
# Least seconds of a product.
_CALL = 1.5e-7
# Numbers per bit that are tested before a prime is found, after those divisible by small primes.
_CANDIDATES = 0.0755
# Powers that are computed to show that a number is prime.
_BASES = 40


def estimate(bits: int, largest: int, clients: int, local_k: int) -> float:
    """Estimate the seconds of one secure aggregation on one core, from the search for the prime to the bins.

    Parameters
    ----------
    bits : int
        Bits of the prime.
    largest : int
        Largest number of different bins.
    clients, local_k : int
        Number of clients, and number of seeds of each client.

    Returns
    -------
    seconds : float
    """
    most = min(clients * local_k, largest)
    sums = 2 * clients * local_k
    power = bits * _modulo(bits)
    prime = (_CANDIDATES * bits + _BASES) * power
    masked = sums * (clients * local_k + 8 * clients) * _modulo(bits)
    recurrence = sums * most * (_product(bits) + _modulo(bits))
    levels = [2.0**level for level in range(round(log2(most)) + 1)]
    split = _square(most, bits) + sum(parts * _square(most / parts, bits) for parts in levels)
    return prime + masked + recurrence + bits * split + 6 * most * most * _modulo(bits)


def _square(degree: float, bits: int) -> float:
    """Estimate the seconds of one squaring modulo a polynomial, which takes three products of polynomials."""
    return 3 * (_product(degree * (2 * bits + log2(degree + 1))) + degree * (_modulo(bits) + 5 * _CALL))


def _product(bits: float) -> float:
    return float(_CALL + _MULTIPLY * bits**1.585)


def _modulo(bits: int) -> float:
    return _CALL + _REDUCE * bits * bits
