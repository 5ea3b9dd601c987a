"""Private k-means: differential privacy for every point, by few noisy sums over all devices along a tree."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.expected_messages import Known, TreeSums
from p2pkm.core.messages import DenseMessages, Inbox, silence
from p2pkm.core.protocols import MethodBase, OnGraph, PointCount, RunOutline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import FARTHEST, LARGEST, SMALLEST, one_of, positive, whole
from p2pkm.methods.building_blocks import private_tables as tables
from p2pkm.methods.building_blocks import secure_walk, tree_sums
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.methods.building_blocks.private_tables import Shape
from p2pkm.methods.building_blocks.secure_sums import (
    FINEST,
    WORDS,
    SumName,
    as_totals,
    draw_noise,
    link_keys,
    secrets_of,
)
from p2pkm.methods.building_blocks.spanning_tree import Tree, grow
from p2pkm.network.graph import Topology

_SIZE, _SEEDS, _STEPS = 0.05, 0.57, 0.38  # shares of mu^2
_MOST_STEPS = 100
_LEAST_NOISE = 4.0  # units: rounded normals are then as good as normals (Kairouz, Liu, Steinke, 2021)


@register("private")
class PrivateState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf before the seeds are known.
    converged : bool[n]
    size : float64[n]
        R', the radius of the ball that the centroids lie in, found by the first sum; `radius` before.
    up, down : uint64[n, r, w]
        What goes up and down the tree in the sum that is taken; between two sums a single word.
    edge_keys : uint64[e]
        What the masks of each link are drawn with; 0 where there are none.
    """

    centroids: Floats
    converged: Mask
    size: Floats
    up: Keys
    down: Keys
    edge_keys: Keys


