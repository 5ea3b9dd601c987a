"""The time that this process spends on compiling kernels, and who is notified when it begins; does not import numba."""

import sys
from collections.abc import Callable

WAITING: list[Callable[[str], None]] = []  # notified when something is compiled, once


def count_compilation() -> float:
    """Return the seconds that this process has spent on compiling kernels so far."""
    compiling = sys.modules.get("p2pkm.kernels.numba.compiling")  # without it nothing was compiled
    return 0.0 if compiling is None else float(compiling.COMPILATION.seconds)


def announce_compilation(tell: Callable[[str], None]) -> None:
    """Notify once if kernels have to be compiled from now on."""
    WAITING[:] = [tell]
