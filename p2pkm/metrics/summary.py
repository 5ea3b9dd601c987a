"""The end of a run: from what the ranks hold to one result and one summary."""

import json
import math
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from p2pkm.channel.byzantine import byzantine_note
from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.messages import RaggedArray
from p2pkm.core.sorting import blocks, narrow
from p2pkm.core.states import optional
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.data.shards import Shards
from p2pkm.methods.server.star import StarState
from p2pkm.metrics.clustering import ari, nmi, purity
from p2pkm.metrics.cost_ratio import CostEvaluator, CostRatios
from p2pkm.metrics.disclosure import expose
from p2pkm.metrics.final_labels import collect_labels, tabulate
from p2pkm.metrics.milestones import accumulate_rounds, find_best, find_milestones, of_method
from p2pkm.metrics.monitor import Monitor, mean
from p2pkm.metrics.optional import (
    estimate_distance,
    expect_rate,
    mark_centers,
    mark_clients,
    mark_move,
    measure_server_costs,
    silhouette_scores,
)
from p2pkm.metrics.registry import measure, summary_keys
from p2pkm.metrics.replay_frames import Frames
from p2pkm.metrics.result import Census, Exposure, HashChain, Result
from p2pkm.network.graph import LARGE, Topology
from p2pkm.network.ledger import Traffic
from p2pkm.network.transport import Network, World

_COMPARED = 1e7  # numbers that the distance to consensus looks at; of more devices every so many stand for all
_MUCH, _SHORT = 0.3, 5.0  # share of the time that recording may take before a note is made; of at least so many seconds
_SELDOM = 10  # looks at every tenth round
_HALF = 0.5  # of a link's strength
_LINKS = 64  # numbers of the links of a device, about


def describe(algorithm: Any, devices: Devices) -> dict[str, Any]:
    """Return the summary figures of a method's parameters, as they were used; None: the method has no such thing."""
    traits = algorithm.traits
    return {
        "algorithm": algorithm.name,
        "clusters": algorithm.k,
        "init": "groups" if traits.groups else None if traits.init is None else str(traits.init),
        "alpha": None,
        "coupling": None,
        "schedule": algorithm.schedule,
        "relaxation": None,
        "local_steps": None,
    } | algorithm.resolved_parameters(devices)


class OptionalMetrics(NamedTuple):
    """What to score besides: silhouettes, the distance to known centers float64[c, d], the known groups int64[n]."""

    silhouette: bool = False
    centers: Floats | None = None
    groups: Integers | None = None


class FinishedRun(NamedTuple):
    """What a run leaves on a rank: its batch and points, the monitor, the last state, the graph.

    clock: virtual seconds for the summary; ages: mean and largest age of what each edge delivered, in seconds, None:
    no clocks were kept; hops: how far tables traveled as they were, None: everywhere.
    """

    devices: Devices
    shards: Shards
    monitor: Monitor
    state: Any
    topology: Topology
    clock: dict[str, float | None]
    ages: tuple[Floats, Floats] | None
    hops: int | None


