"""LEAF's JSON, in which FEMNIST and its like come: the points of every user, with labels."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.identifiers import require, to_raw
from p2pkm.data.readers.columns import Column, FileContents
from p2pkm.data.readers.concatenate import join

LARGEST = 4 * 2**30  # bytes of a file, which as Python objects takes some times as much
_FORM = '{"users": [NAME, ...], "num_samples": [...], "user_data": {NAME: {"x": [[...], ...], "y": [...]}, ...}}'


def read_leaf(path: Path, label: Column, device: Column) -> FileContents:
    """Read a .json file of LEAF: a user is a device, and what is nested in a point is laid end to end.

    Raises
    ------
    DataError
        If it has another form; the message names the user and the row.
    """
    if label is not None or device is not None:
        raise DataError(f"{path} is LEAF's JSON: its users are the devices and y the labels; it has no columns to name")
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path} has more than {LARGEST} bytes; cut it into several files and give their folder")
    users, data = _open(path)
    found = [(where := f"{path}, user {user!r}", user, _points(where, data[user])) for user in users]
    empty = "has no points; expected some in user_data of LEAF's JSON"
    if not found:
        return FileContents(np.empty((0, 0)), why_empty=empty)
    owners = to_raw(users, f"{path}: the users")
    require(owners, f"{path}: the users")
    owner = np.repeat(owners, [len(one.points) for *_, one in found])
    joined = join([(where, one) for where, _, one in found])
    return joined._replace(device=owner, owners=owners, why_empty=empty)


def _open(path: Path) -> tuple[list[str], Mapping[str, Any]]:
    """Return the users and the data of each."""
    try:
        found = json.loads(path.read_bytes())
    except RecursionError:
        raise DataError(f"{path} is nested too deeply for JSON of points; expected {_FORM}") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read as JSON: {error}; expected {_FORM}") from None
    data = found.get("user_data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        raise DataError(f"{path} is not LEAF's JSON; expected {_FORM}")
    users = found.get("users", list(data))
    if not isinstance(users, list) or any(not isinstance(user, str) for user in users):
        raise DataError(f"{path}: users is no list of names; expected {_FORM}")
    if sorted(users) != sorted(data):
        odd = sorted(set(users) ^ set(data)) or sorted(user for user in set(users) if users.count(user) > 1)
        raise DataError(f"{path}: user {odd[0]!r} is not once in users and once in user_data; expected it in both")
    counts = found.get("num_samples")
    if counts is not None:
        _check_counts(path, users, counts, data)
    return users, data


def _check_counts(path: Path, users: list[str], counts: Any, data: Mapping[str, Any]) -> None:
    if not isinstance(counts, list) or len(counts) != len(users):
        raise DataError(f"{path}: num_samples is no list of {len(users)} numbers, one for each user")
    for user, count in zip(users, counts, strict=True):
        points = data[user].get("x") if isinstance(data[user], dict) else None
        if isinstance(points, list) and len(points) != count:
            raise DataError(f"{path}, user {user!r}: num_samples is {count!r}, but x has {len(points)} points")


def _points(where: str, found: Any) -> FileContents:
    """Return the points and labels of one user."""
    points = found.get("x") if isinstance(found, dict) else None
    if not isinstance(points, list):
        raise DataError(f"{where} has no list x; expected {_FORM}")
    labels = found.get("y")
    if labels is not None and (not isinstance(labels, list) or len(labels) != len(points)):
        raise DataError(f"{where}: y is no list of {len(points)} labels, one for each point of x")
    return FileContents(
        _numbers(where, points), None if labels is None else to_raw(_labels(where, labels), f"{where}: y")
    )


def _numbers(where: str, points: Sequence[Any]) -> NDArray[np.float64]:
    """Return points as float64[m, d]; a point may be a number or a nested list."""
    if not points:
        return np.empty((0, 0))
    array = _array(points)
    if array.dtype.kind in "biuf" and array.size:
        rows = array.reshape(len(points), -1).astype(np.float64)
        if np.isfinite(rows).all():
            return rows
    shape = _array(points[0]).shape
    for row, point in enumerate(points):
        one = _array(point)
        if one.dtype.kind not in "biuf" or not one.size or not np.isfinite(one).all():
            raise DataError(f"{where}, row {row} of x (counted from 0): expected finite numbers, got {_short(point)}")
        if one.shape != shape:
            raise DataError(
                f"{where}, row {row} of x (counted from 0) has shape {one.shape}, the first {shape}; expected as many "
                "numbers in each"
            )
    raise DataError(f"{where}: x is no list of points; expected {_FORM}")


def _array(values: Any) -> NDArray[Any]:
    """Return lists of numbers as an array, of objects if they are not rectangular."""
    try:
        return np.array(values)
    except ValueError:
        return np.array(None)


def _labels(where: str, labels: list[Any]) -> NDArray[Any]:
    array = np.array(labels) if all(isinstance(one, (int, float, str)) for one in labels) else np.array(None)
    if labels and (array.ndim != 1 or array.dtype.kind not in "biufU" or len({type(one) for one in labels}) > 1):
        raise DataError(f"{where}: y holds {_short(labels)}; expected all numbers or all names")
    return array


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
