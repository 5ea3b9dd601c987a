"""Private k-means: differential privacy for every point from a few noisy sums along a spanning tree."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.core.expected_messages import Known, TreeSums
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase, OnGraph, PointCount, RunOutline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.core.validation import FARTHEST, LARGEST, SMALLEST, check_choice, check_integer, check_positive
from p2pkm.methods.building_blocks import private_tables as tables
from p2pkm.methods.building_blocks import secure_walk, tree_sums
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.methods.building_blocks.private_tables import SumLayout
from p2pkm.methods.building_blocks.secure_sums import (
    FINEST,
    WORDS,
    SumName,
    as_totals,
    draw_noise,
    link_keys,
    secrets_of,
)
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.network.graph import Topology

# Shares of the squared budget mu^2 for size, seeds and all steps together. Squared budgets of Gaussian differential
# privacy add up, so these add up to 1.
_SIZE_SHARE = 0.05
_SEEDS_SHARE = 0.57
_STEPS_SHARE = 0.38
_MOST_STEPS = 100
# Least standard deviation of a device's noise, in units of the integer sums. From there on rounded normal noise
# protects as well as normal noise (Kairouz, Liu and Steinke 2021).
_LEAST_NOISE = 4.0


@register("private")
class PrivateState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf before the second sum.
    converged : bool[n]
    size : float64[n]
        Radius R' of the ball that contains the centroids; `radius` before the first sum.
    up, down : uint64[n, r, w]
        Tables of the current sum on their way up and down the tree; one word between two sums.
    edge_keys : uint64[e]
        Keys from which the masks of each edge are drawn; 0 without masks.
    """

    centroids: Floats
    converged: Mask
    size: Floats
    up: Keys
    down: Keys
    edge_keys: Keys


