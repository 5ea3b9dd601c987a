"""Read a graph from a file or an object; the content or the suffix of a file determines the format."""

import os
from collections.abc import Callable, Collection
from os import PathLike
from pathlib import Path
from typing import Any

from topologies.checks import check
from topologies.errors import GraphError
from topologies.io.attributes import FILE_SUMMARY, apply_defaults, convert_units, read_shadow, summarize
from topologies.io.directions import drop_loops, merge_directions, merge_parallel
from topologies.io.edge_list import read_edge_list
from topologies.io.gml import read_gml
from topologies.io.matrices import read_matrix
from topologies.io.objects import convert_object
from topologies.io.pajek import read_pajek
from topologies.io.reading import LARGEST, Directed, Loops, Parallel, Reading, find_format, find_suffix, read_bytes
from topologies.io.xml import read_gexf, read_graphml
from topologies.validation import Graph, name_nodes, sort_nodes

_NODE_LINK = ("directed", "multigraph", "graph", "nodes")  # keys of node-link JSON, in addition to that of the links


def read(
    source: str | PathLike[str] | Any,
    *,
    isolated: bool | Collection[str] = False,
    directed: Directed = "refuse",
    parallel: Parallel = "refuse",
    loops: Loops = "refuse",
) -> Graph:
    r"""Read an undirected graph; nodes keep their labels and are sorted in natural order (`sort_nodes`).

    Nodes and links at any depth of a GraphML or GEXF file become nodes and links of one graph, and default attributes
    are applied. Files with several graphs, hyperedges or times are rejected, except edge lists with a column of times.

    Parameters
    ----------
    source : str, path, networkx graph, igraph.Graph, sparse matrix or array_like of shape (n, n)
        Graph object, adjacency matrix, or file of at most 1 GiB, also compressed (.gz, .bz2, .xz). Formats by content
        or, if that does not tell, by suffix:

        * .graphml, .gexf. XML with a document type declaration is rejected, because entities can expand to any size.
        * .gml; .gt: binary format of graph-tool; .net, .paj: Pajek.
        * .json: node-link format, with links under "edges" or "links".
        * .mtx: Matrix Market; .npz: scipy.sparse.save_npz, or one array; .npy. Values are weights.
        * .edgelist, .edges, .txt, .csv, .tsv: see `topologies.io.edge_list.read_edge_list`.
    isolated : bool or list of str, default=False
        Whether nodes without links are accepted, or a list of those that are (in a spec, names separated by +). Edge
        lists cannot contain such nodes, so those of the list are added.
    directed : {"refuse", "union", "mutual"}, default="refuse"
        Treatment of directed graphs.

        * "refuse": an error.
        * "union": a link for those listed in one direction or both.
        * "mutual": a link for those listed in both directions.

        Two directions with different weights, latencies or bandwidths become one link with their mean.
    parallel : {"refuse", "sum", "first"}, default="refuse"
        Treatment of several links between two nodes, in one direction if the graph is directed.

        * "sum": one link with the sum of their weights (1 without one) and of their bandwidths, and their lowest
          latency; without a bandwidth if one of them has none.
        * "first": the link that is listed first.
    loops : {"refuse", "drop"}, default="refuse"
        Treatment of links of a node to itself; "drop": left out. Network maps of Shadow, whose nodes have them for
        several hosts, are always read without.

    Returns
    -------
    networkx.Graph
        With all attributes of the file. Used are `weight` of links, `name` or `label` of nodes (`name_nodes`),
        coordinates of nodes (`topologies.coordinates.find_coordinates`) and, with a link model, `latency` and
        `bandwidth` of links, `access` and `speed` of nodes, also with units (5ms, 10Mbit). The graph attribute
        `file_summary` is one line on the read and the ignored contents, which runs show as a note.

    Raises
    ------
    GraphError
        If the file is missing, empty, too large or cannot be parsed; if the graph is directed, unless `directed`
        says otherwise; if it has parallel links, self-loops or invalid weights; if one of several nodes is isolated,
        unless `isolated` accepts it; or if the file has contents that a graph cannot represent.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import topologies
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "links.csv").write_text("0,1\n1,2\n")
    ...     graph = topologies.read(Path(folder, "links.csv"))
    >>> sorted(graph.edges)
    [('0', '1'), ('1', '2')]
    >>> import networkx as nx
    >>> sorted(topologies.read(nx.DiGraph([(0, 1), (1, 0), (1, 2)]), directed="mutual", isolated=["2"]).edges)
    [(0, 1)]
    """
    reading = Reading(directed, isolated, parallel, loops)
    is_file = isinstance(source, str | PathLike)
    name = str(source) if is_file else "the graph"
    graph = _read_file(Path(source), reading) if is_file else convert_object(source, reading)
    apply_defaults(graph)
    read_shadow(graph, reading)
    convert_units(graph)
    try:
        drop_loops(graph, reading)
        graph = merge_directions(merge_parallel(graph, reading), reading)
        if len(graph) == 0:
            raise GraphError("it contains no nodes and no links; expected a graph")
        check(graph)
    except GraphError as error:
        raise GraphError(f"{name}: {error}") from None
    if reading.isolated is not True:
        _check_isolated_nodes(graph, name, reading)
    graph = _sort_graph(graph)
    graph.graph[FILE_SUMMARY] = summarize(graph, Path(name).name, reading)
    return graph


