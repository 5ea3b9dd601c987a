"""Command ``p2pkm privacy``: privacy loss of several runs together."""

import json

import click

from p2pkm.cli.options import option, with_format


@click.group(
    "privacy", short_help="Add up the privacy loss of runs.", context_settings={"help_option_names": ["-h", "--help"]}
)
def privacy() -> None:
    """Add up the privacy loss of runs of methods with a guarantee."""


@privacy.command(
    "budget",
    short_help="Add up the privacy loss of runs.",
    epilog="Exit codes: 0 done, 2 wrong command line, 3 not a run folder, or a run without a guarantee.",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@option("--delta", type=float, help="Delta of the total.  [default: the largest one of the runs]")
@with_format
def budget_command(runs: tuple[str, ...], delta: float | None, form: str) -> int:
    """Add up the privacy loss of runs on the same points, and say what may be published.

    RUN is a run folder, or a folder of several runs, such as that of --seeds. A copy of a run counts once.
    """
    from p2pkm.privacy.budget import privacy_budget

    budget = privacy_budget(runs, delta)
    click.echo(json.dumps(budget.to_dict()) if form == "json" else str(budget))
    return 0
