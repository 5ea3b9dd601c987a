"""Reader of tables in memory: data frames of pandas and polars, Arrow tables, and mappings of columns."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import EXACT, check_finite
from p2pkm.data.identifiers import to_raw
from p2pkm.data.readers.columns import (
    INDEX,
    Column,
    ColumnRoles,
    FileContents,
    LabelColumns,
    assign_roles,
    list_named,
    note_names_of_rows,
    take_columns,
)
from p2pkm.data.readers.intake import (
    TIDY,
    ColumnOptions,
    RowLocations,
    explain_categories,
    explain_merged,
    plain_numbers,
    read_column,
)

# Libraries, and the class of their tables.
_KINDS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
# Objects whose rows are not in memory, or not in one table, and how to get them.
_CONVERSIONS = {
    ("anndata", "AnnData"): "adata.to_df() and columns of adata.obs, or adata.write_h5ad(PATH) and the path",
    ("duckdb", "DuckDBPyRelation"): "relation.df()",
    ("duckdb", "DuckDBPyConnection"): "connection.df()",
    ("pyarrow", "Dataset"): "dataset.to_table()",
    ("pyarrow", "Scanner"): "scanner.to_table()",
    ("pyarrow", "RecordBatchReader"): "reader.read_all()",
    ("pyarrow", "ParquetFile"): "file.read()",
    ("dask", "DataFrame"): "frame.compute()",
    ("dask_expr", "DataFrame"): "frame.compute()",
    ("pyspark", "DataFrame"): "frame.toPandas()",
    ("ibis", "Table"): "table.to_pandas()",
    ("datasets", "Dataset"): "dataset.to_pandas()",
    ("xarray", "Dataset"): "dataset.to_dataframe().reset_index()",
    ("pandas", "DataFrameGroupBy"): "the frame itself, with the column of groups as the devices",
    ("pandas", "Styler"): "styler.data",
    ("pandas", "Series"): "series.to_frame()",
    ("polars", "Series"): "series.to_frame()",
}
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
    notes : tuple of str
        What of the table is not read.
    weights : float64[rows] or None
        Weights of the rows that a file stores apart from its columns.
    """

    names: list[str]
    columns: list[Any]
    rows: int
    notes: tuple[str, ...] = ()
    weights: Any = None


def is_frame(data: Any) -> bool:
    """Return whether an object is a data frame of pandas or polars or an Arrow table."""
    return any(_KINDS.get(kind.__module__.partition(".")[0]) == kind.__name__ for kind in type(data).__mro__)


def take_table(data: Any) -> Any:
    """Evaluate a lazy frame of polars; reject objects whose rows must be read or converted first, and return others.

    Raises
    ------
    DataError
        With the call that converts the object.
    """
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):
        return data.collect()
    names = getattr(getattr(data, "dtype", None), "names", None)
    if isinstance(data, np.ndarray) and names:
        raise DataError(
            f"the table is a structured array of NumPy with the fields {', '.join(map(repr, names))}; expected a data "
            "frame or an array of numbers. Use pandas.DataFrame(array)"
        )
    library = type(data).__module__.partition(".")[0]
    if library == "pyarrow" and type(data).__name__ == "RecordBatch":
        import pyarrow

        return pyarrow.Table.from_batches([data])
    for kind in type(data).__mro__:
        advice = _CONVERSIONS.get((kind.__module__.partition(".")[0].lstrip("_"), kind.__name__))
        if advice is not None:
            raise DataError(
                f"the table is of type {library}.{kind.__name__}; expected a data frame of pandas or polars, a "
                f"pyarrow.Table, or an array. Use {advice}"
            )
    return data


def has_columns(data: Any) -> bool:
    """Return whether an object is a table with named columns, from any library, or a mapping of columns."""
    return hasattr(type(data), "columns") or isinstance(data, Mapping)


