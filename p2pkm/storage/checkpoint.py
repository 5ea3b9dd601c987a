"""Checkpoints on disk: each is written at once or not at all, has a checksum, and the last two are kept.

A file begins with a word that names the format and ends with SHA-256 of all that stands before. In between: the length
of a header, the header in JSON (facts, outline, and name, type and shape of every array), and the arrays one after the
other. Nothing in it is ever executed.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.cache import digest
from p2pkm.core.errors import DataError
from p2pkm.core.version import __version__
from p2pkm.data.stream import pack_stream
from p2pkm.storage.lock import Lock
from p2pkm.storage.save import write_bytes

FOLDER = "checkpoint"
_WORD = b"p2pkm checkpoint 2\n"
_NAME = re.compile(r"(\d{8})\.bin")
_KEPT = 2
_PAUSE, _SHARE = 30.0, 0.025  # seconds between two of them, or more, so that they take no more of the time than this


class Checkpoint(NamedTuple):
    """What was read: facts about the run, the outline of the tree, its arrays in device order."""

    facts: dict[str, Any]
    outline: dict[str, Any]
    arrays: dict[str, Any]


def identify(config: dict[str, Any], run: Any) -> dict[str, Any]:
    """Return what a run must have in common with the one that goes on with it; its points are compared by themselves.

    Parameters
    ----------
    config : dict
        The resolved experiment.
    run : RunConfig
    """
    return {"version": __version__, "config": config, "graph": digest(*run.topology.to_arrays().values()).hex(),
            "trace": digest(*run.channel.to_arrays().values()).hex(),
            "stream": digest(*pack_stream(run.stream).values()).hex()}  # fmt: skip


def write(folder: Path, name: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint under another name, see it on the disk, and rename it."""
    arrays = {key: np.asarray(array) for key, array in checkpoint.arrays.items()}
    listed = [[key, array.dtype.str, array.shape] for key, array in arrays.items()]
    header = json.dumps([checkpoint.facts, checkpoint.outline, listed]).encode()

    def put(file: Any) -> None:
        total = hashlib.sha256()
        for part in (_WORD, len(header).to_bytes(8, "little"), header, *arrays.values()):
            data: Any = part
            if isinstance(part, np.ndarray):
                data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            total.update(data)
            file.write(data)
        file.write(total.digest())

    write_bytes(folder, name, put)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name, too
    finally:
        os.close(handle)


def read(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    DataError
        If it is not whole, or not a checkpoint.
    """
    try:
        data = memoryview(path.read_bytes())
        total, word = hashlib.sha256(data[:-32]).digest(), len(_WORD)
        if data[:word] != _WORD or data[-32:] != total:
            raise ValueError("its checksum is wrong")
        first = word + 8 + int.from_bytes(data[word : word + 8], "little")
        facts, outline, listed = json.loads(bytes(data[word + 8 : first]))
        arrays = {}
        for name, kind, shape in listed:
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(data, kind, count, first).reshape(shape)
            first += arrays[name].nbytes
        return Checkpoint(facts, outline, arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"checkpoint {path} cannot be read: {error}") from None


def listed(folder: Path) -> list[Path]:
    """Return the checkpoints of a run folder, the last one first."""
    place = folder / FOLDER
    return sorted((path for path in place.glob("*.bin") if _NAME.fullmatch(path.name)), reverse=True)


def load_newest(folder: Path, tell: Callable[[str], None]) -> Checkpoint | None:
    """Return the last checkpoint of a run folder that is whole, None without any; the others are told of."""
    for path in listed(folder):
        try:
            return read(path)
        except DataError as error:
            tell(f"{error}; the one before is used")
    return None


class CheckpointWriter:
    """Where rank 0 puts the checkpoints of a run, and when.

    Parameters
    ----------
    lock : Lock
        Of the run folder.
    every : int or None
        Rounds between two of them; None: about every 30 s, 0: never.
    facts : callable
        Returns what tells this run from others, asked once.
    tell : callable
        Gets what the user should know.
    """

    def __init__(
        self, lock: Lock, every: int | None, facts: Callable[[], dict[str, Any]], tell: Callable[[str], None]
    ) -> None:
        self._lock, self._every, self._facts, self._tell = lock, every, cache(facts), tell
        self._next = time.monotonic() + _PAUSE
        self._begun = 0.0

    def is_due(self, t: int) -> bool:
        """Return whether it is time for one after round t of a stage."""
        if self._every is None:
            return time.monotonic() >= self._next
        return self._every > 0 and t % self._every == 0

    @property
    def is_enabled(self) -> bool:
        """Return whether there are ever any."""
        return self._every != 0

    def start_timer(self) -> None:
        """Take the time from which on a checkpoint is being made."""
        self._begun = time.monotonic()

    def report_unavailable(self, reason: str) -> None:
        """State why there is no checkpoint."""
        self._tell(f"no checkpoint could be written: {reason}; the run goes on without")

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write one and remove those before the last two; if the disk fails, say so and go on."""
        place = self._lock.folder
        there = listed(place)
        number = int(there[0].stem) + 1 if there else 1
        try:
            self._lock.check()
            (place / FOLDER).mkdir(exist_ok=True)
            write(place / FOLDER, f"{number:08}.bin", Checkpoint(self._facts(), outline, arrays))
        except OSError as error:
            self.report_unavailable(str(error.strerror or error))
        else:
            self._remove(there[_KEPT - 1 :])
        now = time.monotonic()
        self._next = now + max(_PAUSE, (now - self._begun) / _SHARE)

    def _remove(self, old: list[Path]) -> None:
        for path in old:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._tell(f"checkpoint {path} could not be removed: {error.strerror or error}; the run goes on")
