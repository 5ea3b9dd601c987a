"""Folder of a study: what was asked, and the table of all rows; `p2pkm.storage.study_rows` has the rows of its runs."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.storage.run_folder import check_target, make_new, name_folder
from p2pkm.storage.save import write_bytes
from p2pkm.storage.study_mark import MARK, format_mark, kind_of, write_mark
from p2pkm.storage.study_rows import Row, parse_row

# Tables of all rows; the second one was that of comparisons and benchmarks of earlier versions.
TABLES = ("study.jsonl", "rows.jsonl")
_TRACED = ("key", "algorithm", "graph", "seed", "trace")


def open_folder(out: str | None, kind: str, *, mark: str = "") -> Path | None:
    """Create or open the folder of a study.

    Parameters
    ----------
    out : str or None
        Path of the folder; None: a new one, ``runs/<time>-<kind>``; "none": no folder.
    kind : str
        Kind of the study, see `p2pkm.storage.study_mark`. An interrupted study of this kind is continued.
    mark : str
        Another file by which a folder is known to hold this kind.

    Raises
    ------
    ExperimentError
        If the folder cannot be written, or holds something else.
    """
    if out == "none":
        return None
    if not out:
        return make_new(name_folder(kind))
    folder = Path(out)
    try:
        # Listed once: several jobs may start a study in the same folder at the same time.
        names = os.listdir(folder) if folder.is_dir() else []
        if names and mark not in names and kind_of(folder) != kind:
            raise ExperimentError(f"--out {folder} is not empty and does not hold a {kind}. Use another folder")
        if not names:
            check_target(folder, force=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out {folder} cannot be used: {error.strerror or error}. Use another folder") from None
    return folder


def mark_folder(folder: Path, kind: str, content: Mapping[str, Any], *, shared: bool) -> None:
    """Write what was asked; if several jobs share the folder, only the first one does.

    Raises
    ------
    NetworkError
        If it cannot be written.
    """
    try:
        if not shared:
            write_mark(folder, kind, content)
            return
        with suppress(FileExistsError), open(folder / MARK, "x", encoding="utf-8") as file:
            file.write(format_mark(kind, content))
    except OSError as error:
        raise NetworkError(
            f"{folder} cannot be written: {error.strerror or error}. Free disk space, or choose another --out"
        ) from None


def read_table(folder: Path) -> list[Row] | None:
    """Read the table of all rows; None if the study has not ended.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    """
    for name in TABLES:
        if (folder / name).is_file():
            return [parse_row(line) for line in (folder / name).read_text("utf-8").splitlines() if line]
    return None


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Write study.jsonl and study.csv, and study.parquet if pyarrow is installed."""
    write_lines(folder, TABLES[0], rows)
    write_csv(folder, "study.csv", rows)
    _write_parquet(folder, rows)


def write_traces(folder: Path, rows: Iterable[Row]) -> None:
    """Write traces.jsonl, the recorded rounds of the runs that ended without an error."""
    traces = [{name: row.get(name) for name in _TRACED} for row in rows if row["error"] is None]
    write_lines(folder, "traces.jsonl", traces)


def write_lines(folder: Path, name: str, rows: Iterable[Row]) -> None:
    """Write rows as JSON, one in each line."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_bytes(folder, name, lambda file: file.write(text.encode()))


def write_csv(folder: Path, name: str, rows: Sequence[Row]) -> None:
    """Write rows as CSV; missing values are empty."""
    text = io.StringIO()
    names = list_columns(rows)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([row.get(name) for name in names] for row in rows)
    write_bytes(folder, name, lambda file: file.write(text.getvalue().encode()))


def list_columns(rows: Iterable[Row]) -> list[str]:
    """List the columns that any row has, in the order in which they occur first."""
    merged: Row = {}
    for row in rows:
        merged |= row
    return list(merged)


def _write_parquet(folder: Path, rows: Sequence[Row]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return
    columns = {}
    for name in list_columns(rows):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # Arrow rejects a column of numbers and text, such as the coupling with values 3 and "auto".
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    write_bytes(folder, "study.parquet", lambda file: parquet.write_table(pa.table(columns), file))
