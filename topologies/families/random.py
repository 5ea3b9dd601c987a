"""Random families: equal seeds give equal graphs, and every graph is connected.

A disconnected graph is drawn again, at most `ATTEMPTS` times, with seeds derived from the seed. Every function returns
a networkx.Graph with nodes 0 to n - 1 without weights, and raises GraphError if an option is out of range or all
attempts are disconnected.
"""

import math
from collections.abc import Callable, Iterator

from topologies.errors import GraphError
from topologies.validation import Graph, assemble, is_positive, require_fraction, require_integer

ATTEMPTS = 100


def small_world(n: int, *, degree: int = 4, rewire: float = 0.1, seed: int = 0) -> Graph:
    """Draw a ring lattice with `degree` links per device, some moved to random ends (Watts-Strogatz).

    Cost: n degree / 2 edges. Diameter: about n / degree for rewire 0, about log(n) / log(degree) from about 0.1 on.

    Parameters
    ----------
    n : int
    degree : int, default=4
        Mean degree; even, from 2 to less than n.
    rewire : float, default=0.1
        Probability that a link is moved, 0 to 1.
    seed : int, default=0

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
    degree : int, default=4
        Less than n; n times degree must be even. Degree 1 is valid for two devices only.
    seed : int, default=0

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
    # Near the complete graph, the draw takes minutes; its complement has few links and is drawn at once.
    rest = size - 1 - links

    def draw(s: int) -> Graph:
        return networkx.complement(networkx.random_regular_graph(rest, size, seed=s))

    return redraw(size, seed, draw, "random-regular", "degree")


def erdos_renyi(n: int, *, p: float = 0.3, seed: int = 0) -> Graph:
    """Draw every possible link independently with the same probability.

    Cost: about p n (n - 1) / 2 edges, diameter about log(n) / log(p n); usually connected for p > log(n) / n.

    Parameters
    ----------
    n : int
    p : float, default=0.3
        Probability of a link, 0 to 1.
    seed : int, default=0

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
    return _random(require_integer(n, "erdos-renyi: n", 1), seed, _chance(p, "erdos-renyi: p"), "erdos-renyi")


def barabasi_albert(n: int, *, m: int = 2, seed: int = 0) -> Graph:
    """Grow a graph from a star of m + 1 devices by preferential attachment: each new device links to m others.

    Cost: m (n - m) edges, diameter about log(n) / log(log(n)); a few hubs.

    Parameters
    ----------
    n : int
    m : int, default=2
        Links of each new device, from 1 to less than n.
    seed : int, default=0

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
    """Place the devices at random in the unit square, and link those within `radius`.

    Cost: about pi radius^2 n^2 / 2 edges, diameter about 1.4 / radius.

    Parameters
    ----------
    n : int
    radius : float, optional
        Above 0. Default: sqrt(1.5 log(n) / (pi n)), for a mean degree of about 1.5 log(n), which is 1.5 times the
        threshold of connectivity.
    seed : int, default=0

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
    """Draw two communities, each as in `erdos_renyi`, and a few links between them.

    The first (n + 1) // 2 devices are one community, the others the second. Bridges are drawn uniformly among the pairs
    with one device in each community. Cost: about p n^2 / 4 + bridges edges.

    Parameters
    ----------
    n : int
        At least 2.
    p : float, default=0.6
        Probability of a link inside a community, 0 to 1.
    bridges : int, default=1
        Links between the communities, from 1 to the number of pairs.
    seed : int, default=0

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.communities(20, bridges=1, seed=0)
    >>> sum((i < 10) != (j < 10) for i, j in graph.edges)  # links between the two
    1
    """
    from numpy.random import SeedSequence, default_rng

    size = require_integer(n, "communities: n", 2)
    root = require_integer(seed, "communities: seed", 0)
    links = require_integer(bridges, "communities: bridges", 1)
    first = (size + 1) // 2
    pairs = first * (size - first)
    if links > pairs:
        raise GraphError(f"communities: bridges is {links}; expected at most {pairs}, the number of pairs")
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
    chance = require_fraction(p, what)
    # Below the resolution of a float, log(1 - p) would be 0, and networkx divides by it.
    return chance if 1 - chance < 1 else 0.0


