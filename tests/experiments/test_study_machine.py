"""A study that grows, is interrupted, killed and damaged, by two versions of the program: always the fresh results."""

import json
import os
import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import p2pkm
from p2pkm.experiments.studies import fingerprint
from p2pkm.experiments.studies import run_study as run
from tests.support.stored_rows import list_lines, replace_line

GRAPHS = ("ring", "path")


class Killed(BaseException):
    """The process dies here: nobody may catch this."""


def rows_of(found):
    """Return the rows without what differs from run to run."""
    return [{name: value for name, value in row.items() if name != "wall_seconds"} for row in found.rows]


class Studies(RuleBasedStateMachine):
    """`whole` holds (version, points, graph, rounds, seed) of all runs that are kept, with their keys."""

    fresh: dict = {}  # noqa: RUF012 - of all machines: the rows of a study in no folder

    def __init__(self):
        super().__init__()
        self.top, self.held, self.whole, self.computed = Path(tempfile.mkdtemp()), ExitStack(), {}, []
        self.folder = self.top / "study"
        self.ends, execute = {}, run.execute

        def counting(prepared, *given):
            self.computed.append((prepared.options.graph, prepared.options.rounds, prepared.options.seed))
            end = self.ends.get(len(self.computed))
            if end == "asked":
                signal.raise_signal(signal.SIGINT)
            elif end == "killed":
                raise Killed
            return execute(prepared, *given)

        self.held.enter_context(patch.object(run, "execute", counting))
        self.held.enter_context(patch.object(os, "fsync", lambda handle: None))
        self.held.enter_context(patch.object(fingerprint, "digest_program", lambda: bytes([self.version])))

    @initialize()
    def begin(self):
        self.version = self.points = 0
        self.write()

    def teardown(self):
        self.held.close()
        shutil.rmtree(self.top)

    def write(self):
        np.save(self.top / "points.npy", np.random.default_rng(self.points).normal(size=(9, 2)))

    @rule()
    def another_version(self):
        self.version = 1 - self.version

    @rule()
    def other_points(self):
        self.points = 1 - self.points
        self.write()

    def study(self, graphs, rounds, seeds, out):
        return p2pkm.study(
            grid={"graph": graphs}, seeds=seeds, out=out, progress=False, devices=3, clusters=2,
            data=str(self.top / "points.npy"), rounds=rounds, init="local", baselines=False,
        )  # fmt: skip

    @rule(
        graphs=st.lists(st.sampled_from(GRAPHS), min_size=1, max_size=2, unique=True),
        rounds=st.sampled_from((1, 1, 2)),
        seeds=st.lists(st.integers(0, 1), min_size=1, max_size=2, unique=True),
        at=st.integers(1, 4),
        end=st.sampled_from(("", "", "asked", "killed")),
    )
    def sweep(self, graphs, rounds, seeds, at, end):
        asked = [(graph, rounds, seed) for graph in graphs for seed in seeds]
        known = self.version, self.points
        left = [one for one in asked if (*known, *one) not in self.whole]
        name = json.dumps([self.points, graphs, rounds, seeds])
        if name not in self.fresh:
            self.fresh[name] = rows_of(self.study(graphs, rounds, seeds, None))
        self.computed, self.ends = [], {at: end}
        before = list_lines(self.folder)
        try:
            found = self.study(graphs, rounds, seeds, self.folder)
        except KeyboardInterrupt:
            assert end == "asked" and len(self.computed) == at
        except Killed:
            assert end == "killed" and len(self.computed) == at
        else:
            assert self.strip(rows_of(found)) == self.strip(self.fresh[name])
            assert sorted(self.computed) == sorted(left)
            assert self.strip(rows_of(p2pkm.load_study(self.folder))) == self.strip(self.fresh[name])
        assert set(self.computed) <= set(left)
        self.ends = {}
        for key, line in list_lines(self.folder).items():
            if line != before.get(key):
                row = json.loads(line)
                self.whole[(*known, row["graph"], rounds, row["seed"])] = key
        kept = list_lines(self.folder).keys()
        assert len(self.whole) == len(set(self.whole.values())) == len(set(self.whole.values()) & kept)

    def strip(self, rows):
        """Return rows without the key, which tells versions apart."""
        return [{name: value for name, value in row.items() if name != "key"} for row in rows]

    @precondition(lambda self: self.whole)
    @rule(data=st.data(), share=st.floats(0, 0.99), how=st.sampled_from(("cut", "gone", "bytes", "digit", "list")))
    def damage(self, data, share, how):
        name = data.draw(st.sampled_from(sorted(self.whole)))
        key = self.whole[name]
        held = list_lines(self.folder)[key]
        digits = [i for i, byte in enumerate(held) if byte in b"123456789"]
        at = digits[int(share * len(digits))]
        changed = held[:at] + bytes([held[at] - 1]) + held[at + 1 :]  # it can still be read
        cut = held[: int(share * len(held))]
        new = {"cut": cut, "bytes": b"\xff\xfe{", "list": b"[1]", "digit": changed}.get(how)
        replace_line(self.folder, key, None if new is None else new + b"\n")
        del self.whole[name]

    @rule(name=st.sampled_from(("study.jsonl", "traces.jsonl")))
    def lose_a_table(self, name):
        (self.folder / name).unlink(missing_ok=True)

    @precondition(lambda self: self.folder.is_dir())
    @rule()
    def begin_anew(self):
        shutil.rmtree(self.folder)
        self.whole = {}


TestStudies = pytest.mark.slow(pytest.mark.hypothesis(Studies.TestCase))
TestStudies.settings = settings(max_examples=12, stateful_step_count=15, deadline=None)


@pytest.mark.parametrize("how", ["digit", "list"])
@pytest.mark.sample(2)
def test_a_row_that_was_changed_is_computed_anew(how, tmp_path):
    def study(out):
        return rows_of(p2pkm.study(seeds="0-1", out=out, progress=False, devices=2, clusters=1, rounds=1,
                                   data="grid16:points=1", baselines=False))  # fmt: skip

    fresh = study(tmp_path)
    key, held = min(list_lines(tmp_path).items())
    changed = held.replace(b'"messages": ', b'"messages": 1')
    replace_line(tmp_path, key, {"digit": changed, "list": b"[1]"}[how] + b"\n")
    (tmp_path / "study.jsonl").unlink()
    assert len(p2pkm.load_study(tmp_path).rows) == 1
    assert study(tmp_path) == fresh
