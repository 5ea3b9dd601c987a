"""GTVMin k-means (Jung 2025), the main peer-to-peer method of the package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.card import Card
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, pack, pack_some
from p2pkm.core.program_function import is_function
from p2pkm.core.protocols import MethodBase, Pipeline, RunOutline, Work
from p2pkm.core.spec import show, suggest
from p2pkm.core.states import optional, register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive, check_scalar
from p2pkm.methods.building_blocks.coupling_choice import (
    ESTIMATED,
    WEAK,
    check_coupling,
    choose_coupling,
    for_each_coupling,
    least_coupling,
    name_choices,
    optimal_relaxation,
)
from p2pkm.methods.building_blocks.gtv_objective import GTVObjective
from p2pkm.methods.building_blocks.gtvmin_steps import (
    SWAP_ATTEMPTS,
    Moved,
    Steps,
    Turn,
    adjust_by_swaps,
    adjust_to_grid,
    find_no_two_cycles,
    find_two_cycles,
    hear_all,
    hear_robustly,
    keep_weights,
    minimize_by_guarded_passes,
)
from p2pkm.methods.building_blocks.normalized_losses import weigh_equally
from p2pkm.methods.building_blocks.robust_neighbors import RULES, is_filter, least_neighbors
from p2pkm.methods.building_blocks.shares import minimize_by_choice, minimize_by_shares
from p2pkm.methods.building_blocks.small_clusters import suppress_small_clusters
from p2pkm.methods.building_blocks.total_variation import saturate_alpha
from p2pkm.methods.init.pipelines import Stage, group_stage
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.init.value import Init
from p2pkm.network.graph import Topology

# Initializations and largest number of clusters for which the default sends integers. From poor initial centroids, or
# with more clusters, the grid stops the method early: 1.0156 instead of 1.0037 at 50 clusters.
_INTEGER_INITS = ("global", "tree-summaries", "rows")
_INTEGER_CLUSTERS = 16
# Counting the bits of integers on larger graphs takes too long to be a default.
_INTEGER_DEVICES = 5_000
# Largest accepted alpha, coupling and tol. Products of three such numbers do not overflow.
_LARGEST = 1e100
# Coupling and rounds of the warm-up before the thresholds of saturating links are set.
_WARM_UP_COUPLING = 1.0
_WARM_UP_ROUNDS = 8
# Estimates of the coupling, and rounds of the method between two of them.
_ESTIMATES = 3
_INTERIM_ROUNDS = 8
KernelInputs = tuple[NDArray[Any], Floats, Integers]


@register("gtvmin")
class GTVMinState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        Current centroids, and those before the last active turn of the device.
    converged, oscillating, echo : bool[n]
        echo: the centroids equal those two rounds ago (two-cycle test). oscillating: echo in two consecutive rounds,
        because a converging alternation may pass the test in every other round.
    calm : int8[n]
        Active turns in a row without a move above tol * sqrt(total variance), at most 2.
    quiet : int8[n]
        Failed swap attempts in a row.
    edge_alpha : float64[e]
        alpha_ij of each edge, 0 for inactive links.
    edge_limit : float64[e] or None
        Threshold d0 of the total variation beyond which a link loses strength; +inf: never. None: no link saturates.
    edge_weight : float64[e] or None
        Fraction of alpha_ij that was used in the last active turn; None: 1 on all edges.
    coupling : float64[n] or None
        Coupling from the points; None if it does not depend on them.
    edge_estimated : float64[e] or None
        Weight of each link in edge_alpha; None unless the weights were estimated.
    shares : Shares or None
        Shares of the clusters at each device; None without.
    chosen : int64[n] or None
        Position of the coupling in `CHOICES`; None unless it was estimated.
    trials : Trials or None
        Candidates of ``coupling="auto"``, in the stages before the method.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    oscillating: Mask
    echo: Mask
    calm: NDArray[np.int8]
    quiet: NDArray[np.int8]
    edge_alpha: Floats
    edge_limit: Floats | None
    edge_weight: Floats | None
    coupling: Floats | None = None
    edge_estimated: Floats | None = None
    shares: Any = None
    chosen: Integers | None = None
    trials: Any = None


@dataclass(frozen=True, init=False)
class GTVMin(MethodBase):
    r"""Federated k-means by generalized total variation minimization (GTVMin).

    Each device minimizes its local k-means cost plus a penalty on the difference between its centroids and those of its
    neighbors. Strong coupling yields nearly equal centroids on all devices, weak coupling individual ones. Devices may
    start from different centroids.

    Parameters
    ----------
    k : int
        Number of clusters.
    alpha : float, optional
        Link strength in the objective, in units of point weight: if all weights are multiplied by r, multiply `alpha`
        by r. Cannot be combined with `coupling`.
    coupling : float, "auto", "strong", "bayes" or "links", optional
        Dimensionless link strength c: ``alpha_ij = c (m / n) / k / sqrt(deg_i deg_j)`` with m points and n devices. Or
        a way to choose it, see docs/explain/gtvmin.md. Default: "auto"; "strong" or a number where the run does not
        allow it, as a note says.
    schedule : {"colored", "jacobi", "async"}, default="colored"
        Devices of a turn. "colored": one color class of the graph. "jacobi": all. "async": a random set without links
        between them; with a link model, event-driven.
    relaxation : float or "auto", optional
        Relaxation factor theta; 0 < theta < 2, and theta <= 1 with "jacobi". 1 is the exact minimizer. "auto": the
        optimal factor at the coupling; 1.5 with `alpha`. Default: "auto" where the coupling is chosen from the points,
        otherwise 1.5 (1 with "jacobi" or stale or changing links).
    local_steps : int, default=1
        Passes per turn.
    star_term : bool, default=True
        Whether to use the matches of step 3 below (E3).
    matching : {"nearest", "optimal"}, default="nearest"
        Matching of the centroids of neighbors. "nearest": each centroid with the nearest one, in both directions (NC in
        [2]_). "optimal": one optimal matching per link by the Hungarian method (OT in [2]_); d(W_i, W_j) is then its
        sum of squared distances.
    normalize_losses : bool, default=False
        Whether to divide each local loss by the weight of the local points. Then `alpha` is dimensionless.
    safeguard : bool, default=False
        For "jacobi" with several passes: run them without relaxation, keep only the first if the others increase
        its majorizer, and move by the fraction `relaxation` of the way (the damping gamma of [2]_; default 1/2).
    update : {"exact", "as-printed"}, default="exact"
        "as-printed": Algorithm 1 of [1]_ without corrections.
    init : Init or str, default="global"
        Initialization; see docs/ref/initializations.md.
    groups : int, "auto" or False, default=False
        Number of groups of devices with separate clusterings; links between groups are removed. "auto": chosen at the
        root of a spanning tree.
    tol : float, default=1e-3
        A device has converged if no coordinate of its centroids moved by more than tol * sqrt(total variance) in its
        turn. With a strong coupling moves are small long before the end (see `distance_left` of the summary).
    swaps : bool, default=False
        Whether active devices try, in every fourth round, to move their least useful centroid to a centroid of a
        neighbor or to one of 8 random local points. A device stops after 3 attempts without success.
    robust : {"none", "clip", "trim", "saturate"} or callable, default="none"
        Protection from Byzantine neighbors. "clip", "trim": see `p2pkm.methods.building_blocks.robust_neighbors`.
        "saturate": links lose strength beyond a threshold of disagreement, set after 8 clipped rounds at coupling 1.
        A function takes float64[g, k, d], see docs/howto/pass-a-function.md.
    shares : bool, default=False
        Whether to assign points by the estimated shares of the clusters at their device as well, see
        docs/explain/gtvmin.md. With coupling "auto", it is chosen.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or two parameters exclude each other.

    See Also
    --------
    TreeLloyd
        Exact Lloyd steps along a spanning tree.
    ADMM
        Equal centroids as a constraint instead of a penalty.
    FKM
        Federated k-means with a server.

    Notes
    -----
    **Objective.** Equation (7) of [1]_, with the local loss L_i (6) and the generalized total variation d (4), the
    squared distances of each centroid to the nearest one of the other side, summed over both sides::

        F(W) = sum_i L_i(W_i) + sum_{links ij} alpha_ij d(W_i, W_j)

    With ``robust="saturate"`` the penalty of a link is d up to its threshold d0 and ``d0 (1 + log(d / d0))`` beyond,
    and the pass uses ``alpha_ij min(1, d0_ij / d_ij)``. With `groups` only links inside groups count.

    **Update.** One pass at device i, with the centroids of all neighbors fixed:

    1. Assign each local point to the nearest local centroid (E1): n_c points with sum S_c belong to centroid c.
    2. Match each centroid of a neighbor to the nearest local centroid (E2): U_c are those matched to c.
    3. Match each local centroid c to the nearest centroid w_{j,b_jc} of each neighbor j (E3).
    4. ``w_c <- (S_c + sum_{U_c} alpha_ij w_jc' + sum_j alpha_ij w_{j,b_jc}) / (n_c + sum_{U_c} alpha_ij + sum_j
       alpha_ij)``, relaxed: ``w + theta (w_new - w)``. A centroid with zero total weight does not move.

    **Messages.** k centroids to each neighbor, whenever the device is active.

    **Link weights.** They multiply alpha_ij.

    **Convergence.** F never increases with "colored" and "async"; with "jacobi", for one pass, or with `safeguard` and
    theta <= 1/2, without swaps. All this requires the exact update, the star term, no delays, and neither "clip" nor
    "trim". See docs/explain/proofs.md.

    **Privacy.** No guarantee. Neighbors receive the centroids of every turn. With shares, or coupling "auto", "bayes"
    or "links", they also receive mean and number of points of each local cluster. With ``init="global"`` a device
    receives centroids and counts of all devices below it in a tree.

    **Differences from the paper.** Algorithm 1 of [1]_ does not minimize (8): see docs/explain/errata.md.

    References
    ----------
    .. [1] A. Jung, "Federated k-means via generalized total variation minimization", 2025: equations (4) to (8) and
       Algorithm 1.
    .. [2] X. Yang, S. Rastelli, A. Jung, "Federated k-means over networks via generalized total variation
       minimization", 2026: optimal matching, normalized losses, damping and safeguard.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(3), shards)
    >>> round(result.summary["ratio_mean"], 3), result.summary["messages"]
    (1.0, 42)
    """

    k: int
    alpha: float | None
    coupling: float | Literal["auto", "strong", "bayes", "links"] | None
    schedule: str
    relaxation: float | Literal["auto"] | None
    local_steps: int
    star_term: bool
    matching: str
    normalize_losses: bool
    safeguard: bool
    update_rule: str
    init: Init
    groups: int | str
    tol: float
    swaps: bool
    robust: str | Callable[[Floats], Floats]
    shares: bool

    card = Card(
        "gtvmin",
        family="iterative",
        sends="centroids",
        points="few",
        line="local k-means coupled by total variation (Jung 2025)",
        paper={"alpha": 1.0, "schedule": "jacobi", "relaxation": 1.0, "init": "local"},
        source="[1], Algorithm 1, with corrections; update=as-printed removes them",
        excluded_by={"alpha": "coupling"},
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 150
    settle_from: ClassVar[tuple[str, ...]] = ("coupling", "chosen")
    # Names of the estimated couplings in `CHOICES`, and whether devices have several; set by `settle`.
    coupling_chosen: ClassVar[str | None] = None
    has_several_couplings: ClassVar[bool] = False

    def __init__(
        self, k: int, *, alpha: float | None = None,
        coupling: float | Literal["auto", "strong", "bayes", "links"] | None = None,
        schedule: Literal["colored", "jacobi", "async"] = "colored",
        relaxation: float | Literal["auto"] | None = None, local_steps: int = 1,
        star_term: bool = True, matching: Literal["nearest", "optimal"] = "nearest", normalize_losses: bool = False,
        safeguard: bool = False, update: Literal["exact", "as-printed"] = "exact",
        init: Init | str = "global", groups: int | Literal["auto"] | bool = False, tol: float = 1e-3,
        swaps: bool = False, robust: Literal["none", "clip", "trim", "saturate"] | Callable[[Floats], Floats] = "none",
        shares: bool = False,
    ) -> None:  # fmt: skip
        if groups is not False:
            from p2pkm.methods.init.tree_groups import check_groups

            groups = check_groups(groups)
        parameters = {"k": k, "alpha": alpha, "coupling": coupling, "schedule": schedule, "relaxation": relaxation,
                      "local_steps": local_steps,
                      "star_term": star_term, "matching": matching, "normalize_losses": normalize_losses,
                      "safeguard": safeguard, "update_rule": update, "init": Init.of(init),
                      "groups": groups, "tol": tol, "swaps": swaps, "robust": robust, "shares": shares}  # fmt: skip
        for name, value in parameters.items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        exact = self.star_term and self.update_rule == "exact" and not is_filter(self.robust)
        damped = self.safeguard and self.effective_relaxation() <= 0.5
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            incompatible_with={
                "suppression": self._reason_against_suppression(),
                Condition.CHANGING_LINKS: self._reason_for_static_links(),
                "quantization": self._reason_against_integers(),
            },
            robust_neighbors=least_neighbors(self.robust),
            init=self.init,
            link_weights="multiply alpha_ij",
            groups=self.groups,
            coupling_choice=self._coupling_choice,
            needs_agreed_start=bool(self._estimated),
            moves_on_grid=True,
            follows_points=not self.groups and self.robust != "saturate",
            guarantees_descent=exact
            and (self.schedule != "jacobi" or ((self.local_steps == 1 or damped) and not self.swaps)),
        )

    @property
    def objective(self) -> GTVObjective:
        """Objective (7) with the parameters of the method."""
        return GTVObjective(self)

    def initial_state(self, devices: Devices, start: Any) -> GTVMinState:
        """Start from the centroids of the last stage."""
        n = len(devices)
        none, zeros = np.zeros(n, np.bool_), np.zeros(n, np.int8)
        limit = optional(start, "edge_limit")
        # Decided by values that are equal on all ranks: a state has the same arrays everywhere, or checkpoints differ.
        has_all_links = devices.varying or not self.groups
        weight = None if limit is None and has_all_links else devices.active_edges.astype(np.float64)
        alpha = self.objective.link_alpha(devices, start)
        return GTVMinState(
            centroids=start.centroids,
            previous=start.centroids,
            converged=none,
            oscillating=none,
            echo=none,
            calm=zeros,
            quiet=zeros,
            edge_alpha=alpha,
            edge_limit=limit,
            edge_weight=weight,
            coupling=optional(start, "coupling"),
            edge_estimated=optional(start, "edge_estimated"),
            shares=optional(start, "shares"),
            chosen=optional(start, "chosen"),
        )

    def message(self, state: GTVMinState, devices: Devices) -> DenseMessages:
        """Send the centroids of the active devices."""
        if devices.active_devices.all():
            return DenseMessages(*pack(state.centroids))
        values, rows = pack_some(state.centroids, devices.active)
        return DenseMessages(values, rows, is_stable=values is state.centroids, senders=devices.active)

    def update(self, state: GTVMinState, inbox: Inbox, devices: Devices) -> GTVMinState:
        """Minimize loss and coupling at the active devices, then test for convergence and two-cycles."""
        steps = self._choose_steps()
        weight = saturate_alpha(state.edge_limit, state.edge_weight, state.centroids, inbox, devices)
        strength = (
            self.objective.link_alpha(devices, state) if devices.varying and devices.turn == 0 else state.edge_alpha
        )
        turn = Turn(
            state,
            steps.listen(self, state.centroids, inbox, devices),
            steps.weigh(devices),
            strength if weight is None else strength * weight,
            self._relax(state, devices),
        )
        moved = steps.minimize(self, turn)
        for adjust in steps.adjustments:
            moved = adjust(self, turn, moved)
        active = devices.active
        quiet_turns = state.calm.copy()
        is_quiet = moved.moves[:, 0] <= self.tol * devices.data_std
        quiet_turns[active] = np.minimum(quiet_turns[active] + np.int8(1), np.int8(2)) * is_quiet
        two_cycle = steps.find_two_cycles(turn, moved)
        return GTVMinState(
            centroids=moved.centroids,
            previous=state.previous if self._is_later_color(devices) else state.centroids,
            converged=(quiet_turns >= steps.calm_turns) & (moved.failed_swaps >= steps.failed_swaps),
            oscillating=two_cycle & state.echo,
            echo=two_cycle,
            calm=quiet_turns,
            quiet=moved.failed_swaps,
            edge_alpha=strength,
            edge_limit=state.edge_limit,
            edge_weight=weight,
            coupling=state.coupling,
            edge_estimated=state.edge_estimated,
            # A step without shares leaves those that are not used.
            shares=state.shares if moved.shares is None else moved.shares,
            chosen=state.chosen,
            trials=state.trials,
        )

    def _minimize(self, turn: Turn) -> Moved:
        """Run the passes of the docstring at the active devices."""
        inputs = suppress_small_clusters(turn.devices, turn.state.centroids)
        return self._run_kernel(turn, inputs, turn.alpha, as_printed=False)

    def _minimize_as_printed(self, turn: Turn) -> Moved:
        """Run the printed passes. They divide by at least 1, which stands for one point of mean weight."""
        unit = turn.devices.unit
        points, masses, offsets = suppress_small_clusters(turn.devices, turn.state.centroids)
        return self._run_kernel(turn, (points, masses / unit, offsets), turn.alpha / unit, as_printed=True)

    def _run_kernel(self, turn: Turn, inputs: KernelInputs, alpha: Floats, *, as_printed: bool) -> Moved:
        """Run the passes in the kernel, which writes to the array of the last color where nothing reads it again."""
        state, inbox, devices = turn.state, turn.inbox, turn.devices
        # The distance to the centroids of two rounds ago is only read by the two-cycle test of "jacobi".
        compared = state.previous if self.schedule == "jacobi" else state.centroids
        # In the first turn of a round `previous` refers to this array; a grid and swaps compare old and new centroids.
        in_place = self._is_later_color(devices) and devices.grid is None and not self.swaps
        centroids, moves = devices.kernels.gtvmin(
            *inputs, state.centroids, compared, devices.active, devices.indptr,
            inbox.tables, inbox.rows, inbox.slots, alpha, turn.theta, self.local_steps,
            self.star_term, as_printed, in_place,
        )  # fmt: skip
        return Moved(centroids, moves, state.quiet)

    def _is_later_color(self, devices: Devices) -> bool:
        """Whether other devices have already moved in this round."""
        return devices.turn > 0 and self.schedule == "colored"

    def _minimize_by_choice(self, turn: Turn) -> Moved:
        """Run the passes of the docstring with shares where they were chosen."""
        return minimize_by_choice(GTVMin._minimize, self, turn)

    def _choose_steps(self) -> Steps:
        """Choose the steps of an update."""
        return _choose_steps(
            self.schedule, self.update_rule, self.robust, self.normalize_losses,
            self.safeguard or self.matching == "optimal", self.swaps, self.shares, self.coupling == "auto",
        )  # fmt: skip

    def _relax(self, state: GTVMinState, devices: Devices) -> Floats:
        """Compute the relaxation factor of each device, float64[n], with an estimated coupling from this one."""
        if state.coupling is not None:
            return for_each_coupling(lambda coupling: self.effective_relaxation(coupling, devices), state.coupling)
        coupling = self.effective_coupling(devices.total, devices.hops)
        return np.full(len(devices), self.effective_relaxation(coupling, devices))

    def effective_relaxation(self, coupling: float | None = None, devices: Devices | None = None) -> float:
        """Compute the relaxation factor from parameter, coupling and run.

        The default is 1 for "jacobi" and for stale or varying links, where over-relaxation accumulates and may diverge.
        """
        if self.relaxation is not None and self.relaxation != "auto":
            return self.relaxation
        if self.safeguard and self.local_steps > 1:
            return 0.5
        if self.schedule == "jacobi" or (devices is not None and devices.has_stale_or_varying_links):
            return 1.0
        return 1.5 if self.relaxation is None or coupling is None else optimal_relaxation(coupling)

    @property
    def _coupling_choice(self) -> str:
        """Origin of the coupling, as in the summary: its name, usual or given."""
        if isinstance(self.coupling, str):
            return self.coupling
        return "usual" if self.coupling is None and self.alpha is None else "given"

    @property
    def _estimated(self) -> str:
        """Parameter for which stages before the method compare neighbors; empty: none."""
        if self.coupling in ESTIMATED:
            return f"coupling={self.coupling}"
        return "shares=true" if self.shares else ""

    def _reason_against_suppression(self) -> str:
        """Explain why rows of small clusters cannot be suppressed with these parameters; empty: they can."""
        if self._estimated:
            return f"with {self._estimated} sends means of small clusters, too"
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} sends centroids after passes that are not checked"
        return "with swaps=true tries local points as centroids" if self.swaps else ""

    def _reason_against_integers(self) -> str:
        """Explain why centroids cannot move on a grid with these parameters; empty: they can."""
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} continues from centroids between the grid points"
        if self.coupling == "auto":
            return "with coupling=auto may choose shares, with which it minimizes between the grid points"
        if self.shares:
            return "with shares=true minimizes between the grid points"
        return "with swaps=true moves centroids to points between the grid points" if self.swaps else ""

    def _reason_for_static_links(self) -> str:
        """Explain why links must not change with these parameters; empty: they may."""
        if isinstance(self.relaxation, float) and self.relaxation > 1.0:
            return f"uses relaxation {self.relaxation:g}, which diverges unless links last (at most 1 is possible)"
        if self._estimated:
            return f"with {self._estimated} compares neighbors before the first round"
        return "removes links between groups for the whole run" if self.groups else ""

    def flops(self, work: Work) -> Integers:
        """Count a turn: distances and sums of the local points and matches with all neighbors, in each pass."""
        matched = self.k**3 * work.neighbors if self.matching == "optimal" else 0
        distances = work.d * ((3 * self.k + 2) * work.sizes + 3 * self.k**2 * work.neighbors)
        return self.local_steps * (distances + matched)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Collect alpha, coupling, relaxation and local_steps as used in the run."""
        coupling = self.effective_coupling(devices.total, devices.hops)
        relaxation = self.effective_relaxation(coupling, devices)
        return {
            "alpha": self.alpha,
            "coupling": coupling,
            "relaxation": None if self.relaxation == "auto" and self.has_several_couplings else relaxation,
            "local_steps": self.local_steps,
            "coupling_chosen": self.coupling_chosen,
        }

    def effective_coupling(self, total: int, hops: int) -> float | None:
        """Compute the coupling on a graph of `total` devices and diameter `hops`; None if `alpha` is set.

        Couplings by name give the smallest coupling, until `configure` or `settle` replaces them by a number.
        """
        if self.alpha is not None:
            return None
        if self.coupling is not None and not isinstance(self.coupling, str):
            return self.coupling
        return WEAK if self.groups else least_coupling(total, hops)

    @property
    def preferred(self) -> Mapping[str, Any]:
        """Coupling that a run uses wherever it can: chosen from the points."""
        return {"coupling": "auto"} if self.coupling is None and self.alpha is None else {}

    def list_substitutes(self, topology: Topology) -> Mapping[str, Any]:
        """Coupling that does not depend on the points; by name until their number is known."""
        by_name = isinstance(self.coupling, str)
        return {"coupling": self.coupling if by_name else self.effective_coupling(topology.n, topology.hops)}

    def check_parameters(self) -> None:
        """Validate the parameters, as when the method is created."""
        _check(self)

    def configure(self, run: RunOutline) -> "GTVMin":
        """Fill in the defaults of coupling and relaxation, and "strong" once `run.points` are known."""
        if self.coupling in ESTIMATED:
            return self if self.relaxation is not None else self.replaced(relaxation="auto")
        if self._reason_for_plain_defaults(run):
            return self
        is_unset = self.coupling is None and self.alpha is None
        method = self.replaced(coupling="strong") if is_unset else self
        if method.coupling != "strong":
            return method
        method = method.replaced(prefers_integers=self._suits_integers(run))
        points = run.points
        if points is None:
            return method

        def choose() -> Floats:
            return np.array([choose_coupling(run.topology, points, self.k)])

        # The estimate takes several times the memory of the graph, which ranks other than 0 do without.
        coupling = choose() if run.on_root is None else run.on_root(choose)
        return method.replaced(coupling=float(coupling[0]))

    def _suits_integers(self, run: RunOutline) -> bool:
        """Tell whether messages are integers by default: with few clusters and good initial centroids.

        Otherwise the grid stops the method early, and so does the rounding towards zero of "jacobi". If small clusters
        are suppressed, the variance that the grid is chosen from would disclose them.
        """
        suits_grid = self.k <= _INTEGER_CLUSTERS and self.init.name in _INTEGER_INITS and self.schedule != "jacobi"
        return suits_grid and run.complete and run.topology.n <= _INTEGER_DEVICES

    def _reason_for_plain_defaults(self, run: RunOutline) -> str:
        """Find why this run uses 10 or 30 instead of coupling "strong", and real numbers; empty: it does not."""
        reasons = {
            "groups": bool(self.groups),
            "initial centroids are set": run.seeded,
            "devices start from different centroids": self._has_different_starts,
            "points that change": run.streamed,
            f"robust={show(self.robust)}": self.robust != "none",
            "another update": not self.star_term or self.update_rule != "exact" or self.matching != "nearest"
            or self.normalize_losses or self.safeguard,
            run.disturbed: bool(run.disturbed),
        }  # fmt: skip
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def _has_different_starts(self) -> bool:
        """Whether devices may start from different centroids."""
        return self.init.name == "local" or "hops" in dict(self.init.options)

    def stages(self, at: InitContext) -> Pipeline:
        """Create the stages of groups, thresholds of saturation, and estimates or choice of the coupling."""
        seeding: tuple[Stage, ...] | None = None
        before = list[Stage]()
        if self.groups:
            from p2pkm.methods.init.group_links import GroupLinks

            seeding = group_stage(self, at), Stage(GroupLinks.name, GroupLinks(at.k), 2)
        if self.robust == "saturate":
            from p2pkm.methods.init.saturation_thresholds import SaturationThresholds

            before.append(Stage("warmup", self.at_coupling(_WARM_UP_COUPLING), _WARM_UP_ROUNDS))
            before.append(Stage("saturation-thresholds", SaturationThresholds(at.k), 3))
        if self.coupling == "auto":
            from p2pkm.methods.init.coupling_trials import list_stages

            before += list_stages(self, at)
        elif self._estimated:
            before += self._estimating_stages(at)
        return Pipeline(seeding, tuple(before))

    def _estimating_stages(self, at: InitContext) -> list[Stage]:
        """Create the stages that estimate coupling or noise, with rounds of the method between them."""
        from p2pkm.methods.init.coupling_estimate import CouplingEstimate

        estimate = CouplingEstimate.of(self, at)
        stages = [Stage(estimate.name, estimate, 1)]
        interim = Stage(f"interim {show(self.coupling)}", self, _INTERIM_ROUNDS)
        for _ in range(_ESTIMATES - 1):
            stages += [interim, Stage(estimate.name, estimate, 1)]
        return stages

    def settle(self, found: Mapping[str, Any], topology: Topology) -> "GTVMin":
        """Replace the coupling by the one from the points in the state, if any; by the mean of several."""
        if "coupling" not in found:
            return self
        coupling, chosen = found["coupling"], found.get("chosen")
        has_several = bool((coupling != coupling[0]).any())
        value = float(np.cumsum(coupling)[-1] / len(coupling)) if has_several else float(coupling[0])
        return self.replaced(
            coupling=value,
            coupling_chosen=None if chosen is None else name_choices(chosen[topology.first_devices]),
            has_several_couplings=has_several,
        )

    def at_coupling(self, coupling: float) -> "GTVMin":
        """Create the method of a warm-up at another coupling; it clips if links saturate later."""
        robust = "clip" if self.robust == "saturate" else self.robust
        return self.replaced(coupling=coupling, alpha=None, robust=robust)


