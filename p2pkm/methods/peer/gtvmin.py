"""GTVMin k-means (Jung 2025): the peer-to-peer method that the simulator is built around."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, pack, pack_some
from p2pkm.core.protocols import MethodBase, Pipeline, PointCount, RunOutline, Work
from p2pkm.core.spec import suggest
from p2pkm.core.states import optional, register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, single, whole
from p2pkm.methods.building_blocks.averaging import find_moves
from p2pkm.methods.building_blocks.centroid_swaps import swap
from p2pkm.methods.building_blocks.coupling_choice import (
    WEAK,
    check_rehearsal,
    choose_coupling,
    least_coupling,
    relax,
    why_no_rehearsal,
)
from p2pkm.methods.building_blocks.gtv_objective import GTVObjective
from p2pkm.methods.building_blocks.guarded_passes import PassRule, run_passes
from p2pkm.methods.building_blocks.normalized_losses import weigh_equally
from p2pkm.methods.building_blocks.quantization import move_on_grid
from p2pkm.methods.building_blocks.robust_neighbors import LEAST, RULES, robust_filter
from p2pkm.methods.building_blocks.small_clusters import suppress_small_clusters
from p2pkm.methods.building_blocks.total_variation import saturate_alpha
from p2pkm.methods.init.pipelines import Stage, group_stage
from p2pkm.methods.init.registry import InitContext, grow_shallow
from p2pkm.methods.init.tree_groups import check_groups
from p2pkm.methods.init.value import Init

_GOOD = ("global", "tree-summaries", "rows")  # starts that integers do as well from
_FEW = 16  # clusters up to which integers were measured to do no harm
_LARGEST = 1e100  # of a strength
_EVERY, _TRIES = 4, 3  # rounds from one attempt at a swap to the next; in vain, before a device gives up
_WARM, _WARMING = 1.0, 8  # coupling and sweeps before the limits of the links are fixed
_NO_STREAM = "accept are both given; the accept test compares the end with the start on the same points"
_ECHO = 1e-3  # oscillating: the way back to the round before last, relative to the last move


@register("gtvmin")
class GTVMinState(NamedTuple):
    """The state of a batch.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        Now, and before the last turn awake.
    converged, oscillating, echo : bool[n]
        Echo: back at the centroids of the round before last; oscillating: so in two rounds running, because an
        alternation that converges may look like one in every other round.
    calm : int8[n]
        Turns awake in a row without a move of more than tol x scale, counted up to 2.
    quiet : int8[n]
        Swaps tried in a row without success.
    edge_alpha : float64[e]
        Strength of each own link, 0 where it is not in use.
    edge_limit : float64[e] or None
        Variation d0 from which on it gives way; +inf: never. None: no link ever does.
    edge_weight : float64[e] or None
        Share of the strength that was left at the own last turn; None: all of it, everywhere.
    start : float64[n, k, d] or None
        What an accept test is to compare with; None: there is none.
    rehearsed : float64[n, 2] or None
        Coupling, and the excess expected with it; None: it was not rehearsed.
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
    r"""Minimize the k-means cost of every device plus the disagreement of neighbors.

    Objective, equation (7) of Jung 2025::

        F(W) = sum_i L_i(W_i) + sum_{links ij} alpha_ij d(W_i, W_j)

    with the local loss L_i (6) and the generalized total variation d (4): each centroid to the nearest one of the
    other side, summed over both sides. One pass at device i, all neighbors W_j held fixed:

    * E1: each own point takes its nearest own centroid; n_c of them with sum S_c take centroid c.
    * E2: each neighbor's centroid w_jc' takes the nearest own centroid; U_c are those that take c.
    * E3: each own centroid c takes the nearest centroid w_{j,b_jc} of each neighbor (the term marked with a star).
    * M: ``w_c <- (S_c + sum_{U_c} alpha_ij w_jc' + sum_j alpha_ij w_{j,b_jc}) / (n_c + sum_{U_c} alpha_ij +
      sum_j alpha_ij)``, relaxed by theta (`relaxation`): ``w + theta (w_new - w)``. A centroid without any weight
      stays.

    Message: the k centroids, once per turn awake.

    Link weights: they multiply alpha_ij.

    Privacy: no guarantee; neighbors see the centroids of every turn; init `global` and a rehearsal before it show a
    device centroids and counts of all devices below it in a tree, `groups` rows (mean, count, SSE) of these, see
    `p2pkm.methods.init.tree_groups`.

    Guarantee: F never rises for `colored` and `async` (theta in (0, 2), any number of passes, with swaps or without)
    and for `jacobi` (one pass and theta in (0, 1], or any number of passes with `safeguard` and theta in (0, 1/2]; no
    swaps) with the exact update and the star term, without delays.

    With ``robust="saturate"`` links give way. In every turn the awake device takes ``alpha_ij min(1, d0_ij / d_ij)``,
    d_ij the link's variation as it has just received it, d0_ij fixed before. That is the slope of the concave phi(d) =
    d up to d0, ``d0 (1 + log(d / d0))`` beyond, so ``sum_i L_i + sum alpha_ij phi(d_ij)``, the objective then, never
    rises either. With `groups` only links inside groups are in use, and in the objective.

    Departs from the paper: Algorithm 1 as printed lacks alpha in the numerator (line 21) and divides by at least 1
    (line 23), so it does not minimize (8); ``update="as-printed"`` keeps it for comparison.

    Parameters
    ----------
    k : int
        Number of clusters.
    alpha : float, optional
        Strength of every link, as in the paper. It is in the unit of the weights: whoever multiplies these by r
        multiplies it, too; a coupling stays.
    coupling : float, "auto" or "rehearsal", optional
        Dimensionless: ``alpha_ij = coupling (m / n) / k / sqrt(deg_i deg_j)`` with m points and n devices in all.
        Edge weights multiply either; for the default see `accept`. ``auto``: at least 10, 30 from 10 devices or a
        diameter of 8 on, and as much as the graph needs: the smallest of 30, 100, 300, ... at which noise of the
        devices' points is expected to raise the cost by at most .001 (see
        `p2pkm.methods.building_blocks.coupling_choice`). ``rehearsal``: the smallest of these with which this method's
        equations, solved once for the devices' own sums at the root of a tree, end close to the pooled means (see
        `p2pkm.methods.init.rehearsal`); up to 5,000 devices.
    schedule : {"colored", "jacobi", "async"}
    relaxation : float or "auto", optional
        For the default see `accept`. ``auto``: the optimal one of the slowest mode at the coupling c, ``2 / (1 +
        sqrt(1 - rho^2))`` with ``rho = 2c / (1 + 2c)``; 1 where the default is 1, 1.5 with a raw alpha.
    local_steps : int
        Passes per turn.
    star_term : bool
        Whether E3 counts.
    matching : {"nearest", "optimal"}
        How rows of neighbors are paired: every row with the nearest one, both ways (E2, E3), or by one optimal matching
        of the rows per link (Hungarian method) instead, whose least sum of squared distances is d(W_i, W_j) then. The
        couplings NC and OT of Yang, Rastelli and Jung (2026).
    normalize_losses : bool
        Whether the loss of a device is divided by the weight of its points: ``L_i / m_i``, the mean instead of the sum.
        A raw `alpha` is then in no unit of weight, and a coupling takes 1 for m / n.
    safeguard : bool
        For jacobi: run the passes without relaxation and keep their outcome only if the objective with the choices of
        the first pass does not rise by it, else take the first pass; then go the share `relaxation` of the way (the
        damping gamma of Yang, Rastelli and Jung; default 1/2 with several passes).
    update : {"exact", "as-printed"}
    init : Init or str
        How devices get their first centroids. ``global`` sends summaries up a tree and chooses among 5 candidate
        clusterings; where messages are changed, late or lost, or links change, it floods them.
    groups : int, "auto" or False
        Let groups of devices whose points differ have clusterings of their own: the root of a tree finds so many groups
        (auto: as many as the rows of all devices say) and a start for each, and links between groups are cut.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in its turn: what it can
        know by itself. At strong coupling moves are small long before the end: see `distance_left` of the summary.
    swaps : bool
        Whether every awake device tries in every fourth round to move its least useful centroid to a neighbor's row or
        to one of 8 random own points, up to 3 times in vain.
    robust : {"none", "clip", "trim", "saturate"}
        What bounds the influence of Byzantine neighbors: see `p2pkm.methods.building_blocks.robust_neighbors` for clip
        and trim, with which no descent is claimed. Saturate lets links give way: their limits d0 are fixed after 8
        clipped sweeps at coupling 1; the descent is that of the objective with phi.
    accept : bool, optional
        Whether a stage after the last round compares, by sums over a tree, what the devices ended with and the start
        that they had agreed on, and lets all take the start back if it costs less: see
        `p2pkm.methods.init.accept_test`. Not with groups, nor with init `local`.

        Coupling, relaxation and accept have a default together: rehearsal (auto on graphs of several components or
        above 5,000 devices, and with a `min_cluster_size`), auto and True. It is for runs whose devices agree on a
        start and whose links and messages are left alone, with the update above: `configure` fills them in. Elsewhere,
        and if coupling or alpha is given, coupling is 10, 30 from 10 devices or a diameter of 8 on (10 with groups),
        relaxation 1.5 (1 for jacobi, async with a net and on graphs that change, where more is refused) and there is no
        accept test.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    A. Jung, "Federated k-means via generalized total variation minimization", 2025: equations (4) to (8), Algorithm 1;
    the second version: X. Yang, S. Rastelli, A. Jung, "Federated k-means over networks via generalized total variation
    minimization", 2026: optimal transport, normalized losses, damping, safeguard.

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
        groups = groups if groups is False else check_groups(groups)
        given = {"k": k, "alpha": alpha, "coupling": coupling, "schedule": schedule, "relaxation": relaxation,
                 "local_steps": local_steps,
                 "star_term": star_term, "matching": matching, "normalize_losses": normalize_losses,
                 "safeguard": safeguard, "update_rule": update, "init": Init.of(init),
                 "groups": groups, "tol": tol, "swaps": swaps, "robust": robust, "accept": accept}  # fmt: skip
        for name, value in given.items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        exact = self.star_term and self.update_rule == "exact" and self.robust not in RULES
        damped = self.safeguard and self.effective_relaxation() <= 0.5
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            no_suppression=self._why_raw_points(),
            needs_static_links=self._why_static_links(),
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
            no_quantization=self._why_real_numbers(),
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
        none, never = np.zeros(n, np.bool_), np.zeros(n, np.int8)
        limit = optional(start, "edge_limit")
        whole = devices.varying or not self.groups  # alike on all ranks
        weight = None if limit is None and whole else devices.active_edges.astype(np.float64)
        alpha, agreed = self.objective.link_alpha(devices, start), start.centroids if self.accept else None
        return GTVMinState(start.centroids, start.centroids, none, none, none, never, never, alpha, limit, weight,
                           agreed, optional(start, "rehearsed"))  # fmt: skip

    def message(self, state: GTVMinState, devices: Devices) -> DenseMessages:
        """Send the own centroids."""
        if devices.active_devices.all():
            return DenseMessages(*pack(state.centroids))
        values, rows = pack_some(state.centroids, np.flatnonzero(devices.active_devices))
        return DenseMessages(values, rows, standing=values is state.centroids)

    def update(self, state: GTVMinState, inbox: Inbox, devices: Devices) -> GTVMinState:
        """Run the passes at the active devices."""
        weight = saturate_alpha(state.edge_limit, state.edge_weight, state.centroids, inbox, devices)
        strength = (
            self.objective.link_alpha(devices, state) if devices.varying and devices.turn == 0 else state.edge_alpha
        )
        alpha, quiet = strength if weight is None else strength * weight, state.quiet
        if self.robust in RULES:
            inbox = robust_filter(self.robust, state.centroids, inbox, devices)
        coupling = self.settle(state).effective_coupling(devices.total, devices.hops)
        relaxation = self.effective_relaxation(coupling, devices)
        theta = relaxation if devices.grid is None else 1.0  # on a grid the exact minimizer comes first
        own = weigh_equally(devices) if self.normalize_losses else devices
        who, goes_on = np.flatnonzero(devices.active_devices), devices.turn > 0 and self.schedule == "colored"
        if self.safeguard or self.matching == "optimal":
            rule = PassRule(self.matching == "optimal", theta, self.local_steps, self.safeguard)
            centroids, moves = run_passes(own, state.centroids, state.previous, inbox, alpha, rule)
            moves = moves[who]
        else:
            points, masses, offsets = suppress_small_clusters(own, state.centroids)
            if self.update_rule == "as-printed":  # it divides by at least one point
                masses, alpha = masses / devices.unit, alpha / devices.unit
            centroids, moves = devices.kernels.gtvmin(
                points, masses, offsets, state.centroids, state.previous, who, devices.indptr,
                inbox.tables, inbox.rows, inbox.slots, alpha, theta, self.local_steps,
                self.star_term, self.update_rule == "as-printed",
                goes_on and devices.grid is None and not self.swaps,  # in place: nobody else has seen this state
            )  # fmt: skip
        if devices.grid is not None:
            within = self.schedule == "jacobi"
            centroids, moved = move_on_grid(devices, state.centroids, centroids, relaxation, within=within)
            moves[:, 0] = moved[who]
        if self.swaps and devices.round % _EVERY == 0:
            trying = devices.active_devices & (quiet < _TRIES)
            centroids, swapped = swap(own, centroids, inbox, alpha, trying)
            quiet = np.where(swapped, 0, quiet + trying).astype(np.int8)
            moves[swapped[who], 0] = find_moves(centroids[swapped], state.centroids[swapped])
        calm, echo = state.calm.copy(), state.echo
        calm[who] = np.minimum(calm[who] + np.int8(1), np.int8(2)) * (moves[:, 0] <= self.tol * devices.data_std)
        converged = calm >= (2 if self.schedule == "async" else 1)
        if self.swaps:
            converged &= quiet >= _TRIES
        if self.schedule == "jacobi":
            echo = np.ones(len(devices), np.bool_)
            echo[who] = moves[:, 1] <= _ECHO * moves[:, 0]
        previous = state.previous if goes_on else state.centroids
        return GTVMinState(centroids, previous, converged, echo & state.echo, echo, calm, quiet, strength,
                           state.edge_limit, weight, state.start, state.rehearsed)  # fmt: skip

    def effective_relaxation(self, coupling: float | None = None, devices: Devices | None = None) -> float:
        """Return the relaxation, or its default: above 1, overshooting adds up with delays or varying links."""
        if self.relaxation is not None and self.relaxation != "auto":
            return self.relaxation
        if self.safeguard and self.local_steps > 1:
            return 0.5
        if self.schedule == "jacobi" or (devices is not None and devices.has_stale_or_varying_links):
            return 1.0
        return 1.5 if self.relaxation is None or coupling is None else relax(coupling)

    @property
    def _coupling_choice(self) -> str:
        """Return where the strength of the links is from."""
        if isinstance(self.coupling, str):
            return self.coupling
        return "usual" if self.coupling is None and self.alpha is None else "given"

    def _why_raw_points(self) -> str:
        """Return why single rows cannot be left out with these parameters."""
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} sends centroids of steps in between that it has not checked"
        return "with swaps tries own points as rows" if self.swaps else ""

    def _why_real_numbers(self) -> str:
        """Return why centroids cannot move on a grid with these parameters."""
        if self.local_steps > 1:
            return f"with local_steps={self.local_steps} moves on from centroids that are on no grid"
        return "with swaps moves centroids to points that are on no grid" if self.swaps else ""

    def _why_static_links(self) -> str:
        """Return why links must not change with these parameters."""
        if isinstance(self.relaxation, float) and self.relaxation > 1.0:
            why = "which adds up and diverges unless links last (up to 1 is possible)"
            return f"overshoots with relaxation {self.relaxation:g}, {why}"
        return "decides with groups which links to cut for good" if self.groups else ""

    def flops(self, work: Work) -> Integers:
        """Count a turn: in every pass, distances and sums of the own points, and rows matched with every neighbor."""
        matched = self.k**3 * work.neighbors if self.matching == "optimal" else 0
        own = work.d * ((3 * self.k + 2) * work.sizes + 3 * self.k**2 * work.neighbors)
        return self.local_steps * (own + matched)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return coupling, relaxation and local_steps as used."""
        coupling = self.effective_coupling(devices.total, devices.hops)
        return {
            "alpha": self.alpha,
            "coupling": coupling,
            "relaxation": self.effective_relaxation(coupling, devices),
            "local_steps": self.local_steps,
        }

    def effective_coupling(self, total: int, hops: int) -> float | None:
        """Return the coupling that is used on a graph of `total` devices, None with a raw alpha.

        ``auto`` is the least one as long as the method is not tuned to a graph.
        """
        if self.alpha is not None:
            return None
        if self.coupling is not None and not isinstance(self.coupling, str):
            return self.coupling
        return WEAK if self.groups else least_coupling(total, hops)

    def configure(self, run: RunOutline) -> "GTVMin":
        """Fill in coupling, relaxation and acceptance test by default, and ``auto`` once `run.points` are known.

        Tables prefer to be integers if coupling and all else is by default, with few clusters and initial centroids as
        good as the end. With many clusters and from poor initial centroids the grid stops the method early, and so does
        the rounding of jacobi towards zero. Where rows are left out the variance would tell of them, and to count the
        bits of a million devices takes long.
        """
        if not self._why_plain(run):
            rehearses = _can_rehearse(run)
            best = {"coupling": "rehearsal" if rehearses else "auto", "relaxation": "auto", "accept": True}
            open_ = {name: value for name, value in best.items() if vars(self)[name] is None}
            steps = self.k <= _FEW and self.init.name in _GOOD and self.schedule != "jacobi"
            return self.replaced(prefers_integers=rehearses and steps, **open_).configure(run)
        if run.points is None or self.coupling != "auto":
            return self
        return self.replaced(coupling=choose_coupling(run.topology, run.points, self.k))

    def _why_plain(self, run: RunOutline) -> str:
        """Return why coupling, relaxation and accept test are those of a run that nothing is known of; empty: not."""
        reasons = {
            "a strength is given": self.alpha is not None or self.coupling is not None,
            "groups": bool(self.groups),
            "devices start from centroids that were given": run.seeded,
            "devices start from different centroids": self._starts_apart,
            "points that change": run.streamed,
            f"robust={self.robust}": self.robust != "none",
            "another update": not self.star_term or self.update_rule != "exact" or self.matching != "nearest"
            or self.normalize_losses or self.safeguard,
            run.disturbed: bool(run.disturbed),
        }  # fmt: skip
        return next((why for why, holds in reasons.items() if holds), "")

    @property
    def _starts_apart(self) -> bool:
        """Return whether devices may start from different centroids."""
        return self.init.name == "local" or "hops" in dict(self.init.options)

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a calibrated coupling on a graph on which there is none."""
        if self.coupling == "rehearsal":
            check_rehearsal(run.topology)

    def stages(self, at: InitContext) -> Pipeline:
        """Return the stages for groups, thresholds of saturation, a calibrated coupling and the acceptance test."""
        seeding: tuple[Stage, ...] | None = None
        before, after = list[Stage](), list[Stage]()
        if self.groups:
            from p2pkm.methods.init.group_links import GroupLinks

            seeding = group_stage(self, at), Stage(GroupLinks.name, GroupLinks(at.k), 2)
        if self.robust == "saturate":
            from p2pkm.methods.init.saturation_thresholds import SaturationThresholds

            before.append(Stage("warmup", self.at(_WARM), _WARMING))
            before.append(Stage("saturation-thresholds", SaturationThresholds(at.k), 3))
        if self.coupling == "rehearsal":
            from p2pkm.methods.init.rehearsal import Rehearsing

            grow_shallow(at.topology)
            before.append(Stage(Rehearsing.name, Rehearsing.on_graph(at.k, at.topology), 1))
        if self.accept:
            from p2pkm.methods.init.accept_test import AcceptTest

            grow_shallow(at.topology)
            test = AcceptTest.after(self, at.topology)
            after.append(Stage(AcceptTest.name, test, 1, all_links=True, after=True))
        return Pipeline(seeding, tuple(before), tuple(after))

    def settle(self, state: Any) -> "GTVMin":
        """Return the method with the coupling that the rehearsal found, if there was one."""
        found = optional(state, "rehearsed")
        return self if found is None or not len(found) else self.replaced(coupling=float(found[0, 0]))

    def at(self, coupling: float) -> "GTVMin":
        """Return the same method at another coupling, to warm up with; it clips where links are to give way later."""
        robust = "clip" if self.robust == "saturate" else self.robust
        return self.replaced(coupling=coupling, alpha=None, robust=robust, accept=False)


def _can_rehearse(run: RunOutline) -> bool:
    """Return whether there can be a rehearsal of a run on this graph, from rows of all devices."""
    return run.complete and not why_no_rehearsal(run.topology)


def _check(given: GTVMin) -> None:
    """Refuse parameters that are out of range.

    Raises
    ------
    ExperimentError
        If one is; the message names which values are legal.
    """
    words = {"schedule": ("colored", "jacobi", "async"), "update_rule": ("exact", "as-printed"),
             "matching": ("nearest", "optimal"),
             "robust": ("none", "saturate", *RULES)}  # fmt: skip
    for name, known in words.items():
        value = getattr(given, name)
        if single(value, name.removesuffix("_rule")) not in known:
            raise ExperimentError(f"unknown {name.removesuffix('_rule')} {value!r}. {suggest(str(value), known)}")
    if (given.groups or given.robust == "saturate") and isinstance(given.coupling, str):
        raise ExperimentError(
            f"coupling is {given.coupling} with groups or saturating links, which leave no one graph; give a number"
        )
    if (given.groups or given._starts_apart) and (given.accept or given.coupling == "rehearsal"):
        raise ExperimentError(
            "accept and coupling rehearsal need a start that all devices agree on, which groups and init local do not "
            "give; leave them out, or take --init global"
        )
    if given.groups and given.init.name != "global":
        raise ExperimentError(f"groups and init {given.init} are both given; give one: groups bring their own start")
    _check_passes(given)
    for name, label in (("k", "clusters"), ("local_steps", "local_steps")):
        whole(getattr(given, name), 1, label)
    _check_numbers(given)


def _check_passes(given: GTVMin) -> None:
    asked = {"matching=optimal": given.matching == "optimal", "safeguard": given.safeguard}
    others = {"star_term=false": not given.star_term, "update=as-printed": given.update_rule == "as-printed",
              "swaps": given.swaps, "groups": given.groups,
              f"robust={given.robust}": given.robust != "none"}  # fmt: skip
    found = [next((name for name, is_on in those.items() if is_on), "") for those in (asked, others)]
    if all(found):
        raise ExperimentError(f"{found[0]} and {found[1]} are both given; {found[0]} needs the exact update alone")
    if given.safeguard and given.schedule != "jacobi":
        raise ExperimentError(
            f"safeguard is given with the {given.schedule} schedule, where several passes descend without one; "
            "leave it out or use --schedule jacobi"
        )
    if given.normalize_losses and given.update_rule == "as-printed":
        raise ExperimentError("normalize_losses and update=as-printed are both given; the printed update divides by 1 "
                              "point at least, which is no share of a loss: give one")  # fmt: skip


def _check_numbers(given: GTVMin) -> None:
    if given.alpha is not None and given.coupling is not None:
        raise ExperimentError(
            f"alpha={given.alpha} and coupling={given.coupling} are both given; give one: alpha is the paper's raw "
            "strength, coupling the dimensionless one"
        )
    for name in ("alpha", "coupling", "tol"):
        value = getattr(given, name)
        if value is not None and (name != "coupling" or value not in {"auto", "rehearsal"}):
            positive(value, name, zero=True, most=_LARGEST)
    if given.relaxation in (None, "auto"):
        return
    if not isinstance(given.relaxation, Real) or not 0 < given.relaxation < 2:
        raise ExperimentError(f"relaxation is {given.relaxation!r}; expected a number above 0 and below 2, or auto")
    if given.schedule == "jacobi" and given.relaxation > 1:
        raise ExperimentError(
            f"relaxation is {given.relaxation!r} with the jacobi schedule, where only values up to 1 descend; "
            "lower relaxation or use --schedule colored"
        )
