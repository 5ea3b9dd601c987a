"""Choice of GTVMin's coupling: short runs of the candidates, compared by their leave-one-out likelihood."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import label
from p2pkm.core.expected_messages import ByRound, Known, tables
from p2pkm.core.messages import DenseMessages, Inbox, SparseMessages, Tables
from p2pkm.core.protocols import OnGraph
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.coupling_choice import CHOICES, WITHOUT_SHARES, Components, choose_couplings
from p2pkm.methods.building_blocks.leave_one_out import Mixture, leave_one_out
from p2pkm.methods.building_blocks.shares import Shares, find_penalties, penalize, without_shares
from p2pkm.methods.building_blocks.spanning_tree import LocalTree, Tree, limit_tree, local_tree
from p2pkm.methods.init.coupling_estimate import (
    CouplingEstimate,
    CouplingEstimateState,
    EstimateWalk,
    spread_coupling,
)
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.init.registry import InitContext, bounded_spanning_tree
from p2pkm.methods.init.tree_totals import UpAndDown
from p2pkm.network.graph import Topology

# Rounds of a candidate between two estimates, and of one that begins with the centroids of another one.
_ROUNDS = 8
_WARM_ROUNDS = 6
_STEPS = 3
# Strength of the prior, in points per cluster, from which on shares are even: they differ by less than sampling does.
_EVEN = 10.0
# Columns of the answer before the pooled means: variance, difference and strength of the prior.
_ANSWER = 3
# Candidates whose centroids are the result of a run.
_RUNS = tuple(name for name in CHOICES if not name.startswith("strong"))
_WITH_SHARES = " with shares"


@register("coupling-trials")
class Trials(NamedTuple):
    """Intermediate results that each stage of a choice passes to the next one.

    Attributes
    ----------
    initial : float64[n, k, d]
        Initial centroids, equal at all devices of a component.
    pooled, shared : float64[n, k, d + 1]
        Mean and number of the points of each cluster over all devices of the component, after Lloyd steps that assign
        points by distance, and by distance and share.
    penalties : float64[n, k]
        Penalties of the clusters in `shared`.
    mixture : float64[n, 2]
        Variance of a coordinate within clusters, and strength of the prior of the shares.
    is_strong, is_even : bool[n]
        Whether candidates with another coupling than strong, or with shares, are left out. Equal at all devices of a
        component. If both are, its devices send nothing until the end of the choice.
    likelihoods : float64[n, 6]
        Leave-one-out likelihood of the local points, in the order of `CHOICES`; -inf: left out.
    found : float64[n, 4, k, d]
        Centroids at the end of each run, in the order of `_RUNS`.
    found_penalties : float64[n, 4, k]
        Penalties with which the chosen candidate continues.
    edge_bayes, edge_links, edge_weights : float64[e]
        Strengths for "bayes" and "links", and the weights of the latter.
    couplings : float64[n, 3]
        Couplings that correspond to "strong", "bayes" and "links".
    """

    initial: Floats
    pooled: Floats
    shared: Floats
    penalties: Floats
    mixture: Floats
    is_strong: Mask
    is_even: Mask
    likelihoods: Floats
    found: Floats
    found_penalties: Floats
    edge_bayes: Floats
    edge_links: Floats
    edge_weights: Floats
    couplings: Floats

    @property
    def is_open(self) -> Mask:
        """Whether several candidates remain, bool[n]."""
        return ~(self.is_strong & self.is_even)


@dataclass(frozen=True)
class TrialEstimate(CouplingEstimate):
    """Estimate of coupling, noise and shares for a choice, and one Lloyd step for the candidate "strong".

    Attributes
    ----------
    step : int
        Number of the estimate, from 0.
    strong : float64[c] or None
        Coupling "strong" of each component; None: it is computed for those of the local devices.

    Notes
    -----
    As `p2pkm.methods.init.coupling_estimate.CouplingEstimate`, with these differences:

    **Update.** The rows up and down also contain sums, and means, of the points of each cluster of centroids that are
    equal at all devices of a component: a Lloyd step. From the second estimate on it is made twice, with points
    assigned by distance, and by distance and share.

    Each component of the graph decides for itself. If no coupling can be estimated, or one at least as large as
    "strong", only "strong" remains. Shares are even if they vary less than with a prior of 10 points per cluster at the
    initial centroids, or if there is one device; then only candidates without shares remain, otherwise estimates and
    runs begin with shares. If one candidate remains, the devices of the component send nothing in the stages that
    follow.
    """

    step: int = 0
    strong: Floats | None = None

    @property
    def _weighs_links(self) -> bool:
        """Whether each link has a weight: in the last estimate."""
        return self.step == _STEPS - 1

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count the columns of the first row up, and of the first one down."""
        up, down = super().count_columns(d)
        means = (1 if self.step == 0 else 2) * self.k * (d + 1)
        return up + means, down + means

    def expected_messages(self, known: Known) -> ByRound:
        """Count all rows; fewer are sent if one candidate remains."""
        expected = super().expected_messages(known)
        if self.step == 0:
            return expected
        parts = (part._replace(exact_messages=False, exact_bytes=False) for part in expected[:2])
        return ByRound(*parts)

    def initial_state(self, devices: Devices, start: Any) -> CouplingEstimateState:
        """Assign the local points to the local centroids, and to those of the Lloyd steps."""
        n, k, d = start.centroids.shape
        trials = _begin(start.centroids, devices) if self.step == 0 else start.trials
        shares = without_shares(n, k) if self.step == 0 else start.shares
        before = CouplingEstimateState(
            start.centroids, start.converged, np.zeros(0), None, None, None, shares, trials=trials
        )
        begun = super().initial_state(devices, before)
        begun = begun._replace(edge_estimated=None, coupling=trials.couplings[:, 1], shares=shares, trials=trials)
        if not trials.is_open.any():
            return begun._replace(walk=None, converged=np.ones(n, np.bool_))
        assert begun.walk is not None
        walk = begun.walk._replace(routes=limit_tree(begun.walk.routes, devices, trials.is_open))
        counted = [_add_offsets(devices, trials.pooled[:, :, :d], None)]
        if self.step:
            counted.append(_add_offsets(devices, trials.shared[:, :, :d], trials.penalties))
            penalties = penalize(counted[1][:, :, d], *trials.mixture.T).penalties
            trials = trials._replace(penalties=penalties)
        means = np.concatenate([part.reshape(n, k * (d + 1)) for part in counted], axis=1)
        walk.sums[:, walk.sums.shape[1] - means.shape[1] :] = means
        return begun._replace(walk=walk, trials=trials)

    def list_senders(self, state: CouplingEstimateState) -> Mask:
        """Find the devices that compare their means: those with several candidates."""
        is_open: Mask = state.trials.is_open
        return is_open

    def _conclude_at_roots(self, walk: EstimateWalk, number: int, devices: Devices) -> EstimateWalk:
        """Compute the answer at the root, and the means of all points in each cluster."""
        walk = super()._conclude_at_roots(walk, number, devices)
        if number == 0:
            # Sums of offsets are sent down; each device adds the centroid that the offsets are from.
            width = walk.answers.shape[1] - _ANSWER
            for root in walk.routes.layer(0):
                walk.answers[root, _ANSWER:] = walk.sums[root, walk.sums.shape[1] - width :]
        return walk

    def _finish(self, state: CouplingEstimateState, walk: EstimateWalk, devices: Devices) -> CouplingEstimateState:
        """Compute strengths and means, and decide which candidates remain in each component."""
        trials, d, n = state.trials, devices.d, len(devices)
        couplings = trials.couplings.copy()
        if self.step == 0 and self.strong is not None:
            couplings[:, 0] = self.strong[self.components.number[devices.ids]]
        elif self.step == 0:
            couplings[:, 0] = self.choose_strong(devices, np.ones(n, np.bool_))
        sums = np.split(walk.noise[:, _ANSWER:], 1 if self.step == 0 else 2, axis=1)
        moved = [part.reshape(n, self.k, d + 1) for part in sums]
        pooled = _move(trials.pooled, moved[0])
        shared = _move(trials.shared, moved[1]) if self.step else pooled
        bayes = self.find_strengths(walk, devices, couplings[:, 0], weigh=False)
        received = np.column_stack((walk.noise[:, 0], walk.noise[:, 2]))
        mixture = np.where(trials.is_open[:, None], received, trials.mixture)
        found = penalize(walk.clusters[:, :, -1], *mixture.T)
        couplings[:, 1] = bayes.coupling
        if self.step == 0:
            # Without noise penalties are 0, as without shares; one device does not show how much shares vary.
            is_alone = self.components.devices[self.components.number[devices.ids]] == 1
            is_even = (mixture[:, 1] >= _EVEN) | (mixture[:, 0] == 0.0) | is_alone
            trials = trials._replace(penalties=found.penalties, is_even=is_even)
        else:
            # The penalties are of the noise that was known when points were assigned; the shares stay what they were.
            known = trials.mixture[:, 0] > 0.0
            scale = np.divide(mixture[:, 0], trials.mixture[:, 0], out=np.ones(n), where=known)
            trials = trials._replace(penalties=trials.penalties * scale[:, None])
        trials = trials._replace(
            pooled=pooled,
            shared=shared,
            mixture=mixture,
            is_strong=trials.is_strong | ~bayes.is_known | (couplings[:, 1] >= couplings[:, 0]),
        )
        shares = _keep_shares(found, ~trials.is_even)
        if self._weighs_links:
            run = CandidateRun(self.method, self.topology)
            trials = _measure(trials, run, state.centroids, trials.edge_bayes, state.shares, devices)
            # The method continues with the last shares.
            kept = trials.found_penalties.copy()
            kept[np.arange(n), run.find_position(_RUNS, trials)] = found.penalties
            links = self.find_strengths(walk, devices, couplings[:, 0], weigh=True)
            assert links.edge_weights is not None
            couplings[:, 2] = links.coupling
            trials = trials._replace(found_penalties=kept, edge_links=links.edge_alpha, edge_weights=links.edge_weights)
        return CouplingEstimateState(
            state.centroids, np.ones(n, np.bool_), bayes.edge_alpha, None, bayes.coupling, None,
            shares=shares, trials=trials._replace(edge_bayes=bayes.edge_alpha, couplings=couplings),
        )  # fmt: skip


