"""Texts of a figure as they are drawn: their boxes, those outside the figure, and those that overlap."""

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


def find_outside(figure, drawn=None):
    """Return the texts that extend beyond the figure; `drawn`: its texts, if they were listed before."""
    wide, tall = figure.get_size_inches() * figure.dpi
    return [
        text.get_text() for text, lines in (list_boxes(figure) if drawn is None else drawn)
        if any((line < -_SLACK).any() or (line > (wide + _SLACK, tall + _SLACK)).any() for line in lines)
    ]  # fmt: skip


def find_overlaps(figure, drawn=None):
    """Return the pairs of texts of which two lines overlap; `drawn`: its texts, if they were listed before."""
    drawn = list_boxes(figure) if drawn is None else drawn
    boxes = [(owner, text.get_text(), line) for owner, (text, lines) in enumerate(drawn) for line in lines]
    if not boxes:
        return []
    corners = np.array([line for _, _, line in boxes])
    low, high, owner = corners.min(axis=1), corners.max(axis=1), np.array([owner for owner, _, _ in boxes])
    # Few pairs are near each other: only these are compared as rotated rectangles.
    near = (low[:, None] < high[None]).all(axis=2) & (low[None] < high[:, None]).all(axis=2)
    pairs = np.argwhere(np.triu(near & (owner[:, None] != owner), 1))
    return [(boxes[a][1], boxes[b][1]) for a, b in pairs if _overlap(boxes[a][2], boxes[b][2])]


def _overlap(corners, second):
    """Return whether two rectangles share an area: no side of either separates them."""
    for rectangle in (corners, second):
        for side in (rectangle[1] - rectangle[0], rectangle[3] - rectangle[0]):
            axis = side / max(np.linalg.norm(side), 1e-9)
            low, high = corners @ axis, second @ axis
            if low.max() <= high.min() + _SLACK or high.max() <= low.min() + _SLACK:
                return False
    return True
