"""Xu et al., figures 13 to 18: what clients and server find on S1 with k' = 10, with k' = 20, and with k = 10.

The paper shows the clusters of some clients and FeCA's centroids, for equal shares (13, 15, 17) and Dirichlet(0.3) (14,
16, 18). It says that with k' = 10 centroids of many clusters stay and the server may find fewer than k, that k' = 20
does little harm, and that with k = 10 the centroids are still close to true centers.

We show three clients and the server, with seed 0, by class; an open circle is a centroid of the client's k-means, a
dot one that it sends. The table holds the number of centroids and their distance, beside that of table 10.
"""

from math import sqrt
from typing import Any

import numpy as np
from feca_table10 import PRINTED
from paper import Row, canvas, claim, options, save, show
from ssets import PLACES, UNIT, Case, Sset, deal, draw, frame, listen, load, nearest, row, study

import p2pkm
from p2pkm.viz.style import CATEGORIES, INK

FIGURES = {
    13: ((15, 10), "IID"), 14: ((15, 10), "0.3, by class"), 15: ((15, 20), "IID"), 16: ((15, 20), "0.3, by class"),
    17: ((10, 15), "IID"), 18: ((10, 15), "0.3, by class"),
}  # fmt: skip


def draw_client(ax: Any, points: Any, every: Any, sent: Any, title: str) -> None:
    """Draw the points of a client in the colors of their clusters, all its centroids, and those it sends."""
    labels = nearest(points, every)
    ax.scatter(*points.T / UNIT, s=5, c=[CATEGORIES[c % len(CATEGORIES)] for c in labels], alpha=0.5, linewidth=0)
    ax.scatter(*every.T / UNIT, s=46, facecolor="none", edgecolor=INK, linewidth=1.1)
    ax.scatter(*sent.T / UNIT, s=16, color=INK)
    frame(ax, title)


def picture(data: Sset, size: tuple[int, int], scenario: str) -> Any:
    """Return a figure: three clients and the server."""
    figure, axes = canvas(1, 4, (12, 3.4), sharex=True, sharey=True)
    shards = deal(data, scenario, 0)
    k, local = size
    _, every = listen(p2pkm.FeCA(k, local_k=local, prune=False), shards, 0)
    centroids, sent = listen(p2pkm.FeCA(k, local_k=local), shards, 0)
    for i, ax in enumerate(axes[0, :3]):
        own = shards.points[shards.devices == i]
        draw_client(ax, own, every[i][:, :-1], sent[i][:, :-1], f"client {i}, k' = {local}: sends {len(sent[i])}")
    draw(axes[0, 3], data, centroids, f"server, k = {k}: {len(centroids)} centroids")
    figure.suptitle(f"S1, {'IID' if scenario == 'IID' else f'Dirichlet({scenario})'}")
    return figure


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 40)
    data = load(chosen.data_dir, 1)
    cases = {
        number: Case(p2pkm.FeCA(size[0], local_k=size[1]), scenario) for number, (size, scenario) in FIGURES.items()
    }
    scores, rows = study(data, cases, chosen), []
    for number, ((k, local), scenario) in FIGURES.items():
        what, found = f"figure {number}: k = {k}, k' = {local}, {scenario}", scores[number]
        printed = sqrt(PRINTED[k, local][PLACES[scenario]] * k) / 10
        rows.append(row(f"{what}, l2", found.distance, (printed,))._replace(counted=False))
        rows.append(Row(f"{what}, centroids", None, found.found))
    ends = {number: found.distance.mean() for number, found in scores.items()}
    show("Figures 13 to 18: l2-distance / 10^4, S1", rows, [
        claim("with k' = 10 the server may find fewer than 15", bool(np.min(scores[13].found) < 15)),
        claim("k' = 20 does less harm than k' = 10", ends[15] < ends[13] and ends[16] < ends[14]),
    ])  # fmt: skip
    for number, (size, scenario) in FIGURES.items():
        save(picture(data, size, scenario), chosen.out, f"feca_fig{number}")


if __name__ == "__main__":
    main()
