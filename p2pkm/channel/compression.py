r"""Sparse messages with error feedback: of each table some numbers are sent, those that differ most or random ones.

Devices of this package send their state (a table of centroids), not gradients. A memory that adds to the next *state*
what was not sent of the last one would send sums of states, and either grow or stay biased. So the memory is that of
Koloskova et al. [3]_ for gossip: the difference between the table of a device and the copy that its neighbors hold.
With C the choice of k of m numbers::

    x_hat_i <- x_hat_i + C(x_i - x_hat_i)    at device i, and at each neighbor for its copy of the table of i

What C leaves out stays in the difference ``x_i - x_hat_i``, and the next choice is made from all of it. This is error
feedback [1]_ [2]_. A number that is chosen equals that of the table afterwards, so the number itself is sent in place
of the difference: it takes as many bytes, nothing is rounded, and reading a message twice changes nothing.

**Loss.** Each receiver stores one copy for each link, and replaces in it the numbers that arrived over this link. So a
lost message leaves numbers as they were, and later messages add no error to them, as lost differences would. Losses are
not announced to the sender. Where messages may be lost, ``topk`` sends k + ceil(k / 4) numbers, the latter those sent
longest ago, so that each number is sent again within 4 / share tables. A receiver that lacks a number of a table treats
it as not received.

**Messages.** A table is sent whole if it is the first of its device or has another number of rows than the last one,
or if this is not longer. Otherwise ``topk`` sends k positions and k numbers: 16 k plain bytes. Both ends draw the
positions of ``randomk``, which take no bytes: 8 k. Encoded, positions take one bit per number of the table, or
``ceil(log2 m)`` bits per position, whichever is shorter.

References
----------
.. [1] S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", NeurIPS 2018: top-k and random-k.
.. [2] S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi, "Error feedback fixes SignSGD and other gradient
   compression schemes", ICML 2019.
.. [3] A. Koloskova, S. U. Stich, M. Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
   communication", ICML 2019: Algorithm 1 (CHOCO-Gossip), whose consensus step is that of the method here.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import ceil
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.references import find_sent
from p2pkm.channel.transform import Context, Messages, Order, ReshapesMethod, Settings, Transform
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Delivery, Inbox, SparseMessages
from p2pkm.core.spec import Spec, read_value, suggest
from p2pkm.core.traits import Condition, MessageContent, Reasons
from p2pkm.core.validation import check_positive, check_scalar
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import Schedule
from p2pkm.network.transport import Network

_TOP, _RANDOM = "topk", "randomk"
# Largest share below 1: a number of topk is sent with its position.
_MOST = 0.5
# Where messages may be lost, one number more for this many is sent again.
_PER_REPEATED = 4
# Columns of a sparse message: its form, and the positions that both ends draw, which are not counted; what is sent.
_FORM, _DRAWN, _SENT = range(3)
# Rounds in which the reason to stop must hold, in units of 1 / share. With topk every number of a table that does not
# change was sent in this time, with randomk 95 % of them (1 - e^-3).
_CYCLES = {_TOP: 1.0, _RANDOM: 3.0}
_BITS_PER_NUMBER = 64


@dataclass(frozen=True)
class Compression:
    """Choice of the numbers of a table that are sent; see `p2pkm.channel.compression`.

    Attributes
    ----------
    choice : {"topk", "randomk"}
        * "topk": the numbers that differ most from those that the receivers hold.
        * "randomk": random ones, drawn anew for each message.
    share : float
        Share of the numbers of a table that is sent, rounded up to whole numbers: above 0 and at most 0.5 (topk) or 1
        (randomk), or 1, with which nothing changes.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Compression.of("topk:share=0.2") == p2pkm.Compression("topk", share=0.2)
    True
    """

    choice: Literal["topk", "randomk"]
    _: KW_ONLY
    share: float = 0.1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if check_scalar(self.choice, "compress") not in _READ:
            raise ExperimentError(f"unknown compress {self.choice!r}. {suggest(str(self.choice), _READ)}")
        share = check_positive(self.share, "compress:share")
        if share > 1.0:
            raise ExperimentError(f"compress:share is {share:g}; expected at most 1. Use a share such as 0.1")
        if self.choice == _TOP and _MOST < share < 1.0:
            raise ExperimentError(
                f"compress:share is {share:g}; expected at most {_MOST:g} with topk, or 1, because each number is sent "
                "with its position, so that more of them take more bytes than the whole table. Use "
                f"topk:share={_MOST:g} or {_RANDOM}"
            )
        object.__setattr__(self, "share", share)

    def __str__(self) -> str:
        """Return the text of the command line, such as ``topk:share=0.2``."""
        return str(Spec(self.choice, {"share": self.share}))

    def count(self, numbers: Integers) -> Integers:
        """Return the number of chosen numbers of tables, int64[n], without those that are sent again."""
        # The product of a share such as 0.1 and 30 numbers is not an integer in binary.
        return np.ceil(np.round(self.share * numbers, 9)).astype(np.int64)

    @classmethod
    def of(cls, value: "Compression | str") -> "Compression":
        """Convert a text such as ``topk:share=0.2``; a `Compression` is returned unchanged.

        Raises
        ------
        ExperimentError
            If the text cannot be read, or the share is out of range.
        """
        return read_value(cls, value, _READ, "compress", lambda spec: cls(spec.name, **spec.options))  # type: ignore[arg-type]


def _declare_options(*, share: float = 0.1) -> None:
    """Declare the keys of a spec by its signature."""


_READ = dict.fromkeys((_TOP, _RANDOM), _declare_options)


class Compressor(ReshapesMethod, Transform):
    """Transform that sends some numbers of each table, and completes the tables at the receivers.

    It acts in the stage of the method, on rows of centroids. A stage ends once its reason to end has held until all
    numbers of tables that do not change were sent: before that, devices may be still because they have not yet
    received what would move them.

    Parameters
    ----------
    spec : Compression
    """

    name: ClassVar[str] = "compression"
    order: ClassVar[Order] = Order.ENCODE
    option: ClassVar[str] = "compress"
    acts_on: ClassVar[tuple[MessageContent, ...] | None] = (MessageContent.CENTROIDS,)
    handles_loss: ClassVar[bool] = True
    incompatible_with: ClassVar[Reasons] = {
        "quantization": "integers are differences between whole tables",
        "byzantine": "Byzantine devices send whole tables, so that what they gain by it would not be visible",
        Condition.CHANGING_LINKS: "the receiver at a new link does not have the numbers that are not sent again",
    }

    def __init__(self, *, spec: Compression) -> None:
        self.spec = spec

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `compress`."""
        spec: Compression | str | None = options.get("compress")
        return None if spec is None else {"spec": Compression.of(spec)}

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return False: the stages before the method, and so its defaults, are those of a run without it."""
        return False

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Prepare the counts of numbers, and the memory."""
        # Numbers that each device has sent, and all those of its tables.
        self.numbers_sent = np.zeros(len(devices), np.int64)
        self.numbers = np.zeros(len(devices), np.int64)
        self._forget()

    def _forget(self) -> None:
        """Start without a memory; its arrays are made for the first messages, whose shape was not known before."""
        # Tables as a receiver holds them that has received everything, float64[n, r, w], NaN where nothing was sent;
        # their numbers of rows, and the number of the message in which each of their numbers was sent last.
        self.copies: Any = None
        self.copy_rows: Any = None
        self.sent_in: Any = None
        # Number of messages of each device.
        self.messages: Any = None
        # Tables that were received over each edge, float64[e, r, w], NaN where nothing was; their numbers of rows.
        self.edge_tables: Any = None
        self.edge_rows: Any = None
        # Rounds in which the stage had a reason to end.
        self.still = 0

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Write a note that names the stages that send whole tables."""
        method_stage = find_method_stage(stages)
        names = ", ".join(dict.fromkeys(stage.name for stage in stages if stage is not method_stage))
        return [f"compress acts in {method_stage.name}; {names} send whole tables"] if names else []

    def begin(self, stage: Stage, *, closing: bool) -> "Compressor | None":
        """Return the transform for the stage of the method, None for others."""
        self._forget()
        return self if closing else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return the schedule with a stricter termination: the reason must hold for some rounds."""
        rounds = 1 if self.spec.share == 1.0 else ceil(_CYCLES[self.spec.choice] / self.spec.share)

        def check_termination(stop: str) -> str:
            reason = schedule.check_termination(stop)
            self.still = self.still + 1 if reason else 0
            # Without messages nothing can change.
            return reason if reason == "silent" or self.still >= rounds else ""

        return algorithm, schedule._replace(check_termination=check_termination)

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Choose the numbers that are sent, and declare their encoded bytes.

        Raises
        ------
        ExperimentError
            If the messages are sent over selected links only.
        """
        if isinstance(messages, SparseMessages) or messages.edges is not None:
            raise ExperimentError(
                f"--compress {self.spec} cannot be used with tables that are sent over selected links, because a "
                "receiver lacks the numbers that were sent to others. Remove --compress, or use a method that sends to "
                "all neighbors, such as --algorithm gtvmin"
            )
        n, most, width = shape = messages.values.shape
        if self.copies is None:
            self._remember_nothing(shape, len(context.devices.indices))
        sends, numbers = messages.rows >= 0, np.maximum(messages.rows, 0) * width
        is_number = find_sent(messages).reshape(n, most * width)
        tables = messages.values.reshape(n, most * width)
        # A table with another number of rows than the last one has nothing in common with it.
        is_comparable = (messages.rows == self.copy_rows) | ~sends
        copies = np.where(is_comparable[:, None], self.copies.reshape(n, most * width), np.nan)
        chosen = self._choose(tables, copies, is_number, context)
        is_first = (is_number & np.isnan(copies)).any(axis=1)
        is_whole = is_first | (self._entries(chosen.sum(axis=1)) >= numbers)
        chosen = np.where(is_whole[:, None], is_number, chosen)
        count = chosen.sum(axis=1)

        self.copies = np.where(chosen, tables, copies).reshape(shape)
        self.copy_rows = np.where(sends, messages.rows, self.copy_rows)
        self.messages = self.messages + sends
        self.sent_in = np.where(chosen, self.messages[:, None], self.sent_in)
        self.numbers_sent = self.numbers_sent + count
        self.numbers = self.numbers + numbers
        entries = np.where(is_whole, numbers, self._entries(count))
        return messages._replace(
            values=_write(tables, chosen, is_whole, messages.rows, entries),
            rows=np.where(sends, entries, -1),
            header=_SENT,
            wire=self._encoded_bytes(numbers, count, is_whole),
        )

    def _remember_nothing(self, shape: tuple[int, ...], edges: int) -> None:
        """Make the arrays of the memory for tables of this shape, [n, r, w]."""
        n, most, width = shape
        self.copies = np.full(shape, np.nan)
        self.copy_rows = np.full(n, -1)
        self.sent_in = np.zeros((n, most * width), np.int64)
        self.messages = np.zeros(n, np.int64)
        self.edge_tables = np.full((edges, most, width), np.nan)
        self.edge_rows = np.full(edges, -1)

    def _entries(self, count: Integers) -> Integers:
        """Return the number of entries of sparse messages: numbers, and with topk their positions."""
        return 2 * count if self.spec.choice == _TOP else count

    def _choose(self, tables: Floats, copies: Floats, is_number: Mask, context: Context) -> Mask:
        """Choose numbers of each table, bool[n, r * w]; equal ones by the time since they were sent, then by place."""
        numbers, devices = is_number.sum(axis=1), context.devices
        count = self.spec.count(numbers)
        if self.spec.choice == _RANDOM:
            draws = context.draw(self.purpose, devices.ids, is_number.shape[1])
            return _take_first(np.argsort(np.where(is_number, draws, np.inf), axis=1, kind="stable"), count)
        with np.errstate(invalid="ignore"):
            gap = np.where(tables == copies, 0.0, np.abs(tables - copies))
        # Unknown or infinite: larger than all others.
        gap = np.where(is_number, np.where(np.isfinite(gap), gap, np.inf), -1.0)
        chosen = _take_first(np.lexsort((self.sent_in, -gap)), count)
        if not devices.has_stale_links:
            return chosen
        is_left = is_number & ~chosen
        oldest = np.argsort(np.where(is_left, self.sent_in, np.iinfo(np.int64).max), axis=1, kind="stable")
        return chosen | _take_first(oldest, np.minimum(-(-count // _PER_REPEATED), numbers - count))

    def _encoded_bytes(self, numbers: Integers, count: Integers, is_whole: Mask) -> Integers:
        """Compute the encoded bytes of each table, int64[n]: 64 bits per number, and the positions."""
        positions = np.zeros(len(numbers), np.int64)
        if self.spec.choice == _TOP:
            # Bits of the largest position, m - 1.
            bits = np.ceil(np.log2(np.maximum(numbers, 1))).astype(np.int64)
            positions = np.where(is_whole, 0, np.minimum(numbers, count * bits))
        return to_bytes(_BITS_PER_NUMBER * count + positions)

    def incoming(self, inbox: Inbox | Delivery, context: Context) -> Any:
        """Replace the numbers that arrived in the table of each edge, and return the inbox of these tables."""
        if isinstance(inbox, Delivery):
            return inbox
        fresh = inbox.fresh
        arrived = np.flatnonzero(fresh & inbox.received)
        edges, most, width = self.edge_tables.shape
        tables, rows = self.edge_tables.reshape(edges, most * width).copy(), self.edge_rows.copy()
        received, entries = inbox.tables_of(arrived, most * width, _SENT + 1), inbox.rows_of(arrived)
        # A table without rows is an empty message, which has no form.
        form = np.where(entries > 0, received[:, 0, _FORM], 0.0).astype(np.int64)
        is_whole = form >= 0
        table_rows = np.where(is_whole, form, -1 - form)
        tables[arrived[table_rows != rows[arrived]]] = np.nan
        rows[arrived] = table_rows
        place, number, is_entry = self._read(received, entries, is_whole)
        which, entry = np.nonzero(is_entry)
        tables[arrived[which], place[which, entry]] = number[which, entry]
        self.edge_tables, self.edge_rows = tables.reshape(edges, most, width), rows
        is_missing = np.isnan(tables) & (np.arange(most * width) < np.maximum(rows, 0)[:, None] * width)
        is_complete = inbox.received & ~is_missing.any(axis=1)
        return inbox._replace(
            tables=self.edge_tables,
            rows=rows,
            slots=np.where(is_complete, np.arange(edges), -1),
            sent=None,
            open_edges=fresh & is_complete,
        )

    def _read(self, received: Floats, entries: Integers, is_whole: Mask) -> tuple[Integers, Floats, Mask]:
        """Return the places of the received numbers in their tables, the numbers, and which exist, [b, r * w] each."""
        room = received.shape[1]
        index = np.broadcast_to(np.arange(room), (len(entries), room))
        # Positions, then numbers; of a whole table numbers alone.
        half = entries // 2 if self.spec.choice == _TOP else entries
        count = np.where(is_whole, entries, half)
        positions = received[:, :, _DRAWN]
        number = received[:, :, _SENT]
        if self.spec.choice == _TOP:
            positions = number
            first = np.where(is_whole, 0, half)[:, None]
            number = np.take_along_axis(number, np.minimum(index + first, room - 1), axis=1)
        is_entry = index < count[:, None]
        place: Integers = np.where(is_whole[:, None] | ~is_entry, index, positions).astype(np.int64)
        return place, number, is_entry

    def figures(self, network: Network) -> dict[str, Any]:
        """Return spec and share of the numbers that were sent, for the summary."""
        sent, numbers = network.total(np.array([self.numbers_sent.sum(), self.numbers.sum()]))
        return {"compress": str(self.spec), "numbers_sent": float(sent / numbers) if numbers else None}


def _take_first(order: Integers, count: Integers) -> Mask:
    """Mark the first `count[i]` positions of each row of an order, int64[n, m]."""
    chosen = np.zeros(order.shape, np.bool_)
    np.put_along_axis(chosen, order, np.arange(order.shape[1]) < count[:, None], axis=1)
    return chosen


def _write(tables: Floats, chosen: Mask, is_whole: Mask, rows: Integers, entries: Integers) -> Floats:
    """Write messages, float64[n, r * w, 3]: form, drawn position, and what is sent: positions if any, then numbers.

    The form is the number of rows r of a whole table, and -1 - r of a sparse message.
    """
    n, room = tables.shape
    message = np.zeros((n, room, _SENT + 1))
    message[:, :, _FORM] = np.where(is_whole, rows, -1 - rows)[:, None]
    sender, place = np.nonzero(chosen)
    count = chosen.sum(axis=1)
    entry = np.arange(len(sender)) - np.repeat(np.cumsum(count) - count, count)
    has_positions = entries > count
    message[sender, entry, _DRAWN] = np.where(has_positions[sender], 0, place)
    message[sender, entry + np.where(has_positions, count, 0)[sender], _SENT] = tables[sender, place]
    listed = has_positions[sender]
    message[sender[listed], entry[listed], _SENT] = place[listed]
    return message


def find_obstacle(algorithm: Any) -> str:
    """Return the reason why a method must receive whole tables, empty if it need not."""
    traits = algorithm.traits
    declared = traits.incompatible_with.get("compression", "")
    if declared:
        return str(declared)
    if traits.message_content is MessageContent.SUMS:
        return "sends sums, of which none may be missing"
    if traits.message_content is not MessageContent.CENTROIDS:
        return "does not send rows of centroids"
    if traits.one_shot:
        return "sends each table once, and a first table is sent whole"
    if traits.needs_hub:
        return "sends tables of two shapes, centroids from the server and reports with counts to it"
    return ""
