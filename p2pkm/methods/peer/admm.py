"""ADMM consensus k-means (Forero, Cano, Giannakis 2011): own centroids with a price on every disagreement."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import has_converged, iter_neighbor_tables, local_sums
from p2pkm.methods.init.value import Init


@register("admm")
class ADMMState(NamedTuple):
    """centroids: float64[n, k, d], m; converged: bool[n]; duals: float64[n, k, d], p of the round before."""

    centroids: Floats
    converged: Mask
    duals: Floats


@dataclass(frozen=True)
class ADMM(MethodBase):
    r"""Let every device minimize its own k-means cost under the constraint that neighbors agree.

    Device i has centroids m_ic and dual variables p_ic, 0 at the start; S_ic and n_ic are the sum and the number of its
    points nearest to m_ic, N_i its deg_i neighbors::

        m_ic <- (S_ic - p_ic + eta sum_{j in N_i} (m_ic + m_jc)) / (n_ic + 2 eta deg_i)
        p_ic <- p_ic + eta sum_{j in N_i} (m_ic - m_jc)

    with the old m on the right of the first line and the new one in the second. A centroid without any weight stays.
    Clusters are paired by their number, so all devices must start from the same centroids (any initialization but
    `local`). A row that is absent at one end of a link counts as if the link were not there, at both ends; it is never
    revived.

    Message: k rows m (absent ones travel as +inf), once per round and at the opening.

    Guarantee: sum_i p_ic = 0 always, so where all agree and rest, m_c is the mean of all points with label c. For
    fixed labels it converges for every eta > 0.

    Link weights: ignored; all links count the same.

    Privacy: no guarantee; neighbors see the centroids of every turn, no counts.

    Parameters
    ----------
    k : int
        Number of clusters.
    eta : float
        Price of a disagreement, in points (of mean weight, where they have weights).
    init : Init or str
        How all devices get their first centroids.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    P. A. Forero, A. Cano, G. B. Giannakis, "Distributed clustering using wireless sensor networks", IEEE Journal of
    Selected Topics in Signal Processing 5, 2011.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.ADMM(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 76)
    """

    k: int
    _: KW_ONLY
    eta: float = 5.0
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "admm"
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        positive(self.eta, "eta")
        positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            init=self.init,
            needs_static_links="keeps dual variables for links that have to last, else they may grow without bound",
            no_suppression="pairs rows by their number, so that none can be left out",
            follows_points=True,
        )

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return all k rows in every turn."""
        return EveryTurn(self.k, known.features, absent_rows=True)

    def initial_state(self, devices: Devices, start: Any) -> ADMMState:
        """Start from the centroids of the last stage."""
        return ADMMState(start.centroids, np.zeros(len(devices), np.bool_), np.zeros_like(start.centroids))

    def message(self, state: ADMMState, devices: Devices) -> DenseMessages:
        """Send all k rows, in their order."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: ADMMState, inbox: Inbox, devices: Devices) -> ADMMState:
        """Update the dual variables with the disagreements just received, then minimize."""
        real = np.isfinite(state.centroids)
        mine = np.where(real, state.centroids, 0.0)
        links, differ = np.zeros_like(mine), np.zeros_like(mine)
        for who, _, theirs in iter_neighbor_tables(devices, inbox, mine.shape[1:]):
            both = real[who] & np.isfinite(theirs)
            links[who] += both
            differ[who] += np.where(both, mine[who] - theirs, 0.0)
        eta = self.eta * devices.unit
        # the start is not a minimum under prices: what it disagrees in is not charged
        duals = state.duals + eta * differ if devices.round > 1 else state.duals
        mass = local_sums(devices, state.centroids)
        total = mass[:, :, :-1] - duals + eta * (2.0 * links * mine - differ)
        weight = mass[:, :, -1:] + 2.0 * eta * links
        moves = real & (weight > 0.0)
        centroids = np.where(moves, total / np.where(moves, weight, 1.0), state.centroids)
        return ADMMState(centroids, has_converged(centroids, state.centroids, self.tol * devices.data_std), duals)
