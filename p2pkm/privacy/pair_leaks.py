"""Pairwise leaks of gossip: how much one device learns about another from one average, exactly and for every pair.

Every device has rows r_u, adds normal noise of standard deviation s once, and takes part with z_u = r_u + noise. All
messages of gossip are sums of these with known coefficients. Device v knows A_v z: its local z_v, the messages that it
receives, and public rows. A point of u moves r_u by D, so v tests two normal distributions with the same covariance
s^2 A_v A_v^T. The pair (u, v) satisfies mu-GDP (`p2pkm.methods.building_blocks.gdp`) with exactly

    mu(u -> v) = (D / s) sqrt(leak[v, u]),   leak[v, u] = e_u^T A_v^+ A_v e_u

where the leak is the squared length of the projection of the unit vector e_u on the span of the rows of A_v. Only that
span matters: rows may be scaled or repeated, and late or lost messages only change the rows.

Source: E. Cyffers, M. Even, A. Bellet, L. Massoulie, "Muffliato: Peer-to-peer privacy amplification for decentralized
optimization and averaging", NeurIPS 2022, where pairwise privacy losses of gossip are introduced.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from p2pkm.channel.fault_model import build_fault_model, refuse_seconds
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
from p2pkm.privacy.row_space import PRIME, Orthonormal, RowEchelonBasis
from topologies.mixing import is_weighted, mean_link_weights, metropolis_weights
from topologies.single_thread import single_thread

if TYPE_CHECKING:
    import networkx as nx

    from topologies import CSRGraph, TimeVaryingGraph

METHODS = {"consensus": ConsensusLloyd, "pushsum": PushSumLloyd, "tracking": TrackingLloyd}
# Pairs of devices, at most: the leaks of this many pairs take 800 MB.
_MAX_PAIRS = 10**8
# Largest denominator of the fraction that a link weight of the graph is taken for.
_MAX_DENOMINATOR = 10**6


@dataclass(frozen=True, eq=False)
class PairLeaks:
    """Information that every receiver obtains about every device from one average.

    Attributes
    ----------
    receivers : int64[r]
        Ids of the receivers; by default all devices.
    leak : float64[r, n]
        Leak from device u to receiver v, from 0 (no information) to 1 (as much as the noisy rows of u). If not
        `certified`, 1 for every device about which v receives any information.
    rank : int64[r]
        Number of independent rows that v knows, exact: the sum of its leaks.
    solved : bool[r, n]
        Whether v can compute the rows of u exactly.
    certified : bool[r]
        Whether the basis from which `leak` is computed has `rank` rows.

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
def pair_leaks(
    graph: "nx.Graph | CSRGraph | TimeVaryingGraph | Topology", gossips: int = 10, method: str = "consensus",
    receivers: Iterable[int] | None = None, public: Iterable[int] = (), *, faults: Faults | str | None = None,
    stale_policy: StalePolicy | str | None = None, seed: int = 0,
) -> PairLeaks:  # fmt: skip
    """Compute the leak of one average from each device to each receiver; no points are needed.

    Parameters
    ----------
    graph : networkx.Graph, topologies.CSRGraph, topologies.TimeVaryingGraph or Topology
    gossips : int
        Number of turns T of the average: every device sends T tables.
    method : {"consensus", "pushsum", "tracking"}
        Average of one Lloyd step of this method; of the first step for "tracking".
    receivers : iterable of int, optional
        Ids of the receivers; None for all devices.
    public : iterable of int
        Devices whose rows at the end of the average are known to all.
    faults : Faults or str, optional
        As in `p2pkm.simulate`; the average consists of the initial exchange and round 1. A delayed message counts as
        received.
    stale_policy : StalePolicy or str, optional
    seed : int
        Seed of faults that are drawn.

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
    On a static graph without faults, the span is a block Krylov space. Its basis instead of the rows is multiplied by
    the weights, because powers of the weights lose directions by rounding. In all other cases the coefficients of all
    messages are computed.

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
    receiver_ids = _check_devices(range(topology.n) if receivers is None else receivers, topology.n, "receivers")
    public_ids = _check_devices(public, topology.n, "public")
    pairs = len(receiver_ids) * topology.n
    if pairs > _MAX_PAIRS:
        raise ExperimentError(f"there are {pairs:,} pairs; expected at most {_MAX_PAIRS:,}: name fewer receivers")
    if stale_policy is not None and faults is None:
        raise ExperimentError(
            f"stale policy {stale_policy} requires faults. Remove it, or add for example --faults loss=0.1"
        )
    model, stale = build_fault_model(Faults.of(faults), topology, seed), StalePolicy.of(stale_policy)
    refuse_seconds(model, "the leak between pairs")
    if model is None and topology.varying is None:
        knowledge: _Knowledge = _KrylovSpaces(topology, gossips, method, public_ids)
    else:
        exchanges = _run_average(topology, gossips, model, stale or StalePolicy.keep())
        totals = _sends_totals(method, topology, model)
        knowledge = _MessageRows(topology, exchanges, method, public_ids, totals=totals)
    measured = [_measure(*knowledge.of(v)) for v in receiver_ids]
    leak, rank, solved, certified = (np.array(part) for part in zip(*measured, strict=True))
    return PairLeaks(receiver_ids, leak, rank, solved, certified)


def _check_devices(devices: Iterable[int], n: int, name: str) -> Integers:
    """Validate ids of devices."""
    ids = [check_integer(device, 0, name) for device in devices]
    if not ids and name == "receivers":
        raise ExperimentError("receivers is empty; expected at least one device, for example 0")
    if max(ids, default=0) >= n:
        raise ExperimentError(f"{name} has device {max(ids)}; expected numbers from 0 to {n - 1}")
    return np.array(ids, np.int64)


def _sends_totals(method: str, topology: Topology, model: Any) -> bool:
    """Check whether the method sends running totals: some methods do so under faults."""
    plain = METHODS[method](1)
    return model is not None and plain.under_faults(topology) != plain


def _measure(basis: Orthonormal, echelon: RowEchelonBasis) -> tuple[Floats, int, Mask, bool]:
    """Compute leak, rank, solved and certified of one receiver."""
    rank = len(echelon.rows)
    # Rounding has hidden a direction, so the leaks would be too small: use the safe value 1.
    if rank != len(basis.rows):
        reached = (echelon.rows != 0).any(axis=0) | (basis.rows != 0).any(axis=0)
        return reached.astype(np.float64), rank, echelon.solved, False
    return np.minimum((basis.rows**2).sum(axis=0), 1.0), rank, echelon.solved, True


class _Knowledge(Protocol):
    """Rows that receivers know."""

    def of(self, v: int) -> tuple[Orthonormal, RowEchelonBasis]:
        """Compute the span of the rows of A_v, in floating-point numbers and in residues."""


class _Numbers(Protocol):
    """Arithmetic of the coefficients: floating-point numbers, or residues modulo `PRIME`."""

    def fractions(self, values: Any, den: Any) -> Any:
        """Compute values / den, for integers or link weights."""

    def combine(self, weights: Any, rows: Any) -> Any:
        """Compute a linear combination of rows."""

    def reduce(self, sums: Any) -> Any:
        """Reduce sums of a few numbers to the range of the arithmetic."""


class _Reals:
    def fractions(self, values: Any, den: Any) -> Floats:
        return values / den

    def combine(self, weights: Floats, rows: Floats) -> Floats:
        return weights @ rows

    def reduce(self, sums: Floats) -> Floats:
        return sums


class _Residues:
    def fractions(self, values: Any, den: Any) -> Integers:
        pairs, index = np.unique(np.stack(np.broadcast_arrays(values, den), axis=-1), axis=0, return_inverse=True)
        quotients = [_find_fraction(value) / int(divisor) for value, divisor in pairs]
        residues = [quotient.numerator * pow(quotient.denominator, -1, PRIME) % PRIME for quotient in quotients]
        return np.array(residues, np.int64)[index.reshape(-1)]

    def combine(self, weights: Integers, rows: Integers) -> Integers:
        return (weights[:, None] * rows % PRIME).sum(axis=0) % PRIME

    def reduce(self, sums: Integers) -> Integers:
        return sums % PRIME


def _find_fraction(value: float) -> Fraction:
    """Find the simple fraction that rounds to a number; if there is none, the exact value of the number."""
    simple = Fraction(float(value)).limit_denominator(_MAX_DENOMINATOR)
    return simple if float(simple) == value else Fraction(float(value))


class _KrylovSpaces:
    """Rows of a fixed matrix of weights W: those of I, W, W^2, ... at the neighbors of the receiver."""

    def __init__(self, topology: Topology, gossips: int, method: str, public: Integers) -> None:
        n = topology.n
        self._topology = topology
        self._gossips = gossips
        self._public = public
        # Position of the first entry of each column of W: the device itself, followed by its neighbors.
        self._starts = topology.indptr[:-1] + np.arange(n)
        self._from = np.insert(topology.indices, topology.indptr[:-1], np.arange(n))
        values, den = _list_weights(topology, self._from, method)
        self._weights: list[tuple[_Numbers, Any]] = []
        for numbers in (_Reals(), _Residues()):
            weights: Any = numbers.fractions(values, den)
            # The diagonal of a symmetric matrix of weights completes its columns to 1.
            if method != "pushsum":
                weights[self._starts] = 0
                weights[self._starts] = numbers.reduce(1 - np.add.reduceat(weights, self._starts))
            self._weights.append((numbers, weights))
        self._rows = [self._power(kind) for kind in range(2)]

    def of(self, v: int) -> tuple[Orthonormal, RowEchelonBasis]:
        topology = self._topology
        units = np.concatenate(([v], topology.indices[topology.indptr[v] : topology.indptr[v + 1]]))
        spaces: tuple[Any, Any] = Orthonormal(topology.n, units), RowEchelonBasis(topology.n, units)
        for kind, space in enumerate(spaces):
            new_rows: Any = space.rows
            for _ in range(self._gossips - 1):
                new_rows = space.add(self._multiply(kind, new_rows))
                # The span is invariant under W from here on.
                if not len(new_rows):
                    break
            space.add(self._rows[kind])
        return spaces

    def _power(self, kind: int) -> Any:
        """Compute the rows of the public devices in W^T."""
        rows: Any = np.zeros((len(self._public), self._topology.n), (np.float64, np.int64)[kind])
        rows[np.arange(len(rows)), self._public] = 1
        for _ in range(self._gossips if len(rows) else 0):
            rows = self._multiply(kind, rows)
        return rows

    def _multiply(self, kind: int, rows: Any) -> Any:
        """Multiply rows by W."""
        numbers, weights = self._weights[kind]
        return numbers.reduce(np.add.reduceat(numbers.reduce(rows[:, self._from] * weights), self._starts, axis=1))


def _list_weights(topology: Topology, rows: Integers, method: str) -> tuple[Any, Any]:
    """List the entries of W by column as numerators and denominators: the device itself, then its neighbors."""
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
    """One exchange and the turn after it.

    Attributes
    ----------
    devices : Devices
        Batch with the active links and devices.
    used : int64[b]
        Edges over which a table is used.
    sent : int64[b]
        Number of the exchange in which that table was sent.
    arrives : bool[e]
        Edges over which the message of this exchange arrives, now or later.
    """

    devices: Devices
    used: Integers
    sent: Integers
    arrives: Mask


class _ProbeState(NamedTuple):
    converged: Mask


class _Probe:
    """Method that sends the number of the exchange, so that the received tables show when they were sent."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def message(self, state: _ProbeState, devices: Devices) -> DenseMessages:
        self.sent += 1
        return DenseMessages(np.full((len(devices), 1, 1), self.sent - 1.0), np.where(devices.active_devices, 1, -1))

    def update(self, state: _ProbeState, inbox: Inbox, devices: Devices) -> _ProbeState:
        used = received_edges(inbox, devices.active_edges)
        self.devices = devices
        self.received = used, inbox.tables[inbox.slots[used], 0, 0].astype(np.int64)
        return state


