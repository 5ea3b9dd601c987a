"""Random families with clusters of devices; connected, and equal for equal seeds, as in `random`.

Every function returns a networkx.Graph with nodes 0 to n - 1 without weights, and raises GraphError if an option is out
of range or all attempts are disconnected.
"""

from topologies.errors import GraphError
from topologies.families.random import check_below, redraw
from topologies.validation import Graph, require_fraction, require_integer


def powerlaw_cluster(n: int, *, m: int = 2, triangle: float = 0.3, seed: int = 0) -> Graph:
    """Grow a graph as `barabasi_albert` does, with additional triangles.

    Cost: at most m (n - m) edges, diameter about log(n) / log(log(n)); a few hubs.

    Parameters
    ----------
    n : int
    m : int, default=2
        Links of each new device, from 1 to less than n.
    triangle : float, default=0.3
        Probability that a link leads to a neighbor of the previously chosen device, 0 to 1; 0 is Barabasi-Albert.
    seed : int, default=0

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

    size = require_integer(n, "powerlaw-cluster: n", 1)
    links = require_integer(m, "powerlaw-cluster: m", 1)
    check_below(links, size, size - 1, "powerlaw-cluster: m")
    chance = require_fraction(triangle, "powerlaw-cluster: triangle")
    return redraw(
        size, seed, lambda s: networkx.powerlaw_cluster_graph(size, links, chance, seed=s), "powerlaw-cluster", "m"
    )


def stochastic_block_model(
    n: int, *, blocks: int = 2, inside: float = 0.7, between: float = 0.1, seed: int = 0
) -> Graph:
    """Draw links with one probability inside blocks of devices, and with another between blocks.

    Block b contains the devices from b n // blocks to (b + 1) n // blocks - 1. Cost, for blocks of s devices: about
    n (inside (s - 1) + between (n - s)) / 2 edges.

    Parameters
    ----------
    n : int
    blocks : int, default=2
        From 1 to n.
    inside, between : float, default=0.7 and 0.1
        Probabilities of a link inside a block and between blocks, 0 to 1.
    seed : int, default=0

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
    size = require_integer(n, f"{what}: n", 1)
    count = require_integer(blocks, f"{what}: blocks", 1)
    if count > size:
        raise GraphError(f"{what}: blocks is {count}; expected 1 to {size}, the number of devices")
    p_inside = require_fraction(inside, f"{what}: inside")
    p_between = require_fraction(between, f"{what}: between")
    sizes = [(b + 1) * size // count - b * size // count for b in range(count)]
    chances = [[p_inside if a == b else p_between for a in range(count)] for b in range(count)]
    return redraw(
        size, seed, lambda s: networkx.stochastic_block_model(sizes, chances, seed=s), what, "inside or between"
    )
