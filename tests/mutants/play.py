"""Tests are collected once; every mutant is played in a fork of this process, whose functions alone are changed."""

import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from functools import _lru_cache_wrapper
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from p2pkm.kernels import compile_ahead
from tests.mutants.operators import Mutant

_CALLS = 8  # of one function in one test that reach no new line, then it is not followed any more
_CASES = 5  # of one function of a test
_SLOW = 0.5  # seconds of the processor; a test that takes longer is not asked
_LIMIT = 3  # the same, and ten times what it took, for a test of a mutant: it runs in circles
_PATIENCE = 60  # seconds in which this process was not held itself: it waits for ever
_LEARNED = 12  # tests that noticed mutants of the same file are asked first
_OURS = "p2pkm", "topologies"
_IMPORTED = {*_OURS, "sklearn", "scipy", "networkx", "pandas"}  # modules that tests load late
_RATE = 0.05  # first guess at the share of alive mutants that one more test notices


class Player:
    """A plug-in of pytest that plays mutants instead of running the tests.

    Parameters
    ----------
    root : Path
    mutants : dict of str to Mutant
        By their names.
    folder : Path
        Of JSON lines: `reach.jsonl`, which lines each test reaches, made if it is not there, and the results.
    results : Path
        One row per mutant, the last of a name counts. Those that were judged are not played again.
    seconds : float
        Tests per mutant, until they take so long.
    mapped : bool
        Take the map as it is; the tests that it does not know are not asked.
    together : bool
        Ask all other tests that reach those that are alive, each test about many mutants at once.
    everything : bool
        Ask all tests that were collected, in their order, without a map, and play what was played before.
    """

    def __init__(
        self, root: Path, mutants: dict[str, Mutant], folder: Path, results: Path, seconds: float,
        *, mapped: bool = False, together: bool = False, everything: bool = False,
    ) -> None:  # fmt: skip
        self.root, self.mutants, self.seconds = root, mutants, seconds
        self.reach, self.results, self.note = folder / "reach.jsonl", results, folder / "note"
        self.mapped, self.together, self.everything = mapped, together, everything
        self.noticed, self.sound, self.reached, self.modules = defaultdict(Counter), {}, {}, []

    def pytest_sessionstart(self, session):
        """Let properties look for no smaller example, and keep none for the next mutant."""
        settings.register_profile("mutants", settings(database=None, phases=(Phase.explicit, Phase.generate)))
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session):
        """Play all; the items themselves are run by children only, so that this process stays as it is."""
        self.items = {item.nodeid: item for item in session.items} if self.everything else _thin(session.items)
        compile_ahead()
        if not self.everything:
            self._map()
        reaching = self._find_reaching()
        for name in sorted({_name_module(one.file) for one in self.mutants.values()}.union(*self.modules)):
            import_module(name)  # here, and not in every fork
        self.functions = Functions(self.root)
        played = read_rows(self.results, "key")
        for row in played.values():
            self.noticed[row["file"]][row["by"]] += row["ending"] == "killed"
        for key in self.mutants:
            if key not in played or self.everything:
                chosen = list(self.items) if self.everything else self._choose(self.mutants[key], reaching[key])
                self._play(key, chosen, len(reaching[key]))
        if self.together:
            self._play_together(reaching)
        return True

    def _map(self) -> None:
        """Find what each test reaches; those that are not known yet are traced, in a child that may die of it."""
        known = read_rows(self.reach, "test")
        while not self.mapped and (left := [one for one in self.items if one not in known]):
            ended = _in_child(lambda left=left: self._trace([self.items[one] for one in left]), 1000 * _PATIENCE)
            known, self.mapped = read_rows(self.reach, "test"), ended == -signal.SIGTERM  # by hand: it is enough
        self.reached = {name: row for name, row in known.items() if name in self.items and row["lines"]}
        self.modules = [row["modules"] for row in self.reached.values()]

    def _trace(self, items) -> int:
        """Run tests in order and write down what each reaches; a test that is too slow or fails reaches nothing.

        So does one that starts another process. What was computed for an earlier test is computed again.
        """
        tracer = _Tracer(self.root)
        functions = Functions(self.root)
        functions.change([])
        kept = [one for one in functions.caches if one.__module__.startswith("tests.")]
        items[0].config.pluginmanager.register(tracer)
        sys.addaudithook(_refuse_processes)
        for item, after in zip(items, [*items[1:], None], strict=True):
            write_row(self.reach, {"test": item.nodeid, "seconds": 0.0, "lines": {}})  # if the process dies of it
            for cache in kept:
                cache.cache_clear()
            signal.signal(signal.SIGVTALRM, _give_up)
            signal.setitimer(signal.ITIMER_VIRTUAL, _SLOW)
            began, modules = time.process_time(), set(sys.modules)
            tracer.start()
            try:
                reports = runtestprotocol(item, log=False, nextitem=after)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                tracer.stop()
            if all(one.passed for one in reports):
                row = {
                    "test": item.nodeid,
                    "seconds": round(time.process_time() - began, 4),
                    "lines": tracer.tell(item),
                }
                new = [name for name in sys.modules if name not in modules and name.partition(".")[0] in _IMPORTED]
                write_row(self.reach, row | {"modules": new})
        return 0

    def _find_reaching(self) -> dict[str, set[str]]:
        """Return the tests that reach each mutant."""
        by_line = defaultdict(list)
        for name, row in self.reached.items():
            for file, lines in row["lines"].items():
                for line in lines:
                    by_line[file, line].append(name)
        return {
            key: {name for line in range(one.line, one.last + 1) for name in by_line[one.file, line]}
            for key, one in self.mutants.items()
        }

    def _choose(self, mutant: Mutant, having: set) -> list[str]:
        """Return tests of so many seconds, first those that noticed mutants of the file, then those that name it."""
        noticed = self.noticed[mutant.file]
        learned = {name: i for i, (name, _) in enumerate(noticed.most_common(_LEARNED))}
        order, functions = [], Counter()
        for name in sorted(having, key=lambda one: (self.reached[one]["seconds"], one)):
            function = name.partition("[")[0]
            order.append((
                learned.get(name, _LEARNED),
                not _names(name, mutant.file),
                functions[function],
                len(order),
                name,
            ))
            functions[function] += 1
        chosen, total = [], 0.0
        for *_, name in sorted(order):
            if not chosen or total + self.reached[name]["seconds"] <= self.seconds:
                chosen.append(name)
                total += self.reached[name]["seconds"]
        return chosen

    def _play(self, key: str, chosen: list[str], having: int) -> None:
        mutant, began, by, ending = self.mutants[key], _spent(), "", "unreached"
        if not self.functions.changes(mutant):
            ending = "no mutant"
        elif chosen:
            code = self._judge([mutant], chosen)
            by = self.note.read_text()
            ending = {0: "survived", 1: "killed"}.get(code, "died")
            if code and not self._is_sound(by):
                ending = "no mutant"
        self._write(key, ending, by, len(chosen), having, _spent() - began)

    def _write(self, key: str, ending: str, by: str, asked: int, having: int, seconds: float) -> None:
        mutant = self.mutants[key]
        before = (self.root / mutant.file).read_text("utf-8")
        row = {"key": key, "ending": ending, "by": by} | mutant._asdict()
        row |= {
            "before": before.splitlines()[mutant.line - 1].strip(),
            "after": mutant.apply(before).splitlines()[mutant.line - 1].strip(),
            "tests": asked, "reaching": having, "seconds": round(seconds, 2),
        }  # fmt: skip
        self.noticed[mutant.file][by] += ending == "killed"
        if not self.everything:
            write_row(self.results, row)
        print(f"{key} {ending} {mutant.file}:{mutant.line} {mutant.kind} {by}", flush=True)

    def _play_together(self, reaching: dict[str, set[str]]) -> None:
        """Ask one test after the other, the quickest first, about groups of all mutants that are alive and reached.

        A group that a test does not notice is alive; one that it notices is halved until the mutants are known.
        """
        done = self.results.with_suffix(".asked")
        asked = {name: set(row["keys"]) for name, row in read_rows(done, "test").items()}
        alive = {key for key, row in read_rows(self.results, "key").items() if row["ending"] == "survived"}
        alive &= self.mutants.keys()
        by_test = defaultdict(set)
        for key in alive:
            for name in reaching[key]:
                by_test[name].add(key)
        tries, kills = 20, 20 * _RATE
        for name in sorted(by_test, key=lambda one: self.reached[one]["seconds"]):
            left = sorted(by_test[name] & alive - asked.get(name, set()))
            dead = set()
            for group in self._group(left, max(1, int(0.7 * tries / kills))):
                dead |= (found := self._halve(name, group))
                tries, kills = tries + len(group), kills + len(found)
            for key in dead:
                self._write(key, "killed", name, 0, len(reaching[key]), 0.0)
            alive -= dead
            if left:
                write_row(done, {"test": name, "keys": sorted(asked.get(name, set()).union(left) - dead)})
        for key in sorted(alive):
            self._write(key, "survived", "", len(reaching[key]), len(reaching[key]), 0.0)

    def _group(self, keys: list[str], size: int) -> list[list[str]]:
        """Return groups of so many mutants at most, no two of which change the same function."""
        groups = []
        for key in keys:
            codes = self.functions.changes(self.mutants[key]).keys()
            for group, taken in groups:
                if len(group) < size and not taken & codes:
                    break
            else:
                group, taken = [], set()
                groups.append((group, taken))
            group.append(key)
            taken |= codes
        return [group for group, _ in groups]

    def _halve(self, name: str, group: list[str]) -> set[str]:
        """Return which mutants of a group one test notices."""
        if not self._judge([self.mutants[key] for key in group], [name]) or not self._is_sound(name):
            return set()
        if len(group) == 1:
            return set(group)
        middle = len(group) // 2
        return self._halve(name, group[:middle]) | self._halve(name, group[middle:])

    def _is_sound(self, name: str) -> bool:
        """Return whether a test passes without any mutant."""
        if name not in self.sound:
            self.sound[name] = self._judge([], [name]) == 0
        return self.sound[name]

    def _judge(self, mutants: list[Mutant], names: list[str]) -> int:
        """Return 0 if all tests pass with these mutants in a fork of this process; the first that fails is noted."""
        self.note.write_text("")

        def work() -> int:
            self.functions.change(mutants)
            for name, after in zip(names, [*names[1:], None], strict=True):
                self.note.write_text(name)
                known = self.reached[name]["seconds"] if name in self.reached else 4.0
                limit = int(time.process_time() + _LIMIT + 10 * known) + 1
                resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
                reports = runtestprotocol(self.items[name], log=False, nextitem=after and self.items[after])
                if any(one.failed for one in reports):
                    return 1
            self.note.write_text("")
            return 0

        return _in_child(work, _PATIENCE)


