"""Rejected inputs: command line, part of the message, and exit code.

One test per section (test_bad_input.py); ``python -m tests.support.bad_input_files`` writes the table to
tests/support/REJECTED.md.
"""

import os
import shlex
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.support.bad_input_rows import CONTENT, FILES, USAGE

REJECTED = Path(__file__).parent / "REJECTED.md"


class Row(NamedTuple):
    """Mistake of a user."""

    section: str
    words: str
    code: int
    piece: str


GOOD = "x,y\n0,1\n2,3\n4,5\n6,7\n8,9\n"
LOL = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "lol"}">' for i in range(10))
BOMB = f'<?xml version="1.0"?><!DOCTYPE lolz [{LOL}]><graphml>&l9;</graphml>'
XML = 'xmlns="http://graphml.graphdrawing.org/xmlns"'
PAIR = '<node id="0"/><node id="1"/>'

TEXTS: dict[str, str] = {
    "nul.csv": "x,y\n0,1\n2,\0\n",
    "long.csv": "x\n" + "1" * 200_000 + "\n",
    "quote.csv": 'x,y\n0,1\n"2,3\n',
    "decimal.csv": "x;y\n0,5;1\n1,5;2\n",
    "blanks.csv": "0 1\n2 3\n",
    "large.csv": "x,y\n1e400,0\n1,2\n",
    "square.csv": "x,y\n1e200,0\n1,2\n3,4\n5,6\n7,8\n",
    "far.csv": "x,y\n1e15,0\n1000000000000001,2\n1000000000000003,4\n1000000000000005,6\n1000000000000009,8\n",
    "tiny.csv": "x,y\n1e-170,0\n0,2e-170\n3e-170,0\n0,0\n1e-170,5e-170\n",
    "underscore.csv": "x,y\n1_0,0\n1,2\n3,4\n5,6\n",
    "arabic.csv": "x,y\n\u0663,0\n1,2\n3,4\n5,6\n",
    "hex.csv": "x,y\n0x10,0\n1,2\n",
    "twice.csv": "x,y,y\n0,1,a\n2,3,b\n4,5,a\n6,7,b\n",
    "many.csv": "x,device\n0,0\n1,1\n2,99999999999\n",
    "float.csv": "x,device\n0,0\n1,1\n2,1e30\n",
    "int64.csv": "x,device\n0,0\n1,1\n2,9223372036854775808\n",
    "nan-device.csv": "x,device\n0,0\n1,1\n2,nan\n",
    "nan-label.csv": "x,label\n0,0\n1,1\n2,nan\n",
    "one.csv": "x\n1\n",
    "moments.csv": "when,y\n2026-01-31 18:00,1\n2026-01-31 18:00Z,2\n",
    "one.csv.gz": "x\n1\n",
    "cut.csv.gz": "\0",
    "bomb.graphml": BOMB,
    "bomb.gexf": BOMB,
    "entity.graphml": '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><graphml>&x;</graphml>',
    "nested.graphml": "<a>" * 20_000,
    "svg.graphml": "<svg></svg>",
    "multi.graphml": f'<graphml {XML}><graph edgedefault="undirected">{PAIR}<edge source="0" target="1"/>'
    '<edge source="1" target="0"/></graph></graphml>',
    "hyper.graphml": f'<graphml {XML}><graph edgedefault="undirected">{PAIR}<hyperedge/></graph></graphml>',
    "two.graphml": f"<graphml {XML}>"
    + f'<graph edgedefault="undirected">{PAIR}<edge source="0" target="1"/></graph>' * 2
    + "</graphml>",
    "stranger.graphml": f'<graphml {XML}><graph edgedefault="undirected">{PAIR}<edge source="0" target="1"/>'
    '<edge source="1" target="5"/></graph></graphml>',
    "times.gexf": '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph mode="dynamic">'
    f'<nodes>{PAIR}</nodes><edges><edge id="0" source="0" target="1" start="0" end="2"/></edges></graph></gexf>',
    "keys.json": '{"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1, "weight": 1, "weight": 2}]}',
    "sharp.csv": "A,lab #1\nB,A\n",
    "decimal.txt": "0 1 1,5\n1 2 0,5\n",
    "columns.txt": "first second 3\n0 1 1\n1 2 2\n",
    "weight.graphml": f'<graphml {XML}><key id="d0" for="edge" attr.name="weight" attr.type="double"/>'
    f'<graph edgedefault="undirected">{PAIR}<edge source="0" target="1"><data key="d0">abc</data></edge></graph>'
    "</graphml>",
    "text.gexf": "hello",
    "directed.gexf": '<gexf xmlns="http://www.gexf.net/1.2draft" version="1.2"><graph defaultedgetype="directed">'
    f'<nodes>{PAIR}</nodes><edges><edge id="0" source="0" target="1"/></edges></graph></gexf>',
    "users.json": '{"users": ["a", "b"], "user_data": {"a": {"x": [[1]]}}}',
    "samples.json": '{"users": ["a"], "num_samples": [3], "user_data": {"a": {"x": [[1]]}}}',
    "pictures.json": '{"user_data": {"a": {"x": ["1.png"]}}}',
    "rows.json": '{"user_data": {"a": {"x": [[1, 2], [3]], "y": [0, 1]}}}',
    "short.json": '{"user_data": {"a": {"x": [[1, 2], [3, 4]], "y": [0]}}}',
    "features.json": '{"user_data": {"a": {"x": [[1, 2]]}, "b": {"x": [[1]]}}}',
    "infinite.json": '{"user_data": {"a": {"x": [[1, Infinity]]}}}',
    "empty.json": '{"user_data": {}}',
    "text.h5ad": "hello",
    "cut.h5ad": "\0",
    "text.arrow": "hello",
    "old.feather": "FEA1\0",
    "nested.json": "[" * 10_000,
    "objects.json": '{"nodes":' * 10_000,
    "list.json": "[1, 2]",
    "null.json": "null",
    "text.json": "hello",
    "strings.json": '{"nodes": ["a"], "edges": ["b"]}',
    "both.json": '{"nodes": [], "edges": [], "links": []}',
    "unknown.json": '{"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 5}]}',
    "repeated.json": '{"nodes": [{"id": 0}, {"id": 1}],'
    ' "edges": [{"source": 0, "target": 1}, {"source": 1, "target": 0}]}',
    "heavy.json": '{"nodes": [{"id": 0}, {"id": 1}], "edges": [{"source": 0, "target": 1, "weight": "heavy"}]}',
    "four.edgelist": "0 1 2 3\n",
    "lone.edgelist": "0\n",
    "nan.edgelist": "0 1 nan\n",
    "inf.edgelist": "0 1 1e400\n",
    "code.edgelist": "0 1 {'weight': __import__('os').system('touch pwned')}\n",
    "nested.edgelist": "0 1 {'weight': " + "(" * 5_000 + "}\n",
    "number-key.edgelist": "0 1 {3: 4}\n",
    "head.edges": "source,target,weight,weight\n0,1,2,3\n",
    "both.edges": "0 1 2\n1 0 3\n",
    "two.csv": "a;b,c\nb;c,a\n",
    "matrix.csv": "0,1,1\n1,0,1\n1,1,0\n",
    "kind.csv": "Source,Target,Type\n0,1,Directed\n",
    "few.csv": "0,1\n1,2\n",
    "arcs.net": "*Vertices 2\n*Arcs\n1 2\n",
    "unknown.net": "*Vertices 2\n*Edges\n1 3\n",
    "several.net": "*Vertices 2\n*Edges\n1 2\n*Partition a\n*Vertices 2\n1\n1\n",
    "other.gt": "0 1\n1 2\n",
    "second.gt": "\u26fe gt\x02\0",
    "cut.gt": "\u26fe gt\1\0" + "\0" * 9 + "\2" + "\0" * 7 + "\1" + "\0" * 7 + "\1\1" + "\0" * 7,
    "claim.gt": "\u26fe gt\1\0" + "\0" * 9 + "\x7f" * 8,
    "outside.gt": "\u26fe gt\1\0" + "\0" * 9 + "\2" + "\0" * 7 + "\1" + "\0" * 7 + "\5" + "\0" * 16,
    "undefined.gml": "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 3 ] ]",
    "directed.gml": "graph [ directed 1 node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]",
    "claim.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 99999999999\n1 2 1\n",
    "upper.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n",
    "nested.toml": "a = " + "[" * 10_000,
    "long.toml": "graph = '" + "a" * 20_000 + "'",
    "digits.toml": "seed = " + "9" * 10_000,
    "hex.toml": "seed = 0x" + "9" * 5_000,
    "time.toml": "seed = 10:20:30\n",
    "moment.toml": "graph = 2020-01-01T00:00:00Z\n",
    "twice.toml": "seed = 1\nseed = 2\n",
    "inf.toml": "alpha = inf\n",
    "dotted.toml": "a.b = 1\n",
    "tables.toml": "[[graph]]\n",
    "config.toml": "config = 'other.toml'\n",
    "column.toml": "label_column = 1.5\n",
    "surrogate.toml": 'graph = "\\ud800"\n',
    "zero-byte.toml": "seed = 1\0",
    "empty-value.toml": "partition = ''\n",
}


