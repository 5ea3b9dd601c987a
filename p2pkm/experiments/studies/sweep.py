"""A sweep: the runs of a study file, as one tidy table with its pictures."""

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from p2pkm.core.cache import sharing
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.spec import read_count
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, tell_folder
from p2pkm.core.validation import list_of, single, whole
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import StatusLine
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.run_study import (
    deal,
    describe,
    open_folder,
    refuse_ranks,
    run_study,
    tell_compilation,
    tell_graphs,
)
from p2pkm.experiments.studies.study_file import StudyFile, check_runs, expand_grid, name_run, parse_study, read_study
from p2pkm.metrics.milestones import EXPLAINED, MILESTONES
from p2pkm.metrics.registry import ShownIn, columns, keys
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
    lead_with,
    name_configuration,
    tell_worse,
)

_FAILED = 4
MARK = "study.toml"
_RECENT, _LEAST = 21, 3  # ends of runs that tell how long the others take, and the fewest times between them
_PAUSE = 3.0  # seconds between two plain lines of progress


@sharing()
def run_sweep_command(
    path: str, out: str | None, jobs: int, manner: OutputOptions, *, plot: bool | None, part: str | None
) -> int:
    """Run a study file, write its folder, print its table, and return the exit code.

    Parameters
    ----------
    path : str
    out : str or None
        Folder; None: what the file says, else a new one below ``runs``.
    jobs : int
        Number of processes, without MPI.
    plot : bool or None
        Whether to draw; None: what the file says, else yes.
    part : str or None
        ``i/n``: only the i-th of n shares of the runs, which are kept for a later sweep without it.

    Raises
    ------
    P2PKMError
        If anything in the file cannot be used; nothing has been computed then.
    """
    if jobs > 1 and launched():
        raise ExperimentError(f"--jobs {jobs} under mpirun, which deals the runs to its ranks; give one of them")
    study = read_study(path)
    cells = expand_grid(study, path)
    check_runs(cells, partial(name_run, study=study))
    out = out or study.base.get("out")
    cells = cells if part is None else take_share(cells, part, out)
    if manner.dry_run:
        print(_show_plan(cells, study, as_json=manner.json))
        return 0
    plot = study.base.get("plot", not manner.json) if plot is None else plot
    study = study._replace(base=study.base | {"plot": plot})
    folder = open_folder(out, "sweep", MARK)
    with ExitStack() as held:
        if folder is not None and part is None:
            held.enter_context(Lock(folder))
        rows = run_sweep(cells, study, folder, manner, jobs=jobs, shared=part is not None)
    failed = sum(row["error"] is not None for row in rows)
    closing = {"out": None if folder is None else str(folder), "runs": len(cells), "ended": len(rows), "failed": failed}
    closing |= {} if part is None else {"part": part}
    told = conclude_rows(rows, study.margin)
    print(json.dumps({"rows": rows, **closing, **told}) if manner.json else tabulate(rows, study, closing), flush=True)
    if len(rows) < len(cells):
        return INTERRUPTED
    return _FAILED if failed else 0


@sharing()
def study(  # noqa: PLR0913 - the public signature
    *, grid: Mapping[str, Iterable[Any]] | None = None, runs: Iterable[Mapping[str, Any]] | None = None,
    seeds: str | Iterable[int] = "0-4", jobs: int = 1, out: str | os.PathLike[str] | None = None, plot: bool = False,
    progress: bool = True, margin: float = MARGIN, **options: Any,
) -> Study:  # fmt: skip
    """Run a study: every combination of lists of options, with every seed, as ``p2pkm sweep`` does.

    Parameters
    ----------
    grid : mapping of str to iterable, optional
        Lists of values by option, such as ``{"graph": ["ring", "star"]}``; a method with a server runs once, as its own
        star, whatever the graphs.
    runs : iterable of dict, optional
        Options of single runs; each is combined with the grid.
    seeds : str or iterable of int
        ``"0-4"``, ``[0, 1, 7]`` or ``range(10)``.
    jobs : int
        Number of processes.
    out : path, optional
        Folder; a study that was interrupted goes on there, and what has ended in it is not computed again. None:
        nothing is written.
    plot : bool
        Whether to draw figures into the folder.
    progress : bool
        Whether to tell on standard error which runs have ended.
    margin : float
        Log ratio within which two configurations are equivalent: 0.005 is 0.5 %; 0: never.
    **options
        Options of all runs, by their names on the command line with ``_`` for ``-``, such as ``devices=16``.

    Returns
    -------
    Study
        With `to_frame`, `to_latex`, `conclusion` and `plot`. A run that failed is a row with its ``error``.

    Raises
    ------
    P2PKMError
        If an option is unknown or wrong; nothing has been computed then.
    KeyboardInterrupt
        If it was interrupted; what has ended is in the folder, if there is one.

    Examples
    --------
    >>> import p2pkm
    >>> found = p2pkm.study(
    ...     grid={"graph": ["ring", "complete"]}, seeds=range(3), devices=4, data="grid16:points=10", rounds=3,
    ... )
    >>> [(row["graph"], row["seed"]) for row in found.rows[:4]]
    [('ring', 0), ('ring', 1), ('ring', 2), ('complete', 0)]
    >>> found.swept
    ['graph']
    """
    refuse_ranks("study", "sweep")
    if grid is not None and not isinstance(grid, Mapping):
        raise ExperimentError(f"grid is {grid!r}; expected lists of values by option, such as {{'graph': ['ring']}}")
    lists = None if grid is None else {name: list_of(values, f"grid[{name!r}]") for name, values in grid.items()}
    single_runs = None if runs is None else list_of(runs, "runs")
    for run in single_runs or []:
        if not isinstance(run, Mapping):
            raise ExperimentError(f"runs holds {run!r}; expected options, such as {{'algorithm': 'consensus'}}")
    given = {"grid": lists, "runs": None if single_runs is None else [dict(run) for run in single_runs],
             "seeds": seeds if isinstance(seeds, str) else list_of(seeds, "seeds")}  # fmt: skip
    single(progress, "progress")
    chosen = {name: value for name, value in (options | given).items() if value is not None}
    asked = parse_study(chosen | {"plot": plot, "margin": margin}, "study(...)")
    cells = expand_grid(asked, "study(...)")
    check_runs(cells, partial(name_run, study=asked))
    folder = open_folder("none" if out is None else os.fspath(out), "sweep", MARK)
    with nullcontext() if folder is None else Lock(folder):
        rows = run_sweep(cells, asked, folder, OutputOptions(quiet=not progress), jobs=whole(jobs, 1, "jobs"))
    if len(rows) < len(cells):
        raise KeyboardInterrupt
    return Study(rows, folder, asked.margin)


