"""What experiments show while they run and when they end; the command line passes its terminal."""

import sys
from typing import Any, Protocol


def tell(note: str) -> None:
    """Print a note on standard error."""
    print(f"p2pkm: {note}", file=sys.stderr, flush=True)


def print_file_summary(summary: str) -> None:
    """Print what was read of the file of a graph; it is empty of other graphs."""
    if summary:
        tell(summary)


class StatusLine(Protocol):
    """One line that changes."""

    def update(self, line: str) -> None:
        """Show this line from now on."""

    def close(self) -> None:
        """Remove the line."""


class Progress(Protocol):
    """Shows how far a run is."""

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record of a round, if it is time to."""

    def tell(self, note: str) -> None:
        """Show a note before the run starts."""

    def close(self) -> None:
        """Remove what is shown for a while only."""


class Console(Protocol):
    """Where a run is shown."""

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> Progress:
        """Return what shows how far a run is."""

    def line(self) -> StatusLine:
        """Return one line that changes."""

    def close(self, summary: dict[str, Any], notes: list[str], *, guided: bool) -> None:
        """Show how a run ended, and what to try next if `guided`."""


class Silent:
    """Shows nothing; see `Console`, `Progress` and `StatusLine` for each method."""

    def __call__(self, record: dict[str, Any]) -> None:
        """Show nothing."""

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> "Silent":
        """Return this."""
        return self

    def line(self) -> "Silent":
        """Return this."""
        return self

    def update(self, line: str) -> None:
        """Show nothing."""

    def tell(self, note: str) -> None:
        """Show nothing."""

    def close(self, *ending: Any, **how: Any) -> None:
        """Show nothing."""
