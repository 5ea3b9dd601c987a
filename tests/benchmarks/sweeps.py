"""Sweeps of GTVMin over many devices: updates per second, the two schedules, memory, and growth with the devices."""

import resource
from statistics import median

import topologies
from tests.benchmarks.arena import DEGREE, POINTS, build
from tests.benchmarks.figure import Figure, of_trials, show

UPDATES = {(4, 2, 100_000): 2.0, (8, 8, 30_000): 0.55, (16, 16, 10_000): 0.16}  # k, d, devices: million per second
_TRIALS = 5
_MILLION, _THOUSAND = 1_000_000, 1_000
_KIND = f"{POINTS} points each, degree {DEGREE}"


def measure_updates(quick: bool) -> list[Figure]:
    """Return device-updates per second on one thread."""
    figures = []
    for (k, d, most), target in UPDATES.items():
        n = most // 20 if quick else most
        each = median(build(n, k, d).clock(_TRIALS)) / n
        what = f"device-updates on one thread, k = {k}, d = {d}, {n:,} devices"
        figures.append(Figure(what, 1e-6 / each, "M/s", "at least", target, f"{show(each)} each, {_KIND}"))
    return figures


def measure_sweep(quick: bool) -> list[Figure]:
    """Return the seconds and the memory of a jacobi sweep, and what a colored one costs beside it."""
    n = 20_000 if quick else _MILLION
    arena = build(n, 4, 2)
    plain = arena.clock(_TRIALS)
    data, peak = arena.data, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arena.clock(1, "colored")
    pairs = [(median(arena.clock(2)), median(arena.clock(2, "colored"))) for _ in range(_TRIALS)]
    plain += [one for one, _ in pairs]
    who = f"{n:,} devices"
    del arena
    ring = build(n, 4, 2, topologies.build("ring", n, light=True))
    two_colors = [median(ring.clock(2, "colored")) / median(ring.clock(2)) for _ in range(_TRIALS)]
    return [
        Figure(f"one jacobi sweep, 2 threads, {who}", median(plain), "s", "at most", 0.33, f"k = 4, d = 2, {_KIND}"),
        Figure(f"memory of jacobi sweeps over the data, {who}", peak / data, "x", "at most", 1.15,
               f"{peak / 1e9:.2f} GB of the process; points, two tables of centroids, graph {data / 1e9:.2f} GB"),
        of_trials(f"one colored sweep over a jacobi sweep, {who}", [two / one for one, two in pairs],
                  ("x", "at most", 1.3), f"{show(median(two for _, two in pairs))} against {show(median(plain))}"),
        of_trials(f"the same on a ring, which has two colors, {who}", two_colors, ("x", "", 0.0)),
    ]  # fmt: skip


def measure_growth(quick: bool) -> list[Figure]:
    """Return how many times more a device costs among very many."""
    n = 50_000 if quick else _MILLION
    small, large = build(_THOUSAND, 4, 2), build(n, 4, 2)
    few: list[float] = []
    many: list[float] = []
    for _ in range(_TRIALS):
        few += small.clock(50)
        many += large.clock(2)
    low, high = median(few) / _THOUSAND, median(many) / n
    what = f"cost of a device-update, {n:,} devices over {_THOUSAND:,}"
    return [Figure(what, high / low, "x", "at most", 1.15, f"{show(high)} against {show(low)}, one thread")]
