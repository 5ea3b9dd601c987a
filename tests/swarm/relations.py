"""What must hold between an experiment and one that is a little different: `p2pkm.simulate` runs both.

And what every state of a run keeps: the sums over all devices that averaging must not change.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import p2pkm
from p2pkm.channel.pipeline import StageChannel
from p2pkm.core.errors import ExperimentError
from p2pkm.data.shards import Shards
from p2pkm.engine import build_run, conflicts
from p2pkm.engine.run_options import RunOptions as Config
from p2pkm.experiments.simulate import simulate
from p2pkm.methods.building_blocks import averaging, small_clusters
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.network.graph import Topology
from p2pkm.storage.toml import load_toml
from p2pkm.testing.laws import compare_light_cones, find_dependent
from tests.support.light_cone import record
from tests.support.prepare import prepare

_SAME = ("centroids_sha256", "chain_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")
_PER_DEVICE = {"devices", "clusters", "rounds", "seed", "data", "algorithm", "graph", "partition", "init", "schedule",
               "local-steps", "min-cluster-size", "robust", "tol"}  # fmt: skip
_INTEGER_SUMS = ("treelloyd", "fedlloyd", "ditto")  # whose grid follows the units and the variance of the points
_ALIKE = ("gtvmin", "consensus", "admm", "dgc", "tracking")  # the number of a device has no say
_BY_NUMBER = ("consensus", "pushsum", "tracking", "gossip-sum", "epidemic", "admm")  # rows are paired by it
_MOVED_ALIKE = (*_BY_NUMBER, "gtvmin", "gossip", "dgc")  # nothing is drawn from a given start on
_NO_LIES = {
    "byzantine": None,
    "noise": 0,
    "link_model": None,
    "deadline": None,
    "stale_policy": None,
    "quantize": "none",
    "baselines": False,
}
_OPTIONS = (
    "rounds", "all_rounds", "seed", "record_every", "allow_disconnected", "link_model", "faults", "stale_policy",
    "deadline", "client_share", "byzantine", "min_cluster_size", "noise", "quantize", "compress", "scale", "k_max",
    "stream", "baselines", "silhouette",
)  # fmt: skip


class Call(NamedTuple):
    """What `p2pkm.simulate` is called with for an experiment of the command line."""

    method: Any
    graph: Any
    shards: Shards
    options: dict[str, Any]

    def run(self, **other: Any) -> Any:
        """Return the result, perhaps with another method, graph, shards, or options."""
        names = {name: other.pop(name, getattr(self, name)) for name in ("method", "graph", "shards")}
        with warnings.catch_warnings():
            # Fewer or more rounds may leave devices without centroids, which the command says by its exit code.
            warnings.simplefilter("ignore", ConvergenceWarning)
            return simulate(*names.values(), **self.options | other)

    def record(self, shards: Shards, **other: Any) -> list[Any]:
        """Return the exchanges of a run of which all devices know the same total variance, whatever the points."""
        return record(lambda: self.run(shards=shards, **other))


def call_of(case: Any) -> Call:
    """Return the call that an experiment stands for."""
    config = Config.from_mapping(load_toml(str(case.run / "config.toml"), "config"), "config")
    real = prepare(replace(config, out="none"), None)
    given = {name: getattr(real.options, name) for name in _OPTIONS}
    given["clusters"] = None if given["k_max"] is None else "auto"
    given["missing"] = "refuse" if real.options.missing == "drop" else real.options.missing  # rows are left out
    given["quantize"] = case.summary["quantize"] or "none"  # the method has its defaults filled in
    served = needs_hub(real.algorithm)
    shards = read(real.points)
    shards = shards.part(0, shards.n - 1) if served else shards
    return Call(real.algorithm, None if served else real.topology, shards, given)


def read(shards: Any) -> Shards:
    """Return the points themselves, also of files of which each rank would read its share."""
    return shards if isinstance(shards, Shards) else shards.part(0, shards.n)


def check_api(case: Any) -> Iterator[str]:
    """`p2pkm.simulate` with the same options gives the same bits."""
    result = call_of(case).run()
    yield from _differences(case.summary, result.summary, _SAME, "simulate")


def check_scaled(case: Any) -> Iterator[str]:
    """Points scaled by a power of two give centroids scaled by it, to the bit."""
    call = call_of(case)
    if (
        call.method.name in {"private", "feddp", "fkmeanscb", *_INTEGER_SUMS}
        or call.method.traits.derives_features
        or call.options["stream"] is not None
        or not call.shards.points.any()
    ):
        return  # noise and networks have the units of the points; points that are all 0 have no scale
    result, scaled = (call.run(shards=replace(call.shards, points=by * call.shards.points)) for by in (1.0, 4.0))
    factor = 4.0 if call.options["scale"] == "none" else 1.0  # else centroids are those of the scaled features
    if not np.array_equal(factor * result.centroids, scaled.centroids):
        yield "scaled by 4: other centroids"


def check_isolated(case: Any) -> Iterator[str]:
    """One more device, without points and links, changes no bit of the others', where none of them counts devices."""
    call = call_of(case)
    own = set(case.experiment.options) <= _PER_DEVICE and case.experiment.options.get("init", "local") == "local"
    own &= case.experiment.options.get("clusters") != "auto"  # components cannot agree on a number
    own &= case.experiment.options.get("robust") != "saturate"  # it warms up at a coupling, for which all devices count
    if not own or call.method.name != "gtvmin" or call.graph.varying is not None:
        return
    given = {"allow_disconnected": True, "all_rounds": True, "baselines": False, "quantize": "none"}
    shards, n, links = call.shards, call.shards.n, _links(call.graph)
    more = replace(shards, offsets=np.append(shards.offsets, shards.offsets[-1]))
    found = [
        _plain(call).run(graph=Topology.from_links(number, links), shards=points, **given).centroids
        for number, points in ((n, shards), (n + 1, more))
    ]
    if not np.array_equal(found[0], found[1][:-1]):
        yield "an isolated device: other centroids"


