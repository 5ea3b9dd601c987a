"""Suites of the benchmark: files of named tasks that ship with the package, or of the user."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import split_specs, suggest
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.data.sources import DEVICES_ALIKE, parse_source
from p2pkm.engine.run_options import OPTIONS, RunOptions
from p2pkm.experiments.config import name_data_graph
from p2pkm.experiments.studies.seeds import parse_seeds
from p2pkm.experiments.studies.study_file import read_seeds
from p2pkm.storage.toml import load_toml

_FOLDER = files(__package__) / "suites"
_SUITE = ("version", "title", "seeds", "graphs", "splits", "options", "partitions", "algorithm", "link_models",
          "time_limit", "measure", "entries", "tasks")  # fmt: skip
# Measures by which entries are ranked: cost of all points over the best known one, or cost of test points.
EXCESS, TEST = "excess", "test"
_TASK = ("name", "family", "file", "start", "splits", "seeds", "graphs", "known")
_LINK_MODELS = ("lan", "wan", "edge")
# Options of a run that may belong to an entry instead of a task: how a method runs, not what it clusters.
_OF_ENTRY = ("client_share", "deadline", "link_model", "stale_policy", "rounds")


class Variant(NamedTuple):
    """Entries of a suite that run with options of their own, such as a share of the clients.

    Attributes
    ----------
    mark : str
        Text in parentheses after the name of the method.
    methods : tuple of str
        Names of methods, each of which has such an entry.
    options : dict of str to object
        Options of a run, with checked values.
    """

    mark: str
    methods: tuple[str, ...]
    options: Mapping[str, Any]


class Task(NamedTuple):
    """Task of a suite: a clustering problem on devices.

    Attributes
    ----------
    name : str
        Name, such as "grid16-skew".
    options : RunOptions
        Options of all runs: points, number of clusters, partition, devices, faults.
    graphs : tuple of str
        Graphs of peer-to-peer methods.
    seeds : tuple of int
    start : str or None
        Initialization of the methods that take one; None: that of the method.
    known : dict
        Public values that a method may use if it requires them, such as the radius of the points.
    file : str or None
        Name of the file that the user supplies; None: the points are generated or part of a package.
    family : str
        Tasks of one kind, a second unit of the statistics by test points; by default the first part of the name.
    """

    name: str
    options: RunOptions
    graphs: tuple[str, ...]
    seeds: tuple[int, ...]
    start: str | None = None
    known: Mapping[str, Any] = {}
    file: str | None = None
    family: str = ""

    @property
    def data(self) -> str:
        """Source of the points, which the options of a task always have."""
        return str(self.options.data)


class Suite(NamedTuple):
    """Suite of tasks.

    Attributes
    ----------
    name : str
    version : int
        Raised with every change of a task; rows of different versions are not joined.
    title : str
        What the suite shows, in a few words.
    tasks : tuple of Task
    algorithm : str
        Entries that run by default.
    link_models : tuple of str
        Link models of the simulated time.
    time_limit : float
        Seconds of a run.
    measure : {"excess", "test"}
        What is ranked: the cost of all points over the best known one, or the cost of test points over that of a common
        clustering.
    variants : tuple of Variant
        Further entries of methods, with options of their own.
    """

    name: str
    version: int
    title: str
    tasks: tuple[Task, ...]
    algorithm: str = "all"
    link_models: tuple[str, ...] = _LINK_MODELS
    time_limit: float = 120.0
    measure: str = EXCESS
    variants: tuple[Variant, ...] = ()

    def select(self, names: Sequence[str], seeds: str | Iterable[int] | None) -> "Suite":
        """Return the suite with some of its tasks and with other seeds.

        Raises
        ------
        ExperimentError
            If a task is unknown, or the seeds cannot be read.
        """
        known = {task.name: task for task in self.tasks}
        for name in names:
            if name not in known:
                raise ExperimentError(f"unknown task {name!r} of suite {self.name}. {suggest(name, known)}")
        tasks = [known[name] for name in names] if names else list(self.tasks)
        if seeds is not None:
            chosen = parse_seeds(seeds) if isinstance(seeds, str) else read_seeds(list(seeds), "bench(...)")
            tasks = [task._replace(seeds=tuple(chosen)) for task in tasks]
        return self._replace(tasks=tuple(tasks))

    def with_files(self, paths: Mapping[str, str]) -> "Suite":
        """Return the suite with the files of the user.

        Raises
        ------
        ExperimentError
            If a task lacks its file, or a file has no task.
        """
        expected = {task.file for task in self.tasks if task.file is not None}
        for name in paths:
            if name not in expected:
                listed = f"expected one of {', '.join(sorted(expected))}" if expected else "its tasks read no files"
                raise ExperimentError(f"--file {name} is not a file of suite {self.name}; {listed}. Remove it")
        missing = sorted(expected - paths.keys())
        if missing:
            example = " ".join(f"--file {name}=PATH" for name in missing)
            raise ExperimentError(
                f"suite {self.name} lacks the files {', '.join(missing)}, which do not ship with this package. Add "
                f"{example}, or select tasks with --task"
            )
        located = [
            task if task.file is None else task._replace(options=replace(task.options, data=_locate(paths, task.file)))
            for task in self.tasks
        ]
        return self._replace(tasks=tuple(located))


def _locate(paths: Mapping[str, str], name: str) -> str:
    """Return the spec of a file of the user."""
    path = paths[name]
    if not Path(path).exists():
        raise ExperimentError(f"--file {name} is {path}, which does not exist; expected a data file. Check the path")
    return f"file:{path}"


def list_suites() -> list[str]:
    """List the names of the suites that ship with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _FOLDER.iterdir() if path.name.endswith(".toml"))


