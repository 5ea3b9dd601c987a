"""Partition by a column of devices, and the minimum number of points per device."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import offsets_of, sort_by
from p2pkm.core.validation import check_integer, check_values
from p2pkm.data.identifiers import UNASSIGNED, identify, locate, require_assigned, require_complete, to_raw
from p2pkm.data.random import generator

Ints = NDArray[np.int64]
# Largest number of names that a message lists.
_LISTED = 5


def column(values: ArrayLike, n: int | None = None, *, minimum: int = 0, seed: int = 0) -> Ints:
    """Partition by a column of identifiers: device numbers 0 to n - 1, or names, which are numbered in sorted order.

    Numbers with gaps, such as the codes 101, 205 and 309, are names, too.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Required number of devices; None: number of identifiers in the column. If n is one more than the largest number
        in the column, numbers that do not occur are devices without points.
    minimum, seed : int
        As in `iid`.

    Raises
    ------
    DataError
        If a value is missing, or the number of devices in the column differs from n.

    Examples
    --------
    >>> from p2pkm import partition
    >>> partition.column(["Turku", "Oulu", "Turku"]).tolist(), partition.column([309, 101, 205]).tolist()
    ([1, 0, 1], [2, 0, 1])
    """
    return fill(*number_devices(values, n), minimum, seed)


def number_devices(values: Any, n: int | None = None, owners: NDArray[Any] | None = None) -> tuple[Ints, int]:
    """Read a column of devices: return the device of each point, int64[m], and the number of devices.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Required number of devices.
    owners : int64[devices] or object[devices], optional
        All devices in order, if some are without points.

    Raises
    ------
    DataError
        As for `column`.
    """
    if np.ndim(values) != 1:
        raise DataError(f"devices have shape {np.shape(values)}; expected (m,), one device per point")
    raw = to_raw(values, "devices")
    require_complete(raw, "devices")
    require_assigned(raw, "devices", UNASSIGNED)
    codes, kinds = identify(raw) if owners is None else (locate(raw, owners), owners)
    count = len(kinds)
    required = None if n is None else check_integer(n, 1, "n")
    if required not in (None, count):
        if kinds.dtype.kind != "i" or kinds[0] < 0 or kinds[-1] != required - 1:
            raise DataError(
                f"the device column names {count} devices; expected {n}. Use --devices {count}, or name another column "
                "with --device-column"
            )
        codes = kinds[codes]
        count = required
    return codes, max(count, 1)


def name_devices(values: Any, n: int | None = None) -> tuple[str, ...] | None:
    """Return the names in a column of devices, in the order of `column`; None if they are device numbers.

    Parameters
    ----------
    values : array_like of shape (m,)
        Device of each point.
    n : int, optional
        Number of devices, if it was given to `column`.
    """
    return _name(identify(to_raw(values, "devices")).kinds, n)


def _name(kinds: NDArray[Any], n: int | None) -> tuple[str, ...] | None:
    """Convert identifiers to names; None if they are numbers below n or, without n, the numbers below their count."""
    if kinds.dtype.kind == "i" and len(kinds) and kinds[0] >= 0 and kinds[-1] < (len(kinds) if n is None else n):
        return None
    return tuple(map(str, kinds.tolist())) or None


def read_column(values: Any, what: str) -> NDArray[Any]:
    """Convert the device of each point to identifiers, int64[m] or object[m].

    Raises
    ------
    DataError
        If a device is missing.
    """
    raw = to_raw(values, what)
    require_complete(raw, f"the values of {what}")
    require_assigned(raw, f"the values of {what}", UNASSIGNED)
    return raw


def read_owners(device: Any, m: int, n: int | Sequence[Any] | None) -> tuple[Ints, int, tuple[str, ...] | None]:
    """Read the devices of points: device of each point, int64[m], number of devices, and names (None: numbers only).

    Parameters
    ----------
    device : array_like of shape (m,)
        Numbers from 0, or names: text, and numbers that cannot be numbers of devices, such as 101, 205 and 309.
    m : int
        Number of points.
    n : int, sequence or None
        Number of devices, or the names of all devices in order. None: the devices in `device`.

    Raises
    ------
    DataError
        If a device is missing, or is not among the given ones.
    """
    raw = read_column(device, "device")
    if raw.shape != (m,):
        raise DataError(f"device has shape {raw.shape}; expected ({m},), one device per row of X")
    if not isinstance(n, int | np.integer | None):
        return _find_owners(raw, n)
    high = int(raw.max()) if raw.dtype.kind == "i" and raw.min() >= 0 else -1
    if high >= 0 and (high < n if n is not None else _are_indices(raw, high)):
        return raw, high + 1 if n is None else int(n), None
    codes, kinds = identify(raw)
    names = _name(kinds, None)
    if n is not None and (names is None or len(names) != n):
        if names is None:
            needed = high + 1
            why = f"a row belongs to device {high}, counted from 0; expected at least {needed}"
        else:
            needed = len(names)
            listed = ", ".join(names[:_LISTED]) + ", ..." * (needed > _LISTED)
            why = f"device names {needed} devices: {listed}; expected {needed}"
        raise DataError(f"devices is {n}, but {why}. Use devices={needed}, or None")
    return codes, len(kinds), names


def _find_owners(raw: NDArray[Any], names: Sequence[Any]) -> tuple[Ints, int, tuple[str, ...] | None]:
    """Read the devices of points as `read_owners` does, given the names of all devices."""
    all_names = to_raw(names, "devices")
    require_complete(all_names, "devices")
    codes, kinds = identify(all_names)
    if len(kinds) < len(all_names):
        raise DataError("devices contains a name twice; expected each device once")
    # `locate` returns -1 for unknown identifiers, the index of the last entry.
    numbers = np.append(np.argsort(codes), -1)
    owner = numbers[locate(raw, kinds)]
    if (owner < 0).any():
        row = int(owner.argmin())
        raise DataError(
            f"device is {raw[row]!r} at row {row} (counted from 0); expected one of the names in devices. Add it there"
        )
    whole_numbers = kinds.dtype.kind == "i" and (all_names.astype(np.int64) == np.arange(len(kinds))).all()
    return owner, len(kinds), None if whole_numbers else tuple(map(str, all_names.tolist()))


def _are_indices(raw: NDArray[Any], high: int) -> bool:
    """Return whether integers up to `high` are device numbers, possibly with gaps, rather than codes."""
    # Device numbers begin at 0 and at least half of them occur.
    if high >= 2 * len(raw) or raw.min() > 0:
        return False
    return high < 2 * int(np.count_nonzero(np.bincount(raw)))


def fill(device: ArrayLike, n: int, minimum: int, seed: int = 0) -> Ints:
    """Move points so that every device has at least `minimum` points.

    While a device has too few, the one with the lowest number receives a random point of the largest device (the one
    with the lowest number, if several are largest).

    Parameters
    ----------
    device : array_like of int, shape (m,)
        Device of each point; not modified.
    n : int
        Number of devices.
    minimum : int
        Minimum number of points per device.
    seed : int
        Seed of the draws.

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
    check_values(device, "device")
    device_of = np.asarray(device, dtype=np.int64)
    n = check_integer(n, 1, "n")
    if check_integer(minimum, 0, "minimum") == 0:
        return device_of
    if len(device_of) < n * minimum:
        raise DataError(
            f"minimum is {minimum}, but {len(device_of)} points cannot give {n} devices a minimum of {minimum} each; "
            f"expected at least {n * minimum} points. Use a minimum of at most {len(device_of) // n}, or fewer devices"
        )
    device_of, sizes = device_of.copy(), np.bincount(device_of, minlength=n)
    missing = np.maximum(minimum - sizes, 0)
    receivers = np.repeat(np.arange(n), missing)
    donors, sizes_before = _choose_donors(sizes, int(missing.sum()))
    starts = offsets_of(sizes)[donors]
    drawn = starts + generator(seed, "fill").integers(sizes_before)
    last = starts + sizes_before - 1
    rows, _ = sort_by(device_of, n)
    for source, end, receiver in zip(drawn.tolist(), last.tolist(), receivers.tolist(), strict=True):
        device_of[rows[source]] = receiver
        rows[source] = rows[end]
    return device_of


def _choose_donors(sizes: Ints, count: int) -> tuple[Ints, Ints]:
    """Choose the donor of each of `count` points: always the largest device; return donors and their sizes before.

    Sequentially, a donor of s points gives its points at sizes s, s - 1, ... So the donors are the first `count`
    entries of (device, size) by descending size and ascending device. Only sizes above a level found by bisection,
    which leaves at least `count` entries, are generated.
    """
    low = 0
    high = int(sizes.max())
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= count else (low, level - 1)
    above = np.maximum(sizes - low, 0)
    donor = np.repeat(np.arange(len(sizes)), above)
    left = sizes[donor] - (np.arange(len(donor)) - np.repeat(np.cumsum(above) - above, above))
    order = np.lexsort((donor, -left))[:count]
    return donor[order], left[order]
