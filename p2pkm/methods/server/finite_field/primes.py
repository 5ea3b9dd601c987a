"""Search for prime numbers of any size."""

from functools import lru_cache

# The first 13 bases decide for every number below 3.3e24 (Sorenson and Webster 2017). Above, a composite number that
# passes all bases is not known.
_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103,
          107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173)  # fmt: skip


def is_prime(number: int) -> bool:
    """Test whether a number is prime, by Miller-Rabin with fixed bases."""
    if number < 2 or any(number % base == 0 for base in _BASES):
        return number in _BASES
    twos = ((number - 1) & (1 - number)).bit_length() - 1
    return all(_passes(number, base, twos) for base in _BASES)


@lru_cache(maxsize=64)
def next_prime(bound: int) -> int:
    """Find the smallest prime above a bound; recent results are cached."""
    number = max(bound + 1, 2)
    while not is_prime(number):
        number += 1
    return number


def _passes(number: int, base: int, twos: int) -> bool:
    """Test whether base^(number - 1) reaches 1 only from 1 or -1, as it must modulo a prime."""
    power = pow(base, number - 1 >> twos, number)
    if power == 1:
        return True
    for _ in range(twos):
        if power == number - 1:
            return True
        power = power * power % number
    return False
