"""Rows of the summary table that combine several metrics.

Each function formats one row from the summary of a run, as (value, meaning). `NO_ROW` hides the row.
"""

from collections.abc import Mapping
from typing import Any

from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count, format_number, format_value
from p2pkm.metrics.milestones import OF_CENTRAL, loses_quality, write_rounds

Summary = Mapping[str, Any]
Row = tuple[str, str]
NO_ROW: Row = ("-", "")
TERMINATIONS = {
    "converged": "converged within --tol",
    "round-limit": "not converged: --rounds reached",
    "all-rounds": "all rounds run, regardless of convergence",
    "oscillating": "oscillating: neighbors keep exchanging the same centroids; use --schedule colored",
    "silent": "no messages left to send",
    "interrupted": "interrupted; p2pkm resume continues the run",
    "terminated": "ended by SIGTERM; p2pkm resume continues the run",
}
DESCENTS = {
    "certified": "the objective never increased, as guaranteed for these options",
    "not claimed": "no descent guarantee applies to these options",
    "violated": "the objective increased, which these options exclude: please report this run",
}
_COUPLING_SOURCES = {
    "given": "as given",
    "usual": "default for this number of devices",
    "strong": "smallest value with little sampling noise on this graph",
    "auto": "chosen by leave-one-out likelihood",
    "bayes": "estimated from differences between neighbors",
    "links": "estimated from differences between neighbors, with a weight for each link",
    # Of results of earlier versions.
    "rehearsal": "calibrated on local sums",
}
# Seconds from which a time is shown in a larger unit, the largest one of which it has two.
_LONG_TIME = 1_000
_UNITS = {"days": 86_400, "h": 3_600, "min": 60}
# Within 10 % of 1, four decimals show an excess of 0.01 %; farther away, four significant digits are enough.
_NEAR_ONE = 0.1


def format_ratio(ratio: float) -> str:
    """Format a cost ratio: four decimals near 1, else four significant digits."""
    return f"{ratio:.4f}" if abs(ratio - 1) < _NEAR_ONE else format_number(ratio)


def format_size(size: float) -> str:
    """Format a number of bytes with one decimal: 480 B, 53.8 kB, 1.2 MB."""
    if size < 1_000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1_000
        if round(size, 1) < 1_000:
            return f"{size:.1f} {unit}"
    return f"{size / 1_000:,.1f} TB"


def list_warnings(summary: Summary) -> list[str]:
    """List the reasons to distrust the result: a broken bound, no convergence, or a decrease of the quality."""
    warnings = [broken] if (broken := describe_broken_bound(summary)) else []
    # A stream changes the points during the run: it does not converge, and ratios of its rounds are not comparable.
    if summary.get("stream") is not None:
        return warnings
    best = summary["ratio_best"]
    has_decreased = loses_quality(summary)
    if summary["termination"] == "round-limit":
        # A method whose quality decreased, such as one that alternates, is not improved by more rounds.
        advice = "" if has_decreased else ": increase --rounds"
        warnings.append(f"not converged in {count(summary['rounds'], 'round')}{advice}")
    if has_decreased:
        place = f"round {summary['ratio_best_round']} of {summary['ratio_best_stage']}"
        what = "quality" if summary.get("test_points") is None else "quality of one clustering for all"
        warnings.append(f"{what} decreased after {place}: cost ratio {format_ratio(best)} then")
    return warnings


def describe_broken_bound(summary: Summary) -> str:
    """Describe a bound that the run has broken; empty if it has none, or kept it."""
    if summary.get("tree_error"):
        return (
            "broken bound: sums at the root of the tree differ from those of all devices by up to "
            f"{summary['tree_error']:,}, although they are integers; tables were lost or added twice. Please report "
            "this run, or correct the method"
        )
    if (summary.get("bound_slack") or 0.0) <= 1.0:
        return ""
    return (
        f"broken bound: exchanges left {summary['bound_measured']:.6g} of the disagreement, the eigenvalues of the "
        f"averaging weights allow {summary['bound']:.6g}; the method does not do what it declares. Please report this "
        "run, or correct the method"
    )


# --- quality ---


def format_quality(summary: Summary) -> Row:
    """Format the cost ratio of the mean device, with that of the worst one."""
    ratio, worst = summary["ratio_mean"], summary["ratio_worst"]
    if ratio is None:
        return NO_ROW
    spread = "" if worst is None else f"; worst {format_ratio(worst)}"
    return format_ratio(ratio), _of_common(summary, f"mean of devices{spread} (central k-means = 1)")


def format_ari(summary: Summary) -> Row:
    """Format the adjusted Rand index of all points."""
    return format_value(summary["ari"]), _of_common(summary, "agreement with true labels (1 = perfect)")


