"""Specs `NAME[:key=value,...]`: notation for graphs, data, partitions, initializations and algorithms."""

import inspect
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from p2pkm.core.card import CHOICES, DEFAULTS, find_card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.program_function import is_function, name_function

Value = TypeVar("Value")
# Characters of an unknown word that are compared with the known words; a limit on time for very long input.
_MAX_COMPARED = 100
# Names whose text after the colon is a single value, commas included.
_VERBATIM = {"file": "path", "gallery": "recipe"}
# Keys at the end of a path.
_KEYS = re.compile(r"(,[a-z_]+=[^,]*)+$")
# New names of the options, keys and values of version 0.1.0, with _ for -.
RENAMED = {
    "every": "record_every",
    "alone": "local",
    "own": "local",
    "box": "bounding-box",
    "raced": "d2-sampling",
    "summaries": "flooded-summaries",
    "rooted": "tree-summaries",
    "seeding": "init",
    "recipe": "init",
    "coloured": "colored",
    "net": "link_model",
    "placement": "rank_partition",
    "central": "baselines",
    "no_central": "no_baselines",
    "min_count": "min_cluster_size",
    "stale": "stale_policy",
    "theta": "relaxation",
    "passes": "local_steps",
    "centers": "true_centers",
    "links": "link_failure",
    "repair": "link_downtime",
    "churn": "dropout",
    "away": "dropout_length",
    "late": "late_join",
    "join": "join_by",
    "lag": "max_delay",
    "stragglers": "straggler",
    "pause": "straggler_length",
}
# Hint for --algorithm kmeans, which can mean one of two methods.
_KMEANS = (
    "k-means of the points of all devices, without a server, is 'gtvmin', the default; 'central' collects all points "
    "on a server, as a baseline."
)
# A value of an old option that is a separate option now.
_RENAMED_WITH_VALUE = {("recipe", "groups"): "groups"}
# Options and values of earlier versions without a successor of the same meaning, and what to do.
_REMOVED = {
    "accept": "The acceptance test is gone: without it coupling=strong costs less than 0.1 % more. Remove accept.",
    "rehearsal": "It is gone. Use coupling=auto, the default, which chooses from the points, or coupling=strong for "
    "one common clustering.",
}


def renamed(name: str, value: object = None) -> str | None:
    """Return the new name of an option or key of version 0.1.0 with this value, None if not renamed; with _ for -."""
    name = name.replace("-", "_")
    return _RENAMED_WITH_VALUE.get((name, str(value))) or RENAMED.get(name)


def explain_removed(name: str) -> str:
    """Say what to do without an option or value that earlier versions had, empty if there was none."""
    return _REMOVED.get(name.removeprefix("no-"), "")


class Spec(NamedTuple):
    """Name and its options, converted to their types."""

    name: str
    options: dict[str, Any]

    def __str__(self) -> str:
        """Format the spec in canonical form: `-` in the name, keys in the order of the input."""
        if not self.options:
            return self.name
        verbatim = _VERBATIM.get(self.name)
        parts = [f"{key}={show(value)}" for key, value in self.options.items() if key != verbatim]
        return f"{self.name}:" + ",".join([str(self.options[verbatim]), *parts] if verbatim else parts)


def parse(text: str, known: Mapping[str, Callable[..., Any]], what: str) -> Spec:
    """Parse a spec; the keyword-only parameters of `known[name]` are its keys.

    Parameters
    ----------
    text : str
        For example ``"small-world:degree=4,rewire=0.1"``; after ``file:`` and
        ``gallery:`` the rest is taken verbatim, except the keys of a graph file.
    known : mapping of str to callable
        Registry of names.
    what : str
        Kind of the name ("graph", "partition", ...), for messages.

    Raises
    ------
    ExperimentError
        If the name, a key or a value is unknown; the message suggests the nearest known one.
    """
    name, colon, rest = text.strip().partition(":")
    name = name.replace("_", "-").lower()
    if name not in known:
        path = text.strip()
        hint = f" To read this file, use file:{path}." if "file" in known and os.path.isfile(path) else ""
        raise ExperimentError(f"unknown {what} {name!r}.{hint} {suggest(name, known)}")
    verbatim: dict[str, Any] = {}
    if name in _VERBATIM:
        if not rest:
            example = {"file": "file:mine.csv", "gallery": "gallery:karate"}[name]
            raise ExperimentError(f"{what} '{name}:' needs a {_VERBATIM[name]} after the colon, as in {example}")
        path, rest = _split_keys(rest) if (name, what) == ("file", "graph") else (rest, "")
        verbatim = {_VERBATIM[name]: path}
    if colon and not rest and not verbatim:
        raise ExperimentError(f"{what} {text!r} ends with ':'; write {name} alone or {name}:key=value")
    pairs = [item.partition("=") for item in rest.split(",")] if rest else []
    keys = {key: kind for key, kind in parameters(known[name]).items() if key not in verbatim}
    options: dict[str, Any] = verbatim
    for raw, equals, value in pairs:
        key = raw.strip().replace("-", "_")
        if key not in keys:
            raise ExperimentError(f"unknown key {key!r} of {what} {name!r}. {suggest(key, keys)}")
        if not equals or key in options:
            raise ExperimentError(f"{what} {name!r}: give {key} once, as {key}=value; got {text!r}")
        options[key] = convert(value.strip(), keys[key], f"{what} {name}:{key}")
    return Spec(name, options)


