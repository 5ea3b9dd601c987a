"""Byzantine devices: their selection, and the wrong tables that they send.

A message is replaced between the algorithm and the network. The state of a Byzantine device evolves as if the device
were honest, with the messages it receives. The replacement is a function of (seed, stage, round, turn, device), so it
is bit-identical on any number of ranks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
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
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

# "drift": distance that a row moves per round, in spans of the data.
_DRIFT_STEP = 0.05
# "collude": least distance of the common rows from the lower corner of the data, in spans.
_COLLUSION_DISTANCE = 3.0
# Finite, but above the largest number that receivers accept (1e100, `p2pkm.channel.rejection`).
_ABSURD = 1e101
# "nan" draws one of four kinds of malformed tables: NaN, infinity, absurd numbers, and this one, a wrong shape.
_WRONG_SHAPE = 3


@dataclass(frozen=True)
class Byzantine:
    """Number, behavior and placement of Byzantine devices.

    Attributes
    ----------
    count : int
        Number of Byzantine devices.
    kind : {"random", "flip", "drift", "nan", "collude"}
        Rows that Byzantine devices send instead of the correct ones.

        * "random": drawn in every turn, uniformly in the bounding box of all points.
        * "flip": the correct rows, mirrored at the mean of all points.
        * "drift": the correct rows, moved by a further 5 % of the spans of the data in every round; each device moves
          them in one random direction.
        * "nan": malformed tables: NaN, infinite or absurd numbers, or a table of the wrong shape.
        * "collude": the same rows for all Byzantine devices, three to four spans of the data away.
    place : {"random", "central", "peripheral"}
        Selection of the devices. "random": by the seed. "central", "peripheral": those of largest or smallest
        centrality (ties: the lower id).
    by : {"closeness", "betweenness"}
        Centrality, "closeness" or "betweenness", see `topologies.measures`; exact up to 1,000 devices.
    stages : {"method", "all"}
        "method": Byzantine devices are honest in the stages before the method. "all": they also send wrong tables in
        the initial exchange of these stages.

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
        """Validate the parameters."""
        check_integer(self.count, 0, "byzantine")
        for name, words in parameters(Byzantine).items():
            convert(vars(self)[name], words, f"byzantine {name}")

    def __str__(self) -> str:
        """Return the complete spec."""
        return str(complete(Spec(str(self.count), vars(self)), {str(self.count): Byzantine}, 0))

    @classmethod
    def of(cls, value: "Byzantine | str | int | None") -> "Byzantine | None":
        """Convert a text such as ``2:kind=flip,place=central``, or a number; other values are returned unchanged.

        Raises
        ------
        ExperimentError
            If the text does not begin with a whole number, or a key or value is unknown.
        """
        if value is None or isinstance(value, Byzantine):
            return value
        if not isinstance(value, str):
            return cls(value)
        name = value.partition(":")[0].strip()
        count = read_count(name)
        if count is None:
            raise ExperimentError(
                f"byzantine is {value!r}; expected a number of devices, with options if needed, for example "
                "2:kind=flip,place=central"
            )
        return cls(count, **parse(value, {name: cls}, "byzantine").options)


def select_byzantine(spec: Byzantine | None, topology: Topology, seed: int) -> Integers:
    """Select the Byzantine devices.

    Parameters
    ----------
    spec : Byzantine or None
    topology : Topology
    seed : int

    Returns
    -------
    int64[b]
        Ids, ascending; never that of the server.
    """
    if spec is None or not spec.count:
        return np.zeros(0, np.int64)
    if spec.place == "random":
        rank_key = uniforms(seed, Stream.PLACE, [0], topology.n)[0]
    else:
        from topologies import CSRGraph, measures

        sign = -1.0 if spec.place == "central" else 1.0
        graph = CSRGraph(topology.indptr, topology.indices, topology.weights)
        # Rounded, so that devices of equal centrality stay equal despite rounding errors and are ordered by id.
        rank_key = sign * np.round(getattr(measures, spec.by)(graph, seed=seed), 12)
    return np.sort(np.argsort(rank_key[: topology.clients], kind="stable")[: spec.count])


