"""Command line of ``p2pkm attack``: what a receiver can find out, beside what is claimed."""

import json
from collections.abc import Callable
from typing import Any

import click

from p2pkm.cli.options import with_format

_EXCEEDED = 6  # as of verify: what was claimed is not so


def _with_query(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what all attacks are given."""
    for option in (
        with_format,
        click.option("--out", metavar="FILE", help="Draw bound and attack side by side: a .png, .svg or .pdf file."),
        click.option("--delta", type=float, default=1e-6, show_default=True,
                     help="Of epsilon; one in --algorithm comes first."),
        click.option("--trials", type=click.IntRange(100), default=20_000, show_default=True,
                     help="With the point, and as many without it."),
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of what is drawn."),
        click.option("--devices", type=click.IntRange(1), help="Number of devices.  [default: 16]"),
        click.option("--graph", default="ring", show_default=True, metavar="SPEC", help="Communication graph."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group(
    "attack",
    short_help="Attack noisy sums, beside what is claimed of them.",
    epilog="Exit codes: 0 the claim holds, 2 wrong command line, 3 wrong graph, 6 more was measured than claimed.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def attack() -> None:
    """Try to tell whether one point is there: the best test in many trials, and one run with canaries."""


@attack.command("gossip", short_help="Attack an average of noisy values.")
@_with_query
@click.option("--gossips", type=click.IntRange(1, 1000), default=10, show_default=True, help="Turns of the average.")
@click.option("--mu", type=float, default=1.0, show_default=True, help="What the noise of each device gives by itself.")
@click.option("--receiver", type=click.IntRange(0), default=0, show_default=True, help="The device that attacks.")
def gossip_command(gossips: int, mu: float, receiver: int, form: str, **options: Any) -> int:
    """Attack an average over the graph, of values to which each device has added noise of its own.

    For every distance from the receiver: whose values it computes exactly, the mu that is claimed, the measured one,
    and epsilon: the bound, and what the trials show at least.
    """
    from p2pkm.privacy.run_attack import AttackQuery, attack_gossip

    return _tell(attack_gossip(AttackQuery(**options), gossips, mu, receiver), form)


@attack.command("private", short_help="Attack the sums of the method private.")
@_with_query
@click.option(
    "--algorithm",
    default="private:epsilon=1,radius=1",
    show_default=True,
    metavar="SPEC",
    help="The method with its parameters.",
)
@click.option("-k", "--clusters", type=click.IntRange(1), default=16, show_default=True, help="Number of clusters.")
@click.option("--features", type=click.IntRange(1), default=2, show_default=True, help="Of the points.")  # fmt: skip
def private_command(algorithm: str, clusters: int, features: int, form: str, **options: Any) -> int:
    """Attack all sums of a run of private together, with the noise that it draws; no points are needed.

    First as the curious devices, who know their own masks; then as all devices but one.
    """
    from p2pkm.privacy.run_attack import AttackQuery, attack_private

    return _tell(attack_private(AttackQuery(**options), algorithm, clusters, features), form)


def _tell(found: dict[str, Any], form: str) -> int:
    from p2pkm.privacy.run_attack import explain

    click.echo(json.dumps(found) if form == "json" else explain(found))
    return 0 if found["holds"] else _EXCEEDED