def _of_common(summary: Summary, meaning: str) -> str:
    """Name the question that a row answers, if other rows answer another one."""
    return meaning if summary.get("test_points") is None else f"one clustering for all: {meaning}"


def format_test_cost(summary: Summary) -> Row:
    """Format the cost of test points beside a common clustering and each device alone."""
    if summary["test_cost"] is None:
        return NO_ROW
    question = "a clustering for each device"
    common, alone = summary["test_ratio_common"], summary["test_ratio_alone"]
    if common is None or alone is None:
        return format_value(summary["test_cost"]), f"{question}: mean squared distance of its test points"
    scale = "common = 1"
    for name, ratio in (("each alone", alone), ("true centers", summary["test_ratio_centers"])):
        if ratio:
            scale += f", {name} = {format_ratio(common / ratio)}"
    worst = summary["test_ratio_worst"]
    ending = "" if worst is None else f", at worst {format_ratio(worst)} times the better one"
    better = f"better than both at {100 * summary['test_better']:.0f} % of devices{ending}"
    return format_ratio(common), f"{question}: its test points ({scale}); {better}"


def format_test_ari(summary: Summary) -> Row:
    """Format the adjusted Rand index of test points at devices and over all devices."""
    of_devices, of_all = summary["test_ari"], summary["test_ari_all"]
    if of_devices is None:
        return NO_ROW
    if summary["no_correspondence"]:
        over_all = f"none over all, because the method {summary['no_correspondence']}"
    else:
        over_all = f"{format_value(of_all)} over all devices together"
    return format_value(of_devices), f"a clustering for each device: mean of devices; {over_all}"


def format_worst(summary: Summary) -> Row:
    """Format the cost ratio of the worst device."""
    worst = summary["ratio_worst"]
    return NO_ROW if worst is None else (format_ratio(worst), "largest cost ratio of a device")


def format_silhouettes(summary: Summary) -> Row:
    """Format the silhouette of the worst device, with its name."""
    worst = summary.get("silhouette_worst")
    if worst is None:
        return NO_ROW
    where = summary["silhouette_worst_device"]
    return format_value(worst), f"lowest mean over the points of a device, {where}; clusters.csv has all devices"


def format_quality_loss(summary: Summary) -> Row:
    """Format the lowest mean cost ratio if quality decreased after it."""
    ratio, best = summary["ratio_mean"], summary["ratio_best"]
    if not loses_quality(summary):
        return NO_ROW
    place = f"round {summary['ratio_best_round']} of {summary['ratio_best_stage']}"
    return format_ratio(best), f"in {place}; quality decreased afterwards: cost ratio raised {_change(best, ratio)}"


def format_start(summary: Summary) -> Row:
    """Format the mean cost ratio of the initial centroids, and its change by the method."""
    start, ratio = summary["ratio_start"], summary["ratio_mean"]
    if start is None or ratio is None:
        return NO_ROW
    verb = "raised" if ratio > start else "lowered"
    return format_ratio(start), f"before round 1; {verb} {_change(start, ratio)}"


def _change(before: float, after: float) -> str:
    """Format the relative change of a cost ratio; relative to 0, the ratio of k distinct points, it is undefined."""
    if before == 0.0 < after:
        return "from 0"
    return f"by {100 * abs(after / before - 1) if before else 0.0:.2f} %"


def format_excess(summary: Summary) -> Row:
    """Format the excess of the mean cost ratio that sampling noise predicts, and the measured one."""
    predicted, ratio = summary["excess_predicted"], summary["ratio_mean"]
    if predicted is None:
        return NO_ROW
    measured = "" if ratio is None else f"; measured {100 * (ratio - 1):.2f} %"
    return f"{100 * predicted:.2f} %", f"sampling noise at this coupling, with fixed labels{measured}"


def format_models(summary: Summary) -> Row:
    """Format the number of distinct centroid sets, of the number of devices."""
    return format_value(summary["centroid_sets"]), f"different centroid sets of {count(summary['devices'], 'device')}"


def format_centroids(summary: Summary) -> Row:
    """Format the smallest number of centroids of a device or the server, if it is less than k."""
    fewest, k = summary["centroids_held"], summary["clusters"]
    if fewest is None or fewest >= k:
        return NO_ROW
    return f"{fewest:g}", f"of {k}, at the device or server with the fewest; the others are absent"


# --- setup ---


def format_devices(summary: Summary) -> Row:
    """Format the number of devices and their names, if the data have names."""
    names = summary["device_names"]
    return (str(summary["devices"]), str(names)) if names else NO_ROW


def format_features(summary: Summary) -> Row:
    """Format the names of the features, if the data have names."""
    names = summary["feature_names"]
    return ("", str(names)) if names else NO_ROW


