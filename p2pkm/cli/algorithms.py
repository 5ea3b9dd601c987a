"""The methods in words: their docstrings, read out."""

import inspect
import re
from typing import Any

from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import summarize
from p2pkm.core.spec import parameters, show, suggest
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import METHODS, find, names, with_link_weights

_KINDS = {False: "Peer to peer, on any graph:", True: "With a server, as a star:", None: "Not usable:"}
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


def describe(name: str | None) -> Any:
    """Return what is known of a method, or a list of all.

    Raises
    ------
    ExperimentError
        If there is no such method; the nearest is named.
    """
    if name is None:
        found = [(one, summarize(one, describe)) for one in names()]
        return [
            {"name": one, "summary": text, "server": None} if isinstance(text, str) else text for one, text in found
        ]
    key = name.replace("_", "-").lower()
    if key not in METHODS and key not in names():
        raise ExperimentError(f"unknown algorithm {name!r}. {suggest(key, names())}")
    kind = find(key)
    inner: Any = getattr(kind, "func", kind)
    text, *sections = _SECTION.split(inspect.cleandoc(inner.__doc__ or ""))
    parts = {title: body.strip() for title, body in zip(sections[::2], sections[1::2], strict=True)}
    defaults = inspect.signature(inner).parameters
    return {
        "name": key,
        "summary": text.split("\n")[0],
        "server": needs_hub(kind(1)),
        "text": text.strip(),
        **{word: _find(text, word) for word in ("message", "privacy", "guarantee")},
        "link_weights": _describe_link_weights(kind(1), text),
        "rounds": inner.default_rounds,
        "defaults": {option: defaults[option].default for option in parameters(kind)},
        "source": " ".join(parts.get("References", "").split()),
        "parameters": parts.get("Parameters", ""),
    }


def explain(name: str | None) -> str:
    """Return the same as text."""
    if name is None:
        every, lines = describe(None), []
        width = max(len(one["name"]) for one in every)
        for server, title in _KINDS.items():
            rows = [f"  {one['name']:{width}}  {one['summary']}" for one in every if one["server"] is server]
            lines += [title, *rows, ""] if rows else []
        lines += [f"Weights of links act in {', '.join(with_link_weights())}; the others ignore them by default.", ""]
        return "\n".join([*lines, "One in full: p2pkm algorithms NAME. Options: --algorithm NAME:key=value,..."])
    found = describe(name)
    options = ",".join(f"{key}={show(value).lower()}" for key, value in found["defaults"].items())
    return "\n\n".join([
        f"{found['name']}{':' if options else ''}{options}", found["text"], "Parameters\n" + found["parameters"],
        *([f"Link weights: {found['link_weights']}"] if "\nLink weights: " not in found["text"] else []),
        f"Default number of rounds: {found['rounds']}", f"Source: {found['source']}",
    ])  # fmt: skip


def _describe_link_weights(method: Any, text: str) -> str:
    """Return whether and how the weights of links act: what the docstring says, else what the method declares."""
    if needs_hub(method):
        return "ignored; the links of a star have none."
    return _find(text, "link weights") or method.traits.link_weights or "ignored."


def _find(text: str, word: str) -> str | None:
    """Return the paragraph that begins with this word and a colon."""
    found = re.search(rf"^{word.capitalize()}: (.+?)(?:\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else None
