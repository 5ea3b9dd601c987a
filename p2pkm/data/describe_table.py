"""Description of a table before a run: kind, range and use of every column, and the options that read it."""

import math
import re
import shlex
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import DataError
from p2pkm.core.text_table import align_columns
from p2pkm.data.identifiers import identify, join_names, note_alike, rename_alike, to_raw
from p2pkm.data.readers.columns import INDEX, ColumnRoles, assign_roles, list_named
from p2pkm.data.readers.dates import are_times, find_orders, read_moment
from p2pkm.data.readers.intake import (
    CATEGORIES,
    THOUSANDS,
    Categories,
    ColumnOptions,
    Problem,
    is_number,
    plain_numbers,
    split_list,
)
from p2pkm.data.readers.raw import RawTable, read_raw
from p2pkm.data.readers.suspicions import are_numbered, find_codes, note_thousands, write_code

# Names of columns that may contain devices.
_SITES = re.compile(
    r"(hospital|clinic|site|cent(er|re)|klinik|krankenhaus|standort|ward|school|bank|branch)s?(_?id)?", re.I
)
_IDENTIFIER = re.compile(r"(^|[^a-z])(id|nr|no|mrn|uuid|key|patient|case|name)([^a-z]|$)", re.I)
# Share of numbers from which other texts of a column may stand for missing values, and largest number of such texts.
_NUMBERS, _PLACEHOLDERS = 0.7, 3
# Use of a column that identifies rows: it is no feature, and copied to labels.csv.
_ID = "ID, copied"
# Ratio of the standard deviations of two features from which a common scale is suggested.
_SPREAD = 10.0
# Devices with fewer rows are named.
_SMALL = 5
# Number of rows of a device from which hardly any summary row of `-k auto` is a single point: with six devices, three
# features and normal clusters, a run disclosed 20 to 57 points with 25 to 100 rows per device, 5 to 9 with 200, 1 to 4
# with 400, and at most 1 with 800.
_MANY = 1_000
# Skewness and ratio of the largest value to the median from which a logarithm is suggested.
_SKEW, _RATIO = 3.0, 30.0
# Largest number of columns and of devices that are printed.
_PRINTED = 60
# Largest number of characters of the list of categories of a column.
_WIDTH = 40
# Smallest share of rows with a value in a column that is suggested as the column of devices.
_KNOWN = 0.95


class ColumnDescription(NamedTuple):
    """Column of a table.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "date", "duration", "text", "empty"}
    missing : float
        Share of missing values.
    range : str
        Smallest and largest number, or categories.
    use : str
        Use in a run with the suggested options.
    suspicions : tuple of str
    """

    name: str
    kind: str
    missing: float
    range: str
    use: str
    suspicions: tuple[str, ...] = ()


