"""Match averaging: the baseline of FeCA (Xu et al. 2024), means of matched centroids."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Stream
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import whole
from p2pkm.methods.building_blocks.small_clusters import publish


@dataclass(frozen=True)
class MAvg(ServerMethodBase):
    """Match the centroids of every client with those of one client, and average what is matched.

    Client i sends the centroids W_i of a k-means of its own points. With r the first client that has k of them, or as
    many as anybody has, the server computes::

        p_i = argmin over the one-to-one maps p of sum_c |w_ic - w_r,p(c)|^2     (Hungarian method)
        w_c = mean of w_r,c and of all w_ic' with p_i(c') = c

    A client with fewer centroids is matched with some of them only. Numbers of points do not count. A cluster that
    client r does not have cannot be found: label skew ruins the means.

    Message: up the centroids of a client, at most k rows, once; down as many as client r has, at most k.

    Privacy: no guarantee; the server sees centroids of single clients, and a cluster of one point is that point.

    Parameters
    ----------
    k : int
        Number of clusters.
    client_n_init : int
        The client's k-means is the best of so many seedings.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", 2024: section 6, M-Avg. The paper
    names neither reference client nor unequal numbers of centroids.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.MAvg(3), None, shards)
    >>> result.summary["messages"], result.summary["bytes"]
    (6, 288)
    """

    k: int
    _: KW_ONLY
    client_n_init: int = 1

    name: ClassVar[str] = "mavg"
    traits: ClassVar[ServerTraits] = ServerTraits(one_shot=True)
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        whole(self.client_n_init, 1, "client_n_init")

    def expected_messages(self, known: Known) -> Reports:
        """Return the centroids of every client."""
        sure = known.fills(self.k)
        return Reports(known.clients * self.k, known.features, sure, answered=sure)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the own points."""
        local, _, _ = clients.kmeans(self.k, Stream.CLIENT, starts=self.client_n_init)
        return Report(*pack(publish(clients, local)), local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the rows that are matched with the same row of the reference."""
        from scipy.optimize import linear_sum_assignment

        reference = max(tables, key=len)  # the first of the longest
        if len(reference) == 0:
            return model[model[:, 0] < np.inf]
        sums, counts = np.zeros_like(reference), np.zeros((len(reference), 1))
        for table in tables:
            distances = np.cumsum(np.square(table[:, None] - reference), axis=2)[:, :, -1]
            rows, partners = linear_sum_assignment(distances)
            sums[partners] += table[rows]
            counts[partners] += 1.0
        return sums / counts
