"""Read a graph from a file; the suffix determines the format."""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from topologies.checks import check
from topologies.errors import GraphError
from topologies.io.attributes import FILE_SUMMARY, apply_defaults, summarize
from topologies.io.edge_list import read_edge_list
from topologies.io.xml import read_gexf, read_graphml
from topologies.validation import UNDIRECTED, Graph, sort_nodes

LARGEST = 2**30  # bytes
_NODE_LINK = ("directed", "multigraph", "graph", "nodes")  # keys of node-link JSON, besides that of the links
_FEW = 100_000  # nodes that can be made and looked at, whatever the file contains


def read(path: str | PathLike[str], *, isolated: bool = False) -> Graph:
    r"""Read an undirected graph; its nodes come out in natural order (`sort_nodes`), under their own labels.

    Nodes and links at any depth of a GraphML or GEXF file are nodes and links of the graph, and default attributes are
    applied. A file that holds something else which a graph cannot have is refused: several graphs, hyperedges, times.

    Parameters
    ----------
    path : str or path
        .graphml, .gexf; .json (node-link, links under "edges" or "links"); .npz (an adjacency matrix from
        scipy.sparse.save_npz, its values are weights); .edgelist, .edges, .txt, .csv, .tsv (`read_edge_list`).
        At most 1 GiB. XML with a document type declaration is refused: entities can blow up to any size.
    isolated : bool
        Whether nodes without a link are accepted.

    Returns
    -------
    networkx.Graph
        With all attributes of the file. `weight` of links, `name` or `label` of nodes (`name_nodes`) and, with a link
        model, `latency` and `bandwidth` of links, `access` and `speed` of nodes are used. The graph attribute
        `file_summary` is one line about what was read and what is ignored, which runs show as a note.

    Raises
    ------
    GraphError
        If the file is missing, empty, too large or cannot be parsed; if the graph is directed, has parallel links,
        self-loops, bad weights or, with more than one node and unless `isolated`, nodes without a link; if the file
        holds something that a graph cannot have.

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
    """
    try:
        source = Path(path)
    except TypeError:
        raise GraphError(f"the path is {path!r}; expected that of a file, such as 'graph.graphml'") from None
    _refuse_file(source)
    reader = _reader(source)
    ignored: list[str] = []
    try:
        graph = reader(source, ignored)
    except GraphError:
        raise
    except Exception as error:  # parsers of broken files raise nearly anything
        raise GraphError(
            f"{source} cannot be read as {source.suffix}: {type(error).__name__}: {error}. "
            "Check that the suffix fits the content and that the file is complete"
        ) from error
    apply_defaults(graph)
    try:
        check(graph)
    except GraphError as error:
        raise GraphError(f"{source}: {error}") from None
    if not isolated:
        _refuse_lonely(graph, source)
    graph = _sorted(graph)
    graph.graph[FILE_SUMMARY] = summarize(graph, source, ignored)
    return graph


def _reader(source: Path) -> Callable[[Path, list[str]], Graph]:
    readers: dict[str, Callable[[Path, list[str]], Graph]] = {
        ".graphml": read_graphml,
        ".gexf": read_gexf,
        ".json": _read_json,
        ".npz": _read_npz,
    }
    readers |= dict.fromkeys((".edgelist", ".edges", ".txt", ".csv", ".tsv"), read_edge_list)
    suffix = source.suffix.lower()
    if suffix not in readers:
        raise GraphError(f"{source} has the suffix {suffix!r}; a graph is read from {', '.join(readers)}")
    return readers[suffix]


def _refuse_file(source: Path) -> None:
    if not os.path.isfile(source):  # also if the name is too long to be one
        raise GraphError(f"{source} is not a file; check the path (it counts from {Path.cwd()})")
    size = source.stat().st_size
    if size == 0:
        raise GraphError(f"{source} is empty; expected a graph")
    if size > LARGEST:
        raise GraphError(f"{source} has {size} bytes, more than {LARGEST}; save the adjacency matrix as .npz instead")


def _refuse_lonely(graph: Graph, source: Path) -> None:
    """Refuse nodes without a link; a graph of one node is fine."""
    if len(graph) == 0:
        raise GraphError(f"{source} holds no nodes and no links; expected a graph")
    if len(graph) == 1:
        return
    if graph.number_of_edges() == 0:
        raise GraphError(f"{source} lists {len(graph)} nodes, but no links; add the links or choose a family instead")
    lonely = [node for node in sort_nodes(graph) if graph.degree[node] == 0]
    if lonely:
        names = ", ".join(map(repr, lonely[:5])) + (", ..." if len(lonely) > 5 else "")
        raise GraphError(f"{source}: {len(lonely)} nodes have no link: {names}; link them or take them out of the file")


