"""Deterministic families: functions of the number of devices and the options.

Every function returns a networkx.Graph with nodes 0 to n - 1 without weights, and raises GraphError if an option is out
of range.
"""

from itertools import combinations, pairwise
from math import isqrt

from topologies.errors import GraphError
from topologies.validation import Graph, assemble, require_integer


def ring(n: int) -> Graph:
    """Link every device with the next one, and the last with the first.

    Cost: n edges, diameter n // 2. Two devices have one link, a single one does not have any.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.ring(4)
    >>> sorted(graph.edges)
    [(0, 1), (0, 3), (1, 2), (2, 3)]
    """
    size = require_integer(n, "ring: n", 1)
    return assemble(size, cycle(range(size)))


def path(n: int) -> Graph:
    """Link every device with the next one.

    Cost: n - 1 edges, diameter n - 1, the largest of all connected graphs.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.path(4)
    >>> sorted(graph.edges)
    [(0, 1), (1, 2), (2, 3)]
    """
    size = require_integer(n, "path: n", 1)
    return assemble(size, ((i, i + 1) for i in range(size - 1)))


def star(n: int) -> Graph:
    """Link device 0, the hub, with all others.

    Cost: n - 1 edges, diameter 2 (n > 2); all messages begin or end at the hub.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.star(5)
    >>> sorted(graph[0])
    [1, 2, 3, 4]
    """
    size = require_integer(n, "star: n", 1)
    return assemble(size, ((0, i) for i in range(1, size)))


def complete(n: int) -> Graph:
    """Link every device with every other.

    Cost: n (n - 1) / 2 edges, diameter 1.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.complete(5)
    >>> graph.number_of_edges()
    10
    """
    size = require_integer(n, "complete: n", 1)
    return assemble(size, combinations(range(size), 2))


