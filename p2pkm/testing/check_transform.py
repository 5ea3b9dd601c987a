"""Conformance checks for transforms: `check_transform`, the counterpart of `check_method`."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np

from p2pkm.channel.pipeline import plan_channel
from p2pkm.channel.registry import TRANSFORMS, PluginTransforms
from p2pkm.channel.registry import find as find_transform
from p2pkm.channel.transform import (
    Context,
    Order,
    PlacedOnGraph,
    ReshapesMethod,
    SavesItself,
    Transform,
    check_declaration,
)
from p2pkm.core.batch import Integers
from p2pkm.core.contract import check_transformed
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.spec import Spec
from p2pkm.core.traits import Condition
from p2pkm.engine.build_run import build_run
from p2pkm.engine.conflicts import Combination, refuse_transforms
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.init.pipelines import needs_hub, place_graph
from p2pkm.methods.registry import find
from p2pkm.methods.schedules import make
from p2pkm.metrics.registry import summary_keys
from p2pkm.network.graph import Topology
from p2pkm.testing.laws import (
    BYTES_PER_NUMBER,
    describe_part,
    list_differing,
    on_part,
    resume_everywhere,
    unchanged,
)
from p2pkm.testing.outer_variables import find_written, hash_outer
from p2pkm.testing.parts import (
    Part,
    divide,
    list_messages,
    receive_part,
    renumber,
    same_bits,
    select_part,
    slice_state,
)
from p2pkm.testing.recording import PlayedRun
from p2pkm.testing.trial import (
    CLUSTERS,
    SIZES,
    CheckError,
    CheckpointsInMemory,
    choose_checks,
    place_points,
    play_run,
    run_checks,
    trial_start,
)

_SEED, _ROUNDS = 3, 6
# Methods on which a transform is checked: the first one that it accepts.
_METHODS = ("gtvmin", "consensus", "fkm", "coreset")
_SELECTS_LINKS = "gossip"
_LOSS = "loss=0.5"
# Of the check "bytes": relative change of all messages, so that numbers computed from them change in their last digits.
_BLUR = 1e-9
_FIRST = ("declaration", "runs")  # if one of these fails, later checks are not meaningful


def check_transform(
    transform: type[Transform],
    method: Any = None,
    graph: Any = None,
    *,
    options: Mapping[str, Any] | None = None,
    only: str | Collection[str] = (),
    skip: str | Collection[str] = (),
) -> tuple[str, ...]:
    """Check that a transform satisfies the contract of all transforms.

    Runs of 6 rounds on 8 devices are made with and without it, which takes about a second. In a test:
    ``def test_it(): p2pkm.check_transform(MyTransform)``.

    Parameters
    ----------
    transform : type
        Subclass of `p2pkm.channel.transform.Transform`.
    method : Algorithm or ServerMethod, optional
        Method of the runs; None: the first of gtvmin, consensus, fkm and coreset that the transform accepts. Set it for
        a transform that is meant for another one.
    graph : networkx.Graph, optional
        Graph of 8 nodes; None: a ring. Server methods use their star.
    options : mapping, optional
        Keyword parameters of the transform; None: its defaults. Of a transform that `configure` reads from options of
        the run, as those of this package: these options, such as ``{"noise": 0.1}``.
    only, skip : str or collection of str, optional
        Names of the checks to run (default: all) and to omit:

        - ``"declaration"``: base class, name, position, mixins, and `acts_on` if it changes messages.
        - ``"runs"``: a run ends without an exception, and messages have the shapes of `p2pkm.core.messages`.
        - ``"inputs"``: `outgoing` and `incoming` write neither into their arguments nor into lists, dicts, sets and
          arrays of their module or class.
        - ``"effect"``: messages, results or figures differ from those of a run without it.
        - ``"repeatable"``: two runs with the same seed are bit-identical.
        - ``"parts"``: results for a batch and for its parts are bit-identical. Transforms that inherit `PlacedOnGraph`
          are not compared, because they may share values between the ranks of the whole graph; run them on several
          ranks.
        - ``"resume"``: runs resumed from each checkpoint are bit-identical to an uninterrupted run.
        - ``"lossy-links"``: if messages may be lost, no message needs the messages before it, see
          `Transform.handles_loss`. With one of the mixins, only that a run with losses ends without an exception.
        - ``"bytes"``: all that is sent is counted: more columns of the header come with encoded bytes, and these
          suffice for the numbers of a table that follow every small change, unless receivers need earlier tables
          (``Condition.LOSSY_LINKS`` is excluded). Transforms with one of the mixins are not compared.
        - ``"selected-links"``: with messages over selected links it has an effect, or refuses the method.
        - ``"figures"``: keys are new, and values are numbers, text or None.

    Returns
    -------
    tuple of str
        Names of the checks that were run.

    Raises
    ------
    CheckError
        If a check fails. This AssertionError has one line for each failed check: the violation, the rule, and a way to
        fix it.
    ExperimentError
        If a check is unknown, or no run can be set up with the transform.

    Examples
    --------
    >>> import p2pkm
    >>> from p2pkm.channel.transform import Order, Transform
    >>> from p2pkm.core.traits import MessageContent
    >>> class Halves(Transform):
    ...     name, order, acts_on = "halves", Order.PERTURB, (MessageContent.CENTROIDS,)
    ...
    ...     def outgoing(self, messages, context):
    ...         return messages._replace(values=messages.values / 2)
    >>> p2pkm.check_transform(Halves, only=("effect", "parts"))
    ('effect', 'parts')
    """
    checked = getattr(transform, "__name__", repr(transform))
    names = choose_checks(CHECKS, only, skip)
    settings = dict(options or {})
    if not _is_built_in(transform):
        try:
            check_declaration(transform, getattr(transform, "name", checked))
        except ContractError as error:
            raise CheckError(checked, {"declaration": str(error)}) from None
    if transform.configure(settings) is None:
        raise ExperimentError(
            f"options {settings} do not select {checked}; expected those of a run that do, such as "
            f"--{transform.option}. Use check_transform({checked}, options={{'{transform.option}': ...}})"
        )
    outer = hash_outer(transform)
    is_chosen = method is None
    if is_chosen:
        method = _choose_method(transform, settings)
    trial = _Trial(transform, settings, method, graph, outer, is_chosen)
    return run_checks(checked, CHECKS, names, trial, _FIRST)


def _is_built_in(kind: Any) -> bool:
    """Return whether a transform is one of this package: selected by an option of its own, with metrics of its own."""
    return kind in map(find_transform, TRANSFORMS)


def _build(kind: type[Transform], options: dict[str, Any]) -> Transform:
    """Build a transform without a graph from its options."""
    return kind(**(kind.configure(options) or {}))


def _choose_method(kind: type[Transform], options: dict[str, Any]) -> Any:
    """Return the first method that the transform accepts."""
    refused: ExperimentError | None = None
    for name in _METHODS:
        method = find(name)(CLUSTERS)
        try:
            asked = {"transforms": _select(kind, options)}
            refuse_transforms(Combination(method, asked, plan_channel(asked)))
        except ExperimentError as error:
            refused = refused or error
        else:
            return method
    raise ExperimentError(
        f"no method is given, and {kind.__name__} refuses those that it would be tried with, {_METHODS[0]} because: "
        f"{str(refused).removesuffix('.')}. Give a method that it is for: check_transform({kind.__name__}, MyMethod(3))"
    )


def _select(kind: type[Transform], options: dict[str, Any]) -> PluginTransforms:
    return PluginTransforms(((kind, Spec(kind.name, options)),))


class _Call(NamedTuple):
    """Call of `outgoing`: its stage, arguments and result."""

    stage: int
    messages: Any
    context: Context
    sent: Any


class _Observer:
    """Calls of a transform in one run: violations, and what `outgoing` received and returned.

    Attributes
    ----------
    findings : dict of str to str
        First violation found by each check.
    calls : list
        Calls of `outgoing` with dense messages.
    stages : list
        Arguments of `begin`, in the order of the stages in which the transform acts.
    started : tuple
        Arguments of `start`.
    parts : list
        Parts of the batch, each with a separate transform.
    figures : dict
        Result of `figures`.
    colors : int64[N]
        Color of each device of the system, for schedules of parts.
    """

    def __init__(self) -> None:
        self.findings: dict[str, str] = {}
        self.calls: list[_Call] = []
        self.stages: list[tuple[Any, bool]] = []
        self.started: tuple[Any, ...] = ()
        self.parts: list[tuple[Part, Transform]] = []
        self.figures: dict[str, Any] = {}
        self.colors: Integers = np.zeros(0, np.int64)

    def note(self, check: str, text: str) -> None:
        """Store the first violation of a check."""
        self.findings.setdefault(check, text)


def _observe(kind: type[Transform], options: dict[str, Any], observer: _Observer) -> type[Transform]:
    """Return a subclass of a transform whose calls are observed and repeated for the parts of the batch."""
    # A transform that is placed on the graph is built from the graph, and may share values between all ranks.
    is_divided = not issubclass(kind, PlacedOnGraph)

    class Observed(kind):  # type: ignore[misc, valid-type]
        def start(self, stages: Any, devices: Any, network: Any) -> None:
            super().start(stages, devices, network)
            observer.started = stages, devices, network
            if is_divided:
                observer.parts = observer.parts or [(part, _build(kind, options)) for part in divide(devices)]
            for part, transform in observer.parts:
                with on_part(observer.findings, "start", part):
                    transform.start(stages, select_part(devices, part), network)

        def begin(self, stage: Any, *, closing: bool) -> Any:
            active = super().begin(stage, closing=closing)
            observer.stages.append((stage, closing))
            for part, transform in observer.parts:
                with on_part(observer.findings, "begin", part):
                    transform.begin(stage, closing=closing)
            return active

        def outgoing(self, messages: Any, context: Context) -> Any:
            with _noting_written(observer, "outgoing", messages=messages, context=context):
                sent = super().outgoing(messages, context)
            check_transformed(kind.__name__, messages, sent, context.devices)
            if isinstance(messages, DenseMessages) and isinstance(sent, DenseMessages):
                observer.calls.append(_Call(len(observer.stages) - 1, messages, context, sent))
                for part, transform in observer.parts:
                    with on_part(observer.findings, "outgoing", part):
                        again = transform.outgoing(_cut(messages, part), _cut_context(context, part))
                        expected = list_messages(sent, part)
                        _compare(observer, "outgoing", expected, list_messages(again, renumber(part)), part)
            return sent

        def incoming(self, inbox: Any, context: Context) -> Any:
            with _noting_written(observer, "incoming", inbox=inbox, context=context):
                read = super().incoming(inbox, context)
            if isinstance(inbox, Inbox) and isinstance(read, Inbox):
                for part, transform in observer.parts:
                    with on_part(observer.findings, "incoming", part):
                        received = receive_part(inbox, None, part, context.devices)
                        again = transform.incoming(received, _cut_context(context, part))
                        expected = _read_edges(read, part.edges)
                        _compare(observer, "incoming", expected, _read_edges(again, renumber(part).edges), part)
            return read

        def figures(self, network: Any) -> dict[str, Any]:
            observer.figures = super().figures(network)
            return observer.figures

    observed: type[Transform] = Observed
    if issubclass(kind, ReshapesMethod):
        observed = _observe_reshaping(Observed, partial(_build, kind, options), observer)
    observed.__name__, observed.__module__ = kind.__name__, kind.__module__
    return observed


def _observe_reshaping(kind: Any, build: Callable[[], Transform], observer: _Observer) -> type[Transform]:
    """Return a subclass of an observed transform that repeats the hooks of `ReshapesMethod` for the parts, too.

    build: builds the transform of a part, which is not observed.
    """

    class Reshaping(kind):  # type: ignore[misc]
        def equip(self, devices: Any) -> Any:
            if not issubclass(kind, PlacedOnGraph):
                observer.parts = [(part, build()) for part in divide(devices)]
            for part, transform in observer.parts:
                with on_part(observer.findings, "equip", part):
                    cast("ReshapesMethod", transform).equip(select_part(devices, part))
            return super().equip(devices)

        def adapt(self, algorithm: Any, topology: Any) -> Any:
            observer.colors = topology.colors
            for part, transform in observer.parts:
                with on_part(observer.findings, "adapt", part):
                    cast("ReshapesMethod", transform).adapt(algorithm, topology)
            return super().adapt(algorithm, topology)

        def wrap(self, algorithm: Any, schedule: Any, network: Any) -> Any:
            _, devices, _ = observer.started
            for part, transform in observer.parts:
                with on_part(observer.findings, "wrap", part):
                    own = make(algorithm.schedule, select_part(devices, part), observer.colors)
                    cast("ReshapesMethod", transform).wrap(algorithm, own, network)
            return super().wrap(algorithm, schedule, network)

    return Reshaping


@contextmanager
def _noting_written(observer: _Observer, function: str, **arguments: Any) -> Iterator[None]:
    """Note the first argument that a function writes into."""
    with unchanged(**arguments) as written:
        yield
    for name in written[:1]:
        observer.note(
            "inputs",
            f"{function} wrote into {name}, which the method still uses; change a copy, and return "
            f"messages._replace(values=...): {name}.copy()",
        )


def _compare(observer: _Observer, function: str, expected: list[Any], actual: list[Any], part: Part) -> None:
    """Note a result for a part that is not bit-identical to that for the full batch."""
    difference = describe_part(function, "tables", expected, actual, part)
    if difference:
        observer.note(
            "parts",
            f"{difference}. Treat each device separately, use context.devices.ids instead of positions, and "
            "context.draw for random numbers",
        )


def _cut(messages: DenseMessages, part: Part) -> DenseMessages:
    """Return the messages of a part."""
    i = part.positions
    return messages._replace(
        values=messages.values[i],
        rows=messages.rows[i],
        edges=None if messages.edges is None else messages.edges[part.edges],
        malformed=None if messages.malformed is None else messages.malformed[i],
        wire=None if messages.wire is None else messages.wire[i],
        senders=None,
    )


def _cut_context(context: Context, part: Part) -> Context:
    """Return the context of a part."""
    devices = select_part(context.devices, part)
    return Context(context.stage, devices, slice_state(context.state, part, context.devices))


def _read_edges(inbox: Inbox, edges: Any) -> list[Any]:
    """List the table that is read over each edge."""
    counts = inbox.rows_of(edges)
    return [inbox.tables[inbox.slots[edge], : max(count, 0)] for edge, count in zip(edges, counts, strict=True)]


@dataclass(frozen=True)
class _Trial:
    """Trial runs with a transform, each of which is made at most once and used by several checks."""

    kind: type[Transform]
    options: dict[str, Any]
    method: Any
    graph: Any
    outer: dict[str, str]
    is_chosen: bool = False

    @property
    def remedy(self) -> str:
        """Advice to give a method, if it was chosen here; empty if the user has given it."""
        if not self.is_chosen:
            return ""
        kind = self.kind.__name__
        return (
            f". It was tried with {self.method.name}, because no method was given; if it is meant for another one, use "
            f"check_transform({kind}, MyMethod(3))"
        )

    @cached_property
    def topology(self) -> Topology:
        """Graph of the run; the star for a server method."""
        return self._place(self.method)

    def _place(self, method: Any) -> Topology:
        from topologies import ring

        n = len(SIZES)
        if needs_hub(method):
            return place_graph(method, None, n)
        return place_graph(method, ring(n) if self.graph is None else self.graph, n)

    def play(
        self,
        kind: type[Transform],
        *,
        method: Any = None,
        faults: str | None = None,
        checkpoints: CheckpointsInMemory | None = None,
        saved: Any = None,
    ) -> PlayedRun:
        """Run the method with a transform.

        Raises
        ------
        ExperimentError
            If the run is refused.
        CrashError
            If it ends with another exception.
        """
        method = self.method if method is None else method
        topology = self.topology if method is self.method else self._place(method)
        shards = place_points(topology)
        start = trial_start(method, topology)
        options = RunOptions(
            rounds=_ROUNDS,
            seed=_SEED,
            baselines=False,
            quantize="none",
            transforms=_select(kind, self.options if kind is not self.idle else {}),
            faults=faults,
            start=start,
        )
        return play_run(
            build_run(method, options, topology, shards),
            shards,
            start,
            what="the run" if faults is None else f"the run with faults {faults}",
            advice="Run it with p2pkm.simulate(..., transforms=...) to see the traceback",
            read_only="Arguments, and arrays that __init__ assigned, are read-only: work on a copy",
            refusals=(ExperimentError,),
            checkpoints=checkpoints,
            saved=saved,
        )

    @cached_property
    def observer(self) -> _Observer:
        """Calls of the transform in a run of the method."""
        observer = _Observer()
        self.play(_observe(self.kind, self.options, observer))
        return observer

    @cached_property
    def plain(self) -> PlayedRun:
        """Run with the transform."""
        return self.play(self.kind)

    @cached_property
    def without(self) -> PlayedRun:
        """Run without the transform."""
        return self.play(self.idle)

    @cached_property
    def idle(self) -> type[Transform]:
        """Transform of the same position that does nothing: defaults of methods depend on the position."""
        facts = {name: getattr(self.kind, name) for name in ("order", "acts_on", "incompatible_with")}
        return type("Idle", (Transform,), {"name": "idle", **facts})


def _check_runs(trial: _Trial) -> str:
    try:
        # The observer finds a wrong shape before the network does.
        _ = trial.observer, trial.plain
    except ExperimentError as error:
        return f"the run was refused: {str(error).removesuffix('.')}{trial.remedy}"
    return ""


def _check_inputs(trial: _Trial) -> str:
    if "inputs" in trial.observer.findings:
        return trial.observer.findings["inputs"]
    written = find_written(trial.kind, trial.outer)
    return written and (
        f"a run changed {written}, which no checkpoint contains, and which each rank has for itself. Assign it to an "
        "attribute of the transform after __init__"
    )


def _find_effect(changed: PlayedRun, plain: PlayedRun) -> bool:
    """Return whether anything differs between a run with a transform and one without."""
    sent = [[exchange.sent for exchange in played.exchanges] for played in (changed, plain)]
    added = changed.result.summary.keys() - plain.result.summary.keys()
    return sent[0] != sent[1] or changed.bits["centroids"] != plain.bits["centroids"] or bool(added)


def _check_effect(trial: _Trial) -> str:
    if _find_effect(trial.plain, trial.without):
        return ""
    return (
        "messages, results and summary are those of a run without it; a transform must do something, or refuse the "
        "method. Return the changed messages from outgoing (or incoming), check that begin returns self, and let "
        f"figures return what an observer found{trial.remedy}"
    )


def _check_repeatable(trial: _Trial) -> str:
    names = ", ".join(list_differing(trial.plain, trial.play(trial.kind)))
    return names and (
        f"{names} differed when the run was repeated; runs with the same seed must be bit-identical. Draw random "
        "numbers with context.draw(self.purpose, ids, count), and store nothing in the class or in global variables"
    )


def _check_resume(trial: _Trial) -> str:
    resumed = resume_everywhere(partial(trial.play, trial.kind), trial.topology)
    if resumed.obstacle:
        return f"no checkpoint can be written: {resumed.obstacle}"
    return resumed.names and (
        f"{resumed.names} of runs resumed from {resumed.wrong} of {resumed.all} checkpoints differ from those of an "
        "uninterrupted run; they must be bit-identical. Assign everything that the next round needs to attributes of "
        "the transform after __init__ (self.total = self.total + new), nothing to the class, to an object in place, or "
        "to a name in `prepared`"
    )


def _check_lossy_links(trial: _Trial) -> str:
    if Condition.LOSSY_LINKS in trial.kind.incompatible_with:
        return ""
    # Method or transform may refuse faults.
    with suppress(ExperimentError):
        trial.play(trial.kind, faults=_LOSS)
    if trial.kind.handles_loss or issubclass(trial.kind, (PlacedOnGraph, ReshapesMethod, SavesItself)):
        return ""
    observer = trial.observer
    for number, call in enumerate(observer.calls):
        fresh = _build(trial.kind, trial.options)
        fresh.start(*observer.started)
        stage, closing = observer.stages[call.stage]
        fresh.begin(stage, closing=closing)
        n = len(call.context.devices)
        everything = Part(np.arange(n), np.arange(len(call.context.devices.indices)))
        again = fresh.outgoing(call.messages, call.context)
        differing = [
            device
            for device, (a, b) in enumerate(
                zip(list_messages(call.sent, everything), list_messages(again, everything), strict=True)
            )
            if not same_bits(a, b)
        ]
        if differing:
            return (
                f"the table that device {differing[0]} sent in its exchange {number} depends on tables that it sent "
                "before; if one of these is lost, a receiver cannot read it. Add incompatible_with = "
                "REFERENCES_AT_BOTH_ENDS (or at least Condition.LOSSY_LINKS), so that such runs are refused; or, if "
                "receivers need no earlier table, declare handles_loss = True"
            )
    return ""


def _check_bytes(trial: _Trial) -> str:
    observer = trial.observer
    for number, call in enumerate(observer.calls):
        if call.sent.header > call.messages.header and call.sent.wire is None:
            return (
                f"in exchange {number} the header has {call.sent.header} columns, {call.messages.header} before, whose "
                "bytes are not counted; expected as many. Leave header unchanged, or declare the encoded bytes of each "
                "table (wire)"
            )
    if Condition.LOSSY_LINKS in trial.kind.incompatible_with:
        return ""
    if issubclass(trial.kind, (PlacedOnGraph, ReshapesMethod, SavesItself)):
        return ""
    for number, (call, first, second) in enumerate(
        zip(observer.calls, _replay(trial), _replay(trial, blur=_BLUR), strict=True)
    ):
        if second.wire is None or first.values.shape != second.values.shape:
            continue
        for device in np.flatnonzero((first.rows > 0) & (first.rows == second.rows)):
            rows = slice(first.rows[device])
            numbers = int(np.count_nonzero(first.values[device, rows] != second.values[device, rows]))
            if second.wire[device] < BYTES_PER_NUMBER * numbers:
                return (
                    f"device {call.context.devices.ids[device]} declared {second.wire[device]} encoded bytes (wire) in "
                    f"exchange {number} for a table of {numbers} numbers that follow changes of the messages by "
                    f"{_BLUR:g}, this one or earlier ones; expected at least {BYTES_PER_NUMBER} bytes for each of "
                    "them, unless receivers need the tables before. Compute wire from what a receiver needs to read "
                    "the table alone, or declare incompatible_with = REFERENCES_AT_BOTH_ENDS in place of handles_loss"
                )
    return ""


def _replay(trial: _Trial, blur: float = 0.0) -> Iterator[Any]:
    """Send all messages of the run again through a new transform, each number changed by a share of about `blur`."""
    observer, stage, rng = trial.observer, -1, np.random.default_rng(0)
    for call in observer.calls:
        if call.stage != stage:
            stage, replayed = call.stage, _build(trial.kind, trial.options)
            replayed.start(*observer.started)
            begun, closing = observer.stages[stage]
            replayed.begin(begun, closing=closing)
        values = call.messages.values * (1.0 + blur * rng.normal(size=call.messages.values.shape))
        yield replayed.outgoing(call.messages._replace(values=values), call.context)


def _check_selected_links(trial: _Trial) -> str:
    method = find(_SELECTS_LINKS)(CLUSTERS)
    try:
        changed = trial.play(trial.kind, method=method)
    except ExperimentError:
        return ""
    if trial.kind.order is Order.OBSERVE or _find_effect(changed, trial.play(trial.idle, method=method)):
        return ""
    return (
        f"it did nothing in a run of {_SELECTS_LINKS}, whose messages are sent over selected links "
        "(DenseMessages.edges), and said nothing. Treat such messages, or refuse them: raise "
        "p2pkm.core.errors.ExperimentError in outgoing if messages.edges is not None, as References.find does"
    )


def _check_figures(trial: _Trial) -> str:
    figures = trial.observer.figures
    known = set(summary_keys())
    for key, value in figures.items():
        if key in known and not _is_built_in(trial.kind):
            return (
                f"figures returns the key {key!r}, which exists in every summary and would be overwritten; use another "
                f"key, such as {trial.kind.name.replace('-', '_')}_{key}"
            )
        if not isinstance(value, (int, float, str, bool, type(None))):
            return f"figures returns {type(value).__name__} for {key!r}; expected a number, text or None"
    return ""


CHECKS: Mapping[str, Callable[[_Trial], str]] = {
    # Checked before the trial is set up, because a transform without a declaration cannot run.
    "declaration": lambda trial: "",
    "runs": _check_runs,
    "inputs": _check_inputs,
    "effect": _check_effect,
    "repeatable": _check_repeatable,
    "parts": lambda trial: trial.observer.findings.get("parts", ""),
    "resume": _check_resume,
    "lossy-links": _check_lossy_links,
    "bytes": _check_bytes,
    "selected-links": _check_selected_links,
    "figures": _check_figures,
}
