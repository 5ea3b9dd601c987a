"""Kind of a file by its first bytes, for files whose suffix names another one."""

import re
import zipfile
from pathlib import Path

from p2pkm.core.errors import DataError
from p2pkm.data.readers.folder import COMPRESSED, TEXTS, format_of

SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
# First bytes, what they begin, and the suffixes of such files; without a suffix, the file cannot be read.
_STARTS: tuple[tuple[bytes, str, tuple[str, ...]], ...] = (
    (b"\x1f\x8b", "text compressed by gzip", (".csv.gz",)),
    (b"BZh", "text compressed by bzip2", (".csv.bz2",)),
    (b"\xfd7zXZ", "text compressed by xz", (".csv.xz",)),
    (b"\x28\xb5\x2f\xfd", "text compressed by zstd", (".csv.zst",)),
    (b"\xd0\xcf\x11\xe0", "a spreadsheet of Excel 97", (".xls",)),
    (b"PAR1", "a Parquet table", (".parquet",)),
    (b"ARROW1", "an Arrow table", (".arrow", ".feather", ".ipc")),
    (b"FEA1", "a Feather table of version 1", (".feather", ".arrow", ".ipc")),
    (b"\x93NUMPY", "an array of NumPy", (".npy",)),
    (b"\x89HDF", "HDF5, such as AnnData", (".h5ad",)),
    (b"%PDF", "a PDF document", ()),
    (b"SQLite format 3", "a SQLite database", ()),
    (b"$FL2", "a table of SPSS", ()),
    (b"<stata_dta>", "a table of Stata", ()),
    (b"\x80\x04", "a pickled object of Python", ()),
    (b"\x80\x05", "a pickled object of Python", ()),
)
_ARCHIVES = (
    ("xl/workbook.bin", "a spreadsheet", (".xlsb",)),
    ("xl/", "a spreadsheet", (".xlsx", ".xlsm")),
    ("content.xml", "a spreadsheet", (".ods",)),
)
# Suffixes whose contents are known; other formats may be added to `SUFFIXES` of any_format.py.
_BINARY = {
    *SPREADSHEETS, ".npz",
    *(suffix for *_, suffixes in (*_STARTS, *_ARCHIVES) for suffix in suffixes if Path(suffix).stem == suffix),
}  # fmt: skip
_KNOWN = {*TEXTS, ".json", ".arff", *_BINARY}
_MARKUP = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(!doctype html|html|head|body|table|\?xml)", re.IGNORECASE)
_BYTES = 512
# Printed characters of ASCII, and white space.
_PRINTED = bytes((*b"\t\r\n", *range(32, 127)))
_TEXT = "text", (".csv", ".tsv")
_ARCHIVE: tuple[str, tuple[str, ...]] = "a ZIP archive", ()


def check_content(path: Path) -> None:
    """Compare the first bytes of a file with its suffix.

    Raises
    ------
    DataError
        If the file is of another kind; the message names the suffix of that kind.
    """
    kind, packed = format_of(path), path.suffix.lower() in COMPRESSED
    found = find_content(path)
    if packed:
        # Other contents are errors of the program that decompresses.
        if found == _TEXT:
            raise DataError(f"{path} contains text that is not compressed. Rename the file to {path.stem}")
        return
    if kind not in _KNOWN or found is None or kind in found[1] or (found == _TEXT and kind not in _BINARY):
        return
    # The reader of .npz says that an archive has no arrays.
    if kind == ".npz" and found == _ARCHIVE:
        return
    # The reader of spreadsheets tells their formats apart by the contents.
    if kind in SPREADSHEETS and found[1] and found[1][0] in SPREADSHEETS:
        return
    raise DataError(
        f"{path} contains {found[0]}; expected the format of its suffix, {path.suffix or 'which is missing'}. "
        f"{suggest_name(path, found)}"
    )


def suggest_name(path: Path, found: tuple[str, tuple[str, ...]]) -> str:
    """Return what to do with a file of this content."""
    if not found[1]:
        return "Export the table as CSV"
    return f"Rename the file to {' or '.join(path.stem + suffix for suffix in found[1])}"


def find_content(path: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return what a file contains and the suffixes of such files, which are empty if they cannot be read.

    None: this is not known.
    """
    with path.open("rb") as file:
        start = file.read(_BYTES)
    for first, what, suffixes in _STARTS:
        if start.startswith(first):
            return what, suffixes
    if match := _MARKUP.match(start):
        return ("XML" if match[1].lower() == b"?xml" else "a web page (HTML)"), ()
    if start.startswith(b"PK\x03\x04"):
        return _open_archive(path)
    is_text = bool(start) and not start.translate(None, _PRINTED)
    return _TEXT if is_text else None


def _open_archive(path: Path) -> tuple[str, tuple[str, ...]] | None:
    """Return what an archive contains, as `find_content` does."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return None
    if names and all(name.endswith(".npy") for name in names):
        return "arrays of NumPy", (".npz",)
    for member, what, suffixes in _ARCHIVES:
        if any(name.startswith(member) for name in names):
            return what, suffixes
    return _ARCHIVE
