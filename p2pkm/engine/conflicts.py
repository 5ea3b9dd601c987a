"""Methods, options, graphs and points that cannot be combined: one table, in the order of the checks.

The documentation prints the same table (docs/ref/combinations.md). It has five parts, for what is known at one time:
options, transforms of the messages, graph, points, and simulated time. Rules between parameters of one method stand in
that method; transforms of other packages declare theirs in `Transform.incompatible_with`.
"""

from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any, NamedTuple

from p2pkm.channel.pipeline import ChannelPlan
from p2pkm.channel.registry import TRANSFORMS
from p2pkm.channel.registry import find as find_transform
from p2pkm.channel.transform import Order, Settings, Transform
from p2pkm.core.errors import DataError, ExperimentError, P2PKMError, TopologyError
from p2pkm.core.protocols import PointCount
from p2pkm.core.traits import Condition, MessageContent
from p2pkm.data.identifiers import FILLING
from p2pkm.data.shards import Shards
from p2pkm.methods.building_blocks.coupling_choice import ESTIMATED
from p2pkm.methods.init.pipelines import find_star_reason
from p2pkm.methods.init.registry import DEEPEST
from p2pkm.methods.registry import suggest_methods
from p2pkm.network.graph import Topology

# Initializations whose rows are points.
_INITS_OF_POINTS = ("d2-sampling", "leader")


class Combination(NamedTuple):
    """Method, options, transforms, graph and points of a run; None or empty while they are not known.

    Attributes
    ----------
    algorithm : Algorithm or ServerMethod
    options : mapping of str to object
        Options of the run by name.
    channel : ChannelPlan
        Transforms that the options select.
    topology : Topology or None
    points : Shards, DiskShards, PointCount or None
    """

    algorithm: Any
    options: Mapping[str, Any] = {}
    channel: ChannelPlan = ChannelPlan()
    topology: Topology | None = None
    points: Any = None


class Feature(NamedTuple):
    """Option, parameter, graph or data that a run may have.

    Attributes
    ----------
    name : str
        Name in the documentation.
    tell : callable
        Returns the feature of a combination as the user gave it; empty if it is not there.
    """

    name: str
    tell: Callable[[Combination], str]


class Conflict(NamedTuple):
    """Feature that cannot be combined with a method, or with another feature.

    Attributes
    ----------
    feature : Feature
    other : Feature or None
        None: methods, those for which `why` gives a reason.
    why : str or callable
        Reason; for methods a predicate, from the method, empty if it can be combined.
    text : str
        What is refused, with {given}, {other}, {name} of the method, and {why}.
    remedy : str
        What to do; {methods} lists the methods that can be combined with the feature.
    error : type
    unfit : callable, optional
        Reason, from a method, for which {methods} leaves it out; default: `why`.
    """

    feature: Feature
    other: Feature | None
    why: str | Callable[[Any], str]
    text: str
    remedy: str
    error: type[P2PKMError] = ExperimentError
    unfit: Callable[[Any], str] | None = None

    def explain(self, algorithm: Any) -> str:
        """Return the reason for a method; empty if it can be combined with the feature."""
        return self.why if isinstance(self.why, str) else self.why(algorithm)

    def check(self, combination: Combination) -> None:
        """Raise the error of the conflict if it is there."""
        given = self.feature.tell(combination)
        other = self.other.tell(combination) if given and self.other is not None else ""
        if not given or (self.other is not None and not other):
            return
        why = self.explain(combination.algorithm)
        if not why:
            return
        methods = ""
        if "{methods}" in self.remedy:
            unfit = self.unfit or self.explain
            methods = suggest_methods(lambda method: not unfit(method))
        name = combination.algorithm.name
        if self.text == _WITH_METHOD:
            # With another value of this parameter, the method can be combined with the feature.
            name, why = _move_parameter(name, why)
        facts = {"given": given, "other": other, "name": name, "why": why, "methods": methods}
        raise self.error(f"{self.text}. {self.remedy}".format(**facts))


