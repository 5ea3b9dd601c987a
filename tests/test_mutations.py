"""The list of mutations fits the code: a text that moved or changed would never be tried again."""

import ast
from collections import Counter

from tests.support.each import each
from tests.support.mutate import ROOT, read


def test_no_two_are_the_same():
    assert max(Counter((one.file, one.old, one.new) for one in read()).values()) == 1
    assert len(read()) >= 60


@each("one", read(), ids=lambda one: one.file)
def test_it_can_be_applied(one):
    text = (ROOT / one.file).read_text("utf-8")
    assert text.count(one.old) == 1
    ast.parse(text.replace(one.old, one.new))
    assert not [name for name in one.tests if not (ROOT / name).exists()]
