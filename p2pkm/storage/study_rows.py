"""Rows of the runs of a study: lines of JSON in one file per worker, which only appends; all are merged when read.

A worker locks its file as long as it lives, and notes the run that it begins. So others know which runs are in
progress, and which were lost with their worker. A line that was cut by a full disk or a killed process is recognized by
its checksum; its run is missing then. Earlier versions wrote one file for each run.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from p2pkm.core.errors import NetworkError
from p2pkm.storage.lock import process_identity

Row = dict[str, Any]
RUNS = "runs"  # folder of the rows
OPTIONS = "options"  # key of the options of the run in a stored row
_CHECKSUM = "sha256"  # key of the checksum in the file of a run of earlier versions
_RUN = "run"  # first entry of the line of a row, the key of its run
_ENDED = "ended"  # key of the time at which a run has ended, in seconds since 1970
_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"\}')  # end of the line of a row
_START = re.compile(rb'\{"(run|begun)": "([^"\\]+)"')  # start of every line
_MOST_WORKERS = 100_000


class Begun(NamedTuple):
    """Run that a worker has begun.

    Attributes
    ----------
    key : str
    time : float
        In seconds since 1970.
    file : Path
        File of the worker.
    """

    key: str
    time: float
    file: Path


class Seen(NamedTuple):
    """State of the rows in a folder at some time.

    Attributes
    ----------
    read : dict of Path to int
        Bytes of each file.
    begun : dict of Path to Begun
        Run in progress of each worker.
    """

    read: Mapping[Path, int]
    begun: Mapping[Path, Begun]


NOTHING = Seen({}, {})


class StoredRows:
    """Rows in the folder of a study, by the keys of their runs.

    Parameters
    ----------
    folder : Path or None
        Folder of the study, which may not exist yet; None: a study without a folder, which has no rows.

    Attributes
    ----------
    rows : dict of str to dict
        Row of each run that has ended, the newest if there are several.
    ends : dict of str to float
        Times of their ends, in seconds since 1970; rows of earlier versions have none.
    earlier : set of str
        Keys of rows that an earlier version has written, each in a file of its own.
    damaged_files : list of Path
        Files of an earlier version that are not rows.
    repeated : int
        Number of runs that have ended without an error more than once.

    Raises
    ------
    OSError
        If a file cannot be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._place = None if folder is None else folder / RUNS
        self._read: dict[Path, int] = {}  # bytes of each file that have been read
        self._begun: dict[Path, Begun] = {}  # the last run that each worker has begun
        self.rows: dict[str, Row] = {}
        self.ends: dict[str, float] = {}
        self.earlier: set[str] = set()
        self.damaged_files: list[Path] = []
        self._damaged = self.repeated = 0
        self.refresh()

    def refresh(self) -> None:
        """Read what was added since the last call."""
        for path in _list_files(self._place, ".json"):
            if path in self._read:
                continue
            self._read[path] = 0
            try:
                row = _read_row_of_earlier_version(path)
            except ValueError:
                self.damaged_files.append(path)
                continue
            self.rows.setdefault(row["key"], row)
            self.earlier.add(row["key"])
        for path in _list_files(self._place, ".jsonl"):
            for line in self._list_new_lines(path):
                self._take(line, path)

    def _list_new_lines(self, path: Path) -> Iterator[bytes]:
        lines, self._read[path] = _read_lines(path, self._read.get(path, 0))
        yield from lines

    def _take(self, line: bytes, path: Path) -> None:
        begun = _read_begun(line, path)
        if begun is not None:
            self._begun[path] = begun
            return
        text = _find_text(line)
        if text is None:
            self._damaged += 1
            return
        row: Row = json.loads(text)
        key, ended = row.pop(_RUN), row.pop(_ENDED)
        known = self.rows.get(key)
        if known is not None and known.get("error") is None and row.get("error") is None:
            self.repeated += 1
        self.earlier.discard(key)
        if known is None or ended >= self.ends.get(key, 0.0):
            self.rows[key], self.ends[key] = row, ended

    def seen(self) -> Seen:
        """Return how far each file was read, and the runs that have begun, so that a `RowWriter` can continue."""
        begun = {path: last for path, last in self._begun.items() if self.ends.get(last.key, 0.0) < last.time}
        return Seen(dict(self._read), begun)

    def count_damaged(self) -> int:
        """Return the number of lines and files that are not rows; their runs are missing."""
        cut = [path for path, read in self._read.items() if path.stat().st_size > read and path.suffix == ".jsonl"]
        return self._damaged + len(self.damaged_files) + sum(not _is_locked(path) for path in cut)

    def list_begun(self) -> tuple[list[Begun], list[Begun]]:
        """Return the runs in progress, and those whose worker has ended without their row."""
        open_runs = [begun for begun in self._begun.values() if self.ends.get(begun.key, 0.0) < begun.time]
        running = [begun for begun in open_runs if _is_locked(begun.file)]
        return running, [begun for begun in open_runs if begun not in running]

    def count_workers(self) -> int:
        """Return the number of workers that are alive."""
        return sum(_is_locked(path) for path in self._begun)


