"""Compiled counter-based random generator: a draw depends on (key, purpose, step, number) only."""

import numpy as np
from numba import njit, uint64

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_LOW, _HALF, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(11)


@njit(cache=True, nogil=True, inline="always")
def _high(a, b):
    """Compute the upper 64 bits of the 128-bit product."""
    a0, a1 = a & _LOW, a >> _HALF
    b0, b1 = b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    return a1 * b1 + (middle >> _HALF) + (((middle & _LOW) + a0 * b1) >> _HALF)


@njit(cache=True, nogil=True)
def _philox(c0, c1, k0, k1):
    """Compute the four words of Philox 4x64-10 for the counter (c0, c1, 0, 0) and the key (k0, k1)."""
    c2, c3 = uint64(0), uint64(0)
    for _ in range(10):
        h0, l0 = _high(_M0, c0), _M0 * c0
        h1, l1 = _high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0, k1 = k0 + _W0, k1 + _W1
    return c0, c1, c2, c3


@njit(cache=True, nogil=True)
def _uniform(key, purpose, step, number):
    """Draw a number from [0, 1): the upper 53 bits of word `number` of the stream (key, purpose, step)."""
    words = _philox(uint64(number // 4), uint64(step), uint64(key), uint64(purpose))
    return float(words[number % 4] >> _SHIFT) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _uniforms(key, purpose, step, draws):
    """Fill `draws`, whose length is a multiple of four, with the first draws of `_uniform`."""
    for first in range(0, draws.shape[0], 4):
        words = _philox(uint64(first // 4), uint64(step), uint64(key), uint64(purpose))
        draws[first] = float(words[0] >> _SHIFT) * (1.0 / 9007199254740992.0)
        draws[first + 1] = float(words[1] >> _SHIFT) * (1.0 / 9007199254740992.0)
        draws[first + 2] = float(words[2] >> _SHIFT) * (1.0 / 9007199254740992.0)
        draws[first + 3] = float(words[3] >> _SHIFT) * (1.0 / 9007199254740992.0)
