"""Files of JSON lines, one event per line; every error names the line, the value and the expected values."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from p2pkm.core.errors import ExperimentError

# Limits that protect against files of another kind, well above any real trace.
MOST = 2_000_000  # events of a file
_MAX_LINE_BYTES = 1_000_000
_MAX_VALUE_LENGTH = 40  # characters of a value in a message

Parsed = TypeVar("Parsed")


class EventKeys(NamedTuple):
    """Required and optional keys of an event by its kind, and an example of a line."""

    needed: Mapping[str, tuple[str, ...]]
    optional: Mapping[str, tuple[str, ...]]
    example: str


def read_file(path: str, what: str, parse: Callable[[Iterator[bytes]], Parsed]) -> Parsed:
    """Parse the lines of a file.

    Raises
    ------
    ExperimentError
        If the file cannot be read or a line is too long.
    """
    try:
        with open(path, "rb") as file:
            return parse(_lines(file, path))
    except OSError as error:
        raise ExperimentError(f"the {what} {path} cannot be read: {error.strerror or error}") from None


def _lines(file: Any, path: str) -> Iterator[bytes]:
    """Yield the lines of a file; raise an error at a line that is too long."""
    number = 0
    while line := file.readline(_MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > _MAX_LINE_BYTES:
            raise ExperimentError(f"{path}, line {number}: longer than {_MAX_LINE_BYTES:,} bytes; expected one event")
        yield line


def read_event(line: bytes | str, keys: EventKeys, place: str, by_seconds: EventKeys | None = None) -> dict[str, Any]:
    """Parse a line to an object with the keys of its kind; errors name `place`.

    by_seconds: keys of an object that has the key "seconds"; default: `keys`.
    """
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        raise ExperimentError(f"{place}: not JSON; expected one object, such as {keys.example}") from None
    if not isinstance(event, dict):
        raise ExperimentError(f"{place}: not an object; expected one, with kind, round and what it is about")
    kind = event.get("kind")
    if not isinstance(kind, str) or kind not in keys.needed:
        raise ExperimentError(f"{place}: kind is {shorten(kind)}; expected one of {', '.join(sorted(keys.needed))}")
    keys = by_seconds if by_seconds is not None and "seconds" in event and kind in by_seconds.needed else keys
    needed = keys.needed[kind]
    for key in needed:
        if key not in event:
            raise ExperimentError(f"{place}: {kind} has no {key}; expected {', '.join(needed)}")
    known = {"kind", *needed, *keys.optional[kind]}
    for key in event:
        if key not in known:
            raise ExperimentError(f"{place}: unknown key {shorten(key)} of {kind}; expected {', '.join(sorted(known))}")
    return event


def read_number(event: dict[str, Any], key: str, limits: tuple[int, int], place: str, usual: int | None = None) -> int:
    """Read an integer within limits; `usual`: value if the key is absent."""
    value = event.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not limits[0] <= value <= limits[1]:
        raise ExperimentError(
            f"{place}: {key} is {shorten(value)}; expected a whole number from {limits[0]} to {limits[1]:,}"
        )
    return value


def shorten(value: object) -> str:
    """Format a value for a message, shortened."""
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 3]}..."
