"""Counter-based random generator: a draw depends on (key, purpose, step, number) only."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# Multipliers and key increments of Philox 4x64 (Salmon et al. 2011), for the words 0 and 2 of a counter.
_MULTIPLIERS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], np.uint64)
_INCREMENTS = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], np.uint64)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS_LOW, _MULTIPLIERS_HIGH = _MULTIPLIERS & _LOW, _MULTIPLIERS >> _HALF


def _multiply_high(words):
    """Compute the upper 64 bits of the 128-bit products of words and multipliers."""
    low, high = words & _LOW, words >> _HALF
    middle = _MULTIPLIERS_HIGH * low + ((_MULTIPLIERS_LOW * low) >> _HALF)
    return _MULTIPLIERS_HIGH * high + (middle >> _HALF) + (((middle & _LOW) + _MULTIPLIERS_LOW * high) >> _HALF)


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
    key = np.empty((2, c0.size), np.uint64)
    key[0], key[1] = k0.reshape(-1), purpose & 0xFFFFFFFFFFFFFFFF
    # Words 0 and 2, which are multiplied, and words 1 and 3.
    words, odd_words = np.zeros((2, 2, c0.size), np.uint64)
    words[0], odd_words[0] = c0.reshape(-1), c1.reshape(-1)
    for _ in range(10):
        words, odd_words = _multiply_high(words)[::-1] ^ odd_words ^ key, (_MULTIPLIERS * words)[::-1]
        key += _INCREMENTS
    return np.stack((words[0], odd_words[0], words[1], odd_words[1]), axis=-1).reshape(*c0.shape, 4)


def uniforms(key: int, purpose: int, steps: ArrayLike, count: int) -> Any:
    """Draw the first `count` numbers from [0, 1) of each stream (key, purpose, step), float64[steps, count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    steps = np.asarray(steps, np.uint64)
    words = philox(np.tile(blocks, len(steps)), np.repeat(steps, len(blocks)), key, purpose)
    # The upper 53 bits of each word, as a multiple of 2^-53.
    return (words.reshape(len(steps), -1)[:, :count] >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def ragged_uniforms(key: int, purpose: int, steps: Any, counts: Any) -> Any:
    """Draw the first `counts[i]` numbers of each stream (key, purpose, steps[i]), end to end: those of `uniforms`.

    Parameters
    ----------
    steps, counts : int64[b]
    """
    blocks = (counts + 3) // 4
    ends = np.cumsum(blocks)
    # Number of each block in its stream.
    numbers = np.arange(blocks.sum()) - np.repeat(ends - blocks, blocks)
    words = philox(numbers, np.repeat(steps, blocks), key, purpose)
    # The last block of a stream may have more words than are drawn.
    is_drawn = 4 * numbers[:, None] + np.arange(4) < np.repeat(counts, blocks)[:, None]
    return (words[is_drawn] >> np.uint64(11)) * (1.0 / 9007199254740992.0)
