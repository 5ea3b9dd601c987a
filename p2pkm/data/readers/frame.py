"""Reader of tables in memory: data frames of pandas and polars, Arrow tables, and mappings of columns."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_finite
from p2pkm.data.identifiers import to_raw
from p2pkm.data.readers.columns import Column, FileContents, LabelColumns, assign_roles, take_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, RowLocations, plain_numbers, read_column


class NamedColumns(NamedTuple):
    """Columns of a table in memory, of any library.

    Attributes
    ----------
    names : list of str
    columns : list
    rows : int
    """

    names: list[str]
    columns: list[Any]
    rows: int


def is_frame(data: Any) -> bool:
    """Return whether an object is a table with named columns, from any library."""
    # The columns of a lazy frame of polars are not evaluated.
    return hasattr(type(data), "columns") or isinstance(data, Mapping)


def list_columns(frame: Any, named: Sequence[str] = ()) -> NamedColumns:
    """List the columns of a data frame, an Arrow table or a mapping of columns.

    The index of a pandas data frame is a column only if its name is one of `named`.

    Raises
    ------
    DataError
        If columns differ in length.
    """
    # Lazy frames of polars.
    frame = frame.collect() if hasattr(frame, "collect") and hasattr(frame, "collect_schema") else frame
    if hasattr(frame, "reset_index"):
        levels = [name for name in frame.index.names if name is not None and str(name) in named]
        frame = frame.reset_index(level=levels) if levels else frame
        names, columns = list(frame.columns), [frame.iloc[:, j] for j in range(frame.shape[1])]
    elif isinstance(frame, Mapping):
        names, columns = list(frame), list(frame.values())
    elif hasattr(frame, "column_names"):
        names, columns = list(frame.column_names), list(frame.columns)
    else:
        names, columns = list(frame.columns), [frame.get_column(name) for name in frame.columns]
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise DataError(f"the columns have {lengths[0]} to {lengths[-1]} rows; expected columns of equal length")
    return NamedColumns([_to_name(name) for name in names], columns, lengths[0] if lengths else 0)


def read_frame(
    where: str, frame: NamedColumns, label: Column, device: Column, intake: ColumnOptions = TIDY
) -> FileContents:  # fmt: skip
    """Split the columns of a table into points, labels, devices, weights and columns to copy.

    Raises
    ------
    DataError
        If a column does not exist or cannot be used as requested.
    """
    names = frame.names
    if not names:
        raise DataError(f"{where} has 0 columns; expected one column per feature and one point per row")
    roles = assign_roles(where, names, label, device, intake)
    locations = RowLocations("row", range(frame.rows))
    columns = {j: convert_column(names[j], frame.columns[j], locations, intake, encode=j in roles.encode)
               for j in (*roles.points, *(() if roles.weight is None else (roles.weight,)))}  # fmt: skip
    weight = None if roles.weight is None else columns[roles.weight]
    marks = LabelColumns.of(names, roles, frame.columns, f"{where}, ", intake)._replace(weight=weight)
    points = [columns[j] for j in roles.points]
    parts = take_columns(where, [names[j] for j in roles.points], points, marks, locations, intake)
    return parts._replace(points=check_finite(parts.points, where, missing=intake.fills))


def convert_column(name: str, column: Any, locations: RowLocations, intake: ColumnOptions, *, encode: bool) -> Any:
    """Convert a column to numbers, float64[m], or to categories; else describe the problem."""
    numbers = None if encode else to_numbers(column)
    if numbers is not None:
        return intake.mark_numbers(numbers)
    texts = to_texts(column, name)
    return read_column(name, texts if encode else plain_numbers(texts, intake), locations, encode, intake.missing_texts)


def to_numbers(column: Any) -> NDArray[np.float64] | None:
    """Convert a column of numbers or truth values to float64[m] with NaN for missing values; None for other columns."""
    if hasattr(column, "to_numpy"):
        dtype = getattr(column, "dtype", None)
        # Extension types of pandas, such as Int64 and boolean.
        if hasattr(dtype, "na_value") and not isinstance(dtype, np.dtype):
            if not (getattr(dtype, "_is_numeric", False) or getattr(dtype, "_is_boolean", False)):
                return None
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if str(getattr(column, "type", dtype)).lower() in ("bool", "boolean"):
            values = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
            return np.array([np.nan if value is None else float(value) for value in values])
        column = column.to_numpy()
    array = np.asarray(column)
    return array.astype(np.float64) if array.dtype.kind in "biuf" else None


def to_texts(column: Any, name: str) -> list[str]:
    """Convert a column to text; "" for missing values."""
    try:
        raw = to_raw(column, f"column {name!r}", frozenset()).tolist()
    except DataError:
        # Values that cannot be identifiers, such as lists; a message about the column shows them.
        raw = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return ["" if value is None else str(value) for value in raw]


def _to_name(name: Any) -> str:
    """Convert the name of a column to text; levels of a MultiIndex are joined by points."""
    return ".".join(str(level) for level in name if str(level)) if isinstance(name, tuple) else str(name)
