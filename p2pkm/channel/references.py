"""Reference tables of difference coding: the last table of every sender, identical at both ends of its links.

A transform that keeps references declares `p2pkm.channel.transform.REFERENCES_AT_BOTH_ENDS` as incompatible.
"""

from typing import Any

import numpy as np

from p2pkm.core.batch import Floats, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages


class References:
    """Last table that each device of a batch sent, as all its receivers hold it.

    On a star, tables of the server and reports of clients have different shapes; each is compared with the last one of
    its own sender. A table that only some neighbors receive is never a reference. An attribute of a transform that is a
    `References` is saved in checkpoints.

    Parameters
    ----------
    skip_selected : bool
        Compare a table that is sent over selected links only with the last one that was sent over all. Otherwise such a
        method is refused, because nearly nothing it sends would become a reference.

    Attributes
    ----------
    tables : float64[n, r, w] or None
        None before the first message.
    """

    def __init__(self, *, skip_selected: bool = False) -> None:
        self.tables: Floats | None = None
        self._skip_selected = skip_selected

    def snapshot(self) -> dict[str, Any]:
        """Return the tables for a checkpoint."""
        return {"tables": self.tables}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with the tables of a checkpoint."""
        self.tables = state["tables"]

    def find(self, messages: DenseMessages) -> Floats:
        """Return the references in the shape of these messages, float64[n, r, w]; 0 in rows that were never sent.

        Raises
        ------
        ExperimentError
            If the messages are sent over selected links only.
        """
        if messages.edges is not None and not self._skip_selected:
            raise ExperimentError(
                "the method sends tables over selected links only, so they cannot be references that all neighbors "
                "hold, and differences would save nothing. Remove the transform that sends differences, or use a "
                "method that sends to all neighbors, such as --algorithm gtvmin"
            )
        return _fit(self.tables, messages.values.shape)

    def keep(self, messages: DenseMessages) -> None:
        """Store what is sent as the next references; numbers that are not finite replace nothing."""
        if messages.edges is not None:
            return
        values = messages.values
        room = values.shape if self.tables is None else np.maximum(values.shape, self.tables.shape)
        self.tables = _fit(self.tables, tuple(room))
        within = self.tables[:, : values.shape[1], : values.shape[2]]
        within[...] = np.where(find_sent(messages) & np.isfinite(values), values, within)


def find_sent(messages: DenseMessages) -> Mask:
    """Mark the numbers of the tables that are sent, bool[n, r, w]."""
    return np.broadcast_to(find_sent_rows(messages)[:, :, None], messages.values.shape)


def find_sent_rows(messages: DenseMessages) -> Mask:
    """Mark the rows of the tables that are sent, bool[n, r]."""
    rows: Mask = np.less(np.arange(messages.values.shape[1]), messages.rows[:, None])
    return rows


def _fit(tables: Floats | None, shape: tuple[int, ...]) -> Floats:
    """Return a copy of tables in a shape, cut or extended by zeros."""
    fitted = np.zeros(shape)
    if tables is not None:
        overlap = tuple(slice(min(pair)) for pair in zip(shape, tables.shape, strict=True))
        fitted[overlap] = tables[overlap]
    return fitted
