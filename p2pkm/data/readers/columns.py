"""Roles of the columns of a file (label, device, features), and the contents of a file before numbering."""

import re
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import find_distinct, narrow
from p2pkm.data.identifiers import (
    compose,
    find_missing,
    find_unassigned,
    identify,
    is_integer,
    require_assigned,
    to_raw,
)
from p2pkm.data.readers.intake import (
    CATEGORIES,
    TIDY,
    Categories,
    ColumnOptions,
    Problem,
    RowLocations,
    mark_missing,
    one_hot,
    raise_problems,
)
from p2pkm.data.table import Table

Column = str | int | None

# Names of columns of row numbers: those of pandas in Parquet and Arrow files, and those that it gives to the first
# columns, without a name, of text files.
INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)?")
ROW_NUMBERS = "__index_level_0__"
LABEL_NAMES = ("label",)
DEVICE_NAMES = ("client", "device")
# Column of the devices of formats that store them apart from the points.
USER = "device"


class ColumnRoles(NamedTuple):
    """Roles of the columns of a file, by index.

    Attributes
    ----------
    points : list of int
        Columns of the features, ascending.
    label, device : int or None
        Columns of the label and of the device.
    encode : tuple of int
        Columns of features that contain categories or dates.
    weight : int or None
        Column of the weights.
    keep : tuple of int
        Columns that are copied to tables of labels.
    """

    points: list[int]
    label: int | None
    device: int | None
    encode: tuple[int, ...] = ()
    weight: int | None = None
    keep: tuple[int, ...] = ()

    @property
    def texts(self) -> set[int]:
        """Columns whose text is read unchanged."""
        return {*self.encode, *self.keep} | {index for index in (self.label, self.device) if index is not None}


class FileContents(NamedTuple):
    """Contents of a file before labels and devices are numbered.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
    label, device : int64[m], object[m] or None
        Label and device of each point, from `p2pkm.data.identifiers.to_raw`.
    names : tuple of str
        Names of the features, if the file has any.
    lengths : tuple of int
        Number of points of each of several files.
    categories : tuple of Categories
        Columns that become features in `build_table`, when the values of all files are known.
    rows : int64[m] or None
        Row of the file of each point; None: all rows.
    total : int or None
        Number of rows of the file, if `rows` is given.
    image : tuple of int or None
        As in `Table`.
    owners : int64 or object array, or None
        Devices in the file, with those without points, from `to_raw`; None: the devices in `device`.
    notes : tuple of str
        Guesses of the reader and suspicious contents.
    weight : float64[m] or None
        Weight of each point.
    copied : tuple of Categories
        Columns that are copied to tables of labels.
    device_name : str or None
        Name of the column of the devices.
    positions : tuple of str
        Numbers of the columns of the features in a file without names, from 0; empty: 0 to d - 1.
    why_empty : str
        Error message for a file without points, to follow its name.
    """

    points: NDArray[Any]
    label: Any = None
    device: Any = None
    names: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    categories: tuple[Categories, ...] = ()
    rows: NDArray[np.int64] | None = None
    total: int | None = None
    image: tuple[int, ...] | None = None
    owners: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    weight: NDArray[np.float64] | None = None
    copied: tuple[Categories, ...] = ()
    device_name: str | None = None
    positions: tuple[str, ...] = ()
    why_empty: str = "has 0 rows; expected one point per row"


