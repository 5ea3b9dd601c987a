"""The communication graph: who costs what, and who disagrees with whom."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.units import count
from p2pkm.viz.color_by import ColorScale, read_edges, read_nodes
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.open_run import open_run, require_type
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    CATEGORIES,
    GRAY,
    INK,
    RASTER,
    RED,
    add_bar,
    break_name,
    choose_ink,
    draw_sample,
    open_axes,
    scale_colors,
    write_names,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.network.graph import Topology
    from p2pkm.viz.open_run import Run

_LINKS = 5_000  # links; above, a sample is drawn
_NODES = 20_000  # devices; above, a sample is drawn
_NAMED = 8  # groups in the legend
_WRAPPED = 20  # letters of a line of a name
_NUMBERED = 40  # devices; above, their numbers are not written
_BEHIND = {"boxstyle": "square,pad=0.05", "color": "white", "alpha": 0.75, "linewidth": 0}  # names, over links


@with_own_settings
def plot_graph(result: "Run", ax: "Axes | None" = None, *, nodes: str = "cost", edges: str = "gtv") -> "Figure":
    """Draw the communication graph: devices and links colored by figures of theirs.

    Devices whose figure is not known, such as those without points, are gray, devices with points but without a
    centroid white with a red rim. Of more than 5,000 links or 20,000 devices a sample is drawn, always the same, and
    the title notes it.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.
    nodes : {"cost", "disagreement", "ratio", "group"}
        Cost per point; sum of the GTV of a device's links; cost on all points over the central cost; group.
    edges : {"gtv", "bytes"}
        GTV of a link; bytes sent over it, both ways.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ExperimentError
        If a name is not known.
    """
    result = open_run(result)
    devices, links = read_nodes(result, nodes), read_edges(result, edges)
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.82, bottom=0.06, top=0.9)
    topology = result.topology
    places = place_devices(topology)
    every = np.flatnonzero(topology.sources < topology.indices)
    drawn, shown = every[draw_sample(len(every), _LINKS)], draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    lines = draw_links(ax, topology, places, drawn, links.values)
    marks = _draw_devices(ax, places, shown, devices, topology)
    ax.margins(0.08)
    ax.autoscale_view()
    apart, long = (0.62, 0.36) if is_narrow() else (0.5, 0.4)  # between the color bars from foot to foot, and of one
    for colored, reading, bottom in ((marks, devices, 0.04 + apart), (lines, links, 0.04)):
        if colored is not None:
            add_bar(ax, colored, reading.label, (1.02, bottom, 0.035, long), unit=reading.unit)
    even = (edges == "gtv" and lines is None) or (nodes == "disagreement" and marks is None)
    agree = even and bool((result.centroids[:, :, 0] < np.inf).any())  # else nobody has anything to agree on
    ax.set_title(_entitle(topology, len(shown), len(every), len(drawn), agree=agree), fontsize=11, loc="left")
    return finish_figure(ax)


@with_own_settings
def plot_topology(topology: "Topology", name: str, ax: "Axes | None" = None) -> "Figure":
    """Draw a graph before anything ran on it: devices colored by their number of links, if that differs.

    Of more than 5,000 links or 20,000 devices a sample is drawn, always the same, and the title notes it.

    Parameters
    ----------
    topology : Topology
    name : str
        What the graph is, for the title.
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from p2pkm.network.graph import Topology

    topology = require_type(topology, Topology, "a Topology: p2pkm.Topology.from_graph(graph)")
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.86, bottom=0.04, top=0.9)
    places, degrees = place_devices(topology), topology.degrees.astype(np.float64)
    links = np.flatnonzero(topology.sources < topology.indices)
    drawn, nodes = links[draw_sample(len(links), _LINKS)], draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    draw_links(ax, topology, places, drawn, np.zeros(len(topology.indices)), GRAY)
    ax.margins(0.08)
    spread = degrees.min() < degrees.max()
    colors: dict[str, Any] = {"color": CATEGORIES[4]}
    if spread:
        colors = {"c": degrees[nodes], "cmap": "viridis", "norm": scale_colors(degrees)}
    marks = ax.scatter(places[nodes, 0], places[nodes, 1], **colors, **style_marks(topology.n, len(nodes)))
    if topology.n <= _NUMBERED:
        _write_labels(ax, places, degrees if spread else np.full(topology.n, np.nan), marks, topology)
    if spread:
        add_bar(ax, marks, "links of a device", (1.02, 0.25, 0.035, 0.5), whole=True)
    left_out = _tell_samples(topology.n, len(nodes), len(links), len(drawn))
    title = f"{name}: {count(topology.n, 'device')}, {count(len(links), 'link')}"
    ax.set_title("\n".join([title, *left_out]), fontsize=11, loc="left")
    return finish_figure(ax)


def _tell_samples(n: int, nodes: int, links: int, drawn: int) -> list[str]:
    """State what a picture leaves out, in no or one phrase."""
    parts = [f"{nodes:,} devices"] * (nodes < n) + [f"{drawn:,} links"] * (drawn < links)
    return [f"drawn: a sample of {' and '.join(parts)}"] if parts else []