def _move_parameter(name: str, why: str) -> tuple[str, str]:
    """Move a parameter from the start of a reason, such as "with swaps=true tries", to the name of the method."""
    parameter, _, clause = why.removeprefix("with ").partition(" ")
    has_one = why.startswith("with ") and "=" in parameter
    return (f"{name} with {parameter}", clause) if has_one else (name, why)


def refuse(conflicts: tuple[Conflict, ...], combination: Combination) -> None:
    """Raise the error of the first conflict that a combination has.

    Parameters
    ----------
    conflicts : tuple of Conflict
        Part of the table whose facts are known.
    combination : Combination

    Raises
    ------
    P2PKMError
    """
    for conflict in conflicts:
        conflict.check(combination)


def explain_refusal(at: Combination) -> str:
    """Describe why a run is refused, without the remedy; empty if it is not. All parts of the table are read."""
    try:
        at.algorithm.check_parameters()
        refuse(CONFLICTS, at)
        refuse_transforms(at)
        refuse_changing_links(at)
    except P2PKMError as error:
        return str(error).partition(". ")[0]
    return ""


# Features, each with the text by which messages name it.


def _tell_k_max(at: Combination) -> str:
    return "" if at.options.get("k_max") is None else "-k auto"


def _tell_start(at: Combination) -> str:
    return "" if at.options.get("start") is None else "start"


def _tell_no_rounds(at: Combination) -> str:
    return "--rounds 0" if at.options.get("rounds") == 0 else ""


def _tell_groups(at: Combination) -> str:
    return "--groups" if at.algorithm.traits.groups else ""


def _tell_estimate(at: Combination) -> str:
    coupling = vars(at.algorithm).get("coupling")
    if coupling in ESTIMATED:
        return f"--coupling {coupling}"
    return "shares=true" if vars(at.algorithm).get("shares") else ""


def _tell_changes(at: Combination) -> str:
    changing = (kind.name for kind, settings in at.channel.parts if kind.disturbs(settings))
    return next((at.channel.option_texts[name] for name in changing), "")


def _tell_scale(at: Combination) -> str:
    scale = at.options.get("scale")
    return f"scale {scale!r}" if scale in ("standard", "minmax") else ""


def _tell_filling(at: Combination) -> str:
    missing = at.options.get("missing")
    return f"missing {missing!r}" if missing in FILLING else ""


def _tell_checkpoint(at: Combination) -> str:
    folder = at.options.get("checkpoint")
    return f"checkpoint {folder}" if folder else ""


def _tell_checkpoint_every(at: Combination) -> str:
    every = at.options.get("checkpoint_every")
    return f"checkpoint_every {every}" if every else ""


def _tell_stream(at: Combination) -> str:
    return "" if at.options.get("stream") is None else "--stream"


def _tell_late_messages(at: Combination) -> str:
    return "--schedule async and --link-model" if reads_late(at.options, at.algorithm) else ""


def _tell_events(at: Combination) -> str:
    changing = at.topology is not None and at.topology.varying is not None
    return "" if changing else _tell_late_messages(at)


def _tell_over_relaxation(at: Combination) -> str:
    relaxation = vars(at.algorithm).get("relaxation")
    return f"relaxation is {relaxation:g}" if isinstance(relaxation, Real) and float(relaxation) > 1.0 else ""


def _tell_all_rounds(at: Combination) -> str:
    return "--all-rounds" if at.options.get("all_rounds") else ""


def _tell_suppression(at: Combination) -> str:
    settings = at.channel.find("suppression")
    return f"--min-cluster-size {settings['least']}" if settings and settings["least"] > 1 else ""


def _tell_transform(name: str) -> Callable[[Combination], str]:
    """Return the function that gives the option by which a transform is selected."""
    return lambda at: "" if at.channel.find(name) is None else at.channel.option_texts[name]


