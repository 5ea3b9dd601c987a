"""FKmeansCB (Deng, Wang and Alobaedy 2025): k-means of the centroids that clients find in noised points."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import LARGEST, positive, whole
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.small_clusters import publish

_STEP = 2.0**-53  # between two draws


@dataclass(frozen=True)
class FKMeansCB(ServerMethodBase):
    r"""Add Laplace noise to every point, cluster at the clients, cluster their centroids at the server.

    ::

        client i:  C_i <- kmeans(X_i + Z_i, k1),  entries of Z_i independent, density epsilon/2 exp(-epsilon |z|)
        server:    C_g <- kmeans([C_1 | ... | C_n], k2)

    with k1 = `local_k` and k2 = `k`. The server does not weigh. The points that are labeled by C_g have no noise.

    Message: up at most k1 rows (centroid), once; down the k2 centroids.

    Privacy: no guarantee; the noise is drawn from `--seed`, so that runs repeat, and a reader of the seed subtracts
    it. With unpredictable noise the paper's claim would hold on bounded points alone: if no two points that a client
    may have differ by more than D in the sum of the absolute differences of their coordinates, the noised points are
    (epsilon D)-locally differentially private. D is in the units of the data: with epsilon 20 and coordinates in the
    tens this promises nothing. With `epsilon` None there is no noise, and centroids of one point are that point.

    Departures: the printed density lacks the absolute value. A client with fewer than k1 points sends as many rows as
    it has distinct ones.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int or None
        Clusters of a client; None: the larger of k and 7.
    epsilon : float or None
        Of the noise, which has the scale 1 / epsilon in the units of the data; None or inf: no noise.
    client_n_init, server_n_init : int
        The k-means of client and server is the best of so many seedings.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    Z. Deng, Y. Wang, M. M. Alobaedy, "Federated k-means based on clusters backbone", PLoS ONE 20(6), 2025: Algorithm 1.
    Its table 2 is the best of 20 runs with epsilon 20. It gives no number of seedings.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FKMeansCB(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.02, 6)
    """

    k: int
    _: KW_ONLY
    local_k: int | None = None
    epsilon: float | None = 20.0
    client_n_init: int = 1
    server_n_init: int = 1

    name: ClassVar[str] = "fkmeanscb"
    traits: ClassVar[ServerTraits] = ServerTraits(one_shot=True)
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        if self.local_k is not None:
            whole(self.local_k, 1, "local_k")
        if self.epsilon is not None and self.epsilon != math.inf:
            positive(1.0 / positive(self.epsilon, "epsilon"), "1 / epsilon", most=LARGEST)
        whole(self.client_n_init, 1, "client_n_init")
        whole(self.server_n_init, 1, "server_n_init")

    def expected_messages(self, known: Known) -> Reports:
        """Return the centroids of every client."""
        k = self.local_k or max(self.k, 7)
        return Reports(known.clients * k, known.features, known.fills(k))

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the noised points."""
        k = self.local_k or max(self.k, 7)
        scale = 1.0 / (self.epsilon or math.inf)
        noised = replace(clients, stored=_add_noise(clients, scale)) if scale > 0.0 else clients
        local, _, _ = noised.kmeans(k, Stream.CLIENT, starts=self.client_n_init)
        return Report(*pack(publish(noised, local)), local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster the clients' centroids."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        search = Search(self.k, Stream.SERVER, starts=self.server_n_init)
        found, _, _ = cluster(hub.kernels, hub.shared_key, rows, np.ones(len(rows)), search)
        return found[found[:, 0] < np.inf]


def _add_noise(clients: Devices, scale: float) -> Floats:
    """Return the points of every client with Laplace noise, float64[m, d]."""
    points = clients.stored.astype(np.float64)
    for i, key in enumerate(clients.keys):
        own = slice(clients.offsets[i], clients.offsets[i + 1])
        draws = uniforms(key, Stream.NOISE, [0], points[own].size)[0]
        points[own] += scale * laplace_quantiles(draws).reshape(-1, clients.d)
    return points


def laplace_quantiles(draws: Floats) -> Floats:
    """Compute the quantiles of the Laplace distribution of scale 1 at draws from [0, 1), elementwise."""
    below = draws < 0.5
    tail = np.where(below, draws + _STEP, 1.0 - draws)  # in (0, 0.5], the same numbers on both sides
    logs = np.array([math.log(2.0 * part) for part in tail])  # np.log has other bits on other processors
    return np.where(below, logs, -logs)
