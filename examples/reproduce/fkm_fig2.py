"""Garst and Reinders, figure 2: the sixteen clusters with more and more noise.

The paper shows points drawn around the same means with a standard deviation of 1 to 1.5 (columns), 50 or 200 per
cluster (rows).

We compare the standard deviation within the clusters with the nominal one, within three standard errors, and, where the
authors' files are at hand, every point, label and client with theirs. Nothing is repeated: --runs and --jobs have no
effect.
"""

from itertools import product
from typing import Any

import garst
import numpy as np
from paper import Row, canvas, options, save, show, table

from p2pkm.viz.style import BLUE, INK

SHOWN = (1.0, 1.2, 1.5)
POINTS = (50, 200)


def spread(columns: dict[str, Any]) -> float:
    """Return the standard deviation of the points around the mean of their cluster."""
    residuals = [own - own.mean(axis=0) for own in (columns["x"][columns["label"] == c] for c in range(16))]
    freedom = 2 * (len(columns["x"]) - 16)
    return float(np.sqrt((np.concatenate(residuals) ** 2).sum() / freedom))


def compare(folder: Any) -> str:
    """Say in how many of the authors' files every point, label and client is the one that we draw."""
    settings = list(product(garst.BETAS, POINTS, garst.NOISES)) if folder else []
    known = [setting for setting in settings if (folder / garst.name_file(*setting)).exists()]
    if not known:
        return "the authors' files are not at hand: give their folder as --data-dir to compare every point with them"
    same = 0
    for setting in known:
        theirs, ours = table(folder / garst.name_file(*setting)), garst.draw(*setting)
        order = np.argsort(ours["client"], kind="stable")  # the files go client by client
        near = np.abs(ours["x"][order] - theirs["x"]).max() <= 1e-10  # they have 12 digits
        same += bool(near) and all((ours[one][order] == theirs[one]).all() for one in ("label", "client"))
    return f"the authors' files that we draw to the last digit: {same} of {len(known)}"


def main() -> None:
    """Draw the points, print the table and draw the figure."""
    chosen = options(__doc__, 1)
    figure, axes = canvas(2, 3, (11.5, 8), sharex=True, sharey=True)
    rows = []
    for points, line in zip(POINTS, axes, strict=True):
        for sd, ax in zip(SHOWN, line, strict=True):
            columns = garst.draw(1.0, points, sd)
            allowed = 3 * sd / np.sqrt(4 * (len(columns["x"]) - 16))
            rows.append(Row(f"{points} points per cluster, sd", sd, [spread(columns)], allowed))
            ax.scatter(*columns["x"].T, s=200 / points + 2, color=BLUE, alpha=0.6, linewidth=0)
            ax.scatter(*np.array([(x, y) for x in garst.GRID for y in garst.GRID]).T, s=40, marker="+", color=INK)
            ax.set_title(f"{points} points per cluster, sd = {sd:g}", fontsize=11)
            ax.set(aspect="equal", xlabel="$X_1$", ylabel="$X_2$")
            ax.label_outer()
    show("Figure 2: standard deviation within the clusters", rows, [compare(chosen.data_dir)])
    save(figure, chosen.out, "fkm_fig2")


if __name__ == "__main__":
    main()
