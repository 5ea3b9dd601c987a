"""Xu et al., figure 5: do the balls of algorithm 4 reach the centroids of their true center? S1.

With theta the true center nearest to a centroid c that a client says, and r the radius of the ball that the server
takes for theta, equation (54) is sigma = |c - theta| / r. The paper shows sigma of all centroids in three runs, each
true center in its own color, for equal shares, Dirichlet(0.3) and Dirichlet(0.1), and says that all are below 0.5, as
(53) asks for, but for extreme cases.

We compare the share of centroids below 0.5. The ball of theta is the largest one whose centroid is nearest to it.
"""

from typing import Any

import numpy as np
from paper import Row, canvas, claim, options, repeat, save, show
from ssets import SCENARIOS, SPLITS, Sset, deal, listen, load, nearest

import p2pkm
from p2pkm.viz.style import GRAY, INK, RED


def measure(data: Sset, scenario: str, seed: int) -> tuple[Any, Any]:
    """Return the true center of every centroid that was said, int64[r], and its sigma, float64[r]."""
    said = np.concatenate(listen(p2pkm.FeCA(15), deal(data, scenario, seed), seed)[1])
    centroids, radii = said[:, :-1], said[:, -1]
    owner = nearest(centroids, data.centers)
    reach = np.zeros(len(data.centers))
    np.maximum.at(reach, owner, radii)
    apart = np.sqrt(((centroids - data.centers[owner]) ** 2).sum(axis=1))
    return owner, apart / np.where(reach[owner] > 0, reach[owner], np.inf)


def draw(ax: Any, found: list[tuple[Any, Any]], title: str) -> None:
    """Draw sigma of all centroids over the true centers, and the largest of each."""
    owner, sigma = (np.concatenate(part) for part in zip(*found, strict=True))
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, len(owner))
    ax.scatter(owner + 1 + shift, sigma, s=8, c=owner, cmap="nipy_spectral", alpha=0.7, linewidth=0)
    most = [sigma[owner == s].max(initial=0) for s in range(15)]
    ax.scatter(range(1, 16), most, s=50, marker="*", color=RED, edgecolor=INK, linewidth=0.5, label="largest")
    ax.axhline(0.5, color=GRAY, linestyle="--")
    ax.set(title=title, xlabel="true center", xticks=range(1, 16, 2), yscale="symlog")
    ax.set_yticks([0, 0.5, 1, 2, 5, 10], ["0", "0.5", "1", "2", "5", "10"])
    ax.set_ylim(0, max(12, 1.1 * max(most)))
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Run, print the table and draw."""
    chosen = options(__doc__, 40)
    data = load(chosen.data_dir, 1)
    found = repeat(measure, [(data, s, seed) for s in SCENARIOS for seed in chosen.seeds], chosen.jobs)
    blocks = {s: found[i * chosen.runs : (i + 1) * chosen.runs] for i, s in enumerate(SCENARIOS)}
    below = {s: [float((sigma < 0.5).mean()) for _, sigma in block] for s, block in blocks.items()}
    whole = all(share == 1 for block in below.values() for share in block)
    rows = [Row(f"{s}, share with sigma < 0.5", 1.0, shares, 0.01) for s, shares in below.items()]
    rows += [
        Row(f"{s}, largest sigma", None, [float(sigma.max()) for _, sigma in block]) for s, block in blocks.items()
    ]
    show("Figure 5: sigma, S1", rows, [claim("all sigma are below 0.5", whole), *SPLITS])
    figure, axes = canvas(1, 3, (14, 4.2), sharey=True)
    for ax, scenario in zip(axes[0], SCENARIOS, strict=False):
        draw(ax, blocks[scenario][:3], f"{scenario}, three runs")
    axes[0, 0].set_ylabel(r"$\sigma$")
    axes[0, 0].legend(fontsize=9)
    save(figure, chosen.out, "feca_fig5")


if __name__ == "__main__":
    main()
