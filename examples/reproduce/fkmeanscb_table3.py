"""Deng, Wang and Alobaedy, table 3: FKmeansCB with more and less noise (epsilon from 1 to 20).

The paper prints the best adjusted Rand index of 20 runs for four values of epsilon (Laplace noise of the scale
1 / epsilon in the units of the data) and says that noise matters little for most sets. Its values for thyroid, breast
and iris are higher with the most noise than with the least.

We compare the best of our runs at the numbers of clusters of table 2 and print the mean beside it. The second table
picks for every epsilon, by the labels, too, how many clusters a client looks for ("k1 picked"): the paper reports the
best of runs "with different parameter values".
"""

from itertools import product
from typing import Any

import numpy as np
from deng import ALLOWED, CLIENTS, LARGE, SMALL, WIDTHS, backbone, draw_runs, explain_marks, load, study
from paper import Row, canvas, claim, options, save, show

from p2pkm.viz.style import BLUE, ORANGE

EPSILONS = (1, 5, 10, 20)
PRINTED = {  # by data set, for each epsilon
    "thyroid": (0.64, 0.62, 0.62, 0.60), "breast": (0.22, 0.20, 0.19, 0.20), "ecoli": (0.45, 0.69, 0.74, 0.71),
    "iris": (0.88, 0.82, 0.79, 0.75), "covertype": (0.05, 0.04, 0.05, 0.05), "mnist": (0.88, 0.88, 0.88, 0.88),
}  # fmt: skip
TRIED = range(2, 16)  # k1


def list_cases(sets: dict[str, Any]) -> dict[Any, Any]:
    """Return (name, epsilon, k1): (method, data, clients); of the large sets with the k1 of table 2 only."""
    cases = {}
    for (name, data), epsilon in product(sets.items(), EPSILONS):
        for k1 in [WIDTHS[name][0]] if name in LARGE else TRIED:
            cases[name, epsilon, k1] = backbone(name, local_k=k1, epsilon=float(epsilon)), data, CLIENTS
    return cases


def list_picked(scores: dict[Any, Any]) -> list[Row]:
    """Return a line with all runs of all k1 for each small set and each epsilon."""
    rows = []
    for name, epsilon in product(SMALL, EPSILONS):
        runs = {k1: scores[name, epsilon, k1][:, 0] for k1 in TRIED}
        k1 = max(runs, key=lambda one: runs[one].max())
        what = f"{name}, epsilon {epsilon}, k1 picked: {k1}"
        paper, values = PRINTED[name][EPSILONS.index(epsilon)], np.concatenate([*runs.values()])
        rows.append(Row(what, paper, values, ALLOWED, best=True, counted=False))
    return rows


def discuss(means: dict[str, list[float]]) -> list[str]:
    """Return what the paper says and what we think of it; `means` for each epsilon, from 1 on."""
    small = {name: means[name] for name in SMALL}
    return [
        claim("the impact is not particularly significant for most sets (we take: our means at 1 and 20 within 0.06)",
              sum(abs(mean[0] - mean[-1]) <= ALLOWED for mean in small.values()) > len(small) / 2),
        claim("noise raises the index of thyroid, breast and iris (we take: our mean at 1 above that at 20)",
              all(small[name][0] > small[name][-1] for name in ("thyroid", "breast", "iris"))),
        "Noise spreads the runs, so the best of them, chosen by the labels, can rise while their mean falls. The more",
        "  runs there are to choose from, the higher it is: see the second table.",
    ]  # fmt: skip


def draw(ax: Any, name: str, rows: list[Row], picked: list[Row]) -> None:
    """Draw the runs for each epsilon, and the best of all k1."""
    places = range(len(EPSILONS))
    draw_runs(ax, rows, places, [BLUE] * len(rows))
    if picked:
        best = [np.max(row.values) for row in picked]
        ax.plot(places, best, "v--", color=ORANGE, ms=6, lw=1.2, label="best, k1 picked")
    ax.set_xticks(places, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set_title(f"{name}, k1 = {WIDTHS[name][0]}, k2 = {WIDTHS[name][1]}", fontsize=11)
    ax.set_xlabel("epsilon (1: most noise)")


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 20)
    sets = load(chosen.data_dir)
    scores = study(list_cases(sets), chosen)
    lines = {
        name: [Row(f"{name}, epsilon {epsilon}", PRINTED[name][e], scores[name, epsilon, WIDTHS[name][0]][:, 0],
                   ALLOWED, True) for e, epsilon in enumerate(EPSILONS)]
        for name in sets
    }  # fmt: skip
    means = {name: [float(np.mean(row.values)) for row in rows] for name, rows in lines.items()}
    show("Table 3: ARI at the k1 of table 2", [row for rows in lines.values() for row in rows], discuss(means))
    picked = list_picked(scores)
    tried = f"k1 = {TRIED[0]} to {TRIED[-1]}"
    noisy = next(np.asarray(row.values) for row in picked if row.what.startswith("iris, epsilon 1,"))
    near = int((noisy >= PRINTED["iris"][0] - ALLOWED).sum())
    told = f"iris, epsilon 1: {near} of all {len(noisy)} runs come within {ALLOWED} of the .88 of the paper or above it"
    show(f"Table 3: ARI, the best over {tried}, too", picked, [told])
    figure, axes = canvas(1, len(sets), (3.3 * len(sets), 4.2))
    for name, ax in zip(sets, axes[0], strict=True):
        draw(ax, name, lines[name], [row for row in picked if row.what.startswith(name)])
    axes[0][0].set_ylabel("adjusted Rand index")
    lines_of_best = axes[0][0].get_legend_handles_labels()[0]
    explain_marks(figure, lines_of_best, loc="outside upper center", ncols=5, frameon=False)
    save(figure, chosen.out, "fkmeanscb_table3")


if __name__ == "__main__":
    main()
