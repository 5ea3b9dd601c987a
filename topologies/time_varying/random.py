"""Time-varying families drawn by chance: the same seed gives the same rounds, and all rounds together are connected.

Every function returns a `TimeVaryingGraph` and raises GraphError if an option is out of range or no draw is connected.
Those with a `period` play the rounds they have drawn again and again: take at least as many as a run has rounds if
none shall come twice. A period is kept in memory, with 8 bytes for each end of a link and 4 for each round it is in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topologies.csr_graph import CSRGraph, Integers, sources
from topologies.errors import GraphError
from topologies.families import csr as large
from topologies.families.random import draws, geometric_options, regular_options, unconnected
from topologies.mixing import Bools
from topologies.time_varying.graph import Exchange, TimeVaryingGraph, record
from topologies.validation import is_weight, whole

if TYPE_CHECKING:
    from numpy.random import Generator
else:
    Generator = Any


def peer_sampler(n: int, *, degree: int = 4, period: int = 32, seed: int = 0) -> TimeVaryingGraph:
    """Draw a fresh random regular graph for every round.

    Cost: n degree / 2 links in a round, all of one degree, each round connected; together up to `period` times as
    many.

    Parameters
    ----------
    n : int
    degree : int
        As for `random_regular`.
    period : int
        How many rounds are drawn.
    seed : int

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

    def play(rng: Generator) -> Iterator[Exchange]:
        while True:
            graph = large.random_regular(size, degree=links, seed=int(rng.integers(2**63)))
            source = sources(graph)
            once = source < graph.indices
            yield Exchange(source[once], graph.indices[once])

    return _redraw(size, period, seed, play, "peer-sampler")


def random_matchings(n: int, *, period: int = 32, seed: int = 0) -> TimeVaryingGraph:
    """Pair all devices at random in every round; of an odd number, one sits out.

    Cost: n // 2 links in a round, degree 1; together up to `period` times as many.

    Parameters
    ----------
    n : int
    period : int
        How many rounds are drawn; above two devices, 1 is too few to connect them.
    seed : int

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
    size = whole(n, "random-matchings: n", 1)

    def play(rng: Generator) -> Iterator[Exchange]:
        while True:
            pairs = rng.permutation(size)[: size // 2 * 2].reshape(-1, 2)
            yield Exchange(pairs[:, 0], pairs[:, 1])

    return _redraw(size, period, seed, play, "random-matchings")


def switch_links(graph: CSRGraph, on: float, off: float, seed: int) -> TimeVaryingGraph:
    """Switch every link of a graph on and off by a Markov chain of its own; see `topologies.edge_markov`."""
    chain = _Chain(_number_links(graph), on, off, seed)
    links = CSRGraph(graph.indptr, graph.indices, graph.weights, "edge-markov")
    return TimeVaryingGraph(links, None, chain.active, checked=True)


def random_waypoint(
    n: int, *, radius: float | None = None, speed: float = 0.05, period: int = 32, seed: int = 0
) -> TimeVaryingGraph:
    """Let the devices walk in the unit square and link those at most `radius` apart.

    Each walks straight to a point drawn uniformly, `speed` in a round, and from there, without a rest, to the next.
    They start where `random_geometric` would throw them. Rounds need not be connected; after `period` of them every
    device is back at the start. Cost: about pi radius^2 n^2 / 2 links in a round, rather more when they have walked for
    a while, for they meet in the middle.

    Parameters
    ----------
    n : int
    radius : float, optional
        As for `random_geometric`.
    speed : float
        Above 0; the side of the square is 1.
    period : int
        How many rounds are drawn.
    seed : int

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
    if not is_weight(speed):
        raise GraphError(f"random-waypoint: speed is {speed!r}; expected a finite number above 0")

    def play(rng: Generator) -> Iterator[Exchange]:
        from scipy.spatial import cKDTree

        for places in random_waypoints(size, speed, rng):
            pairs = cKDTree(places).query_pairs(reach, output_type="ndarray")
            yield Exchange(pairs[:, 0], pairs[:, 1])

    return _redraw(size, period, seed, play, "random-waypoint")


def random_waypoints(n: int, speed: float, rng: Generator) -> Iterator[Any]:
    """Yield the positions float64[n, 2] of the devices in round 0, 1, ... of a random waypoint walk."""
    import numpy as np

    here, goal = rng.random((n, 2)), rng.random((n, 2))
    while True:
        yield here
        way = goal - here
        length = np.sqrt((way * way).sum(axis=1, keepdims=True))
        there = length <= speed
        here = np.where(there, goal, here + way * (speed / np.where(there, 1.0, length)))
        goal = np.where(there, rng.random((n, 2)), goal)


@dataclass(frozen=True, eq=False)
class _Chain:
    """Links that go on and off, by the number of the link at each entry; the last round asked for is remembered."""

    links: Integers
    on: float
    off: float
    seed: int
    last: dict[str, Any] = field(default_factory=lambda: {"turn": -1, "state": None})

    def active(self, turn: int) -> Bools:
        """Return the state after `turn` steps, at both ends of each link."""
        return self._state(turn, len(self.links) // 2)[self.links]

    def _state(self, turn: int, links: int) -> Bools:
        """Look back until every link has met a step that decides whatever the state was before.

        A draw below both `on` and 1 - `off` switches on, one above both switches off. In between a link stays what it
        is, or, if `on` is the larger of them, changes.
        """
        import numpy as np

        low, high = sorted((self.on, 1 - self.off))
        flips = self.on > 1 - self.off
        state, turned = np.zeros(links, np.bool_), np.zeros(links, np.bool_)
        left = np.arange(links)
        for step in range(turn, -1, -1):
            if step == self.last["turn"]:
                state[left] = self.last["state"][left] ^ turned[left]
                break
            drawn = np.random.default_rng((self.seed, step)).random(links)[left]
            sure = (drawn < low) | (drawn >= high)
            if step == 0:
                sure, low = np.ones(len(left), np.bool_), self.on / (self.on + self.off)
            state[left[sure]] = (drawn[sure] < low) ^ turned[left[sure]]
            left = left[~sure]
            turned[left] ^= flips
            if not len(left):
                break
        self.last.update(turn=turn, state=state)
        return state


def _number_links(graph: CSRGraph) -> Integers:
    """Return the number of the link that each entry is an end of, int64[2 * links]."""
    import numpy as np

    source = sources(graph)
    once = source < graph.indices
    numbers = np.empty(len(source), np.int64)
    numbers[once] = np.arange(len(source) // 2)
    numbers[~once] = np.lexsort((source[once], graph.indices[once]))  # the order in which the other ends stand
    return numbers


def _redraw(
    n: int, period: int, seed: int, play: Callable[[Generator], Iterator[Exchange]], family: str
) -> TimeVaryingGraph:
    """Draw a period until its rounds together are connected."""
    from itertools import islice

    from numpy.random import default_rng

    length = whole(period, f"{family}: period", 1)
    for drawn in draws(seed, family):
        graph = record(n, islice(play(default_rng(drawn)), length), family)
        if graph.union.connected:
            return graph
    raise unconnected(n, family, "period")
