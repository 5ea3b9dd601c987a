"""Graphs that change from round to round: all links there ever are, and which of them are in use."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from topologies.csr_graph import CSRGraph, Floats, Integers, pack, sources
from topologies.mixing import Bools, metropolis_weights


@dataclass(frozen=True, eq=False)
class TimeVaryingGraph:
    """An undirected graph of devices 0 to n - 1, of whose links only some are in use in a round.

    Where a paper sends over a link in one direction only, here both ends receive from each other: a penalty between
    neighbors is symmetric.

    Attributes
    ----------
    union : CSRGraph
        All links that are ever in use; connected.
    period : int or None
        After so many rounds everything repeats; None: never.
    active : callable
        ``active(round) -> bool[2 * links]``: which entries of ``union.indices`` are in use in round 0, 1, ...; a
        function of the round alone, and the same at both ends of a link.
    own_mixing : callable or None
        ``own_mixing(round) -> float64[2 * links]``: the weights that the paper, or the user, gives the links in use,
        see `mixing`; None: it gives none. They have to be symmetric, at least 0, 0 where a link is not in use, and
        those of a device may add up to 1 at most; `topologies.check` refuses others.
    checked : bool
        Whether the rounds need no check, as those of the families.

    Examples
    --------
    >>> import topologies
    >>> graph = topologies.one_peer_exponential(8)
    >>> graph.n, graph.period, graph.union.number_of_edges()
    (8, 3, 20)
    """

    union: CSRGraph
    period: int | None
    active: Callable[[int], Bools]
    own_mixing: Callable[[int], Floats] | None = None
    checked: bool = False

    @property
    def n(self) -> int:
        """Number of devices."""
        return len(self.union)

    @property
    def indptr(self) -> Integers:
        """Where the neighbors of each device begin in `indices`, int64[n + 1]."""
        return self.union.indptr

    @property
    def indices(self) -> Integers:
        """Every device that is ever a neighbor, int64[2 * links], ascending within a device."""
        return self.union.indices

    @property
    def weights(self) -> Floats | None:
        """Weights of the links that are ever in use, float64[2 * links]; None: all 1."""
        return self.union.weights

    @property
    def name(self) -> str:
        """What the graph is, for people."""
        return self.union.name

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        period = "never" if self.period is None else f"after {self.period:,} rounds"
        links = self.union.number_of_edges()
        name = f" {self.name!r}" if self.name else ""
        return f"<TimeVaryingGraph{name}: {self.n:,} devices, {links:,} links ever in use, repeats {period}>"

    def _repr_html_(self) -> str:
        from topologies.notebook import show_card

        period = "never" if self.period is None else f"after {self.period:,} rounds"
        return show_card("graph that changes: all links that are ever in use", self.union, {"repeats": period})

    def number_of_nodes(self) -> int:
        """Return the number of devices."""
        return self.n

    def number_of_edges(self) -> int:
        """Return the number of links that are ever in use, each counted once."""
        return self.union.number_of_edges()

    def at(self, turn: int) -> CSRGraph:
        """Return the links in use in a round as a graph; it need not be connected."""
        mask = self.active(turn)
        return CSRGraph(_before(mask)[self.indptr], self.indices[mask], name=f"{self.name}, round {turn}")

    def degrees(self, turn: int) -> Integers:
        """Return with how many others each device exchanges messages in a round, int64[n]."""
        import numpy as np

        return np.diff(_before(self.active(turn))[self.indptr])

    def mixing(self, turn: int) -> Floats:
        """Return how devices average what they receive in a round: a symmetric, doubly stochastic matrix.

        Entry e, of device i and its neighbor ``indices[e]``, is the share of the neighbor in the new value of i; its
        own share is what is missing to 1. The shares are the paper's, `own_mixing`, or else those of Metropolis and
        Hastings for the links in use and their weights, see `topologies.metropolis_weights`: without weights, 1 / (1 +
        the larger degree of the two).

        Returns
        -------
        float64[2 * links]
        """
        if self.own_mixing is not None:
            return self.own_mixing(turn)
        return metropolis_weights(self.union, self.active(turn))


class Exchange(NamedTuple):
    """The links of one round: u[i] - v[i]; each listing adds its share to the mixing of both ends.

    Attributes
    ----------
    u, v : int64[links]
    share : float64[links] or None
    """

    u: Integers
    v: Integers
    share: Floats | None = None


@dataclass(frozen=True, eq=False)
class _Tape:
    """The rounds of a period: entries of the union's indices, and the shares on them."""

    size: int
    entries: tuple[Any, ...]
    shares: tuple[Floats | None, ...]

    def active(self, turn: int) -> Bools:
        import numpy as np

        mask = np.zeros(self.size, np.bool_)
        mask[self.entries[turn % len(self.entries)]] = True
        return mask

    def mixing(self, turn: int) -> Floats:
        import numpy as np

        step = turn % len(self.entries)
        return np.bincount(self.entries[step], self.shares[step], self.size).astype(np.float64, copy=False)


def record(n: int, rounds: Iterable[Exchange], name: str) -> TimeVaryingGraph:
    """Build the graph that plays the given rounds, again and again.

    Links of a device with itself are dropped. Either all rounds have shares or none has.
    """
    import numpy as np

    played = [_drop_loops(exchange) for exchange in rounds] or [Exchange(*np.zeros((2, 0), np.int64))]
    union = pack(n, *(np.concatenate([getattr(one, end) for one in played]) for end in "uv"), name=name)
    keys = sources(union) * n + union.indices
    entries, shares = zip(*(_find(n, keys, exchange) for exchange in played), strict=True)
    tape = _Tape(len(keys), entries, shares)
    return TimeVaryingGraph(union, len(played), tape.active, None if shares[0] is None else tape.mixing, checked=True)


def _find(n: int, keys: Integers, exchange: Exchange) -> tuple[Any, Floats | None]:
    """Return at which entries, of these keys, the links of a round stand, and their shares."""
    import numpy as np

    u, v, share = exchange
    wanted = np.concatenate((u * n + v, v * n + u))
    order = np.argsort(wanted, kind="stable")  # in order, they are found many times faster
    entries = np.searchsorted(keys, wanted[order]).astype(np.int32 if len(keys) < 2**31 else np.int64)
    return entries, None if share is None else np.tile(share, 2)[order]


def _drop_loops(exchange: Exchange) -> Exchange:
    keep = exchange.u != exchange.v
    share = None if exchange.share is None else exchange.share[keep]
    return Exchange(exchange.u[keep], exchange.v[keep], share)


def _before(mask: Bools) -> Integers:
    """Return how many entries are set before each place, int64[entries + 1]."""
    import numpy as np

    return np.concatenate((np.zeros(1, np.int64), np.cumsum(mask)))
