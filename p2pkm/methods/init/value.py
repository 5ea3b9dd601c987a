"""How the devices get their first centroids, as a value and as text; `init.registry` has the stages of it."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from p2pkm.core.spec import Spec, read_value
from p2pkm.core.validation import check_integer
from p2pkm.methods.init.registry import CANDIDATES, INITS, known


@dataclass(frozen=True)
class Init:
    """An initialization and its options; made by the functions below, such as ``Init.tree_summaries(rows=200)``.

    One of another package is made from its text: ``Init.of("NAME:key=value")``.

    Attributes
    ----------
    name : str
    options : tuple of (str, value)
        Those that were given.

    Examples
    --------
    >>> import p2pkm
    >>> str(p2pkm.Init.rows(lean=True)), p2pkm.Init.of("leader").name
    ('rows:lean=true', 'leader')
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Return the text of the command line, such as ``tree-summaries:rows=200``."""
        return str(Spec(self.name, dict(self.options)))

    @classmethod
    def of(cls, given: "Init | str") -> "Init":
        """Return the value of a text; a value stays as it is, see `p2pkm.core.spec.read_value`."""
        kinds = known(given) if isinstance(given, str) else INITS
        return read_value(Init, given, kinds, "init", lambda spec: _make_from(spec, kinds[spec.name]))

    @classmethod
    def global_(cls, *, candidates: int = CANDIDATES) -> "Init":
        """Choose among clusterings of the summaries of all devices, which are sent up a tree.

        Where messages are changed, late or lost, or links change, they are flooded instead, if that is affordable.
        """
        return _make("global", (("candidates", candidates, CANDIDATES),))

    @classmethod
    def local(cls) -> "Init":
        """Start every device from its own points."""
        return cls("local")

    @classmethod
    def bounding_box(cls) -> "Init":
        """Draw shared uniform centroids in the common bounding box."""
        return cls("bounding-box")

    @classmethod
    def leader(cls) -> "Init":
        """Spread the local centroids of one device along a tree."""
        return cls("leader")

    @classmethod
    def d2_sampling(cls, *, greedy: bool = True, draw: Literal["points", "centroids"] = "points") -> "Init":
        """Draw each centroid with D^2 weighting from all points; greedy: the best of 2 + floor(ln k) draws."""
        return _make("d2-sampling", (("greedy", greedy, True), ("draw", draw, "points")))

    @classmethod
    def flooded_summaries(cls, *, hops: int | None = None, candidates: int = 1) -> "Init":
        """Cluster the flooded summaries of all devices, or of those within `hops` links."""
        return _make("flooded-summaries", (("hops", hops, None), ("candidates", candidates, 1)))

    @classmethod
    def tree_summaries(cls, *, candidates: int = 1, rows: int | None = None) -> "Init":
        """Cluster the summaries of all devices at the root of a tree; at most `rows` rows pass each link."""
        return _make("tree-summaries", (("candidates", candidates, 1), ("rows", rows, None)))

    @property
    def lean(self) -> bool:
        """Return whether what is sent before the method is encoded in few bits."""
        return dict(self.options).get("lean") is True

    @classmethod
    def rows(cls, *, per_cluster: int = 2, least: int = 1, lean: bool = False) -> "Init":
        """Search thoroughly among `per_cluster` k rows of every device, of at least `least` points, sent up a tree.

        lean: in few bits.
        """
        return _make("rows", (("per_cluster", per_cluster, 2), ("least", least, 1), ("lean", lean, False)))


def _make_from(spec: Spec, kind: Callable[..., Any]) -> Init:
    """Return the value of a spec; the defaults are those of the function that makes the stages."""
    usual = signature(kind).parameters
    return _make(spec.name, tuple((key, spec.options[key], usual[key].default) for key in usual if key in spec.options))


def _make(name: str, options: tuple[tuple[str, Any, Any], ...]) -> Init:
    """Return the value with the options that are not the default ones."""
    for key, value, usual in options:
        if value is not None and not isinstance(usual, (bool, str, float)):
            check_integer(value, 1, f"init {name}:{key}")
    return Init(name, tuple((key, value) for key, value, usual in options if value != usual))