def _run_average(topology: Topology, gossips: int, model: Any, stale: StalePolicy) -> list[_Exchange]:
    """Run one average of a method that sends in every turn, as `p2pkm.engine.loop` does, and record its exchanges."""
    network = LocalNetwork(place(topology, 0, 1))
    points = Shards(np.zeros((topology.n, 1)), np.arange(topology.n + 1), np.ones(topology.n), None, 0)
    links = ActiveLinks(build_batch(topology, points, network, 0, reference), network, topology.varying)
    schedule = make(f"jacobi*{gossips}", links.devices, topology.colors)
    probe = _Probe()
    state = _ProbeState(np.zeros(topology.n, np.bool_))
    algorithm: Any = probe
    injector = None if model is None else FaultInjector(model, stale, topology, network.placement)
    if injector is not None:
        algorithm, schedule = injector.wrap(probe, schedule, network)
    network.open(injector)
    batch, exchanges = links.devices.at_stage_start(schedule.opening), []
    for turn, active in enumerate(schedule.turns(1)):
        messages = algorithm.message(state, batch)
        inbox = network.exchange(messages)
        arrives = injector.arrives if injector is not None else links.devices.active_edges
        batch = links.devices.at_turn(1, turn, active)
        algorithm.update(state, inbox, batch)
        exchanges.append(_Exchange(probe.devices, *probe.received, arrives))
        if links.advance(due=True):
            batch = links.devices.at_turn(1, turn, active)
    return exchanges


