"""A study as somebody writes it down: options of all runs, lists to combine, single runs, seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.cache import sharing
from p2pkm.core.errors import ExperimentError, P2PKMError
from p2pkm.core.spec import suggest
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.run import prepare_and_validate
from p2pkm.experiments.studies.seeds import parse_seeds, write_seeds
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.network.local import LocalWorld
from p2pkm.storage.paired_tests import MARGIN, check_margin
from p2pkm.storage.toml import load_toml

_PARTS = ("seeds", "grid", "runs", "margin")
_ONCE = ("out", "plot", "figures", "seed", "require_converged")  # that belong to the study as a whole, or to no study
_USUAL_SEEDS, _MOST = "0-4", 100_000  # runs
EXAMPLE = """\
# A study: what does the graph do to the clustering?   python -m p2pkm sweep graphs.toml --out graphs
#
# At the top: options of every run, by their names on the command line (with _ for -).
devices = 64
data = "grid16:points=50"
partition = "dirichlet:alpha=0.1"
seeds = "0-4"                         # or a list: [0, 1, 2, 3, 4]

# Every combination of these lists is run, with every seed. A method with a server runs once, as its own star,
# whatever the graphs.
[grid]
graph = ["ring", "grid", "small-world:degree=4,rewire=0.1", "random-regular:degree=4", "complete"]

# Optional: what does not combine. Each of these is run with every combination of the lists above.
[[runs]]
algorithm = "gtvmin"
coupling = 30

