"""Rows of a study on a disk that fills up, from workers that are killed, and in files that are damaged."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from p2pkm.core.errors import NetworkError
from p2pkm.experiments.studies.run_study import StudyPlan
from p2pkm.storage.study_rows import RowWriter, StoredRows, list_keys
from tests.support.run_cli import environment
from tests.support.stored_rows import list_lines, replace_line, save_as_earlier_version


def row(key, value=0, error=None):
    return {"algorithm": "a", "key": key, "error": error, "termination": "failed" if error else "converged",
            "value": value, "trace": [[1, 2.5, None]]}  # fmt: skip


class Killed(BaseException):
    """The process dies here."""


class Rows(RuleBasedStateMachine):
    """`whole` holds the row of each run that is stored and was not damaged since."""

    def __init__(self):
        super().__init__()
        self.top, self.quick, self.whole = Path(tempfile.mkdtemp()), ExitStack(), {}
        self.quick.enter_context(patch.object(os, "fsync", lambda handle: None))
        self.number = 0
        self.writers = [RowWriter(self.top) for _ in range(3)]

    def teardown(self):
        for writer in self.writers:
            writer.close()
        self.quick.close()
        shutil.rmtree(self.top)

    @rule(who=st.integers(0, 2), end=st.sampled_from(("stored", "stored", "full", "killed")), room=st.integers(0, 300))
    def run(self, who, end, room):
        self.number += 1
        key, writer, write = f"{self.number:032x}", self.writers[who], os.write

        def cut(file, data):
            taken = write(file, data[: min(room, len(data) - 2)])
            if end == "killed":
                raise Killed
            return taken

        assert writer.claim(key)
        if end == "stored":
            writer.add(row(key, self.number))
            self.whole[key] = row(key, self.number)
            return
        with patch.object(os, "write", cut), pytest.raises((NetworkError, Killed)):
            writer.add(row(key, self.number))
        if end == "killed":
            # Its lock ends with the process.
            writer.close()
            self.writers[who] = RowWriter(self.top)

    @precondition(lambda self: self.whole)
    @rule(data=st.data(), share=st.floats(0, 0.99), how=st.sampled_from(("digit", "gone", "bytes", "list", "other")))
    def damage(self, data, share, how):
        key = data.draw(st.sampled_from(sorted(self.whole)))
        held = list_lines(self.top)[key]
        # Not in the key, which would become that of another run.
        behind_key = held.index(key.encode()) + len(key)
        at = [i for i, byte in enumerate(held) if byte in b"123456789" and i > behind_key]
        place = at[int(share * len(at))]
        changed = held[:place] + bytes([held[place] - 1]) + held[place + 1 :]
        if how == "other":
            # A row under the key of another run: its seal is that of the other one.
            changed = held.replace(b'"run": "', b'"run": "f', 1)
        new = {"digit": changed, "other": changed, "bytes": b"\xff\xfe{", "list": b"[1]"}.get(how)
        replace_line(self.top, key, None if new is None else new + b"\n")
        del self.whole[key]

    @invariant()
    def what_is_whole_is_read(self):
        assert StoredRows(self.top).rows == self.whole
        assert len(list(self.top.glob("runs/*"))) <= 3


TestRows = pytest.mark.hypothesis(Rows.TestCase)
TestRows.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def test_a_full_disk_keeps_what_was_stored_and_leaves_no_part_of_a_line(tmp_path):
    with RowWriter(tmp_path) as writer:
        writer.add(row("a"))
        path = tmp_path / "runs/worker-1.jsonl"
        before, write = path.read_bytes(), os.write
        with (
            patch.object(os, "write", lambda file, data: write(file, data[:50])),
            pytest.raises(NetworkError, match=f"{path} cannot be written: No space left on device. Free disk space"),
        ):
            writer.add(row("b"))
        assert path.read_bytes() == before
        writer.add(row("b"))
    assert list(StoredRows(tmp_path).rows) == ["a", "b"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "runs").write_text("not a folder")
    with pytest.raises(NetworkError, match="runs cannot be written: File exists"):
        RowWriter(tmp_path).claim("a")


def test_workers_have_a_file_each_which_later_ones_continue(tmp_path):
    for number in range(2):
        with RowWriter(tmp_path) as one, RowWriter(tmp_path) as other:
            one.add(row(f"{number}-one"))
            other.add(row(f"{number}-other"))
    assert sorted(path.name for path in tmp_path.glob("runs/*")) == ["worker-1.jsonl", "worker-2.jsonl"]
    assert len(StoredRows(tmp_path).rows) == 4 and len(list_keys(tmp_path)) == 4


def test_a_study_takes_the_rows_that_other_workers_have_stored_since(tmp_path):
    plan = StudyPlan([None] * 3, list("abc"), tmp_path)
    assert plan.missing == [0, 1, 2]
    plan.add(1, row("b"))
    with RowWriter(tmp_path) as other:
        other.add(row("a", error="x"))
        assert plan.count_elsewhere() == 0 and not plan.wait_for_others()
        assert plan.missing == [2]
        other.add(row("c"))
    assert not plan.wait_for_others() and plan.missing == []


@pytest.mark.parametrize("locks", [True, False])
def test_a_file_system_without_locks_gives_each_process_a_file(tmp_path, locks):
    import fcntl

    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    with patch.object(fcntl, "flock", fcntl.flock if locks else refuse), RowWriter(tmp_path) as writer:
        writer.add(row("a"))
        assert StoredRows(tmp_path).rows == {"a": row("a")}
    names = [path.name for path in tmp_path.glob("runs/*") if path.stat().st_size]
    assert (names == ["worker-1.jsonl"]) == locks and len(names) == 1


def test_what_others_execute_is_left_to_them_until_they_end(tmp_path):
    with RowWriter(tmp_path) as one:
        with RowWriter(tmp_path) as other:
            assert other.claim("a")
            other.add(row("a"))
            assert other.claim("b")
            other.add(row("b", error="NetworkError: no"))
            assert other.claim("c")
            # A run that failed is executed again if it is asked for.
            assert [one.claim(key) for key in "abcd"] == [False, True, False, True]
            found = StoredRows(tmp_path)
            assert {begun.key for begun in found.list_begun()[0]} == {"c", "d"} and found.count_workers() == 2
        assert [one.claim(key) for key in "abcd"] == [False, True, True, True]
        found = StoredRows(tmp_path)
        assert [begun.key for begun in found.list_begun()[0]] == ["d"]
        assert [begun.key for begun in found.list_begun()[1]] == ["c"]


def test_of_two_that_begin_a_run_at_once_one_executes_it(tmp_path):
    with RowWriter(tmp_path) as one, RowWriter(tmp_path) as other:
        append, won = one._append, []

        def both(line, *, lasting):
            append(line, lasting=lasting)
            if b"begun" in line:
                won.append(other.claim("a"))

        with patch.object(one, "_append", both):
            won.append(one.claim("a"))
        assert sorted(won) == [False, True]


def test_a_killed_worker_loses_its_last_run_alone(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from p2pkm.storage.study_rows import RowWriter\n"
        "writer = RowWriter(Path(sys.argv[1])); writer.claim('a')\n"
        "writer.add({'key': 'a', 'error': None}); writer.claim('b'); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], env=environment(), check=False, timeout=100)
    assert done.returncode == -9
    found = StoredRows(tmp_path)
    assert list(found.rows) == ["a"] and [begun.key for begun in found.list_begun()[1]] == ["b"]
    with open(tmp_path / "runs/worker-1.jsonl", "ab") as file:
        file.write(b'{"run": "b", "ke')
    assert StoredRows(tmp_path).count_damaged() == 1
    with RowWriter(tmp_path) as writer:
        writer.add(row("b"))
    assert StoredRows(tmp_path).rows == {"a": {"key": "a", "error": None}, "b": row("b")}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_whoever_continues_a_file_executes_what_was_lost_with_it(tmp_path, order):
    with RowWriter(tmp_path) as lost:
        lost.claim("a")
    with RowWriter(tmp_path, StoredRows(tmp_path).seen()) as next_one:
        assert [next_one.claim(key) for key in order] == [True, True]


def test_whoever_continues_a_file_repeats_nothing_that_it_holds(tmp_path):
    seen = StoredRows(tmp_path).seen()
    with RowWriter(tmp_path) as before:
        before.claim("a")
        before.add(row("a"))
    with RowWriter(tmp_path, seen) as next_one:
        assert [next_one.claim(key) for key in "ba"] == [True, False]


def test_of_several_rows_of_a_run_the_newest_counts(tmp_path):
    with RowWriter(tmp_path) as one, RowWriter(tmp_path) as other:
        one.claim("z")
        other.add(row("a", 1, error="NetworkError: no"))
        one.add(row("a", 2))
        found = StoredRows(tmp_path)
        assert found.rows["a"]["value"] == 2 and found.repeated == 0
        other.add(row("a", 2))
        found.refresh()
        assert found.repeated == 1


def test_rows_of_earlier_versions_are_read_and_named(tmp_path):
    (tmp_path / "runs").mkdir()
    for key in "ab":
        save_as_earlier_version(tmp_path / f"runs/{key}.json", row(key))
    damaged = tmp_path / "runs/c.json"
    damaged.write_text(json.dumps(row("c")))
    found = StoredRows(tmp_path)
    assert found.rows == {"a": row("a"), "b": row("b")} and found.earlier == {"a", "b"}
    assert found.damaged_files == [damaged] and found.count_damaged() == 1