class TableDescription(NamedTuple):
    """Description of a table; printed as one line per column.

    Attributes
    ----------
    rows : int
    columns : tuple of ColumnDescription
    devices : dict of str to int
        Number of rows of each device; empty without devices.
    notes : tuple of str
        Guesses of the reader, suspicions about rows, and small devices.
    options : dict of str to str
        Arguments of `p2pkm.read_table` that read the table.
    command : str
        Command line that clusters the table, with a common scale if the features need one, and a number of clusters
        that is chosen from the points; empty if no column can be a feature.
    """

    rows: int
    columns: tuple[ColumnDescription, ...]
    devices: dict[str, int]
    notes: tuple[str, ...]
    options: dict[str, str]
    command: str

    def to_mapping(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        return self._asdict() | {"columns": [column._asdict() for column in self.columns]}

    def __str__(self) -> str:
        rows = [("column", "kind", "missing", "range", "use")]
        rows += [(column.name, column.kind, _write_share(column.missing), column.range, column.use)
                 for column in self.columns[:_PRINTED]]  # fmt: skip
        lines = align_columns(rows, left=range(5))
        hidden = len(self.columns) - _PRINTED
        lines += [f"... and {hidden} more columns"] if hidden > 0 else []
        lines += [f"- {text}" for column in self.columns for text in column.suspicions]
        lines += [f"- {note}" for note in self.notes]
        if self.devices:
            sizes = [f"{name} {size:,}" for name, size in list(self.devices.items())[:_PRINTED]]
            more = ", ..." * (len(self.devices) > _PRINTED)
            lines += ["", f"{len(self.devices)} devices: {', '.join(sizes)}{more}"]
        return "\n".join([f"{self.rows:,} rows, {len(self.columns)} columns", "", *lines, "", self.command])


def describe_table(
    path: Any, label_column: str | int | None = None, device_column: str | int | None = None, **options: Any
) -> TableDescription:  # fmt: skip
    """Describe the columns of a file or data frame, and find the options that read it.

    Parameters
    ----------
    path : str, Path or table
        As in `p2pkm.read_table`.
    label_column, device_column : str or int, optional
        Name or index of a column; None: a column with a usual name.
    **options
        Options of `p2pkm.read_table`; all others are suggested.

    Raises
    ------
    DataError
        If the file cannot be read as a table.

    Examples
    --------
    >>> import p2pkm
    >>> frame = {"hospital": ["Bonn", "Bonn", "Essen"], "sex": ["f", "m", "f"], "bmi": ["22,1", "27,9", ""]}
    >>> described = p2pkm.describe_table(frame)
    >>> [(column.name, column.kind, column.use) for column in described.columns]
    [('hospital', 'category', 'device'), ('sex', 'category', 'feature, 0 or 1'), ('bmi', 'number', 'feature')]
    >>> described.options
    {'device_column': 'hospital', 'encode': 'sex', 'missing': 'drop', 'decimal': ','}
    """
    intake = ColumnOptions.of(**options)
    # All columns as text: decimal commas and separators of thousands are visible only there.
    named = list_named(label_column, device_column, intake)
    table = read_raw(path, intake, read_raw(path, intake, named=named).names, named=named)
    if not len(table.locations.numbers):
        raise DataError(f"{table.where} has 0 rows; expected one point per row")
    intake = _find_format(table, intake)
    intake = _find_dates(table, intake)
    device = _find_device(table, device_column, label_column, intake)
    roles = assign_roles(table.where, table.names, label_column, device, intake)
    columns = [_describe_column(table, j, roles, intake) for j in range(len(table.names))]
    columns, codes = _add_codes(table, columns, intake)
    intake = _suggest(table, columns, codes, intake)
    groups = _count_devices(table, roles, intake)
    alike = note_alike(list(groups), groups, renamed=True)
    intake = _rename(intake, rename_alike(list(groups), groups))
    groups = _count_devices(table, roles, intake)
    names = {"label_column": label_column, "device_column": device}
    fields = {name: join_names(value) if isinstance(value, tuple) else str(value)
              for name, value in (names | intake._asdict()).items()
              if value is not None and value != ColumnOptions._field_defaults.get(name)}  # fmt: skip
    data = ["--data", path] if isinstance(path, str) else ["--data", table.where]
    words = [part for name, value in fields.items() for part in (f"--{name.replace('_', '-')}", value)]
    notes = (*_list_notes(table, columns, groups, intake), *alike)
    if _differ_in_scale(table, columns, intake):
        notes += ("the features have very different spreads, and the widest would decide: --scale standard",)
        words += ["--scale", "standard"]
    words += ["-k", "auto"]
    command = shlex.join(["p2pkm", *map(str, data), *words])
    if not any(column.use.startswith("feature") for column in columns):
        command = ""
        notes += ("no column can be a feature: correct the columns that are left out",)
    elif min(groups.values(), default=_MANY) < _MANY:
        notes += ("-k auto sends means of few points, and some single points: consider adding --min-cluster-size 3",)
    return TableDescription(len(table.locations.numbers), tuple(columns), groups, notes, fields, command)


def _find_format(table: RawTable, intake: ColumnOptions) -> ColumnOptions:
    """Find decimal commas and separators of thousands: signs with which more columns are numbers."""
    texts = [name for name, column in zip(table.names, table.columns, strict=True)
             if isinstance(column, (np.ndarray, list)) and np.asarray(column).dtype.kind in "OU"]  # fmt: skip
    candidates = [intake]
    if intake.decimal == ".":
        candidates.append(intake._replace(decimal=",", thousands=intake.thousands.replace(",", "")))
    if not intake.thousands:
        candidates += [
            at._replace(thousands=sign) for at in list(candidates) for sign in THOUSANDS if sign != at.decimal
        ]

    fields = [Counter(table.list_texts(name)) for name in texts]
    placeholders = [[_find_placeholders(counts, at) for counts in fields] for at in candidates]

    def count(at: int) -> int:
        return sum(
            codes is not None or not isinstance(table.convert(name, candidates[at]), Problem)
            for name, codes in zip(texts, placeholders[at], strict=True)
        )

    best = max(range(len(candidates)), key=count)
    na = [text for codes in placeholders[best] for text in codes or ()]
    if not na:
        return candidates[best]
    return candidates[best]._replace(na=join_names(list(dict.fromkeys([*split_list(intake.na), *na]))))


def _find_dates(table: RawTable, intake: ColumnOptions) -> ColumnOptions:
    """Find the order of day, month and year: that of the columns with which only one agrees."""
    if intake.dates != "iso":
        return intake
    orders = list[str]()
    for name in table.names:
        if isinstance(table.convert(name, intake), Problem):
            known = _list_known(table, name, intake)
            found = find_orders(set(known)) if are_times(known) else []
            orders += found if len(found) == 1 else []
    return intake._replace(dates=Counter(orders).most_common(1)[0][0]) if orders else intake


def _find_placeholders(counts: Counter[str], intake: ColumnOptions) -> list[str] | None:
    """List the few texts among the numbers of a column, which may stand for missing values; None for other columns."""
    known = {text: count for text, count in counts.items() if text.lower() not in intake.missing_texts}
    plain = dict(zip(known, plain_numbers(list(known), intake), strict=True))
    # A text with a digit is more often a number with a unit or a wrong sign.
    odd = sorted(text for text in known if not is_number(plain[text]))
    share = 1 - sum(known[text] for text in odd) / max(sum(known.values()), 1)
    is_usual = len(odd) <= _PLACEHOLDERS and not any(any(map(str.isdigit, text)) or "," in text for text in odd)
    return odd if odd and share >= _NUMBERS and is_usual else None


def _find_device(table: RawTable, device: Any, label: Any, intake: ColumnOptions) -> Any:
    """Return the column of the devices: the given one, or one with the name of a kind of site and repeated values."""
    if (
        device is not None
        or table.file is not None
        or any(name.lower() in ("client", "device") for name in table.names)
    ):
        return device
    rows = len(table.locations.numbers)
    for name in table.names:
        if name not in {label, *intake.named} and _SITES.fullmatch(name):
            known = _list_known(table, name, intake)
            if 1 < len(set(known)) < rows and len(known) >= _KNOWN * rows:
                return name
    return None


def _describe_column(table: RawTable, j: int, roles: ColumnRoles, intake: ColumnOptions) -> ColumnDescription:
    name = table.names[j]
    role = _name_role(j, roles)
    if role in ("label", "device"):
        known = _list_known(table, name, intake)
        kinds = list(map(str, identify(to_raw(known, name, frozenset())).kinds.tolist()))
        missing = 1 - len(known) / len(table.locations.numbers)
        return ColumnDescription(name, "category", missing, _list_kinds(kinds), role)
    values = table.convert(name, intake)
    has_dates = name in intake.encode and intake.dates != "none" and are_times(_list_known(table, name, intake))
    if not isinstance(values, Problem) and not has_dates:
        is_plain = intake.decimal == "." and not intake.thousands and table.locations.unit == "line"
        thousands = note_thousands(name, table.list_texts(name)) if is_plain else ""
        return _describe_numbers(name, values, role or "feature", name in intake.encode, thousands)
    texts = _list_known(table, name, intake)
    missing = 1 - len(texts) / len(table.locations.numbers)
    counts = Counter(texts)
    if are_times(counts) and intake.dates != "none":
        return _describe_dates(table, name, role, missing, intake)
    kind, use = "category", "feature, 0 or 1" if len(counts) == 2 else "feature, one per category"
    use = "left out: constant" if len(counts) == 1 and len(texts) > 1 else use
    if len(counts) > CATEGORIES or len(counts) > max(2, len(texts) // 2):
        kind, use = "text", "left out: text"
        if len(counts) == len(texts):
            use = _ID
    suspicions: tuple[str, ...] = ()
    if use == _ID and not role:
        suspicions = (f"column {name!r} has a different text in every row: --keep copies it to labels.csv",)
    return ColumnDescription(name, kind, missing, _list_kinds(sorted(counts)), role or use, suspicions)


def _describe_dates(
    table: RawTable, name: str, role: str, missing: float, intake: ColumnOptions
) -> ColumnDescription:  # fmt: skip
    """Describe a column of dates, times or durations."""
    days = table.convert(name, intake, encode=True)
    texts = set(_list_known(table, name, intake))
    if isinstance(days, Problem):
        use, shown = "left out: dates cannot be read", _list_kinds(sorted(texts))
        return ColumnDescription(name, "date", missing, shown, role or use, (f"{days.text}. {days.remedy}",))
    low, high = float(np.nanmin(days)), float(np.nanmax(days))
    use = "left out: constant" if low == high and len(days) > 1 else "feature, in days"
    if any(read_moment(text, intake.dates) is None for text in texts):
        return ColumnDescription(name, "duration", missing, f"{low:.6g} to {high:.6g} days", role or use)
    first, last = (str(np.datetime64("1970-01-01") + np.timedelta64(math.floor(day), "D")) for day in (low, high))
    return ColumnDescription(name, "date", missing, f"{first} to {last}", role or use)


def _list_kinds(kinds: list[str]) -> str:
    """Write the number of categories, and the first ones."""
    text = f"{len(kinds)}: {', '.join(kinds)}"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3].rstrip(' ,')}..."