def list_columns(frame: Any, named: Sequence[str] = ()) -> NamedColumns:
    """List the columns of a data frame, an Arrow table or a mapping of columns.

    The index of a pandas data frame, also of one that was written as an Arrow table, is a column only if its name is
    one of `named`; else a note names it.

    Raises
    ------
    DataError
        If columns differ in length.
    """
    index: list[Any] = []
    if hasattr(frame, "reset_index"):
        levels = [name for name in frame.index.names if name is not None and str(name) in named]
        index = [name for name in frame.index.names if name is not None and name not in levels]
        frame = frame.reset_index(level=levels) if levels else frame
        names, columns = list(frame.columns), [frame.iloc[:, j] for j in range(frame.shape[1])]
    elif isinstance(frame, Mapping):
        names, columns = list(frame), list(frame.values())
    elif hasattr(frame, "column_names"):
        stored = read_pandas_metadata(frame.schema)
        index = [name for name in frame.column_names if name in stored.levels and name not in named]
        kept = [j for j, name in enumerate(frame.column_names) if name not in index]
        names = [frame.column_names[j] for j in kept]
        columns = [frame.column(j).dictionary_encode() if frame.column_names[j] in stored.categories
                   else frame.column(j) for j in kept]  # fmt: skip
    else:
        names, columns = list(frame.columns), [frame.get_column(name) for name in frame.columns]
    lengths = sorted({len(column) for column in columns})
    if len(lengths) > 1:
        raise DataError(f"the columns have {lengths[0]} to {lengths[-1]} rows; expected columns of equal length")
    return NamedColumns([_to_name(name) for name in names], columns, lengths[0] if lengths else 0, note_index(index))


def note_index(levels: Iterable[Any]) -> tuple[str, ...]:
    """Note the named levels of an index that are not read; row numbers have no name of their own."""
    listed = [str(name) for name in levels if not INDEX.fullmatch(str(name))]
    if not listed:
        return ()
    return (
        f"the index of the frame ({', '.join(listed)}) is not read; --keep {listed[0]} copies it to labels.csv, "
        "frame.reset_index() makes it columns",
    )


class PandasMetadata(NamedTuple):
    """What pandas stored about the columns of an Arrow table: names of the levels of the index, and of categories."""

    levels: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()


def read_pandas_metadata(schema: Any) -> PandasMetadata:
    """Read the metadata of pandas in the schema of an Arrow table, for which Parquet has no types of its own."""
    try:
        stored = schema.pandas_metadata or {}
        # A range is not a column: a mapping describes it.
        levels = frozenset(name for name in stored.get("index_columns", ()) if isinstance(name, str))
        categories = frozenset(str(column.get("field_name", column.get("name"))) for column in stored.get("columns", ())
                               if column.get("pandas_type") == "categorical")  # fmt: skip
    except (ValueError, TypeError, AttributeError):
        # Metadata of another program under the key of pandas.
        return PandasMetadata()
    return PandasMetadata(levels, categories)


def assign_stored_roles(
    where: str, schema: Any, label: Column, device: Column
) -> tuple[ColumnRoles, tuple[str, ...]]:  # fmt: skip
    """Assign roles to the columns of a file on disk by its schema, and note those that are not read, as in memory."""
    from pyarrow import types

    names = [str(name) for name in schema.names]
    levels = read_pandas_metadata(schema).levels.difference(list_named(label, device, TIDY))
    index = [name for name in names if name in levels]
    roles = assign_roles(where, names, label, device, TIDY._replace(drop=tuple(index)))
    texts = note_names_of_rows(names, roles, index, lambda j: types.is_integer(schema.field(j).type))
    return roles, (*note_index(index), *texts)


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
    weight = frame.weights if roles.weight is None else columns[roles.weight]
    if roles.weight is not None and frame.weights is not None:
        raise DataError(
            f"{where}: the weights of its rows, in braces, cannot be combined with --weight-column "
            f"{intake.weight_column}: a point has one weight. Remove --weight-column, or the weights from the file"
        )
    marks = LabelColumns.of(names, roles, frame.columns, f"{where}, ", intake)._replace(weight=weight)
    features = [columns[j] for j in roles.points]
    parts = take_columns(where, [names[j] for j in roles.points], features, marks, locations, intake)
    texts = note_names_of_rows(names, roles, intake.drop, lambda j: is_number_column(frame.columns[j]))
    points = check_finite(parts.points, where, missing=intake.fills)
    return parts._replace(points=points, notes=(*list_notes(frame), *texts))


