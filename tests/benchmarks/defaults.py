"""Which default of GTVMin is right everywhere: ``python -m tests.benchmarks.defaults [--seeds 3] [--only WORD]``.

Over configurations of data, graph, partition and size, in which devices have points of one clustering: the mean cost
ratio to central k-means, that of the worst device of any seed, the mean ratio of the start, bytes and rounds of

* default: ``gtvmin`` as it is by default: the choice of the coupling, over tree summaries;
* strong: coupling strong, messages of integers; real: the same with real numbers;
* relaxed: coupling strong with relaxation auto;
* rows: coupling strong from `rows:least=2`;
* jacobi, jacobi-integers, async, async-real: coupling strong with another schedule, and with the other kind of numbers;
* earlier: coupling 30, relaxation 1.5, over flooded summaries.

Below each of them the totals: how many configurations end worse than their start by more than .002, the largest mean,
the largest worst device.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from p2pkm import simulate
from p2pkm.core.cache import shared_cache
from p2pkm.engine.run_options import RunOptions
from tests.support.prepare import prepare

GRAPHS = ("ring 10", "ring 32", "ring 100", "ring 300", "path 32", "path 60", "path 100", "grid 100", "barbell 40",
          "star 16", "star 100", "star 200", "tree 127", "small-world 100", "random-regular:degree=4 64")  # fmt: skip
SKEWS = ("dirichlet:alpha=0.3", "beta:beta=0.1")
MORE = ("dirichlet:alpha=0.1", "iid")
GRID = "grid16:points=100"
CASES = [  # data, graph and devices, partition
    *((GRID, graph, skew) for graph in GRAPHS for skew in SKEWS),
    *((GRID, graph, skew) for graph in GRAPHS[::2] for skew in MORE),
    *(("digits:components=10", graph, skew) for graph in ("ring 10", "path 32", "star 16", "grid 64")
      for skew in (SKEWS[0], "iid")),
    *(("slike", graph, SKEWS[0]) for graph in ("ring 32", "path 60", "barbell 40", "star 100")),
    *(("wine", graph, skew) for graph in ("ring 10", "small-world 16", "star 16") for skew in (SKEWS[0], "iid")),
    *(("blobs:clusters=8", graph, SKEWS[0]) for graph in ("ring 100", "tree 31", "star 100", "path 60")),
]  # fmt: skip
STRONG: dict[str, Any] = {"coupling": "strong"}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "strong": STRONG,
    "real": STRONG | {"quantize": "none"},
    "relaxed": STRONG | {"relaxation": "auto"},
    "rows": STRONG | {"init": "rows:least=2"},
    "jacobi": STRONG | {"schedule": "jacobi"},
    "jacobi-integers": STRONG | {"schedule": "jacobi", "quantize": "rice"},
    "async": STRONG | {"schedule": "async"},
    "async-real": STRONG | {"schedule": "async", "quantize": "none"},
    "earlier": {"coupling": 30.0, "init": "flooded-summaries:candidates=5"},
}
FIGURES = ("ratio_mean", "ratio_worst", "ratio_start", "coupling", "bytes", "wire_bytes", "rounds")
_WORSE = 2e-3  # than the start


def play(case: tuple[str, str, str], variant: str, seed: int) -> dict[str, Any]:
    """Return the figures of one run."""
    data, place, skew = case
    graph, devices = place.split()
    experiment = RunOptions(data=data, graph=graph, devices=int(devices), partition=skew, seed=seed)
    ready = prepare(replace(experiment, **VARIANTS[variant]), 1)
    run, numbers = ready, ready.completed.quantize
    summary = simulate(
        run.algorithm, run.topology, ready.points, seed=seed, record_every=1000, quantize=numbers
    ).summary
    return {key: summary[key] for key in FIGURES}


def measure(cases: list[tuple[str, str, str]], variants: list[str], seeds: range) -> Iterator[dict[str, Any]]:
    """Yield the figures of every run as it ends."""
    for case, seed in product(cases, seeds):
        with shared_cache():
            for variant in variants:
                yield {"case": " ".join(case), "variant": variant, "seed": seed} | play(case, variant, seed)


def tabulate(rows: list[dict[str, Any]]) -> str:
    """Return a line for every configuration and variant, and the totals of every variant."""
    lines = [f"{'configuration':52} {'variant':15} {'start':>7} {'mean':>7} {'device':>7} {'c':>6} "
             f"{'kB':>8} {'wire':>8} {'rounds':>6}"]  # fmt: skip
    totals: dict[str, list[tuple[float, ...]]] = {}
    for case, variant in dict.fromkeys((row["case"], row["variant"]) for row in rows):
        own = [row for row in rows if (row["case"], row["variant"]) == (case, variant)]
        mean = {key: float(np.mean([row[key] for row in own])) for key in FIGURES}
        worst = max(row["ratio_worst"] for row in own)
        change = max(row["ratio_mean"] - row["ratio_start"] for row in own)
        rise = max(row["ratio_worst"] - row["ratio_start"] for row in own)
        sizes = (mean["bytes"] / 1000, mean["wire_bytes"] / 1000, mean["rounds"])
        totals.setdefault(variant, []).append((change, mean["ratio_mean"], worst, rise, *sizes))
        lines.append(
            f"{case:52} {variant:15} {mean['ratio_start']:7.4f} {mean['ratio_mean']:7.4f} {worst:7.4f} "
            f"{mean['coupling']:6.0f} {mean['bytes'] / 1000:8.0f} "
            f"{mean['wire_bytes'] / 1000:8.0f} {mean['rounds']:6.1f}"
        )
    for variant, found in totals.items():
        change, mean_ratio, device, rise, *sizes = np.array(found).T
        kb, wire, rounds = (float(one.mean()) for one in sizes)
        lines.append(
            f"{variant:15} a run ends worse than its start by more than {_WORSE}: {int((change > _WORSE).sum())} of "
            f"{len(found)}; largest rise of a run {change.max():.4f}, of a device {rise.max():.4f}; largest mean "
            f"{mean_ratio.max():.4f}, worst device {device.max():.4f}, mean of all {mean_ratio.mean():.5f}; "
            f"{kb:,.0f} kB, on the wire {wire:,.0f}, {rounds:.1f} rounds"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", default="", help="configurations with this text in their name")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--json", help="file to write every run into, a line each")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in " ".join(case)]
    rows = []
    for row in measure(cases, options.variants, range(options.first, options.first + options.seeds)):
        rows.append(row)
        if options.json:
            with open(options.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    print(tabulate(rows))


if __name__ == "__main__":
    main()
