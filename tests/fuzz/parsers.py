"""Every parser as a function of bytes: it returns, or raises what a user is told; anything else is a fault."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import P2PKMError
from topologies import GraphError

Parser = Callable[[bytes], object]
ALLOWED = (P2PKMError, GraphError)
MEGABYTE = 1 << 20


def run(parser: Parser, data: bytes) -> bool:
    """Give a parser bytes; return whether it took them."""
    try:
        parser(data)
    except ALLOWED as error:
        assert str(error), "an error without words"
        return False
    return True


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _spec(data: bytes) -> object:
    import topologies
    from p2pkm.core.spec import complete, parse
    from p2pkm.data.partition import PARTITIONS
    from p2pkm.methods.init.registry import INITS

    found = []
    for known, what in ((topologies.FAMILIES, "graph"), (PARTITIONS, "partition"), (INITS, "init")):
        try:
            spec = parse(_text(data), known, what)
        except P2PKMError:
            continue
        again = (
            parse(str(spec), known, what) if "seed" not in spec.options or spec.options["seed"] is not None else spec
        )
        assert again.name == spec.name
        found.append(complete(spec, known, 0) if what != "init" else spec)
    return found


def _algorithm(data: bytes) -> object:
    from p2pkm.engine.run_options import RunOptions
    from p2pkm.experiments.config import parse_method

    return parse_method(RunOptions(algorithm=_text(data))).build(3)


def _source(data: bytes) -> object:
    from p2pkm.data.sources import parse_source

    return parse_source(_text(data))


def _devices(data: bytes) -> object:
    from p2pkm.privacy.leak_report import read_devices

    return read_devices(_text(data), "--receivers")


def _seeds(data: bytes) -> object:
    from p2pkm.experiments.studies.seeds import parse_seeds

    return parse_seeds(_text(data))


def _couplings(data: bytes) -> object:
    from p2pkm.experiments.studies.coupling_path import parse_couplings

    return parse_couplings(_text(data))


def _net(data: bytes) -> object:
    from p2pkm.network.graph import Topology
    from p2pkm.network.link_model import LinkModel

    return LinkModel.of(_text(data)).place(Topology.star(3))


def _lists(data: bytes) -> object:
    from p2pkm.core.spec import split_specs

    return split_specs([_text(data)])


def _stream(data: bytes) -> object:
    from p2pkm.data.stream import DataStream

    found = DataStream.of(_text(data))
    assert found is None or DataStream.of(str(found)) == found
    return found


def _tape(data: bytes) -> object:
    """Read a data trace, and play it; written again it is the same one."""
    import p2pkm
    from p2pkm.data.stream_tape import Limits, parse_data_trace, write_data_trace

    shards, limits = p2pkm.Shards.from_list([np.arange(6.0).reshape(3, 2), np.ones((2, 2))]), Limits(2, 9, 2)
    tape = parse_data_trace(data.split(b"\n"), shards, limits, "tape")
    again = parse_data_trace(write_data_trace(tape, shards.sizes), shards, limits, "again")
    assert all(np.array_equal(one, other) for one, other in zip(tape, again, strict=True))
    for t in range(1, limits.rounds + 1):
        grown = shards.sizes + tape.growth(t, shards.n)
        shards = tape.change(t, shards, np.arange(shards.n))
        assert np.array_equal(shards.sizes, grown) and np.isfinite(shards.points).all()
    return shards


def _memory(data: bytes) -> object:
    import os

    from p2pkm.experiments.plan.free_memory import LIMIT, available_memory

    before = os.environ.get(LIMIT)
    os.environ[LIMIT] = _text(data).replace("\0", "")
    try:
        return available_memory()
    finally:
        os.environ.pop(LIMIT)
        if before is not None:
            os.environ[LIMIT] = before


class Files:
    """Parsers of files; each case is written into one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, data: bytes) -> Path:
        """Write one case."""
        path = self._folder / name
        path.write_bytes(data)
        return path

    def points(self, name: str) -> Parser:
        """Return the reader of files of points like this one, whole and in pieces."""

        def parse(data: bytes) -> object:
            from p2pkm.data.out_of_core.index import index_files
            from p2pkm.data.readers.any_format import read_table
            from p2pkm.data.size_estimate import measure
            from p2pkm.data.sources import parse_source

            path = self.write(name, data)
            asked = False
            try:
                measure(parse_source(str(path)), whole_file=False)
                pattern = f"{self._folder}/[{name[0]}]{name[1:]}"
                asked = index_files(pattern, None, None, None) is not None
            except P2PKMError:
                pass
            table = read_table(path)
            assert table.points.ndim == 2 and np.isfinite(table.points).all()
            return table, asked

        return parse

    def graph(self, name: str) -> Parser:
        """Return the reader of graphs in files like this one."""

        def parse(data: bytes) -> object:
            import topologies
            from p2pkm.network.graph import Topology

            graph = topologies.read(self.write(name, data))
            return Topology.from_networkx(graph)

        return parse

    def config(self, data: bytes) -> object:
        """Read a file of options."""
        from p2pkm.engine.run_options import RunOptions
        from p2pkm.storage.toml import read_toml

        return RunOptions.from_mapping(read_toml(str(self.write("fuzz.toml", data))), "fuzz.toml")

    def archive(self, data: bytes) -> object:
        """Read the arrays of an archive whose only member is given."""
        from p2pkm.data.readers.npy import load_arrays

        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("X.npy", data)
        return load_arrays(self.write("inner.npz", packed.getvalue()))

    def checksums(self, data: bytes) -> object:
        """Read a list of checksums."""
        from p2pkm.storage.checksums import check_files

        (self._folder / "run").mkdir(exist_ok=True)
        (self._folder / "run" / "checksums.sha256").write_bytes(data)
        return check_files(self._folder / "run")


