"""The memory that is free for a run: of the machine and of the control groups that hold this process."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from p2pkm.core.errors import ExperimentError

LIMIT = "P2PKM_MEMORY"
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECOND = ("memory.max", "memory.current", "inactive_file")  # the files of control groups, version 2 and 1
_FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_memory() -> int | None:
    """Return the bytes that are free for this run; None: not known, or nobody shall ask.

    Raises
    ------
    ExperimentError
        If the environment variable ``P2PKM_MEMORY``, which goes before, is no size such as 8G.
    """
    given = os.environ.get(LIMIT, "")
    if not given:
        return min([*_machine(), *group_limits()], default=None)
    number = given.strip().upper().removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    try:
        size = int(float(number.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        size = -1
    if size < 0:
        raise ExperimentError(f"{LIMIT} is {given!r}; expected a size such as 500M or 8G, or 0 for no check")
    return size or None


def _machine() -> Iterator[int]:
    """Yield what is free on the machine, or else what it has."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        yield int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        with suppress(OSError, ValueError, AttributeError):
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group_limits(lists: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Yield the bytes left to each control group of this process; file pages count as free."""
    try:
        lines = lists.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds or "memory" in kinds.split(","):
            top, names = (root, _SECOND) if not kinds else (root / "memory", _FIRST)
            inner = top / path.strip("/")
            yield from (left for folder in (inner, *inner.parents) for left in _left(folder, names))


def _left(folder: Path, names: tuple[str, str, str]) -> Iterator[int]:
    with suppress(OSError, ValueError, KeyError):
        most, used = (int((folder / name).read_text()) for name in names[:2])
        parts = dict(part.split() for part in (folder / "memory.stat").read_text().splitlines())
        yield max(0, most - used + int(parts[names[2]]))
