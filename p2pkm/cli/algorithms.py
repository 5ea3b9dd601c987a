"""Catalogue of the methods: a table of all, and the page of one, from its docstring and traits."""

import inspect
import re
from collections.abc import Mapping
from functools import partial
from textwrap import wrap
from typing import Any

from p2pkm.core.card import DEFAULTS, Card, Family, find_card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import summarize
from p2pkm.core.spec import parameters, show, suggest
from p2pkm.core.traits import MessageContent
from p2pkm.engine.conflicts import explain_method
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import METHODS, find, names, with_guarantee, with_link_weights

_WIDTH = 100
FAMILIES: Mapping[Family, str] = {
    "iterative": "Iterative peer-to-peer methods",
    "one-shot": "One-shot peer-to-peer methods",
    "private": "Private methods",
    "deep": "Deep clustering",
    "server": "Methods with a server",
    "baseline": "Baselines",
}
_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
# Headings in the Notes of a method, by JSON key.
_NOTES = {
    "message": "Messages",
    "privacy": "Privacy",
    "guarantee": "Convergence",
    "faults": "Faults",
    "differences": "Differences from the paper",
}
# Options without which a method cannot run, or data that it is made for.
_EXAMPLES = {
    "private": "--algorithm private:epsilon=1,radius=30",
    "feddp": "--algorithm feddp:epsilon=1,radius=30",
    "deepfeca": "--algorithm deepfeca --data shapes:side=16 -k 30",
    "deepgossip": "--algorithm deepgossip --data shapes:side=16 -k 30",
}


def describe(name: str | None) -> Any:
    """Describe a method, or list all methods.

    Raises
    ------
    ExperimentError
        If the name is unknown; the message suggests the nearest.
    """
    if name is None:
        methods = [(method, summarize(method, describe)) for method in names()]
        return [
            {"name": method, "summary": facts, "server": None} if isinstance(facts, str) else facts
            for method, facts in methods
        ]
    key = name.replace("_", "-").lower()
    if key not in METHODS and key not in names():
        raise ExperimentError(f"unknown algorithm {name!r}. {suggest(key, names())}")
    kind = find(key)
    method = kind(1)
    cls: Any = getattr(kind, "func", kind)
    docstring = inspect.cleandoc(cls.__doc__ or "")
    text, *parts = _SECTION.split(docstring)
    sections = {title: body.strip() for title, body in zip(parts[::2], parts[1::2], strict=True)}
    defaults = inspect.signature(cls).parameters
    card = find_card(kind) or _guess_card(key, method, text)
    # Names that share a class, such as ffcm1 and ffcm2, share its docstring: their line tells them apart.
    summary = f"{card.line[0].upper()}{card.line[1:]}." if isinstance(kind, partial) else text.split("\n")[0]
    return {
        "name": key,
        "summary": summary,
        "server": needs_hub(method) and card.sends != "nothing",  # local runs on a star, but sends nothing
        "family": card.family,
        "sends": card.sends,
        "points": card.points,
        "line": card.line,
        "text": text.strip(),
        **{key: _join(_read_note(docstring, heading)) for key, heading in _NOTES.items()},
        "privacy_guarantee": method.traits.guarantee or None,
        "link_weights": _describe_link_weights(method, docstring),
        "refuses": {name.replace("`", ""): reason for name, reason in explain_method(method).items() if reason},
        "rounds": cls.default_rounds,
        "defaults": {option: defaults[option].default for option in parameters(kind) if option != DEFAULTS},
        "published": _describe_published(card, defaults),
        "example": f"python -m p2pkm {_EXAMPLES.get(key, f'--algorithm {key}')}",
        "source": _read_references(sections.get("References", "")),
        "parameters": sections.get("Parameters", ""),
        "docstring": docstring,
    }


def explain(name: str | None, *, full: bool = False) -> str:
    """Format the table of all methods, or the page of one: its docstring in full, or a summary."""
    if name is None:
        return _format_table(describe(None))
    facts = describe(name)
    return f"{facts['name']}\n\n{facts['docstring']}" if full else _format_page(facts)


