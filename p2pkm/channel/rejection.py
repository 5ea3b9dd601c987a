"""Rejection of malformed tables: NaN, infinite or absurd numbers, and wrong shapes.

The rule depends on the table only, so all receivers of a table reach the same decision, and it is checked once, before
delivery. A rejected table counts as sent. Its receivers treat the sender as silent, and continue to use its last valid
table.
"""

from typing import ClassVar

import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, Settings, Transform
from p2pkm.core.batch import Mask
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.validation import LARGEST


def reject_malformed(messages: DenseMessages) -> DenseMessages:
    """Mark the malformed tables: NaN, infinite and absurd numbers (above 1e100), and wrong shapes.

    The array of a batch cannot hold a table of the wrong shape, so such a table is already marked.
    """
    values, rows = messages.values, messages.rows
    with np.errstate(invalid="ignore"):
        is_absurd = ~(np.abs(values) <= LARGEST).all(axis=2)
    malformed: Mask = np.any(is_absurd & (np.arange(values.shape[1]) < rows[:, None]), axis=1)
    if messages.malformed is not None:
        malformed = malformed | messages.malformed
    marks = malformed if malformed.any() else None
    return messages if marks is messages.malformed else messages._replace(malformed=marks)


class Rejection(Transform):
    """Transform that marks malformed tables for `DenseMessages.accepted`, if another transform may create them."""

    name: ClassVar[str] = "rejection"
    order: ClassVar[Order] = Order.ACCEPT
    # Honest devices send valid tables, which are not changed.
    alters = False

    @classmethod
    def configure(cls, options: Settings) -> Settings:
        """Act in all runs."""
        return {}

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Mark malformed tables, if another transform has set `malformed`."""
        if isinstance(messages, SparseMessages) or messages.malformed is None:
            return messages
        return reject_malformed(messages)
