"""Federated fuzzy c-means (Stallmann and Wilbik 2022), both versions."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import one_of, whole
from p2pkm.kernels.reference import uniforms

_LIMIT, _TOL = 1000, 1e-4  # of fuzzy c-means at a client
_STEPS = 500  # Lloyd steps at the server


@dataclass(frozen=True)
class FFCM(ServerMethodBase):
    r"""Alternate fuzzy c-means at every client with an average, or a clustering, of their centroids at the server.

    With the points x of client i, from the server's centroids C and until the memberships stand still (exponent 2)::

        client i:   u_xc = 1 / sum_b |x - c|^2 / |x - b|^2,   c <- sum_x u_xc^2 x / sum_x u_xc^2
                    sends (C_i, S_i), S_ic = sum_x u_xc
        version 1:  c <- sum_i S_ic c_i / sum_i S_ic          (row by row)
        version 2:  C <- k-means of [C_1 | ... | C_n], k      (unweighted; from C, except in the first round, where it
                                                               is the best of `server_n_init` seedings)

    The points are scaled by one smallest and one largest entry of all clients. The first centroids are uniform in
    [0, 1]^d; since the clients send first here, they draw them from the seed that all share, and save the server's
    first message.

    A point on a centroid has membership 1 there, in the first one if there are several; a centroid without membership
    stays where it is. So a client with fewer points than centroids sends duplicates of support 0; version 2 counts them
    like all others. A client without points sends an empty table. A row that no client supports keeps its place in
    version 1; version 2 returns fewer centroids if fewer are distinct, and goes on with these.

    Message: up one row (centroid, support) per centroid; down the centroids.

    Privacy: no guarantee; the server sees centroids and supports of single clients; a client of a single point gives it
    away.

    Parameters
    ----------
    k : int
        Number of clusters.
    version : {2, 1}
        How the server aggregates.
    server_n_init : int
        Version 2: the server's first k-means is the best of so many seedings, 10 as in the authors' code.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    M. Stallmann, A. Wilbik, "Towards federated clustering: a federated fuzzy c-means algorithm (FFCM)", 2022,
    arXiv:2201.07316.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FFCM(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.035, 27)
    """

    k: int
    _: KW_ONLY
    version: Literal[1, 2] = 2
    server_n_init: int = 10

    default_rounds: ClassVar[int] = 10
    traits: ClassVar[ServerTraits] = ServerTraits(
        normalization="entries", no_suppression="gives every point a share in every row"
    )
    tol = 1e-4

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        one_of(str(whole(self.version, 1, "version")), ("1", "2"), "version")
        whole(self.server_n_init, 1, "server_n_init")

    @property
    def name(self) -> str:
        """Return the name on the command line."""
        return f"ffcm{self.version}"

    def expected_messages(self, known: Known) -> Reports:
        """Return k rows of every client with points; version 1 answers with as many, version 2 with fewer."""
        sure = known.least >= 1
        return Reports(known.clients * self.k, known.features + 1, sure, answered=sure and self.version == 1)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Run fuzzy c-means from the server's centroids, at the opening from those that all draw alike."""
        start, rows = pack(_known(clients, model))
        points, weights, offsets = clients.kernel_inputs
        relative = points, weights / clients.unit, offsets  # the tolerance is about memberships of points
        centroids, supports = clients.kernels.fuzzy(*relative, start, rows, _LIMIT, _TOL)
        local = np.where((supports > 0.0)[:, :, None], centroids, np.inf)
        values = np.concatenate((centroids, clients.unit * supports[:, :, None]), axis=2)
        return Report(values, np.where(clients.sizes > 0, rows, 0), local)

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the clients' centroids, or cluster them."""
        reported = [table for table in tables if len(table)]
        if not reported:
            return model[model[:, 0] < np.inf]
        if self.version == 1:
            return _average(reported, _known(hub, model[None])[0])
        rows = np.ascontiguousarray(np.concatenate(reported)[:, :-1])
        start, (real,) = pack(model[None])
        if real == 0:
            search = Search(self.k, Stream.SERVER, starts=self.server_n_init, limit=_STEPS)
            found, _, _ = cluster(hub.kernels, hub.shared_key, rows, np.ones(len(rows)), search)
        else:
            table = rows, np.ones(len(rows)), np.array([0, len(rows)])
            found = hub.kernels.refine(*table, start, np.array([real]), _STEPS, np.zeros(1), True)[0][0]
        return found[found[:, 0] < np.inf]


def _known(devices: Devices, model: Floats) -> Floats:
    """Return the model, float64[n, k, d]; a device that has received none draws the first centroids."""
    k, d = model.shape[1:]
    first = uniforms(devices.shared_key, Stream.CLIENT, [0], k * d).reshape(k, d)
    _, rows = pack(model)
    return np.where((rows > 0)[:, None, None], model, first)


def _average(tables: list[Floats], model: Floats) -> Floats:
    """Return the support-weighted mean of each row (version 1)."""
    sums, supports = np.zeros_like(model), np.zeros(len(model))
    for table in tables:
        sums += table[:, -1:] * table[:, :-1]
        supports += table[:, -1]
    supported = supports > 0.0
    return np.where(supported[:, None], sums / np.where(supported, supports, 1.0)[:, None], model)
