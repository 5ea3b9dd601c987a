"""Validation of input: ranges of options, and points that are finite real numbers."""

import math
import sys
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.sorting import blocks
from p2pkm.core.spec import suggest

if TYPE_CHECKING:
    from pathlib import Path

_ALL = slice(0, None)
_MAX_VALUE_LENGTH = 60  # characters of a value that a message repeats
_MAX_NAMES = 10  # names listed in a message
_LONG_ROW = 256  # numbers of a row that NumPy reduces without overhead
LARGEST = 1e100  # largest coordinate: squares must not overflow
SMALLEST = 1e-100  # smallest range of coordinates: squares of differences must not underflow
# Largest coordinate as a multiple of the range of coordinates. At a multiple of 1 / eps, all digits of a difference
# are lost. These values leave 1e6 steps of float64 across the range, or 100 of float32; cost ratios are then correct to
# 1e-5.
FARTHEST = {"float64": 1e10, "float32": 1e5}
_IMAGES = "; for images use reshape(number of images, -1), or the array 'images' of an .npz file"
EXACT = 2.0**53  # largest magnitude up to which float64 holds every integer


def check_integer(value: object, least: int, name: str, most: int | None = None) -> int:
    """Validate an integer option: at least `least` and, if given, at most `most`."""
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ExperimentError(f"{name} is {value!r}; expected a whole number {limits}")
    if number >= 2**63:
        raise ExperimentError(f"{name} is {number}; expected a whole number below 2^63")
    return number


def check_scalar(value: Any, name: str) -> Any:
    """Validate that an option is a single value, not an array, list or table."""
    if isinstance(value, (Iterable, np.ndarray)) and not isinstance(value, (str, bytes)):
        raise ExperimentError(f"{name} is {_describe(value)}; expected one value")
    return value


def as_list(values: Any, name: str) -> list[Any]:
    """Convert values to a list of Python numbers and strings."""
    scalar = values.ndim == 0 if isinstance(values, np.ndarray) else not isinstance(values, Iterable)
    if scalar or isinstance(values, (str, bytes)):
        raise ExperimentError(f"{name} is {_describe(values)}; expected a list of values")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def as_floats(values: Any, what: str) -> NDArray[np.float64]:
    """Convert values to an array of numbers, float64[...]."""
    check_values(values, what)
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{what} is {_describe(values)}; expected an array of numbers") from None


def as_path(value: Any, name: str) -> "Path":
    """Convert a value to the path of a file or folder."""
    from pathlib import Path

    try:
        return Path(value)
    except TypeError:
        raise ExperimentError(f"{name} is {_describe(value)}; expected a path, such as 'runs/one'") from None


def _describe(value: Any) -> str:
    """Describe a value in a message: unchanged if short, otherwise its type and, for arrays, its shape."""
    text = repr(value)
    if len(text) <= _MAX_VALUE_LENGTH and "\n" not in text and " at 0x" not in text:
        return text
    shape = f" and of shape {value.shape}" if isinstance(value, np.ndarray) else ""
    return f"of type {type(value).__name__}{shape}"


def check_positive(value: object, name: str, *, zero: bool = False, most: float = sys.float_info.max) -> float:
    """Validate an option that is a finite number above 0 (with `zero`: at least 0) and at most `most`."""
    number = _float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (0 < number <= most or (zero and number == 0)):
        limits = "a finite number of at least 0" if zero else "a finite number above 0"
        limits += "" if most == sys.float_info.max else f" and at most {most:g}"
        raise ExperimentError(f"{name} is {value!r}; expected {limits}")
    return number


