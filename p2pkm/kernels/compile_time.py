"""Time that this process spends on compilation, and notification of its start; does not import numba."""

import sys
from collections.abc import Callable

# Functions that are called once, when a compilation starts.
WAITING: list[Callable[[str], None]] = []
# Functions that are called once on a terminal, when a run does without compiled kernels.
_MISSING: list[Callable[[str], None]] = []
_has_told = False
_NOTE = (
    "kernels are not compiled yet, so that small runs take up to five times longer; a second process compiles them "
    "during runs. To do it now, once: python -m p2pkm compile"
)


def count_compilation() -> float:
    """Return the seconds of compilation in this process so far."""
    # Nothing was compiled unless this module is imported.
    compiling = sys.modules.get("p2pkm.kernels.numba.compiling")
    return 0.0 if compiling is None else float(compiling.COMPILATION.seconds)


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Call `tell` once, at the next compilation, and on a terminal at the first run without compiled kernels."""
    global _has_told
    WAITING[:] = [tell]
    if not _has_told and sys.stderr.isatty():
        _MISSING[:] = [tell]


def tell_missing() -> None:
    """Report once in this process that kernels are not compiled, and the command that does it."""
    global _has_told
    while _MISSING:
        _has_told = True
        _MISSING.pop()(_NOTE)