@dataclass(frozen=True)
class Private(MethodBase):
    r"""Add up noisy tables of all devices, and read the clusters of all points from the totals.

    Points x are taken relative to `center` and clipped to a ball of `radius` around it, both given and never found in
    the points. Three kinds of tables are added up over all devices, along a breadth-first tree, and their totals come
    down, so that all hold the same:

    * size, once: how many points lie in each of 41 rings of radius ``R_j = radius 2^(-j/4)``. R' is the smallest R_j
      beyond which there are no more points than 0.5 % of all, or than noise may be.
    * seeds, once: 6 k cells of the ball R', the same for all devices; the points nearest to cell w_c add
      ``(sum of clip(x - w_c, reach), a n_c)`` with ``reach = a = R' (6 k)^(-1/d)``. Cells with more points than noise
      are clustered into k.
    * `steps` times: the same of the k centroids with ``reach = min(R', 0.6 R' k^(-1/d))`` and
      ``a = reach sqrt(0.3) / d^(1/4)``; then ``w_c <- w_c + clip(S_c / n_c, reach)``.

    One point changes a table by at most ``D = sqrt(reach^2 + a^2)``. Every device adds normal noise of standard
    deviation ``D / (mu_i sqrt(h))`` to every number of its table; mu is the one of Gaussian differential privacy that
    epsilon and delta stand for, of whose square size, seeds and steps get 5, 57 and 38 %; without steps size and seeds
    share all of it, 5 to 57.

    Message: 32 bytes over every link once (trust=masks), then for each sum one table up and one down each link of the
    tree, 8 bytes a number. The number of sums is fixed: nothing ends earlier because of what was found.

    Guarantee: what any `curious` devices see together (trust=masks), any number of them (none), or whoever sees the
    centroids (server), is (epsilon, delta)-differentially private for each point of the other devices.

    Link weights: ignored; messages follow a spanning tree of fewest hops.

    Privacy: a guarantee, epsilon at delta, for adding or removing a point (relation=add) or replacing one (exchange);
    the theorem is stated, not proven here. Noise and masks come from a secret of the operating system, new in every
    run and held in memory alone: such a run writes no checkpoints and cannot be resumed or repeated. With `noise_seed`
    there is no guarantee. trust=masks: masks that cancel in the sum hide the tables, and each device adds a share of
    the noise, ``h = n - curious``: enough with any `curious` devices that pool what they know and add none. If all but
    one pool, `epsilon_alone` is left. trust=none: each device adds all of the noise, and masks nothing. trust=server:
    the root of the tree adds the noise; every device on the way up sees sums without noise and is trusted. Published
    may be the centroids and, with relation=exchange, the number of points; with relation=add publishing it voids the
    guarantee. Not protected: that a device takes part, and all of its points together; the run folder, scores, labels
    and figures, which the monitor computes from the points; anything against devices that do not follow the protocol,
    or against the rounding of floating-point numbers.

    Parameters
    ----------
    k : int
        Number of clusters.
    epsilon : float
        Must be given.
    radius : float
        Of the ball that the points are clipped to. Must be given, from what is publicly known; too large costs little.
    delta : float
        Below 1 / number of points.
    center : float
        Each coordinate of the center of the ball.
    trust : {"masks", "none", "server"}
    curious : int
        How many devices may pool what they see (trust=masks): fewer than it takes to cut the graph in two.
    steps : int
        Lloyd steps after the seeds.
    relation : {"add", "exchange"}
    noise_seed : int or None
        Replaces the secret of the operating system: runs with the same `noise_seed` and seed have the same bits, and
        whoever knows both subtracts the noise, so there is no guarantee. For tests and studies of accuracy.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    References
    ----------
    J. Dong, A. Roth, W. Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B 84, 2022.
    D. Su et al., "Differentially private k-means clustering", CODASPY 2016. A. Diaa, T. Humphries, F. Kerschbaum,
    "FastLloyd", 2024: offsets from the last centroids, bounded in radius.

    Examples
    --------
    >>> import p2pkm
    >>> import topologies
    >>> X, y = p2pkm.blobs(clusters=3, points=8, box=30, seed=0)
    >>> shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(24, 3), labels=y)
    >>> result = p2pkm.simulate(p2pkm.Private(3, epsilon=8, radius=50, noise_seed=0), topologies.ring(3), shards)
    >>> result.summary["epsilon"], result.centroids.shape
    (8, (3, 3, 2))
    """

    k: int
    _: KW_ONLY
    epsilon: float | None = None
    radius: float | None = None
    delta: float = 1e-6
    center: float = 0.0
    trust: Literal["masks", "none", "server"] = "masks"
    curious: int = 1
    steps: int = 2
    relation: Literal["add", "exchange"] = "add"
    noise_seed: int | None = None

    _size: ClassVar[float | None] = None  # what a run has found, see `settle`
    name: ClassVar[str] = "private"
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        whole(self.k, 1, "clusters")
        for value, name in ((self.epsilon, "epsilon"), (self.radius, "radius")):
            if value is not None:
                positive(value, f"private:{name}", most=LARGEST)
        if not math.isfinite(self.center):
            raise ExperimentError(f"private:center is {self.center!r}; expected a finite number")
        if self.radius is not None:
            self._check_ball(self.radius)
        if not 0.0 < self.delta < 1.0:
            raise ExperimentError(f"private:delta is {self.delta!r}; expected a number between 0 and 1, such as 1e-6")
        one_of(self.trust, ("masks", "none", "server"), "private:trust")
        whole(self.curious, 1, "private:curious")
        if not 0 <= whole(self.steps, 0, "private:steps") <= _MOST_STEPS:
            raise ExperimentError(f"private:steps is {self.steps}; expected at most {_MOST_STEPS}")
        one_of(self.relation, ("add", "exchange"), "private:relation")
        if self.noise_seed is not None:
            whole(self.noise_seed, 0, "private:noise_seed")

    def _check_ball(self, radius: float) -> None:
        """Reject a ball whose square underflows, or in which differences lose their digits."""
        if radius < SMALLEST:
            raise ExperimentError(f"private:radius is {radius!r}; expected from {SMALLEST:g} to {LARGEST:g}")
        most = FARTHEST["float64"] * radius
        if not abs(self.center) <= most:
            raise ExperimentError(
                f"private:center is {self.center!r} with a radius of {radius:g}; expected at most {most:g}, which is "
                f"{FARTHEST['float64']:g} times the radius"
            )

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        given = {"epsilon": self.epsilon, "radius": self.radius}
        return MethodTraits(
            no_suppression="sends sums over all devices, whose noise protects single points already",
            needs_reliable_links="adds up tables along a tree, and a sum that fails must not be taken again",
            needs_static_links="adds up tables along a spanning tree, whose links have to last",
            needs_honest_messages=True,
            no_quantization="sends whole numbers already",
            no_weights="bounds by how much one point changes a sum, which a weight would change",
            no_measuring="takes the ball of the points as given, and nothing is to be found in them beforehand",
            needs_parameters=" and ".join(name for name, value in given.items() if value is None),
            common_centroids=True,
            draws_secrets=True,
            noise_seed=self.noise_seed,
        )

    @property
    def sums(self) -> int:
        """Return how many sums are taken."""
        return 2 + self.steps

    @property
    def mu(self) -> float:
        """Return the mu of Gaussian differential privacy of all sums together."""
        return mu_of(self.epsilon or 0.0, self.delta)

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject a delta that protects no point, noise below the units, and a graph on which the sums do not work."""
        topology: Topology = run.topology
        if self.delta * points.m >= 1.0:
            raise ExperimentError(
                f"private:delta is {self.delta:g} with {points.m:,} points, so that it could disclose one of them; "
                f"expected less than 1 / {points.m}"
            )
        parts = int(topology.components.max()) + 1
        if parts > 1:
            raise TopologyError(
                f"private adds up the tables of all devices, but the graph has {parts} components; connect them"
            )
        if self.trust == "masks":
            self._check_masks(topology)
        self._check_noise(topology.n)

    def _check_noise(self, n: int) -> None:
        shapes = [(number, self.shape_of(number, 1.0, 1)) for number in range(1, self.sums + 1)]
        least = min(self.noise_of(number, shape, n)[0] / shape.grain.sensitivity for number, shape in shapes) * FINEST
        if least < _LEAST_NOISE:
            raise ExperimentError(
                f"private:epsilon is {self.epsilon:g} with {n:,} devices, so that the noise of a device may be only "
                f"{least:.2g} of the whole units that are added up, and rounding takes it away; expected at least "
                f"{_LEAST_NOISE:g} units, which a smaller epsilon gives"
            )

    def _check_masks(self, topology: Topology) -> None:
        if self.curious >= topology.n:
            raise ExperimentError(
                f"private:curious is {self.curious} of {topology.n} devices; expected fewer than all, or trust=none"
            )
        from topologies import CSRGraph, GraphError, measures

        try:
            cut = measures.find_cut(CSRGraph(topology.indptr, topology.indices), self.curious)
        except GraphError as error:
            raise TopologyError(f"private:curious is {self.curious}: {error}") from None
        if cut is not None:
            names = ", ".join(str(i) if topology.names is None else topology.names[i] for i in cut)
            who = f"device {names} cuts" if len(cut) == 1 else f"devices {names} cut"
            raise ExperimentError(
                f"private:curious is {self.curious}, but {who} the graph in two, which would show sums over a part "
                "of the others, with too little noise. Take a graph with more links, fewer curious ones, or trust=none"
            )

    def shape_of(self, number: int, size: float, d: int) -> Shape:
        """Return what sum `number`, from 1, is made of."""
        if number == 1:
            return tables.ring_shape(self.relation)
        kind = tables.cell_shape if number == 2 else tables.step_shape
        return kind(self.k, d, size, self.relation)

    def noise_of(self, number: int, shape: Shape, n: int) -> tuple[float, float]:
        """Return the standard deviations of the noise of a device that adds some, and of that of the total."""
        share = {1: _SIZE, 2: _SEEDS}.get(number, _STEPS / max(self.steps, 1))
        if not self.steps:
            share /= _SIZE + _SEEDS
        whole = shape.grain.sensitivity / (math.sqrt(share) * self.mu)
        own = whole / math.sqrt(n - self.curious) if self.trust == "masks" else whole
        return own, own * math.sqrt(1 if self.trust == "server" else n)

    def settle(self, state: Any) -> "Private":
        """Return the method with the radius that was found."""
        return self.replaced(_size=float(state.size[0]) if len(state.size) else None)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Return what the summary shows: the parameters, what they guarantee, and the noise on a count."""
        n, size = devices.clients, self._size or self.radius or 1.0
        shape = self.shape_of(self.sums, size, devices.d)
        alone = {"masks": math.sqrt(max(n - self.curious, 1)), "none": 1.0, "server": math.inf}[self.trust]
        epsilon = epsilon_of(self.mu * alone, self.delta)
        return {
            "epsilon": self.epsilon, "delta": self.delta, "radius": self.radius, "center": self.center,
            "trust": self.trust, "curious": self.curious, "steps": self.steps, "relation": self.relation,
            "noise_seed": self.noise_seed, "mu": self.mu,
            "size": self._size, "noise_count": self.noise_of(self.sums, shape, n)[1] / shape.weight,
            "epsilon_alone": None if math.isinf(epsilon) else epsilon,
        }  # fmt: skip

    def on(self, topology: Topology) -> "PrivateOnGraph":
        """Return the algorithm that the loop runs, over a spanning tree of the graph."""
        return PrivateOnGraph(self, grow(topology))


