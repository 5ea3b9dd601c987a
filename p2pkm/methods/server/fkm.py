"""Federated k-means (Garst and Reinders 2024): Lloyd steps at the clients, weighted k-means at the server."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.program_function import is_function
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_choice, check_integer, check_positive
from p2pkm.methods.building_blocks.robust_server import drop_outliers, robust_aggregate
from p2pkm.methods.init.given import cluster_from_random_points

# Tolerance of the server's k-means, relative to the mean variance of a feature of the rows.
_TOL = 1e-4


@dataclass(frozen=True)
class FKM(ServerMethodBase):
    r"""Federated k-means with a server: local Lloyd steps, weighted k-means of all centroids.

    In each round clients take a Lloyd step from the server's centroids, and the server clusters all rows.

    Parameters
    ----------
    k : int
        Number of clusters.
    seeding : {"plusplus", "lloyd", "random"}, default="plusplus"
        First message of a client.

        * "plusplus": greedy k-means++ seeds.
        * "lloyd": k-means++ seeds after `local_steps` Lloyd steps.
        * "random": random points after `local_steps` Lloyd steps.
    client_n_init : int, default=1
        Initializations of the first message; the best counts (not for "plusplus").
    server_n_init : int, default=10
        Initializations of the server's k-means; the best result counts.
    server_seeding : {"both", "unweighted", "weighted"}, default="both"
        Whether the seeds of the server ignore the counts. "both": `server_n_init` initializations each way.
    keep_empty : bool, default=False
        Whether a client moves a row without points to its point farthest from its centroid, instead of dropping the
        row.
    weighted : bool, default=True
        Whether the k-means of the server uses the counts.
    local_steps : int, default=1
        Lloyd steps of a client per round.
    min_count : int, default=2
        Rows with fewer points nearest to them are not sent.
    robust : {"none", "trim", "median"} or callable, default="none"
        Protection from Byzantine clients. The server clusters the rows within Tukey's fences. Then it replaces each
        centroid by the coordinate-wise trimmed mean or median of the clients' nearest rows. A function takes these rows
        of the q clients, float64[q, d], and returns the centroid, float64[d].
    tol : float, default=1e-3
        A run ends when no centroid of the server is farther than tol * sqrt(total variance) from the nearest centroid
        of the round before, nor the other way round. 0: all rounds are run.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    KFED
        One exchange instead of rounds.
    GTVMin
        Federated k-means without a server.

    Notes
    -----
    **Update.** With the points X_i of client i and its rows (C_i, S_i), centroids and numbers of points; equation (1)
    of [1]_::

        server:    C_g <- kmeans([C_1 | ... | C_n], k, weights=[S_1 | ... | S_n])
        client i:  C_i <- the rows of C_g that have a point of X_i;  C_i, S_i <- one Lloyd step of X_i from C_i

    **Messages.** Up: one row (centroid, count) per cluster of the client. Down: k centroids.

    **Convergence.** Not guaranteed. The server draws new seeds in every round, so it may return to earlier centroids.

    **Privacy.** No guarantee. The server receives centroids and counts of single clients. The k-means++ seeds of the
    first message are points of the client.

    References
    ----------
    .. [1] S. Garst, M. Reinders, "Federated k-means clustering", ICPR 2024: Algorithm 1, equation (1).

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FKM(3), None, shards, rounds=5)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 21)
    """

    k: int
    _: KW_ONLY
    seeding: Literal["plusplus", "lloyd", "random"] = "plusplus"
    client_n_init: int = 1
    server_n_init: int = 10
    server_seeding: Literal["both", "unweighted", "weighted"] = "both"
    keep_empty: bool = False
    weighted: bool = True
    local_steps: int = 1
    min_count: int = 2
    robust: Literal["none", "trim", "median"] | Callable[[Floats], Floats] = "none"
    tol: float = 1e-3

    card = Card(
        "fkm",
        family="server",
        sends="centroids",
        points="sample",
        line="local Lloyd steps, weighted k-means at the server",
        paper={
            "seeding": "plusplus",
            "client_n_init": 1,
            "server_n_init": 10,
            "server_seeding": "unweighted",
            "local_steps": 1,
            "min_count": 2,
            "tol": 0.0,
        },
        source="[1], Algorithm 1; the server runs the k-means of scikit-learn with 10 initializations",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 100

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        for name in ("client_n_init", "server_n_init", "local_steps", "min_count"):
            check_integer(getattr(self, name), 1, name)
        check_positive(self.tol, "tol", zero=True)
        check_choice(self.seeding, ("plusplus", "lloyd", "random"), "seeding")
        check_choice(self.server_seeding, ("both", "unweighted", "weighted"), "server_seeding")
        rule: Any = self.robust
        if not is_function(rule):
            check_choice(rule, ("none", "trim", "median"), "robust")

    @property
    def traits(self) -> ServerTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return ServerTraits(message_content=MessageContent.CENTROIDS, follows_points=True)

    def expected_messages(self, known: Known) -> Reports:
        """Count at most k centroids of each client, each with a count."""
        return Reports(known.clients * self.k, known.features + 1)

    def resolved_parameters(self, devices: Devices) -> dict[str, str]:
        """Collect the seeding of the clients, for the summary."""
        return {"init": self.seeding}

    def report(self, clients: Devices, model: Floats) -> Report:
        """Take Lloyd steps from the server's centroids; in the initial exchange, compute seeds."""
        # With suppression the last step comes after the count, so each row is the mean of the points that were counted.
        suppresses = clients.min_count > 1
        steps = self.local_steps - suppresses
        centroids, counts = self._seed(clients, steps) if clients.round == 0 else self._step(clients, model, steps)
        enough = clients.count_members(centroids, counts) >= max(self.min_count, clients.min_count)
        centroids = clients.refine(centroids, 1)[0] if suppresses else centroids
        local = np.where((counts > 0.0)[:, :, None], centroids, np.inf)
        is_sent = enough & (counts > 0.0)
        table = np.where(is_sent[:, :, None], np.concatenate((centroids, counts[:, :, None]), axis=2), np.inf)
        return Report(*pack(table), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster the centroids of the clients by equation (1)."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        if self.robust != "none":
            tables = drop_outliers(tables)
            rows = np.concatenate(tables)
        points, weights = rows[:, :-1], rows[:, -1]
        unit_weights = np.ones(len(rows))
        tol = _TOL * float(points.var(axis=0).mean())
        search = Search(
            self.k, Stream.SERVER, starts=self.server_n_init, tol=tol, first=server.round * self.server_n_init
        )
        weights = weights if self.weighted else unit_weights
        seedings = {"unweighted": (unit_weights,), "weighted": (weights,), "both": (unit_weights, weights)}
        results = [
            cluster(server.kernels, server.shared_key, points, weights, search, np.ascontiguousarray(odds))
            for odds in seedings[self.server_seeding]
        ]
        # The first one on ties.
        centroids, _, _ = min(results, key=lambda result: result[2])
        centroids = centroids[centroids[:, 0] < np.inf]
        return centroids if self.robust == "none" else robust_aggregate(tables, centroids, self.robust)

    def has_settled(self, after: Floats, before: Floats, span: Floats, devices: Devices) -> Mask:
        """Check whether each row is near a row of the other table: the order of rows changes in every round."""
        present_after, present_before = np.isfinite(after[:, :, 0]), np.isfinite(before[:, :, 0])
        # Squared distances of each present row to the nearest present row of the other table; 0 for absent rows.
        nearest_before = np.zeros(present_after.shape)
        nearest_after = np.full(present_before.shape, np.inf)
        with np.errstate(invalid="ignore"):
            # One row of all devices at a time: a loop over devices took ten times as long as the Lloyd steps.
            for row in range(after.shape[1]):
                squared = np.cumsum((before - after[:, row, None]) ** 2, axis=2)[:, :, -1]
                is_pair = present_before & present_after[:, row, None]
                squared[~is_pair] = np.inf
                np.minimum(nearest_after, squared, out=nearest_after)
                nearest_before[:, row] = np.where(present_after[:, row], squared.min(axis=1), 0.0)
        nearest_after[~present_before] = 0.0
        farthest = np.maximum(nearest_before.max(axis=1), nearest_after.max(axis=1))
        is_known = present_after.any(axis=1) & present_before.any(axis=1)
        is_near: Mask = is_known & (self.tol > 0.0) & (farthest <= (self.tol * devices.data_std) ** 2)
        return is_near

    def _seed(self, clients: Devices, steps: int) -> tuple[Floats, Floats]:
        """Compute the first centroids of each client and the number of points nearest to each."""
        if self.seeding == "random":
            return cluster_from_random_points(clients, self.k, starts=self.client_n_init, limit=steps)
        # k-means++ seeds are unchanged points. With suppression they must be moved to means first.
        sends_seeds = self.seeding == "plusplus" and clients.min_count < 2
        limit, starts = (0, 1) if sends_seeds else (steps, self.client_n_init)
        centroids, counts, _ = clients.kmeans(self.k, Stream.CLIENT, starts=starts, limit=limit)
        return centroids, counts

    def _step(self, clients: Devices, model: Floats, steps: int) -> tuple[Floats, Floats]:
        """Take Lloyd steps at each client from the server's centroids; return centroids and counts."""
        if not self.keep_empty:
            _, counts, _ = clients.refine(model, 0)
            model, _ = pack(np.where((counts > 0.0)[:, :, None], model, np.inf))
        centroids, counts, _ = clients.refine(model, steps, fill=self.keep_empty)
        return centroids, counts
