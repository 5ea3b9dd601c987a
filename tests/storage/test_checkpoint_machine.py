"""Checkpoints on a disk that fails, is cut off, or is written to by another process."""

import errno
import io
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from p2pkm.core.errors import ExperimentError
from p2pkm.storage import checkpoint, lock, save
from p2pkm.storage.lock import NAME, Lock

FULL, BROKEN = OSError(errno.ENOSPC, "No space left on device"), OSError(errno.EIO, "Input/output error")


class Killed(BaseException):
    """The process dies here: nobody may catch this."""


class Disk(io.FileIO):
    """A file that takes a few bytes at a time, and fails once it has taken so many."""

    def __init__(self, path, mode, room, error):
        super().__init__(path, mode)
        self.room, self.error = room, error

    def write(self, data):
        if self.room <= 0:
            raise self.error
        taken = min(7, self.room, len(data))
        self.room -= taken
        return super().write(bytes(data[:taken]))


def fail(where, room, error):
    """Return what makes one place of writing a file fail, entered as a context."""

    def refuse(*_given, **_named):
        raise error

    def opened(path, mode):
        return io.BufferedWriter(Disk(path, mode, room, error))

    syncs = iter(range(10))
    sync = os.fsync

    def sync_name(handle):
        return sync(handle) if next(syncs) == 0 else refuse()

    place, name, new = {
        "write": (save, "open", opened), "fsync": (os, "fsync", refuse),
        "rename": (Path, "replace", refuse), "name": (os, "fsync", sync_name), "nothing": (save, "FULL", None),
    }[where]  # fmt: skip
    return patch.object(place, name, new, create=True)


PLACES = ("nothing", "write", "fsync", "rename", "name")


class Checkpoints(RuleBasedStateMachine):
    """`whole` holds what was written and is not damaged, by number; a write that fails may leave its own or none."""

    def __init__(self):
        super().__init__()
        self.top, self.quick = Path(tempfile.mkdtemp()), ExitStack()
        self.quick.enter_context(patch.object(lock, "_PAUSE", 0.0))
        self.quick.enter_context(patch.object(os, "fsync", lambda handle: None))
        self.folder, self.whole, self.told, self.count = self.top / "run", {}, [], 0
        self.lock = Lock(self.folder)
        (self.folder / "config.toml").write_text("")  # so that the folder stays when its lock is released
        self.open()

    def teardown(self):
        self.lock.release()
        self.quick.close()
        shutil.rmtree(self.top)

    def open(self):
        self.writer = checkpoint.CheckpointWriter(self.lock, 1, lambda: {"seed": 3}, self.told.append)

    def names(self, pattern="*.bin"):
        return {path.name for path in (self.folder / checkpoint.FOLDER).glob(pattern)}

    @rule(where=st.sampled_from(PLACES), room=st.integers(0, 900), kill=st.booleans(), full=st.booleans())
    def put(self, where, room, kill, full):
        error = Killed() if kill else FULL if full else BROKEN
        self.count += 1
        values = np.arange(self.count, dtype=float)
        before, left, told = self.names(), self.names(".*.partial"), len(self.told)
        with fail(where, room, error):
            try:
                self.writer.put({"turn": self.count}, {"values": values, "none": np.zeros((0, 2))})
            except Killed:
                assert kill
        new = self.names() - before
        assert len(new) <= 1
        if where in {"nothing", "name"}:
            assert len(new) == 1
        if where in {"fsync", "rename"}:
            assert not new
        for name in new:
            self.whole[name] = self.count
        self.whole = {name: count for name, count in self.whole.items() if name in self.names()}
        if where == "nothing":
            assert len(self.told) == told and len(self.names()) <= 2
        elif not kill and not new:
            assert len(self.told) == told + 1
            assert error.strerror in self.told[-1] and "The run continues without it" in self.told[-1]
        if not kill:
            assert self.names(".*.partial") <= left
        else:
            self.die()

    def die(self):
        """Let another process take the folder up: the lock of the one before has died with it."""
        os.close(self.lock._file)
        self.lock = Lock(self.folder)
        self.open()

    @precondition(lambda self: self.whole)
    @rule(data=st.data(), share=st.floats(0, 0.99), how=st.sampled_from(("cut", "flip", "empty", "gone")))
    def damage(self, data, share, how):
        name = data.draw(st.sampled_from(sorted(self.whole)))
        path = self.folder / checkpoint.FOLDER / name
        held = bytearray(path.read_bytes())
        at = int(share * len(held))
        if how == "flip":
            held[at] ^= 1
        path.write_bytes({"cut": held[:at], "flip": held, "empty": b"", "gone": b""}[how])
        if how == "gone":
            path.unlink()
        del self.whole[name]

    @rule()
    def second(self):
        with pytest.raises(ExperimentError, match="is in use"):
            Lock(self.folder)

    @rule()
    def replaced(self):
        """Somebody moves the folder away and begins another run in its place: nothing is written there."""
        away = self.top / "away"
        self.folder.rename(away)
        with Lock(self.folder):
            told = len(self.told)
            self.writer.put({}, {})
            assert len(self.told) == told + 1 and "another folder is in its place" in self.told[-1]
            assert os.listdir(self.folder) == [NAME]
        away.rename(self.folder)

    @invariant()
    def reads_the_last_that_is_whole(self):
        found, told = checkpoint.load_newest(self.folder, self.told.append), self.told
        if not self.whole:
            assert found is None
            return
        wanted = self.whole[max(self.whole)]
        assert found.outline == {"turn": wanted} and found.facts == {"seed": 3}
        assert found.arrays["values"].tolist() == list(range(wanted)) and found.arrays["none"].shape == (0, 2)
        damaged = sum(name > max(self.whole) for name in self.names())
        assert not [text for text in told[len(told) - damaged :] if "The previous checkpoint is used" not in text]


TestCheckpoints = pytest.mark.hypothesis(Checkpoints.TestCase)
TestCheckpoints.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
