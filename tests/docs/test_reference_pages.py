"""What is written into pages by docs/write_pages.py is up to date, and lists all registered names."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

import topologies
from p2pkm.cli.run import command
from p2pkm.core.option import options_of
from p2pkm.data.partition import PARTITIONS
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.registry import INITS
from p2pkm.methods.registry import METHODS, find
from tests.docs.check_blocks import DOCS, PAGES


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def write_pages():
    sys.path.insert(0, str(DOCS))
    yield load("write_pages")
    sys.path.remove(str(DOCS))


@pytest.mark.slow
def test_pages_are_up_to_date(write_pages):
    outdated = [page.name for page in write_pages.list_outdated()]
    assert outdated == [], "python docs/write_pages.py"


def test_pages_are_made_by_the_program_beside_them(tmp_path):
    (tmp_path / "p2pkm.py").write_text("raise ImportError('another copy')\n")
    # Under another name than __main__, it imports the program but writes nothing.
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({str(DOCS / 'write_pages.py')!r})"]
    path = os.pathsep.join((str(tmp_path), str(DOCS)))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_out_of_date_is_found(write_pages):
    page = DOCS / "ref" / "graphs.md"
    good = page.read_text("utf-8")
    assert write_pages.write_page(good.replace("| `ring` |", "| `rings` |"), page) == good
    with pytest.raises(KeyError, match="nothing"):
        write_pages.write_page("<!-- made: nothing -->\n<!-- end -->", page)


def test_every_part_is_on_a_page(write_pages):
    shown = {name for page in PAGES for _, name, _ in write_pages.PART.findall(page.read_text("utf-8"))}
    # Tables of claims are in the files of docs/results; a page shows those that it discusses.
    assert {name for name in set(write_pages.make_parts()) - shown if not name.startswith("table-")} == set()


def test_docstrings_become_plain_markdown(write_pages):
    text = """One line.

Text, see [1]_::

    a = b

Parameters
----------
k : int
    Number::

        k > 0

    of clusters.

Raises
------
ValueError
    Never.

References
----------
.. [1] A. Author,
   "Title".
"""
    assert (
        write_pages.reference_pages.to_markdown(text)
        == """Text, see [1]:

```text
a = b
```

## Parameters

* `k` (int): Number:

  ```text
  k > 0
  ```

  of clusters.

## References

[1] A. Author, "Title"."""
    )


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("graphs", topologies.FAMILIES),
        ("time-varying-graphs", topologies.TIME_VARYING),
        ("initializations", INITS),
        ("partitions", PARTITIONS),
    ],
)
def test_a_table_lists_every_name(write_pages, table, names):
    text = write_pages.make_parts()[table]
    assert [name for name in names if f"| `{name}` |" not in text] == []
    assert re.findall(r"^\| `([\w-]+)` \|\s*\|", text, re.MULTILINE) == []  # without a summary


def test_options_and_gallery_are_complete(write_pages):
    parts = write_pages.make_parts()
    keys = re.findall(r"`(\w+)`", parts["config"])
    assert sorted(keys) == sorted(options_of(RunOptions)) and "`tol` (0.001)" in parts["config"]
    assert set(write_pages.reference_pages.DESCRIBED_IN) <= set(
        re.findall(r"^\| (\w.*?) \|", parts["config"], re.MULTILINE)
    )
    assert re.findall(r"`([\w-]+)` \(\d+\)", parts["gallery"]) == list(topologies.recipes())


def test_commands_that_pages_describe_exist(write_pages):
    listed = re.findall(r"^\| `p2pkm ([a-z ]+)", write_pages.make_parts()["commands"], re.MULTILINE)
    assert {name.strip() for name in listed} >= {*write_pages.reference_pages.COMMANDS_IN, *command.commands}


def test_every_method_has_a_page_in_the_list():
    index = (DOCS / "ref" / "methods.md").read_text("utf-8")
    for name in METHODS:
        page = re.search(rf"\[{name}\]\((methods/[\w-]+\.md)\)", index)[1]
        assert f"--algorithm {name}" in (DOCS / "ref" / page).read_text("utf-8")


def test_methods_of_one_class_share_a_page(write_pages):
    pages = write_pages.reference_pages.list_pages()
    assert pages["central"] == ["central", "cdkm"] and "cdkm" not in pages
    assert sorted(name for names in pages.values() for name in names) == sorted(METHODS)
    text = write_pages.reference_pages.describe_method("ffcm1")
    assert "# ffcm1 and ffcm2\n" in text and "`--algorithm ffcm2`; class `FFCM`.\n" in text
    assert text.count("defaults=paper") == 2


def test_the_documentation_has_a_value_for_every_parameter_without_a_default():
    pictures = load("pictures")
    for name in METHODS:
        method = find(name)(pictures.CLUSTERS, **pictures.GIVEN.get(name, {}))
        assert not method.traits.needs_parameters, name


@pytest.mark.slow  # the build of the documentation draws them too
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_picture(name):
    assert len(load("pictures").draw(name).axes) == 2