def _read_file(source: Path, reading: Reading) -> Graph:
    _check_file(source)
    reader = _reader(source, reading)
    try:
        return reader(source, reading)
    except GraphError:
        raise
    except Exception as error:
        # Parsers of networkx, scipy and zipfile raise almost any exception for broken files.
        raise GraphError(
            f"{source} cannot be read as {find_suffix(source)}: {type(error).__name__}: {error}. "
            "Check that the suffix fits the content and that the file is complete"
        ) from error


def _reader(source: Path, reading: Reading) -> Callable[[Path, Reading], Graph]:
    readers: dict[str, Callable[[Path, Reading], Graph]] = {
        ".graphml": read_graphml,
        ".gexf": read_gexf,
        ".gml": read_gml,
        ".gt": _read_graph_tool,
        ".json": _read_json,
    }
    readers |= dict.fromkeys((".net", ".paj"), read_pajek)
    readers |= dict.fromkeys((".mtx", ".npz", ".npy"), read_matrix)
    readers |= dict.fromkeys((".edgelist", ".edges", ".txt", ".csv", ".tsv"), read_edge_list)
    suffix = find_suffix(source)
    content = find_format(source)
    if content and readers.get(suffix) is not readers[content]:
        # A matrix is loaded by its suffix.
        if readers[content] is read_matrix:
            raise GraphError(f"{source} is a matrix in the format {content}; rename it, so that it ends with {content}")
        reading.remarks.append(f"read as {content}, by its content")
        return readers[content]
    if suffix not in readers:
        raise GraphError(f"{source} has the suffix {suffix!r}; expected one of: {', '.join(readers)}")
    return readers[suffix]


def _check_file(source: Path) -> None:
    # os.path.isfile is False for names that are too long, for which Path.is_file raises.
    if not os.path.isfile(source):
        path, _, keys = str(source).rpartition(":")
        if path and os.path.isfile(path):
            raise GraphError(f"{source} is not a file, but {path} is. Separate keys by a comma: file:{path},{keys}")
        raise GraphError(f"{source} is not a file; check the path (relative paths start at {Path.cwd()})")
    size = source.stat().st_size
    if size == 0:
        raise GraphError(f"{source} is empty; expected a graph")
    if size > LARGEST:
        raise GraphError(
            f"{source} has {size} bytes; expected at most {LARGEST}. Save the adjacency matrix as .npz instead"
        )