[[runs]]
algorithm = "consensus"
"""


class StudyFile(NamedTuple):
    """What a study file says.

    Attributes
    ----------
    base : dict
        Options of every run.
    grid : dict
        Lists of values by option.
    runs : list of dict
        Options of single runs, each to be combined with the grid; one without options if there are none.
    seeds : list of int
    margin : float
        Log ratio of two figures within which configurations are equivalent.
    """

    base: dict[str, Any]
    grid: dict[str, list[Any]]
    runs: list[dict[str, Any]]
    seeds: list[int]
    margin: float = MARGIN

    @property
    def swept(self) -> list[str]:
        """Return the options that a run may differ in, but for the seed."""
        return list(dict.fromkeys([*(name for run in self.runs for name in run), *self.grid]))

    def to_mapping(self) -> dict[str, Any]:
        """Return it as TOML holds it."""
        found = self.base | {"seeds": write_seeds(self.seeds)}
        found |= {} if self.margin == MARGIN else {"margin": self.margin}
        return found | ({"grid": self.grid} if self.grid else {}) | ({"runs": self.runs} if any(self.runs) else {})


def read_study(path: str) -> StudyFile:
    """Read a study file.

    Raises
    ------
    ExperimentError
        If it is missing or not TOML, or an entry is unknown, has the wrong form or contradicts another one.
    """
    return parse_study(load_toml(path, "study", ". p2pkm sweep --example prints one"), path)


def parse_study(found: Mapping[str, Any], where: str) -> StudyFile:
    """Check what a study file holds; see `read_study` for the errors."""
    base = _normalize({name: value for name, value in found.items() if name not in _PARTS}, where, _PARTS)
    if "seed" in base and "seeds" in found:
        raise ExperimentError(f"{where}: seed and seeds are both given; give one")
    seeds = read_seeds(found.get("seeds", [base.pop("seed")] if "seed" in base else _USUAL_SEEDS), where)
    grid, runs = _read_grid(found.get("grid"), where), _read_runs(found.get("runs"), where)
    _refuse_lists(base, where)
    for name in grid:
        for part, others in (("at the top", base), ("in [[runs]]", {key for one in runs for key in one})):
            if name in others:
                raise ExperimentError(f"{where}: {name} is given {part} and in [grid]; give it in one place")
    for name in (name for one in (grid, *runs) for name in one):
        if name in _ONCE:
            raise ExperimentError(f"{where}: {name} cannot differ from run to run. {_advise(name)}")
    try:
        margin = check_margin(found.get("margin", MARGIN))
    except ExperimentError as error:
        raise ExperimentError(f"{where}: {error}") from None
    return StudyFile(base, grid, runs, seeds, margin)


def _read_grid(grid: Any, where: str) -> dict[str, list[Any]]:
    """Read the lists of [grid]; none if there is no such table."""
    if grid is not None and (not isinstance(grid, dict) or not grid):
        raise ExperimentError(f"{where}: grid is {grid!r}; expected a table [grid] of lists, such as graph = [...]")
    return {name: _read_list(name, value, where) for name, value in _normalize(grid or {}, f"{where} [grid]").items()}


def _read_runs(runs: Any, where: str) -> list[dict[str, Any]]:
    """Read the tables [[runs]]; one without options if there is none."""
    if runs is not None and (not isinstance(runs, list) or not runs or not all(isinstance(one, dict) for one in runs)):
        raise ExperimentError(f"{where}: runs is {runs!r}; expected tables, each under a line [[runs]]")
    found = []
    for number, one in enumerate(runs or [{}], 1):
        found.append(_normalize(one, f"{where} [[runs]] {number}"))
        _refuse_lists(found[-1], f"{where} [[runs]] {number}")
    return found


def expand_grid(study: StudyFile, where: str) -> list[RunOptions]:
    """Return the runs in order: single runs, then the grid with the last list fastest, then seeds.

    Raises
    ------
    ExperimentError
        If an option is wrong, two runs are the same, or there are too many.
    """
    count = len(study.runs) * len(study.seeds)
    for values in study.grid.values():
        count *= len(values)
    if count > _MOST:
        raise ExperimentError(f"{where} asks for {count:,} runs; expected at most {_MOST:,}")
    cells: dict[RunOptions, None] = {}
    for run in study.runs:
        for chosen in product(*study.grid.values()):
            given = study.base | run | dict(zip(study.grid, chosen, strict=True))
            cell = replace(RunOptions.from_mapping(given, where), out=None, plot=False)
            served = needs_hub(_call(cell, study, lambda cell: parse_method(cell).build(cell.draft_k)))
            cell = replace(cell, graph=None) if served else cell
            if cell in cells and not served:
                raise ExperimentError(f"{where}: {name_run(cell, study)} is given twice")
            cells[cell] = None
    return [replace(cell, seed=seed) for cell in cells for seed in study.seeds]


def check_runs(cells: Sequence[RunOptions], name: Callable[[RunOptions], str]) -> list[RunOptions]:
    """Reject configurations that can never run, and return the others as they are run, each with its first seed.

    A configuration is refused if it cannot be prepared with any of its seeds: a random graph may be disconnected
    with one of them.

    Parameters
    ----------
    cells : sequence of RunOptions
    name : callable
        Returns what tells a run from the others, for the message.

    Raises
    ------
    P2PKMError
        If data, graph or options of a configuration cannot be used; it names the first such.
    """
    groups: dict[RunOptions, list[RunOptions]] = {}
    for cell in cells:
        groups.setdefault(replace(cell, seed=0), []).append(cell)
    with sharing():
        return [_prepare_first(group, name) for group in groups.values()]


def _prepare_first(cells: Sequence[RunOptions], name: Callable[[RunOptions], str]) -> RunOptions:
    """Return the first run of a configuration that can be prepared, resolved."""
    errors = []
    for cell in cells:
        try:
            return prepare_and_validate(replace(cell, out="none"), LocalWorld()).experiment
        except P2PKMError as error:
            errors.append(error)
    raise type(errors[0])(f"the run with {name(cells[0])}: {errors[0]}") from None


def name_run(cell: RunOptions, study: StudyFile) -> str:
    """Return what tells a run from the others, but for its seed."""
    parts = [f"{name} = {getattr(cell, name)}" for name in study.swept if getattr(cell, name) is not None]
    return ", ".join(parts) or f"algorithm = {cell.algorithm}"


def _call(cell: RunOptions, study: StudyFile, check: Any) -> Any:
    """Call a check of a run; an error says which run it is about."""
    try:
        return check(cell)
    except P2PKMError as error:
        raise type(error)(f"the run with {name_run(cell, study)}: {error}") from None


def _normalize(given: Mapping[str, Any], where: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """Return options by their names; refuse those that are unknown."""
    found: dict[str, Any] = {}
    for raw, value in given.items():
        name = raw.replace("-", "_")
        if name not in OPTIONS:
            raise ExperimentError(f"unknown key {raw!r} in {where}. {suggest(name, [*OPTIONS, *more])}")
        if name in found:
            raise ExperimentError(f"{where} has {name} twice, with - and with _; give it once")
        found[name] = value
    return found


def _refuse_lists(given: Mapping[str, Any], where: str) -> None:
    """Refuse lists and tables where one value is expected, and what no study has."""
    for name, value in given.items():
        if isinstance(value, (list, dict)):
            raise ExperimentError(f"{where}: {name} is {value!r}; expected one value. Lists belong into [grid]")
    if "require_converged" in given:
        raise ExperimentError(f"{where}: require_converged has no meaning in a study. {_advise('require_converged')}")


def _advise(name: str) -> str:
    return {
        "seed": "Give seeds at the top",
        "require_converged": "The column termination shows how every run ended",
    }.get(name, "Give it at the top")


def _read_list(name: str, value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ExperimentError(f"{where}: {name} in [grid] is {value!r}; expected a list with at least one value")
    for number, one in enumerate(value):
        if isinstance(one, (list, dict)):
            raise ExperimentError(f"{where}: {name} in [grid] holds {one!r}; expected text, numbers, true or false")
        if one in value[:number]:
            raise ExperimentError(f"{where}: {name} in [grid] holds {one!r} twice")
    return value


def read_seeds(value: Any, where: str) -> list[int]:
    """Read seeds: a list of whole numbers, or text such as 0-4."""
    if isinstance(value, list):
        value = [int(one) if isinstance(one, np.integer) else one for one in value]
        if not value or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in value):
            raise ExperimentError(f'{where}: seeds is {value!r}; expected whole numbers, as in [0, 1, 2] or "0-2"')
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise ExperimentError(f'{where}: seeds is {value!r}; expected a list, as in [0, 1, 2] or "0-2"')
    try:
        return parse_seeds(value)
    except ExperimentError as error:
        raise ExperimentError(f"{where}: {str(error).removeprefix('--')}") from None
