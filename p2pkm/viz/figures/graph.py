"""Communication graph with devices and links colored by metrics."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.units import count
from p2pkm.viz.color_by import ColorScale, read_edges, read_nodes
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.looks import finish_figure, is_narrow
from p2pkm.viz.names import keep_names, name_graph, write_device_names
from p2pkm.viz.open_run import open_run, require_type
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import (
    CATEGORIES,
    GRAY,
    INK,
    RASTER,
    RED,
    add_color_bar,
    choose_text_color,
    draw_sample,
    open_axes,
    scale_colors,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from p2pkm.network.graph import Topology
    from p2pkm.viz.open_run import Run

_LINKS = 5_000  # links; above, a sample is drawn
_NODES = 20_000  # devices; above, a sample is drawn
_NAMED = 8  # groups in the legend
NUMBERED = 40  # devices; above, they do not have labels


@with_own_settings
def plot_graph(result: "Run", ax: "Axes | None" = None, *, nodes: str = "cost", edges: str = "gtv") -> "Figure":
    """Draw the communication graph, with devices and links colored by metrics.

    Devices whose metric is unknown, such as those without points, are gray. Devices with points but without centroids
    are white with a red border. Of more than 5,000 links or 20,000 devices, a fixed sample is drawn, and the title
    notes it.

    Parameters
    ----------
    result : Result, or path of a run folder
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.
    nodes : {"cost", "disagreement", "ratio", "group"}, default="cost"
        Color of devices.

        * "cost": cost per local point.
        * "disagreement": total variation, summed over the device's links.
        * "ratio": cost ratio.
        * "group": number of the group.
    edges : {"gtv", "bytes", "weight"}, default="gtv"
        Color of links: total variation, bytes in both directions, or the weight that ``coupling=links`` estimated.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ExperimentError
        If the name of a color is unknown.
    """
    result = open_run(result)
    devices = read_nodes(result, nodes)
    links = read_edges(result, edges)
    topology = result.topology
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.82, bottom=0.06, top=0.9)
    places = place_devices(topology)
    # Each link once: the directed edge from the lower number.
    all_links = np.flatnonzero(topology.sources < topology.indices)
    drawn = all_links[draw_sample(len(all_links), _LINKS)]
    shown = draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    lines = draw_links(ax, topology, places, drawn, links.values)
    marks = _draw_devices(ax, places, shown, devices, topology)
    _leave_room(ax, topology)
    ax.autoscale_view()
    # Distance of the lower ends of the two color bars, and their length, relative to the axes.
    distance, length = (0.62, 0.36) if is_narrow() else (0.5, 0.4)
    for colored, scale, bottom in ((marks, devices, 0.04 + distance), (lines, links, 0.04)):
        if colored is not None:
            add_color_bar(ax, colored, scale.label, (1.02, bottom, 0.035, length), unit=scale.unit)
    is_zero = (edges == "gtv" and lines is None) or (nodes == "disagreement" and marks is None)
    # If all centroids are absent, the total variation is 0 as well, but it is not agreement.
    agree = is_zero and bool((result.centroids[:, :, 0] < np.inf).any())
    ax.set_title(
        _write_title(
            topology, len(shown), len(all_links), len(drawn), name=name_graph(result.summary.get("graph")), agree=agree
        ),
        fontsize=11,
        loc="left",
    )
    return finish_figure(ax)


@with_own_settings
def plot_topology(topology: "Topology", name: str, ax: "Axes | None" = None) -> "Figure":
    """Draw a graph without a run, with devices colored by their number of links unless all have the same.

    Of more than 5,000 links or 20,000 devices, a fixed sample is drawn, and the title notes it.

    Parameters
    ----------
    topology : Topology
    name : str
        Name of the graph in the title.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; None: a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from p2pkm.network.graph import Topology

    topology = require_type(topology, Topology, "a Topology: p2pkm.Topology.from_graph(graph)")
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.86, bottom=0.04, top=0.9)
    places = place_devices(topology)
    degrees = topology.degrees.astype(np.float64)
    links = np.flatnonzero(topology.sources < topology.indices)
    drawn = links[draw_sample(len(links), _LINKS)]
    nodes = draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    draw_links(ax, topology, places, drawn, np.zeros(len(topology.indices)), GRAY)
    _leave_room(ax, topology)
    spread = degrees.min() < degrees.max()
    colors: dict[str, Any] = {"color": CATEGORIES[4]}
    if spread:
        colors = {"c": degrees[nodes], "cmap": "viridis", "norm": scale_colors(degrees)}
    marks = ax.scatter(places[nodes, 0], places[nodes, 1], **colors, **style_marks(topology.n, len(nodes)))
    _keep(marks, nodes, topology)
    if topology.n <= NUMBERED:
        _write_labels(ax, places, degrees if spread else np.full(topology.n, np.nan), marks, topology)
    if spread:
        add_color_bar(ax, marks, "links per device", (1.02, 0.25, 0.035, 0.5), counts=True)
    left_out = _describe_samples(topology.n, len(nodes), len(links), len(drawn))
    title = f"{name}: {count(topology.n, 'device')}, {count(len(links), 'link')}"
    ax.set_title("\n".join([title, *left_out]), fontsize=11, loc="left")
    return finish_figure(ax)