def _sorted(graph: Graph) -> Graph:
    import networkx

    plain = networkx.Graph(**graph.graph)
    plain.add_nodes_from((node, graph.nodes[node]) for node in sort_nodes(graph))
    plain.add_edges_from(graph.edges(data=True))
    return plain


def _read_json(source: Path, ignored: list[str]) -> Graph:
    import json

    import networkx

    data = json.loads(source.read_bytes(), object_pairs_hook=_refuse_repeated_keys)
    found = [key for key in ("edges", "links") if isinstance(data, dict) and isinstance(data.get(key), list)]
    if len(found) != 1 or not isinstance(data.get("nodes"), list):
        raise GraphError(
            f'{source}: expected node-link JSON, an object with a list "nodes" and a list "edges" or "links" '
            "(one of them), as json.dump(networkx.node_link_data(graph), file) writes it"
        )
    ignored += [f"key {key!r}" for key in sorted(data.keys() - {*_NODE_LINK, found[0]})]
    graph = networkx.node_link_graph(data, directed=False, multigraph=False, edges=found[0])
    if not graph.is_directed():
        _refuse_miscounted(graph, data["nodes"], data[found[0]], source)
    return graph


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; of a key that is given twice, json.loads would keep the last value in silence."""
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise GraphError(f"an object of the JSON file has the key {repeated!r} more than once; give it one value")
    return found


def _refuse_miscounted(graph: Graph, nodes: list[Any], links: list[dict[str, Any]], source: Path) -> None:
    """Refuse what networkx merges or adds in silence: nodes and links listed twice, links to unknown nodes."""
    if len(graph) != len(nodes):
        raise GraphError(
            f"{source} lists {len(nodes)} nodes, but its nodes and links name {len(graph)} different ones; "
            "list every node once"
        )
    if graph.number_of_edges() == len(links):
        return
    seen = set()
    for link in links:
        pair = frozenset((str(link["source"]), str(link["target"])))
        if pair in seen:
            raise GraphError(
                f"{source}: link {link['source']!r} - {link['target']!r} is listed more than once; list every link once"
            )
        seen.add(pair)


def _read_npz(source: Path, ignored: list[str]) -> Graph:
    import zipfile

    import networkx
    import numpy
    from scipy import sparse

    with zipfile.ZipFile(source) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise GraphError(f"{source} unpacks to more than {LARGEST} bytes; take a smaller graph")
    matrix = sparse.load_npz(source)  # never unpickles
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"{source} has the shape {matrix.shape}; an adjacency matrix is square")
    if matrix.shape[0] > max(2 * matrix.nnz, _FEW):  # before anything is made for every node
        raise GraphError(
            f"{source} has {matrix.shape[0]} nodes, but only {matrix.nnz} values, so most nodes have no link; "
            "link them or take them out of the file"
        )
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{source} holds values of type {matrix.dtype}; expected real numbers, the weights")
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)  # a damaged indptr would reach into foreign memory
    matrix = _without_repetitions(sparse.coo_array(matrix).astype(numpy.float64), source)
    if not numpy.isfinite(matrix.data).all():
        raise GraphError(f"{source} has weights that are NaN or infinite; expected finite numbers above 0")
    matrix.eliminate_zeros()
    if (matrix != matrix.T).nnz:
        raise GraphError(f"{source} is not symmetric; {UNDIRECTED}, e.g. (matrix + matrix.T) / 2")
    half = sparse.triu(matrix).tocoo()
    graph = networkx.Graph()
    graph.add_nodes_from(range(matrix.shape[0]))
    graph.add_weighted_edges_from(zip(half.row.tolist(), half.col.tolist(), half.data.tolist(), strict=True))
    return graph


def _without_repetitions(entries: Any, source: Path) -> Any:
    """Return a matrix by rows; entries that are listed twice, which scipy adds up, are refused."""
    matrix = entries.tocsr()
    if matrix.nnz < entries.nnz:
        raise GraphError(f"{source} holds an entry more than once, and scipy would add them up; list every link once")
    return matrix
