"""The channel of a run: its transforms in their order, from the options to the figures in the summary."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.registry import TRANSFORMS, PluginTransforms
from p2pkm.channel.transform import (
    SCALING,
    Condition,
    Context,
    Messages,
    Order,
    PlacedOnGraph,
    ReshapesMethod,
    RunScope,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Integers
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Delivery, DenseMessages, Inbox
from p2pkm.core.sorting import find_distinct
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

Part = tuple[type[Transform], Settings]  # a transform that a run asks for


class ChannelPlan(NamedTuple):
    """Transforms of a run with their settings, in the order in which a message passes them.

    Attributes
    ----------
    parts : tuple of (type, mapping)
    asked : mapping of str to str
        By the name of each transform: the option that asks for it, as on the command line.
    """

    parts: tuple[Part, ...] = ()
    asked: Mapping[str, str] = {}

    def place(self, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None) -> "ChannelPlan":
        """Return the plan for a graph; see `PlacedOnGraph.place` for parameters and errors."""
        if topology.varying is not None:
            cause = f"the graph {topology.varying.name}, whose links change from round to round"
            for kind, _ in self.parts:
                _reject(kind, Condition.CHANGING_LINKS, self.asked[kind.name], cause, "use a graph whose links stay")
        placed = [
            (kind, kind.place(settings, topology, seed, arrays) if issubclass(kind, PlacedOnGraph) else settings)
            for kind, settings in self.parts
        ]
        return self._replace(parts=tuple((kind, settings) for kind, settings in placed if settings is not None))

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need to place the plan."""
        placed = [(kind, settings) for kind, settings in self.parts if issubclass(kind, PlacedOnGraph)]
        return {name: part for kind, settings in placed for name, part in kind.to_arrays(settings).items()}

    def prepare(self, at: InitContext) -> tuple[Stage, ...]:
        """Return the stages that run before those of the method."""
        placed = [(kind, settings) for kind, settings in self.parts if issubclass(kind, PlacedOnGraph)]
        return tuple(stage for kind, settings in placed for stage in kind.prepare(settings, at))

    def build(self, scope: RunScope) -> "Channel":
        """Return this rank's channel."""
        return Channel(tuple(
            kind.build(settings, scope) if issubclass(kind, PlacedOnGraph) else kind(**settings)
            for kind, settings in self.parts
        ))  # fmt: skip

    def find(self, kind: type[Transform]) -> Settings | None:
        """Return the settings of a transform, None if the run does not ask for it."""
        return next((settings for known, settings in self.parts if known is kind), None)


def plan_channel(options: Settings, algorithm: Any) -> ChannelPlan:
    """Return the transforms that the options of a run ask for.

    Parameters
    ----------
    options : mapping of str to object
        The options by name, such as the fields of `RunOptions`. Options that no transform reads are ignored; those
        that are missing have their default.

    Raises
    ------
    ExperimentError
        If an option cannot be read, two of them cannot be combined, or the method cannot be run with a transform.
    """
    found = [(kind, kind.configure(options)) for kind in TRANSFORMS.values()]
    plugins: PluginTransforms | None = options.get("transforms")
    found += [(kind, kind.configure(spec.options)) for kind, spec in (plugins.parts if plugins else ())]
    parts = [(kind, settings) for kind, settings in found if settings is not None]
    asked = {kind.name: _spell(kind, options) for kind, _ in parts}
    _check_combinations(parts, asked, options, algorithm)
    for kind, settings in parts:
        kind.check(settings, algorithm)
    return ChannelPlan(tuple(sorted(parts, key=lambda part: (part[0].order, part[0].name))), asked)


def reads_late(options: Settings, algorithm: Any) -> bool:
    """Return whether messages arrive late because devices act by simulated time."""
    return options.get("link_model") is not None and algorithm is not None and algorithm.schedule == "async"


def _spell(kind: type[Transform], options: Settings) -> str:
    """Return the option that asks for a transform, as on the command line."""
    value = kind.name if kind.option == "transforms" else options.get(kind.option)
    return f"--{kind.option.replace('_', '-')} {value}"


def _check_combinations(parts: Sequence[Part], asked: Mapping[str, str], options: Settings, algorithm: Any) -> None:
    """Reject what the transforms declare as incompatible, except links that change: `ChannelPlan.place`."""
    conditions = list(_find_conditions(options, algorithm))
    for kind, _ in parts:
        for other, settings in parts:
            for condition in _list_effects(other, settings) if other is not kind else ():
                _reject(kind, condition, asked[kind.name], asked[other.name], f"remove {asked[other.name]}")
        for condition, cause, instead in conditions:
            _reject(kind, condition, asked[kind.name], cause, instead)


