"""The run folder: what a run leaves on disk, readable at every moment."""

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
from p2pkm.storage.lock import NAME, Lock, make_new_folder, refuse_held
from p2pkm.storage.run_status import read_manifest
from p2pkm.storage.save import save_result, write_bytes, write_lines


def name_run(graph: str, algorithm: str, fingerprint: str) -> Path:
    """Return the name of the default run folder, ``runs/<time>-<graph>-<algorithm>-<hash>``."""
    family, method = (part.split(":")[0] for part in (graph, algorithm))
    return name_folder(f"{family}-{method}-{fingerprint[:8]}")


def name_folder(what: str) -> Path:
    """Return ``runs/<time>-<what>``, which another process may have chosen in the same second."""
    return Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"


def lock_new_folder(path: Path) -> Lock:
    """Make a folder of a name that the program chose, or of the next free one, and hold it.

    Raises
    ------
    ExperimentError
        If it cannot be made.
    """
    with _usable(path):
        _refuse_unwritable(path)
        return Lock(path, new=True)


def make_new(path: Path) -> Path:
    """Make a folder of a name that the program chose, or of the next free one; see `lock_new_folder` for the error."""
    with _usable(path):
        _refuse_unwritable(path)
        return make_new_folder(path)


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be written or is in use; nothing is created.

    Raises
    ------
    ExperimentError
        If the path is a file, a run is writing there, it is not empty (without `force`), or cannot be written to.
    """
    with _usable(path):
        _refuse_target(path, force)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Say of a folder that the system refuses that it cannot be used."""
    try:
        yield
    except ExperimentError:
        raise
    except (OSError, ValueError, RuntimeError) as error:  # a name that is too long, a link to itself
        reason = getattr(error, "strerror", None) or error
        raise ExperimentError(f"--out {path} cannot be used: {reason}; choose another folder") from None


def _refuse_target(path: Path, force: bool) -> None:
    if path.exists() and not path.is_dir():
        raise ExperimentError(f"--out {path} is a file; expected a folder that is new or empty")
    if force:
        _refuse_irreplaceable(path)  # before everything below it is looked through
    _refuse_live(path, below=force)
    _refuse_used(path, force)
    _refuse_unwritable(path)


def _refuse_unwritable(path: Path) -> None:
    """Reject a folder that cannot be created or written to."""
    parent = path.resolve()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ExperimentError(f"--out {path} cannot be created: {parent} is not a folder that may be written to")


def _refuse_used(path: Path, force: bool) -> None:
    """Refuse a folder that is not empty, or, if it may be replaced, one that cannot."""
    if force:
        _refuse_irreplaceable(path)
    elif _content(path):
        raise ExperimentError(
            f"--out {path} is not empty; choose another folder, or add --force to replace what is in it"
        )


def _refuse_irreplaceable(path: Path) -> None:
    """Refuse to replace a folder that holds the current one."""
    here = Path.cwd()
    if _content(path) and path.resolve() in (here, *here.parents):
        raise ExperimentError(f"--out {path} holds the current folder, which --force cannot replace; choose another")


def _refuse_live(path: Path, *, below: bool) -> None:
    """Refuse a folder in which a run is writing; also, if asked for, one with such a folder somewhere below it."""
    for lock in path.rglob(NAME) if below else [path / NAME]:
        refuse_held(lock.parent)


def lock_target(path: Path, *, force: bool) -> Lock:
    """Do what `check_target` does, and hold the folder from then on.

    Raises
    ------
    ExperimentError
        If it is refused, or another run was faster.
    NetworkError
        If the disk fails.
    """
    check_target(path, force=force)
    lock = lock_folder(path)
    try:
        _refuse_used(path, force)  # whoever held it a moment ago may have left something
    except ExperimentError:
        lock.release()
        raise
    return lock


def lock_folder(path: Path) -> Lock:
    """Hold a folder, whatever is in it.

    Raises
    ------
    ExperimentError
        If another run holds it.
    NetworkError
        If the disk fails.
    """
    with _disk(path):
        return Lock(path)


def move_to_backup(path: Path) -> Path | None:
    """Move what is in a folder that this process holds to a new one beside it, which is returned; None: it is empty."""
    place = path.resolve()  # of a link, what it leads to
    content = _content(place)
    if not content:
        return None
    old = place.with_name(f"{place.name}.old-{time.time_ns()}")
    old.mkdir()
    for one in content:
        one.rename(old / one.name)
    return old


