"""Parameter studies: the runs of a study file, their table and their figures."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from p2pkm.analysis.conclusion import write_verdicts
from p2pkm.analysis.explanation import Explanation
from p2pkm.analysis.paired_tests import MARGIN
from p2pkm.analysis.study_table import Study, average, describe_quality_loss, name_configuration, put_options_first
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import ExperimentError
from p2pkm.core.keywords import show_call
from p2pkm.core.spec import read_count
from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count
from p2pkm.core.validation import as_list, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.object_content import wrap_metrics
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.blocks import select_share
from p2pkm.experiments.studies.engine import Design, Outcome, conduct, read_execution
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.experiments.studies.run_study import on_every_rank
from p2pkm.experiments.studies.study_file import (
    TASK_KEYS,
    StudyFile,
    check_runs,
    expand_grid,
    label_cells,
    parse_study,
    run_label,
)
from p2pkm.metrics.registry import ShownIn, columns, keys, write_legend
from p2pkm.storage.save import write_bytes
from p2pkm.storage.study_folder import list_columns, write_table, write_traces
from p2pkm.storage.study_mark import SWEEP
from p2pkm.storage.study_rows import OPTIONS, Row, list_keys

_CALL = "study(...)"  # source of options in messages


class Sweep(Design):
    """Design of a study file.

    Parameters
    ----------
    study : StudyFile
    where : str
        Source of the study in messages.
    out : str, optional
        Folder of the study, which may exist; None: a new one.

    Raises
    ------
    P2PKMError
        If a configuration cannot run with any of its seeds, unless rejected ones are rows.
    """

    kind = SWEEP

    def __init__(self, study: StudyFile, where: str, out: str | None = None) -> None:
        self.study = study
        self.names = study.names
        self.measuring = study.measuring
        self.cells = self.expand(where)
        self._labels = label_cells(study, self.cells)
        if study.refusals == "raise":
            # Configurations of which a run has ended were checked before it.
            ended = list_keys(None if out in (None, "none") else Path(out))
            missing = [cell for cell, key in zip(self.cells, self.keys, strict=True) if key not in ended]
            check_runs(missing, partial(run_label, study=study))

    def expand(self, where: str) -> list[RunOptions]:
        """List the runs."""
        return expand_grid(self.study, where)

    def take_share(self, part: str, out: str | None) -> None:
        """Keep the runs of one part of the study, in their order.

        Raises
        ------
        ExperimentError
            If the part is not ``i/n`` with 1 <= i <= n, or the parts do not share a folder.
        """
        first, _, last = part.partition("/")
        index, number = read_count(first) or 0, read_count(last) or 0
        if not 1 <= index <= number:
            raise ExperimentError(f"--part is {part}; expected i/n, the i-th of n parts, from 1/n to n/n, such as 2/8")
        if out in (None, "none"):
            raise ExperimentError(
                f"--part {part} requires a folder that all parts share. Add --out FOLDER to each part"
            )
        selected = select_share(self.cells, index - 1, number)
        self.keys = [self.keys[place] for place in selected]
        self.cells = [self.cells[place] for place in selected]
        self._labels = [self._labels[place] for place in selected if self._labels]

    def label(self) -> Sequence[Row]:
        """Return task and reference cost of each cell."""
        return self._labels

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the study file."""
        return self.study.to_mapping()

    def list_rows(self, study_rows: Sequence[Row]) -> list[Row]:
        """Convert rows to flat rows with equal columns, varied options first; missing values are None."""
        rows = [put_options_first(_add_excess(row), self.study.swept) for row in study_rows]
        names = [name for name in list_columns(rows) if name not in ("trace", OPTIONS)]
        return [{name: row.get(name) for name in names} for row in rows]

    def say(self, outcome: Outcome) -> dict[str, Any]:
        """Return rows, conclusion and verdicts on the cost ratio."""
        table = Study(outcome.rows, margin=self.study.margin)
        said = {
            "rows": outcome.rows,
            "out": outcome.out,
            "runs": len(self.cells),
            "ended": outcome.ended,
            "failed": len(outcome.failed),
        }
        said |= {} if outcome.part is None else {"part": outcome.part}
        return said | {"conclusion": table.conclusion(), "verdicts": table.verdicts(), "margin": self.study.margin}

    def write(self, outcome: Outcome) -> None:
        """Write tables, verdicts, explanation and figures."""
        folder, rows = outcome.folder, outcome.rows
        assert folder is not None
        write_table(folder, rows)
        write_traces(folder, outcome.study_rows)
        verdicts = write_verdicts(Study(rows).configurations(), keys(ShownIn.PAIRED), self.study.margin)
        write_bytes(folder, "verdicts.csv", lambda file: file.write(verdicts.encode()))
        outcome.explanation.write(folder)
        if self.study.base.get("plot"):
            self.draw(outcome, folder / "figures")

    def draw(self, outcome: Outcome, folder: Path) -> None:
        """Draw the figures."""
        from p2pkm.viz import draw_study

        draw_study(outcome.rows, folder, **RunOptions(figures=self.study.base.get("figures")).draw_kinds())

    def format(self, outcome: Outcome) -> str:
        """Format means over seeds as a text table, one line for each configuration."""
        return tabulate(outcome.rows, self.study, outcome.explanation)

    def describe(self, output: OutputOptions) -> str:
        """List the runs."""
        if output.json:
            return json.dumps({"runs": len(self.cells), "cells": [cell.to_mapping() for cell in self.cells]})
        labels = dict.fromkeys(run_label(cell, self.study) for cell in self.cells)
        seeds = f"seed{'s' * (len(self.study.seeds) > 1)} {', '.join(map(str, self.study.seeds))}"
        return "\n".join([
            f"{count(len(self.cells), 'run')}: {len(labels)} with {seeds} each",
            *(f"  {label}" for label in labels),
        ])


