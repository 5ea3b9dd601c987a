"""Summary table of a run, next steps for new users, and progress on standard error."""

import sys
import time
from collections.abc import Iterator
from textwrap import fill
from typing import Any, NamedTuple, TextIO

from p2pkm.core.mpi_environment import launched
from p2pkm.core.units import NOT_KEPT, count

# Seconds between two plain lines of progress.
_PAUSE = 3.0


class _Line(NamedTuple):
    """Line of the table: a heading if only `label` is set."""

    label: str
    value: str = ""
    meaning: str = ""
    is_heading: bool = False


def show(summary: dict[str, Any], notes: list[str], file: TextIO, *, verbose: bool = False) -> None:
    """Print the summary table: with rich on a terminal, aligned text otherwise."""
    from p2pkm.metrics.closing_table import group_summary_rows

    failure = summary.get("failure")
    # The first line says it already.
    rows = group_summary_rows(summary, [note for note in notes if note != failure])
    lines = list(_list_lines([row for row in rows if verbose or not row.is_verbose]))
    n_hidden = 0 if verbose else sum(row.is_verbose for row in rows)
    title, ending = _title(summary), _ending(summary, n_hidden)
    # Some launchers connect their ranks to a pseudo-terminal, whose control characters end up in log files.
    if launched() or not file.isatty():
        print(title, "", *_align(lines), "", ending, sep="\n", file=file, flush=True)
    else:
        _print_rich(title, lines, ending, file)


def _title(summary: dict[str, Any]) -> str:
    method = summary["algorithm"].split(":")[0]
    if summary.get("failure"):
        return f"{method}: {summary['failure']}."
    clusters, devices = count(summary["clusters"], "cluster"), count(summary["devices"], "device")
    processes = count(summary["ranks"], "process", "es")
    seconds = f"{summary['wall_seconds']:.2f} s, {processes}"
    if summary.get("compile_seconds"):
        seconds += f"; kernels compiled once in {summary['compile_seconds']:.2f} s"
    return f"{method}: {clusters} on {devices}, {_place(summary)} ({seconds})"


def _ending(summary: dict[str, Any], n_hidden: int) -> str:
    """Name the run folder, the rows that --verbose adds, and the command that draws the run."""
    parts = [f"Results: {summary['out'] or NOT_KEPT}"]
    if n_hidden:
        parts.append(f"--verbose shows {count(n_hidden, 'more metric', 's')}")
    if summary["out"]:
        parts.append("p2pkm report RUN draws them")
    return "; ".join(parts) + "."


def _list_lines(rows: list[Any]) -> Iterator[_Line]:
    """Yield the rows under the headings of their groups."""
    from p2pkm.metrics.closing_table import GROUPS

    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            yield _Line(GROUPS[group], is_heading=True)
        yield _Line(row.label, row.value, row.meaning)


def _align(lines: list[_Line]) -> Iterator[str]:
    """Yield the lines as text with aligned columns."""
    label = max((len(line.label) for line in lines if not line.is_heading), default=0)
    value = max((len(line.value) for line in lines), default=0)
    for line in lines:
        if line.is_heading:
            yield line.label
        else:
            yield f"  {line.label:<{label}}  {line.value:>{value}}  {line.meaning}".rstrip()


