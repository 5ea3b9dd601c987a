"""Plug-ins of other packages, from entry points; read if a name is not built in, or if all names are listed."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from topologies.errors import GraphError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GRAPHS = "topologies.graphs"  # the group of entry points that are families of graphs


class PluginError(GraphError):
    """Error of a plug-in that cannot be imported or whose name is not unique; the message names its package.

    Examples
    --------
    >>> import topologies
    >>> issubclass(topologies.PluginError, topologies.GraphError)
    True
    """


class Signature(NamedTuple):
    """Arguments with which the functions of a group of entry points are called, and the page that describes them."""

    arguments: tuple[str, ...]
    page: str


OF_GRAPHS = Signature(("n",), "docs/howto/package-a-plugin.md")


def extend(
    builtin: Mapping[str, Any], group: str, spec: str | None, signature: Signature | None = None
) -> dict[str, Callable[..., Any]]:
    """Extend built-in entries by those of other packages, unless the specification names a built-in entry.

    Parameters
    ----------
    builtin : mapping of str to callable
    group : str
        Group of entry points.
    spec : str or None
        ``NAME`` or ``NAME:key=value,...``: the plug-in with this name is imported. Each other plug-in is represented by
        a function without arguments that imports it. None: no plug-in is imported.
    signature : Signature, optional
        Of the functions of this group; None: they are checked elsewhere.

    Raises
    ------
    PluginError
        If the named plug-in cannot be imported or is not such a function, or if a name is not unique.
    """
    entries = dict(builtin)
    requested = _normalize((spec or "").partition(":")[0])
    if requested in entries:
        return entries
    # Imported here because the import takes noticeable time, which is not needed for built-in names.
    from importlib.metadata import entry_points

    for point in entry_points(group=group):
        name = _normalize(point.name)
        if name in entries:
            other = "built in" if name in builtin else "of another package"
            raise PluginError(
                f"{_origin(point)} has the name of one that is {other}. Rename it or uninstall the package"
            )
        entries[name] = _load(point, signature) if name == requested else partial(_load, point, signature)
    return entries


def _normalize(name: str) -> str:
    return name.strip().replace("_", "-").lower()


def _load(point: "EntryPoint", signature: Signature | None) -> Any:
    try:
        loaded = point.load()
    except Exception as error:
        # Modules of other packages may raise any exception.
        raise PluginError(
            f"{_origin(point)} cannot be imported: {type(error).__name__}: {error}. Repair or uninstall the package"
        ) from error

    if signature is not None:
        _check_signature(loaded, point, signature)
    return loaded


def _check_signature(function: Any, point: "EntryPoint", signature: Signature) -> None:
    """Reject a value that is not a function, and a function that does not take the arguments of its group."""
    import inspect

    try:
        inspect.signature(function).bind(*signature.arguments)
    except (TypeError, ValueError) as error:
        expected = f"expected a function of {' and '.join(signature.arguments)}"
        raise PluginError(f"{_origin(point)} is {function!r}; {expected}: {error}. See {signature.page}") from None


def _origin(point: "EntryPoint") -> str:
    package = "" if point.dist is None else f" of package {point.dist.name}"
    return f"plug-in {point.name!r} ({point.group}, {point.value}){package}"
