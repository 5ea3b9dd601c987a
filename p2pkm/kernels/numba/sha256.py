"""Compiled SHA-256 (FIPS 180-4) of many tables at a time, so that the processor treats them side by side."""

from math import isqrt

import numpy as np

from p2pkm.kernels.numba.compiling import behind, helper
from p2pkm.kernels.numba.threads import divide

_LANES = 64  # tables at a time


def _fractions(root, count):
    """Return the first 32 bits behind the point of a root of the first primes, uint32[count]."""
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, isqrt(p) + 1))]
    return np.array([root(p) & 0xFFFFFFFF for p in primes[:count]], np.uint32)


def _cube_root(p):
    """Return floor(2^32 x the cube root of p)."""
    low, high = 0, 1 << 36
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= p << 96 else (low, middle)
    return low


_START = _fractions(lambda p: isqrt(p << 64), 8)
_ROUND = _fractions(_cube_root, 64)


@helper(inline="always")
def _turn(word, bits):
    """Rotate a word to the right."""
    return (word >> np.uint32(bits)) | (word << np.uint32(32 - bits))


@helper(inline="always")
def _reverse(word):
    """Reverse the four bytes of a word."""
    middle = ((word >> np.uint32(8)) & np.uint32(0xFF00)) | ((word << np.uint32(8)) & np.uint32(0xFF0000))
    return (word >> np.uint32(24)) | middle | (word << np.uint32(24))


@helper(inline="always")
def _compress(state, words, work):
    """Take one block of 16 words into each lane's state of 8; the roles of the work's rows move on by one a round."""
    for j in range(8):
        for r in range(_LANES):
            work[j, r] = state[j, r]
    for t in range(64):
        now = words[t & 15]
        if t >= 16:
            near, middle, far = words[(t + 1) & 15], words[(t + 9) & 15], words[(t + 14) & 15]
            for r in range(_LANES):
                x, y = near[r], far[r]
                now[r] += _turn(x, 7) ^ _turn(x, 18) ^ (x >> np.uint32(3))
                now[r] += middle[r] + (_turn(y, 17) ^ _turn(y, 19) ^ (y >> np.uint32(10)))
        a, b, c, d = work[-t & 7], work[(1 - t) & 7], work[(2 - t) & 7], work[(3 - t) & 7]
        e, f, g, h = work[(4 - t) & 7], work[(5 - t) & 7], work[(6 - t) & 7], work[(7 - t) & 7]
        for r in range(_LANES):
            x, y = e[r], a[r]
            step = (
                h[r] + (_turn(x, 6) ^ _turn(x, 11) ^ _turn(x, 25)) + (g[r] ^ (x & (f[r] ^ g[r]))) + _ROUND[t] + now[r]
            )
            d[r] += step
            h[r] = step + (_turn(y, 2) ^ _turn(y, 13) ^ _turn(y, 22)) + ((y & b[r]) | (c[r] & (y | b[r])))
    for j in range(8):
        for r in range(_LANES):
            state[j, r] += work[j, r]


@behind(1)
def _digest(contents, begin, end, result):
    """Write SHA-256 of the tables `begin` to `end` - 1, whose words stand in a line each."""
    size = contents.shape[1]
    blocks = (4 * size + 8) // 64 + 1  # the contents, a bit, zeros, and the number of bits as two words
    state, work, words = (
        np.empty((8, _LANES), np.uint32),
        np.empty((8, _LANES), np.uint32),
        np.empty((16, _LANES), np.uint32),
    )
    for first in range(begin, end, _LANES):
        count = min(_LANES, end - first)
        for j in range(8):
            state[j] = _START[j]
        for block in range(blocks):
            words[:] = np.uint32(0)
            for t in range(min(16, size - 16 * block)):
                for r in range(count):
                    words[t, r] = _reverse(contents[first + r, 16 * block + t])
            if 0 <= size - 16 * block < 16:
                words[size - 16 * block] = np.uint32(1 << 31)
            if block == blocks - 1:
                words[14], words[15] = np.uint32((32 * size) >> 32), np.uint32((32 * size) & 0xFFFFFFFF)
            _compress(state, words, work)
        for j in range(8):
            for r in range(count):
                result[first + r, j] = _reverse(state[j, r])


def digest(tables):
    """Return SHA-256 of each table; see `p2pkm.kernels.reference.digest`."""
    n, width = len(tables), 2 * tables.shape[1] * tables.shape[2]
    result = np.empty((n, 8), np.uint32)
    contents = np.ascontiguousarray(tables).reshape(n, width // 2).view(np.uint32)
    divide(lambda begin, end: _digest(contents, begin, end, result), range(0, (n + 1) * (width + 1), width + 1))
    return result.view(np.uint8)
