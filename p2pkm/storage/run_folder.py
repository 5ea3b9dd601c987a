"""Run folder: the files of a run on disk, valid at every moment."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.termination import STOPPED
from p2pkm.metrics.result import Result
from p2pkm.storage.checkpoint import FOLDER
from p2pkm.storage.checksums import NAME as CHECKSUMS
from p2pkm.storage.checksums import write_checksums
from p2pkm.storage.lock import NAME, Lock, check_not_locked, make_new_folder
from p2pkm.storage.run_status import read_manifest
from p2pkm.storage.save import save_result, write_bytes, write_lines


def name_run(graph: str, algorithm: str, fingerprint: str) -> Path:
    """Return the name of the default run folder, ``runs/<time>-<graph>-<algorithm>-<hash>``."""
    family, method = (part.split(":")[0] for part in (graph, algorithm))
    return name_folder(f"{family}-{method}-{fingerprint[:8]}")


def name_folder(what: str) -> Path:
    """Return the path ``runs/<time>-<what>``; another process may choose the same one in the same second."""
    return Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"


def lock_new_folder(path: Path) -> Lock:
    """Create and lock a folder with a name that the program chose, or the next free one.

    Raises
    ------
    ExperimentError
        If the folder cannot be created.
    """
    with _usable(path):
        _check_writable(path)
        return Lock(path, new=True)


def make_new(path: Path) -> Path:
    """Create a folder with a name that the program chose, or the next free one; errors as in `lock_new_folder`."""
    with _usable(path):
        _check_writable(path)
        return make_new_folder(path)


def check_target(path: Path, *, force: bool) -> None:
    """Validate that a folder can be used for a run; nothing is created.

    Raises
    ------
    ExperimentError
        If the path is a file, a run is writing there, the folder is not empty (without `force`), or is not writable.
    """
    with _usable(path):
        _check_target(path, force)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to an `ExperimentError` about --out."""
    try:
        yield
    except ExperimentError:
        raise
    # Raised, for example, for names that are too long and for a symbolic link to itself.
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ExperimentError(f"--out {path} cannot be used: {reason}. Choose another folder") from None


