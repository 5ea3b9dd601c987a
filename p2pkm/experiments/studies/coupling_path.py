"""A path of couplings: the same points at one strength of the links after the other, each from where the last ended."""

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
from p2pkm.core.units import tell_folder
from p2pkm.data.shards import Shards
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import Prepared
from p2pkm.experiments.run import OutputOptions, code_of, execute, hold_default, hold_out, prepare_and_validate
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import set_aside
from p2pkm.storage.save import write_bytes, write_json

if TYPE_CHECKING:
    import networkx as nx

_MOST = 1_000  # values of a path
_SLACK = 1e-9  # of a step: a value so close before the end of a list is the end
_ALIKE = 0.1  # of the points' standard deviation: rows that are one centroid for whoever counts clusterings
_NAMES = ("algorithm", "graph", "devices", "ranks", "clusters", "data", "partition", "init", "seed")
_COLUMNS = (
    ("coupling", "coupling", "g"), ("local_fit", "local fit", ".6g"), ("gtv", "GTV", ".4g"),
    ("ratio_mean", "ratio", ".4f"), ("clusterings", "clusterings", "d"), ("rounds", "rounds", "d"),
    ("termination", "termination", "s"),
)  # fmt: skip


def parse_couplings(text: str) -> list[float]:
    """Read a list of couplings such as ``0.1,0.2,...,30``: numbers of at least 0, ascending or descending.

    ``...`` goes on as the two numbers before it do until the number after it, which ends the list even if it is no full
    step away: by their ratio if all three are above 0 (0.1, 0.2, 0.4, ..., 25.6, 30), else by their difference
    (``0,5,...,20`` is 0, 5, 10, 15, 20). Values are rounded to 12 digits.

    Raises
    ------
    ExperimentError
        If it is not such a list, or has more than 1,000 values.
    """
    words = [word.strip() for word in text.split(",")]
    values: list[float] = []
    for place, word in enumerate(words):
        if word != "...":
            values.append(_read(word, text))
            continue
        if len(values) < 2 or place + 1 == len(words):
            raise ExperimentError(f"couplings {text!r}: '...' needs two numbers before it and one after it")
        values += _go_on(values[-2], values[-1], _read(words[place + 1], text), text)
    return check_couplings(values)


def check_couplings(couplings: Sequence[float]) -> list[float]:
    """Return couplings as a list, if they are two or more numbers of at least 0 that only rise or only fall.

    Raises
    ------
    ExperimentError
        If they are not.
    """
    values = [float(value) for value in couplings]
    shown = ", ".join(f"{value:g}" for value in values[:8]) + ("" if len(values) <= 8 else ", ...")
    moves = np.diff(values)
    if len(values) < 2 or not ((moves > 0).all() or (moves < 0).all()) or min(values) < 0:
        raise ExperimentError(f"couplings {shown}: expected two or more numbers of at least 0, ascending or descending")
    if len(values) > _MOST:
        raise ExperimentError(f"couplings {shown} are {len(values)} values; expected at most {_MOST}")
    return values


