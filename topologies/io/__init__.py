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

LARGEST = 2**30  # bytes of a file
_NODE_LINK = ("directed", "multigraph", "graph", "nodes")  # keys of node-link JSON, in addition to that of the links
_FEW = 100_000  # nodes that are created and checked without regard to the number of links


def read(path: str | PathLike[str], *, isolated: bool = False) -> Graph:
    r"""Read an undirected graph from a file; nodes keep their labels and are sorted in natural order (`sort_nodes`).

    Nodes and links at any depth of a GraphML or GEXF file become nodes and links of one graph, and default attributes
    are applied. Files with several graphs, hyperedges or times are rejected.

    Parameters
    ----------
    path : str or path
        File of at most 1 GiB. Formats by suffix:

        * .graphml, .gexf. XML with a document type declaration is rejected, because entities can expand to any size.
        * .json: node-link format, with links under "edges" or "links".
        * .npz: adjacency matrix from scipy.sparse.save_npz, whose values are weights.
        * .edgelist, .edges, .txt, .csv, .tsv: see `read_edge_list`.
    isolated : bool, default=False
        Whether nodes without links are accepted.

    Returns
    -------
    networkx.Graph
        With all attributes of the file. Used are `weight` of links, `name` or `label` of nodes (`name_nodes`) and, with
        a link model, `latency` and `bandwidth` of links, `access` and `speed` of nodes. The graph attribute
        `file_summary` is one line on the read and the ignored contents, which runs show as a note.

    Raises
    ------
    GraphError
        If the file is missing, empty, too large or cannot be parsed; if the graph is directed, has parallel links,
        self-loops or invalid weights; if one of several nodes is isolated, unless `isolated` is True; or if the file
        has contents that a graph cannot represent.

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
        raise GraphError(f"path is {path!r}; expected the path of a file, such as 'graph.graphml'") from None
    _check_file(source)
    reader = _reader(source)
    ignored: list[str] = []
    try:
        graph = reader(source, ignored)
    except GraphError:
        raise
    except Exception as error:
        # Parsers of networkx, scipy and zipfile raise almost any exception for broken files.
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
        _check_isolated_nodes(graph, source)
    graph = _sort_graph(graph)
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
        raise GraphError(f"{source} has the suffix {suffix!r}; expected one of: {', '.join(readers)}")
    return readers[suffix]


def _check_file(source: Path) -> None:
    # os.path.isfile is False for names that are too long, for which Path.is_file raises.
    if not os.path.isfile(source):
        raise GraphError(f"{source} is not a file; check the path (relative paths start at {Path.cwd()})")
    size = source.stat().st_size
    if size == 0:
        raise GraphError(f"{source} is empty; expected a graph")
    if size > LARGEST:
        raise GraphError(
            f"{source} has {size} bytes; expected at most {LARGEST}. Save the adjacency matrix as .npz instead"
        )


def _check_isolated_nodes(graph: Graph, source: Path) -> None:
    """Check that no node is isolated, unless the graph has only one node."""
    if len(graph) == 0:
        raise GraphError(f"{source} contains no nodes and no links; expected a graph")
    if len(graph) == 1:
        return
    if graph.number_of_edges() == 0:
        raise GraphError(f"{source} lists {len(graph)} nodes, but no links. Add links, or use a graph family")
    isolated = [node for node in sort_nodes(graph) if graph.degree[node] == 0]
    if isolated:
        names = ", ".join(map(repr, isolated[:5])) + (", ..." if len(isolated) > 5 else "")
        raise GraphError(f"{source} has {len(isolated)} isolated nodes: {names}. Connect or remove them")


def _sort_graph(graph: Graph) -> Graph:
    import networkx

    plain = networkx.Graph(**graph.graph)
    plain.add_nodes_from((node, graph.nodes[node]) for node in sort_nodes(graph))
    plain.add_edges_from(graph.edges(data=True))
    return plain


def _read_json(source: Path, ignored: list[str]) -> Graph:
    import json

    import networkx

    data = json.loads(source.read_bytes(), object_pairs_hook=_check_repeated_keys)
    keys = [key for key in ("edges", "links") if isinstance(data, dict) and isinstance(data.get(key), list)]
    if len(keys) != 1 or not isinstance(data.get("nodes"), list):
        raise GraphError(
            f'{source}: expected node-link JSON, an object with a list "nodes" and a list "edges" or "links" '
            "(one of them), as json.dump(networkx.node_link_data(graph), file) writes it"
        )
    links = keys[0]
    ignored += [f"key {key!r}" for key in sorted(data.keys() - {*_NODE_LINK, links})]
    graph = networkx.node_link_graph(data, directed=False, multigraph=False, edges=links)
    if not graph.is_directed():
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
            raise GraphError(f"{source} unpacks to more than {LARGEST} bytes. Use a smaller graph")
    # load_npz never unpickles objects, so a file cannot run code.
    matrix = sparse.load_npz(source)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"{source} has the shape {matrix.shape}; an adjacency matrix is square")
    # A small file may declare billions of nodes, so this is checked before anything is created per node.
    if matrix.shape[0] > max(2 * matrix.nnz, _FEW):
        raise GraphError(
            f"{source} has {matrix.shape[0]} nodes, but only {matrix.nnz} values, so most nodes are isolated. "
            "Connect or remove them"
        )
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{source} contains values of type {matrix.dtype}; expected real numbers, the weights")
    # With a damaged indptr, scipy would read memory outside of the arrays.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    matrix = _check_repetitions(sparse.coo_array(matrix).astype(numpy.float64), source)
    if not numpy.isfinite(matrix.data).all():
        raise GraphError(f"{source} has weights that are NaN or infinite; expected finite numbers above 0")
    matrix.eliminate_zeros()
    if (matrix != matrix.T).nnz:
        raise GraphError(f"{source} is not symmetric; {UNDIRECTED}, for example (matrix + matrix.T) / 2")
    half = sparse.triu(matrix).tocoo()
    graph = networkx.Graph()
    graph.add_nodes_from(range(matrix.shape[0]))
    graph.add_weighted_edges_from(zip(half.row.tolist(), half.col.tolist(), half.data.tolist(), strict=True))
    return graph


def _check_repetitions(entries: Any, source: Path) -> Any:
    """Convert a matrix to rows, and check that no entry is listed twice: scipy would add them."""
    matrix = entries.tocsr()
    if matrix.nnz < entries.nnz:
        raise GraphError(f"{source} contains an entry more than once. List every link once")
    return matrix