def _write_share(share: float) -> str:
    """Write a share in percent, and a small one not as 0 %."""
    if share == 0.0:
        return ""
    return "<1%" if share < 0.005 else f"{share:.0%}"


def _list_known(table: RawTable, name: str, intake: ColumnOptions) -> list[str]:
    """List the values of a column that are not missing, as text."""
    return [text for text in table.list_texts(name) if text.lower() not in intake.missing_texts]


def _name_role(j: int, roles: ColumnRoles) -> str:
    """Return the role of a column; empty for features."""
    names = {roles.label: "label", roles.device: "device", roles.weight: "weight"} | dict.fromkeys(roles.keep, _ID)
    return "" if j in roles.points else names.get(j, "left out, as requested")


def _describe_numbers(name: str, values: Any, use: str, encoded: bool, thousands: str) -> ColumnDescription:
    if encoded:
        return ColumnDescription(
            name, "category", 0.0, f"{len(np.unique(values))} numbers", "feature, one per category"
        )
    known = values[~np.isnan(values)]
    missing = 1 - len(known) / len(values)
    if not len(known):
        return ColumnDescription(name, "empty", 1.0, "", "left out: empty" if use == "feature" else use)
    low, high = float(known.min()), float(known.max())
    shown = f"{low:.6g} to {high:.6g}"
    if use != "feature":
        return ColumnDescription(name, "number", missing, shown, use)
    if INDEX.fullmatch(name):
        return ColumnDescription(name, "number", missing, shown, "left out: row numbers")
    if low == high and len(known) > 1:
        return ColumnDescription(name, "number", missing, shown, "left out: constant")
    is_integer = len(known) == len(values) and bool((known == np.floor(known)).all())
    is_identifier = (is_integer and are_numbered(name, known)) or (
        _IDENTIFIER.search(name) is not None and len(np.unique(known)) == len(values) > 2
    )
    suspicions: tuple[str, ...] = (thousands,) if thousands else ()
    spread = float(known.std())
    median = float(np.median(known))
    skew = float(np.mean(((known - known.mean()) / spread) ** 3)) if spread > 0 else 0.0
    if low > 0 and skew > _SKEW and high > _RATIO * median:
        suspicions += (f"column {name!r} is skewed (median {median:.4g}, maximum {high:.4g}): consider its logarithm",)
    return ColumnDescription(name, "number", missing, shown, _ID if is_identifier else use, suspicions)


