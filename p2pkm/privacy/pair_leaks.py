"""What one device learns about another from an average in which all take part: exact, for every pair.

Every device has rows r_u, adds normal noise of standard deviation s once, and takes part with z_u = r_u + noise. All
that gossip ever sends are sums of these with known coefficients. Device v knows its own z_v, what it receives, and what
is public: A_v z. If a point of u moves r_u by D, v has to tell two normal distributions with the same covariance
s^2 A_v A_v^T apart. One number says how well it can, mu-GDP (`p2pkm.methods.building_blocks.gdp`) and no smaller mu:

    mu(u -> v) = (D / s) sqrt(leak[v, u]),   leak[v, u] = e_u^T A_v^+ A_v e_u

the squared length of the projection of the unit vector e_u on the span of the rows of A_v. Only that span counts:
whether rows are scaled or repeated does not matter, and messages that are late or lost only change the rows.

Source: E. Cyffers, M. Even, A. Bellet, L. Massoulie, "Muffliato: Peer-to-peer privacy amplification for decentralized
optimization and averaging", NeurIPS 2022, where pairwise privacy losses of gossip are introduced.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from p2pkm.channel.fault_model import build_fault_model
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.sampled_faults import Faults
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.brief import short_repr
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.data.shards import Shards
from p2pkm.engine.active_links import ActiveLinks
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks.averaging import mixing_weights, relative_weights
from p2pkm.methods.building_blocks.total_variation import received_edges
from p2pkm.methods.peer.consensus import ConsensusLloyd
from p2pkm.methods.peer.pushsum import PushSumLloyd
from p2pkm.methods.peer.tracking import TrackingLloyd
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.privacy.row_space import PRIME, Echelon, Orthonormal
from topologies.mixing import is_weighted, mean_link_weights, metropolis_weights
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph

METHODS = {"consensus": ConsensusLloyd, "pushsum": PushSumLloyd, "tracking": TrackingLloyd}
_MOST = 10**8  # pairs of devices
_DENOMINATOR = 10**6  # of a fraction that a weight of the graph's own stands for


@dataclass(frozen=True, eq=False)
class PairLeaks:
    """What every receiver learns about every device from one average.

    Attributes
    ----------
    receivers : int64[r]
        The devices that the rows are about; by default all, in their order.
    leak : float64[r, n]
        In [0, 1]: what receiver v learns about device u, as a share of what u's own noisy rows say. Where `certified`
        is False, 1 for every device that v receives anything about.
    rank : int64[r]
        Number of independent rows that v knows, exact: the sum of its leaks.
    solved : bool[r, n]
        Whether v can compute the rows of u exactly.
    certified : bool[r]
        Whether the basis that `leak` is computed with has as many rows as `rank` says.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> leaks = p2pkm.pair_leaks(topologies.ring(6), gossips=2, receivers=[0])
    >>> leaks.receivers.tolist(), leaks.rank.tolist(), leaks.solved.tolist()
    ([0], [5], [[True, True, True, False, True, True]])
    """

    receivers: Integers
    leak: Floats
    rank: Integers
    solved: Mask
    certified: Mask

    def __repr__(self) -> str:
        return short_repr(self)


@single_thread()
def pair_leaks(  # noqa: PLR0913 - the public signature
    graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology", gossips: int = 10, method: str = "consensus",
    receivers: Iterable[int] | None = None, public: Iterable[int] = (), *, faults: Faults | str | None = None,
    stale_policy: StalePolicy | str | None = None, seed: int = 0,
) -> PairLeaks:  # fmt: skip
    """Compute what each device learns about each other one from one average, without any points.

    Parameters
    ----------
    graph : networkx.Graph, topologies.CSRGraph, topologies.TimeVaryingGraph or Topology
    gossips : int
        T, the turns of the average: every device sends T tables.
    method : {"consensus", "pushsum", "tracking"}
        As the methods of these names average in one Lloyd step; tracking in its first.
    receivers : iterable of int, optional
        Who learns; None: every device.
    public : iterable of int
        Devices whose rows at the end of the average are known to all.
    faults : Faults or str, optional
        As `p2pkm.simulate` takes them; the average is the opening and round 1. A delayed message counts as received.
    stale_policy : StalePolicy or str, optional
    seed : int
        Of faults that are drawn.

    Returns
    -------
    PairLeaks

    Raises
    ------
    TopologyError
        If the graph cannot be used.
    ExperimentError
        If an option is out of range, or there are more than 100 million pairs.

    Notes
    -----
    On a graph that stays and without faults the span is a block Krylov space: its basis, not the rows, is multiplied by
    the weights, because powers of the weights lose directions to rounding. Otherwise the rows themselves are followed.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> leaks = p2pkm.pair_leaks(topologies.path(4), gossips=1).leak
    >>> leaks.round(2).tolist()[0]  # device 0 receives from device 1 alone
    [1.0, 1.0, 0.0, 0.0]
    """
    check_integer(gossips, 1, "gossips")
    check_choice(method, METHODS, "method")
    topology = Topology.from_graph(graph)
    who = _check_devices(range(topology.n) if receivers is None else receivers, topology.n, "receivers")
    known = _check_devices(public, topology.n, "public")
    if len(who) * topology.n > _MOST:
        raise ExperimentError(
            f"there are {len(who) * topology.n:,} pairs; expected at most {_MOST:,}: name fewer receivers"
        )
    if stale_policy is not None and faults is None:
        raise ExperimentError(f"stale policy is {str(stale_policy)!r}, but there are no faults; give both, or neither")
    model, stale = build_fault_model(Faults.of(faults), topology, seed), StalePolicy.of(stale_policy)
    if model is None and topology.varying is None:
        knowledge: _Knowledge = _KrylovSpaces(topology, gossips, method, known)
    else:
        exchanges = _play(topology, gossips, (model, stale or StalePolicy.keep()))
        knowledge = _FollowedRows(topology, exchanges, method, known, totals=_sends_totals(method, topology, model))
    found = [_measure(*knowledge.of(v)) for v in who]
    leak, rank, solved, certified = (np.array(part) for part in zip(*found, strict=True))
    return PairLeaks(who, leak, rank, solved, certified)


def _check_devices(given: Iterable[int], n: int, name: str) -> Integers:
    found = [check_integer(device, 0, name) for device in given]
    if not found and name == "receivers":
        raise ExperimentError("receivers is empty; expected at least one device")
    if max(found, default=0) >= n:
        raise ExperimentError(f"{name} has device {max(found)}; expected numbers from 0 to {n - 1}")
    return np.array(found, np.int64)


def _sends_totals(method: str, topology: Topology, model: Any) -> bool:
    """Return whether the method sends running totals here."""
    plain = METHODS[method](1)
    return model is not None and plain.under_faults(topology) != plain


def _measure(basis: Orthonormal, echelon: Echelon) -> tuple[Floats, int, Mask, bool]:
    """Return leak, rank, solved and certified of one receiver."""
    rank = len(echelon.rows)
    if rank != len(basis.rows):
        reached = (echelon.rows != 0).any(axis=0) | (basis.rows != 0).any(axis=0)
        return reached.astype(np.float64), rank, echelon.solved, False
    return np.minimum((basis.rows**2).sum(axis=0), 1.0), rank, echelon.solved, True


class _Knowledge(Protocol):
    """What receivers know."""

    def of(self, v: int) -> tuple[Orthonormal, Echelon]:
        """Return the span of the rows of A_v, in floating-point numbers and in residues."""


class _Numbers(Protocol):
    """The arithmetic that rows are followed in."""

    def fractions(self, values: Any, den: Any) -> Any:
        """Return values / den, of whole values or weights of a graph."""

    def combine(self, weights: Any, rows: Any) -> Any:
        """Return a linear combination of rows."""

    def reduce(self, sums: Any) -> Any:
        """Return sums of a few numbers as numbers."""


class _Reals:
    def fractions(self, values: Any, den: Any) -> Floats:
        return values / den

    def combine(self, weights: Floats, rows: Floats) -> Floats:
        return weights @ rows

    def reduce(self, sums: Floats) -> Floats:
        return sums


class _Residues:
    def fractions(self, values: Any, den: Any) -> Integers:
        pairs, where = np.unique(np.stack(np.broadcast_arrays(values, den), axis=-1), axis=0, return_inverse=True)
        found = [_find_fraction(value) / int(below) for value, below in pairs]
        residues = [one.numerator * pow(one.denominator, -1, PRIME) % PRIME for one in found]
        return np.array(residues, np.int64)[where.reshape(-1)]

    def combine(self, weights: Integers, rows: Integers) -> Integers:
        return (weights[:, None] * rows % PRIME).sum(axis=0) % PRIME

    def reduce(self, sums: Integers) -> Integers:
        return sums % PRIME


def _find_fraction(value: float) -> Fraction:
    """Return the simple fraction that a number is rounded from, else the number itself."""
    simple = Fraction(float(value)).limit_denominator(_DENOMINATOR)
    return simple if float(simple) == value else Fraction(float(value))


class _KrylovSpaces:
    """One matrix of weights W: the rows are those of I, W, W^2, ... at the neighbors."""

    def __init__(self, topology: Topology, gossips: int, method: str, public: Integers) -> None:
        n = topology.n
        self._topology, self._gossips, self._public = topology, gossips, public
        self._starts = topology.indptr[:-1] + np.arange(n)  # of the entries of each column: its device, its neighbors
        self._from = np.insert(topology.indices, topology.indptr[:-1], np.arange(n))
        values, den = _list_weights(topology, self._from, method)
        self._weights: list[tuple[_Numbers, Any]] = []
        for numbers in (_Reals(), _Residues()):
            weights: Any = numbers.fractions(values, den)
            if method != "pushsum":
                weights[self._starts] = 0
                weights[self._starts] = numbers.reduce(1 - np.add.reduceat(weights, self._starts))
            self._weights.append((numbers, weights))
        self._rows = [self._power(kind) for kind in range(2)]

    def of(self, v: int) -> tuple[Orthonormal, Echelon]:
        topology = self._topology
        units = np.concatenate(([v], topology.indices[topology.indptr[v] : topology.indptr[v + 1]]))
        spaces: tuple[Any, Any] = Orthonormal(topology.n, units), Echelon(topology.n, units)
        for kind, space in enumerate(spaces):
            news: Any = space.rows
            for _ in range(self._gossips - 1):
                news = space.add(self._times(kind, news))
                if not len(news):
                    break
            space.add(self._rows[kind])
        return spaces

    def _power(self, kind: int) -> Any:
        """Return the rows of the public devices in W^T."""
        rows: Any = np.zeros((len(self._public), self._topology.n), (np.float64, np.int64)[kind])
        rows[np.arange(len(rows)), self._public] = 1
        for _ in range(self._gossips if len(rows) else 0):
            rows = self._times(kind, rows)
        return rows

    def _times(self, kind: int, rows: Any) -> Any:
        """Return rows times W."""
        numbers, weights = self._weights[kind]
        return numbers.reduce(np.add.reduceat(numbers.reduce(rows[:, self._from] * weights), self._starts, axis=1))


def _list_weights(topology: Topology, rows: Integers, method: str) -> tuple[Any, Any]:
    """Return the entries of W by column, each a numerator and a denominator: the device itself, then its neighbors."""
    degrees, links = topology.degrees, topology.links
    to = np.repeat(np.arange(topology.n), degrees + 1)
    if not is_weighted(links):
        den = 1 + degrees[to] if method == "pushsum" else 1 + np.maximum(degrees[to], degrees[rows])
        return np.ones(len(den)), den
    if method == "pushsum":
        relative = topology.weights / mean_link_weights(links)[topology.sources]
        return np.insert(relative, topology.indptr[:-1], 1.0), 1 + degrees[to]
    return np.insert(metropolis_weights(links), topology.indptr[:-1], 0.0), np.ones(len(to))


class _Exchange(NamedTuple):
    """An exchange and the turn after it.

    Attributes
    ----------
    devices : Devices
        With the links in use, and those who act.
    used : int64[b]
        The own edges over which a table is used.
    sent : int64[b]
        In which exchange that table was sent.
    arrives : bool[e]
        The own edges over which what was sent in this exchange arrives, now or later.
    """

    devices: Devices
    used: Integers
    sent: Integers
    arrives: Mask


class _ProbeState(NamedTuple):
    converged: Mask


class _Probe:
    """Send in which exchange it is, so that what is used tells how old it is."""

    def __init__(self) -> None:
        self.sent, self.seen = 0, (np.zeros(0, np.int64), np.zeros(0, np.int64))

    def message(self, state: _ProbeState, devices: Devices) -> DenseMessages:
        self.sent += 1
        return DenseMessages(np.full((len(devices), 1, 1), self.sent - 1.0), np.where(devices.active_devices, 1, -1))

    def update(self, state: _ProbeState, inbox: Inbox, devices: Devices) -> _ProbeState:
        used = received_edges(inbox, devices.active_edges)
        self.devices, self.seen = devices, (used, inbox.tables[inbox.slots[used], 0, 0].astype(np.int64))
        return state


def _play(topology: Topology, gossips: int, trouble: tuple[Any, StalePolicy]) -> list[_Exchange]:
    """Play one average of a method that sends in every turn, as `p2pkm.engine.loop` does, and note what is received."""
    network = LocalNetwork(place(topology, 0, 1))
    points = Shards(np.zeros((topology.n, 1)), np.arange(topology.n + 1), np.ones(topology.n), None, 0)
    links = ActiveLinks(build_batch(topology, points, network, 0, reference), network, topology.varying)
    schedule, probe, state = (
        make(f"jacobi*{gossips}", links.devices, topology.colors),
        _Probe(),
        _ProbeState(np.zeros(topology.n, np.bool_)),
    )
    played: Any = probe
    model, stale = trouble
    injector = None if model is None else FaultInjector(model, stale, topology, network.placement)
    if injector is not None:
        played, schedule = injector.wrap(probe, schedule, network)
    network.open(injector)
    now, found = links.devices.at_stage_start(schedule.opening), []
    for turn, awake in enumerate(schedule.turns(1)):
        messages = played.message(state, now)
        inbox = network.exchange(messages)
        arrives = injector.arrives if injector is not None else links.devices.active_edges
        now = links.devices.at_turn(1, turn, awake)
        played.update(state, inbox, now)
        found.append(_Exchange(probe.devices, *probe.seen, arrives))
        if links.advance(due=True):
            now = links.devices.at_turn(1, turn, awake)
    return found


class _FollowedRows:
    """Weights that change, tables that are late or lost: the rows of all that is sent are followed."""

    def __init__(
        self, topology: Topology, exchanges: list[_Exchange], method: str, public: Integers, *, totals: bool
    ) -> None:
        self._topology, self._exchanges, self._public = topology, exchanges, public
        follow = _follow_totals if totals else _follow_rows
        self._rows = [follow(topology, exchanges, method, numbers) for numbers in (_Reals(), _Residues())]

    def of(self, v: int) -> tuple[Orthonormal, Echelon]:
        topology, unit = self._topology, np.array([v])
        spaces: tuple[Any, Any] = Orthonormal(topology.n, unit), Echelon(topology.n, unit)
        own = np.arange(topology.indptr[v], topology.indptr[v + 1])
        for space, (sent, ends) in zip(spaces, self._rows, strict=True):
            for rows, exchange in zip(sent, self._exchanges, strict=True):
                space.add(rows[topology.indices[own[exchange.arrives[own]]]])
            space.add(ends[self._public])
        return spaces


def _weigh(exchange: _Exchange, method: str, numbers: _Numbers) -> tuple[Any, Any]:
    """Return the weight of each own edge, [e], and what a device keeps, [n], of links in use alone."""
    devices = exchange.devices
    if method == "pushsum":
        ones, relative = np.ones(len(devices.indices)), relative_weights(devices)
        return numbers.fractions(ones if relative is None else relative, ones), numbers.fractions(
            np.ones(len(devices)), 1 + devices.degrees
        )
    if devices.averaging_weights is not None or devices.neighbor_mean_weights is not None:
        shares = mixing_weights(devices)
        weights: Any = numbers.fractions(shares, np.ones(len(shares)))
    else:
        most = np.maximum(devices.degrees[devices.sources], devices.neighbor_degrees)
        weights = numbers.fractions(np.ones(len(most)), 1 + most)
    kept = np.ones(len(devices), weights.dtype)
    np.subtract.at(kept, devices.sources[devices.active_edges], weights[devices.active_edges])
    return weights, numbers.reduce(kept)


def _iter_used(exchange: _Exchange) -> Iterator[tuple[int, Integers, Integers]]:
    """Yield every device that acts, with the edges it uses and the exchanges that these tables were sent in."""
    first = np.searchsorted(exchange.used, exchange.devices.indptr)
    for v in np.flatnonzero(exchange.devices.active_devices):
        part = slice(first[v], first[v + 1])
        yield int(v), exchange.used[part], exchange.sent[part]


def _follow_rows(topology: Topology, exchanges: list[_Exchange], method: str, numbers: _Numbers) -> tuple[Any, Any]:
    """Return the coefficients of all that is sent, [T, n, n], and of the rows at the end, [n, n]."""
    rows: Any = numbers.fractions(np.ones(1), np.ones(1)) * np.eye(topology.n, dtype=np.int64)
    sent: Any = np.zeros((len(exchanges), *rows.shape), rows.dtype)
    for number, exchange in enumerate(exchanges):
        weights, kept = _weigh(exchange, method, numbers)
        sent[number] = numbers.reduce(rows * kept[:, None]) if method == "pushsum" else rows
        mixed = rows.copy()
        for v, edges, when in _iter_used(exchange):
            among, tables = weights[edges], sent[when, topology.indices[edges]]
            rest = kept[v : v + 1] if method == "pushsum" else numbers.reduce(1 - among.sum(keepdims=True))
            mixed[v] = numbers.combine(np.concatenate((rest, among)), np.concatenate((rows[v : v + 1], tables)))
        rows = mixed
    return sent, rows


def _follow_totals(topology: Topology, exchanges: list[_Exchange], method: str, numbers: _Numbers) -> tuple[Any, Any]:
    """Return the same of running totals, see `p2pkm.methods.building_blocks.averaging.RunningSums`."""
    rows: Any = numbers.fractions(np.ones(1), np.ones(1)) * np.eye(topology.n, dtype=np.int64)
    sent: Any = np.zeros((len(exchanges), *rows.shape), rows.dtype)
    last = np.full(len(topology.indices), -1)
    total, held = np.zeros_like(rows), rows
    for number, exchange in enumerate(exchanges):
        weights, kept = _weigh(exchange, method, numbers)
        acted = np.ones(topology.n, np.bool_) if number == 0 else exchanges[number - 1].devices.active_devices
        held = np.where(acted[:, None], numbers.reduce(rows * kept[:, None]), held)
        offered = held if method == "pushsum" else rows
        total = np.where(acted[:, None], numbers.reduce(total + offered), total)
        sent[number] = total
        rows = held.copy()
        for v, edges, when in _iter_used(exchange):
            before = edges[last[edges] >= 0]
            tables = sent[when, topology.indices[edges]], sent[last[before], topology.indices[before]]
            among = np.concatenate((np.ones(1, weights.dtype), weights[edges], numbers.reduce(-weights[before])))
            rows[v] = numbers.combine(among, np.concatenate((held[v : v + 1], *tables)))
            last[edges] = when
    return sent, rows
