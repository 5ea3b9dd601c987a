"""Cache of results that several runs of a study share, such as data sets and central k-means."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

_Cache = OrderedDict[Hashable, Any]  # results of one kind by key, least recently used first
_caches: dict[str, _Cache] | None = None  # by kind; None outside `shared_cache`


@contextmanager
def shared_cache() -> Iterator[None]:
    """Share work between the runs of a script, as a study does: points, graphs, central k-means and its costs.

    Results are the same in every bit. The work is forgotten when the outermost of these contexts ends.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.grid16(points=5)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4))
    >>> with p2pkm.shared_cache():  # central k-means runs once
    ...     found = [p2pkm.simulate(kind(4), None, shards, progress=False) for kind in (p2pkm.FKM, p2pkm.KFED)]
    >>> len({result.summary["cost_central"] for result in found})
    1
    """
    global _caches
    previous = _caches
    _caches = {} if _caches is None else _caches
    try:
        yield
    finally:
        _caches = previous


def memoize_in_study(kind: str, key: Callable[[], Hashable], make: Callable[[], Any], *, keep: int = 1) -> Any:
    """Return the result of `make`; within `shared_cache`, reuse the result of an earlier call with the same key.

    Parameters
    ----------
    kind : str
        Name of the cache.
    key : callable
        Returns everything that the result depends on; called only within `shared_cache`.
    make : callable
        Computes the result. It is shared: its arrays must not be written to.
    keep : int
        Number of results in this cache; the least recently used are dropped.
    """
    if _caches is None:
        return make()
    cache = _caches.setdefault(kind, OrderedDict())
    name = key()
    if name not in cache:
        cache[name] = make()
    cache.move_to_end(name)
    while len(cache) > keep:
        cache.popitem(last=False)
    return cache[name]
