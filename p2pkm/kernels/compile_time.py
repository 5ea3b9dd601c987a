"""Time that this process spends on compilation, and notification of its start; does not import numba."""

import sys
from collections.abc import Callable

# Functions that are called once, when a compilation starts.
WAITING: list[Callable[[str], None]] = []


def count_compilation() -> float:
    """Return the seconds of compilation in this process so far."""
    # Nothing was compiled unless this module is imported.
    compiling = sys.modules.get("p2pkm.kernels.numba.compiling")
    return 0.0 if compiling is None else float(compiling.COMPILATION.seconds)


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Call `tell` once, at the next compilation."""
    WAITING[:] = [tell]
