"""Exact sums of tables with noise and pairwise masks: the participants learn the totals and nothing else.

Tables are integers in units of the sum, and so is the noise that a device adds. Before a device sends its table, it
adds masks: uniform 64-bit words, shared with each neighbor, added at the lower id of a link and subtracted at the
higher id::

    y_i = x_i + sum_{j > i} m_ij - sum_{j < i} m_ij    mod 2^64

In the sum over all devices the masks cancel, in any order of addition: the total is that of the x_i, bit for bit.
Without the masks, a sent table is uniformly distributed. A coalition S has the masks of its links only. The remaining
masks can turn any tables of the other devices into any other tables with the same total over each component of the
graph without S. So these totals are all that S learns (tests/privacy/test_secure_sums.py constructs such masks).

Masks and noise belong to a sum, not to a message: the root of a tree adds its table without sending it, and only the
method can bound the change of a sum by one point. So methods call these functions; they are not transforms of the
channel.

The masks of a sum are a function of the keys, the stage and the number of the sum. They must never be used for two
different tables: the difference of the messages would be the difference of the tables. A stage that uses each number
once, also if it is resumed between two rounds, satisfies this. A failed sum must not be repeated: its number, noise and
share of the privacy budget are spent (K. Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, on the treatment of dropouts).

For the key exchange every device sends 32 bytes over each link, as with X25519. In this simulation the key of a link is
a hash of the words of both ends and of the secret of the run (`p2pkm.engine.run_secret`), which represents the private
keys: words and masked tables do not reveal it. Noise is derived from the same secret, never from the seed.
"""

import math
import zlib
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Secrets, Stream
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import as_normal

# Words of 8 bytes that a device sends over every link for the key exchange.
WORDS = 4
# The sensitivity is at least this number of units, so that rounding adds little noise.
FINEST = 4096
# Largest standard deviation of noise, in units. Normal draws have 53 bits: with more noise some integers are never
# drawn, so the low bits of a table are sent without noise, and from 2^63 / 9 on integers overflow.
MOST_NOISE = 2.0**48
# Words of masks that are computed at the same time: 32 MB.
_BLOCK_WORDS = 1 << 22


class SumName(NamedTuple):
    """Identifier of a sum in a run.

    Attributes
    ----------
    stage : str
        Name of the stage.
    number : int
        Number that is used once in the stage.
    """

    stage: str
    number: int

    def purpose(self, stream: Stream) -> int:
        """Compute the purpose of a random stream of the stage."""
        return int(stream) + (zlib.crc32(self.stage.encode()) << 32)


class Grain(NamedTuple):
    """Unit and sensitivity of a sum.

    Attributes
    ----------
    unit : float
        A power of two.
    sensitivity : float
        Largest change of a table by one point (Euclidean norm), including the rounding to units.
    """

    unit: float
    sensitivity: float


def grain_of(sensitivity: float, width: int) -> Grain:
    """Compute unit and sensitivity of a sum with rows of `width` numbers, from its sensitivity D without rounding.

    The unit is ``q = 2^floor(log2(D / (4096 sqrt(width))))``. Rounding increases D by at most ``sqrt(width) q``, which
    is at most D / 4096: each coordinate of a point changes by at most q / 2, and neighboring data sets differ in at
    most two points.
    """
    unit = 2.0 ** math.floor(math.log2(sensitivity / (FINEST * math.sqrt(width))))
    return Grain(unit, sensitivity + math.sqrt(width) * unit)


def secrets_of(devices: Devices) -> Secrets:
    """Get the keys of unpredictable draws.

    Raises
    ------
    RuntimeError
        If the method of the run does not declare the trait `guarantee`.
    """
    if devices.secrets is None:
        raise RuntimeError("the devices are without secrets; expected a method with the trait guarantee")
    return devices.secrets


def public_words(devices: Devices) -> Keys:
    """Draw the words that every device sends over each link before the first sum, uint64[n, 4]."""
    return np.ascontiguousarray(philox(0, 0, secrets_of(devices).keys, Stream.PUBLIC_KEY)[: len(devices)])


def link_keys(devices: Devices, words: Keys) -> Keys:
    """Compute the key of each link, uint64[e], the same at both ends, from the received words, uint64[e, 4]."""
    sent = public_words(devices)[devices.sources]
    first = (devices.ids[devices.sources] < devices.indices)[:, None]
    low, high = np.where(first, sent, words), np.where(first, words, sent)
    key = np.full(len(words), secrets_of(devices).shared, np.uint64)
    for number in range(WORDS):
        key = philox(low[:, number], high[:, number], key, Stream.PUBLIC_KEY)[:, 0]
    return key


def link_masks(edge_keys: Keys, name: SumName, length: int) -> Keys:
    """Compute the masks that both ends of each link share in a sum, uint64[e, length]."""
    blocks = np.arange((length + 3) // 4, dtype=np.uint64)
    masks = np.empty((len(edge_keys), length), np.uint64)
    step = max(1, _BLOCK_WORDS // max(length, 1))
    for begin in range(0, len(edge_keys), step):
        block_keys = edge_keys[begin : begin + step]
        words = philox(blocks[None, :], name.number, block_keys[:, None], name.purpose(Stream.MASK))
        masks[begin : begin + step] = words.reshape(len(block_keys), 4 * len(blocks))[:, :length]
    return masks


def add_masks(tables: Keys, devices: Devices, masks: Keys) -> Keys:
    """Add the masks of all links, uint64[e, r w], to the tables of their devices, uint64[n, r, w]."""
    n, r, w = tables.shape
    signed = np.where((devices.ids[devices.sources] < devices.indices)[:, None], masks, -masks)
    masked = tables.reshape(n, r * w).copy()
    np.add.at(masked, devices.sources, signed)
    return masked.reshape(n, r, w)


def draw_noise(keys: Keys, name: SumName, sd: Floats | float, shape: tuple[int, int]) -> Integers:
    """Draw normal noise, rounded to units, int64[len(keys), *shape], with standard deviation `sd` in units.

    `sd` may be one number for each number of the table, float64[shape[0] * shape[1]].
    """
    drawn = standard_normals(keys, name.number, name.purpose(Stream.PRIVACY), shape[0] * shape[1])
    return np.rint(sd * drawn).astype(np.int64).reshape(len(keys), *shape)


def standard_normals(keys: Keys, number: int, purpose: int, count: int) -> Floats:
    """Draw from N(0, 1) with each of the streams (key, purpose, number), float64[len(keys), count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    words = philox(blocks[None, :], number, keys[:, None], purpose).reshape(len(keys), 4 * len(blocks))[:, :count]
    return as_normal((words >> np.uint64(11)) * 2.0**-53)


def as_totals(words: Keys, grain: Grain) -> Floats:
    """Convert a total of words, which are signed integers in units, to floats."""
    totals: Floats = np.ascontiguousarray(words).view(np.int64).astype(np.float64)
    return totals * grain.unit
