"""Garst and Reinders, figure 7 (section 4.6): single-cell data of four cancers at three clients.

The paper shows the silhouette and the simplified silhouette of central k-means, FKM and k-FED with 4 clusters, where
every client has every cancer (IID) and where it has one and a share of a second (non-IID). FKM lies above k-FED and
below central k-means; the lead over k-FED grows from IID to non-IID.

These data are not among ours, and nothing stands in for them. Prepare them (68,905 tumour cells, 500 genes reduced to 5
principal components, see the paper), once for each way to deal them, as CSV files with a header: columns of numbers, a
column `client` (0, 1, ...) and, if you like, a column `label` (0, 1, ...); then give the files, in this order:

    python fkm_fig7.py --files iid.csv noniid.csv
"""

import sys
from pathlib import Path
from typing import Any

import garst
import numpy as np
from paper import Row, boxes, canvas, claim, need, options, repeat, save, show, table

import p2pkm
from p2pkm.metrics.clustering import silhouettes

SCORES = ("silhouette", "simplified silhouette", "adjusted Rand index")


def play(method: Any, shards: p2pkm.Shards, sample: int, rounds: int, seed: int) -> tuple[float, float, float]:
    """Return the SCORES of a run (silhouettes on a sample of the points, nan where there is none)."""
    limit = None if method.traits.one_shot else rounds
    result = p2pkm.simulate(method, None, shards, rounds=limit, seed=seed, baselines=False)
    drawn = np.random.default_rng(0).permutation(shards.m)[:sample]
    assert result.server_centroids is not None  # of a server method
    whole, simple = silhouettes(shards.points[drawn], result.server_centroids)
    index = result.summary["ari"]
    return np.nan if whole is None else whole, simple, np.nan if index is None else index


def examine(path: Path, axes: Any, chosen: Any) -> float:
    """Run the methods on a file, print the tables and draw; return by how much FKM leads k-FED."""
    shards = garst.deal(table(need(path.parent, path.name)))
    methods = {
        "central": p2pkm.Central(chosen.k, n_init=10),
        "FKM": p2pkm.FKM(chosen.k, server_seeding="unweighted", tol=0.0),
        "k-FED": p2pkm.KFED(chosen.k, local_k=chosen.k, seeding="plain", device="first", finish="converge"),
    }
    cases = [(method, shards, chosen.sample, chosen.rounds, seed) for method in methods.values()
             for seed in chosen.seeds]  # fmt: skip
    found = np.array(repeat(play, cases, chosen.jobs)).reshape(len(methods), chosen.runs, len(SCORES))
    for i, score in enumerate(SCORES[: 3 if shards.labels is not None else 2]):
        rows = [Row(name, None, own[:, i]) for name, own in zip(methods, found, strict=True)]
        show(f"Figure 7, {path.name}: {score}", rows)
        if i < len(axes):
            boxes(axes[i], rows, [garst.COLORS[name] for name in methods], score)
            axes[i].set_title(path.name, fontsize=11)
    central, fkm, kfed = found[:, :, 1].mean(axis=1)
    order = bool(kfed < fkm < central)
    print(claim("by the simplified silhouette FKM is better than k-FED and worse than central k-means", order))
    return float(fkm - kfed)


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(
        __doc__, 20, rounds=garst.ROUNDS,
        files={"type": Path, "nargs": "+", "default": [], "help": "the data, dealt in one or more ways"},
        k={"type": int, "default": 4, "help": "clusters (default 4)"},
        sample={"type": int, "default": 5000, "help": "points that the silhouettes are taken of (default 5000)"},
    )  # fmt: skip
    if not chosen.files:
        sys.exit("the data of this figure are not part of the project: give your CSV files as --files (see --help)")
    figure, axes = canvas(len(chosen.files), 2, (9, 4.2 * len(chosen.files)))
    leads = [examine(path, line, chosen) for path, line in zip(chosen.files, axes, strict=True)]
    if len(leads) > 1:
        print(claim("the lead over k-FED grows from IID to non-IID", leads[-1] > leads[0]))
    save(figure, chosen.out, "fkm_fig7")


if __name__ == "__main__":
    main()
