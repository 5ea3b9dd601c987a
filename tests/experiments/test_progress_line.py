"""The line that shows how far a run is: on a terminal or in a notebook, never elsewhere, never on standard output."""

import io
import itertools
import sys
import time
import types

import pytest

import p2pkm
import topologies
from p2pkm.experiments import progress_line
from p2pkm.experiments.progress_line import ProgressLine

RECORD = {"stage": "gtvmin", "round": 30, "ratio_mean": 1.25}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(time, "monotonic", itertools.count(0.0, 60.0).__next__)
    shown = Terminal()
    monkeypatch.setattr(progress_line, "sys", types.SimpleNamespace(stderr=shown, modules={}))
    return shown


def solve(**options):
    X, y = p2pkm.grid16(points=3, seed=0)
    shards = p2pkm.Shards.deal(X, [i % 3 for i in range(len(X))], devices=3, labels=y)
    return p2pkm.simulate(p2pkm.GTVMin(2), topologies.ring(3), shards, rounds=2, **options)


def test_a_line_tells_stage_round_and_quality(terminal):
    line = ProgressLine("gtvmin", 120)
    line(RECORD | {"stage": "local", "ratio_mean": None})
    line(RECORD)
    line.close()
    assert terminal.getvalue().split("\r\x1b[2K") == [
        "", "local, round 30", "gtvmin [######..................] round 30 of at most 120, cost ratio 1.2500", "",
    ]  # fmt: skip


def test_short_runs_and_scripts_show_nothing(terminal, monkeypatch):
    with monkeypatch.context() as within_a_second:
        within_a_second.setattr(time, "monotonic", itertools.count(0.0, 0.01).__next__)
        line = ProgressLine("gtvmin", 120)
        line(RECORD)
        line.close()
    monkeypatch.setattr(Terminal, "isatty", lambda self: False)
    ProgressLine("gtvmin", 120)(RECORD)
    assert terminal.getvalue() == ""


def test_a_run_shows_it_unless_told_not_to(terminal, capsys):
    expected = solve(progress=False)
    assert terminal.getvalue() == ""
    found = solve()
    assert "gtvmin [" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[2K")
    assert found.summary["centroids_sha256"] == expected.summary["centroids_sha256"]
    assert capsys.readouterr().out == ""


def test_a_notebook_has_one_line_that_changes(terminal, monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda content, raw: shown.append(content["text/plain"]))

    def display(content, raw, display_id):
        assert raw and display_id and not shown
        shown.append(content["text/plain"])
        return handle

    monkeypatch.setitem(progress_line.sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    line = ProgressLine("gtvmin", 120)
    line(RECORD)
    line(RECORD | {"round": 60})
    line.close()
    assert len(shown) == 3 and "round 60" in shown[1] and shown[2] == "" and terminal.getvalue() == ""