def check_observers(case: Any) -> Iterator[str]:
    """What is measured from outside changes nothing of a run."""
    call, names = call_of(case), [name for name in _SAME if name != "chain_sha256"]
    other = {"baselines": not call.options["baselines"], "silhouette": True, "record_every": 3}
    yield from _differences(case.summary, call.run(**other).summary, names, "measured otherwise")


def check_longer(case: Any) -> Iterator[str]:
    """A run that may take more rounds begins with the same ones."""
    call = call_of(case)
    if call.method.name in {"private", "feddp"} or call.options["stream"] is not None:
        return  # it divides its budget among the rounds; a stream is drawn for so many
    rounds = call.options["rounds"]
    short, long = (_rounds(call.run(record_every=1, rounds=rounds + more), call.method.name) for more in (0, 3))
    keys = ("messages", "bytes", "wire_bytes", "objective", "gtv", "ratio_mean")
    keys = keys[:-1] if call.method.traits.derives_features else keys  # that is measured in the last round alone
    for at in short:
        for key in keys:
            if short[at][key] != long.get(at, short[at])[key]:
                yield f"{rounds + 3} rounds, not {rounds}: in {at} {key} is {long[at][key]}, not {short[at][key]}"
                return


def _rounds(result: Any, method: str) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return the records up to the method's last one, by number, stage and round."""
    last = max((at for at, record in enumerate(result.rounds) if record["stage"] == method), default=0)
    return {(record["stage"], record["round"]): record for record in result.rounds[: last + 1]}


def check_once(case: Any) -> Iterator[str]:
    """A method that is done after one round, in which nothing is lost, is not changed by rounds played all the same."""
    call = call_of(case)
    if call.method.default_rounds == 1 and call.options["rounds"] and call.options["faults"] is None:
        one, other = (call.run(all_rounds=every, rounds=3 * every or 1) for every in (False, True))
        if not np.array_equal(one.centroids, other.centroids):
            yield "all rounds: other centroids"


