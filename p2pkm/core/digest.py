"""Digest of values: arrays, numbers, text, records, and functions of a program."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

from p2pkm.core.program_function import is_function, list_content

# Array elements that are hashed at a time, so that no large temporary copy is made.
_BLOCK = 1 << 17


def digest(*values: Any) -> bytes:
    """Compute the SHA-256 of values: types, shapes and bits of arrays, contents of records, mappings and functions.

    Objects that are none of these count by their type only.
    """
    total = sha256()
    for value in values:
        _update(total, value)
    return total.digest()


def _update(total: Any, value: Any) -> None:
    import numpy as np

    value = value.item() if isinstance(value, np.generic) else value
    kind = type(value)
    if isinstance(value, np.ndarray):
        total.update(f"{value.dtype.str}{value.shape}".encode())
        # The array may be a view of stride 0, so blocks of it are copied, never all of it.
        flat = value.reshape(-1)
        for first in range(0, len(flat), _BLOCK):
            total.update(np.ascontiguousarray(flat[first : first + _BLOCK]).view(np.uint8).data)
    elif value is None or isinstance(value, (bool, int, float, str)):
        total.update(f"{value!r};".encode())
    elif isinstance(value, bytes):
        total.update(value)
    elif is_function(value):
        _update(total, list_content(value))
    else:
        children = list(_list_children(value))
        total.update(f"{value if isinstance(value, type) else kind} {len(children)};".encode())
        for child in children:
            _update(total, child)


def _list_children(value: Any) -> Iterable[Any]:
    """Return the parts of a record, a mapping or a sequence, in a fixed order."""
    if isinstance(value, Mapping):
        return (part for name in sorted(value) for part in (name, value[name]))
    if isinstance(value, (tuple, list)):
        return value
    return [vars(value)[item.name] for item in fields(value)] if is_dataclass(type(value)) else ()