def _entitle(topology: "Topology", nodes: int, links: int, drawn: int, *, agree: bool) -> str:
    """Return the title; its second line says what the picture leaves out."""
    notes = _tell_samples(topology.n, nodes, links, drawn)
    if agree and links:
        notes.append("all neighbors agree: GTV 0 on every link")
    server = " and a server" if topology.hub >= 0 else ""
    title = f"Communication graph: {count(topology.clients, 'device')}{server}, {count(links, 'link')}"
    return "\n".join([title, *(["; ".join(notes)] if notes else [])])


def draw_links(
    ax: "Axes", topology: "Topology", places: Floats, drawn: Integers, gtv: Floats, least: str = "#D9D9D9"
) -> Any:
    """Draw links, `least` the color of those without GTV, those of largest on top.

    Return what a color bar needs, None if no two neighbors differ.
    """
    from matplotlib.collections import LineCollection

    if not len(drawn):
        return None
    values = np.where(np.isfinite(gtv[drawn]), gtv[drawn], np.nan)
    order = np.argsort(np.nan_to_num(values, nan=-1.0), kind="stable")
    ends = np.stack((places[topology.sources[drawn]], places[topology.indices[drawn]]), axis=1)[order]
    shades, width = shade_links(least), style_links(len(drawn))
    lines = LineCollection(
        list(ends), cmap=shades, norm=scale_colors(values), linewidths=width, zorder=1, rasterized=len(drawn) > RASTER
    )
    lines.set_array(np.ma.masked_invalid(values[order]))
    ax.add_collection(lines)
    return lines if (values > 0).any() else None


def shade_links(least: str = "#D9D9D9") -> Any:
    """Return the colors of links, from `least` for those without a figure to dark."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("links", [least, "#F2B48A", "#D55E00", "#5E1F00"])


def style_links(count: int) -> float:
    """Return how wide so many links are drawn."""
    return float(np.clip(60 / np.sqrt(max(count, 1)) / 5, 0.4, 2.2))


def _draw_devices(ax: "Axes", places: Floats, nodes: Integers, reading: ColorScale, topology: "Topology") -> Any:
    """Draw devices; return what a color bar needs, None if no device has a figure, all have 0, or these are numbers."""
    values, n = reading.values, len(places)
    border = style_marks(n, len(nodes))
    known = nodes[np.isfinite(values[nodes])]
    marks = None
    if len(known):
        shades: dict[str, Any] = {"c": values[known], "cmap": "viridis", "norm": scale_colors(values)}
        if reading.numbers:
            shades |= _color_numbers(values[known])
            for number in np.unique(values[known])[:_NAMED].astype(int).tolist():
                color = CATEGORIES[number % len(CATEGORIES)]
                ax.scatter([], [], color=color, label=f"{reading.numbers} {number}", **border)
        marks = ax.scatter(places[known, 0], places[known, 1], **shades, **border)
    empty, lost = nodes[np.isnan(values[nodes])], nodes[np.isinf(values[nodes])]
    if len(empty):
        ax.scatter(places[empty, 0], places[empty, 1], color=GRAY, label=reading.unknown, **border)
    if len(lost):
        look = border | {"edgecolors": RED, "color": "white", "label": "device without centroids"}
        ax.scatter(places[lost, 0], places[lost, 1], **look)
    if len(empty) or len(lost) or reading.numbers:
        scale = (50 / border["s"]) ** 0.5
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(0, 0.02),
            ncols=4 if reading.numbers else 2,
            fontsize=8.5,
            markerscale=scale,
            frameon=False,
        )
    if n <= _NUMBERED:
        _write_labels(ax, places, values, marks, topology)
    return marks if not reading.numbers and (values[known] > 0).any() else None


def _color_numbers(values: Floats) -> dict[str, Any]:
    """Return how whole numbers are colored, those too many for the colors as the ones before."""
    from matplotlib.colors import ListedColormap, Normalize

    count = len(CATEGORIES)
    return {"c": values % count, "cmap": ListedColormap(CATEGORIES), "norm": Normalize(-0.5, count - 0.5)}


def style_marks(n: int, drawn: int) -> dict[str, Any]:
    """Return how n devices are marked, of which so many are drawn."""
    return {
        "s": float(np.clip(9_000 / n, 5 if n > 2_000 else 14, 330)),
        "linewidths": 0.8 if n <= 100 else 0.3 * (n <= RASTER),
        "edgecolors": INK,
        "zorder": 2,
        "rasterized": drawn > RASTER,
    }


def _write_labels(ax: "Axes", places: Floats, costs: Floats, marks: Any, topology: "Topology") -> None:
    """Write the devices' numbers, light on dark colors, or their names below them."""
    names = None if topology.names is None else write_names(topology.names)
    for i, (x, y) in enumerate(places):
        if names is not None:
            ax.annotate(break_name(names[i], _WRAPPED), (x, y), (0, -11), textcoords="offset points", ha="center",
                        va="top", fontsize=8, color=INK, zorder=3, bbox=_BEHIND)  # fmt: skip
            continue
        shade = marks.to_rgba(costs[i]) if marks is not None and np.isfinite(costs[i]) else (0.6, 0.6, 0.6, 1.0)
        ax.text(x, y, str(i), ha="center", va="center", fontsize=8, color=choose_ink(shade), zorder=3)