def build_result(world: World, played: FinishedRun, facts: dict[str, Any], wishes: OptionalMetrics) -> Result:
    """Return the same result on every rank."""
    devices, shards, monitor, state, topology, clock, ages, hops = played
    network, prices = monitor.network, cast(CostEvaluator, monitor.cost_evaluator)
    traffic = _gather_traffic(network, topology)
    exposure = expose(traffic, topology, hops)
    if ages is not None:
        traffic = traffic._replace(age_mean=ages[0], age_max=ages[1])
    induced = isinstance(state, StarState) and bool(network.allgather_by_device(state.induced).any())
    through = state.local if induced else None
    census = collect_labels(devices, network, shards, prices.n_classes, state.centroids, through)
    priced = monitor.priced
    if through is not None and prices.n_classes:
        pooled = tabulate(devices, network, shards.labels, prices.n_classes, (state.centroids, through))
        priced = None if priced is None else priced._replace(tables=pooled[None])
    sets = network.allgather_by_device(state.centroids)
    centroids, model = sets[: devices.clients], None if topology.hub < 0 else _real(sets[topology.hub])
    marks = _mark_server(devices, network, state, prices) if topology.hub >= 0 else {}
    groups = _name_groups(network, topology, state)
    known = monitor.objective_known and facts["rounds"] > 0 and not devices.has_stale_or_varying_links
    reverted = int(network.total(np.array([np.sum(optional(state, "reverted", default=False))], np.int64))[0])
    move = mark_move(devices, network, state) if known and not reverted else None
    records, summary = list[dict[str, Any]](), dict[str, Any]()
    if world.rank == 0:
        summary = dict.fromkeys(summary_keys()) | facts | _score(priced, prices, census, monitor)
        summary |= _last(monitor, move, _expect(facts)) | _count(traffic, monitor, centroids, exposure) | clock
        if topology.hub >= 0:
            summary |= marks
        apart = groups is not None and groups.max() > topology.components.max()  # each with a quality of its own
        summary |= find_milestones(monitor.trace) | ({} if apart else find_best(monitor.trace))
        summary |= _optional_scores(wishes, centroids, monitor.best, model, census) | _mark_groups(
            groups, wishes.groups
        )
        records = monitor.trace
    prices.notes += [*_tell(topology, monitor, census, centroids), *_advise(monitor, topology, groups, facts),
                     *byzantine_note(monitor.left_out), *_tell_reverted(reverted, devices.clients)]  # fmt: skip
    prices.notes += _miss(census, centroids, model, monitor, facts | {"served": topology.hub >= 0})
    text = json.dumps([records, summary, prices.notes], default=_plain) if world.rank == 0 else ""
    shared = world.broadcast(
        {"text": np.frombuffer(text.encode(), np.uint8), "losses": monitor.losses, "best": np.array(monitor.best),
         "ratios": _ratios(monitor), **_freeze(monitor.hash_chain())} if world.rank == 0 else None
    )  # fmt: skip
    frames = world.broadcast(monitor.recorder.develop() if world.rank == 0 else None)
    gtv = network.allgather_by_device(monitor.gtv, network.placement.edge_counts)
    records, summary, notes = json.loads(shared["text"].tobytes())
    result = Result(
        centroids, model, records, summary, traffic, topology, shared["losses"], _both_ways(topology, gtv, network),
        census, HashChain(shared["heads"], shared.get("digests")), int(shared["best"]), notes, groups=groups,
        frames=Frames(**frames) if frames else None, ratios=shared["ratios"], byzantine=monitor.left_out,
        exposure=exposure, central=prices.baseline, derived=_collect_derived(devices, network, state),
    )  # fmt: skip
    figures, values = measure(result)  # the same on every rank, as the result is
    return replace(result, summary=summary | figures, devices=values)


def _plain(number: np.generic) -> Any:
    """Return a number of NumPy, such as a parameter that a script gave, as one of Python."""
    return number.item()


def _collect_derived(devices: Devices, network: Network, state: Any) -> dict[str, Any]:
    """Return what the method computed of all points and devices besides centroids, the same on every rank."""
    derived = optional(state, "derived")
    if derived is None:
        return {}
    sizes = network.allgather_by_device(devices.sizes)
    return {
        name: network.allgather_by_device(part.values, sizes)
        if isinstance(part, RaggedArray)
        else network.allgather_by_device(part)
        for name, part in derived._asdict().items()
    }


def _tell_reverted(reverted: int, clients: int) -> list[str]:
    """Return a note if devices have taken their start back."""
    return [
        f"accept test: {reverted:,} of {clients:,} devices took the start back, which may cost less on all points "
        "than the method's end"
    ] * (reverted > 0)


def _advise(monitor: Monitor, topology: Topology, groups: Integers | None, facts: dict[str, Any]) -> list[str]:
    """Return what to bear in mind with several groups, and where measuring took much of the time."""
    notes = []
    if groups is not None and groups.max() > topology.components.max():
        notes.append(f"{groups.max() + 1} groups: ratio and scores hold every device against the points of all")
    share = monitor.seconds / max(facts["wall_seconds"], _SHORT)
    if share > _MUCH and monitor.every < _SELDOM:
        notes.append(f"measuring the rounds took {share:.0%} of the time; --record-every 10 records every tenth only")
    return notes


