"""The tidy table of a study: one row per run, from its folder, a DataFrame or a list of rows."""

import html
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p2pkm.errors import DataError

Row = dict[str, Any]
TABLES = ("study.jsonl", "rows.jsonl")  # of a study, of a comparison
_KEPT = "runs/*.json"  # of a study that has not ended
_SHOWN = 10  # rows in a notebook
_COLUMNS = ("algorithm", "graph", "seed", "ratio_mean", "rounds_to_1pct", "bytes", "stop", "error")


@dataclass(frozen=True)
class Study:
    """The runs of a study.

    Attributes
    ----------
    rows : list of dict
        One per run; None where a figure is not known.
    path : Path or None
        Its folder.
    """

    rows: list[Row]
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Study":
        """Read the folder of a study or of a comparison; of one that was interrupted what there is.

        Raises
        ------
        DataError
            If it is no such folder.
        """
        folder = Path(path)
        try:
            for name in TABLES:
                if (folder / name).is_file():
                    lines = (folder / name).read_text().splitlines()
                    return cls([_flatten(json.loads(line)) for line in lines], folder)
            rows = [_flatten(json.loads(kept.read_text())) for kept in sorted(folder.glob(_KEPT))]
        except (OSError, ValueError) as error:
            raise DataError(f"{folder} cannot be read as a study: {error}") from None
        if not rows:
            raise DataError(f"{folder} is not the folder of a study; expected one that p2pkm sweep or compare wrote")
        return cls(rows, folder)

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame with a row per run; needs pandas."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        names = [name for name in _COLUMNS if any(row.get(name) is not None for row in self.rows)]
        lines = [[_write(row.get(name)) for name in names] for row in self.rows[:_SHOWN]]
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
        rest = len(self.rows) - len(lines)
        more = f"<p>and {rest} more; to_frame() returns all</p>" if rest else ""
        failed = sum(row.get("error") is not None for row in self.rows)
        title = f"<p>Study of {len(self.rows)} runs" + (f", {failed} failed" if failed else "") + "</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def load_study(path: str | os.PathLike[str]) -> Any:
    """Read the table of a study or a comparison: a pandas.DataFrame where pandas is there, else a list of dict.

    Parameters
    ----------
    path : path
        The folder that ``p2pkm sweep`` or ``p2pkm compare`` wrote.

    Raises
    ------
    DataError
        If it is no such folder.
    """
    study = Study.load(path)
    try:
        return study.to_frame()
    except ImportError:
        return study.rows


def read_rows(source: Any) -> list[Row]:
    """Return the rows of a study that ended without an error, given its folder, itself, its DataFrame or its rows."""
    if isinstance(source, (str, os.PathLike)):
        source = Study.load(source)
    if isinstance(source, Study):
        source = source.rows
    elif hasattr(source, "to_dict"):
        source = source.to_dict(orient="records")
    rows = [{name: None if _is_missing(value) else value for name, value in row.items()} for row in source]
    return [row for row in rows if row.get("error") is None]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _flatten(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "trace"}


def _write(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
