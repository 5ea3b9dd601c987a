"""Memory, bytes and processor time of a rank: fitted on 1 and 2 ranks, compared on 4, applied to 64.

``python -m tests.benchmarks.scale`` measures runs on 1 and 2 ranks (`scale_meter`), fits constants, compares their
prediction for 4 ranks with a run on 4 ranks, and applies them to 100 million devices on 64 ranks: claims scale-* of
docs/results. ``--write`` writes docs/results/scale.csv, whose values docs/results/speed.md shows (docs/write_pages.py).
Needs Linux, ``mpirun``, 3 GB and 3 minutes.

The constants of each phase are fitted by non-negative least squares of relative errors. The run on 4 ranks is not
used for the fit.
"""

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

import p2pkm
from tests.benchmarks.ranks import find_launcher
from tests.benchmarks.scale_meter import PHASES, RECEIVED

CLUSTERS, FEATURES, POINTS, ROUNDS, DEGREE = 10, 2, 10, 5, 4
# Graphs with the same number of links: blocks of a torus have few links between them, those of the other have most.
GRAPHS = {"torus": "torus", "random-regular:degree=4": "random regular"}
_SIDE = 332
# Ranks, devices, and share of the devices on rank 0. Two ranks have unequal shares, so that what is proportional to
# the devices of a rank differs from what is proportional to all devices.
SIZES = (
    (1, _SIDE**2, 1.0),
    (1, 2 * _SIDE**2, 1.0),
    (2, 2 * _SIDE**2, 0.5),
    (2, 4 * _SIDE**2, 0.25),
    (2, 4 * _SIDE**2, 0.75),
)
CHECK = (4, 4 * _SIDE**2, 0.25)
TARGET = (64, 100_000_000)
# Assumed of the network, not measured: bytes per second and direction of a rank, and seconds per message.
BANDWIDTH, LATENCY = 100e9 / 8, 2e-6
# Sizes that each quantity is proportional to; the name of a role: a constant of such a rank.
FORMS = {
    "peak": ("root", "worker", "local", "total of root", "total of worker", "halo"),
    "cpu": ("root", "worker", "local", "total of root", "total of worker", "halo", "turns"),
    "tables": ("halo x turns",),
    "sparse": ("cut", "turns x peers"),
    "uncounted": ("worker", "halo"),
    "broadcast": ("root", "worker", "total of worker"),
    "gathered": ("remote of root", "remote of worker"),
}
SUMS = {
    "memory": ("peak",),
    "processor time": ("cpu",),
    "messages of devices": ("tables", "sparse"),
    "bytes of the simulator": ("uncounted", "broadcast", "gathered"),
}
_ROLES = {"root": "rank 0", "worker": "other ranks"}
_TITLES = {
    "peak": "memory",
    "cpu": "processor time",
    "tables": "tables of halo devices received",
    "sparse": "sparse messages received",
    "uncounted": "values of halo devices received for records",
    "broadcast": "received from rank 0",
    "gathered": "gathered from all ranks",
}
_UNITS = {
    "root": "rank 0",
    "worker": "other rank",
    "local": "device of the rank",
    "halo": "halo device",
    "total of root": "device of the system, on rank 0",
    "total of worker": "device of the system, on other ranks",
    "remote of root": "device of another rank, on rank 0",
    "remote of worker": "device of another rank, on others",
    "turns": "exchange",
    "halo x turns": "halo device and exchange",
    "cut": "edge to another rank",
    "turns x peers": "exchange and neighboring rank",
}
# Constants below this, in bytes or microseconds, are not listed.
_LEAST = 1e-3
_DOCS = Path(__file__).resolve().parents[2] / "docs" / "results"
_MACHINE = "2 virtual cores (Zen 4), 24 GB"
Constants = dict[tuple[str, str], dict[str, float]]


