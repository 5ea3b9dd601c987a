"""Random time-varying families: equal seeds give equal rounds, and all rounds together are connected.

Every function returns a `TimeVaryingGraph`, and raises GraphError if an option is out of range or all attempts are
disconnected. Families with a `period` repeat the drawn rounds: set it to at least the number of rounds of a run to
avoid repetitions. A period is stored in memory, with 8 bytes for each end of a link and 4 for each round in which it is
active.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, Integers, sources
from topologies.errors import GraphError
from topologies.families import csr as large
from topologies.families.random import disconnected_error, draw_seeds, geometric_options, regular_options
from topologies.mixing import Bools
from topologies.time_varying.graph import Exchange, TimeVaryingGraph, record
from topologies.validation import is_positive, require_integer

if TYPE_CHECKING:
    from numpy.random import Generator
else:
    Generator = Any


def peer_sampler(n: int, *, degree: int = 4, period: int = 32, seed: int = 0) -> TimeVaryingGraph:
    """Draw a new random regular graph for every round.

    Every round is connected. Cost: n degree / 2 links per round; all rounds together have up to `period` times as many.

    Parameters
    ----------
    n : int
    degree : int, default=4
        As in `random_regular`.
    period : int, default=32
        Number of rounds that are drawn.
    seed : int, default=0

    References
    ----------
    Jelasity, Voulgaris, Guerraoui, Kermarrec and van Steen (2007), Gossip-based peer sampling, ACM Transactions on
    Computer Systems 25; Dhasade, Kermarrec, Pires, Sharma and Vujasinovic (2023), Decentralized learning made easy with
    DecentralizePy, EuroMLSys.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.peer_sampler(8, degree=4, period=3)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (3, [16, 16, 16])
    """
    size, links = regular_options(n, degree, "peer-sampler")

    def draw_rounds(rng: Generator) -> Iterator[Exchange]:
        while True:
            graph = large.random_regular(size, degree=links, seed=int(rng.integers(2**63)))
            source = sources(graph)
            is_lower = source < graph.indices
            yield Exchange(source[is_lower], graph.indices[is_lower])

    return _redraw(size, period, seed, draw_rounds, "peer-sampler")


def random_matchings(n: int, *, period: int = 32, seed: int = 0) -> TimeVaryingGraph:
    """Pair all devices at random in every round; of an odd number, one is not paired.

    Cost: n // 2 links per round, degree 1; all rounds together have up to `period` times as many.

    Parameters
    ----------
    n : int
    period : int, default=32
        Number of rounds that are drawn; one round connects at most two devices.
    seed : int, default=0

    References
    ----------
    Boyd, Ghosh, Prabhakar and Shah (2006), Randomized gossip algorithms, IEEE Transactions on Information Theory 52.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.random_matchings(8, period=3)
    >>> graph.period, [int(graph.active(r).sum()) // 2 for r in range(3)]  # links in use
    (3, [4, 4, 4])
    """
    size = require_integer(n, "random-matchings: n", 1)

    def draw_rounds(rng: Generator) -> Iterator[Exchange]:
        while True:
            pairs = rng.permutation(size)[: size // 2 * 2].reshape(-1, 2)
            yield Exchange(pairs[:, 0], pairs[:, 1])

    return _redraw(size, period, seed, draw_rounds, "random-matchings")


def switch_links(graph: CSRGraph, on: float, off: float, seed: int) -> TimeVaryingGraph:
    """Switch every link of a graph on and off by an independent Markov chain, see `topologies.edge_markov`."""
    chain = _LinkChains(_number_links(graph), on, off, seed)
    links = CSRGraph(graph.indptr, graph.indices, graph.weights, "edge-markov")
    return TimeVaryingGraph(links, None, chain.active, checked=True)


def random_waypoint(
    n: int, *, radius: float | None = None, speed: float = 0.05, period: int = 32, seed: int = 0
) -> TimeVaryingGraph:
    """Move the devices in the unit square, and link those at a distance of at most `radius`.

    Each device moves straight to a uniformly drawn point by `speed` per round, and then, without pause, to the next
    one. Initial positions are uniform, as in `random_geometric`. Rounds may be disconnected; after `period` rounds, the
    devices are at their initial positions again. Cost: at first about pi radius^2 n^2 / 2 links per round, later more,
    because moving devices concentrate in the middle.

    Parameters
    ----------
    n : int
    radius : float, optional
        As in `random_geometric`.
    speed : float, default=0.05
        Distance per round, above 0; the side of the square is 1.
    period : int, default=32
        Number of rounds that are drawn.
    seed : int, default=0

    References
    ----------
    Johnson and Maltz (1996), Dynamic source routing in ad hoc wireless networks, in Mobile Computing, Kluwer;
    Bettstetter, Resta and Santi (2003), The node distribution of the random waypoint mobility model for wireless ad
    hoc networks, IEEE Transactions on Mobile Computing 2.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.random_waypoint(8, radius=0.6, period=3)
    >>> graph.period, graph.n
    (3, 8)
    """
    size, reach = geometric_options(n, radius, "random-waypoint")
    if not is_positive(speed):
        raise GraphError(f"random-waypoint: speed is {speed!r}; expected a finite number above 0")

    def draw_rounds(rng: Generator) -> Iterator[Exchange]:
        from scipy.spatial import cKDTree

        for places in random_waypoints(size, speed, rng):
            pairs = cKDTree(places).query_pairs(reach, output_type="ndarray")
            yield Exchange(pairs[:, 0], pairs[:, 1])

    return _redraw(size, period, seed, draw_rounds, "random-waypoint")


def random_waypoints(n: int, speed: float, rng: Generator) -> Iterator[Any]:
    """Yield the positions float64[n, 2] of the devices in round 0, 1, ... of a random waypoint walk."""
    import numpy as np

    position = rng.random((n, 2))
    goal = rng.random((n, 2))
    while True:
        yield position
        offset = goal - position
        length = np.sqrt((offset * offset).sum(axis=1, keepdims=True))
        arrives = length <= speed
        position = np.where(arrives, goal, position + offset * (speed / np.where(arrives, 1.0, length)))
        goal = np.where(arrives, rng.random((n, 2)), goal)


@dataclass(frozen=True, eq=False)
class _LinkChains:
    """Markov chains of all links.

    Attributes
    ----------
    links : int64[2 * links]
        Number of the link of each entry.
    on, off : float
        Probabilities of a change.
    seed : int
    last : dict
        Round and state of the last call.
    """

    links: Integers
    on: float
    off: float
    seed: int
    last: dict[str, Any] = field(default_factory=lambda: {"turn": -1, "state": None})

    def active(self, turn: int) -> Bools:
        """Return the state after `turn` steps, at both ends of each link."""
        return self._state(turn, len(self.links) // 2)[self.links]

    def _state(self, turn: int, links: int) -> Bools:
        """Compute the state backward in time, until every link has had a step that does not depend on its past.

        A draw below both `on` and 1 - `off` gives an active link, a draw above both an inactive one. Between them, the
        state of a link does not change or, if `on` is the larger one, is inverted. So any round can be computed without
        all previous rounds.
        """
        import numpy as np

        low, high = sorted((self.on, 1 - self.off))
        flips = self.on > 1 - self.off
        state = np.zeros(links, np.bool_)
        is_inverted = np.zeros(links, np.bool_)
        undecided = np.arange(links)
        for step in range(turn, -1, -1):
            if step == self.last["turn"]:
                state[undecided] = self.last["state"][undecided] ^ is_inverted[undecided]
                break
            drawn = np.random.default_rng((self.seed, step)).random(links)[undecided]
            decides = (drawn < low) | (drawn >= high)
            # The first round has the stationary distribution, so it decides all links.
            if step == 0:
                decides = np.ones(len(undecided), np.bool_)
                low = self.on / (self.on + self.off)
            state[undecided[decides]] = (drawn[decides] < low) ^ is_inverted[undecided[decides]]
            undecided = undecided[~decides]
            is_inverted[undecided] ^= flips
            if not len(undecided):
                break
        self.last.update(turn=turn, state=state)
        return state


def _number_links(graph: CSRGraph) -> Integers:
    """Return the number of the link of each entry, int64[2 * links]."""
    import numpy as np

    source = sources(graph)
    is_lower = source < graph.indices
    numbers = np.empty(len(source), np.int64)
    numbers[is_lower] = np.arange(len(source) // 2)
    # Entries at the other ends are sorted by the higher, then by the lower device.
    numbers[~is_lower] = np.lexsort((source[is_lower], graph.indices[is_lower]))
    return numbers


def _redraw(
    n: int, period: int, seed: int, draw_rounds: Callable[[Generator], Iterator[Exchange]], family: str
) -> TimeVaryingGraph:
    """Draw periods until the rounds of one together are connected."""
    from itertools import islice

    from numpy.random import default_rng

    length = require_integer(period, f"{family}: period", 1)
    for attempt_seed in draw_seeds(seed, family):
        graph = record(n, islice(draw_rounds(default_rng(attempt_seed)), length), family)
        if graph.union.connected:
            return graph
    raise disconnected_error(n, family, "period")
