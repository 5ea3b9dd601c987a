"""Parameter studies: the runs of a study file, their table and their figures."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.spec import read_count
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, describe_folder
from p2pkm.core.validation import as_list, check_integer, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import StatusLine
from p2pkm.experiments.program_objects import ProgramObjects, available
from p2pkm.experiments.progress_line import StudyBar, in_notebook
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.experiments.studies.run_study import (
    announce_study_compilation,
    check_jobs,
    format_progress,
    on_every_rank,
    open_folder,
    print_graph_notes,
    run_study,
    select_share,
)
from p2pkm.experiments.studies.study_file import (
    TASK_KEYS,
    StudyFile,
    check_runs,
    expand_grid,
    label_cells,
    parse_study,
    read_study,
    run_label,
)
from p2pkm.metrics.registry import ShownIn, columns, keys, write_legend
from p2pkm.network.world import connect
from p2pkm.storage.conclusion import write_verdicts
from p2pkm.storage.lock import Lock
from p2pkm.storage.paired_tests import MARGIN
from p2pkm.storage.save import write_bytes
from p2pkm.storage.study_table import (
    OPTIONS,
    TABLES,
    Row,
    Study,
    average,
    describe_quality_loss,
    name_configuration,
    put_options_first,
)

_FAILED = 4  # exit code if a run failed
_CALL = "study(...)"  # source of options in messages
MARK = "study.toml"  # file that marks the folder of a study, with its configuration
# The remaining time is extrapolated from the last _RECENT finished runs, with at least _MIN_INTERVALS intervals.
_RECENT, _MIN_INTERVALS = 21, 3
_PAUSE = 3.0  # minimum seconds between two progress lines, except on a terminal


@shared_cache()
def run_sweep_command(
    path: str, out: str | None, jobs: int, output: OutputOptions, *, plot: bool | None, part: str | None
) -> int:
    """Run a study file, write its folder, print its table, and return the exit code.

    Parameters
    ----------
    path : str
        Study file.
    out : str or None
        Folder; None: that of the study file, or a new one below ``runs``.
    jobs : int
        Number of processes, without MPI.
    output : OutputOptions
    plot : bool or None
        Draw figures; None: as set in the study file, by default True.
    part : str or None
        ``i/n``: run only the i-th of n shares. Rows are stored, and a later sweep without `part` makes the table.

    Raises
    ------
    P2PKMError
        If an entry of the file cannot be used; nothing has been computed then.
    """
    check_jobs(jobs)
    study = read_study(path)
    with available(ProgramObjects(names=study.names)):
        return _run_file(study, path, out, jobs, output, plot, part)


def _run_file(  # noqa: PLR0913 - the arguments of the command
    study: StudyFile, path: str, out: str | None, jobs: int, output: OutputOptions, plot: bool | None, part: str | None
) -> int:  # fmt: skip
    """Run the study of a file."""
    cells = expand_grid(study, path)
    check_study(cells, study)
    out = out or study.base.get("out")
    cells = cells if part is None else take_share(cells, part, out)
    if output.dry_run:
        print(_list_runs(cells, study, as_json=output.json))
        return 0
    plot = study.base.get("plot", not output.json) if plot is None else plot
    study = study._replace(base=study.base | {"plot": plot})
    folder = open_folder(out, "sweep", MARK)
    with ExitStack() as stack:
        # Jobs that run different parts write to the same folder at the same time.
        if folder is not None and part is None:
            stack.enter_context(Lock(folder))
        rows = run_sweep(cells, study, folder, output, jobs=jobs, shared=part is not None)
    failed = sum(row["error"] is not None for row in rows)
    closing: dict[str, Any] = {
        "out": None if folder is None else str(folder),
        "runs": len(cells),
        "ended": len(rows),
        "failed": failed,
    }
    if part is not None:
        closing["part"] = part
    verdicts = conclude_rows(rows, study.margin)
    if output.json:
        print(json.dumps({"rows": rows, **closing, **verdicts}), flush=True)
    else:
        print(tabulate(rows, study, closing), flush=True)
    if len(rows) < len(cells):
        return INTERRUPTED
    return _FAILED if failed else 0


@on_every_rank
@shared_cache()
def study(  # noqa: PLR0913 - the public signature
    *, grid: Mapping[str, Iterable[Any]] | None = None, runs: Iterable[Mapping[str, Any]] | None = None,
    seeds: str | Iterable[int] = "0-4", jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, tasks: Iterable[Mapping[str, Any]] | None = None,
    refusals: Literal["raise", "rows"] = "raise", time_limit: float | None = None, link_models: Iterable[str] = (),
    **options: Any,
) -> Study:  # fmt: skip
    """Run a parameter study: every combination of option values with every seed, as ``p2pkm sweep`` does.

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
        Largest absolute log ratio at which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
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
    * `partition`: an array, the device of each row of the data, such as ``p2pkm.partition.iid(m, 4)``.
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
    check_jobs(check_integer(jobs, 1, "jobs"))
    if grid is not None and not isinstance(grid, Mapping):
        raise ExperimentError(f"grid is {grid!r}; expected lists of values by option, such as {{'graph': ['ring']}}")
    check_scalar(progress, "progress")
    program = ProgramValues(_CALL)
    content = _read_content(program, grid, runs, options)
    content["seeds"] = seeds if isinstance(seeds, str) else as_list(seeds, "seeds")
    content |= {"plot": plot, "margin": margin, "names": program.to_tables()}
    content |= {"refusals": refusals, "time_limit": time_limit, "link_models": as_list(link_models, "link_models")}
    if tasks is not None:
        content["tasks"] = [_take_task(program, task) for task in as_list(tasks, "tasks")]
    with available(program.collect()):
        study_file = parse_study(content, _CALL)
        cells = expand_grid(study_file, _CALL)
        check_study(cells, study_file)
        folder = open_folder("none" if out is None else os.fspath(out), "sweep", MARK)
        with nullcontext() if folder is None else Lock(folder):
            rows = run_sweep(cells, study_file, folder, OutputOptions(quiet=not progress), jobs=jobs)
    if len(rows) < len(cells):
        raise KeyboardInterrupt
    return Study(rows, folder, study_file.margin)


