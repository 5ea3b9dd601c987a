"""How a run went, in one paragraph of plain words."""

from typing import Any

import numpy as np

from p2pkm.core.units import count, format_bytes
from p2pkm.metrics.closing_rows import DESCENTS, TERMINATIONS
from p2pkm.metrics.milestones import is_worse
from p2pkm.metrics.result import Result
from p2pkm.storage.study_table import ALONE
from p2pkm.viz.figures.bytes_per_device import sum_bytes

_EVEN = 1.01  # times the mean load
_AS_GOOD = 5e-4  # of the cost of central k-means; nearer is "as good"


def narrate(result: Result) -> str:
    """Return the verdict: quality, disagreement, how it ended, what it cost, the busiest device, and what struck."""
    sentences = [
        _introduce(result),
        _rate(result.summary),
        _reach(result.summary),
        _agree(result),
        _end(result.summary),
        _pay(result),
        *_fault_sentence(result),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def name_place(result: Result) -> str:
    """Return where the run took place: on ring, with a server; without messages if every device was alone."""
    if result.summary["algorithm"] == ALONE:
        return "without messages"
    if result.topology.hub >= 0:
        return "with a server"
    named = result.summary["graph"]  # None of a run from Python, which was given a graph without a name
    return f"on a graph of {count(len(result.topology.indices) // 2, 'link')}" if named is None else (
        f"on {named.split(':')[0]}"
    )  # fmt: skip


def _introduce(result: Result) -> str:
    summary = result.summary
    devices, clusters = count(summary["devices"], "device"), count(summary["clusters"], "cluster")
    return f"{devices} {name_place(result)} looked for {clusters} with {summary['algorithm']}."


def tell_ratio(ratio: float) -> str:
    """Return a ratio to central k-means in words: as much as, 1.3 % more than, 5.2 times as much as."""
    excess = ratio - 1
    if abs(excess) < _AS_GOOD:
        return "as much as"
    if ratio >= 2:
        return f"{ratio:.3g} times as much as"
    return f"{abs(100 * excess):.2g} % {'more' if excess > 0 else 'less'} than"


def _rate(summary: dict[str, Any]) -> str:
    mean, worst, alone = (summary[name] for name in ("ratio_mean", "ratio_worst", "ratio_local_only"))
    if summary["centroid_sets"] == 0:
        return "No device holds a centroid, so there is no quality to report; the notes suggest what to change."
    if mean is None:
        return "The run was not compared with central k-means."
    words = f"On all points their centroids cost {tell_ratio(mean)} central k-means"
    apart = worst is not None and worst - mean > _AS_GOOD and tell_ratio(worst) != tell_ratio(mean)
    if apart and summary["devices"] > 1:
        words += f", with the worst device {tell_ratio(worst)} it"
    if alone is not None and summary["devices"] > 1:
        words += f"; the local-only baseline, without any communication, costs {tell_ratio(alone)} it"
    return words + "."


def _reach(summary: dict[str, Any]) -> str:
    """State when the run came within 1 % of central k-means, and whether quality got worse before the end."""
    names = ("ratio_mean", "ratio_best", "rounds_to_1pct_of_central", "method_rounds_to_1pct_of_central")
    mean, best, every, method = (summary.get(name) for name in names)
    if mean is None or best is None:
        return ""
    words = "They did not come within 1 % of central k-means and stay there."
    if method is not None:
        words = f"They came within 1 % of central k-means in {count(method, 'round')} ({every:,} with initialization)."
    if is_worse(mean, best):
        words += (
            f" Quality got worse before the end: the ratio was {best:.4f} in round {summary['ratio_best_round']:,} of "
            f"{summary['ratio_best_stage']} and is {mean:.4f} now."
        )
    return words


def _agree(result: Result) -> str:
    summary = result.summary
    sets, gtv = summary["centroid_sets"], summary["gtv"]
    if sets == 0:
        return ""
    if sets == 1:
        return "All devices hold the same centroids." if summary["devices"] > 1 else ""
    words = f"The devices hold {sets:,} distinct sets of centroids"
    links = len(result.topology.indices) // 2
    if gtv is not None and links:
        words += f", and neighbors differ by {gtv / links:.3g} (squared distance, mean over the {links:,} links)"
    return words + "."


def _end(summary: dict[str, Any]) -> str:
    rounds = count(summary["rounds"], "round")
    words = f"The method ended after {rounds}, {TERMINATIONS.get(summary['termination'], summary['termination'])}"
    descent = DESCENTS.get(summary["descent"])
    return f"{words}; {descent}." if descent else f"{words}."


def _pay(result: Result) -> str:
    total, messages = int(result.summary["bytes"]), int(result.summary["messages"])
    if not messages:
        return "Nothing was sent."
    if not total:
        return f"It took {count(messages, 'empty message')}."
    load = np.sum(sum_bytes(result), axis=0)
    top, mean = int(load.argmax()), float(load.max() / load.mean())
    each = format_bytes(total / result.topology.clients)
    cost = f"It took {count(messages, 'message')} and {format_bytes(float(total))}, {each} per device"
    if mean < _EVEN:
        return f"{cost}, the same for all."
    who = "the server" if top == result.topology.hub else f"device {result.topology.label(top)}"
    share = 100 * load[top] / load.sum()
    return f"{cost}; the hot spot is {who} with {share:.2g} % of what was sent and received, {mean:.2g} times the mean."


def _fault_sentence(result: Result) -> list[str]:
    """Name faults, Byzantine devices and what was suppressed."""
    summary, words = result.summary, []
    names = ("messages_lost", "unavailable_fraction", "messages_rejected", "min_cluster_size")
    lost, away, refused, least = (summary.get(name) or 0 for name in names)
    if summary.get("faults"):
        part = f" and {100 * away:.2g} % of the devices were unavailable, on average" if away else ""
        words.append(f"Under faults ({summary['faults']}) {lost:,} of the messages were lost{part}.")
    if result.byzantine is not None and len(result.byzantine):
        who = count(len(result.byzantine), "device")
        words.append(f"{who} sent Byzantine messages ({summary['byzantine']}): the costs are those of the others.")
    if refused:
        words.append(f"{count(int(refused), 'message')} {'was' if refused == 1 else 'were'} rejected as malformed.")
    if least > 1:
        words.append(f"Clusters of fewer than {least:,} points were suppressed in all messages.")
    return words