@on_every_rank
@shared_cache()
@show_call("p2pkm.study(algorithm='gtvmin', grid={'graph': ['ring', 'complete']}, seeds='0-4', devices=16)")
def study(
    *, grid: Mapping[str, Iterable[Any]] | None = None, runs: Iterable[Mapping[str, Any]] | None = None,
    seeds: str | Iterable[int] = "0-4", jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, tasks: Iterable[Mapping[str, Any]] | None = None,
    refusals: Literal["raise", "rows"] = "raise", time_limit: float | None = None, link_models: Iterable[str] = (),
    metrics: Any = (), executor: Any = None, retry_failed: bool = False, retry_rejected: bool = False,
    on_run: Callable[[Row], None] | None = None,
    **options: Any,
) -> Study:  # fmt: skip
    """Run a parameter study: every combination of option values with every seed, as ``p2pkm study`` does.

    Parameters
    ----------
    grid : mapping of str to iterable or dict, optional
        List of values for each varied option, such as ``{"graph": ["ring", "star"]}``, or a dict of values by the names
        that tables and figures show, such as ``{"graph": {"city": graph}}``. A server method runs once, on its star,
        instead of once per graph.
    runs : iterable of dict, optional
        Options of single runs; each is combined with the grid.
    seeds : str or iterable of int, default="0-4"
        ``"0-4"``, ``[0, 1, 7]`` or ``range(10)``.
    jobs : int, default=1
        Number of processes.
    out : path, optional
        Folder of the study. An interrupted study continues there, without repeating finished runs. None: nothing is
        written.
    plot : bool, default=False
        Draw figures into the folder.
    progress : bool, default=True
        Print a line on standard error for each finished run; in a notebook, show a bar, and a table at the end.
    margin : float, default=0.005
        Relative difference up to which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
    tasks : iterable of dict, optional
        Tasks on which everything else is run: options such as ``data``, and

        * ``name``: value of the column ``task``;
        * ``known``: public values, such as ``{"radius": 10.0}``, for methods that require them;
        * ``reference_cost``: cost of a known clustering, one number or a dict by seed, for the column ``excess``.
    refusals : {"raise", "rows"}
        A configuration that is rejected with all seeds raises its error before any run, or is a row with its error.
    time_limit : float, optional
        Seconds of a run; a longer one is a row with its error. None: no limit.
    link_models : iterable of str
        Link models for whose simulated time there are columns, such as ``seconds_lan``, all from one run.
    metrics : callable, Metric, or list of them
        Functions of the `Result` of a run, for each of which there is a column of its name.
    executor : concurrent.futures.Executor, optional
        Executes the runs, with `jobs` workers: ``concurrent.futures.ProcessPoolExecutor``,
        `mpi4py.futures.MPIPoolExecutor`, or one of another package. None: `jobs` processes of this machine, or the
        ranks of ``mpirun``. Runs on the same points and graph are one task. Rows do not depend on the executor.
    retry_failed, retry_rejected : bool, default=False
        Repeat the runs in the folder that failed or took too long, or that were rejected.
    on_run : callable, optional
        Called in this process with the row of each run that has ended.
    **options
        Options of all runs, named as on the command line with ``_`` for ``-``, such as ``devices=16``.

    Returns
    -------
    Study
        With `to_frame`, `to_latex`, `conclusion` and `plot`. A failed run is a row with its ``error``.

    Notes
    -----
    Objects replace text in `grid`, `runs` and `options`:

    * `graph`: what `p2pkm.simulate` takes.
    * `algorithm`: a method such as ``p2pkm.GTVMin(16)``, or its class, which takes the option `clusters`.
    * `data`: an array, a pair of an array and its labels, a DataFrame of pandas or polars, a pyarrow.Table, what
      `p2pkm.read_table` returns, or `p2pkm.Shards`.
    * `partition`: an array, the device of each row of the data, such as ``p2pkm.partition.iid(m, 4)``; the same as
      `devices`, which else is the number of devices. Also a function of the rows and the number of devices.
    * `link_model`, `stale_policy`, `robust`: functions, see docs/howto/pass-a-function.md.
    * `true_centers`: an array. Options such as `faults`, `link_model` and `init`: `p2pkm.Faults`, `p2pkm.LinkModel`,
      `p2pkm.Init`.
    * `columns`, `drop` and `encode`: lists of names.

    An object without a name is called by its class and size. Under ``mpirun``, all ranks call `study`; they share the
    runs, and the objects of rank 0 count.

    Raises
    ------
    P2PKMError
        If an option is unknown or invalid; nothing has been computed then.
    KeyboardInterrupt
        If the study is interrupted; finished runs are in the folder, if there is one.

    Examples
    --------
    >>> import p2pkm
    >>> result = p2pkm.study(
    ...     grid={"graph": ["ring", "complete"]}, seeds=range(3), devices=4, data="grid16:points=10", rounds=3,
    ... )
    >>> [(row["graph"], row["seed"]) for row in result.rows[:4]]
    [('ring', 0), ('ring', 1), ('ring', 2), ('complete', 0)]
    >>> result.swept
    ['graph']

    Objects, two of them with names:

    >>> import topologies
    >>> X, y = p2pkm.grid16(points=10)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4), labels=y)
    >>> graphs = {"path": topologies.path(4), "all": topologies.complete(4)}
    >>> result = p2pkm.study(
    ...     grid={"graph": graphs, "algorithm": [p2pkm.GTVMin(16)]}, data=shards, seeds=[0], rounds=3,
    ... )
    >>> [(row["algorithm"], row["graph"]) for row in result.rows]
    [('GTVMin(16)', 'path'), ('GTVMin(16)', 'all')]
    """
    execution = read_execution(jobs, executor, retry_failed=retry_failed, retry_rejected=retry_rejected, on_run=on_run)
    if grid is not None and not isinstance(grid, Mapping):
        raise ExperimentError(f"grid is {grid!r}; expected lists of values by option, such as {{'graph': ['ring']}}")
    check_scalar(progress, "progress")
    program = ProgramValues(_CALL)
    content = _read_content(program, grid, runs, options)
    content["seeds"] = seeds if isinstance(seeds, str) else as_list(seeds, "seeds")
    content |= {"plot": plot, "margin": margin}
    content |= {"refusals": refusals, "time_limit": time_limit, "link_models": as_list(link_models, "link_models")}
    content["metrics"] = wrap_metrics(metrics, "metrics")
    if tasks is not None:
        content["tasks"] = [_take_task(program, task) for task in as_list(tasks, "tasks")]
    content["names"] = program.to_tables()
    study_file = parse_study(content, _CALL)
    path = "none" if out is None else os.fspath(out)
    outcome = conduct(Sweep(study_file, _CALL, path), path, OutputOptions(quiet=not progress), execution)
    return to_study(outcome, study_file.margin)