def _format_table(methods: list[dict[str, Any]]) -> str:
    """Format a row for each method, under the headings of the families."""
    width = max(len(method["name"]) for method in methods)
    head = f"  {'name':{width}}  server  sends            raw points  method"
    lines = [head]
    for family, title in FAMILIES.items():
        rows = [
            f"  {method['name']:{width}}  {_yes(method['server']):6}  {method['sends']:15}  {method['points']:10}  "
            f"{method['line']}"
            for method in methods
            if method.get("family") == family
        ]
        lines += [title, *rows] if rows else []
    broken = [f"  {method['name']:{width}}  {method['summary']}" for method in methods if "family" not in method]
    lines += ["Not usable", *broken] if broken else []
    return "\n".join([
        *lines,
        "",
        "Raw points: local points in messages. few: clusters of one point. sample: points that the method selects.",
        f"Privacy guarantee: only {' and '.join(with_guarantee())}.",
        f"Weights of links act in {', '.join(with_link_weights())}; the others ignore them by default.",
        "p2pkm algorithms NAME explains a method. Options: --algorithm NAME:key=value,...",
    ])


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _format_page(facts: dict[str, Any]) -> str:
    """Format a method: summary, traits, notes, options with their defaults, an example and the source."""
    traits = f"Server: {_yes(facts['server'])}. Sends: {facts['sends']}. Raw points: {facts['points']}."
    guarantee = f"Privacy guarantee: {facts['privacy_guarantee'] or 'none'}."
    blocks = [f"{facts['name']}: {facts['summary']}", traits, "\n".join(wrap(guarantee, _WIDTH))]
    for title in _NOTES.values():
        if note := _read_note(facts["docstring"], title):
            blocks.append(f"{title}\n{_fill(note)}")
    blocks.append("\n".join(wrap(f"Link weights: {facts['link_weights']}", _WIDTH, break_on_hyphens=False)))
    if facts["refuses"]:
        refused = [f"* {name}: {reason}" for name, reason in facts["refuses"].items()]
        blocks.append("Not with, by default\n" + "\n".join(map(_wrap, refused)))
    if facts["defaults"]:
        options = (key if value is None else f"{key}={show(value)}" for key, value in facts["defaults"].items())
        blocks.append(f"Options (--algorithm {facts['name']}:key=value,...)\n{_wrap(', '.join(options))}")
    if facts["published"]:
        blocks.append(f"Published defaults\n{_wrap(facts['published'])}")
    blocks += [
        f"Default number of rounds: {facts['rounds']}",
        f"Example: {facts['example']}",
        f"p2pkm algorithms {facts['name']} --full explains all options.",
        "\n".join(wrap(f"Source: {facts['source']}", _WIDTH, break_on_hyphens=False)),
    ]
    return "\n\n".join(blocks)


def _fill(note: str) -> str:
    """Fill a note of a docstring, by paragraph and list item, indented by two spaces; code is left unchanged."""
    blocks = re.split(r"\n\s*\n|\n(?=(?:[*-]|\d+\.) )", note.strip("\n"))
    filled = [block if block.startswith("    ") else _wrap(_clean(block)) for block in blocks]
    text = "\n".join(filled).lstrip()
    # A symbol such as k stays lower case.
    is_word = text[1:2].isalpha()
    return f"  {text[:1].upper() if is_word else text[:1]}{text[1:]}"


def _clean(text: str) -> str:
    """Remove the markup of a docstring: double backticks, bold and roles; citations become numbers."""
    plain = re.sub(r":\w+:`([^`]*)`", r"\1", text.replace("``", "").replace("**", ""))
    return re.sub(r"(\[\d+\])_", r"\1", plain)


def _wrap(text: str) -> str:
    """Wrap text to lines of the same width, indented by two spaces, items of lists by four."""
    is_item = re.match(r"[*-] |\d+\. ", text) is not None
    indent = "    " if is_item else "  "
    plain = " ".join(text.split())
    return "\n".join(wrap(plain, _WIDTH, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False))


def _guess_card(name: str, method: Any, text: str) -> Card:
    """Make the card of a method of another package, from its traits and the first line of its docstring."""
    sends = {MessageContent.CENTROIDS: "centroids", MessageContent.SUMS: "sums"}
    content = sends.get(method.traits.message_content, "other")
    family: Family = "server" if needs_hub(method) else "iterative"
    line = text.split("\n")[0].rstrip(".")
    return Card(name, family, content, "unknown", line)


def _describe_published(card: Card, defaults: Any) -> str | None:
    """Describe the published values that differ from the defaults, and their source; None for methods without any."""
    if not card.paper:
        return None
    changed = {key: value for key, value in card.paper.items() if value != defaults[key].default}
    listed = ", ".join(f"{key}={show(value)}" for key, value in changed.items()) or "the same as the defaults"
    return f"--algorithm {card.name}:defaults=paper selects: {listed}. Source: {card.source}."


def _describe_link_weights(method: Any, docstring: str) -> str:
    """Describe the use of link weights, from the docstring or else from the traits."""
    if needs_hub(method):
        return "ignored; the links of a star have none."
    note = _join(_read_note(docstring, "Link weights"))
    return note or method.traits.link_weights or "ignored."


def _read_note(docstring: str, heading: str) -> str | None:
    """Find the text under a bold heading of the Notes."""
    note = re.search(rf"^\*\*{heading}\.\*\*\s+(.+?)(?=^\*\*[A-Z][^*\n]*\.\*\*|^\w[\w ]*\n-{{3,}}|\Z)",
                     docstring, re.MULTILINE | re.DOTALL)  # fmt: skip
    return note[1].rstrip() if note else None


def _join(text: str | None) -> str | None:
    """Join the lines of a note."""
    return None if text is None else " ".join(_clean(text).split())


def _read_references(text: str) -> str:
    """Join the references of a docstring, with their numbers."""
    return " ".join(re.sub(r"^\.\. (\[\d+\]) ", r"\1 ", text, flags=re.MULTILINE).split())
