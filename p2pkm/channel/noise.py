"""Gaussian noise on every row of centroids that a device sends: an example of a transform, and no privacy guarantee.

The noise comes from `--seed`, so anyone who knows the seed can subtract it. It is drawn anew for every message, so any
device that receives many messages of a device can average it out. Nothing is clipped, no budget is kept, and counts
travel unchanged. It shows how robust a method is to imprecise messages.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from p2pkm.channel.transform import Condition, Context, Messages, Order, Reasons, Settings, Transform
from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import SparseMessages, Tables
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import check_positive
from p2pkm.kernels.streams import as_normal
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.registry import suggest_methods
from p2pkm.methods.server.star import StarState
from p2pkm.network.transport import Network

_FIRST = (MessageContent.OPENING_CENTROIDS, MessageContent.FORWARDED_CENTROIDS)  # a row is new in the opening alone
_ROWS = (MessageContent.CENTROIDS, MessageContent.SUMMARIES, *_FIRST)


class GaussianNoise(Transform):
    """Add Gaussian noise to each coordinate of each row of centroids that a device sends.

    The noise is::

        sd * s * z,    z ~ N(0, 1),    s^2 = total variance of all points / d

    Rows are perturbed where they are sent first: what a device floods or sends up a tree of its own, not what it
    forwards. Other columns (counts, radii) and other messages (boxes, keys, losses, votes) are left alone. A server is
    a device like the others: its centroids are perturbed, too. In stages that work in scaled units the noise is scaled
    alike.

    Parameters
    ----------
    sd : float
        Standard deviation of the noise, in units of s.
    """

    name: ClassVar[str] = "noise"
    order: ClassVar[Order] = Order.PERTURB
    option: ClassVar[str] = "noise"
    incompatible_with: ClassVar[Reasons] = {
        Condition.LOCAL_SUMS: "the messages of calibrated coupling and acceptance test are sums, which carry none",
    }

    def __init__(self, *, sd: float) -> None:
        self._sd, self._content = sd, MessageContent.OTHER

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `noise`."""
        sd = check_positive(options.get("noise", 0.0), "noise", zero=True)
        return {"sd": sd} if sd else None

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Reject methods that do not send rows of centroids."""
        if not _sends_centroids(algorithm):
            raise ExperimentError(
                f"noise is {settings['sd']:g}, but {algorithm.name} does not send rows of centroids that it could be "
                f"added to. Remove --noise, or use {suggest_methods(_sends_centroids)}"
            )

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Return which stages send no rows of centroids."""
        bare = ", ".join(dict.fromkeys(stage.name for stage in stages if not _has_rows(stage)))
        return [f"no noise in {bare}: no rows of centroids are sent there"] if bare else []

    def begin(self, stage: Stage, *, closing: bool) -> "GaussianNoise | None":
        """Act where rows of centroids are sent."""
        self._content = stage.algorithm.traits.message_content
        return self if _has_rows(stage) else None

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages with noise on what each device sends of its own."""
        ids, last = context.devices.ids, messages.header + context.devices.d
        if isinstance(messages, SparseMessages):
            if not messages.header:
                return messages
            table, counts = messages.tables.flat(), messages.tables.rows
            sender = np.repeat(messages.senders, counts)
            own = np.flatnonzero(table[:, 0] == ids[sender])
            table[own, messages.header : last] += self._draw(sender[own], context)
            return messages._replace(tables=Tables(table, np.cumsum(counts) - counts, counts))
        if self._content in _FIRST and context.devices.round > 0:
            return messages
        real = np.arange(messages.values.shape[1]) < messages.rows[:, None]
        if messages.header:
            real &= messages.values[:, :, 0] == ids[:, None]
        who, row = np.nonzero(real)
        values = messages.values.copy()
        values[who, row, messages.header : last] += self._draw(who, context)
        return messages._replace(values=values)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the standard deviation."""
        return {"noise": self._sd}

    def _draw(self, who: Integers, context: Context) -> Floats:
        """Return the noise on rows of these devices (positions, ascending), float64[b, d]; a device's rows in order."""
        devices, state = context.devices, context.state
        senders, first, counts = np.unique(who, return_index=True, return_counts=True)
        most, d = int(counts.max(initial=0)), devices.d
        draws = context.draw(self.purpose, devices.ids[senders], most * d).reshape(len(senders), most, d)
        sender = np.repeat(np.arange(len(senders)), counts)
        noise = as_normal(draws[sender, np.arange(len(who)) - first[sender]])
        noise *= self._sd * devices.data_std / np.sqrt(d)
        if isinstance(state, StarState):  # the server's centroids travel in the units of the data
            noise /= np.where((devices.ids[who] == devices.server)[:, None], 1.0, state.span[who])
        return noise


def _sends_centroids(algorithm: Any) -> bool:
    return algorithm.traits.message_content is MessageContent.CENTROIDS


def _has_rows(stage: Stage) -> bool:
    return stage.algorithm.traits.message_content in _ROWS
