"""Quality and bytes per round of a run with changing points."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.data.stream import DataStream
from p2pkm.metrics.stream_figures import list_rounds
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GRAY, INK, RED, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run

# Share of rounds with changed points above which only a sudden change is marked.
_MANY = 0.5


@with_own_settings
def plot_drift(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw the excess over central k-means on the points of each round, and the cumulative encoded bytes.

    Vertical lines mark rounds in which points change. If they change in most rounds, only a sudden change is marked.

    Parameters
    ----------
    result : Result, or path of a run folder
        A run without a stream gives a figure with a note only.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    run = open_run(result)
    ax = open_axes(ax, 8.4, 4.2, left=0.1, right=0.88)
    label_axes(ax, "Drift: points change during the run", "round", "cost above central k-means (%)")
    records = list_rounds(run)
    if not records:
        ax.text(0.5, 0.5, "the points did not change", transform=ax.transAxes, ha="center", color=INK)
        return finish_figure(ax)
    rounds = [record["round"] for record in records]
    ratios = np.array([np.nan if record["ratio_mean"] is None else record["ratio_mean"] for record in records])
    for number, t in enumerate(find_breaks(run)):
        ax.axvline(t, color=GRAY, lw=1.0, ls="--", label="change of points" if not number else None)
    ax.plot(rounds, 100.0 * (ratios - 1.0), color=RED, lw=1.4, label="excess")
    ax.set_xlabel("round")
    volume = ax.twinx()
    sent: Floats = np.array([record["wire_bytes"] for record in records]) / 1000.0
    volume.plot(rounds, sent, color=BLUE, lw=1.4, label="encoded bytes so far")
    volume.set_ylim(bottom=0.0)
    label_axes(volume, "", "round", "kB encoded, initialization included")
    volume.spines["right"].set_visible(True)
    lines = [line for axes in (ax, volume) for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ax.legend(lines, [str(line.get_label()) for line in lines], loc="upper left", fontsize=8, frameon=False)
    return finish_figure(ax)


def find_breaks(result: "Result") -> list[int]:
    """List the rounds in which points change or, if they change in most rounds, the round of a sudden change."""
    records = list_rounds(result)
    breaks = [record["round"] for record in records if record["break"]]
    if len(breaks) <= _MANY * len(records):
        return breaks
    stream = DataStream.of(result.summary["stream"])
    sudden = stream is not None and stream.tape is None and stream.kind in ("jump", "birth")
    return [stream.at] if sudden and stream is not None and stream.at <= records[-1]["round"] else []