def _npy(shape: str, kind: str = "<f8", body: bytes = bytes(16)) -> bytes:
    """Build a .npy file with an arbitrary header."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (64 - (10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _array(array: object) -> Callable[[Path], object]:
    return lambda path: np.save(path, array, allow_pickle=True)


def _arrays(**arrays: object) -> Callable[[Path], object]:
    return lambda path: np.savez(path, allow_pickle=True, **arrays)


def _zip(name: str, content: bytes) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, content)

    return make


def _zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        member.write(_npy("(150000000, 2)", "|u1", b""))
        for _ in range(300):
            member.write(bytes(1_000_000))


def _patched(make: Callable[[Path], object], change: Callable[[bytearray], object]) -> Callable[[Path], object]:
    def made(path: Path) -> None:
        make(path)
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(content)

    return made


def _encrypt(content: bytearray) -> None:
    content[6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1


def _parquet(**columns: object) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path, compression="zstd")

    return make


def _parquet_twice(path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    columns = [pyarrow.array([0.0, 1.0]), pyarrow.array([0.0, 1.0]), pyarrow.array([0, 1])]
    parquet.write_table(pyarrow.table(columns, names=["x", "x", "device"]), path)


def _arrow(**columns: object) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        import pyarrow
        from pyarrow import feather

        feather.write_feather(pyarrow.table(columns), str(path), compression="zstd", chunksize=1 << 26)

    return make


def _cells(matrix: object) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        import warnings

        import anndata
        from scipy import sparse

        square = sparse.csr_matrix((matrix, matrix)) if isinstance(matrix, int) else np.asarray(matrix)
        with warnings.catch_warnings(action="ignore"):
            cells = anndata.AnnData(X=square)
            cells.obsm["X_pca"] = np.ones((square.shape[0], 2))
            cells.write_h5ad(path)

    return make


def _folder(files: dict[str, str]) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.mkdir()
        for name, text in files.items():
            (path / name).write_text(text)

    return make


def _adjacency(dense: object) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        from scipy import sparse

        sparse.save_npz(path, sparse.csr_array(np.array(dense)))

    return make


def _link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


_WHOLE = _npy("(3, 2)", body=bytes(48))
_CUT = "an array without its last 8 bytes"
MADE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "utf16.csv": ("UTF-16 without a byte order mark", _bytes(GOOD.encode("utf-16-le"))),
    "latin.csv": ("text in no usual encoding", _bytes(b"x,gr\x81\x8d\n0,1\n")),
    "pipe.csv": ("a named pipe", os.mkfifo),
    "zero.csv": ("a link to /dev/zero", _link("/dev/zero")),
    "loop.csv": ("a link to itself", _link("loop.csv")),
    "folder.csv": ("a folder", Path.mkdir),
    "billion.npy": ("the header says 1e9 rows, 16 bytes follow", _bytes(_npy("(1000000000, 2)"))),
    "negative.npy": ("the header says -1 rows", _bytes(_npy("(-1, 2)"))),
    "endless.npy": ("the header says 1e22 rows", _bytes(_npy("(10000000000000000000000, 2)"))),
    "cube.npy": ("an array of three axes", _array(np.zeros((2, 2, 2)))),
    "complex.npy": ("complex numbers", _array(np.zeros((3, 2), complex))),
    "date.npy": ("dates", _array(np.zeros((3, 2), "M8[s]"))),
    "inf.npy": ("an infinity", _array(np.array([[1, np.inf]]))),
    "cut.npy": (_CUT, _bytes(_WHOLE[:-8])),
    "more.npy": ("an array and 8 bytes more", _bytes(_WHOLE + b"12345678")),
    "nothing.npy": ("no bytes", _bytes(b"")),
    "no-columns.npy": ("shape (3, 0)", _array(np.zeros((3, 0)))),
    "archive.npy": ("an .npz", _zip("X.npy", _WHOLE)),
    "bomb.npz": ("300 MB of zeros in 300 kB", _zip_bomb),
    "claim.npz": ("an array whose header says 1e9 rows", _zip("X.npy", _npy("(1000000000, 2)"))),
    "locked.npz": ("encrypted", _patched(_zip("X.npy", _WHOLE), _encrypt)),
    "flipped.npz": ("a flipped byte", _patched(_zip("X.npy", _WHOLE), lambda content: content.__setitem__(140, 1))),
    "objects.npz": ("Python objects", _arrays(X=np.array([[{}]]))),
    "labels.npz": ("4 points, 3 labels", _arrays(X=np.zeros((4, 2)), y=np.zeros(3))),
    "outside.npz": ("a member ../../X.npy", _zip("../../X.npy", _WHOLE)),
    "cut.parquet": ("no footer", _patched(_parquet(x=[1.0]), lambda content: content.__delitem__(slice(-9, None)))),
    "text.parquet": ("the text 'no'", _bytes(b"no")),
    "nothing.parquet": ("no bytes", _bytes(b"")),
    "null.parquet": ("a missing value", _parquet(x=[0.0, None, 2.0])),
    "text-column.parquet": ("a column of text", _parquet(x=["a", "b"], y=[1.0, 2.0])),
    "list.parquet": ("a column of lists", _parquet(x=[[1.0], [2.0, 3.0]])),
    "half.parquet": ("a device 0.5", _parquet(x=[0.0, 1.0], device=[0.5, 1.0])),
    "no-device.parquet": ("a missing device", _parquet(x=[0.0, 1.0, 2.0], device=[0, None, 1])),
    "negative.parquet": ("a device -1", _parquet(x=[0.0, 1.0], device=[0, -1])),
    "five.parquet": ("devices 0 to 4", _parquet(x=[0.0, 1.0, 2.0, 3.0, 4.0], device=[0, 1, 2, 3, 4])),
    "huge.parquet": ("a device 10^15", _parquet(x=[0.0, 1.0], device=[0, 10**15])),
    "twice.parquet": ("two columns x", _parquet_twice),
    "bomb.parquet": ("50 million zeros in 200 kB", _parquet(x=np.zeros(50_000_000, np.int8))),
    "cut.arrow": ("no footer", _patched(_arrow(x=[1.0]), lambda content: content.__delitem__(slice(-9, None)))),
    "null.arrow": ("a missing value", _arrow(x=[0.0, None])),
    "words.feather": ("a column of text", _arrow(x=["a", "b"], y=[1.0, 2.0])),
    "bomb.arrow": ("50 million zeros in 200 kB", _arrow(x=np.zeros(50_000_000, np.int8))),
    "cells.h5ad": ("2 cells, X and obsm X_pca", _cells(np.eye(2))),
    "vast.h5ad": ("an empty sparse matrix, 100000 x 100000", _cells(100_000)),
    "nan.h5ad": ("NaN", _cells(np.full((2, 2), np.nan))),
    "hollow": ("a folder of a text file", lambda path: (path.mkdir(), (path / "a.md").write_text("a"))),
    "mixed": ("a folder of a.csv and b.tsv", _folder({"a.csv": "x\n1\n", "b.tsv": "x\n1\n"})),
    "unlike": ("a folder of a.csv: x,y and b.csv: x", _folder({"a.csv": "x,y\n1,2\n", "b.csv": "x\n1\n"})),
    "renamed": ("a folder of a.csv: x,y and b.csv: y,x", _folder({"a.csv": "x,y\n1,2\n", "b.csv": "y,x\n1,2\n"})),
    "wrong": ("a folder of a.csv and a wrong b.csv", _folder({"a.csv": "x\n1\n", "b.csv": "x\n1\nred\n"})),
    "wide-0.npy": ("2 features", _array(np.zeros((4, 2)))),
    "wide-1.npy": ("3 features", _array(np.zeros((4, 3)))),
    "few-0.npy": ("4 rows, 3 labels beside", _array(np.zeros((4, 2)))),
    "few-0.labels.npy": ("3 labels", _array(np.arange(3))),
    "nan-0.npy": ("NaN", _array(np.full((4, 2), np.nan))),
    "nan-1.npy": ("zeros", _array(np.zeros((4, 2)))),
    "part-0.npy": (_CUT, _bytes(_WHOLE[:-8])),
    "object-0.npy": ("Python objects", _array(np.array([[{}]]))),
    "pipe-0.npy": ("a named pipe", os.mkfifo),
    "utf16.graphml": ("the same in UTF-16", _bytes(BOMB.encode("utf-16"))),
    "latin.edgelist": ("text in no encoding", _bytes(b"\x81 \x8d\n")),
    "binary.edgelist": ("no text", _bytes(b"\x00\x01\x02\n")),
    "pipe.edgelist": ("a named pipe", os.mkfifo),
    "rows.npz": ("a matrix of 2 x 3", _adjacency(np.ones((2, 3)))),
    "oneway.npz": ("a matrix that is not symmetric", _adjacency([[0, 1], [0, 0]])),
    "nan-weight.npz": ("a weight NaN", _adjacency([[0, np.nan], [np.nan, 0]])),
    "self.npz": ("a link of a node to itself", _adjacency(np.eye(2))),
    "below.npz": ("a weight -1", _adjacency([[0.0, -1.0], [-1.0, 0.0]])),
    "complex.npz": ("complex weights", _adjacency([[0, 1j], [1j, 0]])),
    "points.npz": ("points, no matrix", _arrays(X=np.ones((3, 3)))),
    "billion.npz": ("2 links, shape (1e9, 1e9)", _arrays(row=[0, 1], col=[1, 0], data=[1.0, 1.0], shape=[10**9] * 2,
                                                         format=np.array(b"coo"))),
    "diagonal.npz": ("2 diagonals, shape (1e9, 1e9)", _arrays(offsets=[1, -1], data=np.ones((2, 2)), shape=[10**9] * 2,
                                                              format=np.array(b"dia"))),
    "damaged.npz": ("an index pointer beyond the data", _arrays(indices=[1, 0], indptr=[0, 5, 9], data=[1.0, 1.0],
                                                                shape=[2, 2], format=np.array(b"csr"))),
    "bom.toml": ("a byte order mark", _bytes(b"\xef\xbb\xbfseed = 1\n")),
    "latin.toml": ("Latin-1", _bytes("graph = 'gr\u00f6\u00dfe'\n".encode("latin-1"))),
    "pipe.toml": ("a named pipe", os.mkfifo),
    "loop": ("a link to itself", _link("loop")),
}  # fmt: skip

RUNS = {
    "run-good": "the folder of a finished run",
    "run-flipped": "one bit of centroids.npz flipped",
    "run-cut": "the last byte of rounds.jsonl cut off",
    "run-lost": "ledger.npz removed",
    "run-more": "a file extra.npz added",
    "run-list": "one bit of checksums.sha256 flipped",
    "run-unlisted": "checksums.sha256 removed",
    "run-manifest": "manifest.json: done replaced by gone",
    "run-config": "config.toml emptied",
    "run-running": "the folder of a run that was killed",
}

MORE = {
    "Files of points": """
