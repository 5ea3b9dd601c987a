"""Central clustering: a server receives all points. The reference of methods without raw points."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_choice, check_integer

# Largest number of passes over all points in coordinate descent.
_PASSES = 300


@dataclass(frozen=True)
class Central(ServerMethodBase):
    r"""Clustering of all points at a server: k-means ("central") or coordinate descent ("cdkm").

    Clients send their points; the server clusters them `n_init` times and returns the best result. "central" is the
    reference of all cost ratios.

    Parameters
    ----------
    k : int
        Number of clusters. With fewer distinct points the result has as many rows as points.
    method : {"lloyd", "cdkm"}, default="lloyd"
        Clustering at the server. "lloyd": k-means (name central). "cdkm": coordinate descent (name cdkm).
    n_init : int, default=20
        Initializations by greedy k-means++; the result of least cost is taken.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    LocalOnly
        k-means on each device, without messages.

    Notes
    -----
    **Objective.** The k-means cost of the pooled points, for both methods.

    **Update.** "cdkm" [1]_ moves single points. With the weights n and the means w of the clusters, a point x of weight
    u in cluster p, not alone there, moves to the cluster q with the smallest left side if::

        n_q / (n_q + u) |x - w_q|^2 < n_p / (n_p - u) |x - w_p|^2

    **Messages.** Up: every point, once, with its weight if any point of the system has a weight other than 1. Down: k
    centroids.

    **Convergence.** Neither method ever increases the cost. Where "cdkm" finds no move, Lloyd's algorithm is at a fixed
    point, too.

    **Privacy.** No guarantee. The server receives all raw points.

    References
    ----------
    .. [1] F. Nie, J. Xue, D. Wu, R. Wang, H. Li, X. Li, "Coordinate descent method for k-means", IEEE TPAMI 44(5),
       2022.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Central(3), None, shards)
    >>> result.summary["ratio_mean"], result.summary["raw_points_disclosed"]
    (1.0, 24)
    """

    k: int
    _: KW_ONLY
    method: Literal["lloyd", "cdkm"] = "lloyd"
    n_init: int = 20

    card = (
        Card(
            "central",
            family="baseline",
            sends="points",
            points="all",
            line="k-means on the pooled points at a server",
            fixed={"method": "lloyd"},
        ),
        Card(
            "cdkm",
            family="baseline",
            sends="points",
            points="all",
            line="coordinate descent on the pooled points at a server",
            fixed={"method": "cdkm"},
        ),
    )
    default_rounds: ClassVar[int] = 1
    traits: ClassVar[ServerTraits] = ServerTraits(
        message_content=MessageContent.CENTROIDS, one_shot=True, incompatible_with={"suppression": "sends raw points"}
    )

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_choice(self.method, ("lloyd", "cdkm"), "method")
        check_integer(self.n_init, 1, "n_init")

    @property
    def name(self) -> str:
        """Name on the command line."""
        return "central" if self.method == "lloyd" else "cdkm"

    def expected_messages(self, known: Known) -> Reports:
        """Count all points, with their weights if there are any."""
        enough = known.distinct >= self.k
        return Reports(known.points, known.features + known.weighted, True, answered=enough, by_points=True)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Send all points, with their weights if there are any."""
        n, d = len(clients), clients.d
        sizes = clients.sizes
        values = np.zeros((n, max(1, sizes.max(initial=0)), d + clients.weighted))
        owner = np.repeat(np.arange(n), sizes)
        place = np.arange(len(owner)) - clients.offsets[owner]
        values[owner, place, :d] = clients.stored
        if clients.weighted:
            values[owner, place, d] = clients.point_weights
        return Report(values, sizes, np.full((n, 1, clients.d), np.inf))

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster all points."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        points = np.ascontiguousarray(rows[:, : server.d])
        weights = np.ascontiguousarray(rows[:, server.d]) if server.weighted else np.ones(len(rows))
        if self.method == "cdkm":
            return self._descend(server, points, weights)
        # The same draws as those of central k-means, the reference of cost ratios.
        search = Search(self.k, Stream.CENTRAL, starts=self.n_init)
        centroids, _, _ = cluster(server.kernels, server.shared_key, points, weights, search)
        return centroids[centroids[:, 0] < np.inf]

    def _descend(self, server: Devices, points: Floats, weights: Floats) -> Floats:
        """Run coordinate descent from `n_init` seedings and return the result of least cost, the first on ties."""
        best = points[:0]
        lowest = np.inf
        for start in range(self.n_init):
            search = Search(self.k, Stream.CENTRAL, limit=0, first=start)
            seeds, _, _ = cluster(server.kernels, server.shared_key, points, weights, search)
            centroids, cost = server.kernels.cdkm(points, weights, seeds[seeds[:, 0] < np.inf], _PASSES)
            if cost < lowest:
                best, lowest = centroids, cost
        return best