class LabelColumns(NamedTuple):
    """Columns of label and device of all rows, with missing values.

    Attributes
    ----------
    label, device : int64[m], object[m] or None
        Identifiers, from `p2pkm.data.identifiers.to_raw`.
    called : tuple of (str, str)
        Names of the two columns in messages.
    copied : tuple of Categories
        Columns that are copied to tables of labels.
    device_name : str or None
        Name of the column of the devices.
    weight : float64[m], Problem or None
        Column of the weights.
    """

    label: NDArray[Any] | None
    device: NDArray[Any] | None
    called: tuple[str, str]
    copied: tuple[Categories, ...] = ()
    device_name: str | None = None
    weight: Any = None

    @classmethod
    def of(
        cls, names: Sequence[str], roles: ColumnRoles, columns: Any, where: str = "", intake: ColumnOptions = TIDY
    ) -> "LabelColumns":  # fmt: skip
        """Select label, device and the columns to copy from the columns of a file by their roles."""
        missing = intake.missing_texts
        called = [f"column {names[at]!r}" if at is not None else "" for at in (roles.label, roles.device)]
        label, device = (
            None if at is None else _mark(to_raw(columns[at], f"{where}{name}", missing), missing)
            for at, name in zip((roles.label, roles.device), called, strict=True)
        )
        copied = tuple(
            Categories(names[at], to_raw(columns[at], f"{where}column {names[at]!r}", frozenset())) for at in roles.keep
        )
        return cls(label, device, (called[0], called[1]), copied, None if roles.device is None else names[roles.device])


def assign_roles(
    where: str, names: Sequence[str], label: Column, device: Column, intake: ColumnOptions = TIDY
) -> ColumnRoles:
    """Assign roles to columns by name or index; label and device without a given column by their usual names.

    Raises
    ------
    DataError
        If a column does not exist or has two roles, or no column remains for the features.
    """
    label_index = find_column(where, names, label, "label", LABEL_NAMES)
    device_index = find_column(where, names, device, "device", DEVICE_NAMES)
    if label_index is not None and label_index == device_index:
        raise DataError(
            f"{where}: column {names[label_index]!r} is both label and device; expected two columns. Change "
            "--label-column or --device-column"
        )
    weight = None if intake.weight_column is None else _locate(where, names, intake.weight_column, "--weight-column")
    if weight is not None and weight in (label_index, device_index):
        raise DataError(
            f"{where}: column {names[weight]!r} is label or device, and weight; expected different columns. Change "
            "--weight-column"
        )
    roles = (label_index, device_index, weight)
    points = [j for j, name in enumerate(names) if j not in roles]
    selected, dropped, encoded, copied = (
        {_locate(where, names, column, f"--{option}") for column in getattr(intake, option)}
        for option in ("columns", "drop", "encode", "keep")
    )
    # Row numbers and a column to copy are features only if --columns names them.
    points = [j for j in points if j not in dropped
              and (j in selected or not (selected or j in copied or INDEX.fullmatch(names[j])))]  # fmt: skip
    if not points:
        raise DataError(
            f"{where}: no column is left for the features; its columns are {list_names(names)}. Change --columns, "
            "--drop, --label-column or --device-column"
        )
    if misplaced := sorted(encoded - set(points)):
        name = names[misplaced[0]]
        raise DataError(f"{where}: column {name!r} of --encode is not a feature. Remove it from --encode")
    return ColumnRoles(points, label_index, device_index, tuple(sorted(encoded)), weight, tuple(sorted(copied)))


def take_columns(
    where: str,
    names: Sequence[str],
    columns: Sequence[Any],
    label_columns: LabelColumns,
    locations: RowLocations,
    intake: ColumnOptions,
) -> FileContents:
    """Combine the columns of a file, without incomplete rows if these are to be dropped.

    Parameters
    ----------
    where : str
        Location of the file in messages.
    names : sequence of str
        Names of the columns.
    columns : sequence of float64[m], Categories or Problem
        Columns, from `p2pkm.data.readers.intake.read_column`.
    marks : LabelColumns
        Labels and devices.
    places : RowLocations
        Locations of the rows in messages.
    intake : ColumnOptions

    Raises
    ------
    DataError
        If columns cannot be features, or values are missing; the message lists all such columns.
    """
    marked = _find_marked(where, label_columns, locations, intake)
    problems = [column for column in columns if isinstance(column, Problem)]
    usable = [(name, column) for name, column in zip(names, columns, strict=True) if not isinstance(column, Problem)]
    fill = intake.fills
    complete, lost = mark_missing([name for name, _ in usable], [column for _, column in usable], locations, fill=fill)
    raise_problems(where, [*problems, *(() if intake.missing == "drop" else lost)], len(names))
    weight = label_columns.weight
    marked &= _check_weights(where, weight, locations, intake)
    rows = np.flatnonzero(marked if fill else complete & marked)
    numeric = [(name, column[rows]) for name, column in usable if not isinstance(column, Categories)]
    coded = tuple(column._replace(values=column.values[rows]) for _, column in usable if isinstance(column, Categories))
    points = np.stack([column for _, column in numeric], axis=1) if numeric else np.empty((len(rows), 0))
    parts = FileContents(points, names=tuple(name for name, _ in numeric), categories=coded, total=len(marked))
    parts = parts if weight is None else parts._replace(weight=weight[rows])
    return _take_rows(parts, rows, label_columns)


