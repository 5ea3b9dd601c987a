"""What several runs have in common is made once: a memory that is open while they run, one after the other."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

Shelf = OrderedDict[Hashable, Any]
_open: dict[str, Shelf] | None = None


@contextmanager
def shared_cache() -> Iterator[None]:
    """Let all that is made by `memoize_in_study` be found again until the outermost of these contexts ends."""
    global _open
    before, _open = _open, {} if _open is None else _open
    try:
        yield
    finally:
        _open = before


def memoize_in_study(kind: str, key: Callable[[], Hashable], make: Callable[[], Any], *, keep: int = 1) -> Any:
    """Return what `make` makes or, while runs share, what it made before under the same key.

    Parameters
    ----------
    kind : str
        What it is; each kind has a memory of its own.
    key : callable
        Returns all that the result depends on; not called unless runs share.
    make : callable
        Its result belongs to all: its arrays are never written to.
    keep : int
        So many results of this kind are kept, those used last.
    """
    if _open is None:
        return make()
    shelf, name = _open.setdefault(kind, OrderedDict()), key()
    if name not in shelf:
        shelf[name] = make()
    shelf.move_to_end(name)
    while len(shelf) > keep:
        shelf.popitem(last=False)
    return shelf[name]


def digest(*arrays: Any) -> bytes:
    """Return the SHA-256 of arrays: their kinds, shapes and bits."""
    import numpy as np

    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
