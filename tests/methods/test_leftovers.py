"""Nothing is left of a removed method: patterns of its messages, random streams, traits, places in benchmarks."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import p2pkm
from p2pkm.core.batch import Stream
from p2pkm.core.expected_messages import Pattern
from p2pkm.core.spec import split_specs
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.registry import METHODS

PACKAGE = Path(p2pkm.__file__).parent
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
