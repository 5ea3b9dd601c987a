"""The options of a run on the command line, made of the fields of `RunOptions`; several commands share them."""

from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import click

from p2pkm.cli.completion import complete
from p2pkm.engine.run_options import OPTIONS, RunOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

with_format = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
                           help="What to print: a table, or one JSON object.")  # fmt: skip

_SEVERAL: dict[str, Decorator] = {
    "seeds": click.option("--seeds", metavar="LIST", help="Run once for each of several seeds, such as 0-9, and print "
                          "mean, standard deviation and worst case."),
    "coupling_path": click.option("--coupling-path", metavar="LIST", help="Solve for a sequence of couplings, such as "
                                  "30,10,...,0.1, with warm starts; plots local cost against disagreement."),
}  # fmt: skip
_MANNER: dict[str, Decorator] = {
    "config": click.option("--config", metavar="FILE.toml", help="Read options from a file; the command line wins."),
    "force": click.option("--force", is_flag=True, help="Replace what is in --out."),
    "form": with_format,
    "dry_run": click.option("--dry-run", is_flag=True, help="Check everything, show the resolved options, and stop."),
    "quiet": click.option("-q", "--quiet", is_flag=True, help="No progress."),
    "verbose": click.option("-v", "--verbose", is_flag=True, help="A line for every recorded round."),
}


def _options() -> Iterator[tuple[str, Decorator]]:
    """Yield the options by name in the order of the help."""
    kinds = get_type_hints(RunOptions)
    for name in OPTIONS:
        yield name, _field_option(name, kinds[name])
        if name == "seed":
            yield from _SEVERAL.items()
    yield from _MANNER.items()


def _field_option(name: str, kind: Any) -> Decorator:
    """Return the option of a field of `RunOptions`; without a default, so that a file of options may set it."""
    declared, dashed = OPTIONS[name], name.replace("_", "-")
    usual = f"--{dashed}/--no-{dashed}" if getattr(RunOptions, name) is True else f"--{dashed}"
    typed: dict[Any, dict[str, Any]] = {
        bool: {"is_flag": True, "default": None},
        int: {"type": int},
        float: {"type": float},
    }
    more = next((more for plain, more in typed.items() if kind in (plain, plain | None)), {})
    more = more | ({"shell_complete": complete} if declared.completes else {})
    return click.option(*(declared.flags or (usual,)), metavar=declared.metavar, help=declared.help, **more)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add all options of a run to a command."""
    return without()(function)


def without(*names: str) -> Decorator:
    """Return a decorator that adds the options of a run except some."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, add in reversed(list(_options())):
            if name not in names:
                function = add(function)
        return function

    return decorate
