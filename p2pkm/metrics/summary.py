"""Final result and summary of a run, assembled from the state of all ranks."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from p2pkm.core.allocator import trim_if_large
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.errors import ContractError
from p2pkm.core.messages import RaggedArray
from p2pkm.core.protocols import Objective
from p2pkm.core.sorting import blocks, narrow
from p2pkm.core.states import optional
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.data.shards import Shards
from p2pkm.methods.server.star import StarState
from p2pkm.methods.tree.local_steps import LocalSteps
from p2pkm.metrics.averaging_bound import summarize_averaging
from p2pkm.metrics.clustering import ari, nmi, purity
from p2pkm.metrics.cost_ratio import CostEvaluator, CostRatios
from p2pkm.metrics.disclosure import count_exposure
from p2pkm.metrics.final_labels import collect_labels, tabulate
from p2pkm.metrics.gathering import Gathering
from p2pkm.metrics.milestones import accumulate_rounds, exclude_stages_after, find_best, find_milestones
from p2pkm.metrics.monitor import Monitor, mean
from p2pkm.metrics.optional import (
    estimate_distance,
    expect_rate,
    measure_center_distance,
    measure_last_move,
    measure_server_costs,
    measure_silhouettes,
    score_clients,
)
from p2pkm.metrics.personal import PersonalScores, Rivals, score_test_points
from p2pkm.metrics.registry import measure, summary_keys
from p2pkm.metrics.replay_frames import Frames
from p2pkm.metrics.result import Census, Exposure, HashChain, NewLinks, Result
from p2pkm.network.graph import LARGE, Topology, walk
from p2pkm.network.ledger import Traffic
from p2pkm.network.transport import Network

# Comparisons of coordinates for the distance to consensus; larger runs compare an evenly spaced sample of the devices.
_COMPARED = 1e7
# Share of the run time, and seconds, that fewer records must save for a note to recommend them.
_MUCH = 0.3
_WORTH = 10.0
# Number of rounds between records that the note recommends.
_SELDOM = 10
# Links with a larger share of their initial strength connect devices of the same group.
_HALF = 0.5
# Estimated numbers per device in a block of links.
_LINKS = 64
# Devices that a note lists.
_LISTED_DEVICES = 10
# Share of the devices with points that may end without centroids in a run that counts as successful.
_FEW = 0.1


def describe(algorithm: Any, devices: Devices) -> dict[str, Any]:
    """Return the parameters of a method for the summary, with resolved defaults; None if not applicable."""
    traits = algorithm.traits
    init = None if traits.init is None else str(traits.init)
    if traits.groups:
        init = "groups"
    return {
        "algorithm": algorithm.name,
        "clusters": algorithm.k,
        "init": init,
        "alpha": None,
        "coupling": None,
        "coupling_chosen": None,
        "schedule": algorithm.schedule,
        "relaxation": None,
        "local_steps": None,
    } | algorithm.resolved_parameters(devices)


class OptionalMetrics(NamedTuple):
    """Optional metrics that were requested.

    Attributes
    ----------
    silhouette : bool
        Whether to compute silhouettes.
    centers : float64[c, d] or None
        Known centers, for the distance to them.
    groups : int64[n] or None
        Known groups of the devices, for the score of the groups.
    """

    silhouette: bool = False
    centers: Floats | None = None
    groups: Integers | None = None


class FinishedRun(NamedTuple):
    """Final state of a run on a rank.

    Attributes
    ----------
    devices : Devices
        Batch of the rank.
    shards : Shards
        Points of its devices.
    monitor : Monitor
    state : NamedTuple
        Final state of the method.
    topology : Topology
    objective : Objective or None
        Objective of the method.
    """

    devices: Devices
    shards: Shards
    monitor: Monitor
    state: Any
    topology: Topology
    objective: Objective | None


class Ending(NamedTuple):
    """Inputs of the result that do not depend on the final state of the devices.

    Attributes
    ----------
    monitor : Monitor
    topology : Topology
    clock : dict
        Simulated times for the summary.
    ages : tuple of (float64[e], float64[e]) or None
        Mean and largest age of the tables that each edge delivered, in seconds; None without a link model.
    hops : int or None
        Number of hops over which tables were forwarded unchanged; None: to all devices.
    """

    monitor: Monitor
    topology: Topology
    clock: dict[str, float | None]
    ages: tuple[Floats, Floats] | None
    hops: int | None


class LinkStrengths(NamedTuple):
    """Coupling of the links of this rank, from which `_describe_new_links` computes that of a new device.

    Attributes
    ----------
    alpha : float64[e]
    by_degree : bool[n]
        Devices whose new links are divided by degrees.
    mixture : float64[n, 2] or None
        Noise and prior of the shares.
    unit : float
    is_chosen : bool
        Whether each component has chosen whether to use shares.
    """

    alpha: Floats
    by_degree: Mask
    mixture: Floats | None
    unit: float
    is_chosen: bool


class Measured(NamedTuple):
    """Measurements of the final state on a rank, from which the result is built after its points and links are freed.

    Attributes
    ----------
    centroids, gtv : float64[n, k, d], float64[e]
        Models of the devices of this rank, and total variation of its links.
    clients : int
        Number of devices of the system without the server.
    links : LinkStrengths or None
    move : float or None
        Largest last change of a coordinate.
    mirror : int[e] or None
        Reverse of every link, in one process.
    census, cost_ratios, personal, groups, server_metrics, link_weights, couplings, label_penalties, derived :
        As in `Result`, of all devices.
    """

    centroids: Floats
    gtv: Floats
    clients: int
    links: LinkStrengths | None
    move: float | None
    mirror: Any
    census: Census | None
    cost_ratios: CostRatios | None
    personal: PersonalScores | None
    groups: Integers | None
    server_metrics: dict[str, Any]
    link_weights: Floats | None
    couplings: Floats | None
    label_penalties: Floats | None
    derived: dict[str, Any]


def measure_final_state(
    gathering: Gathering, finished: FinishedRun, facts: dict[str, Any], requested: OptionalMetrics
) -> tuple[Measured, Integers | None]:
    """Measure all that needs points, links and state of the devices; a collective call.

    Returns
    -------
    measured : Measured
    labels : int64[m] or None
        Labels of the points of this rank; None in large runs.
    """
    devices, shards, monitor, state, topology, _ = finished
    network = gathering.network
    _reject_nan(state.centroids, network, facts)
    evaluator = cast(CostEvaluator, monitor.cost_evaluator)
    # Before the first arrays of all devices.
    trim_if_large(len(devices))
    induced = isinstance(state, StarState) and bool(network.total(np.array([state.induced.any()], np.int64))[0])
    through = state.local if induced else None
    # A choice without shares, or without weights of links, leaves such that are not used in the state.
    choice = str(facts["coupling_chosen"]) if facts["coupling_choice"] == "auto" else None
    shares = optional(state, "shares") if choice is None or "with shares" in choice else None
    penalties = None if shares is None else shares.penalties
    census, labels = collect_labels(
        devices, gathering, shards, evaluator.n_classes, state.centroids, through, penalties
    )
    cost_ratios = monitor.cost_ratios
    if through is not None and evaluator.n_classes:
        pooled = tabulate(devices, network, shards.labels, evaluator.n_classes, (state.centroids, through))
        cost_ratios = None if cost_ratios is None else cost_ratios._replace(tables=pooled[None])
    known_centers = requested.centers
    centers = shards.centers if known_centers is None else np.tile(known_centers, (len(devices), 1, 1))
    rows = state.centroids, through, penalties
    rivals = Rivals(evaluator.baseline, centers)
    personal = score_test_points(devices, shards, gathering, rows, rivals, monitor.excluded)
    known = monitor.objective_known and facts["rounds"] > 0 and not devices.has_stale_or_varying_links
    weights = optional(state, "edge_estimated") if choice is None or "links" in choice else None
    couplings = optional(state, "coupling")
    measured = Measured(
        state.centroids,
        monitor.gtv,
        devices.clients,
        _find_strengths(finished, shares, is_chosen=choice is not None),
        measure_last_move(devices, network, state) if known else None,
        network.placement.mirror if network.placement.division.size == 1 else None,
        census,
        cost_ratios,
        personal,
        _name_groups(gathering, topology, state),
        _measure_server(devices, network, state, evaluator) if topology.hub >= 0 else {},
        None if weights is None else gathering.gather(weights, network.placement.edge_counts),
        None if couplings is None else gathering.gather(couplings),
        None if penalties is None else gathering.gather(penalties),
        _collect_derived(devices, gathering, state),
    )
    return measured, labels


def build_result(
    gathering: Gathering, remains: list[Measured], ending: Ending, facts: dict[str, Any], requested: OptionalMetrics
) -> Result | None:
    """Build the result of a run, identical on all ranks that receive it; None on others.

    Parameters
    ----------
    gathering : Gathering
    remains : list of Measured
        One, which is removed: with millions of devices its arrays take gigabytes.
    ending : Ending
    facts : dict
        Values of the summary.
    requested : OptionalMetrics
    """
    monitor, topology, clock, ages, hops = ending
    network, world = gathering.network, gathering.world
    evaluator = cast(CostEvaluator, monitor.cost_evaluator)
    traffic = _gather_traffic(gathering, topology)
    # One array after the other, and each part is freed when all have it.
    parts = remains.pop()._asdict()
    monitor.gtv = np.zeros(0)
    gtv, mirror = gathering.gather(parts.pop("gtv"), network.placement.edge_counts), parts.pop("mirror")
    if gtv is not None:
        _mirror(topology, gtv, mirror)
    del mirror
    new_links = _describe_new_links(gathering, topology, parts.pop("links"))
    models = gathering.gather(parts.pop("centroids"))
    clients, move, census, cost_ratios, personal, groups, server_metrics = (
        parts.pop(name) for name in ("clients", "move", "census", "cost_ratios", "personal", "groups", "server_metrics")
    )
    # On ranks that do not receive the result.
    if traffic is None or census is None:
        return None
    exposure = count_exposure(traffic, topology, hops)
    traffic = traffic if ages is None else traffic._replace(age_mean=ages[0], age_max=ages[1])
    centroids = models[:clients]
    model = None if topology.hub < 0 else _drop_absent(models[topology.hub])
    records = monitor.trace if world.rank == 0 else []
    summary, silhouettes = dict[str, Any](), dict[str, Any]()
    if world.rank == 0:
        summary = dict.fromkeys(summary_keys()) | facts | _summarize_scores(cost_ratios, evaluator, census, monitor)
        summary |= (
            _summarize_records(monitor, move, _predict_rate(facts))
            | _summarize_counts(traffic, monitor, centroids, exposure)
            | clock
            | server_metrics
        )
        # With separate groups, or after local steps, the ratio to central k-means is not a measure of quality.
        is_divided = groups is not None and groups.max() > topology.components.max()
        is_common = not is_divided and monitor.trace[-1]["stage"] != LocalSteps.name
        summary |= find_milestones(monitor.trace) | (find_best(monitor.trace) if is_common else {})
        scores, silhouettes = _compute_optional(requested, centroids, monitor.best, model, census)
        summary |= scores | _score_groups(groups, requested.groups)
    evaluator.notes += [
        *_note_large_run(topology, monitor, census, centroids),
        *_note_groups_and_time(monitor, topology, groups, facts),
        *note_byzantine(monitor.excluded, topology),
        *_note_chosen(facts),
        *_note_without_tests(personal, monitor),
    ]
    problem, is_failure = _examine_devices_without_centroids(census, centroids, monitor, topology, facts)
    summary["failure"] = problem if is_failure else None
    # Before all other notes: they describe the result, which these devices lack.
    evaluator.notes[:0] = [problem] if problem else []
    evaluator.notes += _note_missing_centroids(centroids, model, monitor, facts)
    records, summary, notes, shared = _share(gathering, monitor, records, summary, evaluator.notes, silhouettes)
    frames = gathering.share(monitor.recorder.build_frames() if world.rank == 0 else None)
    result = Result(
        centroids, model, records, summary, traffic, topology, shared["losses"], gtv,
        census._replace(
            sample_silhouette=shared.get("sample_silhouette"), sample_number=shared.get("sample_number")
        ),
        HashChain(shared["heads"], shared.get("digests")), int(shared["best"]), notes, groups=groups,
        frames=Frames(**frames) if frames else None, ratios=shared["ratios"], byzantine=monitor.excluded,
        exposure=exposure, central=evaluator.baseline, personal=personal, new_links=new_links, **parts,
    )  # fmt: skip
    # Computed from the result, so identical on all ranks.
    figures, values = measure(result)
    return replace(result, summary=summary | figures, devices=values)


def _reject_nan(centroids: Floats, network: Network, facts: dict[str, Any]) -> None:
    """Reject a run that ends with centroids that are not a number: all its metrics would be wrong."""
    count = int(network.total(np.array([np.count_nonzero(np.isnan(centroids).any(axis=2))], np.int64))[0])
    if count:
        raise ContractError(
            f"{facts['algorithm']} ended with {count} centroids that are NaN; expected finite numbers, or +inf in all "
            "columns of an absent centroid. Compute with present rows only: inf - inf is NaN. p2pkm.check_method finds "
            "the function"
        )


def _share(
    gathering: Gathering,
    monitor: Monitor,
    records: list[dict[str, Any]],
    summary: dict[str, Any],
    notes: list[str],
    silhouettes: dict[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str], dict[str, Any]]:
    """Send records, summary, notes, silhouettes and the arrays of the monitor from rank 0 to all receivers."""
    shared = None
    if gathering.world.rank == 0:
        text = json.dumps([records, summary, notes], default=_plain)
        shared = {
            "text": np.frombuffer(text.encode(), np.uint8),
            "losses": monitor.losses,
            "best": np.array(monitor.best),
            "ratios": _ratios(monitor),
            **_to_arrays(monitor.hash_chain()),
            **silhouettes,
        }
    shared = gathering.share(shared)
    # Parsed on rank 0, too, so that the values have the same types on all ranks.
    return *json.loads(shared["text"].tobytes()), shared


def _plain(number: np.generic) -> Any:
    """Convert a NumPy scalar, such as a parameter from a script, to a Python number."""
    return number.item()


def _collect_derived(devices: Devices, gathering: Gathering, state: Any) -> dict[str, Any]:
    """Gather the derived results of a method for all points and devices."""
    derived = optional(state, "derived")
    if derived is None:
        return {}
    sizes = gathering.gather(devices.sizes)
    return {
        name: gathering.gather(part.values, sizes) if isinstance(part, RaggedArray) else gathering.gather(part)
        for name, part in derived._asdict().items()
    }


def note_byzantine(ids: Integers, topology: Topology) -> list[str]:
    """Write a note that lists the Byzantine devices; metrics of quality exclude them."""
    if not len(ids):
        return []
    devices = "1 device is" if len(ids) == 1 else f"{len(ids):,} devices are"
    names = _list_devices(ids, topology)
    return [f"{devices} Byzantine ({names}): scores are over the others, objective and variation over all"]


def _list_devices(ids: Integers, topology: Topology) -> str:
    """List the names of devices, the first of many."""
    names = ", ".join(topology.label(i) for i in ids[:_LISTED_DEVICES].tolist())
    unlisted = len(ids) - _LISTED_DEVICES
    return f"{names} and {unlisted:,} more" if unlisted > 0 else names


def _note_chosen(facts: dict[str, Any]) -> list[str]:
    """List a note if a coupling was chosen, or if none could be estimated."""
    choice, chosen = facts["coupling_choice"], facts["coupling_chosen"]
    if chosen is None or choice == chosen:
        return []
    if choice == "auto":
        return [f"coupling=auto chose {chosen}, by leave-one-out likelihood"]
    return [f"coupling={choice}: {chosen}; strong where neighbors do not differ in a way that can be estimated"]


def _note_without_tests(personal: PersonalScores | None, monitor: Monitor) -> list[str]:
    """List a note if devices are left out of the scores on test points."""
    if personal is None:
        return []
    sizes, costs = monitor.keep(personal.sizes), monitor.keep(personal.cost)
    without, lacking = int(np.count_nonzero(sizes == 0)), int(np.count_nonzero(np.isnan(costs) & (sizes > 0)))
    reasons = []
    if without:
        reasons.append(f"{without:,} of {count(len(sizes), 'device')} without test points")
    if lacking:
        reasons.append(f"{lacking:,} of {count(len(sizes), 'device')} without centroids")
    return [f"left out of test cost and test ARI: {' and '.join(reasons)}"] if reasons else []


def _note_groups_and_time(
    monitor: Monitor, topology: Topology, groups: Integers | None, facts: dict[str, Any]
) -> list[str]:
    """List notes on scores with several groups, and on the time of measurements."""
    notes = []
    if groups is not None and groups.max() > topology.components.max():
        notes.append(f"{groups.max() + 1} groups: ratio and scores of each device are over the points of all groups")
    last = {record["stage"]: record["round"] for record in monitor.trace}
    kept = sum(record["round"] % _SELDOM == 0 or record["round"] == last[record["stage"]] for record in monitor.trace)
    saved = monitor.seconds * (1.0 - kept / len(monitor.trace)) if monitor.trace else 0.0
    if monitor.every < _SELDOM and saved > max(_MUCH * facts["wall_seconds"], _WORTH):
        notes.append(
            f"--record-every {_SELDOM} measures only every tenth round and would save about {saved:.0f} of "
            f"{facts['wall_seconds']:.0f} s"
        )
    return notes


def _note_large_run(topology: Topology, monitor: Monitor, census: Census, centroids: Floats) -> list[str]:
    """List notes on results that large runs lack."""
    notes = monitor.recorder.notes
    stride = _stride(centroids)
    if topology.n > LARGE:
        notes.append(f"above {LARGE:,} devices, the graph is saved as arrays and the ledger without senders")
    if topology.n > LARGE and monitor.every > 1:
        notes.append(
            f"one of {monitor.every} rounds and the last one of each stage are recorded; use --record-every 1 to "
            "record all rounds"
        )
    if census.labels is None:
        notes.append("labels of more than 10 million points are not saved")
    if stride > 1:
        notes.append(f"the distance to consensus is over one of {stride} devices")
    return notes


def _predict_rate(facts: dict[str, Any]) -> float | None:
    """Return the convergence rate that theory predicts; None with a given alpha."""
    if facts["coupling"] is None or facts["relaxation"] is None:
        return None
    return expect_rate(facts["coupling"], facts["relaxation"], facts["schedule"])


def _note_missing_centroids(
    centroids: Floats, model: Floats | None, monitor: Monitor, facts: dict[str, Any]
) -> list[str]:
    """List a note on devices with fewer centroids than clusters, with reasons and remedies."""
    if facts["termination"] in STOPPED:
        return []
    centroids = monitor.keep(centroids)
    held = np.isfinite(centroids[:, :, 0]).sum(axis=1)
    k = centroids.shape[1]
    incomplete = held[(held > 0) & (held < k)]
    holders = [f"{len(incomplete):,} of {len(held):,} devices"] if len(incomplete) else []
    if model is not None and 0 < len(model) < k:
        incomplete = np.append(incomplete, len(model))
        holders.append("the server")
    if not holders:
        return []
    return [
        f"{' and '.join(holders)} ended with fewer than {k} centroids (minimum {incomplete.min()}): there are fewer "
        "distinct points, or clusters became empty. Use fewer clusters or more points per device"
    ]


def _examine_devices_without_centroids(
    census: Census, centroids: Floats, monitor: Monitor, topology: Topology, facts: dict[str, Any]
) -> tuple[str, bool]:
    """Describe the devices with points that ended without centroids, and check whether the run has failed.

    Returns
    -------
    problem : str
        The devices, the reason and what would help; empty if there are none.
    is_failure : bool
        Whether they are more than a tenth of the devices with points.
    """
    if facts["termination"] in STOPPED:
        return "", False
    has_points = census.sizes[: len(centroids)] > 0
    lacks = has_points & (centroids[:, :, 0] == np.inf).all(axis=1)
    without = monitor.keep(np.arange(len(centroids)))[monitor.keep(lacks)]
    if not len(without):
        return "", False
    total = int(np.count_nonzero(monitor.keep(has_points)))
    devices = f"{len(without):,} of {count(total, 'device')} with points ended without centroids"
    problem = f"{devices} ({_list_devices(without, topology)}), so their points have no cluster"
    # Whoever asks for no rounds of a method that computes centroids in its rounds expects none.
    is_expected = not facts["rounds"] and len(without) == total
    is_failure = len(without) > _FEW * total and not is_expected
    return f"{problem}: {_explain_missing_centroids(topology, facts)}", is_failure


def _explain_missing_centroids(topology: Topology, facts: dict[str, Any]) -> str:
    """Return the reasons why devices ended without centroids, and what would help."""
    least, lost = facts.get("min_cluster_size") or 0, facts.get("messages_lost") or 0
    reasons, remedies = list[str](), list[str]()
    if least > 1:
        reasons.append(f"clusters of fewer than {least} points were suppressed")
        remedies.append("a lower --min-cluster-size")
    if lost:
        reasons.append(f"faults lost {count(lost, 'message')}")
        remedies.append("fewer --faults")
    if share := facts.get("client_share"):
        reasons.append(f"the server asked client_share {share} of the clients in a round")
        remedies += ["a larger --client-share", "more --rounds"]
    # A server has centroids after one round.
    is_short = topology.hub < 0 or not facts["rounds"]
    if not reasons and is_short and facts["termination"] == "round-limit":
        return f"the run ended after {count(facts['rounds'], 'round')}, before any reached them. Use more --rounds"
    if facts["algorithm"] == "fkm" and not reasons:
        reasons.append("fkm keeps no cluster of a single point")
        remedies.append("--algorithm fkm:min_count=1")
    if least > 1 or not (lost or share):
        remedies += ["fewer clusters", "more points per device"]
    why = " and ".join([*reasons, "no centroid reached them"])
    return f"{why}. Use {', '.join(remedies[:-1])} or {remedies[-1]}" if remedies[1:] else f"{why}. Use {remedies[0]}"


def _summarize_records(monitor: Monitor, move: float | None, expected: float | None) -> dict[str, Any]:
    """Return the metrics of the run that are in its last records."""
    last = monitor.trace[-1]
    records = exclude_stages_after(monitor.trace)
    metrics = {name: last[name] for name in ("objective", "gtv", "messages", "bytes", "wire_bytes")}
    metrics["descent"] = records[-1]["descent"]
    # From the cumulated rounds, because a stage may run several times.
    metrics["rounds_before"] = accumulate_rounds(records)[-1][0] - records[-1]["round"]
    openings = [record for record in records if record["stage"] == records[-1]["stage"] and record["round"] == 0]
    metrics["ratio_start"] = openings[-1]["ratio_mean"] if openings else None
    metrics |= summarize_averaging(monitor.averaging) | {"tree_error": monitor.tree_error}
    if not monitor.objective_known:
        return metrics | {"descent": None}
    from topologies.measures import fitted

    fall = fitted(records).contraction
    # The objective is quadratic in the distance of the centroids to their limit, hence the root. Six digits, because
    # the bit-identity of results does not cover the fit.
    rate = None if fall is None else float(f"{math.sqrt(fall):.6g}")
    left = None if move is None else estimate_distance(move, rate, expected)
    return metrics | {"convergence_rate": rate, "distance_left": left}


def _summarize_counts(traffic: Traffic, monitor: Monitor, centroids: Floats, exposure: Exposure) -> dict[str, Any]:
    """Return the metrics that count rows and messages or compare devices."""
    scored = monitor.keep(centroids)
    best = np.searchsorted(monitor.excluded, monitor.best)
    return {
        "rows_max_per_device": int(traffic.rows_per_device.max(initial=0)),
        "centroid_sets": _count_different(monitor.keep(monitor.heads)) if (scored < np.inf).any() else 0,
        "consensus_distance": measure_consensus(scored, monitor.best - int(best)),
        "max_peers_observed": int(exposure.devices.max()),
        "messages_rejected": int(traffic.refused.sum()) if traffic.refused is not None else 0,
        "centroids_sha256": monitor.fingerprint.hex(),
        "chain_sha256": monitor.chain.hex(),
    }


def _count_different(heads: Any) -> int:
    """Count the distinct values of uint64[n], prefixes of digests."""
    # With a million devices, two different digests have equal prefixes in one of 10^7 runs.
    heads = np.sort(heads)
    return 1 + int(np.count_nonzero(heads[1:] != heads[:-1]))


def _measure_server(devices: Devices, network: Network, state: Any, evaluator: CostEvaluator) -> dict[str, Any]:
    """Return the metrics of methods with a server."""
    held = optional(state, "held")
    if held is None:
        return {}
    rows = int(network.total(np.array(np.maximum(held, 0).sum())))
    return {"rows_at_server": rows, **measure_server_costs(devices, network, state, evaluator.central)}


def _compute_optional(
    requested: OptionalMetrics, centroids: Floats, best: int, model: Floats | None, census: Census
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compute the requested optional metrics of the server's model or, without a server, of the devices' models.

    Returns
    -------
    scores : dict
        Values of the summary.
    arrays : dict
        Silhouettes of the sample: fields of `Census`.
    """
    scores, arrays = dict[str, Any](), dict[str, Any]()
    if requested.silhouette:
        scores, arrays = measure_silhouettes(centroids[best] if model is None else model, centroids[best], census)
    if requested.centers is not None:
        scores |= measure_center_distance(centroids if model is None else model[None], requested.centers)
    return scores, arrays


