"""Data streams: points that arrive, leave and move while a method runs, read from a tape or drawn from the seed.

What is drawn is a function of (seed, round, device), so it is the same for every method and on any number of ranks.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from p2pkm.core.batch import Floats, Integers, Stream
from p2pkm.core.spec import read_drawn, show_drawn
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.data.shards import Shards
from p2pkm.data.stream_tape import DataTape, Limits, read_data_trace
from p2pkm.kernels.reference import uniforms
from p2pkm.kernels.streams import as_normal, shared_key

KINDS = ("none", "slow", "jump", "birth", "turn")
_NAME = "stream_"  # what the arrays of a stream are called on their way to other ranks


class PointStream(Protocol):
    """The changes of the points of a run; every rank asks alike."""

    def has_changes(self, t: int) -> bool:
        """Return whether points of any device change at the start of round t."""

    def growth(self, t: int, n: int) -> Integers:
        """Return by how many points each of n devices has more from round t on than before, int64[n]."""

    def change(self, t: int, own: Shards, ids: Integers) -> Shards:
        """Return the points of the own devices (int64[n], ascending) from round t on, given those before."""

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need, for `rebuild_stream`."""


@dataclass(frozen=True)
class DataStream:
    """What becomes of the points while a method runs; see docs/drift.md.

    The points that arrive are drawn from a mixture: one Gaussian for each class of the data (without labels: for each
    cluster of k-means on all points), with the mean of the class, the standard deviations within classes, and the
    class shares of the device.

    Attributes
    ----------
    kind : {"none", "slow", "jump", "birth", "turn"}
        What becomes of the mixture: nothing; every mean takes a step in a random direction in every round; two means
        jump to random places between the means at a round; one mean moves away at a round; the class shares of the
        devices turn from class to class.
    share : float
        Probability that a point is replaced in a round.
    step, distance : float
        Of slow in a round and of birth, in standard deviations (root mean square over coordinates).
    at : int
        Round of jump and birth.
    period : int
        Rounds in which the shares of turn move on by one class.
    seed : int or None
        None: that of the run.
    tape : str or None
        File of a data tape, which lists the changes instead.

    Examples
    --------
    >>> import p2pkm
    >>> stream = p2pkm.DataStream.of("drawn:kind=jump,at=5")
    >>> stream.kind, stream.at
    ('jump', 5)
    """

    _: KW_ONLY
    kind: Literal["none", "slow", "jump", "birth", "turn"] = "none"
    share: float = 0.1
    step: float = 0.08
    distance: float = 9.0
    at: int = 20
    period: int = 10
    seed: int | None = None
    tape: str | None = None

    def __str__(self) -> str:
        """Return the text of the command line: what differs from the defaults, or the path of a tape."""
        return show_drawn(self, "tape", "drawn:", always=("kind",))

    @classmethod
    def of(cls, given: "DataStream | str | None") -> "DataStream | None":
        """Return the value of a text: ``drawn:kind=slow,share=0.1``, a path that ends with .jsonl, or ``file:PATH``.

        Raises
        ------
        ExperimentError
            If it cannot be read or has figures out of range.
        """
        return read_drawn(cls, given, "stream", "tape")

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        check_choice(self.kind, KINDS, "stream kind")
        check_positive(self.share, "stream share", most=1.0, zero=True)
        for name in ("step", "distance"):
            check_positive(vars(self)[name], f"stream {name}", zero=True, most=1e6)
        for name in ("at", "period"):
            check_integer(vars(self)[name], 1, f"stream {name}")
        if self.seed is not None:
            check_integer(self.seed, 0, "stream seed")


