"""Options of a run on the command line, made from the fields of `RunOptions`; several commands share them."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, get_type_hints

import click

from p2pkm.cli.completion import complete
from p2pkm.engine.run_options import OPTIONS, RunOptions

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class CheckedOption(click.Option):
    """Option that is given once, under any of its names, and whose value is not the name of an option.

    click keeps the last of several values, and takes the next option for a missing value, in silence. An option
    declared ``multiple`` may be repeated.
    """

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser collect all values."""
        is_multiple = self.multiple
        self.multiple = True
        super().add_to_parser(parser, ctx)
        self.multiple = is_multiple

    def handle_parse_result(self, ctx: click.Context, opts: Any, args: list[str]) -> tuple[Any, list[str]]:
        """Reject several values, and a value that is the name of an option of the command."""
        values = opts.get(self.name)
        if isinstance(values, list) and not ctx.resilient_parsing:
            self._check(values, ctx)
        if isinstance(values, list) and not self.multiple:
            opts = {**opts, self.name: values[-1]}
        return super().handle_parse_result(ctx, opts, args)

    def _check(self, values: list[Any], ctx: click.Context) -> None:
        name = max(self.opts, key=len)
        if len(values) > 1 and not self.multiple:
            if not self.is_flag:
                kind, fix = "one value", values[-1]
                if self.metavar == "LIST":
                    kind, fix = "one list", ",".join(values)
                times = "twice" if len(values) == 2 else f"{len(values)} times"
                given = f"set {times}, to {' and to '.join(values)}; expected {kind}. Use {name} {fix}"
            elif len(set(values)) > 1:
                given = f"combined with {self.secondary_opts[0]}; expected one of them. Remove the other"
            else:
                given = f"given {len(values)} times; expected at most once. Remove the others"
            raise click.UsageError(f"{name} is {given}", ctx)
        others = (other for other in ctx.command.get_params(ctx) if isinstance(other, click.Option))
        options = {flag for other in others for flag in (*other.opts, *other.secondary_opts)}
        for value in values:
            if not self.is_flag and value in options:
                raise click.UsageError(
                    f"{name} is followed by {value}; expected a value. Use {name} VALUE, or remove it", ctx
                )


option = partial(click.option, cls=CheckedOption)


class HelpEntry(NamedTuple):
    """Place of an option in the help: its heading, and whether the short help lists it."""

    section: str
    is_basic: bool = False


with_format = option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True,
    help="Output: a table, or one JSON object.",
)  # fmt: skip


def with_retries(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that repeat runs without a result to a command."""
    rejected = option("--retry-rejected", is_flag=True, help="Stored runs that were rejected are repeated, too.")
    failed = option(
        "--retry-failed", is_flag=True, help="Stored runs that failed or ran out of time are repeated, too."
    )
    return failed(rejected(function))


_REPETITIONS: dict[str, Decorator] = {
    "seeds": option(
        "--seeds", metavar="LIST", help="One run per seed, such as 0-9, with mean, standard deviation and worst value."
    ),
    "coupling_path": option(
        "--coupling-path", metavar="LIST", help="Sequence of couplings with warm starts, such as 30,10,...,0.1."
    ),
}
_PRESENTATION: dict[str, Decorator] = {
    "config": option("--config", metavar="FILE.toml", help="File of options; the command line has precedence."),
    "force": option("--force", is_flag=True, help="Existing contents of --out are replaced."),
    "form": with_format,
    "dry_run": option("--dry-run", is_flag=True, help="Validation only; the resolved options are printed."),
    "quiet": option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
    "verbose": option("-v", "--verbose", is_flag=True, help="All metrics, and a line for every recorded round."),
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
    return option(*(declared.flags or (flag,)), metavar=declared.metavar, help=declared.help, **settings)


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


def only(*names: str) -> Decorator:
    """Return a decorator that adds the named options of a run to a command."""
    return without(*(_options().keys() - set(names)))
