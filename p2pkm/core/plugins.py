"""Plug-ins: registries of names, extended by entry points of other packages."""

from collections.abc import Callable, Mapping
from typing import Any

import topologies
from p2pkm.core.errors import ExperimentError
from topologies.plugins import GRAPHS, OF_GRAPHS, PluginError, Signature
from topologies.plugins import extend as extend_plainly

# Groups of entry points.
METHODS = "p2pkm.algorithms"
INITS = "p2pkm.inits"
PARTITIONS = "p2pkm.partitions"
TRANSFORMS = "p2pkm.transforms"
# Groups whose entries are functions; those of classes are checked where they are used.
_SIGNATURES = {
    GRAPHS: OF_GRAPHS,
    INITS: Signature(("at",), "docs/howto/package-a-plugin.md"),
    PARTITIONS: Signature(("table", "n"), "docs/howto/package-a-plugin.md"),
}


def extend(builtin: Mapping[str, Any], group: str, spec: str | None) -> dict[str, Callable[..., Any]]:
    """Add the entry points of a group to a registry, see `topologies.plugins.extend`.

    Raises
    ------
    ExperimentError
        If the requested plug-in cannot be imported or does not take the arguments of its group, or two entries have
        the same name.
    """
    try:
        return extend_plainly(builtin, group, spec, _SIGNATURES.get(group))
    except PluginError as error:
        raise ExperimentError(str(error)) from error


def families(spec: str | None) -> dict[str, Callable[..., Any]]:
    """Return the graph families, static and time-varying, by name."""
    return extend({**topologies.FAMILIES, **topologies.TIME_VARYING}, GRAPHS, spec)


def summarize(name: str, find: Callable[[str], Any]) -> Any:
    """Return the entry of this name, or the error as text if its plug-in cannot be imported."""
    try:
        return find(name)
    except (ExperimentError, PluginError) as error:
        return str(error)
