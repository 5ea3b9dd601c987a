"""Data streams: points that arrive, leave and move during a run, read from a data trace or drawn from the seed.

All draws are functions of (seed, round, device). So a stream is the same for every method and any number of ranks.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from p2pkm.core.batch import Floats, Integers, Stream
from p2pkm.core.spec import read_drawn, show_drawn
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.data.shards import Shards
from p2pkm.data.stream_tape import DataTrace, Limits, read_data_trace
from p2pkm.kernels.reference import ragged_uniforms, uniforms
from p2pkm.kernels.streams import as_normal, shared_key

KINDS = ("none", "slow", "jump", "birth", "turn")
# Prefix of the names of a stream's arrays in messages to other ranks.
_PREFIX = "stream_"
# Draws of devices that are made together, so that their memory is small.
_DRAWS = 1 << 18


class PointStream(Protocol):
    """Changes of the points of a run."""

    def has_changes(self, t: int) -> bool:
        """Return whether points of any device change at the start of round t."""

    def growth(self, t: int, n: int) -> Integers:
        """Return the change of the number of points of each of n devices at the start of round t, int64[n]."""

    def change(self, t: int, shards: Shards, ids: Integers) -> Shards:
        """Return the points of the local devices `ids` (int64[n], ascending) from round t on, given those before."""

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays from which `rebuild_stream` rebuilds the stream on another rank."""