def _check_isolated_nodes(graph: Graph, source: str, reading: Reading) -> None:
    """Check that no node is isolated, unless it is expected, or the graph has only one node."""
    expected = _find_isolated(graph, source, reading)
    if len(graph) == 1:
        return
    if graph.number_of_edges() == 0:
        raise GraphError(f"{source} lists {len(graph)} nodes, but no links. Add links, or use a graph family")
    isolated = [node for node in sort_nodes(graph) if graph.degree[node] == 0 and node not in expected]
    if isolated:
        names = ", ".join(map(repr, isolated[:5])) + (", ..." if len(isolated) > 5 else "")
        choice = "+".join(map(str, isolated)) if len(isolated) <= 5 else "true"
        raise GraphError(
            f"{source} has {len(isolated)} isolated nodes: {names}. Connect or remove them, or accept them by "
            f"isolated={choice}"
        )
    if expected:
        listed = ", ".join(reading.names[:10]) + (", ..." if len(expected) > 10 else "")
        reading.remarks.append(f"{len(expected)} isolated: {listed}")


def _find_isolated(graph: Graph, source: str, reading: Reading) -> set[Any]:
    """Return the nodes that are expected to have no links, by their labels or names, and check that they have none."""
    names = name_nodes(graph) or {}
    nodes = {name: node for node, name in names.items()} | {str(node): node for node in graph}
    for name in reading.names:
        if name not in nodes:
            raise GraphError(f"isolated contains {name!r}, which is not a node of {source}. Remove it")
        if graph.degree[nodes[name]]:
            raise GraphError(f"isolated contains {name!r}, which has links in {source}. Remove it")
    return {nodes[name] for name in reading.names}


def _sort_graph(graph: Graph) -> Graph:
    import networkx

    plain = networkx.Graph(**graph.graph)
    plain.add_nodes_from((node, graph.nodes[node]) for node in sort_nodes(graph))
    plain.add_edges_from(graph.edges(data=True))
    return plain


def _read_graph_tool(source: Path, reading: Reading) -> Graph:
    # Imports NumPy, which text files do not need.
    from topologies.io.graph_tool import read_graph_tool

    return read_graph_tool(source, reading)


def _read_json(source: Path, reading: Reading) -> Graph:
    import json

    import networkx

    data = json.loads(read_bytes(source), object_pairs_hook=_check_repeated_keys)
    keys = [key for key in ("edges", "links") if isinstance(data, dict) and isinstance(data.get(key), list)]
    if len(keys) != 1 or not isinstance(data.get("nodes"), list):
        raise GraphError(
            f'{source}: expected node-link JSON, an object with a list "nodes" and a list "edges" or "links" '
            "(one of them), as json.dump(networkx.node_link_data(graph), file) writes it"
        )
    links = keys[0]
    reading.ignored += [f"key {key!r}" for key in sorted(data.keys() - {*_NODE_LINK, links})]
    # Without "multigraph", parallel links would be merged in silence.
    graph = networkx.node_link_graph(data | {"multigraph": True}, directed=False, edges=links)
    _check_counts(graph, data["nodes"], data[links], source)
    return graph


def _check_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, and check that no key is repeated: json.loads would silently keep the last value."""
    content = dict(pairs)
    if len(content) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise GraphError(f"an object of the JSON file has the key {repeated!r} more than once. Keep one of them")
    return content


def _check_counts(graph: Graph, nodes: list[Any], links: list[dict[str, Any]], source: Path) -> None:
    """Check that networkx has not silently merged repeated nodes or links, or added nodes that are not listed."""
    if len(graph) != len(nodes):
        raise GraphError(
            f"{source} lists {len(nodes)} nodes, but its nodes and links name {len(graph)} different ones; "
            "list every node once"
        )
    if graph.number_of_edges() != len(links):
        raise GraphError(
            f"{source} lists {len(links)} links, of which several have the same ends and key; list every link once"
        )
