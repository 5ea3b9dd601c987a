"""Plug-ins for p2pkm: the registries of names with what other packages add."""

from collections.abc import Callable, Mapping
from typing import Any

import topologies
from p2pkm.core.errors import ExperimentError
from topologies.plugins import GRAPHS, PluginError
from topologies.plugins import extend as extend_plainly

METHODS, INITS = "p2pkm.algorithms", "p2pkm.inits"  # entry points
PARTITIONS, TRANSFORMS = "p2pkm.partitions", "p2pkm.transforms"


def extend(builtin: Mapping[str, Any], group: str, spec: str | None) -> dict[str, Callable[..., Any]]:
    """Do what `topologies.plugins.extend` does.

    Raises
    ------
    ExperimentError
        If the plug-in that is asked for cannot be imported, or two things have one name.
    """
    try:
        return extend_plainly(builtin, group, spec)
    except PluginError as error:
        raise ExperimentError(str(error)) from error


def families(spec: str | None) -> dict[str, Callable[..., Any]]:
    """Return the families of graphs, fixed and changing."""
    return extend({**topologies.FAMILIES, **topologies.TIME_VARYING}, GRAPHS, spec)


def summarize(name: str, find: Callable[[str], Any]) -> Any:
    """Return the thing of this name, or, of a plug-in that cannot be imported, the error as text."""
    try:
        return find(name)
    except (ExperimentError, PluginError) as error:
        return str(error)
