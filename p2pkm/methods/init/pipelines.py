"""Initialization pipelines: which stages run before the method, in which order, and for how many rounds at most."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import ContractError, ExperimentError, TopologyError
from p2pkm.core.protocols import Algorithm, MethodBase, RunOutline
from p2pkm.methods.building_blocks.averaging import WEIGHTED
from p2pkm.methods.init.registry import CANDIDATES, DEEPEST, InitContext, can_flood, grow_shallow, known
from p2pkm.methods.init.value import Init
from p2pkm.methods.registry import suggest_methods, with_link_weights
from p2pkm.network.graph import Topology

_MOST_FLOODING = 20_000  # devices; each keeps a bit per origin, so memory grows with the square
_PATIENCE = 4  # times as many rounds as without faults, at most


class Stage(NamedTuple):
    """A named algorithm and the largest number of rounds it may take.

    all_links: over all links, also those cut before; note: what the user should know of it; faults_apply: faults of
    all stages affect it, too; after: it comes after the method.
    """

    name: str
    algorithm: Algorithm
    rounds: int
    all_links: bool = False
    note: str = ""
    faults_apply: bool = False
    after: bool = False


def find_own(stages: Sequence[Stage]) -> Stage:
    """Return the stage of the method itself: the last one but for those that come after the method."""
    return next(stage for stage in reversed(stages) if not stage.after)


_FLOODING = ("d2-sampling", "flooded-summaries")


def scaling_stage(scale: str, at: InitContext) -> Stage:
    """Return the stage that measures all points, for ``--scale standard`` or ``minmax``."""
    from p2pkm.methods.init.bounding_box import BoundingBox
    from p2pkm.methods.init.standardization import Standardization

    if scale == "standard":
        check_flooding(at, "--scale standard", "minmax")
    most = at.topology.hops + 2
    if scale == "standard":
        return Stage("standardization", Standardization(at.k), most)
    return Stage("min-max-scaling", BoundingBox(at.k), most)


def imputing_stage(missing: str, at: InitContext) -> Stage:
    """Return the stage that finds means or medians of the known values, for ``--missing mean`` or ``median``."""
    from p2pkm.methods.init.imputation import Imputation
    from p2pkm.methods.init.median_imputation import MedianImputation

    if missing == "median":
        return Stage("imputation", MedianImputation(at.k, grow_shallow(at.topology)), 1)
    check_flooding(at, "--missing mean", "median, or drop")
    return Stage("imputation", Imputation(at.k), at.topology.hops + 2)


def choosing_stage(algorithm: Any, at: InitContext) -> Stage:
    """Return the stage that chooses the number of clusters of a method, at most k."""
    from p2pkm.methods.init.choose_k import ChooseK

    lean = not needs_hub(algorithm) and _is_lean(algorithm)
    return Stage(ChooseK.name, ChooseK(at.k, grow_shallow(at.topology), lean=lean), 1)


def _is_lean(algorithm: Any) -> bool:
    """Return whether the init of a method asks for messages in few bits."""
    init = algorithm.traits.init
    return init is not None and init.lean


def check_flooding(at: InitContext, what: str, instead: str) -> None:
    """Reject a graph that is too large to flood; instead: what to use."""
    if at.topology.n > _MOST_FLOODING:
        raise ExperimentError(
            f"{what} floods the graph, which needs memory that grows with the square of its {at.topology.n} devices; "
            f"up to {_MOST_FLOODING} devices are possible, above that use {instead}"
        )


def needs_hub(algorithm: Any) -> bool:
    """Return whether a method runs on a star around a server instead of on a graph of equals."""
    return bool(algorithm.traits.needs_hub)


def refuse_graph(algorithm: Any, given: str, remedy: str) -> TopologyError:
    """Return why a method that brings its own star cannot have a graph.

    Parameters
    ----------
    algorithm : Algorithm
    given : str
        The graph, as the user typed it.
    remedy : str
        What to type instead.
    """
    sends = algorithm.traits.is_server_method or algorithm.traits.derives_features
    why = "uses a server, so its graph is a star, which is built for it" if sends else "sends no messages"
    others = suggest_methods(lambda other: not needs_hub(other))
    return TopologyError(f"{algorithm.name} {why}; got {given}. {remedy}, or use {others}")


def place_graph(algorithm: Any, graph: Any, clients: int, names: tuple[str, ...] | None = None) -> Topology:
    """Return the star of a server method, or the graph that was given to any other one, its devices by their names."""
    if needs_hub(algorithm):
        if graph is not None:
            raise refuse_graph(algorithm, "a graph", "Give graph=None")
        return Topology.star(clients).call(names)
    if graph is None:
        raise TopologyError(f"{algorithm.name} needs a graph; got None. Give a networkx.Graph")
    topology = Topology.from_graph(graph).call(names)
    return topology if names is not None else topology.tell_order()


def resolve(algorithm: Any, run: RunOutline, d: int) -> tuple[Any, RunOutline]:
    """Return a method with its initialization and all that it leaves to the run, and the outline that it was given.

    Init `global` goes along a tree, which one device that sends something else, or one lost message, would lead astray;
    so it floods where that may happen, unless that would take too much.
    """
    init = None if needs_hub(algorithm) else algorithm.traits.init
    if init is not None and not run.seeded:
        deep = run.topology.hops > DEEPEST
        if init.name == "global" and not algorithm.traits.groups and not deep:
            options = {"candidates": CANDIDATES} | dict(init.options)
            flooded = run.disturbed and can_flood(run.topology, algorithm.k, d)
            kind = Init.flooded_summaries if flooded else Init.tree_summaries
            algorithm = algorithm.replaced(init=kind(**options))
        run = run._replace(disturbed="a deep tree" if deep else run.disturbed)
    return algorithm.configure(run), run


def stages(algorithm: Any, at: InitContext, rounds: int, *, seeded: bool) -> tuple[Stage, ...]:
    """Return all stages of a run; seeded: the method starts from given centroids."""
    from p2pkm.methods.init.bounding_box import BoundingBox
    from p2pkm.methods.server.star import Star

    before: tuple[Stage, ...] = ()
    if needs_hub(algorithm):
        if algorithm.traits.normalization in ("coordinate", "entries"):
            before = (Stage("bounding-box", BoundingBox(at.k), at.topology.hops + 2),)
        one: Algorithm = Star(algorithm) if algorithm.traits.is_server_method else algorithm
        return (*before, Stage(algorithm.name, one, rounds))
    around = algorithm.stages(at)
    seeding: tuple[Stage, ...] = ()  # none: it starts by itself, or from given centroids
    if not seeded and around.seeding is not None:
        seeding = around.seeding
    elif not seeded and algorithm.traits.init is not None:
        seeding = seeding_stages(algorithm.traits.init, at)
    own = Stage(algorithm.name, algorithm.on(at.topology), rounds, note=_incompatibility_note(algorithm, at.topology))
    return (*seeding, *around.before, own, *around.after)


def group_stage(algorithm: Any, at: InitContext) -> Stage:
    """Return the stage that finds groups of devices along a spanning tree, and the centroids of each."""
    from p2pkm.methods.init.tree_groups import TreeGroups

    finder = TreeGroups(at.k, grow_shallow(at.topology), groups=algorithm.traits.groups, lean=_is_lean(algorithm))
    return Stage(TreeGroups.name, finder, 1)


def seeding_stages(init: Init, at: InitContext) -> tuple[Stage, ...]:
    """Return the stages before the last one."""
    if init.name in _FLOODING:
        check_flooding(at, f"init {init.name}", "--init tree-summaries, local, bounding-box or leader")
    algorithms = _check_stages(init.name, known(init.name)[init.name](at, **dict(init.options)))
    names = ["d2-sampling" if init.name == "d2-sampling" else one.name for one in algorithms]
    most = _PATIENCE * (at.topology.hops + 2) if at.faults_apply else at.topology.hops + 2
    return tuple(
        Stage(
            name,
            one,
            1 if one.traits.one_round else most,
            faults_apply=at.faults_apply and one.traits.ends_under_faults,
        )
        for name, one in zip(names, algorithms, strict=True)
    )


def _check_stages(name: str, found: Any) -> tuple[Any, ...]:
    """Return the algorithms of an initialization, which may be one of another package.

    Raises
    ------
    ContractError
        If it returned something else.
    """
    given = found if isinstance(found, tuple | list) else ()
    if not given or not all(isinstance(one, MethodBase) for one in given):
        raise ContractError(
            f"init {name} returned {found!r}; expected a tuple of at least one algorithm of "
            "p2pkm.core.protocols.MethodBase, such as (BoundingBox(at.k),)"
        )
    return tuple(given)


def _incompatibility_note(algorithm: Any, topology: Topology) -> str:
    """Return what cannot be expected of the last stage where links change, nothing if they do not."""
    graph = topology.varying
    if graph is None or (graph.period == 1 and graph.active(0).all()):  # a static graph with a mixing matrix
        return ""
    claim = ""
    if algorithm.objective is not None:
        claim = (
            "; no descent is claimed, for each round works on the objective over its own links: objective and "
            "variation in the results are over all of them"
        )
    return (
        f"the links of {graph.name or 'the graph'} change: initialization and scaling exchange messages over all "
        f"{graph.number_of_edges():,} that are ever in use, {algorithm.name} over those of the round{claim}"
    )


def describe_graph_use(algorithm: Any, topology: Topology) -> list[str]:
    """Return notes: what was read of the graph's file, and whether the weights of its links are ignored."""
    notes = topology.file_summary, _note_link_weights(algorithm, topology), _note_robust_rule(algorithm, topology)
    return [note for note in notes if note]