def _saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _packed(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _columns(**columns: Any) -> bytes:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


def parsers(folder: Path) -> dict[str, tuple[Parser, list[bytes]]]:
    """Return every parser by name, with some of what it takes.

    Not .h5ad: in some damaged files the HDF5 library itself goes round in circles, and nothing in Python can stop it;
    see damaged.py.
    """
    files = Files(folder)
    square, owner = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]
    known: dict[str, tuple[Parser, list[bytes]]] = {
        "spec": (_spec, [b"small-world:degree=4,rewire=0.1", b"dirichlet:alpha=0.3,by=class",
                         b"flooded-summaries:hops=1",
                         b"file:a.csv", b"gallery:karate", b"grid:rows=none", b"karate:weighted=true"]),
        "algorithm": (_algorithm, [b"gtvmin:alpha=1,local_steps=2", b"fkm:server_n_init=20,seeding=lloyd", b"feca",
                                   b"kfed:local_k=2", b"admm", b"coreset", b"mufc"]),
        "source": (_source, [b"grid16:points=200,sd=1", b"blobs:clusters=8", b"a.csv", b"file:b", b"iris"]),
        "seeds": (_seeds, [b"0-9", b"0,3,5-7"]),
        "devices": (_devices, [b"0", b"0,3-5"]),
        "couplings": (_couplings, [b"0.1,0.2,...,30", b"0,5,...,20", b"3,2,1e-3"]),
        "net": (_net, [b"lan", b"wan:latency=0.05,bandwidth=none", b"lora:access=6.84", b"edge:speed=1e9"]),
        "stream": (_stream, [b"drawn:kind=jump,at=20,share=0.1", b"drawn:kind=slow,step=0.08,seed=1", b"a.jsonl",
                             b"file:b"]),
        "tape": (_tape, [TAPE, b"\n".join(reversed(TAPE.split(b"\n")))]),
        "lists": (_lists, [b"gtvmin,fkm:server_n_init=20,feca", b"ring,small-world:degree=4,rewire=0.1"]),
        "memory": (_memory, [b"8G", b"500MB", b"1e9", b"0"]),
        "toml": (files.config, [b"graph = 'ring'\ndevices = 4\nalpha = 0.5\ncentral = false\n", b"seed = 0x1f\n"]),
        "csv": (files.points("fuzz.csv"), [b"x,y,label\n0,1,a\n2,3,b\n", b"1;2\n3;4\n", b'"x",device\n1,0\n2,1\n']),
        "tsv": (files.points("fuzz.tsv"), [b"x\ty\n0\t1\n2\t3\n"]),
        "npy": (files.points("fuzz.npy"), [_saved(square), _saved(square.astype(np.float32)), _saved(np.ones(3))]),
        "npz": (files.points("fuzz.npz"), [_packed(X=square, y=np.arange(4)), _packed(points=square, client=owner)]),
        "npz-member": (files.archive, [_saved(square), _saved(np.array(["a", "b"]))]),
        "parquet": (files.points("fuzz.parquet"), [_columns(x=[0.0, 1.0], device=[0, 1]),
                                                    _columns(x=[1], label=["a"])]),
        "arrow": (files.points("fuzz.arrow"), [_batches(x=[0.0, 1.0], device=["a", "b"]), _batches(x=[1], label=[0])]),
        "leaf": (files.points("leaf.json"), [LEAF, b'{"user_data":{"a":{"x":[[1,2]]},"b":{"x":[[3,4],[5,6]]}}}']),
        "graphml": (files.graph("fuzz.graphml"), [GRAPHML]),
        "gexf": (files.graph("fuzz.gexf"), [GEXF]),
        "json": (files.graph("fuzz.json"), [b'{"nodes":[{"id":0},{"id":1}],"edges":[{"source":0,"target":1}]}']),
        "edgelist": (files.graph("fuzz.edgelist"), [b"0 1\n1 2 0.5\n", b"source,target,weight\na,b,1\n",
                                                    b"0 1 {'weight': 2}\n"]),
        "adjacency": (files.graph("graph.npz"), [_adjacency()]),
        "checksums": (files.checksums, [b"0" * 64 + b"  a\n# " + b"0" * 64 + b": the lines above\n"]),
    }  # fmt: skip
    return known


