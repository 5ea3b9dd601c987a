"""Families with a link for a share of all pairs: how many devices they can have within memory."""

from collections.abc import Callable, Mapping
from typing import Any

from topologies.errors import GraphError

MOST_LINKS = 60_000_000  # of networkx objects: about 20 GB

_SHARES: dict[str, Callable[[Mapping[str, Any]], float]] = {  # of all pairs that are linked, at least
    "complete": lambda options: 1.0,
    "barbell": lambda options: 0.5,
    "lollipop": lambda options: 0.25 if options.get("clique") is None else 0.0,
    "bipartite": lambda options: 0.5 if options.get("left") is None else 0.0,
    "erdos-renyi": lambda options: options.get("p", 0.3),
    "stochastic-block-model": lambda options: options.get("between", 0.1),
    "communities": lambda options: options.get("p", 0.6) / 2,
}


def refuse_dense(name: str, n: int | None, options: Mapping[str, Any]) -> None:
    """Refuse a graph whose links would fill any memory, before one of them is made."""
    if name not in _SHARES or not isinstance(n, int):
        return
    links = _SHARES[name](options) * n * (n - 1) / 2
    if links > MOST_LINKS:
        raise GraphError(
            f"{name} with {n} devices has about {links:.2g} links, more than {MOST_LINKS}; take fewer devices, or a "
            "graph with few links per device, such as small-world or random-regular"
        )
