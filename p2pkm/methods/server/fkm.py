"""Federated k-means (Garst and Reinders 2024): Lloyd steps at the clients, weighted k-means at the server."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import one_of, whole
from p2pkm.methods.building_blocks.robust_server import drop_outliers, robust_aggregate
from p2pkm.methods.init.given import cluster_from_random_points

_TOL = 1e-4  # of the server's k-means, times the mean variance of a feature of the rows


@dataclass(frozen=True)
class FKM(ServerMethodBase):
    r"""Alternate a Lloyd step at every client with a weighted k-means of their centroids at the server.

    With the points X_i of client i and the rows (C_i, S_i), centroids and numbers of points, that it sends::

        server:    C_g <- kmeans([C_1 | ... | C_n], k, weights=[S_1 | ... | S_n])
        client i:  C_i <- the rows of C_g that have a point of X_i;  C_i, S_i <- one Lloyd step of X_i from C_i

    Before the first round a client sends k-means++ seeds of its own points and how many are nearest to each. The server
    draws anew in every round, so the method never converges: it runs all its rounds.

    Message: up one row (centroid, count) per cluster that the client has; down the k centroids.

    Privacy: no guarantee; the server sees centroids and counts of single clients; k-means++ seeds, the first message,
    are points of the client. `min_count` is suppression by the points nearest to a row as it is sent; the row may be
    the mean of others, even of a single one. With ``simulate(min_cluster_size=)`` the points that are counted, for the
    threshold and for the server, are those that the row is the mean of: the count is taken before the last Lloyd step
    instead of after it.

    Parameters
    ----------
    k : int
        Number of clusters.
    seeding : {"plusplus", "lloyd", "random"}
        First message: greedy k-means++ seeds; those after `local_steps` Lloyd steps; random points after them.
    client_n_init : int
        Of the first message: the best of so many draws (not for "plusplus").
    server_n_init : int
        The server's k-means is the best of so many seedings.
    server_seeding : {"unweighted", "weighted"}
        Whether its seeds ignore the counts.
    keep_empty : bool
        Whether a client moves a row without points to its point farthest from its centroid, instead of dropping it.
    weighted : bool
        Whether the server's k-means uses the counts at all.
    local_steps : int
        Lloyd steps of a client in a round.
    min_count : int
        Rows with fewer points nearest to them are not sent.
    robust : {"none", "trim", "median"}
        What the server makes of rows that may be Byzantine: it clusters those within Tukey's fences as above, and then
        takes the trimmed mean or the median, coordinate by coordinate, of what the clients have near each of these
        centroids, see `p2pkm.methods.building_blocks.robust_server`.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    S. Garst, M. Reinders, "Federated k-means clustering", ICPR 2024: Algorithm 1, equation (1); its figure 4 varies
    `keep_empty`, `weighted`, `seeding` and `local_steps`.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FKM(3), None, shards, rounds=5)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 33)
    """

    k: int
    _: KW_ONLY
    seeding: Literal["plusplus", "lloyd", "random"] = "plusplus"
    client_n_init: int = 1
    server_n_init: int = 10
    server_seeding: Literal["unweighted", "weighted"] = "unweighted"
    keep_empty: bool = False
    weighted: bool = True
    local_steps: int = 1
    min_count: int = 2
    robust: Literal["none", "trim", "median"] = "none"

    name: ClassVar[str] = "fkm"
    default_rounds: ClassVar[int] = 100

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        for name in ("client_n_init", "server_n_init", "local_steps", "min_count"):
            whole(getattr(self, name), 1, name)
        one_of(self.seeding, ("plusplus", "lloyd", "random"), "seeding")
        one_of(self.server_seeding, ("unweighted", "weighted"), "server_seeding")
        one_of(self.robust, ("none", "trim", "median"), "robust")

    @property
    def traits(self) -> ServerTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return ServerTraits(follows_points=True)

    def expected_messages(self, known: Known) -> Reports:
        """Return at most k centroids of every client, each with a count."""
        return Reports(known.clients * self.k, known.features + 1)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Return how its clients choose their first centroids."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Take a Lloyd step from the server's centroids; at the opening, seed."""
        shy = clients.min_count > 1  # then the last step comes after the count: a row is the mean of those counted
        steps = self.local_steps - shy
        centroids, counts = self._seed(clients, steps) if clients.round == 0 else self._step(clients, model, steps)
        enough = clients.members(centroids, counts) >= max(self.min_count, clients.min_count)
        centroids = clients.refine(centroids, 1)[0] if shy else centroids
        local = np.where((counts > 0.0)[:, :, None], centroids, np.inf)
        kept = enough & (counts > 0.0)
        table = np.where(kept[:, :, None], np.concatenate((centroids, counts[:, :, None]), axis=2), np.inf)
        return Report(*pack(table), local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster the clients' centroids by equation (1)."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        if self.robust != "none":
            tables = drop_outliers(tables)
            rows = np.concatenate(tables)
        points, weights = rows[:, :-1], rows[:, -1]
        ones = np.ones(len(rows))
        tol = _TOL * float(points.var(axis=0).mean())
        search = Search(self.k, Stream.SERVER, starts=self.server_n_init, tol=tol, first=hub.round * self.server_n_init)
        weights = weights if self.weighted else ones
        odds = ones if self.server_seeding == "unweighted" else weights
        found, _, _ = cluster(hub.kernels, hub.shared_key, points, weights, search, np.ascontiguousarray(odds))
        found = found[found[:, 0] < np.inf]
        return found if self.robust == "none" else robust_aggregate(tables, found, self.robust)

    def _seed(self, clients: Devices, steps: int) -> tuple[Floats, Floats]:
        """Return the first centroids of every client and how many points are nearest to each."""
        if self.seeding == "random":
            return cluster_from_random_points(clients, self.k, starts=self.client_n_init, limit=steps)
        bare = self.seeding == "plusplus" and clients.min_count < 2  # a seed is a point as it is
        limit, starts = (0, 1) if bare else (steps, self.client_n_init)
        centroids, counts, _ = clients.kmeans(self.k, Stream.CLIENT, starts=starts, limit=limit)
        return centroids, counts

    def _step(self, clients: Devices, model: Floats, steps: int) -> tuple[Floats, Floats]:
        """Return each client's centroids after Lloyd steps from the server's, and their numbers of points."""
        if not self.keep_empty:
            _, counts, _ = clients.refine(model, 0)
            model, _ = pack(np.where((counts > 0.0)[:, :, None], model, np.inf))
        centroids, counts, _ = clients.refine(model, steps, fill=self.keep_empty)
        return centroids, counts
