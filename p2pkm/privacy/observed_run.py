"""Real runs of `private`, as an attacker observes them.

Every run has a new secret of the operating system. The attacker has the program, the points of all devices except one
point, and the messages. Three things are recorded in each release:

* the messages on their way up the tree, as `message` returned them, and the table that the root added;
* the masks of every link. An attack may use those of its coalition alone;
* the tables of the known points. The program is called a second time, with the same state, messages and secrets, and
  other points: without any, and with a neighboring data set. Noise and masks cancel in the difference of two calls, so
  the change by one point is that of the program and not that of a formula. Everything except the table must be equal
  in both calls, because it may depend on released totals only.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Keys, Mask
from p2pkm.core.messages import DenseMessages
from p2pkm.engine.build_run import Rank, build_run
from p2pkm.engine.run_job import play, report
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.building_blocks import secure_sums
from p2pkm.methods.building_blocks.private_releases import Facts, Kind, Knowledge, Release, noise_scale
from p2pkm.methods.building_blocks.spanning_tree import Tree, build_spanning_tree
from p2pkm.network.local import LocalWorld
from p2pkm.testing.watch_method import wrap_method

if TYPE_CHECKING:
    from p2pkm.data.shards import Shards
    from p2pkm.methods.peer.private import Private
    from p2pkm.network.graph import Topology

# Name in the list of calls whose result depends on the points.
_DIFFERENT_SHAPE = "shape of the table"


class PointSet(NamedTuple):
    """Points of all devices: float64[m, d], and the first one of each device, int64[n + 1]."""

    points: Floats
    offsets: Integers

    @classmethod
    def of(cls, shards: "Shards") -> "PointSet":
        """Get the points of shards."""
        return cls(np.asarray(shards.points, np.float64), shards.offsets)

    def without_points(self) -> "PointSet":
        """Create the point set of as many devices without points."""
        return PointSet(self.points[:0], np.zeros_like(self.offsets))

    def put(self, devices: Devices) -> Devices:
        """Replace the points of a batch, and all constants that follow from them."""
        m = len(self.points)
        spread = math.sqrt(float(self.points.var(axis=0).sum())) if m else 0.0
        return replace(
            devices, stored=self.points, offsets=self.offsets, point_weights=np.broadcast_to(1.0, (m,)),
            total_points=m, total_weight=float(m), weighted=False, data_std=spread,
        )  # fmt: skip


class ObservedRelease(NamedTuple):
    """Record of a release.

    Attributes
    ----------
    kind : Kind
    number : int
        Number among the releases of this kind, from 0.
    release : Release
    mu : float
        Claim: the share of the budget of the run.
    sent : uint64[n, l]
        Sum of a subtree that each device sent to its parent; at the root the total.
    masks : uint64[e, l]
        Masks of each edge with the sign of its source; without masks uint64[e, 0].
    tables : int64[n, l]
        Exact tables of the points.
    changes : int64[c, l]
        Changes of the sum of all tables by the neighboring data sets.
    """

    kind: Kind
    number: int
    release: Release
    mu: float
    sent: Keys
    masks: Keys
    tables: Integers
    changes: Integers

    @property
    def scale(self) -> Floats | float:
        """Standard deviation of the noise of each number relative to that of the release, float64[l] or 1."""
        return noise_scale(self.release)

    @property
    def sensitivity(self) -> float:
        """Assumed largest change, in units of the table."""
        return self.release.grain.sensitivity / self.release.grain.unit


class ObservedRun(NamedTuple):
    """Record of a run.

    Attributes
    ----------
    releases : list of ObservedRelease
    dependent : set of str
        Parts of the state, and messages, that depend on the points beyond the released totals.
    """

    releases: list[ObservedRelease]
    dependent: set[str]


class ReleaseObserver:
    """Observer of the calls of a run, see `p2pkm.testing.watch_method.wrap_method`.

    Parameters
    ----------
    method : Private
    tree : Tree
    neighbors : list of PointSet
        Data sets for which every call at the start of a release is repeated; the first one is without points.
    is_thorough : bool
        Whether all other calls are repeated, too.
    """

    busy = False

    def __init__(self, method: "Private", tree: Tree, neighbors: list[PointSet], *, is_thorough: bool) -> None:
        self.dependent: set[str] = set()
        self._method, self._tree, self._neighbors, self._is_thorough = method, tree, neighbors, is_thorough
        # The property solves for mu in every call.
        self._mu = method.mu
        self._releases: list[ObservedRelease] = []

    def initial_state(self, call: Callable[..., Any], devices: Devices, start: Any) -> Any:
        """Call `initial_state`, and compare its state for other points."""
        state = call(devices, start)
        for points in self._neighbors:
            self._compare(state, call(points.put(devices), start))
        return state

    def message(self, call: Callable[..., Any], state: Any, devices: Devices) -> Any:
        """Call `message`, and record the tables that are sent to parents."""
        messages: DenseMessages = call(state, devices)
        if self._is_thorough:
            for points in self._neighbors:
                other = call(state, points.put(devices))
                self._note("messages", messages.values, other.values)
        if devices.round > 0 and messages.edges is not None:
            edges = np.flatnonzero(messages.edges)
            sources = devices.sources[edges]
            goes_up = self._tree.parent[devices.ids[sources]] == devices.indices[edges]
            for device in sources[goes_up & (messages.rows[sources] > 0)]:
                self._releases[-1].sent[device] = _as_words(messages.values[device])
        return messages

    def update(self, call: Callable[..., Any], state: Any, inbox: Any, devices: Devices) -> Any:
        """Call `update`, and record tables at the start of a release."""
        after = call(state, inbox, devices)
        starts = devices.turn == 0 and not state.converged.all()
        if starts or self._is_thorough:
            neighbors = [call(state, inbox, points.put(devices)) for points in self._neighbors]
            for other in neighbors:
                self._compare(after, other)
            if starts:
                self._begin(state, after, neighbors, devices)
        return after

    def finish(self) -> ObservedRun:
        """Complete the record: the total is what the children of the root sent, and the table of the root."""
        roots = np.flatnonzero(self._tree.parent < 0)
        for observed in self._releases:
            children = np.flatnonzero(np.isin(self._tree.parent, roots))
            observed.sent[roots] += observed.sent[children].sum(axis=0, dtype=np.uint64)
        return ObservedRun(self._releases, self.dependent)

    def _begin(self, before: Any, after: Any, neighbors: list[Any], devices: Devices) -> None:
        """Record a new release, from the states before and after the call, and those for other points."""
        known = _knowledge(before)
        plan = self._method.plan(devices.total, devices.d)
        kind = Kind(int(known.facts.kind))
        share = plan.shares[kind] / plan.repeats(kind, known.facts.steps)
        covered = [_as_words(np.asarray(state.up)).reshape(len(devices), -1) for state in (after, *neighbors)]
        equal_shapes = [table if table.shape == covered[0].shape else covered[0] for table in covered]
        if any(table.shape != covered[0].shape for table in covered):
            self.dependent.add(_DIFFERENT_SHAPE)
        length = covered[0].shape[1]
        # The root does not send its table; it is part of its own memory.
        sent = np.where((self._tree.parent < 0)[:, None], covered[0], np.uint64(0))
        masks = np.zeros((len(devices.indices), 0), np.uint64)
        if self._method.trust == "masks":
            name = secure_sums.SumName(self._method.name, devices.round)
            masks = secure_sums.link_masks(after.edge_keys, name, length)
            masks = np.where((devices.ids[devices.sources] < devices.indices)[:, None], masks, -masks)
        differences = [(table - equal_shapes[0]).view(np.int64) for table in equal_shapes[1:]]
        self._releases.append(ObservedRelease(
            kind, int(known.facts.number), plan.release(known), math.sqrt(share) * self._mu, sent, masks,
            -differences[0], np.array([table.sum(axis=0) for table in differences[1:]]).reshape(-1, length),
        ))  # fmt: skip

    def _compare(self, state: Any, other: Any) -> None:
        """Note the parts of a state, except tables, that differ for other points."""
        for name in state._fields:
            if name != "up":
                self._note(name, getattr(state, name), getattr(other, name))

    def _note(self, name: str, values: Any, other: Any) -> None:
        if values.shape != other.shape or values.tobytes() != other.tobytes():
            self.dependent.add(name)


def _as_words(values: Any) -> Keys:
    """Read numbers of 8 bytes as words, flat."""
    return np.ascontiguousarray(values).view(np.uint64).ravel()


def _knowledge(state: Any) -> Knowledge:
    """Get what the first device knows before a release."""
    return Knowledge(Facts(*state.facts[0].tolist()), state.mean[0], state.basis[0], state.origins[0])


def observe_run(
    method: "Private",
    topology: "Topology",
    shards: "Shards",
    neighbors: list[PointSet],
    *,
    seed: int,
    is_thorough: bool = False,
) -> ObservedRun:
    """Run a method in this process, from the first message to the last, and record its releases.

    Parameters
    ----------
    method : Private
    topology : Topology
    shards : Shards
    neighbors : list of PointSet
        Neighboring data sets.
    seed : int
        Seed of the run, which is public. Noise does not follow from it.
    is_thorough : bool, default=False
        Whether every call is repeated for other points, and not only those that compute tables.
    """
    tree = build_spanning_tree(topology)
    without_points = PointSet.of(shards).without_points()
    observer = ReleaseObserver(method, tree, [without_points, *neighbors], is_thorough=is_thorough)
    options = RunOptions(seed=seed, baselines=False, quantize="none")
    config = build_run(wrap_method(method, observer), options, topology, shards)
    report(play(Rank(config, LocalWorld(), shards)))
    return observer.finish()


def list_subtrees(tree: Tree) -> Mask:
    """List the devices in the subtree of each device, including itself, bool[n, n]."""
    inside = np.eye(len(tree.parent), dtype=np.bool_)
    for device in np.argsort(-tree.layer, kind="stable"):
        if tree.parent[device] >= 0:
            inside[tree.parent[device]] |= inside[device]
    return inside
