"""Command line of ``p2pkm faults``: faults."""

import click


@click.command(
    "faults",
    short_help="Write a fault trace, to edit and to share.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("spec", metavar="SPEC")
@click.option("--graph", default="ring", show_default=True, metavar="SPEC", help="Of the run; star: with a server.")
@click.option("--devices", type=click.IntRange(1), help="Number of devices, a server not included.  [default: 16]")
@click.option("--rounds", type=click.IntRange(0), default=150, show_default=True, help="Write what happens up to then.")
@click.option("--turns", type=click.IntRange(1, 1000), default=1, show_default=True, help="Draw the fate of messages "
              "in so many turns of a round each; 1: once for the whole round.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of graph and faults.")
@click.option("--server", is_flag=True, help="The graph is the star of a method with a server, one more device.")
@click.option("--out", metavar="FILE.jsonl", help="Fault trace to write.  [default: standard output]")
def faults(  # noqa: PLR0913 - one parameter per option
    spec: str, graph: str, devices: int | None, rounds: int, turns: int, seed: int, server: bool, out: str | None
) -> int:
    """Write the faults of SPEC, such as loss=0.1,dropout=0.02, as a trace, to edit and share: one JSON object per line.

    A trace is checked, too: p2pkm faults TRACE.jsonl --graph ... writes what is left of it on that graph.
    """
    from p2pkm.experiments.graphs.write_fault_trace import TraceRequest, write_fault_trace

    lines, summary = write_fault_trace(TraceRequest(spec, graph, devices, rounds, turns, seed, server), out)
    for line in lines:
        click.echo(line)
    click.echo(summary, err=True)
    return 0
