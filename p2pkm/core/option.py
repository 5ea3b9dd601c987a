"""Options: fields of a dataclass with their description for the command line."""

from collections.abc import Callable
from dataclasses import field, fields
from importlib import import_module
from typing import Any, NamedTuple


class Option(NamedTuple):
    """Description of an option of a run, declared by its field.

    Attributes
    ----------
    help : str
        Text of the command line: a noun phrase in one line of at most 80 characters.
    metavar : str or None
        Placeholder of the value in the help text; None: the default of click.
    flags : tuple of str
        Names on the command line; empty: the field's name with dashes, and ``--no-...`` with it if the default is True.
    group : str
        "run" or "method": "method" options are also parameters of methods and may be set in their spec.
    completes : bool
        Whether shell completion offers its values.
    least : int or None
        Smallest valid integer; None: not an integer, or no limit.
    reads : str
        ``module:Class`` whose `of` reads the text of a value; empty: the value is stored unchanged.
    section : str
        Heading in the help of the command line.
    is_basic : bool
        Whether the short help lists the option.
    details : str
        Values, default and conditions, for ``p2pkm help OPTION``.
    """

    help: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    group: str = "run"
    completes: bool = False
    least: int | None = None
    reads: str = ""
    section: str = ""
    is_basic: bool = False
    details: str = ""

    @property
    def reader(self) -> Callable[[Any], Any]:
        """Function that parses the text of a value; imports its module."""
        module, _, kind = self.reads.partition(":")
        read: Callable[[Any], Any] = vars(import_module(module))[kind].of
        return read


def option(default: Any, text: str, **more: Any) -> Any:
    """Declare a field that is an option, with its default, its help text and the other attributes of `Option`."""
    return field(default=default, metadata={"option": Option(text, **more)})


def options_of(kind: Any) -> dict[str, Option]:
    """Return the options of a dataclass by field name, in the order of the fields."""
    return {item.name: item.metadata["option"] for item in fields(kind) if "option" in item.metadata}