def _tell_faults(at: Combination) -> str:
    if at.channel.find("faults") is None:
        return ""
    return "--deadline" if at.options.get("faults") is None else "--faults"


def _tell_faults_of_links(at: Combination) -> str:
    settings = at.channel.find("faults")
    if settings is None:
        return ""
    if settings["deadline"] is not None:
        return f"--deadline {settings['deadline']:g}"
    # The path of a fault trace alone does not tell; its events, once they are read, do.
    faults = settings.get("faults", settings["options"])
    return "" if faults.device_faults_only else "--faults"


def _tell_trace_in_seconds(at: Combination) -> str:
    settings = at.channel.find("faults")
    # The path of a fault trace alone does not tell.
    is_known = settings is not None and "faults" in settings and settings["faults"].in_seconds
    return f"--faults {at.options.get('faults')}, a trace in seconds," if is_known else ""


def _tell_no_link_model(at: Combination) -> str:
    return "" if at.options.get("link_model") is not None else "a run without --link-model"


def _tell_deadline(at: Combination) -> str:
    deadline = at.options.get("deadline")
    return "" if deadline is None else f"--deadline {deadline:g}"


def _tell_client_share(at: Combination) -> str:
    share = at.options.get("client_share")
    return "" if share is None else f"--client-share {share}"


def _tell_changing_links(at: Combination) -> str:
    return at.topology.varying.name if at.topology is not None and at.topology.varying is not None else ""


def _tell_few_neighbors(at: Combination) -> str:
    if at.topology is None:
        return ""
    required, most = at.algorithm.traits.robust_neighbors, int(at.topology.degrees.max(initial=0))
    return f"at most {most} neighbors; expected at least {required}" if most < required else ""


def _tell_robust_rule(at: Combination) -> str:
    return "the robust rule" if at.algorithm.traits.robust_neighbors else ""


def _tell_depth(at: Combination) -> str:
    return f"{at.topology.hops:,} hops" if at.topology is not None and at.topology.hops > DEEPEST else ""


def _tell_components(at: Combination) -> str:
    count = 1 if at.topology is None else int(at.topology.components.max()) + 1
    return str(count) if count > 1 else ""


def _tell_weights(at: Combination) -> str:
    return "point weights" if isinstance(at.points, Shards) and at.points.weights.strides != (0,) else ""


def _tell_disk(at: Combination) -> str:
    return "" if at.points is None or isinstance(at.points, Shards | PointCount) else "points on disk"


def _tell_tests(at: Combination) -> str:
    if share := at.options.get("test_share"):
        return f"test_share {share:g}"
    return "data with test points" if isinstance(at.points, Shards) and at.points.tests is not None else ""


def _tell_metis(at: Combination) -> str:
    return "--rank-partition metis" if at.options.get("rank_partition") == "metis" else ""


