"""Distributed gradient clustering (Armacki et al. 2025): assignments, and gradient steps towards the neighbors."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.card import Card
from p2pkm.core.expected_messages import EveryTurn, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive
from p2pkm.methods.building_blocks.averaging import add_differences, has_converged, local_sums
from p2pkm.methods.init.value import Init

# Step size relative to the bound below which the objective cannot increase.
_SAFETY = 0.9
# Default rho times n k. On a ring a link then pulls as strongly as in GTVMin with coupling 60.
_PENALTY = 60.0


@register("dgc")
class DGCState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids, before : float64[n, k, d]
        Current centroids, and those at the start of the round.
    converged : bool[n]
    mass : float64[n, k, d + 1]
        Local sums and counts (S, n) for the labels of this round.
    """

    centroids: Floats
    before: Floats
    converged: Mask
    mass: Floats


@dataclass(frozen=True)
class DGC(MethodBase):
    r"""Distributed gradient clustering (DGC-KM): local assignments and gradient steps.

    A round is an assignment of the local points and B gradient steps with these labels. Clusters are paired by their
    number.

    Parameters
    ----------
    k : int
        Number of clusters.
    rho : float, optional
        Weight of the disagreement; 1 to 100 in [1]_. Default: 60 / (n k) with n devices.
    steps : int, default=3
        Gradient steps B per assignment, each with an exchange.
    step : float, optional
        Step size a of all devices. Default: a_i as below.
    init : Init or str, default="global:candidates=1"
        Should give all devices the same centroids. The authors use `local` [2]_, whose numbering differs between
        devices.
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
        Matches the centroids of neighbors instead of pairing them by number.

    Notes
    -----
    **Objective.** J_rho of [1]_, equation (7), with m points in total and the Laplacian L of the active links::

        J_rho(X) = (1 / (2 rho m)) sum_i sum_{x of device i} min_c |x - x_ic|^2 + (1 / 2) <X, L X>

    **Update.** Device i has centroids x_ic and deg_i neighbors N_i. S_ic and n_ic are the sum and the number of the
    local points nearest to x_ic at the beginning of the round. At all devices at once::

        B times:  x_ic <- (1 - a_i (n_ic / (rho m) + deg_i)) x_ic + a_i (S_ic / (rho m) + sum_{j in N_i} x_jc)
        a_i = 0.9 / (m_i / (rho m) + 2 deg_i)

    A row that is absent at one end of a link is ignored at both ends, and is never revived.

    **Messages.** k centroids to each neighbor, in each of the B turns of a round and in the initial exchange.

    **Convergence.** J_rho never increases on static links without loss, because ``1 / a_i >= n_ic / (rho m) + 2
    deg_i``. With finite rho a bias remains in every row, as in GTVMin.

    **Privacy.** No guarantee. Neighbors receive centroids. A device that receives the centroids of device i and of
    all its neighbors can compute S_ic - n_ic x_ic.

    **Differences from the paper.** In Algorithm 1 of [1]_ all devices use one step, which depends on the Laplacian and
    on the largest device; here a_i depends on local values.

    References
    ----------
    .. [1] A. Armacki, D. Bajovic, D. Jakovetic, S. Kar, "Distributed center-based clustering: a unified framework",
       IEEE Transactions on Signal Processing, 2025 (arXiv:2402.01302): Algorithm 1, equation (7), Theorem 1.
    .. [2] A. Armacki and others, "Distributed gradient clustering: convergence and the effect of initialization",
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

    card = Card(
        "dgc",
        family="iterative",
        sends="centroids",
        points="few",
        line="distributed gradient clustering (DGC-KM)",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 150

    def __post_init__(self) -> None:
        """Validate the parameters."""
        object.__setattr__(self, "init", Init.of(self.init))
        check_integer(self.k, 1, "clusters")
        check_integer(self.steps, 1, "steps")
        check_positive(self.tol, "tol", zero=True)
        for name, value in (("rho", self.rho), ("step", self.step)):
            if value is not None:
                check_positive(value, name)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            init=self.init,
            follows_points=True,
        )

    @property
    def schedule(self) -> str:
        """Schedule: all devices are active in B turns per round."""
        return f"jacobi*{self.steps}"

    def expected_messages(self, known: Known) -> EveryTurn:
        """Count k rows per edge in every turn."""
        return EveryTurn(self.k, known.features, absent_rows=True)

    def flops(self, work: Work) -> Integers:
        """Count a turn: its share of the pass over the local points, and the rows of all neighbors."""
        return work.d * ((3 * self.k + 2) * work.sizes // self.steps + 2 * self.k * (work.neighbors + 2))

    def initial_state(self, devices: Devices, start: Any) -> DGCState:
        """Start from the centroids of the last stage."""
        converged = np.zeros(len(devices), np.bool_)
        return DGCState(start.centroids, start.centroids, converged, local_sums(devices, start.centroids))

    def message(self, state: DGCState, devices: Devices) -> DenseMessages:
        """Send all k rows, in their order."""
        return DenseMessages(state.centroids, np.where(devices.active_devices, self.k, -1))

    def update(self, state: DGCState, inbox: Inbox, devices: Devices) -> DGCState:
        """Take a gradient step; after the last step of a round assign the points again."""
        present = np.isfinite(state.centroids)
        local_centroids = np.where(present, state.centroids, 0.0)
        # Local minus received: weight -1.
        disagreement, _ = add_differences(
            devices, inbox, np.zeros_like(local_centroids), state.centroids, np.full(len(devices.indices), -1.0)
        )
        scale = self.effective_rho(devices) * devices.total_weight
        gradient = (state.mass[:, :, -1:] * local_centroids - state.mass[:, :, :-1]) / scale + disagreement
        step_sizes = self.step_sizes(devices)[:, None, None]
        centroids = np.where(present, local_centroids - step_sizes * gradient, np.inf)
        if devices.turn < self.steps - 1:
            return state._replace(centroids=centroids)
        converged = has_converged(centroids, state.before, self.tol * devices.data_std)
        return DGCState(centroids, centroids, converged, local_sums(devices, centroids))

    def effective_rho(self, devices: Devices) -> float:
        """Compute rho, or its default for this number of devices."""
        return _PENALTY / (devices.total * self.k) if self.rho is None else self.rho

    def step_sizes(self, devices: Devices) -> Floats:
        """Compute the step size a_i of each device, float64[n]."""
        if self.step is not None:
            return np.full(len(devices), self.step)
        owner = np.repeat(np.arange(len(devices)), devices.sizes)
        weight_shares = np.bincount(owner, devices.point_weights, len(devices)) / devices.total_weight
        bound = weight_shares / self.effective_rho(devices) + 2.0 * devices.degrees
        return np.where(bound > 0.0, _SAFETY / np.where(bound > 0.0, bound, 1.0), 0.0)