def read_suite(name: str) -> Suite:
    """Read a suite by its name, or from a TOML file of the user.

    Raises
    ------
    ExperimentError
        If the suite is unknown, or an entry of its file is wrong.
    """
    if name in list_suites():
        return _parse(load_toml(str(_FOLDER / f"{name}.toml"), "suite"), name, f"suite {name}")
    if not name.endswith(".toml"):
        raise ExperimentError(f"unknown suite {name!r}. {suggest(name, list_suites())} A file is a path with .toml")
    return _parse(load_toml(name, "suite"), Path(name).stem, name)


def suite_of_data(given: Mapping[str, Any]) -> Suite:
    """Return a suite of one task, on data of the user, with seeds 0 to 4.

    Parameters
    ----------
    given : mapping of str to object
        Options of a run by name; `graph` is a list. With `test_share` test points are ranked.

    Raises
    ------
    ExperimentError
        If an option is wrong, or `data` is missing.
    """
    if "data" not in given:
        raise ExperimentError(
            f"bench has {', '.join(given)} without data; expected a table or a data source. Add --data FILE, or remove "
            "it to rank on a suite"
        )
    options = RunOptions.from_mapping({name: value for name, value in given.items() if name != "graph"}, "bench")
    graphs = tuple(split_specs([given.get("graph", "ring")]))
    task = Task("table", name_data_graph(options, graphs), graphs, tuple(range(5)), family="table")
    measure = TEST if options.test_share else EXCESS
    return Suite("data", 1, f"data {options.data}", (task,), measure=measure)


def _parse(content: Mapping[str, Any], name: str, where: str) -> Suite:
    """Check the content of a suite file."""
    for key in content:
        if key not in _SUITE:
            raise ExperimentError(f"{where} has the unknown key {key!r}. {suggest(key, _SUITE)}")
    for key in ("version", "tasks"):
        if not content.get(key):
            raise ExperimentError(f"{where} lacks {key}; expected a version from 1 and at least one [[tasks]]. Add it")
    tasks = [task for table in content["tasks"] for task in _read_tasks(table, content, where)]
    names = [task.name for task in tasks]
    twice = next((task for task in names if names.count(task) > 1), None)
    if twice is not None:
        raise ExperimentError(f"{where} has two tasks called {twice}; expected different names. Rename one")
    return Suite(
        name,
        check_integer(content["version"], 1, f"{where}: version"),
        str(content.get("title", name)),
        tuple(tasks),
        str(content.get("algorithm", "all")),
        tuple(content.get("link_models", _LINK_MODELS)),
        float(content.get("time_limit", 120.0)),
        check_choice(content.get("measure", EXCESS), (EXCESS, TEST), f"{where}: measure"),
        tuple(_read_variant(table, where) for table in content.get("entries", ())),
    )


