"""Transforms: operations on messages between the sending and the receiving method.

A message passes the transforms of a run in their order::

    compute -> outgoing transforms -> ledger -> deliver -> incoming transforms -> compute

What is received passes them in the reverse order, so that the last one on the way out reads what it wrote.

A transform processes the messages of one rank at a time, and must treat each device separately: its result may depend
on the message, the local points and the id of the device, the position in the run, and draws from its random stream. It
must not depend on the other devices in the batch. Then a run is bit-identical on any number of ranks.
"""

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import Delivery, DenseMessages, Inbox, SparseMessages
from p2pkm.core.traits import Condition, MessageContent, Reasons
from p2pkm.data.shards import Shards
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import Schedule
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

# Numbers of preliminary stages: imputation or scaling, and choice of the number of clusters.
SCALING = -1
CHOOSING = -2
# Number of a draw that is the same in all rounds.
_ALWAYS = 2**32 - 1
# From here on, the purpose of a random stream is a hash of the name of a plug-in's transform.
_PLUGINS = 1 << 31

Messages = DenseMessages | SparseMessages
Settings = Mapping[str, Any]


class Order(IntEnum):
    """Position of a transform in the channel; transforms with equal positions act in the order of their names.

    Attributes
    ----------
    SUPPRESS
        Removes rows.
    PERTURB
        Changes messages of honest devices.
    REPLACE
        Sends other messages instead.
    OBSERVE
        Reads messages without changing them.
    DELIVER
        Loses and delays messages.
    ACCEPT
        Rejects received messages.
    ENCODE
        Sends messages in another form, and reads them before all other transforms.
    """

    SUPPRESS = 1
    PERTURB = 2
    REPLACE = 3
    OBSERVE = 4
    DELIVER = 5
    ACCEPT = 6
    ENCODE = 7