class RowWriter:
    """File of one worker, to which it appends rows; it is created with the first run and locked until it is closed.

    A file that a worker before has left is continued.

    Parameters
    ----------
    folder : Path or None
        Folder of the study; None: nothing is written.
    seen : Seen
        What the caller knows of the rows of other workers.
    """

    def __init__(self, folder: Path | None, seen: Seen = NOTHING) -> None:
        self._place = None if folder is None else folder / RUNS
        self._file: int | None = None
        self._path = Path()
        self._others = dict(seen.read)  # bytes of the files of other workers that have been read
        self._ended: set[str] = set()  # keys of runs that others have ended
        self._begun = dict(seen.begun)  # the last run that each of the others has begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def claim(self, key: str) -> bool:
        """Note that this worker begins a run; return whether it shall, because no other worker does or has done so.

        Of two workers that begin a run at the same time, the first one by the clocks of their machines executes it.

        Raises
        ------
        NetworkError
            If it cannot be written.
        """
        if self._place is None:
            return True
        if key in self._ended or any(begun.key == key for begun in self._begun.values()):
            # As known from the last run; it may be false by now only if that worker was ended.
            self._look()
        if key in self._ended:
            return False
        now = time.time()
        self._append(json.dumps({"begun": key, "time": now}).encode(), lasting=False)
        self._look()
        others = [begun for begun in self._begun.values() if begun.key == key]
        return key not in self._ended and all((now, self._path) < (begun.time, begun.file) for begun in others)

    def add(self, row: Row) -> None:
        """Store the row of a run that has ended, under its ``key``.

        Raises
        ------
        NetworkError
            If it cannot be written; what was written before remains.
        """
        if self._place is None:
            return
        text = json.dumps({_RUN: row["key"]} | row | {_ENDED: time.time()}).encode()
        seal = hashlib.sha256(text).hexdigest()
        self._append(text[:-1] + f', "sha256": "{seal}"}}'.encode(), lasting=True)

    def _look(self) -> None:
        """Read what other workers have begun and ended."""
        for path in _list_files(self._place, ".jsonl"):
            if path != self._path:
                self._read_on(path)
        for path in [path for path in self._begun if not _is_locked(path)]:
            # Its worker was ended before the run.
            del self._begun[path]

    def _read_on(self, path: Path) -> None:
        """Read the new lines in the file of another worker."""
        lines, self._others[path] = _read_lines(path, self._others.get(path, 0))
        for line in lines:
            start, begun = _START.match(line), _read_begun(line, path)
            if begun is not None:
                self._begun[path] = begun
            elif start is not None:
                key = start[2].decode()
                if path in self._begun and self._begun[path].key == key:
                    del self._begun[path]
                # A failed run that is asked for again is not taken.
                if b'"error": null' in line and _find_text(line) is not None:
                    self._ended.add(key)

    def _append(self, line: bytes, *, lasting: bool) -> None:
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            before = os.fstat(self._file).st_size
            if os.write(self._file, line + b"\n") <= len(line):
                # The disk is full: without the rest, the part would be a damaged line.
                os.ftruncate(self._file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if lasting:
                os.fsync(self._file)
        except OSError as error:
            raise NetworkError(
                f"{self._path} cannot be written: {error.strerror or error}. Free disk space and run the command again"
            ) from None

    def _open(self) -> None:
        """Open the first file that no living worker has locked."""
        assert self._place is not None
        self._path = self._place
        self._place.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST_WORKERS):
            self._path = self._place / f"worker-{number}.jsonl"
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
                continue
            except OSError:
                # A file system without locks: a file that no other worker has.
                os.close(file)
                owner = process_identity()
                name = f"worker-{owner['host']}-{owner['process']}-{owner['process_began'] or ''}.jsonl"
                self._path = self._place / name
                file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            break
        self._file = file
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            # The worker before was ended within a line.
            os.write(file, b"\n")
        # What the worker before has ended is not repeated; what it had begun is, although its file is locked now.
        self._read_on(self._path)
        self._begun.pop(self._path, None)

    def close(self) -> None:
        """Release the file; further calls do nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def list_keys(folder: Path | None) -> set[str]:
    """List the keys of the runs that have ended, without reading their rows."""
    keys = set()
    for path in _list_files(None if folder is None else folder / RUNS, ".jsonl"):
        for line in _read_lines(path, 0)[0]:
            start = _START.match(line)
            if start is not None and start[1] == b"run":
                keys.add(start[2].decode())
    return keys


def _list_files(place: Path | None, suffix: str) -> list[Path]:
    """List the files with this suffix; none if the folder does not exist."""
    if place is None:
        return []
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(place / name for name in os.listdir(place) if name.endswith(suffix) and not name.startswith("."))
    return []


def _read_lines(path: Path, start: int) -> tuple[list[bytes], int]:
    """Return the complete lines from a position on, and the position after them."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size <= start:
            return [], start
        file.seek(start)
        content = file.read()
    end = content.rfind(b"\n") + 1
    return [line for line in content[:end].split(b"\n") if line], start + end


