"""Nothing is left of a removed method: patterns of its messages, random streams, traits, functions, names in lists."""

import ast
import re
import tomllib
from collections import Counter, defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.expected_messages import Pattern
from p2pkm.core.spec import split_specs
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.registry import METHODS

PACKAGE = Path(p2pkm.__file__).parent
ROOT = PACKAGE.parent
SUITES = PACKAGE / "experiments/bench"
TEXTS = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
# Methods, what all methods share, and what else draws random numbers.
OF_METHODS = [text for path, text in TEXTS.items() if path.startswith(("methods/", "deep/", "core/protocols"))]


@pytest.mark.parametrize("pattern", get_args(Pattern), ids=lambda kind: kind.__name__)
def test_a_method_has_messages_of_every_pattern(pattern):
    assert any(re.search(rf"\b{pattern.__name__}\(", text) for text in OF_METHODS)


def test_every_random_stream_is_drawn_from():
    unused = [name for name in Stream.__members__ if not any(f"Stream.{name}" in text for text in TEXTS.values())]
    assert not unused


@pytest.mark.slow
def test_every_trait_is_declared_by_a_method():
    names = {field.name for field in fields(MethodTraits)}
    undeclared = [name for name in names if not any(re.search(rf"\b{name}=", text) for text in OF_METHODS)]
    assert not undeclared


def test_benchmarks_name_methods_that_exist():
    named = set(tomllib.loads((SUITES / "entries.toml").read_text()))
    for path in (SUITES / "suites").glob("*.toml"):
        specs = tomllib.loads(path.read_text()).get("algorithm")
        named |= {spec.partition(":")[0] for spec in split_specs([specs])} if specs else set()
    assert named and named <= {*METHODS, "all"}


@pytest.mark.parametrize("pattern", [*filter(get_type_hints, get_args(Pattern))], ids=lambda kind: kind.__name__)
def test_every_choice_of_a_pattern_is_made_by_a_method(pattern):
    choices = [hint for hint in get_type_hints(pattern).values() if get_origin(hint) is Literal]
    unused = [c for choice in choices for c in get_args(choice) if not any(f'"{c}"' in text for text in OF_METHODS)]
    assert not unused


# Functions and options that code of p2pkm does not use.
FOR_OTHERS = {
    "TableMethod",  # for methods of programs and other packages
    "delta_of",  # of a privacy guarantee, for scripts
    "code_box", "code_rows", "code_rows(weighted)", "code_rows(within)",  # whose bytes p2pkm counts unwritten
    "asynchronous(names)",  # given by position, through a table of schedules
}  # fmt: skip
# Their functions are called with the options of a spec.
TABLES_OF_SPECS = ("p2pkm/methods/init/registry.py",)


@cache
def _parse(path):
    return ast.parse(path.read_text())


def _find_uses():
    """Count all names in the code of p2pkm, and list number of arguments and keywords of the calls of each function."""
    names, calls = Counter(), defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(_parse(path)):
            if isinstance(node, ast.Call):
                called, given = node.func, node.args
                if isinstance(called, ast.Name) and called.id == "partial" and given:
                    called, given = given[0], given[1:]
                keywords = {keyword.arg for keyword in node.keywords}
                is_open = None in keywords or any(isinstance(argument, ast.Starred) for argument in given)
                calls[ast.unparse(called).rpartition(".")[2]].append((len(given), keywords, is_open))
            if isinstance(node, ast.Name):
                names[node.id] += 1
            elif isinstance(node, ast.Attribute):
                names[node.attr] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
                names.update(re.findall(r"\w+", node.value))
    return names, calls


def _list_options(function):
    """List place and name of the parameters of a function that have a default; of keywords, the place is endless."""
    arguments = function.args
    places = [*arguments.posonlyargs, *arguments.args]
    first = len(places) - len(arguments.defaults)
    options = [(place, item.arg) for place, item in enumerate(places) if place >= first]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return options + [(float("inf"), item.arg) for item, default in keywords if default is not None]


def test_every_function_of_methods_and_each_of_its_options_is_used():
    names, calls = _find_uses()
    unused = set()
    for path in (PACKAGE / "methods").rglob("*.py"):
        if path.relative_to(ROOT).as_posix() in TABLES_OF_SPECS:
            continue
        for node in _parse(path).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not names[node.name]:
                unused.add(node.name)
            if isinstance(node, ast.FunctionDef):
                unused |= {
                    f"{node.name}({option})"
                    for place, option in _list_options(node)
                    if not any(
                        is_open or option in keywords or count > place for count, keywords, is_open in calls[node.name]
                    )
                }
    assert unused == FOR_OTHERS