def _tell(topology: Topology, monitor: Monitor, census: Census, centroids: Floats) -> list[str]:
    """Return what is left out of the results of large runs."""
    notes, stride = monitor.recorder.notes, _stride(centroids)
    if topology.n > LARGE:
        notes.append(f"above {LARGE:,} devices the graph is kept as arrays and the ledger without senders")
    if topology.n > LARGE and monitor.every > 1:
        notes.append(
            f"rounds are recorded every {monitor.every}, and the last of each stage; --record-every 1 records all"
        )
    if census.labels is None:
        notes.append("so many points: their labels are not kept")
    if stride > 1:
        notes.append(f"the distance to consensus is over one of {stride} devices")
    return notes


def _expect(facts: dict[str, Any]) -> float | None:
    """Return the convergence rate that theory expects, None with a raw alpha."""
    if facts["coupling"] is None or facts["relaxation"] is None:
        return None
    return expect_rate(facts["coupling"], facts["relaxation"], facts["schedule"])


def _miss(
    census: Census, centroids: Floats, model: Floats | None, monitor: Monitor, facts: dict[str, Any]
) -> list[str]:
    """Return notes on devices that hold fewer centroids than were asked for, or none: which, why, what to change."""
    if facts["termination"] in STOPPED:
        return []
    sizes, centroids = monitor.keep(census.sizes), monitor.keep(centroids)
    held, k = np.isfinite(centroids[:, :, 0]).sum(axis=1), centroids.shape[1]
    some = held[(held > 0) & (held < k)]
    who = [f"{len(some):,} of {len(held):,} devices"] * (len(some) > 0)
    if model is not None and 0 < len(model) < k:
        some, who = np.append(some, len(model)), [*who, "the server"]
    notes = [] if not who else [
        f"{' and '.join(who)} ended with fewer than {k} centroids, the fewest {some.min()}: there are fewer distinct "
        "points, or clusters were lost on the way. Use fewer clusters or more points per device"
    ]  # fmt: skip
    return notes + _tell_without(sizes, centroids, facts)


def _tell_without(sizes: Integers, centroids: Floats, facts: dict[str, Any]) -> list[str]:
    """Return a note on devices that have points and no centroid."""
    without = (centroids[:, :, 0] == np.inf).all(axis=1) & (sizes > 0)
    if not without.any():
        return []
    some = f"{np.count_nonzero(without):,} of {np.count_nonzero(sizes):,}"
    who = f"{some} devices hold no centroid, so scores leave them out"
    if not (centroids < np.inf).any():
        who = "no device holds a centroid, so there is no quality to report"
    if facts["termination"] == "round-limit" and not (facts["served"] or facts.get("min_cluster_size")):
        limit = f"the run ended at its limit of {count(facts['rounds'], 'round')}"
        return [f"{who}: {limit}, before any centroid reached them. Use a higher --rounds"]
    return [
        f"{who}: no row of enough points reached them. Take fewer devices, fewer clusters, more points per device or a "
        "lower minimum (--min-cluster-size; that of fkm is 2: --algorithm fkm:min_count=1)"
    ]


def _last(monitor: Monitor, move: float | None, expected: float | None) -> dict[str, Any]:
    """Return the figures of the last record that are about the whole run."""
    last, own = monitor.trace[-1], of_method(monitor.trace)
    found = {name: last[name] for name in ("objective", "gtv", "messages", "bytes", "wire_bytes")}
    found["descent"] = own[-1]["descent"]
    found["rounds_before"] = accumulate_rounds(own)[-1][0] - own[-1]["round"]  # a stage may be played several times
    openings = [record for record in own if record["stage"] == own[-1]["stage"] and record["round"] == 0]
    found["ratio_start"] = openings[-1]["ratio_mean"] if openings else None
    if not monitor.objective_known:
        return found | {"descent": None}
    from topologies.measures import fitted

    fall = fitted(own).contraction
    # the distance of the objective to its end is quadratic; six digits, for the fit is no part of the run's bits
    rate = None if fall is None else float(f"{math.sqrt(fall):.6g}")
    left = None if move is None else estimate_distance(move, rate, expected)
    return found | {"convergence_rate": rate, "distance_left": left}


