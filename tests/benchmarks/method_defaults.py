"""Comparison of defaults: ``python -m tests.benchmarks.method_defaults SPEC ... [--half select] [--seeds 0-3]``.

Twelve tasks, each with Dirichlet 0.1 and iid partitions. Defaults are chosen on the half `select`, every other task in
the order below, and checked on the half `check`, with other seeds. Even seeds use a ring, odd seeds a small world.

The rule: a candidate qualifies if the geometric mean and the 90 % quantile of its excess are at most 1.1 times the
smallest of all candidates. Of these, the one with the fewest bytes is chosen. A new default is confirmed if, on the
half `check`, neither of the two grows, or if both grow by at most 5 % and bytes are saved.

The excess is that of the mean device over the least cost of any run on these points and of central k-means (best of
20), at least 0.01 %.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import p2pkm
import topologies
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import P2PKMError
from p2pkm.core.spec import read_range
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_method
from p2pkm.methods.init.pipelines import needs_hub

FLOOR = 1e-4
DEVICES = 10
Points = tuple[np.ndarray, np.ndarray]


def _standardize(loaded: Any) -> Points:
    points = loaded.data
    return (points - points.mean(axis=0)) / points.std(axis=0), loaded.target


def _imbalanced(seed: int, factor: int) -> Points:
    """Ten clusters of 400 to 6 points, times a factor."""
    rng = np.random.default_rng([seed, 1])
    sizes = factor * np.rint(np.geomspace(400, 6, 10)).astype(int)
    y = np.repeat(np.arange(10), sizes)
    return rng.uniform(-12, 12, (10, 2))[y] + rng.normal(size=(len(y), 2)), y


def _heavy_tails(seed: int, factor: int) -> Points:
    rng = np.random.default_rng([seed, 2])
    y = np.repeat(np.arange(8), 80 * factor)
    return rng.uniform(-15, 15, (8, 2))[y] + rng.standard_t(3, size=(len(y), 2)), y


def _outliers(seed: int, factor: int) -> Points:
    points, y = p2pkm.blobs(clusters=8, points=80 * factor, box=12.0, seed=seed)
    rng = np.random.default_rng([seed, 3])
    far = rng.choice(len(y), len(y) // 50, replace=False)
    points[far] = rng.uniform(-60, 60, (len(far), 2))
    return points, y


TASKS: dict[str, Callable[[int, int], Points]] = {
    "grid16": lambda seed, factor: p2pkm.grid16(points=50 * factor, seed=seed),
    "slike": lambda seed, factor: p2pkm.slike(points=50 * factor, seed=seed),
    "blobs50": lambda seed, factor: p2pkm.blobs(clusters=10, points=60 * factor, features=50, box=2.0, seed=seed),
    "digits": lambda seed, factor: load_digits(return_X_y=True),
    "wine": lambda seed, factor: _standardize(load_wine()),
    "breast": lambda seed, factor: _standardize(load_breast_cancer()),
    "imbalanced": _imbalanced,
    "heavy tails": _heavy_tails,
    "dominant": lambda seed, factor: p2pkm.grid16(points=50 * factor, seed=100 + seed),
    "few": lambda seed, factor: p2pkm.blobs(clusters=8, points=20 * factor, box=10.0, seed=seed),
    "overlap": lambda seed, factor: p2pkm.blobs(clusters=8, points=80 * factor, sd=2.5, box=10.0, seed=seed),
    "outliers": _outliers,
}
HALVES = {"select": list(TASKS)[::2], "check": list(TASKS)[1::2]}


def make_shards(task: str, partition: str, seed: int, factor: int) -> tuple[p2pkm.Shards, int]:
    """Assign the points of a task; return the shards and k."""
    points, y = TASKS[task](seed, factor)
    n, k = (16 if task == "few" else DEVICES), len(np.unique(y))
    if partition == "iid":
        owner = p2pkm.partition.iid(len(y), n, seed=seed)
    else:
        owner = p2pkm.partition.dirichlet(y, n, alpha=0.1, seed=seed)
    if task == "dominant":
        rng = np.random.default_rng([seed, 4])
        owner = np.where(rng.random(len(y)) < 0.9, 0, owner)
    return p2pkm.Shards.deal(points, owner, labels=y, devices=n), k


def measure(spec: str, shards: p2pkm.Shards, k: int, seed: int, **options: Any) -> dict[str, Any]:
    """Run one method; a refusal is a row without cost."""
    spec, _, numbers = spec.partition("@")
    try:
        method = parse_method(RunOptions(algorithm=spec)).build(k)
        star, n = needs_hub(method), shards.n
        graph = (
            None if star else topologies.ring(n) if seed % 2 == 0 else topologies.small_world(n, degree=4, rewire=0.2)
        )
        result = p2pkm.simulate(
            method, graph, shards, seed=seed, record_every=1000, quantize=numbers or "auto", **options
        )
    except P2PKMError as error:
        return {"error": str(error)}
    summary = result.summary
    keys = ("ratio_mean", "ratio_worst", "ratio_start", "bytes", "wire_bytes", "rounds", "termination")
    return {key: summary.get(key) for key in keys}


def play(specs: list[str], tasks: list[str], seeds: range, options: Any) -> Iterator[dict[str, Any]]:
    """Yield the row of each run. A last method supplies a reference."""
    for task, partition, seed in product(tasks, options.partitions, seeds):
        with shared_cache():
            shards, k = make_shards(task, partition, seed, options.factor)
            rows = [measure(spec, shards, k, seed) for spec in [*specs, "treelloyd:search=breathing"]]
        costs = [row["ratio_mean"] for row in rows if row.get("ratio_mean") is not None]
        least = min([1.0, *filter(np.isfinite, costs)])
        for spec, row in zip(specs, rows, strict=False):
            cost = row.get("ratio_mean")
            excess = np.inf if cost is None else max(cost / least - 1.0, FLOOR)
            yield {"task": task, "partition": partition, "seed": seed, "spec": spec, "excess": excess} | row


def tabulate(rows: list[dict[str, Any]]) -> str:
    """Format a line for each method."""
    lines = [
        f"{'method':44} {'geomean':>8} {'90 %':>8} {'worst':>8} {'failed':>6} {'kB':>8} {'coded':>8} {'rounds':>6}"
    ]
    for spec in dict.fromkeys(row["spec"] for row in rows):
        chosen = [row for row in rows if row["spec"] == spec]
        excess = np.array([row["excess"] for row in chosen])
        is_finite = np.isfinite(excess)
        done = [row for row in chosen if "error" not in row]
        size, coded = (
            np.exp(np.mean([np.log(max(row[key], 1)) for row in done])) / 1e3 for key in ("bytes", "wire_bytes")
        )
        rounds = np.mean([row["rounds"] for row in done])
        geomean = np.exp(np.log(excess[is_finite]).mean())
        lines.append(
            f"{spec:44} {100 * geomean:7.3f}% {100 * np.quantile(excess[is_finite], 0.9):7.2f}% "
            f"{100 * excess[is_finite].max():7.1f}% {int((~is_finite).sum()):6} {size:8.1f} {coded:8.1f} {rounds:6.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table of a half; with --by also for each task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("specs", nargs="+", help="method specs; SPEC@none or SPEC@rice selects --quantize")
    parser.add_argument("--half", choices=[*HALVES, "all"], default="select")
    parser.add_argument("--tasks", nargs="*", help="tasks instead of a half")
    parser.add_argument("--partitions", nargs="*", default=["dirichlet", "iid"])
    parser.add_argument("--seeds", default="0-3")
    parser.add_argument("--factor", type=int, default=1, help="times as many points in generated tasks")
    parser.add_argument("--by", action="store_true", help="also a table for each task and partition")
    parser.add_argument("--json", help="file to which every run is appended, a line each")
    options = parser.parse_args()
    tasks = options.tasks or HALVES.get(options.half, list(TASKS))
    seeds = read_range(options.seeds)
    rows = []
    for row in play(options.specs, tasks, seeds, options):
        rows.append(row)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    if options.by:
        for task, partition in dict.fromkeys((row["task"], row["partition"]) for row in rows):
            print(f"\n{task}, {partition}")
            print(tabulate([row for row in rows if (row["task"], row["partition"]) == (task, partition)]))
        print("\nall")
    print(tabulate(rows))


if __name__ == "__main__":
    main()
