"""Integer encoding of messages: tables are sent as differences in multiples of a step size.

The step size is ``2^-b sqrt(total variance)``. The devices compute the total variance along a tree before all other
stages (`p2pkm.methods.init.total_variance`). Both ends of a link continue with the table that was sent, not with the
exact one.

A method with `MethodTraits.moves_on_grid` moves its centroids by multiples of the step. So its state equals the tables
that its neighbors hold, guarantees for its objective remain true, and a device whose centroids did not move sends
nothing. Rows of any other method are rounded when they are sent.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.references import References, find_sent, find_sent_rows
from p2pkm.channel.transform import (
    REFERENCES_AT_BOTH_ENDS,
    Context,
    Messages,
    Order,
    PlacedOnGraph,
    ReshapesMethod,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Floats, Grid, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.spec import Spec, read_value, suggest
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent, Reasons
from p2pkm.core.validation import check_integer, check_scalar
from p2pkm.core.wire_format import number_bits, to_bytes
from p2pkm.methods.building_blocks.coupling_choice import for_each_coupling
from p2pkm.methods.building_blocks.quantization import FINEST, count_bits
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.total_variance import TotalVariance
from p2pkm.methods.schedules import Schedule
from p2pkm.methods.server.star import Star
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

_ROWS = (MessageContent.CENTROIDS, MessageContent.SUMS)
_CODES = ("rice", "int8")
_OPEN, _POSSIBLE, _REAL = "auto", "possible", "none"
# b of the step size of methods without a coupling.
_DEFAULT_BITS = 12
# Differences, in steps, below which float64 holds every integer. A table with a larger one is sent unrounded.
_LARGEST = 2.0**52
# Bits of a number that is sent unrounded.
_BITS_PER_NUMBER = 64


@dataclass(frozen=True)
class Quantization:
    """Integer encoding of messages.

    Attributes
    ----------
    code : {"auto", "possible", "none", "rice", "int8"}
        See `p2pkm.core.wire_format` for the codes.

        * "rice": Rice or adaptive code, whichever is shorter.
        * "int8": fixed width of 8 bits, or 16, 32 or 64 where required.
        * "none": real numbers.
        * "auto": rice if it is the default of the method and can be combined with all other options, otherwise none.
        * "possible": rice if it can be combined with the method and all other options, otherwise none.
    bits : int or None
        b of the step size ``2^-b sqrt(total variance)``; None for ``ceil(log2(64 (1 + 2 c) sqrt(d)))`` with
        coupling c and d features, and for 12 without a coupling.
    threshold : int
        A row is sent only if one of its coordinates moves by at least this number of steps.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Quantization.of("rice") == p2pkm.Quantization("rice")
    True
    """

    code: Literal["auto", "possible", "none", "rice", "int8"]
    _: KW_ONLY
    bits: int | None = None
    threshold: int = 2

    def __post_init__(self) -> None:
        """Validate the parameters."""
        if check_scalar(self.code, "quantize") not in _READ:
            raise ExperimentError(f"unknown quantize {self.code!r}. {suggest(str(self.code), _READ)}")
        check_integer(self.threshold, 1, "quantize:threshold")
        if self.bits is not None:
            check_integer(self.bits, 1, "quantize:bits", FINEST)

    def __str__(self) -> str:
        """Return the text of the command line, such as ``rice:bits=10``."""
        options = {"bits": self.bits} if self.bits is not None else {}
        return str(Spec(self.code, options | ({"threshold": self.threshold} if self.threshold != 2 else {})))

    @property
    def in_integers(self) -> bool:
        """Whether messages are encoded as integers."""
        return self.code in _CODES

    def choose(self, *, preferred: bool) -> "Quantization | None":
        """Return the integer encoding that a run tries, given whether its method prefers integers; None: none."""
        is_tried = self.code == _POSSIBLE or (preferred and self.code == _OPEN)
        return replace(self, code="rice") if is_tried else None

    @classmethod
    def of(cls, value: "Quantization | str | None") -> "Quantization":
        """Convert a text such as ``rice:threshold=1``; None means real numbers, a `Quantization` is returned unchanged.

        Raises
        ------
        ExperimentError
            If the text cannot be read, or a number is out of range.
        """
        return read_value(cls, _REAL if value is None else value, _READ, "quantize", cls._make)

    @classmethod
    def _make(cls, spec: Spec) -> "Quantization":
        return cls(spec.name, **spec.options)  # type: ignore[arg-type]


def _declare_options(*, bits: int | None = None, threshold: int = 2) -> None:
    """Declare the keys of a spec by its signature."""


def _declare_nothing() -> None:
    """Declare a spec without keys."""


_READ = dict.fromkeys((_OPEN, _REAL), _declare_nothing) | dict.fromkeys((_POSSIBLE, *_CODES), _declare_options)


class StepCoder:
    """Step sizes of the devices in a stage, and rounding of tables to multiples of them.

    Attributes
    ----------
    algorithm : Algorithm
        Its coupling determines the step size.
    moves : bool
        Whether the algorithm moves its centroids by multiples of the step.
    sums : bool
        Whether rows are sums, whose last column (the weight) is rounded, too.
    rice : bool
        Whether the code is Rice or adaptive, otherwise of fixed width.
    """

    def __init__(self, spec: Quantization, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.rice = spec.code == "rice"
        self.moves = algorithm.traits.moves_on_grid
        self.sums = algorithm.traits.message_content is MessageContent.SUMS
        self._bits = spec.bits
        # Inputs that the cached step sizes were computed from.
        self._inputs: tuple[Any, ...] = (None,) * 3
        self._steps = np.zeros(0)

    def find_steps(self, agreed: Floats, devices: Devices, state: Any = None) -> Floats:
        """Compute the step size of each device.

        Parameters
        ----------
        agreed : float64[n, d + 1]
            Mean and total variance of all points, as each device received them.
        devices : Devices
        state : NamedTuple, optional
            Contains the coupling from the points, if there is one.

        Returns
        -------
        float64[n]
            In the units of the points.
        """
        inputs = agreed, optional(state, "coupling"), devices.total_weight
        cached = self._inputs
        if inputs[0] is not cached[0] or inputs[1] is not cached[1] or inputs[2] != cached[2]:
            self._inputs = inputs
            self._steps = np.sqrt(agreed[:, -1]) * self._step_sizes(inputs[1], devices)
        return self._steps

    def _step_sizes(self, coupling: Floats | None, devices: Devices) -> float | Floats:
        """Compute the step size in units of the spread of the points: that of each device, if couplings differ."""
        if self._bits or not self.moves:
            return 2.0 ** -(self._bits or _DEFAULT_BITS)
        if coupling is None:
            return 2.0 ** -step_bits(self.algorithm, devices)
        return for_each_coupling(lambda value: 2.0 ** -count_bits(value, devices.d), coupling)

    def round(
        self, values: Floats, reference: Floats, steps: Floats, is_sent: Mask, devices: Devices
    ) -> tuple[Floats, Integers]:
        """Round tables to multiples of the step from a reference.

        A table is sent unrounded, with 64 bits per number, if one of its numbers is not finite or at least 2^52 steps
        from the reference. Columns other than coordinates and sums are sent unrounded, except for integers.

        Parameters
        ----------
        values, reference : float64[n, r, w]
        steps : float64[n, w]
            Step of each column.
        is_sent : bool[n, r, w]
            Marks the numbers that are sent.
        devices : Devices

        Returns
        -------
        rounded : float64[n, r, w]
        bits : int64[n]
            Encoded length of each table.
        """
        n, _, width = values.shape
        rounded_columns = width if self.sums else devices.d
        with np.errstate(invalid="ignore", over="ignore"):
            counts = np.rint(_divide(np.where(is_sent, values - reference, 0.0), steps[:, None, :]))
            # Points without variance have step 0. Then only a table that equals its reference can be represented.
            is_lost = (steps[:, None, :] == 0.0) & is_sent & (values != reference)
            is_representable = np.asarray((np.abs(counts) < _LARGEST) & ~is_lost)
        rows, rounded = is_sent[:, :, 0].sum(axis=1), values.copy()
        # One bit tells whether the table is rounded.
        bits = np.ones(n, np.int64)
        fits: Mask = np.all(is_representable[:, :, :rounded_columns], axis=(1, 2))
        counts = np.where(is_representable, counts, 0.0)
        moved = np.where(is_sent, reference + steps[:, None, :] * counts, values)[:, :, :rounded_columns]
        rounded[:, :, :rounded_columns] = np.where(fits[:, None, None], moved, values[:, :, :rounded_columns])
        integer_bits = self.count_bits(counts[:, :, :rounded_columns], rows, devices)
        bits += np.where(fits, integer_bits, _BITS_PER_NUMBER * rounded_columns * rows)
        for column in range(rounded_columns, width):
            numbers = np.where(is_sent, values, 0.0)[:, :, column : column + 1]
            bits += number_bits(numbers, rows, rice=self.rice, kernel=devices.kernels.integer_bits)
        return rounded, bits

    def count_bits(self, counts: Floats, rows: Integers, devices: Devices) -> Integers:
        """Compute the encoded length of tables of integers, int64[n] in bits."""
        return devices.kernels.integer_bits(counts.astype(np.int64), rows, rice=self.rice)


class _Measuring:
    """Encoding of the stage that computes the total variance: its messages are real numbers."""


@dataclass
class _GridMoves:
    """Encoding of a method that moves on the grid: devices that moved send their moves, the others are silent.

    Attributes
    ----------
    coder : StepCoder
    common : bool
        Whether all devices start from the same centroids, so that neighbors know the first table.
    references : References
    not_converged : int
        Local devices that have not converged.
    """

    coder: StepCoder
    common: bool
    references: References
    not_converged: int = 0

    def extend(self, schedule: Schedule, network: Network) -> Schedule:
        """Return the schedule with a stricter termination: silence ends it only once all devices have converged."""

        # A device sends nothing in a round in which it is not active or its centroids do not move on the grid. Until it
        # has converged it may move in a later round, so an exchange without messages is not the end.
        def check_termination(stop: str) -> str:
            not_converged = network.total(np.array([self.not_converged]))[0]
            return schedule.check_termination("" if stop == "silent" and not_converged else stop)

        return schedule._replace(check_termination=check_termination)

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the messages of the devices whose centroids moved, with their encoded bytes."""
        rows, last = messages.rows, self.references.tables
        self.not_converged = len(rows) - int(np.count_nonzero(context.state.converged))
        tables = np.where(find_sent_rows(messages)[:, :, None], messages.values, 0.0 if last is None else last)
        self.references.tables = tables
        # Initial exchange. If all devices start from the same centroids, the tables are known: 0 bytes.
        if last is None:
            return messages._replace(wire=np.zeros_like(rows) if self.common else None)
        has_moved = (tables != last).any(axis=(1, 2))
        moved, wire = np.flatnonzero(has_moved), np.zeros_like(rows)
        step = self.coder.find_steps(agreed, context.devices, context.state)[moved, None, None]
        counts = np.rint(_divide(tables[moved] - last[moved], step))
        wire[moved] = to_bytes(self.coder.count_bits(counts, rows[moved], context.devices))
        return messages._replace(rows=np.where(has_moved, rows, -1), wire=wire)


