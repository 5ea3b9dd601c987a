"""Checks at the door of the data: ranges of options, and points that are real numbers."""

import sys
from collections.abc import Iterable
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from p2pkm.errors import DataError, ExperimentError
from p2pkm.spec import suggest

LARGEST = 1e100  # of what becomes a coordinate: its square must not overflow


def whole(value: object, least: int, name: str) -> int:
    """Return an option that must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ExperimentError(f"{name} is {value!r}; expected a whole number of at least {least}")
    return int(value)


def positive(value: object, name: str, *, zero: bool = False, most: float = sys.float_info.max) -> float:
    """Return an option that must be a finite number above 0, or, with `zero`, not below it, and not above `most`."""
    number = isinstance(value, Real) and not isinstance(value, bool) and abs(float(value)) <= most
    if not number or not isinstance(value, Real) or value < 0 or (value == 0 and not zero):
        wanted = "a finite number of at least 0" if zero else "a finite number above 0"
        wanted += "" if most == sys.float_info.max else f" and at most {most:g}"
        raise ExperimentError(f"{name} is {value!r}; expected {wanted}")
    return float(value)


def one_of(value: str, known: Iterable[str], name: str) -> str:
    """Return an option that must be one of a few words."""
    words = list(known)
    if value not in words:
        raise ExperimentError(f"{name} is {value!r}. {suggest(str(value), words)}")
    return value


def matrix(points: ArrayLike, what: str = "X", *, empty: bool = False) -> NDArray[np.float64]:
    """Return points as float64[m, d] in C order; any array or data frame of finite numbers will do.

    Parameters
    ----------
    points : array_like of shape (m, d)
        One point per row.
    what : str
        How the message calls them.
    empty : bool
        Whether an array without points may pass, of any shape; it comes back as float64[0, 0].

    Raises
    ------
    DataError
        If there are no rows or columns, or an entry is not a finite number; the first one is named.
    """
    if hasattr(points, "toarray"):
        raise DataError(f"{what} is a sparse matrix, expected a dense array; pass {what}.toarray()")
    try:
        array = np.asarray(points)
    except ValueError:
        raise DataError(f"{what} has rows of different lengths, expected one number per feature in each") from None
    if empty and array.size == 0:
        return np.empty((0, 0))
    if array.ndim != 2:
        remedy = "; for a single feature use reshape(-1, 1)" if array.ndim == 1 else ""
        raise DataError(f"{what} has shape {array.shape}, expected (points, features){remedy}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise DataError(f"{what} has shape {array.shape}, expected at least one point and one feature")
    return finite(np.ascontiguousarray(_numbers(array, what)), what)


def finite(array: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """Return the array if all of it is finite, else name the first row and column that is not."""
    if not np.isfinite(array).all():
        row, column = (int(part) for part in np.argwhere(~np.isfinite(array))[0])
        raise DataError(
            f"{what} is {array[row, column]} at row {row}, column {column} (counted from 0); expected finite numbers: "
            "drop or fill in such rows"
        )
    return array


def _numbers(array: NDArray[np.generic], what: str) -> NDArray[np.float64]:
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind == "O":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            pass
    place = _first_text(array)
    raise DataError(f"{what} has dtype {array.dtype}{place}; expected real numbers: encode or drop the other columns")


def _first_text(array: NDArray[np.generic]) -> str:
    if array.dtype.kind not in "OUS":
        return ""
    for (row, column), value in np.ndenumerate(array):
        try:
            float(value)
        except (TypeError, ValueError):
            return f" and {array.item(row, column)!r} at row {row}, column {column} (counted from 0)"
    return ""
