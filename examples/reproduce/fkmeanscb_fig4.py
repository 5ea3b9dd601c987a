"""Deng, Wang and Alobaedy, figure 4: how many clusters the clients (k1) and the server (k2) of FKmeansCB look for.

The paper shows the scores for several k1 and k2 and says that their influence "is not significant"; as a rule it takes
k1 from 5 to 10 for small sets and for k2 the number of classes (8 for ecoli, where its table 2 has 3). The text has no
numbers of the figure but those of table 2.

We draw the mean and the best adjusted Rand index for all k1 and k2, compare the best at those of table 2, and look how
far the mean moves along k1 and along k2. Large sets are left out: their k1 of 200 would need another grid.
"""

from itertools import product
from typing import Any

import numpy as np
from deng import ALLOWED, CLIENTS, SMALL, WIDTHS, backbone, load, study
from fkmeanscb_table2 import PRINTED
from paper import PUBLISHED, Row, canvas, claim, options, save, show

LOCAL = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15)  # k1
SERVER = (2, 3, 4, 5, 6, 7, 8, 10)  # k2


def list_rows(name: str, scores: dict[Any, Any]) -> list[Row]:
    """Return the lines through the setting of table 2, along k1 and along k2."""
    k1, k2 = WIDTHS[name]
    rows = []
    for cell in [*product(LOCAL, [k2]), *((k1, k) for k in SERVER if k != k2)]:
        known = PRINTED[name]["FKmeansCB", WIDTHS[name]][0] if cell == (k1, k2) else None
        what = f"{name}, k1 = {cell[0]}, k2 = {cell[1]}"
        rows.append(Row(what, known, scores[name, *cell][:, 0], ALLOWED, best=True, counted=False))
    return rows


def move(name: str, grid: Any) -> tuple[float, float]:
    """Return by how much the mean changes along k1 from 5 to 10, and along all k2, from the setting of table 2."""
    k1, k2 = LOCAL.index(WIDTHS[name][0]), SERVER.index(WIDTHS[name][1])
    usual = [i for i, k in enumerate(LOCAL) if 5 <= k <= 10]
    return float(np.ptp(grid[usual, k2])), float(np.ptp(grid[k1]))


def draw(ax: Any, name: str, grid: Any, title: str, ends: tuple[float, float]) -> Any:
    """Draw the index for all k1 and k2 in colors between two ends; a diamond marks the setting of table 2."""
    image = ax.imshow(grid, origin="lower", aspect="auto", cmap="viridis", vmin=ends[0], vmax=ends[1])
    ax.set_xticks(range(len(SERVER)), SERVER)
    ax.set_yticks(range(len(LOCAL)), LOCAL)
    ax.set_title(f"{name}: {title}", fontsize=11)
    mark = PUBLISHED | {"facecolor": "white", "s": 50}
    ax.scatter(SERVER.index(WIDTHS[name][1]), LOCAL.index(WIDTHS[name][0]), **mark)
    return image


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 20)
    sets = load(chosen.data_dir, SMALL)
    cases = {(name, k1, k2): (backbone(name, local_k=k1, k=k2), sets[name], CLIENTS)
             for name, k1, k2 in product(sets, LOCAL, SERVER)}  # fmt: skip
    scores = study(cases, chosen)
    index = np.array([own[:, 0] for own in scores.values()]).reshape(len(sets), len(LOCAL), len(SERVER), chosen.runs)
    means, bests = index.mean(axis=3), index.max(axis=3)
    moves = np.array([move(name, grid) for name, grid in zip(sets, means, strict=True)])
    told = ["; ".join(f"{name} {value:.3f}" for name, value in zip(sets, along, strict=True)) for along in moves.T]
    peaks = [SERVER[int(grid.max(axis=0).argmax())] for grid in means]
    little = [claim(f"{text} matters little (we take: the mean moves by at most {ALLOWED})", along.max() <= ALLOWED)
              for text, along in zip(("k1 from 5 to 10", "k2"), moves.T, strict=True)]  # fmt: skip
    rows = [row for name in sets for row in list_rows(name, scores)]
    best = (f"{name} {k} / {data.classes}" for (name, data), k in zip(sets.items(), peaks, strict=True))
    show("Figure 4: ARI", rows, [
        *(f"{text} ({numbers})" for text, numbers in zip(little, told, strict=True)),
        f"k2 with the highest mean / number of classes: {'; '.join(best)}",
    ])  # fmt: skip
    figure, axes = canvas(2, len(sets), (3.4 * len(sets), 7.4))
    for i, name in enumerate(sets):
        ends = float(means[i].min()), float(bests[i].max())
        images = [draw(axes[0][i], name, means[i], "mean", ends),
                  draw(axes[1][i], name, bests[i], f"best of {chosen.runs}", ends)]  # fmt: skip
        figure.colorbar(images[0], ax=axes[:, i], shrink=0.6).ax.tick_params(labelsize=8)
        axes[1][i].set_xlabel("k2, clusters of the server")
    for line in axes:
        line[0].set_ylabel("k1, clusters of a client")
    figure.suptitle("adjusted Rand index; diamond: the setting of table 2", fontsize=11)
    save(figure, chosen.out, "fkmeanscb_fig4")


if __name__ == "__main__":
    main()
