"""Messages of integers: tables travel as differences in whole steps, and what was sent is what both ends go on with.

The step is ``2^-b sqrt(total variance)``, with a total variance that the devices sum up along a tree before anything
else (`p2pkm.methods.init.total_variance`). A method that can (`MethodTraits.moves_on_grid`) moves its centroids by
whole steps, so that its state is what its neighbors hold, what is claimed of its objective stays true, and a device
that has not moved is silent. Of any other method the rows are rounded where they are sent.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.references import References, find_sent
from p2pkm.channel.transform import (
    REFERENCES_AT_BOTH_ENDS,
    Context,
    Messages,
    Order,
    PlacedOnGraph,
    Reasons,
    ReshapesMethod,
    Settings,
    Transform,
)
from p2pkm.core.batch import Devices, Floats, Grid, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.spec import Spec, read_value, suggest
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import check_integer, check_scalar
from p2pkm.core.wire_format import number_bits, to_bytes
from p2pkm.methods.building_blocks.quantization import FINEST, count_bits
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.total_variance import TotalVariance
from p2pkm.methods.registry import suggest_methods
from p2pkm.methods.schedules import Schedule
from p2pkm.methods.server.star import Star
from p2pkm.network.graph import Topology
from p2pkm.network.transport import Network

_ROWS = (MessageContent.CENTROIDS, MessageContent.SUMS)
_CODES = ("rice", "int8")
_OPEN, _REAL = "auto", "none"
_USUAL = 12  # bits of the step of a method whose neighbors do not hold it back
_LARGEST = 2.0**52  # steps; a table with a longer way travels as it is
_NUMBER = 64  # bits of a number that is not rounded


@dataclass(frozen=True)
class Quantization:
    """How tables travel as integers.

    Attributes
    ----------
    code : {"auto", "none", "rice", "int8"}
        Rice or adaptive code, whichever is shorter, or a fixed width of 8 bits (16, 32 or 64 where they are needed),
        see `p2pkm.core.wire_format`. None: real numbers; auto: rice where the method has it as its default and nothing
        keeps the run from it, else real numbers.
    bits : int or None
        b of the step ``2^-b sqrt(total variance)``; None: ``ceil(log2(64 (1 + 2 c)))`` at a coupling c, else 12.
    threshold : int
        A row of which no coordinate moves by so many steps is not sent.

    Examples
    --------
    >>> import p2pkm
    >>> p2pkm.Quantization.of("rice") == p2pkm.Quantization("rice")
    True
    """

    code: Literal["auto", "none", "rice", "int8"]
    _: KW_ONLY
    bits: int | None = None
    threshold: int = 2

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        if check_scalar(self.code, "quantize") not in _READ:
            raise ExperimentError(f"unknown quantize {self.code!r}. {suggest(str(self.code), _READ)}")
        check_integer(self.threshold, 1, "quantize:threshold")
        if self.bits is not None:
            check_integer(self.bits, 1, "quantize:bits", FINEST)

    def __str__(self) -> str:
        """Return the text of the command line, such as ``rice:bits=10``."""
        given = {"bits": self.bits} if self.bits is not None else {}
        return str(Spec(self.code, given | ({"threshold": self.threshold} if self.threshold != 2 else {})))

    @property
    def in_integers(self) -> bool:
        """Return whether it names a code."""
        return self.code in _CODES

    @property
    def is_open(self) -> bool:
        """Return whether it is left to the run."""
        return self.code == _OPEN

    @classmethod
    def of(cls, given: "Quantization | str | None") -> "Quantization":
        """Return the value of a text such as ``rice:threshold=1``; None: real numbers; a value stays as it is.

        Raises
        ------
        ExperimentError
            If it cannot be read, or a figure is out of range.
        """
        return read_value(cls, _REAL if given is None else given, _READ, "quantize", cls._make)

    @classmethod
    def _make(cls, spec: Spec) -> "Quantization":
        return cls(spec.name, **spec.options)  # type: ignore[arg-type]


def _take_options(*, bits: int | None = None, threshold: int = 2) -> None:
    """Declare the keys of a spec."""


def _take_nothing() -> None:
    """Declare a spec without keys."""


_READ = dict.fromkeys((_OPEN, _REAL), _take_nothing) | dict.fromkeys(_CODES, _take_options)


class StepCoder:
    """Step sizes of the devices in a stage, and tables in whole steps with their lengths.

    Attributes
    ----------
    algorithm : Algorithm
        Its parameters determine the step.
    moves : bool
        Whether it moves its centroids by whole steps.
    sums : bool
        Whether rows are sums, whose last column is in steps, too.
    rice : bool
    """

    def __init__(self, spec: Quantization, algorithm: Any) -> None:
        self.algorithm, self.rice = algorithm, spec.code == "rice"
        self.moves = algorithm.traits.moves_on_grid
        self.sums = algorithm.traits.message_content is MessageContent.SUMS
        self._bits = spec.bits
        self._known: tuple[Any, ...] = (None,) * 3  # inputs of the steps below
        self._steps = np.zeros(0)

    def find_steps(self, agreed: Floats, devices: Devices, state: Any = None) -> Floats:
        """Return the step of each device in the units of the points, float64[n].

        agreed: mean and total variance of all points, float64[n, d + 1].
        """
        known = agreed, optional(state, "rehearsed"), devices.total_weight
        if known[0] is not self._known[0] or known[1] is not self._known[1] or known[2] != self._known[2]:
            bits = self._bits or (step_bits(self.algorithm.settle(state), devices) if self.moves else _USUAL)
            self._known, self._steps = known, np.sqrt(agreed[:, -1]) * 2.0**-bits
        return self._steps

    def round(
        self, values: Floats, reference: Floats, steps: Floats, real: Mask, devices: Devices
    ) -> tuple[Floats, Integers]:
        """Return the tables in whole steps from a reference, and their bits.

        A table with a number that is not finite or more than 2^52 steps away travels as it is, 64 bits a number. So
        does a column of figures other than coordinates and sums, unless all of them are whole numbers.
        """
        n, _, width = values.shape
        rounds = width if self.sums else devices.d
        with np.errstate(invalid="ignore", over="ignore"):
            way = np.rint(_divide(np.where(real, values - reference, 0.0), steps[:, None, :]))
            lost = (steps[:, None, :] == 0.0) & real & (values != reference)
            short = np.asarray((np.abs(way) < _LARGEST) & ~lost)
        rows, rounded, bits = real[:, :, 0].sum(axis=1), values.copy(), np.ones(n, np.int64)
        fits: Mask = np.all(short[:, :, :rounds], axis=(1, 2))
        way = np.where(short, way, 0.0)
        moved = np.where(real, reference + steps[:, None, :] * way, values)[:, :, :rounds]
        rounded[:, :, :rounds] = np.where(fits[:, None, None], moved, values[:, :, :rounds])
        bits += np.where(fits, self.count_bits(way[:, :, :rounds], rows, devices), _NUMBER * rounds * rows)
        for column in range(rounds, width):
            one = slice(column, column + 1)
            rest = np.where(real, values, 0.0)[:, :, one]
            bits += number_bits(rest, rows, rice=self.rice, kernel=devices.kernels.integer_bits)
        return rounded, bits

    def count_bits(self, steps: Floats, rows: Integers, devices: Devices) -> Integers:
        """Return the length of each table of whole steps, int64[n]."""
        return devices.kernels.integer_bits(steps.astype(np.int64), rows, rice=self.rice)


@dataclass
class _Measuring:
    """The stage that sums up the variance, whose messages are left alone."""

    references: References = field(default_factory=References)


@dataclass
class _GridMoves:
    """Tables of a method that moves on the grid: the moves of the devices that have moved; the others are silent.

    Attributes
    ----------
    coder : StepCoder
    common : bool
        Whether neighbors know the first table.
    references : References
    waiting : int
        Devices that have not converged.
    """

    coder: StepCoder
    common: bool
    references: References = field(default_factory=References)
    waiting: int = 0

    def extend(self, schedule: Schedule, network: Network) -> Schedule:
        """Return the schedule, in which silence is the end only once every device has converged."""

        def check_termination(stop: str) -> str:
            left = network.total(np.array([self.waiting]))[0]
            return schedule.check_termination("" if stop == "silent" and left else stop)

        return schedule._replace(check_termination=check_termination)

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the messages of those who have moved on the grid."""
        rows, last = messages.rows, self.references.tables
        self.waiting = int(np.sum(~context.state.converged))
        now = np.where(find_sent(messages), messages.values, 0.0 if last is None else last)
        self.references.tables = now
        if last is None:  # the opening, of which nothing has to travel if neighbors know what is in it
            return messages._replace(wire=np.zeros_like(rows) if self.common else None)
        moved = (now != last).any(axis=(1, 2))
        who, wire = np.flatnonzero(moved), np.zeros_like(rows)
        step = self.coder.find_steps(agreed, context.devices, context.state)[who, None, None]
        steps = np.rint(_divide(now[who] - last[who], step))
        wire[who] = to_bytes(self.coder.count_bits(steps, rows[who], context.devices))
        return messages._replace(rows=np.where(moved, rows, -1), wire=wire)