def _read_variant(table: Mapping[str, Any], where: str) -> Variant:
    """Read a table [[entries]]: a mark, methods, and their options."""
    mark, methods = table.get("name"), table.get("algorithm")
    if not isinstance(mark, str) or not mark or set(mark) & set("(),"):
        raise ExperimentError(
            f"{where} has entries whose name is {mark!r}; expected text without commas and parentheses, such as asked "
            "0.25, which follows the name of the method in tables"
        )
    at = f"{where}, entries {mark}"
    if not isinstance(methods, str) or not methods:
        raise ExperimentError(f"{at} lack algorithm; expected names of methods, such as dwfkm,fkm. Add it")
    given = {key.replace("-", "_"): value for key, value in table.items() if key not in ("name", "algorithm")}
    for key in given:
        if key not in _OF_ENTRY:
            raise ExperimentError(
                f"{at} have the unknown key {key!r}. {suggest(key, [*_OF_ENTRY, 'name', 'algorithm'])}"
            )
    if not given:
        raise ExperimentError(f"{at} have no option; expected one of {', '.join(_OF_ENTRY)}. Add one, or remove them")
    return Variant(mark, tuple(split_specs([methods])), read_entry_options(given, at))


def read_entry_options(given: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Read the options of an entry, by name; `at`: their source, for messages.

    Raises
    ------
    ExperimentError
        If a value is wrong, or a deadline has no link model.
    """
    if "deadline" in given and "link_model" not in given:
        raise ExperimentError(f"{at} have a deadline without link_model, which tells how long messages take. Add it")
    options = RunOptions.from_mapping(given, at)
    return {key: getattr(options, key) for key in given}


def _read_tasks(table: Mapping[str, Any], suite: Mapping[str, Any], where: str) -> list[Task]:
    """Read a table [[tasks]]: one task for each split, or one if it has a partition of its own."""
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise ExperimentError(f"{where} has a task without name; expected text, such as grid16. Add it")
    at = f"{where}, task {name}"
    options = {key: value for key, value in table.items() if key.replace("-", "_") not in _TASK}
    for key in options:
        if key.replace("-", "_") not in OPTIONS:
            raise ExperimentError(f"{at} has the unknown key {key!r}. {suggest(key, [*OPTIONS, *_TASK])}")
    options = {"data": DEVICES_ALIKE, **suite.get("options", {}), **options}
    partitions: Mapping[str, Any] = suite.get("partitions", {})
    splits = [None] if "partition" in options else table.get("splits", suite.get("splits", [None]))
    tasks = []
    for split in splits:
        if split is not None and split not in partitions:
            raise ExperimentError(f"{at} has the unknown split {split!r}. {suggest(str(split), partitions)}")
        part = {} if split is None else partitions[split]
        part = {"partition": part} if isinstance(part, str) else dict(part)
        # A partition may have graphs of its own, unless the task has.
        graphs = table.get("graphs", part.pop("graphs", suite.get("graphs", ["ring"])))
        # Names are "dominant-skew", not "dominant-dominant-skew".
        suffix = "" if split is None else f"-{split.removeprefix(f'{name}-')}"
        run_options = RunOptions.from_mapping({**options, **part}, at)
        if run_options.test_share and suite.get("measure", EXCESS) != TEST:
            raise ExperimentError(
                f"{at} has test_share {run_options.test_share:g}, but the reference costs are those of all points; "
                'expected 0. Set measure = "test" for the suite to rank by test points'
            )
        if table.get("file") is None:
            parse_source(str(run_options.data))
            run_options = name_data_graph(run_options, split_specs(graphs))
        tasks.append(
            Task(
                f"{name}{suffix}",
                run_options,
                tuple(split_specs(graphs)),
                tuple(read_seeds(table.get("seeds", suite.get("seeds", "0-4")), at)),
                table.get("start"),
                table.get("known", {}),
                table.get("file"),
                str(table.get("family", name.partition("-")[0])),
            )
        )
    return tasks
