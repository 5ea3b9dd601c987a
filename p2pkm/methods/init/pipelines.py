"""Pipelines: the sequence of stages of a run, with the largest number of rounds of each."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.errors import ContractError, ExperimentError, TopologyError
from p2pkm.core.protocols import Algorithm, MethodBase, RunOutline
from p2pkm.methods.building_blocks.averaging import WEIGHTED
from p2pkm.methods.init.registry import CANDIDATES, DEEPEST, InitContext, bounded_spanning_tree, can_flood, known
from p2pkm.methods.init.value import Init
from p2pkm.methods.registry import suggest_methods, with_link_weights
from p2pkm.network.graph import Topology

# Largest number of devices of a graph that is flooded. Each device stores a bit and a version per origin, so memory
# grows with the square: at this limit about 1.6 GB.
_MOST_FLOODING = 20_000
# Stages under faults may take this many times as many rounds as without, because lost messages delay them.
_PATIENCE = 4


class Stage(NamedTuple):
    """Part of a run with separate rounds: an initialization stage, the method, or a stage after it.

    Attributes
    ----------
    name : str
    algorithm : Algorithm
    rounds : int
        Largest number of rounds.
    note : str, default=""
        Note for the user.
    faults_apply : bool, default=False
        Whether faults of all stages affect this stage. Faults always affect the method.
    after : bool, default=False
        Whether the stage follows the method.
    may_be_left_out : bool, default=False
        Whether the devices may have found that they do not need the stage. If all of them are silent in its initial
        exchange, nothing of it is recorded.
    """

    name: str
    algorithm: Algorithm
    rounds: int
    note: str = ""
    faults_apply: bool = False
    after: bool = False
    may_be_left_out: bool = False


def number_stages(records: Sequence[Mapping[str, Any]], stages: Sequence[Stage]) -> list[int]:
    """Find the position of the stage of each record; a stage with records begins with one of round 0."""
    numbers, at = list[int](), -1
    for record in records:
        if record["round"] == 0:
            at += 1
            while stages[at].may_be_left_out and stages[at].name != record["stage"]:
                at += 1
        numbers.append(at)
    return numbers


def find_method_stage(stages: Sequence[Stage]) -> Stage:
    """Find the stage of the method: the last one that does not follow the method."""
    return next(stage for stage in reversed(stages) if not stage.after)


_FLOODING = ("d2-sampling", "flooded-summaries")


def scaling_stage(scale: str, at: InitContext) -> Stage:
    """Create the stage that computes means and variances, or ranges, for ``--scale standard`` or ``minmax``."""
    from p2pkm.methods.init.min_max_scaling import MinMaxScaling
    from p2pkm.methods.init.standardization import Standardization

    kind = Standardization if scale == "standard" else MinMaxScaling
    tree = bounded_spanning_tree(at, "points that are already scaled")
    return Stage(kind.name, kind(at.k, tree), 1)


def imputing_stage(missing: str, at: InitContext) -> Stage:
    """Create the stage that computes means or medians of the known values, for ``--missing mean`` or ``median``."""
    from p2pkm.methods.init.imputation import Imputation
    from p2pkm.methods.init.median_imputation import MedianImputation

    kind = MedianImputation if missing == "median" else Imputation
    tree = bounded_spanning_tree(at, "--missing drop")
    return Stage("imputation", kind(at.k, tree), 1)


def choosing_stage(algorithm: Any, at: InitContext) -> Stage:
    """Create the stage that chooses the number of clusters of a method, at most `at.k`."""
    from p2pkm.methods.init.choose_k import ChooseK

    tree = bounded_spanning_tree(at, "-k with a number")
    return Stage(ChooseK.name, ChooseK(at.k, tree, lean=_is_lean(algorithm)), 1)


def _is_lean(algorithm: Any) -> bool:
    """Check whether the init of a method requests compact messages."""
    init = algorithm.traits.init
    return init is not None and init.lean


def check_flooding(at: InitContext, option: str, alternatives: str) -> None:
    """Validate that the graph is small enough to flood.

    Parameters
    ----------
    option : str
        Option that requires flooding, as the user typed it.
    alternatives : str
        Options to use instead.

    Raises
    ------
    ExperimentError
        If the graph has more than 20,000 devices.
    """
    if at.topology.n > _MOST_FLOODING:
        raise ExperimentError(
            f"the graph has {at.topology.n} devices; expected at most {_MOST_FLOODING} with {option}, which floods the "
            f"graph: memory grows with the square of the number of devices. Use {alternatives}."
        )


def needs_hub(algorithm: Any) -> bool:
    """Check whether a method runs on a star around a server, instead of on a peer-to-peer graph."""
    return bool(algorithm.traits.needs_hub)


def find_star_reason(algorithm: Any) -> str:
    """Return the reason why a method has no graph of the user, as a predicate; empty if it has one."""
    traits = algorithm.traits
    if not traits.needs_hub:
        return ""
    has_server = traits.is_server_method or traits.derives_features or traits.common_centroids
    if has_server or traits.init is not None:
        return "uses a server, and its star graph is built automatically"
    return "sends no messages"


def graph_error(algorithm: Any, graph: str, remedy: str) -> TopologyError:
    """Create the error of a server method that is combined with a graph.

    Parameters
    ----------
    algorithm : Algorithm
    graph : str
        The graph, as the user typed it.
    remedy : str
        Correction, as an imperative without a period.
    """
    alternatives = suggest_methods(lambda other: not needs_hub(other))
    return TopologyError(
        f"method {algorithm.name} cannot be combined with graph {graph}: it {find_star_reason(algorithm)}. {remedy}, "
        f"or use {alternatives}."
    )


def place_graph(algorithm: Any, graph: Any, clients: int, names: tuple[str, ...] | None = None) -> Topology:
    """Build the star of a server method, or convert the user's graph for other methods; devices get their names.

    Raises
    ------
    TopologyError
        If a server method has a graph, or another method has none.
    """
    if needs_hub(algorithm):
        if graph is not None:
            raise graph_error(algorithm, "of type " + type(graph).__name__, "Set graph=None")
        return Topology.star(clients).call(names)
    if graph is None:
        raise TopologyError(
            f"graph is None; expected a networkx.Graph, because method {algorithm.name} requires a graph."
        )
    topology = Topology.from_graph(graph).call(names)
    return topology.tell_empty(clients) if names is not None else topology.tell_order()


def resolve(algorithm: Any, run: RunOutline, d: int) -> tuple[Any, RunOutline]:
    """Replace the defaults of a method by values that suit the run.

    Returns
    -------
    algorithm : Algorithm
        Method with its initialization and all other defaults.
    run : RunOutline
        Outline that the method was configured with.
    """
    init = algorithm.traits.init
    if init is not None and not run.seeded:
        is_deep = run.topology.hops > DEEPEST
        if init.name == "global" and not algorithm.traits.groups and not is_deep:
            options = {"candidates": CANDIDATES} | dict(init.options)
            # A single lost or forged message spoils the sums of a tree. With faults, flooding is used if it is
            # affordable.
            is_flooded = run.disturbed and can_flood(run.topology, algorithm.k, d)
            create = Init.flooded_summaries if is_flooded else Init.tree_summaries
            algorithm = algorithm.replaced(init=create(**options))
        run = run._replace(disturbed="a deep tree" if is_deep else run.disturbed)
    return algorithm.configure(run), run


def stages(algorithm: Any, at: InitContext, rounds: int, *, seeded: bool) -> tuple[Stage, ...]:
    """Create all stages of a run; with `seeded` the initial centroids come from the user."""
    before: tuple[Stage, ...] = ()
    if needs_hub(algorithm) and algorithm.traits.init is None:
        from p2pkm.methods.server.star import Star

        if algorithm.traits.normalization in ("coordinate", "entries"):
            before = (scaling_stage("minmax", at)._replace(name="bounding-box"),)
        on_star: Algorithm = Star(algorithm) if algorithm.traits.is_server_method else algorithm
        note = _incompatibility_note(algorithm, at.topology)
        return (*before, Stage(algorithm.name, on_star, rounds, note=note))
    surrounding = algorithm.stages(at)
    # Remains empty if the method needs none, or the centroids are given.
    seeding: tuple[Stage, ...] = ()
    if not seeded and surrounding.seeding is not None:
        seeding = surrounding.seeding
    elif not seeded and algorithm.traits.init is not None:
        seeding = seeding_stages(algorithm.traits.init, at)
    note = _incompatibility_note(algorithm, at.topology)
    method = Stage(algorithm.name, algorithm.on(at.topology), rounds, note=note)
    return (*seeding, *surrounding.before, method, *surrounding.after)


def group_stage(algorithm: Any, at: InitContext) -> Stage:
    """Create the stage that finds groups of devices along a spanning tree, and the centroids of each group."""
    from p2pkm.methods.init.tree_groups import TreeGroups

    finder = TreeGroups(at.k, bounded_spanning_tree(at), groups=algorithm.traits.groups, lean=_is_lean(algorithm))
    return Stage(TreeGroups.name, finder, 1)


def seeding_stages(init: Init, at: InitContext) -> tuple[Stage, ...]:
    """Create the stages of an initialization."""
    if init.name in _FLOODING:
        check_flooding(at, f"--init {init.name}", "--init tree-summaries, local, bounding-box or leader")
    algorithms = _check_stages(init.name, known(init.name)[init.name](at, **dict(init.options)))
    names = ["d2-sampling" if init.name == "d2-sampling" else algorithm.name for algorithm in algorithms]
    # A flood takes as many rounds as the diameter, one to notice that nothing is new, and one in reserve.
    most = _PATIENCE * (at.topology.hops + 2) if at.faults_apply else at.topology.hops + 2
    return tuple(
        Stage(
            name,
            algorithm,
            1 if algorithm.traits.one_round else most,
            faults_apply=at.faults_apply and algorithm.traits.ends_under_faults,
        )
        for name, algorithm in zip(names, algorithms, strict=True)
    )


def _check_stages(name: str, result: Any) -> tuple[Any, ...]:
    """Validate the algorithms of an initialization, which may come from another package.

    Raises
    ------
    ContractError
        If `result` is not a non-empty tuple or list of algorithms, or one lacks traits.
    """
    algorithms = result if isinstance(result, tuple | list) else ()
    if not algorithms or not all(isinstance(algorithm, MethodBase) for algorithm in algorithms):
        raise ContractError(
            f"init {name} returned {result!r}; expected a tuple of at least one algorithm of "
            "p2pkm.core.protocols.MethodBase, such as (BoundingBox(at.k),)."
        )
    for algorithm in algorithms:
        try:
            _ = algorithm.traits
        except ContractError as error:
            kind = type(algorithm)
            raise ContractError(f"stage {kind.__module__}:{kind.__qualname__} of init {name}: {error}") from error
    return tuple(algorithms)


def _incompatibility_note(algorithm: Any, topology: Topology) -> str:
    """Describe the limits of a method on a time-varying graph; empty for a static one."""
    graph = topology.varying
    # A graph with period 1 and all links active is static; it has a mixing matrix only.
    if graph is None or (graph.period == 1 and graph.active(0).all()):
        return ""
    if topology.hub >= 0:
        return (
            f"the server asks {graph.name} in each round of {algorithm.name}; the others neither compute nor send, and "
            "keep the centroids that they received last"
        )
    claim = ""
    if algorithm.objective is not None:
        claim = (
            ". Descent is not certified: each round lowers the objective over its active links, but the results report "
            "objective and variation over all links"
        )
    return (
        f"the links of {graph.name or 'the graph'} change: initialization and scaling use all "
        f"{graph.number_of_edges():,} links that are ever active, {algorithm.name} uses the active links of each "
        f"round{claim}"
    )


def describe_graph_use(algorithm: Any, topology: Topology) -> list[str]:
    """Create notes on the graph file, ignored link weights and devices without the robust rule."""
    notes = topology.file_summary, _note_link_weights(algorithm, topology), _note_robust_rule(algorithm, topology)
    return [note for note in notes if note]


def _note_robust_rule(algorithm: Any, topology: Topology) -> str:
    """Describe the number of devices at which the robust rule acts; empty if it acts at all devices."""
    required = algorithm.traits.robust_neighbors
    active = int(np.count_nonzero(topology.degrees >= required))
    if active == topology.n:
        return ""
    return (
        f"the robust rule acts at {active:,} of {topology.n:,} devices, those with at least {required} neighbors; the "
        "others use received tables unchanged"
    )


def _note_link_weights(algorithm: Any, topology: Topology) -> str:
    """Describe ignored link weights; empty if the method uses them, or if all weights are 1."""
    low, high = topology.weights.min(initial=np.inf), topology.weights.max(initial=0.0)
    if not len(topology.weights) or low == high == 1.0:
        return ""
    span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    weights = f"the weights of the links ({span})"
    has_matrix = topology.varying is not None and topology.varying.own_mixing is not None
    if algorithm.traits.link_weights == WEIGHTED and has_matrix:
        return f"{weights} are ignored: the graph has its own mixing matrix"
    if algorithm.traits.link_weights:
        return ""
    return f"{weights} are ignored by {algorithm.name}; methods that use them: {', '.join(with_link_weights())}"


def check_init(init: Init | None, k: int) -> None:
    """Validate that an initialization allows enough rows per message for k clusters.

    Raises
    ------
    ExperimentError
        If its option `rows` is below 20 k.
    """
    from p2pkm.methods.init.tree_summaries import MIN_ROWS_PER_CLUSTER

    least = MIN_ROWS_PER_CLUSTER * k
    if init is not None and (rows := dict(init.options).get("rows", least)) < least:
        raise ExperimentError(
            f"init {init.name}:rows is {rows}; expected at least {least}, {MIN_ROWS_PER_CLUSTER} for each of {k} "
            f"clusters. Use --init {init.name}:rows={least}."
        )
