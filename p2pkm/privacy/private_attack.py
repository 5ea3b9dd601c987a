"""Attack on `private` in real runs, with and without one point, or one device.

The attacker chooses all points. It plays whole runs, as `p2pkm.privacy.observed_run` records them, on two neighboring
data sets, and tests each part of the guarantee:

* **noise**: the total minus the tables of all known points is noise, which must have the claimed standard deviation,
  and be independent between runs, releases and devices (`p2pkm.privacy.noise_evidence`);
* **changes**: canaries, such as a point far outside of the ball, change tables by at most the assumed sensitivity;
* **one point**: the likelihood ratio test of whether the point is present, over all releases;
* **masks**: messages that colluding devices receive are uniform words, also after subtraction of all known masks, and
  as differences of two releases or two runs;
* **public values**: commands and all else that a device stores follow from totals, so they are equal for other points.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Keys, Mask
from p2pkm.data.shards import Shards
from p2pkm.methods.building_blocks.private_releases import Kind, lengths
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.privacy.attacks import Trials
from p2pkm.privacy.noise_evidence import NoiseEvidence, ReleaseName, WordCounts
from p2pkm.privacy.observed_run import ObservedRelease, ObservedRun, PointSet, list_subtrees, observe_run

if TYPE_CHECKING:
    from p2pkm.methods.peer.private import Private
    from p2pkm.network.graph import Topology

# Points per standard deviation of the count of a ring: with this many the rings find the radius of the points, which
# is far below that of the ball, so the far canary is clipped in every release. Least and largest number of points.
_POINTS_PER_DEVIATION = 100.0
_FEWEST, _MOST = 500, 20_000
# Distance of clusters from the center and their standard deviation, in radii of the ball.
_SPREAD, _WIDTH = 0.15, 0.01
# Distance of the far canaries from the center, in radii of the ball.
_FAR, _FARTHEST = 3.0, 1000.0
# Points of a device that is present or absent, far more than those to which its contribution is limited.
_DEVICE_POINTS = 200
# First runs of each kind in which every call is repeated for other points.
_THOROUGH = 2
# Multiples of the masks of a coalition that an attacker subtracts.
_MULTIPLES = (-2, -1, 1, 2)


class Coalition(NamedTuple):
    """Attackers.

    Attributes
    ----------
    name : str
    hidden : int
        Devices whose noise protects a point.
    mu : float
        Claimed mu of a run.
    sees_devices : bool
        Whether all devices except one collude, so that the table of a device is seen with its noise alone.
    """

    name: str
    hidden: int
    mu: float
    sees_devices: bool


def list_coalitions(method: "Private", n: int) -> list[Coalition]:
    """List the coalitions against which a method of n devices claims a guarantee."""
    mu = method.mu
    if method.trust == "server":
        return [Coalition("recipients", 1, mu, sees_devices=False)]
    if method.trust == "none":
        return [Coalition("all others", 1, mu, sees_devices=True)]
    hidden = n - method.curious
    return [
        Coalition("curious", hidden, mu, sees_devices=False),
        Coalition("all others", 1, mu * math.sqrt(hidden), sees_devices=True),
    ]


class Canaries(NamedTuple):
    """Data sets of an attack.

    Attributes
    ----------
    without, with_point : Shards
        Neighboring data sets of which whole runs are played.
    neighbors : list of PointSet
        Further neighbors of the first one.
    victim : int
        Device of the point.
    """

    without: Shards
    with_point: Shards
    neighbors: list[PointSet]
    victim: int


def choose_canaries(method: "Private", topology: "Topology", features: int, seed: int) -> Canaries:
    """Create points near the center, and canaries at a device far from the root.

    The canaries are a point far outside of the ball, one even farther on the other side, one at a place with many
    points, and one at the surface of the ball. With ``relation=replace`` they replace a point on the other side. With
    ``relation=device`` the device has many points at the place of a canary, or none.
    """
    rng, n = np.random.default_rng(seed), topology.n
    radius, tree = method.radius or 1.0, build_spanning_tree(topology)
    plan = method.plan(n, features)
    rings = next(known for known in plan.outline(1, 1) if known.facts.kind == Kind.RINGS)
    required = _POINTS_PER_DEVIATION * method.noise_of(plan.release(rings), 1.0, n, features)[1]
    # Below 1 / delta, as the method requires.
    m = int(max(method.k, min(max(required, _FEWEST), _MOST, 0.5 / method.delta)))
    means = _normalize(rng.normal(size=(method.k, features))) * _SPREAD
    points = means[rng.integers(0, method.k, m)] + _WIDTH * rng.normal(size=(m, features))
    # No point is near the surface of the ball, so a canary there changes whatever depends on the farthest point.
    points[: m // 10] = points[0]
    devices = rng.permutation(np.arange(m) % n)
    victim = int(np.argmax(tree.layer))
    away = _normalize(means[:1])[0]
    across = _normalize(rng.normal(size=(1, features)))[0]
    chosen = np.stack((_FAR * away, -_FARTHEST * away, points[0], across))
    points, chosen = radius * points + method.center, radius * chosen + method.center
    count = 1
    if method.relation == "device":
        is_other, count = devices != victim, _DEVICE_POINTS
        points, devices = points[is_other], devices[is_other]
    before = 2.0 * method.center - chosen[:1] if method.relation == "replace" else chosen[:0]

    def deal(changed: Floats) -> Shards:
        owners = np.append(devices, np.full(len(changed), victim))
        return Shards.deal(np.vstack((points, changed)), owners, devices=n)

    without = deal(before)
    neighbors = [deal(np.repeat(canary[None], count, axis=0)) for canary in chosen]
    return Canaries(without, neighbors[0], [PointSet.of(shards) for shards in neighbors[1:]], victim)


def _normalize(vectors: Floats) -> Floats:
    """Scale vectors to length 1."""
    return vectors / lengths(vectors)[..., None]


class Evidence(NamedTuple):
    """Evidence of all runs against one coalition."""

    coalition: Coalition
    noise: NoiseEvidence
    trials: Trials


class AttackResult(NamedTuple):
    """Result of an attack on real runs.

    Attributes
    ----------
    evidence : list of Evidence
        One for each coalition.
    words : WordCounts
        Words that masks must make uniform; empty without masks.
    dependent : list of str
        Public values that depend on points, sorted.
    """

    evidence: list[Evidence]
    words: WordCounts
    dependent: list[str]


def attack_runs(
    method: "Private", topology: "Topology", canaries: Canaries, trials: int, seed: int,
    progress: Callable[[int], None] = lambda number: None,
) -> AttackResult:  # fmt: skip
    """Play whole runs of neighboring data sets, and collect evidence.

    Parameters
    ----------
    method : Private
    topology : Topology
    canaries : Canaries
    trials : int
        Runs with the point, and without it.
    seed : int
        Seed of every run, which is public.
    progress : callable
        Receives the number of finished runs.
    """
    collector = _Collector(method, topology, canaries.victim)
    without, with_point = PointSet.of(canaries.without), PointSet.of(canaries.with_point)
    for number in range(2 * trials):
        # Two runs of each kind follow each other, so that successive runs are compared on equal and on other points.
        present, is_thorough = (number + 1) // 2 % 2 == 1, number < 2 * _THOROUGH
        neighbors = [without if present else with_point]
        if is_thorough and not present:
            neighbors += canaries.neighbors
        shards = canaries.with_point if present else canaries.without
        run = observe_run(method, topology, shards, neighbors, seed=seed, is_thorough=is_thorough)
        collector.add(run, number, present=present)
        progress(number + 1)
    return collector.finish()


class _Collector:
    """Computation of evidence from records of runs."""

    def __init__(self, method: "Private", topology: "Topology", victim: int) -> None:
        # The property solves for mu in every call.
        self._method, self._mu, self._topology, self._victim = method, method.mu, topology, victim
        self._tree: Tree = build_spanning_tree(topology)
        self._subtrees = list_subtrees(self._tree)
        self._coalitions = list_coalitions(method, topology.n)
        self._noise = [NoiseEvidence(coalition.mu) for coalition in self._coalitions]
        self._scores: list[tuple[list[float], list[float]]] = [([], []) for _ in self._coalitions]
        self._words, self._dependent = WordCounts(), set[str]()
        # Messages of the first release of the last run.
        self._last_words = np.zeros(0, np.uint64)

    def add(self, run: ObservedRun, number: int, *, present: bool) -> None:
        """Add a run; the colluding devices differ from run to run."""
        self._dependent |= run.dependent
        colluding = self._choose_colluding(number // 2)
        if self._method.trust == "masks":
            self._add_words(run.releases, colluding, is_first=number % 2 == 0)
        noisy_tables = [_open_tables(observed, self._tree, self._topology) for observed in run.releases]
        for place, coalition in enumerate(self._coalitions):
            noise, mus, score, norm = {}, {}, 0.0, 0.0
            for observed, noisy in zip(run.releases, noisy_tables, strict=True):
                name = ReleaseName(observed.kind.name.lower().replace("_", " "), observed.number)
                mus[name] = observed.mu * coalition.mu / self._mu
                sd = observed.sensitivity / mus[name] * observed.scale
                noise[name] = self._see(observed, noisy, coalition, colluding) / sd
                change = (-1 if present else 1) * observed.changes[0] / sd
                seen = noise[name][self._victim if coalition.sees_devices else 0] + present * change
                score += float((seen * change).sum())
                norm += float(np.square(change).sum())
            self._noise[place].add_run(noise, mus)
            for observed, name in zip(run.releases, noise, strict=True):
                sizes = lengths(observed.changes / observed.scale) / observed.sensitivity
                self._noise[place].add_change(name, float(sizes.max()))
            self._scores[place][present].append(score / math.sqrt(norm) if norm > 0.0 else 0.0)

    def finish(self) -> AttackResult:
        """Complete the evidence."""
        trials = [Trials(*(np.array(part) for part in parts)) for parts in self._scores]
        evidence = [Evidence(*parts) for parts in zip(self._coalitions, self._noise, trials, strict=True)]
        return AttackResult(evidence, self._words, sorted(self._dependent))

    def _choose_colluding(self, turn: int) -> Mask:
        """Choose `curious` devices except the one of the point, in turn."""
        colluding = np.zeros(self._topology.n, np.bool_)
        if self._method.trust == "masks":
            candidates = np.delete(np.arange(self._topology.n), self._victim)
            first = turn * self._method.curious
            colluding[candidates[(first + np.arange(self._method.curious)) % len(candidates)]] = True
        return colluding

    def _see(self, observed: ObservedRelease, noisy: Integers, coalition: Coalition, colluding: Mask) -> Integers:
        """Compute the noise that remains after subtraction of all that the coalition knows, int64[g, l]."""
        if coalition.sees_devices:
            return noisy - observed.tables
        total = observed.sent[np.flatnonzero(self._tree.parent < 0)[0]].view(np.int64)
        return (total - noisy[colluding].sum(axis=0) - observed.tables[~colluding].sum(axis=0))[None]

    def _add_words(self, releases: list[ObservedRelease], colluding: Mask, *, is_first: bool) -> None:
        """Add the messages of a child of a colluding device, in several forms that must all be uniform."""
        parent = self._tree.parent
        candidates = np.flatnonzero((parent >= 0) & ~colluding & colluding[parent])
        # A message of all hidden devices is their total, which the coalition may know.
        senders = [i for i in candidates if np.count_nonzero(self._subtrees[i] & ~colluding) < (~colluding).sum()]
        if not senders:
            return
        received = [self._read_words(observed, colluding, int(senders[0])) for observed in releases]
        for sent, known in received:
            self._words.add("as received", sent)
            for multiple in _MULTIPLES:
                self._words.add(f"without {multiple} known masks", sent - np.uint64(multiple % 2**64) * known)
        for (before, known_before), (sent, known) in pairwise(received):
            self._words.add_difference("difference of releases", sent, before)
            self._words.add_difference("of releases, without known masks", sent - known, before - known_before)
        if not is_first:
            # The same devices as in the run before.
            self._words.add_difference("difference of runs", received[0][0], self._last_words)
        self._last_words = received[0][0]

    def _read_words(self, observed: ObservedRelease, colluding: Mask, sender: int) -> tuple[Keys, Keys]:
        """Compute the sum of the tables of the hidden devices in a subtree, and the masks of it that are known."""
        inside = self._subtrees[sender] & ~colluding
        covered = _covered_tables(observed, self._tree)[self._subtrees[sender] & colluding]
        sent = observed.sent[sender] - covered.sum(axis=0, dtype=np.uint64)
        return sent, self._sum_known_masks(observed, inside, colluding)

    def _sum_known_masks(self, observed: ObservedRelease, inside: Mask, colluding: Mask) -> Keys:
        """Add up the masks between the devices of a subtree and the coalition, uint64[l]."""
        sources, targets = self._topology.sources, self._topology.indices
        return observed.masks[inside[sources] & colluding[targets]].sum(axis=0, dtype=np.uint64)


def _covered_tables(observed: ObservedRelease, tree: Tree) -> Keys:
    """Compute the masked table of each device, from what it sent minus what it received, uint64[n, l]."""
    covered = observed.sent.copy()
    has_parent = tree.parent >= 0
    np.subtract.at(covered, tree.parent[has_parent], observed.sent[has_parent])
    return covered


def _open_tables(observed: ObservedRelease, tree: Tree, topology: "Topology") -> Integers:
    """Compute the noisy table of each device without masks, int64[n, l], as all of its neighbors together can."""
    covered = _covered_tables(observed, tree)
    if observed.masks.shape[1]:
        np.subtract.at(covered, topology.sources, observed.masks)
    return covered.view(np.int64)