@cache
def _choose_steps(
    schedule: str, update_rule: str, robust: Any, normalized: bool, guarded: bool, swaps: bool, shares: bool,
    chosen: bool,
) -> Steps:  # fmt: skip
    """Choose the steps of an update; `guarded`: passes that the kernel does not implement; `chosen`: by a choice."""
    minimize: Callable[[Any, Turn], Moved] = GTVMin._minimize
    if guarded:
        minimize = minimize_by_guarded_passes
    elif shares:
        minimize = minimize_by_shares
    elif chosen:
        minimize = GTVMin._minimize_by_choice
    elif update_rule == "as-printed":
        minimize = GTVMin._minimize_as_printed
    return Steps(
        listen=hear_robustly if is_filter(robust) else hear_all,
        weigh=weigh_equally if normalized else keep_weights,
        minimize=minimize,
        adjustments=(adjust_to_grid, adjust_by_swaps) if swaps else (adjust_to_grid,),
        find_two_cycles=find_two_cycles if schedule == "jacobi" else find_no_two_cycles,
        # In "async" a device may be active again before any of its neighbors was, with the same inbox. So one quiet
        # turn is not enough. In the other schedules all devices are active once per round.
        calm_turns=2 if schedule == "async" else 1,
        failed_swaps=SWAP_ATTEMPTS if swaps else 0,
    )


