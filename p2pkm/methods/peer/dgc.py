"""DGC-KM: distributed gradient clustering, Lloyd assignments and gradient steps towards the neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import has_converged, iter_neighbor_tables, local_sums
from p2pkm.methods.init.value import Init

_SAFETY = 0.9  # of the bound on the step
_PENALTY = 60.0  # n k rho of the default


@register("dgc")
class DGCState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids, before : float64[n, k, d]
        Now, and at the start of the round.
    converged : bool[n]
    mass : float64[n, k, d + 1]
        The rows (S, n) of the points assigned in this round.
    """

    centroids: Floats
    before: Floats
    converged: Mask
    mass: Floats


@dataclass(frozen=True)
class DGC(MethodBase):
    r"""Assign the points to the own centroids, then take B gradient steps on own cost plus disagreement: DGC-KM_rho.

    Objective, with m points in all and L the Laplacian of the links in use::

        J_rho(X) = (1 / (2 rho m)) sum_i sum_{x of device i} min_c |x - x_ic|^2 + (1 / 2) <X, L X>

    Device i has centroids x_ic and deg_i neighbors N_i. A round begins with an assignment; S_ic and n_ic are the sum
    and the number of the own points nearest to x_ic. Then, at all devices at once::

        B times:  x_ic <- (1 - a_i (n_ic / (rho m) + deg_i)) x_ic + a_i (S_ic / (rho m) + sum_{j in N_i} x_jc)

    Clusters are paired by their number, nothing is matched. A row that is absent at one end of a link counts as if the
    link were not there, at both ends; it is never revived.

    Message: k rows x_ic (absent ones travel as +inf), in each of the B turns of a round and at the opening.

    Guarantee: J_rho never rises on links that do not change and lose nothing: with H the Hessian of J_rho for the
    labels of the round, ``1 / a_i >= n_ic / (rho m) + 2 deg_i`` makes 1 / a - H positive semidefinite, and a new
    assignment lowers J_rho, too. With the default rho every row keeps a bias, as in GTVMin.

    Departs from the paper: there, all devices take one step a < 1 / (beta / rho + lambda_max(L)), beta = max_i m_i / m,
    of which none of them knows beta or lambda_max. Here device i takes ``a_i = .9 / (m_i / (rho m) + 2 deg_i)``, from
    what it knows, with the same fixed points; 2 max deg is lambda_max on a ring of even length. `step` gives one a to
    all.

    Link weights: ignored; all links count the same.

    Privacy: no guarantee; neighbors see centroids, no counts; whoever receives those of all neighbors of a device can
    work out S_ic - n_ic x_ic.

    Parameters
    ----------
    k : int
        Number of clusters.
    rho : float, optional
        Weight of the disagreement; the paper takes 1 to 100. Default 60 / (n k), n devices: on a ring the pull of a
        link is then that of GTVMin at coupling 60.
    steps : int
        B, gradient steps per assignment, each with an exchange.
    step : float, optional
        The step a of all devices.
    init : Init or str
        How all devices get their first centroids. The paper's devices take k-means++ seeds of their own points
        (`local`), whose numbers mean nothing to others.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in a round.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    A. Armacki, D. Bajovic, D. Jakovetic, S. Kar, "Distributed center-based clustering: a unified framework", IEEE
    Transactions on Signal Processing, 2025 (arXiv:2402.01302): Algorithm 1, equation (7), Theorem 1; starts:
    A. Armacki and others, "Distributed gradient clustering: convergence and the effect of initialization",
    arXiv:2603.20507, 2026.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.DGC(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 46)
    """

    k: int
    _: KW_ONLY
    rho: float | None = None
    steps: int = 3
    step: float | None = None
    init: Init | str = "global:candidates=1"
    tol: float = 1e-5

    name: ClassVar[str] = "dgc"
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        object.__setattr__(self, "init", Init.of(self.init))
        whole(self.k, 1, "clusters")
        whole(self.steps, 1, "steps")
        positive(self.tol, "tol", zero=True)
        for name, value in (("rho", self.rho), ("step", self.step)):
            if value is not None:
                positive(value, name)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            init=self.init,
            follows_points=True,
        )

    @property
    def schedule(self) -> str:
        """Return the schedule: every device, B times a round."""
        return f"jacobi*{self.steps}"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Return all k rows in every turn."""
        return EveryTurn(self.k, known.features, absent_rows=True)

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the own points, and the rows of every neighbor."""
        return work.d * ((3 * self.k + 2) * work.sizes // self.steps + 2 * self.k * (work.neighbors + 2))

    def initial_state(self, devices: Devices, start: Any) -> DGCState:
        """Start from the centroids of the last stage."""
        asleep = np.zeros(len(devices), np.bool_)
        return DGCState(start.centroids, start.centroids, asleep, local_sums(devices, start.centroids))

    def message(self, state: DGCState, devices: Devices) -> DenseMessages:
        """Send all k rows, in their order."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: DGCState, inbox: Inbox, devices: Devices) -> DGCState:
        """Take a gradient step; after the last one of a round assign the points anew."""
        real = np.isfinite(state.centroids)
        mine = np.where(real, state.centroids, 0.0)
        differ = np.zeros_like(mine)
        for who, _, theirs in iter_neighbor_tables(devices, inbox, mine.shape[1:]):
            both = real[who] & np.isfinite(theirs)
            differ[who] += np.where(both, mine[who] - theirs, 0.0)
        scale = self.effective_rho(devices) * devices.total_weight
        gradient = (state.mass[:, :, -1:] * mine - state.mass[:, :, :-1]) / scale + differ
        centroids = np.where(real, mine - self.step_sizes(devices)[:, None, None] * gradient, np.inf)
        if devices.turn < self.steps - 1:
            return state._replace(centroids=centroids)
        converged = has_converged(centroids, state.before, self.tol * devices.data_std)
        return DGCState(centroids, centroids, converged, local_sums(devices, centroids))

    def effective_rho(self, devices: Devices) -> float:
        """Return the weight of the disagreement that is used."""
        return _PENALTY / (devices.total * self.k) if self.rho is None else self.rho

    def step_sizes(self, devices: Devices) -> Floats:
        """Return a_i of every device, float64[n]."""
        if self.step is not None:
            return np.full(len(devices), self.step)
        owner = np.repeat(np.arange(len(devices)), devices.sizes)
        own = np.bincount(owner, devices.point_weights, len(devices)) / devices.total_weight
        bound = own / self.effective_rho(devices) + 2.0 * devices.degrees
        return np.where(bound > 0.0, _SAFETY / np.where(bound > 0.0, bound, 1.0), 0.0)