@dataclass(frozen=True)
class PrivateOnGraph(OnGraph):
    """`Private` along a tree: a round is one sum, up and down; what is sent at the opening are keys."""

    method: Private
    tree: Tree

    @property
    def masks(self) -> bool:
        """Return whether tables travel behind masks."""
        return self.method.trust == "masks"

    @property
    def depth(self) -> int:
        """Return how many turns a way takes."""
        return tree_sums.depth_of(self.tree)

    @property
    def schedule(self) -> str:
        """Return the schedule: a round has the turns of both ways, and one in which the last messages are read."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreeSums:
        """Return keys over every link, then a table up and a table down each link of the tree in every round."""
        shapes = (self.method.shape_of(number, 1.0, known.features) for number in range(1, self.method.sums + 1))
        return TreeSums(*self.tree, WORDS * self.masks, tuple((shape.rows, shape.width) for shape in shapes))

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return True: noisy sums have k clusters, whatever the points are."""
        return True

    def flops(self, work: Work) -> Integers:
        """Count the passes over the own points, in shares of the rows that a device receives, and the additions."""
        return work.rows * (work.d + 1) + work.sizes * (3 * self.k + 2) * work.d * (work.rows > 0) // self.depth

    def initial_state(self, devices: Devices, start: Any) -> PrivateState:
        """Know nothing of the points of others, and share no key yet."""
        n = len(devices)
        return PrivateState(
            np.full((n, self.k, devices.d), np.inf), np.zeros(n, np.bool_), np.full(n, self.method.radius or 0.0),
            np.zeros((n, 1, 1), np.uint64), np.zeros((n, 1, 1), np.uint64), np.zeros(len(devices.indices), np.uint64),
        )  # fmt: skip

    def message(self, state: PrivateState, devices: Devices) -> DenseMessages:
        """Send keys over all links at the opening, then what is due, if it is the layer's turn."""
        if devices.round == 0:
            return secure_walk.send_keys(devices) if self.masks else secure_walk.send_nothing(devices)
        position = tree_sums.Position(devices.turn, self.depth)
        if not position.walks or devices.round > self.method.sums:
            return silence(len(devices), 1, 1)
        words = state.up if position.up else state.down
        return tree_sums.send(position, self.tree, devices, words.view(np.float64), np.ones(len(devices), np.bool_))

    def update(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Prepare the own table at the start of a round; take in what came; at the end read the total."""
        if devices.round > self.method.sums:
            return state
        position = tree_sums.Position(devices.turn - 1, self.depth)
        if devices.turn == 0:
            if devices.round == 1 and self.masks:
                state = state._replace(edge_keys=link_keys(devices, secure_walk.receive_words(inbox, devices)))
            return self.cover(state, devices)
        if position.up:
            state = state._replace(up=tree_sums.add_children(state.up, inbox, devices))
        else:
            state = state._replace(down=tree_sums.take_parents(state.down, inbox, devices)[1])
        if position.at_roots:
            roots = (self.tree.parent[devices.ids] < 0)[:, None, None]
            state = state._replace(down=np.where(roots, state.up, state.down))
        return self.apply_total(state, devices) if position.ends else state

    def _places(self, state: PrivateState, devices: Devices, size: float) -> Floats:
        """Return what the offsets of the points are taken from in this sum, float64[n, r, d], from the center."""
        if devices.round > 2:
            return state.centroids - self.method.center
        cells = size * tables.make_cells(devices.kernels, devices.shared_key, self.k, devices.d)
        return np.broadcast_to(cells, (len(devices), *cells.shape))

    def cover(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Compute the table of each device for this sum, with noise and masks, into `up`."""
        number, method, n = devices.round, self.method, len(devices)
        rows, width = method.shape_of(number, 1.0, devices.d)[:2]
        own = np.zeros((n, rows, width), np.int64)
        noisy = np.ones(n, np.bool_) if method.trust != "server" else self.tree.parent[devices.ids] < 0
        for size in np.unique(state.size).tolist():  # one, as all have received the same
            who, shape = state.size == size, method.shape_of(number, size, devices.d)
            if number == 1:
                found = tables.count_rings(devices, method.center, size) * int(shape.each)
            else:
                places = self._places(state, devices, size)
                found = tables.sum_offsets(devices, (method.center, method.radius or 0.0), places, shape)
            sd = method.noise_of(number, shape, devices.total)[0] / shape.grain.unit
            found[noisy] += draw_noise(secrets_of(devices).keys[noisy], self._name(number), sd, (rows, width))
            own[who] = found[who]
        words = own.view(np.uint64)
        if self.masks:
            words = secure_walk.cover(words, devices, state.edge_keys, self._name(number))
        return state._replace(up=words, down=np.zeros_like(words))

    def apply_total(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Apply the total of a sum, which all devices hold in `down`, to sizes and centroids."""
        number, method, n = devices.round, self.method, len(devices)
        size, centroids = state.size.copy(), state.centroids.copy()
        for what in secure_walk.distinct(state.down, state.size):
            before, total = float(state.size[what[0]]), state.down[what[0]]
            shape = method.shape_of(number, before, devices.d)
            sd = method.noise_of(number, shape, devices.total)[1]
            values = as_totals(total, shape.grain)
            if number == 1:
                size[what] = tables.choose_size(values[:, 0], before, sd)
            elif number == 2:
                cells = self._places(state, devices, before)[what[0]]
                found = tables.seed(values, cells, shape, sd, (devices.kernels, devices.shared_key, self.k))
                centroids[what] = tables.clip(found, before) + method.center
            else:
                places = self._places(state, devices, before)[what]
                centroids[what] = tables.step(places, values, shape, sd, before) + method.center
        done, none = np.full(n, number == method.sums), np.zeros((n, 1, 1), np.uint64)
        return PrivateState(centroids, done, size, none, none, state.edge_keys)

    def _name(self, number: int) -> SumName:
        return SumName(self.method.name, number)
