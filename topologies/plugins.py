"""What other packages add under an entry point; read when a name is not built in, or when all names are asked for."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from topologies.errors import GraphError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GRAPHS = "topologies.graphs"  # the group of entry points that are families of graphs


class PluginError(GraphError):
    """A plug-in cannot be imported, or has the name of something else; the message names which package it is of.

    Examples
    --------
    >>> import topologies
    >>> issubclass(topologies.PluginError, topologies.GraphError)
    True
    """


def extend(builtin: Mapping[str, Any], group: str, spec: str | None) -> dict[str, Callable[..., Any]]:
    """Return what is built in, and, unless a spec begins with the name of such, what other packages add.

    Parameters
    ----------
    builtin : mapping of str to callable
    group : str
        The group of entry points.
    spec : str or None
        ``NAME`` or ``NAME:key=value,...``: a plug-in of this name is imported; in the place of each other one stands a
        function without arguments that imports it. None: nothing is imported.

    Raises
    ------
    PluginError
        If the plug-in that is asked for cannot be imported, or two things have one name.
    """
    found, wanted = dict(builtin), _normalize((spec or "").partition(":")[0])
    if wanted in found:
        return found
    from importlib.metadata import entry_points  # takes long enough to matter to those who do not need it

    for point in entry_points(group=group):
        name = _normalize(point.name)
        if name in found:
            other = "built in" if name in builtin else "of another package"
            raise PluginError(f"{_origin(point)} is named like one that is {other}; rename it or uninstall the package")
        found[name] = _load(point) if name == wanted else partial(_load, point)
    return found


def _normalize(name: str) -> str:
    return name.strip().replace("_", "-").lower()


def _load(point: "EntryPoint") -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever a foreign module raises
        raise PluginError(
            f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}; mend or uninstall the package"
        ) from error


def _origin(point: "EntryPoint") -> str:
    package = "" if point.dist is None else f" of package {point.dist.name}"
    return f"plug-in {point.name!r} ({point.group}, {point.value}){package}"