--data utf16.csv                          | 3 | 1 fields; expected 2
--data utf16.csv --encoding utf-16        | 3 | is not text in utf-16
--data decimal.csv --decimal , --thousands , | 2 | thousands and decimal are both ','
--data decimal.csv --thousands x          | 2 | thousands is 'x'
--data decimal.csv --dates dym            | 2 | dates
--data decimal.csv --decimal , --rename a | 2 | rename is 'a'; expected OLD=NEW
--data decimal.csv --decimal , --rename a=b | 3 | which no device, label or category is
--data decimal.csv --skip-rows 1,2        | 2 | skip_rows is '1,2'; expected a number of rows
--data cells.h5ad --skip-rows 1           | 3 | --skip-rows cannot be combined with .h5ad files
--data decimal.csv --separator ab         | 2 | separator is 'ab'; expected one character
--data decimal.csv --encoding klingon     | 2 | encoding is 'klingon'; expected the name
--data decimal.csv --sheet 1              | 3 | --sheet cannot be combined with .csv files
--data decimal.csv --keep z               | 3 | --keep is 'z'; expected one of the columns
--data decimal.csv --weight-column x      | 3 | column 'x' is '0,5'
--data twice.csv --weight-column x --drop 1,2 | 3 | no column is left
--data one.csv.gz                         | 3 | contains text that is not compressed. Rename the file to one.csv
--data cut.csv.gz                         | 3 | cannot be decompressed
--data latin.csv                          | 3 | neither UTF-8 nor Windows-1252
--data nul.csv                            | 3 | line 3, column 'y'
--data long.csv                           | 3 | larger than field limit
--data quote.csv                          | 3 | line 3: 1 fields; expected 2
--data decimal.csv                        | 3 | '0,5'; expected a number with a decimal point
--data blanks.csv                         | 3 | fields separated by comma, tab or semicolon
--data large.csv                          | 3 | '1e400'; expected a finite number
--data square.csv -k 2                    | 3 | squares overflow
--data far.csv -k 2                       | 3 | loses the digits of their differences; expected at most 1e+10 times
--data far.csv -k 2 --scale standard      | 3 | in a feature that is scaled
--data tiny.csv -k 2                      | 3 | square underflows; expected at least 1e-100
--data blobs:box=1e-170,sd=1e-172         | 3 | square underflows
--data underscore.csv                     | 3 | column 'x' is '1_0'
--data arabic.csv                         | 3 | expected a number
--data hex.csv                            | 3 | '0x10'; expected a number
--data twice.csv --label-column y         | 3 | several columns 'y'; expected one. Use the number
--data many.csv                           | 3 | names 3 devices; expected 4
--data float.csv                          | 3 | names 3 devices; expected 4
--data int64.csv                          | 3 | names 3 devices; expected 4
--data nan-device.csv                     | 3 | line 4, column 'device' is empty or missing
--data nan-label.csv -k 2                 | 3 | line 4, column 'label' is empty or missing
--data one.csv -k 2                       | 3 | 2 clusters of 1 points
--data pipe.csv                           | 3 | is not a regular file
--data zero.csv                           | 3 | is not a regular file
--data file:/dev/zero                     | 3 | is not a regular file
--data loop.csv                           | 3 | data file loop.csv does not exist
--data folder.csv                         | 3 | is a folder
--data good.csv/x.csv                     | 3 | data file good.csv/x.csv does not exist
--data http://example.org/a.csv           | 3 | URLs are not supported: download the file
--data ''                                 | 2 | unknown data ''
--data good.csv --label-column ''         | 3 | --label-column is ''; expected one of the columns
--data good.csv --label-column -1         | 3 | --label-column is '-1'; expected one of the columns
--data good.csv --label-column 99999999999999999999 | 3 | --label-column is '99999999999999999999'; expected one of
--data billion.npy                        | 3 | states 16000000000 bytes
--data negative.npy                       | 3 | for shape (-1, 2)
--data endless.npy                        | 3 | but the file contains 16
--data cube.npy                           | 3 | has shape (2, 2, 2), expected (points, features)
--data complex.npy                        | 3 | has dtype complex128; expected real numbers
--data date.npy                           | 3 | has dtype datetime64[s]
--data inf.npy                            | 3 | is inf at row 0, column 1
--data cut.npy                            | 3 | but the file contains 40
--data more.npy                           | 3 | but the file contains 56
--data nothing.npy                        | 3 | cannot be read as NumPy arrays
--data no-columns.npy                     | 3 | at least one point and one feature
--data archive.npy                        | 3 | Rename the file to archive.npz
--data cut.npy --partition blocks         | 3 | but the file contains 40
--data inf.npy --header yes               | 3 | inf.npy: --header cannot be combined with .npy files; expected
--data users.json --missing drop          | 3 | --missing cannot be combined with .json files; expected
--data good.csv --header maybe            | 2 | header in the command line is 'maybe'
--header no                               | 2 | --data grid16 cannot be combined with options for the columns of a file
--data moments.csv --encode when          | 3 | line 3, column 'when' is '2026-01-31 18:00Z', a time with a time zone
P2PKM_MEMORY=0 --data bomb.npz            | 3 | decompresses to 300000128 bytes
P2PKM_MEMORY=8G --data claim.npz          | 3 | does not fit into memory
P2PKM_MEMORY=0 --data claim.npz           | 3 | array 'X': the header states
--data locked.npz                         | 3 | encrypted
--data flipped.npz                        | 3 | Bad CRC-32
--data objects.npz                        | 3 | Object arrays cannot be loaded
--data labels.npz                         | 3 | the labels have shape (3,); expected (4,)
--data outside.npz -k 4                   | 3 | 4 clusters of 3 points
--data cut.parquet                        | 3 | cannot be read as Parquet
--data text.parquet                       | 3 | contains text; expected the format of its suffix, .parquet
--data nothing.parquet                    | 3 | cannot be read as Parquet
--data null.parquet                       | 3 | row 1, column 'x' is empty
--data text-column.parquet                | 3 | row 0, column 'x' is 'a'; expected a number
--data list.parquet                       | 3 | is '[1.0]'; expected a number
--data half.parquet                       | 3 | names 2 devices; expected 4
--data no-device.parquet                  | 3 | row 1, column 'device' is empty or missing
--data negative.parquet                   | 3 | numbers below 0, such as -1
--data five.parquet                       | 3 | the files name 5 devices; expected 4
--data huge.parquet                       | 3 | devices; expected 4
--data 'twic*.parquet'                    | 3 | several columns 'x'
P2PKM_MEMORY=0 --data bomb.parquet        | 3 | decompresses to 400000000 bytes
--data 'wide-*.npy'                       | 3 | wide-1.npy has 3 features
--data 'none-*.npy'                       | 3 | no file matches none-*.npy
--data 'few-*.npy'                        | 3 | has shape (3,) and dtype int64
--data 'nan-*.npy'                        | 3 | nan-0.npy is nan at row 0
--data 'part-*.npy'                       | 3 | part-0.npy cannot be read
--data 'object-*.npy'                     | 3 | object-0.npy cannot be read
--data 'pipe-*.npy'                       | 3 | pipe-0.npy is not a regular file
--data 'nan-*.npy' --partition beta       | 3 | it needs the coordinates of all points
--data 'nan-*.npy' --label-column 1       | 3 | cannot be combined with .npy files that stay
--data users.json                         | 3 | expected user 'b' once in users and once in user_data
--data samples.json                       | 3 | user 'a': num_samples is 3; expected 1, the number of points
--data pictures.json                      | 3 | row 0 of x (counted from 0) is '1.png'; expected a list of finite
--data rows.json                          | 3 | row 1 of x (counted from 0) has shape (1,); expected (2,)
--data short.json                         | 3 | y is not a list of 2 labels
--data features.json                      | 3 | user 'b' has 1 features
--data infinite.json                      | 3 | is [1, inf]; expected a list of finite numbers
--data empty.json                         | 3 | has 0 points
--data nested.json                        | 3 | nested too deeply
--data list.json                          | 3 | is not LEAF's JSON
--data text.json                          | 3 | cannot be read as JSON
--data users.json --device-column user    | 3 | cannot be combined with LEAF's JSON
--data text.arrow                         | 3 | contains text; expected the format of its suffix, .arrow
--data cut.arrow                          | 3 | cannot be read as Arrow
--data null.arrow                         | 3 | row 1, column 'x' is empty
--data words.feather                      | 3 | row 0, column 'x' is 'a'; expected a number
--data old.feather                        | 3 | Feather file of version 1; expected version 2
P2PKM_MEMORY=0 --data bomb.arrow          | 3 | decompresses to 400000000 bytes
--data text.h5ad                          | 3 | contains text; expected the format of its suffix, .h5ad
--data cut.h5ad                           | 3 | cannot be read as AnnData
--data vast.h5ad                          | 3 | dense form has 80000000000 bytes; expected at most 4294967296
--data nan.h5ad                           | 3 | nan.h5ad, X is nan at row 0, column 0
--data cells.h5ad:obsm:X_umap             | 3 | matrix 'obsm:X_umap' does not exist; expected one of 'X', 'obsm:X_pca'
--data cells.h5ad --device-column site    | 3 | obs: --device-column is 'site'; expected one of the columns
--data no.h5ad:obsm:X_pca                 | 3 | data file no.h5ad does not exist
--data hollow/                            | 3 | is a folder without data files
--data mixed/                             | 3 | files of several kinds: '.csv', '.tsv'
--data unlike/                            | 3 | b.csv has 1 features, but unlike/a.csv has 2
--data 'unlike/*.csv'                     | 3 | b.csv has 1 features
--data renamed/                           | 3 | b.csv has the features 'y', 'x'
--data wrong/                             | 3 | b.csv, line 3, column 'x' is 'red'
--data no-folder/                         | 3 | data file no-folder does not exist
--data mixed                              | 2 | use --data mixed/
--true-centers pipe.csv                        | 3 | is not a regular file
--true-centers cube.npy                        | 3 | has shape (2, 2, 2)
--true-centers ''                              | 2 | true_centers is empty
P2PKM_MEMORY=0 --true-centers bomb.npz         | 3 | decompresses to
""",
    "Generated data and partitions": """