def _count(traffic: Traffic, monitor: Monitor, centroids: Floats, exposure: Exposure) -> dict[str, Any]:
    """Return what can be counted or compared between devices."""
    own, best = monitor.keep(centroids), np.searchsorted(monitor.left_out, monitor.best)
    return {
        "rows_max_per_device": int(traffic.rows_per_device.max(initial=0)),
        "centroid_sets": _count_different(monitor.keep(monitor.heads)) if (own < np.inf).any() else 0,
        "consensus_distance": measure_consensus(own, monitor.best - int(best)),
        "max_peers_observed": int(exposure.devices.max()),
        "messages_rejected": int(traffic.refused.sum()) if traffic.refused is not None else 0,
        "centroids_sha256": monitor.fingerprint.hex(),
        "chain_sha256": monitor.chain.hex(),
    }


def _count_different(heads: Any) -> int:
    """Return how many of uint64[n], parts of digests, differ: of a million two agree by chance once in 10^7 runs."""
    heads = np.sort(heads)
    return 1 + int(np.count_nonzero(heads[1:] != heads[:-1]))


def _mark_server(devices: Devices, network: Network, state: Any, prices: CostEvaluator) -> dict[str, Any]:
    """Return what only a method with a server is scored by."""
    held = optional(state, "held")
    if held is None:
        return {}
    rows = int(network.total(np.array(np.maximum(held, 0).sum())))
    return {"rows_at_server": rows, **measure_server_costs(devices, network, state, prices.central)}


def _optional_scores(
    wishes: OptionalMetrics, centroids: Floats, best: int, model: Floats | None, census: Census
) -> dict[str, Any]:
    """Score what was asked for: the server's centroids, else those of the devices."""
    found: dict[str, Any] = {}
    one = centroids[best] if model is None else model
    if wishes.silhouette:
        found |= silhouette_scores(one, census)
    if wishes.centers is not None:
        found |= mark_centers(centroids if model is None else model[None], wishes.centers)
    return found


def _name_groups(network: Network, topology: Topology, state: Any) -> Integers | None:
    """Return the group of each device, int64[n], by first appearance: its own, or what strong links connect.

    Strong are those that kept more than half of their strength.
    """
    group = optional(state, "group")
    if group is not None:
        _, first, place = np.unique(network.allgather_by_device(group), return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place]
    weight = optional(state, "edge_weight", default=False)
    if weight is False:
        return None
    if weight is None:
        return topology.components
    weights = network.allgather_by_device(weight, network.placement.edge_counts)
    strong = (weights > _HALF) & (topology.sources < topology.indices)
    if strong.sum() == len(topology.indices) // 2:
        return topology.components
    links = np.column_stack((topology.sources[strong], topology.indices[strong], weights[strong]))
    return Topology.from_links(topology.n, links).components


def _mark_groups(groups: Integers | None, truth: Integers | None) -> dict[str, float | int | None]:
    """Return the number of groups, and their adjusted Rand index over devices if the truth is known."""
    if groups is None:
        return {}
    count = int(groups.max()) + 1
    if truth is None or len(truth) != len(groups):
        return {"groups": count}
    table = np.zeros((int(truth.max()) + 1, count), np.int64)
    np.add.at(table, (truth, groups), 1)
    return {"groups": count, "groups_ari": float(ari(table))}


def _real(rows: Floats) -> Floats | None:
    """Return the rows that are there, None if there is none."""
    real = rows[rows[:, 0] < np.inf]
    return real if len(real) else None


def _score(
    priced: CostRatios | None, prices: CostEvaluator, census: Census, monitor: Monitor
) -> dict[str, float | None]:
    """Return ratios over devices, and the scores of all points labeled by each device's centroids, averaged."""
    found: dict[str, float | None] = {"ratio_local_only": mean(prices.alone)} | mark_clients(census, monitor)
    if priced is not None:
        known = priced.ratios[np.isfinite(priced.ratios)]
        found |= {"ratio_mean": mean(known), "ratio_worst": float(known.max()) if len(known) else None}
        if priced.tables.size:
            found |= {
                name: mean(score(priced.tables)) for name, score in (("ari", ari), ("nmi", nmi), ("purity", purity))
            }
    return found


