"""Graphs of data sets and files, with a fixed number of devices."""

from typing import Literal

from topologies.errors import GraphError
from topologies.validation import Graph, require_integer


def karate(n: int | None = None, *, weighted: bool = False) -> Graph:
    """Return the friendships of a karate club that split in two: 34 members, with the node attribute `club`.

    Cost: 78 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        34 or None.
    weighted : bool, default=False
        Whether the edge attribute `weight` is the number of contexts in which two members met.

    Raises
    ------
    GraphError
        If `n` is another number.

    References
    ----------
    Zachary (1977), An information flow model for conflict and fission in small groups,
    Journal of Anthropological Research 33.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.karate()
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (34, 78)
    """
    import networkx

    return _real(n, networkx.karate_club_graph(), "karate", weighted)


def davis(n: int | None = None) -> Graph:
    """Return the attendance of 18 women at 14 social events in a southern town, with names.

    Each link connects a woman with an event; the node attribute `bipartite` is 0 for a woman, 1 for an event.
    Cost: 89 edges, diameter 4.

    Parameters
    ----------
    n : int, optional
        32 or None.

    Raises
    ------
    GraphError
        If `n` is another number.

    References
    ----------
    Davis, Gardner and Gardner (1941), Deep South, University of Chicago Press.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.davis()
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (32, 89)
    """
    import networkx

    return _real(n, networkx.davis_southern_women_graph(), "davis", False)


def les_miserables(n: int | None = None, *, weighted: bool = False) -> Graph:
    """Return the encounters of the 77 characters of a novel, with names.

    Cost: 254 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        77 or None.
    weighted : bool, default=False
        Whether the edge attribute `weight` is the number of chapters in which two characters meet.

    Raises
    ------
    GraphError
        If `n` is another number.

    References
    ----------
    Knuth (1993), The Stanford GraphBase, ACM Press; after Hugo (1862), Les Miserables.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.les_miserables()
    >>> graph.number_of_nodes(), graph.number_of_edges()
    (77, 254)
    """
    import networkx

    return _real(n, networkx.les_miserables_graph(), "les-miserables", weighted)


def florentine(n: int | None = None) -> Graph:
    """Return the marriages between 15 families of Florence in the 15th century, with names.

    Cost: 20 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        15 or None.

    Raises
    ------
    GraphError
        If `n` is another number.

    References
    ----------
    Padgett and Ansell (1993), Robust action and the rise of the Medici, American Journal of Sociology 98.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.florentine()
    >>> sorted(graph["Medici"])
    ['Acciaiuoli', 'Albizzi', 'Barbadori', 'Ridolfi', 'Salviati', 'Tornabuoni']
    """
    import networkx

    return _real(n, networkx.florentine_families_graph(), "florentine", False)


def file(
    n: int | None = None,
    *,
    path: str,
    directed: Literal["refuse", "union", "mutual"] | None = None,
    isolated: str | None = None,
    parallel: Literal["refuse", "sum", "first"] | None = None,
    loops: Literal["refuse", "drop"] | None = None,
) -> Graph:
    r"""Read a graph from a file, see `read`, and check that it has `n` devices.

    Parameters
    ----------
    n : int, optional
        Number of devices of the file, or None.
    path : str
        Path of the file.
    directed : {"refuse", "union", "mutual"}, optional
        Treatment of directed graphs; None: refuse.
    isolated : str, optional
        Nodes without links, separated by +, or "true" to accept all; None: they are refused.
    parallel : {"refuse", "sum", "first"}, optional
        Treatment of several links between two nodes; None: refuse.
    loops : {"refuse", "drop"}, optional
        Treatment of links of a node to itself; None: refuse.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import topologies
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "links.csv").write_text("0,1\n1,2\n")
    ...     graph = topologies.file(path=f"{folder}/links.csv", isolated="3")
    >>> sorted(graph.edges), sorted(graph)
    ([('0', '1'), ('1', '2')], ['0', '1', '2', '3'])
    """
    names = isolated == "true" or (isolated or "").split("+") if isolated else False
    from topologies.io import read

    graph = read(
        path, directed=directed or "refuse", isolated=names, parallel=parallel or "refuse", loops=loops or "refuse"
    )
    check_size(n, len(graph), f"file:{path}")
    return graph


def _real(n: int | None, graph: Graph, what: str, weighted: bool) -> Graph:
    """Return a graph of networkx, without its weights unless `weighted`."""
    check_size(n, len(graph), what)
    if not weighted:
        for _, _, attributes in graph.edges(data=True):
            attributes.pop("weight", None)
    return graph


def check_size(n: int | None, fixed: int, what: str) -> None:
    """Check that the requested number of devices, if any, is that of the graph."""
    if n is not None and require_integer(n, f"{what}: n", 1) != fixed:
        raise GraphError(f"{what} has {fixed} devices, but {n} were requested. Request {fixed}, or omit the number")
