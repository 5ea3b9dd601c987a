"""Initialization as a value object and as text. `init.registry` creates its stages."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

from p2pkm.core.spec import Spec, read_value
from p2pkm.core.validation import check_integer
from p2pkm.methods.init.registry import CANDIDATES, INITS, known


@dataclass(frozen=True)
class Init:
    """Initialization and its options, created by the methods below, for example ``Init.tree_summaries(rows=200)``.

    Initializations of other packages are created from text: ``Init.of("NAME:key=value")``.

    Attributes
    ----------
    name : str
    options : tuple of (str, value)
        Options with values other than the defaults.

    Examples
    --------
    >>> import p2pkm
    >>> str(p2pkm.Init.rows(lean=True)), p2pkm.Init.of("leader").name
    ('rows:lean=true', 'leader')
    """

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Format as on the command line, for example ``tree-summaries:rows=200``."""
        return str(Spec(self.name, dict(self.options)))

    @classmethod
    def of(cls, value: "Init | str") -> "Init":
        """Parse an initialization from text; an `Init` is returned unchanged. See `p2pkm.core.spec.read_value`."""
        kinds = known(value) if isinstance(value, str) else INITS
        return read_value(Init, value, kinds, "init", lambda spec: _parse(spec, kinds[spec.name]))

    @classmethod
    def global_(cls, *, candidates: int = CANDIDATES) -> "Init":
        """Choose among clusterings of the summaries of all devices, which are sent up a tree.

        If messages can be changed, late or lost, or links change, the summaries are flooded instead, if affordable.
        """
        return _make("global", (("candidates", candidates, CANDIDATES),))

    @classmethod
    def local(cls) -> "Init":
        """Draw the centroids of every device from its local points."""
        return cls("local")

    @classmethod
    def bounding_box(cls) -> "Init":
        """Draw shared uniform centroids in the common bounding box."""
        return cls("bounding-box")

    @classmethod
    def leader(cls) -> "Init":
        """Broadcast the local centroids of one device along a tree."""
        return cls("leader")

    @classmethod
    def d2_sampling(cls, *, greedy: bool = True, draw: Literal["points", "centroids", "uniform"] = "points") -> "Init":
        """Draw each centroid with D^2 weighting from all points; greedy: the best of 2 + floor(ln k) draws.

        draw: "uniform" draws different points with equal probability.
        """
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
        """Whether messages of the initialization use compact integer encoding."""
        return dict(self.options).get("lean") is True

    @classmethod
    def rows(cls, *, per_cluster: int = 2, least: int = 1, lean: bool = False) -> "Init":
        """Search thoroughly among ``per_cluster * k`` rows of every device, of at least `least` points, sent up a tree.

        With `lean`, rows and centroids are sent in compact integer encoding.
        """
        return _make("rows", (("per_cluster", per_cluster, 2), ("least", least, 1), ("lean", lean, False)))


def _parse(spec: Spec, create: Callable[..., Any]) -> Init:
    """Create an initialization from a spec; the defaults are those of the function that creates the stages."""
    parameters = signature(create).parameters
    options = tuple((key, spec.options[key], parameters[key].default) for key in parameters if key in spec.options)
    return _make(spec.name, options)


def _make(name: str, options: tuple[tuple[str, Any, Any], ...]) -> Init:
    """Create an initialization from (key, value, default); defaults are not stored."""
    for key, value, default in options:
        if value is not None and not isinstance(default, (bool, str, float)):
            check_integer(value, 1, f"init {name}:{key}")
    return Init(name, tuple((key, value) for key, value, default in options if value != default))