def tree(n: int, *, branching: int = 2) -> Graph:
    """Link device i > 0 with its parent (i - 1) // branching: a balanced tree, filled level by level.

    Cost: n - 1 edges, diameter about 2 log(n) / log(branching); branching 1 is a path.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.tree(7)
    >>> sorted(graph[1])
    [0, 3, 4]
    """
    size = require_integer(n, "tree: n", 1)
    children = require_integer(branching, "tree: branching", 1)
    return assemble(size, (((i - 1) // children, i) for i in range(1, size)))


def grid(n: int, *, rows: int | None = None) -> Graph:
    """Place the devices in rows, and link each with those to the left, right, above and below.

    Cost, with c = n / rows columns: rows (c - 1) + c (rows - 1) edges, diameter rows + c - 2.

    Parameters
    ----------
    n : int
    rows : int, optional
        A divisor of n. Default: the largest divisor that is at most the square root of n.

    Raises
    ------
    GraphError
        If `rows` does not divide `n`, or `n` is a prime above 3 and `rows` is None.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.grid(12, rows=3)
    >>> sorted(graph[5])
    [1, 4, 6, 9]
    """
    height, width = sides(n, rows, "grid")
    lines = [range(r * width, (r + 1) * width) for r in range(height)]
    lines += [range(c, n, width) for c in range(width)]
    return assemble(n, ((i, j) for line in lines for i, j in pairwise(line)))


def torus(n: int, *, rows: int | None = None) -> Graph:
    """Place the devices on a grid whose rows and columns are rings.

    Cost, with c = n / rows columns: 2 n edges if both sides are above 2, fewer otherwise; diameter rows // 2 + c // 2.

    Parameters
    ----------
    n : int
    rows : int, optional
        As in `grid`.

    Raises
    ------
    GraphError
        As in `grid`.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.torus(12, rows=3)
    >>> sorted(graph[0])
    [1, 3, 4, 8]
    """
    height, width = sides(n, rows, "torus")
    lines = [range(r * width, (r + 1) * width) for r in range(height)]
    lines += [range(c, n, width) for c in range(width)]
    return assemble(n, (link for line in lines for link in cycle(line)))


def exponential(n: int, *, base: int = 2) -> Graph:
    """Link every device with those at distances 1, base, base^2, ... around a ring.

    Cost: about n log(n) / log(base) edges, diameter at most about base log(n) / (2 log(base)).

    Parameters
    ----------
    n : int
    base : int, default=2
        Ratio of successive distances, 2 or more; from n on, the graph is a ring.

    References
    ----------
    Ying, Yuan, Chen, Hu, Pan and Yin (2021), Exponential graph is provably efficient for decentralized deep training,
    Advances in Neural Information Processing Systems 34.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.exponential(8)
    >>> sorted(graph[0])
    [1, 2, 4, 6, 7]
    """
    size, steps = strides(n, base)
    links = {(min(i, j), max(i, j)) for step in steps for i in range(size) for j in [(i + step) % size]}
    return assemble(size, sorted(links))


def barbell(n: int) -> Graph:
    """Link two cliques of n // 2 devices directly or, for odd n, through one device between them.

    Cost, with h = n // 2: h (h - 1) edges and one for the bridge (two for odd n), diameter 3 (odd: 4) if h > 1.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.barbell(8)
    >>> sorted(graph.edges(3))
    [(3, 0), (3, 1), (3, 2), (3, 4)]
    """
    size = require_integer(n, "barbell: n", 1)
    half = size // 2
    links = [*combinations(range(half), 2), *combinations(range(size - half, size), 2)]
    bridge = range(half - 1, size - half) if half else ()
    return assemble(size, [*links, *((i, i + 1) for i in bridge)])


def caveman(n: int, *, size: int = 4) -> Graph:
    """Form n / size cliques, and redirect one link of each to the previous clique: the connected caveman graph.

    Cost: n (size - 1) / 2 edges, diameter about n / size. A single clique loses the link.

    Parameters
    ----------
    n : int
    size : int, default=4
        Devices per clique, a divisor of n, 3 or more, because cliques of 2 would lose their only link.

    Raises
    ------
    GraphError
        If `size` does not divide `n`; the message lists the divisors.

    References
    ----------
    Watts (1999), Networks, dynamics, and the small-world phenomenon, American Journal of Sociology 105.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.caveman(12, size=4)
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (12, 18)
    """
    total = require_integer(n, "caveman: n", 1)
    cave = require_integer(size, "caveman: size", 3)
    if total % cave:
        legal = ", ".join(map(str, divisors(total, least=3))) or "none"
        raise GraphError(
            f"caveman: size is {cave}, which does not divide the number of devices, {total}; "
            f"expected one of: {legal}. Otherwise use another number of devices"
        )
    links = []
    for first in range(0, total, cave):
        members = range(first, first + cave)
        links += [link for link in combinations(members, 2) if link != (first, first + 1)]
        links.append((first, (first - 1) % total))
    return assemble(total, links)


def cycle(nodes: range) -> list[tuple[int, int]]:
    """List the links of a ring, each once: none for one node, one for two."""
    links = list(pairwise(nodes))
    return [*links, (nodes[-1], nodes[0])] if len(nodes) > 2 else links


def strides(n: int, base: int) -> tuple[int, list[int]]:
    """Return the number of devices and the distances of linked devices, at most n // 2, in an exponential graph."""
    size = require_integer(n, "exponential: n", 1)
    ratio = require_integer(base, "exponential: base", 2)
    distances = set()
    step = 1
    while step < size:
        distances.add(min(step, size - step))
        step *= ratio
    return size, sorted(distances)


def sides(n: int, rows: int | None, family: str) -> tuple[int, int]:
    """Return the numbers of rows and columns."""
    size = require_integer(n, f"{family}: n", 1)
    if rows is None:
        height = max(divisor for divisor in range(1, isqrt(size) + 1) if size % divisor == 0)
        if height == 1 and size > 3:
            raise GraphError(
                f"{family}: {size} devices is a prime number, so they cannot form rows and columns. Use another number "
                "of devices, or set rows=1"
            )
        return height, size // height
    height = require_integer(rows, f"{family}: rows", 1)
    if size % height:
        legal = ", ".join(map(str, divisors(size, least=1)))
        raise GraphError(f"{family}: rows is {height}, which does not divide {size} devices; expected one of: {legal}")
    return height, size // height


def divisors(n: int, *, least: int) -> list[int]:
    """List the divisors of n that are at least `least`, ascending."""
    small = [divisor for divisor in range(1, isqrt(n) + 1) if n % divisor == 0]
    return sorted(divisor for divisor in {*small, *(n // part for part in small)} if divisor >= least)
