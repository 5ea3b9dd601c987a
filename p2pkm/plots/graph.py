"""The communication graph: who costs what, and who disagrees with whom."""

from typing import TYPE_CHECKING, Any

import numpy as np

from p2pkm.devices import Floats, Integers
from p2pkm.plots.canvas import (
    CATEGORIES,
    GREY,
    INK,
    RASTER,
    RED,
    add_bar,
    count,
    draw_sample,
    open_axes,
    scale_colors,
)
from p2pkm.plots.layout import place_devices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from p2pkm.result import Result
    from p2pkm.topology import Topology

_LINKS = 5_000  # links; above, a sample is drawn
_NODES = 20_000  # devices; above, a sample is drawn
_NUMBERED = 40  # devices; above, their numbers are not written


def plot_graph(result: "Result", ax: "Axes | None" = None) -> "Axes":
    """Draw the communication graph: devices coloured by their cost per point, links by their GTV.

    Devices without points are grey, devices with points but without a centroid white with a red rim. Of more than
    5,000 links or 20,000 devices a sample is drawn, always the same, and the title says so.

    Parameters
    ----------
    result : Result
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.82, bottom=0.06, top=0.9)
    topology = result.topology
    places = place_devices(topology)
    links = np.flatnonzero(topology.sources < topology.indices)
    drawn = links[draw_sample(len(links), _LINKS)]
    nodes = draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    edges = _draw_links(ax, topology, places, drawn, result.gtv)
    marks = _draw_devices(ax, places, nodes, result)
    ax.margins(0.08)
    ax.autoscale_view()
    if marks is not None:
        add_bar(ax, marks, "cost per point of a device\n(squared distance)", (1.02, 0.54, 0.035, 0.4))
    if edges is not None:
        add_bar(ax, edges, "GTV of a link\n(squared distance)", (1.02, 0.04, 0.035, 0.4))
    title = _entitle(topology, len(nodes), len(links), len(drawn), agree=edges is None)
    ax.set_title(title, fontsize=11, loc="left")
    return ax


def plot_topology(topology: "Topology", name: str, ax: "Axes | None" = None) -> "Axes":
    """Draw a graph before anything ran on it: devices coloured by their number of links, if that differs.

    Of more than 5,000 links or 20,000 devices a sample is drawn, always the same, and the title says so.

    Parameters
    ----------
    topology : Topology
    name : str
        What the graph is, for the title.
    ax : matplotlib.axes.Axes, optional
        Where to draw; None: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
    """
    ax = open_axes(ax, 7.2, 5.6, left=0.03, right=0.86, bottom=0.04, top=0.9)
    places, degrees = place_devices(topology), topology.degrees.astype(np.float64)
    links = np.flatnonzero(topology.sources < topology.indices)
    drawn, nodes = links[draw_sample(len(links), _LINKS)], draw_sample(topology.n, _NODES)
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    _draw_links(ax, topology, places, drawn, np.zeros(len(topology.indices)), GREY)
    ax.margins(0.08)
    spread = degrees.min() < degrees.max()
    colors: dict[str, Any] = {"color": CATEGORIES[4]}
    if spread:
        colors = {"c": degrees[nodes], "cmap": "viridis", "norm": scale_colors(degrees)}
    marks = ax.scatter(places[nodes, 0], places[nodes, 1], **colors, **_style_marks(topology.n, len(nodes)))
    if topology.n <= _NUMBERED:
        _write_numbers(ax, places, degrees if spread else np.full(topology.n, np.nan), marks)
    if spread:
        add_bar(ax, marks, "links of a device", (1.02, 0.25, 0.035, 0.5), whole=True)
    left_out = _tell_samples(topology.n, len(nodes), len(links), len(drawn))
    title = f"{name}: {count(topology.n, 'device')}, {count(len(links), 'link')}"
    ax.set_title("\n".join([title, *left_out]), fontsize=11, loc="left")
    return ax


def _tell_samples(n: int, nodes: int, links: int, drawn: int) -> list[str]:
    """Say what a picture leaves out, in no or one phrase."""
    parts = [f"{nodes:,} devices"] * (nodes < n) + [f"{drawn:,} links"] * (drawn < links)
    return [f"drawn: a sample of {' and '.join(parts)}"] if parts else []


def _entitle(topology: "Topology", nodes: int, links: int, drawn: int, *, agree: bool) -> str:
    """Return the title; its second line says what the picture leaves out."""
    notes = _tell_samples(topology.n, nodes, links, drawn)
    if agree and links:
        notes.append("all neighbours agree: GTV 0 on every link")
    server = " and a server" if topology.hub >= 0 else ""
    title = f"Communication graph: {count(topology.clients, 'device')}{server}, {count(links, 'link')}"
    return "\n".join([title, *(["; ".join(notes)] if notes else [])])


def cost_per_point(losses: Floats, sizes: Integers) -> Floats:
    """Return each device's cost per point, float64[n]; NaN without points, inf without a centroid for them."""
    return np.where(sizes > 0, losses / np.maximum(sizes, 1), np.nan)


