"""The paper has the sections and the length that the journal asks for, and cites what is in its bibliography."""

import re
from pathlib import Path

from p2pkm.core.version import __version__

ROOT = Path(__file__).parents[2]
PAPER = (ROOT / "paper.md").read_text(encoding="utf-8")
BIBLIOGRAPHY = (ROOT / "paper.bib").read_text(encoding="utf-8")
SECTIONS = [
    "Summary", "Statement of need", "State of the field", "Software design", "Research impact statement",
    "AI usage disclosure", "Acknowledgements", "References",
]  # fmt: skip


def test_the_paper_has_the_sections_of_the_journal_and_its_length():
    assert re.findall(r"^# (.*)$", PAPER, re.MULTILINE) == SECTIONS
    assert 750 <= len(PAPER.split("# Summary")[1].split()) <= 1750


def test_every_citation_is_in_the_bibliography_and_every_entry_is_cited():
    cited = set(re.findall(r"@([a-z]+\d{4}\w*)", PAPER))
    assert cited == set(re.findall(r"^@\w+\{(\w+),$", BIBLIOGRAPHY, re.MULTILINE))


def test_every_figure_of_the_paper_is_one_that_the_package_makes():
    for path in re.findall(r"\]\((docs/\w+\.png)\)", PAPER):
        assert (ROOT / path).exists()


def test_sources_with_an_identifier_in_the_paper_have_it_in_the_citation_file():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {__version__}" in citation
    given = set(re.findall(r"^    doi: (\S+)$", citation, re.MULTILINE))
    assert len(given) >= 8 and given <= set(re.findall(r"doi = \{(.*?)\}", BIBLIOGRAPHY))
