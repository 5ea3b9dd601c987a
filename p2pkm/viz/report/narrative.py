"""Summary of a run in one paragraph of prose."""

from typing import Any

import numpy as np

from p2pkm.core.units import count, format_bytes
from p2pkm.methods.registry import ALONE
from p2pkm.metrics.closing_rows import DESCENTS, TERMINATIONS
from p2pkm.metrics.milestones import loses_quality
from p2pkm.metrics.result import Result
from p2pkm.viz.figures.bytes_per_device import sum_bytes
from p2pkm.viz.names import name_graph

_EVEN = 1.01  # largest over mean load below which all devices have "the same" load
_AS_GOOD = 5e-4  # relative difference to the cost of central k-means below which a cost is "as much"


def narrate(result: Result) -> str:
    """Describe quality, agreement, termination, communication, the busiest device, and faults of a run."""
    sentences = [
        _introduce(result),
        _describe_quality(result.summary),
        _describe_milestones(result.summary),
        _describe_agreement(result),
        _describe_end(result.summary),
        _describe_traffic(result),
        *_describe_faults(result),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def describe_network(result: Result) -> str:
    """Describe the network of a run: on ring, with a server, or without messages for the local-only baseline."""
    if result.summary["algorithm"] == ALONE:
        return "without messages"
    if result.topology.hub >= 0:
        return "with a server"
    # Runs from Python may use a graph without a name.
    name = result.summary["graph"]
    if name is None:
        return f"on a graph of {count(len(result.topology.indices) // 2, 'link')}"
    return f"on {name_graph(name)}"


def _introduce(result: Result) -> str:
    summary = result.summary
    devices = count(summary["devices"], "device")
    clusters = count(summary["clusters"], "cluster")
    return f"{devices} {describe_network(result)} computed {clusters} with {summary['algorithm']}."


def describe_ratio(ratio: float) -> str:
    """Describe a cost ratio in words: as much as, 1.3 % more than, 5.2 times as much as."""
    excess = ratio - 1
    if abs(excess) < _AS_GOOD:
        return "as much as"
    if ratio >= 2:
        return f"{ratio:.3g} times as much as"
    return f"{abs(100 * excess):.2g} % {'more' if excess > 0 else 'less'} than"


def _describe_quality(summary: dict[str, Any]) -> str:
    mean, worst, local_only = (summary[name] for name in ("ratio_mean", "ratio_worst", "ratio_local_only"))
    if summary["centroid_sets"] == 0:
        return "No device holds a centroid, so the quality is undefined; the notes suggest what to change."
    if mean is None:
        return "The run was not compared with central k-means."
    words = f"On the pooled points, their centroids cost {describe_ratio(mean)} central k-means"
    differs = worst is not None and worst - mean > _AS_GOOD and describe_ratio(worst) != describe_ratio(mean)
    if differs and summary["devices"] > 1:
        words += f", and those of the worst device {describe_ratio(worst)} it"
    words += "."
    test_ratio = summary.get("test_ratio_common")
    if test_ratio is not None:
        words += (
            f" On test points of each device, the centroids of the device cost {describe_ratio(test_ratio)} those of a "
            "common clustering."
        )
    if local_only is not None and summary["devices"] > 1:
        words += f" The local-only baseline, without communication, costs {describe_ratio(local_only)} central k-means."
    return words


def _describe_milestones(summary: dict[str, Any]) -> str:
    """Describe when the run came within 1 % of central k-means, and whether quality got worse before the end."""
    names = ("ratio_mean", "ratio_best", "rounds_to_1pct_of_central", "method_rounds_to_1pct_of_central")
    mean, best, rounds, method_rounds = (summary.get(name) for name in names)
    if mean is None or best is None:
        return ""
    words = "They did not come within 1 % of central k-means and stay there."
    if method_rounds is not None:
        spent = f"{count(method_rounds, 'round')} ({rounds:,} with initialization)"
        words = f"They came within 1 % of central k-means in {spent}."
    if loses_quality(summary):
        words += (
            f" Quality got worse before the end: the cost ratio was {best:.4f} in round "
            f"{summary['ratio_best_round']:,} of {summary['ratio_best_stage']} and is {mean:.4f} at the end."
        )
    return words


def _describe_agreement(result: Result) -> str:
    summary = result.summary
    sets = summary["centroid_sets"]
    gtv = summary["gtv"]
    if sets == 0:
        return ""
    if sets == 1:
        return "All devices hold the same centroids." if summary["devices"] > 1 else ""
    words = f"The devices hold {sets:,} distinct models"
    links = len(result.topology.indices) // 2
    if gtv is not None and links:
        words += f"; the mean total variation per link is {gtv / links:.3g} (squared distance, {links:,} links)"
    return words + "."


def _describe_end(summary: dict[str, Any]) -> str:
    rounds = count(summary["rounds"], "round")
    words = f"The method ended after {rounds}, {TERMINATIONS.get(summary['termination'], summary['termination'])}"
    descent = DESCENTS.get(summary["descent"])
    return f"{words}; {descent}." if descent else f"{words}."


def _describe_traffic(result: Result) -> str:
    total = int(result.summary["bytes"])
    messages = int(result.summary["messages"])
    if not messages:
        return "Nothing was sent."
    if not total:
        return f"It took {count(messages, 'empty message')}."
    load = np.sum(sum_bytes(result), axis=0)
    top = int(load.argmax())
    mean = float(load.max() / load.mean())
    per_device = format_bytes(total / result.topology.clients)
    cost = (
        f"It took {count(messages, 'message')} and {format_bytes(float(total))} of plain bytes, {per_device} per device"
    )
    if mean < _EVEN:
        return f"{cost}, the same for all."
    busiest = "the server" if top == result.topology.hub else f"device {result.topology.label(top)}"
    share = 100 * load[top] / load.sum()
    return f"{cost}; {busiest} is the busiest with {share:.2g} % of all traffic, {mean:.2g} times the mean."


def _describe_faults(result: Result) -> list[str]:
    """Describe faults, Byzantine devices, rejected messages and suppression, one sentence each."""
    summary = result.summary
    words = []
    names = ("messages_lost", "unavailable_fraction", "messages_rejected", "min_cluster_size")
    lost, unavailable, rejected, least = (summary.get(name) or 0 for name in names)
    if summary.get("faults"):
        part = f" and {100 * unavailable:.2g} % of the devices were unavailable, on average" if unavailable else ""
        words.append(f"Under faults ({summary['faults']}) {lost:,} of the messages were lost{part}.")
    if result.byzantine is not None and len(result.byzantine):
        devices = count(len(result.byzantine), "device")
        kind = summary["byzantine"]
        words.append(f"{devices} sent Byzantine messages ({kind}); costs are those of the honest devices.")
    if rejected:
        words.append(f"{count(int(rejected), 'message')} {'was' if rejected == 1 else 'were'} rejected as malformed.")
    if least > 1:
        words.append(f"Clusters of fewer than {least:,} points were suppressed in all messages.")
    return words