def _check_weights(where: str, weight: Any, locations: RowLocations, intake: ColumnOptions) -> Any:
    """Validate weights, and mark the rows that have one, bool[m]."""
    if weight is None:
        return True
    if isinstance(weight, Problem):
        raise DataError(f"{where}, {weight.text}. Use another column in --weight-column")
    lost = np.isnan(weight)
    wrong = np.flatnonzero(~(weight > 0) & ~(lost & (intake.missing == "drop")))
    if wrong.size:
        value = "empty or missing" if lost[wrong[0]] else f"{weight[wrong[0]]:g}"
        is_column = intake.weight_column is not None
        called = f"column {intake.weight_column!r}" if is_column else "the weight in braces"
        remedy = "Correct the weights" + (", or remove --weight-column" if is_column else "")
        raise DataError(
            f"{where}, {locations.describe(int(wrong[0]))}, {called} is {value}; expected a weight above 0. {remedy}"
        )
    return ~lost


def take_points(where: str, parts: FileContents, label_columns: LabelColumns, intake: ColumnOptions) -> FileContents:
    """Combine points that were read as a matrix with labels and devices; drop incomplete rows if requested.

    Raises
    ------
    DataError
        If a label or a device is missing and its row is not to be dropped.
    """
    complete = _find_marked(where, label_columns, RowLocations("row", range(len(parts.points))), intake)
    if intake.missing == "drop":
        complete &= ~np.isnan(parts.points).any(axis=1)
    rows = np.flatnonzero(complete)
    points = parts.points if complete.all() else parts.points[rows]
    return _take_rows(parts._replace(points=points, total=len(complete)), rows, label_columns)


def _find_marked(
    where: str, label_columns: LabelColumns, locations: RowLocations, intake: ColumnOptions
) -> NDArray[np.bool_]:
    """Mark the rows with a label and a device, bool[m].

    Raises
    ------
    DataError
        If a label or device is missing and its row is not to be dropped.
    """
    marked = np.ones(len(locations.numbers), np.bool_)
    for raw, called in zip(label_columns[:2], label_columns.called, strict=True):
        lost = marked[:0] if raw is None else find_missing(raw)
        if lost.any() and intake.missing != "drop":
            raise DataError(
                f"{where}, {locations.describe(int(lost.argmax()))}, {called} is empty or missing, in "
                f"{int(lost.sum()):,} of {len(lost):,} rows; expected a value in every row. Add the values, or use "
                "--missing drop to remove such rows"
            )
        marked &= ~lost if lost.size else True
    return marked


def _take_rows(parts: FileContents, rows: NDArray[np.int64], label_columns: LabelColumns) -> FileContents:
    """Add the labels and devices of the remaining rows to points; devices without such rows are kept in `owners`."""
    parts = parts._replace(device_name=label_columns.device_name)
    if len(rows) == parts.total:
        return parts._replace(label=label_columns.label, device=label_columns.device, copied=label_columns.copied)
    label, device = (None if raw is None else raw[rows] for raw in label_columns[:2])
    owners = None if label_columns.device is None else label_columns.device[~find_missing(label_columns.device)]
    why = "has a missing value in every row; expected complete rows. Remove columns that are mostly empty with --drop"
    copied = tuple(column._replace(values=column.values[rows]) for column in label_columns.copied)
    return parts._replace(label=label, device=device, rows=rows, owners=owners, copied=copied, why_empty=why)