K_AUTO = Feature("`-k auto`", _tell_k_max)
SCALE = Feature("`--scale standard`, `minmax`", _tell_scale)
FILLING_IN = Feature("`--missing mean`", _tell_filling)
CHECKPOINT = Feature("checkpoints", _tell_checkpoint)
CHECKPOINT_EVERY = Feature("checkpoints", _tell_checkpoint_every)
START = Feature("`start=`", _tell_start)
NO_ROUNDS = Feature("`--rounds 0`", _tell_no_rounds)
STREAM = Feature("`--stream`", _tell_stream)
SUPPRESSION = Feature("`--min-cluster-size`", _tell_suppression)
NOISE = Feature("`--noise`", _tell_transform("noise"))
INTEGERS = Feature("`--quantize`", _tell_transform("quantization"))
COMPRESSION = Feature("`--compress`", _tell_transform("compression"))
BYZANTINE = Feature("`--byzantine`", _tell_transform("byzantine"))
FAULTS = Feature("`--faults` of devices", _tell_faults)
FAULTS_OF_LINKS = Feature("`--faults` of links", _tell_faults_of_links)
TRACE_IN_SECONDS = Feature("`--faults` trace in seconds", _tell_trace_in_seconds)
NO_LINK_MODEL = Feature("runs without `--link-model`, which it needs", _tell_no_link_model)
DEADLINE = Feature("`--deadline`", _tell_deadline)
CLIENT_SHARE = Feature("`--client-share`", _tell_client_share)
CHANGING_LINKS = Feature("changing links", _tell_changing_links)
WEIGHTS = Feature("point weights", _tell_weights)
GROUPS = Feature("`--groups`", _tell_groups)
ESTIMATE = Feature("`--coupling bayes`, `links` or `auto`, `shares=true`", _tell_estimate)
CHANGES = Feature("options that change messages", _tell_changes)
LATE_MESSAGES = Feature("`--schedule async` and `--link-model`", _tell_late_messages)
EVENTS = Feature("`--schedule async` and `--link-model`, static links", _tell_events)
OVER_RELAXATION = Feature("`--relaxation` above 1", _tell_over_relaxation)
ROBUST_RULE = Feature("`--robust clip`, `trim`", _tell_robust_rule)
FEW_NEIGHBORS = Feature("graphs where no device has 2 (`clip`) or 3 (`trim`) neighbors", _tell_few_neighbors)
COMPONENTS = Feature("a disconnected graph", _tell_components)
DEEP_GRAPH = Feature(f"a graph of more than {DEEPEST:,} hops", _tell_depth)
TESTS = Feature("test points", _tell_tests)
DISK = Feature("points on disk", _tell_disk)
METIS = Feature("`--rank-partition metis`", _tell_metis)
ALL_ROUNDS = Feature("`--all-rounds`", _tell_all_rounds)


# Reasons of methods, as predicates.


def _declared(key: Condition | str) -> Callable[[Any], str]:
    """Return the function that gives the reason that the traits of a method declare."""
    return lambda algorithm: algorithm.traits.incompatible_with.get(key, "")


def _against_checkpoints(algorithm: Any) -> str:
    if not algorithm.traits.is_secret:
        return ""
    return "its noise comes from a secret of the operating system, which must not be written to a file"


def _against_start(algorithm: Any) -> str:
    return "begins with a computation on the local points" if algorithm.traits.init is None else ""


def _against_stream(algorithm: Any) -> str:
    return "" if algorithm.traits.follows_points else "does not read its points again in every round"


def against_suppression(algorithm: Any) -> str:
    """Return the reason why a method cannot omit single rows, empty if it can."""
    init = algorithm.traits.init
    if init is not None and init.name in _INITS_OF_POINTS:
        return f"starts from {init.name} centroids, which are raw points"
    return _declared("suppression")(algorithm)


def _against_tests(algorithm: Any) -> str:
    return "clusters features that it learns from the other points" if algorithm.traits.derives_features else ""


def _against_noise(algorithm: Any) -> str:
    is_noisy = algorithm.traits.message_content is MessageContent.CENTROIDS
    return "" if is_noisy else "does not send rows of centroids"


def _against_integers(algorithm: Any) -> str:
    from p2pkm.channel.quantization import find_obstacle

    return find_obstacle(algorithm)


def _against_compression(algorithm: Any) -> str:
    from p2pkm.channel.compression import find_obstacle

    return find_obstacle(algorithm)


def _against_byzantine(algorithm: Any) -> str:
    from p2pkm.channel.byzantine import is_replaceable

    is_possible = is_replaceable(algorithm.traits)
    return "" if is_possible else "sends nothing that a Byzantine device could replace by other centroids"


_against_lost_messages = _declared(Condition.LOSSY_LINKS)


def _against_faults(algorithm: Any) -> str:
    """Return the reason why faults of devices are refused, too; empty if these are possible."""
    return "" if algorithm.traits.tolerates_absence else _against_lost_messages(algorithm)


