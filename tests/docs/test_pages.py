"""The pages of the documentation say what is so: code runs, figures are right, nothing public is left out."""

import ast
import importlib
import re
from pathlib import Path

import pytest

import p2pkm
import topologies
from p2pkm.cli.run import command
from p2pkm.data.readers.any_format import SUFFIXES
from p2pkm.methods.registry import METHODS
from tests.support.run_cli import solve

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_ledger_page_counts_what_the_ledger_counts():
    summary = solve("--graph", "ring", "--devices", 16, "--data", "grid16:points=200", "--rounds", 150)
    assert f"**{summary['messages']}**" in read("ledger.md")
    assert f"| **{summary['bytes']:,}** | **{summary['wire_bytes']:,}** |" in read("ledger.md")


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_every_import_of_a_page_is_there(page):
    """What the code of a page imports exists; the code itself runs in slower tests. Its own files are left out."""
    blocks = re.findall(r"```python[^\n]*\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    own = set(re.findall(r"^```python file=(\w+)\.py$", page.read_text(encoding="utf-8"), re.MULTILINE))
    for node in (node for code in blocks for node in ast.walk(ast.parse(code))):
        if isinstance(node, ast.Import):
            for one in node.names:
                importlib.import_module(one.name)
        elif isinstance(node, ast.ImportFrom) and node.module not in own:
            module = importlib.import_module(node.module)
            missing = [one.name for one in node.names if not hasattr(module, one.name)]
            assert not missing, f"{node.module} has no {', '.join(missing)}"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_place_and_a_picture(name):
    pages = read("peer-methods.md") + read("server-methods.md")
    missing = "needs a section in docs/peer-methods.md or docs/server-methods.md"
    if f"`{name}`" not in pages:
        pytest.fail(f"{name} {missing}", pytrace=False)
    if f"(_made/{name}.png)" not in pages:
        pytest.fail(f"{name} {missing} with the picture _made/{name}.png, which is drawn by itself", pytrace=False)


def test_the_reference_lists_every_public_name():
    listed = set(re.findall(r"^   (?:\w+\.)?(\w+)$", read("api.md"), re.MULTILINE))
    public = {*p2pkm.__all__, *topologies.__all__, *p2pkm.partition.__all__}
    assert public - listed == {
        *("FAMILIES", "FIXED", "LARGE", "LIGHT", "TIME_VARYING", "PARTITIONS"),  # tables
        *("measures", "partition", "viz"),  # modules
    }


@pytest.mark.parametrize("name", command.commands)
def test_every_command_is_on_the_page_of_commands(name):
    assert f"`{name}" in read("commands.md") or f"[{name}]" in read("commands.md")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_kind_of_file_is_on_the_page_of_points(suffix):
    assert f"`{suffix}`" in read("data.md")


def test_every_link_between_pages_leads_somewhere():
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|png))", page.read_text(encoding="utf-8")):
            assert target.startswith("_made/") or (DOCS / target).exists(), f"{page.name}: {target}"
