"""Coupling path: runs of GTVMin at a sequence of couplings, each initialized with the result of the previous one."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.core.termination import INTERRUPTED, STOPPED
from p2pkm.core.text_table import align_columns
from p2pkm.data.shards import Shards
from p2pkm.engine.build_run import Run
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.run import OutputOptions, execute, exit_code, lock_output_folder
from p2pkm.experiments.studies.engine import Execution, Outcome, writing
from p2pkm.experiments.studies.run_study import ProgressCallback
from p2pkm.experiments.studies.series import Series, restore_experiment
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect
from p2pkm.storage.save import pack_arrays, write_bytes
from p2pkm.storage.study_mark import PATH
from p2pkm.storage.study_rows import RUNS, Row, RowWriter, StoredRows

if TYPE_CHECKING:
    import networkx as nx

_MAX_COUPLINGS = 1_000
_TOLERANCE = 1e-9  # in steps: a value within it of the end of a list is replaced by the end
_SAME_CENTROID = 0.1  # distance of equal centroids when clusterings are counted, in standard deviations of the points
_SUMMARY = ("algorithm", "graph", "devices", "ranks", "clusters", "data", "partition", "init", "seed")  # common to all
# Key, title and format of each column.
_COLUMNS = (
    ("coupling", "coupling", "g"), ("local_fit", "local fit", ".6g"), ("gtv", "GTV", ".4g"),
    ("ratio_mean", "ratio", ".4f"), ("clusterings", "clusterings", "d"), ("rounds", "rounds", "d"),
    ("termination", "termination", "s"),
)  # fmt: skip


def parse_couplings(text: str) -> list[float]:
    """Read a list of couplings such as ``0.1,0.2,...,30``: numbers of at least 0, ascending or descending.

    ``...`` continues the two numbers before it up to the number after it, which ends the list even if the last step is
    shorter. If all three numbers are positive, the ratio is constant (0.1, 0.2, 0.4, ..., 25.6, 30), otherwise the
    difference (``0,5,...,20`` is 0, 5, 10, 15, 20). Values are rounded to 12 digits.

    Raises
    ------
    ExperimentError
        If the text is not such a list, or has more than 1,000 values.
    """
    entries = [entry.strip() for entry in text.split(",")]
    values: list[float] = []
    for position, entry in enumerate(entries):
        if entry != "...":
            values.append(_parse_coupling(entry, text))
            continue
        if len(values) < 2 or position + 1 == len(entries):
            raise ExperimentError(
                f"couplings {text!r}: '...' requires two numbers before it and one after it, as in 0.1,0.2,...,30"
            )
        values += _fill_in(values[-2], values[-1], _parse_coupling(entries[position + 1], text), text)
    return check_couplings(values)


def check_couplings(couplings: Sequence[float]) -> list[float]:
    """Check that couplings are two or more numbers of at least 0, ascending or descending, and return a list.

    Raises
    ------
    ExperimentError
        If they are not.
    """
    values = [float(value) for value in couplings]
    listed = ", ".join(f"{value:g}" for value in values[:8]) + ("" if len(values) <= 8 else ", ...")
    steps = np.diff(values)
    if len(values) < 2 or not ((steps > 0).all() or (steps < 0).all()) or min(values) < 0:
        raise ExperimentError(
            f"couplings are {listed}; expected two or more numbers of at least 0, ascending or descending"
        )
    if len(values) > _MAX_COUPLINGS:
        raise ExperimentError(
            f"couplings are {len(values)} values; expected at most {_MAX_COUPLINGS}. Use larger steps"
        )
    return values


def _parse_coupling(entry: str, text: str) -> float:
    """Read one number of a list."""
    try:
        value = float(entry)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ExperimentError(
            f"couplings {text!r}: a value is {entry!r}; expected a number of at least 0, as in 0.1,0.2,...,30"
        )
    return value


def _fill_in(first: float, second: float, end: float, text: str) -> list[float]:
    """List the values between the second number and the end, excluding both."""
    is_geometric = min(first, second, end) > 0
    if is_geometric:
        step, distance = math.log(second / first), math.log(end / second)
    else:
        step, distance = second - first, end - second
    if step * distance <= 0:
        raise ExperimentError(
            f"couplings {text!r}: continuing {first:g}, {second:g} does not reach {end:g}. Write all numbers in "
            "ascending or in descending order"
        )
    if distance / step > _MAX_COUPLINGS + 1:
        raise ExperimentError(f"couplings {text!r} are more than {_MAX_COUPLINGS} values. Use larger steps")
    count = math.ceil(distance / step - _TOLERANCE) - 1
    values = [second * (second / first) ** i if is_geometric else second + step * i for i in range(1, count + 1)]
    return [float(f"{value:.12g}") for value in values]


def coupling_path(
    k: int, graph: "nx.Graph | Topology | None", shards: Shards, couplings: Sequence[float], *,
    rounds: int | None = None, seed: int = 0, record_every: int | None = None, baselines: bool = True,
    allow_disconnected: bool = False, **options: Any,
) -> list[Result]:  # fmt: skip
    """Run GTVMin at a sequence of couplings, each run from the final centroids of the previous one.

    The first run starts with its initialization stages, as in `simulate`. The initial centroids decide the quality,
    and a weak coupling loses good ones: use descending couplings to preserve them.

    Parameters
    ----------
    k, graph, shards, rounds, seed, record_every, baselines, allow_disconnected
        As in `GTVMin` and `simulate`; `rounds` applies to each run.
    couplings : sequence of float
        Two or more numbers of at least 0, ascending or descending.
    **options
        Parameters of `GTVMin` except `alpha` and `coupling`.

    Returns
    -------
    list of Result
        One for each coupling; `p2pkm.viz.plot_coupling_path` draws them.

    Raises
    ------
    ExperimentError
        If a coupling or an option is out of range, before anything runs.
    P2PKMError
        As in `simulate`.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> path = p2pkm.coupling_path(3, topologies.ring(3), shards, [0.1, 1, 10])
    >>> [one.summary["coupling"] for one in path]
    [0.1, 1.0, 10.0]
    """
    from p2pkm.experiments.simulate import simulate
    from p2pkm.methods.peer.gtvmin import GTVMin

    results: list[Result] = []
    for method in [GTVMin(k, coupling=coupling, **options) for coupling in check_couplings(couplings)]:
        start = results[-1].centroids if results else None
        result = simulate(
            method,
            graph,
            shards,
            rounds=rounds,
            seed=seed,
            start=start,
            record_every=record_every,
            baselines=baselines,
            allow_disconnected=allow_disconnected,
        )
        results.append(result)
    return results


def measure(result: Result) -> dict[str, Any]:
    """Collect the metrics of the run at one coupling.

    * ``local_fit``: sum of the local losses (6) over the devices; None if a device has points and no centroid.
    * ``gtv``: unweighted sum of the total variation (4) over the links.
    * ``clusterings``: distinct clusterings of the devices, see `count_clusterings`, with a tolerance of a tenth of the
      standard deviation of the points (square root of the total variance of a sample of 5,000 points).
    """
    fit = float(np.cumsum(result.losses)[-1])
    spread = float(np.sqrt(result.census.sample.var(axis=0).sum()))
    return {
        "coupling": result.summary["coupling"],
        "local_fit": fit if math.isfinite(fit) else None,
        "clusterings": count_clusterings(result.centroids, _SAME_CENTROID * spread),
        **{name: result.summary[name] for name in keys(ShownIn.PATH)},
    }


def count_clusterings(centroids: Floats, tolerance: float) -> int:
    """Count the distinct clusterings of the devices.

    Two centroid sets are equal if their Hausdorff distance is within the tolerance; the order of rows is irrelevant.
    In ascending device order, each set joins the first clustering whose first set equals it, or starts a new one.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf; devices without centroids are not counted.
    tolerance : float
        Maximum distance of equal centroids.
    """
    _, first = np.unique(centroids, axis=0, return_index=True)
    distinct: list[Floats] = []
    for rows in centroids[np.sort(first)]:
        present = rows[rows[:, 0] < np.inf]
        if len(present) and not any(_hausdorff(present, other) <= tolerance for other in distinct):
            distinct.append(present)
    return len(distinct)


def _hausdorff(a: Floats, b: Floats) -> float:
    """Compute the largest distance from a row of either set to the nearest row of the other."""
    squared = ((a[:, None] - b) ** 2).sum(axis=2)
    return float(np.sqrt(max(squared.min(axis=0).max(), squared.min(axis=1).max())))


class CouplingPath(Series):
    """GTVMin at a sequence of couplings, each run from the final centroids of the previous one.

    The points are distributed again for each run, with the initial centroids.

    Parameters
    ----------
    experiment : RunOptions
    couplings : sequence of float
    asked : mapping, optional
        As in `Series`.

    Raises
    ------
    ExperimentError
        If the experiment has a coupling.
    """

    kind = PATH
    option = "--coupling-path"

    def __init__(
        self, experiment: RunOptions, couplings: Sequence[float], asked: Mapping[str, Any] | None = None
    ) -> None:
        if experiment.coupling is not None:
            raise ExperimentError(f"--coupling {experiment.coupling} and --coupling-path are both set. Remove one")
        super().__init__(experiment, asked)
        self.couplings = couplings
        self.cells = [replace(experiment, coupling=coupling) for coupling in couplings]
        self._steps: list[Run] = []
        self._config: dict[str, Any] = {}
        self._centroids: list[Floats] = []

    def to_mapping(self) -> dict[str, Any]:
        """Return the couplings."""
        return {"couplings": list(self.couplings)}

    def first(self) -> Run:
        """Assemble the runs of all couplings, which have the same points, and return the first one."""
        run = super().first()
        self._steps = [_with_coupling(run, coupling) for coupling in self.couplings]
        self._config = run.options.to_mapping() | {"coupling": list(self.couplings)}
        return run

    def run(
        self, folder: Path | None, output: OutputOptions, execution: Execution, progress: ProgressCallback
    ) -> list[Row]:
        """Run the steps in order; each is stored when it ends. An interrupted step ends the path and is no row."""
        with RowWriter(folder) as writer:
            return self._run_steps(folder, output, writer)

    def _run_steps(self, folder: Path | None, output: OutputOptions, writer: RowWriter) -> list[Row]:
        rows: list[Row] = []
        stored = StoredRows(folder).rows
        for number, step in enumerate(self._steps):
            key = f"step-{number}"
            row = stored.get(key)
            if row is not None and folder is not None:
                self._centroids.append(np.load(folder / RUNS / f"{key}.npz")["centroids"])
                rows.append(row)
                continue
            start = self._centroids[-1] if rows else None
            result = execute(replace(step, start=start), connect(), None, output)
            if result.summary["termination"] in STOPPED:
                break
            row = {"key": key, "measured": measure(result), "code": exit_code(result.summary, self.experiment)}
            row |= {name: result.summary[name] for name in _SUMMARY}
            self._centroids.append(result.centroids)
            rows.append(row)
            if folder is not None:
                assert self.lock is not None
                self.lock.check()
                with writing(folder):
                    (folder / RUNS).mkdir(exist_ok=True)
                    write_bytes(
                        folder / RUNS, f"{key}.npz", partial(pack_arrays, arrays={"centroids": result.centroids})
                    )
                writer.add(row | {"error": None})
            if not output.quiet:
                cells = [f"{title} {_format(row['measured'][name], form)}" for name, title, form in _COLUMNS]
                print(f"{len(rows)} of {len(self.cells)}: {', '.join(cells)}", file=sys.stderr, flush=True)
        return rows

    def list_rows(self, study_rows: Sequence[Row]) -> list[Row]:
        """Return the metrics at each coupling."""
        return [
            {"algorithm": row["algorithm"], "graph": row["graph"], "coupling": row["measured"]["coupling"],
             "seed": row["seed"], "error": None, **row["measured"]}
            for row in study_rows
        ]  # fmt: skip

    def say(self, outcome: Outcome) -> dict[str, Any]:
        """Return what all runs have in common, and the metrics at each coupling."""
        first = outcome.study_rows[:1]
        common = {name: row[name] for row in first for name in _SUMMARY}
        path = [row["measured"] for row in outcome.study_rows]
        return common | {"config": self._config, "path": path, "out": outcome.out}

    def write_more(self, outcome: Outcome, folder: Path) -> None:
        """Write the centroids of all steps, and the figure."""
        if not outcome.rows:
            return
        arrays: Any = {"couplings": [row["coupling"] for row in outcome.rows], "centroids": self._centroids}
        write_bytes(folder, "centroids.npz", lambda file: np.savez_compressed(file, **arrays))
        if self.experiment.plot:
            from p2pkm.viz import plot_coupling_path
            from p2pkm.viz.save_figure import save_figure

            draw = partial(plot_coupling_path, outcome.said["path"])
            save_figure(draw, folder / "figures", "coupling_path", **self.experiment.draw_kinds())

    def format(self, outcome: Outcome) -> str:
        """Format the path as a text table."""
        lines = [[title for _, title, _ in _COLUMNS]]
        lines += [[_format(row[name], form) for name, _, form in _COLUMNS] for row in outcome.said["path"]]
        return "\n".join(f"  {line}" for line in align_columns(lines, left=()))

    def describe(self, output: OutputOptions) -> str:
        """Return the options of all runs."""
        lock_output_folder(self.experiment, output, ExitStack())
        self.first()
        return json.dumps(self._config, indent=None if output.json else 1)

    def exit_code(self, outcome: Outcome) -> int:
        """Return the largest exit code of the runs."""
        return max(row["code"] for row in outcome.study_rows) if outcome.is_complete else INTERRUPTED


def restore_path(folder: Path, asked: Mapping[str, Any]) -> CouplingPath:
    """Return the path of couplings whose folder is continued after the last finished step.

    Raises
    ------
    DataError
        If the file in the folder lacks an entry.
    """
    experiment = restore_experiment(folder, asked, ("couplings",))
    return CouplingPath(experiment, check_couplings(asked["couplings"]), asked)


def _with_coupling(run: Run, coupling: float) -> Run:
    """Replace the coupling of a run."""
    options = run.options.replaced(coupling=coupling, out=None)
    completed = run.completed.replaced(coupling=coupling, out=None)
    return replace(run, options=options, completed=completed, algorithm=run.algorithm.replaced(coupling=coupling))


def _format(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