def _split_keys(text: str) -> tuple[str, str]:
    """Split a path from the keys that follow it, such as ``links.csv,directed=union``; a file's name is not split."""
    match = _KEYS.search(text)
    if match is None or not match.start() or os.path.isfile(text):
        return text, ""
    return text[: match.start()], match[0][1:]


def read_value(
    kind: type[Value],
    value: Value | str,
    known: Mapping[str, Callable[..., Any]],
    what: str,
    make: Callable[[Spec], Value] | None = None,
) -> Value:
    """Parse the text of a value: call the function of its name, or `make`; values are returned unchanged.

    Raises
    ------
    ExperimentError
        If the text is invalid or has a number out of range, or if `value` is neither a text nor of this kind.
    """
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        expected = f"a p2pkm.{kind.__name__}, or text such as {next(iter(known))!r}"
        raise ExperimentError(f"{what} is {value!r}; expected {expected}")
    spec = parse(value, known, what)
    made: Value = known[spec.name](**spec.options) if make is None else make(spec)
    return made


def read_drawn(kind: type[Value], value: Value | str | None, what: str, file: str) -> Value | None:
    """Parse ``drawn:key=value,...``, ``file:PATH`` or a path that ends with .jsonl; `file`: field for the path.

    Raises
    ------
    ExperimentError
        As in `read_value`.
    """
    if value is None:
        return None
    if isinstance(value, str) and value.endswith(".jsonl") and not value.startswith("file:"):
        value = f"file:{value}"

    def make(spec: Spec) -> Value:
        return kind(**{file: spec.options["path"]} if spec.name == "file" else spec.options)

    return read_value(kind, value, {"drawn": kind, "file": kind}, what, make)


def show_drawn(value: Any, file: str, drawn: str = "", always: tuple[str, ...] = ()) -> str:
    """Format a value for `read_drawn`: its path, or `drawn` and the keys not at their default or in `always`."""
    path = vars(value)[file]
    defaults = vars(type(value)())
    if path is not None:
        return path if path.endswith(".jsonl") else f"file:{path}"
    changed = {name: item for name, item in vars(value).items() if name in always or item != defaults[name]}
    return drawn + ",".join(f"{name}={show(item)}" for name, item in changed.items())


def split_specs(texts: Iterable[str]) -> list[str]:
    """Split lists of specs such as ``gtvmin,fkm:server_n_init=3,min_count=1,feca``.

    A comma ends a spec unless a ``key=value`` follows.

    Raises
    ------
    ExperimentError
        If a list is not a text, or has an empty or repeated spec.
    """
    texts, specs = list(texts), list[str]()
    for text in texts:
        if not isinstance(text, str):
            raise ExperimentError(f"list is {text!r}; expected text such as 'a,b,c'")
    for part in ",".join(texts).split(","):
        belongs = specs and "=" in part.partition(":")[0] and ":" in specs[-1]
        if belongs:
            specs[-1] += "," + part
        else:
            specs.append(part.strip())
    if not all(specs) or len(set(specs)) < len(specs):
        raise ExperimentError(f"{', '.join(texts)!r} has an empty or a repeated entry; expected a list such as a,b,c")
    return specs


def complete(spec: Spec, known: Mapping[str, Callable[..., Any]], seed: int) -> Spec:
    """Add the default of every key without a value, and the seed of the run; keys with the value None are left out."""
    signature = inspect.signature(known[spec.name]).parameters
    values = {key: spec.options.get(key, signature[key].default) for key in parameters(known[spec.name])}
    if "seed" in values and "seed" not in spec.options:
        values["seed"] = seed
    return Spec(spec.name, {key: value for key, value in values.items() if value is not None})


