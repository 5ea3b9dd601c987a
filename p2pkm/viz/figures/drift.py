"""How a method follows points that change: excess over a central refit and bytes, round by round, with the breaks."""

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

_MANY = 0.5  # share of the rounds; where more of them change points, only the sudden change is marked


@with_own_settings
def plot_drift(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw the excess of each round over central k-means on its points, and the bytes on the wire up to then.

    Lines mark the breaks: rounds in which points change, or, where they do so all the time, the sudden change.

    Parameters
    ----------
    result : Result, or path of a run folder
        Of a run with a stream; of any other one a note is drawn.
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    run = open_run(result)
    ax = open_axes(ax, 8.4, 4.2, left=0.1, right=0.88)
    label_axes(ax, "Points that change", "round", "excess over a central refit (%)")
    own = list_rounds(run)
    if not own:
        ax.text(0.5, 0.5, "the points did not change", transform=ax.transAxes, ha="center", color=INK)
        return finish_figure(ax)
    rounds = [record["round"] for record in own]
    ratios = np.array([np.nan if record["ratio_mean"] is None else record["ratio_mean"] for record in own])
    for number, t in enumerate(find_breaks(run)):
        ax.axvline(t, color=GRAY, lw=1.0, ls="--", label="break" if not number else None)
    ax.plot(rounds, 100.0 * (ratios - 1.0), color=RED, lw=1.4, label="excess")
    ax.set_xlabel("round")
    volume = ax.twinx()
    sent: Floats = np.array([record["wire_bytes"] for record in own]) / 1000.0
    volume.plot(rounds, sent, color=BLUE, lw=1.4, label="bytes so far")
    volume.set_ylim(bottom=0.0)
    label_axes(volume, "", "round", "kB on the wire, initialization included")
    volume.spines["right"].set_visible(True)
    lines = [line for one in (ax, volume) for line in one.get_lines() if not str(line.get_label()).startswith("_")]
    ax.legend(lines, [str(line.get_label()) for line in lines], loc="upper left", fontsize=8, frameon=False)
    return finish_figure(ax)


def find_breaks(result: "Result") -> list[int]:
    """Return the rounds in which the points change, or, where they do in most, the one of a sudden change, if any."""
    own = list_rounds(result)
    breaks = [record["round"] for record in own if record["break"]]
    if len(breaks) <= _MANY * len(own):
        return breaks
    asked = DataStream.of(result.summary["stream"])
    sudden = asked is not None and asked.tape is None and asked.kind in ("jump", "birth")
    return [asked.at] if sudden and asked is not None and asked.at <= own[-1]["round"] else []
