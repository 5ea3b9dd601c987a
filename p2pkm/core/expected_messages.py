"""Message patterns: the messages that a method is expected to send, for `p2pkm plan`.

A method returns one of these patterns; `p2pkm.experiments.plan.patterns` has one rule for each pattern and does not
depend on the methods. A flag named `exact` or `certain` says that a number is exact; otherwise it is an upper bound.
"""

from typing import Literal, NamedTuple

from p2pkm.core.batch import Integers, Mask


class Known(NamedTuple):
    """Facts about data and graph that are available before a run.

    Attributes
    ----------
    clients : int
        Number of devices with points.
    points, distinct, features : int
        Number of points, distinct points and features of the pooled points.
    least : int
        Smallest number of points of a client (a lower bound, if the partition is not known exactly).
    connected : bool
        Whether the graph is connected.
    weighted : bool
        Whether any point has a weight other than 1.
    """

    clients: int
    points: int
    distinct: int
    features: int
    least: int
    connected: bool
    weighted: bool = False

    def fills(self, k: int) -> bool:
        """Return whether local k-means is guaranteed to find k clusters on every device."""
        return self.least >= k and self.distinct == self.points

    def pools(self, k: int) -> bool:
        """Return whether k-means on the pooled points is guaranteed to find k clusters, reachable by all devices."""
        return self.distinct >= k and self.connected


class MessageVolume(NamedTuple):
    """Number of messages and bytes, for example of a round.

    Attributes
    ----------
    messages, bytes : int
        Number of messages, and bytes at 8 per value.
    exact_messages, exact_bytes : bool
        Whether the number is exact, otherwise an upper bound.
    wire : int or None
        Estimate of the encoded bytes; None: equal to `bytes`.
    """

    messages: int
    bytes: int
    exact_messages: bool = True
    exact_bytes: bool = True
    wire: int | None = None

    @property
    def wire_bytes(self) -> int:
        """Estimate of the encoded bytes."""
        return self.bytes if self.wire is None else self.wire

    def times(self, number: int) -> "MessageVolume":
        """Multiply messages and bytes by a number of repetitions."""
        wire = None if self.wire is None else number * self.wire
        return self._replace(messages=number * self.messages, bytes=number * self.bytes, wire=wire)

    def __add__(self, other: object) -> "MessageVolume":
        """Add two volumes; a sum is exact only if both terms are."""
        if not isinstance(other, MessageVolume):
            return NotImplemented
        is_plain = self.wire is None and other.wire is None
        return MessageVolume(
            messages=self.messages + other.messages,
            bytes=self.bytes + other.bytes,
            exact_messages=self.exact_messages and other.exact_messages,
            exact_bytes=self.exact_bytes and other.exact_bytes,
            wire=None if is_plain else self.wire_bytes + other.wire_bytes,
        )


NOTHING = MessageVolume(0, 0)


def tables(messages: int, rows: int, columns: int, *, certain: bool = True, full: bool = True) -> MessageVolume:
    """Compute the volume of equal tables; `certain`, `full`: whether the numbers of messages and rows are exact."""
    return MessageVolume(messages, 8 * messages * rows * columns, certain, certain and full)


class NoMessages:
    """Pattern: no messages."""


class EveryTurn(NamedTuple):
    """Pattern: one table over every active link whenever a device is active; initial exchange: from every device.

    Parameters
    ----------
    rows, columns : int
        Shape of a table.
    absent_rows : bool
        Whether absent centroids are sent, too, so that every table has exactly `rows` rows.
    to : {"all", "partner", "one"}
        Receivers: all neighbors, the partner in the random matching of the turn (if any), or one random neighbor; see
        `p2pkm.methods.building_blocks.random_matching`.
    """

    rows: int
    columns: int
    absent_rows: bool = False
    to: Literal["all", "partner", "one"] = "all"


class Flooding(NamedTuple):
    """Pattern: the table of each device with points is forwarded once over every link, then one round without messages.

    Parameters
    ----------
    rows, columns : int
        Shape of a table.
    exact : bool
        Whether `rows` is exact, otherwise an upper bound.
    hops : int or None
        Number of links after which a table is not forwarded; None: no limit.
    all_send : bool
        Whether every device with points is guaranteed to send a table.
    """

    rows: int
    columns: int
    exact: bool = True
    hops: int | None = None
    all_send: bool = True


