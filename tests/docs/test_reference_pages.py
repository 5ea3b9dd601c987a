"""Reference pages that are made from the program: all registered names are in them, and pages include them."""

import importlib.util
import re

import pytest

import topologies
from p2pkm.data.partition import PARTITIONS
from p2pkm.methods.init.registry import INITS
from p2pkm.methods.registry import METHODS, find
from tests.docs.check_blocks import DOCS, PAGES


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    load("reference_pages").write_pages(folder)
    return folder


def test_every_table_is_included_by_a_page(made):
    included = {
        name for page in PAGES for name in re.findall(r"\{include\} [./]*_made/([\w-]+)\.md", page.read_text("utf-8"))
    }
    assert {path.stem for path in (made / "_made").glob("*.md")} <= included


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("graphs", topologies.FAMILIES),
        ("time-varying-graphs", topologies.TIME_VARYING),
        ("gallery", topologies.recipes()),
        ("initializations", INITS),
        ("partitions", PARTITIONS),
    ],
)
def test_a_table_lists_every_name(made, table, names):
    text = (made / "_made" / f"{table}.md").read_text("utf-8")
    assert [name for name in names if f"| `{name}` |" not in text] == []


def test_every_method_has_a_page_in_the_list(made):
    index = (made / "_made" / "methods.md").read_text("utf-8")
    for name in METHODS:
        assert f"[{name}](methods/{name}.md)" in index
        assert f"--algorithm {name}\n" in (made / "ref" / "methods" / f"{name}.md").read_text("utf-8")


def test_the_documentation_has_a_value_for_every_parameter_without_a_default():
    pictures = load("pictures")
    for name in METHODS:
        method = find(name)(pictures.CLUSTERS, **pictures.GIVEN.get(name, {}))
        assert not method.traits.needs_parameters, name


@pytest.mark.slow  # the build of the documentation draws them too
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_picture(name):
    assert len(load("pictures").draw(name).axes) == 2
