"""Families drawn by chance: the same seed gives the same graph, and every graph is connected.

A draw that is not connected is drawn again, at most `ATTEMPTS` times, with seeds derived from the seed.
Every function returns a plain networkx.Graph with nodes 0 to n-1 and no weights, and raises GraphError if an
option is out of range or no draw is connected.
"""

import math
from collections.abc import Callable, Iterator

from topologies.errors import GraphError
from topologies.validation import Graph, assemble, fraction, is_weight, whole

ATTEMPTS = 100


def small_world(n: int, *, degree: int = 4, rewire: float = 0.1, seed: int = 0) -> Graph:
    """Draw a ring where each device knows its `degree` nearest, some links moved to random ends (Watts-Strogatz).

    Cost: n degree / 2 edges; diameter about n / degree for rewire 0, about log(n) / log(degree) from 0.1 or so.

    Parameters
    ----------
    n : int
    degree : int
        Even, from 2 to below n; the mean degree.
    rewire : float
        Probability that a link is moved, 0 to 1.
    seed : int

    References
    ----------
    Watts and Strogatz (1998), Collective dynamics of 'small-world' networks, Nature 393.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.small_world(20, degree=4, rewire=0.1, seed=1)
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (20, 40)
    """
    import networkx

    size, links, chance = small_world_options(n, degree, rewire)
    return redraw(
        size, seed, lambda s: networkx.watts_strogatz_graph(size, links, chance, seed=s), "small-world", "degree"
    )


def random_regular(n: int, *, degree: int = 4, seed: int = 0) -> Graph:
    """Draw a graph in which every device has the same degree.

    Cost: n degree / 2 edges, diameter about log(n) / log(degree - 1).

    Parameters
    ----------
    n : int
    degree : int
        Below n; n times degree has to be even; degree 1 for two devices only.
    seed : int

    References
    ----------
    Steger and Wormald (1999), Generating random regular graphs quickly, Combinatorics, Probability and Computing 8.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.random_regular(10, degree=4, seed=1)
    >>> set(dict(graph.degree).values())
    {4}
    """
    import networkx

    size, links = regular_options(n, degree)
    if 2 * links < size:
        return redraw(
            size, seed, lambda s: networkx.random_regular_graph(links, size, seed=s), "random-regular", "degree"
        )
    rest = size - 1 - links  # the draw takes minutes near the complete graph, and no time for what is missing there

    def draw(s: int) -> Graph:
        return networkx.complement(networkx.random_regular_graph(rest, size, seed=s))

    return redraw(size, seed, draw, "random-regular", "degree")


def erdos_renyi(n: int, *, p: float = 0.3, seed: int = 0) -> Graph:
    """Draw every possible link with the same probability, independently.

    Cost: about p n (n - 1) / 2 edges, diameter about log(n) / log(p n); connected, as a rule, for p > log(n) / n.

    Parameters
    ----------
    n : int
    p : float
        Probability of a link, 0 to 1.
    seed : int

    References
    ----------
    Erdos and Renyi (1959), On random graphs I, Publicationes Mathematicae 6; Gilbert (1959), Random graphs.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.erdos_renyi(20, p=0.3, seed=1)
    >>> graph.number_of_nodes()
    20
    """
    return _random(whole(n, "erdos-renyi: n", 1), seed, _chance(p, "erdos-renyi: p"), "erdos-renyi")


def barabasi_albert(n: int, *, m: int = 2, seed: int = 0) -> Graph:
    """Grow a graph from a star of m + 1 devices: each new one links to m others, the well-linked preferred.

    Cost: m (n - m) edges, diameter about log(n) / log(log(n)); a few hubs.

    Parameters
    ----------
    n : int
    m : int
        Links of each new device, from 1 to below n.
    seed : int

    References
    ----------
    Barabasi and Albert (1999), Emergence of scaling in random networks, Science 286.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.barabasi_albert(20, m=2, seed=1)
    >>> graph.number_of_edges(), max(degree for _, degree in graph.degree) > 4
    (36, True)
    """
    import networkx

    size, links = albert_options(n, m)
    return redraw(size, seed, lambda s: networkx.barabasi_albert_graph(size, links, seed=s), "barabasi-albert", "m")


def random_geometric(n: int, *, radius: float | None = None, seed: int = 0) -> Graph:
    """Throw the devices on the unit square and link those at most `radius` apart, as radio does.

    Cost: about pi radius^2 n^2 / 2 edges, diameter about 1.4 / radius.

    Parameters
    ----------
    n : int
    radius : float, optional
        Above 0; by default sqrt(1.5 log(n) / (pi n)), for a mean degree of about 1.5 log(n), half as much again as
        a connected graph needs.
    seed : int

    References
    ----------
    Gilbert (1961), Random plane networks; Penrose (2003), Random Geometric Graphs, Oxford University Press.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.random_geometric(20, seed=1)
    >>> graph.number_of_nodes()
    20
    """
    import networkx

    size, reach = geometric_options(n, radius)
    return redraw(
        size, seed, lambda s: networkx.random_geometric_graph(size, reach, seed=s), "random-geometric", "radius"
    )