# Other names in lists of methods, by file: entries beside methods, and methods that the text itself defines.
OTHERS = {
    "docs/howto/bench.md": {"mine", "all", "baseline"},
    "docs/howto/package-a-plugin.md": {"matched", "pull", "serverlloyd"},
    "docs/howto/studies.md": {"LIST"},
    "docs/howto/time-and-faults.md": {"flooded-summaries"},
    "docs/ref/methods.md": {"NAME", "..."},
    "docs/ref/run-folder.md": {"server_centroids", "scaling"},
    "examples/week.py": {"GTVMin", "push-sum"},
    "p2pkm/cli/algorithms.py": {"NAME", "..."},
    "p2pkm/cli/attack.py": {"has"},
    "p2pkm/core/spec.py": {"kmeans"},
    "tests/deep/test_deepfeca.py": {"none", "own"},
    "tests/experiments/bench/test_bench.py": {"gtvmin (real numbers)"},
    "tests/experiments/plan/test_time_varying.py": {"jacobi", "colored", "async"},
    "tests/experiments/test_compare.py": {"gtvmin on ring"},
    "tests/metrics/test_adaptation.py": {"tree"},
    "tests/oracles/test_scikit_learn.py": {"alone"},
    "tests/support/bench_rows.py": {"sharded"},
    "tests/system/test_tutorial.py": {"serverlloyd"},
}
# A list in text, and methods on the command line.
LIST = re.compile(r"`[\w-]+`(?:(?:, and |, or |, | and | or )`[\w-]+`)+")
SPECS = re.compile(r"--algorithm ([\w:=.,-]+)")


def _list_names_in_code(path):
    """Yield the names in each list, tuple, set or mapping of which most are methods."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            entries = node.elts
        elif isinstance(node, ast.Dict):
            entries = node.keys
        else:
            continue
        words = [e.value for e in entries if isinstance(e, ast.Constant) and isinstance(e.value, str)]
        names = {word.partition(":")[0] for word in words if not word.startswith("--")}
        if len(names) > 2 and 3 * len(names - {*METHODS}) <= len(names):
            yield names


def _list_names_in_text(text):
    """Yield the names in each list of which one is a method, and those on command lines."""
    for found in LIST.finditer(re.sub(r"\n *", " ", text)):
        names = set(re.findall(r"`([\w-]+)`", found[0]))
        if names & {*METHODS}:
            yield {name for name in names if not name.startswith("-")}
    for found in SPECS.finditer(text):
        parts = found[1].removesuffix(",").split(",")
        yield {part.partition(":")[0] for part in parts if "=" not in part.partition(":")[0]}


def test_lists_name_methods_that_exist():
    unknown = defaultdict(set)
    folders = ("p2pkm", "docs", "examples", "tests")
    for path in [path for folder in folders for path in (ROOT / folder).rglob("*.py")]:
        # Copies of the examples, by a build of the documentation.
        if path.parent.name in {"_gallery", "gallery"}:
            continue
        for names in _list_names_in_code(path):
            unknown[path.relative_to(ROOT).as_posix()] |= names - {*METHODS}
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for path in [*texts, *PACKAGE.rglob("*.py")]:
        if path.name != "CHANGELOG.md":  # of what was
            for names in _list_names_in_text(path.read_text()):
                unknown[path.relative_to(ROOT).as_posix()] |= names - {*METHODS}
    for path in (ROOT / "examples").rglob("*.toml"):
        specs = tomllib.loads(path.read_text()).get("algorithm")
        names = {
            spec.partition(":")[0] for spec in split_specs([specs] if isinstance(specs, str) else specs or ["local"])
        }
        unknown[path.relative_to(ROOT).as_posix()] |= names - {*METHODS}
    left = {path: names - OTHERS.get(path, set()) for path, names in unknown.items()}
    assert not {path: names for path, names in left.items() if names}
    assert not {path: names - unknown[path] for path, names in OTHERS.items() if names - unknown[path]}


def test_figures_of_the_documentation_name_methods_that_exist():
    page = (ROOT / "docs/howto/choose-a-graph.md").read_text()
    labels = re.findall(r"^\| ([\w ,-]+) \| .*topology-correlations", page, re.MULTILINE)
    known = {name.replace("-", "") for name in METHODS}
    assert len(labels) > 5
    code = _parse(ROOT / "docs/topology_measures.py").body
    shown = next(
        ast.literal_eval(node.value)
        for node in code
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METHODS"
    )
    for label in {*labels, *shown}:
        assert re.sub(r"[- ]", "", label.partition(",")[0]).lower() in known, label
