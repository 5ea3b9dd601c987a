"""Shell completion of graphs, methods, data, partitions, initializations and link models."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Literal, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

from p2pkm.core.errors import P2PKMError
from p2pkm.engine.run_options import RunOptions
from topologies.errors import GraphError


def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Complete the value of an option or argument; in a list, the last entry.

    Data that match no name are completed as a file.
    """
    kind = (parameter.name or "").removesuffix("s")
    before, comma, last = typed.rpartition(",")
    matches: list[str] = []
    # For example a plug-in that cannot be imported; the value is validated later.
    with suppress(P2PKMError, GraphError):
        matches = sorted(name for name in _NAMES.get(kind, partial(_words, kind))() if name.startswith(last.lower()))
    if not matches and kind == "data":
        return [CompletionItem(typed, type="file")]
    return [CompletionItem(f"{before}{comma}{name}") for name in matches]


def _words(field: str) -> Iterable[str]:
    """List the values of a field with a fixed set of words; empty for other fields."""
    hint = get_type_hints(RunOptions).get(field)
    parts = [part for part in (hint, *get_args(hint)) if get_origin(part) is Literal]
    return get_args(parts[0]) if parts else ()


def _graphs() -> Iterable[str]:
    from p2pkm.core.plugins import families

    return families("")


def _algorithms() -> Iterable[str]:
    from p2pkm.methods.registry import names

    return names()


def _data() -> Iterable[str]:
    from p2pkm.data.sources import SOURCES

    return SOURCES


def _partitions() -> Iterable[str]:
    from p2pkm.data.partition import known

    return known("")


def _inits() -> Iterable[str]:
    from p2pkm.methods.init.registry import known

    return known("")


def _link_models() -> Iterable[str]:
    from p2pkm.network.link_model import PROFILES

    return PROFILES


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "graph": _graphs,
    "algorithm": _algorithms,
    # Argument of `p2pkm algorithms`.
    "name": _algorithms,
    "data": _data,
    "partition": _partitions,
    "init": _inits,
    "link_model": _link_models,
}
