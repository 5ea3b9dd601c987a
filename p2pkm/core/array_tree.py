"""Arrays in a tree of mappings, tuples, lists and dataclasses: by name, and read-only for a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from p2pkm.core.contract import list_fields

# Types without arrays: most parts of a result are numbers and texts of its records.
_PLAIN = frozenset((int, float, str, bool, bytes, type(None)))


def list_arrays(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield all arrays in an argument, each with its name."""
    if isinstance(tree, np.ndarray):
        yield name, tree
        return
    parts: dict[str, Any] = {}
    if isinstance(tree, Mapping):
        parts = {f".{key}": part for key, part in tree.items() if type(part) not in _PLAIN}
    elif fields := list_fields(tree):
        parts = {f".{key}": part for key, part in zip(fields, tree, strict=True)}
    elif isinstance(tree, (tuple, list)):
        parts = {f"[{number}]": part for number, part in enumerate(tree) if type(part) not in _PLAIN}
    elif is_dataclass(tree):
        parts = {f".{key}": part for key, part in vars(tree).items()}
    for key, part in parts.items():
        yield from list_arrays(part, name + key)


@contextmanager
def read_only(tree: Any) -> Iterator[None]:
    """Make the arrays of a tree read-only inside the context."""
    arrays = [array for _, array in list_arrays(tree, "") if array.flags.writeable]
    for array in arrays:
        array.flags.writeable = False
    try:
        yield
    finally:
        # In reverse: an array becomes writeable only if the array that it is a view of is.
        for array in reversed(arrays):
            if not isinstance(array.base, np.ndarray) or array.base.flags.writeable:
                array.flags.writeable = True
