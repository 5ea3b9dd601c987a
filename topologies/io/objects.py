"""Graph objects of other libraries: networkx, igraph, SciPy sparse matrices, dense matrices."""

from typing import Any

from topologies.csr_graph import CSRGraph
from topologies.errors import GraphError
from topologies.io.matrices import convert_matrix
from topologies.io.reading import Reading
from topologies.validation import Graph


def is_foreign(graph: object) -> bool:
    """Return whether `convert_object` converts a graph that is not one of networkx or of this package."""
    return _is_igraph(graph) or _is_matrix(graph) or _is_table(graph)


def convert_object(graph: Any, reading: Reading) -> Graph:
    """Convert a graph object to a networkx graph; those of networkx are copied.

    Raises
    ------
    GraphError
        If the type is unknown, or a matrix cannot be converted, see `topologies.io.matrices.convert_matrix`.
    """
    if isinstance(graph, CSRGraph):
        return graph.to_networkx()
    if _is_igraph(graph):
        return _convert_igraph(graph)
    if _is_matrix(graph):
        return convert_matrix(graph, "the matrix", reading)
    if hasattr(graph, "is_directed") and hasattr(graph, "adj") and hasattr(graph, "nodes"):
        return graph.copy()
    if _is_table(graph):
        import numpy

        return convert_matrix(numpy.asarray(graph), "the matrix", reading)
    raise GraphError(
        f"the graph is of type {type(graph).__name__}; expected the path of a file, a graph of networkx or igraph, or "
        "an adjacency matrix of SciPy or NumPy"
    )


def _is_igraph(graph: object) -> bool:
    """Return whether an object is an igraph.Graph, without the import of igraph."""
    return any(kind.__module__.partition(".")[0] == "igraph" for kind in type(graph).__mro__) and hasattr(graph, "es")


def _is_matrix(graph: object) -> bool:
    """Return whether an object is a sparse or dense matrix."""
    home = type(graph).__module__.partition(".")[0]
    return home in {"scipy", "numpy"} and hasattr(graph, "shape") and hasattr(graph, "dtype")


def _is_table(graph: object) -> bool:
    """Return whether an object is a square list of lists."""
    if not isinstance(graph, list | tuple) or not all(isinstance(row, list | tuple) for row in graph):
        return False
    return bool(graph) and all(len(row) == len(graph) for row in graph)


def _convert_igraph(graph: Any) -> Graph:
    """Convert an igraph.Graph with all attributes; nodes are numbers, and names the attribute `name`."""
    import networkx

    converted = networkx.MultiDiGraph() if graph.is_directed() else networkx.MultiGraph()
    converted.add_nodes_from((vertex.index, vertex.attributes()) for vertex in graph.vs)
    for edge in graph.es:
        converted.add_edge(*edge.tuple, **{str(name): value for name, value in edge.attributes().items()})
    return converted
