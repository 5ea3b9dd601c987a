"""k-FED (Dennis, Li and Smith 2021): clusters of every client, matched at the server in one exchange."""

from dataclasses import KW_ONLY, dataclass
from math import isqrt
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Kernels, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.fixed_order import multiply
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import one_of, whole
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.small_clusters import publish
from topologies.single_thread import single_thread

_CONVERGED = 10_000  # Lloyd steps; unchanged labels come long before


@dataclass(frozen=True)
class KFED(ServerMethodBase):
    r"""Cluster the points of every client into a few; let the server pick k of these centroids and average the rest.

    With the points x_i of a client, the rows of X, and the projection P on the top k' right singular vectors of X (not
    centered; P = 1 if k' >= d), a client sends the rows of W::

        v_1 .. v_k' = k-means++ seeds among the P x_i
        S_r         = {i : 3 |P x_i - v_r| <= |P x_i - v_s| for all s != r}
        w_r         = mean of P x_i over S_r, in the coordinates of X
        W           = Lloyd's algorithm on X from w_1 .. w_k', to the end

    and its points themselves if they are at most k'. No S_r is empty, since v_r is one of the points.

    The server starts from the rows of one client, the first k if it has more, adds the row that is farthest from those
    it has, first on ties, until they are k, and runs Lloyd's algorithm on all rows from there. It does not count
    points. With fewer than k distinct rows it ends with those.

    The paper proves that this finds the true clusters if they are well separated and no client has more than sqrt(k)
    of them; where that does not hold, the figures are far from those of a central server.

    Labels: `nearest` labels a point by the nearest server centroid. `induced` is the clustering that the paper defines
    (definition 3.3): a point takes the server cluster of its client's centroid, here the server centroid nearest to
    that one, which a client knows from the server's message; after the single Lloyd step of the server that may be
    another than the cluster that the server itself counted the row to. Labels enter ARI, NMI and purity only, not the
    centroids, the ratio or the silhouettes.

    Message: up k' rows (centroid), once; down the k centroids.

    Privacy: no guarantee; the server sees centroids of single clients. A cluster of one point is that point, and a
    client with at most k' points sends all of them as they are.

    Departures: the seeds of the paper come from any 10-approximation; these are drawn by k-means++. A cluster that
    loses all rows takes the one farthest from its centroid. Weights of points count at the client.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int or None
        k', clusters of a client; None: the larger of sqrt(k) and k over the number of clients, rounded up.
    seeding : {"plain", "greedy"}
        Whether a k-means++ draw at the client is one point or the best of several.
    device : {"random", "first"}
        The server starts from the rows of a random client, or from the first k' rows.
    finish : {"one", "converge"}
        Lloyd steps of the server: one, as in the paper, or to the end, as in the authors' code.
    labels : {"nearest", "induced"}
        How points are labeled for the scores.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    D. K. Dennis, T. Li, V. Smith, "Heterogeneity for the win: one-shot federated clustering", ICML 2021: Algorithms 1
    and 2. P. Awasthi, O. Sheffet, "Improved spectral-norm bounds for clustering", APPROX 2012: the clients' part.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.KFED(3), None, shards)
    >>> result.summary["messages"], result.summary["bytes"]
    (6, 240)
    """

    k: int
    _: KW_ONLY
    local_k: int | None = None
    seeding: Literal["plain", "greedy"] = "plain"
    device: Literal["random", "first"] = "random"
    finish: Literal["one", "converge"] = "one"
    labels: Literal["nearest", "induced"] = "nearest"

    name: ClassVar[str] = "kfed"
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        if self.local_k is not None:
            whole(self.local_k, 1, "local_k")
        one_of(self.seeding, ("plain", "greedy"), "seeding")
        one_of(self.device, ("random", "first"), "device")
        one_of(self.finish, ("one", "converge"), "finish")
        one_of(self.labels, ("nearest", "induced"), "labels")

    @property
    def traits(self) -> ServerTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return ServerTraits(one_shot=True, induced_labels=self.labels == "induced")

    def expected_messages(self, known: Known) -> Reports:
        """Return the centroids of every client."""
        n = known.clients
        return Reports(n * (self.local_k or max(1 + isqrt(self.k - 1), -(-self.k // n))), known.features)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Return how its clients choose their first centroids."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the own points; send the points themselves where they are few."""
        k = self._width(clients)
        few, start = clients.sizes <= k, np.full((len(clients), k, clients.d), np.inf)
        for i in np.flatnonzero(~few):
            search = Search(k, Stream.CLIENT, limit=0, greedy=self.seeding == "greedy")
            points, weights = clients.table(i)
            means = _start(clients.kernels, int(clients.keys[i]), points, weights / clients.unit, search)
            start[i, : len(means)] = means
        local, _, _ = clients.refine(start, _CONVERGED, fill=True)
        for i in np.flatnonzero(few):
            local[i, : clients.sizes[i]] = clients.table(i)[0]
        return Report(*pack(publish(clients, local)), local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Pick k rows that are far from each other; run Lloyd's algorithm on all rows from there."""
        rows, ends = np.concatenate(tables), np.cumsum([0, *map(len, tables)])
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        seeds = range(min(self._width(hub), len(rows)))
        if self.device == "random":
            filled = np.flatnonzero(np.diff(ends))
            i = filled[int(uniforms(hub.shared_key, Stream.CHOICE, [0], 1)[0, 0] * len(filled))]
            seeds = range(ends[i], ends[i + 1])
        start = rows[_spread(rows, seeds, self.k)]
        table = rows, np.ones(len(rows)), np.array([0, len(rows)]), start[None], np.array([len(start)])
        found, _, _ = hub.kernels.refine(*table, 1 if self.finish == "one" else _CONVERGED, np.zeros(1), True)
        return found[0]

    def _width(self, devices: Devices) -> int:
        """Return k'."""
        return self.local_k or max(1 + isqrt(self.k - 1), -(-self.k // max(devices.clients, 1)))


def _start(kernels: Kernels, key: int, points: Floats, weights: Floats, search: Search) -> Floats:
    """Return w_1 .. w_k' of one client, before its Lloyd steps."""
    if search.k >= points.shape[1]:
        return _core_means(kernels, key, points, weights, search)
    with single_thread():
        _, _, directions = np.linalg.svd(np.sqrt(weights)[:, None] * points, full_matrices=False)
    basis = directions[: search.k]
    return multiply(_core_means(kernels, key, multiply(points, basis.T), weights, search), basis)


def _core_means(kernels: Kernels, key: int, points: Floats, weights: Floats, search: Search) -> Floats:
    """Return the mean of S_r for every seed v_r; S_r are the points that are clearly nearest to it."""
    seeds, _, _ = cluster(kernels, key, points, weights, search)
    seeds = seeds[seeds[:, 0] < np.inf]
    distances = np.stack([_squared(points, seed) for seed in seeds])
    nearest, second = np.partition(np.vstack((distances, np.full(len(points), np.inf))), 1, axis=0)[:2]
    core = 9.0 * nearest <= second
    table = points[core], weights[core], np.array([0, core.sum()]), seeds[None], np.array([len(seeds)])
    means, _, _ = kernels.refine(*table, 1, np.zeros(1), False)
    return means[0]


def _spread(rows: Floats, seeds: range, k: int) -> list[int]:
    """Return the seeds and then the row farthest from those before, until there are k; no row twice."""
    chosen: list[int] = []
    pending, closest = list(seeds), np.full(len(rows), np.inf)
    while len(chosen) < k and closest.max() > 0.0:
        r = pending.pop(0) if pending else int(closest.argmax())
        if closest[r] > 0.0:
            chosen.append(r)
            closest = np.minimum(closest, _squared(rows, rows[r]))
    return chosen


def _squared(rows: Floats, row: Floats) -> Floats:
    """Return the squared distance of every row to one row, summed in feature order."""
    return np.cumsum(np.square(rows - row), axis=1)[:, -1]
