"""Display of graphs in notebooks."""

from typing import Any, NamedTuple

from topologies.checks import check
from topologies.csr_graph import CSRGraph
from topologies.time_varying.graph import TimeVaryingGraph


class Shown(NamedTuple):
    """Graph with a display method for notebooks: a table and, for a small graph, a drawing."""

    graph: Any

    def __repr__(self) -> str:
        return repr(self.graph)

    def _repr_html_(self) -> str:
        return str(self.graph._repr_html_())


def show(graph: Any) -> Shown:
    """Show a graph in a notebook: a table and, for a small graph, a drawing with the devices on a circle.

    Parameters
    ----------
    graph : networkx.Graph, CSRGraph or TimeVaryingGraph

    Returns
    -------
    Shown

    Raises
    ------
    GraphError
        If `topologies.check` rejects a networkx graph.

    Examples
    --------
    >>> import topologies
    >>> topologies.show(topologies.ring(5))
    <CSRGraph: 5 devices, 5 links>
    """
    if isinstance(graph, TimeVaryingGraph):
        return Shown(graph)
    check(graph)
    return Shown(graph if isinstance(graph, CSRGraph) else CSRGraph.from_networkx(graph, str(graph.name)))
