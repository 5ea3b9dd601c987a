"""GTVMin k-means (Jung 2025): the peer-to-peer method that the simulator is built around."""

from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages, Inbox, pack, pack_some
from p2pkm.core.protocols import MethodBase, Work
from p2pkm.core.spec import suggest
from p2pkm.core.states import optional, register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.core.validation import positive, whole
from p2pkm.methods.building_blocks.averaging import find_moves
from p2pkm.methods.building_blocks.centroid_swaps import swap
from p2pkm.methods.building_blocks.quantization import move_on_grid
from p2pkm.methods.building_blocks.robust_neighbors import RULES, robust_filter
from p2pkm.methods.building_blocks.small_clusters import suppress_small_clusters
from p2pkm.methods.building_blocks.total_variation import saturate_alpha, saturated_penalty
from p2pkm.methods.init.value import Init

_LARGE, _LONG = 10, 8  # from this many devices or this diameter on the default coupling is the stronger one
_WEAK, _STRONG = 10.0, 30.0
_LARGEST = 1e100  # of a strength
_EVERY, _TRIES = 4, 3  # rounds from one attempt at a swap to the next; in vain, before a device gives up
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

    Privacy: neighbors see the centroids of every turn; init `global` before it shows every device the centroids and
    counts of all others, `groups` those of its neighbors.

    Guarantee: F never rises for `colored` and `async` (theta in (0, 2), any number of passes, with swaps or without)
    and for `jacobi` (one pass, theta in (0, 1], no swaps) with the exact update and the star term, without delays.

    With `groups` links give way. In every turn the awake device takes ``alpha_ij min(1, d0_ij / d_ij)``, d_ij the
    link's variation as it has just received it, d0_ij fixed before. That is the slope of the concave phi(d) = d up to
    d0, ``d0 (1 + log(d / d0))`` beyond, so ``sum_i L_i + sum alpha_ij phi(d_ij)``, the objective then, never rises
    either.

    Departs from the paper: Algorithm 1 as printed lacks alpha in the numerator (line 21) and divides by at least 1
    (line 23), so it does not minimize (8); ``update="as-printed"`` keeps it for comparison.

    Parameters
    ----------
    k : int
        Number of clusters.
    alpha : float, optional
        Strength of every link, as in the paper. It is in the unit of the weights: whoever multiplies these by r
        multiplies it, too; a coupling stays.
    coupling : float, optional
        Dimensionless: ``alpha_ij = coupling (m / n) / k / sqrt(deg_i deg_j)`` with m points and n devices in all.
        Default 10; 30 from 10 devices or a diameter of 8 on (not with groups). Edge weights multiply either.
    schedule : {"colored", "jacobi", "async"}
    relaxation : float, optional
        Relaxation; default 1.5; 1 for jacobi, async with a net and on graphs that change (more is refused there).
    local_steps : int
        Passes per turn.
    star_term : bool
        Whether E3 counts.
    update : {"exact", "as-printed"}
    init : Init or str
        How devices get their first centroids. ``global`` floods summaries, or sends them up a tree, and chooses among
        5 candidate clusterings.
    groups : bool
        Let groups of devices whose points differ have clusterings of their own: cut links between such devices, start
        from the summaries of the neighbors that are left, and let links give way.
    tol : float
        A device has converged when no coordinate moved by more than tol x sqrt(total variance) in its turn: what it can
        know by itself. At strong coupling moves are small long before the end: see `distance_left` of the summary.
    swaps : bool
        Whether every awake device tries in every fourth round to move its least useful centroid to a neighbor's row or
        to one of 8 random own points, up to 3 times in vain.
    robust : {"none", "clip", "trim", "saturate"}
        What bounds the influence of Byzantine neighbors: see `p2pkm.methods.building_blocks.robust_neighbors` for clip
        and trim, with which no descent is claimed. Saturate lets links give way as with groups: their limits d0
        are fixed after 8 clipped sweeps at coupling 1; the descent is that of the objective with phi.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    A. Jung, "Federated k-means via generalized total variation minimization", 2025: equations (4) to (8), Algorithm 1.
    """

    k: int
    alpha: float | None
    coupling: float | None
    schedule: str
    relaxation: float | None
    local_steps: int
    star_term: bool
    update_rule: str
    init: Init
    groups: bool
    tol: float
    swaps: bool
    robust: str

    name: ClassVar[str] = "gtvmin"
    default_rounds: ClassVar[int] = 150

    def __init__(  # noqa: PLR0913 - the public signature
        self, k: int, *, alpha: float | None = None, coupling: float | None = None,
        schedule: Literal["colored", "jacobi", "async"] = "colored", relaxation: float | None = None,
        local_steps: int = 1,
        star_term: bool = True, update: Literal["exact", "as-printed"] = "exact",
        init: Init | str = "global", groups: bool = False, tol: float = 1e-3,
        swaps: bool = False, robust: Literal["none", "clip", "trim", "saturate"] = "none",
    ) -> None:  # fmt: skip
        given = {"k": k, "alpha": alpha, "coupling": coupling, "schedule": schedule, "relaxation": relaxation,
                 "local_steps": local_steps,
                 "star_term": star_term, "update_rule": update, "init": Init.of(init),
                 "groups": groups, "tol": tol, "swaps": swaps, "robust": robust}  # fmt: skip
        for name, value in given.items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        exact = self.star_term and self.update_rule == "exact" and self.robust not in RULES
        return MethodTraits(
            message_content=MessageContent.CENTROIDS,
            suppresses_small_clusters=True,
            no_suppression=self._why_raw_points(),
            needs_static_links=self._why_static_links(),
            init=self.init,
            groups=self.groups,
            relaxation=self.relaxation,
            saturates=self.robust == "saturate",
            has_objective=True,
            moves_on_grid=True,
            no_quantization=self._why_real_numbers(),
            guarantees_descent=exact and (self.schedule != "jacobi" or (self.local_steps == 1 and not self.swaps)),
        )

    def initial_state(self, devices: Devices, start: Any) -> GTVMinState:
        """Start from the centroids of the last stage."""
        n = len(devices)
        none, never = np.zeros(n, np.bool_), np.zeros(n, np.int8)
        limit = optional(start, "edge_limit")
        whole = devices.varying or not self.groups  # alike on all ranks
        weight = None if limit is None and whole else devices.active_edges.astype(np.float64)
        return GTVMinState(start.centroids, start.centroids, none, none, none, never, never, self.link_alpha(devices),
                           limit, weight)  # fmt: skip

    def message(self, state: GTVMinState, devices: Devices) -> DenseMessages:
        """Send the own centroids."""
        if devices.active_devices.all():
            return DenseMessages(*pack(state.centroids))
        return DenseMessages(*pack_some(state.centroids, np.flatnonzero(devices.active_devices)))

    def update(self, state: GTVMinState, inbox: Inbox, devices: Devices) -> GTVMinState:
        """Run the passes at the active devices."""
        weight = saturate_alpha(state.edge_limit, state.edge_weight, state.centroids, inbox, devices)
        strength = self.link_alpha(devices) if devices.varying and devices.turn == 0 else state.edge_alpha
        alpha, quiet = strength if weight is None else strength * weight, state.quiet
        mirror = devices.mirror
        if self.robust in RULES:
            inbox, mirror = robust_filter(self.robust, state.centroids, inbox, devices)
        points, masses, offsets = suppress_small_clusters(devices, state.centroids)
        if self.update_rule == "as-printed":  # it divides by at least one point
            masses, alpha = masses / devices.unit, alpha / devices.unit
        relaxation = self.effective_relaxation(has_stale_or_varying_links=devices.has_stale_or_varying_links)
        centroids, moves = devices.kernels.gtvmin(
            points, masses, offsets, state.centroids, state.previous, devices.active_devices, devices.indptr,
            inbox.tables, inbox.rows, inbox.slots, mirror, alpha,
            relaxation if devices.grid is None else 1.0, self.local_steps, self.star_term,
            self.update_rule == "as-printed",
        )  # fmt: skip
        if devices.grid is not None:
            within = self.schedule == "jacobi"
            centroids, moves[:, 0] = move_on_grid(devices, state.centroids, centroids, relaxation, within=within)
        if self.swaps and devices.round % _EVERY == 0:
            trying = devices.active_devices & (quiet < _TRIES)
            centroids, swapped = swap(devices, centroids, inbox, alpha, trying)
            quiet = np.where(swapped, 0, quiet + trying).astype(np.int8)
            moves[swapped, 0] = find_moves(centroids[swapped], state.centroids[swapped])
        moved = moves[:, 0]
        more = np.minimum(state.calm + np.int8(1), np.int8(2)) * (moved <= self.tol * devices.data_std)
        calm = np.where(devices.active_devices, more, state.calm)
        converged = calm >= (2 if self.schedule == "async" else 1)
        if self.swaps:
            converged &= quiet >= _TRIES
        echo = moves[:, 1] <= _ECHO * moved if self.schedule == "jacobi" else state.echo
        return GTVMinState(centroids, state.centroids, converged, echo & state.echo, echo, calm, quiet, strength,
                           state.edge_limit, weight)  # fmt: skip

    def effective_relaxation(self, *, has_stale_or_varying_links: bool = False) -> float:
        """Return the relaxation, or its default: above 1, overshooting adds up with delays or varying links."""
        return (
            self.relaxation
            if self.relaxation is not None
            else 1.0
            if has_stale_or_varying_links or self.schedule == "jacobi"
            else 1.5
        )

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
        if self.relaxation is not None and self.relaxation > 1.0:
            why = "which adds up and diverges unless links last (up to 1 is possible)"
            return f"overshoots with relaxation {self.relaxation:g}, {why}"
        return "decides with groups which links to cut for good" if self.groups else ""

    def flops(self, work: Work) -> Integers:
        """Count a turn: in every pass, distances and sums of the own points, and rows matched with every neighbor."""
        return self.local_steps * work.d * ((3 * self.k + 2) * work.sizes + 3 * self.k**2 * work.neighbors)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return coupling, relaxation and local_steps as used."""
        return {
            "alpha": self.alpha,
            "coupling": self.effective_coupling(devices.total, devices.hops),
            "relaxation": self.effective_relaxation(has_stale_or_varying_links=devices.has_stale_or_varying_links),
            "local_steps": self.local_steps,
        }

    def effective_coupling(self, total: int, hops: int) -> float | None:
        """Return the coupling that is used on a graph of `total` devices, None with a raw alpha."""
        if self.alpha is not None or self.coupling is not None:
            return self.coupling
        if self.groups:
            return _WEAK
        return _STRONG if total >= _LARGE or hops >= _LONG else _WEAK

    def link_alpha(self, devices: Devices) -> Floats:
        """Return alpha_ij of every own link, float64[e]; 0 where it is not in use."""
        weights = devices.link_weights * devices.active_edges
        if self.alpha is not None:
            return self.alpha * weights
        coupling = self.effective_coupling(devices.total, devices.hops) or 0.0
        base = coupling * (devices.total_weight / devices.total) / self.k
        degrees = np.maximum(devices.degrees[devices.sources] * devices.neighbor_degrees, 1)
        return base / np.sqrt(degrees.astype(np.float64)) * weights

    def penalties(self, state: GTVMinState, devices: Devices, gtv: Floats) -> Floats:
        """Return what each own link adds to the objective, float64[e], given its variation (4)."""
        return self.link_alpha(devices) * (
            gtv if state.edge_limit is None else saturated_penalty(state.edge_limit, gtv)
        )

    def at(self, coupling: float) -> "GTVMin":
        """Return the same method at another coupling, to warm up with; it clips where links are to give way later."""
        other, robust = copy(self), "clip" if self.robust == "saturate" else self.robust
        for name, value in (("coupling", coupling), ("alpha", None), ("robust", robust)):
            object.__setattr__(other, name, value)
        return other


