"""Options of a run on the command line, made from the fields of `RunOptions`; several commands share them."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import click

from p2pkm.cli.completion import complete
from p2pkm.engine.run_options import OPTIONS, RunOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class HelpEntry(NamedTuple):
    """Place of an option in the help: its heading, and whether the short help lists it."""

    section: str
    is_basic: bool = False


with_format = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="Output: a table, or one JSON object.",
)  # fmt: skip

_REPETITIONS: dict[str, Decorator] = {
    "seeds": click.option(
        "--seeds", metavar="LIST", help="One run per seed, such as 0-9, with mean, standard deviation and worst value."
    ),
    "coupling_path": click.option(
        "--coupling-path", metavar="LIST", help="Sequence of couplings with warm starts, such as 30,10,...,0.1."
    ),
}
_PRESENTATION: dict[str, Decorator] = {
    "config": click.option("--config", metavar="FILE.toml", help="File of options; the command line has precedence."),
    "force": click.option("--force", is_flag=True, help="Existing contents of --out are replaced."),
    "form": with_format,
    "dry_run": click.option("--dry-run", is_flag=True, help="Validation only; the resolved options are printed."),
    "quiet": click.option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
    "verbose": click.option("-v", "--verbose", is_flag=True, help="All metrics, and a line for every recorded round."),
}
PLACEMENTS = {name: HelpEntry(declared.section, declared.is_basic) for name, declared in OPTIONS.items()} | {
    "seeds": HelpEntry("Repetition"),
    "coupling_path": HelpEntry("Repetition"),
    "config": HelpEntry("Recording"),
    "force": HelpEntry("Recording"),
    "form": HelpEntry("Output", is_basic=True),
    "dry_run": HelpEntry("Recording"),
    "quiet": HelpEntry("Output", is_basic=True),
    "verbose": HelpEntry("Output", is_basic=True),
}


@cache
def _options() -> dict[str, Decorator]:
    """Make the options, by name, in the order of the help."""
    types = get_type_hints(RunOptions)
    options = {}
    for name in OPTIONS:
        options[name] = _field_option(name, types[name])
        if name == "seed":
            options |= _REPETITIONS
    return options | _PRESENTATION


def _field_option(name: str, kind: Any) -> Decorator:
    """Make the option of a field of `RunOptions`; without a default, so that a file of options can set it."""
    declared = OPTIONS[name]
    dashed = name.replace("_", "-")
    flag = f"--{dashed}/--no-{dashed}" if getattr(RunOptions, name) is True else f"--{dashed}"
    settings_by_type: dict[Any, dict[str, Any]] = {
        bool: {"is_flag": True, "default": None},
        int: {"type": int},
        float: {"type": float},
    }
    settings = next((more for plain, more in settings_by_type.items() if kind in (plain, plain | None)), {})
    if declared.completes:
        settings = settings | {"shell_complete": complete}
    return click.option(*(declared.flags or (flag,)), metavar=declared.metavar, help=declared.help, **settings)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options of a run to a command."""
    return without()(function)


def without(*names: str) -> Decorator:
    """Return a decorator that adds the options of a run except those named."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, add in reversed(_options().items()):
            if name not in names:
                function = add(function)
        return function

    return decorate