def _add_codes(
    table: RawTable, columns: list[ColumnDescription], intake: ColumnOptions
) -> tuple[list[ColumnDescription], list[str]]:
    """Add suspicions about codes of missing values to the features; return them and the codes for ``--na``."""
    used = list[tuple[int, Any]]()
    for j, column in enumerate(columns):
        if column.kind == "number" and column.use.startswith("feature"):
            values = table.convert(column.name, intake)
            used += [] if isinstance(values, Problem) else [(j, values)]
    if not used:
        return columns, []
    suspicious, na = find_codes(np.stack([values for _, values in used], axis=1), [columns[j].name for j, _ in used])
    described = list(columns)
    for name, value, why in suspicious:
        j = table.names.index(name)
        described[j] = described[j]._replace(suspicions=(*described[j].suspicions, write_code(name, value, why, na)))
    return described, [f"{value:g}" for value in na]


def _suggest(
    table: RawTable, columns: list[ColumnDescription], codes: list[str], intake: ColumnOptions
) -> ColumnOptions:  # fmt: skip
    """Add the options that the descriptions of the columns suggest."""
    names = table.names
    encode = [n for n, column in zip(names, columns, strict=True) if column.use.startswith("feature, ")]
    drop = [n for n, column in zip(names, columns, strict=True) if "left out" in column.use and not INDEX.fullmatch(n)
            and column.use != "left out, as requested"]  # fmt: skip
    keep = [n for n, column in zip(names, columns, strict=True) if column.use == _ID]
    na = ",".join(dict.fromkeys([*([intake.na] if intake.na else []), *codes]))
    incomplete = codes or any((column.missing and column.use in ("label", "device", "weight")) or
                              (column.missing and column.use.startswith("feature")) for column in columns)  # fmt: skip
    missing = "drop" if incomplete and intake.missing == "refuse" else intake.missing
    return intake._replace(
        encode=tuple(dict.fromkeys((*intake.encode, *encode))), drop=tuple(dict.fromkeys((*intake.drop, *drop))),
        keep=tuple(dict.fromkeys((*intake.keep, *keep))), missing=missing, na=na,
    )  # fmt: skip


