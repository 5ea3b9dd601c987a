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

_CALLS = 8  # of one function in one test are followed
_CASES = 5  # of one function of a test
_SLOW = 1.0  # seconds of the processor; a test that takes longer is not asked
_LIMIT = 40  # the same for all tests of a mutant: it ran in circles
_PATIENCE = 900  # seconds of the clock: it waits for ever
_GUESSED = 0.1  # seconds of a test that the map does not know
_LEARNED = 12  # tests that noticed mutants of the same file are asked first


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
        One row per mutant, the last of a name counts. Those that were judged are not played again, unless they survived
        fewer seconds, or there are more tests now.
    seconds : float
        Tests per mutant, until they take so long.
    mapped : bool
        Take the map as it is; of the tests that it does not know those are asked whose file is called after the module.
    everything : bool
        Ask all tests that were collected, in their order, without a map, and play what was played before.
    """

    def __init__(
        self, root: Path, mutants: dict[str, Mutant], folder: Path, results: Path, seconds: float,
        *, mapped: bool = False, everything: bool = False,
    ) -> None:  # fmt: skip
        self.root, self.mutants, self.seconds = root, mutants, seconds
        self.reach, self.results, self.note = folder / "reach.jsonl", results, folder / "note"
        self.mapped, self.everything = mapped, everything
        self.noticed, self.sound = defaultdict(Counter), set()

    def pytest_runtestloop(self, session):
        """Play all; the items themselves are run by children only, so that this process stays as it is."""
        items = {item.nodeid: item for item in session.items} if self.everything else _thin(session.items)
        reached = {} if self.everything else self._map(items)
        by_line = defaultdict(list)
        for name in items.keys() & reached.keys():
            for file, lines in reached[name]["lines"].items():
                for line in lines:
                    by_line[file, line].append(name)
        unknown = [] if self.everything else items.keys() - reached.keys()
        reached |= {name: {"seconds": _GUESSED} for name in unknown}
        played = read_rows(self.results, "key")
        for row in played.values():
            self.noticed[row["file"]][row["by"]] += row["ending"] == "killed"
        functions = Functions()
        for key, mutant in self.mutants.items():
            having = {name for line in range(mutant.line, mutant.last + 1) for name in by_line[mutant.file, line]}
            having |= {name for name in unknown if _names(name, mutant.file)}
            chosen = list(items) if self.everything else self._choose(mutant, having, reached)
            last = played.get(key)
            if last is None or self.everything or _deeper(last, self.seconds, len(having), len(chosen)):
                self._play(key, mutant, functions, [items[one] for one in chosen], len(having))
        return True

    def _map(self, items: dict) -> dict:
        """Return what each test reaches; those that are not known yet are traced, in a child that may die of it."""
        reached = read_rows(self.reach, "test")
        while not self.mapped and (left := [one for one in items if one not in reached]):
            _in_child(lambda left=left: self._trace([items[one] for one in left]), 4 * _PATIENCE, None)
            reached = read_rows(self.reach, "test")
        return reached

    def _trace(self, items) -> int:
        """Run tests in order and write down what each reaches; a test that is too slow or fails reaches nothing."""
        tracer = _Tracer(self.root)
        for item, after in zip(items, [*items[1:], None], strict=True):
            write_row(self.reach, {"test": item.nodeid, "seconds": 0.0, "lines": {}})  # if the process dies of it
            signal.signal(signal.SIGVTALRM, _give_up)
            signal.setitimer(signal.ITIMER_VIRTUAL, _SLOW)
            began = time.process_time()
            tracer.start()
            try:
                reports = runtestprotocol(item, log=False, nextitem=after)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
                tracer.stop()
            if all(one.passed for one in reports):
                lines = {name: sorted(found) for name, found in tracer.lines.items()}
                write_row(self.reach, {"test": item.nodeid, "seconds": time.process_time() - began, "lines": lines})
        return 0

    def _choose(self, mutant: Mutant, having: set, reached: dict) -> list[str]:
        """Return tests of so many seconds, first those that noticed mutants of the file, then those that name it."""
        noticed = self.noticed[mutant.file]
        learned = {name: i for i, (name, _) in enumerate(noticed.most_common(_LEARNED))}
        order, functions = [], Counter()
        for name in sorted(having, key=lambda one: (reached[one]["seconds"], one)):
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
            if not chosen or total + reached[name]["seconds"] <= self.seconds:
                chosen.append(name)
                total += reached[name]["seconds"]
        return chosen

    def _play(self, key: str, mutant: Mutant, functions: "Functions", chosen: list, having: int) -> None:
        began, spent = time.monotonic(), _spent()
        self.note.write_text("")
        code = _in_child(lambda: self._judge(mutant, functions, chosen), _PATIENCE, _LIMIT) if chosen else None
        by = self.note.read_text()
        if code == 1 and by not in self.sound:
            alone = [item for item in chosen if item.nodeid == by]
            if _in_child(lambda: self._judge(None, functions, alone), _PATIENCE, _LIMIT):
                code = 2  # that test fails by itself, too
            else:
                self.sound.add(by)
        names = {None: "unreached", 0: "survived", 1: "killed", 2: "no mutant"}
        row = {"key": key, "ending": names.get(code, "died"), "by": by} | mutant._asdict()
        before = (self.root / mutant.file).read_text("utf-8")
        row |= {
            "before": before.splitlines()[mutant.line - 1].strip(),
            "after": mutant.apply(before).splitlines()[mutant.line - 1].strip(),
            "tests": len(chosen), "reaching": having, "asked": self.seconds,
            "seconds": round(time.monotonic() - began, 2), "processor": round(_spent() - spent, 2),
        }  # fmt: skip
        self.noticed[mutant.file][by] += row["ending"] == "killed"
        if not self.everything:
            write_row(self.results, row)
        print(f"{key} {row['ending']} {mutant.file}:{mutant.line} {mutant.kind} {by}", flush=True)

    def _judge(self, mutant: Mutant | None, functions: "Functions", items: list) -> int:
        try:
            if mutant is not None:
                functions.change(self.root, mutant)
        except (SyntaxError, ValueError) as error:
            self.note.write_text(str(error))
            return 2
        for item, after in zip(items, [*items[1:], None], strict=True):
            self.note.write_text(item.nodeid)
            if not all(one.passed for one in runtestprotocol(item, log=False, nextitem=after)):
                return 1
        self.note.write_text("")
        return 0


class Functions:
    """The functions and the caches that are in memory now."""

    def __init__(self) -> None:
        gc.unfreeze()  # what was frozen after the collection of tests is in no list of objects
        self.known, self.caches = defaultdict(list), []
        for one in gc.get_objects():
            if type(one) is FunctionType:
                self.known[one.__code__.co_filename].append(one)
            elif type(one) is _lru_cache_wrapper:
                self.caches.append(one)
        gc.freeze()

    def change(self, root: Path, mutant: Mutant) -> None:
        """Give the functions of a module the code of a mutant, and forget what was kept.

        Raises
        ------
        ValueError
            If no function is changed by it.
        """
        path = str(root / mutant.file)
        text = Path(path).read_text("utf-8")
        module = mutant.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if module not in sys.modules:
            __import__(module)
            self.__init__()
        codes = {}
        for version in (text, mutant.apply(text)):
            _collect(compile(version, path, "exec", dont_inherit=True), found := {})
            codes = {key: code for key, code in found.items() if codes.get(key) != code} if codes else found
        changed = 0
        for one in self.known[path]:
            new = codes.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
            if new is not None:
                one.__code__, changed = new, changed + 1
        for cache in self.caches:
            cache.cache_clear()
        if not changed:
            raise ValueError("no function is changed")


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


def _deeper(last: dict, seconds: float, having: int, chosen: int) -> bool:
    """Return whether a mutant that is alive would be asked more now than it was."""
    if last["ending"] == "unreached":
        return having > 0
    more = having > last["reaching"] or (seconds > last["asked"] and chosen > last["tests"])
    return last["ending"] == "survived" and more


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
    found[code.co_qualname, code.co_firstlineno] = code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            _collect(one, found)


class _Tracer:
    """Lines of the package that are reached, by file."""

    def __init__(self, root: Path) -> None:
        self.root, self.lines, self.calls, self.files = root, defaultdict(set), Counter(), {}

    def start(self) -> None:
        self.lines.clear()
        self.calls.clear()
        sys.settrace(self)

    def stop(self) -> None:
        sys.settrace(None)

    def __call__(self, frame, _event, _argument):
        code = frame.f_code
        name = self.files.get(code.co_filename)
        if name is None:
            path = Path(code.co_filename)
            own = path.is_relative_to(self.root / "p2pkm")
            name = self.files[code.co_filename] = str(path.relative_to(self.root)) if own else ""
        if not name or self.calls[id(code)] == _CALLS:
            return None
        self.calls[id(code)] += 1
        reached = self.lines[name]

        def follow(frame, _event, _argument):
            reached.add(frame.f_lineno)
            return follow

        return follow


def _give_up(_signal, _frame):
    raise TimeoutError


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
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1
