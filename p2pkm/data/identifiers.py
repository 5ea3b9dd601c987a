"""Identifiers: labels of classes and names of devices, with one definition for every file format and array type.

A column of identifiers is text, without surrounding white space, unless every value is a plain integer. A plain integer
is written without leading zeros, plus sign, decimal point or exponent, and fits in int64. Missing values are None, NaN,
NaT, and the texts in `MISSING`, in lower or upper case. Texts that differ only in the encoding of accented letters are
equal (Unicode normalization form C): some systems write é as e and a combining accent.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.sorting import find_distinct
from p2pkm.core.validation import EXACT

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "none", "<na>", "nat"))
# Statistics that a run computes by messages to fill in missing values.
FILLING = ("mean", "median")
# Treatments of missing values.
ANSWERS = ("refuse", "drop", *FILLING)
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_NEGATIVE = re.compile(r"-[0-9]+(?:\.0*)?")
# What to do about devices below 0 in an array.
UNASSIGNED = "Remove such rows: X[device >= 0], device[device >= 0]"
# Largest number of groups of nearly equal names, and of rows, in a message.
_GROUPS = 5
_INT64 = range(-(2**63), 2**63)


class Identifiers(NamedTuple):
    """Column of identifiers.

    Attributes
    ----------
    codes : int64[m]
        Index of each row's identifier in `kinds`; -1: missing.
    kinds : int64[c] or object[c] of str
        Distinct identifiers, ascending: by value if all are numbers, else by text.
    """

    codes: NDArray[np.int64]
    kinds: NDArray[Any]


def is_missing(field: str) -> bool:
    """Return whether a text stands for a missing value."""
    return field.strip().lower() in MISSING


def to_raw(values: Any, what: str, missing: frozenset[str] = MISSING) -> NDArray[Any]:
    """Convert a column of identifiers to int64, or to objects if a value may not be a plain integer.

    Parameters
    ----------
    values : array_like of shape (m,)
        Array of NumPy, column of pandas, polars or Arrow, or a sequence.
    what : str
        Name of the column in messages.
    missing : frozenset of str
        Texts for missing values, in lower case.

    Returns
    -------
    raw : int64[m] or object[m]
        Object arrays hold stripped str, and None where the identifier is missing.

    Raises
    ------
    DataError
        If a value cannot be an identifier, such as a list, or a float above 2^53, whose last digits are lost.
    """
    array = _to_array(values)
    if array.ndim != 1:
        raise DataError(f"{what}: shape is {array.shape}; expected (m,), one value per row")
    kind = array.dtype.kind
    if kind == "i" or (kind == "u" and not (array > np.iinfo(np.int64).max).any()):
        return array.astype(np.int64, copy=False)
    if kind == "f":
        return _read_floats(array, what)
    if kind == "M":
        array = array.astype("datetime64[us]")
    elif kind not in "bOSTUu":
        raise DataError(f"{what}: dtype is {array.dtype}; expected integers or text")
    return _read_objects(array.astype(object).tolist(), what, missing)


def identify(raw: NDArray[Any], additional: NDArray[Any] | None = None) -> Identifiers:
    """Find the distinct identifiers of a column and the index of each row among them.

    Parameters
    ----------
    raw : int64[m] or object[m]
        Column, from `to_raw`.
    additional : int64 array or object array, optional
        Identifiers without rows, such as devices without points, from `to_raw`.
    """
    m = len(raw)
    values = raw if additional is None else concatenate_identifiers([raw, additional])
    if values.dtype.kind == "i":
        kinds = find_distinct(values)
        return Identifiers(np.searchsorted(kinds, raw), kinds)
    # The entry of None shifts the numbers by one, so that texts are numbered from 0 by first appearance.
    numbers: dict[Any, int] = {None: -1}
    texts = values.tolist()
    codes = np.fromiter((numbers.setdefault(text, len(numbers) - 1) for text in texts), np.int64, len(texts))
    kinds, order = _sort([text for text in numbers if text is not None])
    rank = np.empty(len(order) + 1, np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1
    return Identifiers(rank[codes[:m]], kinds)


def locate(raw: NDArray[Any], kinds: NDArray[Any]) -> NDArray[np.int64]:
    """Find the index of each identifier in `Identifiers.kinds`; -1 if it is missing or unknown."""
    if kinds.dtype.kind == raw.dtype.kind == "i":
        index = np.minimum(np.searchsorted(kinds, raw), max(len(kinds) - 1, 0))
        return np.where(kinds[index] == raw, index, -1) if len(kinds) else np.full(len(raw), -1)
    numbers = {str(kind): i for i, kind in enumerate(kinds.tolist())}
    return np.array([numbers.get(text, -1) for text in _to_texts(raw).tolist()], np.int64)


def concatenate_identifiers(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join columns from `to_raw`; integers become text if another column is text."""
    if all(part.dtype.kind == "i" for part in parts):
        return np.concatenate(parts)
    return np.concatenate([_to_texts(part) for part in parts])


def is_integer(text: str) -> bool:
    """Return whether a text is a plain integer that fits in int64."""
    return _INTEGER.fullmatch(text) is not None and int(text) in _INT64