def conclude_rows(rows: list[Row], margin: float) -> dict[str, Any]:
    """Return the conclusion and the verdicts on the cost ratio of rows, for the JSON object."""
    found = Study(rows, margin=margin)
    return {"conclusion": found.conclusion(), "verdicts": found.verdicts(), "margin": margin}


def run_sweep(
    cells: Sequence[RunOptions], study: StudyFile, folder: Path | None, manner: OutputOptions, *, jobs: int,
    shared: bool = False,
) -> list[Row]:  # fmt: skip
    """Run the cells of a study, write its tables and figures into the folder, if any, and return its flat rows.

    shared: the cells are a share of one of several jobs; they are kept, and tables are left to a later sweep.
    """
    if folder is not None:
        _write_study_marker(folder, study, shared=shared)
    told = SweepProgress(manner.console.line(), quiet=manner.quiet)
    tell_compilation(quiet=manner.quiet)
    tell_graphs(cells, quiet=manner.quiet)
    try:
        found = run_study(cells, folder, connect(), told, jobs=jobs)
    finally:
        told.close()
    rows = tidy(found, study)
    if folder is not None and not shared:
        write_tables(folder, rows, found)
        verdicts = write_verdicts(Study(rows).configurations(), keys(ShownIn.PAIRED), study.margin)
        _write_text(folder, "verdicts.csv", verdicts)
        if study.base["plot"]:
            from p2pkm.viz import draw_study

            draw_study(rows, folder / "figures", **RunOptions(figures=study.base.get("figures")).draw_kinds())
    return rows


def take_share(cells: Sequence[RunOptions], part: str, out: str | None) -> list[RunOptions]:
    """Return the runs of one of several jobs, in their order.

    Raises
    ------
    ExperimentError
        If the part is not ``i/n`` with 1 <= i <= n, or if there is no folder where the shares would meet.
    """
    first, _, last = part.partition("/")
    turn, count = read_count(first) or 0, read_count(last) or 0
    if not 1 <= turn <= count:
        raise ExperimentError(f"--part {part}: expected i/n, the i-th of n shares, from 1/n to n/n, like 2/8")
    if out in (None, "none"):
        raise ExperimentError(f"--part {part} needs a folder where the shares meet; give --out FOLDER, the same to all")
    return [cells[number] for number in sorted(deal([cell.to_mapping() for cell in cells], turn - 1, count))]


def _write_study_marker(folder: Path, study: StudyFile, *, shared: bool) -> None:
    """Write the study file into its folder; of jobs that share it, the first does."""
    if not shared:
        return _write_text(folder, MARK, _to_toml(study))
    with suppress(FileExistsError), open(folder / MARK, "x", encoding="utf-8") as file:
        file.write(_to_toml(study))


