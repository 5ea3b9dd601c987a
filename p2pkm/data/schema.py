"""Schema of a table: columns, categories, ranges and fill values, with which new rows are read."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from p2pkm.data.readers.intake import FILLING, ColumnOptions

# Options that also apply to tables of new rows.
_READING = ("na", "decimal", "thousands")


class SchemaColumn(NamedTuple):
    """Column of a table that became one feature or, for categories, several.

    Attributes
    ----------
    name : str
    kind : {"number", "date", "category"}
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
        return tuple(f"{self.name}={value}" for value in self.values) if self.kind == "category" else (self.name,)


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
    numbers = len(parts.names)
    with np.errstate(all="ignore"):
        low, high = (ends(points, axis=0, initial=start) for ends, start in
                     ((np.fmin.reduce, np.inf), (np.fmax.reduce, -np.inf)))  # fmt: skip
    fills = _find_fills(points, intake.missing)
    dates = set(intake.encode)
    columns = [
        SchemaColumn(name, "date" if name in dates else "number", (), float(low[j]), float(high[j]), fills[j])
        for j, name in enumerate(map(str, parts.names))
    ]
    first = numbers
    for categories in parts.categories:
        values = tuple(map(str, np.unique(categories.values[categories.values != ""]).tolist()))
        fill = tuple(fills[first : first + len(values)])
        columns.append(SchemaColumn(categories.name, "category", values, fill=None if None in fill else fill))
        first += len(values)
    options = {name: value for name in _READING if (value := getattr(intake, name)) != getattr(ColumnOptions(), name)}
    return Schema(tuple(columns), device_column, intake.keep, intake.missing, options)


def _find_fills(points: Any, missing: str) -> list[float | None]:
    """Compute the replacement of missing values of each feature; None where a run fills in none."""
    if missing not in FILLING:
        return [None] * points.shape[1]
    return [float(getattr(np, missing)(column[~np.isnan(column)])) for column in points.T]


def _freeze(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