def format_k(summary: Summary) -> Row:
    """Format the number of clusters that the devices chose, and how many indices prefer it."""
    k, preferred = summary["k_chosen"], summary["k_preferred"]
    if k is None:
        return NO_ROW
    indices = [name for name, best in preferred.items() if best is not None]
    agreeing = sum(preferred[name] == k for name in indices)
    considered = len(summary["k_indices"]["cost"])
    verdict = {"none": "no clear clusters; ", "unclear": "unclear; "}.get(summary["k_verdict"], "")
    return str(k), f"{verdict}of 1 to {considered} considered; preferred by {agreeing} of {len(indices)} indices"


def format_coupling(summary: Summary) -> Row:
    """Format the coupling and its source."""
    source = _COUPLING_SOURCES.get(summary["coupling_choice"], "")
    if summary["coupling_choice"] == "auto":
        source += f": {summary['coupling_chosen']}"
    return format_value(summary["coupling"]), f"link strength without unit; {source}"


def format_groups(summary: Summary) -> Row:
    """Format the number of groups of devices, if there are several."""
    has_groups = (summary["groups"] or 0) > 1
    return (str(summary["groups"]), "groups of devices with separate clusterings") if has_groups else NO_ROW


# --- communication ---


def format_messages(summary: Summary) -> Row:
    """Format the number of messages and their size, as encoded if an encoding makes it differ."""
    messages, size, encoded = summary["messages"], summary["bytes"], summary["wire_bytes"]
    if not messages:
        return format_value(messages), "nothing was sent"
    plain = f"{format_size(size)} plain, 8 bytes per value"
    has_encoding = encoded is not None and encoded != size
    return format_value(messages), f"{format_size(encoded)} encoded ({plain})" if has_encoding else plain


def format_wire(summary: Summary) -> Row:
    """Format the encoded bytes, if an encoding makes them differ from 8 bytes per value."""
    encoded = summary["wire_bytes"]
    has_encoding = encoded is not None and encoded != summary["bytes"]
    return (format_value(encoded), "after encoding, rounded up to whole bytes per message") if has_encoding else NO_ROW


def format_integers(summary: Summary) -> Row:
    """Format the integer encoding; of GTVMin also its absence."""
    if summary["quantize"] is not None:
        return str(summary["quantize"]), "messages are integer differences"
    return NO_ROW if summary["coupling"] is None else ("none", "messages are real numbers of 8 bytes")


def format_compression(summary: Summary) -> Row:
    """Format the choice of the numbers that are sent, and their share."""
    sent = summary["numbers_sent"]
    if summary["compress"] is None:
        return NO_ROW
    if sent is None:
        return str(summary["compress"]), "no message was sent"
    return str(summary["compress"]), f"{100 * sent:.3g} % of the numbers of all tables were sent"


def format_time(summary: Summary) -> Row:
    """Format the simulated time and the link model; long times in minutes, hours or days."""
    seconds, where = summary["virtual_seconds"], f"on the link model {summary['link_model']}"
    if seconds is None or seconds < _LONG_TIME:
        return format_value(seconds), f"seconds {where}"
    unit, length = next((unit, length) for unit, length in _UNITS.items() if seconds >= 2 * length)
    return f"{seconds / length:.3g} {unit}", f"{seconds:,.0f} seconds {where}"


def format_lost(summary: Summary) -> Row:
    """Format the number of lost messages and their cause."""
    causes = [f"--{name} {summary[name]}" for name in ("faults", "deadline") if summary[name] is not None]
    meaning = f"sent but never received, also to unavailable devices; {' and '.join(causes)}"
    return format_value(summary["messages_lost"]), meaning


def format_rejected(summary: Summary) -> Row:
    """Format the number of rejected messages, if there are any."""
    return format_value(summary["messages_rejected"] or None), "non-finite or malformed, never used"


def format_rounds(summary: Summary) -> Row:
    """Format the rounds of the method, the reason for the end, and the rounds of the initialization."""
    reason = TERMINATIONS.get(summary["termination"], str(summary["termination"]))
    if summary.get("failure") and summary["termination"] not in STOPPED:
        reason = "ended without centroids at some devices, see the first line"
    is_private = summary["epsilon"] is not None
    if is_private and summary["termination"] == "converged":
        reason = "all sums are complete"
    elif is_private and summary.get("noise_seed") is None and summary["termination"] in STOPPED:
        reason = "interrupted; the noise was secret, so the run cannot be resumed"
    before = summary.get("rounds_before")
    return str(summary["rounds"]), f"{reason}; {before} more for initialization" if before else reason


def format_before(summary: Summary) -> Row:
    """Format the rounds before the method, if there are any."""
    return format_value(summary["rounds_before"] or None), "of all stages before the method; their messages count"


def format_own(summary: Summary) -> Row:
    """Format the rounds until the cost ratio is within 1 % of its final value."""
    return write_rounds(summary), f"until within 1 % of the final cost ratio ({_place(summary, '')})"