class Functions:
    """The functions and the caches that are in memory now."""

    def __init__(self, root: Path) -> None:
        self.root, self.known, self.caches, self._changes = root, defaultdict(list), [], {}
        gc.unfreeze()  # what was frozen after the collection of tests is in no list of objects
        for one in gc.get_objects():
            if type(one) is FunctionType:
                code = one.__code__
                self.known[code.co_filename, code.co_qualname, code.co_firstlineno].append(one)
            elif type(one) is _lru_cache_wrapper and one.__module__.partition(".")[0] in {*_OURS, "tests"}:
                self.caches.append(one)
        gc.freeze()

    def changes(self, mutant: Mutant) -> dict:
        """Return the new code of the functions in memory that a mutant changes."""
        if mutant not in self._changes:
            path = str(self.root / mutant.file)
            text = Path(path).read_text("utf-8")
            old, new = ({}, {})
            for version, found in ((text, old), (mutant.apply(text), new)):
                _collect(compile(version, path, "exec", dont_inherit=True), found)
            self._changes[mutant] = {
                key: code for key, code in new.items() if code != old.get(key) and key in self.known
            }
        return self._changes[mutant]

    def change(self, mutants: list[Mutant]) -> None:
        """Give the functions of mutants their new code, and forget what was kept."""
        for mutant in mutants:
            for key, code in self.changes(mutant).items():
                for one in self.known[key]:
                    one.__code__ = code
        for cache in self.caches:
            cache.cache_clear()


