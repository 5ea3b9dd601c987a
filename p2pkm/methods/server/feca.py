"""Federated centroid aggregation (Xu et al. 2024): refined local k-means, greedy balls at the server."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask, Stream
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import one_of, whole
from p2pkm.methods.init.given import cluster_from_random_points


@dataclass(frozen=True)
class FeCA(ServerMethodBase):
    r"""Piece the clustering together from the parts that each client has right.

    Client i runs k-means to centroids C with clusters D and refines them. As long as the cluster w of largest mean
    squared distance to its centroid (it covers many true clusters) is not one of the two closest centroids p, q (they
    share one true cluster)::

        G_w = sum_{x in D_w} |x - c_w|^2,    G_pq = sum_{x in D_p, D_q} |x - mean(D_p, D_q)|^2
        G_w >= G_pq:  c_w and its points go; p and q become their mean;    else stop

    Each centroid left gets a radius, and the server turns all of them into balls::

        empirical:    r_c = min(max_{x in D_c} |x - c|, 1/2 min_{c' != c} |c - c'|)
        theoretical:  r = 1/2 min |c - c'| over those left when, in row order, a centroid and the nearest that is left
                      go together if their reaches max |x - c| overlap
        server:       the largest ball left takes all centroids within; k balls with most members -> their means

    Equal radii: the lowest client, then row; equally full balls: the one formed first. A single centroid has its reach
    as radius; if fewer than two are left by the theoretical rule, it takes half the least distance of all. With fewer
    than k balls the server has fewer centroids. Under the Stochastic Ball Model, separated as in theorem 4.1, the
    theoretical variant ends within 4 / (5 eta) of the least distance of two true centers; the proof (41) presumes that
    every client keeps the two closest ones: one that lost either may have too large a radius and join two clusters.

    Message: up one row (centroid, radius) per centroid left, once; down the at most k centroids.

    Privacy: no guarantee; the server sees refined centroids and the size of their clusters in space, not their numbers
    of points; a cluster of a single point is that point, with radius 0.

    Parameters
    ----------
    k : int
        Number of clusters.
    variant : {"empirical", "theoretical"}
        Radii by algorithm 4 or by algorithm 3, which is meant for well separated balls.
    prune : bool
        Whether centroids that cover many clusters are removed (algorithm 2).
    pair : {"merge", "keep"}
        After a removal, whether the closest pair becomes its mean or stays.
    local_k : int, optional
        Clusters of a client's k-means; default: k.
    seeding : {"plusplus", "random"}
        How it starts: greedy k-means++, or random points of the client.
    n_init : int
        It is the best of so many starts.
    local_steps : int
        At most so many Lloyd steps.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", TMLR 2024: algorithms 1 to 5; its
    table 5 varies `prune`, table 6 `variant`. Algorithm 2 as printed leaves open whether the pair stays.

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

    name: ClassVar[str] = "feca"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self.k if self.local_k is None else self.local_k, 1, "local_k")
        for name in ("n_init", "local_steps"):
            whole(getattr(self, name), 1, name)
        one_of(self.variant, ("empirical", "theoretical"), "variant")
        one_of(self.pair, ("merge", "keep"), "pair")
        one_of(self.seeding, ("plusplus", "random"), "seeding")

    @property
    def traits(self) -> ServerTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return ServerTraits(one_shot=True)

    def expected_messages(self, known: Known) -> Reports:
        """Return the centroids of every client, each with a radius."""
        return Reports(known.clients * (self.local_k or self.k), known.features + 1)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Return how its clients choose their first centroids."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Run k-means, refine its centroids and give each its radius."""
        k = self.k if self.local_k is None else self.local_k
        if self.seeding == "random":
            starts = self.n_init
            centroids, counts = cluster_from_random_points(clients, k, starts=starts, limit=self.local_steps)
        else:
            centroids, counts = self._seed(clients, k)
        local = np.where((counts > 0.0)[:, :, None], centroids, np.inf)
        local = pack(local)[0] if clients.min_count > 1 else local
        _, labels = clients.kernels.losses(*clients.kernel_inputs, local)
        local = clients.refine(local, 1)[0] if clients.min_count > 1 else local  # the means of what is counted
        values, rows = np.zeros((len(clients), k, clients.d + 1)), np.zeros(len(clients), np.int64)
        for i in np.flatnonzero(clients.sizes):
            own = slice(clients.offsets[i], clients.offsets[i + 1])
            table = self._refine(*clients.table(i), local[i], labels[own], clients.min_count)
            rows[i] = len(table)
            values[i, : len(table)] = table
        return Report(values, rows, local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Group the clients' centroids by greedy balls (algorithm 5)."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        centroids, radii = rows[:, :-1], rows[:, -1]
        groups, left = [], np.ones(len(rows), np.bool_)
        for largest in np.argsort(-radii, kind="stable"):
            if left[largest]:
                members = left & (np.sqrt(_squared(centroids, centroids[largest])) <= radii[largest])
                left &= ~members
                groups.append(np.flatnonzero(members))
        groups.sort(key=len, reverse=True)  # keeps the order of equals
        return np.stack([_mean(centroids[group], np.ones(len(group))) for group in groups[: self.k]])

    def _seed(self, clients: Devices, k: int) -> tuple[Floats, Floats]:
        """Return centroids and counts of every client's k-means."""
        centroids, counts, _ = clients.kmeans(k, Stream.CLIENT, starts=self.n_init, limit=self.local_steps)
        return centroids, counts

    def _refine(self, points: Floats, weights: Floats, centroids: Floats, labels: Integers, least: int) -> Floats:
        """Return what one client sends, float64[r, d + 1]; absent centroids own no label."""
        centroids, labels = _keep(centroids, labels, centroids[:, 0] < np.inf)
        if self.prune:
            centroids, labels = prune_centroids(points, weights, centroids, labels, merge=self.pair == "merge")
        if least > 1:  # a radius may reach half-way to the next centroid, so it must be one that is sent, too
            centroids, labels = _keep(
                centroids, labels, np.bincount(labels[labels >= 0], minlength=len(centroids)) >= least
            )
        reaches = np.zeros(len(centroids))
        real = labels >= 0
        np.maximum.at(reaches, labels[real], _squared(points[real], centroids[labels[real]]))
        radii = measure_radii(centroids, np.sqrt(reaches), theoretical=self.variant == "theoretical")
        return np.concatenate((centroids, radii[:, None]), axis=1)


def prune_centroids(
    points: Floats, weights: Floats, centroids: Floats, labels: Integers, *, merge: bool
) -> tuple[Floats, Integers]:
    """Remove centroids float64[r, d] that cover many clusters (algorithm 2); also returns the labels.

    A point without a cluster has label -1.
    """
    while len(centroids) > 2:  # two are the closest pair themselves
        real, r = labels >= 0, len(centroids)
        spread = weights[real] * _squared(points[real], centroids[labels[real]])
        costs = np.bincount(labels[real], spread, minlength=r)
        widest = int(np.argmax(costs / np.bincount(labels[real], weights[real], minlength=r)))
        p, q = divmod(int(np.argmin(_apart(centroids))), r)  # the first of equals: p < q
        if widest in (p, q):
            break
        union = (labels == p) | (labels == q)
        joined = _mean(points[union], weights[union])
        cost = np.cumsum(weights[union] * _squared(points[union], joined))[-1]
        if costs[widest] < cost:
            break
        kept = np.arange(r) != widest
        if merge:
            kept[q] = False
            labels = np.where(labels == q, p, labels)
            centroids = np.where((np.arange(r) == p)[:, None], joined, centroids)
        centroids, labels = _keep(centroids, labels, kept)
    return centroids, labels


def measure_radii(centroids: Floats, reaches: Floats, *, theoretical: bool) -> Floats:
    """Compute the radius float64[r] of each centroid by algorithm 3 or 4.

    reaches: float64[r], the distance of each centroid to its farthest point.
    """
    if len(centroids) < 2:
        return reaches
    apart = _apart(centroids)
    if not theoretical:
        return np.minimum(reaches, 0.5 * apart.min(axis=1))
    left = np.ones(len(centroids), np.bool_)
    for i in range(len(centroids)):
        others = np.where(left, apart[i], np.inf)
        nearest = int(np.argmin(others))
        if left[i] and reaches[i] + reaches[nearest] > others[nearest]:
            left[[i, nearest]] = False
    if left.sum() >= 2:
        apart = apart[left][:, left]
    return np.full(len(centroids), 0.5 * apart.min())


def _keep(centroids: Floats, labels: Integers, kept: Mask) -> tuple[Floats, Integers]:
    """Drop centroids; their points keep no label."""
    places = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last one for label -1
    return centroids[kept], places[labels]


def _mean(points: Floats, weights: Floats) -> Floats:
    """Return the weighted mean, added up in the order of the points."""
    return np.cumsum(weights[:, None] * points, axis=0)[-1] / np.cumsum(weights)[-1]


def _squared(a: Floats, b: Floats) -> Floats:
    """Return the squared distances of points along the last axes, which broadcast, summed in feature order."""
    total = np.zeros(np.broadcast_shapes(a.shape, b.shape)[:-1])
    for f in range(a.shape[-1]):
        difference = a[..., f] - b[..., f]
        total += difference * difference
    return total


def _apart(centroids: Floats) -> Floats:
    """Return the distances of all pairs, float64[r, r]; a centroid is infinitely far from itself."""
    distances = np.sqrt(_squared(centroids[:, None], centroids))
    np.fill_diagonal(distances, np.inf)
    return distances
