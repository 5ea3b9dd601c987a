"""Columns of data frames as features: numbers, categories and times."""

from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.data.readers.frame import (
    CATEGORY,
    NUMBER,
    find_kind,
    find_merged,
    list_columns,
    to_days,
    to_numbers,
    to_series,
)
from p2pkm.data.readers.intake import explain_merged, name_indicators

_LISTED = 5  # categories named in a message
_UNKNOWN = -1  # code of a value that is not a category


class Column(NamedTuple):
    """A column of the table of `fit`.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "time", "duration"}
    categories : tuple of str
        One feature of 0 and 1 each; two categories are one feature. Empty for the other kinds, which are one feature.
    """

    name: str
    kind: str
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> list[str]:
        """Names of the features, such as ``ward=icu`` for a category."""
        return [name for _, name in name_indicators(self.name, self.categories)] or [self.name]


def read_table(X: Any, columns: Sequence[Column] | None = None) -> tuple[NDArray[Any], tuple[Column, ...]]:  # noqa: N803
    """Convert a table to features.

    Parameters
    ----------
    X : DataFrame or table
        Numbers and truth values of any width, also nullable, are one feature; times are days since 1970-01-01, in UTC
        if they have a time zone; durations are days. Each category is one feature of 0 and 1; two categories are one.
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
    table = list_columns(X)
    for j, (name, values_of_column) in enumerate(zip(table.names, table.columns, strict=True)):
        column, values = _read(name, to_series(values_of_column), None if columns is None else columns[j])
        result.append(column)
        parts.append(values)
    if not parts:
        raise DataError(f"X has shape {X.shape}; expected at least one column: 0 feature(s) are not enough")
    dtype = np.result_type(*parts)
    return np.concatenate(parts, axis=1, dtype=dtype if dtype == np.float32 else np.float64), tuple(result)


def _read(name: str, series: Any, known: Column | None) -> tuple[Column, NDArray[Any]]:
    """Read one column, float64[m, features] or float32[m, 1]."""
    kind = find_kind(series)
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
    if column.kind != NUMBER:
        return column, to_days(series, column.kind)[:, None]
    values = to_numbers(series)
    if merged := find_merged(series, values):
        problem = explain_merged(name, *merged)
        raise DataError(f"{problem.text}: subtract a constant, or drop the column if it contains identifiers")
    return column, values[:, None]


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
    counted = [codes[category] for category, _ in name_indicators(column.name, column.categories)]
    features = (row_codes[:, None] == np.array(counted, np.int64)).astype(np.float64)
    features[lost] = np.nan
    return features


def _show(series: Any) -> str:
    """Show the first value that is not a number."""
    present = [value for value in series.dropna() if not isinstance(value, Real)]
    return f", such as {present[0]!r}" if present else ""
