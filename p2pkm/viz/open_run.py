"""Checks of the objects that figures draw: results, run folders and tables."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from p2pkm.core.errors import ExperimentError

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result

    Run: TypeAlias = Result | str | os.PathLike[str]

_T = TypeVar("_T")
# Functions that draw an object of another type, for error messages.
_ADVICE = {
    "Result": "p2pkm.viz.plot_bytes(result), or result.plot() for all figures",
    "Study": "study.plot(), p2pkm.viz.plot_seeds(study) or p2pkm.viz.plot_study_quality(study)",
    "DeepTable": "p2pkm.viz.plot_accuracy(table)",
    "Topology": "p2pkm.viz.plot_topology(topology, name)",
    "Shards": "p2pkm.partition_report(shards).plot()",
    "P2PKMeans": "its attribute result_",
}


def open_run(run: "Run") -> "Result":
    """Return a result, read from its run folder if `run` is a path.

    Raises
    ------
    ExperimentError
        If `run` is neither a result nor a path.
    """
    from p2pkm.metrics.result import Result

    if not isinstance(run, str | os.PathLike):
        return require_type(run, Result, "a Result, such as p2pkm.simulate returns, or the path of a run folder")
    from p2pkm.storage.load import load

    return load(os.fspath(run))


def require_type(thing: Any, kind: type[_T], expected: str) -> _T:
    """Return `thing` if it has the type `kind`.

    Raises
    ------
    ExperimentError
        If it has another type; the message names the function that draws this type, if there is one.
    """
    if isinstance(thing, kind):
        return thing
    name = type(thing).__name__
    advice = f". Use {_ADVICE[name]}" if name in _ADVICE else ""
    raise ExperimentError(f"the object to draw has the type {name}; expected {expected}{advice}")


def read_table(rows: Any, columns: Iterable[str], what: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a table; there must be at least one, and each must be a mapping with these columns.

    Raises
    ------
    ExperimentError
        If `rows` is not such a table.
    """
    listed: list[Any] = [] if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable) else list(rows)
    if not listed or not all(isinstance(row, Mapping) for row in listed):
        advice = f". Use {_ADVICE[type(rows).__name__]}" if type(rows).__name__ in _ADVICE else ""
        problem = "has 0 rows" if isinstance(rows, list) and not rows else f"has the type {type(rows).__name__}"
        raise ExperimentError(f"the table to draw {problem}; expected {what}, a list of at least one dict{advice}")
    missing = sorted({name for row in listed for name in set(columns) - row.keys()})
    if missing:
        raise ExperimentError(f"the table to draw has rows without {', '.join(missing)}; expected {what}")
    return listed
