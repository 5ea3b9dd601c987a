"""What receivers reject: tables that cannot be tables of numbers, whichever device sent them.

The rule looks at the table alone, so all receivers of a table come to the same verdict, and one look, before delivery,
serves all of them. A table that is rejected counts as sent; for its receivers its sender was silent, so that the last
valid table stays in use.
"""

from typing import ClassVar

import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, Settings, Transform
from p2pkm.core.batch import Mask
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.validation import LARGEST


def reject_malformed(messages: DenseMessages) -> DenseMessages:
    """Return the messages with a mark on what is refused: NaN, infinite and absurd numbers (above 1e100), wrong shapes.

    A table of the wrong shape has no place in the array of its batch, so it comes marked.
    """
    values, rows = messages.values, messages.rows
    with np.errstate(invalid="ignore"):
        wild = ~(np.abs(values) <= LARGEST).all(axis=2)
    malformed: Mask = np.any(wild & (np.arange(values.shape[1]) < rows[:, None]), axis=1)
    if messages.malformed is not None:
        malformed = malformed | messages.malformed
    found = malformed if malformed.any() else None
    return messages if found is messages.malformed else messages._replace(malformed=found)


class Rejection(Transform):
    """Mark the malformed tables among messages that may be some, for `DenseMessages.accepted`."""

    name: ClassVar[str] = "rejection"
    order: ClassVar[Order] = Order.ACCEPT
    alters = False  # it rejects what Byzantine devices send

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Act in all runs."""
        return {}

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages with a mark on what is rejected, if another transform has set `malformed`."""
        if isinstance(messages, SparseMessages) or messages.malformed is None:
            return messages
        return reject_malformed(messages)
