"""Tests are collected once; every mutant is played in a fork of this process, whose functions alone are changed."""

import gc
import json
import os
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from functools import _lru_cache_wrapper
from pathlib import Path
from types import CodeType, FunctionType

from _pytest.runner import runtestprotocol

from tests.mutants.operators import Mutant

_CALLS = 4  # of one function in one test are followed
_CASES = 6  # of one function of a test
_SLOW = 3.0  # seconds of the processor; a test that takes longer is not asked
_LIMIT = 120  # the same for all tests of a mutant: it ran in circles
_PATIENCE = 900  # seconds of the clock: it waits for ever


class Player:
    """A plug-in of pytest that plays mutants instead of running the tests.

    Parameters
    ----------
    root : Path
    mutants : list of Mutant
    reach : Path
        Which lines each test reaches: JSON lines, made if they are not there.
    results : Path
        JSON lines, one per mutant; those in it are not played again.
    seconds : float
        Tests per mutant, the quickest first, until they take so long.
    mapped : bool
        Take `reach` as it is, though it does not know all tests.
    """

    def __init__(
        self, root: Path, mutants: list[Mutant], reach: Path, results: Path, seconds: float, *, mapped: bool
    ) -> None:
        self.root, self.mutants, self.reach, self.results, self.seconds = root, mutants, reach, results, seconds
        self.mapped = mapped

    def pytest_runtestloop(self, session):
        """Play all; the items themselves are run by children only, so that this process stays as it is."""
        items = _thin(session.items)
        reached = self._rows(self.reach, "test")
        while not self.mapped and (left := [item for name, item in items.items() if name not in reached]):
            _in_child(lambda left=left: self._trace(left), 4 * _PATIENCE, None)
            reached = self._rows(self.reach, "test")
        played = self._rows(self.results, "number")
        for number, mutant in enumerate(self.mutants):
            if number not in played:
                self._play(number, mutant, reached, items)
        return True

    @staticmethod
    def _rows(path: Path, key: str) -> dict:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
        return {row[key]: row for row in rows}

    def _trace(self, items) -> int:
        """Run tests in order and write down what each reaches; a test that is too slow or fails reaches nothing."""
        for item, after in zip(items, [*items[1:], None], strict=True):
            _write(self.reach, {"test": item.nodeid, "seconds": 0.0, "lines": {}})  # stays, if the process dies of it
            signal.signal(signal.SIGVTALRM, _give_up)
            signal.setitimer(signal.ITIMER_VIRTUAL, _SLOW)
            tracer, began = _Tracer(self.root), time.process_time()
            sys.settrace(tracer)
            try:
                reports = runtestprotocol(item, log=False, nextitem=after)
            finally:
                sys.settrace(None)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            if all(one.passed for one in reports):
                lines = {name: sorted(found) for name, found in tracer.lines.items()}
                _write(self.reach, {"test": item.nodeid, "seconds": time.process_time() - began, "lines": lines})
        return 0

    def _play(self, number: int, mutant: Mutant, reached: dict, items: dict) -> None:
        wanted = set(range(mutant.line, mutant.last + 1))
        having = [row for row in reached.values() if wanted.intersection(row["lines"].get(mutant.file, ()))]
        having.sort(key=lambda row: row["seconds"])
        chosen, total = [], 0.0
        for row in having:
            total += row["seconds"]
            if chosen and total > self.seconds:
                break
            if row["test"] in items:
                chosen.append(items[row["test"]])
        began, note = time.monotonic(), self.results.with_suffix(".note")
        note.write_text("")
        code = _in_child(lambda: self._judge(mutant, chosen, note), _PATIENCE, _LIMIT) if chosen else None
        by = note.read_text()
        if code == 1 and _in_child(lambda: self._judge(None, [items[by]], note), _PATIENCE, _LIMIT):
            code = 2  # that test fails by itself, too
        names = {None: "unreached", 0: "survived", 1: "killed", 2: "no mutant"}
        row = mutant._asdict() | {
            "number": number, "ending": names.get(code, "died"), "by": by, "tests": len(chosen),
            "reaching": len(having), "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        _write(self.results, row)
        print(f"{number} {row['ending']} {mutant.file}:{mutant.line} {mutant.kind} {by}", flush=True)

    def _judge(self, mutant: Mutant | None, items: list, note: Path) -> int:
        try:
            if mutant is not None:
                change_functions(self.root, mutant)
        except (SyntaxError, ValueError) as error:
            note.write_text(str(error))
            return 2
        for item, after in zip(items, [*items[1:], None], strict=True):
            note.write_text(item.nodeid)
            if not all(one.passed for one in runtestprotocol(item, log=False, nextitem=after)):
                return 1
        note.write_text("")
        return 0


def change_functions(root: Path, mutant: Mutant) -> None:
    """Give the functions of a module that are in memory the code of a mutant, and forget what they kept.

    Raises
    ------
    ValueError
        If no function is changed by it.
    """
    path = str(root / mutant.file)
    codes = {}
    text = Path(path).read_text("utf-8")
    __import__(mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for version in (text, mutant.apply(text)):
        _collect(compile(version, path, "exec", dont_inherit=True), found := {})
        codes = {key: code for key, code in found.items() if codes.get(key) != code} if codes else found
    changed = 0
    gc.unfreeze()  # what was frozen after the collection of tests is in no list of objects
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename == path:
            new = codes.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if new is not None:
                one.__code__, changed = new, changed + 1
        elif type(one) is _lru_cache_wrapper:
            one.cache_clear()
    if not changed:
        raise ValueError("no function is changed")


def _thin(items: list) -> dict:
    """Return the tests by name, of each function of a test at most so many cases, spread over all."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    return {item.nodeid: item for same in cases.values() for item in same[:: -(-len(same) // _CASES)]}


def _collect(code: CodeType, found: dict) -> None:
    found[code.co_qualname, code.co_firstlineno] = code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            _collect(one, found)


class _Tracer:
    """Lines of the package that are reached, by file."""

    def __init__(self, root: Path) -> None:
        self.root, self.lines, self.calls, self.files = root, defaultdict(set), Counter(), {}

    def __call__(self, frame, _event, _argument):
        code = frame.f_code
        name = self.files.get(code.co_filename)
        if name is None:
            path = Path(code.co_filename)
            own = path.is_relative_to(self.root / "p2pkm")
            name = self.files[code.co_filename] = str(path.relative_to(self.root)) if own else ""
        if not name:
            return None
        self.calls[name, code.co_firstlineno] += 1
        if self.calls[name, code.co_firstlineno] > _CALLS:
            return None
        reached = self.lines[name]

        def follow(frame, _event, _argument):
            reached.add(frame.f_lineno)
            return follow

        return follow


def _give_up(_signal, _frame):
    raise TimeoutError


def _write(path: Path, row: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _in_child(work, patience: float, limit: int | None) -> int:
    """Return what work returns in a fork of this process; -1 if that dies, or takes longer than it may."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            if limit:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = work()
        finally:
            os._exit(code)
    ends = time.monotonic() + patience
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1
