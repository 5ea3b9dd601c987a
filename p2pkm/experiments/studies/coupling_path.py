"""Coupling path: runs of GTVMin at a sequence of couplings, each initialized with the result of the previous one."""

import csv
import io
import json
import math
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.termination import INTERRUPTED, STOPPED
from p2pkm.core.units import describe_folder
from p2pkm.data.shards import Shards
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import Prepared
from p2pkm.experiments.run import (
    OutputOptions,
    execute,
    exit_code,
    lock_default_folder,
    lock_output_folder,
    prepare_and_validate,
)
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import move_to_backup
from p2pkm.storage.save import write_bytes, write_json

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


def coupling_path(  # noqa: PLR0913 - the public signature
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


def run_coupling_path_command(experiment: RunOptions, couplings: Sequence[float], output: OutputOptions) -> int:
    """Run an experiment along a coupling path, print the table, write the folder, and return the exit code.

    All ranks execute each run. The points are distributed again for each run, with the initial centroids.

    Raises
    ------
    P2PKMError
        If options, graph, data or folder cannot be used; nothing has been written then.
    """
    if experiment.coupling is not None:
        raise ExperimentError(f"--coupling {experiment.coupling} and --coupling-path are both set. Remove one")
    with ExitStack() as stack:
        return _run_path(experiment, couplings, output, stack)


def _run_path(experiment: RunOptions, couplings: Sequence[float], output: OutputOptions, stack: ExitStack) -> int:
    """Run a coupling path; the lock of the folder is held until the stack is closed."""
    lock = lock_output_folder(experiment, output, stack)
    world = connect()
    prepared = prepare_and_validate(replace(experiment, coupling=couplings[0]), world)
    steps = [_with_coupling(prepared, coupling) for coupling in couplings]
    config = prepared.experiment.to_mapping() | {"coupling": list(couplings)}
    if output.dry_run:
        print(json.dumps(config, indent=None if output.json else 1))
        return 0
    lock = lock or lock_default_folder(prepared, stack)
    folder = None if lock is None else lock.folder
    try:
        old = None if folder is None else move_to_backup(folder)
        results = _run_steps(steps, lock, output)
        closing = {name: results[0].summary[name] for name in _SUMMARY} if results else {}
        path = [measure(result) for result in results]
        closing |= {"config": config, "path": path, "out": folder and str(folder)}
        if lock is not None:
            lock.check()
            _write(lock.folder, results, closing, experiment)
        if old is not None and len(results) == len(steps):
            shutil.rmtree(old)
    except OSError as error:
        raise NetworkError(
            f"folder {folder} cannot be written: {error.strerror or error}. Use another --out, or free disk space"
        ) from None
    print(json.dumps(closing) if output.json else tabulate(closing), flush=True)
    codes = [exit_code(result.summary["termination"], experiment) for result in results]
    return INTERRUPTED if len(results) < len(steps) else max(codes)


def _with_coupling(prepared: Prepared, coupling: float) -> Prepared:
    """Replace the coupling of a prepared run."""
    options = replace(prepared.experiment, coupling=coupling, out=None)
    run = replace(prepared.run, algorithm=prepared.run.algorithm.replaced(coupling=coupling))
    return prepared._replace(experiment=options, run=run)


def _run_steps(steps: Sequence[Prepared], lock: Lock | None, output: OutputOptions) -> list[Result]:
    """Run the steps in order and append each to path.jsonl; an interrupted step ends the path and is not recorded."""
    world, results = connect(), list[Result]()
    for step in steps:
        result = execute(step, world, None, output, results[-1].centroids if results else None)
        if result.summary["termination"] in STOPPED:
            break
        results.append(result)
        line = measure(result)
        if lock is not None:
            lock.check()
            with open(lock.folder / "path.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if not output.quiet:
            cells = [f"{title} {_format(line[name], form)}" for name, title, form in _COLUMNS]
            print(f"{len(results)} of {len(steps)}: {', '.join(cells)}", file=sys.stderr, flush=True)
    return results


def _write(folder: Path, results: Sequence[Result], closing: dict[str, Any], experiment: RunOptions) -> None:
    """Write path.csv, summary.json, the centroids of all steps, and the figure."""
    write_json(folder, "summary.json", closing)
    if not results:
        return
    rows, text = closing["path"], io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(folder, "path.csv", lambda file: file.write(text.getvalue().encode()))
    arrays: Any = {
        "couplings": [row["coupling"] for row in rows],
        "centroids": [result.centroids for result in results],
    }
    write_bytes(folder, "centroids.npz", lambda file: np.savez_compressed(file, **arrays))
    if experiment.plot:
        from p2pkm.viz import plot_coupling_path
        from p2pkm.viz.save_figure import save_figure

        draw = partial(plot_coupling_path, rows)
        save_figure(draw, folder / "figures", "coupling_path", **experiment.draw_kinds())


def tabulate(closing: dict[str, Any]) -> str:
    """Format a path as a text table."""
    lines = [[title for _, title, _ in _COLUMNS]]
    lines += [[_format(row[name], form) for name, _, form in _COLUMNS] for row in closing["path"]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    table = ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*table, f"  {describe_folder(closing['out'])}"])


def _format(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
