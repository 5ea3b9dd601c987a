"""Card of a method: what catalogue, documentation and `defaults=paper` say about it, declared in its class."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

Family = Literal["iterative", "one-shot", "private", "deep", "server", "baseline"]
# Key of a method spec that selects the values of the paper, and its values.
DEFAULTS = "defaults"
CHOICES = Literal["ours", "paper"]
# Source of the values of methods whose papers leave the numbers open.
OPEN = "the paper leaves the numbers open; these are the first defaults of p2pkm"


class Card(NamedTuple):
    """Facts about a method that its equations and traits do not tell.

    Attributes
    ----------
    name : str
        Name on the command line.
    family : {"iterative", "one-shot", "private", "deep", "server", "baseline"}
    sends : str
        Contents of the messages of the method itself, without those of its initialization.
    points : {"none", "few", "sample", "all", "unknown"}
        Local points that messages of the method contain unchanged, with default options. "few": centroids of clusters
        of a single point. "sample": points that the method selects, such as k-means++ seeds. "none" is not a privacy
        guarantee.
    line : str
        Noun phrase of at most 60 characters.
    fixed : dict, default={}
        Parameters that the name fixes, where a class has several names.
    paper : dict, default={}
        Published value of each parameter that `source` states or implies, selected by ``defaults=paper``. Defaults of
        p2pkm differ where measurements favored another value (docs/results/methods.csv); these do not change with them.
    source : str
        Where the published values are stated; numbers are those of the references of the method.
    excluded_by : dict, default={}
        For a published parameter that another one excludes: the name of the other one, which removes it when given.
    """

    name: str
    family: Family
    sends: str
    points: Literal["none", "few", "sample", "all", "unknown"]
    line: str
    fixed: Mapping[str, Any] = {}
    paper: Mapping[str, Any] = {}
    source: str = ""
    excluded_by: Mapping[str, str] = {}


def cards_of(kind: Any) -> tuple[Card, ...]:
    """Return the cards of a class: one for each of its names; none for methods of other packages without a card."""
    card = getattr(kind, "card", None)
    if card is None:
        return ()
    return (card,) if isinstance(card, Card) else tuple(card)


def find_card(kind: Callable[..., Any]) -> Card | None:
    """Return the card of a class, or of a class with the parameters that one of its names fixes."""
    inner, fixed = (kind.func, kind.keywords) if isinstance(kind, partial) else (kind, {})
    return next((card for card in cards_of(inner) if card.fixed == fixed), None)


def with_defaults(kind: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a method, with the published values for ``defaults=paper``; `options` override them."""
    given = {name: value for name, value in options.items() if name != DEFAULTS}
    card = find_card(kind)
    if card is None or options.get(DEFAULTS) != "paper":
        return given
    return {name: value for name, value in card.paper.items() if card.excluded_by.get(name) not in given} | given
