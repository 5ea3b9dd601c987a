"""Reader of LEAF's JSON files, such as FEMNIST: points and labels of each user."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import cast_points
from p2pkm.data.identifiers import require_complete, to_raw
from p2pkm.data.readers.columns import USER, Column, FileContents
from p2pkm.data.readers.concatenate import join_contents

# Largest size of a file in bytes; as Python objects, its contents take several times as much memory.
LARGEST = 4 * 2**30
_STRUCTURE = '{"users": [NAME, ...], "num_samples": [...], "user_data": {NAME: {"x": [[...], ...], "y": [...]}, ...}}'


def read_leaf(path: Path, label: Column, device: Column) -> FileContents:
    """Read a .json file of LEAF: each user is a device, and nested lists of a point are flattened.

    Raises
    ------
    DataError
        If the file has another structure; the message names the user and the row.
    """
    if label is not None or device is not None:
        raise DataError(
            f"{path}: --label-column and --device-column cannot be combined with LEAF's JSON: users are the devices "
            "and y contains the labels. Remove them"
        )
    if path.stat().st_size > LARGEST:
        raise DataError(
            f"{path} has {path.stat().st_size} bytes; expected at most {LARGEST}. Divide it into several files and use "
            "their folder"
        )
    users, data = _open(path)
    contents = [(where := f"{path}, user {user!r}", user, _points(where, data[user])) for user in users]
    empty = "has 0 points; expected at least one in user_data of LEAF's JSON"
    if not contents:
        return FileContents(np.empty((0, 0)), why_empty=empty)
    owners = to_raw(users, f"{path}: the users")
    require_complete(owners, f"{path}: the users")
    owner = np.repeat(owners, [len(part.points) for *_, part in contents])
    joined = join_contents([(where, part) for where, _, part in contents])
    return joined._replace(device=owner, owners=owners, device_name=USER, why_empty=empty)


def _open(path: Path) -> tuple[list[str], Mapping[str, Any]]:
    """Return the names of the users and the data of each user."""
    try:
        content = json.loads(path.read_bytes())
    except RecursionError:
        raise DataError(f"{path} is nested too deeply; expected LEAF's JSON, {_STRUCTURE}") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read as JSON: {error}; expected {_STRUCTURE}") from None
    data = content.get("user_data") if isinstance(content, dict) else None
    if not isinstance(data, dict):
        raise DataError(f"{path} is not LEAF's JSON; expected {_STRUCTURE}")
    users = content.get("users", list(data))
    if not isinstance(users, list) or any(not isinstance(user, str) for user in users):
        raise DataError(f"{path}: users is not a list of names; expected {_STRUCTURE}")
    if sorted(users) != sorted(data):
        odd = sorted(set(users) ^ set(data)) or sorted(user for user in set(users) if users.count(user) > 1)
        raise DataError(f"{path}: expected user {odd[0]!r} once in users and once in user_data. Correct the file")
    counts = content.get("num_samples")
    if counts is not None:
        _check_counts(path, users, counts, data)
    return users, data


def _check_counts(path: Path, users: list[str], counts: Any, data: Mapping[str, Any]) -> None:
    if not isinstance(counts, list) or len(counts) != len(users):
        raise DataError(f"{path}: num_samples is not a list of {len(users)} numbers; expected one number per user")
    for user, count in zip(users, counts, strict=True):
        points = data[user].get("x") if isinstance(data[user], dict) else None
        if isinstance(points, list) and len(points) != count:
            raise DataError(
                f"{path}, user {user!r}: num_samples is {count!r}; expected {len(points)}, the number of points in x"
            )


def _points(where: str, data: Any) -> FileContents:
    """Read the points and labels of a user."""
    points = data.get("x") if isinstance(data, dict) else None
    if not isinstance(points, list):
        raise DataError(f"{where}: x is missing or not a list; expected {_STRUCTURE}")
    labels = data.get("y")
    if labels is not None and (not isinstance(labels, list) or len(labels) != len(points)):
        raise DataError(f"{where}: y is not a list of {len(points)} labels; expected one label per point of x")
    return FileContents(
        _numbers(where, points), None if labels is None else to_raw(_labels(where, labels), f"{where}: y")
    )


def _numbers(where: str, points: Sequence[Any]) -> NDArray[np.floating[Any]]:
    """Convert points to float64[m, d]; a point may be a number or a nested list."""
    if not points:
        return np.empty((0, 0))
    array = _array(points)
    if array.dtype.kind in "biuf" and array.size:
        rows = array.reshape(len(points), -1)
        if np.isfinite(rows).all():
            return cast_points(rows, f"{where}, x", np.float64)
    shape = _array(points[0]).shape
    for row, point in enumerate(points):
        values = _array(point)
        if values.dtype.kind not in "biuf" or not values.size or not np.isfinite(values).all():
            raise DataError(
                f"{where}, row {row} of x (counted from 0) is {_shorten(point)}; expected a list of finite numbers"
            )
        if values.shape != shape:
            raise DataError(
                f"{where}, row {row} of x (counted from 0) has shape {values.shape}; expected {shape}, as the first row"
            )
    raise DataError(f"{where}: x is not a list of points; expected {_STRUCTURE}")


def _array(values: Any) -> NDArray[Any]:
    """Convert nested lists to an array; lists that are not rectangular become an object array of None."""
    try:
        return np.array(values)
    except ValueError:
        return np.array(None)


def _labels(where: str, labels: list[Any]) -> NDArray[Any]:
    array = np.array(labels) if all(isinstance(label, (int, float, str)) for label in labels) else np.array(None)
    if labels and (array.ndim != 1 or array.dtype.kind not in "biufU" or len({type(label) for label in labels}) > 1):
        raise DataError(f"{where}: y is {_shorten(labels)}; expected only numbers or only names")
    return array


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