def _adjacency() -> bytes:
    from scipy import sparse

    file = io.BytesIO()
    sparse.save_npz(file, sparse.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]])), compressed=False)
    return file.getvalue()


def _batches(**columns: Any) -> bytes:
    import pyarrow

    file, table = io.BytesIO(), pyarrow.table(columns)
    with pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


LEAF = b'{"users": ["a", "b"], "num_samples": [1, 2], "user_data": {"a": {"x": [[0, 1]], "y": [3]}, '
LEAF += b'"b": {"x": [[2.5, 1], [1e3, -2]], "y": [0, 3]}}}'
TAPE = (
    b'{"kind": "stream", "devices": 2, "features": 2}\n{"kind": "leave", "round": 7, "device": 0, "number": 2}\n'
    b'{"kind": "arrive", "round": 3, "device": 1, "point": [0.5, 1e3], "weight": 2}\n\n'
    b'{"kind": "move", "round": 9, "device": 1, "number": 1, "point": [-1, 2.5]}'
)
GRAPHML = (
    b'<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" '
    b'attr.name="weight" attr.type="double"><default>1.0</default></key><graph edgedefault="undirected"><node id="0"/>'
    b'<node id="1"/><edge source="0" target="1"><data key="w">2.5</data></edge></graph></graphml>'
)
GEXF = (
    b'<?xml version="1.0"?><gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'
    b'<graph defaultedgetype="undirected"><nodes><node id="0"/><node id="1"/></nodes>'
    b'<edges><edge id="0" source="0" target="1" weight="2"/></edges></graph></gexf>'
)
