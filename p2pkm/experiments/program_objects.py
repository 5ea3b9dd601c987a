"""Objects of a Python program as values of options: graphs, points, partitions, methods and centers.

Options are text in files, rows and orders. There, an object stands as a reference, ``object:`` and a digest of its
content; `available` makes the objects of a study known to the runs that it encloses. References are never names: users
read `tell_names` of a text, in which they are replaced.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError, P2PKMError
from p2pkm.core.protocols import MethodBase
from p2pkm.core.spec import OBJECT, show, suggest

_DIGITS = 16  # hexadecimal digits of a digest in a reference
_ATTRIBUTES = (bool, int, float, str)  # types of attributes of nodes and links that belong to the content of a graph
Names = Mapping[str, Mapping[Any, str]]  # name of each value that has one, by option and value


class ProgramObjects(NamedTuple):
    """Objects of a study.

    Attributes
    ----------
    objects : dict
        Objects by reference.
    names : dict of dict
        Names by option and value, which is a reference for an object.
    """

    objects: Mapping[str, Any] = {}
    names: Mapping[str, Mapping[Any, str]] = {}


_known = ProgramObjects()


@contextmanager
def available(program: ProgramObjects) -> Iterator[None]:
    """Make the objects of a study known to its runs until the context ends; errors call them by their names."""
    global _known
    before, _known = _known, program
    try:
        yield
    except P2PKMError as error:
        if OBJECT not in str(error):
            raise
        raise type(error)(tell_names(str(error))) from None
    finally:
        _known = before


def known_objects() -> ProgramObjects:
    """Return the objects of the enclosing `available`."""
    return _known


def is_reference(value: object) -> bool:
    """Check whether the value of an option is a reference."""
    return isinstance(value, str) and value.startswith(OBJECT)


def find_object(value: object, option: str) -> Any:
    """Return the object to which the value of an option refers; None if the value is not a reference.

    Raises
    ------
    ExperimentError
        If the program that made the object is not this one.
    """
    if not is_reference(value):
        return None
    if value not in _known.objects:
        raise ExperimentError(
            f"{option} is {tell_names(str(value))!r}, an object of a Python program; expected text. Call p2pkm.study "
            "or p2pkm.compare again with the same objects and the same folder: finished runs are not repeated"
        )
    return _known.objects[str(value)]


def tell_names(text: str) -> str:
    """Replace the references in a text by the names of their objects."""
    for names in _known.names.values() if OBJECT in text else ():
        for value, name in names.items():
            if is_reference(value):
                text = text.replace(value, name)
    return text


def refer(option: str, value: Any) -> str:
    """Return the reference of an object: equal for objects with equal content, in every process.

    Raises
    ------
    P2PKMError
        If the object cannot be the value of this option.
    """
    content = _CONTENTS[option](value)
    try:
        return OBJECT + _hash(content)[:_DIGITS]
    except Exception as error:
        raise ExperimentError(
            f"{option} of type {type(value).__name__} has no content that can be compared: {type(error).__name__}: "
            f"{error}; expected text, numbers, arrays and functions. Remove open files and locks from the object"
        ) from None


def describe(option: str, value: Any) -> str:
    """Describe an object by its class and size, as its name in tables."""
    return _DESCRIPTIONS[option](value)


def dump(program: ProgramObjects) -> bytes:
    """Pickle objects for another process of the same study; they are never written into its folder."""
    import cloudpickle

    content: bytes = cloudpickle.dumps(dict(program.objects))
    return content


def restore(content: bytes) -> ProgramObjects:
    """Read objects from `dump`; the names stay with the process that writes the tables."""
    import cloudpickle

    return ProgramObjects(cloudpickle.loads(content))


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
    """List the device of each point.

    Raises
    ------
    DataError
        If the object is not an array of device numbers or names.
    """
    from p2pkm.data.partition.by_column import read_column
    from p2pkm.data.readers.frame import join_texts

    if isinstance(partition, (list, tuple)) or np.ndim(partition) != 1:
        raise DataError(
            f"partition is of type {type(partition).__name__} and shape {np.shape(partition)}; expected text such as "
            "dirichlet:alpha=0.3, or an array of shape (points,), the device of each point"
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
    sources = [_read_source(base) for base in kind.__mro__ if not base.__module__.startswith(("p2pkm.", "builtins"))]
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
    if isinstance(method, partial):
        return sorted(method.keywords.items())
    return "class" if isinstance(method, type) else sorted(vars(method).items())


def _read_source(kind: type) -> Any:
    """Return the source of the module of a class; of a script or a notebook its functions and classes, sorted."""
    module = sys.modules.get(kind.__module__)
    try:
        if module is not None and kind.__module__ != "__main__" and module.__file__:
            with open(module.__file__, "rb") as file:
                return file.read()
        defined = [value for value in vars(module).values() if isinstance(value, (type, FunctionType))]
        return sorted(inspect.getsource(value) for value in {kind, *defined} if value.__module__ == kind.__module__)
    except (OSError, TypeError, AttributeError):
        import cloudpickle

        return cloudpickle.dumps(kind)


def _describe_graph(graph: Any) -> str:
    """Describe a graph by the name that it has, else by its class and size."""
    import topologies
    from p2pkm.network.graph import Topology

    if _is_networkx(graph) and str(graph.name).strip():
        return " ".join(str(graph.name).split())
    is_named = isinstance(graph, topologies.CSRGraph | topologies.TimeVaryingGraph)
    topology = Topology.from_graph(graph)
    kind_name = (is_named and graph.name) or type(graph).__name__
    return f"{kind_name}({topology.clients} devices, {len(topology.indices) // 2} links)"


def _describe_data(data: Any) -> str:
    from p2pkm.data.shards import Shards
    from p2pkm.data.table import Table

    if isinstance(data, Shards):
        return f"Shards({data.n} devices, {data.m} points)"
    if isinstance(data, Table):
        return f"Table({' x '.join(map(str, data.points.shape))})"
    array = data[0] if _is_pair(data) else data
    kind_name = "array" if isinstance(array, np.ndarray) else type(array).__name__
    return f"{kind_name}({' x '.join(map(str, array.shape))})"


def _describe_partition(partition: Any) -> str:
    return f"array({len(partition)} points, {len(set(np.asarray(partition).tolist()))} devices)"


def _describe_method(method: Any) -> str:
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
}
_DESCRIPTIONS: dict[str, Callable[[Any], str]] = {
    "graph": _describe_graph,
    "data": _describe_data,
    "partition": _describe_partition,
    "algorithm": _describe_method,
    "true_centers": lambda centers: _describe_data(np.asarray(centers)),
}
KINDS = tuple(_CONTENTS)  # options that can be objects
