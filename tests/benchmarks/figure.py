"""One line of the table, and clocks that measure several works side by side."""

import math
import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple

# Interquartile range over the median above which a row has no verdict. Trials on an idle machine stay below 0.1.
_NOISY = 0.25
_TRIALS, _BUDGET, _MOST = 5, 2.0, 500  # least trials of each work, seconds for more of them, most trials or repeats
_SHORT = 0.005  # seconds of a trial


class Figure(NamedTuple):
    """What was measured, what it shall be, and what it is made of.

    Attributes
    ----------
    what : str
    value : float
    unit : str
        "x" for a ratio.
    sense : {"at least", "at most", "more than", ""}
        How the target is meant; "": there is none.
    target : float
    note : str
        The figures behind a ratio.
    trials : sequence of float
        Values of single trials, of which `value` is the median; (): only `value` is known.
    """

    what: str
    value: float
    unit: str
    sense: str = ""
    target: float = 0.0
    note: str = ""
    trials: Sequence[float] = ()

    @property
    def spread(self) -> tuple[float, float]:
        """First and third quartile of the trials; `value` twice with fewer than three trials."""
        if len(self.trials) < 3:
            return self.value, self.value
        low, _, high = quantiles(self.trials, n=4, method="inclusive")
        return low, high

    @property
    def is_noisy(self) -> bool:
        """Whether the trials differ too much, or a difference of two times is not positive."""
        low, high = self.spread
        return not 0.0 < self.value < math.inf or high - low > _NOISY * self.value

    @property
    def verdict(self) -> str:
        """Return whether the target is met, or that other work on the machine hides it."""
        if self.is_noisy:
            return "too noisy"
        met = {
            "at least": self.value >= self.target,
            "at most": self.value <= self.target,
            "more than": self.value > self.target,
        }
        return "" if not self.sense else "met" if met[self.sense] else "MISSED"


def clock(work: Callable[[], Any], repeats: int = 1) -> float:
    """Return the seconds of one call, the mean of several."""
    began = time.perf_counter()
    for _ in range(repeats):
        work()
    return (time.perf_counter() - began) / repeats


def interleave(works: Sequence[Callable[[], Any]]) -> list[list[float]]:
    """Return the seconds of every trial of each work; all works are done in turn, twice before the clock runs.

    Short works are repeated within a trial: the first call after another work finds the caches cold.
    """
    for work in works:
        work()
    repeats = [math.ceil(_SHORT / max(clock(work), _SHORT / _MOST)) for work in works]
    seconds: list[list[float]] = [[] for _ in works]
    began = time.perf_counter()
    while len(seconds[0]) < _TRIALS or (time.perf_counter() - began < _BUDGET and len(seconds[0]) < _MOST):
        for taken, work, times in zip(seconds, works, repeats, strict=True):
            taken.append(clock(work, times))
    return seconds


def of_trials(what: str, trials: Sequence[float], target: tuple[str, str, float], note: str = "") -> Figure:
    """Return the median of trials as a figure; `target` is unit, sense and value."""
    return Figure(what, median(trials), *target, note, tuple(trials))


def slopes(few: Sequence[float], many: Sequence[float], steps: int) -> list[float]:
    """Return the seconds of a step in each trial, given trials that differ by so many steps."""
    return [(more - less) / steps for less, more in zip(few, many, strict=True)]


def show(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
