"""FedDP-KMeans (Scott, Lampert and Saulpic 2025): differentially private k-means with a trusted server."""

import math
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask, Search, Stream, cluster
from p2pkm.core.card import Card
from p2pkm.core.chunks import iter_chunks
from p2pkm.core.errors import ExperimentError
from p2pkm.core.expected_messages import Known, TreeSums
from p2pkm.core.fixed_order import multiply
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase, PointCount, RunOutline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks import secure_walk, tree_sums
from p2pkm.methods.building_blocks.gdp import mu_of
from p2pkm.methods.building_blocks.guarantee import LEAST_NOISE, check_delta, check_guarantee, list_missing
from p2pkm.methods.building_blocks.private_releases import (
    MOST_MOMENTS,
    Facts,
    Kind,
    Knowledge,
    Release,
    as_matrix,
    clip,
    lengths,
    local_table,
    moment_release,
    noise_scale,
    row_release,
)
from p2pkm.methods.building_blocks.secure_sums import (
    MOST_NOISE,
    SumName,
    as_totals,
    draw_noise,
    secrets_of,
    standard_normals,
)
from p2pkm.methods.building_blocks.spanning_tree import Tree

# Shares of mu^2 of second moments and of the weights of the candidates; and, with Lloyd steps, the share of the rest
# that the first centroids get (chosen on mixtures, blobs and breast cancer with other seeds than those of the results).
_MOMENTS = 0.2
_WEIGHTS = 0.1
_CENTERS = 0.25
# Random candidates per cluster, with points at the server and without.
_FEW_DRAWS = 10
_MANY_DRAWS = 100
# Standard deviations of a count that count as noise.
_DEVIATIONS = 2.0
# Seedings of the k-means of the candidates.
_STARTS = 20


class Phase(IntEnum):
    """Sums in the order of a run; from STEP on they are Lloyd steps."""

    MOMENTS = 0
    WEIGHTS = 1
    CENTERS = 2
    STEP = 3


@register("feddp")
class FedDPState(NamedTuple):
    """State of a batch. Basis and origins are those that each device received from the server.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf before the centers.
    converged : bool[n]
    basis : float64[n, q, d]
        Orthonormal rows that span the subspace of the projection; without rows points are not projected.
    origins : float64[n, r, w]
        Candidates or projected centers of the next sum in the subspace, or centroids; relative to the public center.
    up : uint64[n, r, 1], or uint64[n, 1, r] with points for the server
        Table of the client, flat, then the coordinates of its points for the server; one word between two sums.
    down : float64[n, r, 1]
        Answer of the server; one number between two sums.
    """

    centroids: Floats
    converged: Mask
    basis: Floats
    origins: Floats
    up: Keys
    down: Floats


