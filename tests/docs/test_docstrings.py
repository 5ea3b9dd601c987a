"""Every public name has an example in its docstring, and every example prints what it says."""

import doctest
import inspect

import pytest

import p2pkm
import topologies

MODULES = {"p2pkm": p2pkm, "topologies": topologies, "partition": p2pkm.partition}
TABLES = {"FAMILIES", "FIXED", "LARGE", "LIGHT", "TIME_VARYING", "PARTITIONS", "partition"}  # no docstring of their own
NAMES = [(home, name) for home, module in MODULES.items() for name in module.__all__ if name not in TABLES]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples(home, name):
    found = inspect.getdoc(getattr(MODULES[home], name)) or ""
    return doctest.DocTestParser().get_doctest(found, {}, f"{home}.{name}", None, 0)


@pytest.mark.parametrize(("home", "name"), NAMES)
def test_every_public_name_has_an_example_that_runs(home, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = examples(home, name)
    assert test.examples, f'{home}.{name} has no example; add "Examples" to its docstring, as others have it'
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("module", [p2pkm, topologies], ids=lambda module: module.__name__)
def test_the_example_of_a_package_runs(module):
    assert doctest.testmod(module, optionflags=FLAGS) == (0, len(doctest.DocTestFinder().find(module)[0].examples))
