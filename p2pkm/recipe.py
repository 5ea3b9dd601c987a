"""A recipe is a tuple of stages: what runs, in which order, and for how many rounds at most."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from p2pkm.algorithm import Algorithm
from p2pkm.devices import Integers
from p2pkm.errors import ExperimentError
from p2pkm.seeding.box import Box
from p2pkm.seeding.choose import Choose
from p2pkm.seeding.leader import Leader, elect
from p2pkm.seeding.own import Own
from p2pkm.seeding.summaries import Summaries
from p2pkm.spec import parse
from p2pkm.spread.tree import parents
from p2pkm.topology import Topology

_CANDIDATES = 5
_MOST_FLOODING = 20_000  # devices; each keeps a bit per origin, so memory grows with the square


class Stage(NamedTuple):
    """A named algorithm and the largest number of rounds it may take."""

    name: str
    algorithm: Algorithm
    rounds: int


class Setting(NamedTuple):
    """What a seeding stage is made from: the graph, the devices' sizes int64[n], the shared key, k."""

    topology: Topology
    sizes: Integers
    key: int
    k: int


def own(at: Setting) -> Algorithm:
    """Seed every device from its own points."""
    return Own(at.k)


def box(at: Setting) -> Algorithm:
    """Draw shared uniform seeds in the common bounding box."""
    return Box(at.k)


def leader(at: Setting) -> Algorithm:
    """Spread the own seeds of one device along a tree."""
    leaders = elect(at.topology, at.sizes, at.k, at.key)
    return Leader(at.k, parents(at.topology, leaders))


def summaries(at: Setting, *, hops: int | None = None, candidates: int = 1) -> Algorithm:
    """Cluster the flooded summaries of all devices, or of those within `hops` links."""
    if at.topology.n > _MOST_FLOODING:
        raise ExperimentError(
            f"flooding summaries among {at.topology.n} devices needs memory that grows with their square; up to "
            f"{_MOST_FLOODING} devices are possible, above that use --seeding own, box or leader"
        )
    for name, value in (("hops", hops), ("candidates", candidates)):
        if value is not None and value < 1:
            raise ExperimentError(f"seeding summaries:{name} is {value}; expected at least 1")
    return Summaries(at.k, hops, candidates)


SEEDINGS: Mapping[str, Callable[..., Algorithm]] = {"own": own, "box": box, "leader": leader, "summaries": summaries}


def seeding_stages(recipe: str, seeding: str | None, at: Setting) -> tuple[Stage, ...]:
    """Return the stages before the last one.

    Parameters
    ----------
    recipe : str
        ``"global"`` or ``"none"``.
    seeding : str or None
        A spec such as ``"summaries:hops=1"``; None with recipe none: own.

    Raises
    ------
    ExperimentError
        If the seeding is not known.
    """
    most = at.topology.hops + 2
    if recipe == "global":
        flood = summaries(at, candidates=_CANDIDATES)
        return Stage("summaries", flood, most), Stage("choose", Choose(at.k), most)
    name, options = parse(seeding or "own", SEEDINGS, "seeding")
    first = Stage(name, SEEDINGS[name](at, **options), most)
    return (first, Stage("choose", Choose(at.k), most)) if options.get("candidates", 1) > 1 else (first,)


def check_seeding(seeding: str | None) -> None:
    """Refuse a seeding that is not known, before anything else is done."""
    parse(seeding or "own", SEEDINGS, "seeding")
