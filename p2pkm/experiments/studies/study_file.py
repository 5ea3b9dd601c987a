"""Study files: options of all runs, lists of values to combine, single runs, and seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.paired_tests import MARGIN, check_margin
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import ExperimentError, P2PKMError
from p2pkm.core.program_object import ProgramObject, describe, find_label, require_object
from p2pkm.core.spec import Spec, parameters, suggest
from p2pkm.core.validation import check_choice, check_positive
from p2pkm.data.sources import DEVICES_ALIKE
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.experiments.config import name_data_graph, parse_method
from p2pkm.experiments.run import assemble
from p2pkm.experiments.studies.measuring import UNMEASURED, Measuring
from p2pkm.experiments.studies.program_values import label_objects
from p2pkm.experiments.studies.seeds import parse_seeds, write_seeds
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.network.link_model import PROFILES
from p2pkm.network.local import LocalWorld
from p2pkm.storage.study_mark import COMPARISON, SWEEP, read_names, write_names
from p2pkm.storage.study_rows import Row
from p2pkm.storage.toml import load_toml

_PARTS = (
    "kind",
    "reference",
    "seeds",
    "grid",
    "runs",
    "tasks",
    "margin",
    "names",
    "refusals",
    "time_limit",
    "link_models",
    "metrics",
)  # entries of a study file that are not options of runs
# Options that cannot differ between runs: they apply to the whole study, or cannot be used in one.
_COMMON = ("out", "plot", "figures", "seed", "require_converged")
TASK_KEYS = ("name", "known", "reference_cost")  # entries of a task that are not options of runs
_DEFAULT_SEEDS = "0-4"
_MAX_RUNS = 100_000
EXAMPLE = """\
# Effect of the graph on the clustering. Run this study: python -m p2pkm study graphs.toml --out graphs
#
# At the top: options of all runs, named as on the command line, with _ for -.
devices = 64
data = "grid16:points=50"
partition = "dirichlet:alpha=0.1"
seeds = "0-4"                         # or a list: [0, 1, 2, 3, 4]
# refusals = "rows"                   # a rejected configuration is a row with its error, not the end of the study
# time_limit = 60                     # seconds of a run; a longer one is a row with its error
# link_models = ["lan", "wan"]        # columns seconds_lan and seconds_wan, from the same messages

# Every combination of these lists is run with every seed. A server method runs once, on its star, instead of once
# per graph.
[grid]
graph = ["ring", "grid", "small-world:degree=4,rewire=0.1", "random-regular:degree=4", "complete"]

# Optional: tasks. Everything else is run on each of them. A method that requires a value, such as private, takes it
# from known; the excess is the cost over reference_cost, one number or one for each seed, minus 1.
# [[tasks]]
# name = "blobs"
# data = "blobs:clusters=8"
# known = { radius = 15.0, epsilon = 1.0 }
# reference_cost = { 0 = 3203.1, 1 = 3187.4 }

# Optional: options that belong together. Each of these is run with every combination of the lists above.
[[runs]]
algorithm = "gtvmin"
coupling = 30

