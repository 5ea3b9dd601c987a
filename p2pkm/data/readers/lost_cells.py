"""Cells of spreadsheets that have no value because of an error, or of a formula that was never computed.

The reader of values does not tell them from empty cells, and reads errors in some .ods files as 0. Their XML does.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from zipfile import ZipFile, is_zipfile

# What only sheets with such cells contain; others are not parsed, which would take longer than reading their values.
_EXCEL = re.compile(rb"""\st=["']e["']|(</(\w+:)?f>|/>|<(\w+:)?v></(\w+:)?v>)\s*</(\w+:)?c>""")
_OPEN_DOCUMENT = re.compile(rb":formula=")
# Bytes that are searched at a time, and those of the block before in which a match may begin.
_BLOCK, _OVERLAP = 1 << 20, 200
# Largest number of cells in a note.
_LISTED = 3


class LostCell(NamedTuple):
    """Cell without a value.

    Attributes
    ----------
    name : str
        Such as B3.
    row, column : int
        Counted from 0.
    error : str
        Such as #DIV/0!; empty for a formula without a value.
    """

    name: str
    row: int
    column: int
    error: str


def find_lost_cells(path: Path, sheet: str) -> list[LostCell]:
    """Find the cells of a sheet with an error, or with a formula without a value.

    Parameters
    ----------
    path : Path
        Spreadsheet that was read without an error. Nothing is found in other formats than .xlsx, .xlsm and .ods, which
        the content tells apart, as for the reader of values: the suffix of a file may be that of another one.
    sheet : str
        Name of the sheet.
    """
    if path.suffix.lower() not in (".xlsx", ".xlsm", ".ods") or not is_zipfile(path):
        return []
    with ZipFile(path) as book:
        is_open_document = "content.xml" in book.namelist()
        return list(_find_in_open_document(book, sheet) if is_open_document else _find_in_excel(book, sheet))


def describe_lost_cells(cells: Sequence[LostCell]) -> str:
    """Write a note on cells without a value; empty if there are none."""
    errors = [f"{cell.name} {cell.error}" for cell in cells if cell.error]
    formulas = [cell.name for cell in cells if not cell.error]
    texts = []
    if errors:
        texts.append(f"cells with an error are read as empty ({_list_names(errors)}): correct their formulas")
    if formulas:
        texts.append(
            f"formulas without a stored value are read as empty ({_list_names(formulas)}): open the file in Excel or "
            "LibreOffice and save it"
        )
    return "; ".join(texts)


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else "")


def _find_in_excel(book: ZipFile, sheet: str) -> Iterator[LostCell]:
    member = _find_member(book, sheet)
    if member is None or not _contains(book, member, _EXCEL):
        return
    with book.open(member) as file:
        for _, element in ElementTree.iterparse(file):
            if _tag(element) == "c" and (name := element.get("r")):
                parts = {_tag(part): part.text or "" for part in element}
                is_error = element.get("t") == "e"
                if is_error or ("f" in parts and not parts.get("v") and element.get("t") != "str"):
                    letters = name.rstrip("0123456789")
                    error = parts.get("v") or "#ERROR" if is_error else ""
                    yield LostCell(name, int(name[len(letters) :]) - 1, _number_column(letters), error)
            elif _tag(element) == "row":
                element.clear()


def _find_member(book: ZipFile, sheet: str) -> str | None:
    """Find the file of a sheet in a workbook of Excel; None if the workbook has another structure."""
    try:
        with book.open("xl/workbook.xml") as file:
            sheets = [element for element in ElementTree.parse(file).iter() if _tag(element) == "sheet"]
        with book.open("xl/_rels/workbook.xml.rels") as file:
            targets = {element.get("Id", ""): element.get("Target", "") for element in ElementTree.parse(file).iter()}
    except KeyError:
        return None
    # The name space of the attribute depends on the version of the standard.
    links = {element.get("name"): value for element in sheets for key, value in element.items() if key.endswith("}id")}
    target = targets.get(links.get(sheet, ""), "")
    member = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
    return member if member in book.namelist() else None


def _find_in_open_document(book: ZipFile, sheet: str) -> Iterator[LostCell]:
    if not _contains(book, "content.xml", _OPEN_DOCUMENT):
        return
    row, is_chosen = 0, False
    with book.open("content.xml") as file:
        for event, element in ElementTree.iterparse(file, ("start", "end")):
            if _tag(element) == "table" and event == "start":
                row, is_chosen = 0, _attributes(element).get("name") == sheet
            elif _tag(element) == "table-row" and event == "end":
                if is_chosen:
                    yield from _find_in_row(element, row)
                row += int(_attributes(element).get("number-rows-repeated", 1))
                element.clear()


def _find_in_row(element: ElementTree.Element, row: int) -> Iterator[LostCell]:
    column = 0
    for cell in element:
        attributes = _attributes(cell)
        repeated = int(attributes.get("number-columns-repeated", 1))
        if "formula" in attributes:
            # Of an error, the value is empty or 0 and the text is shown, which begins with # or Err:.
            shown = "".join(cell.itertext())
            is_error = shown.startswith(("#", "Err:")) and not attributes.get("string-value")
            if is_error or "value-type" not in attributes:
                error = shown if is_error else ""
                for at in range(column, column + repeated):
                    yield LostCell(f"{_name_column(at)}{row + 1}", row, at, error)
        column += repeated


def _contains(book: ZipFile, member: str, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a file of an archive contains a short pattern."""
    rest = b""
    with book.open(member) as file:
        while block := file.read(_BLOCK):
            if pattern.search(rest + block):
                return True
            rest = block[-_OVERLAP:]
    return False


def _tag(element: ElementTree.Element) -> str:
    """Return the tag without its name space."""
    return element.tag.rpartition("}")[2]


def _attributes(element: ElementTree.Element) -> dict[str, str]:
    """Return the attributes without their name spaces; of two equal ones the first."""
    return {key.rpartition("}")[2]: value for key, value in reversed(list(element.items()))}


def _number_column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _name_column(column: int) -> str:
    name = ""
    while column >= 0:
        name = chr(ord("A") + column % 26) + name
        column = column // 26 - 1
    return name
