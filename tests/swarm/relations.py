"""What must hold between an experiment and one that is a little different: `p2pkm.simulate` runs both."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import p2pkm
from p2pkm.core.errors import ExperimentError
from p2pkm.data.shards import Shards
from p2pkm.engine import run_job
from p2pkm.experiments import simulate as module
from p2pkm.experiments.check_method import RecordingWorld, compare_light_cones
from p2pkm.experiments.config import Experiment as Config
from p2pkm.experiments.config import prepare
from p2pkm.experiments.simulate import simulate
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.network.graph import Topology
from p2pkm.storage.toml import load_toml
from tests.support.light_cone import build_with_known_totals

_SAME = ("centroids_sha256", "chain_sha256", "messages", "bytes", "wire_bytes", "rounds", "termination")
_PER_DEVICE = {"devices", "clusters", "rounds", "seed", "data", "algorithm", "graph", "partition", "init", "schedule",
               "local-steps", "min-cluster-size", "robust", "tol"}  # fmt: skip
_ALIKE = ("gtvmin", "consensus", "admm", "dgc", "tracking")  # the number of a device has no say
_OPTIONS = (
    "rounds", "all_rounds", "seed", "record_every", "allow_disconnected", "link_model", "faults", "stale_policy",
    "byzantine", "min_cluster_size", "noise", "quantize", "scale", "k_max", "stream", "baselines", "silhouette",
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
        return simulate(*names.values(), **self.options | other)

    def record(self, shards: Shards, **other: Any) -> list[Any]:
        """Return the exchanges of a run of which all devices know the same total variance, whatever the points."""
        world = RecordingWorld()
        with (
            patch.object(module, "connect", lambda: world),
            patch.object(run_job, "build_batch", build_with_known_totals),
        ):
            self.run(shards=shards, **other)
        return world.exchanges


def call_of(case: Any) -> Call:
    """Return the call that an experiment stands for."""
    config = Config.from_mapping(load_toml(str(case.run / "config.toml"), "config"), "config")
    real = prepare(replace(config, out="none"), None)
    given = {name: getattr(real.experiment, name) for name in _OPTIONS}
    given["missing"] = "refuse" if real.experiment.missing == "drop" else real.experiment.missing  # rows are left out
    given["quantize"] = case.summary["quantize"] or "none"  # the method has its defaults filled in
    served = needs_hub(real.run.algorithm)
    shards = read(real.shards)
    shards = shards.part(0, shards.n - 1) if served else shards
    return Call(real.run.algorithm, None if served else real.run.topology, shards, given)


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
        call.method.name in {"private", "fkmeanscb", "treelloyd"}
        or call.options["stream"] is not None
        or not call.shards.points.any()
    ):
        return  # their noise has the units of the points; points that are all 0 have no scale
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
    if call.method.name == "private" or call.options["stream"] is not None:
        return  # it divides its budget among the rounds; a stream is drawn for so many
    rounds = call.options["rounds"]
    short, long = (_rounds(call.run(record_every=1, rounds=rounds + more), call.method.name) for more in (0, 3))
    for at in short:
        for key in ("messages", "bytes", "wire_bytes", "objective", "gtv", "ratio_mean"):
            if short[at][key] != long.get(at, short[at])[key]:
                yield f"{rounds + 3} rounds, not {rounds}: in {at} {key} is {long[at][key]}, not {short[at][key]}"
                return


def _rounds(result: Any, method: str) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return the records up to the method's last one, by number, stage and round."""
    last = max((at for at, record in enumerate(result.rounds) if record["stage"] == method), default=0)
    return {(record["stage"], record["round"]): record for record in result.rounds[: last + 1]}


def check_once(case: Any) -> Iterator[str]:
    """A method that is done after one round is not changed by rounds that are played all the same."""
    call = call_of(case)
    if call.method.default_rounds == 1 and call.options["rounds"]:
        one, other = (call.run(all_rounds=every, rounds=3 * every or 1) for every in (False, True))
        if not np.array_equal(one.centroids, other.centroids):
            yield "all rounds: other centroids"


def check_light_cone(case: Any) -> Iterator[str]:
    """A device to which nothing has come of another's points sends the same, whatever these are."""
    call = call_of(case)
    if call.options["byzantine"] is not None:
        return  # who attacks may know everything
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
    if not len(few):
        return
    runs = call.record(call.shards), call.record(_move(call.shards, int(few[0])))
    differing = compare_light_cones(runs, changed=-1)[1]
    if differing:
        yield f"(exchange, device) depend on the {call.shards.sizes[few[0]]} points of device {few[0]}: {differing[:5]}"


def check_swapped(case: Any) -> Iterator[str]:
    """Two features change their places, and so do those of the centroids, to the bit."""
    call = call_of(case)
    drawn = call.options["noise"] or call.options["byzantine"] or call.options["stream"]  # feature by feature
    drawn = (
        drawn
        or call.method.name in {"ffcm1", "ffcm2", "mufc", "private", "fkmeanscb", "treelloyd"}
        or any(word in (case.summary["init"] or "") for word in ("bounding", "lean"))
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
    if start is None:
        return
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
    if call.method.name in {"admm", "treelloyd"}:
        return  # eta is for a point's weight; steps follow a variance
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
    call = call._replace(options=call.options | {"scale": "none", "quantize": "none"})  # steps follow a variance
    if call.method.name != "gtvmin":
        return call
    keys = {name: getattr(call.method, name) for name in ("schedule", "local_steps", "robust", "tol")}
    return call._replace(method=p2pkm.GTVMin(call.method.k, alpha=3.0, init="local", **keys))


def _start(call: Call) -> Any:
    """Return centroids to start from, the same for all devices; None where the method cannot."""
    traits, method = call.method.traits, call.method
    if needs_hub(method) or traits.init is None or traits.accepts or traits.rehearses or traits.groups:
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
}  # fmt: skip