def _note_robust_rule(algorithm: Any, topology: Topology) -> str:
    """Return at how many devices the robust rule acts, nothing if at all."""
    needed = algorithm.traits.robust_neighbors
    acts = int(np.count_nonzero(topology.degrees >= needed))
    if acts == topology.n:
        return ""
    return (
        f"robust acts at {acts:,} of {topology.n:,} devices, those with at least {needed} neighbors; all others use "
        "what they receive"
    )


def _note_link_weights(algorithm: Any, topology: Topology) -> str:
    """Return that the weights of the links do not act, nothing if they do, or if all are 1."""
    low, high = topology.weights.min(initial=np.inf), topology.weights.max(initial=0.0)
    if not len(topology.weights) or low == high == 1.0:
        return ""
    span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    weights = f"the weights of the links ({span})"
    replaced = topology.varying is not None and topology.varying.own_mixing is not None
    if algorithm.traits.link_weights == WEIGHTED and replaced:
        return f"{weights} are ignored: the graph has its own mixing matrix"
    if algorithm.traits.link_weights:
        return ""
    return f"{weights} are ignored by {algorithm.name}; methods that use them: {', '.join(with_link_weights())}"


def check_links(algorithm: Any, topology: Topology) -> None:
    """Raise an error if links change that must stay, or if no device has the neighbors that a robust rule needs."""
    needed, most = algorithm.traits.robust_neighbors, int(topology.degrees.max(initial=0))
    if most < needed:
        raise ExperimentError(
            f"the robust rule of {algorithm.name} acts at devices with at least {needed} neighbors; no device of this "
            f"graph has more than {most}. Use --robust saturate, or a graph with more links, such as --graph "
            "random-regular:degree=4"
        )
    why = algorithm.traits.needs_static_links
    if topology.varying is not None and why:
        raise ExperimentError(
            f"{algorithm.name} {why}, but those of {topology.varying.name} change from round to round. Use another "
            f"--graph, or {suggest_methods(lambda other: not (other.traits.needs_static_links or needs_hub(other)))}"
        )


def check_groups_fit(groups: int | str, topology: Topology) -> None:
    """Refuse to look for groups on a graph of several components, or for more than there are devices."""
    n, parts = topology.clients, int(topology.components.max()) + 1
    if groups and parts > 1:
        raise ExperimentError(
            f"groups are found along a spanning tree of all devices, but this graph has {parts} components; connect "
            "them, or leave groups out: every component has a clustering of its own anyway"
        )
    if isinstance(groups, int) and groups > n:
        raise ExperimentError(f"groups is {groups}, but there are {n} devices; expected at most {n}, or auto")


def check_init(init: Init | None, k: int) -> None:
    """Refuse an initialization with fewer rows than so many clusters need."""
    from p2pkm.methods.init.tree_summaries import LEAST

    if init is not None and (rows := dict(init.options).get("rows", LEAST * k)) < LEAST * k:
        raise ExperimentError(
            f"init {init.name}:rows is {rows}; expected at least {LEAST * k}, {LEAST} for each of {k} clusters"
        )
