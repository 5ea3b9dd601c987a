"""Faults drawn from a seed: their probabilities, and the draws.

A draw is a function of (seed, round, device), (seed, round, link) or (seed, round, turn, sender, receiver). So on a
given graph all methods have the same faults, on any number of ranks.

Losses in bursts follow the model of Gilbert (1960, "Capacity of a burst-noise channel", Bell System Technical Journal
39), of which Elliott's is the general form: a link is good or bad in a round, and loses all messages while it is bad.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from p2pkm.channel.fault_trace import ASLEEP, AWAY, KIND, LONGEST, ROUND, ROUNDS, A, crossing, links_down, lower_half
from p2pkm.core.batch import Floats, Integers, Mask, Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import read_drawn, read_range, show_drawn
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology

# Turns of a round, at most: a draw is numbered round * TURNS + turn.
TURNS = 1 << 20


@dataclass(frozen=True)
class Faults:
    """Probabilities and durations of faults; see docs/howto/time-and-faults.md.

    Attributes
    ----------
    loss : float
        Share of the messages that are lost.
    loss_length : float or None
        Mean number of rounds for which a link, in one direction, loses all messages at a stretch (Gilbert-Elliott);
        None: each message is lost independently.
    delay, max_delay : float, int
        Share of the messages that are delayed, by 1 to `max_delay` rounds, uniformly distributed.
    link_failure, link_downtime : float, int
        Share of the links that fail in a round, each for `link_downtime` rounds.
    dropout, dropout_length : float, int
        Share of the devices that become unavailable in a round, each for `dropout_length` rounds. For a server, see
        `server`.
    late_join, join_by : float, int
        Share of the devices that join late, in a round from 1 to `join_by`, uniformly distributed.
    straggler, straggler_length : float, int
        Share of the devices that become stragglers in a round, each for `straggler_length` rounds.
    server : float
        Probability that a server becomes unavailable in a round, for `dropout_length` rounds.
    partition : str or None
        First and last round of a network partition, such as ``10-20``: all links fail between the devices with the
        lower half of the ids and the others.
    stages : {"method", "all"}
        Affected stages: that of the method, or those before it, too.
    seed : int or None
        Seed of the draws; None for that of the run.
    trace : str or None
        File of a fault trace, which replaces the draws.

    Examples
    --------
    >>> import p2pkm
    >>> faults = p2pkm.Faults.of("loss=0.2,dropout=0.02")
    >>> faults.loss, faults.dropout_length
    (0.2, 5)
    """

    _: KW_ONLY
    loss: float = 0.0
    loss_length: float | None = None
    delay: float = 0.0
    max_delay: int = 2
    link_failure: float = 0.0
    link_downtime: int = 5
    dropout: float = 0.0
    dropout_length: int = 5
    late_join: float = 0.0
    join_by: int = 10
    straggler: float = 0.0
    straggler_length: int = 3
    server: float = 0.0
    partition: str | None = None
    stages: Literal["method", "all"] = "method"
    seed: int | None = None
    trace: str | None = None

    def __str__(self) -> str:
        """Return the text of the command line: the values that differ from the defaults, or ``file:PATH``."""
        return show_drawn(self, "trace") or "loss=0"

    @classmethod
    def of(cls, value: "Faults | str | None") -> "Faults | None":
        """Convert a text: ``loss=0.1,dropout=0.02``, a path that ends with .jsonl, or ``file:PATH``.

        Raises
        ------
        ExperimentError
            If the text cannot be read, or a number is out of range.
        """
        if isinstance(value, str) and value.partition(":")[0].strip() == "phones":
            raise ExperimentError(
                f"faults is {value!r}, which generates a trace; expected the file of one. Write it with "
                f"p2pkm faults {value} --out phones.jsonl, then use faults='phones.jsonl'"
            )
        if isinstance(value, str) and not value.startswith(("file:", "drawn")) and not value.endswith(".jsonl"):
            value = f"drawn:{value}"
        return read_drawn(cls, value, "faults", "trace")

    def __post_init__(self) -> None:
        """Validate the parameters."""
        for name in ("loss", "delay", "link_failure", "dropout", "late_join", "straggler", "server"):
            check_positive(vars(self)[name], f"faults {name}", most=1.0, zero=True)
        for name in ("link_downtime", "dropout_length", "join_by", "straggler_length", "max_delay"):
            check_integer(vars(self)[name], 1, f"faults {name}")
        if self.max_delay > LONGEST:
            raise ExperimentError(f"faults max_delay is {self.max_delay}; expected at most {LONGEST} (rounds)")
        if self.loss_length is not None:
            check_positive(self.loss_length, "faults loss_length")
            # With shorter stretches, losses in consecutive rounds would have to avoid each other.
            if self.loss_length * (1 - self.loss) < 1:
                raise ExperimentError(
                    f"faults loss_length is {self.loss_length:g}; expected at least 1 / (1 - loss), the mean of "
                    f"independent rounds, and a loss below 1; loss is {self.loss:g}. Increase loss_length, or remove it"
                )
        check_choice(self.stages, ("method", "all"), "faults stages")
        if self.seed is not None:
            check_integer(self.seed, 0, "faults seed")
        # Validates the text of the partition.
        _ = self.partition_rounds

    @property
    def partition_rounds(self) -> tuple[int, int]:
        """First round of the network partition, and the round after its last one; equal without a partition."""
        if self.partition is None:
            return 0, 0
        rounds = read_range(str(self.partition))
        if rounds is None or "-" not in str(self.partition):
            raise ExperimentError(
                f"faults partition is {self.partition!r}; expected its first and last round, for example 10-20"
            )
        return rounds.start, rounds.stop

    @property
    def empty(self) -> bool:
        """Whether nothing ever fails."""
        shares = self.loss, self.delay, self.link_failure, self.dropout, self.late_join, self.straggler, self.server
        return not any(shares) and self.partition is None and self.trace is None

    @property
    def device_faults_only(self) -> bool:
        """Whether only devices fail; True for a trace, which has not been read yet."""
        return not any((self.loss, self.delay, self.link_failure, self.partition))


class SampledFaults:
    """Faults drawn on a graph, an implementation of `FaultModel`."""

    in_seconds = False

    def __init__(self, options: Faults, topology: Topology, seed: int) -> None:
        self._options = options
        self._topology = topology
        self._key = shared_key(seed if options.seed is None else options.seed)
        self.device_faults_only = options.device_faults_only
        self.stages = str(options.stages)
        self.max_delay = options.max_delay if options.delay else 0
        self.ignored_events = 0

    def to_arrays(self) -> dict[str, Any]:
        """Return an empty dict: other ranks draw from the same options."""
        return {}

    def describe_end(self, t: int) -> str:
        """Return an empty text: faults are drawn for every round."""
        return ""

    def begin(self, t: int) -> Integers:
        """Draw the faults of devices and links that begin in round t."""
        drawn, topology = self._options, self._topology
        events = []
        devices = np.arange(topology.n)
        dropout = np.where(devices == topology.hub, drawn.server, drawn.dropout)
        for kind, purpose, share, rounds in (
            (AWAY, Stream.DROPOUT, dropout, drawn.dropout_length),
            (ASLEEP, Stream.STRAGGLE, drawn.straggler, drawn.straggler_length),
        ):  # fmt: skip
            if np.any(share):
                affected = devices[self._draw(devices, t, purpose)[:, 0] < share]
                events.append(_device_events(kind, t, affected, np.full(len(affected), rounds)))
        # A device that joins late is unavailable from round 0 on.
        if drawn.late_join and t == 0:
            draws = self._draw(devices, 0, Stream.JOIN)
            joining = devices[(draws[:, 0] < drawn.late_join) & (devices != topology.hub)]
            rounds_until_join = 1 + (draws[joining, 1] * drawn.join_by).astype(np.int64)
            events.append(_device_events(AWAY, t, joining, rounds_until_join))
        if drawn.link_failure:
            lower = np.flatnonzero(topology.sources < topology.indices)
            links = np.column_stack((topology.sources[lower], topology.indices[lower]))
            draws = self._draw(links[:, 0] * topology.n + links[:, 1], t, Stream.LINK_FAILURE)
            fails = draws[:, 0] < drawn.link_failure
            events.append(links_down(links[fails], t, drawn.link_downtime))
        first, end = drawn.partition_rounds
        if t == first < end:
            events.append(links_down(crossing(topology, lower_half(topology)), t, end - first))
        return np.concatenate([np.zeros((0, 6), np.int64), *events])

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Draw the delay of a message over each edge, int64[e], in rounds; -1 if it is lost."""
        drawn = self._options
        if not drawn.loss and not drawn.delay:
            return np.zeros(len(source), np.int64)
        ids = source * self._topology.n + target
        draws = self._draw(ids, t * TURNS + turn, Stream.LOSS)
        is_lost = draws[:, 0] < drawn.loss
        if drawn.loss_length is not None:
            is_lost = self._find_bad_links(t, ids, 1 / (drawn.loss_length * (1 - drawn.loss)))
        delays = np.where(draws[:, 1] < drawn.delay, 1 + (draws[:, 2] * drawn.max_delay).astype(np.int64), 0)
        return np.where(is_lost, -1, delays)

    def _find_bad_links(self, t: int, ids: Integers, renewal: float) -> Mask:
        """Return the links, by their ids, that lose all messages in round t, bool[e].

        In each round the state of a link is drawn anew with probability `renewal`, otherwise it stays: a Markov chain
        of two states. Its last renewal is sought backward from round t, so that nothing is stored between rounds.
        """
        is_bad = np.zeros(len(ids), np.bool_)
        sought = np.arange(len(ids))
        for s in range(t, -1, -1):
            draws = self._draw(ids[sought], s, Stream.BURST)
            is_renewed = (draws[:, 0] < renewal) | (s == 0)
            is_bad[sought[is_renewed]] = draws[is_renewed, 1] < self._options.loss
            sought = sought[~is_renewed]
            if not len(sought):
                break
        return is_bad

    def _draw(self, ids: Integers, step: int, purpose: int) -> Floats:
        """Draw four numbers from [0, 1) for each id, float64[b, 4]."""
        words = philox(ids.astype(np.uint64), step, self._key, purpose)
        return (words >> np.uint64(11)) * 2.0**-53


def _device_events(kind: int, t: int, devices: Integers, rounds: Integers) -> Integers:
    """Return the events of devices that fail in round t, each for a number of rounds."""
    events = np.full((len(devices), 6), -1)
    events[:, KIND] = kind
    events[:, ROUND] = t
    events[:, A] = devices
    events[:, ROUNDS] = rounds
    return events
