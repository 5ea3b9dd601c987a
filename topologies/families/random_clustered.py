"""Families drawn by chance whose devices flock together; connected, and the same for the same seed, as in `random`.

Every function returns a plain networkx.Graph with nodes 0 to n-1 and no weights, and raises GraphError if an
option is out of range or no draw is connected.
"""

from topologies.errors import GraphError
from topologies.families.random import below, redraw
from topologies.validation import Graph, fraction, whole


def powerlaw_cluster(n: int, *, m: int = 2, triangle: float = 0.3, seed: int = 0) -> Graph:
    """Grow a graph as `barabasi_albert` does, but close triangles on the way: hubs, and friends of friends.

    Cost: at most m (n - m) edges, diameter about log(n) / log(log(n)); a few hubs.

    Parameters
    ----------
    n : int
    m : int
        Links of each new device, from 1 to below n.
    triangle : float
        Probability that a link goes to a neighbor of the device chosen before, 0 to 1; 0 is Barabasi-Albert.
    seed : int

    References
    ----------
    Holme and Kim (2002), Growing scale-free networks with tunable clustering, Physical Review E 65.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.powerlaw_cluster(20, m=2, seed=1)
    >>> graph.number_of_nodes()
    20
    """
    import networkx

    size, links = whole(n, "powerlaw-cluster: n", 1), whole(m, "powerlaw-cluster: m", 1)
    below(links, size, size - 1, "powerlaw-cluster: m")
    chance = fraction(triangle, "powerlaw-cluster: triangle")
    return redraw(
        size, seed, lambda s: networkx.powerlaw_cluster_graph(size, links, chance, seed=s), "powerlaw-cluster", "m"
    )


def stochastic_block_model(
    n: int, *, blocks: int = 2, inside: float = 0.7, between: float = 0.1, seed: int = 0
) -> Graph:
    """Draw every link with one probability inside a block of devices, and with another between blocks.

    Block b holds the devices from b n // blocks to below (b + 1) n // blocks. Cost, for blocks of s devices: about
    n (inside (s - 1) + between (n - s)) / 2 edges.

    Parameters
    ----------
    n : int
    blocks : int
        From 1 to n.
    inside, between : float
        Probabilities of a link, 0 to 1.
    seed : int

    References
    ----------
    Holland, Laskey and Leinhardt (1983), Stochastic blockmodels: first steps, Social Networks 5.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.stochastic_block_model(20, blocks=2, seed=1)
    >>> graph.number_of_nodes()
    20
    """
    import networkx

    what = "stochastic-block-model"
    size, count = whole(n, f"{what}: n", 1), whole(blocks, f"{what}: blocks", 1)
    if count > size:
        raise GraphError(f"{what}: blocks is {count}, but there are only {size} devices; expected 1 to {size}")
    near, far = fraction(inside, f"{what}: inside"), fraction(between, f"{what}: between")
    sizes = [(b + 1) * size // count - b * size // count for b in range(count)]
    chances = [[near if a == b else far for a in range(count)] for b in range(count)]
    return redraw(
        size, seed, lambda s: networkx.stochastic_block_model(sizes, chances, seed=s), what, "inside or between"
    )