def _leave_room(ax: "Axes", topology: "Topology") -> None:
    """Set the distance of the devices from the borders of the axes, larger if names are written between them."""
    named = topology.names is not None and topology.n <= NUMBERED
    ax.margins(x=0.14 if named else 0.08, y=0.14 if named else 0.08)


def _describe_samples(n: int, nodes: int, links: int, drawn: int) -> list[str]:
    """Describe the sample that is drawn in one phrase; an empty list if everything is drawn."""
    parts = []
    if nodes < n:
        parts.append(f"{nodes:,} devices")
    if drawn < links:
        parts.append(f"{drawn:,} links")
    return [f"drawn: a sample of {' and '.join(parts)}"] if parts else []


def _write_title(topology: "Topology", nodes: int, links: int, drawn: int, *, name: str, agree: bool) -> str:
    """Write the title; its second line notes samples and agreement."""
    notes = _describe_samples(topology.n, nodes, links, drawn)
    if agree and links:
        notes.append("all neighbors agree: total variation 0 on every link")
    server = " and a server" if topology.hub >= 0 else ""
    named = f" {name}" if name and topology.hub < 0 else ""
    title = f"Communication graph{named}: {count(topology.clients, 'device')}{server}, {count(links, 'link')}"
    return "\n".join([title, *(["; ".join(notes)] if notes else [])])


def draw_links(
    ax: "Axes", topology: "Topology", places: Floats, drawn: Integers, gtv: Floats, least: str = "#D9D9D9"
) -> Any:
    """Draw links colored by total variation, from the color `least` for 0, the largest on top.

    Returns
    -------
    LineCollection or None
        For a color bar; None if the total variation is 0 on all links.
    """
    from matplotlib.collections import LineCollection

    if not len(drawn):
        return None
    values = np.where(np.isfinite(gtv[drawn]), gtv[drawn], np.nan)
    order = np.argsort(np.nan_to_num(values, nan=-1.0), kind="stable")
    ends = np.stack((places[topology.sources[drawn]], places[topology.indices[drawn]]), axis=1)[order]
    shades = shade_links(least)
    width = style_links(len(drawn))
    lines = LineCollection(
        list(ends), cmap=shades, norm=scale_colors(values), linewidths=width, zorder=1, rasterized=len(drawn) > RASTER
    )
    lines.set_array(np.ma.masked_invalid(values[order]))
    ax.add_collection(lines)
    return lines if (values > 0).any() else None