def find_missing(raw: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the missing identifiers, bool[m]."""
    if raw.dtype.kind == "i":
        return np.zeros(len(raw), np.bool_)
    return np.fromiter((text is None for text in raw.tolist()), np.bool_, len(raw))


def find_unassigned(raw: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the identifiers that are numbers below 0, bool[m]: other programs write -1 where nothing is assigned."""
    if raw.dtype.kind == "i":
        return raw < 0
    texts = raw.tolist()
    return np.fromiter(
        (text is not None and _NEGATIVE.fullmatch(str(text)) is not None for text in texts), bool, len(texts)
    )


def require_assigned(raw: NDArray[Any], what: str, remedy: str, rows: NDArray[np.int64] | None = None) -> None:
    """Validate that no device is a number below 0.

    Parameters
    ----------
    raw : int64[m] or object[m]
    what, remedy : str
        Name of the devices in messages, and what to do; ``{value}`` is the first such number.
    rows : int64[m], optional
        Number of each row; None: from 0.

    Raises
    ------
    DataError
        If a device is a number below 0; the message names the first such rows.
    """
    wrong = np.flatnonzero(find_unassigned(raw))
    if not wrong.size:
        return
    value = raw[wrong[0]]
    numbers = (wrong if rows is None else rows[wrong]).tolist()
    more = f" and {len(numbers) - _GROUPS:,} more" if len(numbers) > _GROUPS else ""
    listed = ", ".join(map(str, numbers[:_GROUPS])) + more
    raise DataError(
        f"{what} are numbers below 0, such as {value}, at {len(numbers):,} of {len(raw):,} rows ({listed}, counted "
        f"from 0); expected numbers from 0, or names. Other programs write -1 where no device is assigned. "
        f"{remedy.format(value=value)}"
    )


def are_numbers(raw: NDArray[Any]) -> bool:
    """Return whether all identifiers are numbers, such as 007 and 2.50."""
    return raw.dtype.kind == "i" or all(_NUMBER.fullmatch(text) for text in set(raw.tolist()) if text is not None)


def require_complete(raw: NDArray[Any], what: str) -> None:
    """Validate that no identifier is missing.

    Raises
    ------
    DataError
        If an identifier is missing; the message names the first such row.
    """
    if raw.dtype.kind == "O" and None in (texts := raw.tolist()):
        raise DataError(
            f"{what} are missing at row {texts.index(None)} (counted from 0), in {texts.count(None):,} of "
            f"{len(texts):,} rows; expected a value for each. Remove such rows from all arrays"
        )


def _to_texts(raw: NDArray[Any]) -> NDArray[Any]:
    return raw if raw.dtype.kind == "O" else _objects(list(map(str, raw.tolist())))


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _to_array(values: Any) -> NDArray[Any]:
    """Return a column of any library as an array, of objects where NumPy would change the values."""
    if type(values) is np.ndarray:
        return values
    # A masked array; a test for its type would import numpy.ma.
    if hasattr(values, "filled"):
        array = values.data.astype(object)
        array[values.mask] = None
        return array
    dtype = getattr(values, "dtype", None)
    if isinstance(dtype, np.dtype):
        return np.asarray(values)
    # An Arrow column of integers without missing values.
    if getattr(values, "null_count", None) == 0 and re.fullmatch("u?int[0-9]+", str(values.type)):
        return np.asarray(values)
    # The methods of Arrow, pandas and polars, in this order.
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            return _as_objects(getattr(values, method)())
    return _as_objects(values)


def _as_objects(values: Any) -> NDArray[Any]:
    """Convert a sequence to int64[m] if all values are integers, else to object[m]."""
    items = list(values)
    if all(type(value) is int for value in items) and all(value in _INT64 for value in items):
        return np.array(items, np.int64)
    return np.array(items, dtype=object) if any(np.ndim(value) for value in items[:1]) else _objects(items)


def _read_floats(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Convert floats to integers if all of them are whole, else to the shortest texts that give the numbers."""
    known = array == array
    present = array[known]
    is_whole = bool((np.isfinite(present) & (present == np.floor(present))).all())
    if is_whole and (np.abs(present) > EXACT).any():
        row = int(np.flatnonzero(known & (np.abs(np.where(known, array, 0)) > EXACT))[0])
        raise DataError(
            f"{what}: row {row} (counted from 0) is {array[row]}; expected at most 2^53, above which floating-point "
            "numbers lose digits: store identifiers as integers or text"
        )
    if is_whole and known.all():
        return array.astype(np.int64)
    write = (lambda value: str(int(value))) if is_whole else str
    return _objects([write(value) if ok else None for value, ok in zip(array, known, strict=True)])


def _read_objects(values: list[Any], what: str, missing: frozenset[str]) -> NDArray[Any]:
    if all(kind in {str, type(None)} for kind in set(map(type, values))):
        memo: dict[str | None, str | None] = {
            value: None if value is None else _clean(value, missing) for value in set(values)
        }
        return _objects([memo[value] for value in values])
    known = [not _is_null(value) for value in values]
    present = [value for value, ok in zip(values, known, strict=True) if ok]
    if present and all(_is_real(value) for value in present) and any(not isinstance(v, Integral) for v in present):
        rows = iter(_read_mixed(present, what))
        return _objects([next(rows) if ok else None for ok in known])
    midnight = all(value.time() == time() for value in present if isinstance(value, datetime))
    return _objects([_clean(_to_text(value, midnight, what), missing) if ok else None
                     for value, ok in zip(values, known, strict=True)])  # fmt: skip


def _read_mixed(present: list[Any], what: str) -> list[str]:
    """Convert floats, possibly mixed with integers, to texts."""
    floats = np.array([0.0 if isinstance(value, Integral) else float(value) for value in present])
    # Called for its check that no float is above 2^53.
    _read_floats(floats, what)
    is_whole = bool((floats == np.floor(floats)).all())
    return [str(int(value)) if is_whole or isinstance(value, Integral) else str(value) for value in present]


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _is_null(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA, which is neither equal to itself nor different."""
    if value is None:
        return True
    try:
        return not isinstance(value, str | bytes) and bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _clean(text: str, missing: frozenset[str]) -> str | None:
    stripped = text.strip()
    return None if stripped.lower() in missing else compose(stripped)


def compose(text: str) -> str:
    """Compose letters and accents (Unicode normalization form C)."""
    if text.isascii():
        return text
    from unicodedata import normalize

    return normalize("NFC", text)


def join_names(names: Sequence[str]) -> str:
    """Write names as a text from which `p2pkm.data.readers.intake.split_list` reads the same names."""
    import csv
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def rename_alike(names: Sequence[str], sizes: Mapping[str, int] | None = None) -> dict[str, str]:
    """Map names of devices that are probably one device to the name that is kept, for ``--rename``.

    Of each group, the name with the most rows is kept, of equal ones the first; without `sizes`, the first. Names with
    an equals sign cannot be renamed, nor their group.
    """
    kept: dict[str, str] = {}
    for group in _group_alike(names):
        if not any("=" in name for name in group):
            keep = max(group, key=lambda name: sizes[name] if sizes else 0)
            kept |= {name: keep for name in group if name != keep}
    return kept


def note_alike(
    names: Sequence[str], sizes: Mapping[str, int] | None = None, *, renamed: bool = False
) -> tuple[str, ...]:
    """List names of devices that are probably one device in a note; no note if there are none.

    `renamed`: whether the run reads them with the names of `rename_alike`.
    """
    from shlex import quote

    groups = _group_alike(names)
    if not groups:
        return ()
    listed = "; ".join(f"{', '.join(map(repr, group[:-1]))} and {group[-1]!r}" for group in groups[:_GROUPS])
    more = f", and {len(groups) - _GROUPS} more groups" if len(groups) > _GROUPS else ""
    shown = [name for group in groups[:_GROUPS] for name in group]
    new_names = rename_alike(names if renamed else shown, sizes)
    way = f"--rename {quote(join_names([f'{old}={new}' for old, new in new_names.items()]))}"
    if not new_names or (not renamed and any("=" in name for name in shown)):
        advice = "Use one name if they are one device"
    elif renamed:
        advice = f"They are read as one device ({way}): check that they are"
    else:
        advice = f"Use {way} if they are one device"
    return (f"names of devices that differ only in case, accents, umlauts or blanks: {listed}{more}. {advice}",)


def _group_alike(names: Sequence[str]) -> list[list[str]]:
    """List the groups of names that differ only in case, accents, umlauts or blanks."""
    from unicodedata import combining, normalize

    groups: dict[str, list[str]] = {}
    for name in names:
        letters = name if name.isascii() else "".join(c for c in normalize("NFD", name) if not combining(c))
        # ä is also written ae.
        key = re.sub("(?<=[aou])e", "", "".join(letters.casefold().split()))
        groups.setdefault(key, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def _to_text(value: Any, midnight: bool, what: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise DataError(f"{what}: a value is {value!r}, which is not UTF-8; expected integers or text") from None
    if isinstance(value, datetime):
        return str(value.date()) if midnight else str(value)
    if isinstance(value, str | Real | np.generic | date | time) or _is_decimal_or_uuid(value):
        return str(value)
    raise DataError(f"{what}: a value is {value!r} of type {type(value).__name__}; expected integers or text")


def _is_decimal_or_uuid(value: Any) -> bool:
    from decimal import Decimal
    from uuid import UUID

    return isinstance(value, Decimal | UUID)


def _sort(texts: list[str]) -> tuple[NDArray[Any], list[int]]:
    """Sort distinct texts, by value if all are numbers; return them and the index of each in the list."""
    if texts and all(map(is_integer, texts)):
        numbers = list(map(int, texts))
        order = sorted(range(len(texts)), key=numbers.__getitem__)
        return np.array([numbers[i] for i in order], np.int64), order
    if are_numbers(_objects(texts)):
        from decimal import Decimal

        order = sorted(range(len(texts)), key=lambda i: (Decimal(texts[i]), texts[i]))
    else:
        order = sorted(range(len(texts)), key=texts.__getitem__)
    return _objects([texts[i] for i in order]), order