def check_study(cells: Sequence[RunOptions], study: StudyFile) -> None:
    """Check that every configuration can run, unless rejected ones are rows.

    Raises
    ------
    P2PKMError
        If a configuration cannot run with any of its seeds.
    """
    if study.refusals == "raise":
        check_runs(cells, partial(run_label, study=study))


def _take_task(program: ProgramValues, task: Any) -> dict[str, Any]:
    """Return a task with references instead of objects."""
    if not isinstance(task, Mapping):
        raise ExperimentError(
            f"tasks contains {task!r}; expected options, such as {{'name': 'grid', 'data': 'grid16'}}"
        )
    options = {name: value for name, value in task.items() if name not in TASK_KEYS}
    return program.take_options(options) | {name: task[name] for name in TASK_KEYS if name in task}


def _read_content(
    program: ProgramValues, grid: Mapping[str, Any] | None, runs: Iterable[Any] | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of a study file with references instead of objects."""
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


def conclude_rows(rows: list[Row], margin: float) -> dict[str, Any]:
    """Compute the conclusion and the verdicts on the cost ratio, for the JSON object."""
    table = Study(rows, margin=margin)
    return {"conclusion": table.conclusion(), "verdicts": table.verdicts(), "margin": margin}


def run_sweep(
    cells: Sequence[RunOptions],
    study: StudyFile,
    folder: Path | None,
    output: OutputOptions,
    *,
    jobs: int,
    shared: bool = False,
) -> list[Row]:
    """Run the cells of a study, write tables and figures into the folder, if any, and return flat rows.

    If `shared`, the cells are one of several parts: rows are stored, and tables are left to a later sweep.
    """
    if folder is not None:
        _write_study_marker(folder, study, shared=shared)
    bar = StudyBar() if in_notebook() and not output.quiet else None
    progress = SweepProgress(output.console.line(), quiet=output.quiet)
    announce_study_compilation(quiet=output.quiet)
    print_graph_notes(cells, quiet=output.quiet)
    try:
        study_rows = run_study(
            cells, folder, connect(), bar or progress, jobs=jobs, measuring=study.measuring,
            labels=label_cells(study, cells),
        )  # fmt: skip
    finally:
        progress.close()
    rows = flatten_rows(study_rows, study)
    if folder is not None and not shared:
        write_tables(folder, rows, study_rows)
        verdicts = write_verdicts(Study(rows).configurations(), keys(ShownIn.PAIRED), study.margin)
        _write_text(folder, "verdicts.csv", verdicts)
        Study(rows).explain().write(folder)
        if study.base["plot"]:
            from p2pkm.viz import draw_study

            draw_study(rows, folder / "figures", **RunOptions(figures=study.base.get("figures")).draw_kinds())
    if bar is not None:
        failed = sum(row["error"] is not None for row in rows)
        path = None if folder is None else str(folder)
        bar.finish(tabulate(rows, study, {"out": path, "runs": len(cells), "ended": len(rows), "failed": failed}))
    return rows


def take_share(cells: Sequence[RunOptions], part: str, out: str | None) -> list[RunOptions]:
    """Select the runs of one part of a study, in their order.

    Raises
    ------
    ExperimentError
        If the part is not ``i/n`` with 1 <= i <= n, or the parts do not share a folder.
    """
    first, _, last = part.partition("/")
    index, count = read_count(first) or 0, read_count(last) or 0
    if not 1 <= index <= count:
        raise ExperimentError(f"--part is {part}; expected i/n, the i-th of n parts, from 1/n to n/n, such as 2/8")
    if out in (None, "none"):
        raise ExperimentError(f"--part {part} requires a folder that all parts share. Add --out FOLDER to each part")
    return [cells[number] for number in sorted(select_share([cell.to_mapping() for cell in cells], index - 1, count))]


def _write_study_marker(folder: Path, study: StudyFile, *, shared: bool) -> None:
    """Write the study file into its folder; if several parts share the folder, only the first one does."""
    if not shared:
        return _write_text(folder, MARK, _to_toml(study))
    with suppress(FileExistsError), open(folder / MARK, "x", encoding="utf-8") as file:
        file.write(_to_toml(study))


class SweepProgress:
    """Progress of a study on standard error: finished runs and the estimated remaining time.

    On a terminal one line is updated in place; otherwise a line is printed every few seconds.

    Parameters
    ----------
    line : StatusLine
    quiet : bool
        Show nothing.
    """

    def __init__(self, line: StatusLine, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = line
        self._shown = time.monotonic()
        self._ends: deque[float] = deque(maxlen=_RECENT)
        self._terminal = sys.stderr.isatty() and not launched()

    def __call__(self, row: Row, number: int, count: int) -> None:
        """Show a finished run unless the last line is too recent; failed runs are always shown."""
        now = time.monotonic()
        self._ends.append(now)
        due = row["error"] is not None or number == count or now - self._shown > _PAUSE
        if self._quiet or not (due or self._terminal):
            return
        line = format_progress(row, number, count) + self._estimate(count - number)
        if not self._terminal or row["error"] is not None:
            self._shown = now
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def _estimate(self, runs: int) -> str:
        """Estimate the time of the remaining runs from intervals between the last ends.

        The start of the first run is not used: it waits for the compilation of kernels.
        """
        intervals = len(self._ends) - 1
        if not runs or intervals < _MIN_INTERVALS:
            return ""
        return f", about {_format_seconds((self._ends[-1] - self._ends[0]) / intervals * runs)} left"

    def close(self) -> None:
        """Remove the live line."""
        self._live.close()


def flatten_rows(study_rows: Sequence[Row], study: StudyFile) -> list[Row]:
    """Convert rows to flat rows with equal columns, varied options first; missing values are None."""
    rows = [put_options_first(_add_excess(row), study.swept) for row in study_rows]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("trace", OPTIONS))
    return [{name: row.get(name) for name in names} for row in rows]


def _add_excess(row: Row) -> Row:
    """Return a row with its excess over the reference of its task, if it has one."""
    if "reference_cost" not in row:
        return row
    cost, reference = row.get("cost_mean"), row["reference_cost"]
    excess = None if cost is None or reference is None else cost / reference - 1.0
    return {"task": row["task"]} | row | {"excess": excess}


def write_tables(folder: Path, rows: Sequence[Row], study_rows: Sequence[Row]) -> None:
    """Write study.jsonl, study.parquet if pyarrow is installed, and traces.jsonl.

    Raises
    ------
    NetworkError
        If a file cannot be written.
    """
    names = ("key", "algorithm", "graph", "seed", "trace")
    traces = [{name: row.get(name) for name in names} for row in study_rows if row["error"] is None]
    try:
        _write_text(folder, TABLES[0], "".join(json.dumps(row) + "\n" for row in rows))
        _write_text(folder, "traces.jsonl", "".join(json.dumps(trace) + "\n" for trace in traces))
        _write_parquet(folder, rows)
    except OSError as error:
        raise NetworkError(
            f"{folder} cannot be written: {error.strerror or error}. Finished runs are stored: free disk space and "
            f"run: python -m p2pkm resume {folder}"
        ) from None


def _write_parquet(folder: Path, rows: Sequence[Row]) -> None:
    """Write study.parquet if pyarrow is installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        return
    columns = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # Arrow rejects a column of numbers and text, such as the coupling with values 3 and "auto".
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    write_bytes(folder, "study.parquet", lambda file: parquet.write_table(pa.table(columns), file))


def tabulate(rows: Sequence[Row], study: StudyFile, closing: dict[str, Any]) -> str:
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
    text = _align_columns(lines, left=len(names))
    text += write_legend(shown) + worse
    if closing["failed"]:
        text.append(f"{count(closing['failed'], 'run')} failed; see the column error")
    if any(row.get("ratio_mean") is not None for row in rows):
        text += ["", Study(list(rows), margin=study.margin).conclusion()]
    explanation = Study(list(rows)).explain()
    if explanation.correlations:
        text += ["", explanation.headline]
    return "\n".join([*text, *_explain_incomplete(closing), describe_folder(closing["out"])])


def _align_columns(lines: Sequence[Sequence[str]], left: int) -> list[str]:
    """Align the first `left` columns to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = []
    for line in lines:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        aligned.append("  ".join(cells).rstrip())
    return aligned


def _explain_incomplete(closing: dict[str, Any]) -> list[str]:
    """Explain how to complete an interrupted study, or one of several parts."""
    lines = []
    missing = closing["runs"] - closing["ended"]
    if missing > 0 and closing["out"] is not None:
        resume = f"python -m p2pkm resume {closing['out']}"
        lines.append(f"interrupted with {count(missing, 'run')} missing; continue with: {resume}")
    if "part" in closing:
        lines.append(f"part {closing['part']} is stored; after all parts, run the sweep without --part for the table")
    return lines


def _list_runs(cells: Sequence[RunOptions], study: StudyFile, *, as_json: bool) -> str:
    """List the runs of a study."""
    if as_json:
        return json.dumps({"runs": len(cells), "cells": [cell.to_mapping() for cell in cells]})
    labels = dict.fromkeys(run_label(cell, study) for cell in cells)
    seeds = f"seed{'s' * (len(study.seeds) > 1)} {', '.join(map(str, study.seeds))}"
    return "\n".join([
        f"{count(len(cells), 'run')}: {len(labels)} with {seeds} each",
        *(f"  {label}" for label in labels),
    ])


def _to_toml(study: StudyFile) -> str:
    import tomli_w

    return tomli_w.dumps(study.to_mapping())


def _write_text(folder: Path, name: str, text: str) -> None:
    write_bytes(folder, name, lambda file: file.write(text.encode()))


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