--data grid16:points=99999999999999       | 3 | does not fit into memory
--data grid16:points=99999999999999999999 | 2 | below 2^63
--data grid16:sd=1e200                    | 2 | at most 1e+100
--data blobs:features=100000000           | 3 | does not fit into memory
--data blobs:clusters=1e3                 | 2 | '1e3'; expected a whole number
--data blobs:box=0                        | 2 | box is 0.0
--data balls:separation=0                 | 2 | separation is 0.0
--data slike:points=0                     | 2 | points is 0
--data shapes:side=7                      | 2 | side is 7
--data shapes:contrast=2                  | 2 | at most 1
--data digits:components=0                | 2 | components is 0
--data communities:second=x               | 2 | Known: fresh, same, shifted
--data communities:clusters=500           | 2 | at most 400
--data communities:devices=1              | 2 | devices is 1
--data 'grid16:points=3;sd=1'             | 2 | '3;sd=1'; expected a whole number
--data grid16:points:3                    | 2 | Did you mean 'points'?
--scale std                               | 2 | Did you mean 'standard'?
--dtype float16                           | 2 | Known: float32, float64
--partition ''                            | 2 | partition is empty
--partition dirichlet:alpha=1e400         | 2 | expected a finite number
--partition iid:minimum=99999999999       | 3 | cannot give 4 devices
--partition quantity:alpha=0              | 2 | alpha is 0.0
--partition beta:beta=-1                  | 2 | beta is -1.0
--partition dirichlet:seed=-1             | 2 | seed is -1
--partition column                        | 3 | requires a column
""",
    "Graphs": """
