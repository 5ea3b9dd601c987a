"""Byzantine devices: some send wrong tables; who they are, and what they send in the place of their own message.

The message is replaced between the algorithm and the network: the device's own state goes on as if it were honest, with
what it receives from others. What it sends is a function of (seed, stage, round, turn, device), so it is the same on
any number of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, PlacedOnGraph, Settings, Transform
from p2pkm.core.batch import Devices, Floats, Integers, Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, SparseMessages
from p2pkm.core.spec import Spec, complete, convert, parameters, parse, read_count
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.registry import suggest_methods
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

_PACE = 0.05  # of the spans of the data: what a drifting table moves in a round
_FAR = 3.0  # spans of the data: how far away colluding devices meet
_ABSURD = 1e101
_NAMED = 10  # Byzantine devices in a note
_MISSHAPEN = 3  # of the four kinds of tables that are none: it ends within a row


@dataclass(frozen=True)
class Byzantine:
    """Number, behavior and placement of Byzantine devices.

    Attributes
    ----------
    count : int
    kind : {"random", "flip", "drift", "nan", "collude"}
        random: rows drawn anew in every turn, uniformly in the box of all points; flip: the own rows mirrored at the
        mean of all points; drift: the own rows, moved by a twentieth of the spans of the data more in every round, each
        Byzantine device in a direction of its own; nan: NaN, infinite or absurd numbers or a table of the wrong shape;
        collude: all Byzantine devices send the same rows, three to four spans of the data away.
    place : {"random", "central", "peripheral"}
        Drawn from the seed, or the devices of largest or smallest centrality; of equals the lower id.
    by : {"closeness", "betweenness"}
        Which centrality: see `topologies.measures`, exact up to 1,000 devices.
    stages : {"method", "all"}
        Whether Byzantine devices are honest in what comes before the method, or Byzantine in the opening of these
        stages, too.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Byzantine.of("2:kind=flip") == p2pkm.Byzantine(2, kind="flip")
    True
    """

    count: int
    _: KW_ONLY
    kind: Literal["random", "flip", "drift", "nan", "collude"] = "random"
    place: Literal["random", "central", "peripheral"] = "random"
    by: Literal["closeness", "betweenness"] = "closeness"
    stages: Literal["method", "all"] = "method"

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        check_integer(self.count, 0, "byzantine")
        for name, words in parameters(Byzantine).items():
            convert(vars(self)[name], words, f"byzantine {name}")

    def __str__(self) -> str:
        """Return the spec in full."""
        return str(complete(Spec(str(self.count), vars(self)), {str(self.count): Byzantine}, 0))

    @classmethod
    def of(cls, given: "Byzantine | str | int | None") -> "Byzantine | None":
        """Return the value of a text such as ``2:kind=flip,place=central``, or of a number; others stay as they are.

        Raises
        ------
        ExperimentError
            If it does not begin with a whole number, or a key or value is not known.
        """
        if given is None or isinstance(given, Byzantine):
            return given
        if not isinstance(given, str):
            return cls(given)
        name = given.partition(":")[0].strip()
        count = read_count(name)
        if count is None:
            raise ExperimentError(
                f"byzantine is {given!r}; expected how many devices are Byzantine, and perhaps how, as in "
                "2:kind=flip,place=central"
            )
        return cls(count, **parse(given, {name: cls}, "byzantine").options)


def select_byzantine(spec: Byzantine | None, topology: Topology, seed: int) -> Integers:
    """Return the ids of the Byzantine devices, ascending; the server is never among them."""
    if spec is None or not spec.count:
        return np.zeros(0, np.int64)
    if spec.place == "random":
        merit = uniforms(seed, Stream.PLACE, [0], topology.n)[0]
    else:
        from topologies import CSRGraph, measures

        sign = -1.0 if spec.place == "central" else 1.0
        graph = CSRGraph(topology.indptr, topology.indices, topology.weights)
        merit = sign * np.round(getattr(measures, spec.by)(graph, seed=seed), 12)  # equals stay equal
    return np.sort(np.argsort(merit[: topology.clients], kind="stable")[: spec.count])


@dataclass
class ByzantineMessages(PlacedOnGraph, Transform):
    """What the Byzantine devices of a batch send.

    Attributes
    ----------
    spec : Byzantine
    ids : int64[b]
        Of all Byzantine devices.
    method : type
        Of the stage that the run is about.
    low, high, mean : float64[d]
        Box and mean of all points, in the units that the method sends in.
    opening : bool
        Whether they send wrong tables in the opening of the stage alone.
    content : MessageContent
        What the stage sends.
    started : list of bool
        Not empty once the method has begun. Not kept: after a resume the stage of the checkpoint begins again, and what
        comes between two stages of the method sends in its opening alone.
    """

    spec: Byzantine
    ids: Integers
    method: type = object
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    opening: bool = False
    content: MessageContent = MessageContent.CENTROIDS
    started: list[bool] = field(default_factory=list)

    name: ClassVar[str] = "byzantine"
    order: ClassVar[Order] = Order.REPLACE
    option: ClassVar[str] = "byzantine"

    def __post_init__(self) -> None:
        """Exclude the Byzantine devices from scores."""
        self.left_out, self.alters = self.ids, len(self.ids) > 0

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `byzantine`."""
        spec: Byzantine | None = options.get("byzantine")
        return None if spec is None else {"spec": spec}

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return whether there is a Byzantine device at all."""
        return settings["spec"].count > 0

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Refuse methods whose messages have no rows that could be replaced."""
        if not _replaceable(algorithm.traits):
            raise ExperimentError(
                f"byzantine is {settings['spec']}, but {algorithm.name} sends nothing that a Byzantine device could "
                "replace by other centroids. Remove --byzantine, or use "
                f"{suggest_methods(lambda other: _replaceable(other.traits))}"
            )

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings:
        """Choose the devices; refuse more than there can be."""
        spec = settings["spec"]
        if not spec.count < topology.clients:
            raise ExperimentError(
                f"byzantine is {spec.count} of {topology.clients} devices; expected fewer, so that one is honest"
            )
        return {"spec": spec, "ids": select_byzantine(spec, topology, seed)}

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Measure all points in the units of these stages."""
        if not len(self.ids):
            return
        method = find_method_stage(stages).algorithm
        self.method = type(method)
        self.low, self.high, self.mean = convert_box(_measure(devices, network), method.traits.normalization)

    def begin(self, stage: Stage, *, closing: bool) -> "ByzantineMessages | None":
        """Return what is sent in a stage, None if every device is honest in it; see `acts`, too."""
        own, traits = isinstance(stage.algorithm, self.method), stage.algorithm.traits
        if not _replaceable(traits) or not len(self.ids):
            return None
        if own:
            self.started.append(True)
        return replace(self, opening=not own, content=traits.message_content)

    @property
    def acts(self) -> bool:
        """Return whether wrong tables are sent by now."""
        return bool(self.started) or self.spec.stages == "all"

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the spec."""
        return {"byzantine": str(self.spec)}

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages with those of the Byzantine devices replaced, all marked as not to be trusted.

        Of what is flooded a Byzantine device replaces its own rows alone, whenever it sends them; it forwards others as
        they are.
        """
        devices, summaries = context.devices, self.content is MessageContent.SUMMARIES
        forwards = summaries and self.spec.kind != "nan"
        if (
            isinstance(messages, SparseMessages)
            or not self.acts
            or (self.opening and devices.round > 0 and not forwards)
        ):
            return messages
        who = np.flatnonzero(np.isin(devices.ids, self.ids) & (messages.rows > 0))
        messages = messages._replace(malformed=np.zeros(len(devices), np.bool_))
        if not len(who):
            return messages
        if self.spec.kind == "nan":
            return self._malform(messages, who, context)
        values, first, last = messages.values.copy(), messages.header, messages.header + devices.d
        own = values[who, :, :1] == devices.ids[who, None, None] if forwards else True
        unit = values[who, :, last:] if self.content is MessageContent.SUMS else np.ones(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = np.where(unit != 0.0, values[who, :, first:last] / unit, 0.0)
        invented = self._invent(rows, who, context) * unit
        values[who, :, first:last] = np.where(own, invented, values[who, :, first:last])
        return messages._replace(values=values)

    def _invent(self, rows: Floats, who: Integers, context: Context) -> Floats:
        """Return what the Byzantine devices send instead of their rows, float64[w, r, d]."""
        devices = context.devices
        kind, span, (_, r, d), ids = self.spec.kind, self.high - self.low, rows.shape, devices.ids[who]
        if kind == "flip":
            return 2.0 * self.mean - rows
        if kind == "drift":
            way = 2.0 * context.draw(Stream.BYZANTINE, ids, d, always=True) - 1.0
            way /= np.sqrt(np.cumsum(way * way, axis=1)[:, -1:])
            return rows + (devices.round + 1) * _PACE * (way * span)[:, None, :]
        if kind == "collude":
            drawn = _FAR + context.draw(Stream.BYZANTINE, np.zeros(1, np.int64), r * d, always=True)
        else:
            drawn = context.draw(Stream.BYZANTINE, ids, r * d)
        return self.low + np.broadcast_to(drawn.reshape(-1, r, d), rows.shape) * span

    def _malform(self, messages: DenseMessages, who: Integers, context: Context) -> DenseMessages:
        """Return the messages with tables in it that are none."""
        values, rows = messages.values.copy(), messages.rows.copy()
        which = (4.0 * context.draw(Stream.BYZANTINE, context.devices.ids[who], 1)[:, 0]).astype(np.int64)
        values[who] = np.array([np.nan, np.inf, _ABSURD, 0.0])[which][:, None, None]
        broken = np.zeros(len(rows), np.bool_)
        broken[who[which == _MISSHAPEN]] = True
        return messages._replace(values=values, rows=rows + broken, malformed=broken)


def _measure(devices: Devices, network: Network) -> Floats:
    """Return lower end, upper end and mean of all points, float64[3, d]."""
    low, high = (extreme(devices.stored, axis=0, initial=start) for extreme, start in
                 ((np.min, np.inf), (np.max, -np.inf)))  # fmt: skip
    ends = network.allgather_by_device(np.broadcast_to(np.concatenate((low, -high)), (len(devices), 2 * devices.d)))
    ends = ends.min(axis=0).astype(np.float64)
    sums = network.allgather_by_device(
        devices.kernels.moments(*devices.kernel_inputs, np.zeros(devices.d))[:, : 1 + devices.d]
    )
    total = np.cumsum(sums, axis=0)[-1]
    return np.stack((ends[: devices.d], -ends[devices.d :], total[1:] / total[0]))


def convert_box(box: Floats, normalization: str | tuple[float, float]) -> Floats:
    """Convert lower end, upper end and mean, float64[3, d], to the units of a server method."""
    if normalization == "none":
        return box
    low, high = (box[0], box[1]) if normalization == "coordinate" else (box[0].min(), box[1].max())
    return (box - low) / np.where(high > low, high - low, 1.0)


def byzantine_note(ids: Integers) -> list[str]:
    """Return a note on which devices were Byzantine, and that no score is about them."""
    if not len(ids):
        return []
    names = ", ".join(str(i) for i in ids[:_NAMED]) + f" and {len(ids) - _NAMED:,} more" * (len(ids) > _NAMED)
    devices = "1 device is" if len(ids) == 1 else f"{len(ids):,} devices are"
    return [f"{devices} Byzantine ({names}): scores are over the others, objective and variation over all"]


def _replaceable(traits: MethodTraits) -> bool:
    """Return whether rows stand for centroids that could be replaced, where no honesty is required."""
    closed = (MessageContent.OTHER, MessageContent.KEYED_POINTS)
    return not traits.needs_honest_messages and traits.message_content not in closed
