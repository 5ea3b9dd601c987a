"""Federated centroid aggregation (Xu et al. 2024): refined local k-means, and balls at the server."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.methods.init.given import cluster_from_random_points


@dataclass(frozen=True)
class FeCA(ServerMethodBase):
    r"""One-shot aggregation of refined local centroids by balls (FeCA).

    Each client runs k-means and removes centroids that cover several true clusters. The server groups the others by
    balls and returns the means of the k fullest.

    Parameters
    ----------
    k : int
        Number of clusters.
    variant : {"empirical", "theoretical"}, default="empirical"
        Radii by Algorithm 4 ("empirical") or by Algorithm 3 ("theoretical"), which assumes well separated balls.
    prune : bool, default=True
        Whether to remove centroids that cover several clusters (Algorithm 2).
    pair : {"merge", "keep"}, default="merge"
        After a removal, whether the closest pair is replaced by its mean or stays.
    local_k : int, optional
        Number of clusters of a client; default: k.
    seeding : {"plusplus", "random"}, default="plusplus"
        Seeding of the clients' k-means: greedy k-means++, or random points of the client.
    n_init : int, default=1
        Initializations of the clients' k-means; the best result counts.
    local_steps : int, default=300
        Largest number of Lloyd steps of a client.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    MAvg
        Averages of matched centroids.

    Notes
    -----
    **Update.** Algorithms 1 to 5 of [1]_. Client i runs k-means to centroids C with clusters D. Cluster w has the
    largest mean squared distance to its centroid; p and q are the two closest centroids. While w is neither p nor q::

        G_w = sum_{x in D_w} |x - c_w|^2,    G_pq = sum_{x in D_p, D_q} |x - mean(D_p, D_q)|^2
        G_w >= G_pq:  remove c_w and its points; replace p and q by their mean.    Otherwise stop.

    Each remaining centroid has a radius, and the server turns all of them into balls::

        empirical:    r_c = min(max_{x in D_c} |x - c|, 1/2 min_{c' != c} |c - c'|)
        theoretical:  in row order, a centroid and the nearest remaining one are removed if max |x - c| of both
                      together exceeds their distance; then r = 1/2 min |c - c'|
        server:       the largest remaining ball takes all centroids inside; the k balls with most members -> their
                      means

    With fewer than k balls the result has fewer centroids.

    **Messages.** Up: one row (centroid, radius) per remaining centroid, once. Down: at most k centroids.

    **Convergence.** One-shot. Under the Stochastic Ball Model, separated as in theorem 4.1 of [1]_, and if every client
    keeps the two closest centroids, the centroids of "theoretical" end near true centers: at a distance of at most
    4 / (5 eta) times the least distance of two true centers.

    **Privacy.** No guarantee. The server receives refined centroids and the extent of their clusters, but no counts. A
    cluster of a single point is that point, with radius 0.

    **Differences from the paper.** Algorithm 2 leaves `pair` open.

    References
    ----------
    .. [1] J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FeCA(3), None, shards)
    >>> result.summary["messages"], result.centroids.shape
    (6, (3, 3, 2))
    """

    k: int
    _: KW_ONLY
    variant: Literal["empirical", "theoretical"] = "empirical"
    prune: bool = True
    pair: Literal["merge", "keep"] = "merge"
    local_k: int | None = None
    seeding: Literal["plusplus", "random"] = "plusplus"
    n_init: int = 1
    local_steps: int = 300

    card = Card(
        "feca",
        family="server",
        sends="centroids",
        points="few",
        line="one-shot merge of refined local centroids",
        paper={"variant": "empirical", "prune": True, "pair": "merge", "seeding": "plusplus", "n_init": 1},
        source="[1], Algorithms 1, 2 and 4",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_integer(self.k if self.local_k is None else self.local_k, 1, "local_k")
        for name in ("n_init", "local_steps"):
            check_integer(getattr(self, name), 1, name)
        check_choice(self.variant, ("empirical", "theoretical"), "variant")
        check_choice(self.pair, ("merge", "keep"), "pair")
        check_choice(self.seeding, ("plusplus", "random"), "seeding")

    @property
    def traits(self) -> ServerTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True)

    def expected_messages(self, known: Known) -> Reports:
        """Count the centroids of all clients, each with a radius."""
        return Reports(known.clients * (self.local_k or self.k), known.features + 1)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Collect the seeding of the clients, for the summary."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Run k-means, refine the centroids and compute their radii."""
        k = self.k if self.local_k is None else self.local_k
        if self.seeding == "random":
            starts = self.n_init
            centroids, counts = cluster_from_random_points(clients, k, starts=starts, limit=self.local_steps)
        else:
            centroids, counts = self._seed(clients, k)
        local = np.where((counts > 0.0)[:, :, None], centroids, np.inf)
        local = pack(local)[0] if clients.min_count > 1 else local
        _, labels = clients.kernels.losses(*clients.kernel_inputs, local)
        # With suppression a row must be the mean of the points that are counted for it.
        local = clients.refine(local, 1)[0] if clients.min_count > 1 else local
        values, rows = np.zeros((len(clients), k, clients.d + 1)), np.zeros(len(clients), np.int64)
        for i in np.flatnonzero(clients.sizes):
            points_of_client = slice(clients.offsets[i], clients.offsets[i + 1])
            table = self._refine(*clients.table(i), local[i], labels[points_of_client], clients.min_count)
            rows[i] = len(table)
            values[i, : len(table)] = table
        return Report(values, rows, local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Group the centroids of the clients by balls, the largest first (Algorithm 5)."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        centroids, radii = rows[:, :-1], rows[:, -1]
        groups = []
        remaining = np.ones(len(rows), np.bool_)
        for largest in np.argsort(-radii, kind="stable"):
            if remaining[largest]:
                members = remaining & (np.sqrt(_squared(centroids, centroids[largest])) <= radii[largest])
                remaining &= ~members
                groups.append(np.flatnonzero(members))
        # A stable sort: of equally full balls the one formed first comes first.
        groups.sort(key=len, reverse=True)
        return np.stack([_mean(centroids[group], np.ones(len(group))) for group in groups[: self.k]])

    def _seed(self, clients: Devices, k: int) -> tuple[Floats, Floats]:
        """Run k-means at each client and return centroids and counts."""
        centroids, counts, _ = clients.kmeans(k, Stream.CLIENT, starts=self.n_init, limit=self.local_steps)
        return centroids, counts

    def _refine(self, points: Floats, weights: Floats, centroids: Floats, labels: Integers, min_count: int) -> Floats:
        """Compute the table of one client, float64[r, d + 1]; no label refers to an absent centroid."""
        centroids, labels = _keep(centroids, labels, centroids[:, 0] < np.inf)
        if self.prune:
            centroids, labels = prune_centroids(points, weights, centroids, labels, merge=self.pair == "merge")
        if min_count > 1:
            # Suppress before radii are computed: half the distance to a suppressed centroid would disclose it.
            counts = np.bincount(labels[labels >= 0], minlength=len(centroids))
            centroids, labels = _keep(centroids, labels, counts >= min_count)
        extents = np.zeros(len(centroids))
        labeled = labels >= 0
        np.maximum.at(extents, labels[labeled], _squared(points[labeled], centroids[labels[labeled]]))
        radii = measure_radii(centroids, np.sqrt(extents), theoretical=self.variant == "theoretical")
        return np.concatenate((centroids, radii[:, None]), axis=1)


def prune_centroids(
    points: Floats, weights: Floats, centroids: Floats, labels: Integers, *, merge: bool
) -> tuple[Floats, Integers]:
    """Remove centroids float64[r, d] that cover several clusters (Algorithm 2), and update the labels.

    A point without a cluster has label -1.
    """
    # The last two centroids are the closest pair, which the widest cluster then always belongs to.
    while len(centroids) > 2:
        labeled = labels >= 0
        r = len(centroids)
        spread = weights[labeled] * _squared(points[labeled], centroids[labels[labeled]])
        costs = np.bincount(labels[labeled], spread, minlength=r)
        widest = int(np.argmax(costs / np.bincount(labels[labeled], weights[labeled], minlength=r)))
        # argmin returns the first of equal distances, so p < q.
        p, q = divmod(int(np.argmin(_pair_distances(centroids))), r)
        if widest in (p, q):
            break
        union = (labels == p) | (labels == q)
        joined = _mean(points[union], weights[union])
        cost = np.cumsum(weights[union] * _squared(points[union], joined))[-1]
        if costs[widest] < cost:
            break
        retained = np.arange(r) != widest
        if merge:
            retained[q] = False
            labels = np.where(labels == q, p, labels)
            centroids = np.where((np.arange(r) == p)[:, None], joined, centroids)
        centroids, labels = _keep(centroids, labels, retained)
    return centroids, labels


def measure_radii(centroids: Floats, extents: Floats, *, theoretical: bool) -> Floats:
    """Compute the radius float64[r] of each centroid by Algorithm 3 or 4.

    Parameters
    ----------
    centroids : float64[r, d]
    extents : float64[r]
        Distance of each centroid to the farthest point of its cluster.
    theoretical : bool
        Algorithm 3 instead of 4.
    """
    if len(centroids) < 2:
        return extents
    distances = _pair_distances(centroids)
    if not theoretical:
        return np.minimum(extents, 0.5 * distances.min(axis=1))
    remaining = np.ones(len(centroids), np.bool_)
    for i in range(len(centroids)):
        to_remaining = np.where(remaining, distances[i], np.inf)
        nearest = int(np.argmin(to_remaining))
        if remaining[i] and extents[i] + extents[nearest] > to_remaining[nearest]:
            remaining[[i, nearest]] = False
    if remaining.sum() >= 2:
        distances = distances[remaining][:, remaining]
    return np.full(len(centroids), 0.5 * distances.min())


def _keep(centroids: Floats, labels: Integers, retained: Mask) -> tuple[Floats, Integers]:
    """Keep the centroids of a mask; points of the other clusters get label -1."""
    # The additional last entry is the new label of points with label -1.
    new_labels = np.append(np.where(retained, np.cumsum(retained) - 1, -1), -1)
    return centroids[retained], new_labels[labels]


def _mean(points: Floats, weights: Floats) -> Floats:
    """Compute the weighted mean, added up in the order of the points."""
    return np.cumsum(weights[:, None] * points, axis=0)[-1] / np.cumsum(weights)[-1]


def _squared(a: Floats, b: Floats) -> Floats:
    """Compute squared distances along the last axes, which broadcast, summed in feature order."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    for f in range(a.shape[-1]):
        difference = a[..., f] - b[..., f]
        total += difference * difference
    return total


def _pair_distances(centroids: Floats) -> Floats:
    """Compute the distances of all pairs, float64[r, r], with infinity on the diagonal."""
    distances = np.sqrt(_squared(centroids[:, None], centroids))
    np.fill_diagonal(distances, np.inf)
    return distances
