"""Many runs as one study: dealt to ranks, each run in one process, each kept under the hash of its configuration."""

import hashlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.errors import P2PKMError
from p2pkm.experiment import Experiment, Prepared
from p2pkm.network import World
from p2pkm.network.local import LocalWorld
from p2pkm.result import Result
from p2pkm.running import Manner, execute, settle
from p2pkm.storage import write_json

Row = dict[str, Any]
SERVED = "server"  # stands for the graph of a method with a server, whose hub is one more device
_KEPT = "runs"  # folder of the rows, one file each
_NEAR = 0.01  # of the final ratio
_FIGURES = ("ratio_mean", "ratio_worst", "ratio_alone", "ari", "ari_local", "gtv", "bytes", "messages", "rounds",
            "stop", "descent", "rows_max_per_device", "centroids_sha256", "virtual_seconds",
            "wall_seconds")  # fmt: skip


def run_study(
    cells: Sequence[Experiment], folder: Path | None, world: World, tell: Callable[[str], None] = lambda line: None
) -> list[Row]:
    """Run all cells and return their rows in order, on rank 0; what is kept in the folder is not computed again.

    Parameters
    ----------
    cells : sequence of Experiment
        Each with its own seed; `out` and `plot` do not matter.
    folder : Path or None
        Where rows are kept, one file each, written when its run has ended; None: nowhere.
    world : World
        Cell i is run by rank i modulo the number of ranks, in one process.
    tell : callable
        Gets a line for every cell that has ended.

    Notes
    -----
    A run that fails is a row with its error. An interrupted run ends the study; its row is left out.
    """
    order = {"cells": [cell.to_mapping() for cell in cells], "folder": None if folder is None else str(folder)}
    text = np.frombuffer(json.dumps(order).encode(), np.uint8)
    return _work(world, world.broadcast({"study": text}), tell) or []


def follow_study(world: World, order: dict[str, Any]) -> None:
    """Do this rank's part of a study that rank 0 has broadcast."""
    _work(world, order, lambda line: None)


def _work(world: World, order: dict[str, Any], tell: Callable[[str], None]) -> list[Row] | None:
    """Run this rank's cells; return all rows on rank 0."""
    asked = json.loads(order["study"].tobytes())
    folder = None if asked["folder"] is None else Path(asked["folder"])
    cells = [Experiment.from_mapping(cell, "the study") for cell in asked["cells"]]
    if world.size > 1:
        _compile_once(world)
    own = []
    for number in range(world.rank, len(cells), world.size):
        row = run_cell(cells[number], folder)
        if row["stop"] == "interrupted":
            break
        own.append((number, row))
        tell(_describe(row, len(own), len(range(world.rank, len(cells), world.size))))
    parts = world.gather(np.frombuffer(json.dumps(own).encode(), np.uint8))
    if parts is None:
        return None
    rows = dict(pair for part in parts for pair in json.loads(part.tobytes()))
    return [rows[number] for number in sorted(rows)]


def _compile_once(world: World) -> None:
    """Let rank 0 compile the kernels while the others sleep."""
    from p2pkm.kernels import compile_ahead

    if world.rank == 0:
        compile_ahead()
    world.wait()


def run_cell(cell: Experiment, folder: Path | None) -> Row:
    """Run one cell in this process, or read its row if it is kept."""
    world = LocalWorld()
    facts: Row = {"algorithm": cell.algorithm, "graph": cell.graph, "seed": cell.seed, "error": None, "stop": None}
    try:
        prepared = settle(replace(cell, out="none", plot=False), world)
        key = fingerprint(prepared)
        resolved, served = prepared.experiment, prepared.topology.hub >= 0
        graph = SERVED if served else cell.graph or resolved.graph
        facts |= {"graph": graph, "devices": resolved.devices, "key": key}
        kept = None if folder is None else folder / _KEPT / f"{key}.json"
        if kept is not None and kept.is_file():
            return json.loads(kept.read_text())
        result = execute(prepared, world, None, Manner(quiet=True))
        row = facts | measure(result)
        if kept is not None and row["stop"] != "interrupted":
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_json(kept.parent, kept.name, row)
        return row
    except P2PKMError as error:
        return facts | {"error": f"{type(error).__name__}: {error}", "stop": "failed"}
    except Exception as error:  # one run that breaks must not take the others with it
        traceback.print_exc(file=sys.stderr)
        return facts | {"error": f"{type(error).__name__}: {error}", "stop": "failed"}


def fingerprint(prepared: Prepared) -> str:
    """Return the hash of a resolved configuration, its points and the version of the program."""
    from importlib.metadata import version

    shards = prepared.shards.part(0, prepared.shards.n)
    parts = [json.dumps(prepared.experiment.to_mapping(), sort_keys=True).encode(), version("p2pkm").encode()]
    parts += [shards.points.tobytes(), shards.offsets.tobytes(), shards.weights.tobytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def measure(result: Result) -> Row:
    """Return what a study says of a run."""
    ledger, n = result.ledger, result.ledger.devices
    loads = sum(np.bincount(end, ledger.bytes, minlength=n) for end in (ledger.src, ledger.dst))
    rounds, volume, seconds = reach(result.rounds)
    return {
        **{name: result.summary[name] for name in _FIGURES},
        "bytes_busiest": int(np.max(loads, initial=0)),
        "rounds_to_1pct": rounds,
        "bytes_to_1pct": volume,
        "seconds_to_1pct": seconds,
        "trace": trace(result.rounds),
    }


def trace(records: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Return rounds so far, seeding included, bytes, mean ratio and virtual seconds (or None) of every record."""
    found: list[list[Any]] = []
    before = last = 0
    stage = None
    for record in records:
        if record["stage"] != stage or record["round"] < last:
            stage, before = record["stage"], before + last
        last = record["round"]
        found.append([before + last, record["bytes"], record["ratio_mean"], record.get("virtual_seconds")])
    return found


def reach(records: Iterable[dict[str, Any]]) -> tuple[int | None, int | None, float | None]:
    """Return rounds, bytes and virtual seconds from which on the mean ratio stays within 1 % of its final value.

    Those of the seeding stages count. None if the last record has no ratio; seconds also if there is no network.
    """
    steps = trace(records)
    if not steps or steps[-1][2] is None:
        return None, None, None
    final = steps[-1][2]
    first = len(steps) - 1
    while first > 0 and steps[first - 1][2] is not None and abs(steps[first - 1][2] - final) <= _NEAR * abs(final):
        first -= 1
    return steps[first][0], steps[first][1], steps[first][3]


def _describe(row: Row, number: int, count: int) -> str:
    shown = row["error"] or ("" if row.get("ratio_mean") is None else f"ratio {row['ratio_mean']:.4f}")
    return f"{number} of {count}: {row['algorithm']} on {row['graph']}, seed {row['seed']}: {shown}"
