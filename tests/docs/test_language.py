"""The language of code and pages: what can be checked of the rules in CONTRIBUTING.md."""

from pathlib import Path

import pytest

from tests.docs import language
from tests.docs.check_blocks import PAGES


@pytest.mark.parametrize("path", [*language.sources([])], ids=lambda path: path.relative_to(language.ROOT).as_posix())
def test_source(path):
    assert not [str(finding) for finding in language.check(path)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page):
    assert not [str(finding) for finding in language.check(page)]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file and returns the texts of its findings."""
    monkeypatch.setattr(language, "ROOT", tmp_path)

    def check(text, name="module.py"):
        path = Path(tmp_path, name)
        path.write_text(text)
        return [finding.text for finding in language.check(path)]

    return check


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""What a run leaves behind."""', "docstring begins with 'What a run'"),
        ('"""Module."""\n\n\ndef f():\n    """Return who sends."""', "docstring begins with 'Return who sends.'"),
        ('"""Module."""\n\n\ndef f():\n    """Do so once more."""', "docstring begins with 'Do so once'"),
        ('"""Links beside others."""', "phrase 'beside'"),
        ('"""Module."""\n\nx = 1  # nobody knows', "phrase 'nobody'"),
        ('"""Module."""\n\nwhole = 1', "name 'whole'"),
        ('"""Module."""\n\n\ndef f(own):\n    """Send tables."""', "name 'own'"),
    ],
)
def test_what_breaks_a_rule_is_found(write, text, found):
    assert write(text + "\n") == [found]


def test_plain_code_has_no_findings(write):
    assert (
        write('"""Models of devices."""\n\n\ndef send_tables(rows):\n    """Send each table to the parent."""\n') == []
    )


def test_long_sentences_are_found_outside_code_and_tables(write):
    long = " ".join(["word"] * 41) + "."
    assert write(f"# Title\n\nShort. {long}\n", "page.md") == [
        "sentence of 41 words: word word word word word word ..."
    ]
    assert write(f"# Title\n\n```text\n{long}\n```\n\n| {long} |\n", "page.md") == []