def _read_begun(line: bytes, path: Path) -> Begun | None:
    """Return the run that a line says to have begun; None for any other line."""
    start = _START.match(line)
    if start is None or start[1] != b"begun":
        return None
    try:
        return Begun(start[2].decode(), float(json.loads(line)["time"]), path)
    except (ValueError, KeyError, TypeError):
        return None


def _find_text(line: bytes) -> bytes | None:
    """Return the text of a row without its seal; None if it was cut or changed."""
    seal = _SEAL.search(line, max(len(line) - 80, 0))
    if seal is None or seal.end() != len(line):
        return None
    text = line[: seal.start()] + b"}"
    if hashlib.sha256(text).hexdigest().encode() != seal[1]:
        return None
    return text


def parse_row(text: str | bytes) -> Row:
    """Parse a row; raise a ValueError if the text does not contain one."""
    try:
        row = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(row, dict):
        raise ValueError("a row is not an object")
    return row


def _read_row_of_earlier_version(path: Path) -> Row:
    """Read a file with the row of one run.

    Raises
    ------
    ValueError
        If the row was changed, or belongs to another file name.
    """
    row = parse_row(path.read_bytes())
    digest = row.pop(_CHECKSUM, None)
    if digest != hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest() or row["key"] != path.stem:
        raise ValueError(f"{path} is damaged")
    return row


def _is_locked(path: Path) -> bool:
    """Return whether a living worker holds a file."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        # A file system without locks cannot tell.
        return False
    return False