def _float(value: Real) -> float:
    """Convert a number to float64; an integer that is too large becomes inf."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_choice(value: str, known: Iterable[str], name: str) -> str:
    """Validate an option that is one of a few words."""
    words = list(known)
    if check_scalar(value, name) not in words:
        raise ExperimentError(f"{name} is {value!r}. {suggest(str(value), words)}")
    return value


def check_dtype(dtype: DTypeLike) -> str:
    """Validate the storage precision of points; return float32 or float64."""
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
    """Convert points to float[m, d] in C order, without a copy if possible, and check that they are finite.

    Parameters
    ----------
    points : array_like of shape (m, d)
        One point per row.
    what : str
        Name of the points in messages.
    empty : bool
        Whether an array without points, of any shape, is valid; it is returned as float[0, 0].
    dtype : {"float64", "float32"}
        Storage precision.
    missing : bool
        Whether NaN is valid, as a missing value.

    Raises
    ------
    DataError
        If there is not at least one row and one column, or if an entry is not finite; the message names the first one.
    """
    # Sparse arrays of any library have this method; no such library is imported for the check.
    if hasattr(points, "toarray"):
        raise DataError(f"{what} is a sparse matrix, expected a dense array; pass {what}.toarray()")
    check_values(points, what)
    try:
        array = np.asarray(points)
    except ValueError:
        raise DataError(f"{what} has rows of different lengths, expected one number per feature in each") from None
    if empty and array.size == 0:
        return np.empty((0, 0), dtype)
    if array.ndim != 2:
        remedies = {1: "; for a single feature use reshape(-1, 1)", 3: _IMAGES, 4: _IMAGES}
        remedy = remedies.get(array.ndim, "")
        raise DataError(f"{what} has shape {array.shape}, expected (points, features){remedy}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise DataError(f"{what} has shape {array.shape}, expected at least one point and one feature")
    numbers = check_finite(_numbers(array, what), what, missing=missing)
    converted = cast_points(numbers, what, dtype)
    _check_ranges(numbers, converted, what)
    return converted


def check_masks(values: Any, what: str) -> None:
    """Reject masked entries, of which `numpy.asarray` returns the hidden values.

    Raises
    ------
    DataError
        If an entry of a masked array, or of a list of masked arrays, is masked.
    """
    for part in values if isinstance(values, list | tuple) else (values,):
        # Only masked arrays have this method; a test for their type would import numpy.ma.
        if hasattr(part, "filled") and b"\1" in np.asarray(part.mask).tobytes():
            raise DataError(
                f"{what} has masked entries, expected numbers in all; pass {what}.filled(...), or drop these rows"
            )


def check_values(values: Any, what: str) -> None:
    """Reject masked entries and times, which NumPy converts to other numbers without an error.

    A time would become a number in the unit of its array, and NaT the smallest integer.

    Raises
    ------
    DataError
        If an entry is masked, or a date, time or duration.
    """
    check_masks(values, what)
    for part in values if isinstance(values, list | tuple) else (values,):
        dtype = getattr(part, "dtype", None)
        if not isinstance(dtype, np.dtype) or dtype.kind not in "mMO":
            continue
        if dtype.kind != "O" or any(isinstance(value, np.datetime64 | np.timedelta64) for value in np.ravel(part)):
            raise DataError(
                f"{what} has dtype {dtype} with dates or times, expected real numbers; convert them, for example to "
                f"days: ({what} - numpy.datetime64('1970-01-01')) / numpy.timedelta64(1, 'D')"
            )


def check_finite(
    array: NDArray[Any], what: str, rows: slice | NDArray[np.int64] = _ALL, *, missing: bool = False
) -> NDArray[Any]:
    """Validate that all entries are finite; the message names the first other row.

    Parameters
    ----------
    array : float[m, d]
    what : str
        Name of the array in the message.
    rows : slice or int64[m]
        Row numbers in the file, for the message.
    missing : bool
        Whether NaN is valid, as a missing value.
    """
    for block in blocks(*array.shape):
        # Two reductions take a fourth of the time of a mask.
        if np.isfinite(array[block].min(initial=0)) and np.isfinite(array[block].max(initial=0)):
            continue
        bad = np.argwhere(np.isinf(array[block]) if missing else ~np.isfinite(array[block]))
        if len(bad):
            row, column = int(bad[0, 0]) + block.start, int(bad[0, 1])
            raise DataError(
                f"{what} is {array[row, column]} at row {_number(rows, row)}, column {column} (counted from 0); "
                "expected finite numbers: drop or fill in these rows"
            )
    return array


def _number(rows: slice | NDArray[np.int64], row: int) -> int:
    """Return the number in the file of a row of an array."""
    return int(rows.start) + row if isinstance(rows, slice) else int(rows[row])


def check_magnitude(
    points: NDArray[np.floating[Any]], what: str, *, missing: bool = False
) -> NDArray[np.floating[Any]]:
    """Validate that squares of points do not overflow; `missing`: whether NaN is valid, as a missing value."""
    low, high = (np.fmin, np.fmax) if missing else (np.minimum, np.maximum)
    largest = float(max(high.reduce(points, axis=None), -low.reduce(points, axis=None))) if points.size else 0.0
    if np.isnan(largest) and not missing:
        raise DataError(
            f"{what} have missing values (NaN); drop these rows, or fill them in with missing='mean' or 'median'"
        )
    if largest > LARGEST:
        raise DataError(f"{what} reach {largest:g}, whose squares overflow; expected at most {LARGEST:g}: rescale")
    return points


def find_limits(points: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Find the smallest and largest value of each feature, float64[2, d]; +inf and -inf without values."""
    d = points.shape[1]
    # Several short rows as one, if that does not copy them: NumPy reduces long rows in a tenth of the time.
    rows = _LONG_ROW // d if 0 < d <= _LONG_ROW and points.flags.c_contiguous else 1
    end = len(points) - len(points) % rows
    limits = []
    for reduction, initial in ((np.fmin, np.inf), (np.fmax, -np.inf)):
        long = reduction.reduce(points[:end].reshape(end // rows, rows * d), axis=0, initial=initial, dtype=np.float64)
        parts = np.concatenate((long.reshape(rows, d), points[end:]))
        limits.append(reduction.reduce(parts, axis=0, initial=initial, dtype=np.float64))
    return np.stack(limits)


def merge_limits(limits: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Combine the limits of several sets of points, float64[2, d]."""
    stacked = np.stack(list(limits))
    return np.stack((stacked[:, 0].min(axis=0), stacked[:, 1].max(axis=0)))


def check_limits(limits: NDArray[np.float64], what: str, dtype: DTypeLike, *, each: bool = False) -> None:
    """Reject points far from the origin, whose differences are inaccurate, or with squares that underflow.

    Parameters
    ----------
    limits : float64[2, d]
        Limits of all points, see `find_limits`.
    what : str
        Name of the points in messages.
    dtype : {"float64", "float32"}
        Storage precision.
    each : bool
        Whether to check every feature, because features are scaled; otherwise the largest range of all features.

    Raises
    ------
    DataError
        If a range is above 0 and too small, absolutely or relative to the largest coordinate.
    """
    # A feature without values has the limits +inf and -inf.
    limits = limits[:, limits[0] <= limits[1]]
    ranges = limits[1] - limits[0]
    distances = np.abs(limits).max(axis=0)
    if not each and len(distances):
        ranges = ranges.max(keepdims=True)
        distances = distances.max(keepdims=True)
    most = FARTHEST[np.dtype(dtype).name]
    for extent, distance in zip(ranges[ranges > 0].tolist(), distances[ranges > 0].tolist(), strict=True):
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
    """Reject points and centroids whose distances are inaccurate or underflow, see `check_limits`."""
    if len(points) and len(centroids):
        check_limits(merge_limits((find_limits(points), find_limits(centroids))), what, points.dtype)


def cast_points(
    array: NDArray[Any], what: str, dtype: DTypeLike, rows: slice | NDArray[np.int64] = _ALL
) -> NDArray[np.floating[Any]]:
    """Convert finite numbers to the storage precision, in C order; reject numbers that overflow it."""
    with np.errstate(over="ignore"):
        points: NDArray[np.floating[Any]] = np.ascontiguousarray(array, dtype)
    check_distinct(array, points, what)
    if np.result_type(array.dtype, points.dtype) != points.dtype and np.isinf(points).any():
        row, column = (int(index) for index in np.argwhere(np.isinf(points))[0])
        raise DataError(
            f"{what} is {array[row, column]:g} at row {_number(rows, row)}, column {column} (counted from 0), which "
            f"{points.dtype} cannot hold; expected at most {np.finfo(points.dtype).max:.2g}: rescale, or store float64"
        )
    return points


def check_distinct(array: NDArray[Any], points: NDArray[np.floating[Any]], what: str) -> None:
    """Reject whole numbers above 2^53 that differ in an array and are equal as float64.

    Parameters
    ----------
    array : int[m, d], float[m, d] or object[m, d]
        Numbers before their conversion.
    points : float64[m, d] or float32[m, d]
        The same numbers after it.
    what : str
        Name of the numbers in the message.
    """
    if array.dtype.kind not in "iuO" or not points.size:
        return
    if not np.fmax.reduce(np.abs(points), axis=None) >= EXACT:
        return
    if array.dtype.kind == "O":
        array = _find_integers(array)
    for j in np.flatnonzero((np.abs(points) >= EXACT).any(axis=0)).tolist():
        before = np.unique(array[:, j])
        after = before.astype(np.float64)
        equal = np.flatnonzero(after[1:] == after[:-1])
        if len(equal):
            raise DataError(
                f"{what} has the numbers {before[equal[0]]} and {before[equal[0] + 1]} in column {j} (counted from 0), "
                "which are equal as floating-point numbers; expected numbers that differ in 15 digits: subtract a "
                "constant, or drop the column if it contains identifiers"
            )


def _check_ranges(array: NDArray[Any], points: NDArray[np.floating[Any]], what: str) -> None:
    """Reject columns of different numbers that are all equal in the storage precision."""
    if points.dtype != np.float32 or array.dtype == points.dtype:
        return
    collapsed = np.flatnonzero((points.max(axis=0) == points.min(axis=0)) & (array.max(axis=0) != array.min(axis=0)))
    if len(collapsed):
        raise DataError(
            f"{what} has different numbers in column {collapsed[0]} (counted from 0) that are all equal as "
            f"{points.dtype}; expected numbers that differ: subtract a constant, or store float64"
        )


def _numbers(array: NDArray[np.generic], what: str) -> NDArray[Any]:
    """Convert an array of objects to float64; reject text and complex numbers."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "O":
        try:
            points = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            check_distinct(array, points, what)
            return points
    place = _first_text(array)
    raise DataError(f"{what} has dtype {array.dtype}{place}; expected real numbers: encode or drop the other columns")


def _find_integers(array: NDArray[np.generic]) -> NDArray[Any]:
    """Convert objects to integers of Python, 0 where they are not integers."""
    integers = np.zeros(array.shape, object)
    for place, value in np.ndenumerate(array):
        integers[place] = int(value) if isinstance(value, Integral) else 0
    return integers


def _first_text(array: NDArray[np.generic]) -> str:
    """Describe the first entry that is not a number, for the message."""
    if array.dtype.kind not in "OUS":
        return ""
    for (row, column), value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError, OverflowError):
            return f" and {array.item(row, column)!r} at row {row}, column {column} (counted from 0)"
    return ""


def name_features(X: Any) -> tuple[str, ...] | None:  # noqa: N803 - the name that scikit-learn uses
    """Return the column names of a pandas or polars data frame or an Arrow table; None for other types.

    Numbers 0 to d - 1, the default of pandas, are not names, and neither is a mixture of numbers and text.
    """
    names = _list_columns(X)
    return None if len({isinstance(name, str) for name in names}) != 1 else tuple(map(str, names))


def _list_columns(X: Any) -> tuple[Any, ...]:  # noqa: N803
    """Return the column names, empty without names."""
    names = tuple(getattr(X, "column_names", getattr(X, "columns", ())))
    return () if names == tuple(range(len(names))) else names


def match_features(X: Any, features: tuple[str, ...] | None, what: str = "X") -> Any:  # noqa: N803
    """Reorder the columns of X by name to the order of `features`; unchanged if either side lacks names.

    Parameters
    ----------
    X : array_like of shape (m, d)
    features : tuple of str or None
        Expected feature names.
    what : str
        Name of X in messages.

    Raises
    ------
    DataError
        If both sides have names and the sets of names differ.
    """
    names = tuple(map(str, _list_columns(X)))
    order = order_features(names, features, what) if names and features else None
    return X if order is None else as_points(X, what)[:, order]


def order_features(names: tuple[str, ...], features: tuple[str, ...], what: str) -> list[int] | None:
    """Find the column of each feature by name; None if the columns are already in this order.

    Raises
    ------
    DataError
        If the sets of names differ.
    """
    if names == features:
        return None
    if len(set(names)) < len(names) or set(names) != set(features) or len(names) != len(features):
        extra = _list_names([name for name in names if name not in features])
        missing = _list_names([name for name in features if name not in names])
        parts = [f"has also {extra}"] * bool(extra) + [f"lacks {missing}"] * bool(missing)
        raise DataError(
            f"the columns of {what} are not the features of the run: "
            f"{what} {'; '.join(parts) or 'has repeated names'}; expected the columns {_list_names(features)}"
        )
    return [names.index(name) for name in features]


def _list_names(names: Sequence[str]) -> str:
    """List the first names, for a message."""
    return ", ".join(map(repr, names[:_MAX_NAMES])) + ", ..." * (len(names) > _MAX_NAMES)
