"""Garst and Reinders, figure 1: sixteen clusters, dealt to five clients more or less unevenly.

The paper shows the points (a), the adjusted Rand index of central k-means, FKM and k-FED for beta = 0.1, 1 and 10 (b),
who holds which points (c to e), and a clustering by each of the three methods for beta = 0.1 (f to h). "Informed" k-FED
gets the number of clusters per client, k', that is best on the labels, which nobody would know.

We compare the means of (b) with those over the authors' 200 runs; FKM runs 100 rounds, k-FED uses k' = 16 with plain
and with greedy k-means++ seeds, and informed k-FED the best of k' = 1 to 16.
"""

from dataclasses import replace
from typing import Any

import garst
import numpy as np
from paper import Row, boxes, canvas, claim, options, save, show

import p2pkm
from p2pkm.viz.style import CATEGORIES, INK, RED

SHAPES = "osD^"


def search(scores: dict[Any, garst.Scores], beta: float, name: str) -> int:
    """Return the k' of k-FED whose mean score is best."""
    return max(range(1, 17), key=lambda local_k: scores[beta, name, local_k].final.mean())


def tell(scores: dict[Any, garst.Scores]) -> dict[float, list[Row]]:
    """Return the lines of the table for each beta."""
    lines: dict[float, list[Row]] = {}
    for beta in garst.BETAS:
        rows = [garst.row(name, beta, 1.0, scores[beta, name]) for name in ("central", "FKM")]
        rows.append(Row(f"beta {beta:g}, sd 1, FKM, all points", None, scores[beta, "FKM"].pooled))
        for name in ("k-FED", "k-FED greedy"):
            rows.append(garst.row(name, beta, 1.0, scores[beta, name, 16]))
            best = search(scores, beta, name)
            rows.append(Row(f"beta {beta:g}, sd 1, {name} informed, k' = {best}", None, scores[beta, name, best].final))
        lines[beta] = rows
    return lines


def draw_clusters(ax: Any, shards: p2pkm.Shards, method: Any) -> None:
    """Draw the points in the colors and shapes of their clusters, and the centroids."""
    centroids = p2pkm.simulate(method, None, shards, seed=0, baselines=False).server_centroids
    assert centroids is not None  # of a server method
    centroids = centroids[np.lexsort(centroids.T)]
    nearest = ((shards.points[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    for c in range(16):
        own = shards.points[nearest == c]
        ax.scatter(*own.T, s=7, marker=SHAPES[c // 4], color=CATEGORIES[c % 7], alpha=0.7, linewidth=0)
    ax.scatter(*centroids.T, s=45, marker="x", color=INK, linewidth=1.6)


def picture(shards: dict[float, p2pkm.Shards], rows: list[Row]) -> Any:
    """Return the figure: the points and their owners above, scores and clusterings below."""
    figure, axes = canvas(2, 4, (17, 8.6))
    (points, *owners), (scores, *clusterings) = axes
    points.scatter(*shards[0.1].points.T, s=5, color=CATEGORIES[0], linewidth=0)
    points.scatter(*np.array([(x, y) for x in garst.GRID for y in garst.GRID]).T, s=50, marker="+", color=RED)
    points.set_title("(a) 800 points; means of the clusters: +")
    for letter, ax, (beta, dealt) in zip("cde", owners, shards.items(), strict=True):
        for i in range(5):
            own = dealt.points[dealt.devices == i]
            ax.scatter(*own.T, s=9, marker="osD^v"[i], color=CATEGORIES[i], linewidth=0, label=f"{i}: {len(own)}")
        ax.set_title(f"({letter}) client: its points, beta = {beta:g}")
        ax.legend(fontsize=7.5, loc="upper center", ncols=5, markerscale=1.5, handletextpad=0, columnspacing=0.8)
    colors = [next(garst.COLORS[n] for n in ("k-FED", "FKM", "central") if n in row.what) for row in rows]
    names = [row.what.replace("beta ", "").replace(", sd 1", "").replace("informed, ", "") for row in rows]
    named = [row._replace(what=name) for row, name in zip(rows, names, strict=True)]
    boxes(scores, named, colors, "adjusted Rand index")
    scores.set_title("(b) score for beta = 0.1, 1 and 10")
    scores.legend(fontsize=8, loc="lower right")
    methods = {"(f) central k-means": garst.CENTRAL, "(g) FKM": garst.FKM, "(h) k-FED, k' = 16": garst.KFED}
    for ax, (title, method) in zip(clusterings, methods.items(), strict=True):
        draw_clusters(ax, shards[0.1], method)
        ax.set_title(f"{title}, beta = 0.1; centroids: x")
    for ax in (points, *owners, *clusterings):
        ax.set(aspect="equal", xlabel="$X_1$", ylabel="$X_2$", xlim=(-12.5, 12.5), ylim=(-11.5, 13.5))
    return figure


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 200, rounds=garst.ROUNDS)
    shards = {beta: garst.load(chosen.data_dir, beta, 50, 1.0) for beta in garst.BETAS}
    cases: dict[Any, Any] = {}
    for beta in garst.BETAS:
        cases |= {(beta, "central"): (garst.CENTRAL, shards[beta]), (beta, "FKM"): (garst.FKM, shards[beta])}
        for name, method in (("k-FED", garst.KFED), ("k-FED greedy", garst.KFED_GREEDY)):
            cases |= {(beta, name, k): (replace(method, local_k=k), shards[beta]) for k in range(1, 17)}
    scores = garst.study(cases, chosen)
    lines = tell(scores)
    mean = {beta: [float(np.mean(row.values)) for row in rows] for beta, rows in lines.items()}
    show("Figure 1 (b): adjusted Rand index", [row for rows in lines.values() for row in rows], [
        claim("FKM is similar to central k-means (we take: within 0.02)",
              all(abs(m[1] - m[0]) <= 0.02 for m in mean.values())),
        claim("FKM is better than k-FED, tuned or not", all(m[1] > max(m[3:]) for m in mean.values())),
        claim("FKM hardly depends on beta (we take: less than 0.02)", np.ptp([m[1] for m in mean.values()]) < 0.02),
    ], source="authors")  # fmt: skip
    drawn = [row for rows in lines.values() for row in (rows[0], rows[1], rows[3], rows[4])]
    save(picture(shards, drawn), chosen.out, "fkm_fig1")


if __name__ == "__main__":
    main()
