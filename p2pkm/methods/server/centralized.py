"""A central server that gets all points: what methods that keep them at home are compared with."""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

import numpy as np

from p2pkm.core.batch import Devices, Floats, Search, Stream, cluster
from p2pkm.core.expected_messages import Known, Reports
from p2pkm.core.protocols import Report, ServerMethodBase
from p2pkm.core.traits import ServerTraits
from p2pkm.core.validation import one_of, whole

_SWEEPS = 300  # of coordinate descent


@dataclass(frozen=True)
class Central(ServerMethodBase):
    """Send all points to the server and cluster them there: the best of `n_init` runs from greedy k-means++ seeds.

    "lloyd" is k-means (name: central). "cdkm" (name: cdkm) is coordinate descent on the same cost: every point x of
    weight u in turn leaves its cluster p, unless it is alone there, for the q that minimizes the left side, while with
    the weights n and the means w of the clusters::

        n_q / (n_q + u) |x - w_q|^2 < n_p / (n_p - u) |x - w_p|^2

    Every move lowers the cost by u times the difference, and where none is left, Lloyd's algorithm stands still too;
    the converse is not true.

    Message: up every point with its weight, once; down the k centroids.

    Privacy: no guarantee; all raw points leave their devices.

    Parameters
    ----------
    k : int
        Number of clusters; with fewer distinct points the server ends with those.
    method : {"lloyd", "cdkm"}
        How the server clusters.
    n_init : int
        The best of so many seedings.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    F. Nie, J. Xue, D. Wu, R. Wang, H. Li, X. Li, "Coordinate descent method for k-means", IEEE TPAMI 44(5), 2022.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Central(3), None, shards)
    >>> result.summary["ratio_mean"], result.summary["raw_points_disclosed"]
    (1.0, 24)
    """

    k: int
    _: KW_ONLY
    method: Literal["lloyd", "cdkm"] = "lloyd"
    n_init: int = 20

    default_rounds: ClassVar[int] = 1
    traits: ClassVar[ServerTraits] = ServerTraits(one_shot=True, no_suppression="sends raw points")

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        one_of(self.method, ("lloyd", "cdkm"), "method")
        whole(self.n_init, 1, "n_init")

    @property
    def name(self) -> str:
        """Return the name on the command line."""
        return "central" if self.method == "lloyd" else "cdkm"

    def expected_messages(self, known: Known) -> Reports:
        """Return all points with their weights."""
        enough = known.distinct >= self.k
        return Reports(known.points, known.features + 1, True, answered=enough, by_points=True)

    def report(self, clients: Devices, model: Floats) -> Report:
        """Send all points."""
        n, sizes = len(clients), clients.sizes
        values = np.zeros((n, max(1, sizes.max(initial=0)), clients.d + 1))
        owner = np.repeat(np.arange(n), sizes)
        place = np.arange(len(owner)) - clients.offsets[owner]
        values[owner, place] = np.column_stack((clients.stored, clients.point_weights))
        return Report(values, sizes, np.full((n, 1, clients.d), np.inf))

    def aggregate(self, hub: Devices, tables: list[Floats], model: Floats) -> Floats:
        """Cluster all points."""
        rows = np.concatenate(tables)
        if len(rows) == 0:
            return model[model[:, 0] < np.inf]
        points, weights = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
        if self.method == "cdkm":
            return self._descend(hub, points, weights)
        search = Search(self.k, Stream.CENTRAL, starts=self.n_init)  # the draws of the baseline that ratios refer to
        found, _, _ = cluster(hub.kernels, hub.shared_key, points, weights, search)
        return found[found[:, 0] < np.inf]

    def _descend(self, hub: Devices, points: Floats, weights: Floats) -> Floats:
        """Return the best end of coordinate descent, the first on ties."""
        best, lowest = points[:0], np.inf
        for start in range(self.n_init):
            search = Search(self.k, Stream.CENTRAL, limit=0, first=start)
            seeds, _, _ = cluster(hub.kernels, hub.shared_key, points, weights, search)
            found, cost = hub.kernels.cdkm(points, weights, seeds[seeds[:, 0] < np.inf], _SWEEPS)
            if cost < lowest:
                best, lowest = found, cost
        return best
