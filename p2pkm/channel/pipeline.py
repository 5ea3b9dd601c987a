"""The channel of a run: its transforms in their order, from the options to the figures in the summary."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.registry import TRANSFORMS, PluginTransforms
from p2pkm.channel.transform import SCALING, Context, Messages, RunScope, Settings, Transform
from p2pkm.core.batch import Devices, Integers
from p2pkm.core.messages import Delivery, DenseMessages, Inbox
from p2pkm.core.sorting import find_distinct
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network


class ChannelPlan(NamedTuple):
    """The transforms that a run asks for, with their settings, in the order in which a message passes them."""

    parts: tuple[tuple[type[Transform], Settings], ...] = ()

    def place(self, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None) -> "ChannelPlan":
        """Return the plan for a graph; see `Transform.place` for the parameters and what it refuses."""
        placed = [(kind, kind.place(settings, topology, seed, arrays)) for kind, settings in self.parts]
        return ChannelPlan(tuple((kind, settings) for kind, settings in placed if settings is not None))

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need to place the plan."""
        return {name: part for kind, settings in self.parts for name, part in kind.to_arrays(settings).items()}

    def prepare(self, at: InitContext) -> tuple[Stage, ...]:
        """Return the stages that run before those of the method."""
        return tuple(stage for kind, settings in self.parts for stage in kind.prepare(settings, at))

    def build(self, scope: RunScope) -> "Channel":
        """Return this rank's channel."""
        return Channel(tuple(kind.build(settings, scope) for kind, settings in self.parts))

    def find(self, kind: type[Transform]) -> Settings | None:
        """Return the settings of a transform, None: it is not asked for."""
        return next((settings for known, settings in self.parts if known is kind), None)


def plan_channel(options: Settings, algorithm: Any) -> ChannelPlan:
    """Return the transforms that the options of a run ask for.

    Parameters
    ----------
    options : mapping of str to object
        The options by name, such as the fields of `RunOptions`; what no transform knows is left alone, and what is
        missing is as by default.

    Raises
    ------
    ExperimentError
        If an option cannot be read, or the method cannot be run with a transform.
    """
    found = [(kind, kind.configure(options)) for kind in TRANSFORMS.values()]
    plugins: PluginTransforms | None = options.get("transforms")
    found += [(kind, kind.configure(spec.options)) for kind, spec in (plugins.parts if plugins else ())]
    parts = [(kind, settings) for kind, settings in found if settings is not None]
    for kind, settings in parts:
        kind.check(settings, algorithm)
    return ChannelPlan(tuple(sorted(parts, key=lambda part: (part[0].order, part[0].name))))


class Channel:
    """The transforms of a run on this rank.

    Attributes
    ----------
    transforms : tuple of Transform
        In their order.
    """

    def __init__(self, transforms: Sequence[Transform] = ()) -> None:
        self.transforms = tuple(transforms)

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
        return reduce(lambda batch, one: one.equip(batch), self.transforms, devices)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that bears the channel."""
        return reduce(lambda method, one: one.adapt(method, topology), self.transforms, algorithm)

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
            algorithm, schedule = one.wrap(algorithm, schedule, network)
        return algorithm, schedule

    def send(self, compute: Callable[[Any, Devices], Messages], state: Any, devices: Devices) -> Messages:
        """Return what leaves the devices; compute: `message` of the method."""
        messages, context = compute(state, devices), Context(self.number, devices, state)
        if self.transforms and isinstance(messages, DenseMessages):
            messages = messages._replace(standing=False)
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
