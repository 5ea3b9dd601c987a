"""Garst and Reinders, figure 3: the score with more and more noise, and how it grows over the rounds.

The paper shows the adjusted Rand index of central k-means, FKM and k-FED for standard deviations from 1 to 1.5 and
beta = 0.1, 1 and 10 (a to c), and that of FKM in every round (d to f); 50 points per cluster.

We compare the means at sd 1 and 1.5 with those over the authors' 200 runs; FKM runs 100 rounds, k-FED uses k' = 16 with
plain and with greedy k-means++ seeds.
"""

from typing import Any

import garst
import matplotlib
import numpy as np
from paper import PUBLISHED, canvas, claim, options, save, show

from p2pkm.viz.style import GRAY

METHODS = {"central": garst.CENTRAL, "FKM": garst.FKM, "k-FED": garst.KFED, "k-FED greedy": garst.KFED_GREEDY}
MARKS = {"central": "s", "FKM": "o", "k-FED": "^", "k-FED greedy": "v"}


def run(chosen: Any, points: int) -> dict[Any, garst.Scores]:
    """Return the scores for every (beta, sd, method)."""
    cases: dict[Any, Any] = {}
    for beta in garst.BETAS:
        for sd in garst.NOISES:
            shards = garst.load(chosen.data_dir, beta, points, sd)
            cases |= {(beta, sd, name): (method, shards) for name, method in METHODS.items()}
    return garst.study(cases, chosen)


def mean(scores: dict[Any, garst.Scores], beta: float, name: str) -> Any:
    """Return the mean score of a method for every sd."""
    return np.array([garst.values_of(name, scores[beta, sd, name]).mean() for sd in garst.NOISES])


def judge(scores: dict[Any, garst.Scores]) -> list[str]:
    """Return what the paper says of the figure, and whether we see it."""
    gaps = {beta: mean(scores, beta, "central") - mean(scores, beta, "FKM") for beta in garst.BETAS}
    leads = [mean(scores, beta, "FKM") - mean(scores, beta, "k-FED") for beta in garst.BETAS]
    ends = np.array([[scores[b, sd, "FKM"].curve.mean(axis=0)[[0, -1]] for sd in (1.0, 1.5)] for b in garst.BETAS])
    gains = ends[:, :, 1] - ends[:, :, 0]
    return [
        claim("FKM is similar to central k-means on average (we take: within 0.03)",
              all(np.abs(gap).max() <= 0.03 for gap in gaps.values())),
        claim("for beta = 0.1 it falls behind at high noise (we take: by more than 0.01, and more than at sd 1)",
              gaps[0.1][-1] > max(0.01, gaps[0.1][0])),
        claim("FKM is better than k-FED everywhere", np.min(leads) > 0),
        claim("noisy data gain most from more rounds", bool((gains[:, 1] > gains[:, 0]).all())),
    ]  # fmt: skip


def draw_noise(axes: Any, scores: dict[Any, garst.Scores], points: int, letters: str) -> None:
    """Draw the scores over the noise, a panel for each beta; bands from the 10th to the 90th percentile."""
    for ax, beta, letter in zip(axes, garst.BETAS, letters, strict=True):
        for name, color in garst.COLORS.items():
            runs = [garst.values_of(name, scores[beta, sd, name]) for sd in garst.NOISES]
            ax.plot(garst.NOISES, mean(scores, beta, name), marker=MARKS[name], ms=5, color=color, label=name)
            ax.fill_between(garst.NOISES, *np.percentile(runs, [10, 90], axis=1), color=color, alpha=0.15, linewidth=0)
        if points == 50:
            known = [(sd, means[garst.BETAS.index(beta)]) for (_, sd), means in garst.PRINTED.items()]
            ax.scatter(*zip(*known, strict=True), label="mean in the paper", **PUBLISHED)
        ax.set_title(f"({letter}) beta = {beta:g}, {points} points per cluster", fontsize=11)
        ax.set_xlabel("standard deviation of a cluster")
        ax.grid(color=GRAY, alpha=0.3)
    axes[0].set_ylabel("adjusted Rand index")
    axes[0].legend(fontsize=8.5, loc="lower left")


def draw_rounds(axes: Any, scores: dict[Any, garst.Scores]) -> None:
    """Draw FKM's mean score over the rounds, a panel for each beta, a line for each sd."""
    colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(garst.NOISES)))
    for ax, beta, letter in zip(axes, garst.BETAS, "def", strict=True):
        for sd, color in zip(garst.NOISES, colors, strict=True):
            curve = scores[beta, sd, "FKM"].curve.mean(axis=0)
            ax.plot(np.arange(1, len(curve) + 1), curve, color=color, label=f"sd {sd:g}")
        ax.set_title(f"({letter}) FKM, beta = {beta:g}, mean of the runs", fontsize=11)
        ax.set(xlabel="round", xscale="log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.grid(color=GRAY, alpha=0.3)
    axes[0].set_ylabel("adjusted Rand index")
    axes[2].legend(fontsize=8.5, loc="lower right", ncols=2)


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 200, rounds=garst.ROUNDS)
    scores = run(chosen, 50)
    rows = [garst.row(name, beta, sd, one) for (beta, sd, name), one in scores.items()]
    show("Figure 3: adjusted Rand index, 50 points per cluster", rows, judge(scores), source="authors")
    figure, axes = canvas(2, 3, (13, 8), sharey="row")
    draw_noise(axes[0], scores, 50, "abc")
    draw_rounds(axes[1], scores)
    save(figure, chosen.out, "fkm_fig3")


if __name__ == "__main__":
    main()
