"""What receivers refuse: tables that cannot be tables of numbers, whoever said them.

The rule looks at the table alone, so all who hear a table come to the same verdict, and one look serves all of them.
A table that is refused has travelled and is counted as sent; for its receivers its sender was silent, so that the last
good table stays in use.
"""

import numpy as np

from p2pkm.core.batch import Mask
from p2pkm.core.messages import DenseMessages
from p2pkm.core.validation import LARGEST


def reject_malformed(mail: DenseMessages) -> DenseMessages:
    """Return the mail with a mark on what is refused: NaN, infinite and absurd numbers (above 1e100), wrong shapes.

    A table of the wrong shape has no place in the array of its batch, so it comes marked.
    """
    values, rows = mail.values, mail.rows
    with np.errstate(invalid="ignore"):
        wild = ~(np.abs(values) <= LARGEST).all(axis=2)
    unfit: Mask = np.any(wild & (np.arange(values.shape[1]) < rows[:, None]), axis=1)
    if mail.unfit is not None:
        unfit |= mail.unfit
    return mail._replace(unfit=unfit) if unfit.any() else mail
