"""MUFC (Pan et al. 2023): seeds of the clients, aggregated as masked power sums over a finite field."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.protocols import PointCount, Report, RunOutline, ServerMethodBase
from p2pkm.core.traits import Condition, MessageContent, ServerTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.kernels.reference import philox, uniforms
from p2pkm.methods.server.finite_field import limbs
from p2pkm.methods.server.finite_field.effort import estimate
from p2pkm.methods.server.finite_field.multisets import power_sums, recover
from p2pkm.methods.server.finite_field.primes import next_prime

# Lower bound of the prime. It exceeds every number of points, so counts are below the prime.
_MIN_PRIME = 2**31
# Largest number of Lloyd steps of a client with `local_lloyd`.
_LLOYD_STEPS = 300


@dataclass(frozen=True)
class MUFC(ServerMethodBase):
    r"""One-shot clustering of quantized seeds, sent as masked power sums over a finite field.

    The server computes how many points of all clients together belong to each bin of a grid, but not of which client
    (secure compressed multiset aggregation), and clusters uniform points of these bins.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int, optional
        Number k' of seeds of a client, fewer if it has fewer distinct points; default: k.
    local_lloyd : bool, default=False
        Whether clients run k-means from their seeds until convergence.
    server_n_init : int, default=10
        Initializations of the server's k-means; the best result counts.
    low, high : float, optional
        Bounds of all points, equal for all coordinates, from public knowledge. A seed outside counts for the bin at the
        edge. Default: clients send their bounds.
    max_seconds : float, default=600.0
        Largest estimated time of the arithmetic modulo the prime, which has about ``d log2(sqrt(m))`` bits.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or the estimated time exceeds `max_seconds`.

    See Also
    --------
    Private
        Differential privacy, without a server.

    Notes
    -----
    **Update.** After [1]_. Each coordinate is scaled to [0, 1] by the smallest and largest value of all clients, or by
    `low` and `high`. Client l draws k' k-means++ seeds c of its points, with q_c points nearest to each. The bins of
    the seeds in a grid of width 1/sqrt(m), with m points in total, have numbers b = 1, 2, ... Then, with n clients, for
    i = 1, ..., 2 k' n and a prime p above m, the number of bins and 2^31::

        client l:  S_i^(l) <- sum_c q_c b_c^(i-1) + z_i^(l)  mod p,    sum_l z_i^(l) = 0
        server:    S_i <- sum_l S_i^(l)  mod p;  compute the bins and counts that have these power sums, exactly;
                   draw a uniform point of its bin for every point counted;  kmeans(these, k)

    At most k' n bins are different, so 2 k' n power sums determine them; see
    `p2pkm.methods.server.finite_field.multisets`. Every point counts 1, whatever its weight.

    **Messages.** Up: 2 k' n rows, one field element each, as limbs of 32 bits (exact), also from clients without
    points. Down: k centroids. Without `low` and `high`, each client first sends its bounds.

    **Convergence.** One-shot. Bins and counts are recovered exactly. No guarantee for the cost.

    **Privacy.** No guarantee. **Without `low` and `high` the server receives the bounds of every client unmasked**,
    which are values of its points; for a client with a single point the bounds are that point. All other messages are
    masked: ``z^(l) = r_l - r_(l+1)`` around a ring of the clients, where only l - 1 and l know the uniform random
    stream r_l, here from the seed. The server learns a histogram of all seeds, which are points up to the width of a
    bin; if both neighbors of a client disclose their streams, it learns that of the client.

    **Differences from the paper.** Unlearning is not implemented.

    References
    ----------
    .. [1] C. Pan, J. Sima, S. Prakash, V. Rana, O. Milenkovic, "Machine unlearning of federated clusters", ICLR 2023.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.MUFC(3), None, shards)
    >>> result.summary["messages"], result.summary["bytes"]
    (12, 768)
    """

    k: int
    _: KW_ONLY
    local_k: int | None = None
    local_lloyd: bool = False
    server_n_init: int = 10
    low: float | None = None
    high: float | None = None
    max_seconds: float = 600.0

    card = Card(
        "mufc",
        family="server",
        sends="masked counts",
        points="few",
        line="one-shot k-means of quantized centroids, masked counts",
        paper={"local_lloyd": False, "server_n_init": 10},
        source="[1]",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_integer(self._seeds, 1, "local_k")
        check_integer(self.server_n_init, 1, "server_n_init")
        ends = self.low, self.high
        if ends != (None, None) and not (None not in ends and -math.inf < ends[0] < ends[1] < math.inf):  # type: ignore[operator]
            raise ExperimentError(
                f"low is {self.low} and high is {self.high}; expected two finite numbers with low < high, or neither. "
                "Set both, for example low=0,high=1, or remove both."
            )
        if self.max_seconds != math.inf:
            check_positive(self.max_seconds, "max_seconds")

    @property
    def traits(self) -> ServerTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return ServerTraits(
            message_content=MessageContent.OTHER,
            one_shot=True,
            normalization="coordinate" if self.low is None or self.high is None else (self.low, self.high),
            incompatible_with={
                "suppression": "sends sums that are masked as a whole",
                Condition.LOSSY_LINKS: "adds up masked tables, whose masks cancel only if the messages of all "
                "clients arrive",
            },
            ignores_weights=True,
        )

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a run whose arithmetic would take too long.

        Raises
        ------
        ExperimentError
            If the estimated seconds exceed `max_seconds`.
        """
        clients = run.topology.clients
        bits = int(_least_prime(points.m, _side(points.m), points.d)).bit_length()
        seconds = estimate(bits, points.m, clients, self._seeds)
        if seconds > self.max_seconds:
            hours = f"{seconds / 3600:,.1f} hours" if seconds > 5400 else f"{seconds:,.0f} seconds"
            raise ExperimentError(
                f"estimated time of mufc is {hours}; expected at most {self.max_seconds:,g} seconds: it computes with "
                f"numbers of {bits:,} bits ({points.d} features, {points.m:,} points) and up to "
                f"{clients * self._seeds:,} bins ({clients:,} clients). Use fewer features or clients, "
                f"{'a smaller local_k, ' if self._seeds > 1 else ''}or a larger max_seconds."
            )

    def expected_messages(self, known: Known) -> Reports:
        """Count 2 k' n rows of 32-bit limbs per client, of a prime above the points, the bins and 2^31."""
        n = known.clients
        largest = max(known.points, (round(known.points**0.5) + 1) ** known.features, 2**31)
        return Reports(2 * (self.local_k or self.k) * n * n, -(-largest.bit_length() // 32), exact=True)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Draw seeds, count their points, and send the masked power sums."""
        # Counts must be integers, so weights are ignored.
        unweighted = replace(clients, point_weights=np.ones_like(clients.point_weights))
        limit = _LLOYD_STEPS if self.local_lloyd else 0
        seeds, counts, _ = unweighted.kmeans(self._seeds, Stream.CLIENT, starts=1, limit=limit, greedy=False)
        grid = _make_grid(clients)
        length = self._length(clients)
        values = np.zeros((len(clients), length, limbs.width(grid.p)))
        for i in np.flatnonzero(clients.ids != clients.server):
            sums = power_sums(_histogram(grid, seeds[i], counts[i]), length, grid.p)
            masks = _masks(clients, int(clients.ids[i]), length, grid.p)
            values[i] = limbs.split([(s + z) % grid.p for s, z in zip(sums, masks, strict=True)], values.shape[2])
        return Report(values, np.full(len(clients), length), seeds)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Add the tables, decode the bins, and cluster one point per counted point, once all clients have reported."""
        length = self._length(server)
        grid = _make_grid(server)
        if not tables or any(len(table) != length for table in tables):
            # Without the table of one client the masks of its neighbors in the ring do not cancel.
            return model[model[:, 0] < np.inf]
        # Sums of limbs are below 2^53 and therefore exact.
        totals = np.add.reduce(tables)
        counts = recover([total % grid.p for total in limbs.join(totals)], grid.p)
        if not counts:
            return model[model[:, 0] < np.inf]
        bins = np.repeat(grid.places(list(counts)), list(counts.values()), axis=0)
        offsets = uniforms(server.shared_key, Stream.BIN, [0], bins.size).reshape(bins.shape) - 0.5
        points = (bins + offsets) / grid.density
        search = Search(self.k, Stream.SERVER, starts=self.server_n_init)
        centroids, _, _ = cluster(server.kernels, server.shared_key, points, np.ones(len(points)), search)
        return centroids[centroids[:, 0] < np.inf]

    @property
    def _seeds(self) -> int:
        """Number k' of seeds of a client."""
        return self.k if self.local_k is None else self.local_k

    def _length(self, devices: Devices) -> int:
        """Compute the number of power sums: twice the largest number of different bins."""
        return 2 * self._seeds * devices.clients


class _Grid(NamedTuple):
    """Grid of bins of [0, 1]^d.

    Attributes
    ----------
    density : float
        Bins per unit length.
    side : int
        Number of bins along a coordinate, with centers 0, 1/density, 2/density, ...
    d : int
    p : int
        Prime of the field.
    """

    density: float
    side: int
    d: int
    p: int

    def number(self, point: Floats) -> int:
        """Compute the number of the bin of a point, from 1; the first coordinate varies fastest."""
        number = 0
        # rint rounds halves to even.
        for place in np.clip(np.rint(point * self.density), 0, self.side - 1)[::-1]:
            number = number * self.side + int(place)
        return number + 1

    def places(self, numbers: list[int]) -> Floats:
        """Compute the bin along each coordinate from bin numbers, float64[numbers, d]."""
        places = np.empty((len(numbers), self.d))
        for place, number in zip(places, numbers, strict=True):
            number -= 1
            for f in range(self.d):
                number, place[f] = divmod(number, self.side)
        return places


def _make_grid(devices: Devices) -> _Grid:
    """Create the grid from the total number of points, which all devices know."""
    m = max(devices.total_points, 1)
    side = _side(m)
    return _Grid(math.sqrt(m), side, devices.d, next_prime(_least_prime(m, side, devices.d)))


def _side(m: int) -> int:
    """Compute the number of bins along a coordinate."""
    return round(math.sqrt(m)) + 1


def _least_prime(m: int, side: int, d: int) -> int:
    """Compute the number that the prime must exceed."""
    return max(m, side**d, _MIN_PRIME)


def _histogram(grid: _Grid, seeds: Floats, counts: Floats) -> dict[int, int]:
    """Count the points of a client by the bin of their seed."""
    histogram: dict[int, int] = {}
    for seed, count in zip(seeds, counts, strict=True):
        if count > 0.0:
            number = grid.number(seed)
            histogram[number] = histogram.get(number, 0) + int(count)
    return histogram


def _masks(clients: Devices, client: int, length: int, p: int) -> list[int]:
    """Compute the masks of a client; those of all clients add up to 0 modulo p."""
    streams = (_stream(clients.shared_key, place % clients.clients, length, p) for place in (client, client + 1))
    return [(current - following) % p for current, following in zip(*streams, strict=True)]


def _stream(key: int, number: int, length: int, p: int) -> list[int]:
    """Draw field elements that are uniform up to a deviation of 2^-64."""
    # At least 64 bits more than p has, so that the remainder modulo p is nearly uniform.
    words = p.bit_length() // 64 + 2
    blocks = np.arange((length * words + 3) // 4, dtype=np.uint64)
    drawn = philox(blocks, number, key, Stream.MASK).astype("<u8").tobytes()
    return [int.from_bytes(drawn[i : i + 8 * words], "little") % p for i in range(0, 8 * words * length, 8 * words)]
