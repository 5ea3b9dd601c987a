"""Reader of tables in memory: data frames of pandas and polars, Arrow tables, and mappings of columns."""

from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_finite
from p2pkm.data.identifiers import to_raw
from p2pkm.data.readers.columns import Column, FileContents, LabelColumns, assign_roles, take_columns
from p2pkm.data.readers.intake import TIDY, ColumnOptions, RowLocations, plain_numbers, read_column

# Libraries, and the class of their tables.
_KINDS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
_DAY = np.timedelta64(1, "D")
# Kinds of columns.
NUMBER, CATEGORY, TIME, DURATION = "number", "category", "time", "duration"


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
    """Return whether an object is a data frame of pandas or polars or an Arrow table."""
    return any(_KINDS.get(kind.__module__.partition(".")[0]) == kind.__name__ for kind in type(data).__mro__)


def has_columns(data: Any) -> bool:
    """Return whether an object is a table with named columns, from any library, or a mapping of columns."""
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
    series = to_series(column)
    kind = None if series is None else find_kind(series)
    if kind == NUMBER and not encode:
        return intake.mark_numbers(to_numbers(series).astype(np.float64, copy=False))
    if kind == TIME and encode:
        return to_days(series, kind)
    texts = to_texts(column, name)
    return read_column(name, texts if encode else plain_numbers(texts, intake), locations, encode, intake.missing_texts)


def to_series(column: Any) -> Any:
    """Convert a column of any library to a Series of pandas; None for arrays and lists of anything but numbers."""
    import pandas

    library = type(column).__module__.partition(".")[0]
    if library == "pandas":
        return column
    if library == "pyarrow":
        return column.to_pandas()
    if library == "polars":
        return _from_polars(column)
    array = np.asarray(column)
    return pandas.Series(array) if array.dtype.kind in "biuf" else None


def _from_polars(column: Any) -> Any:
    """Convert a Series of polars to one of pandas."""
    import pandas
    import polars

    if column.dtype in (polars.Categorical, polars.Enum):
        texts = column.cast(polars.String).to_list()
        categories = column.dtype.categories.to_list() if column.dtype == polars.Enum else None
        return pandas.Series(pandas.Categorical(texts, categories))
    if column.dtype.is_float() or column.dtype.is_decimal():
        dtype = polars.Float32 if column.dtype == polars.Float32 else polars.Float64
        return pandas.Series(column.cast(dtype).to_numpy())
    if isinstance(column.dtype, polars.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    is_complete = column.null_count() == 0 and (column.dtype.is_integer() or column.dtype == polars.Boolean)
    if is_complete or column.dtype in (polars.Date, polars.Datetime, polars.Duration):
        return pandas.Series(column.to_numpy())
    return pandas.Series(column.to_list(), dtype=None if len(column) else object)


def find_kind(series: Any) -> str | None:
    """Find the kind of a column; None for text and anything else that cannot be a feature."""
    kinds = {"b": NUMBER, "i": NUMBER, "u": NUMBER, "f": NUMBER, "M": TIME, "m": DURATION}
    if series.dtype.name == "category":
        return CATEGORY
    if series.dtype.kind in kinds:
        return kinds[series.dtype.kind]
    present = series.dropna()
    if series.dtype.kind == "O":
        for kind, types in ((NUMBER, (Real, Decimal, np.bool_)), (TIME, (date, np.datetime64))):
            if all(isinstance(value, types) for value in present):
                return kind
    return None


def to_numbers(series: Any) -> NDArray[Any]:
    """Convert numbers and truth values, NaN where they are missing."""
    single = isinstance(series.dtype, np.dtype) and series.dtype.kind == "f" and series.dtype.itemsize <= 4
    dtype = np.float32 if single else np.float64
    if series.dtype.kind == "O":
        series = series.where(series.notna(), np.nan)
    return np.array(series.to_numpy(dtype=dtype, na_value=np.nan))


def to_days(series: Any, kind: str) -> NDArray[Any]:
    """Convert times to days since 1970-01-01, and durations to days."""
    import pandas

    if kind == DURATION:
        values = pandas.to_timedelta(series).to_numpy().astype("timedelta64[us]")
        return np.where(np.isnat(values), np.nan, values / _DAY)
    times = pandas.to_datetime(series)
    times = times if times.dt.tz is None else times.dt.tz_convert("UTC").dt.tz_localize(None)
    values = times.to_numpy().astype("datetime64[us]") - np.datetime64("1970-01-01", "us")
    return np.where(np.isnat(values), np.nan, values / _DAY)


def to_texts(column: Any, name: str) -> list[str]:
    """Convert a column to text; "" for missing values."""
    try:
        raw = to_raw(column, f"column {name!r}", frozenset()).tolist()
    except DataError:
        # Values that cannot be identifiers, such as lists; a message about the column shows them.
        raw = column.to_pylist() if hasattr(column, "to_pylist") else list(column)
    return ["" if value is None else str(value) for value in raw]


def list_content(frame: Any) -> list[Any]:
    """List names and values of the columns, equal for frames with equal content; texts are joined for fast hashing."""
    content = list[Any]()
    table = list_columns(frame)
    for name, column in zip(table.names, table.columns, strict=True):
        series = to_series(column)
        is_numeric = series is not None and find_kind(series) == NUMBER
        values = to_numbers(series).astype(np.float64, copy=False) if is_numeric else join_texts(to_texts(column, name))
        content.append((name, values))
    return content


def join_texts(texts: Iterable[str]) -> tuple[str, NDArray[np.int64]]:
    """Join texts; the lengths tell them apart."""
    listed = list(texts)
    return "".join(listed), np.fromiter(map(len, listed), np.int64, len(listed))


def note_index(frame: Any, named: Container[str] = ()) -> tuple[str, ...]:
    """Write a note if a pandas frame has a named index that is not among the `named` columns."""
    is_pandas = type(frame).__module__.partition(".")[0] == "pandas"
    names: Sequence[Any] = frame.index.names if is_pandas else ()
    ignored = [str(name) for name in names if name is not None and str(name) not in named]
    if not ignored:
        return ()
    return (f"the index of the frame ({', '.join(ignored)}) is not read; frame.reset_index() makes it columns",)


def _to_name(name: Any) -> str:
    """Convert the name of a column to text; levels of a MultiIndex are joined by points."""
    return ".".join(str(level) for level in name if str(level)) if isinstance(name, tuple) else str(name)