[[runs]]
algorithm = "consensus"
"""


class StudyFile(NamedTuple):
    """Content of a study file.

    Attributes
    ----------
    base : dict
        Options of all runs.
    grid : dict
        List of values for each varied option.
    runs : list of dict
        Options of single runs, each combined with the grid; a single empty dict if there are none.
    seeds : list of int
    margin : float
        Relative difference of a metric up to which two configurations are equivalent.
    names : dict of dict
        Name of each value that has one, by option and value.
    tasks : list of dict
        Options of the tasks on which all runs are executed, with `name`, `known` and `reference_cost`.
    refusals : {"raise", "rows"}
        Whether a configuration that is rejected ends the study before any run, or is a row with its error.
    measuring : Measuring
    kind : {"sweep", "comparison"}
        Whether the study is a comparison of methods.
    reference : str, ProgramObject or None
        Method with which a comparison compares the others.
    """

    base: dict[str, Any]
    grid: dict[str, list[Any]]
    runs: list[dict[str, Any]]
    seeds: list[int]
    margin: float = MARGIN
    names: Mapping[str, Mapping[Any, str]] = {}
    tasks: Sequence[Mapping[str, Any]] = ()
    refusals: str = "raise"
    measuring: Measuring = UNMEASURED
    kind: str = SWEEP
    reference: Any = None

    @property
    def swept(self) -> list[str]:
        """Options in which runs may differ, except the seed."""
        in_tasks = (name for task in self.tasks for name in task if name not in TASK_KEYS)
        return list(dict.fromkeys([*in_tasks, *(name for run in self.runs for name in run), *self.grid]))

    def to_mapping(self) -> dict[str, Any]:
        """Convert to the content of a TOML file."""
        content = {
            "reference": describe(self.reference),
            "margin": self.margin if self.margin != MARGIN else None,
            "refusals": self.refusals if self.refusals != "raise" else None,
            "time_limit": self.measuring.time_limit,
            "link_models": list(self.measuring.link_models) or None,
            "metrics": describe(self.measuring.metrics),
            # Tables come last: in TOML, every option below a table header belongs to that table.
            "grid": {name: [describe(value) for value in values] for name, values in self.grid.items()} or None,
            "runs": [_describe(run) for run in self.runs] if any(self.runs) else None,
            "tasks": [_describe(task) for task in self.tasks] or None,
            "names": write_names(self.names) or None,
        }
        used = {name: value for name, value in content.items() if value is not None}
        return _describe(self.base) | {"seeds": write_seeds(self.seeds)} | used


def _describe(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a file stores them."""
    return {name: describe(value) for name, value in options.items()}


def read_study(path: str) -> StudyFile:
    """Read a study file.

    Raises
    ------
    ExperimentError
        If the file is missing or not TOML, or an entry is unknown, of the wrong type or in conflict with another one.
    """
    return restore_study(load_toml(path, "study", ". p2pkm study --example prints one"), path)


def restore_study(content: Mapping[str, Any], where: str) -> StudyFile:
    """Check the content of a file in which objects of a program are texts; see `read_study` for the errors."""
    names = read_names(content.get("names", []), where)
    return parse_study(label_objects({**content, "names": []}, names) | {"names": write_names(names)}, where)


def parse_study(content: Mapping[str, Any], where: str) -> StudyFile:
    """Check the content of a study file; see `read_study` for the errors."""
    base = _normalize({name: value for name, value in content.items() if name not in _PARTS}, where, _PARTS)
    if "seed" in base and "seeds" in content:
        raise ExperimentError(f"{where}: seed and seeds are both set. Remove one")
    default_seeds = [base.pop("seed")] if "seed" in base else _DEFAULT_SEEDS
    seeds = read_seeds(content.get("seeds", default_seeds), where)
    grid, runs = _read_grid(content.get("grid"), where), _read_runs(content.get("runs"), where)
    tasks = _read_tasks(content.get("tasks"), where)
    _check_single_values(base, where)
    _check_places(base, grid, runs, tasks, where)
    try:
        margin = check_margin(content.get("margin", MARGIN))
    except ExperimentError as error:
        raise ExperimentError(f"{where}: {error}") from None
    return StudyFile(
        base, grid, runs, seeds, margin, read_names(content.get("names", []), where), tasks,
        check_choice(content.get("refusals", "raise"), ("raise", "rows"), f"{where}: refusals"),
        _read_measuring(content, where),
        *_read_kind(content, where),
    )  # fmt: skip