@dataclass
class _PeerTables:
    """Tables of peers in whole steps from the last one, at first from the mean of all points.

    Attributes are those of `_GridMoves`.
    """

    coder: StepCoder
    common: bool
    references: References = field(default_factory=References)

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the messages as they are read."""
        devices, values = context.devices, messages.values
        if self.references.tables is None:
            first = self.references.tables = np.zeros(values.shape)
            if self.coder.algorithm.traits.message_content is MessageContent.CENTROIDS:
                first[:, :, : devices.d] = agreed[:, None, :-1]
                if self.common:  # what all start from
                    first[:, :, : devices.d] = np.where(
                        np.isfinite(context.state.centroids), context.state.centroids, first[:, :, : devices.d]
                    )
        steps = self._find_column_steps(agreed, devices, values.shape[2])
        reference = self.references.find(messages)
        rounded, bits = self.coder.round(values, reference, steps, find_sent(messages), devices)
        sent = messages._replace(values=rounded, wire=to_bytes(bits))
        self.references.keep(sent)
        return sent

    def _find_column_steps(self, agreed: Floats, devices: Devices, width: int) -> Floats:
        """Return the step of each column, float64[n, w].

        A sum is in steps of a centroid times the mean weight of a row; its weight, which multiplies coordinates, in
        such steps over the root mean square of all points.
        """
        step, d = self.coder.find_steps(agreed, devices), devices.d
        steps = np.ones((len(devices), width))
        steps[:, :d] = step[:, None]
        if self.coder.sums:
            mean, variance = agreed[:, :-1], agreed[:, -1]
            size = np.sqrt(np.cumsum(mean * mean, axis=1)[:, -1] + variance)
            steps[:, d] = _divide(step, size)
            steps *= devices.total_weight / (devices.total * self.coder.algorithm.k)
        return steps


@dataclass
class _ServerReports:
    """Tables of clients and server in whole steps from the nearest row of the server's last table.

    Attributes
    ----------
    coder : StepCoder
    references : References
        Of the server, float64[n, k, d]; elsewhere +inf.
    """

    coder: StepCoder
    references: References = field(default_factory=References)

    def encode(self, messages: DenseMessages, context: Context, agreed: Floats) -> DenseMessages:
        """Return the messages as they are read."""
        devices, state, d = context.devices, context.state, context.devices.d
        hub, values, real = devices.ids == devices.server, messages.values, find_sent(messages)
        shift, span = (np.where(hub[:, None], usual, part) for usual, part in ((0.0, state.shift), (1.0, state.span)))
        last = np.full(state.centroids.shape, np.inf) if self.references.tables is None else self.references.tables
        known = np.where(hub[:, None, None], last, state.centroids)
        reference, bits = np.zeros(values.shape), np.zeros(len(values), np.int64)
        for i in np.flatnonzero(messages.rows > 0):
            held = known[i, known[i, :, 0] < np.inf]
            rows = (held - shift[i]) / span[i] if len(held) else (agreed[i : i + 1, :-1] - shift[i]) / span[i]
            apart = values[i, : messages.rows[i], None, :d] - rows
            nearest = np.argmin(np.cumsum(apart * apart, axis=2)[:, :, -1], axis=1)
            reference[i, : messages.rows[i], :d] = rows[nearest]
            bits[i] = messages.rows[i] * int(len(rows) - 1).bit_length()
        steps = np.ones((len(values), values.shape[2]))
        steps[:, :d] = self.coder.find_steps(agreed, devices)[:, None] / span
        rounded, more = self.coder.round(values, reference, steps, real, devices)
        if (messages.rows[hub] >= 0).any():
            last = last.copy()
            last[hub] = np.inf
            last[hub, : values.shape[1]] = np.where(real, rounded, np.inf)[hub, : last.shape[1], :d]
        self.references.tables = last
        return messages._replace(values=rounded, wire=to_bytes(bits + more))


_Mode = _Measuring | _GridMoves | _PeerTables | _ServerReports


class Quantizer(PlacedOnGraph, ReshapesMethod, Transform):
    """Send the tables of a method as integers.

    Parameters
    ----------
    spec : Quantization
    """

    name: ClassVar[str] = "quantization"
    order: ClassVar[Order] = Order.PERTURB
    option: ClassVar[str] = "quantize"
    incompatible_with: ClassVar[Reasons] = {
        "noise": "noise is no whole number of steps",
        "byzantine": "Byzantine devices send tables that are no differences",
        **REFERENCES_AT_BOTH_ENDS,
    }

    def __init__(self, *, spec: Quantization) -> None:
        self._spec = spec
        self._agreed = np.zeros((0, 0))  # mean and total variance of all points, as each device knows them
        self._own: Any = None  # the run's method
        self._common = False  # whether neighbors know the first table
        self._mode: _Mode = _Measuring()
        self._counts = False  # whether the stage sends whole numbers by itself

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `quantize`."""
        spec: Quantization | None = options.get("quantize")
        return {"spec": spec} if spec is not None and spec.in_integers else None

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Reject methods whose messages cannot be integers."""
        why = _explain_refusal(algorithm)
        if why:
            others = suggest_methods(lambda other: not _explain_refusal(other))
            raise ExperimentError(
                f"quantize is {str(settings['spec'])!r}, but {algorithm.name} {why}. Remove --quantize, or use {others}"
            )

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return False: both ends continue with the table that was sent."""
        return False

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Return the stage that sums up the total variance."""
        tree = build_spanning_tree(at.topology)
        return (Stage(TotalVariance.name, TotalVariance(at.k, tree), 1),)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Note whether the method moves on the grid: then its state is what is sent, and nothing is altered."""
        self.alters = not algorithm.traits.moves_on_grid
        return algorithm

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Note whether all devices will begin with the same centroids."""
        own = find_method_stage(stages)
        self._own = own.algorithm
        before = [stage.algorithm.traits for stage in stages[1 : stages.index(own)]]
        self._common = bool(before) and all(one.common_centroids for one in before)
        self._agreed = np.zeros((len(devices), devices.d + 1))

    def begin(self, stage: Stage, *, closing: bool) -> "Quantizer | None":
        """Act where the variance is summed up, where a stage is on the grid, and where the run's own method sends.

        The steps are those of the stage's algorithm, after the run's method those of that method.
        """
        self._counts = stage.algorithm.traits.counts_on_grid
        if stage.name == TotalVariance.name:
            self._mode = _Measuring()
            return self
        coder = StepCoder(self._spec, self._own if stage.after else stage.algorithm)
        if coder.moves:
            self._mode = _GridMoves(coder, self._common)
        elif isinstance(stage.algorithm, Star):
            self._mode = _ServerReports(coder)
        else:
            self._mode = _PeerTables(coder, self._common)
        return self if closing or coder.moves or self._counts else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Let the method move on the grid, if it can; silence is the end once every device has converged."""
        if self._counts:
            return _OnGrid(algorithm, self), schedule
        if isinstance(self._mode, _GridMoves):
            return _OnGrid(algorithm, self), self._mode.extend(schedule, network)
        return algorithm, schedule

    def grid(self, devices: Devices, state: Any) -> Grid:
        """Return the steps of the devices."""
        assert not isinstance(self._mode, _Measuring)
        coder = self._mode.coder
        return Grid(coder.find_steps(self._agreed, devices, state), self._spec.threshold, coder.rice)

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages as they are read, with their lengths."""
        if isinstance(self._mode, _Measuring):
            self._agreed = context.state.agreed
            return messages
        return messages if isinstance(messages, SparseMessages) else self._mode.encode(messages, context, self._agreed)

    def snapshot(self) -> dict[str, Any]:
        """Return what the devices agreed on and sent last."""
        return {"agreed": self._agreed, "last": self._mode.references.tables}

    def restore(self, kept: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self._agreed, self._mode.references.tables = kept["agreed"], kept["last"]

    def figures(self, network: Network) -> dict[str, Any]:
        """Return the spec."""
        return {"quantize": str(self._spec)}


@dataclass(frozen=True)
class _OnGrid:
    """An algorithm whose devices know the grid."""

    algorithm: Any
    quantizer: Quantizer

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Return the state before the opening."""
        return self.algorithm.initial_state(self._place(devices, start), start)

    def message(self, state: Any, devices: Devices) -> Messages:
        """Return what the devices send."""
        messages: Messages = self.algorithm.message(state, self._place(devices, state))
        return messages

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Return the state after a turn."""
        return self.algorithm.update(state, inbox, self._place(devices, state))

    def _place(self, devices: Devices, state: Any) -> Devices:
        return devices.on_grid(self.quantizer.grid(devices, state))


def step_bits(algorithm: Any, devices: Devices) -> int:
    """Count the bits of the step size at the coupling of a method."""
    found = algorithm.resolved_parameters(devices)
    coupling = found["coupling"]
    if coupling is None:  # a raw alpha, in the unit of the weights
        coupling = found["alpha"] * algorithm.k * devices.total / devices.total_weight
    return count_bits(coupling)


def _divide(values: Floats, steps: Floats) -> Floats:
    """Return values in steps, 0 where the step is 0."""
    steps = np.broadcast_to(steps, values.shape)
    return np.divide(values, steps, out=np.zeros_like(values), where=steps > 0.0)


def _explain_refusal(algorithm: Any) -> str:
    """Return the reason why the messages of a method cannot be integers, empty if they can."""
    traits = algorithm.traits
    if traits.no_quantization or traits.message_content not in _ROWS:
        return traits.no_quantization or "does not send rows of centroids or sums that could be rounded"
    return ""
