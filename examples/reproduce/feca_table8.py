"""Xu et al., table 8 (figure 12, left): FeCA on S1 with 1 to 20 clients, each with 5 % of the points.

The paper prints the l2-distance, with its standard deviation, purity and NMI over 10 runs, and says that the distance
falls with the number of clients. One client stands for central k-means of its points. Purity and NMI are measured after
one Lloyd step.

We compare all values in two readings: every client draws its points from all, so that two may have some in common, or
from those that are left, so that 20 clients have all of them. The Lloyd step is that of all points.
"""

from typing import Any

import numpy as np
from paper import PUBLISHED, canvas, claim, options, repeat, save, show
from ssets import UNIT, Scores, Sset, gather, load, nearest, row, run

import p2pkm
from p2pkm.kernels.reference import count_class_labels
from p2pkm.metrics.clustering import distance, nmi, purity
from p2pkm.viz.style import BLUE, GRAY, ORANGE

CLIENTS = range(1, 21)
DISTANCE = (
    (10.7, 14.3), (3.1, 0.6), (2.6, 0.4), (2.1, 0.3), (2.0, 0.3), (1.7, 0.3), (1.8, 0.2), (1.6, 0.4), (1.4, 0.2),
    (1.4, 0.3), (1.3, 0.2), (1.4, 0.3), (1.3, 0.2), (1.4, 0.2), (1.2, 0.2), (1.2, 0.1), (1.1, 0.1), (1.1, 0.1),
    (1.0, 0.1), (1.0, 0.1),
)  # fmt: skip
SHARE = 0.05
READINGS = {"from all": ORANGE, "from those left": BLUE}


def draw_parts(data: Sset, clients: int, seed: int, reading: str) -> p2pkm.Shards:
    """Return 5 % of the points for every client, drawn without replacement from all or from those that are left."""
    size, m = round(SHARE * len(data.points)), len(data.points)
    if reading == "from all":
        parts = [np.random.default_rng([seed, i]).choice(m, size, replace=False) for i in range(clients)]
    else:
        parts = list(np.random.default_rng(seed).permutation(m)[: clients * size].reshape(clients, size))
    return p2pkm.Shards.from_list([data.points[own] for own in parts], labels=[data.labels[own] for own in parts])


def choose(clients: int) -> Any:
    """Return the method: with one client, k-means."""
    return p2pkm.FeCA(15) if clients > 1 else p2pkm.Central(15, n_init=1)


def play(data: Sset, clients: int, seed: int, reading: str) -> tuple[float, float, float, int]:
    """Return the figures of one run; purity and NMI after a Lloyd step of all points."""
    centroids = run(choose(clients), draw_parts(data, clients, seed, reading), seed).server_centroids
    labels = nearest(data.points, centroids)
    means = np.stack([data.points[labels == c].mean(axis=0) for c in np.unique(labels)])
    labels = nearest(data.points, means)
    tables = count_class_labels(np.array([0, len(labels)]), data.labels, labels, data.labels.max() + 1, len(means))
    return distance(centroids, data.centers) / UNIT, float(purity(tables)[0]), float(nmi(tables)[0]), len(centroids)


def study(chosen: Any) -> dict[str, dict[int, Scores]]:
    """Run all, print the tables and return the scores by reading and number of clients."""
    data, every = load(chosen.data_dir, 1), {}
    for reading in READINGS:
        tasks = [(data, clients, seed, reading) for clients in CLIENTS for seed in chosen.seeds]
        scores = every[reading] = gather(CLIENTS, repeat(play, tasks, chosen.jobs), chosen.runs)
        means = [found.distance.mean() for found in scores.values()]
        falls = all(means[a - 1] > means[b - 1] for a, b in ((1, 2), (2, 5), (5, 10), (10, 20)))
        notes = [claim("the distance falls with the clients (we take: 20 < 10 < 5 < 2 < 1)", falls)]
        tell(f"Table 8, 5 % each, {reading}", scores, DISTANCE, ((0.98, 0.98), *[(0.99, 0.99)] * 19), notes)
    return every


def tell(title: str, scores: dict[int, Scores], printed: Any, marks: Any, notes: list[str]) -> None:
    """Print the tables; `printed` and `marks` (purity, NMI) of 1, 2, ... clients, as far as the paper has them."""
    rows = [row(f"clients: {m}", scores[m].distance, dict(enumerate(printed, 1)).get(m)) for m in scores]
    show(f"{title}: l2-distance / 10^4", rows, notes)
    for j, field in enumerate(("purity", "nmi")):
        known = {m: (pair[j],) for m, pair in enumerate(marks, 1)}
        rows = [row(f"clients: {m}", getattr(scores[m], field), known.get(m), 0.01) for m in scores]
        show(f"{title}: {field}", rows)
    print()


def draw(ax: Any, every: dict[str, dict[int, Scores]], printed: Any, title: str) -> None:
    """Draw the distance over the number of clients."""
    for shift, (name, scores) in enumerate(every.items()):
        values = np.array([found.distance for found in scores.values()])
        means = values.mean(axis=1)
        reach = np.abs(np.stack((values.min(axis=1), values.max(axis=1))) - means)
        style = {"color": READINGS.get(name, BLUE), "fmt": "o-", "ms": 4, "elinewidth": 1}
        ax.errorbar(np.array(list(scores)) + 0.2 * shift, means, yerr=reach, label=f"{name}, with all runs", **style)
    ax.scatter(range(1, len(printed) + 1), [mean for mean, _ in printed], label="paper", **PUBLISHED)
    ax.set(yscale="log", xlabel="clients M", ylabel="l2-distance / $10^4$", title=title, xticks=range(1, 21, 2))
    ax.set_yticks([1, 2, 5, 10, 20, 50], [1, 2, 5, 10, 20, 50])
    ax.set_ylim(0.7, 60)
    ax.grid(color=GRAY, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=9)


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 40)
    every = study(chosen)
    figure, axes = canvas(1, 1, (6, 4.2))
    draw(axes[0, 0], every, DISTANCE, "5 % of the points at each client")
    save(figure, chosen.out, "feca_table8")


if __name__ == "__main__":
    main()
