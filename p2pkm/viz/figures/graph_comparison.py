"""Comparison of graphs: small drawings, and bars of their measures and predictions."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.units import count
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.names import break_name
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import BLUE, GRAY, INK, ORANGE, RASTER, draw_sample, open_axes, set_name_ticks, write_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.network.graph import Topology

_COLUMNS = 4  # drawings in a row
_SIDE = 2.5  # inches; width and height of a drawing
_LINE = 0.34  # inches; height of a bar with its gap
_BARS = 1.15  # inches; height of titles and margins around a row of bars
_LINKS, _NODES = 2_000, 5_000  # above, a sample is drawn
_MEASURES = {
    "diameter": "diameter\n(hops)",
    "spectral_gap": "spectral gap",
    "effective_neighbors": "effective\nneighbors",
    "path_load": "path load of the\nbusiest device",
    "contraction": "contraction,\njacobi",
    "disagreement": "remaining\ndifference",
}


class Panel(NamedTuple):
    """Graph with its measures.

    Attributes
    ----------
    name : str
    topology : Topology
    active : bool[e] or None
        Active directed edges in round 0 of a time-varying graph; None: static.
    figures : dict
        Measures by name, each a dict with ``value`` (None: undefined) and ``exact``.
    """

    name: str
    topology: "Topology"
    active: Mask | None
    figures: dict[str, Any]


@with_own_settings
def plot_graphs(panels: list[Panel], ax: "Axes | None" = None) -> "Figure":
    """Draw each graph, and bars of six measures, in the order of the list.

    Time-varying graphs are orange: links of round 0 dark, links of other rounds pale. ``~`` marks estimates.

    Parameters
    ----------
    panels : list of Panel
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        Drawings, then bars, are the ``child_axes`` of its axes.
    """
    if not isinstance(panels, list | tuple) or not panels or not all(isinstance(panel, Panel) for panel in panels):
        raise ExperimentError(
            f"the object to draw has the type {type(panels).__name__}; expected a list of at least one "
            "p2pkm.viz.figures.graph_comparison.Panel. Use p2pkm topology compare"
        )
    narrow = is_narrow()
    columns = min(2 if narrow else _COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    bars = (_BARS + _LINE * len(panels)) * (2 if narrow else 1)
    width = max(5.5 if narrow else 10.0, _SIDE * columns)
    height = (_SIDE + 0.45) * rows + bars
    ax = open_axes(ax, width, height, left=0, right=1, bottom=0, top=1)
    ax.set_axis_off()
    side = width / columns
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        top = height - (_SIDE + 0.45) * (row + 1)
        box = ((column * side + 0.1) / width, top / height, (side - 0.2) / width, _SIDE / height)
        _draw_graph(ax.inset_axes(box), panel)
    _draw_bars(ax, panels, (width, height), 2 if narrow else 1)
    return finish_figure(ax)


def _draw_graph(ax: "Axes", panel: Panel) -> None:
    from matplotlib.collections import LineCollection

    topology = panel.topology
    places = place_devices(topology)
    links = np.flatnonzero(topology.sources < topology.indices)
    drawn = links[draw_sample(len(links), _LINKS)]
    nodes = draw_sample(topology.n, _NODES)
    dark = np.zeros(len(drawn), np.bool_) if panel.active is None else panel.active[drawn]
    thin = float(np.clip(12 / np.sqrt(max(len(drawn), 1)), 0.25, 1.3))
    for chosen, color, wide in ((drawn[~dark], "#C8C8C8", thin), (drawn[dark], INK, thin + 0.4)):
        ends = np.stack((places[topology.sources[chosen]], places[topology.indices[chosen]]), axis=1)
        many = len(chosen) > RASTER
        ax.add_collection(LineCollection(list(ends), colors=color, linewidths=wide, zorder=1, rasterized=many))
    ax.scatter(
        places[nodes, 0], places[nodes, 1], s=float(np.clip(2_000 / topology.n, 2, 45)), color=_color(panel), zorder=2,
        linewidths=0.5 if topology.n <= 100 else 0.0, edgecolors="white", rasterized=len(nodes) > RASTER,
    )  # fmt: skip
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    sampled = " (a sample)" if len(drawn) < len(links) or len(nodes) < topology.n else ""
    size = f"{count(topology.n, 'device')}, {count(len(links), 'link')}{sampled}"
    ax.set_title(f"{break_name(panel.name, 30)}\n{size}", fontsize=8.5)


def _draw_bars(ax: "Axes", panels: list[Panel], size: tuple[float, float], rows: int) -> None:
    """Draw a column of bars for each measure, with the names of the graphs left of each row of columns."""
    width, height = size
    names = [break_name(panel.name, 22) for panel in panels]
    left = 0.25 + 0.075 * max(len(line) for name in names for line in name.split("\n"))
    columns = len(_MEASURES) // rows
    step = (width - left - 0.15) / columns
    tall = _LINE * len(panels) + 0.1
    for number, (key, title) in enumerate(_MEASURES.items()):
        row, column = divmod(number, columns)
        low = 0.35 + (rows - 1 - row) * (_BARS + _LINE * len(panels))
        bars = ax.inset_axes(((left + column * step) / width, low / height, 0.66 * step / width, tall / height))
        _draw_column(bars, panels, key)
        bars.set_title(title, fontsize=8.5, loc="left")
        set_name_ticks(bars.yaxis, [panel.name for panel in panels], names)
        bars.tick_params("y", labelsize=8, labelleft=column == 0)
    if any(panel.active is not None for panel in panels):
        ax.text(
            0.1 / width, 0.08 / height, "orange: time-varying graph; dark links: round 0", fontsize=8,
            color=INK, va="bottom", transform=ax.transAxes,
        )  # fmt: skip


def _draw_column(ax: "Axes", panels: list[Panel], key: str) -> None:
    values = [panel.figures[key]["value"] for panel in panels]
    known = [0.0 if value is None else float(value) for value in values]
    most = max(known) or 1.0
    ax.barh(range(len(panels)), known, height=0.62, color=[_color(panel) for panel in panels])
    for place, (panel, value) in enumerate(zip(panels, values, strict=True)):
        mark = "" if panel.figures[key]["exact"] else "~"
        text = "–" if value is None else f"{mark}{write_number(value)}"
        ax.text(known[place] + 0.03 * most, place, text, va="center", fontsize=8, color=INK)
    ax.set_xlim(0, most)
    ax.set_ylim(len(panels) - 0.5, -0.5)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.spines["left"].set_color(GRAY)
    ax.tick_params(length=0)
    ax.set_xticks([])


def _color(panel: Panel) -> str:
    return BLUE if panel.active is None else ORANGE
