"""Status of a run by its folder: done, interrupted, failed, running or killed."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, P2PKMError
from p2pkm.storage.lock import describe_lock_holder
from p2pkm.storage.study_mark import BENCH, COMPARISON, PATH, SWEEP, kind_of

_SINGLE = ("manifest.json", "config.toml", "chain.npz", "checksums.sha256")
_RESUMABLE = (
    "which keeps rows instead of run folders. Use p2pkm resume to continue it or to print it again; for a run folder, "
    "start one of its runs by its command, printed by python -m p2pkm study status {folder} --commands"
)
_COLLECTIONS = {
    SWEEP: f"a study, {_RESUMABLE}",
    COMPARISON: f"a comparison, {_RESUMABLE}",
    BENCH: f"a benchmark, {_RESUMABLE}",
    PATH: "a path of couplings. Use its table and its folder figures",
}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a run folder; empty without a manifest.

    Raises
    ------
    DataError
        If the manifest is damaged.
    """
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}. Restore a copy, or repeat the run") from None
    if not isinstance(manifest, dict):
        raise DataError(f"{path} cannot be read: expected a JSON object. Restore a copy, or repeat the run")
    return manifest


def run_status(folder: Path) -> str:
    """Return the state of the run in a folder: done, interrupted, failed, running or killed; empty without a run.

    A run with the state "running" in its manifest was killed if no process holds the lock of the folder.
    """
    state = str(read_manifest(folder).get("state", ""))
    return "killed" if state == "running" and not describe_lock_holder(folder) else state


def describe_missing_results(folder: Path) -> str:
    """Describe why a folder is without results, as a predicate to follow its name."""
    if not folder.is_dir():
        return "is not a run folder: it is a file" if folder.exists() else "is not a run folder: it does not exist"
    remedy = f"Resume it with python -m p2pkm resume {folder}"
    if read_manifest(folder).get("resumable") is False:
        remedy = f"Its noise was secret, so it cannot be resumed. Start a new run: {new_run_command(folder)}"
    reasons = {
        "running": f"contains a run that has not ended: {describe_lock_holder(folder)} is still working on it",
        "killed": f"contains a run that has not ended: it was killed. {remedy}",
        "failed": f"contains a run that has not ended: it failed. Remove the cause first. {remedy}",
        "interrupted": f"contains a run that has not ended: it was interrupted. {remedy}",
    }
    if not read_manifest(folder) and (folder / "checkpoint").is_dir():
        return (
            "is not a run folder: it has checkpoints of p2pkm.simulate, whose arguments only its program has. Make the "
            "same call again, with checkpoint= this folder: it continues the run"
        )
    has_rounds = (folder / "rounds.jsonl").is_file()
    default = "contains a run that has not ended" if has_rounds else "is not a run folder: summary.json is missing"
    return reasons.get(run_status(folder), default)


def new_run_command(folder: Path) -> str:
    """Return the command that starts a new run with the options of the run in a folder."""
    return f"python -m p2pkm --config {folder / 'config.toml'} --out NEW"


def require_single_run(folder: Path) -> None:
    """Validate that a folder does not contain several runs.

    Raises
    ------
    DataError
        If it does; the message describes its contents and what to do.
    """
    collection = describe_run_collection(folder)
    if collection:
        raise DataError(f"{folder} is not the folder of a single run: it contains {collection}")


def describe_run_collection(folder: Path) -> str:
    """Describe the contents of a folder of several runs, and what to do with it; empty for other folders."""
    if not folder.is_dir() or any((folder / name).exists() for name in _SINGLE):
        return ""
    if kind := _COLLECTIONS.get(kind_of(folder)):
        return kind.format(folder=shlex.quote(str(folder)))
    runs = _find_runs(folder)
    return f"{len(runs)} run{'s' * (len(runs) > 1)}. Use the folder of one run, such as {runs[0]}" if runs else ""


def list_runs(folder: Path) -> list[Path]:
    """List the run folders in a folder of several runs, seeds in their order; any other folder stands for itself."""
    is_single = not describe_run_collection(folder) or kind_of(folder) in _COLLECTIONS
    return [folder] if is_single else sorted(_find_runs(folder), key=lambda run: (len(run.name), run.name))


def _find_runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("*/config.toml"))


@contextmanager
def repeated_from(folder: Path) -> Iterator[None]:
    """Add to errors of a repeated run the folder in which the original was started: relative paths start there."""
    try:
        yield
    except P2PKMError as error:
        original = read_manifest(folder).get("cwd")
        if original in (None, str(Path.cwd())):
            raise
        raise type(error)(f"{error}. The run was started in {original}: try again from there") from None