class UntilUnchanged(NamedTuple):
    """Pattern: one table over every link at the initial exchange; then data-dependent, at most every device per round.

    Parameters
    ----------
    rows, columns : int
        Shape of a table.
    exact : bool
        Whether every device with points sends exactly `rows` rows at the initial exchange.
    """

    rows: int
    columns: int
    exact: bool = False


class TreeBroadcast(NamedTuple):
    """Pattern: one table from every device to its children, layer by layer.

    Parameters
    ----------
    parent : int64[n]
        Parent of each device in the tree, -1 for a root.
    rows, columns : int
        Shape of a table.
    """

    parent: Integers
    rows: int
    columns: int


class TreePass(NamedTuple):
    """Tree pass: one message over each link of a tree, layer by layer.

    Attributes
    ----------
    up : bool
        True: convergecast (to the root). False: broadcast (to the leaves).
    rows : int64[n]
        Number of rows of the table of each device.
    columns : int
        Number of columns.
    exact : bool[n]
        Whether `rows` is exact, otherwise an upper bound.
    bits : float or None
        Estimate of the encoded bits per value; None: 64.
    certain : bool
        Whether every message is certainly sent. Otherwise `bits` is an average that counts messages not sent as 0.
    """

    up: bool
    rows: Integers
    columns: int
    exact: Mask
    bits: float | None = None
    certain: bool = True


class TreePasses(NamedTuple):
    """Pattern: tree passes up and down in one round; the deepest layer sends at the initial exchange.

    Parameters
    ----------
    parent, layer : int64[n]
        Parent of each device (-1 for a root), and its distance from the root.
    passes : tuple of TreePass
        Passes of the first round.
    later_passes : tuple of TreePass
        Passes of every later round; empty: the stage has one round. With later rounds, the last turn of a round sends
        nothing.
    """

    parent: Integers
    layer: Integers
    passes: tuple[TreePass, ...]
    later_passes: tuple[TreePass, ...] = ()


class TreeSums(NamedTuple):
    """Pattern: at most one table up and one down each tree link per round; at the start keys over all links.

    Parameters
    ----------
    parent, layer : int64[n]
        Parent of each device (-1 for a root), and its distance from the root.
    keys : int
        Columns of the row that every device sends at the initial exchange; 0: no message.
    tables : tuple of (int, int)
        Largest numbers of values of the tables up and down in each round; later rounds send nothing.
    certain : int
        Number of rounds that certainly take place.
    """

    parent: Integers
    layer: Integers
    keys: int
    tables: tuple[tuple[int, int], ...]
    certain: int


class FloodThenPool(NamedTuple):
    """Pattern: one round in which a number of each device is flooded, then rows of each device (upper bound).

    Parameters
    ----------
    hops : int
        Number of turns of a flood.
    rows, columns : int
        Total number of rows of all devices, and columns.
    """

    hops: int
    rows: int
    columns: int


class ByRound(NamedTuple):
    """Pattern: volumes of the initial exchange, the first round and each later round, without senders and turns."""

    opening: MessageVolume
    rest: MessageVolume
    later: MessageVolume = NOTHING


class Reports(NamedTuple):
    """Pattern: clients report to the server, which answers with k rows of d columns; see `p2pkm.methods.server.star`.

    Parameters
    ----------
    rows, columns : int
        Total number of rows of the reports of all clients; columns of each report.
    exact : bool
        Whether `rows` is exact, otherwise an upper bound.
    answered : bool
        Whether the server is guaranteed to send k rows.
    by_points : bool
        Whether clients send one row per point; otherwise all clients send the same number of rows.
    """

    rows: int
    columns: int
    exact: bool = False
    answered: bool = False
    by_points: bool = False


Pattern = (
    NoMessages | EveryTurn | Flooding | UntilUnchanged | TreeBroadcast | TreePasses | TreeSums | FloodThenPool | ByRound
    | Reports
)  # fmt: skip
