"""Messages of masked sums along a tree: first keys over all links, then masked tables from layer to layer.

`tree_sums` defines the passes, and `p2pkm.methods.building_blocks.secure_sums` the masks. Messages contain numbers, so
each 64-bit word is sent as the 8 bytes of a float64.
"""

import numpy as np

from p2pkm.core.batch import Devices, Keys
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.methods.building_blocks.secure_sums import WORDS, SumName, add_masks, link_masks, public_words


def send_keys(devices: Devices) -> DenseMessages:
    """Send the 32 bytes of every device over all of its links."""
    return DenseMessages(public_words(devices)[:, None].view(np.float64), np.ones(len(devices), np.int64))


def send_nothing(devices: Devices) -> DenseMessages:
    """Create messages without edges, which keep the stage running: devices that send are not converged."""
    n = len(devices)
    return DenseMessages(np.zeros((n, 1, 1)), np.zeros(n, np.int64), edges=np.zeros(len(devices.indices), np.bool_))


def receive_words(inbox: Inbox, devices: Devices) -> Keys:
    """Read the words received over each link, uint64[e, 4]."""
    words = inbox.tables_of(slice(None), 1, WORDS)
    return np.ascontiguousarray(words).view(np.uint64).reshape(len(words), WORDS)


def cover(tables: Keys, devices: Devices, edge_keys: Keys, name: SumName) -> Keys:
    """Add the masks of all links to the tables of a sum, uint64[n, r, w]."""
    return add_masks(tables, devices, link_masks(edge_keys, name, tables.shape[1] * tables.shape[2]))
