"""Files of JSON lines, one event per line; every error names the line, what was given and what is expected."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from p2pkm.core.errors import ExperimentError

MOST = 2_000_000  # events of a file
_WIDEST = 1_000_000  # bytes of a line
_SHOWN = 40  # letters of a value in a message

Found = TypeVar("Found")


class EventKeys(NamedTuple):
    """The keys of an event by its kind: those it must have and those it may have; and an example of a line."""

    needed: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, ...]]
    example: str


def read_file(path: str, what: str, parse: Callable[[Iterator[bytes]], Found]) -> Found:
    """Return what `parse` makes of the lines of a file.

    Raises
    ------
    ExperimentError
        If it cannot be read or a line is too long.
    """
    try:
        with open(path, "rb") as file:
            return parse(_lines(file, path))
    except OSError as error:
        raise ExperimentError(f"the {what} {path} cannot be read: {error.strerror or error}") from None


def _lines(file: Any, path: str) -> Iterator[bytes]:
    """Yield the lines of a file, none of them too long."""
    number = 0
    while line := file.readline(_WIDEST + 1):
        number += 1
        if len(line) > _WIDEST:
            raise ExperimentError(f"{path}, line {number}: longer than {_WIDEST:,} bytes; expected one event")
        yield line


def read_event(line: bytes | str, keys: EventKeys, place: str) -> dict[str, Any]:
    """Return the object of a line, with the keys of its kind; an ExperimentError names the place."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise ExperimentError(f"{place}: not JSON; expected one object, such as {keys.example}") from None
    if not isinstance(event, dict):
        raise ExperimentError(f"{place}: not an object; expected one, with kind, round and what it is about")
    kind = event.get("kind")
    if not isinstance(kind, str) or kind not in keys.needed:
        raise ExperimentError(f"{place}: kind is {shorten(kind)}; expected one of {', '.join(sorted(keys.needed))}")
    needed = keys.needed[kind]
    for key in needed:
        if key not in event:
            raise ExperimentError(f"{place}: {kind} has no {key}; expected {', '.join(needed)}")
    known = {"kind", *needed, *keys.optional[kind]}
    for key in event:
        if key not in known:
            raise ExperimentError(f"{place}: {kind} has no key {shorten(key)}; known: {', '.join(sorted(known))}")
    return event


def read_number(event: dict[str, Any], key: str, limits: tuple[int, int], place: str, usual: int | None = None) -> int:
    """Return a whole number within limits."""
    value = event.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not limits[0] <= value <= limits[1]:
        raise ExperimentError(
            f"{place}: {key} is {shorten(value)}; expected a whole number from {limits[0]} to {limits[1]:,}"
        )
    return value


def shorten(value: object) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
