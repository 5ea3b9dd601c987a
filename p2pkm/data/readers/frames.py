"""Tables in memory: data frames of pandas and polars, tables of Arrow, and arrays of NumPy."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_finite
from p2pkm.data.readers.columns import Column, FileContents, LabelColumns, assign_roles, take_columns
from p2pkm.data.readers.intake import ColumnOptions, RowLocations, read_column

_KINDS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame of pandas or polars or a table of Arrow."""
    return any(
        kind.__module__.partition(".")[0] in _KINDS and kind.__name__ == _KINDS[kind.__module__.partition(".")[0]]
        for kind in type(value).__mro__
    )


def list_columns(frame: Any) -> list[Any]:
    """Return the columns of a frame in their order, found by number, because names may occur twice."""
    return [_take_column(frame, j) for j in range(len(name_columns(frame)))]


def name_columns(frame: Any) -> list[str]:
    """Return the names of the columns of a frame."""
    return [str(name) for name in (frame.column_names if _library(frame) == "pyarrow" else frame.columns)]


def read_frame(where: str, frame: Any, label: Column, device: Column, intake: ColumnOptions) -> FileContents:
    """Read a frame; every column that is neither label nor device is a feature, unless `intake` says otherwise.

    Parameters
    ----------
    where : str
        How messages call the frame.
    frame : pandas.DataFrame, polars.DataFrame or pyarrow.Table
    label, device : str, int or None
        Name or index of a column; None: the one named label, client or device, if there is one.
    intake : ColumnOptions
    """
    names = name_columns(frame)
    if not names:
        raise DataError(f"{where} has no columns; expected one point per row")
    roles, columns = assign_roles(where, names, label, device, intake), list_columns(frame)
    locations = RowLocations("row", range(len(frame)))
    values = [_read_values(columns[j], names[j], locations, encode=j in roles.encode) for j in roles.points]
    label_columns = LabelColumns.of(names, roles, columns, f"{where}, ")
    parts = take_columns(where, [names[j] for j in roles.points], values, label_columns, locations, intake)
    parts = parts._replace(points=check_finite(parts.points, where, missing=intake.fills))
    return parts._replace(notes=_note_index(frame))


def list_content(frame: Any) -> list[Any]:
    """List names and values of the columns, equal for frames with equal content; texts are joined for fast hashing."""
    content = list[Any]()
    for name, column in zip(name_columns(frame), list_columns(frame), strict=True):
        numbers = _to_numbers(column)
        content.append((name, join_texts(map(_to_text, _to_list(column))) if numbers is None else numbers))
    return content


def join_texts(texts: Iterable[str]) -> tuple[str, NDArray[np.int64]]:
    """Return all texts end to end, and the length of each."""
    listed = list(texts)
    return "".join(listed), np.fromiter(map(len, listed), np.int64, len(listed))


def _library(value: Any) -> str:
    return str(type(value).__module__.partition(".")[0])


def _take_column(frame: Any, column: int) -> Any:
    library = _library(frame)
    if library == "pyarrow":
        return frame.column(column)
    return frame.to_series(column) if library == "polars" else frame.iloc[:, column]


def _read_values(column: Any, name: str, locations: RowLocations, *, encode: bool) -> Any:
    """Return a column as `read_column` does, float64[m] with NaN for what is missing if it holds numbers."""
    numbers = None if encode else _to_numbers(column)
    if numbers is not None:
        return numbers
    return read_column(name, [_to_text(value) for value in _to_list(column)], locations, encode)


def _to_list(column: Any) -> list[Any]:
    library = _library(column)
    return list(column.to_pylist() if library == "pyarrow" else column.tolist() if library == "pandas"
                else column.to_list())  # fmt: skip


def _to_numbers(column: Any) -> NDArray[np.float64] | None:
    """Return numbers and truth values of any width, nullable or not; None of anything else."""
    library = _library(column)
    if library == "polars":
        import polars

        known = column.dtype.is_numeric() and not column.dtype.is_decimal()
        if not (known or column.dtype == polars.Boolean):
            return None
        return np.array(column.cast(polars.Float64).fill_null(np.nan).to_numpy(), np.float64)
    if library == "pyarrow":
        values = np.asarray(column.to_numpy())
        return values.astype(np.float64) if values.dtype.kind in "biuf" else None
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)) or column.dtype.kind not in "biuf":
        return None
    return np.array(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _to_text(value: Any) -> str:
    """Return a value as text; what is missing as an empty one."""
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return ""
    return str(value).strip()


def _note_index(frame: Any) -> tuple[str, ...]:
    """Return a note if rows of pandas have names that are not read."""
    names: Sequence[Any] = frame.index.names if _library(frame) == "pandas" else ()
    known = [str(name) for name in names if name is not None]
    if not known:
        return ()
    return (f"the index of the frame ({', '.join(known)}) is not read; frame.reset_index() makes it columns",)
