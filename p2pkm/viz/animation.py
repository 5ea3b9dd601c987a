"""A run in motion: disagreement and traffic on the graph, and the centroids over the points."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.units import count
from p2pkm.core.validation import check_integer
from p2pkm.storage.save import staging_folder
from p2pkm.viz.color_by import read_points
from p2pkm.viz.figures.graph import shade_links, style_links, style_marks
from p2pkm.viz.figures.points import draw_points
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.open_run import open_run
from p2pkm.viz.projection import Projection2D, choose_projection
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import INK, RASTER, add_bar, label_axes, scale_colors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.metrics.replay_frames import Frames
    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run

_DPI = 90
_LAST = 6  # times that the last frame is shown, before the film starts again
_ELONGATED = 4.0  # longer over shorter side from which the axes do not share a scale
_CROSSES = 600  # centroids; above, they are dots


class AnimationFigure(NamedTuple):
    """The figure of a film, what moves in it, and how points are shown."""

    flat: Projection2D
    figure: "Figure"
    devices: Any
    links: Any
    centroids: Any
    title: Any


@with_own_settings
def animate(result: "Run", path: "str | os.PathLike[str]", *, fps: int = 5) -> Path:
    """Film a run: devices colored by their disagreement, links by what they carried, and the centroids as they move.

    Parameters
    ----------
    result : Result, or path of a run folder
    path : path
        A .gif file, or an .mp4 one where there is ffmpeg.
    fps : int
        Frames per second.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    ExperimentError
        If the file has another ending, there is no ffmpeg, or it cannot be written.
    DataError
        If the run keeps no frames.
    """
    target, result = Path(path), open_run(result)
    writer = _choose_writer(target, check_integer(fps, 1, "fps"))
    frames = result.frames
    if frames is None:
        raise DataError("the run keeps no frames: its tables are too large, or an earlier version wrote it")
    stage = _set_up(result, frames)
    last = len(frames.record) - 1
    try:
        with staging_folder(target.parent) as place, writer.saving(stage.figure, str(place / target.name), _DPI):
            for number in [*range(last), *[last] * _LAST]:
                _show(stage, result, frames, number)
                writer.grab_frame()
    except OSError as error:
        raise ExperimentError(f"{target} cannot be written: {error.strerror or error}; choose another file") from None
    return target


def _choose_writer(target: Path, fps: int) -> Any:
    """Return what writes a film of this kind."""
    from matplotlib.animation import FFMpegWriter, PillowWriter

    kind = target.suffix.lower()
    if kind not in {".gif", ".mp4"}:
        raise ExperimentError(f"the film is to be {str(target)!r}; expected a file that ends in .gif or .mp4")
    if kind == ".mp4" and not FFMpegWriter.isAvailable():
        raise ExperimentError("an .mp4 film is written by ffmpeg, which is not installed; install it, or write a .gif")
    return FFMpegWriter(fps=fps) if kind == ".mp4" else PillowWriter(fps=fps)


def _set_up(result: "Result", frames: "Frames") -> AnimationFigure:
    """Draw all that does not move."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 5.0), dpi=_DPI)
    graph, cloud = figure.add_axes((0.02, 0.07, 0.40, 0.76)), figure.add_axes((0.585, 0.12, 0.395, 0.69))
    devices, links = _set_up_graph(graph, result, frames)
    flat = choose_projection(result)
    points = flat.place(result.census.sample)
    draw_points(cloud, points, read_points(result), upright=False)
    some = frames.centroids[0].shape[0] * frames.centroids[0].shape[1]
    crosses = some <= _CROSSES
    centroids = cloud.scatter(
        [], [], s=30 if crosses else 5, marker="x" if crosses else "o", color=INK, linewidths=1.2 if crosses else 0,
        alpha=float(np.clip(600 / some, 0.25, 0.85)), zorder=3,
    )  # fmt: skip
    _set_limits(cloud, flat, points, frames)
    label_axes(cloud, "points, and the centroids of the devices", *flat.names)
    cloud.title.set_fontsize(9.5)
    cloud.yaxis.set_visible(bool(flat.names[1]))
    return AnimationFigure(flat, figure, devices, links, centroids, figure.suptitle("", x=0.02, ha="left", fontsize=11))


