"""The lock of a folder: one process at a time writes there, and its lock dies with it."""

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
_MOST = 10_000  # folders of one name
_LOOKS, _PAUSE = 21, 0.05  # a holder has this long to write its name, one that ends to go, one that looks to look away


class Lock:
    """Hold a folder until it is released, or until this process dies, however it does.

    The file ``p2pkm.lock`` in it names host and process and is locked by ``flock``, which NFS passes on to its
    server, so that other hosts see it. Where a file system knows no locks, whoever makes the file holds the folder,
    until it is removed or the process that it names has died on the same host.

    Parameters
    ----------
    folder : Path
        Made if it is new, and removed with the lock if nothing else is in it then.
    new : bool
        Whether the name was chosen by the program: a folder that exists is another one's, and `make_new_folder` makes
        one of the next free name.

    Raises
    ------
    ExperimentError
        If another process, or another lock of this one, holds it; with host and process id.
    OSError
        If the lock cannot be written.
    """

    def __init__(self, folder: Path, *, new: bool = False) -> None:
        parents = [place for place in folder.parents if not place.exists()]
        own = new or not folder.exists()
        self.folder = make_new_folder(folder) if new else folder
        self._made = [self.folder] * own + parents
        self._file: int | None = None
        try:
            self._file = _seize(self.folder)
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, json.dumps(sign()).encode() + b"\n", 0)
            os.fsync(self._file)
        except BaseException:
            self.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    @property
    def kept(self) -> bool:
        """Return whether the folder is still the one that was locked: nobody has removed, moved or replaced it."""
        return self._file is not None and _same(self._file, self.folder / NAME)

    def check(self) -> None:
        """Do what must come before every write.

        Raises
        ------
        OSError
            If the folder is no longer the one that was locked.
        """
        if not self.kept:
            moved = "it was removed or moved, and another is in its place"
            raise OSError(errno.ENOENT, moved if self.folder.exists() else os.strerror(errno.ENOENT))

    def release(self) -> None:
        """Let others have the folder; once is enough."""
        if self.kept:
            with suppress(OSError):
                (self.folder / NAME).unlink()
        if self._file is not None:
            os.close(self._file)
            self._file = None
        for place in self._made:
            with suppress(OSError):  # it is not empty, or gone
                place.rmdir()


def make_new_folder(path: Path) -> Path:
    """Make a folder that did not exist, and return it: of this name, or with -2, -3, ... behind it.

    Of several processes that choose the same name at once, each gets its own.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    for number in range(1, _MOST):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError, FileNotFoundError):  # taken; or the empty parent was just removed by another
            place.mkdir()
            return place
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def describe_lock_holder(folder: Path) -> str:
    """Return in words who holds a folder, nothing if nobody does."""
    for _ in range(_LOOKS):
        try:
            with open(folder / NAME, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return ""
        except BlockingIOError:
            owner = _read(folder)
        except OSError:
            return _judge(folder)
        if owner and not died(owner):
            return _describe(owner)
        time.sleep(_PAUSE)  # it has not written its name yet
    return _describe({})


def _judge(folder: Path) -> str:
    """Return what `describe_lock_holder` does where there are no locks, or no file."""
    owner = _read(folder)
    if died(owner) or not (folder / NAME).is_file():
        return ""
    return f"{_describe(owner)} (if it has ended, remove {folder / NAME})"


def refuse_held(folder: Path) -> None:
    """Refuse a folder that somebody holds.

    Raises
    ------
    ExperimentError
        With host and process id.
    """
    who = describe_lock_holder(folder)
    if who:
        raise ExperimentError(f"{folder} is in use: {who} writes there; wait for it, end it, or choose another folder")


def _seize(folder: Path) -> int:
    """Return the open and locked file of a folder."""
    for _ in range(_LOOKS):
        with suppress(FileNotFoundError):  # another process is just leaving the folder
            folder.mkdir(parents=True, exist_ok=True)
            file = _try(folder / NAME)
            if file is not None:
                return file
        time.sleep(_PAUSE)
    if not folder.is_dir():  # as in /proc, where nobody makes one
        raise ExperimentError(f"{folder} cannot be written: there is no way to make it; choose another --out")
    refuse_held(folder)
    raise ExperimentError(f"{folder} is in use by one run after the other; try again, or choose another folder")


def _try(path: Path) -> int | None:
    try:
        file, made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        file, made = os.open(path, os.O_RDWR), False
    if _lock(file, path, made) and _same(file, path):
        return file
    os.close(file)
    return None


def _lock(file: int, path: Path, made: bool) -> bool:
    """Lock a file; without locks its maker has it, and that of a dead process goes, for the next look to make anew."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not made and died(_read(path.parent)):
            path.unlink(missing_ok=True)
        return made
    return True


def _same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def sign() -> dict[str, Any]:
    """Return what tells this process from all others, also from a later one with the same number."""
    return {"host": platform.node(), "process": os.getpid(), "process_began": process_start(os.getpid())}


def _read(folder: Path) -> dict[str, Any]:
    """Return what the file says of its owner, nothing if it cannot be told."""
    try:
        found = json.loads((folder / NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    known = isinstance(found, dict) and isinstance(found.get("process"), int) and 0 < found["process"] < 1 << 31
    return found if known else {}


def _describe(owner: dict[str, Any]) -> str:
    return f"process {owner['process']} on {owner.get('host')}" if owner else "another process"


def died(owner: dict[str, Any]) -> bool:
    """Return whether a process is known to have died; nothing is known of those of other hosts."""
    if owner.get("host") != platform.node():
        return False
    try:
        os.kill(owner["process"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # of another user
    return process_start(owner["process"]) != owner.get("process_began")


def process_start(process: int) -> str | None:
    """Find the start of a process, as the system writes it; None if the process is dead or its start is unknown."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]
