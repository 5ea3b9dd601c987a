"""Animation of a run: total variation and traffic on the graph, and the centroids over the points."""

import base64
import os
from collections.abc import Iterator, Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.units import count
from p2pkm.core.validation import check_integer
from p2pkm.storage.save import staging_folder, write_bytes
from p2pkm.viz.color_by import read_points
from p2pkm.viz.figures.graph import NUMBERED, shade_links, style_links, style_marks
from p2pkm.viz.figures.points import draw_points
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.names import name_run, write_device_names
from p2pkm.viz.open_run import open_run
from p2pkm.viz.projection import Projection2D, choose_projection
from p2pkm.viz.settings import with_own_settings
from p2pkm.viz.style import INK, RASTER, add_color_bar, label_axes, scale_colors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from p2pkm.metrics.replay_frames import Frames
    from p2pkm.metrics.result import Result
    from p2pkm.viz.open_run import Run

_DPI = 90
# Repetitions of the last frame, as a pause before the animation starts again.
_LAST = 6
# Ratio of the longer to the shorter side above which the axes do not share a scale.
_ELONGATED = 4.0
# Number of centroids above which they are drawn as dots instead of crosses.
_CROSSES = 600


class AnimationFigure(NamedTuple):
    """Figure of an animation, its artists that change from frame to frame, and the projection of the points."""

    projection: Projection2D
    figure: "Figure"
    devices: Any
    links: Any
    centroids: Any
    title: Any


class Animation(NamedTuple):
    """Animation of a run as a GIF image, which a notebook plays.

    Attributes
    ----------
    gif : bytes
    title : str
    """

    gif: bytes
    title: str

    def __repr__(self) -> str:
        return f"<Animation of {self.title}, {len(self.gif):,} bytes; save(path) writes it, and a notebook plays it>"

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.gif).decode()
        return f'<img alt="animation: {escape(self.title)}" style="max-width:100%" src="data:image/gif;base64,{data}">'

    def save(self, path: "str | os.PathLike[str]") -> Path:
        """Write the GIF image to a file, which appears only when it is complete."""
        target = Path(path)
        _check_kind(target, (".gif",))
        write_bytes(target.parent, target.name, lambda file: file.write(self.gif))
        return target


@with_own_settings
def animate(result: "Run", path: "str | os.PathLike[str] | None" = None, *, fps: int = 5) -> Path | Animation:
    """Animate a run: devices colored by total variation, links by their traffic, and the moving centroids.

    Parameters
    ----------
    result : Result, or path of a run folder
    path : path, optional
        A .gif file, or an .mp4 file, which requires ffmpeg. None: no file; a notebook plays what is returned.
    fps : int, default=5
        Frames per second.

    Returns
    -------
    pathlib.Path or Animation
        The file or, without `path`, the animation in memory.

    Raises
    ------
    ExperimentError
        If the file has another suffix or cannot be written, or if ffmpeg is required and not installed.
    DataError
        If the run has not recorded frames.
    """
    result = open_run(result)
    if path is None:
        with TemporaryDirectory() as folder:
            file = _write(result, Path(folder) / "replay.gif", fps)
            return Animation(file.read_bytes(), name_run(result.summary))
    return _write(result, Path(path), fps)


def _write(result: "Result", target: Path, fps: int) -> Path:
    """Write the animation of a run to a file."""
    kind = _check_kind(target, (".gif", ".mp4"))
    check_integer(fps, 1, "fps")
    frames = result.frames
    if frames is None:
        raise DataError(
            "the run has not recorded frames: its tables are too large, or an earlier version wrote it. Run it again, "
            "with fewer points or devices if they are too large"
        )
    animation, write = _set_up(result, frames), _write_gif if kind == ".gif" else _write_video
    try:
        with staging_folder(target.parent) as place:
            write(animation.figure, _show_frames(animation, result, frames), fps, place / target.name)
    except OSError as error:
        raise ExperimentError(f"{target} cannot be written: {error.strerror or error}. Choose another file") from None
    return target


