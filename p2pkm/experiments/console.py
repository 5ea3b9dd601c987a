"""Output of a run to the user: notes, progress and summary; the command line implements it for its terminal."""

import sys
from typing import Any, Protocol


def print_note(note: str) -> None:
    """Print a note on standard error."""
    print(f"p2pkm: {note}", file=sys.stderr, flush=True)


def print_file_summary(summary: str) -> None:
    """Print the summary of a graph file as a note; graphs from other sources have an empty summary."""
    if summary:
        print_note(summary)


class StatusLine(Protocol):
    """Line of text that is overwritten by each update."""

    def update(self, line: str) -> None:
        """Replace the line."""

    def close(self) -> None:
        """Remove the line."""


class Progress(Protocol):
    """Display of the progress of a run."""

    def __call__(self, record: dict[str, Any]) -> None:
        """Show the record of a round; implementations may skip records that follow too quickly."""

    def tell(self, note: str) -> None:
        """Show a note before the run starts."""

    def announce(self, notes: list[str]) -> None:
        """Show notes of the result in advance if the run is long."""

    def close(self) -> None:
        """Remove the temporary part of the display."""


class Console(Protocol):
    """Output device for the progress and the summary of a run."""

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> Progress:
        """Create the progress display of a run."""

    def line(self) -> StatusLine:
        """Create a line that is overwritten by each update."""

    def close(self, summary: dict[str, Any], notes: list[str], *, guided: bool) -> None:
        """Show the summary of a run, with suggestions for the next commands if `guided`."""


class Silent:
    """Console without output: implements `Console`, `Progress` and `StatusLine`."""

    def __call__(self, record: dict[str, Any]) -> None:
        """Ignore the record."""

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> "Silent":
        """Use this object as progress display."""
        return self

    def line(self) -> "Silent":
        """Use this object as status line."""
        return self

    def update(self, line: str) -> None:
        """Ignore the line."""

    def tell(self, note: str) -> None:
        """Ignore the note."""

    def announce(self, notes: list[str]) -> None:
        """Ignore the notes."""

    def close(self, *summary: Any, **options: Any) -> None:
        """Ignore the summary."""
