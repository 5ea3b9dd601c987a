"""Texts of a figure as they are drawn: their boxes, those outside the figure, and those that overlap."""

from itertools import combinations

import numpy as np
from matplotlib.text import Text

_SLACK = 0.5  # pixels that two boxes may share by rounding


def list_boxes(figure):
    """Draw the figure and return its texts and the corners of their lines in pixels, (text, [float64[4, 2], ...])."""
    drawn = []
    draw = Text.draw

    def record(text, renderer, *arguments, **options):
        if text.get_visible() and text.get_text().strip():
            drawn.append((text, _find_lines(text, renderer)))
        return draw(text, renderer, *arguments, **options)

    Text.draw = record
    try:
        figure.draw_without_rendering()
    finally:
        Text.draw = draw
    return drawn


def _find_lines(text, renderer):
    """Return the corners of the ink of each line, rotated as the text is."""
    text._renderer = renderer
    anchor = text.get_transform().transform(text.get_unitless_position())
    angle = np.deg2rad(text.get_rotation())
    right, up = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    lines = []
    for line, _, place in text._get_layout(renderer)[1]:
        if not line.strip():
            continue
        wide, high, below = renderer.get_text_width_height_descent(line, text.get_fontproperties(), ismath=False)
        start = anchor + place - below * up
        lines.append(np.array([start, start + wide * right, start + wide * right + high * up, start + high * up]))
    return lines


def find_outside(figure):
    """Return the texts that extend beyond the figure."""
    wide, tall = figure.get_size_inches() * figure.dpi
    return [
        text.get_text() for text, lines in list_boxes(figure)
        if any((line < -_SLACK).any() or (line > (wide + _SLACK, tall + _SLACK)).any() for line in lines)
    ]  # fmt: skip


def find_overlaps(figure):
    """Return the pairs of texts of which two lines overlap."""
    boxes = [(text.get_text(), line) for text, lines in list_boxes(figure) for line in lines]
    owners = [number for number, (_, lines) in enumerate(list_boxes(figure)) for _ in lines]
    return [
        (boxes[a][0], boxes[b][0]) for a, b in combinations(range(len(boxes)), 2)
        if owners[a] != owners[b] and _overlap(boxes[a][1], boxes[b][1])
    ]  # fmt: skip


def _overlap(corners, second):
    """Return whether two rectangles share an area: no side of either separates them."""
    for rectangle in (corners, second):
        for side in (rectangle[1] - rectangle[0], rectangle[3] - rectangle[0]):
            axis = side / max(np.linalg.norm(side), 1e-9)
            low, high = corners @ axis, second @ axis
            if low.max() <= high.min() + _SLACK or high.max() <= low.min() + _SLACK:
                return False
    return True