@dataclass(frozen=True)
class CandidateRun(OnGraph):
    """Short run of GTVMin with one of the candidates.

    The devices of components that leave the candidate out are silent and keep their centroids.

    Attributes
    ----------
    topology : Topology
    coupling : {"bayes", "links"}
    other : bool
        Whether shares are used only if they are even, which leaves the candidate out; False: only if they are not.
    before : CandidateRun or None
        Run that has just ended, if its result has not been measured.
    """

    topology: Topology
    coupling: str = "bayes"
    other: bool = False
    before: "CandidateRun | None" = None

    @property
    def name(self) -> str:
        """Name of the stage: the coupling, with shares where they are not even, or without shares in any case."""
        return f"interim {self.coupling}" + (" without shares" if self.other else "")

    @property
    def schedule(self) -> str:
        """Schedule of the method."""
        return str(self.method.schedule)

    def expected_messages(self, known: Known) -> ByRound:
        """Count the centroids over all links in every round; a candidate that is left out sends none."""
        every = tables(len(self.topology.indices), self.k, known.features, certain=False)
        return ByRound(every, every, every)

    def initial_state(self, devices: Devices, start: Any) -> Any:
        """Continue with the last estimate, or begin with the strengths of the candidate."""
        trials = _measure_run(start, self.before, devices)
        takes_part = self.find_members(trials)
        begun = start
        if self.coupling == "links" or self.other:
            # Without shares, "links" begins where "bayes" without shares has ended.
            bayes = CandidateRun(self.method, self.topology, other=self.other and self.coupling == "links")
            own, first = np.arange(len(devices)), bayes.find_position(_RUNS, trials)
            is_weighted = self.coupling == "links"
            begun = CouplingEstimateState(
                np.where(takes_part[:, None, None], trials.found[own, first], start.centroids),
                np.ones(len(devices), np.bool_),
                trials.edge_links if is_weighted else trials.edge_bayes, None,
                trials.couplings[:, 2 if is_weighted else 1], None,
                shares=_keep_shares(
                    Shares(trials.found_penalties[own, first], *trials.mixture.T), ~(self.other | trials.is_even)
                ),
            )  # fmt: skip
        return self.method.initial_state(devices, begun)._replace(converged=~takes_part, trials=trials)

    def message(self, state: Any, devices: Devices) -> DenseMessages:
        """Send the centroids where the candidate is not left out."""
        messages: DenseMessages = self.method.message(state, self._limit(devices, state.trials))
        return messages

    def update(self, state: Any, inbox: Inbox, devices: Devices) -> Any:
        """Minimize as the method does where the candidate is not left out."""
        updated = self.method.update(state, inbox, self._limit(devices, state.trials))
        return updated._replace(converged=updated.converged | ~self.find_members(state.trials))

    def find_members(self, trials: Trials) -> Mask:
        """Find the devices that run the candidate, bool[n]."""
        return ~(trials.is_strong | (trials.is_even & self.other))

    def find_position(self, names: tuple[str, ...], trials: Trials) -> Integers:
        """Find the position of the candidate of each device in names of candidates, int64[n].

        It has shares if these are not even, unless it is the other one.
        """
        plain, shared = names.index(self.coupling), names.index(self.coupling + _WITH_SHARES)
        return np.where(trials.is_even | self.other, plain, shared)

    def _limit(self, devices: Devices, trials: Trials) -> Devices:
        """Limit the turn to the devices that run the candidate."""
        acting = devices.active_devices & self.find_members(trials)
        return devices.at_turn(devices.round, devices.turn, acting)