@dataclass(frozen=True, eq=False)
class DrawnStream:
    """Replace points by draws from a mixture that changes; see `PointStream` for the meaning of each method.

    Attributes
    ----------
    drawn : DataStream
    key : int
        Of the random streams.
    means : float64[c, d]
    deviations : float64[d]
    shares : float64[n, c]
        Class shares of every device.
    """

    drawn: DataStream
    key: int
    means: Floats
    deviations: Floats
    shares: Floats
    _walked: dict[int, Floats] = field(default_factory=dict, init=False, repr=False)

    @property
    def scale(self) -> float:
        """Return the standard deviation, root mean square over coordinates."""
        return float(np.sqrt(np.mean(self.deviations * self.deviations)))

    def to_arrays(self) -> dict[str, Any]:
        """Return the mixture, which needs the points of all devices."""
        return {"means": self.means, "deviations": self.deviations, "shares": self.shares}

    def has_changes(self, t: int) -> bool:
        """Return whether points are replaced at all, for they are in every round."""
        return t > 0 and self.drawn.share > 0.0

    def growth(self, t: int, n: int) -> Integers:
        """Return zeros: every point that leaves is replaced."""
        return np.zeros(n, np.int64)

    def change(self, t: int, own: Shards, ids: Integers) -> Shards:
        """Return the points of the own devices from round t on."""
        points, order = own.points.copy(), own.rows.copy()
        means = self.move_means(t)
        for i, device in enumerate(ids.tolist()):
            first, last = int(own.offsets[i]), int(own.offsets[i + 1])
            if first == last:
                continue
            draws = uniforms(self.key, Stream.DRIFT, [(device << 32) + t], (last - first) * (2 + own.d))
            draws = draws.reshape(last - first, 2 + own.d)
            new = np.flatnonzero(draws[:, 0] < self.drawn.share)
            classes = np.searchsorted(np.cumsum(self.turn_shares(t, device))[:-1], draws[new, 1], side="right")
            normal = as_normal(draws[new, 2:])
            points[first + new] = means[classes] + self.deviations * normal
            order[first + new] = -1
        return replace(own, points=points, order=order, labels=None)

    def move_means(self, t: int) -> Floats:
        """Return the means in round t, float64[c, d]."""
        drawn, (c, d) = self.drawn, self.means.shape
        if drawn.kind == "slow":
            return self.means + self._walk(t)
        moved = self.means.copy()
        if drawn.kind in ("jump", "birth") and t >= drawn.at:
            draws = uniforms(self.key, Stream.WALK, [1 << 40], c + 2 * d)[0]
            chosen = np.argsort(draws[:c], kind="stable")
            if drawn.kind == "birth":
                moved[chosen[0]] += drawn.distance * self.scale * self._directions(drawn.at, 1)[0]
            else:
                low, high = self.means.min(axis=0), self.means.max(axis=0)
                moved[chosen[:2]] = low + draws[c:].reshape(2, d)[: min(2, c)] * (high - low)
        return moved

    def turn_shares(self, t: int, device: int) -> Floats:
        """Return the class shares of a device in round t, float64[c]."""
        shares: Floats = self.shares[device]
        if self.drawn.kind != "turn":
            return shares
        turned, rest = divmod(t, self.drawn.period)
        part = rest / self.drawn.period
        return (1.0 - part) * np.roll(shares, turned) + part * np.roll(shares, turned + 1)

    def _walk(self, t: int) -> Floats:
        """Return how far the means have walked by round t, float64[c, d]; the last round is remembered."""
        reached, walked = next(iter(self._walked.items()), (0, np.zeros_like(self.means)))
        if t < reached:
            reached, walked = 0, np.zeros_like(self.means)
        for step in range(reached + 1, t + 1):
            walked = walked + self.drawn.step * self.scale * self._directions(step, len(self.means))
        self._walked.clear()
        self._walked[t] = walked
        return walked

    def _directions(self, t: int, count: int) -> Floats:
        """Draw directions, float64[count, d] of length 1."""
        d = len(self.deviations)
        draws = uniforms(self.key, Stream.WALK, [t], count * d).reshape(count, d)
        normal = as_normal(draws)
        length = np.sqrt(np.cumsum(normal * normal, axis=1)[:, -1:])
        return normal / np.where(length > 0.0, length, 1.0)


def build_stream(asked: DataStream, shards: Shards, classes: Integers, seed: int, limits: Limits) -> PointStream:
    """Return the changes of these points.

    Parameters
    ----------
    shards : Shards
        The points of all devices.
    classes : int64[m]
        The component of the mixture that each point is of; a tape has no use for it.

    Raises
    ------
    ExperimentError, DataError
        If a tape cannot be read or does not fit, see `p2pkm.data.stream_tape.read_data_trace`.
    """
    if asked.tape is not None:
        return read_data_trace(asked.tape, shards, limits)
    c, points = int(classes.max(initial=0)) + 1, shards.points.astype(np.float64)
    counts = np.bincount(classes, minlength=c).astype(np.float64)
    sums = np.stack([np.bincount(classes, column, c) for column in points.T], axis=1)
    means = sums / np.maximum(counts, 1.0)[:, None]
    squares = np.cumsum((points - means[classes]) ** 2, axis=0)[-1]
    table = np.bincount(shards.devices * c + classes, minlength=shards.n * c).reshape(shards.n, c).astype(np.float64)
    sizes = shards.sizes[:, None]
    shares = np.where(sizes > 0, table, counts) / np.where(sizes > 0, sizes, shards.m)
    return DrawnStream(asked, _key(asked, seed), means, np.sqrt(squares / shards.m), shares)


def rebuild_stream(asked: DataStream, arrays: Mapping[str, Any], seed: int) -> PointStream:
    """Return the same as `build_stream` on a rank that got what `pack_stream` returned."""
    found = {name.removeprefix(_NAME): part for name, part in arrays.items() if name.startswith(_NAME)}
    return DataTape(**found) if asked.tape is not None else DrawnStream(asked, _key(asked, seed), **found)


def pack_stream(stream: PointStream | None) -> dict[str, Any]:
    """Return the arrays of a stream under names of their own."""
    return {} if stream is None else {_NAME + name: part for name, part in stream.to_arrays().items()}


def _key(asked: DataStream, seed: int) -> int:
    return shared_key(seed if asked.seed is None else asked.seed)
