"""Match averaging: means of matched local centroids, the baseline of FeCA (Xu et al. 2024)."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Stream
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_integer
from p2pkm.methods.building_blocks.small_clusters import suppressed_means


@dataclass(frozen=True)
class MAvg(ServerMethodBase):
    r"""One-shot averages of local centroids matched with those of a reference client (M-Avg).

    Parameters
    ----------
    k : int
        Number of clusters.
    client_n_init : int, default=1
        Initializations of the clients' k-means; the best result counts.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    FeCA
        Refined centroids and balls instead of matched averages.

    Notes
    -----
    **Update.** The baseline of section 6 of [1]_. Client i sends the centroids W_i of k-means on its local points. With
    r the first client that has the largest number of centroids (k, if any client has k), the server computes::

        p_i = argmin over the one-to-one maps p of sum_c |w_ic - w_r,p(c)|^2     (Hungarian method)
        w_c = mean of w_r,c and of all w_ic' with p_i(c') = c

    Numbers of points do not count.

    **Messages.** Up: at most k centroids of a client, once. Down: as many as client r has.

    **Convergence.** One-shot. A cluster that client r lacks is not found, so label skew ruins the means.

    **Privacy.** No guarantee. The server receives centroids of single clients. A cluster of one point is that point.

    **Differences from the paper.** [1]_ specifies neither the reference client nor the case of unequal numbers of
    centroids.

    References
    ----------
    .. [1] J. Xu, H.-Y. Chen, W.-L. Chao, Y. Zhang, "Jigsaw game: federated clustering", 2024: section 6, M-Avg.

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

    card = Card(
        "mavg",
        family="server",
        sends="centroids",
        points="few",
        line="one-shot means of matched local centroids",
        paper={"client_n_init": 1},
        source="[1], the baseline M-Avg",
    )
    name: ClassVar[str] = card.name
    traits: ClassVar[ServerTraits] = ServerTraits(message_content=MessageContent.CENTROIDS, one_shot=True)
    default_rounds: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_integer(self.client_n_init, 1, "client_n_init")

    def expected_messages(self, known: Known) -> Reports:
        """Count the centroids of all clients."""
        exact = known.fills(self.k)
        return Reports(known.clients * self.k, known.features, exact, answered=exact)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Cluster the local points."""
        local, _, _ = clients.kmeans(self.k, Stream.CLIENT, starts=self.client_n_init)
        return Report(*pack(suppressed_means(clients, local)), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the rows that are matched with the same row of the reference client."""
        from scipy.optimize import linear_sum_assignment

        # max returns the first of the longest tables.
        reference = max(tables, key=len)
        if len(reference) == 0:
            return model[model[:, 0] < np.inf]
        sums, counts = np.zeros_like(reference), np.zeros((len(reference), 1))
        for table in tables:
            distances = np.cumsum(np.square(table[:, None] - reference), axis=2)[:, :, -1]
            rows, partners = linear_sum_assignment(distances)
            sums[partners] += table[rows]
            counts[partners] += 1.0
        return sums / counts
