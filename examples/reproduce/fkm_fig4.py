"""Garst and Reinders, figure 4: what each part of FKM is worth (ablation).

The paper leaves out one part at a time for beta = 0.1, 1 and 10 (a to c) at sd 1: clients keep clusters without points,
the server ignores the numbers of points, clients start from random points, or take 100 steps per round; then all four
(the paper says five, and lists these). Its runs differ from those of the other figures: clients start with k-means, not
with its seeds alone, and the server tries one start, whose seeds count the points.

We compare the means after 100 rounds with those over the authors' 200 runs.
"""

from dataclasses import replace
from typing import Any

import garst
from paper import Row, boxes, canvas, claim, options, save, show

import p2pkm
from p2pkm.viz.style import BLUE, GREEN, ORANGE, RED

DEFAULT = p2pkm.FKM(16, seeding="lloyd", client_n_init=1, server_n_init=1, server_seeding="weighted", tol=0.0)
PARTS: dict[str, dict[str, Any]] = {
    "default": {},
    "keep empty": {"keep_empty": True},
    "unweighted": {"weighted": False},
    "random": {"seeding": "random"},
    "100 steps": {"local_steps": 100},
    "all four": {"keep_empty": True, "weighted": False, "seeding": "random", "local_steps": 100},
}
PRINTED = {
    "default": (0.948, 0.958, 0.958),
    "keep empty": (0.930, 0.957, 0.957),
    "unweighted": (0.833, 0.944, 0.953),
    "random": (0.948, 0.958, 0.957),
    "100 steps": (0.948, 0.954, 0.961),
    "all four": (0.860, 0.949, 0.959),
}
COLORS = (BLUE, ORANGE, RED, GREEN, "#CC79A7", "#8C6D31")


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 200, rounds=garst.ROUNDS)
    shards = {beta: garst.load(chosen.data_dir, beta, 50, 1.0) for beta in garst.BETAS}
    cases = {(beta, part): (replace(DEFAULT, **change), shards[beta]) for beta in garst.BETAS
             for part, change in PARTS.items()}  # fmt: skip
    scores = garst.study(cases, chosen)
    rows = [Row(f"beta {beta:g}, {part}", PRINTED[part][garst.BETAS.index(beta)], one.final, 0.02)
            for (beta, part), one in scores.items()]  # fmt: skip
    mean = {case: float(one.final.mean()) for case, one in scores.items()}
    loss = {(beta, part): mean[beta, "default"] - mean[beta, part] for beta, part in scores}
    worst = sorted((part for part in PARTS if part not in ("default", "all four")), key=lambda part: -loss[0.1, part])
    show("Figure 4: adjusted Rand index after the last round", rows, [
        claim("for beta = 0.1 weighting matters most, then dropping empty clusters",
              worst[:2] == ["unweighted", "keep empty"]),
        claim("for beta = 10 no part matters much (we take: 0.02)", max(loss[10.0, part] for part in PARTS) <= 0.02),
        claim("for beta = 10 100 steps are even better", loss[10.0, "100 steps"] < 0),
    ], source="authors")  # fmt: skip
    figure, axes = canvas(1, 3, (13, 4.8), sharey=True)
    for i, (ax, letter, beta) in enumerate(zip(axes[0], "abc", garst.BETAS, strict=True)):
        lines = [one._replace(what=part) for one, part in zip(rows[6 * i : 6 * i + 6], PARTS, strict=True)]
        boxes(ax, lines, COLORS, "adjusted Rand index" if i == 0 else "")
        ax.set_title(f"({letter}) beta = {beta:g}", fontsize=11)
    axes[0][0].legend(fontsize=8.5, loc="lower left")
    save(figure, chosen.out, "fkm_fig4")


if __name__ == "__main__":
    main()
