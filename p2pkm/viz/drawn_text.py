"""Lines of text as a figure draws them: their boxes, and those that overlap or leave the figure."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.figure import Figure

from p2pkm.core.batch import Floats
from p2pkm.viz.names import Box

_SHARED = 0.5  # pixels by which two boxes may overlap


class Line(NamedTuple):
    """Line of text: the number of its text in drawing order, and the corners of its ink in pixels, float64[4, 2]."""

    text: int
    corners: Floats

    @property
    def box(self) -> Box:
        """Smallest upright rectangle around the line."""
        low, high = self.corners.min(axis=0), self.corners.max(axis=0)
        return Box(float(low[0]), float(low[1]), float(high[0]), float(high[1]))


class _Recorder(RendererAgg):
    """Renderer that measures text and draws nothing."""

    def __init__(self, width: float, height: float, dpi: float) -> None:
        super().__init__(width, height, dpi)  # type: ignore[no-untyped-call]
        self.lines: list[Line] = []
        self._texts = 0

    def open_group(self, s: str, gid: str | None = None) -> None:
        self._texts += s == "text"

    def draw_text(self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, *_: Any, **__: Any) -> None:
        if not s.strip():
            return
        measure: Any = self.get_text_width_height_descent
        width, height, descent = measure(s, prop, False)
        turn = np.deg2rad(angle)
        right, up = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
        start = np.array([x, self.height - y]) - descent * up
        ends = [start, start + width * right, start + width * right + height * up, start + height * up]
        self.lines.append(Line(self._texts, np.array(ends)))

    def _skip(self, *_: Any, **__: Any) -> None:
        """Draw nothing."""

    draw_path = draw_markers = draw_path_collection = draw_image = draw_quad_mesh = draw_gouraud_triangles = _skip


def list_lines(figure: Figure) -> list[Line]:
    """List all lines of text that the figure draws."""
    width, height = figure.get_size_inches() * figure.dpi
    recorder = _Recorder(width, height, figure.dpi)
    figure.draw(recorder)
    return recorder.lines


def has_conflicts(figure: Figure) -> bool:
    """Return whether a text leaves the figure or overlaps another text."""
    lines = list_lines(figure)
    size = figure.get_size_inches() * figure.dpi + _SHARED
    if any((line.corners < -_SHARED).any() or (line.corners > size).any() for line in lines):
        return True
    return any(
        line.text != other.text and line.box.touches(other.box) and _overlap(line.corners, other.corners)
        for number, line in enumerate(lines)
        for other in lines[:number]
    )


def _overlap(corners: Floats, second_corners: Floats) -> bool:
    """Return whether two rectangles overlap, that is, whether no side of either separates them."""
    for rectangle in (corners, second_corners):
        for side in (rectangle[1] - rectangle[0], rectangle[3] - rectangle[0]):
            axis = side / max(float(np.hypot(side[0], side[1])), 1e-9)
            first, second = (points[:, 0] * axis[0] + points[:, 1] * axis[1] for points in (corners, second_corners))
            if first.max() <= second.min() + _SHARED or second.max() <= first.min() + _SHARED:
                return False
    return True
