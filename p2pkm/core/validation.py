"""Checks at the door of the data: ranges of options, and points that are real numbers."""

import math
import sys
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.sorting import blocks
from p2pkm.core.spec import suggest

_ALL = slice(0, None)
_SHORT = 60  # letters of a value that a message repeats
_TOLD = 10  # names in a message
LARGEST = 1e100  # of what becomes a coordinate: its square must not overflow
SMALLEST = 1e-100  # of the range of coordinates: squares of differences must not underflow
# Largest coordinate, as a multiple of the range of coordinates: a multiple of 1 / eps leaves no digit of a difference.
# These leave a million steps of float64 across the range, and a hundred of float32; cost ratios are then right to 1e-5.
FARTHEST = {"float64": 1e10, "float32": 1e5}


def check_integer(value: object, least: int, name: str, most: int | None = None) -> int:
    """Return an option that must be a whole number of at least `least`, and at most `most`."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < least or (most is not None and number > most):
        wanted = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ExperimentError(f"{name} is {value!r}; expected a whole number {wanted}")
    if number >= 2**63:
        raise ExperimentError(f"{name} is {number}; expected a whole number below 2^63")
    return number


def check_scalar(value: Any, name: str) -> Any:
    """Return an option that must be one value; arrays, lists and tables are refused."""
    if isinstance(value, (Iterable, np.ndarray)) and not isinstance(value, (str, bytes)):
        raise ExperimentError(f"{name} is {_describe(value)}; expected one value")
    return value


def as_list(values: Any, name: str) -> list[Any]:
    """Return values as a list of Python's own numbers and words."""
    scalar = values.ndim == 0 if isinstance(values, np.ndarray) else not isinstance(values, Iterable)
    if scalar or isinstance(values, (str, bytes)):
        raise ExperimentError(f"{name} is {_describe(values)}; expected a list of values")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def as_floats(values: Any, what: str) -> NDArray[np.float64]:
    """Return an array of numbers, float64[...]."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{what} is {_describe(values)}; expected an array of numbers") from None


def as_path(value: Any, name: str) -> Path:
    """Return the path of a file or folder."""
    try:
        return Path(value)
    except TypeError:
        raise ExperimentError(f"{name} is {_describe(value)}; expected a path, such as 'runs/one'") from None


def _describe(value: Any) -> str:
    """Return a value as it was given if that is short, else its type and, of an array, its shape."""
    text = repr(value)
    if len(text) <= _SHORT and "\n" not in text and " at 0x" not in text:
        return text
    shape = f" and of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"of type {type(value).__name__}{shape}"


def check_positive(value: object, name: str, *, zero: bool = False, most: float = sys.float_info.max) -> float:
    """Return an option that must be a finite number above 0, or, with `zero`, not below it, and not above `most`."""
    number = _float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (0 < number <= most or (zero and number == 0)):
        wanted = "a finite number of at least 0" if zero else "a finite number above 0"
        wanted += "" if most == sys.float_info.max else f" and at most {most:g}"
        raise ExperimentError(f"{name} is {value!r}; expected {wanted}")
    return number


def _float(value: Real) -> float:
    """Return a number as float64; a whole number beyond all of them is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_choice(value: str, known: Iterable[str], name: str) -> str:
    """Return an option that must be one of a few words."""
    words = list(known)
    if check_scalar(value, name) not in words:
        raise ExperimentError(f"{name} is {value!r}. {suggest(str(value), words)}")
    return value


def check_dtype(dtype: DTypeLike) -> str:
    """Return the name of the type in which points are stored: float32 or float64."""
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    return check_choice(name, ("float32", "float64"), "dtype")