def _find_strengths(finished: FinishedRun, shares: Any, *, is_chosen: bool) -> LinkStrengths | None:
    """Find the strength of the links of each device; None without links, or if no device can join by the update.

    is_chosen: whether each component has chosen whether to use shares.
    """
    devices, state, topology, objective = finished.devices, finished.state, finished.topology, finished.objective
    is_by_degree = None if objective is None else objective.divides_new_links(state)
    if objective is None or is_by_degree is None or not len(topology.indices):
        return None
    # A stage after the method does not keep the strengths; without the method they follow from its state.
    alpha = optional(state, "edge_alpha")
    alpha = objective.link_alpha(devices, state) if alpha is None else alpha
    mixture = None if shares is None else np.column_stack((shares.noise, shares.prior))
    return LinkStrengths(alpha, is_by_degree, mixture, devices.unit, is_chosen)


def _describe_new_links(gathering: Gathering, topology: Topology, links: LinkStrengths | None) -> NewLinks | None:
    """Average the strength of the links of each device; None on ranks without the result."""
    if links is None:
        return None
    mixture = None if links.mixture is None else gathering.gather(links.mixture)
    by_degree, is_chosen = gathering.gather(links.by_degree), links.is_chosen
    alpha = gathering.gather(links.alpha, gathering.network.placement.edge_counts)
    if alpha is None or by_degree is None:
        return None
    # Links between groups and links that are not active have no strength.
    degrees, sums = np.empty(topology.n), np.empty(topology.n)
    for block, edges, rows in _split_edges(topology):
        degrees[block] = np.bincount(rows, alpha[edges] > 0.0, block.stop - block.start)
    for block, rows, strength in _strengths(topology, alpha, by_degree, degrees):
        sums[block] = np.bincount(rows, strength, block.stop - block.start)
    means = sums / np.maximum(degrees, 1.0)
    is_alone = degrees == 0.0
    if is_alone.any():
        # The mean over all links, which no other device needs.
        strength = np.concatenate([part for _, _, part in _strengths(topology, alpha, by_degree, degrees)])
        used = alpha > 0.0
        means[is_alone] = float(strength[used].mean()) if used.any() else 0.0
    means /= np.where(by_degree, np.sqrt(np.maximum(degrees, 1.0)), 1.0)
    noise, prior = (None, None) if mixture is None else np.ascontiguousarray(mixture.T)
    if noise is not None and is_chosen:
        noise[noise == 0.0] = np.nan
    return NewLinks(means, by_degree, links.unit, noise, prior)