class Context(NamedTuple):
    """Position in the run at which a message is sent or read.

    Attributes
    ----------
    stage : int
        Number of the stage, from 0; `SCALING` or `CHOOSING` in preliminary stages.
    devices : Devices
        Batch with `round`, `turn` and `active_devices`.
    state : NamedTuple
        State of the method, after it has computed the messages that it sends, or before it reads its inbox.
    """

    stage: int
    devices: Devices
    state: Any

    def draw(self, purpose: int, ids: Integers, count: int, *, always: bool = False) -> Floats:
        """Draw numbers from [0, 1) for some devices, different ones in every stage, round and turn.

        Parameters
        ----------
        purpose : int
            Purpose of the random stream: `Transform.purpose`.
        ids : int64[w]
            Ids of the devices.
        count : int
            Draws per device. The first draws of a device do not depend on it.
        always : bool
            Whether a device draws the same numbers in the whole run.

        Returns
        -------
        float64[w, count]
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


# Of a transform that acts on every method and stage.
ANY_CONTENT = tuple(MessageContent)

# A transform that sends differences needs the same reference table at both ends of every link.
REFERENCES_AT_BOTH_ENDS: Reasons = {
    Condition.LOSSY_LINKS: "with late or lost messages two ends of a link would hold different tables",
    Condition.CHANGING_LINKS: "the receiver at a new link does not have the table that a difference refers to",
    Condition.CHANGED_MESSAGES: "a table that is changed on its way is not the reference that its sender keeps",
}


class RunScope(NamedTuple):
    """Environment of a transform: the batch before any scaling, the network, the whole graph and the seed.

    `round_clock`, a `p2pkm.engine.round_clock.RoundClock`, knows when a round begins and which messages miss its
    deadline; None without a deadline and without a fault trace in seconds.
    """

    devices: Devices
    network: Network
    topology: Topology
    seed: int
    round_clock: Any = None


class Transform:
    """Base class of all transforms, which leaves messages unchanged.

    Most transforms have `__init__` with the keys of their spec, `acts_on`, and `outgoing` or `incoming`. Attributes
    that `__init__` assigns are parameters. Those assigned later are state, which belongs to checkpoints without further
    code: arrays with one row per device (per edge, if the name begins with ``edge_``), numbers, text, `References`.

    Before a run, `configure` and `check` turn the options of the run into settings, the keyword parameters of the
    class; each rank builds its own transform of them. The transform of a plug-in gets the options of its spec. A
    transform that depends on the graph inherits `PlacedOnGraph`, too; one that changes methods, `ReshapesMethod`; one
    whose state consists of other arrays, `SavesItself`.

    Attributes
    ----------
    name : str
        Name in the registry, in specs and in checkpoints: lower-case letters, digits and hyphens.
    order : Order
        Position in the channel.
    option : str
        Option of a run that selects the transform.
    further_options : tuple of str
        Options that select the transform without `option`.
    acts_on : tuple of MessageContent, optional
        Content of the messages on which it acts: a method that sends another content is refused, and stages that do are
        passed unchanged. `ANY_CONTENT`: every method and stage. None: every one, for transforms that do not change
        messages; a plug-in's transform that does must declare it.
    prepared : tuple of str
        Names of the attributes that `start` and `begin` compute again after a resume, so that they are not saved.
    handles_loss : bool
        Whether receivers can read a message without the messages before it, although it depends on them. A transform
        with such a memory otherwise excludes `Condition.LOSSY_LINKS`.
    incompatible_with : mapping of Condition or str to str
        Conditions of the run, or names of other transforms that change, delay or lose messages, with which the
        transform cannot be combined, and the reason as a clause. Such a run is rejected before any work.
    delays : bool
        Whether messages may be late or lost. The transform is then the `DelayModel` of each stage in which it acts.
    exposes : bool
        Whether messages of the stages before the method may be late or lost, too.
    alters : bool
        Whether it may change messages that honest methods send or read, so that no descent is claimed.
    left_out : int64[b]
        Ids of the devices that are excluded from scores.
    absent : bool[N] or None
        Devices of the system that are unavailable in the current round; None: the transform does not know of any.
    purpose : int
        Purpose of the random stream, see `Context.draw`.
    """

    name: ClassVar[str]
    order: ClassVar[Order]
    option: ClassVar[str] = "transforms"
    further_options: ClassVar[tuple[str, ...]] = ()
    acts_on: ClassVar[tuple[MessageContent, ...] | None] = None
    prepared: ClassVar[tuple[str, ...]] = ()
    handles_loss: ClassVar[bool] = False
    incompatible_with: ClassVar[Reasons] = {}
    delays: ClassVar[bool] = False
    purpose: ClassVar[int]
    exposes: bool = False
    alters: bool = True
    left_out: Integers = np.zeros(0, np.int64)
    absent: Mask | None = None

    def __init_subclass__(cls) -> None:
        """Derive the random stream from the name."""
        super().__init_subclass__()
        # Another name than text is refused when the transform is selected.
        if isinstance(vars(cls).get("name"), str) and "purpose" not in vars(cls):
            cls.purpose = _PLUGINS + (zlib.crc32(cls.name.encode()) & (_PLUGINS - 1))

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the options of a run; None if they do not select the transform.

        Raises
        ------
        ExperimentError
            If an option cannot be read.
        """
        return options

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Validate that the transform can be combined with a method, before anything is read or built.

        Raises
        ------
        ExperimentError
            If it cannot.
        """

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Check whether messages are changed, late or lost; the defaults of a method then tolerate it."""
        return cls.order in (Order.PERTURB, Order.REPLACE, Order.DELIVER)

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Prepare the next stages; called once for each preliminary stage, then for all other stages of the run.

        Parameters
        ----------
        stages : sequence of Stage
        devices : Devices
            Batch with points in the units of these stages.
        network : Network
        """

    def notes(self, stages: Sequence[Stage]) -> list[str]:
        """Write notes for the user on the stages, for the notes of the result."""
        return []

    def closing_notes(self) -> list[str]:
        """Write notes for the user when the run has ended; those of rank 0 are kept."""
        return []

    def begin(self, stage: Stage, *, closing: bool) -> "Transform | None":
        """Prepare a stage; return self, or None if the transform does not act in it.

        Parameters
        ----------
        stage : Stage
        closing : bool
            Whether it is the method's own stage.
        """
        return self

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Transform messages before they are sent; the arrays of `messages` must not be written to."""
        return messages

    def incoming(self, inbox: Inbox | Delivery, context: Context) -> Any:
        """Transform the inbox before the method reads it; the arrays of `inbox` must not be written to.

        Called before every turn, so a table that stays in the inbox is passed again.
        """
        return inbox

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the summary metrics of the transform, the same on all ranks; called when the run has ended."""
        return {}

    def results(self, shards: Shards, network: Network) -> dict[str, Any]:
        """Return arrays for the `Result`, the same on all ranks; called when the run has ended.

        shards: points of the local devices. Their `rows` are computed on demand, and take 8 bytes a point.
        """
        return {}


class PlacedOnGraph:
    """Mixin for transforms that depend on the graph: settings, parts on each rank, additional stages."""

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings | None:
        """Bind the settings to a graph; None if the transform never acts on it.

        Parameters
        ----------
        settings : mapping
        topology : Topology
        seed : int
        arrays : mapping, optional
            Result of `to_arrays` on rank 0: other ranks may lack access to a file. None on rank 0.
        """
        return settings

    @classmethod
    def to_arrays(cls, settings: Settings) -> dict[str, Any]:
        """Collect the arrays that other ranks need, in addition to the options."""
        return {}

    @classmethod
    def build(cls, settings: Settings, scope: RunScope) -> Any:
        """Build the transform of this rank."""
        return cls(**settings)

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Return stages that run before the initialization, for values that the devices must agree on."""
        return ()


