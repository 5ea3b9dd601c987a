"""Report of a folder, which may contain a run, a comparison or a study."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.analysis.bench_statistics import summarize
from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.storage.run_status import describe_run_collection
from p2pkm.storage.save import write_bytes
from p2pkm.storage.study_folder import TABLES, read_table
from p2pkm.storage.study_mark import BENCH, COMPARISON, SWEEP, kind_of

_NAME = "report.html"
_KINDS = {SWEEP: "study", COMPARISON: "comparison", BENCH: "benchmark"}


class WrittenReport(NamedTuple):
    """Path, kind (run, comparison, study, benchmark) and size in bytes of a report, and whether it has a replay."""

    path: Path
    kind: str
    bytes: int
    replay: bool

    def to_json(self) -> dict[str, Any]:
        """Return the report for the command line."""
        return {"report": str(self.path), "kind": self.kind, "bytes": self.bytes, "replay": self.replay}


def write_report(folder: Path, defaults: dict[str, Any], out: Path | None = None) -> WrittenReport:
    """Write the report of a run, a comparison or a study.

    Parameters
    ----------
    folder : Path
    defaults : dict
        Options of a run with their defaults, which the commands in a report omit.
    out : Path, optional
        File to write; None: report.html in the folder.

    Raises
    ------
    DataError
        If the folder does not contain a run, a comparison or a study, or one of its files cannot be read.
    ExperimentError
        If `out` is a folder or cannot be written.
    NetworkError
        If writing fails.
    """
    kind = detect_kind(folder)
    target = folder / _NAME if out is None else out
    _check(target)
    page, has_replay = _draw(kind, folder, defaults)
    content = page.encode("utf-8", "replace")
    try:
        write_bytes(target.parent, target.name, lambda file: file.write(content))
    except OSError as error:
        raise NetworkError(
            f"{target} cannot be written: {error.strerror or error}. Free disk space, or choose another --out"
        ) from None
    return WrittenReport(target, kind, len(content), has_replay)


def detect_kind(folder: Path) -> str:
    """Detect whether a folder contains a run, a comparison, a study or a benchmark.

    Raises
    ------
    DataError
        If it contains none of them.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; expected the folder of a run, a comparison or a study")
    if kind := _KINDS.get(kind_of(folder)):
        return kind
    if (folder / TABLES[0]).is_file():
        return "study"
    if (folder / "config.toml").is_file() or (folder / "chain.npz").is_file():
        return "run"
    contents = describe_run_collection(folder)
    raise DataError(
        f"{folder} is not the folder of a run, a comparison or a study{f'; it contains {contents}' * bool(contents)}"
    )


def _check(target: Path) -> None:
    """Check that the file can be written, before figures are drawn."""
    place = target.parent
    if target.is_dir():
        raise ExperimentError(f"--out {target} is a folder; expected a file, for example {target / _NAME}")
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ExperimentError(
            f"--out {target} cannot be written: {place} is not a writable folder. Choose another file"
        )


def _draw(kind: str, folder: Path, defaults: dict[str, Any]) -> tuple[str, bool]:
    if kind == "run":
        from p2pkm.viz.report.run_page import draw_run

        return draw_run(folder)
    if kind == "benchmark":
        from p2pkm.viz.report.bench_page import draw_page

        return draw_page(summarize(_read_rows(folder))), False
    from p2pkm.viz.report.study_page import draw_rows

    return draw_rows(kind, folder, defaults), False


def _read_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of a benchmark."""
    try:
        rows = read_table(folder)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} cannot be read: {error}. Restore a copy") from None
    if rows is None:
        raise DataError(
            f"{folder} does not contain {TABLES[0]}: this benchmark has not ended. Run the same command again"
        )
    return rows
