"""Columns of a file: which one holds the label, which one the device, and which the points."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import find_distinct, narrow
from p2pkm.data.identifiers import find_missing, identify, to_raw
from p2pkm.data.readers.intake import TIDY, Categories, ColumnOptions, Places, Problem, mark_missing, one_hot, refuse
from p2pkm.data.table import Table

Column = str | int | None

INDEX = "__index_level_0__"  # the row numbers that pandas writes beside its columns
_INDEX = re.compile(r"__index_level_\d+__")
LABEL_NAMES = ("label",)
DEVICE_NAMES = ("client", "device")


class Roles(NamedTuple):
    """State which columns of a file play which role.

    Attributes
    ----------
    points : list of int
        Columns of the points, ascending.
    label, device : int or None
        Columns of the label and of the device.
    encode : tuple of int
        Those of the points that are categories or dates.
    """

    points: list[int]
    label: int | None
    device: int | None
    encode: tuple[int, ...] = ()


class FileContents(NamedTuple):
    """What a file holds, before labels and devices become numbers.

    Attributes
    ----------
    points : float64[m, d] or float32[m, d]
    label, device : int64[m], object[m] or None
        From `p2pkm.data.identifiers.to_raw`.
    names : tuple of str
        Names of the features, if the file has any.
    lengths : tuple of int
        Points of each of several files.
    categories : tuple of Categories
        Columns that become features in `table_of`, when the values of all files are known.
    rows : int64[m] or None
        Rows of the file that are kept; None: all.
    total : int or None
        Rows of the file, if `rows` says which are kept.
    image : tuple of int or None
        As in `Table`.
    owners : int64 or object array, or None
        Devices that the file names, among them those without points, from `to_raw`; None: those in `device`.
    notes : tuple of str
        What was guessed or looks wrong.
    why_empty : str
        What is wrong if there are no points at all.
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
    why_empty: str = "has no rows; expected one point per row"


class Marks(NamedTuple):
    """Columns of label and device, for rows that may be incomplete.

    Attributes
    ----------
    label, device : int64[m], object[m] or None
        From `p2pkm.data.identifiers.to_raw`.
    called : tuple of (str, str)
        Names of the two in messages.
    """

    label: NDArray[Any] | None
    device: NDArray[Any] | None
    called: tuple[str, str]

    @classmethod
    def of(cls, names: Sequence[str], roles: Roles, columns: Any, where: str = "") -> "Marks":
        """Take label and device from columns by index."""
        called = [f"column {names[at]!r}" if at is not None else "" for at in (roles.label, roles.device)]
        label, device = (
            None if at is None else to_raw(columns[at], f"{where}{name}")
            for at, name in zip((roles.label, roles.device), called, strict=True)
        )
        return cls(label, device, (called[0], called[1]))


def assign(where: str, names: Sequence[str], label: Column, device: Column, intake: ColumnOptions = TIDY) -> Roles:
    """Find the columns by name or index, or by their usual names if none is given.

    Raises
    ------
    DataError
        If a column does not exist, plays two roles, or no column is left for the points.
    """
    label_at = find(where, names, label, "label", LABEL_NAMES)
    device_at = find(where, names, device, "device", DEVICE_NAMES)
    if label_at is not None and label_at == device_at:
        raise DataError(f"{where}: column {names[label_at]!r} is both label and device; name two different columns")
    points = [j for j, name in enumerate(names) if j not in (label_at, device_at) and not _INDEX.fullmatch(name)]
    wanted, dropped, encoded = (
        {_locate(where, names, one, f"--{option}") for one in given}
        for option, given in (("columns", intake.columns), ("drop", intake.drop), ("encode", intake.encode))
    )
    points = [j for j in points if j not in dropped and (j in wanted or not wanted)]
    if not points:
        raise DataError(f"{where}: no column is left for the points; its columns are {listed(names)}")
    if odd := sorted(encoded - set(points)):
        raise DataError(
            f"{where}: column {names[odd[0]]!r} is named by --encode, but is no feature; leave it out there"
        )
    return Roles(points, label_at, device_at, tuple(sorted(encoded)))


def take_columns(
    where: str, names: Sequence[str], columns: Sequence[Any], marks: Marks, places: Places, intake: ColumnOptions
) -> FileContents:
    """Return the points of columns that were read, without incomplete rows if these are to be dropped.

    Parameters
    ----------
    columns : sequence of float64[m], Categories or Problem
    marks : Marks
    places : Places

    Raises
    ------
    DataError
        If columns are no features, or values are missing; all of them are named.
    """
    marked = _find_marked(where, marks, places, intake)
    problems = [one for one in columns if isinstance(one, Problem)]
    fit = [(name, one) for name, one in zip(names, columns, strict=True) if not isinstance(one, Problem)]
    fill = intake.fills
    complete, lost = mark_missing([name for name, _ in fit], [one for _, one in fit], places, fill=fill)
    refuse(where, [*problems, *(() if intake.missing == "drop" else lost)], len(names))
    rows = np.flatnonzero(marked if fill else complete & marked)
    numbers = [(name, one[rows]) for name, one in fit if not isinstance(one, Categories)]
    coded = tuple(one._replace(values=one.values[rows]) for _, one in fit if isinstance(one, Categories))
    points = np.stack([one for _, one in numbers], axis=1) if numbers else np.empty((len(rows), 0))
    parts = FileContents(points, names=tuple(name for name, _ in numbers), categories=coded, total=len(marked))
    return _take_rows(parts, rows, marks)