class SweepProgress:
    """Tell on standard error which runs have ended, and about when all will: live on a terminal, else now and then."""

    def __init__(self, line: StatusLine, *, quiet: bool) -> None:
        self._quiet, self._live = quiet, line
        self._shown = time.monotonic()
        self._ends: deque[float] = deque(maxlen=_RECENT)
        self._terminal = sys.stderr.isatty() and not launched()

    def __call__(self, row: Row, number: int, count: int) -> None:
        """Show that a run has ended, if it is time to; always if it failed."""
        now = time.monotonic()
        self._ends.append(now)
        due = row["error"] is not None or number == count or now - self._shown > _PAUSE
        if self._quiet or not (due or self._terminal):
            return
        line = describe(row, number, count) + self._estimate(count - number)
        if not self._terminal or row["error"] is not None:
            self._shown = now
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def _estimate(self, runs: int) -> str:
        """Return about how long so many runs take, by the last ones; the first waits for kernels, and says nothing."""
        gaps = len(self._ends) - 1
        if not runs or gaps < _LEAST:
            return ""
        return f", about {_say((self._ends[-1] - self._ends[0]) / gaps * runs)} left"

    def close(self) -> None:
        """Remove the live line."""
        self._live.close()


def tidy(found: Sequence[Row], study: StudyFile) -> list[Row]:
    """Return flat rows with the same columns: what was swept, what was found; what a run does not have is None."""
    figures = {name for row in found for name in row}
    rows = [lead_with(row, study.swept) for row in found]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("trace", OPTIONS))
    return [{name: row.get(name) for name in names} for row in rows] if figures else []


def write_tables(folder: Path, rows: Sequence[Row], found: Sequence[Row]) -> None:
    """Write study.jsonl, study.parquet if pyarrow is there, and traces.jsonl.

    Raises
    ------
    NetworkError
        If the disk fails.
    """
    names = ("key", "algorithm", "graph", "seed", "trace")
    traces = [{name: row.get(name) for name in names} for row in found if row["error"] is None]
    try:
        _write_text(folder, TABLES[0], "".join(json.dumps(row) + "\n" for row in rows))
        _write_text(folder, "traces.jsonl", "".join(json.dumps(one) + "\n" for one in traces))
        _write_parquet(folder, rows)
    except OSError as error:
        raise NetworkError(f"{folder} cannot be written: {error.strerror or error}. The runs are kept") from None


def _write_parquet(folder: Path, rows: Sequence[Row]) -> None:
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
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # numbers and words in one column
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    write_bytes(folder, "study.parquet", lambda file: parquet.write_table(pa.table(columns), file))


def tabulate(rows: Sequence[Row], study: StudyFile, closing: dict[str, Any]) -> str:
    """Return means over seeds, a line per configuration."""
    names = list(dict.fromkeys(["algorithm", "graph", *study.swept]))
    names = ["rounds_asked" if name == "rounds" else name for name in names]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    shown = columns(ShownIn.SWEEP, rows)
    figures = keys(ShownIn.MEANS)
    worse = []
    lines = [[*names, "seeds", *(metric.column for metric in shown)]]
    for sides, group in groups.items():
        ended = [row for row in group if row["error"] is None]
        means = average(ended, figures) | {"seeds": len(ended)}
        cells = [metric.write_mean(means) for metric in shown]
        worse += [f"quality got worse: {name_configuration(dict(zip(names, sides, strict=True)))}, {how}"
                  for how in (tell_worse(ended),) if how]  # fmt: skip
        lines.append([*("-" if side is None else str(side) for side in sides), str(len(ended)), *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = len(names)
    text = ["  ".join(cell.ljust(width) if place < left else cell.rjust(width)
                      for place, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
            for line in lines]  # fmt: skip
    text += [EXPLAINED] * any(metric.key in MILESTONES for metric in shown) + worse
    text += [f"{count(closing['failed'], 'run')} failed; the column error gives the reason"] * (closing["failed"] > 0)
    if any(row.get("ratio_mean") is not None for row in rows):
        text += ["", Study(list(rows), margin=study.margin).conclusion()]
    missing = closing["runs"] - closing["ended"]
    text += [f"interrupted with {count(missing, 'run')} to go; python -m p2pkm resume {closing['out']} goes on"] * (
        missing > 0 and closing["out"] is not None
    )
    if "part" in closing:
        text += [f"part {closing['part']} is kept; when all have ended, one sweep without --part makes the table"]
    return "\n".join([*text, tell_folder(closing["out"])])


def _show_plan(cells: Sequence[RunOptions], study: StudyFile, *, as_json: bool) -> str:
    """Return which runs a study has."""
    if as_json:
        return json.dumps({"runs": len(cells), "cells": [cell.to_mapping() for cell in cells]})
    each = dict.fromkeys(name_run(cell, study) for cell in cells)
    seeds = f"seed{'s' * (len(study.seeds) > 1)} {', '.join(map(str, study.seeds))}"
    return "\n".join([f"{count(len(cells), 'run')}: {len(each)} with {seeds} each", *(f"  {name}" for name in each)])


def _to_toml(study: StudyFile) -> str:
    import tomli_w

    return tomli_w.dumps(study.to_mapping())


def _write_text(folder: Path, name: str, text: str) -> None:
    write_bytes(folder, name, lambda file: file.write(text.encode()))


def _say(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