def _check(method: GTVMin) -> None:
    """Validate the parameters.

    Raises
    ------
    ExperimentError
        If a parameter is out of range, or two parameters exclude each other.
    """
    choices = {
        "schedule": ("colored", "jacobi", "async"),
        "update_rule": ("exact", "as-printed"),
        "matching": ("nearest", "optimal"),
        "robust": ("none", "saturate", *RULES),
    }
    for name, known in choices.items():
        value = getattr(method, name)
        if name == "robust" and is_function(value):
            continue
        if check_scalar(value, name.removesuffix("_rule")) not in known:
            raise ExperimentError(f"unknown {name.removesuffix('_rule')} {value!r}. {suggest(str(value), known)}")
    _check_estimates(method)
    _check_passes(method)
    for name, label in (("k", "clusters"), ("local_steps", "local_steps")):
        check_integer(getattr(method, name), 1, label)
    _check_numbers(method)


def _check_estimates(method: GTVMin) -> None:
    """Reject couplings and shares that are found from the points, where a parameter excludes this; name only that one.

    The note of a run that cannot use its default coupling has the same reason.
    """
    changing = "--groups" if method.groups else "--robust saturate" if method.robust == "saturate" else ""
    if changing and isinstance(method.coupling, str):
        raise ExperimentError(
            f"--coupling {method.coupling} cannot be combined with {changing}, which changes the links from which the "
            "coupling is chosen. Use a number, for example --coupling 10."
        )
    starts = "--groups" if method.groups else "--init local" if method.init.name == "local" else ""
    if method._has_different_starts and not starts:
        starts = f"a limit of hops (--init {method.init})"
    if starts and method._estimated:
        raise ExperimentError(
            f"{method._estimated} cannot be combined with {starts}: neighbors are compared from initial centroids that "
            "all devices agreed on. Use a coupling with a number, without shares, or --init global without --groups."
        )
    if method.groups and method.init.name != "global":
        raise ExperimentError(
            f"--groups and --init {method.init} cannot be combined: the stage that finds groups gives the initial "
            "centroids. Remove one."
        )
    if method.shares and method.coupling == "auto":
        raise ExperimentError(
            "shares=true and coupling=auto cannot be combined: auto chooses whether shares are used. Remove shares, or "
            "use coupling=bayes, links, strong or a number."
        )
    if method.shares and method.coupling is None:
        raise ExperimentError(
            "shares=true requires coupling=bayes, links, strong or a number. Use coupling=bayes, or remove shares."
        )
    passes = {
        f"local_steps={method.local_steps}": method.local_steps > 1,
        "swaps": method.swaps,
        "safeguard": method.safeguard,
    }
    given = " and ".join(name for name, is_on in passes.items() if is_on)
    if given and method.coupling == "auto":
        raise ExperimentError(
            f"coupling=auto cannot be combined with {given}: it may choose shares, which require one exact pass per "
            f"turn. Use coupling=bayes or links, or remove {given}."
        )
    if given and method.shares:
        raise ExperimentError(
            f"shares=true cannot be combined with {given}: shares require one exact pass per turn. Remove shares or "
            f"{given}."
        )


