"""Counter-based random generator: a draw depends on (key, purpose, step, number) only."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# Multipliers and key increments of Philox 4x64 (Salmon et al. 2011).
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def _high(a, b):
    """Compute the upper 64 bits of the 128-bit products."""
    a0, a1, b0, b1 = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    middle = a1 * b0 + ((a0 * b0) >> _HALF)
    return a1 * b1 + (middle >> _HALF) + (((middle & _LOW) + a0 * b1) >> _HALF)


def philox(counters: ArrayLike, steps: ArrayLike, keys: ArrayLike, purpose: int) -> Any:
    """Compute Philox 4x64-10 (Salmon et al. 2011) for counters (counter, step, 0, 0) and keys (key, purpose).

    Parameters
    ----------
    counters, steps, keys : uint64, broadcastable to [b]
        Number of the block of four words, second counter word, first key word.
    purpose : int
        Second key word.

    Returns
    -------
    uint64[b, 4]
    """
    c0, c1, k0 = np.broadcast_arrays(*(np.atleast_1d(np.asarray(part, np.uint64)) for part in (counters, steps, keys)))
    c2 = c3 = np.zeros_like(c0)
    k1 = purpose & 0xFFFFFFFFFFFFFFFF
    for _ in range(10):
        h0, l0, h1, l1 = _high(_M0, c0), _M0 * c0, _high(_M1, c2), _M1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ np.uint64(k1), l0
        k0, k1 = k0 + np.uint64(_W0), (k1 + _W1) & 0xFFFFFFFFFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=-1)


def uniforms(key: int, purpose: int, steps: ArrayLike, count: int) -> Any:
    """Draw the first `count` numbers from [0, 1) of each stream (key, purpose, step), float64[steps, count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    steps = np.asarray(steps, np.uint64)
    words = philox(np.tile(blocks, len(steps)), np.repeat(steps, len(blocks)), key, purpose)
    # The upper 53 bits of each word, as a multiple of 2^-53.
    return (words.reshape(len(steps), -1)[:, :count] >> np.uint64(11)) * (1.0 / 9007199254740992.0)
