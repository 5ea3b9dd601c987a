"""Command ``p2pkm faults``: fault traces."""

import click

from p2pkm.cli.options import option


@click.command(
    "faults",
    short_help="Write a fault trace, to edit and share.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("spec", metavar="SPEC")
@option("--graph", default="ring", show_default=True, metavar="SPEC", help="Graph of the run.")
@option("--devices", type=click.IntRange(1), help="Number of devices, without the server.  [default: 16]")
@option("--rounds", type=click.IntRange(0), default=150, show_default=True, help="Last round of the trace.")
@option("--turns", type=click.IntRange(1, 1000), default=1, show_default=True, help="Turns of a round in which "
              "message faults are drawn; 1: once per round.")  # fmt: skip
@option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed of graph and faults.")
@option("--server", is_flag=True, help="Star of a method with a server, as an additional device.")
@option("--out", metavar="FILE.jsonl", help="File of the trace.  [default: standard output]")
def faults(
    spec: str, graph: str, devices: int | None, rounds: int, turns: int, seed: int, server: bool, out: str | None
) -> int:
    """Write the faults of SPEC, such as loss=0.1,dropout=0.02, as a trace: one JSON object per line.

    p2pkm faults phones:days=7 generates a week of phones that come and go, as a trace in seconds.

    p2pkm faults TRACE.jsonl --graph ... validates a trace and writes the events that apply to the graph.
    """
    from p2pkm.experiments.graphs.write_fault_trace import TraceRequest, write_fault_trace

    lines, summary = write_fault_trace(TraceRequest(spec, graph, devices, rounds, turns, seed, server), out)
    for line in lines:
        click.echo(line)
    click.echo(summary, err=True)
    return 0