def format_central(summary: Summary) -> Row:
    """Format the rounds until the cost ratio is within 1 % of central k-means."""
    return write_rounds(summary, OF_CENTRAL), f"until within 1 % of central k-means ({_place(summary, OF_CENTRAL)})"


def _place(summary: Summary, goal: str) -> str:
    """Explain the number in brackets: rounds with those of the initialization."""
    total, before = summary[f"rounds_to_1pct{goal}"], summary["rounds_before"]
    is_before_method = 0 < (total or 0) <= (before or 0)
    return f"in round {total} of the initialization" if is_before_method else "with initialization"


# --- checks ---


def format_descent(summary: Summary) -> Row:
    """Format whether the objective never increased, and whether the options guarantee that."""
    return summary["descent"] or "-", DESCENTS.get(summary["descent"], "")


def format_bound(summary: Summary) -> Row:
    """Format the factor by which disagreement remained per exchange, with its bound and their ratio."""
    measured, bound, slack = (summary.get(key) for key in ("bound_measured", "bound", "bound_slack"))
    if measured is None or bound is None or slack is None:
        return NO_ROW
    return f"{measured:.4g}", f"largest factor; bound {bound:.4g} by eigenvalues, slack {slack:.4g}"


def format_tree(summary: Summary) -> Row:
    """Format whether the root has the sums of all devices."""
    error = summary.get("tree_error")
    if error is None:
        return NO_ROW
    if error:
        return f"{error:,}", "largest difference between the root and the sum over all devices; bound 0"
    return "exact", "the root has the sum over all devices"


def format_disclosed(summary: Summary) -> Row:
    """Format the number of local points that were sent unchanged; a note names their devices and what helps."""
    return format_value(summary["raw_points_disclosed"]), "local points sent unchanged"


def format_privacy(summary: Summary) -> Row:
    """Format the privacy guarantee for each point, and the adversary that it holds against."""
    if summary["epsilon"] is None:
        return NO_ROW
    if summary.get("noise_seed") is not None:
        return "none", "no guarantee: the noise has a known seed"
    adversary = describe_adversary(summary["trust"], summary["curious"])
    unit = describe_unit(summary["relation"])
    # Not by disclosed points: above 250,000 points they are not counted, and zeros count as a point at the origin.
    excepted = ", except for the points of the server" if summary.get("server_points") else ""
    meaning = f"at delta {summary['delta']:g} for {unit}{excepted}, against {adversary}"
    return f"eps {summary['epsilon']:.3g}", meaning


def describe_unit(relation: str) -> str:
    """Describe the unit that a guarantee protects."""
    return {
        "add": "each point",
        "replace": "the replacement of each point",
        "device": "all points of each device together",
    }[relation]


def describe_adversary(trust: str, curious: int) -> str:
    """Describe the adversary that a guarantee holds against."""
    return {
        "masks": f"any {count(curious, 'curious device')}",
        "none": "all other devices together",
        "server": "recipients of the centroids; devices that add up sums are trusted",
    }[trust]


def describe_publication(relation: str) -> Row:
    """Describe what may be published without voiding the guarantee, and what may not."""
    withheld = "cost ratio, ARI, labels, figures or run folder"
    if relation == "replace":
        return "centroids, number of points", f"not {withheld}"
    return "centroids", f"not the number of points, {withheld}"


def format_published(summary: Summary) -> Row:
    """Format what may be published, and the command for several runs; nothing without a guarantee."""
    if summary["relation"] is None or summary.get("noise_seed") is not None:
        return NO_ROW
    published, withheld = describe_publication(summary["relation"])
    if summary.get("server_points"):
        return published, f"{withheld}; the points of the server are not protected"
    return published, f"{withheld}; p2pkm privacy budget RUN... adds up several runs"


def format_alone(summary: Summary) -> Row:
    """Format the epsilon that remains if all other devices collude, unless the guarantee covers this case."""
    epsilon = summary["epsilon_alone"]
    is_weaker = epsilon is not None and summary["trust"] == "masks" and summary.get("noise_seed") is None
    return (f"eps {epsilon:.3g}", "against all other devices together") if is_weaker else NO_ROW


def format_count_noise(summary: Summary) -> Row:
    """Format the standard deviation of the noise on a count."""
    noise = summary["noise_count"]
    counted = "cluster" if summary["steps"] else "cell, from which the clusters are made"
    return NO_ROW if noise is None else (f"{noise:.0f} points", f"standard deviation on the count of a {counted}")


def format_suppression(summary: Summary) -> Row:
    """Format the minimum cluster size, if it suppresses anything: every cluster has a point."""
    least = summary["min_cluster_size"] or 0
    return (str(least), "points; smaller clusters are suppressed in all messages") if least > 1 else NO_ROW