def _against_deadline(algorithm: Any) -> str:
    schedule = algorithm.schedule
    if (reason := _against_lost_messages(algorithm)) or schedule == "star" or schedule.startswith("jacobi"):
        return reason
    return f"has the schedule {schedule}, in which devices do not wait for all others"


def _against_client_share(algorithm: Any) -> str:
    traits = algorithm.traits
    if not traits.needs_hub:
        return "has no server"
    if traits.one_shot:
        return "asks each client once, so the points of the others would never count"
    return "" if traits.is_server_method else "has no round in which a server could leave out clients"


def _against_changing_links(algorithm: Any) -> str:
    return find_star_reason(algorithm) or _declared(Condition.CHANGING_LINKS)(algorithm)


# What causes the conditions that transforms exclude, for the documentation.
_CONDITIONS: Mapping[Condition | str, str] = {
    Condition.LOSSY_LINKS: "`--faults`, `--deadline`, or `--schedule async` with `--link-model`",
    Condition.CHANGING_LINKS: "a graph whose links change, or `--client-share`",
    Condition.CHANGED_MESSAGES: "another transform that changes messages",
    Condition.LINK_MODEL: "`--link-model`",
}

_WITH_METHOD = "{given} cannot be combined with {name}: the method {why}"
_WITH_FEATURE = "{given} cannot be combined with {other}: {why}"
_WITHOUT_SEED = "{given} cannot be combined with {name} without noise_seed: {why}"

OF_OPTIONS = (
    Conflict(
        K_AUTO, None, _declared(Condition.MEASURED_POINTS), _WITH_METHOD, "Use a number of clusters, such as -k 8"
    ),
    Conflict(
        K_AUTO, START, "start fixes the number of clusters", "start and -k auto cannot be combined: {why}",
        "Remove one of them",
    ),
    Conflict(
        K_AUTO, GROUPS,
        "the number of clusters is chosen from the points of all devices, but each group has separate clusters",
        "-k auto cannot be combined with --groups: {why}", "Use a number, such as -k 8, or remove --groups",
    ),
    Conflict(
        SCALE, None, _declared(Condition.MEASURED_POINTS), _WITH_METHOD, "Use --scale none, or ranges that "
        "are known without looking at the points, such as --scale ranges:age=0..100,bmi=10..50",
    ),
    Conflict(FILLING_IN, None, _declared(Condition.MEASURED_POINTS), _WITH_METHOD, "Use --missing drop"),
    Conflict(
        FILLING_IN, STREAM, "points that arrive must be complete",
        "{given} cannot be combined with a stream: {why}", "Use --missing drop or remove --stream",
    ),
    Conflict(
        CHECKPOINT, None, _against_checkpoints, _WITHOUT_SEED,
        "Remove checkpoint, or use {name}:noise_seed=1 for a run without a guarantee",
    ),
    Conflict(
        CHECKPOINT_EVERY, None, _against_checkpoints, _WITHOUT_SEED,
        "Remove checkpoint_every, or use {name}:noise_seed=1 for a run without a guarantee",
    ),
    Conflict(START, None, _against_start, _WITH_METHOD, "Remove start"),
    Conflict(
        START, ESTIMATE, "devices compare their clusters, so all must have agreed on the start by messages",
        _WITH_FEATURE, "Use --coupling with a number, or remove start",
    ),
    Conflict(
        NO_ROUNDS, ESTIMATE, "the result is the initial centroids, but devices would move them before the first round",
        _WITH_FEATURE, "Use --coupling with a number, or increase --rounds",
    ),
    Conflict(
        START, GROUPS, "groups compute initial centroids of their own, one set for each group",
        "start cannot be combined with groups: {why}", "Remove start, or use groups=false",
    ),
    Conflict(
        STREAM, LATE_MESSAGES,
        "devices then act at individual times, but points change from round to round", _WITH_FEATURE,
        "Remove --stream or --link-model, or use --schedule colored.",
    ),
    Conflict(
        STREAM, ESTIMATE, "neighbors are compared before the first round, by points that must stay", _WITH_FEATURE,
        "Use --coupling with a number, or remove --stream",
    ),
    Conflict(
        LATE_MESSAGES, ESTIMATE, "neighbors are compared by messages that arrive at once", _WITH_FEATURE,
        "Remove --link-model, use --schedule colored, or --coupling with a number",
    ),
    Conflict(
        STREAM, GROUPS, "finds groups once, at the start", "--groups cannot be combined with --stream: {name} {why}",
        "Remove --groups or --stream.",
    ),
    Conflict(
        DEADLINE, None, _against_deadline, _WITH_METHOD,
        "Remove --deadline, use --schedule jacobi if the method has it, or {methods}",
    ),
    Conflict(CLIENT_SHARE, None, _against_client_share, _WITH_METHOD, "Remove --client-share, or use {methods}"),
    Conflict(
        STREAM, None, _against_stream, "{name} cannot follow a stream: with these parameters it {why}",
        "Remove --stream, or use {methods}",
    ),
)  # fmt: skip

