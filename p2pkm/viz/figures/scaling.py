"""Strong and weak scaling of a plan, predicted and measured."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from p2pkm.viz.looks import finish
from p2pkm.viz.open_run import read_table
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GRAY, ORANGE, RED, dress, open_axes, write_plainly

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@with_own_settings
def plot_scaling(found: Mapping[str, Any], ax: "Axes | None" = None) -> "Figure":
    """Draw the seconds of a round against the number of ranks.

    Parameters
    ----------
    found : dict
        With ``strong``, ``weak`` and ``measured``: rows with ``ranks`` and ``seconds``; see
        `p2pkm.experiments.plan.run`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    found = read_table([found], ("strong", "weak", "measured"), "the scaling of a plan")[0]
    ax = open_axes(ax, 7.0, 4.5, left=0.13)
    ranks, seconds = _columns(found["strong"])
    ax.plot(ranks, seconds, color=BLUE, marker="o", markersize=4.5, label="the same run on more ranks")
    ideal = [seconds[0] * ranks[0] / r for r in ranks]
    ax.plot(ranks, ideal, color=GRAY, linewidth=1.0, linestyle=":", label="the same, if messages cost nothing")
    if found["weak"]:
        weak, label = _columns(found["weak"]), f"{found['weak'][0]['devices']:,} devices on each rank"
        ax.plot(*weak, color=ORANGE, marker="s", markersize=4.5, label=label)
    if found["measured"]:
        ax.plot(*_columns(found["measured"]), color=RED, marker="x", markersize=8, linestyle="", label="measured")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(ranks)
    write_plainly(ax.xaxis)
    write_plainly(ax.yaxis)
    dress(ax, "Seconds per round, predicted", "ranks", "seconds")
    ax.legend(fontsize=9, frameon=False)
    return finish(ax)


def _columns(rows: list[dict[str, Any]]) -> tuple[list[int], list[float]]:
    return [row["ranks"] for row in rows], [row["seconds"] for row in rows]