def _check_target(path: Path, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise ExperimentError(f"--out {path} is a file; expected a new or empty folder")
    if force:
        # First, because the check for running runs searches the complete tree below the folder.
        _check_replaceable(path)
    _check_no_run(path, below=force)
    _check_unused(path, force)
    _check_writable(path)


def _check_writable(path: Path) -> None:
    """Validate that a folder can be created, or is writable."""
    parent = path.resolve()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ExperimentError(f"--out {path} cannot be created: {parent} is not a writable folder. Choose another one")


def _check_unused(path: Path, force: bool) -> None:
    """Validate that a folder is empty or, with `force`, can be replaced."""
    if force:
        _check_replaceable(path)
    elif _content(path):
        raise ExperimentError(
            f"--out {path} is not empty; expected a new or empty folder. Choose another one, or add --force to replace "
            "its contents"
        )


def _check_replaceable(path: Path) -> None:
    """Validate that a folder to replace does not contain the current folder."""
    current = Path.cwd()
    if _content(path) and path.resolve() in (current, *current.parents):
        raise ExperimentError(
            f"--out {path} contains the current folder, which --force cannot replace. Choose another folder"
        )


def _check_no_run(path: Path, *, below: bool) -> None:
    """Validate that no run is writing in a folder or, with `below`, in any folder below it."""
    for lock in path.rglob(NAME) if below else [path / NAME]:
        check_not_locked(lock.parent)


def lock_target(path: Path, *, force: bool) -> Lock:
    """Validate a folder as `check_target` does, and lock it.

    Raises
    ------
    ExperimentError
        If the folder cannot be used, or another run has locked it in the meantime.
    NetworkError
        If the disk fails.
    """
    check_target(path, force=force)
    lock = lock_folder(path)
    try:
        # Again: a run that held the folder between the check and the lock may have written results.
        _check_unused(path, force)
    except ExperimentError:
        lock.release()
        raise
    return lock


def lock_folder(path: Path) -> Lock:
    """Lock a folder regardless of its contents.

    Raises
    ------
    ExperimentError
        If another run holds the lock.
    NetworkError
        If the disk fails.
    """
    with _disk(path):
        return Lock(path)


def move_to_backup(path: Path) -> Path | None:
    """Move the contents of a locked folder to a new folder next to it; return the new folder, None if it was empty."""
    # For a symbolic link, the folder that it points to.
    target = path.resolve()
    content = _content(target)
    if not content:
        return None
    backup = target.with_name(f"{target.name}.old-{time.time_ns()}")
    backup.mkdir()
    for entry in content:
        entry.rename(backup / entry.name)
    return backup


def _content(path: Path) -> list[Path]:
    """Return the contents of a folder, except for its lock."""
    return [entry for entry in path.iterdir() if entry.name != NAME] if path.is_dir() else []


class RunFolder:
    """Writer of a run's files, each written atomically; used on rank 0 only.

    Parameters
    ----------
    lock : Lock
        Lock of the folder.
    config : dict
        The resolved experiment.
    facts : dict
        Entries of the manifest in addition to times and versions: ranks, MPI library.
    names : mapping of str to str or None
        Names of devices and features, for comments in the configuration.

    Attributes
    ----------
    begun : bool
        Whether a file was written.
    path : Path
        The folder.
    lock : Lock
        Its lock.
    """

    def __init__(
        self, lock: Lock, config: dict[str, Any], facts: dict[str, Any], names: Mapping[str, str | None]
    ) -> None:
        self.lock = lock
        self.path = lock.folder
        self.begun = False
        self._config = config
        self._names = names
        self._manifest = {"state": "running", **describe_program(), **facts, "seed": config["seed"]}
        self._rounds: Any = None
        self._old: Path | None = None

    def begin(self) -> None:
        """Start a run: write configuration and manifest; earlier contents are moved to a backup until the run ends."""
        with _disk(self.path):
            self.lock.check()
            self._old = move_to_backup(self.path)
            if self._old is not None:
                self._manifest["aside"] = self._old.name
            self.begun = True
            self._manifest["start"] = _now()
            comments = [f"# {what} names: {json.dumps(names, ensure_ascii=False)}\n"
                    for what, names in self._names.items() if names]  # fmt: skip
            self._write_text("config.toml", "".join(comments) + _to_toml(self._config))
            self._write_manifest()
            self._rounds = open(self.path / "rounds.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - open as long as the run

    def reopen(self, records: list[dict[str, Any]]) -> None:
        """Resume a run in its folder after the given records; later records in the file are removed."""
        with _disk(self.path):
            before = read_manifest(self.path)
            inherited: dict[str, Any] = {name: before[name] for name in ("start", "aside", "cwd") if name in before}
            self._manifest |= {**inherited, "resumed": before.get("resumed", 0) + 1}
            target = self.path.resolve()
            backup_name = Path(str(inherited.get("aside", ""))).name
            # Only names as given by `move_to_backup`: the folder is deleted at the end of the run.
            self._old = target.with_name(backup_name) if backup_name.startswith(f"{target.name}.old-") else None
            self.begun = True
            # An interrupted run has written these files at its end.
            for name in (CHECKSUMS, "summary.json"):
                (self.path / name).unlink(missing_ok=True)
            write_lines(records, self.path)
            self._write_manifest()
            self._rounds = open(self.path / "rounds.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - as above

    def record(self, record: dict[str, Any]) -> None:
        """Append the record of a round."""
        with _disk(self.path):
            self.lock.check()
            self._rounds.write(json.dumps(record) + "\n")
            self._rounds.flush()

    def finish(self, result: Result, draw: Callable[[Result, Path], object] | None) -> None:
        """Write the results, and the figures by `draw` if given; then mark the run as done or interrupted."""
        with _disk(self.path):
            self.lock.check()
            self._rounds.close()
            # The simulated time of each record is known only now.
            if result.summary["virtual_seconds"] is not None:
                write_lines(result.rounds, self.path)
            save_result(result, self.path)
            if draw is not None:
                self._draw(result, draw)
            state = "interrupted" if result.summary["termination"] in STOPPED else "done"
            self.end(state, chain=result.summary["chain_sha256"])
            write_checksums(self.path)

    def _draw(self, result: Result, draw: Callable[[Result, Path], object]) -> None:
        """Draw the figures; a failure adds a note and does not stop the run."""
        try:
            draw(result, self.path / "figures")
        except OSError:
            raise
        except Exception as error:
            result.notes.append(
                f"the figures could not be drawn ({type(error).__name__}: {error}); all results are saved. Try again "
                f"with python -m p2pkm report {self.path}"
            )

    def end(self, state: str, **more: Any) -> None:
        """Write the final state to the manifest; if the run is done, delete its checkpoints and the backup."""
        if self._rounds is not None:
            # A failure here follows an earlier one, which was reported.
            with suppress(OSError):
                self._rounds.close()
        self._manifest |= {"state": state, "end": _now(), **more}
        if state == "done":
            self._manifest.pop("aside", None)
        self._write_manifest()
        if state == "done":
            shutil.rmtree(self.path / FOLDER, ignore_errors=True)
        if self._old is not None and state == "done" and self._old.is_dir():
            shutil.rmtree(self._old)

    def _write_manifest(self) -> None:
        self._write_text("manifest.json", json.dumps(self._manifest, indent=1) + "\n")

    def _write_text(self, name: str, text: str) -> None:
        self.lock.check()
        write_bytes(self.path, name, lambda file: file.write(text.encode(errors="backslashreplace")))


class _disk:  # noqa: N801 - reads like a statement
    """Context manager that converts an `OSError` to a `NetworkError` about the run folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Start to convert errors."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Convert an error."""
        if isinstance(error, OSError):
            raise NetworkError(
                f"the run folder {self._path} cannot be written: {error.strerror or error}. Earlier files are intact. "
                "Free disk space, or choose another --out"
            ) from None


def describe_program() -> dict[str, Any]:
    """Return versions, host and command line for the manifest."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from p2pkm.core.version import __version__

    versions = {}
    for name in ("numpy", "networkx", "numba", "mpi4py"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {"version": __version__, "python": platform.python_version(), "libraries": versions,
            "host": platform.node(), "command": sys.argv, "cwd": str(Path.cwd())}  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _to_toml(config: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(config)
