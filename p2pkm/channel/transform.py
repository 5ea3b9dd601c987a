"""A transform: what happens to messages between the method that sends them and the method that receives them.

A message passes the transforms of a run in their order::

    compute -> outgoing transforms -> ledger -> deliver -> incoming transforms -> compute

A transform sees the messages of one rank's devices at a time and must treat each device by itself: what it does may
depend on the message, the device's own points and id, the place in the run, and draws from its random stream, never on
which other devices are in the batch. Then a run has the same bits on any number of ranks.
"""

import zlib
from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
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


class Condition(Enum):
    """Property of a run that a transform may exclude by `Transform.incompatible_with`.

    Attributes
    ----------
    LOSSY_LINKS
        Messages may be lost or late: faults, or a link model with schedule async.
    CHANGING_LINKS
        The links of the graph change from round to round.
    CHANGED_MESSAGES
        Another transform changes or replaces what is sent: noise, integers, Byzantine devices, a plug-in.
    LINK_MODEL
        Simulated time is computed.
    LOCAL_SUMS
        Stages before or after the method send sums of local statistics: calibrated coupling, acceptance test.
    """

    LOSSY_LINKS = "lossy links"
    CHANGING_LINKS = "changing links"
    CHANGED_MESSAGES = "changed messages"
    LINK_MODEL = "link model"
    LOCAL_SUMS = "local sums"


Reasons = Mapping[Condition | str, str]

# A transform that sends differences needs the same reference table at both ends of every link.
REFERENCES_AT_BOTH_ENDS: Reasons = {
    Condition.LOSSY_LINKS: "with late or lost messages two ends of a link would hold different tables",
    Condition.CHANGING_LINKS: "the receiver at a new link does not have the table that a difference refers to",
    Condition.CHANGED_MESSAGES: "a table that is changed on its way is not the reference that its sender keeps",
}


class RunScope(NamedTuple):
    """Environment of a transform: the batch before any scaling, the network, the whole graph and the seed."""

    devices: Devices
    network: Network
    topology: Topology
    seed: int


class Transform:
    """Base of all transforms, which leaves messages unchanged. A subclass overrides what it needs.

    Before a run, `configure` and `check` turn the options of the run into settings, the keyword parameters of the
    class; each rank builds its own transform of them. The transform of a plug-in gets the options of its spec. A
    transform that depends on the graph inherits `PlacedOnGraph`, too; one that changes methods, `ReshapesMethod`.

    Attributes
    ----------
    name : str
        In the registry, in specs and in checkpoints: lower-case letters, digits and hyphens.
    order : Order
        Its place in the list.
    option : str
        The option of a run that asks for it.
    incompatible_with : mapping of Condition or str to str
        What it cannot be combined with, and the reason, a clause: conditions of the run, or names of other transforms
        that change, delay or lose messages. The run is rejected before any work.
    delays : bool
        Whether messages may be late or lost; it then is the `DelayModel` of each stage in which it acts.
    exposes : bool
        Whether messages of the stages before the method may be late or lost, too.
    alters : bool
        Whether it may change what honest methods send or read, so that no descent is claimed.
    left_out : int64[b]
        Ids of the devices that are excluded from scores.
    purpose : int
        Purpose of the random stream, see `Context.draw`.
    """

    name: ClassVar[str]
    order: ClassVar[Order]
    option: ClassVar[str] = "transforms"
    incompatible_with: ClassVar[Reasons] = {}
    delays: ClassVar[bool] = False
    purpose: ClassVar[int]
    exposes: bool = False
    alters: bool = True
    left_out: Integers = np.zeros(0, np.int64)

    def __init_subclass__(cls) -> None:
        """Derive the random stream from the name."""
        super().__init_subclass__()
        if "name" in vars(cls) and "purpose" not in vars(cls):
            cls.purpose = _PLUGINS + (zlib.crc32(cls.name.encode()) & (_PLUGINS - 1))

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the options of a run; None if they do not ask for the transform.

        Raises
        ------
        ExperimentError
            If an option cannot be read.
        """
        return options

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Reject a method that this cannot work with, with an ExperimentError; before anything is read or built."""

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return whether messages are changed, late or lost, so that a method by default tolerates it."""
        return cls.order in (Order.PERTURB, Order.REPLACE, Order.DELIVER)

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Begin with these stages: those of the run, and before them the one that scales, if there is one.

        devices: the batch in the units of these stages.
        """

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Return notes for the user, printed before the stages run."""
        return []

    def begin(self, stage: Stage, *, closing: bool) -> "Transform | None":
        """Return the transform that acts in a stage, None for a stage without; closing: it is the method's own."""
        return self

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages that are sent instead of these; arrays that are given are not written to."""
        return messages

    def incoming(self, inbox: Inbox | Delivery, context: Context) -> Any:
        """Return what the method reads instead of its inbox; arrays that are given are not written to.

        Called before every turn, so a table that stays in the inbox comes again.
        """
        return inbox

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds in the form of `p2pkm.engine.state_tree`, {} without a state."""
        return {}

    def restore(self, kept: dict[str, Any]) -> None:
        """Continue from a snapshot, once the stage in which it was taken has begun."""

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary metrics of the transform, the same on all ranks; called when the run has ended."""
        return {}


class PlacedOnGraph:
    """Mixin of a transform that depends on the graph: its settings, its parts on each rank, its stages."""

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings | None:
        """Return the settings for a graph, None if the transform never acts on it.

        arrays: the result of `to_arrays` on rank 0, which may be alone in reading a file; None: this is rank 0.
        """
        return settings

    @classmethod
    def to_arrays(cls, settings: Settings) -> dict[str, Any]:
        """Return what other ranks need in addition to the options."""
        return {}

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> Any:
        """Return this rank's transform."""
        return cls(**settings)

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Return the stages that run before all others, in which the devices agree on something first."""
        return ()


class ReshapesMethod:
    """Mixin of a transform that changes the method: its batch, its form, or how its stage runs."""

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with what methods must know of the transform."""
        return devices

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that tolerates the transform."""
        return algorithm

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return algorithm and schedule of the stage as they run under the transform."""
        return algorithm, schedule


def find_missing_mixins(kind: type[Transform]) -> dict[str, list[str]]:
    """Return the mixins that a transform does not inherit although it defines their methods, with these."""
    found = {}
    for mixin in (PlacedOnGraph, ReshapesMethod):
        methods = [name for name in vars(mixin) if not name.startswith("_") and name in dir(kind)]
        if methods and not issubclass(kind, mixin):
            found[mixin.__name__] = methods
    return found