def _rename(intake: ColumnOptions, alike: dict[str, str]) -> ColumnOptions:
    """Add new names of devices, which may replace new names that were given."""
    if not alike:
        return intake
    renamed = {old: alike.get(new, new) for old, new in intake.new_names.items()} | alike
    return intake._replace(rename=tuple(f"{old}={new}" for old, new in renamed.items()))


def _differ_in_scale(table: RawTable, columns: list[ColumnDescription], intake: ColumnOptions) -> bool:
    """Return whether the standard deviations of the features differ by a large factor; those of categories are 1."""
    used = [
        (name, column) for name, column in zip(table.names, columns, strict=True) if column.use.startswith("feature")
    ]
    columns_used = (_as_numbers(table.convert(name, intake, encode=column.kind == "date")) for name, column in used)
    spreads = [1.0 if values is None else float(values.std()) for values in columns_used]
    known = [spread for spread in spreads if spread > 0]
    return len(known) > 1 and max(known) > _SPREAD * min(known)


def _as_numbers(values: Any) -> Any:
    return None if isinstance(values, (Problem, Categories)) else values[~np.isnan(values)]


def _count_devices(table: RawTable, roles: ColumnRoles, intake: ColumnOptions) -> dict[str, int]:
    if roles.device is not None:
        new_names = intake.new_names
        counts = Counter(new_names.get(name, name) for name in _list_known(table, table.names[roles.device], intake))
        return dict(sorted(counts.items()))
    if table.file is None:
        return {}
    sizes = Counter[str]()
    for name, size in zip(table.files, np.bincount(table.file, minlength=len(table.files)).tolist(), strict=True):
        sizes[intake.new_names.get(name, name)] += size
    return dict(sizes)


def _list_notes(
    table: RawTable, columns: list[ColumnDescription], groups: dict[str, int], intake: ColumnOptions
) -> tuple[str, ...]:  # fmt: skip
    notes = list(table.notes)
    if intake.na:
        notes.append(f"missing values are also written as {intake.na}: check that they are not values")
    texts = [table.list_texts(name) for name in table.names]
    rows = list(zip(*texts, strict=True))
    if repeated := len(rows) - len(set(rows)):
        notes.append(f"{repeated:,} of {len(rows):,} rows repeat an earlier row: check for copies")
    if intake.thousands == "." and any(column.kind == "number" for column in columns):
        notes.append("points are read as separators of thousands: check that 7.400 means 7400")
    notes += [f"device {name!r} has only {size} row{'s' * (size != 1)}: consider adding --min-cluster-size 3"
              for name, size in groups.items() if size < _SMALL]  # fmt: skip
    return tuple(notes)
