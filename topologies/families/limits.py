"""Limits of dense families, which have a link for a fixed share of all pairs of devices."""

from collections.abc import Callable, Mapping
from typing import Any

from topologies.errors import GraphError

MOST_LINKS = 60_000_000  # about 20 GB of networkx objects

# Lower bound of the share of linked pairs, from the options of the family.
_SHARES: dict[str, Callable[[Mapping[str, Any]], float]] = {
    "complete": lambda options: 1.0,
    "barbell": lambda options: 0.5,
    "lollipop": lambda options: 0.25 if options.get("clique") is None else 0.0,
    "bipartite": lambda options: 0.5 if options.get("left") is None else 0.0,
    "erdos-renyi": lambda options: options.get("p", 0.3),
    "stochastic-block-model": lambda options: options.get("between", 0.1),
    "communities": lambda options: options.get("p", 0.6) / 2,
}


def check_density(name: str, n: int | None, options: Mapping[str, Any]) -> None:
    """Check that the links of a graph fit into memory, before one of them is created."""
    if name not in _SHARES or not isinstance(n, int):
        return
    links = _SHARES[name](options) * n * (n - 1) / 2
    if links > MOST_LINKS:
        raise GraphError(
            f"{name} with {n} devices has about {links:.2g} links; expected at most {MOST_LINKS}. Use fewer devices, "
            "or a graph with few links per device, such as small-world or random-regular"
        )
