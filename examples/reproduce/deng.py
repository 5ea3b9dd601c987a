"""The data of Deng, Wang and Alobaedy (PLoS ONE 2025), dealt as they deal them, and what the scripts share.

The points go to ten clients as in the study of MUFC: from few clusters of a k-means of all points, here with as many
clusters as there are classes. The paper does not say whether it deals once or anew for every run. Seed s draws both the
deal and the run here, unless a script says otherwise. Scores are those of all points, without noise, with the labels of
the nearest server centroid; NMI is relative to the mean of both entropies, as in the paper's equation 1.

MNIST and Covertype are not among our data. The paper reduces them to two coordinates by UMAP; do so, and the scripts
take in `mnist.csv` and `covertype.csv` (columns x0, x1 and label with a header) from the folder of the data.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper import PUBLISHED, Row, need, repeat, table

import p2pkm
from p2pkm.viz.style import BLUE, CATEGORIES, GRAY, GREEN, INK, RED

CLIENTS = 10
EPSILON = 20.0  # of table 2: its values are those of table 3 in this column
SCORES = ("ARI", "NMI")
ALLOWED = 0.06
WIDTHS = {  # k1 (clusters of a client) and k2 (of the server) of FKmeansCB in table 2
    "thyroid": (7, 3), "breast": (9, 2), "ecoli": (11, 3), "iris": (5, 3), "mnist": (200, 10), "covertype": (200, 10),
}  # fmt: skip
SMALL = ("thyroid", "breast", "ecoli", "iris")
LARGE = ("mnist", "covertype")
COLORS = {"k-means": GRAY, "cdkm": CATEGORIES[3], "k-FED": RED, "MUFC": GREEN, "FKmeansCB": BLUE}


class Set(NamedTuple):
    """A data set.

    Attributes
    ----------
    x : float64[m, d]
    labels : int64[m]
    clusters : int64[m]
        Of a central k-means of all points, by which they are dealt.
    classes : int
        Number of true classes, and of these clusters.
    """

    x: Any
    labels: Any
    clusters: Any
    classes: int


def load(folder: Path | None, names: Sequence[str] = (*SMALL, *LARGE)) -> dict[str, Set]:
    """Read data sets; of the large ones those that are there, with a word on those that are not."""
    sets = {}
    for name in names:
        if name in LARGE and not (folder and (folder / f"{name}.csv").exists()):
            print(f"{name}.csv is not in the folder of the data: left out (the project does not have it; see deng.py)")
            continue
        columns = table(need(folder, f"{name}.csv"))
        sets[name] = pool(columns["x"], columns["label"])
    return sets


def pool(x: Any, labels: Any) -> Set:
    """Return a data set with the labels of a central k-means, the best of ten."""
    classes = len(np.unique(labels))
    together = p2pkm.Shards.deal(x, np.zeros(len(x), np.int64))
    found = p2pkm.simulate(p2pkm.Central(classes, n_init=10), None, together, seed=0, baselines=False).server_centroids
    assert found is not None  # of a server method
    return Set(x, labels, nearest(x, found), classes)


def nearest(x: Any, centroids: Any) -> Any:
    """Return the nearest centroid of every point, int64[m]."""
    return ((x[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)


def deal(data: Set, clients: int, seed: int) -> p2pkm.Shards:
    """Return the points at the clients."""
    owner = p2pkm.partition.mufc(data.clusters, clients, local=data.classes, seed=seed)
    return p2pkm.Shards.deal(data.x, owner, devices=clients, labels=data.labels)


def play(method: Any, data: Set, clients: int, dealt: int, seed: int) -> tuple[float, float]:
    """Return the SCORES of a run; the points are dealt with a seed of their own."""
    summary = p2pkm.simulate(method, None, deal(data, clients, dealt), seed=seed, baselines=False).summary
    return summary["ari"], summary["nmi"]


def backbone(name: str, **options: Any) -> p2pkm.FKMeansCB:
    """Return FKmeansCB as in table 2, or with other options."""
    local_k, k = WIDTHS[name]
    return p2pkm.FKMeansCB(
        **({"k": k, "local_k": local_k, "epsilon": EPSILON, "client_n_init": 1, "server_n_init": 1} | options)
    )


def study(cases: Mapping[Any, tuple[Any, Set, int]], chosen: Any) -> dict[Any, Any]:
    """Run every case (method, data, clients) with the seeds 0 to runs - 1; return float64[runs, SCORES] of each."""
    tasks = [(*case, seed, seed) for case in cases.values() for seed in chosen.seeds]
    found = np.array(repeat(play, tasks, chosen.jobs)).reshape(len(cases), chosen.runs, len(SCORES))
    return dict(zip(cases, found, strict=True))


def draw_runs(ax: Any, rows: Sequence[Row], places: Sequence[float], colors: Sequence[str]) -> None:
    """Draw every run as a dot, their mean as a bar, the best as a large dot, the paper's value as a hollow diamond."""
    for row, place, color in zip(rows, places, colors, strict=True):
        values = np.asarray(row.values, float)
        ax.scatter(np.full(len(values), place), values, s=14, color=color, alpha=0.35, linewidth=0)
        ax.scatter(place, values.max(), s=42, color=color, edgecolor="white", linewidth=0.8, zorder=3)
        ax.scatter(place, values.mean(), s=190, marker="_", color=INK, linewidth=1.8, zorder=3)
        if row.paper is not None:
            ax.scatter(place, row.paper, **PUBLISHED)
    ax.margins(x=0.1)
    ax.grid(axis="y", color=GRAY, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)


def explain_marks(target: Any, others: Sequence[Any] = (), **more: Any) -> None:
    """Add a legend of what `draw_runs` draws, and of other things, to a figure or to axes."""
    from matplotlib.lines import Line2D

    looks: dict[str, dict[str, Any]] = {
        "a run": {"marker": "o", "ms": 4, "color": GRAY, "alpha": 0.5, "mew": 0},
        "mean": {"marker": "_", "ms": 12, "color": INK, "mew": 1.8},
        "best": {"marker": "o", "ms": 7, "color": GRAY, "mec": "white"},
        "paper": {"marker": "D", "ms": 5.5, "color": INK, "mfc": "none", "mew": 1.4},
    }
    handles = [Line2D([], [], linestyle="none", label=label, **look) for label, look in looks.items()]
    target.legend(handles=[*handles, *others], fontsize=9, **more)
