"""Channel of a run: the transforms that its messages pass, from the options to the summary metrics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.registry import PluginTransforms, iter_selectable
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
from p2pkm.data.shards import Shards
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

# A selected transform, and its settings.
Part = tuple[type[Transform], Settings]


class ChannelPlan(NamedTuple):
    """Transforms of a run with their settings, in the order in which a message passes them.

    Attributes
    ----------
    parts : tuple of (type, mapping)
    option_texts : mapping of str to str
        By the name of each transform: the option that selects it, as on the command line.
    """

    parts: tuple[Part, ...] = ()
    option_texts: Mapping[str, str] = {}

    def place(self, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None) -> "ChannelPlan":
        """Bind the plan to a graph; see `PlacedOnGraph.place` for parameters and errors."""
        if topology.varying is not None:
            cause = f"the graph {topology.varying.name}, whose links change from round to round"
            for kind, _ in self.parts:
                _reject(kind, Condition.CHANGING_LINKS, self.option_texts[kind.name], cause, "use a static graph")
        placed = [
            (kind, kind.place(settings, topology, seed, arrays) if issubclass(kind, PlacedOnGraph) else settings)
            for kind, settings in self.parts
        ]
        return self._replace(parts=tuple((kind, settings) for kind, settings in placed if settings is not None))

    def to_arrays(self) -> dict[str, Any]:
        """Collect the arrays that other ranks need to place the plan."""
        placed = [(kind, settings) for kind, settings in self.parts if issubclass(kind, PlacedOnGraph)]
        return {name: part for kind, settings in placed for name, part in kind.to_arrays(settings).items()}

    def prepare(self, at: InitContext) -> tuple[Stage, ...]:
        """Return the stages that the transforms add before the initialization."""
        placed = [(kind, settings) for kind, settings in self.parts if issubclass(kind, PlacedOnGraph)]
        return tuple(stage for kind, settings in placed for stage in kind.prepare(settings, at))

    def build(self, scope: RunScope) -> "Channel":
        """Build the channel of this rank."""
        return Channel(tuple(
            kind.build(settings, scope) if issubclass(kind, PlacedOnGraph) else kind(**settings)
            for kind, settings in self.parts
        ))  # fmt: skip

    def find(self, name: str) -> Settings | None:
        """Return the settings of a transform, None if it is not selected."""
        return next((settings for kind, settings in self.parts if kind.name == name), None)


def plan_channel(options: Settings, algorithm: Any) -> ChannelPlan:
    """Plan the transforms that the options of a run select.

    Parameters
    ----------
    options : mapping of str to object
        Options by name, such as the fields of `RunOptions`. Options that no transform reads are ignored. Missing
        options have their defaults.
    algorithm : Algorithm or ServerMethod

    Raises
    ------
    ExperimentError
        If an option cannot be read, two of them cannot be combined, or the method cannot be run with a transform.
    """
    configured = [(kind, kind.configure(options)) for kind in iter_selectable(options)]
    plugins: PluginTransforms | None = options.get("transforms")
    configured += [(kind, kind.configure(spec.options)) for kind, spec in (plugins.parts if plugins else ())]
    parts = [(kind, settings) for kind, settings in configured if settings is not None]
    option_texts = {kind.name: _format_option(kind, options) for kind, _ in parts}
    _check_combinations(parts, option_texts, options, algorithm)
    for kind, settings in parts:
        kind.check(settings, algorithm)
    return ChannelPlan(tuple(sorted(parts, key=lambda part: (part[0].order, part[0].name))), option_texts)


def reads_late(options: Settings, algorithm: Any) -> bool:
    """Check whether messages arrive late because devices act by simulated time."""
    return options.get("link_model") is not None and algorithm is not None and algorithm.schedule == "async"


def _format_option(kind: type[Transform], options: Settings) -> str:
    """Format the option that selects a transform, as on the command line."""
    value = kind.name if kind.option == "transforms" else options.get(kind.option)
    return f"--{kind.option.replace('_', '-')} {value}"


def _check_combinations(
    parts: Sequence[Part], option_texts: Mapping[str, str], options: Settings, algorithm: Any
) -> None:
    """Validate that no declared incompatibility applies; `ChannelPlan.place` checks those with time-varying links."""
    conditions = list(_find_conditions(options, algorithm))
    for kind, _ in parts:
        for other, settings in parts:
            for condition in _list_effects(other, settings) if other is not kind else ():
                other_text = option_texts[other.name]
                _reject(kind, condition, option_texts[kind.name], other_text, f"remove {other_text}")
        for condition, cause, instead in conditions:
            _reject(kind, condition, option_texts[kind.name], cause, instead)


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
    is_effective = kind.disturbs(settings) or kind.order is Order.PERTURB
    changes = is_effective and kind.order in (Order.PERTURB, Order.REPLACE)
    lossy = [Condition.LOSSY_LINKS] * kind.delays
    return [kind.name] * is_effective + lossy + [Condition.CHANGED_MESSAGES] * changes


def _reject(kind: type[Transform], condition: Condition | str, option: str, cause: str, instead: str) -> None:
    """Raise an error if a transform is incompatible with a condition; instead: an alternative to removing it."""
    reason = kind.incompatible_with.get(condition)
    if reason is not None:
        raise ExperimentError(f"{option} cannot be combined with {cause}: {reason}. Remove {option}, or {instead}")


class Channel:
    """Transforms of a run on this rank.

    Attributes
    ----------
    transforms : tuple of Transform
        In the order in which messages pass them.
    """

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        self.transforms = tuple(transforms)
        self._reshaping = [part for part in self.transforms if isinstance(part, ReshapesMethod)]

    @property
    def delays(self) -> bool:
        """Whether messages may be late or lost in the method's stage."""
        return any(transform.delays for transform in self.transforms)

    @property
    def exposes(self) -> bool:
        """Whether messages may be late or lost in stages before the method, too."""
        return any(transform.exposes for transform in self.transforms)

    @property
    def alters(self) -> bool:
        """Whether a transform may change messages, so that no descent is claimed."""
        return any(transform.alters for transform in self.transforms)

    @property
    def left_out(self) -> Integers:
        """Ids of the devices that are excluded from scores, ascending."""
        empty = np.zeros(0, np.int64)
        return find_distinct(np.concatenate([empty, *(transform.left_out for transform in self.transforms)]))

    @property
    def checkpointed(self) -> dict[str, Transform]:
        """Transforms by name, whose state belongs to checkpoints."""
        return {transform.name: transform for transform in self.transforms}

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with the fields that methods need to know of the channel."""
        return reduce(lambda batch, transform: transform.equip(batch), self._reshaping, devices)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that tolerates the channel."""
        return reduce(lambda method, transform: transform.adapt(method, topology), self._reshaping, algorithm)

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> list[str]:
        """Prepare all transforms for the next stages, see `Transform.start`; return notes for the user."""
        for transform in self.transforms:
            transform.start(stages, devices, network)
        return [note for transform in self.transforms for note in transform.notes(stages)]

    def begin(self, stage: Stage, number: int = SCALING, *, closing: bool = False) -> "StageChannel":
        """Return the transforms that act in a stage; closing: whether it is the method's own stage."""
        active = (transform.begin(stage, closing=closing) for transform in self.transforms)
        return StageChannel(tuple(transform for transform in active if transform is not None), number)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary metrics of all transforms."""
        return {key: value for transform in self.transforms for key, value in transform.figures(network).items()}

    def results(self, shards: Shards, network: Network) -> dict[str, Any]:
        """Return arrays of all transforms for the `Result`; shards: points of the local devices."""
        parts = [transform.results(shards, network) for transform in self.transforms]
        return {key: value for part in parts for key, value in part.items()}


class StageChannel(NamedTuple):
    """Transforms that act in one stage, and the number of the stage."""

    transforms: tuple[Transform, ...]
    number: int

    @property
    def delay_model(self) -> Any:
        """Transform that delays messages, a `p2pkm.network.delay_model.DelayModel`; None if messages are never late."""
        return next((transform for transform in self.transforms if transform.delays), None)

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return algorithm and schedule as they run under the channel."""
        for transform in self.transforms:
            if isinstance(transform, ReshapesMethod):
                algorithm, schedule = transform.wrap(algorithm, schedule, network)
        return algorithm, schedule

    def send(self, compute: Callable[[Any, Devices], Messages], state: Any, devices: Devices) -> Messages:
        """Compute the messages of the devices, and apply the transforms; compute: `message` of the method."""
        messages, context = compute(state, devices), Context(self.number, devices, state)
        # Transforms may replace the array, so the network must not read the sender's array without a copy. They may
        # also silence devices.
        if self.transforms and isinstance(messages, DenseMessages):
            messages = messages._replace(is_stable=False, senders=None)
        for transform in self.transforms:
            messages = _keep_wire_true(messages, transform.outgoing(messages, context))
        return messages

    def receive(self, inbox: Inbox | Delivery, state: Any, devices: Devices) -> Any:
        """Apply the transforms to the inbox that the devices read."""
        context = Context(self.number, devices, state)
        for transform in self.transforms:
            inbox = transform.incoming(inbox, context)
        return inbox


def _keep_wire_true(before: Messages, after: Messages) -> Messages:
    """Reset the encoded lengths of messages that a transform changed without new lengths: 8 bytes per value count."""
    if after is before or after.wire is None or after.wire is not before.wire:
        return after
    # The first two fields hold the contents: values and rows, or senders and tables of sparse messages.
    is_unchanged = all(new is old for new, old in zip(after[:2], before[:2], strict=True))
    return after if is_unchanged else after._replace(wire=None)
