"""Options: fields of a dataclass that carry what the command line says of them."""

from collections.abc import Callable
from dataclasses import field, fields
from importlib import import_module
from typing import Any, NamedTuple


class Option(NamedTuple):
    """An option of a run, as its field declares it.

    Attributes
    ----------
    help : str
        Text of the command line: a noun phrase in one line of at most 80 characters.
    metavar : str or None
        Placeholder of the value in the help; None: that of click.
    flags : tuple of str
        Names on the command line; empty: the field's name with dashes, and ``--no-...`` with it if the default is True.
    group : str
        "method": also a parameter of methods, which may be written into their spec.
    completes : bool
        Whether a shell completes its values.
    least : int or None
        Smallest whole number.
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
        """Function that reads the text of a value; its module is imported here."""
        module, _, kind = self.reads.partition(":")
        read: Callable[[Any], Any] = vars(import_module(module))[kind].of
        return read


def option(default: Any, text: str, **more: Any) -> Any:
    """Declare a field that is an option, with its default, its help text and the other attributes of `Option`."""
    return field(default=default, metadata={"option": Option(text, **more)})


def options_of(kind: Any) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields, in their order."""
    return {one.name: one.metadata["option"] for one in fields(kind) if "option" in one.metadata}