def take_points(where: str, parts: FileContents, marks: Marks, intake: ColumnOptions) -> FileContents:
    """Return points that were read as a matrix, without incomplete rows if these are to be dropped.

    Raises
    ------
    DataError
        If a label or a device is missing and its row is not to be dropped.
    """
    kept = _find_marked(where, marks, Places("row", range(len(parts.points))), intake)
    if intake.missing == "drop":
        kept &= ~np.isnan(parts.points).any(axis=1)
    rows = np.flatnonzero(kept)
    points = parts.points if kept.all() else parts.points[rows]
    return _take_rows(parts._replace(points=points, total=len(kept)), rows, marks)


def _find_marked(where: str, marks: Marks, places: Places, intake: ColumnOptions) -> NDArray[np.bool_]:
    """Return which rows have a label and a device, bool[m].

    Raises
    ------
    DataError
        If some have none, and are not to be dropped.
    """
    kept = np.ones(len(places.numbers), np.bool_)
    for raw, called in zip(marks[:2], marks.called, strict=True):
        lost = kept[:0] if raw is None else find_missing(raw)
        if lost.any() and intake.missing != "drop":
            raise DataError(
                f"{where}, {places.tell(int(lost.argmax()))}, {called} is empty or missing, in {int(lost.sum()):,} of "
                f"{len(lost):,} rows; expected a value in each, or --missing drop, which leaves such rows out"
            )
        kept &= ~lost if lost.size else True
    return kept


def _take_rows(parts: FileContents, rows: NDArray[np.int64], marks: Marks) -> FileContents:
    """Return points of rows that are kept with their labels and devices; devices without such rows stay known."""
    if len(rows) == parts.total:
        return parts._replace(label=marks.label, device=marks.device)
    label, device = (None if raw is None else raw[rows] for raw in marks[:2])
    owners = None if marks.device is None else marks.device[~find_missing(marks.device)]
    why = "has a missing value in every row; --drop the columns that are mostly empty"
    return parts._replace(label=label, device=device, rows=rows, owners=owners, why_empty=why)


def _locate(where: str, names: Sequence[str], given: str | int, option: str) -> int:
    """Return the index of a column that an option names."""
    if isinstance(given, str) and given in names:
        if list(names).count(given) > 1:
            raise DataError(f"{where} has several columns {given!r}; give the number of the one for {option}")
        return list(names).index(given)
    index = as_index(given)
    if index is None or not 0 <= index < len(names):
        raise DataError(
            f"{where} has no column {given!r} for {option}; its columns are {listed(names)} (or 0 to {len(names) - 1})"
        )
    return index


def find(where: str, names: Sequence[str], given: Column, role: str, usual: Sequence[str]) -> int | None:
    """Return the index of one column, or None if none is given and none has a usual name."""
    if given is None:
        found = [j for j, name in enumerate(names) if name.lower() in usual]
        if len(found) > 1:
            raise DataError(
                f"{where}: columns {listed([names[j] for j in found])} could all be the {role}; "
                f"choose one with --{role}-column"
            )
        return found[0] if found else None
    return _locate(where, names, given, f"--{role}-column")


def as_index(given: str | int) -> int | None:
    """Return a column given by number, or None."""
    try:
        return int(given)
    except ValueError:
        return None


def listed(names: Sequence[str]) -> str:
    """List names for a message, the first 20 of them."""
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return (", ".join(repr(str(name)) for name in names[:20]) + more) or "none"


def table_of(where: str, parts: FileContents) -> Table:
    """Build the table of a file from its points and its raw columns of labels and devices.

    Raises
    ------
    DataError
        If there are no points, or a label or device is missing for one.
    """
    points, names = parts.points, parts.names
    if not len(points):
        raise DataError(f"{where} {parts.why_empty}")
    more, called = one_hot(parts.categories)
    if more:
        points, names = np.column_stack([points, *more]), (*names, *called)
    labels = classes = owner = owners = None
    if parts.label is not None:
        codes, kinds = identify(_of(parts.label, len(points), f"{where}: the labels"))
        labels, classes = codes.astype(narrow(len(kinds))), len(kinds)
    if parts.device is not None:
        codes, kinds = identify(_of(parts.device, len(points), f"{where}: the devices"), parts.owners)
        owner = kinds[codes]
        owners = kinds if len(find_distinct(codes)) < len(kinds) else None
    return Table(np.ascontiguousarray(points), labels, classes, owner, features=tuple(map(str, names)) or None,
                 rows=parts.rows, total=parts.total, image=parts.image, owners=owners,
                 notes=parts.notes or None)  # fmt: skip


def _of(raw: NDArray[Any], m: int, what: str) -> NDArray[Any]:
    if raw.shape != (m,):
        raise DataError(f"{what} have shape {raw.shape}, expected ({m},): one for each point")
    return raw
