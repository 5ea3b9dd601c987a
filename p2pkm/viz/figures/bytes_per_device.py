"""Plain bytes that each device sent and received."""

from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.batch import Integers
from p2pkm.core.units import count, format_bytes
from p2pkm.viz.looks import finish_figure
from p2pkm.viz.open_run import open_run
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    BARS,
    BLUE,
    INK,
    ORANGE,
    average_steps,
    choose_text_color,
    format_counts,
    label_axes,
    open_axes,
    set_integer_ticks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run


@with_own_settings
def plot_bytes(result: "Run", ax: "Axes | None" = None) -> "Figure":
    """Draw bars of the plain bytes that each device sent and received, sorted by their sum above 100 devices.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    result = open_run(result)
    ax = open_axes(ax, 7.0, 4.2, left=0.12)
    sent, received = sum_bytes(result)
    n = len(sent)
    if n > BARS:
        order = np.argsort(-(sent + received), kind="stable")
        below, bounds = average_steps(sent[order])
        above, _ = average_steps((sent + received)[order])
        ax.stairs(below, bounds - 0.5, fill=True, color=BLUE, label="sent")
        ax.stairs(above, bounds - 0.5, baseline=below, fill=True, color=ORANGE, label="received")
    else:
        ax.bar(np.arange(n), sent, color=BLUE, label="sent")
        ax.bar(np.arange(n), received, bottom=sent, color=ORANGE, label="received")
        set_integer_ticks(ax.xaxis, n, result.topology.names)
        if n > len(result.census.sizes):
            ink = choose_text_color(BLUE)
            ax.text(n - 1, 0, "server", rotation=90, ha="center", va="bottom", color=ink, fontsize=9)
    top = max(1.0, float((sent + received).max(initial=0)))
    ax.set_xlim(-0.6, n - 0.4)
    ax.set_ylim(0, 1.18 * top)
    format_counts(ax.yaxis, "B")
    messages = count(int(result.ledger.messages.sum()), "message")
    title = f"Traffic: {format_bytes(float(sent.sum()))} of plain bytes in {messages}"
    label_axes(ax, title, "device" if n <= BARS else "devices, most traffic first", "plain bytes sent + received")
    if sent.any():
        ax.legend(loc="upper right", ncols=2, fontsize=9, frameon=False)
    else:
        ax.text(0.5, 0.5, "nothing was sent", transform=ax.transAxes, ha="center", va="center", color=INK)
    return finish_figure(ax)


def sum_bytes(result: "Result") -> tuple[Integers, Integers]:
    """Sum the bytes that each device, and a server in the ledger, sent and received, int64[n] each."""
    ledger = result.ledger
    ends = max(int(ledger.src.max(initial=-1)), int(ledger.dst.max(initial=-1))) + 1
    n = max(len(result.census.sizes), ends)
    sent, received = (np.bincount(end, ledger.bytes, minlength=n).astype(np.int64) for end in (ledger.src, ledger.dst))
    return sent, received
