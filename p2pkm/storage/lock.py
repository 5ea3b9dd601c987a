"""Lock of a folder: only one process at a time writes there, and its lock ends with the process."""

import errno
import fcntl
import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from p2pkm.core.errors import ExperimentError

NAME = "p2pkm.lock"
# Largest number of folders with the same base name.
_MOST = 10_000
# Attempts and seconds between them: 1 s for another process to write its identity, to release a lock, or to finish the
# short test of a lock.
_ATTEMPTS = 21
_PAUSE = 0.05


class Lock:
    """Lock of a folder, held until it is released or this process ends.

    The file ``p2pkm.lock`` in the folder contains host and process id and is locked by ``flock``. NFS forwards this
    lock to its server, so that other hosts see it. On file systems without locks, the process that created the file
    holds the folder, until the file is removed or the process has ended on the same host.

    Parameters
    ----------
    folder : Path
        Folder to lock. Created if it does not exist, and then removed with the lock if it is empty.
    new : bool
        Whether the program chose the name: an existing folder belongs to another run, and `make_new_folder` creates one
        with the next free name.

    Raises
    ------
    ExperimentError
        If another process, or another lock of this process, holds the folder; with host and process id.
    OSError
        If the lock cannot be written.
    """

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        parents = [parent for parent in folder.parents if not parent.exists()]
        is_created = new or not folder.exists()
        self.folder = make_new_folder(folder) if new else folder
        self._made = [self.folder] * is_created + parents
        self._file: int | None = None
        try:
            self._file = _open_locked(self.folder)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(process_identity()).encode() + b"\n", 0)
            os.fsync(self._file)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    @property
    def is_held(self) -> bool:
        """Whether the folder is still the locked one: it was not removed, moved or replaced."""
        return self._file is not None and _same(self._file, self.folder / NAME)

    def check(self) -> None:
        """Validate, before every write, that the folder is still the locked one.

        Raises
        ------
        OSError
            If the folder was removed, moved or replaced.
        """
        if not self.is_held:
            moved = "it was removed or moved, and another folder is in its place"
            raise OSError(errno.ENOENT, moved if self.folder.exists() else os.strerror(errno.ENOENT))

    def release(self) -> None:
        """Release the folder; further calls do nothing."""
        if self.is_held:
            with suppress(OSError):
                (self.folder / NAME).unlink()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        for folder in self._made:
            # A folder that is not empty, or was removed, raises OSError.
            with suppress(OSError):
                folder.rmdir()


def make_new_folder(path: Path) -> Path:
    """Create a new folder with this name or, if it exists, with -2, -3, ... appended; return it.

    Several processes that choose the same name at the same time get different folders.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """
    for number in range(1, _MOST):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        # The name exists; or another process has just removed the empty parent, as `Lock.release` does.
        with suppress(FileExistsError, FileNotFoundError):
            folder.mkdir()
            return folder
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def describe_lock_holder(folder: Path) -> str:
    """Describe the process that holds the lock of a folder; empty if the folder is not locked."""
    for _ in range(_ATTEMPTS):
        try:
            with open(folder / NAME, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            owner = _read(folder)
        except OSError:
            return _describe_without_flock(folder)
        if owner and not process_has_ended(owner):
            return _describe(owner)
        # The process has locked the file, but has not written its identity yet.
        time.sleep(_PAUSE)
    return _describe({})


def _describe_without_flock(folder: Path) -> str:
    """Describe the holder as `describe_lock_holder` does, if the file system is without locks or the file missing."""
    owner = _read(folder)
    if process_has_ended(owner) or not (folder / NAME).is_file():
        return ""
    return f"{_describe(owner)} (if it has ended, remove {folder / NAME})"


def check_not_locked(folder: Path) -> None:
    """Validate that no process holds a folder.

    Raises
    ------
    ExperimentError
        If a process holds it; with host and process id.
    """
    process = describe_lock_holder(folder)
    if process:
        raise ExperimentError(
            f"{folder} is in use: {process} writes there. Wait for it, end it, or choose another folder"
        )


def _open_locked(folder: Path) -> int:
    """Create, open and lock the lock file of a folder; return its descriptor."""
    was_created = False
    for _ in range(_ATTEMPTS):
        # Another process may remove the empty folder in between, as `Lock.release` does.
        with suppress(FileNotFoundError):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                # It was removed after mkdir had found it, and before mkdir asked whether it is a folder.
                if folder.exists() and not folder.is_dir():
                    raise
            was_created = True
            file = _try(folder / NAME)
            if file is not None:
                return file
        time.sleep(_PAUSE)
    # As in /proc, where a folder cannot be created although mkdir reports only that a parent does not exist.
    if not was_created:
        raise ExperimentError(f"{folder} cannot be created. Choose another --out")
    check_not_locked(folder)
    raise ExperimentError(
        f"{folder} was locked by other processes in {_ATTEMPTS} attempts. Try again, or choose another folder"
    )


def _try(path: Path) -> int | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        made = True
    except FileExistsError:
        file = os.open(path, os.O_RDWR)
        made = False
    if _lock(file, path, made) and _same(file, path):
        return file
    os.close(file)
    return None


def _lock(file: int, path: Path, made: bool) -> bool:
    """Lock a file; return whether it is locked.

    On a file system without locks, the process that created the file holds it. The file of a process that has ended is
    removed, so that the next attempt can create it.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not made and process_has_ended(_read(path.parent)):
            path.unlink(missing_ok=True)
        return made
    return True


def _same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def process_identity() -> dict[str, Any]:
    """Return host, process id and start of this process; the start excludes later processes with the same id."""
    return {"host": platform.node(), "process": os.getpid(), "process_began": process_start(os.getpid())}


def _read(folder: Path) -> dict[str, Any]:
    """Read the identity of the process in a lock file; empty if the file is missing or damaged."""
    try:
        content = json.loads((folder / NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    is_valid = (
        isinstance(content, dict) and isinstance(content.get("process"), int) and 0 < content["process"] < 1 << 31
    )
    return content if is_valid else {}


def _describe(owner: dict[str, Any]) -> str:
    return f"process {owner['process']} on {owner.get('host')}" if owner else "another process"


def process_has_ended(owner: dict[str, Any]) -> bool:
    """Return whether a process is known to have ended; False for processes on other hosts."""
    if owner.get("host") != platform.node():
        return False
    try:
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return True
    # The process belongs to another user, so it exists.
    except OSError:
        return False
    return process_start(owner["process"]) != owner.get("process_began")


def process_start(process: int) -> str | None:
    """Return the start of a process as text in system clock ticks; None if the process has ended or is unknown."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]
