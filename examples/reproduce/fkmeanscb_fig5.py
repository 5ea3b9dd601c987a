"""Deng, Wang and Alobaedy, figure 5: FKmeansCB with more and fewer clients.

The paper shows the scores for several numbers of clients and says that "the clustering results are close". The figure
has no numbers in the text but those of table 2 for ten clients.

We compare these, the best of the runs, and whether the best for 2 to 40 clients are close.
"""

from itertools import product

import numpy as np
from deng import ALLOWED, CLIENTS, SCORES, WIDTHS, backbone, draw_runs, explain_marks, load, study
from fkmeanscb_table2 import PRINTED
from paper import Row, canvas, claim, options, save, show

from p2pkm.viz.style import BLUE, GREEN

NUMBERS = (2, 5, 10, 20, 40)


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 20)
    sets = load(chosen.data_dir)
    scores = study({(name, n): (backbone(name), sets[name], n) for name, n in product(sets, NUMBERS)}, chosen)
    figure, axes = canvas(2, len(sets), (3.1 * len(sets), 6.6), sharex=True)
    for s, (score, color) in enumerate(zip(SCORES, (BLUE, GREEN), strict=True)):
        rows = {}
        for name, n in scores:
            known = PRINTED[name]["FKmeansCB", WIDTHS[name]][s] if n == CLIENTS else None
            rows[name, n] = Row(f"{name}, {n} clients", known, scores[name, n][:, s], ALLOWED, best=True, counted=False)
        best = {name: [np.max(rows[name, n].values) for n in NUMBERS] for name in sets}
        spread = ", ".join(f"{name} {np.ptp(values):.3f}" for name, values in best.items())
        close = all(np.ptp(values) <= ALLOWED for values in best.values())
        text = f"the results are close (we take: the best within {ALLOWED} of each other)"
        show(f"Figure 5: {score}", list(rows.values()), [f"{claim(text, close)} (largest difference: {spread})"])
        for name, ax in zip(sets, axes[s], strict=True):
            draw_runs(ax, [rows[name, n] for n in NUMBERS], range(len(NUMBERS)), [color] * len(NUMBERS))
            ax.set_xticks(range(len(NUMBERS)), [str(n) for n in NUMBERS])
            ax.set_title(f"{name}: {score}", fontsize=11)
    for ax in axes[1]:
        ax.set_xlabel("clients")
    axes[0][0].set_ylabel("adjusted Rand index")
    axes[1][0].set_ylabel("normalized mutual information")
    explain_marks(figure, loc="outside upper center", ncols=4, frameon=False)
    save(figure, chosen.out, "fkmeanscb_fig5")


if __name__ == "__main__":
    main()