def _check_kind(target: Path, kinds: Sequence[str]) -> str:
    """Validate the suffix of a file, and return it."""
    from matplotlib.animation import FFMpegWriter

    kind = target.suffix.lower()
    if kind not in kinds:
        raise ExperimentError(f"path of the animation is {str(target)!r}; expected a suffix {' or '.join(kinds)}")
    if kind == ".mp4" and not FFMpegWriter.isAvailable():
        raise ExperimentError("an .mp4 animation requires ffmpeg, which is not installed. Install it, or write a .gif")
    return kind


def _show_frames(animation: AnimationFigure, result: "Result", frames: "Frames") -> Iterator[None]:
    """Update the figure to one frame after the other, and at the end several times to the last."""
    last = len(frames.record) - 1
    for number in [*range(last), *[last] * _LAST]:
        _show(animation, result, frames, number)
        yield


def _write_video(figure: "Figure", shown: Iterator[None], fps: int, path: Path) -> None:
    from matplotlib.animation import FFMpegWriter

    writer = FFMpegWriter(fps=fps)
    with writer.saving(figure, str(path), _DPI):
        for _ in shown:
            writer.grab_frame()


def _write_gif(figure: "Figure", shown: Iterator[None], fps: int, path: Path) -> None:
    """Write a GIF image with one palette for all frames.

    The writer of matplotlib leaves colors to Pillow, which makes a palette for each frame and dithers. Then hardly any
    pixel stays equal from frame to frame, and files are several times as large.
    """
    from PIL import Image

    images = []
    for _ in shown:
        pixels = BytesIO()
        figure.savefig(pixels, format="png", dpi=_DPI)
        images.append(Image.open(pixels).convert("RGB"))
    # The most distant colors of a frame, not the most frequent ones: those of the color bars are few pixels.
    palette = images[len(images) // 2].quantize(256, method=Image.Quantize.MAXCOVERAGE)
    colors = np.array(palette.getpalette()).reshape(-1, 3)
    colors[colors.min(axis=1) > 245] = 255  # means of the background and light pixels
    palette.putpalette(colors.ravel().tolist())
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    first.save(path, format="GIF", save_all=True, append_images=others, duration=int(1000 / fps), loop=0)


def _set_up(result: "Result", frames: "Frames") -> AnimationFigure:
    """Draw the parts that are the same in all frames."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 5.0), dpi=_DPI)
    graph = figure.add_axes((0.02, 0.07, 0.40, 0.76))
    cloud = figure.add_axes((0.585, 0.12, 0.395, 0.69))
    devices, links = _set_up_graph(graph, result, frames)
    projection = choose_projection(result)
    points = projection.place(result.census.sample)
    draw_points(cloud, points, read_points(result), upright=False)
    n_centroids = frames.centroids[0].shape[0] * frames.centroids[0].shape[1]
    crosses = n_centroids <= _CROSSES
    centroids = cloud.scatter(
        [], [], s=30 if crosses else 5, marker="x" if crosses else "o", color=INK, linewidths=1.2 if crosses else 0,
        alpha=float(np.clip(600 / n_centroids, 0.25, 0.85)), zorder=3,
    )  # fmt: skip
    _set_limits(cloud, projection, points, frames)
    label_axes(cloud, "points, and centroids of the devices", *projection.names)
    cloud.title.set_fontsize(9.5)
    cloud.yaxis.set_visible(bool(projection.names[1]))
    title = figure.suptitle("", x=0.02, ha="left", fontsize=11)
    return AnimationFigure(projection, figure, devices, links, centroids, title)


def _set_up_graph(ax: Any, result: "Result", frames: "Frames") -> tuple[Any, Any]:
    """Draw devices and links without their colors."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    places = place_devices(result.topology)
    n, names = len(frames.device), result.topology.names
    ends = np.stack((places[frames.edge_a], places[frames.edge_b]), axis=1)
    volume = _count_bytes(frames)
    shades: Any = {"cmap": shade_links(), "norm": Normalize(0, max(float(volume.max(initial=0)), 1.0))}
    links = LineCollection(list(ends), **shades, linewidths=style_links(len(ends)), zorder=1)
    ax.add_collection(links)
    shown = places[frames.device]
    marks = style_marks(n, n) | {"rasterized": n > RASTER}
    variations = frames.disagreement[np.isfinite(frames.disagreement)].astype(np.float64)
    norm = scale_colors(variations[variations > 0]) if (variations > 0).any() else Normalize(0, 1)
    devices = ax.scatter(shown[:, 0], shown[:, 1], c=np.zeros(n), cmap="viridis", norm=norm, **marks)
    if result.topology.hub >= 0:
        hub = places[result.topology.hub]
        ax.scatter(*hub, color="#9A9A9A", **marks)
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
    if names is not None and n <= NUMBERED:
        ax.margins(x=0.2, y=0.14)
        ax.autoscale_view()
        write_device_names(ax, shown, [names[i] for i in frames.device])
    if (variations > 0).any():
        label = "total variation between a\ndevice and its neighbors"
        add_color_bar(ax, devices, label, (1.02, 0.54, 0.03, 0.42))
    if volume.any():
        add_color_bar(ax, links, "plain bytes over a link\nsince the last frame", (1.02, 0.02, 0.03, 0.42), unit="B")
    sampled = "" if n == result.topology.clients else f", {n:,} of {count(result.topology.clients, 'device')}"
    ax.set_title(f"communication graph{sampled}", fontsize=9.5, loc="left")
    return devices, links


def _count_bytes(frames: "Frames") -> Floats:
    """Compute the bytes over each link since the previous frame, float64[f, l]."""
    return np.diff(frames.bytes, axis=0, prepend=0).astype(np.float64)


def _set_limits(ax: Any, projection: Projection2D, points: Floats, frames: "Frames") -> None:
    """Set limits that contain all points and, up to half their extent outside, the centroids of all frames."""
    shown = np.concatenate((points, projection.place(frames.centroids.astype(np.float64)).reshape(-1, 2)))
    shown = shown[np.isfinite(shown).all(axis=1)]
    if not len(shown):
        return
    low, high = shown.min(axis=0), shown.max(axis=0)
    if len(points):
        middle = (points.min(axis=0) + points.max(axis=0)) / 2
        half = np.ptp(points, axis=0)
        low, high = np.maximum(low, middle - half), np.minimum(high, middle + half)
    room = np.where(high > low, 0.05 * (high - low), 1.0)
    ax.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]))
    if (high > low).all() and (high - low).max() <= _ELONGATED * (high - low).min():
        # Clusters are round in Euclidean distance only if both axes have one scale.
        ax.set_aspect("equal", adjustable="box", anchor="W")


def _show(animation: AnimationFigure, result: "Result", frames: "Frames", number: int) -> None:
    """Update the artists to a frame."""
    record = result.rounds[int(frames.record[number])]
    shown = animation.projection.place(frames.centroids[number].astype(np.float64)).reshape(-1, 2)
    animation.centroids.set_offsets(shown[np.isfinite(shown).all(axis=1)].reshape(-1, 2))
    # The color scale may be logarithmic, so values of 0 get its lowest color.
    variations = np.maximum(frames.disagreement[number], animation.devices.norm.vmin)
    animation.devices.set_array(np.ma.masked_invalid(variations))
    animation.links.set_array(_count_bytes(frames)[number])
    parts = [name_run(result.summary), f"stage {record['stage']}, round {record['round']}"]
    if record["ratio_mean"] is not None:
        parts.append(f"cost {100 * (record['ratio_mean'] - 1):.3g} % above central k-means")
    if record.get("test_ratio_common") is not None:
        parts.append(f"relative test cost {record['test_ratio_common']:.4f}")
    animation.title.set_text(", ".join(parts))