@dataclass(frozen=True)
class FedDPKMeans(MethodBase):
    r"""Differentially private k-means with a trusted server, and optionally points at the server (FedDP-KMeans).

    Parameters
    ----------
    k : int
        Number of clusters.
    epsilon : float
        Privacy budget. Required.
    radius : float
        Radius of the ball to which points are clipped, from public knowledge. Required.
    delta : float, default=1e-6
        Must be less than 1 / number of points.
    center : float, default=0.0
        Value of every coordinate of the center of the ball, from public knowledge.
    relation : {"add", "replace"}, default="add"
        Neighboring data sets. "add": one point more or less. "replace": one point replaced.
    steps : int, default=1
        Lloyd steps after the initialization.
    server_points : int, default=0
        Points per cluster that the server holds: a random sample of the points of the clients, which the guarantee does
        not protect. 0: none.
    noise_seed : int, optional
        Seed of the noise, for tests and studies of accuracy. With it the guarantee is void.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    Private
        Differential privacy without a server.

    Notes
    -----
    **Update.** Points x are taken relative to `center` and clipped to the ball of radius R. The server adds normal
    noise to the sum over all clients of [1]_:

    1. Second moments ``x x^T``: the subspace of the k leading eigenvectors. Skipped if d <= k.
    2. Number of points nearest to each candidate, in the subspace. Candidates are the points of the server and 10 k
       draws uniform in the ball; without points at the server 100 k draws. Weighted k-means of those with more points
       than noise gives k centers in the subspace.
    3. Sum and number of the points nearest to each center: their means are the first centroids.
    4. `steps` Lloyd steps in all dimensions, with the same sums.

    With mu of Gaussian differential privacy from epsilon and delta, step 1 has 20 % of mu^2, step 2 10 %, step 3 a
    quarter of the rest (all of it with ``steps=0``), and step 4 the remainder. The noise of a sum has the standard
    deviation ``D / mu_i``, with D = R^2 in step 1, 1 in step 2, and ``sqrt(R^2 + a^2)`` for rows ``(sum of x, a n)``
    with ``a = R / (sqrt(2) d^(1/4))``. A row whose count may be noise keeps its centroid.

    **Messages.** Up: d (d + 1) / 2 second moments, with the points for the server; then counts, and k rows per step.
    Down: basis and candidates, centers, centroids. 8 bytes per number.

    **Convergence.** Ends after all sums. The cost may increase.

    **Privacy.** (epsilon, delta)-differential privacy for each point against recipients of the centroids, except for
    points in the sample of the server, which all clients receive, projected as in 1. The server sees exact sums of
    every client. What may be published, and what is not protected: as in `Private`.

    **Differences from the paper.** The noise on second moments is scaled to R^2 instead of R (docs/explain/errata.md).
    Counts have normal instead of Laplace noise. The split of the budget, the threshold of two standard deviations, and
    candidates without points at the server are choices of p2pkm.

    References
    ----------
    .. [1] J. Scott, C. H. Lampert, D. Saulpic, "Differentially private federated k-means clustering with server-side
       data", ICML 2025: Algorithms 1 and 2.

    Examples
    --------
    >>> import p2pkm
    >>> X, y = p2pkm.blobs(clusters=3, points=200, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(600, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.FedDPKMeans(3, epsilon=8, radius=50, noise_seed=0), None, shards)
    >>> result.summary["epsilon"], result.centroids.shape
    (8, (3, 3, 2))
    """

    k: int
    _: KW_ONLY
    epsilon: float | None = None
    radius: float | None = None
    delta: float = 1e-6
    center: float = 0.0
    relation: Literal["add", "replace"] = "add"
    steps: int = 1
    server_points: int = 0
    noise_seed: int | None = None

    # The adversary of the guarantee, as in `Private`.
    trust: ClassVar[str] = "server"
    curious: ClassVar[int] = 0
    card = Card(
        "feddp",
        family="server",
        sends="sums",
        points="none",
        line="differentially private k-means, trusted server (FedDP)",
        paper={"steps": 1, "server_points": 20},
        source="the authors' configuration of their Gaussian mixtures",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi*3"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        budget, ball = (self.epsilon, self.delta), (self.center, self.radius)
        check_guarantee(self.name, budget, ball, self.noise_seed)
        check_choice(self.relation, ("add", "replace"), "feddp:relation")
        check_integer(self.steps, 0, "feddp:steps")
        check_integer(self.server_points, 0, "feddp:server_points")

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.OTHER,
            incompatible_with={
                "suppression": "sends sums over all points of a client to a trusted server",
                Condition.LOSSY_LINKS: "adds up the tables of all clients, and must not repeat a sum that fails",
                Condition.CHANGING_LINKS: "adds up the tables of all clients, whose links must not change",
                "quantization": "sends integers already",
                Condition.POINT_WEIGHTS: "bounds the change of a sum by one point, which a weight would increase",
                Condition.MEASURED_POINTS: "takes the ball of the points as a parameter, and must not compute "
                "anything from them before",
            },
            needs_honest_messages=True,
            needs_hub=True,
            needs_parameters=list_missing(self.epsilon, self.radius),
            common_centroids=True,
            guarantee="(epsilon, delta)-differential privacy for every point of a client, against recipients of the "
            "centroids; the server is trusted, and its own points (server_points) are not protected",
            noise_seed=self.noise_seed,
        )

    @property
    def mu(self) -> float:
        """Budget mu of Gaussian differential privacy for all sums together."""
        return mu_of(self.epsilon or 0.0, self.delta)

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject too large a delta, noise below the units, and noise that integers cannot hold."""
        check_delta(self.name, self.delta, points.m)
        for phase in self.shares(points.d):
            release = self.release(phase, points.d)
            noise = self.noise(phase, points.d) * float(np.min(noise_scale(release))) / release.grain.unit
            if noise < LEAST_NOISE:
                raise ExperimentError(
                    f"feddp:epsilon is {self.epsilon:g}, which gives noise of {noise:.2g} units; expected at least "
                    f"{LEAST_NOISE:g}, otherwise rounding to integers removes it. Use a smaller epsilon."
                )
            most = self.noise(phase, points.d) / release.grain.unit
            if most > MOST_NOISE:
                raise ExperimentError(
                    f"feddp:epsilon is {self.epsilon:g}, which gives noise of {most:.2g} units; expected at most "
                    f"{MOST_NOISE:.2g}, otherwise integers do not hold it. Use a larger epsilon."
                )

    def is_projected(self, d: int) -> bool:
        """Whether points are projected to a subspace of k dimensions."""
        return self.k < d and d * (d + 1) // 2 <= MOST_MOMENTS

    def shares(self, d: int) -> dict[Phase, float]:
        """Shares of mu^2 of each sum, of each Lloyd step for STEP."""
        rest = 1.0 - _MOMENTS - _WEIGHTS
        centers = _CENTERS if self.steps else 1.0
        shares = {Phase.MOMENTS: _MOMENTS, Phase.WEIGHTS: _WEIGHTS, Phase.CENTERS: rest * centers}
        if self.steps:
            shares[Phase.STEP] = rest * (1.0 - centers) / self.steps
        if self.is_projected(d):
            return shares
        return {phase: share / (1.0 - _MOMENTS) for phase, share in shares.items() if phase != Phase.MOMENTS}

    def release(self, phase: Phase, d: int, candidates: int = 2) -> Release:
        """Create the release of a phase; its sensitivity does not depend on the number of candidates."""
        radius = self.radius or 1.0
        if phase == Phase.MOMENTS:
            return moment_release(d, radius, self.relation)
        if phase == Phase.WEIGHTS:
            return row_release(Kind.CELLS, (candidates, 1), 0.0, 1.0, self.relation)
        # The weight of least noise for means at a distance of half the radius from the center.
        weight = radius * math.sqrt(0.5) / d**0.25
        return row_release(Kind.STEP, (self.k, d + 1), radius, weight, self.relation)

    def noise(self, phase: Phase, d: int) -> float:
        """Compute the standard deviation of the noise of a total."""
        share = self.shares(d)[phase]
        return self.release(phase, d).grain.sensitivity / (math.sqrt(share) * self.mu)

    def sample_size(self, clients: int) -> int:
        """Compute the number of points that each client sends to the server."""
        return -(-self.k * self.server_points // max(clients, 1))

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Collect the parameters, the guarantee and the noise of a count, for the summary."""
        last = Phase.STEP if self.steps else Phase.CENTERS
        release = self.release(last, devices.d)
        return {
            "epsilon": self.epsilon, "delta": self.delta, "radius": self.radius, "center": self.center,
            "trust": self.trust, "curious": self.curious, "steps": self.steps, "relation": self.relation,
            "server_points": self.server_points, "noise_seed": self.noise_seed, "mu": self.mu, "size": None,
            "noise_count": self.noise(last, devices.d) / release.weight, "epsilon_alone": None,
        }  # fmt: skip

    def expected_messages(self, known: Known) -> TreeSums:
        """Count one table up and one answer down for every client and sum."""
        d, k, n = known.features, self.k, known.clients
        quota = self.sample_size(n)
        candidates = n * quota + k * (_FEW_DRAWS if quota else _MANY_DRAWS)
        q = k if self.is_projected(d) else 0
        first = max((q > 0) * d * (d + 1) // 2 + quota * d, 1)
        tables = [(first, q * d + candidates * (q or d)), (candidates, k * (q or d))]
        tables += [(k * (d + 1), k * d)] * (1 + self.steps)
        return TreeSums(*_tree(n), 0, tuple(tables), len(tables))

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return True: noisy sums give k clusters for any points."""
        return True

    def flops(self, work: Work) -> Integers:
        """Count the passes over the local points, in proportion to the received rows, and the additions."""
        return work.rows * (work.d + 1) + work.sizes * (3 * self.k + 2) * work.d * (work.rows > 0)

    def initial_state(self, devices: Devices, start: Any) -> FedDPState:
        """Create a state without centroids."""
        n, d = len(devices), devices.d
        return FedDPState(
            np.full((n, self.k, d), np.inf), np.zeros(n, np.bool_), np.zeros((n, 0, d)), np.zeros((n, 0, d)),
            np.zeros((n, 1, 1), np.uint64), np.zeros((n, 1, 1)),
        )  # fmt: skip

    def message(self, state: FedDPState, devices: Devices) -> DenseMessages:
        """Send tables to the server in the first turn of a round, answers in the second."""
        if devices.round == 0:
            return secure_walk.send_nothing(devices)
        position = tree_sums.PassPosition(devices.turn, 1)
        if not position.is_in_pass:
            return no_messages(len(devices), 1, 1)
        words = state.up.view(np.float64) if position.up else state.down
        tree = _tree(devices.clients)
        # The rank of the server knows the length of an answer before the others do.
        return tree_sums.send_tables(position, tree, devices, words, ~state.converged)._replace(ragged=True)

    def update(self, state: FedDPState, inbox: Inbox, devices: Devices) -> FedDPState:
        """Prepare the tables, answer them at the server, and read the answer."""
        if state.converged.all():
            return state
        if devices.turn == 0:
            return self.prepare(state, devices)
        if devices.turn == 1:
            return self.answer(state, inbox, devices)
        return self.read_answer(state, inbox, devices)

    def prepare(self, state: FedDPState, devices: Devices) -> FedDPState:
        """Compute the tables of the clients; the server has no points, its table is the noise."""
        n, d = len(devices), devices.d
        if not n:
            return state
        phase = _phase(devices)
        hub = np.flatnonzero(devices.ids == devices.server)
        words = np.zeros((n, 0), np.uint64)
        if phase != Phase.MOMENTS or self.is_projected(d):
            release = self.release(phase, d, state.origins.shape[1])
            table = self.local_table(devices, state, phase, release)
            sd = self.noise(phase, d) / release.grain.unit
            name = SumName(self.name, devices.round)
            keys = secrets_of(devices).keys[hub]
            table[hub] += draw_noise(keys, name, sd * noise_scale(release), (release.rows, release.width))
            words = table.view(np.uint64).reshape(n, -1)
        if phase == Phase.MOMENTS:
            sample = self._sample(devices).reshape(n, -1)
            words = np.concatenate((words, sample.view(np.uint64)), axis=1)
            # With nothing to send: one number, which starts the round.
            words = words if words.shape[1] else np.zeros((n, 1), np.uint64)
        # One number per row, as in answers: buffers have the most rows and the most columns of all tables of a run.
        # Points stay in one row, in which the channel finds them.
        has_points = phase == Phase.MOMENTS and self.server_points > 0
        up = np.ascontiguousarray(words)[:, None] if has_points else np.ascontiguousarray(words)[:, :, None]
        return state._replace(up=up, down=np.zeros((n, 1, 1)))

    def local_table(self, devices: Devices, state: FedDPState, phase: Phase, release: Release) -> Integers:
        """Compute the tables of the local points, int64[n, r, w], in units."""
        ball = self.center, self.radius or 0.0
        if phase == Phase.MOMENTS:
            zero = np.zeros(devices.d)
            known = Knowledge(Facts(), zero, np.zeros((0, devices.d + 1)), np.zeros((0, devices.d)))
            return local_table(devices, ball, known, release)
        table = np.zeros((len(devices), release.rows, release.width), np.int64)
        for chunk, rows in iter_chunks(devices.offsets):
            points = clip(devices.stored[rows].astype(np.float64) - self.center, ball[1])
            firsts = devices.offsets[chunk.start : chunk.stop + 1] - rows.start
            places = _project(points, firsts, state.basis[chunk]) if phase < Phase.STEP else points
            _, labels = devices.kernels.losses(places, np.zeros(0), firsts, state.origins[chunk])
            cells = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts)) * release.rows + labels
            shape = table[chunk].shape[:2]
            if release.width > 1:
                # Each point is rounded before it is added, so its contribution is bounded by the sensitivity.
                for f, column in enumerate(np.rint(points / release.grain.unit).T):
                    table[chunk, :, f] = np.bincount(cells, column, shape[0] * shape[1]).reshape(shape)
            counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
            table[chunk, :, -1] = counts * int(release.point_units)
        return table

    def _sample(self, devices: Devices) -> Floats:
        """Choose the points that each client sends to the server, float64[n, s, d]; absent points are +inf."""
        quota = self.sample_size(devices.clients)
        sample = np.full((len(devices), quota, devices.d), np.inf)
        for i, key in enumerate(devices.keys if quota else ()):
            points = devices.table(i)[0]
            chosen = points[np.argsort(uniforms(key, Stream.SAMPLE, [0], len(points))[0], kind="stable")[:quota]]
            sample[i, : len(chosen)] = chosen
        return sample

    def answer(self, state: FedDPState, inbox: Inbox, devices: Devices) -> FedDPState:
        """Compute the answer of the server from the noisy total, into `down`."""
        hub = np.flatnonzero(devices.ids == devices.server)
        if not len(hub):
            return state
        edges = np.flatnonzero(inbox.fresh)
        tables = np.ascontiguousarray(inbox.tables_of(edges, *state.up.shape[1:]))
        received = tables.reshape(len(edges), -1).view(np.uint64)
        phase, d = _phase(devices), devices.d
        release = self.release(phase, d, state.origins.shape[1])
        numbers = release.rows * release.width
        if phase == Phase.MOMENTS and not self.is_projected(d):
            numbers = 0
        total = state.up[hub[0]].reshape(-1)[:numbers] + received[:, :numbers].sum(axis=0, dtype=np.uint64)
        values = as_totals(total.reshape(-1, release.width), release.grain)
        if phase == Phase.MOMENTS:
            end = numbers + d * self.sample_size(devices.clients)
            sample = np.ascontiguousarray(received[:, numbers:end]).view(np.float64).reshape(-1, d)
            command = self._place_candidates(values, sample[np.isfinite(sample[:, 0])], devices)
        elif phase == Phase.WEIGHTS:
            command = self._cluster_candidates(state.origins[0], values[:, 0], devices)
        else:
            command = self._move(state, phase, values)
        down = np.zeros((len(devices), len(command), 1))
        down[hub, :, 0] = command
        return state._replace(down=down)

    def _place_candidates(self, moments: Floats, sample: Floats, devices: Devices) -> Floats:
        """Compute the subspace, and in it the candidates: points of the server, and draws uniform in the ball."""
        from topologies.single_thread import single_thread

        radius, basis = self.radius or 0.0, np.zeros((0, devices.d))
        if self.is_projected(devices.d):
            with single_thread():
                basis = np.linalg.eigh(as_matrix(moments[0]))[1].T[::-1][: self.k]
        q = len(basis) or devices.d
        count = self.k * (_FEW_DRAWS if self.server_points else _MANY_DRAWS)
        key = devices.shared_key
        draws = standard_normals(np.array([key], np.uint64), 0, Stream.CELLS, q * count).reshape(count, q)
        # Powers of Python floats: those of NumPy differ in the last bit with the vectors of the processor.
        distances = [radius * share ** (1.0 / q) for share in uniforms(key, Stream.CELLS, [1], count).ravel().tolist()]
        draws *= (np.array(distances) / lengths(draws))[:, None]
        held = clip(sample - self.center, radius)
        candidates = np.concatenate((multiply(held, basis.T) if len(basis) else held, draws))
        return np.concatenate((basis.ravel(), candidates.ravel()))

    def _cluster_candidates(self, candidates: Floats, counts: Floats, devices: Devices) -> Floats:
        """Cluster the candidates with more points than noise, at least k, weighted by their noisy counts."""
        used = counts > _DEVIATIONS * self.noise(Phase.WEIGHTS, devices.d)
        if np.count_nonzero(used) < self.k:
            used = np.isin(np.arange(len(counts)), np.argsort(-counts, kind="stable")[: self.k])
        rows, weights = candidates[used], np.maximum(counts[used], 1.0)
        search = Search(self.k, Stream.SERVER, starts=_STARTS)
        centers = cluster(devices.kernels, devices.shared_key, rows, weights, search)[0]
        # Equal candidates give fewer clusters; the last draws of the ball, which are distinct, take their place.
        absent = np.isposinf(centers[:, 0])
        centers[absent] = candidates[len(candidates) - np.count_nonzero(absent) :]
        return centers.ravel()

    def _move(self, state: FedDPState, phase: Phase, values: Floats) -> Floats:
        """Move the centroids to the means of their points; those whose count may be noise do not move."""
        basis, origins = state.basis[0], state.origins[0]
        before = multiply(origins, basis) if phase == Phase.CENTERS and len(basis) else origins
        d = values.shape[1] - 1
        release = self.release(phase, d)
        counts = release.counts(values)
        is_read = counts > _DEVIATIONS * self.noise(phase, d) / release.weight
        means = clip(values[:, :-1] / np.maximum(counts, 1.0)[:, None], self.radius or 0.0)
        return np.where(is_read[:, None], means, before).ravel()

    def read_answer(self, state: FedDPState, inbox: Inbox, devices: Devices) -> FedDPState:
        """Apply to each device the answer of the server that it received."""
        n, d = len(devices), devices.d
        if not n:
            return state
        edges, down = np.flatnonzero(inbox.fresh), state.down
        if len(edges):
            received = inbox.tables_of(edges, int(inbox.rows_of(edges).max()), 1)
            down = np.zeros((n, *received.shape[1:]))
            hub = devices.ids == devices.server
            down[hub] = state.down[hub]
            down[devices.sources[edges]] = received
        phase, q = _phase(devices), self.k if self.is_projected(d) else 0
        basis, rows, centroids = state.basis, down.reshape(n, -1), state.centroids
        if phase == Phase.MOMENTS:
            basis, rows = rows[:, : q * d].reshape(n, q, d), rows[:, q * d :]
        origins = rows.reshape(n, -1, q or d) if phase < Phase.CENTERS else rows.reshape(n, -1, d)
        if phase >= Phase.CENTERS:
            centroids = origins + self.center
        is_last = np.full(n, devices.round == Phase.STEP + self.steps)
        basis, origins = np.ascontiguousarray(basis), np.ascontiguousarray(origins)
        return FedDPState(centroids, is_last, basis, origins, np.zeros((n, 1, 1), np.uint64), np.zeros((n, 1, 1)))


def _phase(devices: Devices) -> Phase:
    """Return the phase of the round."""
    return Phase(min(devices.round - 1, Phase.STEP))


def _tree(clients: int) -> Tree:
    """Create the tree of a star, whose root is the server."""
    parent = np.full(clients + 1, clients)
    parent[clients] = -1
    return Tree(parent, (parent >= 0).astype(np.int64))


def _project(points: Floats, firsts: Integers, bases: Floats) -> Floats:
    """Project the points of each device, from ``firsts[i]`` on, to the subspace that it knows, float64[m, q]."""
    if not bases.shape[1]:
        return points
    if (bases == bases[:1]).all():
        return multiply(points, bases[0].T)
    parts = [multiply(points[firsts[i] : firsts[i + 1]], basis.T) for i, basis in enumerate(bases)]
    return np.concatenate(parts)
