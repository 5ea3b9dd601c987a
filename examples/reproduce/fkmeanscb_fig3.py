"""Deng, Wang and Alobaedy, figure 3: how long FKmeansCB takes beside k-means, k-FED and MUFC on large data.

The paper compares seconds on MNIST and Covertype, both in two dimensions, and says: k-means takes least, FKmeansCB has
the same order of magnitude, k-FED and MUFC take much more. It prints no numbers in the text.

We compare ratios to k-means, not seconds: within a run all methods take turns on one core, on the same data. The time
is that of the simulation, in which the ten clients work one after another; side by side their share would be a tenth.
Where `mnist.csv` or `covertype.csv` (see deng.py) is not in the folder of the data, as many points are drawn from as
many Gaussians; --points draws fewer. The numbers of clusters are those of table 2; a line with k1 = 10 shows what its
k1 = 200 costs. The times of several processes would disturb each other: --jobs has no effect.
"""

from pathlib import Path
from typing import Any

import numpy as np
from deng import CLIENTS, COLORS, Set, backbone, deal, load, pool
from paper import Row, canvas, claim, options, save, show

import p2pkm
from p2pkm.viz.style import GRAY, INK

SIZES = {"mnist": (70_000, 10), "covertype": (581_012, 7)}  # points and classes
NUMBERS = {"mnist": {"k-means": 10, "k-FED": (10, 2), "MUFC": (10, 8)},
           "covertype": {"k-means": 7, "k-FED": (7, 2), "MUFC": (5, 4)}}  # fmt: skip


def list_methods(name: str) -> dict[str, Any]:
    """Return the methods with the paper's numbers of clusters."""
    numbers: dict[str, Any] = NUMBERS[name]
    (fed, fed_local), (mufc, mufc_local) = numbers["k-FED"], numbers["MUFC"]
    return {
        f"k-means {numbers['k-means']}": p2pkm.Central(numbers["k-means"], n_init=1),
        f"cdkm {numbers['k-means']}": p2pkm.Central(numbers["k-means"], method="cdkm", n_init=1),
        f"k-FED {fed}/{fed_local}": p2pkm.KFED(fed, local_k=fed_local, seeding="plain", finish="one"),
        f"MUFC {mufc}/{mufc_local}": p2pkm.MUFC(mufc, local_k=mufc_local),
        "FKmeansCB 200/10": backbone(name),
        "FKmeansCB 10/10": backbone(name, local_k=10),
    }


def supply(name: str, folder: Path | None, points: int | None) -> tuple[Set, str]:
    """Read a data set, or draw one of its size, at most so many points; say what it is."""
    if found := load(folder, [name]):
        return found[name], name
    count, classes = SIZES[name]
    each = min(count, points or count) // classes
    return pool(*p2pkm.blobs(clusters=classes, points=each, seed=0)), f"drawn instead of {name}"


def clock(methods: dict[str, Any], data: Set, runs: int) -> dict[str, Any]:
    """Return the seconds of every method, float64[runs]; a first run, which compiles, does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(-1, runs):
        shards = deal(data, CLIENTS, max(seed, 0))
        for name, method in methods.items():
            summary = p2pkm.simulate(method, None, shards, seed=max(seed, 0), baselines=False).summary
            seconds[name].append(summary["wall_seconds"])
    return {name: np.array(own[1:]) for name, own in seconds.items()}


def discuss(ratio: dict[str, float]) -> list[str]:
    """Return what the paper says of the times, and whether ours show it; `ratio`: medians relative to k-means."""
    fed, mufc = (next(value for name, value in ratio.items() if name.startswith(one)) for one in ("k-FED", "MUFC"))
    ours, few = ratio["FKmeansCB 200/10"], ratio["FKmeansCB 10/10"]
    return [
        claim("k-means takes least", min(fed, mufc, ours) > 1),
        claim("FKmeansCB has the order of magnitude of k-means (we take: less than 10 times)", ours < 10),
        claim("FKmeansCB takes much less than k-FED and MUFC (we take: less than half)", ours < min(fed, mufc) / 2),
        claim("the same with k1 = 10", few < min(fed, mufc) / 2),
        "A Lloyd step costs points times clusters, so k1 = 200 costs a hundred times the 2 of k-FED, and k-means lies",
        "  between: the order in the paper may be that of its programs, but not of the methods' work.",
    ]


def draw(ax: Any, name: str, rows: list[Row]) -> None:
    """Draw the ratio of every run as a dot, their median as a bar with its value."""
    for place, row in enumerate(rows):
        color = COLORS[row.what.split(": ")[1].split()[0]]
        middle = float(np.median(row.values))
        ax.scatter(row.values, np.full(len(row.values), place), s=22, color=color, alpha=0.6, linewidth=0)
        ax.scatter(middle, place, s=260, marker="|", color=INK, linewidth=1.8, zorder=3)
        ax.annotate(
            f"{middle:.2g}", (max(row.values), place), (6, 0), textcoords="offset points", va="center", fontsize=9
        )
    ax.set_yticks(range(len(rows)), [row.what.split(": ")[1] for row in rows])
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.grid(axis="x", color=GRAY, alpha=0.3)
    ax.margins(x=0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(name, fontsize=11)
    ax.set_xlabel("time relative to k-means, median of the runs")


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 5, points={"type": int, "help": "at most so many points of a drawn set"})
    figure, axes = canvas(1, len(SIZES), (11, 3.8))
    for name, ax in zip(SIZES, axes[0], strict=True):
        data, origin = supply(name, chosen.data_dir, chosen.points)
        seconds = clock(list_methods(name), data, chosen.runs)
        ratios = {method: own / next(iter(seconds.values())) for method, own in seconds.items()}
        rows = [Row(f"{name}: {method}", None, own) for method, own in ratios.items()]
        show(f"Figure 3, {len(data.x)} points, {origin}: time relative to k-means", rows,
             discuss({method: float(np.median(own)) for method, own in ratios.items()}))  # fmt: skip
        draw(ax, f"{len(data.x):,} points, {origin}", rows)
    save(figure, chosen.out, "fkmeanscb_fig3")


if __name__ == "__main__":
    main()
