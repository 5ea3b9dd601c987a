"""Devices as the data name them, and the fewest points that each shall have."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import offsets_of, sort_by
from p2pkm.core.validation import whole
from p2pkm.data.random import generator
from p2pkm.data.table import encode

Ints = NDArray[np.int64]


def column(values: ArrayLike, n: int | None = None, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Take the devices from a column: numbers 0 to n - 1 without a gap, or names, numbered in sorted order.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Number of devices that there must be; None: as many as the column names.
    minimum, seed : int
        As in `iid`.

    Raises
    ------
    DataError
        If a number between 0 and the largest is missing, or the column names another number of devices than n.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.column(["Turku", "Oulu", "Turku"]).tolist()
    [1, 0, 1]
    """
    given = np.asarray(values)
    device = encode(_natural(given), given.shape[0] if given.ndim else 0, "devices")
    found = int(device.max()) + 1 if device.size else 0
    if given.dtype.kind in "iuf":
        _check_gaps(given, found)
    if n is not None and found != whole(n, 1, "n"):
        raise DataError(
            f"the device column names {found} devices, expected {n}; give --devices {found} or another column"
        )
    return fill(device, max(found, 1), minimum, seed)


def name_devices(values: ArrayLike) -> tuple[str, ...] | None:
    """Return the names in a column of devices, in the order in which `column` numbers them; None of numbers."""
    import topologies

    given = np.asarray(values)
    if given.dtype.kind not in "OUS":
        return None
    names = given[np.unique(_natural(given), return_index=True)[1]].astype(str).tolist()
    return tuple(names) if topologies.are_names(names) else None


def _natural(names: NDArray[np.generic]) -> NDArray[np.generic]:
    """Let names that are all whole numbers sort as numbers."""
    try:
        return names.astype(np.int64) if names.dtype.kind in "OUS" else names
    except (TypeError, ValueError, OverflowError):
        return names


def _check_gaps(given: NDArray[np.generic], found: int) -> None:
    if given.size and given.min() == 0 and given.max() == found - 1 and given.dtype.kind != "f":
        return
    ids = np.unique(given)
    wrong = np.flatnonzero(ids != np.arange(found))
    if not wrong.size:
        return
    first = ids[wrong[0]]
    if first < 0 or first != np.floor(first):
        raise DataError(
            f"the device column has the id {first}; expected whole numbers 0 to n - 1: number the devices anew"
        )
    raise DataError(
        f"the device column has no device {wrong[0]}, but one {ids[-1]}; expected 0 to n - 1 without a gap: number the "
        "devices anew, or write them as names (d0, d1, ...)"
    )


def fill(device: ArrayLike, n: int, minimum: int, seed: int = 0) -> Ints:
    """Give every device at least `minimum` points.

    While a device has fewer, the lowest such takes a drawn point of the largest (the lowest of several).

    Parameters
    ----------
    device : array_like of int, shape (m,)
        Device of each point; it is not changed.
    n, minimum, seed : int
        Number of devices, points that each has at least, and the seed of the draw.

    Raises
    ------
    DataError
        If there are fewer than n x minimum points.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.fill([0, 0, 0, 0], 2, minimum=2).tolist()
    [0, 1, 1, 0]
    """
    dealt, n = np.asarray(device, dtype=np.int64), whole(n, 1, "n")
    if whole(minimum, 0, "minimum") == 0:
        return dealt
    if len(dealt) < n * minimum:
        raise DataError(
            f"{len(dealt)} points cannot give {n} devices a minimum of {minimum} each; expected at least {n * minimum} "
            f"points: take a minimum of at most {len(dealt) // n}, or fewer devices"
        )
    dealt, sizes = dealt.copy(), np.bincount(dealt, minlength=n)
    missing = np.maximum(minimum - sizes, 0)
    takers = np.repeat(np.arange(n), missing)
    givers, left = _choose_givers(sizes, int(missing.sum()))
    starts = offsets_of(sizes)[givers]
    drawn, last = starts + generator(seed, "fill").integers(left), starts + left - 1
    rows, _ = sort_by(dealt, n)
    for at, end, taker in zip(drawn.tolist(), last.tolist(), takers.tolist(), strict=True):
        dealt[rows[at]] = taker
        rows[at] = rows[end]
    return dealt


def _choose_givers(sizes: Ints, count: int) -> tuple[Ints, Ints]:
    """Let the largest device (the lowest of several) give a point, `count` times: who gives, and how many it then has.

    A device of s points stands in that line s times, with s, s - 1, ... points; only those count that come before a
    level which leaves enough.
    """
    low, high = 0, int(sizes.max())
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= count else (low, level - 1)
    above = np.maximum(sizes - low, 0)
    giver = np.repeat(np.arange(len(sizes)), above)
    left = sizes[giver] - (np.arange(len(giver)) - np.repeat(np.cumsum(above) - above, above))
    line = np.lexsort((giver, -left))[:count]
    return giver[line], left[line]
