"""GTVMin's choice of the coupling beside its rivals: ``python -m tests.benchmarks.choice FILE [--seeds 9001 9002]``.

Cells are worlds of `p2pkm.device_clusters` with 36 devices: what the centers follow, amplitude, and shape (sizes of the
devices, graph, clusters, features, points). No default was chosen on these seeds. Every entry plays every world; the
rows are appended to FILE, and a run that is in it is not repeated. Then the tables are printed:

* cost: test cost of coupling=auto over that of the best rival: common (treelloyd), alone (local), common with three
  local steps, Ditto and groups; geometric mean over the seeds;
* ARI: mean over the seeds, at the devices and over all of them together.

``--seconds`` measures instead runs of 16 and of 1,000 devices with coupling=auto and coupling=1, side by side.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import p2pkm

DEVICES = 36
AUTO, COMMON, PAID = "gtvmin:coupling=auto", "treelloyd", "gtvmin:coupling=1"
RIVALS = (COMMON, "local", "treelloyd:local_steps=3", "ditto", "gtvmin:groups=auto", "treelloyd:groups=auto")
ENTRIES = (AUTO, "gtvmin:coupling=strong", "gtvmin:coupling=bayes", "gtvmin:coupling=links", PAID, *RIVALS)
STARS = ("local", "ditto")  # these have no graph of the devices
AMPLITUDES = (0.35, 0.7, 1.0, 1.5)


class Shape(NamedTuple):
    """Shape of a world: graph, and options of `p2pkm.device_clusters`."""

    graph: str
    options: dict[str, Any]


SHAPES = {
    "even": Shape("torus", {"clusters": 4, "features": 2, "points": 20}),
    "uneven": Shape("small-world:degree=4,rewire=0.1",
                    {"clusters": 5, "features": 3, "points": 30, "size_alpha": 2.0, "freedom": 4.0}),
    "skewed": Shape("random-geometric", {"clusters": 8, "features": 5, "points": 40, "size_alpha": 0.5}),
    "classes, 30 points": Shape("torus", {"clusters": 5, "features": 2, "points": 30, "class_alpha": 0.3}),
    "classes, 100 points": Shape("torus", {"clusters": 5, "features": 2, "points": 100, "class_alpha": 0.3}),
}  # fmt: skip
SIZES, CLASSES = tuple(SHAPES)[:3], tuple(SHAPES)[3:]


class Cell(NamedTuple):
    """Cell of the comparison."""

    along: str
    amplitude: float
    shape: str

    def __str__(self) -> str:
        return f"{self.along} {self.amplitude:g}, {self.shape}"


CELLS = [
    *(Cell(*cell) for cell in product(("graph", "few", "groups", "other-graph"), AMPLITUDES, SIZES)),
    *(Cell(*cell) for cell in product(("graph", "few"), (0.7, 1.0), CLASSES)),
    *(Cell("none", 0.0, shape) for shape in SHAPES),
]


def play(cell: Cell, entry: str, seed: int) -> dict[str, Any]:
    """Run an entry in a world, and return what is compared."""
    graph, options = SHAPES[cell.shape]
    world = p2pkm.device_clusters(
        graph=graph, devices=DEVICES, along=cell.along, amplitude=cell.amplitude, seed=seed, **options
    )
    # Rounds are counted where they are compared.
    every = 1 if entry in (AUTO, PAID) else 1000
    result = p2pkm.simulate(
        entry, None if entry in STARS else graph, world.shards, clusters=options["clusters"], seed=seed,
        baselines=False, record_every=every,
    )  # fmt: skip
    found = {key: result.summary[key] for key in ("test_cost", "test_ari", "test_ari_all", "bytes", "coupling_chosen")}
    # Round 0 of a stage is its opening exchange.
    rounds = sum(record["round"] > 0 for record in result.rounds)
    return {**cell._asdict(), "entry": entry, "seed": seed, "rounds": rounds, **found}


def play_all(path: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Run what is not in the file; return the rows of these seeds."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    known = {(Cell(row["along"], row["amplitude"], row["shape"]), row["entry"], row["seed"]) for row in rows}
    with path.open("a", encoding="utf-8") as file:
        for cell, seed, entry in product(CELLS, seeds, ENTRIES):
            if (cell, entry, seed) not in known:
                rows.append(play(cell, entry, seed))
                print(json.dumps(rows[-1]), file=file, flush=True)
    return [row for row in rows if row["seed"] in seeds]


class Compared(NamedTuple):
    """Cell with the choice beside its rivals, over all seeds."""

    cell: Cell
    costs: dict[str, float]
    ari: dict[str, float]
    ari_all: dict[str, float]
    paid: tuple[float, float]
    chosen: str

    @property
    def rival(self) -> str:
        """Rival with the lowest cost."""
        return min(RIVALS, key=self.costs.__getitem__)

    @property
    def ratio(self) -> float:
        """Cost of the choice over that of the best rival."""
        return self.costs[AUTO] / self.costs[self.rival]


def compare(cell: Cell, rows: list[dict[str, Any]]) -> Compared:
    """Average the rows of a cell over its seeds."""
    mine = {entry: [row for row in rows if Cell(row["along"], row["amplitude"], row["shape"]) == cell
                    and row["entry"] == entry] for entry in ENTRIES}  # fmt: skip

    def average(key: str) -> dict[str, float]:
        # Local clusterings have no numbers in common, and no such value.
        return {
            entry: float(np.mean([row[key] for row in found]))
            for entry, found in mine.items()
            if all(row[key] is not None for row in found)
        }

    logs = {entry: np.log([row["test_cost"] for row in found]) for entry, found in mine.items()}
    costs = {entry: float(np.exp(np.mean(found))) for entry, found in logs.items()}
    paid = [np.mean([one[key] / two[key] for one, two in zip(mine[AUTO], mine[PAID], strict=True)])
            for key in ("rounds", "bytes")]  # fmt: skip
    chosen = ", ".join(dict.fromkeys(str(row["coupling_chosen"]) for row in mine[AUTO]))
    return Compared(cell, costs, average("test_ari"), average("test_ari_all"), (paid[0], paid[1]), chosen)


def list_cells(compared: Sequence[Compared]) -> Iterator[str]:
    """List a line per cell."""
    names = ("strong", "bayes", "links")
    yield f"{'cell':34} {'auto':>6} best rival             " + " ".join(
        f"{name:>6}" for name in (*names, "common", "alone", "tuned", "ditto", "groups")
    ) + "  ARI dev./common  over all/common  rounds bytes  chosen"  # fmt: skip
    for one in compared:
        best = one.costs[one.rival]
        others = [one.costs[f"gtvmin:coupling={name}"] for name in names]
        others += [one.costs[entry] for entry in RIVALS[:5]]
        yield (
            f"{one.cell!s:34} {one.ratio:6.3f} {one.rival:23}" + " ".join(f"{cost / best:6.3f}" for cost in others)
            + f"  {one.ari[AUTO]:7.3f} {one.ari[COMMON]:7.3f}  {one.ari_all[AUTO]:7.3f} {one.ari_all[COMMON]:7.3f}"
            + f"  {one.paid[0]:6.1f} {one.paid[1]:5.1f}  {one.chosen}"
        )  # fmt: skip


def list_findings(compared: Sequence[Compared]) -> Iterator[str]:
    """List what the cells show together."""

    def share(holds: list[bool]) -> str:
        return f"{sum(holds)} of {len(holds)} cells ({np.mean(holds):.0%})"

    ahead = [one for one in compared if one.cell.along in ("graph", "few") and one.cell.amplitude >= 0.7]
    ratios = {
        "along the graph or at few devices from .7 on, even or uneven": [
            one.ratio for one in ahead if one.cell.shape in SIZES[:2]
        ],
        "the same with skewed sizes": [one.ratio for one in ahead if one.cell.shape == SIZES[2]],
        "all cells where devices differ": [one.ratio for one in compared if one.cell.along != "none"],
    }
    for title, found in ratios.items():
        held = share([ratio <= 1.0 for ratio in found])
        yield f"not behind the best rival, {title}: {held}; median of the ratio {np.median(found):.3f}"
    gains = [one.ari_all[AUTO] - one.ari_all[COMMON] for one in compared]
    yield f"ARI over all at least that of common: {share([gain >= 0.0 for gain in gains])}"
    yield f"  at most .002 below: {share([gain >= -0.002 for gain in gains])}"
    same = [one.costs[AUTO] / one.costs[COMMON] for one in compared if one.cell.along == "none"]
    yield f"cost over common where devices do not differ: at most {max(same):.3f}, mean {np.mean(same):.3f}"
    classes = [one for one in compared if one.cell.shape in CLASSES]
    for key, title in (("ari", "at devices"), ("ari_all", "over all")):
        gains = [getattr(one, key)[AUTO] - getattr(one, key)[COMMON] for one in classes]
        yield (
            f"classes: gain of ARI {title} over common: median {np.median(gains):.3f}, "
            f"{min(gains):.3f} to {max(gains):.3f}"
        )
    for number, name in enumerate(("rounds", "bytes")):
        paid = [one.paid[number] for one in compared]
        yield f"{name} over those at coupling 1: median {np.median(paid):.1f}, at most {max(paid):.1f}"
    for one in sorted(compared, key=lambda one: -one.ratio):
        if one.ratio > 1.02:
            yield f"over 2 % behind: {one.cell}: {one.ratio:.3f} of {one.rival}; chosen {one.chosen}"


def measure_seconds(devices: int, repeats: int) -> tuple[float, float]:
    """Measure the processor time of a run with coupling=auto and with coupling=1; the least of some repeats."""
    world = p2pkm.device_clusters(graph="torus", devices=devices, amplitude=1.0, seed=9001)
    seconds: dict[str, list[float]] = {AUTO: [], PAID: []}
    for _ in range(repeats + 1):
        for entry, spent in seconds.items():
            began = time.process_time()
            p2pkm.simulate(entry, "torus", world.shards, clusters=4, seed=9001, baselines=False, record_every=1000)
            spent.append(time.process_time() - began)
    # The first run compiles.
    return min(seconds[AUTO][1:]), min(seconds[PAID][1:])


def main() -> None:
    """Run the cells, or measure seconds, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", default=Path("choice.jsonl"), metavar="FILE")
    parser.add_argument("--seeds", nargs="*", type=int, default=[9001, 9002])
    parser.add_argument("--seconds", action="store_true")
    given = parser.parse_args()
    if given.seconds:
        for devices, repeats in ((16, 5), (1_000, 1)):
            auto, one = measure_seconds(devices, repeats)
            print(f"{devices:,} devices: {auto:.2f} s with coupling=auto, {one:.2f} s with coupling=1", flush=True)
        return
    rows = play_all(given.file, given.seeds)
    compared = [compare(cell, rows) for cell in CELLS]
    print("\n".join([*list_cells(compared), "", *list_findings(compared)]))


if __name__ == "__main__":
    main()