def _check_passes(method: GTVMin) -> None:
    """Reject combinations of the options of [2] in `GTVMin` with other changes of the update."""
    variants = {"matching=optimal": method.matching == "optimal", "safeguard": method.safeguard}
    conflicts = {
        "star_term=false": not method.star_term,
        "update=as-printed": method.update_rule == "as-printed",
        "swaps": method.swaps,
        "groups": method.groups,
        f"robust={show(method.robust)}": method.robust != "none",
    }
    variant = next((name for name, is_on in variants.items() if is_on), "")
    conflict = next((name for name, is_on in conflicts.items() if is_on), "")
    if method._estimated:
        changed = {**conflicts, **variants, "normalize_losses": method.normalize_losses}
        del changed["swaps"], changed["safeguard"]
        change = next((name for name, is_on in changed.items() if is_on), "")
        if change:
            raise ExperimentError(
                f"{method._estimated} and {change} cannot be combined: neighbors are compared for the exact update and "
                f"devices that differ. Remove {change}, or use a coupling with a number, without shares."
            )
    if variant and conflict:
        raise ExperimentError(
            f"{variant} and {conflict} cannot be combined: {variant} requires the exact update without changes. Remove "
            "one."
        )
    if method.safeguard and method.schedule != "jacobi":
        raise ExperimentError(
            f"safeguard cannot be combined with --schedule {method.schedule}: there several passes never increase the "
            "objective without it. Remove safeguard, or use --schedule jacobi."
        )
    if method.normalize_losses and method.update_rule == "as-printed":
        raise ExperimentError(
            "normalize_losses and update=as-printed cannot be combined: the printed update divides by at least 1 "
            "point, but normalized weights add up to 1. Remove one."
        )


def _check_numbers(method: GTVMin) -> None:
    """Validate alpha, coupling, tol and relaxation."""
    if method.alpha is not None and method.coupling is not None:
        raise ExperimentError(
            f"alpha={method.alpha} and coupling={method.coupling} cannot be combined: alpha is the link strength of "
            "the paper, coupling its dimensionless form. Remove one."
        )
    if method.coupling is not None:
        check_coupling(method.coupling, _LARGEST)
    for name in ("alpha", "tol"):
        value = getattr(method, name)
        if value is not None:
            check_positive(value, name, zero=True, most=_LARGEST)
    if method.relaxation in (None, "auto"):
        return
    if not isinstance(method.relaxation, Real) or not 0 < method.relaxation < 2:
        raise ExperimentError(
            f"relaxation is {method.relaxation!r}; expected a number above 0 and below 2, or auto. Use --relaxation "
            "auto."
        )
    if method.schedule == "jacobi" and method.relaxation > 1:
        raise ExperimentError(
            f"relaxation is {method.relaxation!r} with the jacobi schedule; expected at most 1, otherwise the "
            "objective may increase. Use --relaxation 1 or --schedule colored."
        )
