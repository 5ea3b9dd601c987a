"""Names that a shell may complete: of graphs, methods, data, partitions, initializations and link models."""

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
    """Return what an option or argument may be, as far as it is typed; of a list the last entry is completed.

    A name of data that is none is a file.
    """
    kind = (parameter.name or "").removesuffix("s")
    before, comma, last = typed.rpartition(",")
    found: list[str] = []
    with suppress(P2PKMError, GraphError):  # a plug-in that cannot be imported, say: what is typed is checked later
        found = sorted(name for name in _NAMES.get(kind, partial(_words, kind))() if name.startswith(last.lower()))
    if not found and kind == "data":
        return [CompletionItem(typed, type="file")]
    return [CompletionItem(f"{before}{comma}{name}") for name in found]


def _words(field: str) -> Iterable[str]:
    """Return the words that a field of an experiment may be; none if it may be more than a few."""
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


def _nets() -> Iterable[str]:
    from p2pkm.network.link_model import PROFILES

    return PROFILES


_NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "graph": _graphs,
    "algorithm": _algorithms,
    "name": _algorithms,  # the argument of `p2pkm algorithms`
    "data": _data,
    "partition": _partitions,
    "init": _inits,
    "link_model": _nets,
}
