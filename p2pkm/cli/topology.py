"""Command ``p2pkm topology``: measures and figures of graphs."""

import json
from collections.abc import Callable
from typing import Any

import click

from p2pkm.cli.completion import complete
from p2pkm.cli.options import option, with_format


def _with_size(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that a graph is built with."""
    function = option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")(function)
    return option("--devices", type=click.IntRange(1), help="Number of devices.  [default: 16]")(function)


def _on_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument for one graph, with its options."""
    return click.argument("graph", metavar="GRAPH", shell_complete=complete)(_with_size(function))


_PREDICTION_OPTIONS: list[Callable[..., Any]] = [
    option("--coupling", type=float, help="Coupling at which GTVMin is predicted.  "
                 "[default: as in a run]"),
    option("--alpha", type=float, help="Link strength instead of --coupling; requires --points and --clusters."),
    option("--points", type=int, help="Number of points of all devices, for --alpha and the expected excess."),
    option("-k", "--clusters", type=int, help="Number of clusters, for --alpha and the expected excess."),
    option("--decay", type=float, default=0.95, show_default=True, help="Decay of the effective number of "
                 "neighbors: weight of a device's past in the next round."),
    with_format,
]  # fmt: skip


def _with_predictions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of predictions on a graph."""
    for add in reversed(_PREDICTION_OPTIONS):
        function = add(function)
    return function


@click.group(
    "topology", short_help="Measure, compare and draw graphs.", context_settings={"help_option_names": ["-h", "--help"]}
)
def topology() -> None:
    """Measure graphs before a run, predict the convergence of GTVMin on them, and draw them."""


@topology.command("list")
@with_format
def list_command(form: str) -> int:
    """List the families of graphs with their options."""
    from p2pkm.experiments.graphs.graph_report import list_graphs

    click.echo(json.dumps(list_graphs()) if form == "json" else format_families())
    return 0


def format_families() -> str:
    """Format the families of graphs with their options, for `topology list` and `help graph`."""
    from p2pkm.experiments.graphs.graph_report import format_graph_list

    return format_graph_list()


@topology.command("describe", short_help="Measure a graph, and predict GTVMin on it.")
@_on_graph
@_with_predictions
def describe_command(form: str, **options: Any) -> int:
    """Measure a graph, such as small-world:degree=6, and predict how GTVMin converges on it.

    Above 1,000 devices some measures are estimates; they are marked by ~, and their line names the method.
    """
    from p2pkm.experiments.graphs.graph_report import GraphQuery, describe_graph, format_graph_report

    measures = describe_graph(GraphQuery(**options))
    click.echo(json.dumps(measures) if form == "json" else format_graph_report(measures))
    return 0


@topology.command("compare", short_help="Compare several graphs.")
@click.argument("graphs", metavar="GRAPH GRAPH...", nargs=-1, required=True, shell_complete=complete)
@_with_size
@_with_predictions
@option("--out", metavar="FILE", help="Figure: a .png, .svg or .pdf file.")
def compare_command(graphs: tuple[str, ...], form: str, out: str | None, **options: Any) -> int:
    """Measure several graphs, such as ring torus one-peer-exponential, in one table.

    Graphs of fixed size, such as karate, gallery:NAME and file:PATH, keep their size.
    """
    from p2pkm.experiments.graphs.graph_comparison import compare_graphs, tabulate
    from p2pkm.experiments.graphs.graph_report import GraphQuery

    comparison = compare_graphs(graphs, GraphQuery("", **options), out)
    click.echo(json.dumps(comparison) if form == "json" else tabulate(comparison))
    return 0


@topology.command("draw")
@_on_graph
@option("--out", metavar="FILE", help="Figure: a .png, .svg or .pdf file.  [default: NAME-DEVICES.png]")
def draw_command(graph: str, devices: int | None, seed: int, out: str | None) -> int:
    """Draw a graph, with devices colored by their number of links."""
    from p2pkm.experiments.graphs.graph_report import draw_graph

    click.echo(f"written: {draw_graph(graph, devices, seed, out)}")
    return 0


@topology.command("leaks", short_help="Information that devices gain from one average.")
@_on_graph
@option("--gossips", type=int, default=10, show_default=True, help="Turns of the average.")
@option("--method", default="consensus", show_default=True, help="Averaging method: consensus, pushsum or tracking.")
@option("--receivers", metavar="LIST", help="Receiving devices, such as 0,3-5.  [default: all]")
@option("--public", metavar="LIST", help="Devices whose final rows are public.")
@option(
    "--faults",
    metavar="SPEC",
    help="Fault model or trace.jsonl, as of a run; applied to the initial exchange and round 1.",
)
@option("--stale-policy", metavar="SPEC", help="Use of outdated tables: keep:age=N or drop.")
@option("--out", metavar="FILE", help="Figure: a .png, .svg or .pdf file.")
@with_format
def leaks_command(form: str, out: str | None, **options: Any) -> int:
    """Compute exactly what each device learns about every other device from one average by gossip.

    A leak is between 0 and 1: with noise of standard deviation s on rows that one point changes by at most D, the pair
    has mu-GDP with mu = D/s times the square root of its leak.
    """
    from p2pkm.privacy.leak_report import LeakQuery, report_leaks, tabulate_leaks

    leaks = report_leaks(LeakQuery(**options), out)
    click.echo(json.dumps(leaks) if form == "json" else tabulate_leaks(leaks))
    return 0
