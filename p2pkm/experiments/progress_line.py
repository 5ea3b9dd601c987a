"""Progress line for scripts and notebooks: one line that is updated in place and removed when the run ends."""

import sys
import time
from typing import Any

# Seconds until the line appears, so that short runs show nothing, and minimum seconds between two updates.
_DELAY, _INTERVAL = 0.5, 0.2
_WIDTH = 24  # characters of the bar


class ProgressLine:
    """Progress line on standard error, if it is a terminal, or in a notebook; otherwise nothing is shown.

    Parameters
    ----------
    method : str
        Name of the method, which is also the name of its stage.
    rounds : int
        Maximum number of rounds of the method.
    """

    def __init__(self, method: str, rounds: int) -> None:
        self._method, self._rounds = method, rounds
        self._next_update = time.monotonic() + _DELAY
        self._notebook = "ipykernel" in sys.modules
        self._shown: Any = None
        self._silent = not (self._notebook or sys.stderr.isatty())

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record unless the last update is too recent."""
        if self._silent or time.monotonic() < self._next_update:
            return
        self._next_update = time.monotonic() + _INTERVAL
        self._write(self._describe(record))

    def close(self) -> None:
        """Remove the line."""
        if self._shown is not None:
            self._write("")

    def _describe(self, record: dict[str, Any]) -> str:
        ratio = "" if record["ratio_mean"] is None else f", cost ratio {record['ratio_mean']:.4f}"
        if record["stage"] != self._method:
            return f"{record['stage']}, round {record['round']}{ratio}"
        done = round(_WIDTH * min(record["round"] / max(self._rounds, 1), 1.0))
        bar = "#" * done + "." * (_WIDTH - done)
        return f"{self._method} [{bar}] round {record['round']} of at most {self._rounds}{ratio}"

    def _write(self, line: str) -> None:
        if not self._notebook:
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
            self._shown = True
            return
        from IPython.display import display

        content = {"text/plain": line}
        if self._shown is None:
            self._shown = display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)
