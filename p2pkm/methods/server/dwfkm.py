"""Dynamically weighted federated k-means (Holzer, Jacob and Kavane 2023): weighted means of local Lloyd steps."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_integer, check_positive


@dataclass(frozen=True)
class DWFKM(ServerMethodBase):
    r"""Local Lloyd steps, and means of rows of equal number at a server, weighted by points (DWF k-means).

    In each round clients take Lloyd steps from the server's centroids, and the server averages the results of each
    cluster.

    Parameters
    ----------
    k : int
        Number of clusters.
    local_steps : int, default=5
        Largest number of Lloyd steps of a client per round.
    client_n_init, server_n_init : int, default=5
        Initializations of the first k-means of clients and server; the best result counts.
    tol : float, default=1e-6
        Convergence tolerance. A run ends when the server's centroids move by less than tol * sqrt(total variance)
        (Frobenius norm).

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    FedLloyd
        One exact Lloyd step on the pooled points per round.
    FKM
        k-means of all rows at the server, instead of means of rows of equal number.

    Notes
    -----
    **Update.** With the points X_i of client i and the server's centroids C [1]_::

        first round:  client i:  C_i <- kmeans(X_i, k)
                      server:    C   <- kmeans([C_1 | ... | C_n], k)      (unweighted)
        then:         client i:  S_ic = number of points of X_i nearest to c
                                 C_i <- `local_steps` Lloyd steps of X_i from C
                      server:    c   <- sum_i S_ic c_i / sum_i S_ic

    A centroid without points does not move, at a client or at the server. With one local step the update is a Lloyd
    step on the pooled points.

    **Messages.** Up: one row (centroid, count) per cluster. Down: the centroids.

    **Convergence.** Not guaranteed with several local steps.

    **Privacy.** No guarantee. The server receives centroids and counts of single clients. A cluster of one point is
    that point.

    **Differences from the paper.** There is neither learning rate nor momentum. `tol` is relative.

    References
    ----------
    .. [1] P. Holzer, T. Jacob, S. Kavane, "Dynamically weighted federated k-means", 2023, arXiv:2310.14858; numbers of
       steps and initializations as in the authors' code.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.DWFKM(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 21)
    """

    k: int
    _: KW_ONLY
    local_steps: int = 5
    client_n_init: int = 5
    server_n_init: int = 5
    tol: float = 1e-6

    card = Card(
        "dwfkm",
        family="server",
        sends="centroids",
        points="few",
        line="local Lloyd steps, weighted means at the server (DWF)",
        paper={"local_steps": 5, "client_n_init": 5, "server_n_init": 5},
        source="[1], and the authors' code for the numbers",
    )
    name: ClassVar[str] = card.name
    traits: ClassVar[ServerTraits] = ServerTraits(
        message_content=MessageContent.CENTROIDS,
        incompatible_with={
            "suppression": "averages rows by their number, so that none can be left out",
        },
        follows_points=True,
    )
    default_rounds: ClassVar[int] = 300

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        for name in ("local_steps", "client_n_init", "server_n_init"):
            check_integer(getattr(self, name), 1, name)
        check_positive(self.tol, "tol", zero=True)

    def expected_messages(self, known: Known) -> Reports:
        """Count at most k rows of each client, each with a count."""
        return Reports(known.clients * self.k, known.features + 1)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Take Lloyd steps from the server's centroids; in the initial exchange, cluster the local points."""
        if clients.round == 0:
            centroids, counts, _ = clients.kmeans(self.k, Stream.CLIENT, starts=self.client_n_init)
            sent = np.zeros_like(counts)
        else:
            _, counts, _ = clients.refine(model, 0)
            centroids, _, _ = clients.refine(model, self.local_steps)
            sent = np.where(np.isfinite(counts), counts, 0.0)
        local = np.where((counts > 0.0)[:, :, None], centroids, np.inf)
        values, rows = pack(np.concatenate((centroids, sent[:, :, None]), axis=2))
        return Report(values, np.where(clients.sizes > 0, rows, 0), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the rows of each number; at first, cluster all rows."""
        model = model[model[:, 0] < np.inf]
        reported = [table for table in tables if len(table)]
        if not reported:
            return model
        if len(model) == 0:
            rows = np.ascontiguousarray(np.concatenate(reported)[:, :-1])
            search = Search(self.k, Stream.SERVER, starts=self.server_n_init)
            centroids, _, _ = cluster(server.kernels, server.shared_key, rows, np.ones(len(rows)), search)
            return centroids[centroids[:, 0] < np.inf]
        sums, totals = np.zeros_like(model), np.zeros((len(model), 1))
        for table in reported:
            # A first report that a client without a reply repeated: its rows are not numbered as those of the server.
            if not table[:, -1].any():
                continue
            sums += table[:, -1:] * table[:, :-1]
            totals += table[:, -1:]
        return np.where(totals > 0.0, sums / np.where(totals > 0.0, totals, 1.0), model)

    def has_settled(self, after: Floats, before: Floats, span: Floats, devices: Devices) -> Mask:
        """Compare the move of the centroids with the spread of all points; rows that appear have moved."""
        with np.errstate(invalid="ignore"):
            moves = after - before
        moves[np.isinf(after) & np.isinf(before)] = 0.0
        result: Mask = np.sqrt((moves * moves).sum(axis=(1, 2))) <= self.tol * devices.data_std
        return result
