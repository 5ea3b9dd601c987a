"""Garst and Reinders, figure 6: handwritten characters of ten writers (FEMNIST), 60 clusters.

The paper shows the silhouette (a) and the simplified silhouette (b) of central k-means, FKM, k-FED with k' = 60 and
informed k-FED; FKM lies above both settings of k-FED and below central k-means, and the two scores agree.

The text prints no figures, so we compare this order. Informed k-FED uses k' = 21. All scores are those of all points
with the labels of the nearest server centroid. A round of FKM takes a second or two here, hence few runs.
"""

from typing import Any

import garst
import numpy as np
from paper import Row, boxes, canvas, claim, need, options, repeat, save, show

import p2pkm
from p2pkm.metrics.clustering import silhouettes

METHODS = {
    "central": p2pkm.Central(60, n_init=10),
    "FKM": p2pkm.FKM(60, server_seeding="unweighted", tol=0.0),
    "k-FED, k' = 60": p2pkm.KFED(60, local_k=60, seeding="plain", device="first", finish="converge"),
    "k-FED, k' = 21": p2pkm.KFED(60, local_k=21, seeding="plain", device="first", finish="converge"),
}


def play(method: Any, shards: p2pkm.Shards, rounds: int, seed: int) -> tuple[float | None, float]:
    """Return the silhouette and its simplified form after a run."""
    limit = None if method.traits.one_shot else rounds
    centroids = p2pkm.simulate(method, None, shards, rounds=limit, seed=seed, baselines=False).server_centroids
    assert centroids is not None  # of a server method
    return silhouettes(shards.points, centroids)


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 5, rounds=garst.ROUNDS)
    with np.load(need(chosen.data_dir, "femnist10.npz")) as file:
        shards = p2pkm.Shards.deal(file["X"].astype(np.float64), file["client"])
    cases = [(method, shards, chosen.rounds, seed) for method in METHODS.values() for seed in chosen.seeds]
    found = np.array(repeat(play, cases, chosen.jobs)).reshape(len(METHODS), chosen.runs, 2)
    figure, axes = canvas(1, 2, (10, 4.6))
    for ax, letter, score, values in zip(axes[0], "ab", ("silhouette", "simplified silhouette"), found.T, strict=True):
        rows = [Row(name, None, own) for name, own in zip(METHODS, values.T, strict=True)]
        central, fkm, *kfed = (float(np.mean(row.values)) for row in rows)
        show(f"Figure 6 ({letter}): {score}", rows, [
            claim("FKM is better than both settings of k-FED", fkm > max(kfed)),
            claim("FKM is worse than central k-means", fkm < central),
        ])  # fmt: skip
        boxes(ax, rows, [garst.COLORS[row.what.split(",")[0]] for row in rows], score)
        ax.set_title(f"({letter}) {score}, {chosen.runs} runs", fontsize=11)
    axes[0][0].legend(fontsize=8.5)
    save(figure, chosen.out, "fkm_fig6")


if __name__ == "__main__":
    main()
