"""Devices as the data name them, and the fewest points that each shall have."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import offsets_of, sort_by
from p2pkm.core.validation import check_integer
from p2pkm.data.identifiers import identify, locate, require, to_raw
from p2pkm.data.random import generator

Ints = NDArray[np.int64]
_TOLD = 5  # names in a message


def column(values: ArrayLike, n: int | None = None, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Take the devices from a column of identifiers: numbers 0 to n - 1, or names, numbered in sorted order.

    Numbers that leave some of 0 to n - 1 out, such as the codes 101, 205 and 309, are names, too.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Required number of devices; None: as many as the column names. If it is one more than the largest number in
        the column, numbers that do not occur are devices without points.
    minimum, seed : int
        As in `iid`.

    Raises
    ------
    DataError
        If a value is missing, or the column names another number of devices than n.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.column(["Turku", "Oulu", "Turku"]).tolist(), partition.column([309, 101, 205]).tolist()
    ([1, 0, 1], [2, 0, 1])
    """
    return fill(*number(values, n), minimum, seed)


def number(values: Any, n: int | None = None, owners: NDArray[Any] | None = None) -> tuple[Ints, int]:
    """Return the device of each point, int64[m], and the number of devices.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Required number of devices.
    owners : int64[devices] or object[devices], optional
        All devices in order, if some have no points.

    Raises
    ------
    DataError
        As `column`.
    """
    if np.ndim(values) != 1:
        raise DataError(f"devices have shape {np.shape(values)}, expected one for each point")
    raw = to_raw(values, "devices")
    require(raw, "devices")
    codes, kinds = identify(raw) if owners is None else (locate(raw, owners), owners)
    found, wanted = len(kinds), None if n is None else check_integer(n, 1, "n")
    if wanted not in (None, found):
        if kinds.dtype.kind != "i" or kinds[0] < 0 or kinds[-1] != wanted - 1:
            raise DataError(
                f"the device column names {found} devices, expected {n}; give --devices {found} or another column"
            )
        codes, found = kinds[codes], wanted
    return codes, max(found, 1)


def name_devices(values: Any, n: int | None = None) -> tuple[str, ...] | None:
    """Return the names in a column of devices, in the order in which `column` numbers them; None of numbers from 0.

    n: the number of devices, if it was given to `column`.
    """
    return _name(identify(to_raw(values, "devices")).kinds, n)


def _name(kinds: NDArray[Any], n: int | None) -> tuple[str, ...] | None:
    """Return identifiers as names; None if they are numbers below n, or if n is None, all numbers below their count."""
    if kinds.dtype.kind == "i" and len(kinds) and kinds[0] >= 0 and kinds[-1] < (len(kinds) if n is None else n):
        return None
    return tuple(map(str, kinds.tolist())) or None


def read_owners(device: Any, m: int, n: int | Sequence[Any] | None) -> tuple[Ints, int, tuple[str, ...] | None]:
    """Return the device of each point, int64[m], the number of devices, and their names, None of numbers.

    Parameters
    ----------
    device : array_like of shape (m,)
        Numbers from 0, or names: text, and numbers that cannot be numbers of devices, such as 101, 205 and 309.
    m : int
        Number of points.
    n : int, sequence or None
        Number of devices, or the names of all in order. None: as many as `device` names.

    Raises
    ------
    DataError
        If a device is missing, or not one of the given ones.
    """
    raw = to_raw(device, "device")
    if raw.shape != (m,):
        raise DataError(f"device has shape {raw.shape}, expected ({m},): one device for each row of X")
    require(raw, "the values of device")
    if not isinstance(n, int | np.integer | None):
        return _find_owners(raw, n)
    high = int(raw.max()) if raw.dtype.kind == "i" and raw.min() >= 0 else -1
    if high >= 0 and (high < n if n is not None else _are_indices(raw, high)):
        return raw, high + 1 if n is None else int(n), None
    codes, kinds = identify(raw)
    names = _name(kinds, None)
    if n is not None and (names is None or len(names) != n):
        if names is None:
            needed, why = high + 1, f"a row belongs to device {high}, counted from 0; expected at least {high + 1}"
        else:
            needed, listed = len(names), ", ".join(names[:_TOLD]) + ", ..." * (len(names) > _TOLD)
            why = f"device names {needed} devices: {listed}; expected {needed}"
        raise DataError(f"devices is {n}, but {why}. Use devices={needed}, or None")
    return codes, len(kinds), names


def _find_owners(raw: NDArray[Any], names: Sequence[Any]) -> tuple[Ints, int, tuple[str, ...] | None]:
    """Return the same with the names of all devices given."""
    all_names = to_raw(names, "devices")
    require(all_names, "devices")
    codes, kinds = identify(all_names)
    if len(kinds) < len(all_names):
        raise DataError("devices has a name twice; expected each device once")
    place = np.append(np.argsort(codes), -1)  # the last for identifiers that are unknown
    owner = place[locate(raw, kinds)]
    if (owner < 0).any():
        row = int(owner.argmin())
        raise DataError(f"device is {raw[row]!r} at row {row} (counted from 0), which devices does not name; add it")
    whole_numbers = kinds.dtype.kind == "i" and (all_names.astype(np.int64) == np.arange(len(kinds))).all()
    return owner, len(kinds), None if whole_numbers else tuple(map(str, all_names.tolist()))


def _are_indices(raw: NDArray[Any], high: int) -> bool:
    """Return whether numbers up to `high` number devices, of which some may have no points; else they are codes."""
    if high >= 2 * len(raw) or raw.min() > 0:
        return False
    return high < 2 * int(np.count_nonzero(np.bincount(raw)))


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
    dealt, n = np.asarray(device, dtype=np.int64), check_integer(n, 1, "n")
    if check_integer(minimum, 0, "minimum") == 0:
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
