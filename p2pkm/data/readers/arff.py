"""Reader of .arff files, the format of Weka.

SciPy reads neither weights of rows, sparse rows nor attributes of text, drops fields that are too many, and does not
remove double quotes.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import DataError
from p2pkm.core.validation import EXACT
from p2pkm.data.readers.columns import list_names
from p2pkm.data.readers.frame import NamedColumns
from p2pkm.data.readers.intake import is_number, to_number

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.*)", re.IGNORECASE)
_CATEGORIES = re.compile(r"\{(.*?)\}\s*(\{[^{},]*\})?")
# Field with the separator that ends it.
_FIELD = re.compile(rf"\s*({_QUOTED}|[^,\t]*?)\s*[,\t]")
_WORD = re.compile(rf"\s*({_QUOTED}|\S+)\s*")
_ENTRY = re.compile(rf"\s*(\d+)\s+({_QUOTED}|[^,]*?)\s*(?:,|$)")
# Weight in braces at the end of a row.
_WEIGHT = re.compile(r"(.*[^\s,])[\s,]*\{\s*([^{},\s]+)\s*\}")
_NUMBERS = ("numeric", "real", "integer")
_DATE_FORMAT = "yyyy-MM-dd'T'HH:mm:ss"
# Fields of a date in Java, and in Python.
_DATE_PART = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")
_PARTS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


class _Attribute(NamedTuple):
    """Column: its name, one of the types numeric, nominal, string and date, and its categories or format of dates."""

    name: str
    kind: str
    categories: tuple[str, ...] = ()
    date_format: str = ""

    @property
    def zero(self) -> str:
        """Field that a sparse row leaves out: the number 0, or the first category."""
        if self.kind == "nominal":
            return self.categories[0]
        return "0" if self.kind == "numeric" else "?"


def load_arff(path: Path) -> NamedColumns:
    """Read the columns of a file; nominal attributes are categories, also if their names are numbers.

    Raises
    ------
    DataError
        If the file is damaged, or contains relational attributes.
    """
    content = path.read_bytes()
    notes = []
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", "replace")
        notes.append("the text is not UTF-8 and read as Windows-1252 (cp1252); save the file as UTF-8")
    lines = _list_lines(text)
    attributes, weighted = _read_header(path, lines)
    if weighted:
        notes.append(f"weights of attributes are not used: {list_names(weighted)}")
    rows, weights, numbers = list[list[str]](), list[float](), list[int]()
    for number, line in lines:
        fields, weight = _read_row(f"{path}, line {number}", line, attributes)
        rows.append(fields)
        weights.append(weight)
        numbers.append(number)
    columns = [
        _convert(str(path), attribute, [row[j] for row in rows], numbers) for j, attribute in enumerate(attributes)
    ]
    stored = np.array(weights) if any(weight != 1.0 for weight in weights) else None
    return NamedColumns([attribute.name for attribute in attributes], columns, len(rows), tuple(notes), stored)


def _list_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and content of the lines that are neither blank nor comments."""
    for number, line in enumerate(text.splitlines(), 1):
        content = _cut_comment(line.strip())
        if content:
            yield number, content


def _cut_comment(line: str) -> str:
    """Remove a comment, from % at the start of a line or after a blank, unless it is in quotes."""
    quote, at = "", line.find("%") if "'" not in line and '"' not in line else 0
    while 0 <= at < len(line):
        sign = line[at]
        if sign == "%" and not quote and (at == 0 or line[at - 1].isspace()):
            return line[:at].strip()
        if sign == "\\":
            at += 1
        elif sign == quote:
            quote = ""
        elif sign in "'\"" and not quote:
            quote = sign
        at += 1
    return line


def _read_header(path: Path, lines: Iterator[tuple[int, str]]) -> tuple[list[_Attribute], list[str]]:
    """Read the attributes up to the line @data, and list those with a weight."""
    attributes, weighted = list[_Attribute](), list[str]()
    for number, line in lines:
        keyword = line.split(None, 1)[0].lower()
        if keyword == "@data":
            if not attributes:
                raise DataError(f"{path} has no @attribute before @data; expected one for each column")
            return attributes, weighted
        if keyword == "@attribute":
            attribute, has_weight = _read_attribute(f"{path}, line {number}", line)
            attributes.append(attribute)
            weighted += [attribute.name] if has_weight else []
        elif keyword != "@relation":
            raise DataError(
                f"{path}, line {number} is {line[:40]!r}; expected @relation, @attribute or @data. Write the file "
                "again, or export CSV"
            )
    raise DataError(f"{path} cannot be read as ARFF: it has no line @data. Write it again, or export CSV")


def _read_attribute(where: str, line: str) -> tuple[_Attribute, bool]:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise DataError(f"{where} is {line[:40]!r}; expected @attribute NAME TYPE")
    name, declared = _unquote(match[1]), match[2]
    if declared.startswith("{"):
        match = _CATEGORIES.fullmatch(declared)
        categories = () if match is None else tuple(map(_unquote, _split(match[1])))
        if match is None or not match[1].strip() or len(set(categories)) < len(categories):
            raise DataError(f"{where} is {line[:40]!r}; expected different categories in braces, such as {{a, b}}")
        return _Attribute(name, "nominal", categories), match[2] is not None
    words = [_unquote(word) for word in _WORD.findall(declared)]
    is_weight = bool(words) and re.fullmatch(r"\{.*\}", words[-1]) is not None
    words = words[:-1] if is_weight else words
    kind = words[0].lower() if words else ""
    if kind in _NUMBERS:
        return _Attribute(name, "numeric"), is_weight
    if kind == "string":
        return _Attribute(name, "string"), is_weight
    if kind == "date":
        return _Attribute(name, "date", (), _translate(where, " ".join(words[1:]) or _DATE_FORMAT)), is_weight
    raise DataError(
        f"{where}: attribute {name!r} has the type {kind or 'none'!r}; expected numeric, nominal, string or date. "
        "Remove the attribute, or export CSV"
    )


