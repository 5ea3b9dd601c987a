"""Deterministic families from textbooks and papers on decentralized learning.

Every function returns a networkx.Graph with nodes 0 to n - 1 without weights, and raises GraphError if an option is out
of range; for an invalid number of devices, the message names the nearest valid ones.
"""

from itertools import combinations, product
from math import isqrt
from typing import Literal

from topologies.errors import GraphError
from topologies.families.regular import cycle, path
from topologies.validation import Graph, assemble, require_integer


def hypercube(n: int) -> Graph:
    """Link devices whose numbers differ in one binary digit.

    Cost: n log2(n) / 2 edges, degree and diameter log2(n).

    Parameters
    ----------
    n : int
        A power of two.

    References
    ----------
    Saad and Schultz (1988), Topological properties of hypercubes, IEEE Transactions on Computers 37.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.hypercube(8)
    >>> sorted(graph[0])
    [1, 2, 4]
    """
    digits = dimensions(n)
    return assemble(n, ((i, i | 1 << b) for i in range(n) for b in range(digits) if not i >> b & 1))


def ladder(n: int) -> Graph:
    """Link two paths of n / 2 devices: device i with device i + n / 2.

    Cost: 3 n / 2 - 2 edges, degree 2 or 3, diameter n / 2.

    Parameters
    ----------
    n : int
        Even.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.ladder(8)
    >>> sorted(graph[0])
    [1, 4]
    """
    half = _half(n, "ladder")
    rails = [link for first in (0, half) for link in _shift(path(half).edges, first)]
    return assemble(n, [*rails, *((i, i + half) for i in range(half))])


def circular_ladder(n: int) -> Graph:
    """Link two rings of n / 2 devices, device i with device i + n / 2: a prism.

    Cost: 3 n / 2 edges, degree 3, diameter n // 4 + 1 (n > 4).

    Parameters
    ----------
    n : int
        Even.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.circular_ladder(8)
    >>> sorted(graph[0])
    [1, 3, 4]
    """
    half = _half(n, "circular-ladder")
    rails = [*cycle(range(half)), *cycle(range(half, n))]
    return assemble(n, [*rails, *((i, i + half) for i in range(half))])


def wheel(n: int) -> Graph:
    """Link device 0, the hub, with all others, and these in a ring: connected even without the hub.

    Cost: 2 (n - 1) edges (n > 3), degree 3 and n - 1 at the hub, diameter 2 (n > 4).

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.wheel(6)
    >>> sorted(graph[1])
    [0, 2, 5]
    """
    size = require_integer(n, "wheel: n", 1)
    return assemble(size, [*((0, i) for i in range(1, size)), *cycle(range(1, size))])


def bipartite(n: int, *, left: int | None = None) -> Graph:
    """Link each of the first `left` devices with each of the others: the complete bipartite graph.

    Cost: left (n - left) edges, degrees left and n - left, diameter 2 (n > 2).

    Parameters
    ----------
    n : int
        At least 2.
    left : int, optional
        From 1 to n - 1. Default: n // 2.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.bipartite(6, left=2)
    >>> sorted(graph[0])
    [2, 3, 4, 5]
    """
    size = require_integer(n, "bipartite: n", 2)
    first = size // 2 if left is None else require_integer(left, "bipartite: left", 1)
    if first >= size:
        raise GraphError(f"bipartite: left is {first} of {size} devices; expected 1 to {size - 1}")
    return assemble(size, product(range(first), range(first, size)))


def lollipop(n: int, *, clique: int | None = None) -> Graph:
    """Attach a path to a clique: the graph with the slowest random walks.

    Cost, with c in the clique: c (c - 1) / 2 + n - c edges, largest degree c, diameter n - c + 1 (c > 1).

    Parameters
    ----------
    n : int
    clique : int, optional
        Devices in the clique, from 1 to n. Default: (n + 1) // 2. Random walks are slowest for about 2 n / 3.

    References
    ----------
    Brightwell and Winkler (1990), Maximum hitting time for random walks on graphs, Random Structures & Algorithms 1.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.lollipop(10, clique=6)
    >>> sorted(graph[9])
    [8]
    """
    size = require_integer(n, "lollipop: n", 1)
    dense = (size + 1) // 2 if clique is None else require_integer(clique, "lollipop: clique", 1)
    if dense > size:
        raise GraphError(f"lollipop: clique is {dense}; expected 1 to {size}, the number of devices")
    return assemble(size, [*combinations(range(dense), 2), *((i - 1, i) for i in range(dense, size))])


