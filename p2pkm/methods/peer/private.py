"""Private k-means: differential privacy for points or devices from noisy sums along a spanning tree."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask
from p2pkm.core.card import Card
from p2pkm.core.errors import ExperimentError, NetworkError, TopologyError
from p2pkm.core.expected_messages import Known, TreeSums
from p2pkm.core.messages import DenseMessages, Inbox, no_messages
from p2pkm.core.protocols import MethodBase, OnGraph, PointCount, RunOutline, Work
from p2pkm.core.states import register
from p2pkm.core.traits import Condition, MessageContent, MethodTraits
from p2pkm.core.validation import check_choice, check_integer
from p2pkm.methods.building_blocks import secure_walk, tree_sums
from p2pkm.methods.building_blocks.gdp import epsilon_of, mu_of
from p2pkm.methods.building_blocks.guarantee import LEAST_NOISE, check_delta, check_guarantee, list_missing
from p2pkm.methods.building_blocks.private_plan import LEAST_CELLS, MOST_CELLS, MOST_STEPS, Draws, Plan, Total, lift
from p2pkm.methods.building_blocks.private_releases import (
    Facts,
    Kind,
    Knowledge,
    Release,
    encode,
    local_table,
    noise_scale,
)
from p2pkm.methods.building_blocks.secure_sums import (
    MOST_NOISE,
    WORDS,
    SumName,
    as_totals,
    draw_noise,
    link_keys,
    secrets_of,
)
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.network.graph import Topology

# Default of `points`. Chosen on mixtures with 1,000 and 2,000 devices, 2 and 10 features, epsilon 0.5 to 64: the cost
# is about the least one from 1 to 6, and higher from 12 on; 1 favors small devices more.
_POINTS = 4


@register("private")
class PrivateState(NamedTuple):
    """State of a batch; the fields from `facts` to `origins` are the `Knowledge` of each device, see there.

    Arrays have the shape of the largest part of any device of the batch, and are 0 beyond the parts of smaller ones.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf before the first Lloyd step.
    converged : bool[n]
    facts : float64[n, 8]
    mean : float64[n, d]
    basis : float64[n, q, d + 1]
    origins : float64[n, r, w]
    shapes : int64[n, 3]
        Rows of `basis`, and rows and columns of `origins`.
    up : uint64[n, r, 1]
        Table of the current sum on its way up the tree, flat; one word between two sums.
    down : float64[n, r, 1]
        Command of the root on its way down the tree; one number between two sums.
    lengths : int64[n]
        Numbers of the table, or of the command as soon as a device holds it.
    edge_keys : uint64[e]
        Keys from which the masks of each edge are drawn; 0 without masks.
    """

    centroids: Floats
    converged: Mask
    facts: Floats
    mean: Floats
    basis: Floats
    origins: Floats
    shapes: Integers
    up: Keys
    down: Floats
    lengths: Integers
    edge_keys: Keys


@dataclass(frozen=True)
class Private(MethodBase):
    r"""Differentially private k-means from a few noisy sums along a spanning tree.

    Devices add tables of their local points along a tree, with Gaussian noise, and compute common centroids from the
    totals.

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
    trust : {"masks", "none", "server"}, default="masks"
        Trusted devices. "masks": no single device; masks hide each table, and each device adds a share of the noise.
        "none": none; each device adds all of the noise. "server": the root, which adds the noise, and all devices that
        forward sums.
    curious : int, default=1
        Number of colluding devices tolerated with ``trust="masks"``; less than the number that disconnects the graph.
    relation : {"add", "replace", "device"}, default="add"
        Neighboring data sets. "add": one point more or less. "replace": one point replaced. "device": all points of one
        device more or less.
    points : int, optional
        Largest contribution of a device, in points, with ``relation="device"`` only; default: 4. Noise is proportional
        to it.
    noise_seed : int, optional
        Seed of noise and masks, for tests and studies of accuracy. With it the guarantee is void.

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
    **Update.** Points x are taken relative to `center` and clipped to the ball. Sums go up a breadth-first spanning
    tree, and the root sends down what the next sum needs. With mu of Gaussian differential privacy [1]_ from epsilon
    and delta, the sums have these shares of mu^2:

    1. Mean m of the points, 4 %, shrunk according to its noise.
    2. Points in 41 rings around m, 8 %: their number n, and the radii of all and of half of the points.
    3. With many features (d > 3 and d > 1.5 (k - 1), with little budget d > k - 1), second moments of the points
       clipped to the half radius, 30 %: a subspace of q <= k - 1 dimensions whose eigenvalues exceed the noise [4]_;
       then rings of the projected points, 3 %.
    4. Cells in the subspace, 6 k to 60 k, more with more points, placed with the second moments: 20 % in three sums of
       ``(sum of clip(y - cell, reach), a n)``, which keep cells with more points than noise and move them. Their
       weighted k-means gives k centroids.
    5. A Lloyd step in the subspace [2]_, [3]_, 10 %, and 1 to 8 in all dimensions, 25 %. There the part of a centroid
       outside of the subspace is shrunk according to its noise.

    Without step 3, cells and Lloyd steps share its budget, with d <= 3 also the budget of the mean. Each device adds to
    each number normal noise of standard deviation ``D / (mu_i sqrt(h))``, with the sensitivity D, h = n - `curious` for
    "masks" and h = 1 otherwise.

    With ``relation="device"`` each device scales its table to at most `points` times D, to which the noise is fitted.

    **Messages.** With "masks", first 32 bytes over every link in each direction. Then per sum one table up and one
    command down per tree link, 8 bytes per number. The number of sums, 5 to 16, depends on noisy totals only.

    **Convergence.** Ends after all sums. The cost may increase.

    **Privacy.** (epsilon, delta)-differential privacy for each point of the other devices, with ``relation="device"``
    for all points of a device together, against any `curious` colluding devices ("masks"), any number of them ("none"),
    or recipients of the centroids ("server"); proof in docs/explain/proofs.md. If all other devices collude, "masks"
    leaves `epsilon_alone`. docs/howto/private-clustering.md says what may be published. Assumes that devices follow the
    protocol, and ignores the rounding of floating-point numbers.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. Su, "Gaussian differential privacy", Journal of the Royal Statistical Society B 84,
       2022.
    .. [2] D. Su et al., "Differentially private k-means clustering", CODASPY 2016.
    .. [3] A. Diaa, T. Humphries, F. Kerschbaum, "FastLloyd", 2024: offsets from the last centroids, bounded in radius.
    .. [4] C. Dwork et al., "Analyze Gauss: optimal bounds for privacy-preserving principal component analysis", STOC
       2014.

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
    relation: Literal["add", "replace", "device"] = "add"
    points: int | None = None
    noise_seed: int | None = None

    # Facts of the final state, for the summary; `settle` sets them.
    _facts: ClassVar[Facts | None] = None
    settle_from: ClassVar[tuple[str, ...]] = ("facts",)
    card = Card(
        "private",
        family="private",
        sends="noisy sums",
        points="none",
        line="differentially private k-means by sums along a tree",
    )
    name: ClassVar[str] = card.name
    default_rounds: ClassVar[int] = 150
    schedule: ClassVar[str] = "jacobi"

    def __post_init__(self) -> None:
        """Validate the parameters."""
        check_integer(self.k, 1, "clusters")
        budget, ball = (self.epsilon, self.delta), (self.center, self.radius)
        check_guarantee(self.name, budget, ball, self.noise_seed)
        check_choice(self.trust, ("masks", "none", "server"), "private:trust")
        check_integer(self.curious, 1, "private:curious")
        self._check_relation()

    def _check_relation(self) -> None:
        """Validate the relation and the number of points of a device."""
        relation: str = self.relation
        if relation == "exchange":
            raise ExperimentError("private:relation is 'exchange', which is now called 'replace'. Use relation=replace")
        check_choice(self.relation, ("add", "replace", "device"), "private:relation")
        if self.points is not None:
            check_integer(self.points, 1, "private:points")
            if self.relation != "device":
                raise ExperimentError(
                    f"private:points={self.points} cannot be combined with relation={self.relation}: only "
                    "relation=device limits the points of a device. Use relation=device or remove points."
                )

    @property
    def traits(self) -> MethodTraits:
        """Traits of the method, see `p2pkm.core.traits`."""
        return MethodTraits(
            message_content=MessageContent.OTHER,
            incompatible_with={
                "suppression": "sends noisy sums over all devices, which protect single points already",
                Condition.LOSSY_LINKS: "adds up tables along a tree, and must not repeat a sum that fails",
                Condition.CHANGING_LINKS: "adds up tables along a spanning tree, whose links must not change",
                "quantization": "sends integers already",
                Condition.POINT_WEIGHTS: "bounds the change of a sum by one point, which a weight would increase",
                Condition.MEASURED_POINTS: "takes the ball of the points as a parameter, and must not compute "
                "anything from them before",
            },
            needs_honest_messages=True,
            needs_parameters=list_missing(self.epsilon, self.radius),
            common_centroids=True,
            guarantee="(epsilon, delta)-differential privacy for every point, or all points of a device "
            "(relation=device), against other devices and recipients of the centroids as trust and curious say",
            noise_seed=self.noise_seed,
        )

    @property
    def mu(self) -> float:
        """Budget mu of Gaussian differential privacy for all sums together."""
        return mu_of(self.epsilon or 0.0, self.delta)

    @property
    def limit(self) -> int | None:
        """Number of points whose contribution limits that of a device; None if the guarantee is for single points."""
        return (self.points or _POINTS) if self.relation == "device" else None

    def check(self, run: RunOutline, points: PointCount) -> None:
        """Reject too large a delta, noise below the units, and graphs that are disconnected or unsafe for masks."""
        topology: Topology = run.topology
        # The number of points is secret if whole devices are protected; that of devices is public.
        protected, unit = (points.m, "points") if self.limit is None else (topology.n, "devices")
        check_delta(self.name, self.delta, protected, unit)
        parts = int(topology.components.max()) + 1
        if parts > 1:
            raise TopologyError(
                f"graph has {parts} connected components; method 'private' requires 1, because it adds up the "
                "tables of all devices. Add links."
            )
        if self.trust == "masks":
            self._check_masks(topology)
        self._check_noise(topology.n, points.d)

    def _check_noise(self, n: int, d: int) -> None:
        """Reject noise of a device that rounding would remove, or that integers cannot hold."""
        plan = self.plan(n, d)
        least, most = math.inf, 0.0
        for known in plan.outline(LEAST_CELLS, 1)[:-1]:
            release = plan.release(known)
            sd = self.noise_of(release, 1.0, n, d)[0] * float(np.min(noise_scale(release)))
            least = min(least, sd / release.grain.unit)
            most = max(most, self.noise_of(release, MOST_STEPS, n, d)[0] / release.grain.unit)
        if least < LEAST_NOISE:
            raise ExperimentError(
                f"private:epsilon is {self.epsilon:g} with {n:,} devices, which gives noise of {least:.2g} units per "
                f"device; expected at least {LEAST_NOISE:g}, otherwise rounding to integers removes it. Use a smaller "
                "epsilon."
            )
        if most > MOST_NOISE:
            raise ExperimentError(
                f"private:epsilon is {self.epsilon:g}, which gives noise of {most:.2g} units per device; expected at "
                f"most {MOST_NOISE:.2g}, otherwise integers do not hold it. Use a larger epsilon or smaller points."
            )

    def _check_masks(self, topology: Topology) -> None:
        """Reject a graph that `curious` devices can disconnect: they would see sums over a part of the others."""
        if self.curious >= topology.n:
            raise ExperimentError(
                f"private:curious is {self.curious} of {topology.n} devices; expected less than the number of "
                f"devices. Use {'a smaller curious' if topology.n > 1 else 'more devices'}, or trust=none."
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
                "receive sums over parts of the other devices, with too little noise. Use a graph with more links, "
                f"{'a smaller curious, ' if self.curious > 1 else ''}or trust=none."
            )

    def plan(self, n: int, d: int) -> Plan:
        """Create the plan of the sums over n devices."""
        excess = self._shares(n) * math.sqrt(1 if self.trust == "server" else n)
        return Plan(self.k, d, self.radius or 1.0, self.relation, self.mu, excess, self.limit or 1)

    def _shares(self, n: int) -> float:
        """Compute the standard deviation of the noise of one device, relative to that required of a total."""
        # With masks, n - curious honest devices together add the required noise, even if the others add none.
        return 1.0 / math.sqrt(max(n - self.curious, 1)) if self.trust == "masks" else 1.0

    def noise_of(self, release: Release, steps: float, n: int, d: int) -> tuple[float, float]:
        """Compute the standard deviations of the noise of one device and of the total of a release."""
        plan = self.plan(n, d)
        required = plan.noise(release, steps)
        return required * self._shares(n), required * plan.excess

    def settle(self, found: Mapping[str, Any], topology: Topology) -> "Private":
        """Store the facts of the final state, for the summary."""
        return self.replaced(_facts=Facts(*found["facts"][0].tolist()))

    def resolved_parameters(self, devices: Devices) -> dict[str, Any]:
        """Collect the parameters, the guarantee and the noise of a count, for the summary."""
        n, d = devices.clients, devices.d
        plan = self.plan(n, d)
        facts = self._facts or plan.start().facts
        last = plan.outline(LEAST_CELLS, 1)[-2]
        release = plan.release(last._replace(facts=facts._replace(kind=last.facts.kind)))
        steps = sum(plan.repeats(kind, facts.steps) for kind in (Kind.INNER_STEP, Kind.STEP) if kind in plan.shares)
        alone = {"masks": math.sqrt(max(n - self.curious, 1)), "none": 1.0, "server": math.inf}[self.trust]
        epsilon = epsilon_of(self.mu * alone, self.delta)
        return {
            "epsilon": self.epsilon, "delta": self.delta, "radius": self.radius, "center": self.center,
            "trust": self.trust, "curious": self.curious, "steps": steps, "relation": self.relation,
            "points_per_device": self.limit, "noise_seed": self.noise_seed, "mu": self.mu,
            "size": facts.size if self._facts else None,
            "noise_count": self.noise_of(release, facts.steps, n, d)[1] / release.weight,
            "epsilon_alone": None if math.isinf(epsilon) else epsilon,
        }  # fmt: skip

    def on(self, topology: Topology) -> "PrivateOnGraph":
        """Bind the method to a spanning tree of the graph."""
        kind = MaskedOnGraph if self.trust == "masks" else PrivateOnGraph
        return kind(self, build_spanning_tree(topology))