def _mark(raw: NDArray[Any], missing: frozenset[str]) -> NDArray[Any]:
    """Set identifiers that are numbers to None if they stand for a missing value, such as -99."""
    if raw.dtype.kind != "i" or not (codes := [int(text) for text in missing if is_integer(text)]):
        return raw
    lost = np.isin(raw, codes)
    texts = raw.astype(str).astype(object)
    texts[lost] = None
    return texts if lost.any() else raw


def _locate(where: str, names: Sequence[str], column: str | int, option: str) -> int:
    """Return the index of a column that an option gives by name or index."""
    composed = [compose(name) for name in names]
    if isinstance(column, str) and (known := compose(column)) in composed:
        if composed.count(known) > 1:
            raise DataError(
                f"{where} has several columns {column!r}; expected one. Use the number of the column, counted from 0, "
                f"in {option}"
            )
        return composed.index(known)
    index = as_index(column)
    if index is None or not 0 <= index < len(names):
        raise DataError(
            f"{where}: {option} is {column!r}; expected one of the columns {list_names(names)}, or a number from 0 to "
            f"{len(names) - 1}"
        )
    return index


def find_column(where: str, names: Sequence[str], column: Column, role: str, usual: Sequence[str]) -> int | None:
    """Return the index of the column with a role, by default the one with a usual name; None if there is none."""
    if column is None:
        candidates = [j for j, name in enumerate(names) if name.lower() in usual]
        if len(candidates) > 1:
            raise DataError(
                f"{where}: columns {list_names([names[j] for j in candidates])} could all be the {role}; expected one. "
                f"Choose one with --{role}-column {names[candidates[0]]}"
            )
        return candidates[0] if candidates else None
    return _locate(where, names, column, f"--{role}-column")


def note_names_of_rows(
    names: Sequence[str], roles: ColumnRoles, drop: Collection[str], is_number: Callable[[int], bool]
) -> tuple[str, ...]:
    """Note columns of texts without a role where pandas and R write row numbers."""
    used = {*roles.points, *roles.texts, roles.weight}
    notes: list[str] = []
    for j, name in enumerate(names):
        if INDEX.fullmatch(name) and j not in used and name not in drop and not is_number(j):
            column, given = f"column {name!r}", shlex.quote(name)
            if name == ROW_NUMBERS:
                column, given = "the first column, without a name,", str(j)
            notes.append(f"{column} is read as names of rows and not used; --keep {given} copies it to labels.csv")
    return tuple(notes)


def list_named(label: Column, device: Column, intake: ColumnOptions) -> tuple[str, ...]:
    """List the names of columns that options give, and those that have a role by their name."""
    given = {str(column) for column in (label, device) if column is not None}
    usual = (LABEL_NAMES if label is None else (), DEVICE_NAMES if device is None else ())
    return tuple(sorted(given.union(intake.named, *usual)))


def as_index(column: str | int) -> int | None:
    """Return the index of a column that is given by number, else None."""
    try:
        return int(column)
    except ValueError:
        return None


