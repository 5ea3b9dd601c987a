"""Channel of a run: the transforms that its messages pass, from the options to the summary metrics."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.references import References
from p2pkm.channel.registry import PluginTransforms, iter_selectable
from p2pkm.channel.registry import find as find_transform
from p2pkm.channel.saved_attributes import SavedAttributes
from p2pkm.channel.transform import (
    REFERENCES_AT_BOTH_ENDS,
    SCALING,
    Context,
    Messages,
    PlacedOnGraph,
    ReshapesMethod,
    RunScope,
    SavesItself,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.contract import check_transformed
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import Delivery, DenseMessages, Inbox
from p2pkm.core.sorting import find_distinct
from p2pkm.core.states import Checkpointable
from p2pkm.core.traits import Condition
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
        By the name of each transform: the option that selects it, as on the command line. In the order of the options,
        in which `p2pkm.engine.conflicts` checks them.
    """

    parts: tuple[Part, ...] = ()
    option_texts: Mapping[str, str] = {}

    def plan_addition(self, name: str, options: Settings) -> "ChannelPlan":
        """Return a plan of one further transform of this package."""
        kind = find_transform(name)
        settings = kind.configure(options)
        parts = () if settings is None else ((kind, settings),)
        return ChannelPlan(parts, {name: _format_option(kind, options)})

    def join(self, other: "ChannelPlan") -> "ChannelPlan":
        """Return the transforms of both plans."""
        return ChannelPlan(_sort(self.parts + other.parts), {**self.option_texts, **other.option_texts})

    def place(self, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None) -> "ChannelPlan":
        """Bind the plan to a graph; see `PlacedOnGraph.place` for parameters and errors."""
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


def plan_channel(options: Settings) -> ChannelPlan:
    """Plan the transforms that the options of a run select.

    Parameters
    ----------
    options : mapping of str to object
        Options by name, such as the fields of `RunOptions`. Options that no transform reads are ignored. Missing
        options have their defaults.

    Raises
    ------
    ExperimentError
        If an option cannot be read.
    """
    configured = [(kind, kind.configure(options)) for kind in iter_selectable(options)]
    plugins: PluginTransforms | None = options.get("transforms")
    configured += [(kind, kind.configure(spec.options)) for kind, spec in (plugins.parts if plugins else ())]
    parts = tuple((kind, settings) for kind, settings in configured if settings is not None)
    return ChannelPlan(_sort(parts), {kind.name: _format_option(kind, options) for kind, _ in parts})


def _sort(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return transforms in the order in which a message passes them."""
    return tuple(sorted(parts, key=lambda part: (part[0].order, part[0].name)))


def _format_option(kind: type[Transform], options: Settings) -> str:
    """Format the option that selects a transform, as on the command line."""
    if kind.option == "transforms":
        return f"--transforms {kind.name}"
    option = next((name for name in (kind.option, *kind.further_options) if options.get(name) is not None), kind.option)
    return f"--{option.replace('_', '-')} {options.get(option)}"


class Channel:
    """Transforms of a run on this rank.

    Attributes
    ----------
    transforms : tuple of Transform
        In the order in which messages pass them.
    """

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        self.transforms = tuple(transforms)
        self._saved = {
            transform.name: transform if isinstance(transform, SavesItself) else SavedAttributes(transform)
            for transform in self.transforms
        }
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
    def absent(self) -> Mask | None:
        """Devices that are unavailable in the current round, bool[N]; None without faults."""
        return next((part.absent for part in self.transforms if part.absent is not None), None)

    @property
    def checkpointed(self) -> dict[str, Checkpointable]:
        """States of the transforms by name, which belong to checkpoints."""
        return dict(self._saved)

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
        for saved in self._saved.values():
            if isinstance(saved, SavedAttributes):
                saved.attach(devices)
        return [note for transform in self.transforms for note in transform.notes(stages)]

    def closing_notes(self) -> list[str]:
        """Return the notes of all transforms at the end of the run."""
        return [note for transform in self.transforms for note in transform.closing_notes()]

    def begin(self, stage: Stage, number: int = SCALING, *, closing: bool = False) -> "StageChannel":
        """Return the transforms that act in a stage; closing: whether it is the method's own stage."""
        active = [transform for transform in self.transforms if _begin(transform, stage, closing=closing)]
        return StageChannel(tuple(active), number)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary metrics of all transforms."""
        return {key: value for transform in self.transforms for key, value in transform.figures(network).items()}

    def results(self, shards: Shards, network: Network) -> dict[str, Any]:
        """Return arrays of all transforms for the `Result`; shards: points of the local devices."""
        parts = [transform.results(shards, network) for transform in self.transforms]
        return {key: value for part in parts for key, value in part.items()}


def _begin(transform: Transform, stage: Stage, *, closing: bool) -> bool:
    """Prepare a transform for a stage; return whether it acts in it."""
    if transform.acts_on is not None and stage.algorithm.traits.message_content not in transform.acts_on:
        return False
    active = transform.begin(stage, closing=closing)
    if active is not None and active is not transform:
        raise ContractError(
            f"begin of transform {transform.name} returned {active!r}; expected the transform itself, whose attributes "
            "checkpoints contain, or None if it does not act in the stage"
        )
    if any(isinstance(value, References) for value in vars(transform).values()):
        missing = REFERENCES_AT_BOTH_ENDS.keys() - transform.incompatible_with.keys()
        if allowed := [one.value for one in Condition if one in missing]:
            raise ContractError(
                f"transform {transform.name} keeps References, but can be combined with {', '.join(allowed)}, after "
                "which two ends of a link hold different tables. Add incompatible_with = REFERENCES_AT_BOTH_ENDS"
            )
    return active is not None


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
            changed = transform.outgoing(messages, context)
            # Transforms of this package are covered by tests; those of other packages are checked in every call.
            if not type(transform).__module__.startswith("p2pkm."):
                check_transformed(type(transform).__name__, messages, changed, devices)
            messages = _keep_wire_true(messages, changed)
        return messages

    def receive(self, inbox: Inbox | Delivery, state: Any, devices: Devices) -> Any:
        """Apply the transforms to the inbox that the devices read, in reverse: the last one wrote the messages."""
        context = Context(self.number, devices, state)
        for transform in reversed(self.transforms):
            inbox = transform.incoming(inbox, context)
        return inbox


def _keep_wire_true(before: Messages, after: Messages) -> Messages:
    """Reset the encoded lengths of messages that a transform changed without new lengths: 8 bytes per value count."""
    if after is before or after.wire is None or after.wire is not before.wire:
        return after
    # The first two fields hold the contents: values and rows, or senders and tables of sparse messages.
    is_unchanged = all(new is old for new, old in zip(after[:2], before[:2], strict=True))
    return after if is_unchanged else after._replace(wire=None)