def _strengths(
    topology: Topology, alpha: Floats, by_degree: Mask, degrees: Floats
) -> Iterator[tuple[slice, Integers, Floats]]:
    """Yield blocks of devices, the device of each of their edges, counted from the first, and its strength.

    In blocks, because with millions of devices each array with one number per edge takes gigabytes.
    """
    for block, edges, rows in _split_edges(topology):
        strength = alpha[edges] / topology.weights[edges]
        both = np.sqrt(degrees[block][rows] * degrees[topology.indices[edges]])
        strength *= np.where(by_degree[block][rows], both, 1.0)
        yield block, rows, strength


def _split_edges(topology: Topology) -> Iterator[tuple[slice, slice, Integers]]:
    """Yield blocks of devices, their edges, and the device of each edge, counted from the first of the block."""
    for block in blocks(topology.n, _LINKS):
        first, last = (int(topology.indptr[end]) for end in (block.start, block.stop))
        counts = topology.degrees[block]
        yield block, slice(first, last), np.arange(len(counts)).repeat(counts)


def _name_groups(gathering: Gathering, topology: Topology, state: Any) -> Integers | None:
    """Return the group of each device, int64[n], numbered by first appearance; None on ranks without the result.

    The group is that in the state or, for methods that weaken links, the component of the graph of strong links: those
    with more than half of their initial strength.
    """
    group = optional(state, "group")
    if group is not None:
        gathered = gathering.gather(group)
        if gathered is None:
            return None
        _, first, place = np.unique(gathered, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place]
    weight = optional(state, "edge_weight", default=False)
    if weight is False:
        return None
    if weight is None:
        return topology.components if gathering.is_receiver else None
    weights = gathering.gather(weight, gathering.network.placement.edge_counts)
    if weights is None:
        return None
    strong = (weights > _HALF) & (topology.sources < topology.indices)
    if strong.sum() == len(topology.indices) // 2:
        return topology.components
    links = np.column_stack((topology.sources[strong], topology.indices[strong], weights[strong]))
    return Topology.from_links(topology.n, links).components