class Rank(NamedTuple):
    """One rank of a run: sizes, and measured or predicted quantities of each phase.

    Attributes
    ----------
    role : {"root", "worker"}
    sizes : dict
        ``local``, ``total`` and ``halo`` (devices), ``cut`` (edges to other ranks) and ``peers`` (neighboring ranks).
    turns : dict
        Exchanges of each phase.
    phases : dict
        Quantities of each phase, by name.
    """

    role: str
    sizes: dict[str, float]
    turns: dict[str, float]
    phases: dict[str, dict[str, float]]

    def regressors(self, phase: str) -> dict[str, float]:
        """Return the sizes that quantities of a phase may be proportional to."""
        turns, role = self.turns[phase], self.role
        return self.sizes | {
            role: 1.0,
            f"total of {role}": self.sizes["total"],
            f"remote of {role}": self.sizes["total"] - self.sizes["local"],
            "turns": turns,
            "halo x turns": self.sizes["halo"] * turns,
            "turns x peers": self.sizes["peers"] * turns,
        }

    def add_up(self, *quantities: str) -> float:
        """Add quantities of all phases; of the peak, return the largest."""
        if quantities == ("peak",):
            return max(phase["peak"] for phase in self.phases.values())
        return math.fsum(phase[name] for phase in self.phases.values() for name in quantities)


Runs = dict[tuple[str, int, int, float], list[Rank]]