def margulis(n: int) -> Graph:
    """Link each place (x, y) of a square with (x + 2y, y), (x + 2y + 1, y), (x, y + 2x) and (x, y + 2x + 1).

    Coordinates are modulo sqrt(n); self-loops and repetitions are removed. A deterministic expander: the spectral gap
    has a positive lower bound for all n. Cost: at most 4 n edges, degree at most 8, diameter of the order of log(n).

    Parameters
    ----------
    n : int
        A square number; device x sqrt(n) + y is at (x, y).

    References
    ----------
    Margulis (1973), Explicit constructions of concentrators, Problems of Information Transmission 9; Gabber and Galil
    (1981), Explicit constructions of linear-sized superconcentrators, Journal of Computer and System Sciences 22.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.margulis(9)
    >>> graph.number_of_nodes()
    9
    """
    size = require_integer(n, "margulis: n", 1)
    side = isqrt(size)
    if side * side != size:
        raise GraphError(
            f"margulis: the number of devices is {size}; expected a square number. "
            f"Use {side * side} or {(side + 1) ** 2}"
        )
    links = set()
    for x, y in product(range(side), repeat=2):
        for u, v in ((x + 2 * y, y), (x + 2 * y + 1, y), (x, y + 2 * x), (x, y + 2 * x + 1)):
            links.add(tuple(sorted((x * side + y, u % side * side + v % side))))
    return assemble(size, sorted((i, j) for i, j in links if i != j))


def d_cliques(n: int, *, size: int = 4, between: Literal["complete", "ring"] = "complete") -> Graph:
    """Form cliques of devices, and link every two cliques, or each with the next, by one link.

    Intended for cliques whose members together have points of every class; choose the partition accordingly. Clique c
    contains the devices c size to (c + 1) size - 1, the last one the remaining devices. Links between cliques are
    distributed evenly over the members. Cost, with c cliques: n (size - 1) / 2 + c (c - 1) / 2 edges and diameter at
    most 3; for a ring of cliques, n (size - 1) / 2 + c edges and diameter about c.

    Parameters
    ----------
    n : int
    size : int, default=4
        Devices per clique; with 1, the graph is complete or a ring.
    between : {"complete", "ring"}, default="complete"
        Pairs of cliques that are linked: all, or successive ones.

    References
    ----------
    Bellet, Kermarrec and Lavoie (2022), D-Cliques: compensating for data heterogeneity with topology in decentralized
    federated learning, International Symposium on Reliable Distributed Systems.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.d_cliques(12, size=4)
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (12, 21)
    """
    total = require_integer(n, "d-cliques: n", 1)
    each = require_integer(size, "d-cliques: size", 1)
    if not isinstance(between, str) or between not in ("complete", "ring"):
        raise GraphError(f"d-cliques: between is {between!r}; expected 'complete' or 'ring'")
    cliques = [range(first, min(first + each, total)) for first in range(0, total, each)]
    count = len(cliques)
    pairs = combinations(range(count), 2) if between == "complete" else cycle(range(count))
    links = [link for members in cliques for link in combinations(members, 2)]
    used = [0] * count
    for pair in pairs:
        i, j = (cliques[c][used[c] % len(cliques[c])] for c in pair)
        links.append((i, j))
        for c in pair:
            used[c] += 1
    return assemble(total, links)


def dimensions(n: int) -> int:
    """Return the dimension of the hypercube of n devices."""
    size = require_integer(n, "hypercube: n", 1)
    digits = size.bit_length() - 1
    if size != 1 << digits:
        raise GraphError(
            f"hypercube: the number of devices is {size}; expected a power of two. Use {1 << digits} or {2 << digits}"
        )
    return digits


def _half(n: int, family: str) -> int:
    size = require_integer(n, f"{family}: n", 2)
    if size % 2:
        raise GraphError(
            f"{family}: the number of devices is {size}; expected an even number. Use {size - 1} or {size + 1}"
        )
    return size // 2


def _shift(links: list[tuple[int, int]], first: int) -> list[tuple[int, int]]:
    return [(first + i, first + j) for i, j in links]
