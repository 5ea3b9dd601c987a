"""Graphs that have their own number of devices."""

from topologies.errors import GraphError
from topologies.io import read
from topologies.validation import Graph, whole


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
    """Return who came to which social event in a southern town: 18 women and 14 events, under their names.

    Women are linked with events alone; node attribute `bipartite` is 0 for a woman, 1 for an event.
    Cost: 89 edges, diameter 4.

    Parameters
    ----------
    n : int, optional
        32 or nothing.

    Raises
    ------
    GraphError
        If n is another number.

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
    """Return who meets whom in a novel: 77 characters, under their names.

    Cost: 254 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        77 or nothing.
    weighted : bool
        Keep the number of chapters in which two characters meet as edge attribute `weight`.

    Raises
    ------
    GraphError
        If n is another number.

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
    """Return the marriages between families of Florence in the 15th century: 15 families, under their names.

    Cost: 20 edges, diameter 5.

    Parameters
    ----------
    n : int, optional
        15 or nothing.

    Raises
    ------
    GraphError
        If n is another number.

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


def file(n: int | None = None, *, path: str) -> Graph:
    r"""Read a graph from a file, as `read` does, and refuse a contradicting n.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import topologies
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "links.csv").write_text("0,1\n1,2\n")
    ...     graph = topologies.file(path=f"{folder}/links.csv")
    >>> sorted(graph.edges)
    [('0', '1'), ('1', '2')]
    """
    graph = read(path)
    agree(n, len(graph), f"file:{path}")
    return graph


def _real(n: int | None, graph: Graph, what: str, weighted: bool) -> Graph:
    """Return a graph that networkx ships, without its weights unless they are wanted."""
    agree(n, len(graph), what)
    if not weighted:
        for _, _, attributes in graph.edges(data=True):
            attributes.pop("weight", None)
    return graph


def agree(n: int | None, fixed: int, what: str) -> None:
    """Refuse a number of devices that contradicts the graph's own."""
    if n is not None and whole(n, f"{what}: n", 1) != fixed:
        raise GraphError(f"{what} has {fixed} devices, but {n} were requested; request {fixed} or leave the number out")
