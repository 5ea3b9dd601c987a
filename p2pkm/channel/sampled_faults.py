"""Faults drawn from a seed: how often what goes wrong, and the draws.

What is drawn is a function of (seed, round, device), (seed, round, link) or (seed, round, turn, sender, receiver), so
the same faults meet every method on a graph, on any number of ranks.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from p2pkm.channel.fault_trace import ASLEEP, AWAY, KIND, LONGEST, ROUND, ROUNDS, A, crossing, links_down, lower_half
from p2pkm.core.batch import Floats, Integers, Stream
from p2pkm.core.errors import ExperimentError
from p2pkm.core.spec import read_drawn, read_range, show_drawn
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.kernels.reference import philox
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology

_TURNS = 1 << 20  # of a round, at most


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong; see docs/faults.md.

    Attributes
    ----------
    loss : float
        Share of the messages that are lost.
    delay, max_delay : float, int
        Share of the messages that are delayed, by 1 to `max_delay` rounds, uniformly distributed.
    link_failure, link_downtime : float, int
        Share of the links that fail in a round, each for so many rounds.
    dropout, dropout_length : float, int
        Share of the devices that drop out in a round, each for so many rounds; a server does not, but for `server`.
    late_join, join_by : float, int
        Share of the devices that join late, in a round from 1 to `join_by`, uniformly distributed.
    straggler, straggler_length : float, int
        Share of the devices that become stragglers in a round, each for so many rounds.
    server : float
        Probability that a server drops out in a round, for `dropout_length` rounds.
    partition : str or None
        First and last round in which no link between the devices with the lower half of the ids and the others works,
        such as ``10-20``.
    stages : {"method", "all"}
    seed : int or None
        None: that of the run.
    trace : str or None
        File of a fault trace, which lists the faults instead.

    Examples
    --------
    >>> import p2pkm
    >>> faults = p2pkm.Faults.of("loss=0.2,dropout=0.02")
    >>> faults.loss, faults.dropout_length
    (0.2, 5)
    """

    _: KW_ONLY
    loss: float = 0.0
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
        """Return the text of the command line: what differs from the defaults, or ``file:PATH`` of a trace."""
        return show_drawn(self, "trace") or "loss=0"

    @classmethod
    def of(cls, given: "Faults | str | None") -> "Faults | None":
        """Return the value of a text: ``loss=0.1,dropout=0.02``, a path that ends with .jsonl, or ``file:PATH``.

        Raises
        ------
        ExperimentError
            If it cannot be read or has figures out of range.
        """
        if isinstance(given, str) and not given.startswith(("file:", "drawn")) and not given.endswith(".jsonl"):
            given = f"drawn:{given}"
        return read_drawn(cls, given, "faults", "trace")

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        for name in ("loss", "delay", "link_failure", "dropout", "late_join", "straggler", "server"):
            check_positive(vars(self)[name], f"faults {name}", most=1.0, zero=True)
        for name in ("link_downtime", "dropout_length", "join_by", "straggler_length", "max_delay"):
            check_integer(vars(self)[name], 1, f"faults {name}")
        if self.max_delay > LONGEST:
            raise ExperimentError(f"faults max_delay is {self.max_delay}; expected at most {LONGEST} rounds")
        check_choice(self.stages, ("method", "all"), "faults stages")
        if self.seed is not None:
            check_integer(self.seed, 0, "faults seed")
        _ = self.apart

    @property
    def apart(self) -> tuple[int, int]:
        """Return the first round of the partition and the one after its last."""
        if self.partition is None:
            return 0, 0
        rounds = read_range(str(self.partition))
        if rounds is None or "-" not in str(self.partition):
            raise ExperimentError(
                f"faults partition is {self.partition!r}; expected its first and last round, as in 10-20"
            )
        return rounds.start, rounds.stop

    @property
    def empty(self) -> bool:
        """Return whether nothing ever goes wrong."""
        shares = self.loss, self.delay, self.link_failure, self.dropout, self.late_join, self.straggler, self.server
        return not any(shares) and self.partition is None and self.trace is None

    @property
    def absence_only(self) -> bool:
        """Return whether nothing is asked for but devices that leave and return; True for a trace, not read yet."""
        return not any((self.loss, self.delay, self.link_failure, self.partition))


class SampledFaults:
    """Draw what goes wrong on a graph; see `FaultModel` for the meaning of each method."""

    def __init__(self, drawn: Faults, topology: Topology, seed: int) -> None:
        self._drawn, self._topology = drawn, topology
        self._key = shared_key(seed if drawn.seed is None else drawn.seed)
        self.absence_only = drawn.absence_only
        self.stages, self.longest, self.ignored_events = str(drawn.stages), drawn.max_delay if drawn.delay else 0, 0

    def to_arrays(self) -> dict[str, Any]:
        """Return what other ranks need beside the experiment."""
        return {}

    def begin(self, t: int) -> Integers:
        """Draw what happens to devices and links from round t on."""
        drawn, topology = self._drawn, self._topology
        found = []
        devices = np.arange(topology.n)
        dropout = np.where(devices == topology.hub, drawn.server, drawn.dropout)
        for kind, purpose, share, rounds in (
            (AWAY, Stream.DROPOUT, dropout, drawn.dropout_length),
            (ASLEEP, Stream.STRAGGLE, drawn.straggler, drawn.straggler_length),
        ):  # fmt: skip
            if np.any(share):
                who = devices[self._draw(devices, t, purpose)[:, 0] < share]
                found.append(_absent(kind, t, who, np.full(len(who), rounds)))
        if drawn.late_join and t == 0:
            draws = self._draw(devices, 0, Stream.JOIN)
            who = devices[(draws[:, 0] < drawn.late_join) & (devices != topology.hub)]
            found.append(_absent(AWAY, t, who, 1 + (draws[who, 1] * drawn.join_by).astype(np.int64)))
        if drawn.link_failure:
            lower = np.flatnonzero(topology.sources < topology.indices)
            links = np.column_stack((topology.sources[lower], topology.indices[lower]))
            fails = (
                self._draw(links[:, 0] * topology.n + links[:, 1], t, Stream.LINK_FAILURE)[:, 0] < drawn.link_failure
            )
            found.append(links_down(links[fails], t, drawn.link_downtime))
        first, last = drawn.apart
        if t == first < last:
            found.append(links_down(crossing(topology, lower_half(topology)), t, last - first))
        return np.concatenate([np.zeros((0, 6), np.int64), *found])

    def message_delays(self, t: int, turn: int, source: Integers, target: Integers) -> Integers:
        """Draw what becomes of a message over each edge."""
        drawn = self._drawn
        if not drawn.loss and not drawn.delay:
            return np.zeros(len(source), np.int64)
        draws = self._draw(source * self._topology.n + target, t * _TURNS + turn, Stream.LOSS)
        late = np.where(draws[:, 1] < drawn.delay, 1 + (draws[:, 2] * drawn.max_delay).astype(np.int64), 0)
        return np.where(draws[:, 0] < drawn.loss, -1, late)

    def _draw(self, numbers: Integers, step: int, purpose: int) -> Floats:
        """Return four draws from [0, 1) for each number, float64[b, 4]."""
        words = philox(numbers.astype(np.uint64), step, self._key, purpose)
        return (words >> np.uint64(11)) * 2.0**-53


def _absent(kind: int, t: int, who: Integers, rounds: Integers) -> Integers:
    """Return the events of devices that do not take part for some rounds."""
    events = np.full((len(who), 6), -1)
    events[:, KIND], events[:, ROUND], events[:, A], events[:, ROUNDS] = kind, t, who, rounds
    return events
