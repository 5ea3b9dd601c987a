"""What a method expects to send, as one of a few patterns: `plan` knows these, not the methods."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from p2pkm.core.batch import Integers, Mask


class Known(NamedTuple):
    """What is known of the data before a run.

    Attributes
    ----------
    clients : int
        Devices with points.
    points, distinct, features : int
        Of all devices.
    least : int
        Points that every client has for sure.
    connected : bool
        Whether the graph is.
    """

    clients: int
    points: int
    distinct: int
    features: int
    least: int
    connected: bool

    def fills(self, k: int) -> bool:
        """Return whether k-means of every device finds k clusters for sure."""
        return self.least >= k and self.distinct == self.points

    def pools(self, k: int) -> bool:
        """Return whether k-means of what all devices know finds k clusters for sure."""
        return self.distinct >= k and self.connected


class MessageVolume(NamedTuple):
    """What is sent in a round: messages and bytes, each exact or at most so many.

    wire: about so many bytes as encoded; None: as many as at 8 per number.
    """

    messages: int
    bytes: int
    exact_messages: bool = True
    exact_bytes: bool = True
    wire: int | None = None

    @property
    def wire_bytes(self) -> int:
        """Return about how many bytes there are on the wire."""
        return self.bytes if self.wire is None else self.wire

    def times(self, number: int) -> "Volume":
        """Return as much so many times."""
        wire = None if self.wire is None else number * self.wire
        return self._replace(messages=number * self.messages, bytes=number * self.bytes, wire=wire)

    def __add__(self, other: object) -> "Volume":
        """Return both together; what is not exact in one is not in the sum."""
        if not isinstance(other, MessageVolume):
            return NotImplemented
        plain = self.wire is None and other.wire is None
        return MessageVolume(
            self.messages + other.messages, self.bytes + other.bytes, self.exact_messages and other.exact_messages,
            self.exact_bytes and other.exact_bytes, None if plain else self.wire_bytes + other.wire_bytes,
        )  # fmt: skip


NOTHING = MessageVolume(0, 0)


def tables(messages: int, rows: int, columns: int, *, certain: bool = True, full: bool = True) -> MessageVolume:
    """Return the volume of so many messages of a table each; certain, full: whether messages and rows are certain."""
    return MessageVolume(messages, 8 * messages * rows * columns, certain, certain and full)


@dataclass(frozen=True)
class NoMessages:
    """No message at all."""


@dataclass(frozen=True)
class EveryTurn:
    """One table over every link in use, whenever a device is active; in the opening from every device.

    Parameters
    ----------
    rows, columns : int
    absent_rows : bool
        Rows of absent centroids are sent, too: there are always so many rows.
    to : {"all", "partner", "one"}
        All neighbors, at most the partner in the random matching of the turn, or one neighbor drawn at random; see
        `p2pkm.methods.building_blocks.random_matching`.
    """

    rows: int
    columns: int
    absent_rows: bool = False
    to: Literal["all", "partner", "one"] = "all"


@dataclass(frozen=True)
class Flooding:
    """A table of each device with points, forwarded once over every link; the round after the last news is silent.

    Parameters
    ----------
    rows, columns : int
        Of a device's table.
    exact : bool
        There are so many rows for sure, else at most.
    hops : int or None
        How far tables travel; None: everywhere.
    all_send : bool
        Every device with points has a table for sure.
    """

    rows: int
    columns: int
    exact: bool = True
    hops: int | None = None
    all_send: bool = True


@dataclass(frozen=True)
class UntilUnchanged:
    """One table over every link at the opening; then the data decide who goes on, at most every device in every round.

    Parameters
    ----------
    rows, columns : int
    exact : bool
        In the opening every device with points sends so many rows.
    """

    rows: int
    columns: int
    exact: bool = False


@dataclass(frozen=True)
class TreeBroadcast:
    """One table from every device to its children, layer by layer.

    Parameters
    ----------
    parent : int64[n]
        -1 at a root.
    rows, columns : int
    """

    parent: Integers
    rows: int
    columns: int


class TreePass(NamedTuple):
    """A way through a tree: one message over each of its links, layer by layer.

    Attributes
    ----------
    up : bool
        Towards the root, else away from it.
    rows : int64[n]
        Of each device's table.
    columns : int
    exact : bool[n]
        There are so many rows for sure, else at most.
    bits : float or None
        About so many bits a number on the wire; None: 64.
    certain : bool
        The messages are sent for sure, else at most; then bits are on average, 0 where nothing is sent.
    """

    up: bool
    rows: Integers
    columns: int
    exact: Mask
    bits: float | None = None
    certain: bool = True


@dataclass(frozen=True)
class TreePasses:
    """Ways up and down a tree in one round; the deepest layer sends in the opening.

    Parameters
    ----------
    parent, layer : int64[n]
    ways : tuple of Way
    again : tuple of Way
        The ways of every later round, if there are any; then nothing is sent in the last turn of a round.
    """

    parent: Integers
    layer: Integers
    passes: tuple[TreePass, ...]
    later_passes: tuple[TreePass, ...] = ()


@dataclass(frozen=True)
class TreeSums:
    """A table up and a table down each link of a tree in every round; in the opening keys over all links.

    Parameters
    ----------
    parent, layer : int64[n]
    keys : int
        Columns of the row that every device sends in the opening; 0: nothing is sent.
    tables : tuple of (int, int)
        Rows and columns in each round; afterwards nothing is sent.
    """

    parent: Integers
    layer: Integers
    keys: int
    tables: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class FloodThenPool:
    """All in one round: a number of each device floods, then rows of each; only bounds are known of these.

    Parameters
    ----------
    hops : int
        Turns that a flood takes.
    rows, columns : int
        Of all devices together.
    """

    hops: int
    rows: int
    columns: int


@dataclass(frozen=True)
class ByRound:
    """The volumes of the opening, of the first round and of every later one; who sends in which turn is not given."""

    opening: MessageVolume
    rest: MessageVolume
    later: MessageVolume = NOTHING


@dataclass(frozen=True)
class Reports:
    """Clients report to the server, and it answers with k rows of d columns; see `p2pkm.methods.server.star`.

    Parameters
    ----------
    rows, columns : int
        Of the tables of all clients together, and of each.
    exact : bool
        There are so many rows for sure, else at most.
    answered : bool
        The server sends k rows for sure.
    by_points : bool
        Every client sends a row per point, else all send equally many.
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