--graph file:bomb.graphml                 | 3 | DOCTYPE declaration, which can hide an XML bomb
--graph file:bomb.gexf                    | 3 | DOCTYPE declaration
--graph file:utf16.graphml                | 3 | DOCTYPE declaration
--graph file:entity.graphml               | 3 | DOCTYPE declaration
--graph file:nested.graphml               | 3 | cannot be read as .graphml
--graph file:svg.graphml                  | 3 | cannot be read as .graphml: it has no <graph> element
--graph file:multi.graphml                | 3 | linked more than once
--graph file:hyper.graphml                | 3 | has a <hyperedge>
--graph file:two.graphml                  | 3 | has 2 <graph> elements; expected one
--graph file:stranger.graphml             | 3 | link '1' - '5' leads to a node that is not listed
--graph file:times.gexf                   | 3 | link '0' - '1' has times (end, start)
--graph file:keys.json                    | 3 | has the key 'weight' more than once
--graph file:sharp.csv                    | 3 | # may begin a comment or belong to a label
--graph file:decimal.txt                  | 3 | with a decimal comma
--graph file:columns.txt                  | 3 | look like names of columns
--graph file:weight.graphml               | 3 | could not convert string to float: 'abc'
--graph file:text.gexf                    | 3 | cannot be read as .gexf
--graph file:directed.gexf                | 3 | is directed
--graph file:nested.json                  | 3 | cannot be read as .json
--graph file:objects.json                 | 3 | cannot be read as .json
--graph file:list.json                    | 3 | expected node-link JSON
--graph file:null.json                    | 3 | expected node-link JSON
--graph file:text.json                    | 3 | cannot be read as .json
--graph file:strings.json                 | 3 | cannot be read as .json
--graph file:both.json                    | 3 | (one of them)
--graph file:unknown.json                 | 3 | list every node once
--graph file:repeated.json                | 3 | linked more than once
--graph file:heavy.json                   | 3 | is 'heavy'; expected a finite number above 0
--graph file:rows.npz                     | 3 | an adjacency matrix is square
--graph file:oneway.npz                   | 3 | is not symmetric
--graph file:nan-weight.npz               | 3 | NaN or infinite
--graph file:self.npz                     | 3 | a link to itself
--graph file:below.npz                    | 3 | is -1.0; expected a finite number above 0
--graph file:complex.npz                  | 3 | values of type complex128
--graph file:points.npz                   | 3 | a link to itself
--graph file:pickle.npz                   | 3 | cannot be read as .npz
--graph file:billion.npz                  | 3 | has 1000000000 nodes, but only 2 values
--graph file:diagonal.npz                 | 3 | has 1000000000 nodes, but only 4 values
--graph file:damaged.npz                  | 3 | cannot be read as .npz
--graph file:four.edgelist                | 3 | line 1: got ['0', '1', '2', '3']
--graph file:lone.edgelist                | 3 | expected two labels
--graph file:nan.edgelist                 | 3 | is nan; expected a finite number above 0
--graph file:inf.edgelist                 | 3 | is inf; expected a finite number above 0
--graph file:code.edgelist                | 3 | the weight is "{'weight': __import__
--graph file:nested.edgelist              | 3 | the weight is
--graph file:number-key.edgelist          | 3 | the weight is '{3: 4}'
--graph file:head.edges                   | 3 | the header has the column 'weight' more than once
--graph file:both.edges                   | 3 | use directed=union for the mean weight
--graph file:two.csv                      | 3 | ';' or ',' may separate columns
--graph file:matrix.csv                   | 3 | as an adjacency matrix
--graph file:kind.csv                     | 3 | the graph is directed
--graph file:few.csv,directed=both        | 2 | directed is 'both'
--graph file:few.csv,isolate=3            | 2 | Did you mean 'isolated'?
--graph file:few.csv,isolated=0           | 3 | isolated contains '0', which has links
--graph file:arcs.net                     | 3 | is directed
--graph file:unknown.net                  | 3 | the node is '3'; expected a whole number from 1 to 2
--graph file:several.net                  | 3 | *partition; expected Vertices, Arcs, Edges
--graph file:other.gt                     | 3 | it does not begin with the mark of graph-tool
--graph file:second.gt                    | 3 | version 2 of the format; expected 1. Write it in graph-tool as GraphML
--graph file:cut.gt                       | 3 | ends after 42 bytes; expected at least 43
--graph file:claim.gt                     | 3 | declares 9187201950435737471 nodes
--graph file:outside.gt                   | 3 | a link to node 5; expected 0 to 1
--graph file:undefined.gml                | 3 | undefined target 3
--graph file:directed.gml                 | 3 | is directed
--graph file:claim.mtx                    | 3 | declares 99999999999 entries
--graph file:upper.mtx                    | 3 | is not symmetric
--graph file:latin.edgelist               | 3 | cannot be read as .edgelist
--graph file:binary.edgelist              | 3 | expected two labels
--graph file:pipe.edgelist                | 3 | is not a file
--graph file:/dev/zero                    | 3 | is not a file
--graph file:loop                         | 3 | is not a file
--graph gallery:../karate                 | 3 | gallery recipe is '../karate'
--graph gallery:/etc/passwd               | 3 | gallery recipe is '/etc/passwd'
--graph ring:degree=                      | 2 | It takes no keys
--graph small-world:degree=               | 2 | degree is ''; expected a whole number
--graph small-world:degree=1e30           | 2 | expected a whole number
--graph small-world:degree=999999999999999999999 | 2 | below 2^63
--graph small-world:degree=2,,rewire=0.1  | 2 | unknown key ''
--graph small-world:=4                    | 2 | unknown key ''
--graph r\u0456ng                              | 2 | Did you mean 'ring'?
--graph erdos-renyi:p=-1                  | 3 | p is -1.0; expected a number from 0 to 1
--graph erdos-renyi:p=1e-300              | 3 | none of 100 draws
--graph exponential:base=1                | 3 | base is 1
--graph d-cliques:size=0                  | 3 | size is 0
--graph random-geometric:radius=-1        | 3 | radius is -1.0
--graph complete --devices 1000000        | 3 | 5e+11 links; expected at most
--graph erdos-renyi --devices 90000       | 3 | links; expected at most
--devices 1000000000000                   | 3 | does not fit into memory
--devices 1e30                            | 2 | not a valid integer
--devices ''                              | 2 | not a valid integer
--devices 0x10                            | 2 | not a valid integer
""",
    "Methods, lists and networks in life": """