class SavesItself:
    """Mixin for transforms whose state does not consist of arrays by device or edge, such as messages in transit."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state between two rounds in the form of `p2pkm.engine.state_tree`, {} without a state."""
        return {}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot, once the stage in which it was taken has begun."""


class ReshapesMethod:
    """Mixin for transforms that change the batch, the method, or the execution of a stage."""

    def equip(self, devices: Devices) -> Devices:
        """Return the batch with the fields that methods need to know of the transform."""
        return devices

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method in the form that tolerates the transform."""
        return algorithm

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Return algorithm and schedule of the stage as they run under the transform."""
        return algorithm, schedule


# Whether the value of an attribute is right, and what is expected.
_DECLARATIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (
        lambda name: isinstance(name, str) and re.fullmatch("[a-z0-9-]+", name) is not None,
        "lower-case letters, digits and hyphens, as specs have them",
    ),
    "order": (lambda order: isinstance(order, Order), "a p2pkm.channel.transform.Order, such as Order.PERTURB"),
    "acts_on": (
        lambda contents: contents is None or _is_tuple(contents, MessageContent),
        "a tuple of MessageContent, such as (MessageContent.CENTROIDS,), or ANY_CONTENT",
    ),
    "prepared": (lambda names: _is_tuple(names, str), 'a tuple of names, such as ("last",)'),
    "incompatible_with": (
        lambda reasons: isinstance(reasons, Mapping),
        "a dict of Condition, or the name of another transform, to the reason",
    ),
}
_CHANGES = (Order.SUPPRESS, Order.PERTURB, Order.REPLACE, Order.ENCODE)
_PAGE = "docs/howto/add-a-transform.md has a complete transform"


def _is_tuple(value: Any, kind: type) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, kind) for part in value)


def check_declaration(kind: Any, name: str) -> type[Transform]:
    """Return the class of a transform from another package after a check of its declarations.

    Raises
    ------
    ContractError
        If `kind` is not a transform, or a declaration is missing or without effect.
    """
    if not (isinstance(kind, type) and issubclass(kind, Transform)):
        raise ContractError(
            f"transform {name} is {kind!r}; expected a subclass of p2pkm.channel.transform.Transform. {_PAGE}"
        )
    where = f"transform {name} ({kind.__module__}:{kind.__qualname__})"
    for attribute, line in (("name", f'name = "{name}"'), ("order", "order = Order.PERTURB")):
        if not hasattr(kind, attribute):
            raise ContractError(f"{where} lacks {attribute}. Add for example {line}; {_PAGE}")
    for attribute, (is_right, expected) in _DECLARATIONS.items():
        value = getattr(kind, attribute)
        if not is_right(value):
            raise ContractError(f"{where}: {attribute} is {value!r}; expected {expected}; {_PAGE}")
    saving = [hook for hook in ("snapshot", "restore") if hasattr(kind, hook)]
    if saving and not issubclass(kind, SavesItself):
        raise ContractError(
            f"{where} defines {', '.join(saving)}, which are not called: attributes that are assigned after __init__ "
            f"are saved by themselves. Delete {', '.join(saving)}, or inherit SavesItself if arrays have other axes "
            f"than devices and edges; {_PAGE}"
        )
    for mixin in (PlacedOnGraph, ReshapesMethod):
        methods = [hook for hook in vars(mixin) if not hook.startswith("_") and hook in dir(kind)]
        if methods and not issubclass(kind, mixin):
            raise ContractError(
                f"{where} defines {', '.join(methods)}, which are not called without "
                f"p2pkm.channel.transform.{mixin.__name__}; inherit from {mixin.__name__} and Transform"
            )
    if kind.acts_on is None and kind.order in _CHANGES:
        raise ContractError(
            f"{where} changes messages, but lacks acts_on. Add for example acts_on = (MessageContent.CENTROIDS,), so "
            f"that methods that send something else are refused, or acts_on = ANY_CONTENT; {_PAGE}"
        )
    return kind