def _read(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ExperimentError(f"couplings {text!r}: {word!r} is not a number of at least 0; as in 0.1,0.2,...,30")
    return value


def _go_on(first: float, second: float, end: float, text: str) -> list[float]:
    """Return what lies between the second number and the end, both left out."""
    geometric = min(first, second, end) > 0
    step, way = (math.log(second / first), math.log(end / second)) if geometric else (second - first, end - second)
    if step * way <= 0:
        raise ExperimentError(f"couplings {text!r}: {first:g}, {second:g} does not lead to {end:g}")
    if way / step > _MOST + 1:
        raise ExperimentError(f"couplings {text!r} are more than {_MOST} values; take a larger step")
    count = math.ceil(way / step - _SLACK) - 1
    between = [second * (second / first) ** i if geometric else second + step * i for i in range(1, count + 1)]
    return [float(f"{value:.12g}") for value in between]


def coupling_path(  # noqa: PLR0913 - the public signature
    k: int, graph: "nx.Graph | Topology | None", shards: Shards, couplings: Sequence[float], *,
    rounds: int | None = None, seed: int = 0, record_every: int | None = None, baselines: bool = True,
    allow_disconnected: bool = False, **options: Any,
) -> list[Result]:  # fmt: skip
    """Run GTVMin at one coupling after the other, each from the centroids that the one before ended with.

    The first run begins with its initialization, as `simulate` does. The start decides the quality, and a weak
    coupling gives a good one up: to keep what it has found, descend.

    Parameters
    ----------
    k, graph, shards, rounds, seed, record_every, baselines, allow_disconnected
        As in `simulate` and `GTVMin`; `rounds` is for each run.
    couplings : sequence of float
        Two or more numbers of at least 0, ascending or descending.
    **options
        Of `GTVMin`, but for alpha and coupling.

    Returns
    -------
    list of Result
        One per coupling; `measure` and `p2pkm.viz.plot_coupling_path` show them side by side.

    Raises
    ------
    P2PKMError
        As `simulate`; ExperimentError, before anything runs, if a coupling or an option is out of range.

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
        results.append(simulate(
            method, graph, shards, rounds=rounds, seed=seed, start=start, record_every=record_every,
            baselines=baselines,
            allow_disconnected=allow_disconnected,
        ))  # fmt: skip
    return results


def measure(result: Result) -> dict[str, Any]:
    """Return what a path says of the run at one coupling.

    ``local_fit`` is the sum of the devices' costs (6) on their own points, None if a device has points and no centroid;
    ``gtv`` the sum of (4) over the links, unweighted; ``clusterings`` what `count_clusterings` counts among the devices
    within a tenth of the points' standard deviation (square root of the total variance, of a sample of 5,000 points).
    """
    fit = float(np.cumsum(result.losses)[-1])
    spread = float(np.sqrt(result.census.sample.var(axis=0).sum()))
    return {
        "coupling": result.summary["coupling"],
        "local_fit": fit if math.isfinite(fit) else None,
        "clusterings": count_clusterings(result.centroids, _ALIKE * spread),
        **{name: result.summary[name] for name in keys(ShownIn.PATH)},
    }


def count_clusterings(centroids: Floats, tolerance: float) -> int:
    """Return how many of the devices' clusterings are distinct.

    Two sets of rows are alike if every row of either has a row of the other within the tolerance, in whatever order. In
    ascending device order a set that is like the first set of a clustering belongs to it, else it begins a new one.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf; devices without any row are left out.
    tolerance : float
    """
    _, first = np.unique(centroids, axis=0, return_index=True)
    found: list[Floats] = []
    for rows in centroids[np.sort(first)]:
        real = rows[rows[:, 0] < np.inf]
        if len(real) and not any(_differ(real, other) <= tolerance for other in found):
            found.append(real)
    return len(found)


def _differ(one: Floats, other: Floats) -> float:
    """Return the largest distance of a row of either set to the nearest row of the other."""
    squared = ((one[:, None] - other) ** 2).sum(axis=2)
    return float(np.sqrt(max(squared.min(axis=0).max(), squared.min(axis=1).max())))


def run_coupling_path_command(experiment: RunOptions, couplings: Sequence[float], manner: OutputOptions) -> int:
    """Run an experiment along a path, print the table, write the folder, and return the exit code.

    Every run is one of all ranks; the same points are dealt anew, with the centroids to start from.

    Raises
    ------
    P2PKMError
        If something cannot be used; before anything was written.
    """
    if experiment.coupling is not None:
        raise ExperimentError(f"--coupling {experiment.coupling} and --coupling-path are both given; give one")
    with ExitStack() as held:
        return _run_path(experiment, couplings, manner, held)


def _run_path(experiment: RunOptions, couplings: Sequence[float], manner: OutputOptions, held: ExitStack) -> int:
    """Do what `run_coupling_path_command` says; held: until when the folder is."""
    lock = hold_out(experiment, manner, held)
    world = connect()
    prepared = prepare_and_validate(replace(experiment, coupling=couplings[0]), world)
    steps = [_at(prepared, coupling) for coupling in couplings]
    config = prepared.experiment.to_mapping() | {"coupling": list(couplings)}
    if manner.dry_run:
        print(json.dumps(config, indent=None if manner.json else 1))
        return 0
    lock = lock or hold_default(prepared, held)
    folder = None if lock is None else lock.folder
    try:
        old = None if folder is None else set_aside(folder)
        results = _walk(steps, lock, manner)
        closing = {name: results[0].summary[name] for name in _NAMES} if results else {}
        closing |= {"config": config, "path": [measure(one) for one in results], "out": folder and str(folder)}
        if lock is not None:
            lock.check()
            _write(lock.folder, results, closing, experiment)
        if old is not None and len(results) == len(steps):
            shutil.rmtree(old)
    except OSError as error:
        raise NetworkError(f"the folder {folder} cannot be written: {error.strerror or error}") from None
    print(json.dumps(closing) if manner.json else tabulate(closing), flush=True)
    codes = [code_of(one.summary["termination"], experiment) for one in results]
    return INTERRUPTED if len(results) < len(steps) else max(codes)


def _at(prepared: Prepared, coupling: float) -> Prepared:
    """Return the same points and graph with another coupling."""
    changed = replace(prepared.experiment, coupling=coupling, out=None)
    run = replace(prepared.run, algorithm=prepared.run.algorithm.replaced(coupling=coupling))
    return prepared._replace(experiment=changed, run=run)


def _walk(steps: Sequence[Prepared], lock: Lock | None, manner: OutputOptions) -> list[Result]:
    """Run one step after the other and append it to path.jsonl; an interrupted one ends the path and is left out."""
    world, results = connect(), list[Result]()
    for step in steps:
        result = execute(step, world, None, manner, results[-1].centroids if results else None)
        if result.summary["termination"] in STOPPED:
            break
        results.append(result)
        line = measure(result)
        if lock is not None:
            lock.check()
            with open(lock.folder / "path.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if not manner.quiet:
            shown = [f"{title} {_show(line[name], form)}" for name, title, form in _COLUMNS]
            print(f"{len(results)} of {len(steps)}: {', '.join(shown)}", file=sys.stderr, flush=True)
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
    arrays: Any = {"couplings": [row["coupling"] for row in rows], "centroids": [one.centroids for one in results]}
    write_bytes(folder, "centroids.npz", lambda file: np.savez_compressed(file, **arrays))
    if experiment.plot:
        from p2pkm.viz import plot_coupling_path
        from p2pkm.viz.save_figure import save_figure

        draw = partial(plot_coupling_path, rows)
        save_figure(draw, folder / "figures", "coupling_path", **experiment.draw_kinds())


def tabulate(closing: dict[str, Any]) -> str:
    """Return the path as text."""
    lines = [[title for _, title, _ in _COLUMNS]]
    lines += [[_show(row[name], form) for name, _, form in _COLUMNS] for row in closing["path"]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    table = ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*table, f"  {tell_folder(closing['out'])}"])


def _show(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)