def read_rows(path: Path, key: str) -> dict:
    """Return the rows of a file of JSON lines by one of their values; the last of each counts."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    return {row[key]: row for row in rows}


def write_row(path: Path, row: dict) -> None:
    """Append a row to a file of JSON lines."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def _names(test: str, file: str) -> bool:
    """Return whether a test is in a file that is called after a module."""
    return Path(file).stem.strip("_") in Path(test.partition("::")[0]).stem


def _spent() -> float:
    """Return the seconds of the processor of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _thin(items: list) -> dict:
    """Return the tests by name, of each function of a test at most so many cases, the first of all functions first."""
    cases = defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    few = [same[:: -(-len(same) // _CASES)] for same in cases.values()]
    return {same[i].nodeid: same[i] for i in range(_CASES) for same in few if i < len(same)}


def _collect(code: CodeType, found: dict) -> None:
    found[code.co_filename, code.co_qualname, code.co_firstlineno] = code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            _collect(one, found)


class _Tracer:
    """Lines of the package that are reached, by file; those of a fixture count for all tests that it is made for."""

    def __init__(self, root: Path) -> None:
        self.root, self.lines, self.calls, self.files, self.fixtures = root, defaultdict(set), Counter(), {}, {}

    def start(self) -> None:
        self.lines = defaultdict(set)
        self.calls.clear()
        threading.settrace(self)
        sys.settrace(self)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def tell(self, item) -> dict[str, list[int]]:
        """Return what a test reached, with its fixtures."""
        for same in item._fixtureinfo.name2fixturedefs.values():
            for one in same:
                for name, found in self.fixtures.get(one, {}).items():
                    self.lines[name] |= found
        return {name: sorted(found) for name, found in self.lines.items()}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        if fixturedef.scope == "function":
            return (yield)
        outer, self.lines = self.lines, defaultdict(set)
        self.calls.clear()
        try:
            return (yield)
        finally:
            self.fixtures[fixturedef], self.lines = self.lines, outer
            self.calls.clear()

    def __call__(self, frame, _event, _argument):
        code = frame.f_code
        name = self.files.get(code.co_filename)
        if name is None:
            path = Path(code.co_filename)
            own = any(path.is_relative_to(self.root / name) for name in _OURS)
            name = self.files[code.co_filename] = str(path.relative_to(self.root)) if own else ""
        if not name or self.calls[id(code)] == _CALLS:
            return None
        self.calls[id(code)] += 1
        reached = self.lines[name]

        def follow(frame, _event, _argument):
            if frame.f_lineno not in reached:
                reached.add(frame.f_lineno)
                self.calls[id(code)] = 0
            return follow

        return follow


def _name_module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _give_up(_signal, _frame):
    raise TimeoutError


def _refuse_processes(event, _arguments):
    if event in {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"}:
        raise OSError("what another process does is not traced")


def _in_child(work, patience: float) -> int:
    """Return what work returns in a fork of this process; -1 if it takes longer than it may, less than 0 if it dies."""
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            code = work()
        finally:
            os._exit(code)
    for _ in range(int(patience / 0.005)):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1
