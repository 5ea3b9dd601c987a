"""Quality against encoded bytes of a benchmark, with the Pareto front of each class of trust."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from p2pkm.analysis.bench_blocks import FLOOR
from p2pkm.analysis.bench_statistics import BenchEntry
from p2pkm.core.errors import DataError
from p2pkm.core.validation import check_choice
from p2pkm.viz.figures.bench_map import open_bench
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.names import write_device_names
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GRAY, GREEN, ORANGE, RED, choose_steps, format_tick_labels, label_axes, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = {"no server": BLUE, "server": ORANGE, "private": GREEN, "raw points leave": RED}
_AXES = {
    "bytes_over_raw": "encoded bytes, as a multiple of the bytes of all points",
    "busiest_over_raw": "encoded bytes of the busiest device, as a multiple of the bytes of all points",
}
_INTEGER = "integer"


@with_own_settings
def plot_bench_fronts(bench: Any, ax: "Axes | None" = None, *, against: str = "bytes_over_raw") -> "Figure":
    """Draw the excess of every entry against its bytes, with one Pareto front per class of trust.

    Marks are geometric means; those of entries with integers are filled, those with real numbers hollow, and a thin
    line joins the variants of a method.

    Parameters
    ----------
    bench : BenchSummary or list of dict
        Ranking or rows of a benchmark.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    against : {"bytes_over_raw", "busiest_over_raw"}, default="bytes_over_raw"
        Horizontal axis.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.ticker import LogLocator

    check_choice(against, _AXES, "against")
    summary = open_bench(bench)
    entries = [entry for entry in summary.entries if entry.trust in COLORS and getattr(entry, against)]
    if not entries:
        raise DataError("no entry of the benchmark has sent bytes; expected at least one. Run it with other methods")
    width, height = (4.8, 5.6) if is_narrow() else (8.0, 5.4)
    ax = open_axes(ax, width, height, left=0.09, right=0.97, bottom=0.11, top=0.93)
    points = {entry.entry: (float(getattr(entry, against)), 100 * entry.excess) for entry in entries}
    main = {entry.method: points[entry.entry] for entry in entries if entry.place is not None}
    for entry in entries:
        if entry.place is None and entry.method in main:
            ax.plot(*zip(main[entry.method], points[entry.entry], strict=True), color=COLORS[entry.trust],
                    linewidth=0.6, alpha=0.5, zorder=1)  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    axes: tuple[Any, Any] = (ax.xaxis, ax.yaxis)
    for axis, values in zip(axes, zip(*points.values(), strict=True), strict=True):
        low, high = min(values), max(values)
        getattr(ax, f"set_{axis.axis_name}lim")(low / 1.7, high * 1.7)
        axis.set_major_locator(LogLocator(subs=choose_steps(low, high)))
        format_tick_labels(axis)
    for trust, color in COLORS.items():
        members = [entry for entry in entries if entry.trust == trust]
        if members:
            _draw_class(ax, members, points, color)
    ax.axhline(100 * FLOOR, color=GRAY, linewidth=0.8, linestyle=":", zorder=0)
    ax.axvline(1.0, color=GRAY, linewidth=0.8, linestyle=":", zorder=0)
    label_axes(ax, "Quality against encoded bytes: geometric means over all blocks", _AXES[against],
               "excess over the best known cost (%)")  # fmt: skip
    _draw_legend(ax, [trust for trust in COLORS if any(entry.trust == trust for entry in entries)])
    named = [entry for entry in entries if entry.place is not None]
    write_device_names(ax, [points[entry.entry] for entry in named], [entry.entry for entry in named])
    return finish_figure(ax)


def find_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """List the points that no other one exceeds in both bytes and excess, in the order of their bytes."""
    front: list[tuple[float, float]] = []
    for point in sorted(points):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _draw_class(
    ax: "Axes", members: Sequence[BenchEntry], points: dict[str, tuple[float, float]], color: str
) -> None:  # fmt: skip
    """Draw the marks of a class of trust and its Pareto front, up to the edges of the axes."""
    front = find_front([points[entry.entry] for entry in members])
    front = [(front[0][0], ax.get_ylim()[1]), *front, (ax.get_xlim()[1], front[-1][1])]
    ax.step(*zip(*front, strict=True), where="post", color=color, linewidth=1.3, zorder=2, label=members[0].trust)
    for encoding in dict.fromkeys(entry.encoding for entry in members):
        filled = encoding == _INTEGER
        marks = [points[entry.entry] for entry in members if entry.encoding == encoding]
        x, y = zip(*marks, strict=True)
        ax.scatter(x, y, s=34, color=color, facecolors=color if filled else "white", linewidths=1.2, zorder=3)


def _draw_legend(ax: "Axes", trusts: Sequence[str]) -> None:
    """Draw the legend of classes of trust and encodings above the axes."""
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], color=COLORS[trust], linewidth=1.6, label=trust) for trust in trusts]
    for label, fill in (("integers", "#555555"), ("real numbers", "white")):
        marks.append(
            Line2D([], [], color="#555555", marker="o", markerfacecolor=fill, linestyle="none", label=label)
        )  # fmt: skip
    ax.legend(handles=marks, loc="upper left", bbox_to_anchor=(0.0, -0.12), ncols=len(marks), fontsize=8.5,
              frameon=False, handlelength=1.4, columnspacing=1.2)  # fmt: skip