OF_TRANSFORMS = (
    Conflict(
        CHANGES, ESTIMATE, "neighbors are compared by messages that arrive unchanged", _WITH_FEATURE,
        "Remove {given}, or use --coupling with a number",
    ),
    Conflict(
        SUPPRESSION, None, against_suppression, _WITH_METHOD,
        "Remove --min-cluster-size, or use {methods}, without --init",
    ),
    Conflict(NOISE, None, _against_noise, _WITH_METHOD, "Remove --noise, or use {methods}"),
    Conflict(INTEGERS, None, _against_integers, _WITH_METHOD, "Remove --quantize, or use {methods}"),
    Conflict(COMPRESSION, None, _against_compression, _WITH_METHOD, "Remove --compress, or use {methods}"),
    Conflict(
        COMPRESSION, SUPPRESSION, "a row that is left out changes the numbers of the others", _WITH_FEATURE,
        "Remove one of them",
    ),
    Conflict(
        COMPRESSION, LATE_MESSAGES,
        "a device then reads the newest of several tables, without the numbers in the others", _WITH_FEATURE,
        "Remove {given}, or use --schedule colored",
    ),
    Conflict(
        COMPRESSION, OVER_RELAXATION, "over-relaxation on old numbers diverges",
        "{other}; expected at most 1 with --compress: {why}", "Reduce relaxation, or remove --compress",
    ),
    Conflict(BYZANTINE, None, _against_byzantine, _WITH_METHOD, "Remove --byzantine, or use {methods}"),
    Conflict(
        FAULTS, OVER_RELAXATION, "over-relaxation on old tables diverges",
        "{other}; expected at most 1 with --faults: {why}", "Reduce relaxation, or remove --faults",
    ),
    Conflict(
        FAULTS, None, _against_faults, _WITH_METHOD, "Remove --faults, or use {methods}",
        unfit=_against_lost_messages,
    ),
    Conflict(
        FAULTS_OF_LINKS, None, _against_lost_messages,
        "method {name!r} supports only faults of devices (dropout, late_join, straggler; in a trace away and asleep): "
        "it {why}",
        "Remove the other faults, or use {methods}",
    ),
    Conflict(
        TRACE_IN_SECONDS, NO_LINK_MODEL, "its seconds are those of the simulated time", _WITH_FEATURE,
        "Add for example --link-model edge, or use a trace by rounds",
    ),
)  # fmt: skip

