"""Xu et al., figure 12: the distances of tables 8 and 9, FeCA on S1 with 1 to 20 clients.

The paper shows the l2-distance over the number of clients that have 5 % of the points each (left) and that share them
equally (right).

We compare what feca_table8.py and feca_table9.py compare, and print their tables.
"""

import feca_table8
import feca_table9
from paper import canvas, options, save


def main() -> None:
    """Run, print the tables and draw."""
    chosen = options(__doc__, 40)
    figure, axes = canvas(1, 2, (11, 4.2), sharey=True)
    titles = "5 % of the points at each client", "an equal share of the points at each client"
    for ax, part, title in zip(axes[0], (feca_table8, feca_table9), titles, strict=True):
        feca_table8.draw(ax, part.study(chosen), part.DISTANCE, title)
    save(figure, chosen.out, "feca_fig12")


if __name__ == "__main__":
    main()
