"""The mark sample(n) leaves a sample of the cases of a test among the quick ones, and none is lost."""

from itertools import product
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_collection_modifyitems


class Case:
    """A case of a test with the attributes that the hook of collection reads."""

    def __init__(self, every, lists, indices, slow=False):
        self.parent, self.originalname = SimpleNamespace(nodeid="file"), "test"
        self.callspec = SimpleNamespace(indices=indices)
        self.lists = [pytest.mark.parametrize(names, []).mark for names in lists]
        self.marks = {"sample": pytest.mark.sample(every).mark} | ({"slow": pytest.mark.slow.mark} if slow else {})

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def iter_markers(self, name):
        return self.lists

    def add_marker(self, mark):
        self.marks[mark.name] = mark


def quick(cases):
    pytest_collection_modifyitems(cases)
    return [case.callspec.indices for case in cases if not case.get_closest_marker("slow")]


@pytest.mark.parametrize(("one", "other"), [(4, 3), (3, 4), (6, 3), (9, 5)])
def test_of_two_lists_all_entries_stay(one, other):
    cases = [Case(3, ["a", "b, c"], {"a": a, "b": b, "c": b}) for a, b in product(range(one), range(other))]
    kept = quick(cases)
    assert {indices["a"] for indices in kept} == set(range(one))
    assert {indices["b"] for indices in kept} == set(range(other))
    assert one * other // 3 <= len(kept) <= one * other // 3 + 1


def test_of_one_list_one_of_every_n_stays():
    assert quick([Case(5, [("a", "b")], {"a": a, "b": a}) for a in range(11)]) == [{"a": a, "b": a} for a in (0, 5, 10)]


def test_one_stays_also_where_others_were_slow_before():
    cases = [Case(3, ["a"], {"a": a}, slow=a in {0, 3}) for a in range(5)]
    assert quick(cases) == [{"a": 1}]
