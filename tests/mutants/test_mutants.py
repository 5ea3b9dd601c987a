"""The mutants are what they say, they reach the functions in memory, and the score has its interval."""

import ast
import subprocess
import sys

import pytest

from tests.mutants.__main__ import PACKAGES, ROOT, draw, report, wilson
from tests.mutants.operators import find_mutants

TEXT = '''
def f(a, b: int = 3):
    """Text."""
    if not a and b < 2:
        raise ValueError(f"{a + 1} is wrong")
    g(a, b)
    return a[1:] + [min(b, 4)]


LIMIT = 5
'''
WANTED = {
    ("boolean", "(not a or b < 2)"), ("boolean", "(not a)"), ("boolean", "(b < 2)"), ("unary", "(a)"),
    ("compare", "(b <= 2)"), ("constant", "3"), ("constant", "(1)"), ("dropped", "pass"), ("arguments", "g(b, a)"),
    ("return", "return None"), ("operator", "(a[1:] - [min(b, 4)])"), ("constant", "2"), ("constant", "(0)"),
    ("twin", "max"), ("arguments", "min(4, b)"), ("constant", "5"), ("constant", "(3)"),
    ("condition", "(not (not a and b < 2))"),
}  # fmt: skip


def test_every_kind_of_change_and_nothing_outside_of_functions():
    found = find_mutants("f.py", TEXT)
    assert {(one.kind, one.new) for one in found} == WANTED
    for one in found:
        changed = one.apply(TEXT)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(TEXT))
        assert changed.splitlines()[-1] == "LIMIT = 5" and len(changed.splitlines()) == len(TEXT.splitlines())


def test_what_stands_on_two_lines_leaves_the_others_where_they_were():
    text = "def f(a, b):\n    a += (b +\n          1)\n    return a\n"
    for one in find_mutants("f.py", text):
        assert len(one.apply(text).splitlines()) == 4
        ast.parse(one.apply(text))


def test_a_text_that_has_changed_is_refused():
    one = find_mutants("f.py", TEXT)[0]
    with pytest.raises(ValueError, match="drawn from"):
        one.apply("\n" + TEXT)


@pytest.mark.slow
def test_the_draw_takes_the_packages_in_turn_and_fewer_are_the_first_of_more():
    more, fewer = draw(21, 4), draw(7, 4)
    assert [one.file.split("/")[1] for one in more.values()] == list(PACKAGES) * 3
    assert list(fewer) == list(more)[:7] and len(more) == 21


def test_names_of_mutants_stay_where_another_function_is_edited_and_no_two_are_the_same():
    before, after = (find_mutants("f.py", text) for text in (TEXT, "def e(c):\n    return c + 7\n\n" + TEXT))
    names, later = ({one.rank(3): one for one in found} for found in (before, after))
    assert len(names) == len(before) and len(later) == len(after)
    assert names.keys() < later.keys() and {later[one].function for one in later.keys() - names.keys()} == {"e"}
    assert not names.keys() & {one.rank(4) for one in before}


def test_the_same_change_twice_in_a_method_has_two_names():
    found = find_mutants("f.py", "class A:\n    def f(self, a):\n        return [a < 1, a < 1]\n")
    twice = [one for one in found if one.new == "(a <= 1)"]
    assert [one.ordinal for one in twice] == [0, 1] and {one.function for one in found} == {"A.f"}
    assert twice[0].rank(0) != twice[1].rank(0)


CHANGED = """
import gc, weakref

from p2pkm.storage.run_folder import _content
from tests.mutants.__main__ import ROOT
from tests.mutants.operators import find_mutants
from tests.mutants.play import Functions, _in_child

path = "p2pkm/storage/run_folder.py"
mutants = find_mutants(path, (ROOT / path).read_text("utf-8"))
(one,) = (one for one in mutants if one.old.startswith("return [entry for entry in path.iterdir()"))
gone = weakref.proxy(set())  # which raises when it is asked for its class
gc.freeze()

def work():
    Functions(ROOT).change([one])
    gc.unfreeze()
    assert any(other is gone for other in gc.get_objects())
    return 7 if _content(ROOT) is None else 0

assert _in_child(work, 60.0) == 7 and _content(ROOT)
"""
TESTS = """
import functools, subprocess, pytest
from p2pkm.core.sorting import blocks, narrow

@pytest.fixture(scope="module")
def found():
    return narrow(1 << 20), narrow(1 << 40)

def test_of_a_fixture(found):
    assert found[0] is not found[1]

def test_of_the_same_fixture(found):
    assert found[0].__name__ == "int32"

def test_in_circles():
    assert [len(range(3)[one]) for one in blocks(3, 1 << 30)] == [1, 1, 1]

def test_of_another_process():
    narrow(2)
    subprocess.run(["true"], check=True)

def test_that_fails():
    assert narrow(2) is None
"""
PLAYED = """
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, WORDS
from tests.mutants.operators import find_mutants
from tests.mutants.play import Player, read_rows

folder, path = Path(sys.argv[1]), "p2pkm/core/sorting.py"
found = find_mutants(path, (ROOT / path).read_text("utf-8"))
mutants = {str(i): one for i, one in enumerate(found) if one.function in {"blocks", "narrow"}}
endings = []
for name, seconds, together in (("first", 9.0, False), ("then", 0.0, True)):
    results = folder / f"{name}.jsonl"
    player = Player(ROOT, mutants, folder, results, seconds, together=together)
    assert pytest.main([str(folder / "test_some.py"), *WORDS, "-c", "/dev/null"], plugins=[player]) == 0
    endings.append({key: row["ending"] for key, row in read_rows(results, "key").items()})
first, then = ({key: ending != "survived" for key, ending in one.items()} for one in endings)
assert first == then and len(mutants) > 20 and 5 < sum(first.values()) < len(mutants)
reach = read_rows(folder / "reach.jsonl", "test")
lines = {name.partition("::")[2]: row["lines"].get(path, []) for name, row in reach.items()}
assert lines["test_of_a_fixture"] == lines["test_of_the_same_fixture"] != []
assert lines["test_of_another_process"] == lines["test_that_fails"] == [] != lines["test_in_circles"]
"""
ENDLESS = """
import os

from tests.mutants.play import _in_child

assert _in_child(lambda: os.waitpid(os.getppid(), 0) and 0, 0.2) != 0
"""


@pytest.mark.slow
def test_mutants_one_by_one_and_together_end_alike(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    words = [sys.executable, "-c", PLAYED, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", [CHANGED, ENDLESS], ids=["changed", "endless"])
def test_a_fork_runs_the_changed_function_alone_and_is_ended_where_it_does_not_end(program):
    subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=ROOT, check=True, timeout=120)


def test_the_interval_of_wilson():
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998, method 3
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_the_report_counts_what_no_test_reaches_as_alive():
    row = {
        "file": "p2pkm/core/a.py",
        "line": 3,
        "function": "f",
        "before": "a",
        "after": "b",
        "tests": 1,
        "reaching": 2,
    }
    rows = [row | {"key": i, "ending": e} for i, e in enumerate(("killed", "survived", "unreached", "died"))]
    text = report(rows)
    assert (
        "| core | 4 | 2 | 1 | 50% | 15% to 85% |" in text
        and "2 unreached p2pkm/core/a.py:3 f: a -> b (1 of 2 tests)" in text
    )
