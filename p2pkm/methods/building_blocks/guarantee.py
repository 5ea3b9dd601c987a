"""Parameters of a differential privacy guarantee, which the private methods share, and their checks."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.sorting import blocks
from p2pkm.core.validation import FARTHEST, LARGEST, SMALLEST, check_integer, check_positive

# Least standard deviation of noise, in units of the integer sums. From there on rounded normal noise protects as well
# as normal noise (Kairouz, Liu and Steinke 2021).
LEAST_NOISE = 4.0


def check_guarantee(
    name: str, budget: tuple[float | None, float], ball: tuple[float, float | None], noise_seed: int | None
) -> None:
    """Validate the parameters that every private method has.

    Parameters
    ----------
    name : str
        Name of the method.
    budget : (float or None, float)
        epsilon and delta.
    ball : (float, float or None)
        Value of every coordinate of the center, and radius.
    noise_seed : int or None

    Raises
    ------
    ExperimentError
        If one of them is out of range.
    """
    (epsilon, delta), (center, radius) = budget, ball
    for value, key in ((epsilon, "epsilon"), (radius, "radius")):
        if value is not None:
            check_positive(value, f"{name}:{key}", most=LARGEST)
    if not math.isfinite(center):
        raise ExperimentError(f"{name}:center is {center!r}; expected a finite number")
    if radius is not None:
        _check_ball(name, center, radius)
    if not 0.0 < delta < 1.0:
        raise ExperimentError(f"{name}:delta is {delta!r}; expected a number between 0 and 1, for example delta=1e-6")
    if noise_seed is not None:
        check_integer(noise_seed, 0, f"{name}:noise_seed")


def _check_ball(name: str, center: float, radius: float) -> None:
    """Reject a ball whose square underflows, or whose center makes differences lose their digits."""
    if radius < SMALLEST:
        raise ExperimentError(f"{name}:radius is {radius!r}; expected from {SMALLEST:g} to {LARGEST:g}")
    most = FARTHEST["float64"] * radius
    if not abs(center) <= most:
        raise ExperimentError(
            f"{name}:center is {center!r} with a radius of {radius:g}; expected at most {most:g} in size, "
            f"{FARTHEST['float64']:g} times the radius. Subtract the center from the points, or increase radius."
        )


def list_missing(epsilon: float | None, radius: float | None) -> str:
    """Join the names of the parameters that are required and not set."""
    required = {"epsilon": epsilon, "radius": radius}
    return " and ".join(name for name, value in required.items() if value is None)


def check_delta(name: str, delta: float, count: int, unit: str = "points") -> None:
    """Reject a delta of 1 / count or more: one of the protected units may be disclosed."""
    if delta * count >= 1.0:
        raise ExperimentError(
            f"{name}:delta is {delta:g} with {count:,} {unit}; expected less than 1 / {count}, otherwise one of them "
            f"may be disclosed. Use delta={0.1 / count:.0e}."
        )


def note_clipped(
    method: Any, points: NDArray[np.floating[Any]], units: tuple[Any, Any] = (0.0, 1.0)
) -> tuple[str, ...]:
    """Note that most points are outside of the ball of a private method, which clips them; else no note.

    Parameters
    ----------
    method : Algorithm or ServerMethod
    points : float64[m, d] or float32[m, d]
        In the units of the data.
    units : (float64[d], float64[d]) or (float, float)
        Shift and span by which the run will scale the features.
    """
    ball = vars(method)
    if not {"center", "radius", "epsilon"} <= ball.keys() or not len(points):
        return ()
    outside = 0
    shift, span = units
    for block in blocks(len(points)):
        distances = np.sqrt((((points[block] - shift) / span - ball["center"]) ** 2).sum(axis=1))
        outside += int((distances > ball["radius"]).sum())
    if 2 * outside <= len(points):
        return ()
    return (
        f"{outside:,} of {len(points):,} points are outside of the ball of {method.name} (radius {ball['radius']:g}, "
        f"center {ball['center']:g} in every feature) and are clipped: check the units of the features. This number is "
        "not protected, as the cost ratio is not",
    )
