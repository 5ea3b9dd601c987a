"""Short `repr` of objects that hold arrays."""

import textwrap
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_LINE_LENGTH = 100
_MAX_LINES = 5
_MAX_VALUE_LENGTH = 40


def short_repr(thing: Any) -> str:
    """Format a dataclass or named tuple in at most five lines; arrays as type and shape."""
    names = [field.name for field in fields(thing)] if is_dataclass(thing) else list(thing._fields)
    values = ", ".join(f"{name}={_format_value(getattr(thing, name))}" for name in names)
    text = f"{type(thing).__name__}({values})"
    lines = textwrap.wrap(text, _LINE_LENGTH, max_lines=_MAX_LINES, placeholder=" ...)", subsequent_indent="    ")
    return "\n".join(lines)


def _format_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, dict | list) or (isinstance(value, tuple) and type(value) is tuple and len(value) > 3):
        return f"<{type(value).__name__} of {len(value):,}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_VALUE_LENGTH else f"<{type(value).__name__}>"