def _check(given: GTVMin) -> None:
    """Refuse parameters that are out of range.

    Raises
    ------
    ExperimentError
        If one is; the message names which values are legal.
    """
    words = {"schedule": ("colored", "jacobi", "async"), "update_rule": ("exact", "as-printed"),
             "robust": ("none", "saturate", *RULES)}  # fmt: skip
    for name, known in words.items():
        value = getattr(given, name)
        if value not in known:
            raise ExperimentError(f"unknown {name.removesuffix('_rule')} {value!r}. {suggest(str(value), known)}")
    if given.groups and given.init.name != "global":
        raise ExperimentError(f"groups and init {given.init} are both given; give one: groups bring their own start")
    for name, label in (("k", "clusters"), ("local_steps", "local_steps")):
        whole(getattr(given, name), 1, label)
    _check_numbers(given)


def _check_numbers(given: GTVMin) -> None:
    if given.alpha is not None and given.coupling is not None:
        raise ExperimentError(
            f"alpha={given.alpha} and coupling={given.coupling} are both given; give one: alpha is the paper's raw "
            "strength, coupling the dimensionless one"
        )
    for name in ("alpha", "coupling", "tol"):
        value = getattr(given, name)
        if value is not None:
            positive(value, name, zero=True, most=_LARGEST)
    if given.relaxation is not None and not 0 < given.relaxation < 2:
        raise ExperimentError(f"relaxation is {given.relaxation!r}; expected a number above 0 and below 2")
    if given.relaxation is not None and given.schedule == "jacobi" and given.relaxation > 1:
        raise ExperimentError(
            f"relaxation is {given.relaxation!r} with the jacobi schedule, where only values up to 1 descend; "
            "lower relaxation or use --schedule colored"
        )
