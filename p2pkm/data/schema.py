"""Schema of a table: columns, categories, ranges and fill values, with which new rows are read."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.data.identifiers import FILLING, join_names
from p2pkm.data.readers.intake import ColumnOptions, name_indicators

# Options that also apply to tables of new rows.
_READING = ("na", "decimal", "thousands", "header", "dates", "rename", "skip_rows")


class SchemaColumn(NamedTuple):
    """Column of a table that became one feature or, for categories, several.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "category", "indicators"}
        "indicators": one feature per category, except that two categories are one feature. "category": always one
        feature per category, as in folders of earlier development versions.
    values : tuple of str
        Categories in the order of their features.
    low, high : float or None
        Smallest and largest known value; None for categories.
    fill : float or tuple of float or None
        Replacement of missing values, for each category one; None: rows with missing values were not used.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    fill: Any = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.kind in ("number", "date"):
            return (self.name,)
        return tuple(name for _, name in self.indicators)

    @property
    def indicators(self) -> list[tuple[str, str]]:
        """Category and name of each 0/1 feature."""
        if self.kind == "category":
            return [(value, f"{self.name}={value}") for value in self.values]
        return name_indicators(self.name, self.values)


class Schema(NamedTuple):
    """Columns of a table, with what a run has learned from them.

    Attributes
    ----------
    columns : tuple of SchemaColumn
        In the order of their features.
    device_column : str or None
        Column of the devices.
    keep : tuple of str
        Columns that are copied to tables of labels.
    missing : {"refuse", "drop", "mean", "median"}
        Treatment of missing values.
    options : dict of str to str
        Options that read numbers and missing values of text files, without those with their default value.
    """

    columns: tuple[SchemaColumn, ...]
    device_column: str | None = None
    keep: tuple[str, ...] = ()
    missing: str = "refuse"
    options: dict[str, str] = {}  # noqa: RUF012 - never changed

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features of all columns."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def is_plain(self) -> bool:
        """Whether all columns are numbers that are features, without fill values."""
        if self.device_column is not None or self.keep or self.options:
            return False
        return all(column.kind == "number" and column.fill is None for column in self.columns)

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of schema.json."""
        return self._asdict() | {"columns": [column._asdict() for column in self.columns]}

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> "Schema":
        """Read the content of schema.json; keys that are not fields are ignored."""
        columns = tuple(
            SchemaColumn(**{name: _freeze(column[name]) for name in SchemaColumn._fields})
            for column in content["columns"]
        )
        rest = {name: content[name] for name in cls._fields if name != "columns"}
        return cls(columns, **(rest | {"keep": tuple(rest["keep"])}))

    @classmethod
    def of_features(cls, features: tuple[str, ...]) -> "Schema":
        """Return the schema of numbers without known ranges, for points that were not read from a table."""
        return cls(tuple(SchemaColumn(name, "number") for name in features))

    def fill_in(self, points: NDArray[Any], weights: NDArray[np.float64], missing: str) -> "Schema":
        """Return the schema with the fill values of a run that treats missing values of these points in this way."""
        if missing not in FILLING:
            return self
        fills = iter(find_fill_values(points, weights, missing).tolist())
        columns = [column._replace(fill=tuple(next(fills) for _ in column.features) if column.values
                                   else next(fills)) for column in self.columns]  # fmt: skip
        return self._replace(columns=tuple(columns), missing=missing)


def learn_schema(parts: Any, table: Any, intake: ColumnOptions, device_column: str | None) -> Schema:
    """Describe the columns of a table after it was read.

    Parameters
    ----------
    parts : FileContents
    table : Table
        Table of these contents.
    intake : ColumnOptions
    device_column : str or None
        Name of the column of the devices.
    """
    points = table.points
    names = list(map(str, parts.names or parts.positions or range(points.shape[1])))
    with np.errstate(all="ignore"):
        low, high = (ends(points, axis=0, initial=start) for ends, start in
                     ((np.fmin.reduce, np.inf), (np.fmax.reduce, -np.inf)))  # fmt: skip
    fills: list[Any] = [None] * points.shape[1]
    if intake.missing in FILLING:
        weights = np.ones(len(points)) if table.weights is None else table.weights
        fills = find_fill_values(points, weights, intake.missing).tolist()
    dates = set(intake.encode)
    columns = [
        SchemaColumn(name, "date" if name in dates else "number", (), float(low[j]), float(high[j]), fills[j])
        for j, name in enumerate(names)
    ]
    first = len(names)
    for categories in parts.categories:
        values = tuple(map(str, np.unique(categories.values[categories.values != ""]).tolist()))
        column = SchemaColumn(categories.name, "indicators", values)
        fill = tuple(fills[first : first + len(column.features)])
        columns.append(column if None in fill else column._replace(fill=fill))
        first += len(fill)
    options = {
        name: join_names(value) if isinstance(value, tuple) else value
        for name in _READING
        if (value := getattr(intake, name)) != getattr(ColumnOptions(), name)
    }
    return Schema(tuple(columns), device_column, intake.keep, intake.missing, options)


def find_fill_values(points: NDArray[Any], weights: NDArray[np.float64], statistic: str) -> NDArray[np.float64]:
    """Compute the weighted mean or median of the known values of each feature, float64[d]; 0 if none is known.

    The values are those that the devices find by messages; see `p2pkm.methods.init.imputation` and
    `p2pkm.methods.init.median_imputation`.
    """
    values = np.zeros(points.shape[1])
    for j, column in enumerate(points.T):
        known = ~np.isnan(column) & (weights > 0)
        if known.any():
            order = np.argsort(column[known], kind="stable")
            ordered, weight = column[known][order].astype(np.float64), np.cumsum(weights[known][order])
            if statistic == "mean":
                values[j] = np.cumsum(ordered * weights[known][order])[-1] / weight[-1]
            else:
                lower = ordered[np.argmax(2.0 * weight >= weight[-1])]
                values[j] = (lower + ordered[np.argmax(2.0 * weight > weight[-1])]) / 2.0
    return values


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
