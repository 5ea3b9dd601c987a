"""A transform: what happens to messages between the method that sends them and the method that receives them.

A message passes the transforms of a run in their order::

    compute -> outgoing transforms -> ledger -> deliver -> incoming transforms -> compute

A transform sees the messages of one rank's devices at a time and must treat each device by itself: what it does may
depend on the message, the device's own points and id, the place in the run, and draws from its random stream, never on
which other devices are in the batch. Then a run has the same bits on any number of ranks.
"""

import zlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

SCALING = -1  # number of the stage in which the devices agree on a scale
CHOOSING = -2  # and of that in which they choose the number of clusters
_ALWAYS = 2**32 - 1  # number of a draw that stays the same in all rounds
_PLUGINS = 1 << 31  # the purposes of random streams from here on go by the name of a transform

Messages = DenseMessages | SparseMessages
Settings = Mapping[str, Any]


class Order(IntEnum):
    """Places in the list; transforms of the same place act in the order of their names."""

    SUPPRESS = 1  # leave rows out
    PERTURB = 2  # change what an honest device sends
    REPLACE = 3  # send something else instead
    OBSERVE = 4  # look at what is sent
    DELIVER = 5  # lose and delay it
    ACCEPT = 6  # refuse what was received


class Context(NamedTuple):
    """Where in the run a message is sent or read.

    Attributes
    ----------
    stage : int
        Number of the stage, from 0; `SCALING` where the devices agree on a scale before that, `CHOOSING` where they
        choose the number of clusters.
    devices : Devices
        The batch, with its `round`, its `turn` and its `active_devices`.
    state : NamedTuple
        Of the method, after it has computed what it sends, or before it reads.
    """

    stage: int
    devices: Devices
    state: Any

    def draw(self, purpose: int, ids: Integers, count: int, *, always: bool = False) -> Floats:
        """Return draws from [0, 1), float64[len(ids), count], anew in every stage, round and turn.

        Parameters
        ----------
        purpose : int
            Of the random stream: `Transform.purpose`.
        ids : int64[w]
            Ids of the devices that draw; the first draws of a device are the same whatever `count` is.
        always : bool
            Whether a device draws the same numbers in the whole run instead.
        """
        if not len(ids):
            return np.zeros((0, count))
        # A step has 32 bits of the id, 20 of the round, 12 of the turn; a stream 8 more of the round, 9 of the turn, 15
        # of the stage, 32 of the purpose. So draws of up to 2^28 rounds of 2^21 turns differ.
        number, above = _ALWAYS, 0
        if not always:
            round_above, round_below = divmod(self.devices.round, 1 << 20)
            turn_above, turn_below = divmod(self.devices.turn, 1 << 12)
            number = (round_below << 12) + turn_below
            above = (((round_above << 9) + turn_above) << 15) + (self.stage & 0x7FFF)
        steps = (ids.astype(np.uint64) << np.uint64(32)) + np.uint64(number)
        drawn: Floats = uniforms(self.devices.shared_key, purpose + (above << 32), steps, count)
        return drawn


class RunScope(NamedTuple):
    """Where a transform is to act: the batch before any scaling, the network, the whole graph and the seed."""

    devices: Devices
    network: Network
    topology: Topology
    seed: int


class Transform:
    """The base of all transforms: it lets everything pass. A subclass overrides what it needs.

    Before a run, `configure`, `check` and `place` turn the options of the run into settings, the keyword parameters of
    the class; each rank builds its own transform of them. That of a plug-in gets the options of its spec.

    Attributes
    ----------
    name : str
        In the registry, in specs and in checkpoints: lower-case letters, digits and hyphens.
    order : Order
        Its place in the list.
    delays : bool
        Whether messages may be late or lost; it then is the `DelayModel` of each stage in which it acts.
    """

    name: ClassVar[str]
    order: ClassVar[Order]
    delays: ClassVar[bool] = False

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Return what the options of a run ask for, None: nothing of this kind.

        Raises
        ------
        ExperimentError
            If they cannot be read.
        """
        return options

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Refuse a method that this cannot work with, with an ExperimentError; before anything is read or built."""

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings | None:
        """Return the settings for a graph, None: nothing ever happens on it.

        arrays: what `to_arrays` returned on rank 0, which may be alone in reading a file; None: this is rank 0.
        """
        return settings

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return whether messages are changed, late or lost, so that a method by default takes what bears that."""
        return cls.order in (Order.PERTURB, Order.REPLACE, Order.DELIVER)

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Return the stages that run before all others, because the devices have to agree on something first."""
        return ()

    @classmethod
    def to_arrays(cls, settings: Settings) -> dict[str, Any]:
        """Return what other ranks need beside the options."""
        return {}

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> "Transform":
        """Return this rank's transform."""
        return cls(**settings)

    @property
    def purpose(self) -> int:
        """Return the purpose of the random stream, see `Context.draw`."""
        return _PLUGINS + (zlib.crc32(self.name.encode()) & (_PLUGINS - 1))

    @property
    def exposes(self) -> bool:
        """Return whether messages of the stages before the method may be late or lost, too."""
        return False

    @property
    def alters(self) -> bool:
        """Return whether what honest methods send or read may be changed, so that no descent is claimed."""
        return True

    @property
    def left_out(self) -> Integers:
        """Return the ids of devices that no score is about, int64[b]."""
        return np.zeros(0, np.int64)

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with what methods must know of the transform."""
        return devices

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that bears the transform."""
        return algorithm

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Begin with these stages: those of the run, and before them the one that scales, if there is one.

        devices: the batch in the units of these stages.
        """

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Return what the user should know before the stages run."""
        return []

    def begin(self, stage: Stage, *, closing: bool) -> "Transform | None":
        """Return what acts in a stage, None: nothing; closing: it is the method's own."""
        return self

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return algorithm and schedule of the stage as they are run under the transform."""
        return algorithm, schedule

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return what is sent in the place of these messages; arrays that are given are not written to."""
        return messages

    def incoming(self, inbox: Inbox | Delivery, context: Context) -> Any:
        """Return what the method reads in the place of its inbox; arrays that are given are not written to.

        Called before every turn, so a table that stays in the inbox comes again.
        """
        return inbox

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds as `p2pkm.engine.state_tree` takes it, {}: there is none to keep."""
        return {}

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot, once the stage in which it was taken has begun."""

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary figures of the transform, alike on all ranks; called when the run has ended."""
        return {}
