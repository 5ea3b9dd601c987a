"""How near a device-update comes to what the processor can do, and where the rest of the time goes.

The limit is the larger of two times: the operations of an update at the rate of a product of matrices (NumPy), and its
bytes at the rate of a triad, both measured in the same run, on one thread. An update is counted as the method is
written, each link once from each end:

* operations: 3 m k d + m d for the points, 3 k k d + 2 k d for each link;
* bytes: the points, the own centroids in and out, k d numbers and one index of four bytes for each link.
"""

from statistics import median

import numpy as np
from numba import njit

from tests.benchmarks.arena import DEGREE, POINTS, Arena, build
from tests.benchmarks.figure import Figure, interleave, show

SHAPES = {(4, 2, 100_000): 10.0, (16, 16, 10_000): 35.0}  # k, d, devices: per cent
_TRIALS, _ROUNDS = 5, 3


def measure(quick: bool) -> list[Figure]:
    """Return the two rates, and for each shape the share of the limit and the split of the time."""
    size, numbers = (512, 2_000_000) if quick else (1_536, 20_000_000)
    operations, volume = measure_rates(size, numbers)
    figures = [
        Figure(f"product of two matrices, {size} x {size}, one thread", operations / 1e9, "GFLOP/s"),
        Figure(f"triad of {numbers:,} numbers, one thread", volume / 1e9, "GB/s"),
    ]
    for (k, d, most), target in SHAPES.items():
        n = most // 20 if quick else most
        whole, split = time_parts(build(n, k, d))
        flops, moved = count(k, d)
        limit = max(flops / operations, moved / volume)
        note = f"{show(limit)} for {flops:,} operations and {moved:,} bytes against {show(whole)}; {split}"
        what = f"share of the roofline, k = {k}, d = {d}, {n:,} devices"
        figures.append(Figure(what, 100 * limit / whole, "%", "at least", target, note))
    return figures


def count(k: int, d: int) -> tuple[int, int]:
    """Return operations and bytes of a device-update."""
    operations = 3 * POINTS * k * d + POINTS * d + DEGREE * (3 * k * k * d + 2 * k * d)
    return operations, 8 * POINTS * d + 16 * k * d + DEGREE * (8 * k * d + 4)


def measure_rates(size: int, numbers: int) -> tuple[float, float]:
    """Return operations and bytes per second."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    left, right, product = rng.random((size, size)), rng.random((size, size)), np.empty((size, size))
    a, b, c = np.zeros(numbers), np.ones(numbers), np.ones(numbers)
    with threadpool_limits(1):
        works = interleave([lambda: np.matmul(left, right, out=product), lambda: triad(a, b, c, 3.0)])
    return 2 * size**3 / median(works[0]), 24 * numbers / median(works[1])


@njit
def triad(a, b, c, factor):  # type: ignore[no-untyped-def]
    """Write b + factor c to a."""
    for i in range(a.shape[0]):
        a[i] = b[i] + factor * c[i]


def time_parts(arena: Arena) -> tuple[float, str]:
    """Return the seconds of a device-update, and in words what they are spent on.

    Points and links are what a sweep takes more with them alone than with neither of them.
    """
    no_links = arena.without_links()
    plays = (arena, no_links, arena.without_points(), no_links.without_points())
    seconds: list[list[float]] = [[] for _ in plays]
    for _ in range(_TRIALS):
        for taken, play in zip(seconds, plays, strict=True):
            taken += play.clock(_ROUNDS)
    whole, points, links, rest = (median(taken) / len(arena.devices) for taken in seconds)
    shares = {"points": points - rest, "links": links - rest, "rest": whole - points - links + 2 * rest}
    return whole, ", ".join(f"{name} {100 * part / whole:.0f} %" for name, part in shares.items())