def small_world_options(n: int, degree: int, rewire: float) -> tuple[int, int, float]:
    """Check the options of `small_world` and return them."""
    size = require_integer(n, "small-world: n", 1)
    links = require_integer(degree, "small-world: degree", 1)
    check_below(links, size, (size - 1) // 2 * 2, "small-world: degree")
    if links % 2:
        raise GraphError(
            f"small-world: degree is {links}; expected an even number: {_evens(size)}. Half of the links lead to "
            "either side of the ring"
        )
    return size, links, require_fraction(rewire, "small-world: rewire")


def regular_options(n: int, degree: int, family: str = "random-regular") -> tuple[int, int]:
    """Check the options of `random_regular` and return them."""
    size = require_integer(n, f"{family}: n", 1)
    links = require_integer(degree, f"{family}: degree", 1)
    check_below(links, size, size - 1, f"{family}: degree")
    if size * links % 2:
        raise GraphError(
            f"{family}: degree is {links} for {size} devices; devices times degree must be even. "
            f"Use an even degree ({_evens(size)}) or an even number of devices"
        )
    if links == 1 and size > 2:
        raise GraphError(f"{family}: degree is 1, which links pairs only; expected 2 to {size - 1} for {size} devices")
    return size, links


def albert_options(n: int, m: int) -> tuple[int, int]:
    """Check the options of `barabasi_albert` and return them."""
    size = require_integer(n, "barabasi-albert: n", 1)
    links = require_integer(m, "barabasi-albert: m", 1)
    check_below(links, size, size - 1, "barabasi-albert: m")
    return size, links


def geometric_options(n: int, radius: float | None, family: str = "random-geometric") -> tuple[int, float]:
    """Check the options of `random_geometric`, and return the number of devices and the radius."""
    size = require_integer(n, f"{family}: n", 1)
    if radius is None:
        return size, math.sqrt(1.5 * math.log(size) / (math.pi * size))
    if not is_positive(radius):
        raise GraphError(f"{family}: radius is {radius!r}; expected a finite number above 0")
    return size, float(radius)


def draw_seeds(seed: int, family: str) -> Iterator[int]:
    """Yield the seeds of the attempts."""
    from numpy import uint64
    from numpy.random import SeedSequence

    root = require_integer(seed, f"{family}: seed", 0)
    for attempt in range(ATTEMPTS):
        yield int(SeedSequence([root, attempt]).generate_state(1, uint64)[0])


def disconnected_error(n: int, family: str, option: str) -> GraphError:
    """Return the error for a family of which no attempt was connected."""
    return GraphError(
        f"{family}: none of {ATTEMPTS} draws for {n} devices was connected. "
        f"Use a larger {option}, fewer devices or another seed"
    )


def redraw(n: int, seed: int, draw: Callable[[int], Graph], family: str, option: str) -> Graph:
    """Draw until the graph is connected; nodes and links of the result are sorted."""
    import networkx

    for attempt_seed in draw_seeds(seed, family):
        graph = draw(attempt_seed)
        if networkx.is_connected(graph):
            return assemble(n, sorted((min(link), max(link)) for link in graph.edges))
    raise disconnected_error(n, family, option)


def check_below(value: int, n: int, largest: int, what: str) -> None:
    """Check that a degree is less than the number of devices; the error names the largest valid degree."""
    if value < n:
        return
    limit = f"the largest legal value is {largest}" if largest > 0 else "no value is legal. Use more devices"
    raise GraphError(f"{what} is {value}; expected less than the number of devices, {n}: {limit}")


def _evens(n: int) -> str:
    """List the even numbers from 2 to less than n."""
    largest = (n - 1) // 2 * 2
    return ", ".join(map(str, range(2, largest + 1, 2))) if largest <= 8 else f"2, 4, 6, ..., {largest}"
