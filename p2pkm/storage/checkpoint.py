"""Checkpoint files: written atomically, with a checksum; the last two of a run are kept.

Format: a signature, the length of the header, the header in JSON (facts, outline, and name, type and shape of every
array), the arrays one after the other, and the SHA-256 of everything before. Reading a checkpoint executes no code.
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

from p2pkm.core.digest import digest
from p2pkm.core.errors import DataError
from p2pkm.core.version import __version__
from p2pkm.storage.lock import Lock
from p2pkm.storage.save import write_bytes

FOLDER = "checkpoint"
# Signature at the start of a file, with the version of the format.
_SIGNATURE = b"p2pkm checkpoint 2\n"
_NAME = re.compile(r"(\d{8})\.bin")
# Number of checkpoints of a run that are kept: the last one may be damaged when a machine fails.
_KEPT = 2
# Seconds between two checkpoints, unless these would take more than this share of the run time.
_PAUSE = 30.0
_SHARE = 0.025


class Checkpoint(NamedTuple):
    """Contents of a checkpoint.

    Attributes
    ----------
    facts : dict
        Facts that identify the run.
    outline : dict
        Structure of the saved state, with references to the arrays.
    arrays : dict
        Arrays of the state, in device order.
    """

    facts: dict[str, Any]
    outline: dict[str, Any]
    arrays: dict[str, Any]


def identify(config: dict[str, Any], run: Any) -> dict[str, Any]:
    """Return the facts that must be equal for a run to resume another one; points are compared separately.

    Parameters
    ----------
    config : dict
        The resolved experiment.
    run : Run
        The run with graph, channel and stream.
    """
    stream = {}
    if run.stream is not None:
        from p2pkm.data.stream import pack_stream

        stream = pack_stream(run.stream)
    return {"version": __version__, "config": config, "graph": digest(*run.topology.to_arrays().values()).hex(),
            "trace": digest(*run.channel.to_arrays().values()).hex(),
            "stream": digest(*stream.values()).hex()}  # fmt: skip


def write(folder: Path, name: str, checkpoint: Checkpoint) -> None:
    """Write a checkpoint atomically: under another name, flushed to disk, then renamed."""
    arrays = {key: np.asarray(array) for key, array in checkpoint.arrays.items()}
    layout = [[key, array.dtype.str, array.shape] for key, array in arrays.items()]
    header = json.dumps([checkpoint.facts, checkpoint.outline, layout]).encode()

    def write_content(file: Any) -> None:
        total = hashlib.sha256()
        for part in (_SIGNATURE, len(header).to_bytes(8, "little"), header, *arrays.values()):
            data: Any = part
            if isinstance(part, np.ndarray):
                data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            total.update(data)
            file.write(data)
        file.write(total.digest())

    write_bytes(folder, name, write_content)
    handle = os.open(folder, os.O_RDONLY)
    try:
        # Flushes the directory entry, so that the new name survives a failure of the machine.
        os.fsync(handle)
    finally:
        os.close(handle)


def read(path: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises
    ------
    DataError
        If the file is not a complete checkpoint.
    """
    try:
        data = memoryview(path.read_bytes())
        checksum = hashlib.sha256(data[:-32]).digest()
        start = len(_SIGNATURE)
        if data[:start] != _SIGNATURE or data[-32:] != checksum:
            raise ValueError("its checksum is wrong")
        first = start + 8 + int.from_bytes(data[start : start + 8], "little")
        facts, outline, layout = json.loads(bytes(data[start + 8 : first]))
        arrays = {}
        for name, kind, shape in layout:
            count = int(np.prod(shape, dtype=np.int64))
            arrays[name] = np.frombuffer(data, kind, count, first).reshape(shape)
            first += arrays[name].nbytes
        return Checkpoint(facts, outline, arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"checkpoint {path} cannot be read: {error}") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """List the checkpoint files of a run folder, the last one first."""
    place = folder / FOLDER
    return sorted((path for path in place.glob("*.bin") if _NAME.fullmatch(path.name)), reverse=True)


def load_newest(folder: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """Load the last valid checkpoint of a run folder, None without any; damaged ones are reported."""
    for path in list_checkpoints(folder):
        try:
            return read(path)
        except DataError as error:
            report(f"{error}. The previous checkpoint is used")
    return None


class CheckpointWriter:
    """Writer of the checkpoints of a run, on rank 0.

    Parameters
    ----------
    lock : Lock
        Lock of the run folder.
    every : int or None
        Rounds between two checkpoints; None: about every 30 s, 0: never.
    facts : callable
        Returns the facts that identify the run; called once.
    tell : callable
        Receives messages for the user.
    """

    def __init__(
        self, lock: Lock, every: int | None, facts: Callable[[], dict[str, Any]], tell: Callable[[str], None]
    ) -> None:
        self._lock = lock
        self._every = every
        self._facts = cache(facts)
        self._tell = tell
        self._next = time.monotonic() + _PAUSE
        self._begun = 0.0

    def is_due(self, t: int) -> bool:
        """Return whether a checkpoint is due after round t of a stage."""
        if self._every is None:
            return time.monotonic() >= self._next
        return self._every > 0 and t % self._every == 0

    @property
    def is_enabled(self) -> bool:
        """Whether the run has checkpoints."""
        return self._every != 0

    def start_timer(self) -> None:
        """Note the start of the work on a checkpoint, to limit its share of the run time."""
        self._begun = time.monotonic()

    def report_unavailable(self, reason: str) -> None:
        """Report why a checkpoint was not written."""
        self._tell(f"no checkpoint could be written: {reason}. The run continues without it")

    def put(self, outline: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Write a checkpoint and remove those before the last two; a failure of the disk is only reported."""
        folder = self._lock.folder
        existing = list_checkpoints(folder)
        number = int(existing[0].stem) + 1 if existing else 1
        try:
            self._lock.check()
            (folder / FOLDER).mkdir(exist_ok=True)
            write(folder / FOLDER, f"{number:08}.bin", Checkpoint(self._facts(), outline, arrays))
        except OSError as error:
            self.report_unavailable(str(error.strerror or error))
        else:
            self._remove(existing[_KEPT - 1 :])
        now = time.monotonic()
        self._next = now + max(_PAUSE, (now - self._begun) / _SHARE)

    def _remove(self, old: list[Path]) -> None:
        for path in old:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                self._tell(
                    f"checkpoint {path} could not be removed: {error.strerror or error}. The run continues; remove the "
                    "file later"
                )
