"""One page for a folder, whatever it holds."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.storage.run_status import describe_run_collection
from p2pkm.storage.save import write_bytes

_NAME = "report.html"


class WrittenReport(NamedTuple):
    """What was written: the file, what it is about (run, comparison, study), its bytes, whether it can be replayed."""

    path: Path
    kind: str
    bytes: int
    replay: bool

    def to_json(self) -> dict[str, Any]:
        """Return the report for the command line."""
        return {"report": str(self.path), "kind": self.kind, "bytes": self.bytes, "replay": self.replay}


def write_report(folder: Path, usual: dict[str, Any], out: Path | None = None) -> WrittenReport:
    """Write the page of a run, a comparison or a study.

    Parameters
    ----------
    folder : Path
    usual : dict
        The options of a run and their defaults, which a page leaves out.
    out : Path, optional
        None: report.html in the folder.

    Raises
    ------
    DataError
        If the folder holds nothing that can be reported, or a file of it cannot be read.
    ExperimentError
        If `out` cannot be used.
    NetworkError
        If the disk fails.
    """
    kind = recognize(folder)
    target = folder / _NAME if out is None else out
    _check(target)
    page, moving = _draw(kind, folder, usual)
    content = page.encode("utf-8", "replace")
    try:
        write_bytes(target.parent, target.name, lambda file: file.write(content))
    except OSError as error:
        raise NetworkError(
            f"{target} cannot be written: {error.strerror or error}; make room or choose another --out"
        ) from None
    return WrittenReport(target, kind, len(content), moving)


def recognize(folder: Path) -> str:
    """Return what a folder holds: run, comparison or study.

    Raises
    ------
    DataError
        If it is none of them, with the reason and what to do.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}; expected the folder of a run, a comparison or a study")
    if (folder / "study.jsonl").is_file():
        return "study"
    if (folder / "comparison.json").is_file():
        return "comparison"
    if (folder / "config.toml").is_file() or (folder / "chain.npz").is_file():
        return "run"
    found = describe_run_collection(folder)
    raise DataError(
        f"{folder} is not the folder of a run, a comparison or a study{f'; it holds {found}' * bool(found)}"
    )


def _check(target: Path) -> None:
    """Refuse a file that cannot be written, before the work."""
    place = target.parent
    if target.is_dir():
        raise ExperimentError(f"--out {target} is a folder; expected a file, such as {target / _NAME}")
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ExperimentError(f"--out {target} cannot be written: {place} is not a folder that may be written to")


def _draw(kind: str, folder: Path, usual: dict[str, Any]) -> tuple[str, bool]:
    if kind == "run":
        from p2pkm.viz.report.run_page import draw_run

        return draw_run(folder)
    from p2pkm.viz.report.study_page import draw_rows

    return draw_rows(kind, folder, usual), False