--algorithm ''                            | 2 | unknown algorithm ''
--algorithm gtvmin:                       | 2 | ends with ':'
--algorithm gtvmin:k=3                    | 2 | unknown key 'k'
--algorithm gtvmin:alpha=1e999            | 2 | expected a finite number
--algorithm gtvmin:alpha=1,alpha=2        | 2 | give alpha once
--algorithm fkm:server_n_init=99999999999999999999 | 2 | below 2^63
--algorithm central --init local         | 2 | method 'central' has no key init
--init ''                              | 2 | init is empty
--init flooded-summaries:hops=99999999999999999999 | 2 | below 2^63
--init tree-summaries:rows=19                   | 2 | at least 20
--init tree-summaries:candidates=0             | 2 | at least 1
--init rows:per-cluster=0                      | 2 | at least 1
--init rows:least=0                            | 2 | at least 1
-k auto --k-max 0                              | 2 | at least 1
-k 3 --k-max 5                                 | 2 | k_max is 5, but clusters is 3; expected auto
-k many                                        | 2 | expected a whole number
-k auto --groups                               | 2 | -k auto cannot be combined with --groups
-k auto --algorithm feddp:epsilon=1,radius=9   | 2 | -k auto cannot be combined with feddp
-k auto --k-max 99999                          | 3 | expected at most as many
--alpha 1e101                             | 2 | at most 1e+100
-k 4611686018427387904                    | 3 | does not fit into memory
-k 1e3                                    | 2 | expected a whole number
--rank-partition x                             | 2 | Known: auto, blocks, metis
--silhouette=3                            | 2 | does not take a value
--seeds ''                                | 2 | expected a list of seeds
--seeds 0-                                | 2 | expected a list of seeds
--seeds -1                                | 2 | expected a list of seeds
--seeds 5-1                               | 2 | the smaller number of a range first
--seeds 0-99999999                        | 2 | expected at most 10000 seeds
--seeds 1,1                               | 2 | expected each seed once
--seeds 99999999999999999999              | 2 | expected a list of seeds
--seeds 0-1 --seed 1                      | 2 | --seed cannot be combined with --seeds
--seeds 0-1 --coupling-path 1,2           | 2 | --coupling-path cannot be combined with --seeds
--coupling-path ''                        | 2 | expected a number of at least 0
--coupling-path 1                         | 2 | expected two or more numbers
--coupling-path 1,...                     | 2 | requires two numbers before it
--coupling-path ...,3                     | 2 | requires two numbers before it
--coupling-path 1,2,...,1e308             | 2 | more than 1000 values
--coupling-path 0,1e-320,...,30           | 2 | more than 1000 values
--coupling-path nan,1                     | 2 | is 'nan'; expected a number
--coupling-path 3,1,2                     | 2 | ascending or descending
--coupling-path 1e200,2e200               | 2 | at most 1e+100
--coupling-path 1,2 --alpha 2             | 2 | alpha
--link-model ''                                  | 2 | unknown link model ''
--all-rounds --require-converged                 | 2 | all_rounds cannot be combined with require_converged
--all-rounds --schedule async --link-model lan   | 2 | the run ends when no message is in transit
--link-model wifi                                | 2 | Known: edge, lan, lora, wan
--link-model lan:latency=-1                      | 2 | latency is -1.0; expected a number above 0
--link-model lan:latency=nan                     | 2 | expected a finite number
--link-model lan:latency=1e308                   | 2 | a latency up to 1e+30
--link-model lan:bandwidth=0                     | 2 | bandwidth is 0.0
--link-model lan:bandwidth=1e-320                | 2 | all others from 1e-30
--link-model wan:speeed=1                        | 2 | Did you mean 'speed'?
--link-model lan --devices 200000                | 2 | expected at most 100,000 with --link-model
P2PKM_MEMORY=lots --graph ring            | 2 | P2PKM_MEMORY is 'lots'; expected a size
P2PKM_MEMORY=1K --graph ring              | 3 | does not fit into memory
""",
    "TOML and the run folder": """
