"""Claimed privacy bounds of noisy sums next to the results of attacks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import read_table
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GRAY, ORANGE, RED, label_axes, open_axes, set_integer_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 0.38  # of a bar; 1 is the distance of two rows


@with_own_settings
def plot_attack(result: Mapping[str, Any], ax: "Axes | None" = None) -> "Figure":
    """Draw claimed and measured mu, with four standard errors, and the bounds of epsilon above the bars.

    Parameters
    ----------
    result : dict
        Output of ``p2pkm attack --format json``.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    attack = read_table([result], ("rows", "what", "graph"), "the output of p2pkm attack --format json")[0]
    rows = read_table(attack["rows"], ("mu_claimed", "mu_measured", "mu_error"), "rows of p2pkm attack")
    ax = open_axes(ax, 7.6, 4.5, left=0.1, top=0.86)
    places = np.arange(len(rows))
    claimed, errors = (np.array([row[key] for row in rows]) for key in ("mu_claimed", "mu_error"))
    finite = [row["mu_measured"] for row in rows if row["mu_measured"] is not None]
    # A bar of an unbounded mu is higher than all others.
    unbounded = 1.5 * max(*claimed, *finite, 1e-3)
    measured = np.array([unbounded if row["mu_measured"] is None else row["mu_measured"] for row in rows])
    ax.bar(places - _WIDTH / 2, claimed, _WIDTH, color=GRAY, label="claimed mu (number: max. epsilon)")
    colors = [ORANGE if row["holds"] else RED for row in rows]
    ax.bar(places + _WIDTH / 2, measured, _WIDTH, color=colors, label="measured mu (number: min. epsilon)")
    ax.errorbar(
        places + _WIDTH / 2, measured, 4 * errors, fmt="none", ecolor=BLUE, capsize=3, label="4 standard errors"
    )
    for row, place, upper_end in zip(rows, places, measured + 4 * errors, strict=True):
        bounds = (
            ("epsilon_claimed", "\u2264", -1, row["mu_claimed"]),
            ("epsilon_found", "\u2265", 1, upper_end),
        )
        for key, sign, side, height in bounds:
            is_unbounded = key == "epsilon_found" and row["mu_measured"] is None
            text = "unbounded" if is_unbounded else f"{sign}{row[key]:.2f}"
            anchor = (place + side * _WIDTH / 2, height)
            ax.annotate(text, anchor, (0, 3), textcoords="offset points", ha="center", fontsize=8)
    gossip = attack["what"] == "gossip"
    ax.set_xlim(-0.7, len(rows) - 0.3)
    ax.set_ylim(0.0, max(*1.25 * claimed, *1.25 * measured, *1.1 * (measured + 4 * errors), 1e-3))
    title = f"Claimed bound and attack, {attack['graph']}" + (f", {attack['gossips']} gossips" if gossip else "")
    label_axes(ax, title, f"distance from device {attack['receiver']}" if gossip else "coalition", "mu")
    set_integer_ticks(ax.xaxis, len(rows), [str(row["distance" if gossip else "against"]) for row in rows])
    ax.legend(fontsize=8, frameon=False, loc="upper right", ncols=3, bbox_to_anchor=(1.0, 1.02))
    return finish_figure(ax)
