"""Docstrings: every public name has an example, every example prints what it says, every name in them exists."""

import ast
import doctest
import inspect
import re
from functools import cache
from pathlib import Path

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
@pytest.mark.sample(5)
def test_every_public_name_has_an_example_that_runs(home, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    test = examples(home, name)
    assert test.examples, f'{home}.{name} has no example; add "Examples" to its docstring, as others have it'
    said = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.slow
def test_every_example_of_an_attribute_or_method_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classes = {getattr(MODULES[home], name) for home, name in NAMES}
    classes |= {type(p2pkm.simulate("local", None, "blobs", devices=2, progress=False).clusters)}
    found = [test for kind in classes if inspect.isclass(kind)
             for test in doctest.DocTestFinder().find(kind, kind.__name__, globs={}) if "." in test.name]  # fmt: skip
    said = []
    for test in found:
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert any(test.examples for test in found) and not said, "".join(said)


@pytest.mark.parametrize("module", [p2pkm, topologies], ids=lambda module: module.__name__)
def test_the_example_of_a_package_runs(module):
    assert doctest.testmod(module, optionflags=FLAGS) == (0, len(doctest.DocTestFinder().find(module)[0].examples))


ROOT = Path(__file__).parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
CAMEL_CASE = re.compile(r"\b[A-Z]\w*[a-z]\w*\b")
OUTSIDE = {  # names of others, words of numpydoc types, words that sentences begin with there, and parts of names
    *{"AnnData", "DataFrame", "Executor", "Figure", "RandomState", "MyMethod", "n_features_in_"},
    *{"None", "True", "False", "Ignored"},
}  # fmt: skip
WORDS = {"async", "global", "club", "arcs_", "edge_", "root_", "store_", "distance_left", "epsilon_alone"}


@cache
def files():
    """Return the parsed source of every module."""
    return {path: ast.parse(path.read_text("utf-8")) for home in MODULES.keys() - {"partition"}
            for path in sorted((ROOT / home).rglob("*.py"))}  # fmt: skip


@cache
def list_names():
    """Return all names that the packages use or define, those that each module uses, and those in each class."""
    used, modules, members = set(), {}, {}
    for path, tree in files().items():
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        modules[module] = set(_names(tree))
        used |= modules[module] | {module.rpartition(".")[2]}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                members.setdefault(node.name, set()).update(_names(node))
    return used, modules, members


def _names(tree):
    for node in ast.walk(tree):
        yield from _name(node)


def _name(node):
    """Return the names of one node, without those inside it."""
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, ast.alias):
        return [(node.asname or node.name).rpartition(".")[2]]
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) and node.value.isidentifier() else []
    return [value for value in (getattr(node, field, None) for field in ("id", "attr", "arg")) if value]


def stale_names(text):
    """Return the names in a docstring that do not exist: files, paths of imports, classes, types of parameters."""
    used, modules, members = list_names()
    found = [word for word in re.findall(r"[\w./]*\w\.py\b", text) if not _is_file(word)]
    for name in re.findall(r"(?<!`)`~?([A-Za-z_][\w.]*)`(?!`)", text):
        home, _, rest = name.partition(".")
        if home in {"p2pkm", "topologies"}:
            exists = _resolves(name, modules, members)
        elif home in members:
            exists = not rest or rest.partition(".")[0] in members[home]
        elif CAMEL_CASE.fullmatch(rest.partition(".")[0]):
            exists = any(rest.partition(".")[0] in modules[one] for one in modules if one.endswith(f".{home}"))
        else:
            exists = home in used or home in OUTSIDE | WORDS or home == "matplotlib"
        found += [] if exists else [name]
    types = re.findall(r"^\s*\**\w[\w, *]* : (.+)$", text, re.MULTILINE)
    return found + [word for one in types for word in CAMEL_CASE.findall(one) if word not in used | OUTSIDE]


def _is_file(word):
    """Return whether a path names a file from the root, or ends the path of a file of the packages."""
    return (ROOT / word).exists() or any(path.parts[-len(Path(word).parts) :] == Path(word).parts for path in files())


def _resolves(name, modules, members):
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module, rest = ".".join(parts[:length]), parts[length:]
        if module in modules:
            inside = not rest or rest[0] in modules[module] | set(MODULES.get(module, p2pkm).__all__)
            return inside and (len(rest) < 2 or rest[1] in members.get(rest[0], {rest[1]}))
    return False


@pytest.mark.slow
def test_names_in_docstrings_exist():
    found = []
    for path, tree in files().items():
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and (words := stale_names(ast.get_docstring(node) or "")):
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'name', '')}"
                found += [f"{where} names {word!r}, which does not exist" for word in words]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("text", [
    "See `checkpoints.py`.",
    "As network/star.py does.", "See `p2pkm.core.batches.Devices`.", "`p2pkm.core.batch.Device`",
    "`Devices.point_weight`", "See `Placement`.", "`algorithm.ServerMethod`", "`reread`",
    "Parameters\n----------\nvault : Vault or None",
])  # fmt: skip
def test_a_name_that_does_not_exist_is_found(text):
    assert stale_names(text)


DOCUMENTED_NAME = re.compile(r"^ {4}(\w[\w, ]*) :", re.MULTILINE)


def list_documented_attributes(docstring):
    _, _, text = docstring.partition("    Attributes\n    ----------\n")
    text = re.split(r"^ {4}\w[\w ]*\n {4}---", text, maxsplit=1, flags=re.MULTILINE)[0]
    return {name.strip() for names in DOCUMENTED_NAME.findall(text) for name in names.split(",")}


def list_records():
    """Yield file, class and documented attributes of every named tuple and data class that inherits nothing else."""
    for path, tree in files().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            bases = [ast.unparse(base) for base in node.bases]
            is_data_class = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
            if bases == ["NamedTuple"] or (is_data_class and not bases):
                yield path, node, list_documented_attributes(ast.get_docstring(node, clean=False) or "")


@pytest.mark.slow
def test_documented_attributes_of_records_exist():
    stale, records = {}, list(list_records())
    for path, node, documented in records:
        defined = {child.target.id for child in node.body if isinstance(child, ast.AnnAssign)}
        defined |= {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
        if documented - defined:
            stale[f"{path.relative_to(ROOT)}: {node.name}"] = sorted(documented - defined)
    assert not stale, f"attributes that do not exist: {stale}"
    assert sum(len(documented) for _, _, documented in records) > 300


def test_names_with_a_trailing_underscore_are_no_links():
    wrong = {}
    for home, name in NAMES:
        text = inspect.getdoc(getattr(MODULES[home], name)) or ""
        # Sphinx shows the names of attributes before a colon and examples as they are.
        text = re.sub(r"^[\w, ]+ : |^ *>>> .*$|^ *\.\.\. .*$|`+[^`]*`+", "", text, flags=re.MULTILINE)
        if found := re.findall(r"\b\w+_(?=[\s.,;:)\]]|$)", text):
            wrong[f"{home}.{name}"] = found
    assert not wrong, f"reStructuredText takes these for links; put them in backticks: {wrong}"
