"""Registry of initializations: functions that create the stages; their keyword parameters are the keys of a spec.

Each function imports its stages when it is called, because every rank imports this module but uses one initialization.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, trials
from p2pkm.core.errors import ExperimentError
from p2pkm.core.plugins import INITS as GROUP
from p2pkm.core.plugins import extend
from p2pkm.core.protocols import Algorithm
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.network.graph import LARGE, Topology

# Number of candidate clusterings of init global.
CANDIDATES = 5
# Limits up to which init global may flood: bytes of memory in the busiest turn, and rows sent in total.
_MAX_FLOOD_MEMORY = 2_000_000_000
_MAX_FLOOD_ROWS = 100_000_000
# Largest number of layers of a spanning tree: each layer takes a turn in every tree pass.
DEEPEST = 100_000


class InitContext(NamedTuple):
    """Public facts from which the stages of an initialization are created.

    Attributes
    ----------
    topology : Topology
    sizes : int64[n]
        Number of points of each device.
    key : int
        Shared key of the random streams.
    k : int
        Number of clusters.
    d : int
        Number of features.
    faults_apply : bool, default=False
        Whether faults affect the stages before the method.
    weights : float64[n], optional
        Weight of the points of each device; None: 1 for each point.
    on_root : callable, optional
        Calls a function on rank 0 only, and returns the array that it computes on all ranks: a collective call for what
        follows from public facts, but takes time or large imports. None: there is no run, as in a plan.
    """

    topology: Topology
    sizes: Integers
    key: int
    k: int
    d: int
    faults_apply: bool = False
    weights: Floats | None = None
    on_root: Callable[[Callable[[], Any]], Any] | None = None


def global_(at: InitContext, *, candidates: int = CANDIDATES) -> tuple[Algorithm, ...]:
    """Choose among clusterings of the summaries of all devices, sent up a tree, or flooded where messages may fail."""
    return (flooded_summaries if at.faults_apply else tree_summaries)(at, candidates=candidates)


def local(at: InitContext) -> tuple[Algorithm, ...]:
    """Draw the centroids of every device from its local points."""
    from p2pkm.methods.init.local_kmeanspp import LocalKMeansPP

    return (LocalKMeansPP(at.k),)


def bounding_box(at: InitContext) -> tuple[Algorithm, ...]:
    """Draw shared uniform centroids in the common bounding box."""
    from p2pkm.methods.init.bounding_box import BoundingBox

    return (BoundingBox(at.k),)


def leader(at: InitContext) -> tuple[Algorithm, ...]:
    """Broadcast the local centroids of one device along a tree."""
    from p2pkm.methods.init.leader_broadcast import Leader, elect

    leaders = elect(at.topology, at.sizes, at.k, at.key)
    return (Leader(at.k, at.topology.grow(leaders)[0]),)


def d2_sampling(
    at: InitContext, *, greedy: bool = True, draw: Literal["points", "centroids", "uniform"] = "points"
) -> tuple[Algorithm, ...]:
    """Draw each centroid with D^2 weighting from all points; greedy: the best of 2 + floor(ln k) draws.

    draw: "uniform" draws different points with equal probability.
    """
    from p2pkm.methods.init.distributed_d2_sampling import DistributedD2Sampling
    from p2pkm.methods.init.select_candidate import SelectCandidate

    draws = trials(at.k, greedy)
    local, uniform = draw == "centroids", draw == "uniform"
    samplings = [DistributedD2Sampling(at.k, number, draws, local, uniform) for number in range(at.k)]
    if not greedy:
        return tuple(samplings)
    return tuple(stage for sampling in samplings for stage in (sampling, SelectCandidate(at.k, draws)))


def flooded_summaries(at: InitContext, *, hops: int | None = None, candidates: int = 1) -> tuple[Algorithm, ...]:
    """Cluster the flooded summaries of all devices, or of those within `hops` links."""
    from p2pkm.methods.init.flooded_summaries import FloodedSummaries
    from p2pkm.methods.init.min_id_agreement import MinIdAgreement
    from p2pkm.methods.init.select_candidate import SelectCandidate

    first = FloodedSummaries(at.k, hops, candidates)
    if at.faults_apply and hops is None:
        # After lost messages devices may hold different rows, so they have to agree on candidates and on the choice.
        return (
            first,
            MinIdAgreement(at.k),
            *((SelectCandidate(at.k, candidates), MinIdAgreement(at.k, chosen=True)) if candidates > 1 else ()),
        )
    return (first, SelectCandidate(at.k, candidates)) if candidates > 1 else (first,)


def tree_summaries(at: InitContext, *, candidates: int = 1, rows: int | None = None) -> tuple[Algorithm, ...]:
    """Cluster the summaries of all devices at the root of a tree; at most `rows` rows pass each link."""
    from p2pkm.methods.init.tree_summaries import TreeSummaries

    return (TreeSummaries(at.k, bounded_spanning_tree(at), candidates, rows),)


def rows(at: InitContext, *, per_cluster: int = 2, least: int = 1, lean: bool = False) -> tuple[Algorithm, ...]:
    """Cluster the rows of all devices at the root of a tree by a thorough search."""
    from p2pkm.methods.init.tree_rows import TreeRows

    return (TreeRows(at.k, bounded_spanning_tree(at), per_cluster=per_cluster, least=least, lean=lean),)


def bounded_spanning_tree(at: InitContext, instead: str = "--init local") -> Tree:
    """Build the spanning tree; in a run a collective call.

    Of many devices, rank 0 builds it for all: the others would need several times the memory of the tree.

    Parameters
    ----------
    at : InitContext
    instead : str
        What does not need the tree: completes the sentence "Use a graph with shortcuts, or ...".

    Raises
    ------
    ExperimentError
        If the tree has more than `DEEPEST` layers.
    """
    topology = at.topology
    if at.on_root is not None and topology.n > LARGE:
        parent, layer = at.on_root(lambda: np.stack(topology.spanning_tree))
        topology.keep_spanning_tree((parent, layer))
    tree = build_spanning_tree(topology)
    depth = int(tree.layer.max())
    if depth > DEEPEST:
        raise ExperimentError(
            f"the spanning tree of this graph has {depth} layers; expected at most {DEEPEST}, because each layer takes "
            f"a turn. Use a graph with shortcuts, or {instead}."
        )
    return tree


def can_flood(topology: Topology, k: int, d: int) -> bool:
    """Check whether flooding of summaries, which tolerates faults, fits in memory and time.

    Every row would be sent over every link in both directions, and so would a row of losses per device.
    """
    n = topology.n
    rows = len(topology.indices) * n * (k + 1)
    # Each device stores about four bytes per origin: bits and versions, with copies.
    memory = 4 * n * n
    if memory <= _MAX_FLOOD_MEMORY:
        # In the busiest turn each device sends the rows of the widest layer of the graph, which exist three times.
        memory += 3 * 8 * n * int(np.bincount(build_spanning_tree(topology).layer).max()) * k * (d + 2)
    return memory <= _MAX_FLOOD_MEMORY and rows <= _MAX_FLOOD_ROWS


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
    """Look up the initializations by name; those of other packages are included unless `spec` names a built-in one."""
    return extend(INITS, GROUP, spec)


def import_stages() -> None:
    """Import all initialization stages and tree methods, so that their states are registered."""
    from pkgutil import iter_modules

    from p2pkm.methods import init, tree

    for package in (init, tree):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