def _content(path: Path) -> list[Path]:
    """Return what is in a folder, but for its lock."""
    return [one for one in path.iterdir() if one.name != NAME] if path.is_dir() else []


class RunFolder:
    """Write a run's files, each at once or not at all; rank 0 only.

    Parameters
    ----------
    lock : Lock
        Of the folder.
    config : dict
        The resolved experiment.
    facts : dict
        What the manifest says beside times and versions: ranks, MPI library.
    names : mapping of str to str or None
        Names of devices and features, for comments in the configuration.

    Attributes
    ----------
    begun : bool
        Whether anything was written.
    path : Path
    lock : Lock
    """

    def __init__(
        self, lock: Lock, config: dict[str, Any], facts: dict[str, Any], names: Mapping[str, str | None]
    ) -> None:
        self.lock, self.path, self.begun, self._config, self._names = lock, lock.folder, False, config, names
        self._manifest = {"state": "running", **describe_program(), **facts, "seed": config["seed"]}
        self._rounds: Any = None
        self._old: Path | None = None

    def begin(self) -> None:
        """Begin to write; what was in the folder is moved aside until this run has ended."""
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
        """Go on in the folder of a run that has not ended, after these records; what came after them is cut off."""
        with _disk(self.path):
            before = read_manifest(self.path)
            kept: dict[str, Any] = {name: before[name] for name in ("start", "aside", "cwd") if name in before}
            self._manifest |= {**kept, "resumed": before.get("resumed", 0) + 1}
            place, aside = self.path.resolve(), Path(str(kept.get("aside", ""))).name
            self._old = place.with_name(aside) if aside.startswith(f"{place.name}.old-") else None
            self.begun = True
            for ended in (CHECKSUMS, "summary.json"):  # what tells of the end of a run that was interrupted
                (self.path / ended).unlink(missing_ok=True)
            write_lines(records, self.path)
            self._write_manifest()
            self._rounds = open(self.path / "rounds.jsonl", "a", encoding="utf-8")  # noqa: SIM115 - as above

    def record(self, record: dict[str, Any]) -> None:
        """Append one round."""
        with _disk(self.path):
            self.lock.check()
            self._rounds.write(json.dumps(record) + "\n")
            self._rounds.flush()

    def finish(self, result: Result, draw: Callable[[Result, Path], object] | None) -> None:
        """Write the results, and figures if there is `draw`; then mark the run as done or interrupted."""
        with _disk(self.path):
            self.lock.check()
            self._rounds.close()
            if result.summary["virtual_seconds"] is not None:  # known only now
                write_lines(result.rounds, self.path)
            save_result(result, self.path)
            if draw is not None:
                self._draw(result, draw)
            state = "interrupted" if result.summary["termination"] in STOPPED else "done"
            self.end(state, chain=result.summary["chain_sha256"])
            write_checksums(self.path)

    def _draw(self, result: Result, draw: Callable[[Result, Path], object]) -> None:
        """Draw the figures; if that fails, the run is finished all the same, and a note says so."""
        try:
            draw(result, self.path / "figures")
        except OSError:
            raise
        except Exception as error:
            result.notes.append(
                f"the figures could not be drawn ({type(error).__name__}: {error}); all results are written. Try "
                f"python -m p2pkm report {self.path}"
            )

    def end(self, state: str, **more: Any) -> None:
        """Write into the manifest how the run ended; a folder that was moved aside goes once the new run is done."""
        if self._rounds is not None:
            with suppress(OSError):  # if that fails, it has failed before and was reported
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
    """Turn a failing disk into an error that says so."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Watch."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Translate."""
        if isinstance(error, OSError):
            raise NetworkError(
                f"the run folder {self._path} cannot be written: {error.strerror or error}. Earlier files are intact; "
                "make room or choose another --out"
            ) from None


def describe_program() -> dict[str, Any]:
    """Return versions, host and command, for the manifest."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from p2pkm.core.version import __version__

    found = {}
    for name in ("numpy", "networkx", "numba", "mpi4py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {"version": __version__, "python": platform.python_version(), "libraries": found,
            "host": platform.node(), "command": sys.argv, "cwd": str(Path.cwd())}  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _to_toml(config: dict[str, Any]) -> str:
    import tomli_w

    return tomli_w.dumps(config)
