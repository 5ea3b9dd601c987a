"""ADMM consensus k-means (Forero, Cano and Giannakis 2011): local k-means with dual variables for links."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.card import OPEN, Card
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, RunOutline
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.methods.building_blocks.averaging import add_differences, has_converged, local_sums
from p2pkm.methods.init.value import Init

# Smallest default of eta, in points.
_LEAST_ETA = 5.0


@register("admm")
class ADMMState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        m in the equations of `ADMM`.
    converged : bool[n]
    duals : float64[n, k, d]
        Dual variables p after the last round.
    """

    centroids: Floats
    converged: Mask
    duals: Floats


@dataclass(frozen=True)
class ADMM(MethodBase):
    r"""Consensus k-means by the alternating direction method of multipliers (ADMM).

    Each device minimizes its local k-means cost under the constraint that neighbors have equal centroids. Clusters are
    paired by their number.

    Parameters
    ----------
    k : int
        Number of clusters.
    eta : float, optional
        Penalty of a disagreement, in points (of mean weight, if points have weights). Default: the mean number of
        points of a cluster on a device, m / (n k), but at least 5.
    init : Init or str, default="global:candidates=1"
        Should give all devices the same centroids; `local` does not.
    tol : float, default=1e-5
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in a
        round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    GTVMin
        Penalty on differences of neighbors, with matching of their centroids.

    Notes
    -----
    **Objective.** The sum of the local losses subject to m_ic = m_jc for every link ij and cluster c [1]_.

    **Update.** Device i has centroids m_ic, dual variables p_ic (0 at first) and deg_i neighbors N_i. S_ic and n_ic are
    the sum and the number of its local points nearest to m_ic::

        m_ic <- (S_ic - p_ic + eta sum_{j in N_i} (m_ic + m_jc)) / (n_ic + 2 eta deg_i)
        p_ic <- p_ic + eta sum_{j in N_i} (m_ic - m_jc)

    The second line uses the new m. A centroid with zero total weight does not move. A row that is absent at one end of
    a link is ignored at both ends, and is never revived.

    **Messages.** k centroids to each neighbor, once per round and in the initial exchange.

    **Convergence.** sum_i p_ic = 0 at all times, so where all devices agree and no centroid moves, m_c is the mean of
    all points with label c. For every eta > 0 the iteration converges once no label changes; labels need not settle.

    **Privacy.** No guarantee. Neighbors receive the centroids of every turn, but no counts.

    References
    ----------
    .. [1] P. A. Forero, A. Cano, G. B. Giannakis, "Distributed clustering using wireless sensor networks", IEEE Journal
       of Selected Topics in Signal Processing 5, 2011.

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
    eta: float | None = None
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    card = Card(
        "admm",
        family="iterative",
        sends="centroids",
        points="few",
        line="local k-means under consensus constraints (ADMM)",
        paper={"eta": 5.0, "init": "global:candidates=1", "tol": 1e-5},
        source=OPEN,
    )
    name: ClassVar[str] = card.name
    schedule: ClassVar[str] = "jacobi"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Validate the parameters."""
        object.__setattr__(self, "init", Init.of(self.init))
        check_integer(self.k, 1, "clusters")
        if self.eta is not None:
            check_positive(self.eta, "eta")
        check_positive(self.tol, "tol", zero=True)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            init=self.init,
            incompatible_with={
                Condition.CHANGING_LINKS: "keeps dual variables of links that must not change, otherwise they may grow "
                "without bound",
                "suppression": "pairs rows by their number, so that none can be left out",
                "compression": "adds up differences between neighbors, which must be opposite at the two ends of a "
                "link",
            },
            follows_points=True,
        )

    def configure(self, run: RunOutline) -> "ADMM":
        """Choose the penalty from the number of points of a device and cluster, if the user did not."""
        if self.eta is not None or run.points is None or run.topology is None:
            return self
        return self.replaced(eta=max(_LEAST_ETA, run.points / (run.topology.clients * self.k)))

    def expected_messages(self, known: Known) -> EveryTurn:
        """Count k rows per edge in every turn."""
        return EveryTurn(self.k, known.features, absent_rows=True)

    def initial_state(self, devices: Devices, start: Any) -> ADMMState:
        """Start from the centroids of the last stage, with dual variables 0."""
        return ADMMState(start.centroids, np.zeros(len(devices), np.bool_), np.zeros_like(start.centroids))

    def message(self, state: ADMMState, devices: Devices) -> DenseMessages:
        """Send all k rows, in their order."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: ADMMState, inbox: Inbox, devices: Devices) -> ADMMState:
        """Update the dual variables with the received disagreement, then the centroids."""
        present = np.isfinite(state.centroids)
        local_centroids = np.where(present, state.centroids, 0.0)
        # Local minus received: weight -1.
        disagreement, shared = add_differences(
            devices, inbox, np.zeros_like(local_centroids), state.centroids, np.full(len(devices.indices), -1.0)
        )
        link_counts = shared[:, :, None]
        eta = (_LEAST_ETA if self.eta is None else self.eta) * devices.unit
        # The initial centroids do not minimize the augmented Lagrangian, so their disagreement changes no dual
        # variable.
        duals = state.duals + eta * disagreement if devices.round > 1 else state.duals
        sums = local_sums(devices, state.centroids)
        numerator = sums[:, :, :-1] - duals + eta * (2.0 * link_counts * local_centroids - disagreement)
        weight = sums[:, :, -1:] + 2.0 * eta * link_counts
        moves = present & (weight > 0.0)
        centroids = np.where(moves, numerator / np.where(moves, weight, 1.0), state.centroids)
        return ADMMState(centroids, has_converged(centroids, state.centroids, self.tol * devices.data_std), duals)
