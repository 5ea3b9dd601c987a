"""Command ``p2pkm attack``: attacks of receivers, compared with the claimed privacy guarantees."""

import json
from collections.abc import Callable
from typing import Any

import click

from p2pkm.cli.options import option, with_format

# Exit code if an attack exceeds the claim; the same as that of `verify` for a difference.
_EXCEEDED = 6


def _with_query(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all attacks share."""
    for add in (
        with_format,
        option("--out", metavar="FILE", help="Figure of bound and attack: a .png, .svg or .pdf file."),
        option("--delta", type=float, default=1e-6, show_default=True,
               help="Delta of the guarantee; that of --algorithm has precedence."),
        option("--trials", type=click.IntRange(1),
               help="Trials with the point, and as many without it.  [default: gossip 20000, private 50]"),
        option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed."),
        option("--devices", type=click.IntRange(1), help="Number of devices.  [default: 16]"),
        option("--graph", default="ring", show_default=True, metavar="SPEC", help="Communication graph."),
    ):  # fmt: skip
        function = add(function)
    return function


@click.group(
    "attack",
    short_help="Attack noisy sums and private runs, and compare with the guarantee.",
    epilog="Exit codes: 0 the claim holds, 2 wrong command line, 3 wrong graph, 6 the attack exceeds the claim.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def attack() -> None:
    """Test whether one point is in the data, in many trials, and compare with the claimed guarantee."""


@attack.command("gossip", short_help="Attack an average of noisy values.")
@_with_query
@option("--gossips", type=click.IntRange(1, 1000), default=10, show_default=True, help="Turns of the average.")
@option("--mu", type=float, default=1.0, show_default=True, help="Parameter mu of the noise of each device alone.")
@option("--receiver", type=click.IntRange(0), default=0, show_default=True, help="Attacking device.")
def gossip_command(gossips: int, mu: float, receiver: int, form: str, **options: Any) -> int:
    """Attack an average over the graph of values to which each device has added noise.

    For every distance from the receiver, the table shows the devices whose values it computes exactly, the claimed and
    the measured mu, and epsilon: its upper bound, and the lower bound from the trials.
    """
    from p2pkm.privacy.run_attack import AttackQuery, attack_gossip

    return _print_result(attack_gossip(AttackQuery(**options), gossips, mu, receiver), form)


@attack.command("private", short_help="Attack real runs of the method private.")
@_with_query
@option(
    "--algorithm",
    default="private:epsilon=1,radius=1",
    show_default=True,
    metavar="SPEC",
    help="Method with its parameters.",
)
@option("-k", "--clusters", type=click.IntRange(1), default=16, show_default=True, help="Number of clusters.")
@option("--features", type=click.IntRange(1), default=2, show_default=True, help="Number of features.")
def private_command(algorithm: str, clusters: int, features: int, form: str, **options: Any) -> int:
    """Play whole runs of private with and without one point; no data are needed.

    The attacker knows all other points. The table shows the claimed and the measured mu per release and in all,
    against the curious devices and against all devices except one. Masks, independence of the noise, and commands are
    tested, too.
    """
    from p2pkm.privacy.run_attack import AttackQuery, attack_private

    return _print_result(attack_private(AttackQuery(**options), algorithm, clusters, features), form)


def _print_result(result: dict[str, Any], form: str) -> int:
    from p2pkm.privacy.run_attack import explain

    click.echo(json.dumps(result) if form == "json" else explain(result))
    return 0 if result["holds"] else _EXCEEDED