def _check_places(
    base: Mapping[str, Any],
    grid: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    tasks: Sequence[Mapping[str, Any]],
    where: str,
) -> None:
    """Check that no option that varies is set in two places, or must not vary."""
    in_runs = dict.fromkeys(name for run in runs for name in run)
    in_tasks = dict.fromkeys(name for task in tasks for name in task if name not in TASK_KEYS)
    for name in grid:
        for place, options in (("at the top", base), ("in [[runs]]", in_runs), ("in [[tasks]]", in_tasks)):
            if name in options:
                raise ExperimentError(f"{where}: {name} is set {place} and in [grid]. Remove one")
    for name in (name for name in in_runs if name in in_tasks):
        raise ExperimentError(f"{where}: {name} is set in [[runs]] and in [[tasks]]. Remove one")
    for name in (*grid, *in_runs, *in_tasks):
        if name in _COMMON:
            raise ExperimentError(f"{where}: {name} cannot differ between runs. {_suggest_place(name)}")


def _read_grid(grid: Any, where: str) -> dict[str, list[Any]]:
    """Read the lists of [grid]; empty without this table."""
    if grid is not None and (not isinstance(grid, dict) or not grid):
        raise ExperimentError(f"{where}: grid is {grid!r}; expected a table [grid] of lists, such as graph = [...]")
    return {name: _read_list(name, value, where) for name, value in _normalize(grid or {}, f"{where} [grid]").items()}


def _read_runs(runs: Any, where: str) -> list[dict[str, Any]]:
    """Read the tables [[runs]]; a single empty dict without them."""
    if runs is not None and (not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs)):
        raise ExperimentError(f"{where}: runs is {runs!r}; expected tables, each under a line [[runs]]")
    normalized = []
    for number, run in enumerate(runs or [{}], 1):
        options = _normalize(run, f"{where} [[runs]] {number}")
        _check_single_values(options, f"{where} [[runs]] {number}")
        normalized.append(options)
    return normalized


def _read_measuring(content: Mapping[str, Any], where: str) -> Measuring:
    """Read time limit, link models, and metrics, which only a Python program has."""
    limit, profiles = content.get("time_limit"), content.get("link_models", [])
    if not isinstance(profiles, (list, tuple)) or not set(map(str, profiles)) <= PROFILES.keys():
        raise ExperimentError(
            f"{where}: link_models is {profiles!r}; expected a list of profiles, such as {list(PROFILES)}. Change it"
        )
    metrics = content.get("metrics")
    if metrics is not None and require_object(metrics, "metrics") is None:
        raise ExperimentError(
            f"{where}: metrics is {metrics!r}; expected functions, which only p2pkm.study and p2pkm.compare take. "
            "Remove metrics"
        )
    seconds = None if limit is None else check_positive(limit, f"{where}: time_limit")
    return Measuring(tuple(profiles), seconds, metrics)


def _read_kind(content: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """Read the kind of the study and the reference of a comparison."""
    kind = check_choice(content.get("kind", SWEEP), (SWEEP, COMPARISON), f"{where}: kind")
    reference = content.get("reference")
    if (kind == COMPARISON) != (reference is not None):
        raise ExperimentError(f'{where}: reference is {reference!r}; expected one exactly if kind is "{COMPARISON}"')
    return kind, reference


def _read_tasks(tasks: Any, where: str) -> list[dict[str, Any]]:
    """Read the tables [[tasks]]; empty without them."""
    if tasks is None:
        return []
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, dict) for task in tasks):
        raise ExperimentError(f"{where}: tasks is {tasks!r}; expected tables, each under a line [[tasks]]")
    read, names = [], set()
    for number, task in enumerate(tasks, 1):
        at = f"{where} [[tasks]] {number}"
        options = _normalize({name: value for name, value in task.items() if name not in TASK_KEYS}, at, TASK_KEYS)
        _check_single_values(options, at)
        name, known, costs = (task.get(key) for key in TASK_KEYS)
        if not isinstance(name, str) or not name or name in names:
            raise ExperimentError(f"{at}: name is {name!r}; expected a text that no other task has. Change it")
        if not isinstance(known or {}, dict):
            raise ExperimentError(f"{at}: known is {known!r}; expected a table, such as {{ radius = 10.0 }}. Change it")
        for cost in costs.values() if isinstance(costs, dict) else [costs] * (costs is not None):
            check_positive(cost, f"{at}: reference_cost")
        names.add(name)
        read.append(options | {key: task[key] for key in TASK_KEYS if key in task})
    return read


