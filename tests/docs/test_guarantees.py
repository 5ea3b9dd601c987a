"""Which methods have a privacy guarantee: the trait `guarantee` says it, and all texts repeat it."""

import re
from pathlib import Path

import pytest

from p2pkm.cli.algorithms import describe, explain
from p2pkm.methods.registry import METHODS, find, with_guarantee
from tests.docs.check_blocks import PAGES
from tests.support.each import each

ROOT = Path(__file__).parents[2]
TEXTS = sorted({*PAGES, ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "paper.md"})
# Words by which a sentence says that it lists all methods with a guarantee.
_EXCLUSIVE = re.compile(
    r"\b(?:[Oo]nly|[Nn]o(?: other)? methods? (?:except|but)|(?:[Oo]ne|[Tt]wo|[Tt]hree|[Tt]hese) methods?"
    r"|[Aa]nother method than|[Aa]ll methods? except|[Tt]he methods?)\b|^\|? *a privacy guarantee *\|"
)
_ABOUT = re.compile(r"guarantee")
_NAME = re.compile(r"`([a-z][a-z0-9-]*)(?::[^`]*)?`")


def wrong_lists(text):
    """Return the sentences that list methods with a guarantee, but not exactly those that have one."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [part for block in re.split(r"\n\s*\n|\n(?=[|*#])", prose) for part in re.split(r"(?<=[.:;])\s+", block)]
    wrong = []
    for sentence in (" ".join(line.split()) for line in lines):
        named = {name for name in _NAME.findall(sentence) if name in METHODS}
        if named and _ABOUT.search(sentence) and _EXCLUSIVE.search(sentence) and named != set(with_guarantee()):
            wrong.append(sentence)
    return wrong


@each("page", TEXTS, ids=lambda page: page.name)
def test_pages_name_all_methods_with_a_guarantee(page):
    assert not wrong_lists(page.read_text("utf-8"))


@pytest.mark.parametrize(
    "sentence",
    [
        "Only `private` gives a guarantee.",
        "No method except `private` has a\nprivacy guarantee.",
        "| a privacy guarantee | `private` |",
        "Only the methods `private`, `feddp` and `mufc` give a privacy guarantee.",
    ],
)
def test_a_list_that_is_not_that_of_the_program_is_found(sentence):
    assert wrong_lists(sentence)


def test_the_pages_that_newcomers_read_have_the_list():
    for page in ("README.md", "SECURITY.md", "docs/explain/privacy.md", "docs/howto/measure-disclosure.md"):
        text = (ROOT / page).read_text("utf-8")
        assert all(f"`{name}`" in text for name in with_guarantee()), page


@each("name", METHODS)
def test_docstring_and_catalogue_say_the_same(name):
    guarantee = find(name)(1).traits.guarantee
    facts = describe(name)
    assert bool(guarantee) == (name in with_guarantee())
    assert facts["privacy_guarantee"] == (guarantee or None)
    assert (facts["privacy"] or "").startswith("No guarantee") == (not guarantee) or name == "local"
    assert f"Privacy guarantee: {guarantee[:40] or 'none.'}" in explain(name)


def test_the_table_of_all_methods_names_them():
    assert f"Privacy guarantee: only {' and '.join(with_guarantee())}." in explain(None)
