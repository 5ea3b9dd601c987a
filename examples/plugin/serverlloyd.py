from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.methods.building_blocks.averaging import local_sums

FIRST = -1.0  # number of a row before the server has centroids


@dataclass(frozen=True)
class ServerLloyd(ServerMethodBase):
    """Lloyd's algorithm on the points of all clients, one step per round."""

    k: int
    _: KW_ONLY
    tol: float = 1e-6  # largest move of the centroids at the end, as a Frobenius norm

    name: ClassVar[str] = "serverlloyd"
    # Every report measures the points again.
    traits: ClassVar[ServerTraits] = ServerTraits(message_content=MessageContent.CENTROIDS, follows_points=True)
    default_rounds: ClassVar[int] = 50

    def expected_messages(self, known: Known) -> Reports:
        """Predict the reports for `plan`."""
        return Reports(known.clients * self.k, known.features + 2)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Send the means and counts of the points nearest to each centroid; in round 0 those of a local k-means."""
        centroids = model if clients.round else clients.kmeans(self.k, Stream.CLIENT, starts=3)[0]
        sums = local_sums(clients, centroids)
        counts = sums[:, :, -1:]
        means = np.divide(sums[:, :, :-1], counts, out=np.full(centroids.shape, np.inf), where=counts > 0.0)
        numbers = np.broadcast_to(np.arange(self.k)[:, None] if clients.round else FIRST, counts.shape)
        rows = np.concatenate((means, counts, np.where(counts > 0.0, numbers, np.inf)), axis=2)
        return Report(*pack(rows), means)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the means by their counts; before there are centroids, cluster them."""
        rows = np.concatenate(tables)
        known = model[model[:, 0] < np.inf]
        if len(known) == 0:
            means, counts = np.ascontiguousarray(rows[:, :-2]), np.ascontiguousarray(rows[:, -2])
            search = Search(self.k, Stream.SERVER, starts=10)
            centroids = cluster(server.kernels, server.shared_key, means, counts, search)[0] if len(rows) else model
            return centroids[centroids[:, 0] < np.inf]
        rows = rows[rows[:, -1] != FIRST]
        counts, numbers = rows[:, -2:-1], rows[:, -1].astype(int)
        sums = np.zeros((len(known), server.d + 1))
        np.add.at(sums, numbers, np.concatenate((counts * rows[:, :-2], counts), axis=1))  # clients in ascending id
        moves = sums[:, -1] > 0.0  # a centroid without weight does not move
        return np.where(moves[:, None], sums[:, :-1] / np.where(moves, sums[:, -1], 1.0)[:, None], known)
