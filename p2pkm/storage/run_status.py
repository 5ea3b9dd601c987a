"""What became of a run, from its folder: done, interrupted, failed, still running, or killed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, P2PKMError
from p2pkm.storage.lock import describe_lock_holder

_SINGLE = ("manifest.json", "config.toml", "chain.npz", "checksums.sha256")
_ONWARDS = "of which rows are kept, no run folders; p2pkm resume goes on with it or prints it again"
_MANY = {
    "study.toml": f"a study, {_ONWARDS}",
    "comparison.json": f"a comparison, {_ONWARDS}",
    "path.jsonl": "a path of couplings, whose table and figure are in path.csv and figures",
}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run folder; without one, an empty dict.

    Raises
    ------
    DataError
        If it is damaged.
    """
    path = folder / "manifest.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise DataError(f"{path} cannot be read: it is not an object")
    return found


def run_status(folder: Path) -> str:
    """Return the state of the run in a folder: done, interrupted, failed, running or killed; nothing if there is none.

    A run whose manifest says running has been killed unless somebody holds the folder's lock.
    """
    state = str(read_manifest(folder).get("state", ""))
    return "killed" if state == "running" and not describe_lock_holder(folder) else state


def describe_missing_results(folder: Path) -> str:
    """Return in words why a folder has no results: no run at all, or one that has not ended."""
    if not folder.is_dir():
        return "is not a run folder: it does not exist"
    again = f"go on with: python -m p2pkm resume {folder}"
    if read_manifest(folder).get("resumable") is False:
        again = f"its noise was secret, so it cannot be resumed; begin a new run: {new_run_command(folder)}"
    words = {
        "running": f"holds a run that has not ended: {describe_lock_holder(folder)} is still at it",
        "killed": f"holds a run that has not ended: it was killed; {again}",
        "failed": f"holds a run that has not ended: it failed; once the cause is mended, {again}",
        "interrupted": f"holds a run that has not ended: it was interrupted; {again}",
    }
    rounds = (folder / "rounds.jsonl").is_file()
    usual = "holds a run that has not ended" if rounds else "is not a run folder: it has no summary.json"
    return words.get(run_status(folder), usual)


def new_run_command(folder: Path) -> str:
    """Return the command that begins a new run with the options of the run in a folder."""
    return f"python -m p2pkm --config {folder / 'config.toml'} --out NEW"


def require_single_run(folder: Path) -> None:
    """Refuse the folder of several runs where that of one is needed.

    Raises
    ------
    DataError
        With what it holds, and what to do.
    """
    found = describe_run_collection(folder)
    if found:
        raise DataError(f"{folder} is not the folder of a single run: it holds {found}")


def describe_run_collection(folder: Path) -> str:
    """Return in words what a folder of several runs holds, and what can be done with it; nothing if it is none."""
    if not folder.is_dir() or any((folder / name).exists() for name in _SINGLE):
        return ""
    for name, words in _MANY.items():
        if (folder / name).is_file():
            return words
    runs = sorted(path.parent for path in folder.glob("*/config.toml"))
    return f"{len(runs)} run{'s' * (len(runs) > 1)}, such as {runs[0]}: name one of them" if runs else ""


@contextmanager
def repeated_from(folder: Path) -> Iterator[None]:
    """Let what a run cannot find, when it is repeated somewhere else, be looked for where it was begun."""
    try:
        yield
    except P2PKMError as error:
        place = read_manifest(folder).get("cwd")
        if place in (None, str(Path.cwd())):
            raise
        raise type(error)(f"{error}. The run was begun in {place}: try again from there") from None