def list_notes(frame: NamedColumns) -> tuple[str, ...]:
    """List what was ignored or read beside the columns of a table."""
    if frame.weights is None:
        return frame.notes
    return (*frame.notes, "the weights of the rows, in braces, are the weights of the points")


def convert_column(name: str, column: Any, locations: RowLocations, intake: ColumnOptions, *, encode: bool) -> Any:
    """Convert a column to numbers, float64[m], or to categories; else describe the problem."""
    series = to_series(column)
    kind = None if series is None else find_kind(series)
    if kind == NUMBER and not encode:
        numbers = to_numbers(series).astype(np.float64, copy=False)
        merged = find_merged(series, numbers)
        return explain_merged(name, *merged) if merged else intake.mark_numbers(numbers)
    if kind in (TIME, DURATION) and encode:
        return to_days(series, kind)
    texts = to_texts(column, name)
    if kind == CATEGORY and not encode:
        return explain_categories(name, texts, locations, intake.missing_texts)
    fields = texts if encode else plain_numbers(texts, intake)
    return read_column(name, fields, locations, encode, intake.missing_texts, intake.dates)


def is_category(column: Any) -> bool:
    """Return whether a column of any library declares that it contains categories."""
    series = to_series(column)
    return series is not None and find_kind(series) == CATEGORY


def is_number_column(column: Any) -> bool:
    """Return whether a column of any library contains numbers."""
    series = to_series(column)
    return series is not None and find_kind(series) == NUMBER


def to_categories(texts: NDArray[Any]) -> Any:
    """Convert texts to a column of categories, missing where they are empty."""
    import pandas

    return pandas.Series(pandas.Categorical([text or None for text in texts.tolist()]))


def to_series(column: Any) -> Any:
    """Convert a column of any library to a Series of pandas; None for arrays and lists of anything but numbers."""
    import pandas

    library = type(column).__module__.partition(".")[0]
    if library == "pandas":
        return column
    if library == "pyarrow":
        if column.null_count and str(column.type) in ("int64", "uint64"):
            # Without a type for missing values, pandas makes them float64, which loses digits.
            return pandas.Series(column.to_pylist(), dtype={"int64": "Int64", "uint64": "UInt64"}[str(column.type)])
        return column.to_pandas()
    if library == "polars":
        return _from_polars(column)
    if hasattr(column, "filled"):
        # Masked entries become missing values.
        return pandas.Series(column) if column.dtype.kind in "biuf" else None
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
    if column.dtype.is_float():
        dtype = polars.Float32 if column.dtype == polars.Float32 else polars.Float64
        return pandas.Series(column.cast(dtype).to_numpy())
    if isinstance(column.dtype, polars.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    is_narrow = column.dtype == polars.Boolean or (column.dtype.is_integer() and column.dtype != polars.Int128)
    is_complete = column.null_count() == 0 and is_narrow
    if is_complete or column.dtype in (polars.Date, polars.Datetime, polars.Duration):
        return pandas.Series(column.to_numpy())
    # With missing values, pandas would make integers float64, which loses digits.
    kept = column.dtype.is_integer() or not len(column)
    return pandas.Series(column.to_list(), dtype=object if kept else None)


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


def find_merged(series: Any, numbers: NDArray[np.float64]) -> tuple[Any, Any] | None:
    """Find two different large numbers of a column that are equal as float64; None if there are none."""
    if series.dtype.kind not in "iuO":
        return None
    exact: dict[float, Any] = {}
    for row in np.flatnonzero(np.abs(numbers) >= EXACT).tolist():
        value = series.iloc[row]
        if exact.setdefault(numbers[row], value) != value:
            return exact[numbers[row]], value
    return None


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


def _to_name(name: Any) -> str:
    """Convert the name of a column to text; levels of a MultiIndex are joined by points."""
    return ".".join(str(level) for level in name if str(level)) if isinstance(name, tuple) else str(name)