OF_GRAPHS = (
    Conflict(
        ROBUST_RULE, FEW_NEIGHBORS, "a robust rule needs several neighbors to choose from",
        "the devices of this graph have {other} at some device, where the robust rule of {name} acts",
        "Use --robust saturate, or a graph with more links, such as --graph random-regular:degree=4.",
    ),
    Conflict(
        CHANGING_LINKS, None, _against_changing_links,
        "{name} {why}, but the links of {given} change from round to round",
        "Use another --graph, or {methods}.",
    ),
    Conflict(
        ESTIMATE, DEEP_GRAPH, "sums are added along a spanning tree, whose layers take a turn each",
        "{given} cannot be combined with a graph of {other}: {why}", "Use --coupling strong or a number",
    ),
    Conflict(
        GROUPS, COMPONENTS, "groups are found along one spanning tree",
        "graph has {other} connected components; expected 1 with groups, which are found along one spanning tree",
        "Add links, or remove groups: each component is clustered separately in any case.",
    ),
)  # fmt: skip

OF_POINTS = (
    Conflict(WEIGHTS, None, _declared(Condition.POINT_WEIGHTS), _WITH_METHOD, "Remove the weights", DataError),
)

OF_POINTS_ON_GRAPHS = (
    Conflict(
        TESTS, STREAM, "the points change during the run, test points do not", _WITH_FEATURE,
        "Remove --stream, or the test points",
    ),
    Conflict(
        TESTS, DISK, "each rank reads its part of the points", _WITH_FEATURE,
        "Load them with p2pkm.read_table, or remove test_share", DataError,
    ),
    Conflict(TESTS, None, _against_tests, _WITH_METHOD, "Remove the test points"),
    Conflict(
        METIS, DISK, "each rank reads one range of devices", _WITH_FEATURE, "Use --rank-partition blocks",
    ),
    Conflict(
        K_AUTO, COMPONENTS, "components cannot agree on a number of clusters",
        "the graph is disconnected: it has {other} components, which cannot agree on a number of clusters",
        "Add links, or use a number of clusters, such as -k 8", TopologyError,
    ),
)  # fmt: skip

OF_EVENTS = (
    Conflict(
        FAULTS, EVENTS, "faults count rounds, but devices then act at individual times", _WITH_FEATURE,
        "Remove --faults or --link-model, or use --schedule colored",
    ),
    Conflict(
        EVENTS, OVER_RELAXATION, "over-relaxation on old tables diverges",
        "{other}; expected at most 1 with --schedule async and --link-model: {why}",
        "Reduce relaxation, remove --link-model, or use --schedule colored",
    ),
    Conflict(
        EVENTS, ALL_ROUNDS, "devices act when messages arrive, so the run ends when no message is in transit",
        "--all-rounds cannot be combined with --schedule async and --link-model: {why}", "Remove one of the three",
    ),
)  # fmt: skip

OF_STREAMS = (
    Conflict(
        STREAM, DISK, "it changes points in memory", _WITH_FEATURE,
        "Load them with p2pkm.read_table, or remove --stream", DataError,
    ),
)  # fmt: skip

CONFLICTS = (*OF_OPTIONS, *OF_TRANSFORMS, *OF_GRAPHS, *OF_POINTS, *OF_POINTS_ON_GRAPHS, *OF_EVENTS, *OF_STREAMS)


def explain_method(algorithm: Any) -> dict[str, str]:
    """Map each feature that some method refuses to the reason of this method; empty: it can be combined."""
    reasons = {"`--graph`": find_star_reason(algorithm)}
    for conflict in CONFLICTS:
        if conflict.other is None:
            name = conflict.feature.name
            reasons[name] = reasons.get(name) or conflict.explain(algorithm)
    return reasons


def list_pairs() -> list[tuple[str, str, str, str]]:
    """List the features that exclude each other: both names, the reason, and what to do."""
    pairs = [
        (
            one.feature.name,
            one.other.name,
            one.explain(None),
            one.remedy.removesuffix(".").replace("{given}", "these options"),
        )
        for one in CONFLICTS
        if one.other is not None
    ]
    for name in TRANSFORMS:
        kind = find_transform(name)
        for key, reason in kind.incompatible_with.items():
            other = _CONDITIONS.get(key) or _name_option(find_transform(str(key)))
            pairs.append((_name_option(kind), other, reason, "Remove one of them"))
    return pairs