def _find_conditions(options: Settings, algorithm: Any) -> Iterator[tuple[Condition, str, str]]:
    """Yield the conditions of a run that no transform causes, their options, and the way to avoid them."""
    model = f"--link-model {options.get('link_model')}"
    if reads_late(options, algorithm):
        yield Condition.LOSSY_LINKS, f"{model} and --schedule async", "use another schedule"
    if options.get("link_model") is not None:
        yield Condition.LINK_MODEL, model, f"remove {model}"
    if algorithm is not None and algorithm.traits.needs_agreed_start:
        yield Condition.LOCAL_SUMS, "coupling=rehearsal or accept=true", "use --coupling auto and --no-accept"


def _list_effects(kind: type[Transform], settings: Settings) -> list[Condition | str]:
    """Return the conditions that a transform causes, its own name first, most specific first."""
    acts = kind.disturbs(settings) or kind.order is Order.PERTURB
    changes = acts and kind.order in (Order.PERTURB, Order.REPLACE)
    lossy = [Condition.LOSSY_LINKS] * kind.delays
    return [kind.name] * acts + lossy + [Condition.CHANGED_MESSAGES] * changes


def _reject(kind: type[Transform], condition: Condition | str, asked: str, cause: str, instead: str) -> None:
    """Raise an error if a transform is incompatible with a condition; instead: an alternative to removing it."""
    reason = kind.incompatible_with.get(condition)
    if reason is not None:
        raise ExperimentError(f"{asked} cannot be combined with {cause}: {reason}. Remove {asked}, or {instead}")


class Channel:
    """The transforms of a run on this rank.

    Attributes
    ----------
    transforms : tuple of Transform
        In their order.
    """

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        self.transforms = tuple(transforms)
        self._reshaping = [one for one in self.transforms if isinstance(one, ReshapesMethod)]

    @property
    def delays(self) -> bool:
        """Return whether messages may be late or lost in the method's own stage."""
        return any(one.delays for one in self.transforms)

    @property
    def exposes(self) -> bool:
        """Return whether messages may be late or lost before the method, too."""
        return any(one.exposes for one in self.transforms)

    @property
    def alters(self) -> bool:
        """Return whether a transform may change messages, so that no descent is claimed."""
        return any(one.alters for one in self.transforms)

    @property
    def left_out(self) -> Integers:
        """Return the ids of the devices that no score is about, ascending."""
        empty = np.zeros(0, np.int64)
        return find_distinct(np.concatenate([empty, *(one.left_out for one in self.transforms)]))

    @property
    def lasting(self) -> dict[str, Transform]:
        """Return what a checkpoint keeps, by name."""
        return {one.name: one for one in self.transforms}

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with what methods must know of the channel."""
        return reduce(lambda batch, one: one.equip(batch), self._reshaping, devices)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that bears the channel."""
        return reduce(lambda method, one: one.adapt(method, topology), self._reshaping, algorithm)

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> list[str]:
        """Begin with these stages, on devices in their units; return what the user should know."""
        for one in self.transforms:
            one.start(stages, devices, network)
        return [note for one in self.transforms for note in one.notes(stages)]

    def begin(self, stage: Stage, number: int = SCALING, *, closing: bool = False) -> "StageChannel":
        """Return what acts in a stage."""
        active = (one.begin(stage, closing=closing) for one in self.transforms)
        return StageChannel(tuple(one for one in active if one is not None), number)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary figures of the channel."""
        return {key: value for one in self.transforms for key, value in one.figures(network).items()}


class StageChannel(NamedTuple):
    """The transforms that act in one stage, and its number."""

    transforms: tuple[Transform, ...]
    number: int

    @property
    def delay_model(self) -> Any:
        """Return what decides how late messages are, None: they never are."""
        return next((one for one in self.transforms if one.delays), None)

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return algorithm and schedule as they are run under the channel."""
        for one in self.transforms:
            if isinstance(one, ReshapesMethod):
                algorithm, schedule = one.wrap(algorithm, schedule, network)
        return algorithm, schedule

    def send(self, compute: Callable[[Any, Devices], Messages], state: Any, devices: Devices) -> Messages:
        """Return what leaves the devices; compute: `message` of the method."""
        messages, context = compute(state, devices), Context(self.number, devices, state)
        if self.transforms and isinstance(messages, DenseMessages):
            messages = messages._replace(is_stable=False)
        for one in self.transforms:
            messages = _keep_wire_true(messages, one.outgoing(messages, context))
        return messages

    def receive(self, inbox: Inbox | Delivery, state: Any, devices: Devices) -> Any:
        """Return what the devices read."""
        context = Context(self.number, devices, state)
        for one in self.transforms:
            inbox = one.incoming(inbox, context)
        return inbox


def _keep_wire_true(before: Messages, after: Messages) -> Messages:
    """Return what a transform made of messages: at 8 bytes per value if it changed them but not their lengths."""
    if after is before or after.wire is None or after.wire is not before.wire:
        return after
    same = all(one is other for one, other in zip(after[:2], before[:2], strict=True))  # values, rows or who, tables
    return after if same else after._replace(wire=None)