@register("coupling-choice")
class CouplingChoiceState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
    converged : bool[n]
    edge_alpha : float64[e]
    edge_estimated : float64[e] or None
    coupling : float64[n] or None
    shares : Shares or None
        Those of the chosen candidate; without noise, if it has none.
    chosen : int64[n] or None
        Its position in `CHOICES`; equal at all devices of a component.
    totals : float64[n, 6]
        Likelihoods of a device and its descendants so far.
    agreed : float64[n, 1]
        Position of the largest one.
    routes : LocalTree or None
        None after the last turn.
    trials : Trials or None
    """

    centroids: Floats
    converged: Mask
    edge_alpha: Floats
    edge_estimated: Floats | None
    coupling: Floats | None
    shares: Shares | None
    chosen: Any
    totals: Floats
    agreed: Floats
    routes: LocalTree | None
    trials: Trials | None


@dataclass(frozen=True)
class CouplingChoice(UpAndDown):
    """Choice among the candidates by the largest leave-one-out likelihood of the points of all devices of a component.

    Attributes
    ----------
    method : GTVMin
    topology : Topology
    tree : Tree
    components : Components
    before : CandidateRun
        Run that has just ended.

    Notes
    -----
    **Update.** Each device computes the leave-one-out likelihood of its points for every candidate that was run
    (`p2pkm.methods.building_blocks.leave_one_out`), and for "strong" with the means of the Lloyd steps. They are added
    up the tree, and the root sends the position of the largest one down.

    **Messages.** Up one row of 6 columns, down one of 1; none in components where one candidate remains.

    **Privacy.** No guarantee. A parent receives sums over the subtree of a device.
    """

    name: ClassVar[str] = "coupling-choice"
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.OTHER, needs_honest_messages=True, one_round=True
    )
    method: Any
    topology: Topology
    tree: Tree
    components: Components
    before: CandidateRun

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.method.k)

    def expected_messages(self, known: Known) -> ByRound:
        """Count one row up and one down every link of the tree."""
        links = int((self.tree.parent >= 0).sum())
        both = tables(links, 1, len(CHOICES), certain=False) + tables(links, 1, 1, certain=False)
        below_root = int((self.tree.layer == max(1, int(self.tree.layer.max()))).sum())
        opening = tables(below_root, 1, len(CHOICES), certain=False)
        return ByRound(opening, both)

    def initial_state(self, devices: Devices, start: Any) -> CouplingChoiceState:
        """Compute the likelihoods of the local points."""
        trials = _measure_strong(_measure_run(start, self.before, devices), devices)
        n = len(devices)
        routes = limit_tree(local_tree(self.tree, devices), devices, trials.is_open)
        # Until the choice is made, devices keep the centroids of the last candidate that was run.
        state = CouplingChoiceState(
            start.centroids, np.zeros(n, np.bool_), np.zeros(len(devices.indices)), None, None, None, None,
            trials.likelihoods, np.zeros((n, 1)), routes, trials,
        )  # fmt: skip
        if not trials.is_open.any():
            return self.finish(state, devices)
        return self.conclude_at_roots(state)

    def message(self, state: CouplingChoiceState, devices: Devices) -> SparseMessages:
        """Send likelihoods to the parents or the choice to the children, one layer per turn."""
        messages = super().message(state, devices)
        if state.routes is None or devices.round:
            return messages
        # The deepest layer sends first. In components without it the root sends an empty table over no edge, which
        # shows that the stage has not ended.
        depths = np.zeros(len(self.components.devices), np.int64)
        np.maximum.at(depths, self.components.number, self.tree.layer)
        roots = state.routes.layer(0)
        waiting = roots[depths[self.components.number[devices.ids[roots]]] < state.routes.depth]
        senders = np.concatenate((messages.senders, waiting))
        rows = np.repeat([1, 0], (len(messages.senders), len(waiting)))
        order = np.argsort(senders)
        values = state.totals[messages.senders]
        tables = Tables(values, np.minimum(np.arange(len(senders)), len(values)), rows).take(order)
        return SparseMessages(senders[order], tables, messages.edges)

    def merge(self, totals: Floats, receivers: Integers, rows: Floats) -> Floats:
        """Add the likelihoods that devices received to their own."""
        merged = totals.copy()
        np.add.at(merged, receivers, rows)
        return merged

    def conclude(self, totals: Floats) -> Floats:
        """Find the candidate with the largest likelihood in a component; the first one of equal ones."""
        return np.argmax(totals, axis=1)[:, None].astype(np.float64)

    def finish(self, state: CouplingChoiceState, devices: Devices) -> CouplingChoiceState:
        """Adopt centroids, strengths and shares of the chosen candidate."""
        trials, n = state.trials, len(devices)
        assert trials is not None
        # Components in which one candidate remains have no answer, and the first candidate.
        number = state.agreed[:, 0].astype(np.int64)
        coupling, has_shares = number % len(WITHOUT_SHARES), number >= len(WITHOUT_SHARES)
        own, is_strong = np.arange(n), coupling == 0
        run = np.maximum(coupling - 1, 0) + has_shares * (len(WITHOUT_SHARES) - 1)
        pooled = np.where(has_shares[:, None, None], trials.shared[:, :, : devices.d], trials.initial)
        penalties = np.where(is_strong[:, None], trials.penalties, trials.found_penalties[own, run])
        strong = spread_coupling(trials.couplings[:, 0], self.components, self.k, devices)
        of_edges = coupling[devices.sources]
        return state._replace(
            centroids=np.where(is_strong[:, None, None], pooled, trials.found[own, run]),
            converged=np.ones(n, np.bool_),
            edge_alpha=np.choose(of_edges, (strong, trials.edge_bayes, trials.edge_links)),
            edge_estimated=np.where(of_edges == WITHOUT_SHARES.index("links"), trials.edge_weights, 1.0),
            coupling=trials.couplings[own, coupling],
            shares=_keep_shares(Shares(penalties, *trials.mixture.T), has_shares),
            chosen=number,
            routes=None,
            trials=None,
        )


def list_stages(method: Any, at: InitContext) -> list[Stage]:
    """Create the stages of a choice for GTVMin with ``coupling="auto"``."""
    topology, tree = at.topology, bounded_spanning_tree(at)
    components = Components.of(topology, at.sizes, at.weights)
    estimated = method.replaced(coupling="bayes", shares=True)
    run = CandidateRun(method, topology)
    strong = None
    if at.on_root is not None:
        every = np.arange(len(components.devices))
        strong = at.on_root(lambda: choose_couplings(topology, components, method.k, every))
    estimates = [TrialEstimate(estimated, topology, tree, components, step, strong) for step in range(_STEPS)]
    stages = [Stage(estimates[0].name, estimates[0], 1)]
    for estimate in estimates[1:]:
        stages += [
            Stage(run.name, run, _ROUNDS, may_be_left_out=True),
            Stage(estimate.name, estimate, 1, may_be_left_out=True),
        ]
    before = None
    for coupling, other in (("links", False), ("bayes", True), ("links", True)):
        run = CandidateRun(method, topology, coupling, other, before)
        stages.append(Stage(run.name, run, _WARM_ROUNDS, may_be_left_out=True))
        before = run
    return [*stages, Stage(CouplingChoice.name, CouplingChoice(method, topology, tree, components, run), 1)]


def _keep_shares(shares: Shares, kept: Mask) -> Shares:
    """Keep the shares of some devices, bool[n]; the others do not use shares."""
    rows = (np.where(kept, part, 0.0) for part in (shares.noise, shares.prior))
    return Shares(np.where(kept[:, None], shares.penalties, 0.0), *rows)


def _begin(centroids: Floats, devices: Devices) -> Trials:
    """Create trials that begin with initial centroids."""
    n, k, d = centroids.shape
    pooled = np.dstack((centroids, np.zeros((n, k))))
    zeros, no = np.zeros((n, k)), np.zeros(n, np.bool_)
    edges, runs = np.zeros(len(devices.indices)), len(_RUNS)
    # Takes no memory until the first run has been measured.
    found = np.broadcast_to(0.0, (n, runs, k, d))
    return Trials(
        centroids, pooled, pooled, zeros, np.zeros((n, 2)), no, no, np.full((n, len(CHOICES)), -np.inf),
        found, found[:, :, :, 0], edges, edges, edges, np.zeros((n, 3)),
    )  # fmt: skip


def _add_offsets(devices: Devices, centroids: Floats, penalties: Floats | None) -> Floats:
    """Add the offsets of the local points of each cluster from its centroid, and their number, float64[n, k, d + 1]."""
    n, k, d = centroids.shape
    sums = np.zeros((n, k, d + 1))
    points, weights, _ = devices.kernel_inputs
    centroids = np.ascontiguousarray(centroids)
    for span, rows, offsets, _, labels in label(devices, centroids, penalties=penalties):
        _, masses, first, _ = devices.kernels.cluster_moments(
            points[rows], weights[rows], offsets, labels, centroids[span]
        )
        sums[span, :, :d] = np.where((masses > 0.0)[:, :, None], first, 0.0) / devices.unit
        sums[span, :, d] = masses / devices.unit
    return sums


def _move(pooled: Floats, sums: Floats) -> Floats:
    """Move each centroid by the mean of the offsets from it; without points it stays."""
    counts = sums[:, :, -1:]
    moved = pooled[:, :, :-1] + np.where(counts > 0.0, sums[:, :, :-1] / np.where(counts > 0.0, counts, 1.0), 0.0)
    return np.dstack((moved, counts))


def _measure(
    trials: Trials, run: CandidateRun, centroids: Floats, alpha: Floats, shares: Shares | None, devices: Devices
) -> Trials:
    """Keep the centroids of a run, and their likelihood, where the candidate is not left out."""
    members = np.flatnonzero(run.find_members(trials))
    if not len(members):
        return trials
    place, choice = (run.find_position(names, trials)[members] for names in (_RUNS, CHOICES))
    pull = np.zeros(len(devices))
    np.add.at(pull, devices.sources, 2.0 * alpha / devices.unit)
    penalties = find_penalties(shares)
    likelihoods, found, kept = trials.likelihoods.copy(), trials.found.copy(), trials.found_penalties.copy()
    measured = leave_one_out(devices, centroids, _find_mixture(trials), pull=pull, penalties=penalties)
    likelihoods[members, choice] = measured[members]
    found[members, place] = centroids[members]
    if penalties is not None:
        kept[members, place] = penalties[members]
    return trials._replace(likelihoods=likelihoods, found=found, found_penalties=kept)


def _find_mixture(trials: Trials) -> Mixture:
    """Collect noise and prior of all devices; components without noise, which nothing is measured in, have 1."""
    noise, prior = trials.mixture.T
    return Mixture(np.where(noise > 0.0, noise, 1.0), prior)


def _measure_run(start: Any, run: CandidateRun | None, devices: Devices) -> Trials:
    """Measure the candidate whose run has just ended, unless it was left out."""
    trials: Trials = start.trials
    return trials if run is None else _measure(trials, run, start.centroids, start.edge_alpha, start.shares, devices)


def _measure_strong(trials: Trials, devices: Devices) -> Trials:
    """Measure the strong candidates by the means of the Lloyd steps."""
    likelihoods, d = trials.likelihoods.copy(), devices.d
    sets: tuple[tuple[str, Mask, Floats, Floats | None], ...] = (
        ("strong", trials.is_open, trials.pooled, None),
        ("strong with shares", ~trials.is_even, trials.shared, trials.penalties),
    )
    for name, measured, means, penalties in sets:
        if measured.any():
            found = leave_one_out(
                devices, np.ascontiguousarray(means[:, :, :d]), _find_mixture(trials),
                pooled=means[:, :, d], penalties=penalties,
            )  # fmt: skip
            likelihoods[measured, CHOICES.index(name)] = found[measured]
    return trials._replace(likelihoods=likelihoods)
