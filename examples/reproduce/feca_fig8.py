"""Xu et al., figure 8: FeCA's centroids if those that cover many clusters are not removed, S1, equal shares.

The paper shows some runs with k = 15 that end with fewer centroids, many of them between the true centers: a centroid
of many clusters has a large radius, and its ball joins others.

We show four runs without the removal and, with the same seeds, with it, from random starts (see feca_table5.py), and
compare the distances with those that belong to the errors of table 5.
"""

from math import sqrt

from paper import Row, canvas, claim, options, save, show
from ssets import Case, deal, draw, load, row, run, study

import p2pkm

METHODS = {
    "not removed": (p2pkm.FeCA(15, seeding="random", prune=False), 12977.2),
    "removed": (p2pkm.FeCA(15, seeding="random"), 6.7),
}  # and the error / 10^6 in table 5


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 50)
    data = load(chosen.data_dir, 1)
    scores = study(data, {name: Case(method) for name, (method, _) in METHODS.items()}, chosen)
    rows = [
        row(f"{name}, l2 / 10^4", scores[name].distance, (sqrt(15 * METHODS[name][1]) / 10,))._replace(counted=False)
        for name in METHODS
    ]
    rows += [Row(f"{name}, centroids", None, found.found) for name, found in scores.items()]
    fewer = float((scores["not removed"].found < 15).mean())
    show("Figure 8: FeCA, S1, IID", rows, [
        claim("without the removal there may be fewer than k centroids", fewer > 0) + f" ({fewer:.0%} of the runs)",
    ])  # fmt: skip
    figure, axes = canvas(2, 4, (10.5, 5.6))
    for line, (name, (method, _)) in zip(axes, METHODS.items(), strict=True):
        for seed, ax in enumerate(line):
            centroids = run(method, deal(data, "IID", seed), seed).server_centroids
            draw(ax, data, centroids, f"{name}, seed {seed}: {len(centroids)} centroids")
    save(figure, chosen.out, "feca_fig8")


if __name__ == "__main__":
    main()
