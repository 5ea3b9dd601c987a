"""Xu et al., table 9 (figure 12, right): FeCA on S1 with 1 to 20 clients that share the points equally.

The paper prints the l2-distance, with its standard deviation, purity and NMI over 10 runs, and says that the number of
clients hardly matters. One client stands for central k-means.

We compare the values for 1 to 10 clients; those for 11 to 20 are not legible in our copy of the paper.
"""

from typing import Any

import feca_table8
import numpy as np
from paper import canvas, claim, options, repeat, save
from ssets import UNIT, Scores, Sset, deal, gather, load, run

from p2pkm.metrics.clustering import distance

DISTANCE = (
    (14.3, 18.7), (1.1, 0.3), (1.2, 0.3), (1.1, 0.2), (1.1, 0.2), (1.2, 0.2), (1.1, 0.1), (1.1, 0.1), (1.0, 0.1),
    (1.0, 0.1),
)  # fmt: skip


def play(data: Sset, clients: int, seed: int) -> tuple[float, float, float, int]:
    """Return the figures of one run."""
    result = run(feca_table8.choose(clients), deal(data, "IID", seed, clients), seed)
    centroids, summary = result.server_centroids, result.summary
    return distance(centroids, data.centers) / UNIT, summary["purity"], summary["nmi"], len(centroids)


def study(chosen: Any) -> dict[str, dict[int, Scores]]:
    """Run all, print the tables and return the scores by number of clients, named "ours"."""
    data = load(chosen.data_dir, 1)
    tasks = [(data, clients, seed) for clients in feca_table8.CLIENTS for seed in chosen.seeds]
    scores = gather(feca_table8.CLIENTS, repeat(play, tasks, chosen.jobs), chosen.runs)
    spread = np.ptp([found.distance.mean() for clients, found in scores.items() if clients > 1])
    notes = [claim("2 to 20 clients make little difference (we take: at most 0.5)", spread <= 0.5) + f" ({spread:.2f})"]
    feca_table8.tell("Table 9, equal shares", scores, DISTANCE, ((0.97, 0.98), *[(0.99, 0.99)] * 9), notes)
    return {"ours": scores}


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 40)
    every = study(chosen)
    figure, axes = canvas(1, 1, (6, 4.2))
    feca_table8.draw(axes[0, 0], every, DISTANCE, "an equal share of the points at each client")
    save(figure, chosen.out, "feca_table9")


if __name__ == "__main__":
    main()
