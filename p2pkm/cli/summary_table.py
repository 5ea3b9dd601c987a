"""The closing table of a run, in words that a newcomer understands, and the lines that show how it goes on."""

import sys
import time
from typing import Any, TextIO

from p2pkm.core.mpi_environment import launched
from p2pkm.core.units import NOT_KEPT, write_number
from p2pkm.metrics.milestones import OF_CENTRAL, is_worse, write_rounds
from p2pkm.storage.study_table import ALONE

_PAUSE = 3.0  # seconds between two plain lines of progress


def explain(summary: dict[str, Any], notes: list[str]) -> list[tuple[str, str, str]]:
    """Return rows (what, figure, what it means)."""
    rows = [
        ("quality, mean device", _number(summary["ratio_mean"]), "cost on all points / central k-means; 1 is as good"),
        ("quality got worse", *_tell_worse(summary)),
        ("quality, worst device", _number(summary["ratio_worst"]), "the same for the device that fared worst"),
        ("each device alone", _number(summary["ratio_alone"]), "what the devices would reach without talking"),
        ("agreement with labels", _number(summary["ari"]), "adjusted Rand index, mean over devices; 1 is perfect"),
        ("the same, own points", _number(summary["ari_clients"]), "size-weighted mean of each client's own index"),
        ("silhouette", _number(summary["silhouette"]), "of all points, or of a sample of 5,000"),
        ("simplified silhouette", _number(summary["simplified_silhouette"]), "from distances to centroids alone"),
        ("distance to centers", _number(summary["l2_centers"]), "Frobenius norm after matching"),
        ("disagreement", _number(summary["gtv"]), "total variation between neighbours' centroids; 0 is consensus"),
        ("devices", str(summary["devices"]) if summary["device_names"] else "-", summary["device_names"] or ""),
        ("different results", _number(summary["centroid_sets"]), f"distinct centroid sets of {summary['devices']}"),
        ("groups", _number(summary["groups"]), "of devices, tied by links that kept more than half of their strength"),
        ("agreement of groups", _number(summary["groups_ari"]), "adjusted Rand index over devices; 1 is perfect"),
        ("messages", f"{summary['messages']:,}", "over links of the graph, seeding included"),
        ("bytes", f"{summary['bytes']:,}", "8 per number that was sent"),
        ("virtual seconds", _number(summary["virtual_seconds"]), f"that it would take in life: {summary['net']}"),
        ("lost messages", _number(summary["lost"]), f"that were sent and not heard: {summary['faults']}"),
        ("devices away", _number(summary["away"]), "share of all, on average over the rounds"),
        ("rounds", str(summary["rounds"]), STOPS.get(summary["stop"], summary["stop"])),
        ("rounds before", _number(summary["rounds_before"] or None), "scaling and initialization; their bytes count"),
        ("to own 1 %", write_rounds(summary), "rounds until the ratio is within 1 % of its end (with initialization)"),
        ("to central 1 %", write_rounds(summary, OF_CENTRAL), "the same within 1 % of central k-means"),
        ("contraction", _number(summary["contraction"]), "factor per round of the way left, fitted to the objective"),
        ("distance left", _number(summary["distance_left"]), "in units of tol: about last move / (1 - contraction)"),
        ("smallest row", _number(_several(summary["min_count"])), "points; nothing of rows of fewer was said"),
        ("points in the open", _number(summary["raw_points"]), "that left their device as they are"),
        ("seen by one device", _number(summary["exposure_max"]), "other devices at most whose rows may have come"),
        ("refused tables", _number(summary["quarantined"] or None), "not numbers or out of all bounds: never used"),
        ("rows at the server", _number(summary["rows_at_server"]), "that it last aggregated"),
        ("descent", summary["descent"] or "-", DESCENTS.get(summary["descent"], "")),
    ]  # fmt: skip
    kept = [row for row in rows if row[1] != "-" and row[:2] != ("groups", "1")]
    kept += [("note", "", note) for note in notes]
    return [*kept, ("run folder", "", summary["out"] or NOT_KEPT)]


