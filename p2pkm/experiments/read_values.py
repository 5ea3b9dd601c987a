"""Arguments of `simulate`, which are text or objects, as a method, a graph and points."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import Spec, complete
from p2pkm.core.validation import check_integer
from p2pkm.data.identifiers import FILLING
from p2pkm.data.shards import Shards
from p2pkm.data.sources import SOURCES
from p2pkm.data.synthetic_device_clusters import nest
from p2pkm.data.table import Table
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import (
    build_topology,
    call_partition,
    complete_graph,
    count_nodes,
    load_points,
    parse_data,
    parse_graph,
    parse_method,
)
from p2pkm.experiments.console import print_note
from p2pkm.methods.declaration import check_declaration
from p2pkm.methods.init.pipelines import graph_error, needs_hub
from p2pkm.methods.registry import METHODS
from p2pkm.network.graph import Topology

_DEVICES, _CLUSTERS = 16, 8  # if neither arguments nor data determine them


class RequestedMethod(NamedTuple):
    """Method whose number of clusters may be open.

    Attributes
    ----------
    build : callable
        Returns the method with a number of clusters.
    k : int or None
        Number of clusters of a method object.
    """

    build: Callable[[int], Any]
    k: int | None = None


def check_order(algorithm: Any, graph: Any, points: Any) -> None:
    """Check that method, graph and points were not exchanged for each other.

    Raises
    ------
    ExperimentError
        If one of them is certainly another one; the message shows the order.
    """
    kinds = [_recognize(value) for value in (algorithm, graph, points)]
    known = [kind for kind in kinds if kind]
    expected = ("method", "graph", "points")
    if len({*known}) == len(known) and any(kind not in ("", one) for kind, one in zip(kinds, expected, strict=True)):
        given = " and ".join(f"{kind} as argument {number}" for number, kind in enumerate(kinds, 1) if kind)
        raise ExperimentError(
            f"simulate received {given}; expected the order method, graph, points. A call that works: "
            "p2pkm.simulate(p2pkm.GTVMin(3), 'ring', X, devices=16)"
        )


def _recognize(value: Any) -> str:
    """Return whether an argument is a method, a graph or points; empty if it may be several of these, or neither."""
    if isinstance(value, str):
        names = {"method": METHODS, "graph": {*topologies.FAMILIES, *topologies.TIME_VARYING}, "points": SOURCES}
        kinds = [kind for kind, known in names.items() if value.partition(":")[0] in known]
        return kinds[0] if len(kinds) == 1 else ""
    if isinstance(value, MethodBase):
        return "method"
    # By its module: runs without graphs of networkx do not import it.
    if isinstance(value, Topology) or type(value).__module__.startswith("networkx."):
        return "graph"
    is_table = isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[0] != value.shape[1]
    return "points" if is_table or isinstance(value, Shards | tuple) else ""


def read_method(algorithm: Any, clusters: Any) -> RequestedMethod:
    """Read a method: text, a class or a partial call of one, or an object.

    Raises
    ------
    ExperimentError
        If there is no such method, it is not complete, or `clusters` is not its number of clusters.
    """
    if isinstance(clusters, str):
        if clusters != "auto":
            raise ExperimentError(f"clusters is {clusters!r}; expected a whole number of at least 1, or 'auto'")
    elif clusters is not None:
        check_integer(clusters, 1, "clusters")
    if isinstance(algorithm, str):
        return RequestedMethod(parse_method(RunOptions(algorithm=algorithm)).build)
    if isinstance(algorithm, type | partial):
        from p2pkm.experiments.object_content import kind_of

        kind = kind_of(algorithm)
        check_declaration(kind, kind.__name__)
        return RequestedMethod(algorithm)
    check_declaration(type(algorithm), type(algorithm).__name__)
    if isinstance(algorithm, MethodBase) and clusters not in (None, "auto", algorithm.k):
        raise ExperimentError(
            f"clusters is {clusters}, but algorithm has {algorithm.k}; expected one number. Remove clusters, or use "
            f"the class {type(algorithm).__name__} instead of an object"
        )
    return RequestedMethod(lambda k: algorithm, algorithm.k)


def count_clusters(method: RequestedMethod, clusters: Any, labels: Any) -> int:
    """Return the number of clusters: as asked for, of the method object, of the labels, or 8; "auto" is not one."""
    if clusters not in (None, "auto"):
        return int(clusters)
    if method.k is not None:
        return method.k
    return _CLUSTERS if labels is None or not len(labels) else int(labels.max()) + 1


def read_graph(graph: Any, algorithm: Any, shards: Shards, options: RunOptions) -> tuple[Any, Any]:
    """Build a graph that is text; return it, or None for the star of a server, and its attributes for link models.

    Raises
    ------
    ExperimentError, TopologyError
        If the text is wrong, or does not fit method and points.
    """
    if not isinstance(graph, str):
        return graph, graph
    from p2pkm.experiments.config import read_attributes

    if needs_hub(algorithm):
        if graph.strip() != "star":
            raise graph_error(algorithm, repr(graph), "Set graph=None")
        return None, None
    spec = parse_graph(RunOptions(graph=graph, seed=options.seed), algorithm)
    topology = build_topology(spec, shards.n, shards.n, shards.names)
    return topology, read_attributes(RunOptions(link_model=options.link_model), spec) or topology


def read_points(points: Any, devices: Any, split: Any, graph: Any, *, missing: str, seed: int, k: int | None) -> Shards:
    """Read points and assign them to devices.

    Parameters
    ----------
    points : Shards, Table, DataFrame, array, pair of points and labels, or text of a data source
    devices : int, array or None
        Number of devices, or the device of each row.
    split : str, array, callable or None
        Partition: its text, the device of each row, or a function that returns it.
    graph : object, str or None
        A graph of fixed size determines the number of devices, if it is open.
    missing : str
    seed : int
        Of a partition or generator that is text.
    k : int or None
        Number of clusters, for a partition that clusters the points; None: that of the labels.

    Raises
    ------
    DataError, ExperimentError
        If the points cannot be used, do not have devices, or have them twice.
    """
    from p2pkm.data.readers.frame import take_table

    owners, number, partition = _read_devices(devices, split)
    points = points if isinstance(points, str | tuple) else take_table(points)
    if isinstance(points, Shards):
        _refuse_devices(owners, partition)
        if number not in (None, points.n):
            raise ExperimentError(
                f"devices is {number}, but the points belong to {points.n} devices; expected the same number. Remove "
                "devices"
            )
        return points
    is_undivided = owners is None and number is None and partition is None
    table = _follow_graph(points, graph, number, seed)
    table = table or _read_table(points, missing, seed, is_undivided=is_undivided)
    if table.device is not None and partition in (None, "column"):
        _refuse_devices(owners, None)
        return Shards.deal(table, devices=number, missing=missing in FILLING)
    nodes = _count_nodes(graph, seed)
    if callable(partition):
        if table.device is not None:
            _refuse_devices(None, "a function")
        nodes = number or nodes or _DEVICES
        owners = call_partition(partition, table, nodes)
    if owners is not None:
        return Shards.deal(table, owners, devices=nodes, missing=missing in FILLING)
    if is_undivided:
        raise _without_devices(points)
    return _deal_by_spec(table, partition, number or nodes or _DEVICES, seed, k)


def _follow_graph(points: Any, graph: Any, number: int | None, seed: int) -> Table | None:
    """Generate points that follow the graph of the run, if they do not name another one; None for all other points."""
    from p2pkm.data.sources import SOURCES, follows_graph

    source = parse_data(points) if isinstance(points, str) else None
    if not isinstance(source, Spec) or not follows_graph(source):
        return None
    if isinstance(graph, str):
        graph = nest(str(complete_graph(graph, seed)))
    elif isinstance(graph, Topology):
        graph = topologies.CSRGraph(graph.indptr, graph.indices)
    return SOURCES[source.name](**{"graph": graph, "devices": number, "seed": seed} | source.options)


def _count_nodes(graph: Any, seed: int) -> int | None:
    """Return the number of nodes of a graph that is an object, a file or of one size; None if it is open."""
    if graph is None:
        return None
    return count_nodes(complete_graph(graph, seed)) if isinstance(graph, str) else Topology.from_graph(graph).clients


def _read_devices(devices: Any, split: Any) -> tuple[Any, int | None, Any]:
    """Return the device of each row, the number of devices, and text or function of a partition; None if not given."""
    if isinstance(devices, str):
        raise ExperimentError(
            f"devices is {devices!r}; expected a number of devices, or the device of each row. Use "
            f"devices=frame[{devices!r}], without that column in the points, or Shards.deal(frame, device={devices!r})"
        )
    if devices is None or np.ndim(devices) == 0:
        number = None if devices is None else check_integer(devices, 1, "devices")
        if split is None or isinstance(split, str) or callable(split):
            return None, number, split
        return split, number, None
    if split is not None:
        raise ExperimentError(
            "devices cannot be combined with partition: both say the device of each row. Remove one, or set devices "
            "to the number of devices"
        )
    return devices, None, None


def _refuse_devices(owners: Any, partition: str | None) -> None:
    if owners is not None or partition is not None:
        raise ExperimentError(
            "partition cannot be combined with p2pkm.Shards or a column of devices, to which the points belong "
            "already. Remove partition, or drop the column"
        )


def _read_table(points: Any, missing: str, seed: int, *, is_undivided: bool) -> Table:
    """Read rows as a table, and print the notes of the reader."""
    from p2pkm.data.readers.frame import is_frame

    if isinstance(points, Table):
        return points
    is_pair = type(points) is tuple and len(points) == 2
    if not (is_pair or isinstance(points, str) or is_frame(points) or isinstance(points, np.ndarray)):
        raise _without_devices(points)
    if isinstance(points, np.ndarray) and is_undivided:
        raise _without_devices(points)
    data: Any = points
    if not isinstance(points, str):
        data = ProgramObject(points, f"of type {type(points).__name__}", lambda: "")
    options = RunOptions().replaced(data=data, seed=seed, missing=missing)
    source = parse_data(data)
    if isinstance(source, Spec):
        from p2pkm.data.sources import SOURCES

        source = source if source.name == "file" else complete(source, SOURCES, seed)
    table: Table = load_points(source, options)
    for note in table.notes or ():
        print_note(note)
    return table


def _without_devices(points: Any) -> ExperimentError:
    if isinstance(points, str):
        return ExperimentError(
            f"shards are {points!r}, which do not say the device of each row; expected devices=. Add devices=16, the "
            "number of devices, or the device of each row"
        )
    return ExperimentError(
        f"shards are of type {type(points).__name__}; expected p2pkm.Shards or a table with a column device. Build "
        "shards, p2pkm.Shards.deal(points, device), or use an array with devices=, the device of each row or the "
        "number of devices"
    )


def _deal_by_spec(table: Table, partition: str | None, n: int, seed: int, k: int | None) -> Shards:
    """Partition the rows over n devices as the command line does."""
    from p2pkm.data.assign import assign, default_partition
    from p2pkm.data.partition import known
    from p2pkm.engine.build_batch import label_pooled
    from p2pkm.experiments.config import parse_partition

    spec = parse_partition(partition) or Spec(default_partition(table, n), {})
    assert isinstance(spec, Spec)
    spec = complete(spec, known(partition), seed)
    if spec.name == "mufc":
        pooled: Any = table.completed().points
        table = table._replace(clusters=label_pooled(pooled, k or table.classes or _CLUSTERS, seed))
    return assign(table, spec, n, "float64")
