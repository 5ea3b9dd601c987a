"""Images of six shapes at random positions, so that no single pixel identifies a shape."""

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.validation import LARGEST, check_integer, check_positive
from p2pkm.data.random import generator

Floats = NDArray[np.float64]

KINDS = ("bar", "cross", "ring", "disc", "corner", "wave")
# Smallest side of an image in pixels; on smaller images the lines of a shape merge.
LEAST = 8


def shapes(
    *, points: int = 200, side: int = 28, noise: float = 0.1, contrast: float = 0.5, seed: int = 0
) -> tuple[Floats, NDArray[np.int64]]:
    """Draw square images of bars, crosses, rings, discs, corners and waves, light on dark.

    Position, angle, size (half the length of a bar, 0.2 to 0.32 of the side), line width (0.06 to 0.11 of the side) and
    contrast are uniform; edges are blurred over one pixel. Therefore the mean image of every class is a faint spot, and
    linear classification of pixels works poorly.

    Parameters
    ----------
    points : int
        Images per shape.
    side : int
        Pixels on a side, at least 8.
    noise : float
        Standard deviation of the normal noise on every pixel, at least 0; pixels are then clipped to [0, 1].
    contrast : float
        Smallest brightness of a shape, above 0 and at most 1; the largest is 1.
    seed : int
        Whole number from 0.

    Returns
    -------
    X : float64[6 * points, side * side]
        Pixels in [0, 1], row by row; images are sorted by shape.
    y : int64[6 * points]
        Shape of each image: 0 bar, 1 cross, 2 ring, 3 disc, 4 corner, 5 wave.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.shapes(points=4, side=16)
    >>> X.shape, y.shape
    ((24, 256), (24,))
    """
    rng = generator(seed, "shapes")
    count = check_integer(points, 1, "points")
    pixels = check_integer(side, LEAST, "side")
    spread = check_positive(noise, "noise", zero=True, most=LARGEST)
    least = check_positive(contrast, "contrast")
    if least > 1:
        raise ExperimentError(f"contrast is {contrast!r}; expected a number above 0 and at most 1")
    images = np.concatenate([_draw(rng, kind, count, pixels, least) for kind in range(len(KINDS))])
    images += spread * rng.standard_normal(images.shape)
    return np.clip(images, 0.0, 1.0, out=images), np.repeat(np.arange(len(KINDS)), count)


def _draw(rng: np.random.Generator, kind: int, count: int, side: int, least: float) -> Floats:
    """Draw images of one shape without noise, float64[count, side * side]."""
    size, width = (rng.uniform(low, high, (count, 1)) * side for low, high in ((0.2, 0.32), (0.06, 0.11)))
    down, right = (side - 1) / 2 + rng.uniform(-1, 1, (2, count, 1)) * np.maximum(side / 2 - size - 1, 0.0)
    angle = rng.uniform(0, 2 * np.pi, (count, 1))
    bright = rng.uniform(least, 1, (count, 1))
    y = np.arange(side * side) // side - down
    x = np.arange(side * side) % side - right
    along = np.cos(angle) * x + np.sin(angle) * y
    across = np.cos(angle) * y - np.sin(angle) * x
    return bright * np.clip(0.5 - _distance(kind, along, across, size, width / 2), 0.0, 1.0)


def _distance(kind: int, along: Floats, across: Floats, size: Floats, half: Floats) -> Floats:
    """Compute the signed distance of every pixel from a shape in pixels, negative inside; half: half the line width."""
    bar = _line(along, across, -size, size)
    if kind == 0:
        return bar - half
    if kind == 1:
        return np.minimum(bar, _line(across, along, -size, size)) - half
    radius = np.hypot(along, across)
    if kind == 2:
        return np.abs(radius - 0.8 * size) - half
    if kind == 3:
        return radius - 0.75 * size
    if kind == 4:
        return np.minimum(*(_line(a, b, 0.0, 1.4 * size) for a, b in ((along, across), (across, along)))) - half
    nearest = np.clip(along, -size, size)
    height = 0.4 * size * np.sin(2 * np.pi * nearest / (1.3 * size))
    return np.hypot(along - nearest, 0.7 * (across - height)) - half


def _line(along: Floats, across: Floats, first: Floats | float, last: Floats | float) -> Floats:
    """Compute the distance from a segment of the first axis."""
    return np.hypot(along - np.clip(along, first, last), across)