def _draw_links(
    ax: "Axes", topology: "Topology", places: Floats, drawn: Integers, gtv: Floats, least: str = "#D9D9D9"
) -> Any:
    """Draw links, `least` the colour of those without GTV, those of largest on top.

    Return what a colour bar needs, None if no two neighbours differ.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    if not len(drawn):
        return None
    values = np.where(np.isfinite(gtv[drawn]), gtv[drawn], np.nan)
    order = np.argsort(np.nan_to_num(values, nan=-1.0), kind="stable")
    ends = np.stack((places[topology.sources[drawn]], places[topology.indices[drawn]]), axis=1)[order]
    width = float(np.clip(60 / np.sqrt(len(drawn)) / 5, 0.4, 2.2))
    shades = LinearSegmentedColormap.from_list("links", [least, "#F2B48A", "#D55E00", "#5E1F00"])
    lines = LineCollection(
        list(ends), cmap=shades, norm=scale_colors(values), linewidths=width, zorder=1, rasterized=len(drawn) > RASTER
    )
    lines.set_array(np.ma.masked_invalid(values[order]))
    ax.add_collection(lines)
    return lines if (values > 0).any() else None


def _draw_devices(ax: "Axes", places: Floats, nodes: Integers, result: "Result") -> Any:
    """Draw devices; return what a colour bar needs, None if no device has a cost."""
    n = result.topology.n
    costs = np.full(n, np.nan)  # a hub without points has no entry of its own
    own = cost_per_point(result.losses, result.census.sizes)[:n]
    costs[: len(own)] = own
    border = _style_marks(n, len(nodes))
    known = nodes[np.isfinite(costs[nodes])]
    marks = None
    if len(known):
        marks = ax.scatter(
            places[known, 0], places[known, 1], c=costs[known], cmap="viridis", norm=scale_colors(costs), **border
        )
    empty, lost = nodes[np.isnan(costs[nodes])], nodes[np.isinf(costs[nodes])]
    if len(empty):
        label = "device without points" if result.topology.hub < 0 else "server, device without points"
        ax.scatter(places[empty, 0], places[empty, 1], color=GREY, label=label, **border)
    if len(lost):
        ax.scatter(
            places[lost, 0],
            places[lost, 1],
            **(border | {"edgecolors": RED}),
            color="white",
            label="device without centroids",
        )
    if len(empty) or len(lost):
        scale = (50 / border["s"]) ** 0.5
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0.02), ncols=2, fontsize=8.5, markerscale=scale, frameon=False)
    if n <= _NUMBERED:
        _write_numbers(ax, places, costs, marks)
    return marks


def _style_marks(n: int, drawn: int) -> dict[str, Any]:
    """Return how n devices are marked, of which so many are drawn."""
    return {
        "s": float(np.clip(9_000 / n, 5 if n > 2_000 else 14, 330)),
        "linewidths": 0.8 if n <= 100 else 0.3 * (n <= RASTER),
        "edgecolors": INK,
        "zorder": 2,
        "rasterized": drawn > RASTER,
    }


def _write_numbers(ax: "Axes", places: Floats, costs: Floats, marks: Any) -> None:
    """Write the devices' numbers, light on dark colours."""
    for i, (x, y) in enumerate(places):
        shade = marks.to_rgba(costs[i]) if marks is not None and np.isfinite(costs[i]) else (0.6, 0.6, 0.6, 1.0)
        dark = np.isfinite(costs[i]) and float(np.dot(shade[:3], (0.299, 0.587, 0.114))) < 0.5
        ax.text(x, y, str(i), ha="center", va="center", fontsize=8, color="white" if dark else INK, zorder=3)
