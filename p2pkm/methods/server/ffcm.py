"""Federated fuzzy c-means (Stallmann and Wilbik 2022), both versions."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.messages import pack
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import MessageContent, ServerTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.kernels.reference import uniforms

# Fuzzy c-means of a client: largest number of iterations, and largest change of a membership at which it ends.
_LIMIT = 1000
_TOL = 1e-4
# Exponents 1 + 2^-h, for which the kernel needs square roots instead of powers.
_FUZZIFIERS = [1.0 + 2.0**-h for h in range(11)]
# Defaults by version; version 2 is not better with a smaller exponent (docs/results/methods.csv).
_DEFAULT_FUZZIFIERS = {1: 1.0625, 2: 2.0}
# Largest number of Lloyd steps at the server.
_STEPS = 500


@dataclass(frozen=True)
class FFCM(ServerMethodBase):
    r"""Federated fuzzy c-means, with averages (ffcm1) or k-means (ffcm2) at a server.

    In each round all clients run fuzzy c-means from the server's centroids.

    Parameters
    ----------
    k : int
        Number of clusters.
    version : {2, 1}, default=2
        Aggregation at the server.
    server_n_init : int, default=10
        Version 2: initializations of the first k-means of the server.
    fuzzifier : float, optional
        Exponent m of the memberships: 2, 1.5, 1.25, ..., that is 1 + 2^-h with a whole number h from 0 to 10. Near 1
        memberships are almost those of k-means. Default: 1.0625 in version 1, 2 in version 2.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    FKM
        Lloyd steps at the clients, weighted k-means at the server.

    Notes
    -----
    **Update.** With the points x of client i and m = `fuzzifier`, from the server's centroids C until the memberships u
    converge [1]_::

        client i:   u_xc = 1 / sum_b (|x - c|^2 / |x - b|^2)^(1 / (m - 1)),   c <- sum_x u_xc^m x / sum_x u_xc^m
                    send (C_i, S_i), S_ic = sum_x u_xc
        version 1:  c <- sum_i S_ic c_i / sum_i S_ic          (row by row)
        version 2:  C <- k-means of [C_1 | ... | C_n], k      (unweighted; from C, but in the first round the best of
                                                               `server_n_init` seedings)

    Points are scaled by the smallest and the largest entry over all clients. The first centroids are uniform in [0,
    1]^d. A centroid without membership does not move: a client with fewer points than centroids sends duplicates of
    support 0, which version 2 counts like all others.

    **Messages.** Up: one row (centroid, support) per centroid. Down: the centroids. Before: smallest and largest values
    of each client.

    **Convergence.** Not guaranteed. A run ends when the centroids move by less than 1e-4 of the scaled unit.

    **Privacy.** No guarantee. The server receives centroids and supports of single clients. The centroids of a client
    with one point are that point.

    **Differences from the paper.** Clients draw the first centroids from the shared seed instead of receiving them.

    References
    ----------
    .. [1] M. Stallmann, A. Wilbik, "Towards federated clustering: a federated fuzzy c-means algorithm (FFCM)", 2022,
       arXiv:2201.07316.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FFCM(3), None, shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.035, 21)
    """

    k: int
    _: KW_ONLY
    version: Literal[1, 2] = 2
    server_n_init: int = 10
    fuzzifier: float | None = None

    card = (
        Card(
            "ffcm1",
            family="server",
            sends="centroids",
            points="few",
            line="local fuzzy c-means, weighted means at the server",
            fixed={"version": 1},
            paper={"fuzzifier": 2.0},
            source="[1]",
        ),
        Card(
            "ffcm2",
            family="server",
            sends="centroids",
            points="few",
            line="local fuzzy c-means, k-means at the server",
            fixed={"version": 2},
            paper={"fuzzifier": 2.0, "server_n_init": 10},
            source="[1], and the authors' code for the initializations",
        ),
    )
    default_rounds: ClassVar[int] = 10
    traits: ClassVar[ServerTraits] = ServerTraits(
        message_content=MessageContent.CENTROIDS,
        normalization="entries",
        incompatible_with={
            "suppression": "gives every point a share in every row",
        },
    )
    tol = 1e-4

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        check_choice(str(check_integer(self.version, 1, "version")), ("1", "2"), "version")
        check_integer(self.server_n_init, 1, "server_n_init")
        if self.fuzzifier is not None and self.fuzzifier not in _FUZZIFIERS:
            raise ExperimentError(
                f"fuzzifier is {self.fuzzifier}; expected 1 + 2^-h with a whole number h from 0 to "
                f"{len(_FUZZIFIERS) - 1}. Use 2, 1.5, 1.25, 1.125 or 1.0625"
            )

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f"ffcm{self.version}"

    def expected_messages(self, known: Known) -> Reports:
        """Count k rows of each client with points; version 1 returns k rows, version 2 perhaps fewer."""
        exact = known.least >= 1
        return Reports(known.clients * self.k, known.features + 1, exact, answered=exact and self.version == 1)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Run fuzzy c-means from the server's centroids, first from those drawn from the shared seed."""
        start, rows = pack(_start_centroids(clients, model))
        points, weights, offsets = clients.kernel_inputs
        halvings = _FUZZIFIERS.index(self.fuzzifier or _DEFAULT_FUZZIFIERS[self.version])
        # The tolerance refers to memberships of points of weight 1, so weights are divided by their mean.
        relative = points, weights / clients.unit, offsets
        centroids, supports = clients.kernels.fuzzy_cmeans(*relative, start, rows, _LIMIT, _TOL, halvings)
        local = np.where((supports > 0.0)[:, :, None], centroids, np.inf)
        values = np.concatenate((centroids, clients.unit * supports[:, :, None]), axis=2)
        return Report(values, np.where(clients.sizes > 0, rows, 0), local)

    def aggregate(self, server: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Average the centroids of the clients, or cluster them."""
        reported = [table for table in tables if len(table)]
        if not reported:
            return model[model[:, 0] < np.inf]
        if self.version == 1:
            return _average(reported, _start_centroids(server, model[None])[0])
        rows = np.ascontiguousarray(np.concatenate(reported)[:, :-1])
        start, (present,) = pack(model[None])
        if present == 0:
            search = Search(self.k, Stream.SERVER, starts=self.server_n_init, limit=_STEPS)
            centroids, _, _ = cluster(server.kernels, server.shared_key, rows, np.ones(len(rows)), search)
        else:
            table = rows, np.ones(len(rows)), np.array([0, len(rows)])
            centroids = server.kernels.refine(*table, start, np.array([present]), _STEPS, np.zeros(1), True)[0][0]
        return centroids[centroids[:, 0] < np.inf]


def _start_centroids(devices: Devices, model: Floats) -> Floats:
    """Choose the model, float64[n, k, d]; devices without one draw the first centroids from the shared seed."""
    k, d = model.shape[1:]
    first = uniforms(devices.shared_key, Stream.CLIENT, [0], k * d).reshape(k, d)
    _, rows = pack(model)
    return np.where((rows > 0)[:, None, None], model, first)


def _average(tables: list[Floats], model: Floats) -> Floats:
    """Compute the mean of each row, weighted by supports (version 1)."""
    sums, supports = np.zeros_like(model), np.zeros(len(model))
    for table in tables:
        sums += table[:, -1:] * table[:, :-1]
        supports += table[:, -1]
    supported = supports > 0.0
    return np.where(supported[:, None], sums / np.where(supported, supports, 1.0)[:, None], model)
