"""MUFC (Pan et al. 2023): seeds of the clients, aggregated secretly as power sums over a finite field."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.protocols import PointCount, Report, RunOutline, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import positive, whole
from p2pkm.kernels.reference import philox, uniforms
from p2pkm.methods.server.finite_field import limbs
from p2pkm.methods.server.finite_field.effort import estimate
from p2pkm.methods.server.finite_field.multisets import power_sums, recover
from p2pkm.methods.server.finite_field.primes import next_prime

_POINTS = 2**31  # more than there can be


@dataclass(frozen=True)
class MUFC(ServerMethodBase):
    r"""Cluster the clients' quantized seeds at a server that learns how many points of all each bin stands for.

    Every coordinate is scaled to [0, 1] by the smallest and largest value of all clients, or by `low` and `high`.
    Client l draws k' k-means++ seeds c of its points, q of them nearest to each, and numbers the seeds' bins
    b = 1, 2, ... in a grid of width 1/sqrt(m), m the number of all points. Then, for i = 1, ..., 2 k' n and a prime p
    above m and the number of bins (secure compressed multiset aggregation)::

        client l:  S_i^(l) <- sum_c q_c b_c^(i-1) + z_i^(l)  mod p,    sum_l z_i^(l) = 0
        server:    S_i <- sum_l S_i^(l)  mod p;  the bins and counts that have these power sums, exactly
                   a uniform point of its bin for every point counted;  kmeans(these, k)

    n clients have at most k' n different bins, so twice as many sums determine them
    (`p2pkm.methods.server.finite_field.multisets`). A seed
    in the middle between two bins goes to the even one. The server clusters whole numbers of points: every point counts
    once, whatever its weight. p is above 2^31, too, which costs no byte.

    Message: up 2 k' n rows, a field element each, as limbs of 32 bits (exact), whatever the client has, even nothing;
    down the k centroids. Without `low` and `high` every client sends its smallest and largest value of each coordinate
    before, in the clear.

    Privacy: no guarantee; **without `low` and `high` the server receives every client's box unmasked**: its smallest
    and largest value of each coordinate, which are values of its points; of a client with a single point the box is
    that point. With both the set-up gives the box, no box travels, and all that the server receives is masked: the
    masks are ``z^(l) = r_l - r_(l+1)``, the clients in a ring, r_l a uniform random stream that only l - 1 and l know.
    So a client's rows alone are uniformly distributed, and the server learns the total: a histogram of seeds, which are
    points up to the width of a bin. It learns a client's own histogram if both its neighbors in that ring disclose
    their streams, and nothing hides a single client. Streams, m, `low` and `high` are a trusted set-up: here the
    streams come from the key of the simulation, which in earnest the server must not have.

    Not here: the paper's unlearning, that is, removing points or clients afterwards and seeding anew only where a seed
    was removed. To forget a point, run again without it.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int, optional
        k': seeds of a client, fewer if it has fewer distinct points; default: k.
    local_lloyd : bool
        Whether clients run k-means to the end from their seeds.
    server_n_init : int
        The server's k-means is the best of so many seedings.
    low, high : float, optional
        Ends of the box of all points, the same for every coordinate, known before; a seed outside counts for the bin
        at the edge. Default: the clients send their boxes.
    max_seconds : float
        A run whose arithmetic modulo the prime is estimated to take longer is refused. The prime has about
        ``d log2(sqrt(m))`` bits.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    C. Pan, J. Sima, S. Prakash, V. Rana, O. Milenkovic, "Machine unlearning of federated clusters", ICLR 2023.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.MUFC(3), None, shards)
    >>> result.summary["messages"], result.summary["bytes"]
    (18, 864)
    """

    k: int
    _: KW_ONLY
    local_k: int | None = None
    local_lloyd: bool = False
    server_n_init: int = 10
    low: float | None = None
    high: float | None = None
    max_seconds: float = 600.0

    name: ClassVar[str] = "mufc"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self._seeds, 1, "local_k")
        whole(self.server_n_init, 1, "server_n_init")
        ends = self.low, self.high
        if ends != (None, None) and not (None not in ends and -math.inf < ends[0] < ends[1] < math.inf):  # type: ignore[operator]
            raise ExperimentError(
                f"low is {self.low} and high is {self.high}; expected both, finite and low below high, or neither"
            )
        if self.max_seconds != math.inf:
            positive(self.max_seconds, "max_seconds")

    @property
    def traits(self) -> ServerTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return ServerTraits(
            message_content=MessageContent.OTHER,
            one_shot=True,
            normalization="coordinate" if self.low is None or self.high is None else (self.low, self.high),
            no_suppression="sends sums that are masked as a whole",
            ignores_weights=True,
            needs_reliable_links="adds up masked tables, whose masks cancel only if the messages of all clients arrive",
        )

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a run whose arithmetic would take too long.

        Raises
        ------
        ExperimentError
        """
        clients = run.topology.clients
        bits = int(_least_prime(points.m, _side(points.m), points.d)).bit_length()
        seconds = estimate(bits, points.m, clients, self._seeds)
        if seconds > self.max_seconds:
            hours = f"{seconds / 3600:,.1f} hours" if seconds > 5400 else f"{seconds:,.0f} seconds"
            raise ExperimentError(
                f"mufc adds up numbers of {bits:,} bits here ({points.d} features, {points.m:,} points) and finds "
                f"the at most {clients * self._seeds:,} bins of its {clients:,} clients' seeds among them, which is "
                f"estimated to take {hours}; expected at most {self.max_seconds:,g} seconds. Take fewer features, "
                "clients or local_k, or raise max_seconds"
            )

    def expected_messages(self, known: Known) -> Reports:
        """Return 2 k' n rows of limbs of 32 bits of a prime above the points, above the bins and above 2^31."""
        n, largest = known.clients, max(known.points, (round(known.points**0.5) + 1) ** known.features, 2**31)
        return Reports(2 * (self.local_k or self.k) * n * n, -(-largest.bit_length() // 32), exact=True)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Seed, count, and send the masked power sums."""
        once = replace(clients, point_weights=np.ones_like(clients.point_weights))
        limit = 300 if self.local_lloyd else 0
        seeds, counts, _ = once.kmeans(self._seeds, Stream.CLIENT, starts=1, limit=limit, greedy=False)
        grid, length = _lay(clients), self._length(clients)
        values = np.zeros((len(clients), length, limbs.width(grid.p)))
        for i in np.flatnonzero(clients.ids != clients.server):
            sums = power_sums(_histogram(grid, seeds[i], counts[i]), length, grid.p)
            masks = _masks(clients, int(clients.ids[i]), length, grid.p)
            values[i] = limbs.split([(s + z) % grid.p for s, z in zip(sums, masks, strict=True)], values.shape[2])
        return Report(values, np.full(len(clients), length), seeds)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Add the tables, decode the bins, and cluster a point for every one counted; wait until all have reported."""
        length, grid = self._length(hub), _lay(hub)
        if not tables or any(len(table) != length for table in tables):  # the masks of the others would stay
            return model[model[:, 0] < np.inf]
        totals = np.add.reduce(tables)  # limb by limb: exact below 2^53
        found = recover([total % grid.p for total in limbs.join(totals)], grid.p)
        if not found:
            return model[model[:, 0] < np.inf]
        places = np.repeat(grid.places(list(found)), list(found.values()), axis=0)
        offsets = uniforms(hub.shared_key, Stream.BIN, [0], places.size).reshape(places.shape) - 0.5
        points = (places + offsets) / grid.density
        search = Search(self.k, Stream.SERVER, starts=self.server_n_init)
        centroids, _, _ = cluster(hub.kernels, hub.shared_key, points, np.ones(len(points)), search)
        return centroids[centroids[:, 0] < np.inf]

    @property
    def _seeds(self) -> int:
        return self.k if self.local_k is None else self.local_k

    def _length(self, devices: Devices) -> int:
        """Return the number of power sums: twice the number of different bins that there can be."""
        return 2 * self._seeds * devices.clients


class _Grid(NamedTuple):
    """The bins of [0, 1]^d.

    Attributes
    ----------
    density : float
        Bins per unit.
    side : int
        Bins along a coordinate: around 0, 1/density, 2/density, ...
    d : int
    p : int
        The prime of the field.
    """

    density: float
    side: int
    d: int
    p: int

    def number(self, point: Floats) -> int:
        """Return the number of a point's bin, from 1, the first coordinate counting single bins."""
        number = 0
        for place in np.clip(np.rint(point * self.density), 0, self.side - 1)[::-1]:  # half to even
            number = number * self.side + int(place)
        return number + 1

    def places(self, numbers: list[int]) -> Floats:
        """Return the bins along each coordinate, float64[numbers, d]."""
        places = np.empty((len(numbers), self.d))
        for place, number in zip(places, numbers, strict=True):
            number -= 1
            for f in range(self.d):
                number, place[f] = divmod(number, self.side)
        return places


def _lay(devices: Devices) -> _Grid:
    """Lay the grid; what it depends on is known to all."""
    m = max(devices.total_points, 1)
    side = _side(m)
    return _Grid(math.sqrt(m), side, devices.d, next_prime(_least_prime(m, side, devices.d)))


def _side(m: int) -> int:
    """Return the number of bins along a coordinate."""
    return round(math.sqrt(m)) + 1


def _least_prime(m: int, side: int, d: int) -> int:
    """Return the number that the prime is above."""
    return max(m, side**d, _POINTS)


def _histogram(grid: _Grid, seeds: Floats, counts: Floats) -> dict[int, int]:
    """Return how many points of a client belong to seeds in each bin."""
    histogram: dict[int, int] = {}
    for seed, count in zip(seeds, counts, strict=True):
        if count > 0.0:
            number = grid.number(seed)
            histogram[number] = histogram.get(number, 0) + int(count)
    return histogram


def _masks(clients: Devices, client: int, length: int, p: int) -> list[int]:
    """Return the masks of a client: they add up to 0 over the ring of all clients."""
    streams = (_stream(clients.shared_key, place % clients.clients, length, p) for place in (client, client + 1))
    return [(own - following) % p for own, following in zip(*streams, strict=True)]


def _stream(key: int, number: int, length: int, p: int) -> list[int]:
    """Return field elements drawn uniformly, but for less than 2^-64: from 64 bits more than they have."""
    words = p.bit_length() // 64 + 2
    blocks = np.arange((length * words + 3) // 4, dtype=np.uint64)
    drawn = philox(blocks, number, key, Stream.MASK).astype("<u8").tobytes()
    return [int.from_bytes(drawn[i : i + 8 * words], "little") % p for i in range(0, 8 * words * length, 8 * words)]