@dataclass
class _PeerTables:
    """Encoding of other peer methods: differences to the last table, at first to the mean of all points.

    Attributes
    ----------
    coder : StepCoder
    common : bool
        Whether all devices start from the same centroids, which are then the first reference.
    references : References
    """

    coder: StepCoder
    common: bool
    references: References

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the rounded messages, with their encoded bytes."""
        devices, values = context.devices, messages.values
        if self.references.tables is None:
            first = self.references.tables = np.zeros(values.shape)
            if self.coder.algorithm.traits.message_content is MessageContent.CENTROIDS:
                first[:, :, : devices.d] = agreed[:, None, :-1]
                if self.common:
                    centroids = context.state.centroids
                    first[:, :, : devices.d] = np.where(np.isfinite(centroids), centroids, first[:, :, : devices.d])
        steps = self._find_column_steps(agreed, devices, values.shape[2])
        reference = self.references.find(messages)
        rounded, bits = self.coder.round(values, reference, steps, find_sent(messages), devices)
        sent = messages._replace(values=rounded, wire=to_bytes(bits))
        self.references.keep(sent)
        return sent

    def _find_column_steps(self, agreed: Floats, devices: Devices, width: int) -> Floats:
        """Compute the step of each column, float64[n, w].

        A row of a sum is (sum, weight), and its mean is sent to the precision of a centroid: the step of the sum is
        that of a centroid times the mean weight of a row, and the step of the weight is smaller by the root mean square
        of all points, since the weight multiplies coordinates.
        """
        step, d = self.coder.find_steps(agreed, devices), devices.d
        steps = np.ones((len(devices), width))
        steps[:, :d] = step[:, None]
        if self.coder.sums:
            mean, variance = agreed[:, :-1], agreed[:, -1]
            root_mean_square = np.sqrt(np.cumsum(mean * mean, axis=1)[:, -1] + variance)
            steps[:, d] = _divide(step, root_mean_square)
            steps *= devices.total_weight / (devices.total * self.coder.algorithm.k)
        return steps


@dataclass
class _ServerReports:
    """Encoding of server methods: differences to the nearest row of the server's last table.

    Attributes
    ----------
    coder : StepCoder
    references : References
        Last table of the server, float64[n, k, d]; +inf at other devices.
    """

    coder: StepCoder
    references: References

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the rounded messages, with their encoded bytes, which include the number of each reference row."""
        devices, state, d = context.devices, context.state, context.devices.d
        is_server, values, is_sent = devices.ids == devices.server, messages.values, find_sent(messages)
        # The server sends in the units of the points, clients in their normalized units.
        shift = np.where(is_server[:, None], 0.0, state.shift)
        span = np.where(is_server[:, None], 1.0, state.span)
        last = np.full(state.centroids.shape, np.inf) if self.references.tables is None else self.references.tables
        # The centroids of a client are the last table that it received from the server.
        known = np.where(is_server[:, None, None], last, state.centroids)
        reference, bits = np.zeros(values.shape), np.zeros(len(values), np.int64)
        for i in np.flatnonzero(messages.rows > 0):
            known_rows = known[i, known[i, :, 0] < np.inf]
            # Before the first table of the server, the reference is the mean of all points.
            known_rows = known_rows if len(known_rows) else agreed[i : i + 1, :-1]
            rows = (known_rows - shift[i]) / span[i]
            difference = values[i, : messages.rows[i], None, :d] - rows
            nearest = np.argmin(np.cumsum(difference * difference, axis=2)[:, :, -1], axis=1)
            reference[i, : messages.rows[i], :d] = rows[nearest]
            bits[i] = messages.rows[i] * int(len(rows) - 1).bit_length()
        steps = np.ones((len(values), values.shape[2]))
        steps[:, :d] = self.coder.find_steps(agreed, devices)[:, None] / span
        rounded, table_bits = self.coder.round(values, reference, steps, is_sent, devices)
        if (messages.rows[is_server] >= 0).any():
            last = last.copy()
            last[is_server] = np.inf
            sent = np.where(is_sent, rounded, np.inf)
            last[is_server, : values.shape[1]] = sent[is_server, : last.shape[1], :d]
        self.references.tables = last
        return messages._replace(values=rounded, wire=to_bytes(bits + table_bits))


