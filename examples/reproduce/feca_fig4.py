"""Xu et al., figure 4: the centroids of all methods among the points of S1 and S4, Dirichlet(0.3).

The paper shows one run of each method and says that FeCA's centroids are close to the true centers.

We show the run with seed 0, by class, and print the distances of all runs beside those of table 1.
"""

from typing import Any

from feca_table1 import PRINTED
from paper import canvas, claim, options, save, show
from ssets import METHODS, Case, deal, draw, load, row, run, study

SCENARIO = "0.3, by class"
SHOWN = [name for name in METHODS if name != "central"]


def tell(sets: tuple[int, ...], figure: str) -> Any:
    """Run, print the table of a figure and draw it."""
    chosen = options(__doc__, 40)
    panels, axes = canvas(len(sets), len(SHOWN), (2.3 * len(SHOWN), 2.55 * len(sets)))
    rows, first = [], []
    for number, line in zip(sets, axes, strict=True):
        data = load(chosen.data_dir, number)
        scores = study(data, {name: Case(METHODS[name][0], SCENARIO, METHODS[name][1]) for name in SHOWN}, chosen)
        first.append(min(scores, key=lambda name: scores[name].distance.mean()) == "FeCA")
        for ax, (name, found) in zip(line, scores.items(), strict=True):
            printed = row(f"S{number}, {name}", found.distance, PRINTED[number][name][1])
            rows.append(printed._replace(counted=False))  # table 1 counts it
            method, rounds = METHODS[name]
            centroids = run(method, deal(data, SCENARIO, 0), 0, rounds).server_centroids
            draw(ax, data, centroids, f"S{number}, {name}: {found.distance[0]:.1f}")
    note = claim("FeCA's centroids are the closest to the true centers", all(first))
    show(f"{figure}: l2-distance / 10^4, Dirichlet({SCENARIO})", rows, [note])
    save(panels, chosen.out, f"feca_fig{figure.split()[1]}")


if __name__ == "__main__":
    tell((1, 4), "Figure 4")
