"""Graphs that have their own number of devices."""

from topologies.graph import Graph, GraphError, whole
from topologies.readers import read


def karate(n: int | None = None, *, weighted: bool = False) -> Graph:
    """Return the friendships of a karate club that broke in two: 34 members, node attribute `club`.

    Cost: 78 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        34 or nothing.
    weighted : bool
        Keep the number of places where two members met as edge attribute `weight`.

    Raises
    ------
    GraphError
        If n is another number.

    References
    ----------
    Zachary (1977), An information flow model for conflict and fission in small groups,
    Journal of Anthropological Research 33.
    """
    import networkx

    graph: Graph = networkx.karate_club_graph()
    _agree(n, len(graph), "karate")
    if not weighted:
        for _, _, attributes in graph.edges(data=True):
            attributes.pop("weight", None)
    return graph


def file(n: int | None = None, *, path: str) -> Graph:
    """Read a graph from a file, as `read` does, and refuse a contradicting n."""
    graph = read(path)
    _agree(n, len(graph), f"file:{path}")
    return graph


def _agree(n: int | None, fixed: int, what: str) -> None:
    if n is not None and whole(n, f"{what}: n", 1) != fixed:
        raise GraphError(f"{what} has {fixed} devices, but {n} were asked for; ask for {fixed} or leave the number out")
