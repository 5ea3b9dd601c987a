"""The pages of the documentation say what is so: code runs, figures are right, nothing public is left out."""

import ast
import importlib
import os
import re
from pathlib import Path

import p2pkm
import topologies
from p2pkm.cli.run import command
from p2pkm.data.readers.any_format import SUFFIXES
from tests.docs.check_blocks import DOCS, PAGES
from tests.support.each import each
from tests.support.run_cli import solve

_FOLDERS = ("tests", "examples", "launch", "topologies")
LINKING = sorted({
    *PAGES, *DOCS.parent.glob("*.md"), *(page for name in _FOLDERS for page in (DOCS.parent / name).rglob("*.md")),
})  # fmt: skip
GENERATED = ("_made/", "gallery/", "ref/reference/")  # made when the documentation is built


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_ledger_page_counts_what_the_ledger_counts():
    summary = solve("--graph", "ring", "--devices", 16, "--data", "grid16:points=200", "--rounds", 150,
                    "--coupling", "strong")  # fmt: skip
    assert f"**{summary['messages']}**" in read("ref/ledger.md")
    assert f"| **{summary['bytes']:,}** | **{summary['wire_bytes']:,}** |" in read("ref/ledger.md")


@each("page", PAGES, ids=lambda page: page.name)
def test_every_import_of_a_page_is_there(page):
    """What the code of a page imports exists; the code itself runs in slower tests. Its own files are left out."""
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    own = set(re.findall(r"^```python file=(\w+)\.py$", page.read_text(encoding="utf-8"), re.MULTILINE))
    for node in (node for code in blocks for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.Import):
            for one in node.names:
                importlib.import_module(one.name)
        elif isinstance(node, ast.ImportFrom) and node.module not in own:
            for one in node.names:
                # As the statement does: a module that nothing has imported yet is no attribute of its package.
                exec(f"from {node.module} import {one.name}", {})


def test_the_reference_lists_every_public_name():
    listed = set(re.findall(r"^\| `[\w.]*?(\w+)` \|", read("ref/api.md"), re.MULTILINE))
    listed |= set(re.findall(r"^\| \[.*\| `(\w+)` \|", read("ref/methods.md"), re.MULTILINE))
    for page in ("ref/graphs.md", "ref/partitions-and-data.md"):
        listed |= {name.replace("-", "_") for name in re.findall(r"^\| `([\w-]+)` \|", read(page), re.MULTILINE)}
    public = {*p2pkm.__all__, *topologies.__all__, *p2pkm.partition.__all__}
    assert public - listed == {
        *("FAMILIES", "FIXED", "LARGE", "LIGHT", "TIME_VARYING", "PARTITIONS"),  # tables
        *("measures", "partition", "viz"),  # modules
    }


@each("name", command.commands)
def test_every_command_is_on_the_page_of_commands(name):
    assert f"`p2pkm {name}" in read("ref/cli.md").replace("[run]", "run")


@each("suffix", SUFFIXES)
def test_every_kind_of_file_is_on_the_page_of_points(suffix):
    assert f"`{suffix}`" in read("howto/load-data.md")


@each("page", LINKING, ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_every_link_between_pages_leads_somewhere(page):
    for target in re.findall(r"\]\((?![\w+.-]+:)([^)#\s]+)", page.read_text(encoding="utf-8")):
        path = Path(os.path.normpath(page.parent / target))
        # Pages that are made when the documentation is built are not in the repository.
        assert not (path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix().startswith(GENERATED)), target
        assert path.exists(), target


@each("page", LINKING, ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_no_words_vanish_as_unknown_tags(page):
    code = r"^```.*?^```|``.*?``|`[^`\n]*`|<!--.*?-->"
    text = re.sub(code, "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"</?([A-Za-z]\w*)", text)) <= {"br", "img", "p", "a"}


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@each("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_leads_to_one(page):
    for target, anchor in re.findall(r"\]\(((?![\w+.-]+:)[^)#\s]*)#([^)\s]*)", page.read_text(encoding="utf-8")):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"


def test_every_page_that_code_names_is_there():
    """Errors and docstrings send readers to pages, which may be merged or renamed."""
    root = DOCS.parent
    for path in (path for package in ("p2pkm", "topologies", "examples") for path in (root / package).rglob("*.py")):
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
            assert (root / page).exists(), f"{path} names {page}"


def test_theorems_are_numbered_in_order_and_referred_to_by_number():
    theorems = [int(number) for number in re.findall(r"^\*\*Theorem (\d+)", read("explain/proofs.md"), re.MULTILINE)]
    assert theorems == list(range(1, len(theorems) + 1)) and "**Theorem (" not in read("explain/proofs.md")
    named = re.findall(r"theorems? (\d+)(?: and (\d+))?(?![.\d])", read("explain/proofs.md"))
    assert {int(number) for pair in named for number in pair if number} <= set(theorems)


def test_the_index_lists_every_page():
    listed = set(re.findall(r"^\* \[.*\]\(([\w/-]+)\.md\)$", read("index.md"), re.MULTILINE))
    written = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES if page.parent.parent == DOCS}
    assert written == listed