def _score_groups(groups: Integers | None, truth: Integers | None) -> dict[str, float | int | None]:
    """Count the groups, and compute their adjusted Rand index over devices if the true groups are known."""
    if groups is None:
        return {}
    count = int(groups.max()) + 1
    if truth is None or len(truth) != len(groups):
        return {"groups": count}
    table = np.zeros((int(truth.max()) + 1, count), np.int64)
    np.add.at(table, (truth, groups), 1)
    return {"groups": count, "groups_ari": float(ari(table))}


def _drop_absent(rows: Floats) -> Floats | None:
    """Return the rows without absent ones; None if all are absent."""
    real = rows[rows[:, 0] < np.inf]
    return real if len(real) else None


def _summarize_scores(
    cost_ratios: CostRatios | None, evaluator: CostEvaluator, census: Census, monitor: Monitor
) -> dict[str, float | None]:
    """Return cost ratios over devices, and scores of all points labeled by each device's centroids, averaged."""
    scores: dict[str, float | None] = {"ratio_local_only": mean(evaluator.alone)} | score_clients(census, monitor)
    scores["cost_central"] = evaluator.central if np.isfinite(evaluator.central) else None
    if cost_ratios is not None:
        costs = cost_ratios.costs[np.isfinite(cost_ratios.costs)]
        scores |= {"cost_mean": mean(costs), "cost_worst": float(costs.max()) if len(costs) else None}
        known = cost_ratios.ratios[np.isfinite(cost_ratios.ratios)]
        scores |= {"ratio_mean": mean(known), "ratio_worst": float(known.max()) if len(known) else None}
        if cost_ratios.tables.size:
            scores |= {
                name: mean(score(cost_ratios.tables))
                for name, score in (("ari", ari), ("nmi", nmi), ("purity", purity))
            }
    return scores