def measure_consensus(centroids: Floats, reference: int) -> float | None:
    """Return how far the devices' centroids are from those of one of them: root mean square over devices.

    Every row is compared with the nearest row of the reference, so that the order of rows does not matter; the
    squared distances of a device's rows are summed. Consensus is 0, but 0 need not be consensus: rows that repeat, or
    rows of the reference that a device lacks, add nothing, so {0, 0, 5} and {0, 5, 5} are 0 apart. The one-to-one
    comparison is `p2pkm.metrics.alignment.distance_to_neighbors`.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Absent rows are +inf and left out; devices without any row, too.
    reference : int

    Returns
    -------
    float or None
        None if the reference has no row.
    """
    goal = centroids[reference][centroids[reference, :, 0] < np.inf]
    if not len(goal):
        return None
    compared = centroids[:: _stride(centroids)]
    squared = np.full(compared.shape[:2], np.inf)
    for row in goal:
        np.minimum(squared, ((compared - row) ** 2).sum(axis=2), out=squared)
    real = squared < np.inf
    present = real.any(axis=1)
    return float(np.sqrt(np.mean(np.where(real, squared, 0.0)[present].sum(axis=1))))


def _stride(centroids: Floats) -> int:
    """Return one of how many devices is compared with the others."""
    return int(max(1, centroids.size * centroids.shape[1] // _COMPARED))


def _ratios(monitor: Monitor) -> Floats:
    """Return the ratio of each device, float64[n]; NaN where it is not known."""
    return np.full(len(monitor.losses), np.nan) if monitor.priced is None else monitor.priced.ratios


def _freeze(chain: HashChain) -> dict[str, Any]:
    """Return the parts of the chain that are there."""
    return {name: part for name, part in chain._asdict().items() if part is not None}


def _both_ways(topology: Topology, gtv: Floats, network: Network) -> Floats:
    """Write what stands at the lower end of every link at its upper end, too, and return it, float64[e]."""
    mirror = topology.mirror if network.placement.division.size > 1 else network.placement.mirror
    for some in blocks(topology.n, _LINKS):
        first, last = topology.indptr[some.start], topology.indptr[some.stop]
        sources = np.arange(some.start, some.stop).repeat(np.diff(topology.indptr[some.start : some.stop + 1]))
        upper = first + np.flatnonzero(sources > topology.indices[first:last])
        gtv[upper] = gtv[mirror[upper]]
    return gtv


def _gather_traffic(network: Network, topology: Topology) -> Traffic:
    """Return the ledger of all ranks, in the order of the topology's edges."""
    sent, n = network.ledger.edges, topology.n
    wide = n <= LARGE or network.total(np.array([sent.dtype != np.int32], np.int64))[0] > 0
    sent = sent.astype(np.int64 if wide else np.int32, copy=False)  # alike on all ranks
    messages, rows, volume, wire = network.allgather_by_device(sent, network.placement.edge_counts).T
    refused = network.allgather_by_device(network.ledger.refused)
    refused = refused if refused.any() else None
    exchanges = network.ledger.exchanges
    if n > LARGE:
        sources = np.arange(n, dtype=narrow(n)).repeat(topology.degrees)
        return Traffic(
            sources, topology.indices, messages, volume, rows, None, None, None, None, topology.n, wire, refused=refused
        )
    stage, turn = (np.array([getattr(one, name) for one in exchanges]) for name in ("stage", "turn"))
    number, sender, sent_rows = _gather_tables(network, [one.sent_rows for one in exchanges]).T
    ends = topology.sources, topology.indices
    return Traffic(
        *ends, messages, volume, rows, stage[number], turn[number], sender, sent_rows, topology.n, wire, refused=refused
    )


def _gather_tables(network: Network, sent_rows: list[tuple[Integers, Integers]]) -> Integers:
    """Return (exchange, sender, rows) of every table sent, by exchange and by sender, int64[t, 3]."""
    number = np.repeat(np.arange(len(sent_rows)), [len(who) for who, _ in sent_rows])
    who, rows = (np.concatenate(part) for part in zip(*sent_rows, strict=True))
    ids = network.placement.ids
    own = np.column_stack((number, ids[who], rows))[np.argsort(who, kind="stable")]
    found = network.allgather_by_device(own, network.allgather_by_device(np.bincount(who, minlength=len(ids))))
    return found[np.lexsort((found[:, 1], found[:, 0]))]
