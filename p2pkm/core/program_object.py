"""Object of a Python program as the value of an option: a graph, points, a partition, a method, or centers."""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from p2pkm.core.errors import ExperimentError

# Text of an object in files: its label and the digest of its content. Version 0.1.0 wrote the digest only.
_TEXT = re.compile(r"(?P<label>.+) \(object [0-9a-f]{16}\)|object:[0-9a-f]{16}", re.DOTALL)


class ProgramObject:
    """Object of a program as the value of an option; two are equal if their contents are equal.

    Parameters
    ----------
    value : object
    label : str
        Name in messages, tables and figures.
    find_digest : callable
        Returns the digest of the content, 16 hexadecimal digits; called when it is needed.

    Attributes
    ----------
    name, options
        Those of a `p2pkm.core.spec.Spec` that is in no registry.
    """

    name: ClassVar[str] = ""
    options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, value: Any, label: str, find_digest: Callable[[], str]) -> None:
        self.value = value
        self.label = label
        self._find_digest = find_digest

    @cached_property
    def digest(self) -> str:
        """Digest of the content."""
        return self._find_digest()

    def describe(self) -> str:
        """Return the text for files: label and digest, from which `require_object` tells what is missing."""
        return f"{self.label} (object {self.digest})"

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        # As the text of an option, in messages.
        return repr(self.label)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramObject) and (self.value is other.value or self.digest == other.digest)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> Any:
        # In another process the content is not compared again.
        return _restore, (self.value, self.label, self.digest)


def _restore(value: Any, label: str, digest: str) -> ProgramObject:
    """Rebuild an object that was pickled."""
    return ProgramObject(value, label, lambda: digest)


def require_object(value: object, option: str) -> Any:
    """Return the object that is the value of an option; None if the value is text.

    Raises
    ------
    ExperimentError
        If the value is the text of an object, which only the program that made the object has.
    """
    if isinstance(value, ProgramObject):
        return value.value
    if is_missing_object(value):
        raise ExperimentError(
            f"{option} is {find_label(value)!r}, an object of a Python program; expected text. Call "
            "p2pkm.study, p2pkm.compare or p2pkm.bench again with the same objects and the same folder: finished runs "
            "are not repeated"
        )
    return None


def is_missing_object(value: object) -> bool:
    """Check whether a value is the text of an object."""
    return isinstance(value, str) and _TEXT.fullmatch(value) is not None


def find_label(text: Any) -> Any:
    """Return the label in the text of an object; anything else is returned unchanged."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return (found and found["label"]) or text


def describe(value: object) -> Any:
    """Return the value of an option as files store it: an object as text, anything else unchanged."""
    return value.describe() if isinstance(value, ProgramObject) else value
