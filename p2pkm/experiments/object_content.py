"""Content and labels of objects of a Python program that are values of options: `wrap` makes a `ProgramObject`."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.program_function import is_function, list_content, list_value, name_function, read_source
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import show, suggest

FUNCTIONS = ("link_model", "stale_policy", "robust")  # options that can be functions
_METRICS = "metrics"  # metrics of a program, see `wrap_metrics`
_DIGITS = 16  # hexadecimal digits of a digest
_ATTRIBUTES = (bool, int, float, str)  # types of attributes of nodes and links that belong to the content of a graph


def wrap(option: str, value: Any) -> ProgramObject:
    """Return an object as the value of an option, labeled by its class and size.

    Raises
    ------
    P2PKMError
        If the object cannot be the value of this option.
    """
    digest = find_digest(option, value)
    return ProgramObject(value, _LABELS[option](value), lambda: digest)


def wrap_function(option: str, value: Any) -> Any:
    """Return a function that is the value of an option as a `ProgramObject`; any other value unchanged."""
    return wrap(option, value) if option in FUNCTIONS and is_function(value) else value


def wrap_metrics(metrics: Any, where: str) -> ProgramObject | None:
    """Return the metrics that a program requests as one object; None for none.

    Raises
    ------
    ExperimentError
        If a value is neither a function nor a metric, or its name exists.
    """
    from p2pkm.metrics.registry import read_metrics

    listed = read_metrics(() if metrics is None else metrics, where)
    return wrap(_METRICS, listed) if listed else None


def find_digest(option: str, value: Any) -> str:
    """Return the digest of an object: equal for objects with equal content, in every process.

    Raises
    ------
    P2PKMError
        If the object cannot be the value of this option.
    """
    content = _CONTENTS[option](value)
    try:
        return _hash(content)[:_DIGITS]
    except Exception as error:
        raise ExperimentError(
            f"{option} of type {type(value).__name__} has no content that can be compared: {type(error).__name__}: "
            f"{error}; expected text, numbers, arrays and functions. Remove open files and locks from the object"
        ) from None


def dump(cells: Any) -> bytes:
    """Pickle the runs of a study for another process, with their objects; they are never written into its folder."""
    import cloudpickle

    content: bytes = cloudpickle.dumps(cells)
    return content


def restore(content: bytes) -> Any:
    """Read the runs from `dump`."""
    import cloudpickle

    return cloudpickle.loads(content)


def _hash(content: Any) -> str:
    import joblib

    try:
        return str(joblib.hash(content))
    except Exception:
        # A class or function that has no module, such as one of a notebook, is hashed with its code.
        import cloudpickle

        return str(joblib.hash(cloudpickle.dumps(content)))


def _content_of_graph(graph: Any) -> Any:
    """List the links of a graph, the names of its nodes and the attributes of both, which link models read."""
    from p2pkm.network.graph import Topology

    topology = Topology.from_graph(graph)
    content = [topology.to_arrays(), topology.names, topology.hub, topology.varying]
    if isinstance(graph, Topology) or not _is_networkx(graph):
        return content
    number = topology.number(graph)
    nodes = [(number[node], _list_plain(data)) for node, data in graph.nodes(data=True)]
    links = [(*sorted((number[u], number[v])), _list_plain(data)) for u, v, data in graph.edges(data=True)]
    return [*content, sorted(nodes), sorted(links)]


def _is_networkx(graph: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "networkx" for kind in type(graph).__mro__)


def _list_plain(attributes: Mapping[Any, Any]) -> list[tuple[str, str]]:
    return sorted((str(name), repr(value)) for name, value in attributes.items() if isinstance(value, _ATTRIBUTES))


def _content_of_data(data: Any) -> Any:
    """List columns and arrays of points.

    Raises
    ------
    DataError
        If the object cannot be points.
    """
    from p2pkm.data.readers.frame import is_frame, join_texts, list_content
    from p2pkm.data.shards import Shards
    from p2pkm.data.table import Table

    if isinstance(data, Shards):
        return ["shards", data.to_arrays(), data.names, data.features]
    if isinstance(data, Table):
        return ["table", *(
            join_texts(map(str, part.tolist())) if isinstance(part, np.ndarray) and part.dtype.hasobject else part
            for part in data
        )]  # fmt: skip
    if is_frame(data):
        return ["frame", *list_content(data)]
    if _is_pair(data):
        return ["pair", _content_of_data(data[0]), np.asarray(data[1])]
    if isinstance(data, np.ndarray):
        return data
    raise DataError(
        f"data are of type {type(data).__name__}; expected text, an array of shape (points, features), a pair of such "
        "an array and its labels, a DataFrame, an Arrow table, or p2pkm.Shards"
    )


def _is_pair(data: Any) -> bool:
    return type(data) is tuple and len(data) == 2 and not any(isinstance(part, (str, Mapping)) for part in data)


def _content_of_partition(partition: Any) -> Any:
    """List the device of each point, or the content of the function that returns it.

    Raises
    ------
    DataError
        If the object is neither a function nor an array of device numbers or names.
    """
    from p2pkm.data.partition.by_column import read_column
    from p2pkm.data.readers.frame import join_texts

    if is_function(partition):
        return list_content(partition)
    if isinstance(partition, (list, tuple)) or np.ndim(partition) != 1:
        raise DataError(
            f"partition is of type {type(partition).__name__} and shape {np.shape(partition)}; expected text such as "
            "dirichlet:alpha=0.3, an array of shape (points,), the device of each point, or a function that returns it"
        )
    devices = read_column(partition, "partition")
    if np.asarray(partition).dtype.kind == "f" and devices.dtype.kind != "i":
        raise DataError("partition has numbers with a fraction; expected numbers of devices from 0, or names")
    return ["partition", devices if devices.dtype.kind == "i" else join_texts(devices.tolist())]


def _content_of_method(method: Any) -> Any:
    """List class and parameters of a method, and the source of classes that are not part of this package.

    Raises
    ------
    ExperimentError
        If the object is not a method.
    """
    kind = kind_of(method)
    sources = [read_source(base) for base in kind.__mro__ if not base.__module__.startswith(("p2pkm.", "builtins"))]
    return ["method", f"{kind.__module__}.{kind.__qualname__}", _list_parameters(method), sources]


def kind_of(method: Any) -> Any:
    """Return the class of a method, of a class itself, or of a partial call of a class.

    Raises
    ------
    ExperimentError
        If the object is none of these.
    """
    kind = method.func if isinstance(method, partial) else method
    kind = kind if isinstance(kind, type) else type(kind)
    if not issubclass(kind, MethodBase) or (isinstance(method, partial) and method.args):
        raise ExperimentError(
            f"algorithm is of type {type(method).__name__}; expected text such as gtvmin:coupling=30, a method such as "
            "p2pkm.GTVMin(16), or its class"
        )
    if isinstance(method, partial):
        known = list(inspect.signature(kind).parameters)
        for name in method.keywords:
            if name not in known or name == "k":
                raise ExperimentError(
                    f"algorithm is a partial call of {kind.__name__} with {name}; expected parameters except k. "
                    f"{suggest(name, known)}"
                )
    return kind


def _list_parameters(method: Any) -> Any:
    if isinstance(method, type):
        return "class"
    parameters = method.keywords if isinstance(method, partial) else vars(method)
    return [(name, list_content(value) if is_function(value) else value) for name, value in sorted(parameters.items())]


def _label_graph(graph: Any) -> str:
    """Describe a graph by the name that it has, else by its class and size."""
    import topologies
    from p2pkm.network.graph import Topology

    if _is_networkx(graph) and str(graph.name).strip():
        return " ".join(str(graph.name).split())
    is_named = isinstance(graph, topologies.CSRGraph | topologies.TimeVaryingGraph)
    topology = Topology.from_graph(graph)
    kind_name = (is_named and graph.name) or type(graph).__name__
    return f"{kind_name}({topology.clients} devices, {len(topology.indices) // 2} links)"


def _label_data(data: Any) -> str:
    from p2pkm.data.shards import Shards
    from p2pkm.data.table import Table

    if isinstance(data, Shards):
        return f"Shards({data.n} devices, {data.m} points)"
    if isinstance(data, Table):
        return f"Table({' x '.join(map(str, data.points.shape))})"
    array = data[0] if _is_pair(data) else data
    kind_name = "array" if isinstance(array, np.ndarray) else type(array).__name__
    return f"{kind_name}({' x '.join(map(str, array.shape))})"


def _label_partition(partition: Any) -> str:
    if is_function(partition):
        return name_function(partition)
    return f"array({len(partition)} points, {len(set(np.asarray(partition).tolist()))} devices)"


def _label_method(method: Any) -> str:
    """Describe a method by its class, its number of clusters and the parameters that differ from the defaults."""
    kind = kind_of(method)
    if isinstance(method, type):
        return kind.__name__
    if isinstance(method, partial):
        shown = method.keywords
    else:
        usual = _default(kind, method.k)
        shown = {name: value for name, value in vars(method).items() if name != "k" and usual.get(name, ...) != value}
    size = [] if isinstance(method, partial) else [str(method.k)]
    return f"{kind.__name__}({', '.join([*size, *(f'{name}={show(value)}' for name, value in shown.items())])})"


def _default(kind: Callable[..., Any], k: int) -> dict[str, Any]:
    """Return the parameters of a method with default values; none if a parameter has no default."""
    try:
        return dict(vars(kind(k)))
    except (TypeError, ExperimentError):
        return {}


_CONTENTS: dict[str, Callable[[Any], Any]] = {
    "graph": _content_of_graph,
    "data": _content_of_data,
    "partition": _content_of_partition,
    "algorithm": _content_of_method,
    "true_centers": np.asarray,
    **dict.fromkeys(FUNCTIONS, list_content),
    _METRICS: lambda metrics: [[list_value(part) for part in vars(metric).values()] for metric in metrics],
}
_LABELS: dict[str, Callable[[Any], str]] = {
    "graph": _label_graph,
    "data": _label_data,
    "partition": _label_partition,
    "algorithm": _label_method,
    "true_centers": lambda centers: _label_data(np.asarray(centers)),
    **dict.fromkeys(FUNCTIONS, name_function),
    _METRICS: lambda metrics: ", ".join(metric.key for metric in metrics),
}
KINDS = tuple(name for name in _CONTENTS if name not in (*FUNCTIONS, _METRICS))  # options that can be objects
