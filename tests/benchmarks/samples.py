"""Shares of processor time by part of a program, from samples: unlike a profiler, they do not inflate small calls."""

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

_INTERVAL = 0.001  # seconds of processor time; the operating system may take longer


def sample(work: Callable[[], Any], parts: Mapping[str, str]) -> dict[str, float]:
    """Return the share of processor time of each part, largest first.

    Parameters
    ----------
    work : callable
    parts : mapping of str to str
        Part of each function of p2pkm that is named; it includes what the function calls. "preparation": all others.
    """
    counts = Counter[str]()

    def note(number: int, frame: FrameType | None) -> None:
        counts[find_part(frame, parts)] += 1

    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, _INTERVAL, _INTERVAL)
    try:
        work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return {part: count / counts.total() for part, count in counts.most_common()}


def find_part(frame: FrameType | None, parts: Mapping[str, str]) -> str:
    """Return the part of the outermost named function, in a stage of the one below `run_stage`, or "preparation"."""
    names = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("p2pkm."):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    named = [name for name in reversed(names) if name in parts]
    if named[:1] == ["run_stage"] and len(named) > 1:
        return parts[named[1]]
    return parts[named[0]] if named else "preparation"
