"""Progress for scripts and notebooks: a line of a run and a bar of a study, each updated in place."""

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
    counted : str, default="round"
        Name of what is counted.
    """

    def __init__(self, method: str, rounds: int, counted: str = "round") -> None:
        self._method, self._rounds, self._counted = method, rounds, counted
        self._next_update = time.monotonic() + _DELAY
        self._output = NotebookOutput() if in_notebook() else None
        self._shown = False
        self._silent = not (self._output or sys.stderr.isatty())

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record unless the last update is too recent."""
        if self._silent or time.monotonic() < self._next_update:
            return
        self._next_update = time.monotonic() + _INTERVAL
        self._write(self._describe(record))

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write("")

    def _describe(self, record: dict[str, Any]) -> str:
        ratio = "" if record["ratio_mean"] is None else f", cost ratio {record['ratio_mean']:.4f}"
        tests = record.get("test_ratio_common")
        ratio += "" if tests is None else f", relative test cost {tests:.4f}"
        if record["stage"] != self._method:
            return f"{record['stage']}, round {record['round']}{ratio}"
        bar = draw_bar(record["round"], self._rounds)
        return f"{self._method} {bar} {self._counted} {record['round']} of at most {self._rounds}{ratio}"

    def _write(self, line: str) -> None:
        self._shown = True
        if self._output is None:
            print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
        else:
            self._output.show(line)


class NotebookOutput:
    """Output of a notebook cell, in which each text replaces the one before."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, text: str) -> None:
        """Show a text instead of the last one."""
        from IPython.display import display

        content = {"text/plain": text}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


class StudyBar:
    """Bar of the finished runs of a study in a notebook, which the table of the study replaces at the end."""

    def __init__(self) -> None:
        self._output = NotebookOutput()
        self._start = time.monotonic()
        self._failed = 0

    def __call__(self, row: dict[str, Any], number: int, count: int) -> None:
        """Show how many runs are finished."""
        self._failed += row["error"] is not None
        failed = f", {self._failed} failed" if self._failed else ""
        left = (time.monotonic() - self._start) / number * (count - number)
        self._output.show(f"{draw_bar(number, count)} {number} of {count} runs{failed}, about {left:.0f} s left")

    def finish(self, table: str) -> None:
        """Show the table of the study instead of the bar."""
        self._output.show(table)


def in_notebook() -> bool:
    """Check whether the program runs in a notebook."""
    return "ipykernel" in sys.modules


def draw_bar(number: int, count: int) -> str:
    """Draw a bar whose filled share is that of the number."""
    done = round(_WIDTH * min(number / max(count, 1), 1.0))
    return f"[{'#' * done}{'.' * (_WIDTH - done)}]"
