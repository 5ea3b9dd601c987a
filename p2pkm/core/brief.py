"""What `repr` tells of objects that hold arrays: in a few lines, however large they are."""

import textwrap
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_WIDE, _LINES = 100, 5  # letters of a line, and lines
_LONG = 40  # letters of a value


def short_repr(thing: Any) -> str:
    """Return type and fields of a dataclass or a named tuple in at most five lines, arrays by type and shape."""
    names = [field.name for field in fields(thing)] if is_dataclass(thing) else list(thing._fields)
    told = ", ".join(f"{name}={_tell(getattr(thing, name))}" for name in names)
    text = f"{type(thing).__name__}({told})"
    return "\n".join(textwrap.wrap(text, _WIDE, max_lines=_LINES, placeholder=" ...)", subsequent_indent="    "))


def _tell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, dict | list) or (isinstance(value, tuple) and type(value) is tuple and len(value) > 3):
        return f"<{type(value).__name__} of {len(value):,}>"
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONG else f"<{type(value).__name__}>"
