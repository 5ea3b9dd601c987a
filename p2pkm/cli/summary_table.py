"""The closing table of a run, in words that a newcomer understands, and the lines that show how it goes on."""

import sys
import time
from textwrap import fill
from typing import Any, TextIO

from p2pkm.core.mpi_environment import launched
from p2pkm.core.units import count, write_figure, write_size

_SUPPRESSED = 2  # least size of a cluster that keeps single points out of messages
_PAUSE = 3.0  # seconds between two plain lines of progress


def show(summary: dict[str, Any], notes: list[str], file: TextIO) -> None:
    """Print the closing table: with rich on a terminal, aligned text otherwise."""
    from p2pkm.metrics.closing_table import explain

    rows = explain(summary, notes)
    spent = f"{summary['wall_seconds']:.2f} s"
    if summary.get("compile_seconds"):
        spent += f" (and {summary['compile_seconds']:.2f} s to compile kernels, once)"
    title = ", ".join([
        count(summary["clusters"], "cluster"), f"{count(summary['devices'], 'device')} {_place(summary)}",
        count(summary["ranks"], "rank"), spent,
    ])  # fmt: skip
    if launched() or not file.isatty():  # some launchers pretend to be a terminal
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"  {what:<{widths[0]}}  {figure:>{widths[1]}}  {meaning}" for what, figure, meaning in rows]
        print(title, *lines, sep="\n", file=file, flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    Console(file=file).print(table)


def guide(summary: dict[str, Any]) -> str:
    """Return a plain summary of the run and what to try next, for a user who gave no option at all."""
    return f"""
{fill("Summary: " + " ".join(narrate(summary)), 118)}

What to try next
  python -m p2pkm --graph star                     another graph; --help lists them all
  python -m p2pkm --init local                     why the start decides: a poor local minimum
  python -m p2pkm --data mine.csv -k 5             your own points
  python -m p2pkm verify {summary["out"] or "RUN"}
                                                   the same run again, compared bit by bit
  mpirun -n 16 python -m p2pkm --graph ring        one device per MPI rank, the same bits
"""


def narrate(summary: dict[str, Any]) -> list[str]:
    """Return what happened, a sentence per figure: devices, messages, raw points, cost ratio, local-only baseline."""
    sent, raw, ratio, alone = (
        summary[key] for key in ("messages", "raw_points_disclosed", "ratio_mean", "ratio_local_only")
    )
    devices, clusters = count(summary["devices"], "device"), count(summary["clusters"], "cluster")
    told = [f"{devices} {_place(summary)} looked for {clusters}."]
    if sent:
        what = f"{count(sent, 'message')} with {write_size(summary['bytes'])}"
        told.append(f"They sent {what} over links of the graph, and nothing else.")
    else:
        told.append("Nothing was sent.")
    if raw is None:
        told.append("How many points were sent unchanged was not counted: there are too many.")
    elif raw == 0:
        told.append("No point was sent unchanged; what messages reveal all the same is in docs/leaks.md.")
    else:
        who = "1 point was" if raw == 1 else f"{raw:,} points were"
        advice = "; --min-cluster-size 2 suppresses such clusters" * ((summary["min_cluster_size"] or 0) < _SUPPRESSED)
        told.append(f"{who} sent unchanged, as centroids of clusters of one point{advice}.")
    if ratio is None:
        told.append("The result was not compared with central k-means.")
    else:
        told.append(f"The centroids cost {write_figure(ratio)} times what central k-means costs on all points.")
    if alone is not None:
        told.append(f"Without any communication it would be {write_figure(alone)} times.")
    return told


def _place(summary: dict[str, Any]) -> str:
    """Return where a run took place."""
    from p2pkm.storage.study_table import ALONE

    if summary["algorithm"] == ALONE:
        return "without communication"
    return "on a graph" if summary["graph"] is None else f"on a {summary['graph']} graph"


class Progress:
    """Report progress on standard error: a live line on a terminal, a plain one every few seconds otherwise."""

    def __init__(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> None:
        self._method, self._rounds, self._quiet, self._verbose = method, rounds, quiet, verbose
        self._shown = time.monotonic()
        self._live = Live()
        self._terminal = sys.stderr.isatty() and not launched()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show a record, if it is time to."""
        due = self._verbose or time.monotonic() - self._shown > (0.1 if self._terminal else _PAUSE)
        if self._quiet or not due:
            return
        self._shown = time.monotonic()
        ratio = write_figure(record["ratio_mean"])
        most = f" (of at most {self._rounds})" if record["stage"] == self._method else ""  # --rounds is the method's
        line = f"{record['stage']} round {record['round']}{most}: ratio {ratio}, " \
               f"{record['converged']} converged, {record['bytes']:,} bytes"  # fmt: skip
        if self._verbose or not self._terminal:
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def tell(self, note: str) -> None:
        """Print a line before the run starts."""
        if not self._quiet:
            print(f"p2pkm: {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the live line."""
        self._live.close()


class Live:
    """One line on a terminal that changes."""

    def __init__(self) -> None:
        self._status: Any = None

    def update(self, line: str) -> None:
        """Show this line from now on."""
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
    """What the command line shows of a run; see `p2pkm.experiments.console.Console`."""

    def progress(self, method: str, rounds: int, *, quiet: bool, verbose: bool) -> Progress:
        """Return what shows how far a run is, on standard error."""
        return Progress(method, rounds, quiet=quiet, verbose=verbose)

    def line(self) -> Live:
        """Return one line that changes, on standard error."""
        return Live()

    def close(self, summary: dict[str, Any], notes: list[str], *, guided: bool) -> None:
        """Print the closing table on standard output, and what to try next if `guided`."""
        show(summary, notes, sys.stdout)
        if guided:
            print(guide(summary), flush=True)