class _MessageRows:
    """Rows of all messages, for weights that change and for messages that are late or lost."""

    def __init__(
        self, topology: Topology, exchanges: list[_Exchange], method: str, public: Integers, *, totals: bool
    ) -> None:
        self._topology = topology
        self._exchanges = exchanges
        self._public = public
        compute_rows = _compute_total_rows if totals else _compute_rows
        self._rows = [compute_rows(topology, exchanges, method, numbers) for numbers in (_Reals(), _Residues())]

    def of(self, v: int) -> tuple[Orthonormal, RowEchelonBasis]:
        topology, unit = self._topology, np.array([v])
        spaces: tuple[Any, Any] = Orthonormal(topology.n, unit), RowEchelonBasis(topology.n, unit)
        edges = np.arange(topology.indptr[v], topology.indptr[v + 1])
        for space, (sent, final) in zip(spaces, self._rows, strict=True):
            for rows, exchange in zip(sent, self._exchanges, strict=True):
                space.add(rows[topology.indices[edges[exchange.arrives[edges]]]])
            space.add(final[self._public])
        return spaces


def _weigh(exchange: _Exchange, method: str, numbers: _Numbers) -> tuple[Any, Any]:
    """Compute the weight of each edge, [e], and of the local rows of each device, [n]; active links only."""
    devices = exchange.devices
    if method == "pushsum":
        unit, relative = np.ones(len(devices.indices)), relative_weights(devices)
        edge_weights = numbers.fractions(unit if relative is None else relative, unit)
        return edge_weights, numbers.fractions(np.ones(len(devices)), 1 + devices.degrees)
    if devices.averaging_weights is not None or devices.neighbor_mean_weights is not None:
        shares = mixing_weights(devices)
        weights: Any = numbers.fractions(shares, np.ones(len(shares)))
    else:
        most = np.maximum(devices.degrees[devices.sources], devices.neighbor_degrees)
        weights = numbers.fractions(np.ones(len(most)), 1 + most)
    local_weights = np.ones(len(devices), weights.dtype)
    np.subtract.at(local_weights, devices.sources[devices.active_edges], weights[devices.active_edges])
    return weights, numbers.reduce(local_weights)


