"""Partition `beta`: devices have positions and observe close points with higher probability."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import as_points, check_choice, check_integer, check_positive
from p2pkm.data.partition.by_column import fill
from p2pkm.data.random import generator

Ints = NDArray[np.int64]
Floats = NDArray[Any]
Box = tuple[ArrayLike, ArrayLike]

# Number of redraws after which a point without observer goes to the closest device.
REDRAWS = 1000
# Pairs of point and device that are processed at a time.
BLOCK = 1 << 20


def beta(
    X: ArrayLike,  # noqa: N803 - the name that scripts know from scikit-learn
    n: int,
    box: Box | None = None,
    *,
    beta: float = 1.0,
    miss: Literal["closest", "redraw"] = "closest",
    minimum: int = 0,
    seed: int = 0,
) -> Ints:
    """Partition by distance: devices have positions and observe close points with higher probability.

    A device at distance r observes a point with probability 1 - exp(-beta / r). The point is assigned to one of its
    observers, chosen uniformly.

    Parameters
    ----------
    X : array_like of shape (m, d)
        One point per row.
    n : int
        Number of devices.
    box : tuple of array_like of shape (d,), optional
        Lower and upper corner of the box in which the positions are uniform; None: bounding box of the points.
    beta : float
        Range of observation, above 0; larger values give devices with more similar points.
    miss : {"closest", "redraw"}
        Treatment of a point without an observer. "closest": assign it to the closest device. "redraw": draw again, at
        most 1000 times, then as "closest".
    minimum, seed : int
        As in `iid`.

    References
    ----------
    Garst and Reinders (2023), equation (2).

    Examples
    --------
    >>> import p2pkm
    >>> X, _ = p2pkm.grid16(points=10)
    >>> device = p2pkm.partition.beta(X, 4, beta=0.1, seed=0)
    >>> device.shape, int(device.max())
    ((160,), 3)
    """
    points = as_points(X)
    n = check_integer(n, 1, "n")
    beta = check_positive(beta, "beta")
    low, high = _corners(box, points)
    redraw = check_choice(miss, ("closest", "redraw"), "miss") == "redraw"
    places = generator(seed, "beta places").uniform(low, high, (n, points.shape[1]))
    rng = generator(seed, "beta hits")
    step = max(1, BLOCK // n)
    blocks = [draw_owners(rng, points[a : a + step], places, beta, redraw) for a in range(0, len(points), step)]
    return fill(np.concatenate(blocks), n, minimum, seed)


def _corners(box: Box | None, points: Floats) -> tuple[Floats, Floats]:
    if box is None:
        return points.min(axis=0), points.max(axis=0)
    low, high = (np.asarray(corner, dtype=np.float64) for corner in box)
    if low.shape != high.shape or low.shape != points.shape[1:] or not (low <= high).all():
        raise DataError(f"box is {box!r}; expected a lower and an upper corner of {points.shape[1]} numbers each")
    return low, high


def draw_owners(rng: np.random.Generator, points: Floats, places: Floats, beta: float, redraw: bool) -> Ints:
    """Draw the device of each point of a block, int64[m]."""
    square = np.zeros((len(points), len(places)))
    for feature in range(points.shape[1]):
        square += (points[:, feature, None] - places[None, :, feature]) ** 2
    with np.errstate(divide="ignore", over="ignore"):
        rate = beta / np.sqrt(square)
    hits = rng.random(rate.shape) < -np.expm1(-rate)
    missed = np.flatnonzero(~hits.any(axis=1))
    if redraw and missed.size:
        hits[missed] = redraw_empty(rng, rate[missed])
        missed = np.flatnonzero(~hits.any(axis=1))
    pick = (rng.random(len(points)) * hits.sum(axis=1)).astype(np.int64)
    client = np.argmax(np.cumsum(hits, axis=1) > pick[:, None], axis=1)
    client[missed] = np.argmin(square[missed], axis=1)
    return np.asarray(client, dtype=np.int64)


def redraw_empty(rng: np.random.Generator, rate: Floats) -> NDArray[np.bool_]:
    """Draw hits bool[m, n] at rates float64[m, n], conditional on at least one hit per row, without repetition.

    Rows stay empty with the probability of `REDRAWS` empty draws. The hits are events of Poisson processes, one unit of
    time per device, concatenated. Given any event, the time of the first one has a truncated exponential distribution,
    which determines the first device with a hit. Later devices hit independently.
    """
    ends = np.cumsum(rate, axis=1)
    total = ends[:, -1]
    first_time = -np.log1p(rng.random(len(rate)) * np.expm1(-total))
    first = np.minimum((ends <= first_time[:, None]).sum(axis=1), rate.shape[1] - 1)
    clients = np.arange(rate.shape[1])
    hits: NDArray[np.bool_] = (rng.random(rate.shape) < -np.expm1(-rate)) & (clients > first[:, None])
    hits[np.arange(len(rate)), first] = True
    hits[rng.random(len(rate)) < np.exp(-REDRAWS * total)] = False
    return hits