_Mode = _Measuring | _GridMoves | _PeerTables | _ServerReports


class Quantizer(PlacedOnGraph, ReshapesMethod, Transform):
    """Transform that encodes the tables of a method as integers.

    Parameters
    ----------
    spec : Quantization
    """

    name: ClassVar[str] = "quantization"
    order: ClassVar[Order] = Order.PERTURB
    option: ClassVar[str] = "quantize"
    prepared: ClassVar[tuple[str, ...]] = ("_method", "_common", "_mode")
    incompatible_with: ClassVar[Reasons] = {
        "noise": "noise is not a multiple of the step size",
        "byzantine": "Byzantine devices send tables that are not differences",
        **REFERENCES_AT_BOTH_ENDS,
    }

    def __init__(self, *, spec: Quantization) -> None:
        self._spec = spec
        # Mean and total variance of all points, as each device received them, float64[n, d + 1].
        self._agreed = np.zeros((0, 0))
        # Method of the run.
        self._method: Any = None
        # Whether all devices start from the same centroids.
        self._common = False
        self._mode: _Mode = _Measuring()
        # Last tables of the stage.
        self._references = References(skip_selected=True)

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `quantize`."""
        spec: Quantization | None = options.get("quantize")
        return {"spec": spec} if spec is not None and spec.in_integers else None

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return False: both ends continue with the table that was sent."""
        return False

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Return the stage that computes the total variance."""
        tree = build_spanning_tree(at.topology)
        return (Stage(TotalVariance.name, TotalVariance(at.k, tree), 1),)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Return the method unchanged; if it moves on the grid, its messages are exact, so `alters` is set to False."""
        self.alters = not algorithm.traits.moves_on_grid
        return algorithm

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Determine whether all devices begin the method with the same centroids."""
        method_stage = find_method_stage(stages)
        self._method = method_stage.algorithm
        # The first stage computes the total variance; the others, up to the method, are the initialization.
        init_traits = [stage.algorithm.traits for stage in stages[1 : stages.index(method_stage)]]
        self._common = bool(init_traits) and all(traits.common_centroids for traits in init_traits)
        self._agreed = np.zeros((len(devices), devices.d + 1))

    def begin(self, stage: Stage, *, closing: bool) -> "Quantizer | None":
        """Return the transform for the stage of the total variance, stages on the grid and the method, else None.

        The step size is that of the algorithm of the stage; in stages after the method it is that of the method.
        """
        references = self._references = References(skip_selected=True)
        if stage.name == TotalVariance.name:
            self._mode = _Measuring()
            return self
        coder = StepCoder(self._spec, self._method if stage.after else stage.algorithm)
        if coder.moves:
            self._mode = _GridMoves(coder, self._common, references)
        elif isinstance(stage.algorithm, Star):
            self._mode = _ServerReports(coder, references)
        else:
            self._mode = _PeerTables(coder, self._common, references)
        return self if closing or coder.moves else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Wrap a method that moves on the grid, so that it knows the grid; other methods are returned unchanged."""
        if isinstance(self._mode, _GridMoves):
            return _GridMethod(algorithm, self), self._mode.extend(schedule, network)
        return algorithm, schedule

    def grid(self, devices: Devices, state: Any) -> Grid:
        """Return the grid of each device."""
        assert not isinstance(self._mode, _Measuring)
        coder = self._mode.coder
        return Grid(coder.find_steps(self._agreed, devices, state), self._spec.threshold, coder.rice)

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Encode the messages: rounded as the receivers read them, with their encoded bytes."""
        if isinstance(self._mode, _Measuring):
            self._agreed = context.state.agreed
            return messages
        return messages if isinstance(messages, SparseMessages) else self._mode.encode(messages, context, self._agreed)

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the spec for the summary."""
        return {"quantize": str(self._spec)}