def _set_up_graph(ax: Any, result: "Result", frames: "Frames") -> tuple[Any, Any]:
    """Draw devices and links without their colors."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    places, n = place_devices(result.topology), len(frames.device)
    ends = np.stack((places[frames.edge_a], places[frames.edge_b]), axis=1)
    carried = _carry(frames)
    shades: Any = {"cmap": shade_links(), "norm": Normalize(0, max(float(carried.max(initial=0)), 1.0))}
    links = LineCollection(list(ends), **shades, linewidths=style_links(len(ends)), zorder=1)
    ax.add_collection(links)
    here = places[frames.device]
    look = style_marks(n, n) | {"rasterized": n > RASTER}
    known = frames.disagreement[np.isfinite(frames.disagreement)].astype(np.float64)
    norm = scale_colors(known[known > 0]) if (known > 0).any() else Normalize(0, 1)
    devices = ax.scatter(here[:, 0], here[:, 1], c=np.zeros(n), cmap="viridis", norm=norm, **look)
    if result.topology.hub >= 0:
        hub = places[result.topology.hub]
        ax.scatter(*hub, color="#9A9A9A", **look)
        ax.annotate(
            "server",
            hub,
            xytext=(0, -14),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
            bbox={"color": "white", "alpha": 0.8, "pad": 1.0},
        )
    ax.set_axis_off()
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    ax.autoscale_view()
    if (known > 0).any():
        add_bar(ax, devices, "disagreement with neighbors:\nGTV of a device's links", (1.02, 0.54, 0.03, 0.42))
    if carried.any():
        add_bar(ax, links, "bytes over a link\nsince the last frame", (1.02, 0.02, 0.03, 0.42), unit="B")
    some = "" if n == result.topology.clients else f", {n:,} of {count(result.topology.clients, 'device')}"
    ax.set_title(f"the graph{some}", fontsize=9.5, loc="left")
    return devices, links


def _carry(frames: "Frames") -> Floats:
    """Return the bytes over each link since the frame before, float64[f, l]."""
    return np.diff(frames.bytes, axis=0, prepend=0).astype(np.float64)


def _set_limits(ax: Any, flat: Projection2D, points: Floats, frames: "Frames") -> None:
    """Take in all points, and the centroids of all frames as far as they are not far away from all points."""
    shown = np.concatenate((points, flat.place(frames.centroids.astype(np.float64)).reshape(-1, 2)))
    shown = shown[np.isfinite(shown).all(axis=1)]
    if not len(shown):
        return
    low, high = shown.min(axis=0), shown.max(axis=0)
    if len(points):
        middle, half = (points.min(axis=0) + points.max(axis=0)) / 2, np.ptp(points, axis=0)
        low, high = np.maximum(low, middle - half), np.minimum(high, middle + half)
    room = np.where(high > low, 0.05 * (high - low), 1.0)
    ax.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]))
    if (high > low).all() and (high - low).max() <= _ELONGATED * (high - low).min():
        ax.set_aspect("equal", adjustable="box", anchor="W")  # distances mean the same in all directions


def _show(stage: AnimationFigure, result: "Result", frames: "Frames", number: int) -> None:
    """Move on to a frame."""
    record = result.rounds[int(frames.record[number])]
    shown = stage.flat.place(frames.centroids[number].astype(np.float64)).reshape(-1, 2)
    stage.centroids.set_offsets(shown[np.isfinite(shown).all(axis=1)].reshape(-1, 2))
    stage.devices.set_array(np.ma.masked_invalid(np.maximum(frames.disagreement[number], stage.devices.norm.vmin)))
    stage.links.set_array(_carry(frames)[number])
    parts = [str(result.summary["algorithm"]), f"stage {record['stage']}, round {record['round']}"]
    if record["ratio_mean"] is not None:
        parts.append(f"cost {100 * (record['ratio_mean'] - 1):.3g} % above central k-means")
    stage.title.set_text(", ".join(parts))
