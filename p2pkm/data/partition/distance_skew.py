"""The partition `beta`: clients stand somewhere and observe near points more often."""

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

REDRAWS = 1000
BLOCK = 1 << 20


def beta(  # noqa: PLR0913 - a public signature
    X: ArrayLike,  # noqa: N803 - the name that scripts know from scikit-learn
    n: int,
    box: Box | None = None,
    *,
    beta: float = 1.0,
    miss: Literal["closest", "redraw"] = "closest",
    minimum: int = 0,
    seed: int = 0,
) -> Ints:
    """Deal points to clients that stand somewhere and see near points more often.

    A client at distance r observes a point with probability 1 - exp(-beta / r); the point goes to one of its
    observers, each as likely.

    Parameters
    ----------
    X : array_like of shape (m, d)
        One point per row.
    n : int
        Number of devices.
    box : tuple of array_like of shape (d,), optional
        Low and high corner between which the locations are uniform; None: the points' bounding box.
    beta : float
        Above 0; the larger, the more alike are the devices.
    miss : {"closest", "redraw"}
        A point without an observer goes to the closest client, or is drawn again until it has one (after 1000 times:
        to the closest).
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
    points, n, beta = as_points(X), check_integer(n, 1, "n"), check_positive(beta, "beta")
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
        raise DataError(f"box is {box!r}; expected a low and a high corner of {points.shape[1]} numbers each")
    return low, high


def draw_owners(rng: np.random.Generator, points: Floats, places: Floats, beta: float, redraw: bool) -> Ints:
    """Draw the client of each point of a block, int64[m]."""
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
    """Draw hits bool[m, n] at rates float64[m, n], given at least one hit per row, in one go.

    A row stays empty with the probability of 1000 empty draws.

    The clients' hits are the first events of Poisson processes laid end to end: given any event, the first one lies at
    a truncated exponential time, which names the first client that hits; those after it hit as always.
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