STOPS = {
    "converged": "converged: every move of the last round was within --tol",
    "round-limit": "not converged: stopped at the limit of --rounds",
    "stalled": "stalled: devices swap the same centroids for ever; use --schedule coloured",
    "silent": "nobody had anything more to say",
    "interrupted": "interrupted; p2pkm resume goes on",
    "terminated": "ended by SIGTERM; p2pkm resume goes on",
}
DESCENTS = {
    "certified": "the objective provably never rises, and never rose",
    "not claimed": "with these options nothing is promised about the objective",
    "violated": "the objective rose although it must not: please report this run",
}


def _number(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else write_number(value)


def _tell_worse(summary: dict[str, Any]) -> tuple[str, str]:
    """Return by how much the mean ratio got worse before the end, and since when; a dash if it did not."""
    ratio, best = summary["ratio_mean"], summary.get("ratio_best")
    if not is_worse(ratio, best):
        return "-", ""
    since = f"round {summary['ratio_best_round']} of {summary['ratio_best_stage']}"
    return f"+{write_number(100 * (ratio - best))} %", f"since {since}, where the ratio was {best:.4f}; now {ratio:.4f}"


def _several(count: int | None) -> int | None:
    """Return a least number that has a meaning, else None: every row has a point."""
    return count if count is not None and count > 1 else None


def show(summary: dict[str, Any], notes: list[str], file: TextIO) -> None:
    """Print the closing table: with rich on a terminal, aligned text otherwise."""
    rows = explain(summary, notes)
    place = "by themselves" if summary["algorithm"] == ALONE else f"on a {summary['graph']} graph"
    ranks = f"{summary['ranks']} rank{'s' * (summary['ranks'] != 1)}"
    spent = f"{summary['wall_seconds']:.2f} s"
    if summary.get("compile_seconds"):
        spent += f" (and {summary['compile_seconds']:.2f} s to compile kernels, once)"
    title = f"{summary['clusters']} clusters, {summary['devices']} devices {place}, {ranks}, {spent}"
    if launched() or not file.isatty():  # some launchers pretend to be a terminal
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"  {what:<{widths[0]}}  {figure:>{widths[1]}}  {meaning}" for what, figure, meaning in rows]
        print(title, *lines, sep="\n", file=file, flush=True)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(justify="right", style="cyan")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    Console(file=file).print(table)


def guide(summary: dict[str, Any]) -> str:
    """Return what happened in plain words, and what to try next, for somebody who gave no option at all."""
    devices, clusters, ratio = summary["devices"], summary["clusters"], summary["ratio_mean"]
    return f"""
What happened: {devices} devices on a {summary["graph"]} graph got uneven shares of {clusters} clusters. They sent
centroids, counts and costs to their neighbors only, {summary["bytes"] / 1000:.0f} kB in {summary["messages"]} messages.
{_disclose(summary["raw_points"])}
Their centroids cost {ratio:.4f} times what central k-means on all points costs; by themselves the devices would have
paid {summary["ratio_alone"]:.2f} times.

What to try next
  python -m p2pkm --graph star                     another graph; --help lists them all
  python -m p2pkm --seeding own                    why the start decides: a poor local minimum
  python -m p2pkm --data mine.csv -k 5             your own points
  python -m p2pkm verify {summary["out"] or "RUN"}
                                                   the same run again, compared bit by bit
  mpirun -n 16 python -m p2pkm --graph ring        one device per MPI rank, the same bits
"""


def _disclose(raw: int | None) -> str:
    """Return how many points left their device as they are, in a sentence."""
    if raw is None:
        return "How many points left their device as they are was not counted: there are too many."
    if raw == 0:
        return "No point left its device as it is; what centroids and counts still tell is in docs/leaks.md."
    who = "1 point left its device as it is" if raw == 1 else f"{raw:,} points left their device as they are"
    return f"{who}, as centroids of clusters of one point. --min-count 2 prevents that."


class Progress:
    """Tell on standard error how far a run is: a live line on a terminal, a plain one every few seconds otherwise."""

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
        ratio = _number(record["ratio_mean"])
        most = f" (of at most {self._rounds})" if record["stage"] == self._method else ""  # --rounds is the method's
        line = f"{record['stage']} round {record['round']}{most}: ratio {ratio}, " \
               f"{record['settled']} settled, {record['bytes']:,} bytes"  # fmt: skip
        if self._verbose or not self._terminal:
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def tell(self, note: str) -> None:
        """Say something before the run starts."""
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
