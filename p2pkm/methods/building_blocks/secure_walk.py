"""Secure sums along a tree: keys over all links first, then tables behind masks from layer to layer.

`tree_sums` walks; words of 64 bits travel as the 8 bytes of a number. See `p2pkm.methods.building_blocks.secure_sums`.
"""

from collections.abc import Iterator

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.methods.building_blocks.secure_sums import WORDS, SumName, add_masks, link_masks, public_words


def send_keys(devices: Devices) -> DenseMessages:
    """Let every device send its 32 bytes over all of its links."""
    return DenseMessages(public_words(devices)[:, None].view(np.float64), np.ones(len(devices), np.int64))


def send_nothing(devices: Devices) -> DenseMessages:
    """Let nobody receive anything, and show that nobody is done."""
    n = len(devices)
    return DenseMessages(np.zeros((n, 1, 1)), np.zeros(n, np.int64), edges=np.zeros(len(devices.indices), np.bool_))


def receive_words(inbox: Inbox, devices: Devices) -> Keys:
    """Return the words that have come over each own link, uint64[e, 4]."""
    words = inbox.tables_of(slice(None), 1, WORDS)
    return np.ascontiguousarray(words).view(np.uint64).reshape(len(words), WORDS)


def cover(tables: Keys, devices: Devices, edge_keys: Keys, name: SumName) -> Keys:
    """Return the tables of a sum behind the masks of all own links, uint64[n, r, w]."""
    return add_masks(tables, devices, link_masks(edge_keys, name, tables.shape[1] * tables.shape[2]))


def distinct(totals: Keys, sizes: Floats) -> Iterator[Integers]:
    """Yield which devices hold the same total and size: all of them, unless messages were changed on their way."""
    held: dict[tuple[bytes, float], list[int]] = {}
    for i, total in enumerate(totals):
        held.setdefault((total.tobytes(), float(sizes[i])), []).append(i)
    yield from (np.array(who) for who in held.values())
