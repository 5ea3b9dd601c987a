"""FKmeansCB (Deng, Wang and Alobaedy 2025): k-means of local centroids of points with noise."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import LARGEST, check_integer, check_positive
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.small_clusters import suppressed_means

# Distance between two neighboring draws of `uniforms`.
_STEP = 2.0**-53


@dataclass(frozen=True)
class FKMeansCB(ServerMethodBase):
    r"""One-shot k-means of local centroids computed from points with Laplace noise (FKmeansCB).

    Labels are those of the points without noise.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_k : int, optional
        Number of clusters of a client; default: the larger of k and 7.
    epsilon : float or None, default=20.0
        Inverse scale of the noise, in 1 / units of the data. None or inf: no noise.
    client_n_init, server_n_init : int, default=10
        Initializations of the k-means of clients and server; the best result counts.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    Private
        Differential privacy with a guarantee.

    Notes
    -----
    **Update.** With k1 = `local_k` and k2 = `k` [1]_::

        client i:  C_i <- kmeans(X_i + Z_i, k1),  entries of Z_i independent, density epsilon/2 exp(-epsilon |z|)
        server:    C_g <- kmeans([C_1 | ... | C_n], k2)         (unweighted)

    **Messages.** Up: at most k1 centroids, once. Down: k2 centroids.

    **Convergence.** One-shot. No guarantee for the cost.

    **Privacy.** No guarantee: anyone with the seed of the run can subtract the noise, and epsilon 20 with unbounded
    coordinates would be a useless bound. Without noise a centroid of one point is that point.

    **Differences from the paper.** The printed density lacks the absolute value (docs/explain/errata.md). [1]_ states
    no number of initializations.

    References
    ----------
    .. [1] Z. Deng, Y. Wang, M. M. Alobaedy, "Federated k-means based on clusters backbone", PLoS ONE 20(6), 2025:
       Algorithm 1.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FKMeansCB(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.016, 6)
    """

    k: int
    _: KW_ONLY
    local_k: int | None = None
    epsilon: float | None = 20.0
    client_n_init: int = 10
    server_n_init: int = 10

    card = Card(
        "fkmeanscb",
        family="server",
        sends="centroids",
        points="none",
        line="one-shot k-means of points with Laplace noise",
        paper={"epsilon": 20.0, "client_n_init": 1, "server_n_init": 1},
        source="[1], Algorithm 1, and table 2 for epsilon",
    )
    name: ClassVar[str] = card.name
    traits: ClassVar[ServerTraits] = ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True)
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        if self.local_k is not None:
            check_integer(self.local_k, 1, "local_k")
        if self.epsilon is not None and self.epsilon != math.inf:
            check_positive(1.0 / check_positive(self.epsilon, "epsilon"), "1 / epsilon", most=LARGEST)
        check_integer(self.client_n_init, 1, "client_n_init")
        check_integer(self.server_n_init, 1, "server_n_init")

    def expected_messages(self, known: Known) -> Reports:
        """Count the centroids of all clients."""
        k = self.local_k or max(self.k, 7)
        return Reports(known.clients * k, known.features, known.fills(k))

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the points with noise."""
        k = self.local_k or max(self.k, 7)
        scale = 1.0 / (self.epsilon or math.inf)
        noisy = replace(clients, stored=_add_noise(clients, scale)) if scale > 0.0 else clients
        local, _, _ = noisy.kmeans(k, Stream.CLIENT, starts=self.client_n_init)
        return Report(*pack(suppressed_means(noisy, local)), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster the centroids of the clients."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        search = Search(self.k, Stream.SERVER, starts=self.server_n_init)
        centroids, _, _ = cluster(server.kernels, server.shared_key, rows, np.ones(len(rows)), search)
        return centroids[centroids[:, 0] < np.inf]


def _add_noise(clients: Devices, scale: float) -> Floats:
    """Add Laplace noise to the points of each client, float64[m, d]."""
    points = clients.stored.astype(np.float64)
    for i, key in enumerate(clients.keys):
        client_rows = slice(clients.offsets[i], clients.offsets[i + 1])
        draws = uniforms(key, Stream.NOISE, [0], points[client_rows].size)[0]
        points[client_rows] += scale * laplace_quantiles(draws).reshape(-1, clients.d)
    return points


def laplace_quantiles(draws: Floats) -> Floats:
    """Compute the quantiles of the standard Laplace distribution at draws from [0, 1), elementwise."""
    below = draws < 0.5
    # Both tails take the same values in (0, 0.5], so the distribution is exactly symmetric.
    tail = np.where(below, draws + _STEP, 1.0 - draws)
    # math.log instead of np.log, whose last bits differ between processors.
    logs = np.array([math.log(2.0 * part) for part in tail])
    return np.where(below, logs, -logs)