def list_names(names: Sequence[str]) -> str:
    """List the first 20 names for a message."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(repr(str(name)) for name in names[:20]) + more) or "none"


def rename_values(where: str, parts: FileContents, intake: ColumnOptions) -> FileContents:
    """Replace values of devices, labels and categories by their new names.

    Raises
    ------
    DataError
        If no row has a value to rename.
    """
    new_names = intake.new_names
    if not new_names:
        return parts
    found = set[str]()

    def rename(values: NDArray[Any]) -> NDArray[Any]:
        texts = [None if value is None else str(value) for value in values.tolist()]
        found.update(new_names.keys() & set(texts))
        renamed = np.empty(len(texts), object)
        renamed[:] = [text if text is None else new_names.get(text, text) for text in texts]
        return renamed if values.dtype.kind in "iO" else renamed.astype(str)

    device, label, owners = (
        None if values is None else rename(values) for values in (parts.device, parts.label, parts.owners)
    )
    categories = tuple(column._replace(values=rename(column.values)) for column in parts.categories)
    if unknown := [old for old in new_names if old not in found]:
        known = {str(value) for values in (parts.device, parts.label, *(column.values for column in parts.categories))
                 if values is not None for value in values.tolist() if value is not None}  # fmt: skip
        raise DataError(
            f"{where}: --rename names {unknown[0]!r}, which no device, label or category is; expected "
            f"{list_names(sorted(known))}. Correct or remove it"
        )
    return parts._replace(categories=categories, device=device, label=label, owners=owners)


def check_identifiers(where: str, parts: FileContents) -> FileContents:
    """Validate that no device is a number below 0, and add a note if a label is.

    Raises
    ------
    DataError
        If a device is a number below 0.
    """
    if parts.device is not None:
        column = "the devices" if parts.device_name is None else f"values of column {parts.device_name!r}"
        # Arrays have no names, and no texts for missing values.
        way = "Use --na {value} with --missing drop to leave out" if parts.names else "Remove"
        remedy = f"{way} such rows, or use --rename {{value}}=NAME to name the device"
        require_assigned(parts.device, f"{where}: {column}", remedy, parts.rows)
    classes = set() if parts.label is None else {str(label) for label in parts.label[find_unassigned(parts.label)]}
    if classes and len(set(parts.label.tolist())) > 2:
        value = min(classes)
        way = f"use --na {value} with --missing drop" if parts.names else "remove such rows"
        note = f"label {value} is read as a class: if it means that a point has none, {way}"
        parts = parts._replace(notes=(*parts.notes, note))
    return parts


def check_categories(where: str, categories: Sequence[Categories]) -> None:
    """Validate that columns to encode have categories: names and free texts would become about one feature per row.

    Raises
    ------
    DataError
        If more than half of many texts of a column are different.
    """
    problems = list[Problem]()
    for column in categories:
        known = [value for value in column.values.tolist() if value]
        count = len(set(known))
        if count > CATEGORIES and 2 * count > len(known):
            problems.append(
                Problem(
                    f"column {column.name!r} has {count:,} different texts in {len(known):,} rows, such as "
                    f"{known[0]!r}, which would be as many features; expected categories that repeat",
                    f"Use --keep {column.name} instead of --encode {column.name} to copy it to labels.csv, or --drop "
                    f"{column.name}",
                )
            )
    raise_problems(where, problems, len(categories))


def build_table(where: str, parts: FileContents) -> Table:
    """Build the table of a file: encode categories, number labels and identify devices.

    Raises
    ------
    DataError
        If the number of points is 0, or differs from the number of labels or devices.
    """
    points, names = parts.points, parts.names
    if not len(points):
        raise DataError(f"{where} {parts.why_empty}")
    indicators, indicator_names = one_hot(parts.categories)
    if indicators:
        points = np.column_stack([points, *indicators])
        names = (*(names or parts.positions), *indicator_names)
    labels = classes = owner = owners = None
    if parts.label is not None:
        codes, kinds = identify(_check_length(parts.label, len(points), f"{where}: the labels"))
        labels = codes.astype(narrow(len(kinds)))
        classes = len(kinds)
    if parts.device is not None:
        codes, kinds = identify(_check_length(parts.device, len(points), f"{where}: the devices"), parts.owners)
        owner = kinds[codes]
        owners = kinds if len(find_distinct(codes)) < len(kinds) else None
    copied = {column.name: column.values for column in parts.copied} or None
    return Table(np.ascontiguousarray(points), labels, classes, owner, features=tuple(map(str, names)) or None,
                 rows=parts.rows, total=parts.total, image=parts.image, owners=owners, notes=parts.notes or None,
                 weights=parts.weight, copied=copied)  # fmt: skip


def _check_length(raw: NDArray[Any], m: int, what: str) -> NDArray[Any]:
    if raw.shape != (m,):
        raise DataError(f"{what} have shape {raw.shape}; expected ({m},), one per point")
    return raw
