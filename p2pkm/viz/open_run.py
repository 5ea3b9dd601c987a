"""What pictures are drawn of: a result or the folder of one, other objects, and tables; anything else is refused."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from p2pkm.core.errors import ExperimentError

if TYPE_CHECKING:
    from p2pkm.metrics.result import Result

    Run: TypeAlias = Result | str | os.PathLike[str]

_T = TypeVar("_T")
_ADVICE = {  # what draws an object of this type
    "Result": "p2pkm.viz.plot_bytes(result), or result.plot() for all figures",
    "Study": "study.plot(), p2pkm.viz.plot_seeds(study) or p2pkm.viz.plot_study_quality(study)",
    "DeepTable": "p2pkm.viz.plot_accuracy(table)",
    "Topology": "p2pkm.viz.plot_topology(topology, name)",
    "Shards": "p2pkm.partition_report(shards).plot()",
    "P2PKMeans": "its attribute result_",
}


def open_run(run: "Run") -> "Result":
    """Return the result, read from its run folder if that is given.

    Raises
    ------
    ExperimentError
        If it is neither.
    """
    from p2pkm.metrics.result import Result

    if not isinstance(run, str | os.PathLike):
        return require_type(run, Result, "a Result, such as p2pkm.simulate returns, or the path of a run folder")
    from p2pkm.storage.load import load

    return load(os.fspath(run))


def require_type(thing: Any, kind: type[_T], wanted: str) -> _T:
    """Return an object of this type.

    Raises
    ------
    ExperimentError
        If it is of another one; with what draws such an object, if anything does.
    """
    if isinstance(thing, kind):
        return thing
    name = type(thing).__name__
    advice = f". Use {_ADVICE[name]}" if name in _ADVICE else ""
    raise ExperimentError(f"the figure is given an object of type {name}; expected {wanted}{advice}")


def read_table(rows: Any, columns: Iterable[str], what: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a table, each a mapping with these columns at least; there must be one.

    Raises
    ------
    ExperimentError
        If they are something else.
    """
    found: list[Any] = [] if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable) else list(rows)
    if not found or not all(isinstance(row, Mapping) for row in found):
        advice = f". Use {_ADVICE[type(rows).__name__]}" if type(rows).__name__ in _ADVICE else ""
        given = "no rows" if isinstance(rows, list) and not rows else f"an object of type {type(rows).__name__}"
        raise ExperimentError(f"the figure is given {given}; expected {what}, a list of at least one dict{advice}")
    missing = sorted({name for row in found for name in set(columns) - row.keys()})
    if missing:
        raise ExperimentError(f"the figure is given rows without {', '.join(missing)}; expected {what}")
    return found
