"""Time-varying graphs: all links that are ever active, and a mask of active links for each round."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from topologies.csr_graph import CSRGraph, Floats, Integers, pack, sources
from topologies.mixing import Bools, metropolis_weights


@dataclass(frozen=True, eq=False)
class TimeVaryingGraph:
    """Undirected graph of devices 0 to n - 1, with active links that depend on the round.

    If devices send in one direction only in a paper, here both ends of a link receive, because a penalty between
    neighbors is symmetric.

    Attributes
    ----------
    union : CSRGraph
        All links that are ever active; connected.
    period : int or None
        Number of rounds after which the graph repeats; None: never.
    active : callable
        ``active(round) -> bool[2 * links]``: mask of the active entries of ``union.indices`` in round 0, 1, ...; a
        function of the round alone, equal at both ends of a link.
    own_mixing : callable or None
        ``own_mixing(round) -> float64[2 * links]``: custom weights of the active links, see `mixing`; None: default
        weights. They must be symmetric, at least 0, and 0 for inactive links, and those of a device may add up to at
        most 1, see `topologies.check`.
    checked : bool
        Whether the rounds are known to be valid, as those of the families.

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
        """First entry of each device in `indices`, int64[n + 1]."""
        return self.union.indptr

    @property
    def indices(self) -> Integers:
        """Neighbors over all links, int64[2 * links], ascending for each device."""
        return self.union.indices

    @property
    def weights(self) -> Floats | None:
        """Weights of all links, float64[2 * links]; None: all 1."""
        return self.union.weights

    @property
    def name(self) -> str:
        """Name for display."""
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
        return show_card("time-varying graph: all links that are ever active", self.union, {"repeats": period})

    def number_of_nodes(self) -> int:
        """Return the number of devices."""
        return self.n

    def number_of_edges(self) -> int:
        """Return the number of links that are ever active, each counted once."""
        return self.union.number_of_edges()

    def at(self, turn: int) -> CSRGraph:
        """Return the graph of the active links of a round, which may be disconnected."""
        mask = self.active(turn)
        return CSRGraph(_count_before(mask)[self.indptr], self.indices[mask], name=f"{self.name}, round {turn}")

    def degrees(self, turn: int) -> Integers:
        """Count the active links of each device in a round, int64[n]."""
        import numpy as np

        return np.diff(_count_before(self.active(turn))[self.indptr])

    def mixing(self, turn: int) -> Floats:
        """Return the mixing matrix of a round, symmetric and doubly stochastic.

        Entry e, of device i and its neighbor ``indices[e]``, is the share of the neighbor in the new value of i; the
        share of i is 1 minus the sum of these entries. The shares are those of `own_mixing` or, if it is None,
        Metropolis-Hastings weights of the active links, see `topologies.metropolis_weights`.

        Returns
        -------
        float64[2 * links]
        """
        if self.own_mixing is not None:
            return self.own_mixing(turn)
        return metropolis_weights(self.union, self.active(turn))


class Exchange(NamedTuple):
    """Links u[i] - v[i] of one round; each adds its share to the mixing of both ends, also if it is repeated.

    Attributes
    ----------
    u, v : int64[links]
    share : float64[links] or None
    """

    u: Integers
    v: Integers
    share: Floats | None = None


@dataclass(frozen=True, eq=False)
class _PeriodRounds:
    """Rounds of a period: active entries of the union's indices, and the shares of the links."""

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
    """Build the graph that repeats the given rounds periodically.

    Self-loops are removed. Either all rounds have shares or none has.
    """
    import numpy as np

    exchanges = [_drop_loops(exchange) for exchange in rounds] or [Exchange(*np.zeros((2, 0), np.int64))]
    ends = (np.concatenate([getattr(exchange, end) for exchange in exchanges]) for end in "uv")
    union = pack(n, *ends, name=name)
    keys = sources(union) * n + union.indices
    entries, shares = zip(*(_find_entries(n, keys, exchange) for exchange in exchanges), strict=True)
    period = _PeriodRounds(len(keys), entries, shares)
    own_mixing = None if shares[0] is None else period.mixing
    return TimeVaryingGraph(union, len(exchanges), period.active, own_mixing, checked=True)


def _find_entries(n: int, keys: Integers, exchange: Exchange) -> tuple[Any, Floats | None]:
    """Find the entries of the links of a round among the keys of the union, and return them with their shares."""
    import numpy as np

    u, v, share = exchange
    link_keys = np.concatenate((u * n + v, v * n + u))
    # Sorted keys are found many times faster.
    order = np.argsort(link_keys, kind="stable")
    entries = np.searchsorted(keys, link_keys[order]).astype(np.int32 if len(keys) < 2**31 else np.int64)
    return entries, None if share is None else np.tile(share, 2)[order]


def _drop_loops(exchange: Exchange) -> Exchange:
    keep = exchange.u != exchange.v
    share = None if exchange.share is None else exchange.share[keep]
    return Exchange(exchange.u[keep], exchange.v[keep], share)


def _count_before(mask: Bools) -> Integers:
    """Count the true entries before each position, int64[entries + 1]."""
    import numpy as np

    return np.concatenate((np.zeros(1, np.int64), np.cumsum(mask)))