def communities(n: int, *, p: float = 0.6, bridges: int = 1, seed: int = 0) -> Graph:
    """Draw two communities, each by itself as in `erdos_renyi`, and a few links between them.

    The first (n + 1) // 2 devices are one community, the others the second; the bridges are distinct pairs, one end in
    each, all equally likely. Cost: about p n^2 / 4 + bridges edges.

    Parameters
    ----------
    n : int
        At least 2.
    p : float
        Probability of a link inside a community, 0 to 1.
    bridges : int
        From 1 to the number of pairs.
    seed : int

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.communities(20, bridges=1, seed=0)
    >>> sum((i < 10) != (j < 10) for i, j in graph.edges)  # links between the two
    1
    """
    from numpy.random import SeedSequence, default_rng

    size, root = whole(n, "communities: n", 2), whole(seed, "communities: seed", 0)
    links, first = whole(bridges, "communities: bridges", 1), (size + 1) // 2
    pairs = first * (size - first)
    if links > pairs:
        raise GraphError(f"communities: bridges is {links}, but there are only {pairs} pairs; take at most {pairs}")
    chance = _chance(p, "communities: p")
    halves = [_random(count, 2 * root + i, chance, "communities") for i, count in enumerate((first, size - first))]
    chosen = default_rng(SeedSequence([root, size])).choice(pairs, links, replace=False)
    between = [(int(pair) // (size - first), first + int(pair) % (size - first)) for pair in chosen]
    second = [(first + i, first + j) for i, j in halves[1].edges]
    return assemble(size, sorted([*halves[0].edges, *second, *between]))


def _random(n: int, seed: int, p: float, family: str) -> Graph:
    """Draw every link with probability p until the graph is connected."""
    import networkx

    return redraw(n, seed, lambda s: networkx.fast_gnp_random_graph(n, p, seed=s), family, "p")


def _chance(p: float, what: str) -> float:
    chance = fraction(p, what)
    return chance if 1 - chance < 1 else 0.0  # below the float's resolution; log(1 - p) would be 0


def small_world_options(n: int, degree: int, rewire: float) -> tuple[int, int, float]:
    """Return the options of `small_world`, checked."""
    size = whole(n, "small-world: n", 1)
    links = whole(degree, "small-world: degree", 1)
    below(links, size, (size - 1) // 2 * 2, "small-world: degree")
    if links % 2:
        raise GraphError(
            f"small-world: degree is {links}, but every device gets as many links to the left as to the right; "
            f"expected an even number: {_evens(size)}"
        )
    return size, links, fraction(rewire, "small-world: rewire")


def regular_options(n: int, degree: int, family: str = "random-regular") -> tuple[int, int]:
    """Return the options of `random_regular`, checked."""
    size = whole(n, f"{family}: n", 1)
    links = whole(degree, f"{family}: degree", 1)
    below(links, size, size - 1, f"{family}: degree")
    if size * links % 2:
        raise GraphError(
            f"{family}: degree is {links} for {size} devices, but devices times degree has to be even; "
            f"take an even degree ({_evens(size)}) or an even number of devices"
        )
    if links == 1 and size > 2:
        raise GraphError(f"{family}: degree 1 only links pairs; for {size} devices take 2 to {size - 1}")
    return size, links


def albert_options(n: int, m: int) -> tuple[int, int]:
    """Return the options of `barabasi_albert`, checked."""
    size = whole(n, "barabasi-albert: n", 1)
    links = whole(m, "barabasi-albert: m", 1)
    below(links, size, size - 1, "barabasi-albert: m")
    return size, links


def geometric_options(n: int, radius: float | None, family: str = "random-geometric") -> tuple[int, float]:
    """Return the number of devices and the radius of `random_geometric`."""
    size = whole(n, f"{family}: n", 1)
    if radius is None:
        return size, math.sqrt(1.5 * math.log(size) / (math.pi * size))
    if not is_weight(radius):
        raise GraphError(f"{family}: radius is {radius!r}; expected a finite number above 0")
    return size, float(radius)


def draws(seed: int, family: str) -> Iterator[int]:
    """Yield the seeds of the attempts, one after the other."""
    from numpy import uint64
    from numpy.random import SeedSequence

    root = whole(seed, f"{family}: seed", 0)
    for attempt in range(ATTEMPTS):
        yield int(SeedSequence([root, attempt]).generate_state(1, uint64)[0])


def unconnected(n: int, family: str, option: str) -> GraphError:
    """Return the error to raise when no attempt gave a connected graph."""
    return GraphError(
        f"{family}: none of {ATTEMPTS} draws for {n} devices was connected; "
        f"take a larger {option}, or fewer devices or another seed"
    )


def redraw(n: int, seed: int, draw: Callable[[int], Graph], family: str, option: str) -> Graph:
    """Draw until the graph is connected; nodes and links come out in sorted order."""
    import networkx

    for drawn in draws(seed, family):
        graph = draw(drawn)
        if networkx.is_connected(graph):
            return assemble(n, sorted((min(link), max(link)) for link in graph.edges))
    raise unconnected(n, family, option)


def below(value: int, n: int, largest: int, what: str) -> None:
    """Refuse a degree that is not below the number of devices, naming the largest legal one."""
    if value < n:
        return
    legal = f"the largest legal value is {largest}" if largest > 0 else "none is legal for so few, take more devices"
    raise GraphError(f"{what} is {value}, but has to be below the number of devices, {n}; {legal}")


def _evens(n: int) -> str:
    """Write the even numbers from 2 to below n."""
    largest = (n - 1) // 2 * 2
    return ", ".join(map(str, range(2, largest + 1, 2))) if largest <= 8 else f"2, 4, 6, ..., {largest}"