def check_light_cone(case: Any) -> Iterator[str]:
    """A device to which nothing has come of another's points sends the same, whatever these are."""
    call = call_of(case)
    if call.options["byzantine"] is not None or call.options["stream"] is not None:
        return  # who attacks may know everything; a drawn stream follows from the points of all
    changed = int(np.argmax(call.shards.sizes))
    runs = call.record(call.shards), call.record(_move(call.shards, changed))
    differing = compare_light_cones(runs, changed=changed)[1]
    if differing:
        yield f"(exchange, device) sent something else that had received nothing of device {changed}: {differing[:5]}"


def check_suppression(case: Any) -> Iterator[str]:
    """Nothing that is sent depends on where the points of a device are that has too few of them."""
    call = call_of(case)
    least = call.options["min_cluster_size"]
    few = np.flatnonzero((call.shards.sizes > 0) & (call.shards.sizes < least))
    if not len(few) or call.options["byzantine"] is not None or call.options["stream"] is not None:
        return  # as above
    runs = call.record(call.shards), call.record(_move(call.shards, int(few[0])))
    differing = find_dependent(runs)
    if differing:
        yield f"(exchange, device) depend on the {call.shards.sizes[few[0]]} points of device {few[0]}: {differing[:5]}"


def check_small_clusters(case: Any) -> Iterator[str]:
    """Nothing that is sent depends on where points are that were in a group of too few whenever a device counted.

    A group is a cluster.
    """
    call = _plain(call_of(case))
    start = _start(call)
    if start is None or call.method.name not in _MOVED_ALIKE:
        return
    if call.options["missing"] != "refuse":
        return  # means and medians are those of all points of a device
    if conflicts.against_suppression(call.method):
        return  # it sends raw points, or others of which it is not known how many stand behind them
    if call.method.name == "gtvmin" and call.method.robust == "none" and call.options["faults"] is None:
        call = call._replace(method=call.method.replaced(init=p2pkm.Init.of("global")))
    given = {**_NO_LIES, "start": start, "rounds": min(call.options["rounds"], 4)}
    given["min_cluster_size"] = max(3, call.options["min_cluster_size"])
    shards, points = call.shards, call.shards.points.copy()
    one, idle = _watch_counts(call, shards, given)
    size = float(np.abs(points).max(initial=0.0)) + 1.0
    points[idle] += (size / 64.0 * np.random.default_rng(case.experiment.seed).random(points.shape))[idle]
    other, still = _watch_counts(call, replace(shards, points=points), given)
    if not idle.any() or (idle & ~still).any():
        return  # they all count, or do so where they are now
    differing = find_dependent((one, other))
    if differing or len(one) != len(other):
        yield f"(exchange, device) depend on {idle.sum()} points of small clusters: {differing[:5]}"