@dataclass
class ByzantineMessages(PlacedOnGraph, Transform):
    """Transform that replaces the messages of the Byzantine devices.

    Attributes
    ----------
    spec : Byzantine
    ids : int64[b]
        Ids of all Byzantine devices of the system.
    method : type
        Class of the method.
    low, high, mean : float64[d]
        Bounding box and mean of all points, in the units of the method's messages.
    initial_exchange_only : bool
        Whether the devices send wrong tables in the initial exchange of the current stage only.
    content : MessageContent
        Content of the messages of the current stage.
    method_started : bool
        Whether the method has begun.
    """

    spec: Byzantine
    ids: Integers
    method: type = object
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    mean: Floats = field(default_factory=lambda: np.zeros(0))
    initial_exchange_only: bool = False
    content: MessageContent = MessageContent.CENTROIDS
    method_started: bool = False

    name: ClassVar[str] = "byzantine"
    order: ClassVar[Order] = Order.REPLACE
    option: ClassVar[str] = "byzantine"
    prepared: ClassVar[tuple[str, ...]] = ("method", "low", "high", "mean", "content")

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
        """Check whether there is any Byzantine device."""
        return settings["spec"].count > 0

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings:
        """Select the devices, at most all except one."""
        spec = settings["spec"]
        if not spec.count < topology.clients:
            raise ExperimentError(
                f"byzantine is {spec.count} of {topology.clients} devices; expected at most {topology.clients - 1}, so "
                "that one device is honest. Reduce --byzantine"
            )
        return {"spec": spec, "ids": select_byzantine(spec, topology, seed)}

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Compute bounding box and mean of all points in the units of these stages."""
        if not len(self.ids):
            return
        method = find_method_stage(stages).algorithm
        self.method = type(method)
        self.low, self.high, self.mean = convert_box(_measure(devices, network), method.traits.normalization)

    def begin(self, stage: Stage, *, closing: bool) -> "ByzantineMessages | None":
        """Prepare a stage; None if all devices are honest in it; see also `is_active`."""
        is_method, traits = isinstance(stage.algorithm, self.method), stage.algorithm.traits
        if not is_replaceable(traits) or not len(self.ids):
            return None
        self.method_started = self.method_started or is_method
        self.initial_exchange_only, self.content = not is_method, traits.message_content
        return self

    @property
    def is_active(self) -> bool:
        """Whether wrong tables are sent: once the method has begun, or from the first stage on."""
        return self.method_started or self.spec.stages == "all"

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the spec for the summary."""
        return {"byzantine": str(self.spec)}

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Replace the messages of the Byzantine devices, and request the check for malformed tables on all messages.

        In flooding a Byzantine device replaces only its local rows, whenever it sends them, and forwards the rows of
        other devices unchanged.
        """
        devices = context.devices
        forwards = self.content is MessageContent.SUMMARIES and self.spec.kind != "nan"
        is_over = self.initial_exchange_only and devices.round > 0 and not forwards
        if isinstance(messages, SparseMessages) or not self.is_active or is_over:
            return messages
        # Positions in the batch of the Byzantine devices that send.
        senders = np.flatnonzero(np.isin(devices.ids, self.ids) & (messages.rows > 0))
        # Receivers check messages only if `malformed` is set, see `p2pkm.channel.rejection`.
        messages = messages._replace(malformed=np.zeros(len(devices), np.bool_))
        if not len(senders):
            return messages
        if self.spec.kind == "nan":
            return self._malform(messages, senders, context)
        values, first, last = messages.values.copy(), messages.header, messages.header + devices.d
        is_local = values[senders, :, :1] == devices.ids[senders, None, None] if forwards else True
        # A row of a sum is (sum, weight). The mean is replaced, and the weight stays.
        weight = values[senders, :, last:] if self.content is MessageContent.SUMS else np.ones(1)
        with np.errstate(invalid="ignore", divide="ignore"):
            rows = np.where(weight != 0.0, values[senders, :, first:last] / weight, 0.0)
        fabricated = self._fabricate_rows(rows, senders, context) * weight
        values[senders, :, first:last] = np.where(is_local, fabricated, values[senders, :, first:last])
        return messages._replace(values=values)

    def _fabricate_rows(self, rows: Floats, senders: Integers, context: Context) -> Floats:
        """Compute the rows that Byzantine devices send instead of their correct ones, float64[b, r, d]."""
        devices = context.devices
        kind, span, (_, r, d), ids = self.spec.kind, self.high - self.low, rows.shape, devices.ids[senders]
        if kind == "flip":
            return 2.0 * self.mean - rows
        if kind == "drift":
            direction = 2.0 * context.draw(Stream.BYZANTINE, ids, d, always=True) - 1.0
            # A cumulative sum adds in a fixed order, unlike `sum`.
            direction /= np.sqrt(np.cumsum(direction * direction, axis=1)[:, -1:])
            return rows + (devices.round + 1) * _DRIFT_STEP * (direction * span)[:, None, :]
        if kind == "collude":
            drawn = _COLLUSION_DISTANCE + context.draw(Stream.BYZANTINE, np.zeros(1, np.int64), r * d, always=True)
        else:
            drawn = context.draw(Stream.BYZANTINE, ids, r * d)
        return self.low + np.broadcast_to(drawn.reshape(-1, r, d), rows.shape) * span

    def _malform(self, messages: DenseMessages, senders: Integers, context: Context) -> DenseMessages:
        """Replace the tables of the Byzantine devices by malformed ones, of a random kind each."""
        values, rows = messages.values.copy(), messages.rows.copy()
        kind = (4.0 * context.draw(Stream.BYZANTINE, context.devices.ids[senders], 1)[:, 0]).astype(np.int64)
        values[senders] = np.array([np.nan, np.inf, _ABSURD, 0.0])[kind][:, None, None]
        has_wrong_shape = np.zeros(len(rows), np.bool_)
        has_wrong_shape[senders[kind == _WRONG_SHAPE]] = True
        # The array of a batch cannot hold a table of another shape: such a table is marked, and counts as a row more.
        return messages._replace(values=values, rows=rows + has_wrong_shape, malformed=has_wrong_shape)


def _measure(devices: Devices, network: Network) -> Floats:
    """Compute lower end, upper end and mean of all points, float64[3, d]."""
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


def is_replaceable(traits: MethodTraits) -> bool:
    """Check whether rows are centroids or sums that can be replaced, and the method tolerates wrong ones."""
    closed = (MessageContent.OTHER, MessageContent.KEYED_POINTS)
    return not traits.needs_honest_messages and traits.message_content not in closed
