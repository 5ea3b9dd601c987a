"""Deng, Wang and Alobaedy, figure 6: the clusters that FKmeansCB finds in R15 and in MNIST.

The paper shows two pictures without numbers: R15 (15 clusters of 40 points in two dimensions) and MNIST, reduced to two
dimensions. The settings are not given; we take ten clients, k1 = k2 = 15 for R15, and those of table 2 for MNIST.

We draw the best of the runs beside the classes, and compare its scores on MNIST, if it is there, with table 2; those of
central k-means, the best of ten seedings, stand beside them.
"""

from typing import Any

import numpy as np
from deng import ALLOWED, CLIENTS, EPSILON, SCORES, Set, deal, load, nearest, study
from fkmeanscb_table2 import PRINTED
from paper import Row, canvas, claim, options, save, show

import p2pkm
from p2pkm.viz.style import CATEGORIES, INK

METHODS = {
    "r15": p2pkm.FKMeansCB(15, local_k=15, epsilon=EPSILON, client_n_init=1, server_n_init=1),
    "mnist": p2pkm.FKMeansCB(10, local_k=200, epsilon=EPSILON, client_n_init=1, server_n_init=1),
}  # fmt: skip
SHAPES = "osD^"


def draw(ax: Any, x: Any, labels: Any) -> None:
    """Draw points in the color and the shape of their cluster."""
    sample = np.random.default_rng(0).permutation(len(x))[:5000]
    for c in np.unique(labels):
        own = sample[labels[sample] == c]
        shape, color = SHAPES[c // len(CATEGORIES) % len(SHAPES)], CATEGORIES[c % len(CATEGORIES)]
        ax.scatter(*x[own, :2].T, s=10 if len(sample) < 1000 else 3, marker=shape, color=color, linewidth=0)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set(xlabel="$x_0$", ylabel="$x_1$")
    ax.spines[["top", "right"]].set_visible(False)


def draw_best(axes: Any, name: str, data: Set, scores: Any) -> None:
    """Draw the classes, and the clusters of the run with the highest adjusted Rand index."""
    best = int(scores[:, 0].argmax())
    run = p2pkm.simulate(METHODS[name], None, deal(data, CLIENTS, best), seed=best, baselines=False)
    assert run.server_centroids is not None  # of a server method
    draw(axes[0], data.x, data.labels)
    axes[0].set_title(f"{name}: the classes", fontsize=11)
    draw(axes[1], data.x, nearest(data.x, run.server_centroids))
    axes[1].scatter(*run.server_centroids[:, :2].T, marker="x", s=40, color=INK, linewidth=1.5)
    index, information = scores[best]
    axes[1].set_title(f"FKmeansCB, best of {len(scores)}: ARI {index:.3f}, NMI {information:.3f}", fontsize=11)


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 20)
    sets = load(chosen.data_dir, list(METHODS))
    cases: dict[Any, Any] = {(name, "FKmeansCB"): (METHODS[name], data, CLIENTS) for name, data in sets.items()}
    cases |= {(name, "k-means"): (p2pkm.Central(data.classes, n_init=10), data, CLIENTS) for name, data in sets.items()}
    scores = study(cases, chosen)
    near = all(scores[name, "FKmeansCB"][:, 0].max() > scores[name, "k-means"][:, 0].mean() - ALLOWED for name in sets)
    for s, score in enumerate(SCORES):
        printed = {name: PRINTED[name]["FKmeansCB", (200, 10)][s] for name in sets if name == "mnist"}
        rows = [Row(f"{name}, {method}", printed.get(name) if method == "FKmeansCB" else None, own[:, s], ALLOWED,
                    best=True, counted=False)
                for (name, method), own in scores.items()]  # fmt: skip
        text = f"FKmeansCB finds the clusters (we take: its best index at most {ALLOWED} below central k-means)"
        show(f"Figure 6: {score}", rows, [] if s else [claim(text, near)])
    figure, axes = canvas(len(sets), 2, (9.6, 4.9 * len(sets)))
    for line, (name, data) in zip(axes, sets.items(), strict=True):
        draw_best(line, name, data, scores[name, "FKmeansCB"])
    save(figure, chosen.out, "fkmeanscb_fig6")


if __name__ == "__main__":
    main()
