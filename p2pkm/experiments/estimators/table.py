"""Columns of data frames as features: numbers, categories and times."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError

_LISTED = 5  # categories named in a message
_DAY = np.timedelta64(1, "D")
_UNKNOWN = -1  # code of a value that is not a category
NUMBER, CATEGORY, TIME, DURATION = "number", "category", "time", "duration"


class Column(NamedTuple):
    """A column of the table of `fit`.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "time", "duration"}
    categories : tuple of str
        One feature of 0 and 1 each. Empty for the other kinds, which are one feature.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the features, such as ``ward=icu`` for a category."""
        return [f"{self.name}={category}" for category in self.categories] or [self.name]


def is_table(X: Any) -> bool:  # noqa: N803
    """Check whether X is a DataFrame of pandas or polars, or an Arrow table."""
    kinds = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table"}
    return any(kinds.get(base.__module__.partition(".")[0]) == base.__name__ for base in type(X).__mro__)


def read_table(X: Any, columns: Sequence[Column] | None = None) -> tuple[NDArray[Any], tuple[Column, ...]]:  # noqa: N803
    """Convert a table to features.

    Parameters
    ----------
    X : DataFrame or table
        Numbers and truth values of any width, also nullable, are one feature; times are days since 1970-01-01, in UTC
        if they have a time zone; durations are days. Each category is one feature of 0 and 1.
    columns : sequence of Column, optional
        Columns of `fit`, in the same order. None: they are determined from X.

    Returns
    -------
    points : float64[m, d] or float32[m, d]
        NaN: missing. A missing category is NaN in all its features.
    columns : tuple of Column

    Raises
    ------
    DataError
        If a column is text, is of another kind than in `fit`, or has a category that is not known.
    """
    result, parts = list[Column](), list[NDArray[Any]]()
    for j, name in enumerate(map(str, getattr(X, "column_names", getattr(X, "columns", ())))):
        series = _to_pandas(X, j)
        column, values = _read(name, series, None if columns is None else columns[j])
        result.append(column)
        parts.append(values)
    if not parts:
        raise DataError(f"X has shape {X.shape}; expected at least one column: 0 feature(s) are not enough")
    dtype = np.result_type(*parts)
    return np.concatenate(parts, axis=1, dtype=dtype if dtype == np.float32 else np.float64), tuple(result)


def _read(name: str, series: Any, known: Column | None) -> tuple[Column, NDArray[Any]]:
    """Read one column, float64[m, features] or float32[m, 1]."""
    kind = _find_kind(series)
    if known is not None and known.kind == CATEGORY:
        return known, _encode(series, known)
    if kind is None or (known is not None and kind != known.kind and series.notna().any()):
        expected = "a number, a category or a time" if known is None else f"a {known.kind}, as in fit"
        remedy = "Convert or drop it" if known is None else "Convert it"
        raise DataError(
            f"column {name!r} has dtype {series.dtype}{_show(series)}; expected {expected}. {remedy}. Dtypes of "
            "categories are category (pandas), Enum (polars) and dictionary (Arrow)"
        )
    column = known or Column(name, kind, _list_categories(series) if kind == CATEGORY else ())
    if column.kind == CATEGORY:
        return column, _encode(series, column)
    values: Any = _to_numbers(series) if column.kind == NUMBER else _to_days(series, column.kind)
    return column, values[:, None]


def _to_pandas(X: Any, j: int) -> Any:  # noqa: N803
    """Convert one column to a Series of pandas; columns are found by position, because names may occur twice."""
    import pandas

    library = type(X).__module__.partition(".")[0]
    if library == "pandas":
        return X.iloc[:, j]
    if library == "pyarrow":
        return X.column(j).to_pandas()
    import polars

    column = X.to_series(j)
    if column.dtype in (polars.Categorical, polars.Enum):
        texts = column.cast(polars.String).to_list()
        categories = column.dtype.categories.to_list() if column.dtype == polars.Enum else None
        return pandas.Series(pandas.Categorical(texts, categories))
    if column.dtype.is_float() or column.dtype.is_decimal():
        dtype = polars.Float32 if column.dtype == polars.Float32 else polars.Float64
        return pandas.Series(column.cast(dtype).to_numpy())
    if isinstance(column.dtype, polars.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    if column.dtype in (polars.Date, polars.Datetime, polars.Duration):
        return pandas.Series(column.to_numpy())
    return pandas.Series(column.to_list(), dtype=None if len(column) else object)


def _find_kind(series: Any) -> str | None:
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


def _to_numbers(series: Any) -> NDArray[Any]:
    """Convert numbers and truth values, NaN where they are missing."""
    single = isinstance(series.dtype, np.dtype) and series.dtype.kind == "f" and series.dtype.itemsize <= 4
    dtype = np.float32 if single else np.float64
    if series.dtype.kind == "O":
        series = series.where(series.notna(), np.nan)
    return np.array(series.to_numpy(dtype=dtype, na_value=np.nan))


def _to_days(series: Any, kind: str) -> NDArray[Any]:
    """Convert times to days since 1970-01-01, and durations to days."""
    import pandas

    if kind == DURATION:
        values = pandas.to_timedelta(series).to_numpy().astype("timedelta64[us]")
        return np.where(np.isnat(values), np.nan, values / _DAY)
    times = pandas.to_datetime(series)
    times = times if times.dt.tz is None else times.dt.tz_convert("UTC").dt.tz_localize(None)
    values = times.to_numpy().astype("datetime64[us]") - np.datetime64("1970-01-01", "us")
    return np.where(np.isnat(values), np.nan, values / _DAY)


def _list_categories(series: Any) -> tuple[str, ...]:
    """List the categories of a column in their order, including those without rows."""
    categories = tuple(map(str, series.cat.categories))
    if len(set(categories)) < len(categories):
        raise DataError(f"column {series.name!r} has categories that are equal as text; expected different ones")
    return categories


def _encode(series: Any, column: Column) -> NDArray[np.float64]:
    """Convert categories to features of 0 and 1, NaN where they are missing.

    Raises
    ------
    DataError
        If a category is not known.
    """
    codes = {category: code for code, category in enumerate(column.categories)}
    lost = series.isna().to_numpy()
    row_codes = np.array([codes.get(str(value), _UNKNOWN) for value in series], np.int64)
    unknown = np.flatnonzero((row_codes == _UNKNOWN) & ~lost)
    if unknown.size:
        value = series.iloc[unknown[0]]
        listed = ", ".join(map(repr, column.categories[:_LISTED])) + ", ..." * (len(column.categories) > _LISTED)
        raise DataError(
            f"column {column.name!r} has the category {str(value)!r}, which was not in fit; expected {listed}. Declare "
            "all categories in the dtype of the column before fit"
        )
    features = (row_codes[:, None] == np.arange(len(column.categories))).astype(np.float64)
    features[lost] = np.nan
    return features


def _show(series: Any) -> str:
    """Show the first value that is not a number."""
    present = [value for value in series.dropna() if not isinstance(value, Real)]
    return f", such as {present[0]!r}" if present else ""