--config nested.toml                      | 2 | cannot be read
--config long.toml                        | 2 | more than 16384 bytes
--config digits.toml                      | 2 | cannot be read
--config hex.toml                         | 2 | expected a number of at most 64 bits
--config time.toml                        | 2 | expected a whole number
--config moment.toml                      | 2 | expected text
--config twice.toml                       | 2 | expected a TOML file of options
--config inf.toml                         | 2 | expected a finite number
--config dotted.toml                      | 2 | a table or a list
--config tables.toml                      | 2 | a table or a list
--config config.toml                      | 2 | unknown key 'config'
--config column.toml                      | 2 | label_column in column.toml
--config surrogate.toml                   | 2 | cannot be read
--config zero-byte.toml                   | 2 | cannot be read
--config empty-value.toml                 | 2 | partition is empty
--config bom.toml                         | 2 | cannot be read
--config latin.toml                       | 2 | cannot be read
--config pipe.toml                        | 2 | does not exist
--config /dev/zero                        | 2 | does not exist
--config                                  | 2 | requires an argument
--out ''                                  | 2 | out is empty
--out loop                                | 2 | cannot be used
--out loop/run                            | 2 | cannot be used
--out pipe.csv                            | 2 | is a file
--out /dev/full                           | 2 | is a file
--out / --force                           | 2 | contains the current folder
""",
    "verify": """
verify                                    | 2 | Missing argument 'RUN'
verify missing                            | 3 | is not a run folder
verify good.csv                           | 3 | is not a run folder
verify full                               | 3 | is not a run folder
verify pipe.csv                           | 3 | is not a run folder
verify loop                               | 3 | is not a run folder
verify run-running                        | 3 | contains a run that has not ended
verify run-good --ranks x                 | 2 | not a valid integer
verify run-good --ranks 0                 | 2 | --ranks is 0
verify run-good extra                     | 2 | unexpected extra argument
verify run-flipped                        | 6 | centroids.npz is changed: array
verify run-flipped --files-only           | 6 | centroids.npz is changed
verify run-cut                            | 6 | rounds.jsonl is changed
verify run-lost                           | 6 | ledger.npz is missing
verify run-more                           | 6 | extra.npz was added after the run ended
verify run-list                           | 6 | checksums.sha256 is changed or truncated
verify run-unlisted                       | 6 | checksums.sha256 is missing
verify run-manifest                       | 6 | manifest.json is changed
verify run-config                         | 6 | config.toml is changed
--config run-config/config.toml --out run-good | 2 | is not empty
""",
    "compare, plan, algorithms, topology, doctor, compile": """
