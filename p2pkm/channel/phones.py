"""Generator of traces in seconds: phones that are online mostly at night, of different speeds, on links with bursts."""

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from p2pkm.channel.timed_trace import ACCESS, LATENCY, LOSS, ONLINE, SPEED, TimedTrace
from p2pkm.core.batch import Floats
from p2pkm.core.errors import ExperimentError
from p2pkm.core.json_lines import MOST
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.network.graph import Topology

# Second, device or, after the devices, directed edge of the topology, number of the value in `NAMES`, and the value.
_Row = tuple[float, int, int, float]
_HOUR, _DAY = 3600.0, 86400.0
# Phones come and go in steps of ten minutes.
_STEP = 600.0
_MOST_LOSS = 0.99
_PEAK = 3.0 * _HOUR  # local time at which most phones are online


@dataclass(frozen=True)
class Phones:
    """World of phones, which take part while they are idle and charged.

    Second 0 is midnight in the first time zone. Every draw is from the seed.

    Attributes
    ----------
    days : float
        Length of the trace.
    every : float
        A round begins at the earliest this many seconds after the one before: 3600 is one round per hour.
    online : float
        Share of the phones of a time zone that are online at 3 o'clock, the maximum of the day.
    rhythm : float
        This share divided by that at 15 o'clock, the minimum; in between it follows a cosine. The default is the factor
        that Bonawitz et al. (2019) report for participating phones over a day, about 4.
    session : float
        Mean number of hours for which a phone stays online. Not from a publication.
    zones : int
        Number of time zones, one hour apart; the zone of a phone is drawn uniformly.
    speed, access : float
        Median operations per second, and bytes per second of the access line, as in the link model `edge`.
    speed_spread, access_spread : float
        Heavy tails: speeds are log-normal, and a sixth of the phones is faster than the median by this factor or more,
        a sixth slower. Lai et al. (2022) show capacities of phones that differ by more than an order of magnitude.
    loss : float
        Share of the time for which a link, in one direction, loses all messages: the model of Gilbert (1960).
    loss_length : float
        Mean seconds of such a burst.

    References
    ----------
    K. Bonawitz et al., "Towards federated learning at scale: system design", MLSys 2019. F. Lai et al., "FedScale:
    benchmarking model and system performance of federated learning at scale", ICML 2022. E. N. Gilbert, "Capacity of a
    burst-noise channel", Bell System Technical Journal 39, 1960.
    """

    _: KW_ONLY
    days: float = 7.0
    every: float = _HOUR
    online: float = 0.6
    rhythm: float = 4.0
    session: float = 4.0
    zones: int = 1
    speed: float = 1e9
    speed_spread: float = 2.0
    access: float = 750_000.0
    access_spread: float = 3.0
    loss: float = 0.0
    loss_length: float = 60.0

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.zones, 1, "phones zones")
        for name in ("days", "session", "speed", "access", "loss_length"):
            check_positive(getattr(self, name), f"phones {name}")
        check_positive(self.every, "phones every", zero=True)
        check_positive(self.online, "phones online", most=1.0)
        check_positive(self.loss, "phones loss", zero=True, most=_MOST_LOSS)
        for name in ("rhythm", "speed_spread", "access_spread"):
            if check_positive(getattr(self, name), f"phones {name}") < 1.0:
                raise ExperimentError(f"phones {name} is {getattr(self, name):g}; expected a factor of at least 1")

    def find_share(self, seconds: float) -> float:
        """Return the share of the phones of the first time zone that are online at a second."""
        least = self.online / self.rhythm
        return least + (self.online - least) * (0.5 + 0.5 * math.cos(2.0 * math.pi * (seconds - _PEAK) / _DAY))

    def draw(self, topology: Topology, seed: int) -> TimedTrace:
        """Draw the trace for the devices and links of a graph.

        Raises
        ------
        ExperimentError
            If the trace would have more events than a run reads.
        """
        n = topology.clients
        bursts = 2.0 * self.loss * self.days * _DAY / self.loss_length * len(topology.indices)
        expected = 3.0 * n + 2.0 * n * self.days * 24.0 / self.session + bursts
        if expected > MOST:
            raise ExperimentError(
                f"the trace would have about {expected:,.0f} events; expected at most {MOST:,}. Use fewer days, or a "
                "larger loss_length"
            )
        rng = np.random.default_rng(seed)
        rows = [
            *self._draw_speeds(rng, n),
            *self._draw_sessions(rng, n),
            *self._draw_bursts(rng, n, len(topology.indices)),
        ]
        # By second, then by device or link, so that values of one line stand together.
        table = np.array(sorted(rows), np.float64).reshape(-1, 4)
        places, names = table[:, 1:3].astype(np.int64).T
        places[names >= LATENCY] -= n
        return TimedTrace(table[:, 0], names, places, table[:, 3], self.every)

    def _draw_speeds(self, rng: np.random.Generator, n: int) -> Iterator[_Row]:
        """Draw the speed and the access line of each phone."""
        for name, median, spread in ((SPEED, self.speed, self.speed_spread),
                                     (ACCESS, self.access, self.access_spread)):  # fmt: skip
            values = median * np.exp(math.log(spread) * rng.standard_normal(n))
            yield from ((0.0, i, name, float(f"{value:.4g}")) for i, value in enumerate(values))

    def _draw_sessions(self, rng: np.random.Generator, n: int) -> Iterator[_Row]:
        """Draw when phones come and go: at every time a phone is online with exactly the probability `find_share`."""
        zones = rng.integers(self.zones, size=n)
        is_online = rng.random(n) < self._find_shares(0.0)[zones]
        yield from ((0.0, i, ONLINE, float(value)) for i, value in enumerate(is_online))
        for step in range(math.ceil(self.days * _DAY / _STEP) - 1):
            before, after = (self._find_shares(_STEP * number) for number in (step, step + 1))
            # Where the share falls faster than sessions end, sessions end earlier.
            leave = np.maximum(min(1.0, _STEP / (_HOUR * self.session)), 1.0 - after / before)
            join = (after - before * (1.0 - leave)) / np.maximum(1.0 - before, 1e-12)
            changes = rng.random(n) < np.where(is_online, leave[zones], join[zones])
            is_online ^= changes
            yield from ((_STEP * (step + 1), i, ONLINE, float(is_online[i])) for i in np.flatnonzero(changes).tolist())

    def _find_shares(self, seconds: float) -> Floats:
        """Return `find_share` in each time zone, float64[zones]; in the next one it is an hour earlier."""
        return np.array([self.find_share(seconds - _HOUR * zone) for zone in range(self.zones)])

    def _draw_bursts(self, rng: np.random.Generator, n: int, edges: int) -> Iterator[_Row]:
        """Draw the bursts of losses of each link and direction."""
        if not self.loss:
            return
        lengths = {True: self.loss_length, False: self.loss_length * (1.0 - self.loss) / self.loss}
        end = self.days * _DAY
        for edge in range(edges):
            is_lossy, seconds = bool(rng.random() < self.loss), 0.0
            while seconds < end:
                if is_lossy or seconds:
                    yield seconds, n + edge, LOSS, float(is_lossy)
                seconds += float(rng.exponential(lengths[is_lossy]))
                is_lossy = not is_lossy
