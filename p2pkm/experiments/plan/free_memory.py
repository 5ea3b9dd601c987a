"""Free memory of this machine and of the control groups that limit this process."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from p2pkm.core.errors import ExperimentError

LIMIT = "P2PKM_MEMORY"  # environment variable that sets the free memory
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Files with limit and usage of a control group, and the entry of memory.stat for file pages that can be freed.
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")
_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_memory() -> int | None:
    """Determine the bytes that are free for this run; None: unknown, or the check is disabled.

    The environment variable ``P2PKM_MEMORY`` takes precedence.

    Raises
    ------
    ExperimentError
        If ``P2PKM_MEMORY`` is not a size such as 8G.
    """
    text = os.environ.get(LIMIT, "")
    if not text:
        return min([*_machine(), *group_limits()], default=None)
    number = text.strip().upper().removesuffix("B")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    try:
        size = int(float(number.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        size = -1
    if size < 0:
        raise ExperimentError(f"{LIMIT} is {text!r}; expected a size such as 500M or 8G, or 0 to disable the check")
    return size or None


def _machine() -> Iterator[int]:
    """Yield the free memory of the machine, or, if it is unknown, the total memory."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        yield int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        with suppress(OSError, ValueError, AttributeError):
            yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group_limits(lists: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Yield the free bytes of each control group of this process; file pages that can be dropped count as free."""
    try:
        lines = lists.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if not kinds or "memory" in kinds.split(","):
            top, names = (root, _VERSION_2) if not kinds else (root / "memory", _VERSION_1)
            group = top / path.strip("/")
            # The limits of all enclosing groups apply as well.
            yield from (free for folder in (group, *group.parents) for free in _read_free(folder, names))


def _read_free(folder: Path, names: tuple[str, str, str]) -> Iterator[int]:
    """Yield the free bytes of one control group, nothing if it is unlimited."""
    with suppress(OSError, ValueError, KeyError):
        limit, used = (int((folder / name).read_text()) for name in names[:2])
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        yield max(0, limit - used + int(statistics[names[2]]))