@dataclass(frozen=True)
class DataStream:
    """Parameters of a data stream; see docs/howto/streams.md.

    New points are drawn from a Gaussian mixture with one component per class of the data (without labels: per cluster
    of k-means on all points). A component has the mean of its class; all have the standard deviations within classes;
    the weights are the class shares of the device.

    Attributes
    ----------
    kind : {"none", "slow", "jump", "birth", "turn"}
        Change of the mixture.

        * "none": none.
        * "slow": every mean takes a step in a random direction in every round.
        * "jump": in round `at`, two means jump to random positions in the bounding box of the means.
        * "birth": in round `at`, one mean moves by `distance` in a random direction.
        * "turn": the class shares of the devices rotate from class to class.
    share : float
        Probability that a point is replaced in a round.
    step : float
        Step of "slow" per round, in standard deviations (root mean square over coordinates).
    distance : float
        Distance of "birth", in the same unit.
    at : int
        Round of "jump" and "birth".
    period : int
        Rounds in which the shares of "turn" rotate by one class.
    seed : int or None
        Seed of the draws; None: the seed of the run.
    tape : str or None
        Path of a data trace, which lists the changes instead.

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
        """Return the value for the command line: the non-default parameters, or the path of a data trace."""
        return show_drawn(self, "tape", "drawn:", always=("kind",))

    @classmethod
    def of(cls, value: "DataStream | str | None") -> "DataStream | None":
        """Parse a text: ``drawn:kind=slow,share=0.1``, a path that ends in .jsonl, or ``file:PATH``.

        Raises
        ------
        ExperimentError
            If the text cannot be parsed or a value is out of range.
        """
        return read_drawn(cls, value, "stream", "tape")

    def __post_init__(self) -> None:
        """Validate the parameters."""
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
    """Stream that replaces points by draws from a changing mixture; see `PointStream` for the methods.

    Attributes
    ----------
    drawn : DataStream
        Parameters.
    key : int
        Key of the random numbers.
    means : float64[c, d]
        Means of the components at the start.
    deviations : float64[d]
        Standard deviations within components.
    shares : float64[n, c]
        Class shares of every device at the start.
    """

    drawn: DataStream
    key: int
    means: Floats
    deviations: Floats
    shares: Floats
    # One entry: the displacement of the means in the last requested round, by round.
    _walked: dict[int, Floats] = field(default_factory=dict, init=False, repr=False)

    @property
    def scale(self) -> float:
        """Standard deviation within components, root mean square over coordinates."""
        return float(np.sqrt(np.mean(self.deviations * self.deviations)))

    def to_arrays(self) -> dict[str, Any]:
        """Return the arrays of the mixture, which was computed from the points of all devices."""
        return {"means": self.means, "deviations": self.deviations, "shares": self.shares}

    def has_changes(self, t: int) -> bool:
        """Return whether points change at the start of round t: in every round, unless the share is 0."""
        return t > 0 and self.drawn.share > 0.0

    def growth(self, t: int, n: int) -> Integers:
        """Return zeros, because every point that leaves is replaced."""
        return np.zeros(n, np.int64)

    def change(self, t: int, shards: Shards, ids: Integers) -> Shards:
        """Return the points of the local devices from round t on."""
        points = shards.points.copy()
        order = shards.rows.copy()
        means, width = self.move_means(t), 2 + shards.d
        counts = width * shards.sizes
        # As many devices at a time as have few enough draws.
        parts = (np.cumsum(counts) - counts) // _DRAWS
        for members in np.split(np.arange(len(ids)), np.flatnonzero(np.diff(parts)) + 1):
            draws = ragged_uniforms(
                self.key, Stream.DRIFT, (ids[members] << 32) + t, counts[members]
            ).reshape(-1, width)  # fmt: skip
            new = np.flatnonzero(draws[:, 0] < self.drawn.share)
            owners = np.repeat(ids[members], shards.sizes[members])[new]
            limits = np.cumsum(self.rotate_shares(t, owners), axis=1)[:, :-1]
            classes = np.count_nonzero(limits <= draws[new, 1:2], axis=1)
            rows = shards.offsets[members[:1]] + new
            points[rows] = means[classes] + self.deviations * as_normal(draws[new, 2:])
            order[rows] = -1
        return replace(shards, points=points, order=order, labels=None)

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
                low = self.means.min(axis=0)
                high = self.means.max(axis=0)
                moved[chosen[:2]] = low + draws[c:].reshape(2, d)[: min(2, c)] * (high - low)
        return moved

    def rotate_shares(self, t: int, devices: Integers) -> Floats:
        """Return the class shares of devices in round t, float64[b, c], linearly interpolated between rotations."""
        shares: Floats = self.shares[devices]
        if self.drawn.kind != "turn":
            return shares
        turned, rest = divmod(t, self.drawn.period)
        part = rest / self.drawn.period
        return (1.0 - part) * np.roll(shares, turned, axis=1) + part * np.roll(shares, turned + 1, axis=1)

    def _walk(self, t: int) -> Floats:
        """Return the displacement of the means in round t, float64[c, d]."""
        # Rounds are usually requested in ascending order: each continues the walk of the last one.
        last, displacement = next(iter(self._walked.items()), (0, np.zeros_like(self.means)))
        if t < last:
            last = 0
            displacement = np.zeros_like(self.means)
        for step in range(last + 1, t + 1):
            displacement = displacement + self.drawn.step * self.scale * self._directions(step, len(self.means))
        self._walked.clear()
        self._walked[t] = displacement
        return displacement

    def _directions(self, t: int, count: int) -> Floats:
        """Draw directions, float64[count, d] of length 1."""
        d = len(self.deviations)
        draws = uniforms(self.key, Stream.WALK, [t], count * d).reshape(count, d)
        normal = as_normal(draws)
        length = np.sqrt(np.cumsum(normal * normal, axis=1)[:, -1:])
        return normal / np.where(length > 0.0, length, 1.0)


def build_stream(parameters: DataStream, shards: Shards, classes: Integers, seed: int, limits: Limits) -> PointStream:
    """Build the stream of a run from its parameters and the initial points.

    Parameters
    ----------
    parameters : DataStream
    shards : Shards
        Points of all devices.
    classes : int64[m]
        Mixture component of each point; not used with a data trace.
    seed : int
        Seed of the run.
    limits : Limits
        Limits that a data trace must satisfy.

    Raises
    ------
    ExperimentError, DataError
        If a data trace cannot be read or does not fit, see `p2pkm.data.stream_tape.read_data_trace`.
    """
    if parameters.tape is not None:
        return read_data_trace(parameters.tape, shards, limits)
    c = int(classes.max(initial=0)) + 1
    points = shards.points.astype(np.float64)
    counts = np.bincount(classes, minlength=c).astype(np.float64)
    sums = np.stack([np.bincount(classes, column, c) for column in points.T], axis=1)
    means = sums / np.maximum(counts, 1.0)[:, None]
    squares = np.cumsum((points - means[classes]) ** 2, axis=0)[-1]
    table = np.bincount(shards.devices * c + classes, minlength=shards.n * c).reshape(shards.n, c).astype(np.float64)
    sizes = shards.sizes[:, None]
    shares = np.where(sizes > 0, table, counts) / np.where(sizes > 0, sizes, shards.m)
    return DrawnStream(parameters, _key(parameters, seed), means, np.sqrt(squares / shards.m), shares)


def rebuild_stream(parameters: DataStream, arrays: Mapping[str, Any], seed: int) -> PointStream:
    """Rebuild a stream of `build_stream` on another rank from the arrays of `pack_stream`."""
    parts = {name.removeprefix(_PREFIX): part for name, part in arrays.items() if name.startswith(_PREFIX)}
    return (
        DataTrace(**parts) if parameters.tape is not None else DrawnStream(parameters, _key(parameters, seed), **parts)
    )


def pack_stream(stream: PointStream | None) -> dict[str, Any]:
    """Return the arrays of a stream under names with a prefix."""
    return {} if stream is None else {_PREFIX + name: part for name, part in stream.to_arrays().items()}


def _key(parameters: DataStream, seed: int) -> int:
    return shared_key(seed if parameters.seed is None else parameters.seed)