def _translate(where: str, java: str) -> str:
    """Translate a format of dates from Java to Python."""
    parts = [
        _PARTS.get(match[0], match[1] if match[1] is not None else match[0]) for match in _DATE_PART.finditer(java)
    ]
    unknown = [match[0] for match in _DATE_PART.finditer(java) if match[2] and match[0] not in _PARTS]
    if unknown:
        raise DataError(
            f"{where}: the format of dates {java!r} contains {unknown[0]!r}; expected {', '.join(_PARTS)}. Export the "
            "dates as yyyy-MM-dd"
        )
    return "".join(parts)


def _split(text: str) -> list[str]:
    """Split fields at commas and tabs or, without these, at white space; quotes are kept."""
    if "," not in text and "\t" not in text:
        return _WORD.findall(text)
    if "'" in text or '"' in text:
        return _FIELD.findall(f"{text},")
    return [field.strip() for field in text.split("," if "," in text else "\t")]


def _unquote(field: str) -> str:
    if len(field) > 1 and field[0] in "'\"" and field[-1] == field[0]:
        return re.sub(r"\\(.)", r"\1", field[1:-1])
    return field


def _read_row(where: str, line: str, attributes: list[_Attribute]) -> tuple[list[str], float]:
    """Return the fields of a row, with quotes, and its weight."""
    weight = 1.0
    if line.endswith("}") and (match := _WEIGHT.fullmatch(line)):
        if not is_number(match[2]):
            raise DataError(f"{where}: the weight is {match[2]!r}; expected a number in braces")
        line, weight = match[1], to_number(match[2])
    if line.startswith("{"):
        return _read_sparse(where, line, attributes), weight
    fields = _split(line)
    if len(fields) != len(attributes):
        raise DataError(
            f"{where}: {len(fields)} fields; expected {len(attributes)}, one per attribute. Correct or remove the line"
        )
    return fields, weight


def _read_sparse(where: str, line: str, attributes: list[_Attribute]) -> list[str]:
    """Return all fields of a sparse row such as ``{1 5, 3 'a b'}``, which lists number and value of some attributes."""
    fields = [attribute.zero for attribute in attributes]
    content = line[1:].rstrip().removesuffix("}").strip()
    seen, end = set[int](), 0
    while end < len(content):
        match = _ENTRY.match(content, end)
        at = -1 if match is None else int(match[1])
        if match is None or not match[2] or at >= len(attributes) or at in seen or not line.rstrip().endswith("}"):
            raise DataError(
                f"{where} is {line[:40]!r}; expected numbers of attributes from 0 to {len(attributes) - 1}, each once "
                "and with a value, such as {0 5, 2 a}"
            )
        seen.add(at)
        fields[at] = match[2]
        end = match.end()
    return fields


def _convert(where: str, attribute: _Attribute, fields: list[str], numbers: list[int]) -> Any:
    """Convert the fields of an attribute to numbers, categories, texts or times; ? is a missing value."""
    import pandas

    known = [field not in ("?", "") for field in fields]
    if attribute.kind == "numeric":
        values = np.full(len(fields), np.nan)
        for at in np.flatnonzero(known).tolist():
            text = _unquote(fields[at])
            if not is_number(text):
                raise DataError(
                    f"{where}, line {numbers[at]}: attribute {attribute.name!r} is {text!r}; expected a number, or ? "
                    "where it is missing"
                )
            values[at] = to_number(text)
        return _keep_digits(values, [_unquote(field) for field in fields])
    texts = [_unquote(field) if ok else None for field, ok in zip(fields, known, strict=True)]
    if attribute.kind == "nominal":
        odd = next((at for at, text in enumerate(texts) if text is not None and text not in attribute.categories), None)
        if odd is not None:
            raise DataError(
                f"{where}, line {numbers[odd]}: attribute {attribute.name!r} is {texts[odd]!r}; expected one of "
                f"{list_names(attribute.categories)}"
            )
        return pandas.Series(pandas.Categorical(texts, attribute.categories))
    if attribute.kind == "string":
        values = np.empty(len(texts), object)
        values[:] = texts
        return values
    return np.array(
        [_read_date(f"{where}, line {number}", attribute, text) for text, number in zip(texts, numbers, strict=True)],
        "datetime64[us]",
    )


def _keep_digits(values: NDArray[np.float64], texts: list[str]) -> Any:
    """Return numbers as text if float64 may lose digits of them, which is examined when the column is used."""
    return np.array(texts, object) if (np.abs(values) >= EXACT).any() else values


def _read_date(where: str, attribute: _Attribute, text: str | None) -> Any:
    if text is None:
        return np.datetime64("NaT")
    try:
        return datetime.strptime(text, attribute.date_format)
    except ValueError:
        raise DataError(
            f"{where}: attribute {attribute.name!r} is {text!r}; expected a date in the format "
            f"{attribute.date_format!r}, or ?"
        ) from None
