"""GTVMin k-means (Jung 2025), the main peer-to-peer method of the package."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, pack, pack_some, share_equal
from p2pkm.core.protocols import MethodBase, Pipeline, PointCount, RunOutline, Work
from p2pkm.core.spec import suggest
from p2pkm.core.states import optional, register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import check_integer, check_positive, check_scalar
from p2pkm.methods.building_blocks.averaging import max_moves
from p2pkm.methods.building_blocks.centroid_swaps import swap_centroids
from p2pkm.methods.building_blocks.coupling_choice import (
    WEAK,
    calibration_obstacle,
    check_calibration,
    choose_coupling,
    least_coupling,
    optimal_relaxation,
)
from p2pkm.methods.building_blocks.gtv_objective import GTVObjective
from p2pkm.methods.building_blocks.guarded_passes import PassRule, run_passes
from p2pkm.methods.building_blocks.normalized_losses import weigh_equally
from p2pkm.methods.building_blocks.quantization import move_on_grid
from p2pkm.methods.building_blocks.robust_neighbors import LEAST, RULES, robust_filter
from p2pkm.methods.building_blocks.small_clusters import suppress_small_clusters
from p2pkm.methods.building_blocks.total_variation import saturate_alpha
from p2pkm.methods.init.pipelines import Stage, group_stage
from p2pkm.methods.init.registry import InitContext, bounded_spanning_tree
from p2pkm.methods.init.value import Init

# Initializations and largest number of clusters for which the default sends integers. From poor initial centroids, or
# with more clusters, the grid stops the method early: 1.0156 instead of 1.0037 at 50 clusters
# (docs/results/log/methods.md, "The default, and a coupling that suits the graph").
_INTEGER_INITS = ("global", "tree-summaries", "rows")
_INTEGER_CLUSTERS = 16
# Largest accepted alpha, coupling and tol. Products of three such numbers do not overflow.
_LARGEST = 1e100
# Rounds between two attempts to swap a centroid, and failed attempts in a row after which a device stops.
_SWAP_INTERVAL = 4
_SWAP_ATTEMPTS = 3
# Coupling and rounds of the warm-up before the thresholds of saturating links are set.
_WARM_UP_COUPLING = 1.0
_WARM_UP_ROUNDS = 8
_NO_STREAM = (
    "accept=true: the acceptance test compares the final with the initial centroids on the same points. Remove one"
)
# Two-cycle test: distance to the centroids two rounds ago, relative to the last move.
_TWO_CYCLE = 1e-3


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
    start : float64[n, k, d] or None
        Initial centroids for the acceptance test; None without a test.
    rehearsed : float64[n, 2] or None
        Calibrated coupling, and the excess expected at it; None if the coupling was not calibrated.
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
    start: Floats | None = None
    rehearsed: Floats | None = None


@dataclass(frozen=True, init=False)
class GTVMin(MethodBase):
    r"""Federated k-means by generalized total variation minimization (GTVMin).

    Each device minimizes its local k-means cost plus a penalty on the difference between its centroids and those of its
    neighbors. Strong coupling yields nearly equal centroids on all devices, weak coupling individual ones. Centroids of
    neighbors are matched by distance, so devices may start from different centroids. A server is not required.

    Parameters
    ----------
    k : int
        Number of clusters.
    alpha : float, optional
        Link strength in the objective, in units of point weight: if all weights are multiplied by r, multiply `alpha`
        by r. Cannot be combined with `coupling`.
    coupling : float, "auto" or "rehearsal", optional
        Dimensionless link strength c: ``alpha_ij = c (m / n) / k / sqrt(deg_i deg_j)`` with m points and n devices.

        * "rehearsal": calibrated before the first round from sums at the root of a spanning tree, where this method is
          solved for all devices; at most 5,000 devices. See `p2pkm.methods.init.rehearsal`.
        * "auto": from graph and number of points, without messages: the smallest value of 10, 30, 100, 300, ... for
          which the predicted excess from sampling noise is at most 0.001; at least 30 from 10 devices or a diameter of
          8. See `p2pkm.methods.building_blocks.coupling_choice`.

        For the default see `accept`.
    schedule : {"colored", "jacobi", "async"}, default="colored"
        Order of updates. "colored": one color class of the graph per turn. "jacobi": all devices at once. "async": a
        random set of devices without links between them, one turn per round; with a link model, event-driven.
    relaxation : float or "auto", optional
        Relaxation factor theta; 0 < theta < 2, and theta <= 1 with "jacobi". 1 is the exact minimizer. "auto": the
        optimal factor for the slowest mode at coupling c, ``2 / (1 + sqrt(1 - rho^2))`` with ``rho = 2c / (1 + 2c)``;
        1.5 with `alpha`. For the default see `accept`.
    local_steps : int, default=1
        Passes per turn.
    star_term : bool, default=True
        Whether matches of kind E3 (below) count.
    matching : {"nearest", "optimal"}, default="nearest"
        Matching of the centroids of neighbors. "nearest": each centroid with the nearest one, in both directions (NC in
        [2]_). "optimal": one optimal matching per link by the Hungarian method (OT in [2]_); d(W_i, W_j) is then its
        sum of squared distances.
    normalize_losses : bool, default=False
        Whether to divide each local loss by the weight of the local points. Then `alpha` is dimensionless, and a
        coupling uses 1 instead of m / n.
    safeguard : bool, default=False
        For "jacobi" with several passes: run them without relaxation, and keep their result only if it does not
        increase the majorizer of the first pass; otherwise keep the first pass. Then move by the fraction `relaxation`
        of the way (the damping gamma of [2]_; default 1/2).
    update : {"exact", "as-printed"}, default="exact"
        "as-printed": Algorithm 1 of [1]_ without corrections.
    init : Init or str, default="global"
        Initialization. "global" sends summaries of all devices up a spanning tree and chooses among 5 candidates. It
        floods the graph instead if messages are changed, late or lost, or if links change.
    groups : int, "auto" or False, default=False
        Number of groups of devices with separate clusterings; links between groups are removed. "auto": chosen at the
        root of a spanning tree. See `p2pkm.methods.init.tree_groups`.
    tol : float, default=1e-3
        Convergence tolerance. A device has converged if no coordinate of its centroids moved by more than
        tol * sqrt(total variance) in its turn. At strong coupling moves are small long before the end: see
        `distance_left` of the summary.
    swaps : bool, default=False
        Whether active devices try, in every fourth round, to move their least useful centroid to a centroid of a
        neighbor or to one of 8 random local points. A device stops after 3 attempts without success.
    robust : {"none", "clip", "trim", "saturate"}, default="none"
        Protection from Byzantine neighbors. "clip", "trim": see `p2pkm.methods.building_blocks.robust_neighbors`.
        "saturate": links lose strength beyond a threshold of disagreement, set after 8 clipped rounds at coupling 1.
    accept : bool, optional
        Whether to run an acceptance test after the last round: all devices return to the initial centroids if these
        have the lower pooled cost. See `p2pkm.methods.init.accept_test`. Requires initial centroids that all devices
        agreed on.

        Defaults of `coupling`, `relaxation` and `accept`: "rehearsal", "auto" and True if devices start from common
        initial centroids, messages and links are unchanged, and the update is exact; coupling is "auto" on several
        components, above 5,000 devices and with `min_cluster_size`. Otherwise 10 (30 from 10 devices or a diameter of
        8), 1.5 (1 with "jacobi" or stale or changing links) and False. See docs/explain/gtvmin.md.

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
    **Objective.** Equation (7) of [1]_, with the local loss L_i (6) and the generalized total variation d (4), which
    sums over both sides the squared distance of each centroid to the nearest one of the other side::

        F(W) = sum_i L_i(W_i) + sum_{links ij} alpha_ij d(W_i, W_j)

    With ``robust="saturate"`` the penalty of a link is phi(d) = d up to its threshold d0 and ``d0 (1 + log(d / d0))``
    beyond. With `groups` only links inside groups count.

    **Update.** One pass at device i, with the centroids of all neighbors fixed:

    1. Assign each local point to the nearest local centroid (E1): n_c points with sum S_c belong to centroid c.
    2. Match each centroid of a neighbor to the nearest local centroid (E2): U_c are those matched to c.
    3. Match each local centroid c to the nearest centroid w_{j,b_jc} of each neighbor j (E3).
    4. ``w_c <- (S_c + sum_{U_c} alpha_ij w_jc' + sum_j alpha_ij w_{j,b_jc}) / (n_c + sum_{U_c} alpha_ij + sum_j
       alpha_ij)``, relaxed: ``w + theta (w_new - w)``. A centroid with zero total weight does not move.

    With ``robust="saturate"`` the pass uses ``alpha_ij min(1, d0_ij / d_ij)``, the slope of phi at the received
    centroids.

    **Messages.** k centroids to each neighbor, whenever the device is active.

    **Link weights.** They multiply alpha_ij.

    **Convergence.** F never increases with "colored" and "async" for 0 < theta < 2 and any number of passes, with or
    without swaps. With "jacobi" it never increases for one pass and theta <= 1, or for any number of passes with
    `safeguard` and theta <= 1/2, without swaps. All this requires the exact update, the star term, no delays, and
    neither "clip" nor "trim". See docs/explain/proofs.md.

    **Privacy.** No guarantee. Neighbors receive the centroids of every turn. In ``init="global"`` and in the
    calibration of the coupling, a device receives centroids and counts of all devices below it in a tree. With `groups`
    it also receives the squared error of each row.

    **Differences from the paper.** Algorithm 1 of [1]_ lacks alpha in the numerator (line 21) and divides by at least 1
    (line 23), so it does not minimize (8).

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
    (1.0, 40)
    """

    k: int
    alpha: float | None
    coupling: float | Literal["auto", "rehearsal"] | None
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
    robust: str
    accept: bool | None

    name: ClassVar[str] = "gtvmin"
    default_rounds: ClassVar[int] = 150

    def __init__(  # noqa: PLR0913 - the public signature
        self, k: int, *, alpha: float | None = None, coupling: float | Literal["auto", "rehearsal"] | None = None,
        schedule: Literal["colored", "jacobi", "async"] = "colored",
        relaxation: float | Literal["auto"] | None = None, local_steps: int = 1,
        star_term: bool = True, matching: Literal["nearest", "optimal"] = "nearest", normalize_losses: bool = False,
        safeguard: bool = False, update: Literal["exact", "as-printed"] = "exact",
        init: Init | str = "global", groups: int | Literal["auto"] | bool = False, tol: float = 1e-3,
        swaps: bool = False, robust: Literal["none", "clip", "trim", "saturate"] = "none",
        accept: bool | None = None,
    ) -> None:  # fmt: skip
        if groups is not False:
            from p2pkm.methods.init.tree_groups import check_groups

            groups = check_groups(groups)
        parameters = {"k": k, "alpha": alpha, "coupling": coupling, "schedule": schedule, "relaxation": relaxation,
                      "local_steps": local_steps,
                      "star_term": star_term, "matching": matching, "normalize_losses": normalize_losses,
                      "safeguard": safeguard, "update_rule": update, "init": Init.of(init),
                      "groups": groups, "tol": tol, "swaps": swaps, "robust": robust, "accept": accept}  # fmt: skip
        for name, value in parameters.items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        exact = self.star_term and self.update_rule == "exact" and self.robust not in RULES
        damped = self.safeguard and self.effective_relaxation() <= 0.5
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            no_suppression=self._reason_against_suppression(),
            needs_static_links=self._reason_for_static_links(),
            robust_neighbors=LEAST.get(self.robust, 0),
            init=self.init,
            link_weights="multiply alpha_ij",
            groups=self.groups,
            relaxation=None if self.relaxation == "auto" else self.relaxation,
            coupling_choice=self._coupling_choice,
            needs_agreed_start=bool(self.accept) or self.coupling == "rehearsal",
            no_stream=_NO_STREAM if self.accept else "",
            moves_on_grid=True,
            follows_points=not self.groups and self.robust != "saturate",
            no_quantization=self._reason_against_integers(),
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
        # Read by the acceptance test only. Initial stages along a tree end with equal centroids on all devices.
        initial_centroids = share_equal(start.centroids) if self.accept else None
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
            start=initial_centroids,
            rehearsed=optional(start, "rehearsed"),
        )

    def message(self, state: GTVMinState, devices: Devices) -> DenseMessages:
        """Send the centroids of the active devices."""
        if devices.active_devices.all():
            return DenseMessages(*pack(state.centroids))
        values, rows = pack_some(state.centroids, devices.active)
        return DenseMessages(values, rows, is_stable=values is state.centroids, senders=devices.active)

    def update(self, state: GTVMinState, inbox: Inbox, devices: Devices) -> GTVMinState:
        """Run the passes of the active devices, then test for convergence and two-cycles."""
        weight = saturate_alpha(state.edge_limit, state.edge_weight, state.centroids, inbox, devices)
        strength = (
            self.objective.link_alpha(devices, state) if devices.varying and devices.turn == 0 else state.edge_alpha
        )
        alpha = strength if weight is None else strength * weight
        if self.robust in RULES:
            inbox = robust_filter(self.robust, state.centroids, inbox, devices)
        coupling = self.settle(state).effective_coupling(devices.total, devices.hops)
        relaxation = self.effective_relaxation(coupling, devices)
        # On a grid the update computes the exact minimizer; `move_on_grid` then applies the relaxation in whole steps.
        theta = relaxation if devices.grid is None else 1.0
        weighted = weigh_equally(devices) if self.normalize_losses else devices
        active = devices.active
        is_later_color = devices.turn > 0 and self.schedule == "colored"
        if self.safeguard or self.matching == "optimal":
            rule = PassRule(self.matching == "optimal", theta, self.local_steps, self.safeguard)
            centroids, moves = run_passes(weighted, state.centroids, state.previous, inbox, alpha, rule)
            moves = moves[active]
        else:
            points, masses, offsets = suppress_small_clusters(weighted, state.centroids)
            if self.update_rule == "as-printed":
                # The printed update divides by at least 1, which stands for one point of mean weight.
                masses, alpha = masses / devices.unit, alpha / devices.unit
            # The kernel may overwrite the array of centroids only if nothing else reads the old values. In the first
            # turn of a round `previous` refers to this array; a grid and swaps compare old and new centroids below.
            in_place = is_later_color and devices.grid is None and not self.swaps
            # The distance to the centroids of two rounds ago is only read by `_find_two_cycles`.
            centroids, moves = devices.kernels.gtvmin(
                points, masses, offsets, state.centroids,
                state.previous if self.schedule == "jacobi" else state.centroids, active, devices.indptr,
                inbox.tables, inbox.rows, inbox.slots, alpha, theta, self.local_steps,
                self.star_term, self.update_rule == "as-printed", in_place,
            )  # fmt: skip
        if devices.grid is not None:
            within = self.schedule == "jacobi"
            centroids, grid_moves = move_on_grid(devices, state.centroids, centroids, relaxation, within=within)
            moves[:, 0] = grid_moves[active]
        failed_swaps = state.quiet
        if self.swaps and devices.round % _SWAP_INTERVAL == 0:
            candidates = devices.active_devices & (failed_swaps < _SWAP_ATTEMPTS)
            centroids, swapped = swap_centroids(weighted, centroids, inbox, alpha, candidates)
            failed_swaps = np.where(swapped, 0, failed_swaps + candidates).astype(np.int8)
            moves[swapped[active], 0] = max_moves(centroids[swapped], state.centroids[swapped])
        quiet_turns = state.calm.copy()
        is_quiet = moves[:, 0] <= self.tol * devices.data_std
        quiet_turns[active] = np.minimum(quiet_turns[active] + np.int8(1), np.int8(2)) * is_quiet
        # In "async" a device may be active again before any of its neighbors was, with the same inbox. So one quiet
        # turn is not enough. In the other schedules all devices are active once per round.
        converged = quiet_turns >= (2 if self.schedule == "async" else 1)
        if self.swaps:
            converged &= failed_swaps >= _SWAP_ATTEMPTS
        two_cycle = self._find_two_cycles(state, moves, active)
        previous = state.previous if is_later_color else state.centroids
        return GTVMinState(
            centroids=centroids,
            previous=previous,
            converged=converged,
            oscillating=two_cycle & state.echo,
            echo=two_cycle,
            calm=quiet_turns,
            quiet=failed_swaps,
            edge_alpha=strength,
            edge_limit=state.edge_limit,
            edge_weight=weight,
            start=state.start,
            rehearsed=state.rehearsed,
        )

    def _find_two_cycles(self, state: GTVMinState, moves: Floats, active: Integers) -> Mask:
        """Find the devices whose centroids equal those two rounds ago, bool[n]; only "jacobi" can alternate."""
        if self.schedule != "jacobi":
            return state.echo
        two_cycle = np.ones(len(state.echo), np.bool_)
        two_cycle[active] = moves[:, 1] <= _TWO_CYCLE * moves[:, 0]
        return two_cycle

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
        """Origin of the coupling, as in the summary: auto, rehearsal, usual or given."""
        if isinstance(self.coupling, str):
            return self.coupling
        return "usual" if self.coupling is None and self.alpha is None else "given"

    def _reason_against_suppression(self) -> str:
        """Explain why rows of small clusters cannot be suppressed with these parameters; empty: they can."""
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} sends centroids after passes that are not checked"
        return "with swaps tries local points as centroids" if self.swaps else ""

    def _reason_against_integers(self) -> str:
        """Explain why centroids cannot move on a grid with these parameters; empty: they can."""
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} continues from centroids between the grid points"
        return "with swaps moves centroids to points between the grid points" if self.swaps else ""

    def _reason_for_static_links(self) -> str:
        """Explain why links must not change with these parameters; empty: they may."""
        if isinstance(self.relaxation, float) and self.relaxation > 1.0:
            return f"uses relaxation {self.relaxation:g}, which diverges unless links last (at most 1 is possible)"
        return "removes links between groups for the whole run" if self.groups else ""

    def flops(self, work: Work) -> Integers:
        """Count a turn: distances and sums of the local points and matches with all neighbors, in each pass."""
        matched = self.k**3 * work.neighbors if self.matching == "optimal" else 0
        distances = work.d * ((3 * self.k + 2) * work.sizes + 3 * self.k**2 * work.neighbors)
        return self.local_steps * (distances + matched)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Collect alpha, coupling, relaxation and local_steps as used in the run."""
        coupling = self.effective_coupling(devices.total, devices.hops)
        return {
            "alpha": self.alpha,
            "coupling": coupling,
            "relaxation": self.effective_relaxation(coupling, devices),
            "local_steps": self.local_steps,
        }

    def effective_coupling(self, total: int, hops: int) -> float | None:
        """Compute the coupling on a graph of `total` devices and diameter `hops`; None if `alpha` is set.

        "auto" and "rehearsal" give the smallest coupling, until `configure` or `settle` replaces them by a number.
        """
        if self.alpha is not None:
            return None
        if self.coupling is not None and not isinstance(self.coupling, str):
            return self.coupling
        return WEAK if self.groups else least_coupling(total, hops)

    def configure(self, run: RunOutline) -> "GTVMin":
        """Fill in the defaults of coupling, relaxation and acceptance test, and "auto" once `run.points` are known.

        Messages are integers by default if the coupling can be calibrated, with few clusters and good initial
        centroids. Otherwise the grid stops the method early, and so does the rounding towards zero of "jacobi". If
        small clusters are suppressed, the variance that the grid is chosen from would disclose them. On very large
        graphs counting the bits takes too long.
        """
        if not self._reason_for_plain_defaults(run):
            calibrates = _can_calibrate(run)
            defaults = {"coupling": "rehearsal" if calibrates else "auto", "relaxation": "auto", "accept": True}
            unset = {name: value for name, value in defaults.items() if vars(self)[name] is None}
            suits_grid = self.k <= _INTEGER_CLUSTERS and self.init.name in _INTEGER_INITS and self.schedule != "jacobi"
            return self.replaced(prefers_integers=calibrates and suits_grid, **unset).configure(run)
        if run.points is None or self.coupling != "auto":
            return self
        return self.replaced(coupling=choose_coupling(run.topology, run.points, self.k))

    def _reason_for_plain_defaults(self, run: RunOutline) -> str:
        """Find why this run uses the simple defaults without calibration and acceptance test; empty: it does not."""
        reasons = {
            "alpha or coupling is set": self.alpha is not None or self.coupling is not None,
            "groups": bool(self.groups),
            "initial centroids are set": run.seeded,
            "devices start from different centroids": self._has_different_starts,
            "points that change": run.streamed,
            f"robust={self.robust}": self.robust != "none",
            "another update": not self.star_term or self.update_rule != "exact" or self.matching != "nearest"
            or self.normalize_losses or self.safeguard,
            run.disturbed: bool(run.disturbed),
        }  # fmt: skip
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def _has_different_starts(self) -> bool:
        """Whether devices may start from different centroids."""
        return self.init.name == "local" or "hops" in dict(self.init.options)

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a calibrated coupling on a graph that is too large or disconnected."""
        if self.coupling == "rehearsal":
            check_calibration(run.topology)

    def stages(self, at: InitContext) -> Pipeline:
        """Create the stages of groups, thresholds of saturation, calibration of the coupling and acceptance test."""
        seeding: tuple[Stage, ...] | None = None
        before, after = list[Stage](), list[Stage]()
        if self.groups:
            from p2pkm.methods.init.group_links import GroupLinks

            seeding = group_stage(self, at), Stage(GroupLinks.name, GroupLinks(at.k), 2)
        if self.robust == "saturate":
            from p2pkm.methods.init.saturation_thresholds import SaturationThresholds

            before.append(Stage("warmup", self.at_coupling(_WARM_UP_COUPLING), _WARM_UP_ROUNDS))
            before.append(Stage("saturation-thresholds", SaturationThresholds(at.k), 3))
        if self.coupling == "rehearsal":
            from p2pkm.methods.init.rehearsal import CouplingCalibration

            bounded_spanning_tree(at.topology)
            before.append(Stage(CouplingCalibration.name, CouplingCalibration.on_graph(at.k, at.topology), 1))
        if self.accept:
            from p2pkm.methods.init.accept_test import AcceptTest

            bounded_spanning_tree(at.topology)
            test = AcceptTest.after(self, at.topology)
            after.append(Stage(AcceptTest.name, test, 1, all_links=True, after=True))
        return Pipeline(seeding, tuple(before), tuple(after))

    def settle(self, state: Any) -> "GTVMin":
        """Replace the coupling by the calibrated coupling in the state, if any."""
        calibrated = optional(state, "rehearsed")
        return self if calibrated is None or not len(calibrated) else self.replaced(coupling=float(calibrated[0, 0]))

    def at_coupling(self, coupling: float) -> "GTVMin":
        """Create the method of a warm-up at another coupling; it clips if links saturate later."""
        robust = "clip" if self.robust == "saturate" else self.robust
        return self.replaced(coupling=coupling, alpha=None, robust=robust, accept=False)


def _can_calibrate(run: RunOutline) -> bool:
    """Tell whether the coupling can be calibrated on this graph, from rows of all devices."""
    return run.complete and not calibration_obstacle(run.topology)


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
        if check_scalar(value, name.removesuffix("_rule")) not in known:
            raise ExperimentError(f"unknown {name.removesuffix('_rule')} {value!r}. {suggest(str(value), known)}")
    if (method.groups or method.robust == "saturate") and isinstance(method.coupling, str):
        raise ExperimentError(
            f"--coupling {method.coupling} cannot be combined with --groups or --robust saturate: these change the "
            "links from which the coupling is chosen. Use a number, for example --coupling 10."
        )
    if (method.groups or method._has_different_starts) and (method.accept or method.coupling == "rehearsal"):
        raise ExperimentError(
            "--accept and --coupling rehearsal cannot be combined with --groups, --init local or a limit of hops: they "
            "require initial centroids that all devices agreed on. Remove them, or use --init global without --groups."
        )
    if method.groups and method.init.name != "global":
        raise ExperimentError(
            f"--groups and --init {method.init} cannot be combined: the stage that finds groups gives the initial "
            "centroids. Remove one."
        )
    _check_passes(method)
    for name, label in (("k", "clusters"), ("local_steps", "local_steps")):
        check_integer(getattr(method, name), 1, label)
    _check_numbers(method)


def _check_passes(method: GTVMin) -> None:
    """Reject combinations of the options of [2] in `GTVMin` with other changes of the update."""
    variants = {"matching=optimal": method.matching == "optimal", "safeguard": method.safeguard}
    conflicts = {
        "star_term=false": not method.star_term,
        "update=as-printed": method.update_rule == "as-printed",
        "swaps": method.swaps,
        "groups": method.groups,
        f"robust={method.robust}": method.robust != "none",
    }
    variant = next((name for name, is_on in variants.items() if is_on), "")
    conflict = next((name for name, is_on in conflicts.items() if is_on), "")
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
    for name in ("alpha", "coupling", "tol"):
        value = getattr(method, name)
        if value is not None and (name != "coupling" or value not in {"auto", "rehearsal"}):
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