def to_study(outcome: Outcome, margin: float) -> Study:
    """Return the table of a study; an interrupted one raises KeyboardInterrupt."""
    if not outcome.is_complete:
        raise KeyboardInterrupt
    return Study(outcome.rows, outcome.folder, margin)


def _take_task(program: ProgramValues, task: Any) -> dict[str, Any]:
    """Return a task whose objects are values of options."""
    if not isinstance(task, Mapping):
        raise ExperimentError(
            f"tasks contains {task!r}; expected options, such as {{'name': 'grid', 'data': 'grid16'}}"
        )
    options = {name: value for name, value in task.items() if name not in TASK_KEYS}
    return program.take_options(options) | {name: task[name] for name in TASK_KEYS if name in task}


def _read_content(
    program: ProgramValues, grid: Mapping[str, Any] | None, runs: Iterable[Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of a study file, with objects as values of options."""
    content = program.take_options(options)
    if grid is not None:
        content["grid"] = {
            name: program.take_list(name.replace("-", "_"), values, f"grid[{name!r}]") for name, values in grid.items()
        }
    if runs is not None:
        listed = as_list(runs, "runs")
        for run in listed:
            if not isinstance(run, Mapping):
                raise ExperimentError(f"runs contains {run!r}; expected options, such as {{'algorithm': 'consensus'}}")
        content["runs"] = [program.take_options(run) for run in listed]
    return content


def _add_excess(row: Row) -> Row:
    """Return a row with its excess over the reference of its task, if it has one."""
    if "reference_cost" not in row:
        return row
    cost, reference = row.get("cost_mean"), row["reference_cost"]
    excess = None if cost is None or reference is None else cost / reference - 1.0
    return {"task": row["task"]} | row | {"excess": excess}


def tabulate(rows: Sequence[Row], study: StudyFile, explanation: Explanation) -> str:
    """Format means over seeds as a text table, one line for each configuration."""
    names = list(dict.fromkeys(["algorithm", "graph", *study.swept]))
    names = ["rounds_asked" if name == "rounds" else name for name in names]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    shown = columns(ShownIn.SWEEP, rows)
    worse = []
    lines = [[*names, "seeds", *(metric.column for metric in shown)]]
    for values, group in groups.items():
        ended = [row for row in group if row["error"] is None]
        means = average(ended, keys(ShownIn.MEANS)) | {"seeds": len(ended)}
        cells = [metric.write_mean(means) for metric in shown]
        if loss := describe_quality_loss(ended):
            configuration = name_configuration(dict(zip(names, values, strict=True)))
            worse.append(f"quality got worse: {configuration}, {loss}")
        lines.append([*("-" if value is None else str(value) for value in values), str(len(ended)), *cells])
    text = align_columns(lines, left=range(len(names)))
    text += write_legend(shown) + worse
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        text.append(f"{count(failed, 'run')} failed; see the column error")
    if any(row.get("ratio_mean") is not None for row in rows):
        text += ["", Study(list(rows), margin=study.margin).conclusion()]
    if explanation.correlations:
        text += ["", explanation.headline]
    return "\n".join(text)