def measure_consensus(centroids: Floats, reference: int) -> float | None:
    """Compute the distance of the devices' models to that of a reference device, root mean square over devices.

    Every centroid is compared with the nearest centroid of the reference, so that the order of rows does not matter;
    the squared distances of a device are added. The distance is 0 at consensus. The converse is false: repeated
    centroids, or centroids of the reference that a device lacks, add nothing, so that {0, 0, 5} and {0, 5, 5} have
    distance 0. For one-to-one matching see `p2pkm.metrics.alignment.distance_to_neighbors`.

    Parameters
    ----------
    centroids : float64[n, k, d]
        Models of the devices. Absent centroids are +inf and ignored; so are devices without centroids.
    reference : int
        Reference device.

    Returns
    -------
    float or None
        None if the reference is without centroids.
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
    """Return the distance between the numbers of compared devices; 1: all devices are compared."""
    return int(max(1, centroids.size * centroids.shape[1] // _COMPARED))


def _ratios(monitor: Monitor) -> Floats:
    """Return the cost ratio of each device, float64[n]; NaN if not known."""
    ratios = np.full(len(monitor.losses), np.nan)
    if monitor.cost_ratios is not None:
        ratios[monitor.cost_ratios.devices] = monitor.cost_ratios.ratios
    return ratios


def _to_arrays(chain: HashChain) -> dict[str, Any]:
    """Return the arrays of the hash chain, without those that were not stored."""
    return {name: part for name, part in chain._asdict().items() if part is not None}


def _mirror(topology: Topology, gtv: Floats, mirror: Any) -> None:
    """Copy the value at the lower end of every link, gtv float64[e], to its upper end, in place.

    mirror: reverse of every edge, int[e]; None: not known.
    """
    if mirror is None:
        # Not `topology.mirror`, which would keep an array with one number per edge.
        mirror = walk("mirror", topology.indptr, topology.indices)
    for block in blocks(topology.n, _LINKS):
        first = topology.indptr[block.start]
        last = topology.indptr[block.stop]
        sources = np.arange(block.start, block.stop).repeat(np.diff(topology.indptr[block.start : block.stop + 1]))
        upper = first + np.flatnonzero(sources > topology.indices[first:last])
        gtv[upper] = gtv[mirror[upper]]


def _gather_traffic(gathering: Gathering, topology: Topology) -> Traffic | None:
    """Gather the ledger of all ranks, in the order of the edges of the topology; None on ranks without the result."""
    network = gathering.network
    # What was freed before.
    trim_if_large(len(network.placement.ids))
    sent, n = network.ledger.edges, topology.n
    wide = n <= LARGE or network.total(np.array([sent.dtype != np.int32], np.int64))[0] > 0
    # The type must be equal on all ranks for the collective operation.
    sent = sent.astype(np.int64 if wide else np.int32, copy=False)
    # Most runs encode no message: then one array stands for both numbers of bytes.
    is_encoded = network.total(np.array([(sent[:, 2] != sent[:, 3]).any()], np.int64))[0] > 0
    # One quantity after the other, each of which is contiguous in the ledger: no copy of all of them.
    counts = sent.T if is_encoded else sent.T[:3]
    messages, rows, volume, *encoded = (gathering.gather(count, network.placement.edge_counts) for count in counts)
    wire = encoded[0] if is_encoded else volume
    refused = gathering.gather(network.ledger.refused)
    exchanges = network.ledger.exchanges
    # The counts are gathered; they would be held twice on rank 0.
    del sent, counts
    network.ledger.clear()
    tables = None if n > LARGE else _gather_tables(gathering, [exchange.sent_rows for exchange in exchanges])
    if not gathering.is_receiver:
        return None
    refused = refused if refused.any() else None
    if tables is None:
        sources = np.arange(n, dtype=narrow(n)).repeat(topology.degrees)
        return Traffic(
            sources, topology.indices, messages, volume, rows, None, None, None, None, topology.n, wire, refused=refused
        )
    stage, turn = (np.array([getattr(exchange, name) for exchange in exchanges]) for name in ("stage", "turn"))
    number, sender, sent_rows = tables.T
    ends = topology.sources, topology.indices
    return Traffic(
        *ends, messages, volume, rows, stage[number], turn[number], sender, sent_rows, topology.n, wire, refused=refused
    )


def _gather_tables(gathering: Gathering, sent_rows: list[tuple[Integers, Integers]]) -> Integers | None:
    """Gather (exchange, sender, rows) of every table that was sent, sorted by exchange and sender, int64[t, 3]."""
    network = gathering.network
    number = np.repeat(np.arange(len(sent_rows)), [len(senders) for senders, _ in sent_rows])
    senders, rows = (np.concatenate(part) for part in zip(*sent_rows, strict=True))
    ids = network.placement.ids
    # Rows to gather must be sorted by device.
    local = np.column_stack((number, ids[senders], rows))[np.argsort(senders, kind="stable")]
    tables = gathering.gather(local, gathering.gather(np.bincount(senders, minlength=len(ids))))
    return None if tables is None else tables[np.lexsort((tables[:, 1], tables[:, 0]))]
