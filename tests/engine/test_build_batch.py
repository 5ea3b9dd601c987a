"""The batch of a rank: what every device knows at the start."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.engine.build_batch import _draw_keys
from p2pkm.kernels.reference import philox


def test_keys_drawn_in_blocks_are_those_drawn_at_once():
    ids = np.arange(3, 150_000)
    assert_array_equal(_draw_keys(ids, 7), philox(ids.astype(np.uint64), 0, 7, Stream.KEYS)[:, 0])
    assert _draw_keys(ids[:0], 7).shape == (0,)