def measure(graph: str, ranks: int, n: int, share: float, rounds: int = ROUNDS) -> list[Rank]:
    """Run n devices on some ranks of one thread each, and read the measurements of all ranks.

    Raises
    ------
    RuntimeError
        If the run fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/points.npy", draw(n))
        command = [
            find_launcher(), "-n", str(ranks), sys.executable, "-m", "tests.benchmarks.scale_meter", folder,
            "--devices", str(n), "--data", f"{folder}/points.npy", "--partition", "blocks", "--dtype", "float32",
            "--clusters", str(CLUSTERS), "--algorithm", "gtvmin:coupling=strong", "--graph", graph,
            "--rounds", str(rounds), "--all-rounds", "--no-baselines", "--no-plot", "--quiet", "--out", "none",
        ]  # fmt: skip
        threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = os.environ | threads | {"FIRST_SHARE": str(share)}
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{process.stderr[-2000:]}")
        return [_read(Path(folder, f"{rank}.json"), rank, n) for rank in range(ranks)]


def draw(n: int) -> Any:
    """Draw the points of n devices around ten centers, float32[n * POINTS, 2]."""
    rng = np.random.default_rng(0)
    centers = rng.uniform(0, 100, (CLUSTERS, FEATURES))
    return (centers[rng.integers(0, CLUSTERS, n * POINTS)] + rng.standard_normal((n * POINTS, FEATURES))).astype("f4")


def _read(path: Path, rank: int, n: int) -> Rank:
    measured = json.loads(path.read_text())
    phases = measured.pop("phases")
    turns = {name: phase.pop("turns") for name, phase in phases.items()}
    return Rank("worker" if rank else "root", measured | {"total": n}, turns, phases)


def fit(ranks: list[Rank]) -> Constants:
    """Fit the constants of each phase and quantity: bytes or seconds for each unit of a size."""
    constants = {}
    for phase in PHASES:
        for quantity, names in FORMS.items():
            positive = [rank for rank in ranks if rank.phases[phase][quantity] > 0]
            values = np.array([rank.phases[phase][quantity] for rank in positive]).reshape(-1, 1)
            sizes = [[rank.regressors(phase).get(name, 0.0) for name in names] for rank in positive]
            rows = np.array(sizes).reshape(len(positive), len(names)) / values
            # Columns of similar size, for the solver.
            scale = rows.max(axis=0, initial=0.0)
            scale[scale == 0.0] = 1.0
            solution = nnls(rows / scale, np.ones(len(rows)))[0] / scale if len(rows) else np.zeros(len(names))
            constants[phase, quantity] = dict(zip(names, solution.tolist(), strict=True))
    return constants


def predict(constants: Constants, role: str, sizes: dict[str, float], turns: dict[str, float]) -> Rank:
    """Predict the quantities of a rank of these sizes."""
    rank = Rank(role, sizes, turns, {})
    for phase in PHASES:
        known = rank.regressors(phase)
        rank.phases[phase] = {
            quantity: math.fsum(value * known.get(name, 0.0) for name, value in constants[phase, quantity].items())
            for quantity in FORMS
        }
    return rank


def place(graph: str, ranks: int, n: int) -> dict[str, float]:
    """Compute the sizes of a rank with a contiguous block of devices, from the definition of the graph.

    A block of a torus is a strip of rows, next to one row of another rank on each side. In a random graph, a link
    leads to another rank with probability 1 - 1 / ranks.
    """
    elsewhere, local = 1 - 1 / ranks, n / ranks
    if graph == "torus":
        halo = cut = 2.0 * max(_sides(n)) * (ranks > 1)
        peers = min(2, ranks - 1)
    else:
        halo, cut = n * elsewhere * (1 - elsewhere**DEGREE), DEGREE * local * elsewhere
        peers = ranks - 1
    return {"local": local, "total": float(n), "halo": halo, "cut": cut, "peers": float(peers)}


def depth(graph: str, n: int) -> float:
    """Estimate the depth of the spanning tree, up to a constant."""
    return sum(_sides(n)) / 2 if graph == "torus" else math.log(n, DEGREE - 1)


def count_turns(graph: str, n: int, known: Rank) -> dict[str, float]:
    """Estimate the exchanges of n devices: those of a known run, and 4 more for each further layer of the tree."""
    deeper = 4 * (depth(graph, n) - depth(graph, int(known.sizes["total"])))
    return known.turns | {"initialization": known.turns["initialization"] + deeper}


def _sides(n: int) -> tuple[int, int]:
    side = next(side for side in range(math.isqrt(n), 0, -1) if n % side == 0)
    return side, n // side


class Table:
    """Rows of docs/results/scale.csv."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    def add(self, claim: str, names: tuple[str, str, str], value: str, unit: str = "") -> None:
        """Add a row, with the names of setting, row and statistic. Rows of a claim are numbered."""
        number = 1 + sum(row["id"].rpartition(".")[0] == claim for row in self.rows)
        origin = {
            "seeds": "0", "command": "python -m tests.benchmarks.scale", "version": p2pkm.__version__,
            "machine": _MACHINE, "date": time.strftime("%Y-%m-%d"),
        }  # fmt: skip
        name = dict(zip(("setting", "row", "statistic"), names, strict=True))
        self.rows.append({"id": f"{claim}.{number}", **name, "value": value, "unit": unit, **origin})

    def write(self, folder: Path) -> None:
        """Write the table; ``python docs/write_pages.py`` then writes its values into the pages."""
        with (folder / "scale.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)

    def __str__(self) -> str:
        widths = {"id": 20, "row": 50, "statistic": 44, "value": 1}
        return "\n".join("  ".join(f"{row[name]:<{width}}" for name, width in widths.items()) for row in self.rows)


def show(value: float, quantity: str) -> str:
    """Format bytes or, of processor time, seconds."""
    if quantity == "cpu":
        return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"
    size, unit = next(pair for pair in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if value >= pair[0] or pair[0] == 1e3)
    return f"{value / size:,.3g} {unit}"


def main() -> int:
    """Measure, fit, compare and apply."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write docs/results/scale.csv")
    parser.add_argument("--dump", type=Path, help="file of raw measurements; read instead of measured, if it exists")
    options = parser.parse_args()
    runs = _measure_all(options.dump)
    constants = fit([rank for (_, ranks, *_), run in runs.items() if ranks < CHECK[0] for rank in run])
    table = Table()
    for graph in GRAPHS:
        _compare(table, constants, graph, runs)
    for graph in GRAPHS:
        _apply(table, constants, graph, runs)
    _list_constants(table, constants)
    print(table)
    if options.write:
        table.write(_DOCS)
    return 0


def _compare(table: Table, constants: Constants, graph: str, runs: Runs) -> None:
    """Add prediction, measurement and error of the ranks of `CHECK`; of several ranks, the largest is measured."""
    ranks, n, _ = CHECK
    turns = count_turns(graph, n, runs[graph, *SIZES[2]][0])
    setting = f"{n:,} devices on {ranks} ranks, predicted from runs on 1 and 2 ranks"
    for role, chosen in (("root", slice(0, 1)), ("worker", slice(1, None))):
        predicted, measured = predict(constants, role, place(graph, ranks, n), turns), runs[graph, *CHECK][chosen]
        for name, quantities in SUMS.items():
            value, largest = predicted.add_up(*quantities), max(rank.add_up(*quantities) for rank in measured)
            row = f"{GRAPHS[graph]}, {_ROLES[role]}: {name}"
            table.add("scale-check", (setting, row, "predicted"), show(value, quantities[0]))
            table.add("scale-check", (setting, row, "measured"), show(largest, quantities[0]))
            table.add("scale-check", (setting, row, "error"), f"{100 * (value / largest - 1):+.1f} %", "%")


def _apply(table: Table, constants: Constants, graph: str, runs: Runs) -> None:
    """Add the prediction for `TARGET`."""
    ranks, n = TARGET
    sizes, turns = place(graph, ranks, n), count_turns(graph, n, runs[graph, *SIZES[2]][0])
    root, worker = (predict(constants, role, sizes, turns) for role in _ROLES)
    setting = f"{n:,} devices on {ranks} ranks, by the constants below"

    def add(row: str, value: str) -> None:
        table.add("scale-model", (setting, row, GRAPHS[graph]), value)

    add("links between ranks", f"{100 * ranks * sizes['cut'] / (DEGREE * n):.2g} %")
    add("halo devices of a rank", f"{sizes['halo']:,.0f}")
    for rank in (root, worker):
        phase = max(PHASES, key=lambda name, rank=rank: rank.phases[name]["peak"])  # type: ignore[misc]
        per_device = constants[phase, "peak"][f"total of {rank.role}"]
        add(f"memory, {_ROLES[rank.role]}", f"{show(rank.add_up('peak'), 'peak')} ({phase})")
        add(f"memory for devices of other ranks, {_ROLES[rank.role]}", show(per_device * (n - n / ranks), "peak"))
    tables = worker.phases["rounds"]["tables"] / ROUNDS
    processor = worker.phases["rounds"]["cpu"] / ROUNDS
    network = tables / BANDWIDTH + turns["rounds"] / ROUNDS * sizes["peers"] * LATENCY
    add("tables that a rank receives in a round", show(tables, "tables"))
    add("tables of a round, all ranks", show(tables * ranks, "tables"))
    add("processor time of a round", f"{processor:.2g} s")
    add("network time of a round, assumed", f"{network:.2g} s")
    for name, quantities in SUMS.items():
        if name != "memory":
            values = [show(rank.add_up(*quantities), quantities[0]) for rank in (root, worker)]
            add(f"{name} of the run, rank 0 / other rank", " / ".join(values))
    add("exchanges of the run", f"{sum(turns.values()):,.0f}")
    seconds = sum(max(rank.phases[phase]["cpu"] for rank in (root, worker)) for phase in PHASES)
    seconds += max(rank.add_up(*RECEIVED) for rank in (root, worker)) / BANDWIDTH
    seconds += sum(turns.values()) * sizes["peers"] * LATENCY
    add("time of the run, one core for each rank", f"{seconds / 60:.1f} min")


def _list_constants(table: Table, constants: Constants) -> None:
    """Add the fitted constants that are not 0."""
    for (phase, quantity), values in sorted(constants.items(), key=lambda item: list(FORMS).index(item[0][1])):
        unit, factor = ("µs", 1e6) if quantity == "cpu" else ("bytes", 1.0)
        for name, value in values.items():
            if value * factor >= _LEAST:
                names = f"{_TITLES[quantity]}, fitted on 1 and 2 ranks", phase, f"{unit}: {_UNITS[name]}"
                table.add(f"scale-{quantity}", names, f"{value * factor:,.4g}", unit)


def _measure_all(dump: Path | None) -> Runs:
    if dump is not None and dump.exists():
        stored = json.loads(dump.read_text())
        return {tuple(key): [Rank(*rank) for rank in run] for key, run in stored}
    # Compiles the kernels.
    measure("random-regular:degree=4", 2, 20_000, 0.5, 1)
    runs = {}
    for size in (*SIZES, CHECK):
        for graph in GRAPHS:
            print(*size, graph, file=sys.stderr, flush=True)
            runs[graph, *size] = measure(graph, *size)
    if dump is not None:
        dump.write_text(json.dumps([[key, run] for key, run in runs.items()]))
    return runs


if __name__ == "__main__":
    sys.exit(main())
