"""Command line of ``p2pkm topology``: graphs."""

import json
from collections.abc import Callable
from typing import Any

import click

from p2pkm.cli.completion import complete
from p2pkm.cli.options import with_format


def _with_size(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what a graph is built with."""
    function = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of what is drawn.")(
        function
    )
    return click.option("--devices", type=click.IntRange(1), help="Number of devices.  [default: 16]")(function)


def _on_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names one graph."""
    return click.argument("graph", metavar="GRAPH", shell_complete=complete)(_with_size(function))


_QUESTIONS: list[Callable[..., Any]] = [
    click.option("--coupling", type=float, help="Predict GTVMin at this dimensionless strength.  "
                 "[default: as in a run]"),
    click.option("--alpha", type=float, help="Or at this raw strength of every link, with --points and --clusters."),
    click.option("--points", type=int, help="Number of points in all, for --alpha and the expected excess."),
    click.option("-k", "--clusters", type=int, help="Number of clusters, for --alpha and the expected excess."),
    click.option("--decay", type=float, default=0.95, show_default=True, help="Of the effective number of neighbors: "
                 "how much of a device's past counts in the next round."),
    with_format,
]  # fmt: skip


def _asking(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is asked of a graph."""
    for option in reversed(_QUESTIONS):
        function = option(function)
    return function


@click.group(
    "topology", short_help="Measure, compare and draw graphs.", context_settings={"help_option_names": ["-h", "--help"]}
)
def topology() -> None:
    """Look at graphs before anything runs on them: what theory knows of them, and how they look."""


@topology.command("list")
@with_format
def list_command(form: str) -> int:
    """List the graphs by name, with their options."""
    from p2pkm.experiments.graphs.graph_report import list_graphs, name_graphs

    click.echo(json.dumps(list_graphs()) if form == "json" else name_graphs())
    return 0


@topology.command("describe", short_help="Measure a graph, and predict GTVMin on it.")
@_on_graph
@_asking
def describe_command(form: str, **options: Any) -> int:
    """Measure a graph, such as small-world:degree=6, and predict how GTVMin converges on it.

    Above 1,000 devices some figures are estimates; ~ marks them, and their line says how they were found.
    """
    from p2pkm.experiments.graphs.graph_report import GraphQuery, describe_graph, explain

    found = describe_graph(GraphQuery(**options))
    click.echo(json.dumps(found) if form == "json" else explain(found))
    return 0


@topology.command("compare", short_help="Measure several graphs, side by side.")
@click.argument("graphs", metavar="GRAPH GRAPH...", nargs=-1, required=True, shell_complete=complete)
@_with_size
@_asking
@click.option("--out", metavar="FILE", help="Draw them, too: a .png, .svg or .pdf file.")
def compare_command(graphs: tuple[str, ...], form: str, out: str | None, **options: Any) -> int:
    """Measure several graphs, such as ring torus one-peer-exponential, and set them side by side.

    Graphs that have a size of their own, such as karate, gallery:NAME and file:PATH, keep it.
    """
    from p2pkm.experiments.graphs.graph_comparison import compare_graphs, tabulate
    from p2pkm.experiments.graphs.graph_report import GraphQuery

    found = compare_graphs(graphs, GraphQuery("", **options), out)
    click.echo(json.dumps(found) if form == "json" else tabulate(found))
    return 0


@topology.command("draw")
@_on_graph
@click.option("--out", metavar="FILE", help="A .png, .svg or .pdf file.  [default: NAME-DEVICES.png]")
def draw_command(graph: str, devices: int | None, seed: int, out: str | None) -> int:
    """Draw a graph; devices are colored by their number of links."""
    from p2pkm.experiments.graphs.graph_report import draw_graph

    click.echo(f"drawn: {draw_graph(graph, devices, seed, out)}")
    return 0


@topology.command("leaks", short_help="What devices learn about each other from one average.")
@_on_graph
@click.option("--gossips", type=int, default=10, show_default=True, help="Turns of the average.")
@click.option(
    "--method", default="consensus", show_default=True, help="How they average: consensus, pushsum or tracking."
)
@click.option("--receivers", metavar="LIST", help="Who learns, such as 0,3-5.  [default: every device]")
@click.option("--public", metavar="LIST", help="Devices whose rows at the end are known to all.")
@click.option(
    "--faults",
    metavar="SPEC",
    help="Fault model or trace.jsonl, as of a run; it strikes in the opening and in round 1.",
)
@click.option("--stale-policy", metavar="SPEC", help="What to do with outdated tables: keep:age=N, or drop.")
@click.option("--out", metavar="FILE", help="Draw them, too: a .png, .svg or .pdf file.")
@with_format
def leaks_command(form: str, out: str | None, **options: Any) -> int:
    """Compute what each device learns about each other one from one average by gossip, exactly.

    A leak is between 0 and 1: with noise of standard deviation s on rows that one point moves by at most D, the pair
    has mu-GDP with mu = D/s times the root of its leak.
    """
    from p2pkm.privacy.leak_report import LeakQuery, report_leaks, tabulate_leaks

    found = report_leaks(LeakQuery(**options), out)
    click.echo(json.dumps(found) if form == "json" else tabulate_leaks(found))
    return 0