def _name_option(kind: type[Transform]) -> str:
    return f"`--{kind.option.replace('_', '-')}`"


def reads_late(options: Settings, algorithm: Any) -> bool:
    """Check whether messages arrive late because devices act by simulated time."""
    return options.get("link_model") is not None and algorithm.schedule == "async"


def refuse_transforms(at: Combination) -> None:
    """Refuse transforms of the messages that cannot be combined with each other, with the run or with the method.

    Raises
    ------
    ExperimentError
    """
    conditions = list(_find_conditions(at))
    # The order of the options decides which of several conflicts is reported, not that of the messages.
    names = list(at.channel.option_texts)
    parts = sorted(at.channel.parts, key=lambda part: names.index(part[0].name))
    for kind, _ in parts:
        for other, settings in parts:
            if other is kind:
                continue
            text = at.channel.option_texts[other.name]
            for effect in _list_effects(other, settings):
                _refuse_transform(at, kind, effect, text, f"remove {text}")
        for condition, cause, instead in conditions:
            _refuse_transform(at, kind, condition, cause, instead)
    refuse(OF_TRANSFORMS, at)
    for kind, settings in parts:
        kind.check(settings, at.algorithm)
        _refuse_content(at, kind)


def refuse_changing_links(at: Combination) -> None:
    """Refuse transforms of the messages that cannot be used on a graph whose links change.

    Raises
    ------
    ExperimentError
    """
    name = _tell_changing_links(at)
    if not name:
        return
    cause = f"the graph {name}, whose links change from round to round"
    for kind, _ in at.channel.parts:
        _refuse_transform(at, kind, Condition.CHANGING_LINKS, cause, "use a static graph")


def _find_conditions(at: Combination) -> Iterator[tuple[Condition, str, str]]:
    """Yield the conditions of a run that no transform causes, their options, and the way to avoid them."""
    model = f"--link-model {at.options.get('link_model')}"
    if reads_late(at.options, at.algorithm):
        yield Condition.LOSSY_LINKS, f"{model} and --schedule async", "use another schedule"
    if at.options.get("link_model") is not None:
        yield Condition.LINK_MODEL, model, f"remove {model}"
    if share := _tell_client_share(at):
        yield Condition.CHANGING_LINKS, share, f"remove {share}"


def _list_effects(kind: type[Transform], settings: Settings) -> list[Condition | str]:
    """Return the conditions that a transform causes, its own name first, most specific first."""
    effects: list[Condition | str] = []
    is_effective = kind.disturbs(settings) or kind.order is Order.PERTURB
    if is_effective:
        effects.append(kind.name)
    if kind.delays:
        effects.append(Condition.LOSSY_LINKS)
    if is_effective and kind.order in (Order.PERTURB, Order.REPLACE):
        effects.append(Condition.CHANGED_MESSAGES)
    return effects


def _refuse_transform(at: Combination, kind: type[Transform], key: Condition | str, cause: str, instead: str) -> None:
    """Refuse a transform if it declares a condition; instead: an alternative to removing it."""
    reason = kind.incompatible_with.get(key)
    if reason is not None:
        option = at.channel.option_texts[kind.name]
        raise ExperimentError(f"{option} cannot be combined with {cause}: {reason}. Remove {option}, or {instead}")


def _refuse_content(at: Combination, kind: type[Transform]) -> None:
    """Refuse a transform if the method does not send what it acts on."""
    contents, content = kind.acts_on, at.algorithm.traits.message_content
    if contents is None or content in contents:
        return
    option = at.channel.option_texts[kind.name]
    expected = " or ".join(content.name for content in contents)
    suggestion = suggest_methods(lambda method: method.traits.message_content in contents)
    raise ExperimentError(
        f"{option} cannot be combined with {at.algorithm.name}: the content of its messages is {content.name}; "
        f"expected {expected}. Remove {option}, or use {suggestion}"
    )