def as_points(
    points: ArrayLike,
    what: str = "X",
    *,
    empty: bool = False,
    dtype: DTypeLike = "float64",
    missing: bool = False,
) -> NDArray[np.floating[Any]]:
    """Return points as float[m, d] in C order, copied only where that is needed; finite numbers of any kind will do.

    Parameters
    ----------
    points : array_like of shape (m, d)
        One point per row.
    what : str
        How the message calls them.
    empty : bool
        Whether an array without points may pass, of any shape; it comes back as float[0, 0].
    dtype : {"float64", "float32"}
        How to store them.
    missing : bool
        Whether NaN may stand for values that are missing.

    Raises
    ------
    DataError
        If there are no rows or columns, or an entry is not a finite number; the first one is named.
    """
    _check_kind(points, what)
    try:
        array = np.asarray(points)
    except ValueError:
        raise DataError(f"{what} has rows of different lengths, expected one number per feature in each") from None
    if empty and array.size == 0:
        return np.empty((0, 0), dtype)
    if array.ndim != 2:
        remedy = "; for a single feature use reshape(-1, 1)" if array.ndim == 1 else ""
        raise DataError(f"{what} has shape {array.shape}, expected (points, features){remedy}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise DataError(f"{what} has shape {array.shape}, expected at least one point and one feature")
    return cast_points(check_finite(_numbers(array, what), what, missing=missing), what, dtype)


def _check_kind(points: Any, what: str) -> None:
    """Refuse arrays whose entries NumPy would not take as they are: sparse and masked ones."""
    if type(points) is np.ndarray:
        return
    if hasattr(points, "toarray"):  # of any library of sparse arrays; none is imported for this
        raise DataError(f"{what} is a sparse matrix, expected a dense array; pass {what}.toarray()")
    if isinstance(points, np.ma.MaskedArray) and np.ma.is_masked(points):
        raise DataError(
            f"{what} has masked entries, expected numbers in all; pass {what}.filled(...), or drop such rows"
        )


def check_finite(
    array: NDArray[Any], what: str, rows: slice | NDArray[np.int64] = _ALL, *, missing: bool = False
) -> NDArray[Any]:
    """Return the array if all of it is finite, else name the first row (of `rows` in a file) that is not.

    missing: whether NaN may stand for values that are missing.
    """
    for block in blocks(*array.shape):
        bad = np.argwhere(np.isinf(array[block]) if missing else ~np.isfinite(array[block]))
        if len(bad):
            row, column = int(bad[0, 0]) + block.start, int(bad[0, 1])
            raise DataError(
                f"{what} is {array[row, column]} at row {_number(rows, row)}, column {column} (counted from 0); "
                "expected finite numbers: drop or fill in such rows"
            )
    return array


def _number(rows: slice | NDArray[np.int64], row: int) -> int:
    return int(rows.start) + row if isinstance(rows, slice) else int(rows[row])


def check_magnitude(
    points: NDArray[np.floating[Any]], what: str, *, missing: bool = False
) -> NDArray[np.floating[Any]]:
    """Return points whose squares do not overflow; missing: whether NaN may stand for values that are missing."""
    low, high = (np.fmin, np.fmax) if missing else (np.minimum, np.maximum)
    largest = float(max(high.reduce(points, axis=None), -low.reduce(points, axis=None))) if points.size else 0.0
    if np.isnan(largest) and not missing:
        raise DataError(
            f"{what} have missing values (NaN); drop such rows, or fill them in with missing='mean' or 'median'"
        )
    if largest > LARGEST:
        raise DataError(f"{what} reach {largest:g}, whose squares overflow; expected at most {LARGEST:g}: rescale")
    return points


def find_limits(points: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the least and the largest value of each feature, float64[2, d]; +inf and -inf where there are none."""
    low = np.fmin.reduce(points, axis=0, initial=np.inf, dtype=np.float64)
    high = np.fmax.reduce(points, axis=0, initial=-np.inf, dtype=np.float64)
    return np.stack((low, high))


def merge_limits(limits: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the limits of several sets of points together."""
    parts = list(limits)
    return np.stack((np.min([one[0] for one in parts], axis=0), np.max([one[1] for one in parts], axis=0)))


def check_limits(limits: NDArray[np.float64], what: str, dtype: DTypeLike, *, each: bool = False) -> None:
    """Reject points whose differences have lost their digits far from the origin, or whose squares underflow.

    Parameters
    ----------
    limits : float64[2, d]
        From `find_limits`, of all points.
    what : str
        How the message calls them.
    dtype : {"float64", "float32"}
        In which they are stored.
    each : bool
        Whether every feature counts for itself, as where features are scaled; else the one with the largest range.

    Raises
    ------
    DataError
        If the range is above 0 and too small, alone or next to the largest coordinate.
    """
    limits = limits[:, limits[0] <= limits[1]]  # without features that have no value
    ranges, far = limits[1] - limits[0], np.abs(limits).max(axis=0)
    if not each and len(far):
        ranges, far = ranges.max(keepdims=True), far.max(keepdims=True)
    most = FARTHEST[np.dtype(dtype).name]
    for extent, distance in zip(ranges[ranges > 0].tolist(), far[ranges > 0].tolist(), strict=True):
        where = " in a feature that is scaled" if each else ""
        if extent < SMALLEST:
            raise DataError(
                f"{what} have a range of {extent:g}{where}, whose square underflows; expected at least {SMALLEST:g}: "
                "multiply them by a constant"
            )
        if distance > most * extent:
            raise DataError(
                f"{what} reach {distance:g} with a range of {extent:g}{where}, so that {np.dtype(dtype)} loses the "
                f"digits of their differences; expected at most {most:g} times the range: subtract a constant"
            )


def check_near(points: NDArray[np.floating[Any]], centroids: NDArray[np.floating[Any]], what: str) -> None:
    """Reject points and centroids whose distances have lost their digits or underflow, see `check_limits`."""
    if len(points) and len(centroids):
        check_limits(merge_limits((find_limits(points), find_limits(centroids))), what, points.dtype)


def cast_points(
    array: NDArray[Any], what: str, dtype: DTypeLike, rows: slice | NDArray[np.int64] = _ALL
) -> NDArray[np.floating[Any]]:
    """Return finite numbers in the type in which points are stored, C order; a number it cannot hold is named."""
    with np.errstate(over="ignore"):
        points: NDArray[np.floating[Any]] = np.ascontiguousarray(array, dtype)
    if np.result_type(array.dtype, points.dtype) != points.dtype and np.isinf(points).any():
        row, column = (int(part) for part in np.argwhere(np.isinf(points))[0])
        raise DataError(
            f"{what} is {array[row, column]:g} at row {_number(rows, row)}, column {column} (counted from 0), which "
            f"{points.dtype} cannot hold; expected at most {np.finfo(points.dtype).max:.2g}: rescale, or store float64"
        )
    return points


def _numbers(array: NDArray[np.generic], what: str) -> NDArray[Any]:
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass
    place = _first_text(array)
    raise DataError(f"{what} has dtype {array.dtype}{place}; expected real numbers: encode or drop the other columns")


def _first_text(array: NDArray[np.generic]) -> str:
    if array.dtype.kind not in "OUS":
        return ""
    for (row, column), value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return f" and {array.item(row, column)!r} at row {row}, column {column} (counted from 0)"
    return ""


def name_features(X: Any) -> tuple[str, ...] | None:  # noqa: N803 - the name that scikit-learn uses
    """Return the names of the columns of a data frame of pandas or polars or an Arrow table; None of anything else.

    The numbers 0 to d - 1, which pandas gives to columns without names, are not names, nor is a mixture with text.
    """
    names = _list_columns(X)
    return None if len({isinstance(name, str) for name in names}) != 1 else tuple(map(str, names))


def _list_columns(X: Any) -> tuple[Any, ...]:  # noqa: N803
    """Return what the columns are called; nothing if they have no names."""
    names = tuple(getattr(X, "column_names", getattr(X, "columns", ())))
    return () if names == tuple(range(len(names))) else names


def match_features(X: Any, features: tuple[str, ...] | None, what: str = "X") -> Any:  # noqa: N803
    """Return X with its columns in the order of `features`, found by name; without names on either side, X unchanged.

    Parameters
    ----------
    X : array_like of shape (m, d)
    features : tuple of str or None
        Names of the features that are expected.
    what : str
        Name of X in messages.

    Raises
    ------
    DataError
        If both have names, and not the same ones.
    """
    names = tuple(map(str, _list_columns(X)))
    order = order_features(names, features, what) if names and features else None
    return X if order is None else as_points(X, what)[:, order]


def order_features(names: tuple[str, ...], features: tuple[str, ...], what: str) -> list[int] | None:
    """Return the column of each feature, found by name; None if the columns are in this order already.

    Raises
    ------
    DataError
        If these are not the same names.
    """
    if names == features:
        return None
    if len(set(names)) < len(names) or set(names) != set(features) or len(names) != len(features):
        differing = [name for name in names if name not in features], [name for name in features if name not in names]
        extra, lacking = (", ".join(map(repr, some[:_TOLD])) + ", ..." * (len(some) > _TOLD) for some in differing)
        told = "; ".join(f"{word} {some}" for word, some in (("has also", extra), ("lacks", lacking)) if some)
        raise DataError(
            f"the columns of {what} are not the features of the run: {what} {told or 'has them in another order'}; "
            f"expected the columns {', '.join(map(repr, features[:_TOLD]))}{', ...' * (len(features) > _TOLD)}"
        )
    return [names.index(name) for name in features]
