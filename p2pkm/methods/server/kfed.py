"""k-FED (Dennis, Li and Smith 2021): one-shot clustering of the local centroids of all clients."""

from dataclasses import KW_ONLY, dataclass
from math import isqrt
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Kernels, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.fixed_order import multiply
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.small_clusters import suppressed_means
from topologies.single_thread import single_thread

# Limit of Lloyd steps that is not reached in practice: labels stop changing long before.
_CONVERGED = 10_000


@dataclass(frozen=True)
class KFED(ServerMethodBase):
    r"""One-shot clustering by spectral seeds at clients, farthest rows at a server (k-FED).

    Each client clusters its points into k' clusters. The server clusters all these centroids, from k of them that are
    far from each other.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int or "sqrt", optional
        Number k' of clusters of a client; default: k. "sqrt": the larger of sqrt(k) and k / number of clients, rounded
        up, the largest number for which [1]_ proves recovery.
    seeding : {"greedy", "plain"}, default="greedy"
        k-means++ at the clients: the best of several candidates per draw, or one candidate.
    device : {"random", "first"}, default="random"
        Initial centroids of the server: the rows of a random client, or the first k' rows.
    finish : {"converge", "one"}, default="converge"
        Lloyd steps of the server: until convergence as in the authors' code, or one as in [1]_.
    labels : {"nearest", "induced"}, default="nearest"
        Labels of points in ARI, NMI and purity. "nearest": the nearest server centroid. "induced" (definition 3.3 of
        [1]_): the server centroid nearest to the local centroid of the point's cluster.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    FKM
        Rounds of Lloyd steps instead of one exchange.

    Notes
    -----
    **Update.** Algorithms 1 and 2 of [1]_, with the client part of [2]_. X has the points x_i of a client as rows, and
    P is the projection on the top k' right singular vectors of X (not centered; P = 1 if k' >= d). A client sends the
    rows of W::

        v_1 .. v_k' = k-means++ seeds among the P x_i
        S_r         = {i : 3 |P x_i - v_r| <= |P x_i - v_s| for all s != r}
        w_r         = mean of P x_i over S_r, in the coordinates of X
        W           = Lloyd's algorithm on X from w_1 .. w_k', until convergence

    The server starts from the rows of one client, at most k of them. It adds the row farthest from those chosen, the
    first on ties, until there are k, and runs Lloyd's algorithm on all rows, unweighted. With fewer than k distinct
    rows the result has as many centroids.

    **Messages.** Up: k' centroids, once. Down: k centroids.

    **Convergence.** One-shot. Well separated clusters are found if no client has more than sqrt(k) of them [1]_;
    otherwise the cost is far above that of central k-means.

    **Privacy.** No guarantee. The server receives centroids of single clients. A client with at most k' points sends
    all of them unchanged.

    **Differences from the paper.** The seeds of [1]_ are any 10-approximation; here they are drawn by k-means++.

    References
    ----------
    .. [1] D. K. Dennis, T. Li, V. Smith, "Heterogeneity for the win: one-shot federated clustering", ICML 2021.
    .. [2] P. Awasthi, O. Sheffet, "Improved spectral-norm bounds for clustering", APPROX 2012.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.KFED(3), None, shards)
    >>> result.summary["messages"], result.summary["bytes"]
    (6, 288)
    """

    k: int
    _: KW_ONLY
    local_k: int | Literal["sqrt"] | None = None
    seeding: Literal["greedy", "plain"] = "greedy"
    device: Literal["random", "first"] = "random"
    finish: Literal["converge", "one"] = "converge"
    labels: Literal["nearest", "induced"] = "nearest"

    card = Card(
        "kfed",
        family="server",
        sends="centroids",
        points="few",
        line="one-shot k-FED: averages around k local centroids",
        paper={"local_k": "sqrt", "seeding": "plain", "device": "random", "finish": "one", "labels": "nearest"},
        source="[1], Algorithms 1 and 2",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        if isinstance(self.local_k, str):
            check_choice(self.local_k, ("sqrt",), "local_k")
        elif self.local_k is not None:
            check_integer(self.local_k, 1, "local_k")
        check_choice(self.seeding, ("plain", "greedy"), "seeding")
        check_choice(self.device, ("random", "first"), "device")
        check_choice(self.finish, ("one", "converge"), "finish")
        check_choice(self.labels, ("nearest", "induced"), "labels")

    @property
    def traits(self) -> ServerTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True)

    @property
    def labels_by_local_rows(self) -> bool:
        """Whether labels are those of definition 3.3 of [1]."""
        return self.labels == "induced"

    def expected_messages(self, known: Known) -> Reports:
        """Count the centroids of all clients."""
        return Reports(known.clients * self._width(known.clients), known.features)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Collect the seeding of the clients, for the summary."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the local points; clients with at most k' points send these."""
        k = self._width(clients.clients)
        few = clients.sizes <= k
        start = np.full((len(clients), k, clients.d), np.inf)
        for i in np.flatnonzero(~few):
            search = Search(k, Stream.CLIENT, limit=0, greedy=self.seeding == "greedy")
            points, weights = clients.table(i)
            means = _start(clients.kernels, int(clients.keys[i]), points, weights / clients.unit, search)
            start[i, : len(means)] = means
        local, _, _ = clients.refine(start, _CONVERGED, fill=True)
        for i in np.flatnonzero(few):
            local[i, : clients.sizes[i]] = clients.table(i)[0]
        return Report(*pack(suppressed_means(clients, local)), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Choose k rows far from each other, then run Lloyd's algorithm on all rows."""
        rows = np.concatenate(tables)
        ends = np.cumsum([0, *map(len, tables)])
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        seeds = range(min(self._width(server.clients), len(rows)))
        if self.device == "random":
            filled = np.flatnonzero(np.diff(ends))
            i = filled[int(uniforms(server.shared_key, Stream.CHOICE, [0], 1)[0, 0] * len(filled))]
            seeds = range(ends[i], ends[i + 1])
        start = rows[_spread(rows, seeds, self.k)]
        table = rows, np.ones(len(rows)), np.array([0, len(rows)]), start[None], np.array([len(start)])
        centroids, _, _ = server.kernels.refine(*table, 1 if self.finish == "one" else _CONVERGED, np.zeros(1), True)
        return centroids[0]

    def _width(self, clients: int) -> int:
        """Compute k', the number of clusters of a client."""
        if self.local_k == "sqrt":
            return max(1 + isqrt(self.k - 1), -(-self.k // max(clients, 1)))
        return self.k if self.local_k is None else self.local_k


def _start(kernels: Kernels, key: int, points: Floats, weights: Floats, search: Search) -> Floats:
    """Compute w_1 .. w_k' of one client, before its Lloyd steps."""
    if search.k >= points.shape[1]:
        return _core_means(kernels, key, points, weights, search)
    with single_thread():
        _, _, directions = np.linalg.svd(np.sqrt(weights)[:, None] * points, full_matrices=False)
    basis = directions[: search.k]
    return multiply(_core_means(kernels, key, multiply(points, basis.T), weights, search), basis)


def _core_means(kernels: Kernels, key: int, points: Floats, weights: Floats, search: Search) -> Floats:
    """Compute the mean of S_r for each seed v_r: of the points that are clearly nearest to it."""
    seeds, _, _ = cluster(kernels, key, points, weights, search)
    seeds = seeds[seeds[:, 0] < np.inf]
    distances = np.stack([_squared(points, seed) for seed in seeds])
    nearest, second = np.partition(np.vstack((distances, np.full(len(points), np.inf))), 1, axis=0)[:2]
    # Squared distances: 3 |x - v_r| <= |x - v_s|.
    core = 9.0 * nearest <= second
    table = points[core], weights[core], np.array([0, core.sum()]), seeds[None], np.array([len(seeds)])
    means, _, _ = kernels.refine(*table, 1, np.zeros(1), False)
    return means[0]


def _spread(rows: Floats, seeds: range, k: int) -> list[int]:
    """Choose the seeds, then repeatedly the row farthest from those chosen, until there are k; no row twice."""
    chosen: list[int] = []
    pending = list(seeds)
    closest = np.full(len(rows), np.inf)
    while len(chosen) < k and closest.max() > 0.0:
        r = pending.pop(0) if pending else int(closest.argmax())
        if closest[r] > 0.0:
            chosen.append(r)
            closest = np.minimum(closest, _squared(rows, rows[r]))
    return chosen


def _squared(rows: Floats, row: Floats) -> Floats:
    """Compute the squared distance of each row to one row, summed in feature order."""
    return np.cumsum(np.square(rows - row), axis=1)[:, -1]