def _print_rich(title: str, lines: list[_Line], ending: str, file: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    # Text objects, because brackets in names of devices or folders are not markup.
    for line in lines:
        cells = (line.label,) if line.is_heading else (f"  {line.label}", line.value, line.meaning)
        table.add_row(*(Text(cell, "bold" if line.is_heading else "") for cell in cells))
    Console(file=file).print(Text(title, "bold"), Text(), table, Text(), Text(ending), sep="\n")


def next_steps(summary: dict[str, Any]) -> str:
    """Describe the run in sentences and suggest commands, for a user who set no option."""
    return f"""
{fill("Summary: " + " ".join(describe_run(summary)), 118)}

What to try next
  python -m p2pkm --coupling links                 a clustering for each device: compare the relative test cost
  python -m p2pkm --graph star                     another graph; p2pkm help graph lists all
  python -m p2pkm --init local                     initial centroids from local points: a poor local minimum
  python -m p2pkm --data mine.csv -k 5             points from a file
  python -m p2pkm verify {summary["out"] or "RUN"}
                                                   repeat the run and compare it bit by bit
  mpirun -n 16 python -m p2pkm --graph ring        one device per MPI rank, bit-identical results
"""


def describe_run(summary: dict[str, Any]) -> list[str]:
    """Describe a run, one sentence per metric, such as messages, disclosed points and cost ratio."""
    from p2pkm.metrics.closing_rows import format_messages, format_ratio

    messages, disclosed = summary["messages"], summary["raw_points_disclosed"]
    ratio, local_only = summary["ratio_mean"], summary["ratio_local_only"]
    devices, clusters = count(summary["devices"], "device"), count(summary["clusters"], "cluster")
    sentences = [f"{devices} ({_place(summary)}) computed {clusters}."]
    if messages:
        sentences.append(f"They sent {count(messages, 'message')}: {format_messages(summary)[1]}.")
    else:
        sentences.append("Nothing was sent.")
    sentences.append(_describe_disclosure(disclosed))
    if ratio is None:
        sentences.append("The result was not compared with central k-means.")
    else:
        sentences.append(
            f"On the pooled points the centroids cost {format_ratio(ratio)} times as much as central k-means."
        )
    if local_only is not None:
        sentences.append(f"Without communication they would cost {format_ratio(local_only)} times as much.")
    common = summary["test_ratio_common"]
    if common is not None:
        sentences.append(
            f"On test points of its own, a device has {format_ratio(common)} times the cost of central k-means."
        )
    return sentences


def _describe_disclosure(disclosed: int | None) -> str:
    if disclosed is None:
        return "Points sent unchanged were not counted: there are too many points."
    if disclosed == 0:
        return "No point was sent unchanged; docs/howto/measure-disclosure.md explains what messages still reveal."
    points = "1 point was" if disclosed == 1 else f"{disclosed:,} points were"
    return f"{points} sent unchanged."


def _place(summary: dict[str, Any]) -> str:
    """Name the graph of a run."""
    from p2pkm.methods.registry import ALONE

    if summary["algorithm"] == ALONE:
        return "no communication"
    return "graph without a name" if summary["graph"] is None else f"{summary['graph']} graph"


class Progress:
    """Progress on standard error: a live line on a terminal, a plain line every few seconds otherwise."""

    def __init__(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> None:
        self._method, self._rounds, self._quiet, self._verbose = method, rounds, quiet, verbose
        self._began: float | None = None
        self._shown: float | None = None
        self._has_begun = False
        # Notes that were not shown yet.
        self._notes: list[str] = []
        self._live = Live()
        self._terminal = sys.stderr.isatty() and not launched()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record, at most every few seconds."""
        self._has_begun |= record["stage"] == self._method
        # Stages after the method are short: their line would stand directly above the summary.
        if self._has_begun and record["stage"] != self._method and not self._verbose:
            return
        from p2pkm.metrics.closing_rows import format_ratio

        now = time.monotonic()
        if self._began is None or self._shown is None:
            # The seconds of preparation tell nothing about those of the rounds.
            self._began = self._shown = now
        if now - self._began > _PAUSE:
            for note in self._notes:
                self.tell(note)
            self._notes = []
        is_due = self._verbose or now - self._shown > (0.1 if self._terminal else _PAUSE)
        if self._quiet or not is_due:
            return
        self._shown = now
        ratio = "-" if record["ratio_mean"] is None else format_ratio(record["ratio_mean"])
        tests = record.get("test_ratio_common")
        ratio += "" if tests is None else f", relative test cost {tests:.4f}"
        # --rounds limits the method, not the initialization.
        limit = f" (of at most {self._rounds})" if record["stage"] == self._method else ""
        state = f"ratio {ratio}, {record['converged']} converged, {record['bytes']:,} plain bytes"
        line = f"{record['stage']} round {record['round']}{limit}: {state}"
        if self._verbose or not self._terminal:
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def tell(self, note: str) -> None:
        """Print a line before the run starts."""
        if not self._quiet:
            print(f"p2pkm: {note}", file=sys.stderr, flush=True)

    def announce(self, notes: list[str]) -> None:
        """Keep notes until the run has lasted some seconds: a short one shows them once, below its table."""
        self._notes = notes

    def close(self) -> None:
        """Remove the live line."""
        self._live.close()


class Live:
    """Line on a terminal that changes."""

    def __init__(self) -> None:
        self._status: Any = None

    def update(self, line: str) -> None:
        """Replace the line."""
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(line)
            self._status.start()
        self._status.update(line)

    def close(self) -> None:
        """Remove the line."""
        if self._status is not None:
            self._status.stop()


class Terminal:
    """Output of the command line; see `p2pkm.experiments.console.Console`.

    Attributes
    ----------
    verbose : bool
        Whether the summary table has the rows of all metrics.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self.verbose = verbose

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> Progress:
        """Return the progress display of a run, on standard error."""
        return Progress(method, rounds, quiet=quiet, verbose=verbose)

    def line(self) -> Live:
        """Return a line that changes, on standard error."""
        return Live()

    def close(self, summary: dict[str, Any], notes: list[str], *, guided: bool) -> None:
        """Print the summary table on standard output, and next steps if `guided`."""
        show(summary, notes, sys.stdout, verbose=self.verbose)
        if guided:
            print(next_steps(summary), flush=True)