@dataclass(frozen=True)
class PrivateOnGraph(OnGraph):
    """`Private` along a tree: each round is one sum, up and down."""

    method: Private
    tree: Tree

    # Words of a key in the initial exchange.
    key_words: ClassVar[int] = 0

    @property
    def depth(self) -> int:
        """Number of turns of a pass."""
        return tree_sums.pass_depth(self.tree)

    @property
    def schedule(self) -> str:
        """Schedule: a round has the turns of both passes, and one to read the last messages."""
        return f"jacobi*{2 * self.depth + 1}"

    def expected_messages(self, known: Known) -> TreeSums:
        """Count keys over every link, then at most one table up and one command down per tree link and round."""
        plan = self.method.plan(len(self.tree.parent), known.features)
        least, most = (plan.outline(cells, steps) for cells, steps in ((LEAST_CELLS, 1), (MOST_CELLS, MOST_STEPS)))
        tables = []
        for before, after in pairwise(most):
            release = plan.release(before)
            tables.append((release.rows * release.width, len(encode(after, release.kind))))
        return TreeSums(*self.tree, self.key_words, tuple(tables), len(least) - 1)

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return True: noisy sums give k clusters for any points."""
        return True

    def flops(self, work: Work) -> Integers:
        """Count the passes over the local points, in proportion to the received rows, and the additions."""
        return work.rows * (work.d + 1) + work.sizes * (3 * self.k + 2) * work.d * (work.rows > 0) // self.depth

    def initial_state(self, devices: Devices, start: Any) -> PrivateState:
        """Create a state without centroids and keys."""
        n = len(devices)
        known = self.method.plan(devices.total, devices.d).start()
        edge_keys = np.zeros(len(devices.indices), np.uint64)
        parts = [(slice(0, n), known)] if n else []
        return _assemble(np.full((n, self.k, devices.d), np.inf), parts, edge_keys)

    def message(self, state: PrivateState, devices: Devices) -> DenseMessages:
        """Send tables or commands, if it is the turn of the layer."""
        if devices.round == 0:
            return self.send_keys(devices)
        position = tree_sums.PassPosition(devices.turn, self.depth)
        if not position.is_in_pass:
            return no_messages(len(devices), 1, 1)
        words = state.up.view(np.float64) if position.up else state.down
        messages = tree_sums.send_tables(position, self.tree, devices, words, ~state.converged)
        # The root's rank knows the length of a command before the others do.
        return messages._replace(rows=np.where(messages.rows < 0, -1, state.lengths), ragged=True)

    def update(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Prepare the local table at the start of a round, receive tables, and apply the command at the end."""
        if state.converged.all():
            return state
        position = tree_sums.PassPosition(devices.turn - 1, self.depth)
        if devices.turn == 0:
            if devices.round == 1:
                state = self.receive_keys(state, inbox, devices)
            return self.cover(state, devices)
        state = (self.receive_tables if position.up else self.receive_command)(state, inbox, devices)
        if position.at_roots:
            state = self.compute_command(state, devices)
        return self.apply_command(state, devices) if position.is_last else state

    def send_keys(self, devices: Devices) -> DenseMessages:
        """Send what the initial exchange requires: nothing without masks."""
        return secure_walk.send_nothing(devices)

    def receive_keys(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Read the initial exchange."""
        return state

    def mask(self, tables: Keys, state: PrivateState, devices: Devices, name: SumName) -> Keys:
        """Hide the tables of a sum, uint64[n, r, 1]; without masks they are sent as they are."""
        return tables

    def cover(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Compute the table of each device for this sum, with noise and masks, into `up`."""
        n, name = len(devices), SumName(self.method.name, devices.round)
        if not n:
            return state
        tables = [(span, self._noisy_tables(state, devices, span, name)) for span in _spans(_knowledge_parts(state))]
        lengths = np.concatenate([np.full(len(table), table.shape[1]) for _, table in tables])
        words = tables[0][1]
        if len(tables) > 1:
            words = np.zeros((n, int(lengths.max())), np.uint64)
            for span, table in tables:
                words[span, : table.shape[1]] = table
        up = self.mask(words[:, :, None], state, devices, name)
        return state._replace(up=up, down=np.zeros((n, 1, 1)), lengths=lengths)

    def _noisy_tables(self, state: PrivateState, devices: Devices, span: slice, name: SumName) -> Keys:
        """Compute the tables of devices that know the same, with noise, uint64[b, r w]."""
        method, known = self.method, _knowledge(state, span.start)
        release = method.plan(devices.total, devices.d).release(known)
        members = devices.part(span)
        local = local_table(members, (method.center, method.radius or 0.0), known, release)
        noisy = np.full(len(local), method.trust != "server") | (self.tree.parent[members.ids] < 0)
        sd = method.noise_of(release, known.facts.steps, devices.total, devices.d)[0] / release.grain.unit
        keys = secrets_of(devices).keys[span][noisy]
        local[noisy] += draw_noise(keys, name, sd * noise_scale(release), (release.rows, release.width))
        return local.view(np.uint64).reshape(len(local), -1)

    def receive_tables(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Add the tables of the children, which must have as many numbers as that of their parent."""
        edges = np.flatnonzero(inbox.fresh)
        if not len(edges):
            return state
        expected, rows = state.lengths[devices.sources[edges]], inbox.rows_of(edges)
        for edge in edges[rows != expected][:1]:
            parent = devices.sources[edge]
            raise NetworkError(
                f"device {devices.ids[parent]} received a table of {inbox.rows_of(int(edge))} numbers from device "
                f"{devices.indices[edge]}; expected {state.lengths[parent]}. Method 'private' requires that all "
                "devices receive the commands of the root unchanged."
            )
        longest = int(expected.max())
        total = tree_sums.add_child_tables(state.up[:, :longest], inbox, devices)
        if longest < state.up.shape[1]:
            total = np.concatenate((total, state.up[:, longest:]), axis=1)
        return state._replace(up=total)

    def receive_command(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Store the commands received from the parents, which may have another length than those of other devices."""
        edges = np.flatnonzero(inbox.fresh)
        if not len(edges):
            return state
        receivers, rows = devices.sources[edges], inbox.rows_of(edges)
        longest = int(rows.max())
        received = np.where((np.arange(longest) < rows[:, None])[:, :, None], inbox.tables_of(edges, longest, 1), 0.0)
        before = state.down.shape[1]
        down, lengths = np.zeros((len(devices), max(longest, before), 1)), state.lengths.copy()
        down[:, :before] = state.down
        down[receivers, :longest], lengths[receivers] = received, rows
        return state._replace(down=down, lengths=lengths)

    def compute_command(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Compute the command of the root from the noisy total, into `down`."""
        roots = np.flatnonzero(self.tree.parent[devices.ids] < 0)
        if not len(roots):
            return state
        root = int(roots[0])
        method, known = self.method, _knowledge(state, root)
        plan = method.plan(devices.total, devices.d)
        release = plan.release(known)
        sd = method.noise_of(release, known.facts.steps, devices.total, devices.d)[1]
        words = state.up[root, : state.lengths[root]].reshape(release.rows, release.width)
        total = Total(as_totals(words, release.grain), sd)
        after = plan.advance(known, total, Draws(devices.kernels, devices.shared_key))
        command = encode(after, release.kind)
        down, lengths = np.zeros((len(devices), len(command), 1)), state.lengths.copy()
        down[root, :, 0], lengths[root] = command, len(command)
        return state._replace(down=down, lengths=lengths)

    def apply_command(self, state: PrivateState, devices: Devices) -> PrivateState:
        """Apply to each device the command that it received: to its knowledge and to its centroids."""
        if not len(devices):
            return state
        parts, centroids = [], state.centroids.copy()
        for span in _spans((*_knowledge_parts(state), state.lengths, state.down)):
            first = span.start
            known = _knowledge(state, first)
            command = state.down[first, : state.lengths[first], 0]
            after = self.method.plan(devices.total, devices.d).apply_command(known, command)
            if after is None:
                raise NetworkError(
                    f"device {devices.ids[first]} received a command of {len(command)} numbers that cannot follow "
                    f"release {Kind(int(known.facts.kind)).name}; expected that of the root. Method 'private' requires "
                    "that all devices receive the commands of the root unchanged."
                )
            parts.append((span, after))
            if after.facts.kind >= Kind.INNER_STEP:
                rows = lift(after, after.origins) if after.facts.kind == Kind.INNER_STEP else after.origins
                centroids[span] = after.mean + rows + self.method.center
        return _assemble(centroids, parts, state.edge_keys)


@dataclass(frozen=True)
class MaskedOnGraph(PrivateOnGraph):
    """`PrivateOnGraph` with masks, which hide each table: their keys are sent in the initial exchange."""

    key_words: ClassVar[int] = WORDS

    def send_keys(self, devices: Devices) -> DenseMessages:
        """Send a key over every link."""
        return secure_walk.send_keys(devices)

    def receive_keys(self, state: PrivateState, inbox: Inbox, devices: Devices) -> PrivateState:
        """Derive the keys of the masks of every link."""
        return state._replace(edge_keys=link_keys(devices, secure_walk.receive_words(inbox, devices)))

    def mask(self, tables: Keys, state: PrivateState, devices: Devices, name: SumName) -> Keys:
        """Hide the tables of a sum by masks that cancel in the total, uint64[n, r, 1]."""
        return secure_walk.cover(tables, devices, state.edge_keys, name)


def _assemble(centroids: Floats, parts: list[tuple[slice, Knowledge]], edge_keys: Keys) -> PrivateState:
    """Create the state between two sums from the knowledge of consecutive devices."""
    n = len(centroids)
    shapes = np.zeros((n, 3), np.int64)
    for span, known in parts:
        shapes[span] = len(known.basis), *known.origins.shape
    q, rows, width = shapes.max(axis=0, initial=0).tolist()
    d = centroids.shape[2]
    state = PrivateState(
        centroids=centroids,
        converged=np.zeros(n, np.bool_),
        facts=np.zeros((n, len(Facts._fields))), mean=np.zeros((n, d)),
        basis=np.zeros((n, q, d + 1)), origins=np.zeros((n, rows, width)),
        shapes=shapes,
        up=np.zeros((n, 1, 1), np.uint64),
        down=np.zeros((n, 1, 1)),
        lengths=np.ones(n, np.int64),
        edge_keys=edge_keys,
    )  # fmt: skip
    for span, known in parts:
        state.facts[span], state.mean[span] = known.facts, known.mean
        state.basis[span, : len(known.basis)] = known.basis
        state.origins[span, : len(known.origins), : known.origins.shape[1]] = known.origins
        state.converged[span] = known.facts.kind == Kind.END
    return state


def _knowledge_parts(state: PrivateState) -> tuple[Any, ...]:
    """List the arrays that contain the knowledge of the devices."""
    return state.shapes, state.facts, state.mean, state.basis, state.origins


def _knowledge(state: PrivateState, device: int) -> Knowledge:
    """Get the knowledge of a device of the batch."""
    q, rows, width = state.shapes[device].tolist()
    facts = Facts(*state.facts[device].tolist())
    return Knowledge(facts, state.mean[device], state.basis[device, :q], state.origins[device, :rows, :width])


def _spans(parts: tuple[Any, ...]) -> Iterator[slice]:
    """Split the devices, the first axis of all arrays, into spans of consecutive ones with equal bits."""
    is_first = np.ones(len(parts[0]), np.bool_)
    is_first[1:] = False
    for part in parts:
        bits = part.view(np.int64)
        is_first[1:] |= (bits[1:] != bits[:-1]).any(axis=tuple(range(1, bits.ndim)))
    firsts = [*np.flatnonzero(is_first).tolist(), len(is_first)]
    return (slice(first, last) for first, last in pairwise(firsts))
