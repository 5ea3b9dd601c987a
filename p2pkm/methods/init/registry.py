"""The initializations by name: functions that make the stages, whose keyword parameters are the keys of a spec.

Each imports its stages when it is called, for every rank imports this module and a run has one initialization.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers, trials
from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import INITS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.protocols import Algorithm
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow
from p2pkm.network.graph import Topology

CANDIDATES = 5  # of init global
_MEMORY, _ROWS = 2_000_000_000, 100_000_000  # bytes and rows sent up to which init global may flood
DEEPEST = 100_000  # layers of a tree; each takes a turn on every way


class InitContext(NamedTuple):
    """What a stage is made from: the graph, the devices' sizes int64[n], the shared key, k, the features.

    faults_apply: whether faults affect what comes before the method.
    """

    topology: Topology
    sizes: Integers
    key: int
    k: int
    d: int
    faults_apply: bool = False


def global_(at: InitContext, *, candidates: int = CANDIDATES) -> tuple[Algorithm, ...]:
    """Choose among clusterings of the summaries of all devices, sent up a tree or flooded: see `can_flood`."""
    return (flooded_summaries if at.faults_apply else tree_summaries)(at, candidates=candidates)


def local(at: InitContext) -> tuple[Algorithm, ...]:
    """Seed every device from its own points."""
    from p2pkm.methods.init.local_kmeanspp import LocalKMeansPP

    return (LocalKMeansPP(at.k),)


def bounding_box(at: InitContext) -> tuple[Algorithm, ...]:
    """Draw shared uniform seeds in the common bounding box."""
    from p2pkm.methods.init.bounding_box import BoundingBox

    return (BoundingBox(at.k),)


def leader(at: InitContext) -> tuple[Algorithm, ...]:
    """Spread the own seeds of one device along a tree."""
    from p2pkm.methods.init.leader_broadcast import Leader, elect

    leaders = elect(at.topology, at.sizes, at.k, at.key)
    return (Leader(at.k, at.topology.grow(leaders)[0]),)


def d2_sampling(
    at: InitContext, *, greedy: bool = True, draw: Literal["points", "centroids"] = "points"
) -> tuple[Algorithm, ...]:
    """Draw each seed with D^2 weighting from all points, by a race; greedy: the best of 2 + floor(ln k) draws."""
    from p2pkm.methods.init.distributed_d2_sampling import DistributedD2Sampling
    from p2pkm.methods.init.select_candidate import SelectCandidate

    draws = trials(at.k, greedy)
    races = [DistributedD2Sampling(at.k, number, draws, draw == "centroids") for number in range(at.k)]
    return tuple(stage for race in races for stage in ((race, SelectCandidate(at.k, draws)) if greedy else (race,)))


def flooded_summaries(at: InitContext, *, hops: int | None = None, candidates: int = 1) -> tuple[Algorithm, ...]:
    """Cluster the flooded summaries of all devices, or of those within `hops` links."""
    from p2pkm.methods.init.flooded_summaries import FloodedSummaries
    from p2pkm.methods.init.min_id_agreement import MinIdAgreement
    from p2pkm.methods.init.select_candidate import SelectCandidate

    first = FloodedSummaries(at.k, hops, candidates)
    if at.faults_apply and hops is None:  # devices may hold different pairs
        return (
            first,
            MinIdAgreement(at.k),
            *((SelectCandidate(at.k, candidates), MinIdAgreement(at.k, chosen=True)) if candidates > 1 else ()),
        )
    return (first, SelectCandidate(at.k, candidates)) if candidates > 1 else (first,)


def tree_summaries(at: InitContext, *, candidates: int = 1, rows: int | None = None) -> tuple[Algorithm, ...]:
    """Cluster the summaries of all devices at the root of a tree, of which at most `rows` rows pass each link."""
    from p2pkm.methods.init.tree_summaries import TreeSummaries

    return (TreeSummaries(at.k, grow_shallow(at.topology), candidates, rows),)


def rows(at: InitContext, *, per_cluster: int = 2, least: int = 1, lean: bool = False) -> tuple[Algorithm, ...]:
    """Search thoroughly among the rows of all devices at the root of a tree."""
    from p2pkm.methods.init.tree_rows import TreeRows

    return (TreeRows(at.k, grow_shallow(at.topology), per_cluster=per_cluster, least=least, lean=lean),)


def grow_shallow(topology: Topology) -> Tree:
    """Return the spanning tree, or refuse a graph whose tree has more layers than a run can walk."""
    tree = grow(topology)
    depth = int(tree.layer.max())
    if depth > DEEPEST:
        raise ExperimentError(
            f"a spanning tree of this graph has {depth} layers, and each takes a turn on every way; up to {DEEPEST} "
            "are possible. Take a graph with shortcuts, or --init local"
        )
    return tree


def can_flood(topology: Topology, k: int, d: int) -> bool:
    """Return whether summaries may be flooded where a run would rather not rely on a tree.

    Each pair and each row of losses would go over every link both ways. In memory all devices keep bits per origin,
    four bytes with copies; in the busiest turn each sends the pairs of a widest layer of the graph, held thrice.
    """
    n = topology.n
    rows, memory = len(topology.indices) * n * (k + 1), 4 * n * n
    if memory <= _MEMORY:
        memory += 3 * 8 * n * int(np.bincount(grow(topology).layer).max()) * k * (d + 2)
    return memory <= _MEMORY and rows <= _ROWS


INITS: dict[str, Callable[..., tuple[Algorithm, ...]]] = {
    "global": global_,
    "local": local,
    "bounding-box": bounding_box,
    "leader": leader,
    "d2-sampling": d2_sampling,
    "flooded-summaries": flooded_summaries,
    "tree-summaries": tree_summaries,
    "rows": rows,
}


def known(spec: str | None) -> dict[str, Callable[..., Any]]:
    """Return the initializations by name, and, unless a spec begins with one of them, those of other packages."""
    return extend(INITS, GROUP, spec)


def import_stages() -> None:
    """Import the stages of all initializations and the forms of tree Lloyd, so that their states are registered."""
    from p2pkm.methods import init, tree

    for package in (init, tree):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
