"""Messages of integers: tables travel as differences in whole steps, and what was sent is what both ends go on with.

The step is ``2^-b sqrt(total variance)``, with a total variance that the devices sum up along a tree before anything
else (`p2pkm.methods.init.total_variance`). A method that can (`MethodTraits.moves_on_grid`) moves its centroids by
whole steps, so that its state is what its neighbors hold, what is claimed of its objective stays true, and a device
that has not moved is silent. Of any other method the rows are rounded where they are sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.channel.transform import Context, Messages, Order, Settings, Transform
from p2pkm.core.batch import Devices, Floats, Grid, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages
from p2pkm.core.spec import Spec, read_value, suggest
from p2pkm.core.states import optional
from p2pkm.core.traits import MessageContent
from p2pkm.core.validation import single, whole
from p2pkm.core.wire_format import number_bits, to_bytes
from p2pkm.methods.building_blocks.quantization import FINEST, count_bits
from p2pkm.methods.building_blocks.spanning_tree import grow
from p2pkm.methods.init.pipelines import Stage, find_own
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.total_variance import TotalVariance
from p2pkm.methods.registry import suggest_methods
from p2pkm.methods.schedules import Schedule
from p2pkm.methods.server.star import StarState
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
        if single(self.code, "quantize") not in _READ:
            raise ExperimentError(f"unknown quantize {self.code!r}. {suggest(str(self.code), _READ)}")
        whole(self.threshold, 1, "quantize:threshold")
        if self.bits is not None:
            whole(self.bits, 1, "quantize:bits", FINEST)

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


class Quantizer(Transform):
    """Send the tables of a method as integers.

    Parameters
    ----------
    spec : Quantization
    """

    name: ClassVar[str] = "quantization"
    order: ClassVar[Order] = Order.PERTURB

    def __init__(self, *, spec: Quantization) -> None:
        self._spec = spec
        self._exact = False  # whether the run's method moves on the grid
        self._moves = False  # whether that of the stage does
        self._counts = False  # whether that of the stage sends whole numbers by itself
        self._agreed = np.zeros((0, 0))  # mean and total variance of all points, as each device knows them
        self._last: Floats | None = None  # what each device sent last, what others know of it, or the server's table
        self._own: Any = None  # the run's method
        self._algorithm: Any = None  # whose grid the stage is on: its own method, after the run's method that one
        self._measures = False  # whether the stage sums up the variance
        self._content = MessageContent.OTHER
        self._common = False  # whether neighbors know the first table
        self._waiting = 0  # devices that have not converged
        self._known: tuple[Any, ...] = (None,) * 3  # what the steps of this stage were worked out from
        self._steps = np.zeros(0)

    @classmethod
    def configure(cls, options: Settings) -> Settings | None:
        """Read the option `quantize`."""
        spec: Quantization | None = options.get("quantize")
        if spec is None or not spec.in_integers:
            return None
        faults, byzantine = options.get("faults"), options.get("byzantine")
        for name, given, why in (
            ("faults", faults is not None and not faults.empty,
             "with late or lost messages two ends of a link would hold different tables"),
            ("byzantine", byzantine is not None and byzantine.count > 0,
             "Byzantine devices send tables that are no differences"),
            ("noise", options.get("noise"), "noise is no whole number of steps"),
        ):  # fmt: skip
            if given:
                raise ExperimentError(f"quantize is {str(spec)!r}, and {name} is given: {why}; leave one of them out")
        return {"spec": spec, "timed": options.get("link_model") is not None}

    @classmethod
    def check(cls, settings: Settings, algorithm: Any) -> None:
        """Refuse methods whose messages cannot be integers."""
        why = _explain_refusal(algorithm, timed=settings["timed"])
        if why:
            others = suggest_methods(lambda other: not _explain_refusal(other, timed=settings["timed"]))
            raise ExperimentError(
                f"quantize is {str(settings['spec'])!r}, but {algorithm.name} {why}. Remove --quantize, or use {others}"
            )

    @classmethod
    def place(
        cls, settings: Settings, topology: Topology, seed: int, arrays: Mapping[str, Any] | None = None
    ) -> Settings:
        """Refuse a graph whose links change."""
        if topology.varying is not None:
            raise ExperimentError(
                f"quantize is {str(settings['spec'])!r}, but the links of {topology.varying.name} change from round to "
                "round, and over a new one nobody knows the table that a difference is about; leave it out"
            )
        return {"spec": settings["spec"]}

    @classmethod
    def disturbs(cls, settings: Settings) -> bool:
        """Return False: both ends go on with what was sent."""
        return False

    @classmethod
    def prepare(cls, settings: Settings, at: InitContext) -> tuple[Stage, ...]:
        """Sum up the total variance first."""
        tree = grow(at.topology)
        return (Stage(TotalVariance.name, TotalVariance(at.k, tree), 1),)

    def adapt(self, algorithm: Any, topology: Topology) -> Any:
        """Note whether the method moves on the grid."""
        self._exact = algorithm.traits.moves_on_grid
        return algorithm

    @property
    def alters(self) -> bool:
        """Return whether rows are rounded where they are sent; on the grid the state is what is sent."""
        return not self._exact

    def start(self, stages: Sequence[Stage], devices: Devices, network: Network) -> None:
        """Look whether all devices will begin with the same centroids."""
        own = find_own(stages)
        self._own = own.algorithm
        before = [stage.algorithm.traits for stage in stages[1 : stages.index(own)]]
        self._common = bool(before) and all(one.common_centroids for one in before)
        self._agreed = np.zeros((len(devices), devices.d + 1))

    def begin(self, stage: Stage, *, closing: bool) -> "Quantizer | None":
        """Act where the variance is summed up, where a stage is on the grid, and where the run's own method sends."""
        self._last, self._counts, self._known = None, stage.algorithm.traits.counts_on_grid, (None,) * 3
        self._measures = stage.name == TotalVariance.name
        self._algorithm = self._own if stage.after else stage.algorithm
        traits = self._algorithm.traits
        self._content, self._moves = traits.message_content, traits.moves_on_grid
        acts = closing or self._moves or self._counts or self._measures
        return self if acts else None

    def wrap(self, algorithm: Any, schedule: Schedule, network: Network) -> tuple[Any, Schedule]:
        """Let the method move on the grid, if it can; silence is the end once every device has converged."""
        if self._counts or not self._moves:
            return _OnGrid(algorithm, self) if self._counts else algorithm, schedule

        def check_termination(stop: str) -> str:
            left = network.total(np.array([self._waiting]))[0]
            return schedule.check_termination("" if stop == "silent" and left else stop)

        return _OnGrid(algorithm, self), schedule._replace(check_termination=check_termination)

    def grid(self, devices: Devices, state: Any) -> Grid:
        """Return the steps of the devices."""
        return Grid(self._step(devices, state), self._spec.threshold, self._spec.code == "rice")

    def _step(self, devices: Devices, state: Any = None) -> Floats:
        """Return the step of each device in the units of the points, float64[n]."""
        known = self._agreed, optional(state, "rehearsed"), devices.total_weight
        if known[0] is not self._known[0] or known[1] is not self._known[1] or known[2] != self._known[2]:
            bits = self._spec.bits or (_count_bits(self._algorithm.settle(state), devices) if self._moves else _USUAL)
            self._known, self._steps = known, np.sqrt(self._agreed[:, -1]) * 2.0**-bits
        return self._steps

    def outgoing(self, messages: Messages, context: Context) -> Messages:
        """Return the messages as they are read, with their lengths."""
        if self._measures:
            self._agreed = context.state.agreed
        if isinstance(messages, SparseMessages):
            return messages
        self._waiting = int(np.sum(~context.state.converged))
        if self._moves:
            return self._count_moves(messages, context)
        return self._round_reports(messages, context) if isinstance(context.state, StarState) else (
            self._round_tables(messages, context))  # fmt: skip

    def _count_moves(self, messages: DenseMessages, context: Context) -> DenseMessages:
        """Return the messages of those who have moved on the grid; the others are silent."""
        real, rows = _real(messages), messages.rows
        if self._last is None:  # the opening, of which nothing has to travel if neighbors know what is in it
            self._last = np.where(real, messages.values, 0.0)
            return messages._replace(wire=np.zeros_like(rows) if self._common else None)
        now = np.where(real, messages.values, self._last)
        moved = (now != self._last).any(axis=(1, 2))
        who, wire = np.flatnonzero(moved), np.zeros_like(rows)
        step = self._step(context.devices, context.state)[who, None, None]
        steps = np.rint(_divide(now[who] - self._last[who], step))
        wire[who] = to_bytes(self._integer_bits(steps, rows[who], context.devices))
        self._last = now
        return messages._replace(rows=np.where(moved, rows, -1), wire=wire)

    def _round_tables(self, messages: DenseMessages, context: Context) -> DenseMessages:
        """Return the tables of peers in whole steps from the last one, at first from the mean of all points."""
        devices, real = context.devices, _real(messages)
        values = messages.values
        if self._last is None:
            self._last = np.zeros(values.shape)
            if self._content is MessageContent.CENTROIDS:
                self._last[:, :, : devices.d] = self._agreed[:, None, :-1]
                if self._common:  # what all start from
                    self._last[:, :, : devices.d] = np.where(
                        np.isfinite(context.state.centroids), context.state.centroids, self._last[:, :, : devices.d]
                    )
        rounded, bits = self._round(values, self._last, self._columns(devices, values.shape[2]), real, devices)
        if messages.edges is None:  # else not all neighbors know it
            self._last = np.where(real & np.isfinite(rounded), rounded, self._last)
        return messages._replace(values=rounded, wire=to_bytes(bits))

    def _round_reports(self, messages: DenseMessages, context: Context) -> DenseMessages:
        """Return what clients and server send in whole steps from the nearest row of the server's last table."""
        devices, state, d = context.devices, context.state, context.devices.d
        hub, values, real = devices.ids == devices.server, messages.values, _real(messages)
        shift, span = (np.where(hub[:, None], usual, part) for usual, part in ((0.0, state.shift), (1.0, state.span)))
        if self._last is None:
            self._last = np.full(state.centroids.shape, np.inf)
        known = np.where(hub[:, None, None], self._last, state.centroids)
        reference, bits = np.zeros(values.shape), np.zeros(len(values), np.int64)
        for i in np.flatnonzero(messages.rows > 0):
            held = known[i, known[i, :, 0] < np.inf]
            rows = (held - shift[i]) / span[i] if len(held) else (self._agreed[i : i + 1, :-1] - shift[i]) / span[i]
            apart = values[i, : messages.rows[i], None, :d] - rows
            nearest = np.argmin(np.cumsum(apart * apart, axis=2)[:, :, -1], axis=1)
            reference[i, : messages.rows[i], :d] = rows[nearest]
            bits[i] = messages.rows[i] * int(len(rows) - 1).bit_length()
        steps = np.ones((len(values), values.shape[2]))
        steps[:, :d] = self._step(devices)[:, None] / span
        rounded, more = self._round(values, reference, steps, real, devices)
        if (messages.rows[hub] >= 0).any():
            self._last = self._last.copy()
            self._last[hub] = np.inf
            self._last[hub, : values.shape[1]] = np.where(real, rounded, np.inf)[hub, : self._last.shape[1], :d]
        return messages._replace(values=rounded, wire=to_bytes(bits + more))

    def _columns(self, devices: Devices, width: int) -> Floats:
        """Return the step of each column of the tables of peers, float64[n, w].

        A sum is in steps of a centroid times the mean weight of a row; its weight, which multiplies coordinates, in
        such steps over the root mean square of all points.
        """
        step, d = self._step(devices), devices.d
        steps = np.ones((len(devices), width))
        steps[:, :d] = step[:, None]
        if self._content is MessageContent.SUMS:
            mean, variance = self._agreed[:, :-1], self._agreed[:, -1]
            size = np.sqrt(np.cumsum(mean * mean, axis=1)[:, -1] + variance)
            steps[:, d] = _divide(step, size)
            steps *= devices.total_weight / (devices.total * self._algorithm.k)
        return steps

    def _round(
        self, values: Floats, reference: Floats, steps: Floats, real: Mask, devices: Devices
    ) -> tuple[Floats, Integers]:
        """Return the tables in whole steps from a reference, and their bits.

        A table with a number that is not finite or more than 2^52 steps away travels as it is, 64 bits a number. So
        does a column of figures other than coordinates and sums, unless all of them are whole numbers.
        """
        n, _, width = values.shape
        rounds = width if self._content is MessageContent.SUMS else self._agreed.shape[1] - 1
        with np.errstate(invalid="ignore", over="ignore"):
            way = np.rint(_divide(np.where(real, values - reference, 0.0), steps[:, None, :]))
            lost = (steps[:, None, :] == 0.0) & real & (values != reference)
            short = np.asarray((np.abs(way) < _LARGEST) & ~lost)
        rows, rounded, bits = real[:, :, 0].sum(axis=1), values.copy(), np.ones(n, np.int64)
        fits: Mask = np.all(short[:, :, :rounds], axis=(1, 2))
        way = np.where(short, way, 0.0)
        moved = np.where(real, reference + steps[:, None, :] * way, values)[:, :, :rounds]
        rounded[:, :, :rounds] = np.where(fits[:, None, None], moved, values[:, :, :rounds])
        bits += np.where(fits, self._integer_bits(way[:, :, :rounds], rows, devices), _NUMBER * rounds * rows)
        for column in range(rounds, width):
            one = slice(column, column + 1)
            rest = np.where(real, values, 0.0)[:, :, one]
            bits += number_bits(rest, rows, rice=self._spec.code == "rice", kernel=devices.kernels.integer_bits)
        return rounded, bits

    def _integer_bits(self, steps: Floats, rows: Integers, devices: Devices) -> Integers:
        return devices.kernels.integer_bits(steps.astype(np.int64), rows, rice=self._spec.code == "rice")

    def snapshot(self) -> dict[str, Any]:
        """Return what the devices agreed on and sent last."""
        return {"agreed": self._agreed, "last": self._last}

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from a snapshot."""
        self._agreed, self._last = kept["agreed"], kept["last"]

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


def _count_bits(algorithm: Any, devices: Devices) -> int:
    """Return the bits of the step at the coupling of a method."""
    found = algorithm.resolved_parameters(devices)
    coupling = found["coupling"]
    if coupling is None:  # a raw alpha, in the unit of the weights
        coupling = found["alpha"] * algorithm.k * devices.total / devices.total_weight
    return count_bits(coupling)


def _real(messages: DenseMessages) -> Mask:
    """Return which numbers are sent, bool[n, r, w]."""
    rows: Mask = np.less(np.arange(messages.values.shape[1]), messages.rows[:, None])
    return np.broadcast_to(rows[:, :, None], messages.values.shape)


def _divide(values: Floats, steps: Floats) -> Floats:
    """Return values in steps, 0 where the step is 0."""
    steps = np.broadcast_to(steps, values.shape)
    return np.divide(values, steps, out=np.zeros_like(values), where=steps > 0.0)


def _explain_refusal(algorithm: Any, *, timed: bool) -> str:
    """Return why the messages of a method cannot be integers, nothing if they can; timed: there is a link model."""
    traits = algorithm.traits
    if traits.no_quantization or traits.message_content not in _ROWS:
        return traits.no_quantization or "does not send rows of centroids or sums that could be rounded"
    if timed and algorithm.schedule == "async":
        return "reads late messages with a link model and schedule async, so that two ends hold different tables"
    return ""