def _iter_used(exchange: _Exchange) -> Iterator[tuple[int, Integers, Integers]]:
    """Yield every active device, its edges with a used table, and the exchanges in which these tables were sent."""
    first = np.searchsorted(exchange.used, exchange.devices.indptr)
    for v in np.flatnonzero(exchange.devices.active_devices):
        part = slice(first[v], first[v + 1])
        yield int(v), exchange.used[part], exchange.sent[part]


def _compute_rows(topology: Topology, exchanges: list[_Exchange], method: str, numbers: _Numbers) -> tuple[Any, Any]:
    """Compute the coefficients of all messages, [T, n, n], and of the rows at the end, [n, n]."""
    rows: Any = numbers.fractions(np.ones(1), np.ones(1)) * np.eye(topology.n, dtype=np.int64)
    sent: Any = np.zeros((len(exchanges), *rows.shape), rows.dtype)
    for number, exchange in enumerate(exchanges):
        weights, local_weights = _weigh(exchange, method, numbers)
        # Push-sum splits rows at the sender, the other methods weight them at the receiver.
        sent[number] = numbers.reduce(rows * local_weights[:, None]) if method == "pushsum" else rows
        mixed = rows.copy()
        for v, edges, sent_in in _iter_used(exchange):
            edge_weights, tables = weights[edges], sent[sent_in, topology.indices[edges]]
            if method == "pushsum":
                local_weight = local_weights[v : v + 1]
            else:
                local_weight = numbers.reduce(1 - edge_weights.sum(keepdims=True))
            all_weights = np.concatenate((local_weight, edge_weights))
            mixed[v] = numbers.combine(all_weights, np.concatenate((rows[v : v + 1], tables)))
        rows = mixed
    return sent, rows


def _compute_total_rows(
    topology: Topology, exchanges: list[_Exchange], method: str, numbers: _Numbers
) -> tuple[Any, Any]:
    """Compute the coefficients for running totals, see `p2pkm.methods.building_blocks.averaging.RunningSums`."""
    rows: Any = numbers.fractions(np.ones(1), np.ones(1)) * np.eye(topology.n, dtype=np.int64)
    sent: Any = np.zeros((len(exchanges), *rows.shape), rows.dtype)
    # Exchange in which the last used table over each edge was sent, -1 before the first one.
    last = np.full(len(topology.indices), -1)
    total, local_rows = np.zeros_like(rows), rows
    for number, exchange in enumerate(exchanges):
        weights, local_weights = _weigh(exchange, method, numbers)
        acted = np.ones(topology.n, np.bool_) if number == 0 else exchanges[number - 1].devices.active_devices
        local_rows = np.where(acted[:, None], numbers.reduce(rows * local_weights[:, None]), local_rows)
        added = local_rows if method == "pushsum" else rows
        total = np.where(acted[:, None], numbers.reduce(total + added), total)
        sent[number] = total
        rows = local_rows.copy()
        for v, edges, sent_in in _iter_used(exchange):
            # A receiver takes the difference to the last total that it used.
            repeated = edges[last[edges] >= 0]
            tables = sent[sent_in, topology.indices[edges]], sent[last[repeated], topology.indices[repeated]]
            signed = np.ones(1, weights.dtype), weights[edges], numbers.reduce(-weights[repeated])
            rows[v] = numbers.combine(np.concatenate(signed), np.concatenate((local_rows[v : v + 1], *tables)))
            last[edges] = sent_in
    return sent, rows