@cache
def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword-only parameters of a function or class with their types, without those fixed by `partial`.

    A method with published values also has the key `defaults`, which `p2pkm.core.card.with_defaults` replaces.
    """
    inner, fixed = (function.func, function.keywords) if isinstance(function, partial) else (function, {})
    hints = get_type_hints(getattr(inner, "__init__") if isinstance(inner, type) else inner)  # noqa: B009 - for mypy
    named = inspect.signature(inner).parameters.values()
    keys = {p.name: hints.get(p.name, str) for p in named if p.kind is p.KEYWORD_ONLY and p.name not in fixed}
    card = find_card(function)
    return keys | {DEFAULTS: CHOICES} if card is not None and card.paper else keys


def convert(value: object, kind: Any, where: str) -> Any:
    """Convert text (or a TOML value) to an annotated type: bool, int, float, str, Literal or an Optional of them."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        words = [item for part in get_args(kind) if get_origin(part) is Literal for item in get_args(part)]
        if words and value in words:
            return value
        # A function is a value of the Python interface only.
        plain = [
            part
            for part in get_args(kind)
            if part is not NoneType and get_origin(part) not in (Literal, Callable) and part is not Callable
        ]
        inner = str if str in plain else next(iter(plain), Literal[tuple(words)])
        # "none" means None only where a number is expected; otherwise it may be a name.
        is_number = inner in (int, float)
        if value is None or (is_number and isinstance(value, str) and value.lower() == "none"):
            return None
        try:
            return convert(value, inner, where)
        except ExperimentError as error:
            removed = explain_removed(str(value))
            text = f"{where} is {value!r}. {removed}" if removed else ", or ".join([str(error), *words])
            raise ExperimentError(text) from None
    if origin is Literal:
        if value not in get_args(kind):
            raise ExperimentError(f"{where} is {value!r}. {suggest(str(value), map(str, get_args(kind)))}")
        return value
    if kind is bool:
        return _convert_bool(value, where)
    return _convert_plain(value, kind, where)


def _convert_bool(value: object, where: str) -> bool:
    """Convert true, yes, 1, false, no or 0."""
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise ExperimentError(f"{where} is {value!r}; expected true or false")


def _convert_plain(value: object, kind: Any, where: str) -> Any:
    """Convert to int (below 2^63), finite float or str."""
    expected = {int: "a whole number", float: "a number", str: "text"}[kind]
    allowed = {int: (int, str), float: (int, float, str), str: (str,)}[kind]
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise ExperimentError(f"{where} is {value!r}; expected {expected}")
    try:
        result = kind(value)
    except (ValueError, OverflowError):
        raise ExperimentError(f"{where} is {value!r}; expected {expected}") from None
    if kind is int and abs(result) >= 2**63:
        raise ExperimentError(f"{where} is {value!r}; expected a whole number below 2^63")
    if kind is float and not math.isfinite(result):
        raise ExperimentError(f"{where} is {value!r}; expected a finite number")
    return result


def read_count(text: str, digits: int = 9) -> int | None:
    """Parse an integer of at least 0 with at most `digits` digits; None if the text is not one."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{digits}}}", text) else None


def read_range(text: str, digits: int = 9) -> range | None:
    """Parse a range such as ``3-5``, both ends included, or a single number; None if the text is neither."""
    first, dash, last = text.partition("-")
    low, high = read_count(first, digits), read_count(last if dash else first, digits)
    return None if low is None or high is None or low > high else range(low, high + 1)


def suggest(name: str, known: Iterable[str], value: object = None) -> str:
    """Suggest the new name if it was renamed (with this value), or the nearest known name; list all known names."""
    words = sorted(known)
    if not words:
        return "It takes no keys."
    if removed := explain_removed(name):
        return removed
    new = renamed(name, value)
    if new in words:
        return f"It is called {new!r} now. Known: {', '.join(words)}."
    if "gtvmin" in words and re.sub("[^a-z]", "", name.lower()) == "kmeans":
        return f"{_KMEANS} Known: {', '.join(words)}."
    from difflib import get_close_matches

    candidates = get_close_matches(name[:_MAX_COMPARED], words, n=1, cutoff=0.5)
    hint = f"Did you mean {candidates[0]!r}? " if candidates else ""
    return f"{hint}Known: {', '.join(words)}."


def show(value: object) -> str:
    """Format a value as a user would type it: 1.0 as 1, True as true; a function as its name."""
    if is_function(value):
        return name_function(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.17g}" if float(f"{value:g}") != value else f"{value:g}"
    return str(value)
