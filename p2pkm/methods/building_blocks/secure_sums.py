"""Exact sums of tables that devices hold, with noise and behind pairwise masks: others learn totals and nothing else.

A table is a whole number of units, and so is the noise that a device adds to it. Before a device sends its table, it
adds a mask: uniform 64-bit words that it shares with every neighbor, added at the lower end of a link and subtracted at
the upper end::

    y_i = x_i + sum_{j > i} m_ij - sum_{j < i} m_ij    mod 2^64

All masks cancel in the sum over all devices, in whatever order it is taken: the total is that of the x_i, bit for bit.
What is sent is uniform for whoever does not know the masks. A coalition S knows those of its own links; then masks
remain that can turn any tables of the others into any other tables with the same total over each component of the graph
without S, and these totals are all that S learns (tests/privacy/test_secure_sums.py moves the masks).

Masks and noise belong to a sum, not to a message: the root of a tree adds its table without sending it, and a method
has to know by how much a point can change a sum. So a method calls them; they are no transforms of the channel.

The masks of a sum are a function of the keys, the stage and the number of the sum. They must never cover two different
tables: the difference of what is sent would be that of the tables. A stage that takes one sum per number, also when it
is resumed between two rounds, covers none with old masks. A sum that failed is not to be repeated: its number, noise
and share of the privacy budget are spent (K. Bonawitz et al., "Practical secure aggregation for
privacy-preserving machine learning", CCS 2017, on what dropouts take).

As key exchange every device sends 32 bytes over each link, as it would of X25519. Here the key of a link is a hash of
both ends' words and of the secret of the run (`p2pkm.engine.run_secret`), which stands for the private keys: words and
masked tables alone do not give it away. Noise comes from the same secret, never from the seed.
"""

import math
import zlib
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Secrets, Stream
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import as_normal

WORDS = 4  # of 8 bytes, that a device sends over every link once
FINEST = 4096  # the sensitivity is at least so many units
_EDGES = 1 << 22  # words of masks that are made at once


class SumName(NamedTuple):
    """Which sum of a run is meant: the name of a stage, and a number that is used once in it."""

    stage: str
    number: int

    def purpose(self, stream: Stream) -> int:
        """Return the purpose of a random stream of the stage."""
        return int(stream) + (zlib.crc32(self.stage.encode()) << 32)


class Grain(NamedTuple):
    """In which units a sum is taken.

    Attributes
    ----------
    unit : float
        A power of two.
    sensitivity : float
        By how much one point changes a table at most (Euclidean norm), rounding to whole units included.
    """

    unit: float
    sensitivity: float


def grain_of(sensitivity: float, width: int) -> Grain:
    """Return unit and sensitivity of a sum of which one point changes rows of `width` numbers.

    ``q = 2^floor(log2(D / 4096))``, and D grows by ``sqrt(width) q``: where each point is rounded before it is added, a
    coordinate of it is off by at most q / 2, and two points are exchanged at most.
    """
    unit = 2.0 ** math.floor(math.log2(sensitivity)) / FINEST
    return Grain(unit, sensitivity + math.sqrt(width) * unit)


def secrets_of(devices: Devices) -> Secrets:
    """Return the keys of unpredictable draws.

    Raises
    ------
    RuntimeError
        If the method of the run does not declare the trait `draws_secrets`.
    """
    if devices.secrets is None:
        raise RuntimeError("the devices have no secrets; expected a method with the trait draws_secrets=True")
    return devices.secrets


def public_words(devices: Devices) -> Keys:
    """Draw the words that every device sends over each of its links before the first sum, uint64[n, 4]: 32 bytes."""
    return np.ascontiguousarray(philox(0, 0, secrets_of(devices).keys, Stream.PUBLIC_KEY)[: len(devices)])


def link_keys(devices: Devices, words: Keys) -> Keys:
    """Return the key of each own link, uint64[e], alike at both ends; words: uint64[e, 4], what came over it."""
    own = public_words(devices)[devices.sources]
    first = (devices.ids[devices.sources] < devices.indices)[:, None]
    low, high = np.where(first, own, words), np.where(first, words, own)
    key = np.full(len(words), secrets_of(devices).shared, np.uint64)
    for number in range(WORDS):
        key = philox(low[:, number], high[:, number], key, Stream.PUBLIC_KEY)[:, 0]
    return key


def link_masks(edge_keys: Keys, name: SumName, length: int) -> Keys:
    """Return the words that both ends of each link share in a sum, uint64[e, length]."""
    blocks = np.arange((length + 3) // 4, dtype=np.uint64)
    found = np.empty((len(edge_keys), length), np.uint64)
    step = max(1, _EDGES // max(length, 1))
    for begin in range(0, len(edge_keys), step):
        some = edge_keys[begin : begin + step]
        words = philox(blocks[None, :], name.number, some[:, None], name.purpose(Stream.MASK))
        found[begin : begin + step] = words.reshape(len(some), 4 * len(blocks))[:, :length]
    return found


def add_masks(tables: Keys, devices: Devices, masks: Keys) -> Keys:
    """Return the tables behind their masks, uint64[n, r, w]; masks: uint64[e, r w] of the own links."""
    n, r, w = tables.shape
    signed = np.where((devices.ids[devices.sources] < devices.indices)[:, None], masks, -masks)
    covered = tables.reshape(n, r * w).copy()
    np.add.at(covered, devices.sources, signed)
    return covered.reshape(n, r, w)


def draw_noise(keys: Keys, name: SumName, sd: float, shape: tuple[int, int]) -> Integers:
    """Return normal noise in whole units, int64[len(keys), *shape]; sd: in units, keys: of the devices that draw."""
    drawn = gaussian(keys, name.number, name.purpose(Stream.PRIVACY), shape[0] * shape[1])
    return np.rint(sd * drawn).astype(np.int64).reshape(len(keys), *shape)


def gaussian(keys: Keys, number: int, purpose: int, count: int) -> Floats:
    """Return draws of N(0, 1) of each of the streams (key, purpose, number), float64[len(keys), count]."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    words = philox(blocks[None, :], number, keys[:, None], purpose).reshape(len(keys), 4 * len(blocks))[:, :count]
    return as_normal((words >> np.uint64(11)) * 2.0**-53)


def as_totals(words: Keys, grain: Grain) -> Floats:
    """Return what a total of words stands for; the words themselves are signed whole numbers of units."""
    totals: Floats = np.ascontiguousarray(words).view(np.int64).astype(np.float64)
    return totals * grain.unit