def _watch_counts(call: Call, shards: Shards, given: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the exchanges of a run, and which points were in a group of too few at every count, bool[m].

    All devices have agreed on the start that is given, so an accept test may compare with it.
    """
    idle, count = np.ones(len(shards.points), np.bool_), small_clusters.count_nearest

    without_start = tuple(row for row in conflicts.OF_OPTIONS if row.feature is not conflicts.START)

    def watched(devices: Any, labels: Any, rows: int) -> Any:
        counts = count(devices, labels, rows)
        owner = np.repeat(np.arange(len(devices)), devices.sizes)
        idle[(labels >= 0) & (counts[owner, labels] >= devices.min_count)] = False
        return counts

    with (
        patch.object(small_clusters, "count_nearest", watched),
        patch.object(averaging, "count_nearest", watched),
        patch.object(build_run, "OF_OPTIONS", without_start),
    ):
        return call.record(shards, **given), idle


def check_translated(case: Any) -> Iterator[str]:
    """Points and start somewhere else give the centroids there, but for rounding, and as many messages."""
    call = _plain(call_of(case))
    start = _start(call)
    if start is None or not _tieless(call):
        return
    by, (shards, start) = 16.0 * (1.0 + np.arange(call.shards.d)), _scatter(call.shards, start)
    moved = replace(shards, points=(shards.points + by).astype(shards.points.dtype))
    given = {**_NO_LIES, "rounds": min(call.options["rounds"], _tieless(call))}
    one, other = (call.run(**given, shards=at, start=begin) for at, begin in ((shards, start), (moved, start + by)))
    yield from _differences(one.summary, other.summary, ("messages", "bytes", "rounds"), "translated")
    yield from _far(one.centroids + by, other.centroids, "translated")


def check_permuted(case: Any) -> Iterator[str]:
    """Clusters in another order end in that order: to the bit where rows are paired by number, else near them."""
    call = _plain(call_of(case))
    start = _start(call)
    if start is None or not _tieless(call):
        return
    shards, start = _scatter(call.shards, start)
    order = np.roll(np.arange(call.method.k), case.experiment.seed % call.method.k or 1)
    given = {**_NO_LIES, "shards": shards, "rounds": min(call.options["rounds"], _tieless(call))}
    one, other = (call.run(**given, start=begin) for begin in (start, np.ascontiguousarray(start[:, order])))
    yield from _differences(one.summary, other.summary, ("messages", "bytes", "rounds"), "permuted")
    if call.method.name not in _BY_NUMBER:
        yield from _far(one.centroids[:, order], other.centroids, "permuted")
    elif not np.array_equal(one.centroids[:, order], other.centroids):
        yield "permuted: other centroids"


def check_conserved(case: Any) -> Iterator[str]:
    """No turn changes the sum over all devices of what they average, with what is under way where they count that."""
    call = call_of(case)
    options = call.options
    if any(options[name] for name in ("byzantine", "noise", "stream")) or call.shards.points.dtype != np.float64:
        return  # somebody else adds to the sums, or messages are rounded
    seen: list[tuple[Any, Any]] = []
    send = StageChannel.send

    def watched(channel: StageChannel, compute: Any, state: Any, devices: Any) -> Any:
        if hasattr(state, "averages") or hasattr(state, "duals"):
            seen.append((state, devices))
        return send(channel, compute, state, devices)

    with patch.object(StageChannel, "send", watched):
        call.run(quantize="none", baselines=False)
    yield from _balance(seen, call, faulty=options["faults"] is not None)


def _balance(seen: list[tuple[Any, Any]], call: Call, *, faulty: bool) -> Iterator[str]:
    """Compare what all devices hold in each state with what they measured, or with what a round began with."""
    whole, turns = None, _turns(call)
    for state, devices in seen:
        if hasattr(state, "duals"):
            if not faulty:
                yield from _adds_up((state.duals,), np.zeros((1, *state.duals.shape[1:])), devices)
        elif state.totals is not None:
            yield from _adds_up((state.averages, _under_way(call.method, state, devices)), state.local, devices)
        elif faulty:
            return  # lost messages lose sums
        elif state.local is not None:
            yield from _adds_up((state.averages,), state.local, devices)
        else:
            whole = state.averages if whole is None or devices.turn == turns - 1 else whole
            yield from _adds_up((state.averages,), whole, devices)


def _turns(call: Call) -> int:
    """Return the number of turns of a round of a method that acts at all devices in each."""
    return int(call.method.schedule.partition("*")[2] or 1)


def _under_way(method: Any, state: Any, devices: Any) -> Any:
    """Compute the offers of every device that its neighbors have not received yet, float64[e, k, d + 1]."""
    left = state.totals.total[devices.indices] - state.totals.edge_received
    weights = method.received_weights(devices)
    return left if weights is None else weights[:, None, None] * left


def _adds_up(parts: tuple[Any, ...], expected: Any, devices: Any) -> Iterator[str]:
    """Tell where sums over all devices differ by more than rounding errors."""
    found, size = (sum(f(one).sum(axis=0) for one in parts) for f in (np.asarray, np.abs))
    wanted, most = expected.sum(axis=0), float((size + np.abs(expected).sum(axis=0)).max(initial=0.0))
    if not (np.abs(found - wanted) <= 1e-9 * most).all():
        yield f"sums after turn {devices.turn} of round {devices.round}: {found.tolist()}, not {wanted.tolist()}"


def _tieless(call: Call) -> int:
    """Return how many rounds have no ties: rows without points are averages, halfway between two from the second on.

    That is none where a draw, local steps or the warm-up of saturating links come first.
    """
    method = call.method
    if (
        method.name not in _MOVED_ALIKE
        or getattr(method, "local_steps", 1) > 1
        or getattr(method, "robust", "none") == "saturate"
    ):
        return 0
    return 3 if method.name in _BY_NUMBER else 1


def _scatter(shards: Shards, start: Any) -> tuple[Shards, Any]:
    """Return points that are multiples of 2^-10 and a start that is not, so that no distances are equal."""
    rng = np.random.default_rng(len(shards.points))
    points = np.round(1024.0 * shards.points.astype(np.float64)) + rng.integers(-512, 513, shards.points.shape)
    points = (points / 1024.0).astype(shards.points.dtype)
    return replace(shards, points=points, labels=None, order=0), start + 0.01 * rng.random(start.shape[1:])


def _far(one: Any, other: Any, what: str) -> Iterator[str]:
    """Tell whether centroids differ by more than rounding errors."""
    size = float(np.abs(one[np.isfinite(one)]).max(initial=1.0))
    if not np.allclose(one, other, rtol=1e-9, atol=1e-9 * size):
        yield f"{what}: other centroids"


def check_swapped(case: Any) -> Iterator[str]:
    """Two features change their places, and so do those of the centroids, to the bit."""
    call = call_of(case)
    drawn = call.options["noise"] or call.options["byzantine"] or call.options["stream"]  # feature by feature
    drawn = (
        drawn
        or call.options["compress"]  # by the places of values in a table
        or case.experiment.options.get("clusters") == "auto"  # by references drawn in the box of the means
        or call.method.name in {"ffcm1", "ffcm2", "mufc", "private", "feddp", "fkmeanscb", *_INTEGER_SUMS}
        or any(word in (case.summary["init"] or "") for word in ("bounding", "lean", "rows"))
    )
    if call.shards.d != 2 or drawn:
        return
    points = np.ascontiguousarray(call.shards.points[:, ::-1])
    one, other = call.run(), call.run(shards=replace(call.shards, points=points))
    if not np.array_equal(one.centroids[:, :, ::-1], other.centroids):
        yield "features in another order: other centroids"


def check_shuffled(case: Any) -> Iterator[str]:
    """Points in another order on their device change nothing where sums are exact and all devices have a start."""
    call = _plain(call_of(case))
    start = _start(call)
    if start is None or call.options["noise"]:
        return  # noise follows a variance with rounding errors
    rng, bounds = np.random.default_rng(case.experiment.seed), call.shards.offsets
    order = np.concatenate([bounds[i] + rng.permutation(bounds[i + 1] - bounds[i]) for i in range(call.shards.n)])
    one = _coarsen(call.shards)
    other = replace(one, points=one.points[order])
    yield from _compare_runs(call, start, one, other, "points in another order")


def check_split(case: Any) -> Iterator[str]:
    """A point of weight 2 is as good as two points where sums are exact and all devices have a start."""
    call = _plain(call_of(case))
    start = _start(call)
    if start is None or call.options["min_cluster_size"] > 1 or call.options["noise"]:
        return  # points are counted there, not weights; noise follows a variance with rounding errors
    if call.method.name in {"admm", *_INTEGER_SUMS} or getattr(call.method, "schedule", "") == "async":
        return  # eta is for a point's weight; steps follow a variance; a turn takes longer with more points
    points, device = _coarsen(call.shards).points, np.repeat(np.arange(call.shards.n), call.shards.sizes)
    twice = np.random.default_rng(case.experiment.seed).integers(1, 3, len(points))
    one = Shards.deal(points, device, devices=call.shards.n, weights=twice, dtype=points.dtype.name)
    more = np.repeat(points, twice, axis=0), np.repeat(device, twice)
    other = Shards.deal(*more, devices=call.shards.n, weights=np.ones(len(more[0])), dtype=points.dtype.name)
    yield from _compare_runs(call, start, one, other, "split points")


def check_renamed(case: Any) -> Iterator[str]:
    """Devices with other numbers send as much, and end near the same centroids."""
    call = _plain(call_of(case))
    start, n = _start(call), call.shards.n
    named = any(call.options[name] for name in ("faults", "byzantine", "noise", "stream", "link_model"))
    if start is None or named or call.method.name not in _ALIKE or call.method.schedule != "jacobi":
        return
    if call.graph.varying is not None:
        return
    order = np.random.default_rng(case.experiment.seed).permutation(n)  # new number i is the old order[i]
    place, parts = np.argsort(order), [call.shards.points[slice(*call.shards.offsets[i : i + 2])] for i in order]
    links = _links(call.graph)
    other = links.copy()
    other[:, :2] = place[links[:, :2].astype(np.int64)]
    given = {"start": start, "baselines": False, "rounds": min(call.options["rounds"], 3), "quantize": "none"}
    one = call.run(**given, graph=Topology.from_links(n, links))
    two = call.run(**given, graph=Topology.from_links(n, other), shards=Shards.from_list(parts))
    yield from _differences(one.summary, two.summary, ("messages", "bytes", "rounds"), "renamed")
    if not np.allclose(one.centroids[order], two.centroids, rtol=1e-9, atol=1e-9 * float(np.abs(start).max())):
        yield "renamed: other centroids"


def _links(graph: Topology) -> Any:
    """Return the links (one end, the other, weight), float64[l, 3]."""
    ends = graph.sources, graph.indices
    return np.column_stack((*ends, graph.weights))[ends[0] < ends[1]]


def _plain(call: Call) -> Call:
    """Return the call with points as they are, and with a GTVMin that takes neither start nor coupling from others."""
    # Steps follow a variance; which values are sent first depends on their places in a table.
    call = call._replace(options=call.options | {"scale": "none", "quantize": "none", "compress": None})
    if call.method.name != "gtvmin":
        return call
    keys = {name: getattr(call.method, name) for name in ("schedule", "local_steps", "robust", "tol")}
    return call._replace(method=p2pkm.GTVMin(call.method.k, alpha=3.0, init="local", **keys))


def _start(call: Call) -> Any:
    """Return centroids to start from, the same for all devices; None where the method cannot."""
    traits, method = call.method.traits, call.method
    if needs_hub(method) or traits.init is None or traits.needs_agreed_start or traits.groups:
        return None
    if call.options["k_max"] is not None or call.options["stream"] is not None or np.isnan(call.shards.points).any():
        return None
    points = np.unique(call.shards.points.astype(np.float64), axis=0)
    rng = np.random.default_rng(len(points))
    low, high = points.min(axis=0), points.max(axis=0)
    start = np.round(64.0 * (low + (high - low + 1.0) * rng.random((method.k, call.shards.d)))) / 64.0
    return np.broadcast_to(start, (call.shards.n, *start.shape)).copy()


def _coarsen(shards: Shards) -> Shards:
    """Return shards whose sums have no rounding errors: all points are multiples of a half."""
    return replace(shards, points=np.round(2.0 * shards.points) / 2.0, labels=None, order=0)


def _compare_runs(call: Call, start: Any, one: Shards, other: Shards, what: str) -> Iterator[str]:
    try:
        results = [call.run(start=start, shards=shards, baselines=False) for shards in (one, other)]
    except ExperimentError:
        return  # weights, for example
    names = ("centroids_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")
    yield from _differences(*(result.summary for result in results), names, what)


def _move(shards: Shards, device: int) -> Shards:
    """Return shards with other points on one device, as many as before."""
    points, own = shards.points.copy(), slice(*shards.offsets[device : device + 2])
    points[own] = (points[own][::-1] * 0.7 + 2.5).astype(points.dtype)
    return replace(shards, points=points)


def _differences(one: dict[str, Any], other: dict[str, Any], names: Any, what: str) -> Iterator[str]:
    for name in names:
        if one[name] != other[name]:
            yield f"{what}: {name} is {other[name]} instead of {one[name]}"


RELATIONS = {
    "api": check_api, "scaled": check_scaled, "isolated": check_isolated, "observers": check_observers,
    "longer": check_longer, "once": check_once, "light-cone": check_light_cone, "suppression": check_suppression,
    "swapped": check_swapped, "shuffled": check_shuffled, "split": check_split, "renamed": check_renamed,
    "small-clusters": check_small_clusters, "translated": check_translated, "permuted": check_permuted,
    "conserved": check_conserved,
}  # fmt: skip
