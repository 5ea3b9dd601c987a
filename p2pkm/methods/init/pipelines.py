"""Initialization pipelines: which stages run before the method, in which order, and for how many rounds at most."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Integers, trials
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.protocols import Algorithm
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow, parents
from p2pkm.methods.init.bounding_box import BoundingBox
from p2pkm.methods.init.choose_k import ChooseK
from p2pkm.methods.init.distributed_d2_sampling import DistributedD2Sampling
from p2pkm.methods.init.flooded_summaries import FloodedSummaries
from p2pkm.methods.init.leader_broadcast import Leader, elect
from p2pkm.methods.init.link_reselection import LinkReselection
from p2pkm.methods.init.link_selection import LinkSelection
from p2pkm.methods.init.local_kmeanspp import LocalKMeansPP
from p2pkm.methods.init.min_id_agreement import MinIdAgreement
from p2pkm.methods.init.saturation_thresholds import SaturationThresholds
from p2pkm.methods.init.select_candidate import SelectCandidate
from p2pkm.methods.init.standardization import Standardization
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.methods.init.tree_summaries import LEAST, ROWS, TreeSummaries
from p2pkm.methods.init.value import Init
from p2pkm.methods.server.star import Star
from p2pkm.network.graph import Topology

_CANDIDATES = 5
_WARM, _WARMING = 1.0, 8  # coupling and sweeps with groups before the limits of the links are fixed
_REVIEWS, _BRIEF = 2, 4  # how often it looks at the links again before that, after how many sweeps
_MOST_FLOODING = 20_000  # devices; each keeps a bit per origin, so memory grows with the square
_MEMORY, _ROWS = 2_000_000_000, 100_000_000  # bytes and rows sent up to which init global floods
_PATIENCE = 4  # times as many rounds as without faults, at most
_DEEPEST = 100_000  # layers of a tree; each takes a turn on every way


class Stage(NamedTuple):
    """A named algorithm and the largest number of rounds it may take.

    all_links: over all links, also those cut before; note: what the user should know of it; faults_apply: faults of
    all stages affect it, too.
    """

    name: str
    algorithm: Algorithm
    rounds: int
    all_links: bool = False
    note: str = ""
    faults_apply: bool = False


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


def local(at: InitContext) -> tuple[Algorithm, ...]:
    """Seed every device from its own points."""
    return (LocalKMeansPP(at.k),)


def bounding_box(at: InitContext) -> tuple[Algorithm, ...]:
    """Draw shared uniform seeds in the common bounding box."""
    return (BoundingBox(at.k),)


def leader(at: InitContext) -> tuple[Algorithm, ...]:
    """Spread the own seeds of one device along a tree."""
    leaders = elect(at.topology, at.sizes, at.k, at.key)
    return (Leader(at.k, parents(at.topology, leaders)),)


def d2_sampling(
    at: InitContext, *, greedy: bool = True, draw: Literal["points", "centroids"] = "points"
) -> tuple[Algorithm, ...]:
    """Draw each seed with D^2 weighting from all points, by a race; greedy: the best of 2 + floor(ln k) draws."""
    draws = trials(at.k, greedy)
    races = [DistributedD2Sampling(at.k, number, draws, draw == "centroids") for number in range(at.k)]
    return tuple(stage for race in races for stage in ((race, SelectCandidate(at.k, draws)) if greedy else (race,)))


def flooded_summaries(at: InitContext, *, hops: int | None = None, candidates: int = 1) -> tuple[Algorithm, ...]:
    """Cluster the flooded summaries of all devices, or of those within `hops` links."""
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
    return (TreeSummaries(at.k, _grow(at), candidates, rows),)


def rows(at: InitContext, *, per_cluster: int = 2, least: int = 1, lean: bool = False) -> tuple[Algorithm, ...]:
    """Search thoroughly among the rows of all devices at the root of a tree."""
    return (TreeRows(at.k, _grow(at), per_cluster=per_cluster, least=least, lean=lean),)


def _grow(at: InitContext) -> Tree:
    """Return the spanning tree of the graph, unless it is too deep."""
    tree = grow(at.topology)
    depth = int(tree.layer.max())
    if depth > _DEEPEST:
        raise ExperimentError(
            f"a spanning tree of this graph has {depth} layers, and each takes a turn on every way; up to {_DEEPEST} "
            "are possible. Take a graph with shortcuts, or --init local"
        )
    return tree


SEEDINGS: Mapping[str, Callable[..., tuple[Algorithm, ...]]] = {
    "local": local,
    "bounding-box": bounding_box,
    "leader": leader,
    "d2-sampling": d2_sampling,
    "flooded-summaries": flooded_summaries,
    "tree-summaries": tree_summaries,
    "rows": rows,
}
_FLOODING = ("d2-sampling", "flooded-summaries")


def scaling_stage(scale: str, at: InitContext) -> Stage:
    """Return the stage that measures all points, for ``--scale standard`` or ``minmax``."""
    if scale == "standard":
        _check_flooding(at, "--scale standard", "minmax")
    most = at.topology.hops + 2
    if scale == "standard":
        return Stage("standardization", Standardization(at.k), most)
    return Stage("min-max-scaling", BoundingBox(at.k), most)


def choosing_stage(at: InitContext) -> Stage:
    """Return the stage that chooses the number of clusters, at most k."""
    return Stage(ChooseK.name, ChooseK(at.k, _grow(at)), at.topology.hops + 2)


def _check_flooding(at: InitContext, what: str, instead: str) -> None:
    if at.topology.n > _MOST_FLOODING:
        raise ExperimentError(
            f"{what} floods the graph, which needs memory that grows with the square of its {at.topology.n} devices; "
            f"up to {_MOST_FLOODING} devices are possible, above that use {instead}"
        )


def needs_hub(algorithm: Any) -> bool:
    """Return whether a method runs on a star around a server instead of on a graph of equals."""
    return bool(algorithm.traits.needs_hub)


def place_graph(algorithm: Any, graph: Any, clients: int, names: tuple[str, ...] | None = None) -> Topology:
    """Return the star of a server method, or the graph that was given to any other one, its devices by their names."""
    if needs_hub(algorithm):
        if graph is not None:
            raise TopologyError(
                f"{algorithm.name} uses a server, so its graph is a star around a hub without points, which is "
                "built for it; got a graph. Give None, or take a peer-to-peer method such as GTVMin"
            )
        return Topology.star(clients).call(names)
    if graph is None:
        raise TopologyError(f"{algorithm.name} needs a graph; got None. Give a networkx.Graph")
    return Topology.from_graph(graph).call(names)


def stages(algorithm: Any, at: InitContext, rounds: int, *, seeded: bool) -> tuple[Stage, ...]:
    """Return all stages of a run; `seeded`: the method starts from given centroids."""
    before: tuple[Stage, ...] = ()
    if needs_hub(algorithm):
        if algorithm.traits.normalization in ("coordinate", "entries"):
            before = (Stage("bounding-box", BoundingBox(at.k), at.topology.hops + 2),)
        one: Algorithm = Star(algorithm) if algorithm.traits.is_server_method else algorithm
        return (*before, Stage(algorithm.name, one, rounds))
    traits = algorithm.traits
    if traits.groups:
        before = _group(algorithm, at, seeded=seeded)
    elif not seeded and traits.init is not None:  # else it starts by itself
        before = seeding_stages(traits.init, at)
    if traits.saturates and not traits.groups:
        before = (*before, *_limit(algorithm, at))
    if traits.floods:
        _check_flooding(at, algorithm.name, "another method")
    return (
        *before,
        Stage(algorithm.name, algorithm.on(at.topology), rounds, note=_incompatibility_note(algorithm, at.topology)),
    )


def _group(algorithm: Any, at: InitContext, *, seeded: bool) -> tuple[Stage, ...]:
    """With groups, return the stages before the last one, whose links give way beyond the limits found here."""
    warm = algorithm.at(_WARM)
    start = () if seeded else (Stage("flooded-summaries", FloodedSummaries(at.k, hops=1), 3),)
    look = Stage("warmup", warm, _BRIEF), Stage("link-reselection", LinkReselection(at.k), 3, all_links=True), *start
    first = Stage("link-selection", LinkSelection(at.k), 3), *start
    return (*first, *look * _REVIEWS, *_limit(algorithm, at))


def _limit(algorithm: Any, at: InitContext) -> tuple[Stage, ...]:
    """Return the stages that find how far apart neighbors may be before their link gives way."""
    return Stage("warmup", algorithm.at(_WARM), _WARMING), Stage("saturation-thresholds", SaturationThresholds(at.k), 3)


def seeding_stages(init: Init, at: InitContext) -> tuple[Stage, ...]:
    """Return the stages before the last one."""
    note = ""
    if init.name == "global":
        note = _why_tree(at)
        init = (Init.tree_summaries if note else Init.flooded_summaries)(candidates=_CANDIDATES)
    elif init.name in _FLOODING:
        _check_flooding(at, f"init {init.name}", "--init tree-summaries, local, bounding-box or leader")
    algorithms = SEEDINGS[init.name](at, **dict(init.options))
    names = ["d2-sampling" if init.name == "d2-sampling" else one.name for one in algorithms]
    most = _PATIENCE * (at.topology.hops + 2) if at.faults_apply else at.topology.hops + 2
    return tuple(
        Stage(name, algorithm, most, note=note, faults_apply=at.faults_apply and algorithm.traits.ends_under_faults)
        for name, algorithm in zip(names, algorithms, strict=True)
    )


def _incompatibility_note(algorithm: Any, topology: Topology) -> str:
    """Return what cannot be expected of the last stage where links change, nothing if they do not."""
    graph = topology.varying
    if graph is None:
        return ""
    claim = ""
    if algorithm.traits.has_objective:
        claim = (
            "; no descent is claimed, for each round works on the objective over its own links: objective and "
            "variation in the results are over all of them"
        )
    return (
        f"the links of {graph.name} change: initialization and scaling exchange messages over all "
        f"{graph.number_of_edges():,} that are ever in use, {algorithm.name} over those of the round{claim}"
    )


def check_links(algorithm: Any, topology: Topology) -> None:
    """Refuse a method that needs links to stay on a graph where they change."""
    why = algorithm.traits.needs_static_links
    if topology.varying is not None and why:
        raise ExperimentError(
            f"{algorithm.name} {why}, but those of {topology.varying.name} change from round to round; take another "
            "graph, or gtvmin without groups, consensus, pushsum, tracking or gossip"
        )


def check_size(algorithm: Any, clients: int, points: int, d: int) -> None:
    """Refuse a method whose arithmetic would take too long, before any work starts."""
    algorithm.check_size(clients, points, d)


def _why_tree(at: InitContext) -> str:
    """Return why init `global` takes a tree, nothing if it floods.

    Each pair and each row of losses would go over every link both ways. In memory all devices keep bits per origin,
    four bytes with copies; in the busiest turn each sends the pairs of a widest layer of the graph, held thrice.
    """
    n, topology = at.topology.n, at.topology
    rows, memory = len(topology.indices) * n * (at.k + 1), 4 * n * n
    if memory <= _MEMORY:
        memory += 3 * 8 * n * int(np.bincount(grow(topology).layer).max()) * at.k * (at.d + 2)
    if memory <= _MEMORY and rows <= _ROWS:
        return ""
    return (
        f"init global collects the summaries along a spanning tree, in messages of at most {ROWS * at.k} rows: "
        f"flooding them would send {rows / 1e6:,.0f} million rows and take {memory / 1e9:,.1f} GB (it is done up to "
        f"{_ROWS // 10**6} million rows and {_MEMORY // 10**9} GB)"
    )


def check_init(init: Init | None, k: int) -> None:
    """Refuse an initialization with fewer rows than so many clusters need."""
    if init is not None and (rows := dict(init.options).get("rows", LEAST * k)) < LEAST * k:
        raise ExperimentError(
            f"init {init.name}:rows is {rows}; expected at least {LEAST * k}, {LEAST} for each of {k} clusters"
        )