compare --algorithm ''                    | 2 | an empty or a repeated entry
compare --graph ''                        | 2 | an empty or a repeated entry
compare --graph rnig                      | 2 | Did you mean 'ring'?
compare --graph ring:degree=2             | 2 | It takes no keys
compare --seeds ''                        | 2 | expected a list of seeds
compare --devices 0                       | 2 | devices is 0
compare --out good.csv                    | 2 | is a file
compare --algorithm gtvmin:alpha=-1       | 2 | alpha is -1.0
compare --coupling-path 1,2               | 2 | No such option
compare --config nested.toml              | 2 | cannot be read
compare --alpha 1 --coupling 2            | 2 | alpha=1.0 and coupling=2.0 cannot be combined
compare extra                             | 2 | unexpected extra argument
P2PKM_MEMORY=-1 plan                      | 2 | expected a size such as 500M or 8G
P2PKM_MEMORY=nanG plan                    | 2 | expected a size
P2PKM_MEMORY=1e400 plan                   | 2 | expected a size
plan --ranks 0                            | 2 | is not in the range
plan --ranks 1000000000                   | 2 | is not in the range
plan --latency 1e-4                       | 2 | No such option
plan --measure                            | 2 | No such option
plan --devices 0                          | 2 | devices is 0
plan --graph complete --devices 1000000   | 3 | links; expected at most
plan --graph file:billion.npz             | 3 | nodes, but only 2 values
plan --stream drawn:share=2               | 2 | stream share is 2.0
plan --data missing.csv                   | 3 | data file missing.csv does not exist
plan --data billion.npy                   | 3 | states 16000000000 bytes
plan --data pickle.npz                    | 3 | is not a .npz archive
plan --data cut.parquet                   | 3 | cannot be read as Parquet
plan --data pipe.csv                      | 3 | is not a regular file
plan --config nested.toml                 | 2 | cannot be read
plan --seeds 3                            | 2 | No such option
algorithms nothing                        | 2 | unknown algorithm 'nothing'
algorithms ''                             | 2 | unknown algorithm ''
algorithms gtvmin:alpha=1                 | 2 | Did you mean 'gtvmin'?
algorithms gtvmin extra                   | 2 | unexpected extra argument
algorithms --format xml                   | 2 | is not one of 'table', 'json'
topology                                  | 2 | describe Measure a graph
topology fly                              | 2 | No such command 'fly'
topology list extra                       | 2 | unexpected extra argument
topology list --format xml                | 2 | is not one of
topology describe                         | 2 | Missing argument 'GRAPH'
topology describe rnig                    | 2 | Did you mean 'ring'?
topology describe ''                      | 2 | unknown graph ''
topology describe ring --devices 0        | 2 | is not in the range
topology describe ring --devices 99999999999999 | 3 | too little memory
topology describe complete --devices 200000 | 3 | links; expected at most
topology describe ring --seed -1          | 2 | is not in the range
topology describe ring --coupling -1      | 2 | coupling is -1.0
topology describe ring --alpha 1          | 2 | must be used together
topology describe ring --alpha 1 --points 0 -k 2 | 2 | points is 0
topology describe ring --decay 2          | 2 | from 0 to less than 1
topology describe file:bomb.graphml       | 3 | DOCTYPE declaration
topology describe file:nested.json        | 3 | cannot be read as .json
topology describe karate --devices 5      | 3 | karate has 34 devices
topology draw                             | 2 | Missing argument 'GRAPH'
topology draw rnig                        | 2 | Did you mean 'ring'?
topology draw ring --out x.exe            | 2 | ends in .png, .svg, .pdf or .pgf
topology draw ring --out ''               | 2 | ends in .png, .svg, .pdf or .pgf
topology draw gallery:../x                | 3 | gallery recipe is
topology leaks                            | 2 | Missing argument 'GRAPH'
topology leaks rnig                       | 2 | Did you mean 'ring'?
topology leaks ring --gossips 0           | 2 | gossips is 0
topology leaks ring --method gtvmin       | 2 | method is 'gtvmin'
topology leaks ring --receivers 16        | 2 | receivers has device 16
topology leaks ring --public 3-1          | 2 | expected numbers of devices, such as 0,3-5
topology leaks ring --faults loss=2       | 2 | faults loss is 2
topology leaks ring --stale-policy drop   | 2 | stale policy drop requires faults
topology leaks ring --out x.exe           | 2 | ends in .png, .svg, .pdf or .pgf
topology leaks karate --devices 5         | 3 | karate has 34
doctor extra                              | 2 | unexpected extra argument
doctor --devices 4                        | 2 | No such option
doctor --hostfile                         | 2 | requires an argument
compile extra                             | 2 | unexpected extra argument
compile --format json                     | 2 | No such option
""",
}


def rows() -> list[Row]:
    """List all mistakes."""
    found = []
    for section, lines, code in (("The command line", USAGE, 2), ("Data and graphs", CONTENT, 3)):
        for line in lines:
            words, piece = line.split(" | ")
            found.append(Row(section, words.strip(), 2 if words.split() == ["--data", "full"] else code, piece))
    for section, text in MORE.items():
        for line in text.strip().splitlines():
            words, code, piece = line.split(" | ")
            found.append(Row(section, words.strip(), int(code), piece))
    return found


def make_files(folder: Path) -> None:
    """Write all files that the rows name."""
    for name, text in (FILES | TEXTS).items():
        (folder / name).write_text(text, newline="")
    for name in ("binary.toml", "binary.csv"):
        (folder / name).write_bytes(b"\xff\xfe\x00")
    arrays = {"nan": [[0.0, 1.0], [np.nan, 2.0]], "flat": [1.0, 2.0, 3.0, 4.0], "none": np.zeros((0, 2)),
              "text": [["a", "b"], ["c", "d"]], "pickled": np.array([[{}]])}  # fmt: skip
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    np.savez(folder / "several.npz", a=np.zeros((3, 2)), b=np.ones((3, 2)))
    (folder / "full").mkdir()
    (folder / "full" / "precious").write_text("do not touch")
    for name, (_, make) in MADE.items():
        make(folder / name)


def damage(name: str, run: Path) -> None:
    """Damage a copy of a finished run as its name says."""
    kind = name.removeprefix("run-")
    changed = {"flipped": "centroids.npz", "cut": "rounds.jsonl", "list": "checksums.sha256",
               "manifest": "manifest.json", "config": "config.toml"}.get(kind)  # fmt: skip
    if changed:
        content = bytearray((run / changed).read_bytes())
        content[len(content) // 2] ^= 1
        new = {"cut": content[:-1], "config": b"", "manifest": (run / changed).read_bytes().replace(b"done", b"gone")}
        (run / changed).write_bytes(new.get(kind, content))
    gone = {"lost": ["ledger.npz"], "unlisted": ["checksums.sha256"],
            "running": ["checksums.sha256", "summary.json", "manifest.json"]}.get(kind, [])  # fmt: skip
    for one in gone:
        (run / one).unlink()
    if kind == "more":
        (run / "extra.npz").write_bytes(b"more")


def _about(words: str) -> Iterator[str]:
    """Describe the content of the files that the rows name."""
    parts = {part.removeprefix("file:") for part in shlex.split(words)}
    for name, (what, _) in MADE.items():
        if name in parts:
            yield what
    for name, what in RUNS.items():
        if name in parts:
            yield what
    for name, text in (FILES | TEXTS).items():
        if name in parts:
            yield f"`{ascii(text[:56])[1:-1]}{'...' if len(text) > 56 else ''}`" if text else "nothing"


def table() -> str:
    """Build the table of all rows."""
    catalog = rows()
    lines = [HEAD.format(count=len(catalog))]
    for section in dict.fromkeys(row.section for row in catalog):
        lines += [f"\n## {section}\n", "| command | file | message | code |", "|---|---|---|---|"]
        for row in catalog:
            if row.section == section:
                cells = f"`{row.words}`", "; ".join(_about(row.words)), row.piece.replace("<", "&lt;"), str(row.code)
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


HEAD = """# Rejected inputs

{count} invalid inputs and their results. *Command* is what follows `p2pkm`, with options for a small run if it begins
with an option. *Message* is a part of the error. No input may leave a file or show a traceback. One test per section
(`tests/cli/test_bad_input.py`); `python -m tests.support.bad_input_files` writes this file."""

if __name__ == "__main__":
    REJECTED.write_text(table(), "utf-8")