def shade_links(least: str = "#D9D9D9") -> Any:
    """Return the color map of links, from `least` to dark."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("links", [least, "#F2B48A", "#D55E00", "#5E1F00"])


def style_links(count: int) -> float:
    """Return the line width for `count` links, in points."""
    return float(np.clip(60 / np.sqrt(max(count, 1)) / 5, 0.4, 2.2))


def _draw_devices(ax: "Axes", places: Floats, nodes: Integers, scale: ColorScale, topology: "Topology") -> Any:
    """Draw devices; return the marks for a color bar, or None if all values are 0, unknown or labels."""
    values = scale.values
    n = len(places)
    border = style_marks(n, len(nodes))
    known = nodes[np.isfinite(values[nodes])]
    marks = None
    if len(known):
        shades: dict[str, Any] = {"c": values[known], "cmap": "viridis", "norm": scale_colors(values)}
        if scale.numbers:
            shades |= _color_numbers(values[known])
            for number in np.unique(values[known])[:_NAMED].astype(int).tolist():
                color = CATEGORIES[number % len(CATEGORIES)]
                ax.scatter([], [], color=color, label=f"{scale.numbers} {number}", **border)
        marks = ax.scatter(places[known, 0], places[known, 1], **shades, **border)
        _keep(marks, known, topology)
    empty = nodes[np.isnan(values[nodes])]
    without_centroids = nodes[np.isinf(values[nodes])]
    if len(empty):
        _keep(
            ax.scatter(places[empty, 0], places[empty, 1], color=GRAY, label=scale.unknown, **border), empty, topology
        )
    if len(without_centroids):
        border_without = border | {"edgecolors": RED, "color": "white", "label": "device without centroids"}
        hollow = ax.scatter(places[without_centroids, 0], places[without_centroids, 1], **border_without)
        _keep(hollow, without_centroids, topology)
    if len(empty) or len(without_centroids) or scale.numbers:
        marker_scale = (50 / border["s"]) ** 0.5
        ax.legend(
            loc="upper left",
            bbox_to_anchor=(0, 0.02),
            ncols=4 if scale.numbers else 2,
            fontsize=8.5,
            markerscale=marker_scale,
            frameon=False,
        )
    if n <= NUMBERED:
        _write_labels(ax, places, values, marks, topology)
    return marks if not scale.numbers and (values[known] > 0).any() else None


def _keep(marks: Any, nodes: Integers, topology: "Topology") -> None:
    """Attach the names of devices to their marks, for the table of the figure."""
    if topology.names is not None:
        keep_names(marks, [topology.names[i] for i in nodes])


def _color_numbers(values: Floats) -> dict[str, Any]:
    """Return the colors of integer labels; the colors repeat after seven."""
    from matplotlib.colors import ListedColormap, Normalize

    count = len(CATEGORIES)
    return {"c": values % count, "cmap": ListedColormap(CATEGORIES), "norm": Normalize(-0.5, count - 0.5)}


def style_marks(n: int, drawn: int) -> dict[str, Any]:
    """Return the style of marks for n devices, of which `drawn` are drawn."""
    return {
        "s": float(np.clip(9_000 / n, 5 if n > 2_000 else 14, 330)),
        "linewidths": 0.8 if n <= 100 else 0.3 * (n <= RASTER),
        "edgecolors": INK,
        "zorder": 2,
        "rasterized": drawn > RASTER,
    }


def _write_labels(ax: "Axes", places: Floats, costs: Floats, marks: Any, topology: "Topology") -> None:
    """Write the numbers of devices inside their marks, or their names next to them."""
    if topology.names is not None:
        write_device_names(ax, places, topology.names)
        return
    for i, (x, y) in enumerate(places):
        shade = marks.to_rgba(costs[i]) if marks is not None and np.isfinite(costs[i]) else (0.6, 0.6, 0.6, 1.0)
        ax.text(x, y, str(i), ha="center", va="center", fontsize=8, color=choose_text_color(shade), zorder=3)
