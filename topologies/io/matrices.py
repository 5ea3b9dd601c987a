"""Adjacency matrices: SciPy and NumPy archives, Matrix Market files, and matrices in memory."""

import io
from pathlib import Path
from typing import Any

from topologies.errors import GraphError
from topologies.io.directions import tell_merged
from topologies.io.reading import LARGEST, Reading, find_suffix, read_bytes
from topologies.validation import PARALLEL, UNDIRECTED, Graph

_FEW = 100_000  # nodes that are created and checked without regard to the number of links
_LEAST_ENTRY = 2  # characters of an entry of a Matrix Market file


def read_matrix(source: Path, reading: Reading) -> Graph:
    """Read an adjacency matrix from .npz (SciPy or NumPy), .npy or .mtx (Matrix Market); values are weights."""
    kind = find_suffix(source)
    load = {".mtx": _load_market, ".npy": _load_npy}.get(kind, _load_npz)
    matrix, weighted = load(source)
    return convert_matrix(matrix, str(source), reading, weighted)


def convert_matrix(matrix: Any, source: str, reading: Reading, weighted: bool = True) -> Graph:
    """Convert a sparse or dense matrix: a graph if it is symmetric, else a directed graph.

    Raises
    ------
    GraphError
        If the matrix is not square, most of its nodes are isolated, values are not finite numbers, an entry is listed
        more than once, or the matrix is not symmetric and directed graphs are refused.
    """
    import networkx
    from scipy import sparse

    rows = _check_values(matrix, source, reading)
    is_directed = bool((rows != rows.T).nnz)
    if is_directed and reading.directed == "refuse":
        raise GraphError(
            f"{source} is not symmetric; {UNDIRECTED}, for example by (matrix + matrix.T) / 2 or directed=union"
        )
    links = (rows if is_directed else sparse.triu(rows)).tocoo()
    graph = networkx.DiGraph() if is_directed else networkx.Graph()
    graph.add_nodes_from(range(matrix.shape[0]))
    ends = links.row.tolist(), links.col.tolist()
    if weighted and matrix.dtype.kind != "b":
        graph.add_weighted_edges_from(zip(*ends, links.data.tolist(), strict=True))
    else:
        graph.add_edges_from(zip(*ends, strict=True))
    return graph


def _check_values(matrix: Any, source: str, reading: Reading) -> Any:
    """Convert a matrix to sparse rows of finite numbers without zeros."""
    import numpy
    from scipy import sparse

    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"{source} has the shape {matrix.shape}; an adjacency matrix is square")
    if matrix.dtype.kind not in "biuf":
        raise GraphError(f"{source} contains values of type {matrix.dtype}; expected real numbers, the weights")
    # Only masked arrays of NumPy have this method.
    if hasattr(matrix, "filled") and numpy.any(matrix.mask):
        raise GraphError(
            f"{source} has masked entries; expected a number in each. Use matrix.filled(0) if they mean no link"
        )
    # With a damaged indptr, SciPy would read memory outside of the arrays.
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    # A small file may declare billions of nodes, so this is checked before anything is created per node. Of diagonals,
    # the stored values are counted: SciPy counts and converts them with memory for each declared node.
    values = matrix.size if not sparse.issparse(matrix) or matrix.format != "dia" else matrix.data.size
    if matrix.shape[0] > max(2 * values, _FEW):
        raise GraphError(
            f"{source} has {matrix.shape[0]} nodes, but only {values} values, so most nodes are isolated. "
            "Connect or remove them"
        )
    entries = sparse.coo_array(matrix)
    if reading.parallel == "first":
        _, first = numpy.unique(entries.row.astype(numpy.int64) * matrix.shape[0] + entries.col, return_index=True)
        kept = entries.data[first], (entries.row[first], entries.col[first])
        tell_merged(entries.nnz, len(first), reading)
        entries = sparse.coo_array(kept, entries.shape)
    # SciPy adds the values of one entry.
    rows = entries.astype(numpy.float64).tocsr()
    if rows.nnz < entries.nnz and reading.parallel == "refuse":
        raise GraphError(f"{source} contains an entry more than once. {PARALLEL}")
    tell_merged(entries.nnz, rows.nnz, reading)
    if not numpy.isfinite(rows.data).all():
        raise GraphError(f"{source} has weights that are NaN or infinite; expected finite numbers above 0")
    stored = rows.nnz
    rows.eliminate_zeros()
    if sparse.issparse(matrix) and rows.nnz < stored:
        reading.remarks.append(f"{stored - rows.nnz} stored zeros are ignored")
    return rows


def _load_npz(source: Path) -> tuple[Any, bool]:
    """Load a matrix of scipy.sparse.save_npz, or the only array of numpy.savez."""
    import zipfile

    import numpy
    from scipy import sparse

    content = io.BytesIO(read_bytes(source))
    with zipfile.ZipFile(content) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise GraphError(f"{source} unpacks to more than {LARGEST} bytes. Use a smaller graph")
    content.seek(0)
    # Neither loader unpickles objects, so a file cannot run code.
    with numpy.load(content, allow_pickle=False) as arrays:
        names = arrays.files
        if "format" not in names:
            if len(names) != 1:
                raise GraphError(
                    f"{source} has the arrays {', '.join(names[:5])}; expected one matrix, as scipy.sparse.save_npz "
                    "writes it"
                )
            return arrays[names[0]], True
    content.seek(0)
    return sparse.load_npz(content), True


def _load_npy(source: Path) -> tuple[Any, bool]:
    import numpy

    return numpy.load(io.BytesIO(read_bytes(source)), allow_pickle=False), True


def _load_market(source: Path) -> tuple[Any, bool]:
    """Load a Matrix Market file; entries of the field `pattern` have no weights."""
    from scipy import io as scipy_io
    from scipy import sparse

    content = read_bytes(source)
    rows, columns, entries, form, field, symmetry = scipy_io.mminfo(io.BytesIO(content))
    # Memory is reserved for the declared size, so this is checked first. Of a symmetric array, about half is stored.
    stored = entries // 2 if form == "array" and symmetry != "general" else entries
    if stored * _LEAST_ENTRY > len(content) + _LEAST_ENTRY:
        raise GraphError(
            f"{source} declares {entries} entries, but has {len(content)} bytes; check that it is complete"
        )
    if form == "coordinate" and rows == columns and rows > max(2 * entries, _FEW):
        # The same text as for other matrices, before SciPy reads the entries.
        return sparse.coo_array((rows, columns)), True
    return scipy_io.mmread(io.BytesIO(content), spmatrix=False), field != "pattern"
