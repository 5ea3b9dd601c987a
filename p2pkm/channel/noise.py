"""Gaussian noise on the rows of centroids that devices send: an example of a transform, without privacy guarantee.

The noise is determined by `--seed`, so anyone who knows the seed can subtract it. It is drawn for every message, so a
device that receives many messages of the same sender can average it out. Nothing is clipped, no budget is spent, and
counts are sent unchanged. The transform shows how robust a method is to imprecise messages.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, Settings, Transform
from p2pkm.core.batch import Floats, Integers
from p2pkm.core.messages import SparseMessages, Tables
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import check_positive
from p2pkm.kernels.streams import as_normal
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.server.star import StarState
from p2pkm.network.transport import Network

# Contents whose rows are new in the initial exchange only, and forwarded later.
_FIRST = (MessageContent.OPENING_CENTROIDS, MessageContent.FORWARDED_CENTROIDS)
_ROWS = (MessageContent.CENTROIDS, MessageContent.SUMMARIES, *_FIRST)


class GaussianNoise(Transform):
    """Add Gaussian noise to each coordinate of each row of centroids that a device sends.

    The noise is::

        sd * s * z,    z ~ N(0, 1),    s^2 = total variance of all points / d

    Rows are perturbed at the device that sends them first: local rows that it floods or sends up a tree, not rows that
    it forwards. Other columns (counts, radii) and other messages (boxes, keys, losses, votes) are not changed. The
    centroids of a server are perturbed like those of other devices. In stages with scaled units the noise is scaled,
    too.

    Parameters
    ----------
    sd : float
        Standard deviation of the noise, in units of s.
    """

    name: ClassVar[str] = "noise"
    order: ClassVar[Order] = Order.PERTURB
    option: ClassVar[str] = "noise"
    acts_on: ClassVar[tuple[MessageContent, ...] | None] = _ROWS
    prepared: ClassVar[tuple[str, ...]] = ("_content",)

    def __init__(self, *, sd: float) -> None:
        self._sd = sd
        self._content = MessageContent.OTHER

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `noise`."""
        sd = check_positive(options.get("noise", 0.0), "noise", zero=True)
        return {"sd": sd} if sd else None

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Write a note that names the stages without noise."""
        names = ", ".join(dict.fromkeys(stage.name for stage in stages if not _has_rows(stage)))
        return [f"no noise in {names}: no rows of centroids are sent there"] if names else []

    def begin(self, stage: Stage, *, closing: bool) -> "GaussianNoise | None":
        """Return the transform for stages that send rows of centroids, None for others."""
        self._content = stage.algorithm.traits.message_content
        return self if _has_rows(stage) else None

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Add noise to the local rows of each device."""
        ids, last = context.devices.ids, messages.header + context.devices.d
        if isinstance(messages, SparseMessages):
            if not messages.header:
                return messages
            table, counts = messages.tables.flat(), messages.tables.rows
            sender = np.repeat(messages.senders, counts)
            # The first column is the id of the origin of a row.
            is_local = np.flatnonzero(table[:, 0] == ids[sender])
            table[is_local, messages.header : last] += self._draw(sender[is_local], context)
            return messages._replace(tables=Tables(table, np.cumsum(counts) - counts, counts))
        if self._content in _FIRST and context.devices.round > 0:
            return messages
        is_perturbed = np.arange(messages.values.shape[1]) < messages.rows[:, None]
        if messages.header:
            is_perturbed &= messages.values[:, :, 0] == ids[:, None]
        sender, row = np.nonzero(is_perturbed)
        values = messages.values.copy()
        values[sender, row, messages.header : last] += self._draw(sender, context)
        return messages._replace(values=values)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the standard deviation for the summary."""
        return {"noise": self._sd}

    def _draw(self, positions: Integers, context: Context) -> Floats:
        """Draw the noise of rows.

        Parameters
        ----------
        positions : int64[b]
            Position in the batch of the sender of each row, ascending.
        context : Context

        Returns
        -------
        float64[b, d]
        """
        devices, state = context.devices, context.state
        senders, first, counts = np.unique(positions, return_index=True, return_counts=True)
        most, d = int(counts.max(initial=0)), devices.d
        draws = context.draw(self.purpose, devices.ids[senders], most * d).reshape(len(senders), most, d)
        sender = np.repeat(np.arange(len(senders)), counts)
        noise = as_normal(draws[sender, np.arange(len(positions)) - first[sender]])
        noise *= self._sd * devices.data_std / np.sqrt(d)
        # Clients of a server method send in normalized units, the server in the units of the data.
        if isinstance(state, StarState):
            is_server = devices.ids[positions] == devices.server
            noise /= np.where(is_server[:, None], 1.0, state.span[positions])
        return noise


def _has_rows(stage: Stage) -> bool:
    return stage.algorithm.traits.message_content in _ROWS
