"""New rows of a table, read with the schema of a run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import suggest
from p2pkm.data.readers.anndata import split_part
from p2pkm.data.readers.any_format import FRAME, SUFFIXES, check_intake, list_unsupported
from p2pkm.data.readers.columns import list_names
from p2pkm.data.readers.folder import format_of
from p2pkm.data.readers.frame import has_columns
from p2pkm.data.readers.intake import Categories, ColumnOptions, Problem, raise_problems, split_list
from p2pkm.data.readers.raw import RawTable, is_matrix, read_matrix, read_raw
from p2pkm.data.schema import Schema, SchemaColumn

# Options that describe a file instead of its columns, which differ between exports of one table.
FORMAT = ("na", "decimal", "thousands", "separator", "encoding", "sheet", "header", "dates", "rename", "skip_rows")
# Number of ranges outside of the known values from which the median of a column is rejected.
_FAR = 1.0


class NewRows(NamedTuple):
    """New rows as points.

    Attributes
    ----------
    points : float64[m, d]
        Features in the order of the run; NaN where a value is missing and is not filled in.
    device : list of str or None
        Device of each row, "" where it is missing; None without such a column.
    copied : dict of str to list of str
        Columns to copy, by name.
    notes : tuple of str
    """

    points: NDArray[np.float64]
    device: list[str] | None
    copied: dict[str, list[str]]
    notes: tuple[str, ...]


def read_new_rows(
    source: Any, schema: Schema, *, keep: Any = None, check_ranges: bool = True, form: Mapping[str, Any] | None = None
) -> NewRows:  # fmt: skip
    """Read a file or data frame with the columns of a run.

    Parameters
    ----------
    source : path or table
    schema : Schema
    keep : sequence of str, or comma-separated str, optional
        Columns to copy; None: those of the run that the table has.
    check_ranges : bool
        Whether to reject columns whose values are far outside of the range of the run.
    form : mapping, optional
        Options of `FORMAT` for this file, by name; None: as in the run.

    Raises
    ------
    DataError
        If a column is missing, a category is new, or values are far outside of the range of the run.
    ExperimentError
        If an option is unknown or out of range.
    """
    kind = FRAME if has_columns(source) else format_of(split_part(str(source))[0])
    intake = _choose_format(schema, kind, form or {})
    encoded = {column.name for column in schema.columns if column.kind != "number"}
    keeping = schema.keep if keep is None else split_list(keep)
    if is_matrix(source):
        check_intake(str(source), kind, intake)
        table = read_matrix(source, schema.device_column)
    else:
        texts = {*encoded, *keeping, schema.device_column or ""}
        table = read_raw(source, intake, texts, named=texts.union(column.name for column in schema.columns))
    required = [column.name for column in schema.columns] + list(() if keep is None else keeping)
    if absent := [name for name in required if name not in table.names]:
        raise DataError(
            f"{table.where} is without the columns {list_names(absent)}; its columns are {list_names(table.names)}. "
            "Add them, or rename the columns as in the table of the run"
        )
    parts = [_read_column(table, column, intake, check_ranges) for column in schema.columns]
    raise_problems(table.where, [part for part in parts if isinstance(part, Problem)], len(parts))
    new_names = intake.new_names
    device = table.list_texts(schema.device_column) if schema.device_column in table.names else None
    if schema.device_column is None and table.files and table.file is not None:
        device = [table.files[number] for number in table.file.tolist()]
    device = None if device is None else [new_names.get(name, name) for name in device]
    copied = {name: table.list_texts(name) for name in keeping if name in table.names}
    return NewRows(np.column_stack(parts), device, copied, table.notes)


def _choose_format(schema: Schema, kind: str, options: Mapping[str, Any]) -> ColumnOptions:
    """Return the options with which new rows are read: the options of these rows, else those of the run that apply."""
    unknown = next((name for name in options if name not in FORMAT), None)
    if unknown is not None:
        raise ExperimentError(f"unknown option {unknown!r} of new rows. {suggest(unknown, FORMAT)}")
    chosen = {name: value for name, value in options.items() if value is not None}
    # Another program wrote a file with another decimal separator: the run's separators of thousands do not apply.
    excluded = ["decimal", "thousands"] if {"decimal", "thousands"} & set(chosen) else []
    excluded += list_unsupported(kind, ColumnOptions.of(**schema.options)) if kind in (FRAME, *SUFFIXES) else []
    of_run = {name: value for name, value in schema.options.items() if name not in excluded}
    if "rename" in of_run and "rename" in chosen:
        chosen["rename"] = [*split_list(of_run["rename"]), *ColumnOptions.of(rename=chosen["rename"]).rename]
    return ColumnOptions.of(**of_run | chosen)


def _read_column(table: RawTable, column: SchemaColumn, intake: ColumnOptions, check_ranges: bool) -> Any:
    """Convert a column to its features, float64[m, f]; else describe the problem."""
    if column.values:
        return _encode(table, column, intake)
    values = table.convert(column.name, intake, encode=column.kind == "date")
    if isinstance(values, Problem):
        return values
    if isinstance(values, Categories):
        text = next(filter(None, values.values.tolist()), None)
        if text is not None:
            return Problem(
                f"column {column.name!r} contains text such as {text!r}; expected dates such as 2026-01-31",
                "Correct the column",
            )
        values = np.full(len(values.values), np.nan)
    if check_ranges and (problem := _check_range(column, values)):
        return problem
    return (values if column.fill is None else np.where(np.isnan(values), column.fill, values))[:, None]


def _encode(table: RawTable, column: SchemaColumn, intake: ColumnOptions) -> Any:
    """Convert the categories of the run to features of 0 and 1, NaN where they are missing."""
    missing = intake.missing_texts
    new_names = intake.new_names
    listed = (new_names.get(text, text) for text in table.list_texts(column.name))
    texts = np.array(["" if text.lower() in missing else text for text in listed])
    new = [row for row, text in enumerate(texts.tolist()) if text and text not in column.values]
    if new:
        place = f"{table.locations.describe(new[0])}, column {column.name!r} is {str(texts[new[0]])!r}"
        return Problem(
            f"{place}, a new category; expected one of {list_names(column.values)}",
            f"Correct the {len(new):,} rows with new categories, leave the fields empty, or repeat the run with them",
        )
    features = np.array([np.where(texts == "", np.nan, texts == value) for value, _ in column.indicators], np.float64).T
    return features if column.fill is None else np.where(np.isnan(features), column.fill, features)


def _check_range(column: SchemaColumn, values: NDArray[np.float64]) -> Problem | None:
    """Compare the median of a column with the range in the run; another unit moves it far outside."""
    known = values[~np.isnan(values)]
    if column.low is None or column.high is None or not len(known):
        return None
    median = float(np.median(known))
    span = (column.high - column.low) or abs(column.high) or 1.0
    if column.low - _FAR * span <= median <= column.high + _FAR * span:
        return None
    return Problem(
        f"column {column.name!r} has the median {median:g}, far outside of {column.low:g} to {column.high:g} in the "
        "run; expected the same unit",
        "Convert the values, or use --any-range (in Python check_ranges=False)",
    )
