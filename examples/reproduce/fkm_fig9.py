"""Garst and Reinders, figure 9: how many characters each writer of the FEMNIST subset has.

The paper shows the points of its ten clients, "approximately 110" each. We count them; nothing is repeated: --runs and
--jobs have no effect.
"""

import numpy as np
from paper import Row, canvas, claim, need, options, save, show

from p2pkm.viz.style import BLUE


def main() -> None:
    """Count, print the table and draw."""
    chosen = options(__doc__, 1)
    with np.load(need(chosen.data_dir, "femnist10.npz")) as file:
        sizes, features = np.bincount(file["client"]), file["X"].shape[1]
    rows = [
        Row("clients", 10, [len(sizes)], 0),
        Row("features", 784, [features], 0),
        Row("points of a client", 110, sizes),
    ]
    near = bool(((sizes >= 100) & (sizes <= 130)).all())
    show("Figure 9: FEMNIST subset", rows, [claim("about 110 points each (we take: 100 to 130)", near)])
    figure, axes = canvas(1, 1, (6.5, 3.8))
    bars = axes[0, 0].bar(range(len(sizes)), sizes, color=BLUE)
    axes[0, 0].bar_label(bars, fontsize=9)
    axes[0, 0].set_xticks(range(len(sizes)))
    axes[0, 0].set(xlabel="client (writer)", ylabel="points (characters)")
    axes[0, 0].spines[["top", "right"]].set_visible(False)
    save(figure, chosen.out, "fkm_fig9")


if __name__ == "__main__":
    main()