@dataclass(frozen=True)
class _GridMethod:
    """Algorithm whose batch contains the grid."""

    algorithm: Any
    quantizer: Quantizer

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the initial exchange."""
        return self.algorithm.initial_state(self._with_grid(devices, start), start)

    def message(self, state: Any, devices: Devices) -> Messages:
        """Return the messages of the algorithm."""
        messages: Messages = self.algorithm.message(state, self._with_grid(devices, state))
        return messages

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Return the state of the algorithm after a turn."""
        return self.algorithm.update(state, inbox, self._with_grid(devices, state))

    def _with_grid(self, devices: Devices, state: Any) -> Devices:
        return devices.on_grid(self.quantizer.grid(devices, state))


def step_bits(algorithm: Any, devices: Devices) -> int:
    """Compute b of the step size from the coupling of a method."""
    parameters = algorithm.resolved_parameters(devices)
    coupling = parameters["coupling"]
    # `alpha` is in units of point weight: convert it to a coupling without unit.
    if coupling is None:
        coupling = parameters["alpha"] * algorithm.k * devices.total / devices.total_weight
    return count_bits(coupling, devices.d)


def _divide(values: Floats, steps: Floats) -> Floats:
    """Divide values by steps; 0 where the step is 0."""
    return np.divide(values, steps, out=np.zeros_like(values), where=steps > 0.0)


def find_obstacle(algorithm: Any) -> str:
    """Return the reason why the messages of a method cannot be integers, empty if they can."""
    traits = algorithm.traits
    declared = traits.incompatible_with.get("quantization", "")
    if declared or traits.message_content in _ROWS:
        return declared
    return "does not send rows of centroids or sums that could be rounded"