def label_cells(study: StudyFile, cells: Sequence[RunOptions]) -> list[Row]:
    """Return the name of the task and the reference cost of each cell; empty without tasks."""
    if not study.tasks:
        return []
    size = len(cells) // len(study.tasks)
    labels = []
    for number, cell in enumerate(cells):
        task = study.tasks[number // size]
        costs = task.get("reference_cost")
        cost = costs.get(str(cell.seed), costs.get(cell.seed)) if isinstance(costs, dict) else costs
        labels.append({"task": task["name"], "reference_cost": cost})
    return labels


def with_known(cell: RunOptions, known: Mapping[str, Any]) -> RunOptions:
    """Return a run whose method takes the public values of a task that it requires, such as a radius.

    A method takes only values that are parameters without a default, and none that its spec sets already.
    """
    if not known or isinstance(cell.algorithm, ProgramObject):
        return cell
    # Other options of the run may be wrong, which is reported by its row.
    method = parse_method(RunOptions(algorithm=cell.algorithm))
    draft = method.build(cell.draft_k)
    if not draft.traits.needs_parameters:
        return cell
    kind: Any = type(draft)
    keys = parameters(kind)
    options = {name: value for name, value in known.items() if name in keys} | method.spec.options
    return replace(cell, algorithm=str(Spec(method.spec.name, options)))


def expand_grid(study: StudyFile, where: str) -> list[RunOptions]:
    """List the runs in order: single runs, then the grid with the last list fastest, then seeds.

    Raises
    ------
    ExperimentError
        If an option is wrong, two runs are equal, or there are more than 100,000 runs.
    """
    count = len(study.runs) * len(study.seeds) * max(len(study.tasks), 1)
    for values in study.grid.values():
        count *= len(values)
    if count > _MAX_RUNS:
        raise ExperimentError(f"{where} has {count:,} runs; expected at most {_MAX_RUNS:,}. Remove values or seeds")
    return [cell for task in study.tasks or [{}] for cell in _expand_task(study, task, where)]


def _expand_task(study: StudyFile, task: Mapping[str, Any], where: str) -> list[RunOptions]:
    """List the runs on a task."""
    in_task = {name: value for name, value in task.items() if name not in TASK_KEYS}
    # The points of all graphs are the same, so they do not follow one.
    usual = {"data": DEVICES_ALIKE} | study.base
    cells: dict[RunOptions, None] = {}
    for run in study.runs:
        for combination in product(*study.grid.values()):
            options = usual | in_task | run | dict(zip(study.grid, combination, strict=True))
            cell = replace(RunOptions.from_mapping(options, where), out=None, plot=False)
            # A server method uses its star instead of each graph of the grid, so equal runs are expected.
            on_star = _uses_star(cell, study)
            if on_star:
                cell = name_data_graph(replace(cell, graph=None), study.grid.get("graph", [cell.graph]))
            cell = with_known(cell, task.get("known", {}))
            if cell in cells and not on_star:
                raise ExperimentError(f"{where}: the run with {run_label(cell, study)} occurs twice. Remove one")
            cells[cell] = None
    # Seeds are checked when they are read.
    return [cell.replaced(seed=seed) for cell in cells for seed in study.seeds]


def _uses_star(cell: RunOptions, study: StudyFile) -> bool:
    """Check whether the method of a run uses its star; an error names the run."""
    try:
        return needs_hub(parse_method(cell).build(cell.draft_k))
    except P2PKMError as error:
        if study.refusals == "rows":
            return False
        raise type(error)(f"the run with {run_label(cell, study)}: {error}") from None


def check_runs(cells: Sequence[RunOptions], name: Callable[[RunOptions], str]) -> list[RunOptions]:
    """Check that every configuration can run, and return each with resolved options and its first valid seed.

    A configuration is rejected if it cannot be prepared with any of its seeds. A single seed may fail: a random graph,
    for example, may be disconnected.

    Parameters
    ----------
    cells : sequence of RunOptions
    name : callable
        Label of a run in messages.

    Raises
    ------
    P2PKMError
        If data, graph or options of a configuration cannot be used; the message names the first one.
    """
    groups: dict[RunOptions, list[RunOptions]] = {}
    for cell in cells:
        groups.setdefault(cell.replaced(seed=0), []).append(cell)
    with shared_cache():
        return [_prepare_first(group, name) for group in groups.values()]


def _prepare_first(cells: Sequence[RunOptions], name: Callable[[RunOptions], str]) -> RunOptions:
    """Resolve the options of a configuration with its first valid seed."""
    errors = []
    for cell in cells:
        try:
            return assemble(replace(cell, out="none"), LocalWorld()).options
        except P2PKMError as error:
            errors.append(error)
    raise type(errors[0])(f"the run with {name(cells[0])}: {errors[0]}") from None


def run_label(cell: RunOptions, study: StudyFile) -> str:
    """Label a run by the options in which the runs of the study differ, except the seed."""
    parts = [f"{name} = {find_label(getattr(cell, name))}" for name in study.swept if getattr(cell, name) is not None]
    return ", ".join(parts) or f"algorithm = {find_label(cell.algorithm)}"


def _normalize(options: Mapping[str, Any], where: str, other_keys: Sequence[str] = ()) -> dict[str, Any]:
    """Spell option names with underscores, and reject unknown ones."""
    normalized: dict[str, Any] = {}
    for key, value in options.items():
        name = key.replace("-", "_")
        if name not in OPTIONS:
            raise ExperimentError(f"unknown key {key!r} in {where}. {suggest(name, [*OPTIONS, *other_keys])}")
        if name in normalized:
            raise ExperimentError(f"{where} has {name} twice, with - and with _. Remove one")
        normalized[name] = value
    return normalized


def _check_single_values(options: Mapping[str, Any], where: str) -> None:
    """Reject lists and tables outside [grid], and the option require_converged."""
    for name, value in options.items():
        if isinstance(value, (list, dict)):
            raise ExperimentError(f"{where}: {name} is {value!r}; expected one value. Put lists in [grid]")
    if "require_converged" in options:
        raise ExperimentError(
            f"{where}: require_converged cannot be used in a study. {_suggest_place('require_converged')}"
        )


def _suggest_place(name: str) -> str:
    """Suggest where to set an option that cannot differ between runs."""
    return {
        "seed": "Set seeds at the top",
        "require_converged": "Remove it: the column termination shows how every run ended",
    }.get(name, "Set it at the top")


def _read_list(name: str, value: Any, where: str) -> list[Any]:
    """Check a list of [grid]."""
    if not isinstance(value, list) or not value:
        raise ExperimentError(f"{where}: {name} in [grid] is {value!r}; expected a list with at least one value")
    for number, item in enumerate(value):
        if isinstance(item, (list, dict)):
            raise ExperimentError(f"{where}: {name} in [grid] contains {item!r}; expected text, numbers, true or false")
        if item in value[:number]:
            raise ExperimentError(f"{where}: {name} in [grid] contains {item!r} twice. Remove one")
    return value


def read_seeds(value: Any, where: str) -> list[int]:
    """Read seeds from a list of whole numbers, or from text such as 0-4."""
    if isinstance(value, list):
        value = [int(seed) if isinstance(seed, np.integer) else seed for seed in value]
        if not value or any(isinstance(seed, bool) or not isinstance(seed, int) or seed < 0 for seed in value):
            raise ExperimentError(f'{where}: seeds is {value!r}; expected whole numbers, as in [0, 1, 2] or "0-2"')
        value = ",".join(map(str, value))
    if not isinstance(value, str):
        raise ExperimentError(f'{where}: seeds is {value!r}; expected a list, as in [0, 1, 2] or "0-2"')
    try:
        return parse_seeds(value)
    except ExperimentError as error:
        raise ExperimentError(f"{where}: {str(error).removeprefix('--')}") from None