@dataclass(frozen=True)
class Private(MethodBase):
    r"""Differentially private k-means from a few noisy sums along a spanning tree.

    Devices add tables of their local points along a tree, with Gaussian noise, and compute the centroids from the
    totals. All devices end with the same centroids. The method gives (epsilon, delta)-differential privacy for every
    point.

    Parameters
    ----------
    k : int
        Number of clusters.
    epsilon : float
        Privacy budget. Required.
    radius : float
        Radius of the ball to which points are clipped, from public knowledge. Required. A larger radius costs little.
    delta : float, default=1e-6
        Must be less than 1 / number of points.
    center : float, default=0.0
        Value of every coordinate of the center of the ball, from public knowledge.
    trust : {"masks", "none", "server"}, default="masks"
        Trusted devices. "masks": no single device; masks hide each table, and each device adds a share of the noise.
        "none": no device; each device adds all of the noise. "server": the root, which adds the noise, and all devices
        that forward sums.
    curious : int, default=1
        Number of colluding devices tolerated with ``trust="masks"``; less than the number that disconnects the graph.
    steps : int, default=2
        Lloyd steps after the seeds; at most 100.
    relation : {"add", "exchange"}, default="add"
        Neighboring data sets. "add": one point more or less. "exchange": one point replaced.
    noise_seed : int, optional
        Seed of noise and masks instead of the secret of the operating system, for tests and studies of accuracy. With
        it the guarantee is void: the noise can be computed from `noise_seed` and seed, and subtracted.

    Raises
    ------
    ExperimentError
        If a parameter is out of range.

    See Also
    --------
    TreeLloyd
        Exact sums along a spanning tree, without privacy.
    FKMeansCB
        Noise on points at the clients.

    Notes
    -----
    **Update.** Points x are taken relative to `center` and clipped to the ball. Each sum has one pass up and one pass
    down a breadth-first spanning tree. There are three kinds:

    1. Size, once: numbers of points in 41 rings of radius ``R_j = radius 2^(-j/4)``. R' is the smallest R_j beyond
       which at most 0.5 % of the points lie, or not more than the noise may be.
    2. Seeds, once: 6 k cells of the ball R', equal on all devices. The points nearest to cell w_c add
       ``(sum of clip(x - w_c, reach), a n_c)`` with ``reach = a = R' (6 k)^(-1/d)``. Cells with more points than noise
       are clustered into k.
    3. `steps` Lloyd steps: the same rows for the k centroids with ``reach = min(R', 0.6 R' k^(-1/d))`` and
       ``a = reach sqrt(0.3) / d^(1/4)``; then ``w_c <- w_c + clip(S_c / n_c, reach)``.

    One point changes a table by at most ``D = sqrt(reach^2 + a^2)`` with "add". Each device adds to each number normal
    noise of standard deviation ``D / (mu_i sqrt(h))``, with h = n - `curious` for "masks" and h = 1 otherwise. mu of
    Gaussian differential privacy [1]_ follows from epsilon and delta. mu^2 is split into 5, 57 and 38 % for size, seeds
    and steps;
    without steps into 5 : 57.

    **Messages.** 32 bytes over every link and direction once (only "masks"). Then per sum one table up and one down per
    tree link, 8 bytes per number. The number of sums does not depend on the points.

    **Convergence.** Ends after 2 + `steps` sums, even if centroids still move: otherwise the end would disclose
    something. The cost may increase.

    **Privacy.** (epsilon, delta)-differential privacy for each point of the other devices, against any `curious`
    colluding devices ("masks"), any number of them ("none"), or recipients of the centroids ("server"). This is stated,
    not proven here. If all other devices collude, "masks" leaves `epsilon_alone`. Noise and masks come from a secret of
    the operating system, new in every run and stored in memory only, so a run writes no checkpoints and cannot be
    resumed or repeated. The centroids may be published; the number of points only with "exchange". Not protected:
    participation of a device, all points of a device together, and the run folder, scores, labels and figures, which
    the monitor computes from the points. Assumes that devices follow the protocol, and ignores the rounding of
    floating-point numbers.

    **Faults.** Rejected: a lost message breaks a sum, and repeating a sum would spend the budget twice.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B 84,
       2022.
    .. [2] D. Su et al., "Differentially private k-means clustering", CODASPY 2016.
    .. [3] A. Diaa, T. Humphries, F. Kerschbaum, "FastLloyd", 2024: offsets from the last centroids, bounded in radius.

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

    # R' of a run, for the summary; `settle` sets it.
    _size: ClassVar[float | None] = None
    name: ClassVar[str] = "private"
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        for value, name in ((self.epsilon, "epsilon"), (self.radius, "radius")):
            if value is not None:
                check_positive(value, f"private:{name}", most=LARGEST)
        if not math.isfinite(self.center):
            raise ExperimentError(f"private:center is {self.center!r}; expected a finite number")
        if self.radius is not None:
            self._check_ball(self.radius)
        if not 0.0 < self.delta < 1.0:
            raise ExperimentError(
                f"private:delta is {self.delta!r}; expected a number between 0 and 1, for example delta=1e-6"
            )
        check_choice(self.trust, ("masks", "none", "server"), "private:trust")
        check_integer(self.curious, 1, "private:curious")
        if not 0 <= check_integer(self.steps, 0, "private:steps") <= _MOST_STEPS:
            raise ExperimentError(f"private:steps is {self.steps}; expected at most {_MOST_STEPS}")
        check_choice(self.relation, ("add", "exchange"), "private:relation")
        if self.noise_seed is not None:
            check_integer(self.noise_seed, 0, "private:noise_seed")

    def _check_ball(self, radius: float) -> None:
        """Reject a ball whose square underflows, or whose center makes differences lose their digits."""
        if radius < SMALLEST:
            raise ExperimentError(f"private:radius is {radius!r}; expected from {SMALLEST:g} to {LARGEST:g}")
        most = FARTHEST["float64"] * radius
        if not abs(self.center) <= most:
            raise ExperimentError(
                f"private:center is {self.center!r} with a radius of {radius:g}; expected at most {most:g} in size, "
                f"{FARTHEST['float64']:g} times the radius. Subtract the center from the points, or increase radius."
            )

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        required = {"epsilon": self.epsilon, "radius": self.radius}
        return MethodTraits(
            no_suppression="sends noisy sums over all devices, which protect single points already",
            needs_reliable_links="adds up tables along a tree, and must not repeat a sum that fails",
            needs_static_links="adds up tables along a spanning tree, whose links have to last",
            needs_honest_messages=True,
            no_quantization="sends integers already",
            no_weights="bounds the change of a sum by one point, which a weight would increase",
            no_measuring="takes the ball of the points as a parameter, and must not compute anything from them before",
            needs_parameters=" and ".join(name for name, value in required.items() if value is None),
            common_centroids=True,
            draws_secrets=True,
            noise_seed=self.noise_seed,
        )

    @property
    def sums(self) -> int:
        """Number of sums."""
        return 2 + self.steps

    @property
    def mu(self) -> float:
        """Budget mu of Gaussian differential privacy for all sums together."""
        return mu_of(self.epsilon or 0.0, self.delta)

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject too large a delta, noise below the units, and graphs that are disconnected or unsafe for masks."""
        topology: Topology = run.topology
        if self.delta * points.m >= 1.0:
            raise ExperimentError(
                f"private:delta is {self.delta:g} with {points.m:,} points; expected less than 1 / {points.m}, "
                f"otherwise one of them may be disclosed. Use delta={0.1 / points.m:.0e}."
            )
        parts = int(topology.components.max()) + 1
        if parts > 1:
            raise TopologyError(
                f"graph has {parts} connected components; method 'private' requires 1, because it adds up the "
                "tables of all devices. Add links."
            )
        if self.trust == "masks":
            self._check_masks(topology)
        self._check_noise(topology.n)

    def _check_noise(self, n: int) -> None:
        """Reject an epsilon for which rounding would remove the noise of a device."""
        shapes = [(number, self.shape_of(number, 1.0, 1)) for number in range(1, self.sums + 1)]
        least = min(self.noise_of(number, shape, n)[0] / shape.grain.sensitivity for number, shape in shapes) * FINEST
        if least < _LEAST_NOISE:
            raise ExperimentError(
                f"private:epsilon is {self.epsilon:g} with {n:,} devices, which gives noise of {least:.2g} units per "
                f"device; expected at least {_LEAST_NOISE:g}, otherwise rounding to integers removes it. Use a smaller "
                "epsilon."
            )

    def _check_masks(self, topology: Topology) -> None:
        """Reject a graph that `curious` devices can disconnect: they would see sums over a part of the others."""
        if self.curious >= topology.n:
            raise ExperimentError(
                f"private:curious is {self.curious} of {topology.n} devices; expected less than the number of "
                "devices. Use a smaller curious, or trust=none."
            )
        from topologies import CSRGraph, GraphError, measures

        try:
            cut = measures.find_cut(CSRGraph(topology.indptr, topology.indices), self.curious)
        except GraphError as error:
            raise TopologyError(f"private:curious is {self.curious}: {error}") from None
        if cut is not None:
            names = ", ".join(str(i) if topology.names is None else topology.names[i] for i in cut)
            separators = f"device {names} disconnects" if len(cut) == 1 else f"devices {names} disconnect"
            raise ExperimentError(
                f"private:curious is {self.curious}, which is not safe on this graph: {separators} it, and would "
                "receive sums over parts of the other devices, with too little noise. Use a graph with more links, a "
                "smaller curious, or trust=none."
            )

    def shape_of(self, number: int, size: float, d: int) -> SumLayout:
        """Create the layout and sensitivity of sum `number`, from 1."""
        if number == 1:
            return tables.ring_layout(self.relation)
        kind = tables.cell_layout if number == 2 else tables.step_layout
        return kind(self.k, d, size, self.relation)

    def noise_of(self, number: int, shape: SumLayout, n: int) -> tuple[float, float]:
        """Compute the standard deviations of the noise of one device and of the total."""
        share = {1: _SIZE_SHARE, 2: _SEEDS_SHARE}.get(number, _STEPS_SHARE / max(self.steps, 1))
        if not self.steps:
            share /= _SIZE_SHARE + _SEEDS_SHARE
        required = shape.grain.sensitivity / (math.sqrt(share) * self.mu)
        # With masks, n - curious honest devices together add the required noise, even if the others add none.
        per_device = required / math.sqrt(n - self.curious) if self.trust == "masks" else required
        return per_device, per_device * math.sqrt(1 if self.trust == "server" else n)

    def settle(self, state: Any) -> "Private":
        """Store the radius R' of the final state, for the summary."""
        return self.replaced(_size=float(state.size[0]) if len(state.size) else None)

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Collect the parameters, the guarantee and the noise of a count, for the summary."""
        n = devices.clients
        size = self._size or self.radius or 1.0
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
        """Bind the method to a spanning tree of the graph."""
        return PrivateOnGraph(self, build_spanning_tree(topology))


@dataclass(frozen=True)
class PrivateOnGraph(OnGraph):
    """`Private` along a tree: each round is one sum, up and down; keys are sent in the initial exchange."""

    method: Private
    tree: Tree

    @property
    def masks(self) -> bool:
        """Whether masks hide the tables."""
        return self.method.trust == "masks"

    @property
    def depth(self) -> int:
        """Number of turns of a pass."""
        return tree_sums.pass_depth(self.tree)

    @property
    def schedule(self) -> str:
        """Schedule: a round has the turns of both passes, and one to read the last messages."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreeSums:
        """Count keys over every link, then one table up and one down per tree link and round."""
        shapes = (self.method.shape_of(number, 1.0, known.features) for number in range(1, self.method.sums + 1))
        return TreeSums(*self.tree, WORDS * self.masks, tuple((shape.rows, shape.width) for shape in shapes))

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return True: noisy sums give k clusters for any points."""
        return True

    def flops(self, work: Work) -> Integers:
        """Count the passes over the local points, in proportion to the received rows, and the additions."""
        return work.rows * (work.d + 1) + work.sizes * (3 * self.k + 2) * work.d * (work.rows > 0) // self.depth

    def initial_state(self, devices: Devices, start: Any) -> PrivateState:
        """Create a state without centroids and keys."""
        n = len(devices)
        return PrivateState(
            centroids=np.full((n, self.k, devices.d), np.inf),
            converged=np.zeros(n, np.bool_),
            size=np.full(n, self.method.radius or 0.0),
            up=np.zeros((n, 1, 1), np.uint64),
            down=np.zeros((n, 1, 1), np.uint64),
            edge_keys=np.zeros(len(devices.indices), np.uint64),
        )

    def message(self, state: PrivateState, devices: Devices) -> DenseMessages:
        """Send keys over all links in the initial exchange, then tables, if it is the turn of the layer."""
        if devices.round == 0:
            return secure_walk.send_keys(devices) if self.masks else secure_walk.send_nothing(devices)
        position = tree_sums.PassPosition(devices.turn, self.depth)
        if not position.is_in_pass or devices.round > self.method.sums:
            return no_messages(len(devices), 1, 1)
        words = state.up if position.up else state.down
        return tree_sums.send_tables(
            position, self.tree, devices, words.view(np.float64), np.ones(len(devices), np.bool_)
        )

    def update(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Prepare the local table at the start of a round, receive tables, and apply the total at the end."""
        if devices.round > self.method.sums:
            return state
        position = tree_sums.PassPosition(devices.turn - 1, self.depth)
        if devices.turn == 0:
            if devices.round == 1 and self.masks:
                state = state._replace(edge_keys=link_keys(devices, secure_walk.receive_words(inbox, devices)))
            return self.cover(state, devices)
        if position.up:
            state = state._replace(up=tree_sums.add_child_tables(state.up, inbox, devices))
        else:
            state = state._replace(down=tree_sums.receive_from_parents(state.down, inbox, devices)[1])
        if position.at_roots:
            roots = (self.tree.parent[devices.ids] < 0)[:, None, None]
            state = state._replace(down=np.where(roots, state.up, state.down))
        return self.apply_total(state, devices) if position.is_last else state

    def _choose_origins(self, state: PrivateState, devices: Devices, size: float) -> Floats:
        """Choose the origins of the offsets in this sum, cells or centroids, float64[n, r, d] relative to `center`."""
        if devices.round > 2:
            return state.centroids - self.method.center
        cells = size * tables.make_cells(devices.kernels, devices.shared_key, self.k, devices.d)
        return np.broadcast_to(cells, (len(devices), *cells.shape))

    def cover(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Compute the table of each device for this sum, with noise and masks, into `up`."""
        number = devices.round
        method = self.method
        n = len(devices)
        rows, width = method.shape_of(number, 1.0, devices.d)[:2]
        local = np.zeros((n, rows, width), np.int64)
        noisy = np.ones(n, np.bool_) if method.trust != "server" else self.tree.parent[devices.ids] < 0
        # All devices have received the same size, unless messages were changed; so this loop runs once.
        for size in np.unique(state.size).tolist():
            same_size = state.size == size
            shape = method.shape_of(number, size, devices.d)
            if number == 1:
                sums = tables.count_rings(devices, method.center, size) * int(shape.point_units)
            else:
                origins = self._choose_origins(state, devices, size)
                sums = tables.sum_offsets(devices, (method.center, method.radius or 0.0), origins, shape)
            sd = method.noise_of(number, shape, devices.total)[0] / shape.grain.unit
            sums[noisy] += draw_noise(secrets_of(devices).keys[noisy], self._name(number), sd, (rows, width))
            local[same_size] = sums[same_size]
        words = local.view(np.uint64)
        if self.masks:
            words = secure_walk.cover(words, devices, state.edge_keys, self._name(number))
        return state._replace(up=words, down=np.zeros_like(words))

    def apply_total(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Apply the total of a sum, which all devices hold in `down`, to sizes and centroids."""
        number = devices.round
        method = self.method
        n = len(devices)
        size, centroids = state.size.copy(), state.centroids.copy()
        for members in secure_walk.group_equal_totals(state.down, state.size):
            before = float(state.size[members[0]])
            total = state.down[members[0]]
            shape = method.shape_of(number, before, devices.d)
            sd = method.noise_of(number, shape, devices.total)[1]
            values = as_totals(total, shape.grain)
            if number == 1:
                size[members] = tables.choose_radius(values[:, 0], before, sd)
            elif number == 2:
                cells = self._choose_origins(state, devices, before)[members[0]]
                seeds = tables.initial_centroids(
                    values, cells, shape, sd, (devices.kernels, devices.shared_key, self.k)
                )
                centroids[members] = tables.clip(seeds, before) + method.center
            else:
                origins = self._choose_origins(state, devices, before)[members]
                centroids[members] = tables.lloyd_step(origins, values, shape, sd, before) + method.center
        converged = np.full(n, number == method.sums)
        no_words = np.zeros((n, 1, 1), np.uint64)
        return PrivateState(centroids, converged, size, no_words, no_words, state.edge_keys)

    def _name(self, number: int) -> SumName:
        """Name a sum, so that its noise and masks are drawn once."""
        return SumName(self.method.name, number)
