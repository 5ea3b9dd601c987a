"""Rows of the closing table that show more than one figure: (figure, what it means), a dash where there is no row."""

from collections.abc import Mapping
from typing import Any

from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count, write_figure, write_number
from p2pkm.metrics.milestones import OF_CENTRAL, is_worse, write_rounds

Summary = Mapping[str, Any]
Row = tuple[str, str]
NO_ROW: Row = ("-", "")
TERMINATIONS = {
    "converged": "converged, within --tol",
    "round-limit": "not converged: stopped at the limit of --rounds",
    "all-rounds": "all rounds played, whatever converged on the way",
    "oscillating": "oscillating: neighboring devices keep exchanging the same centroids; use --schedule colored",
    "silent": "no messages left to send",
    "interrupted": "interrupted; p2pkm resume goes on",
    "terminated": "ended by SIGTERM; p2pkm resume goes on",
}
DESCENTS = {
    "certified": "monotone descent is guaranteed for this configuration, and was observed",
    "not claimed": "no descent guarantee applies to these options",
    "violated": "the objective rose although it must not: please report this run",
}


def tell_worse(summary: Summary) -> Row:
    """Return the lowest mean ratio if quality got worse after it."""
    ratio, best = summary["ratio_mean"], summary["ratio_best"]
    if not is_worse(ratio, best):
        return NO_ROW
    since = f"round {summary['ratio_best_round']} of {summary['ratio_best_stage']}"
    return write_figure(best), f"in {since}; quality got worse since, {_change(best, ratio)}"


def tell_start(summary: Summary) -> Row:
    """Return the mean ratio of the start, and whether the method improved on it."""
    start, ratio = summary["ratio_start"], summary["ratio_mean"]
    if start is None or ratio is None:
        return NO_ROW
    word = "raised" if ratio > start else "lowered"
    return write_figure(start), f"before the first round; the method {word} it {_change(start, ratio)}"


def _change(before: float, after: float) -> str:
    """Return by what share a ratio has changed; 0, the ratio of points that are their own centroids, has no share."""
    if before == 0.0 < after:
        return "from 0"
    return f"by {write_number(100 * abs(after / before - 1) if before else 0.0)} %"


_CHOICES = {
    "given": "as given",
    "usual": "the usual one for so many devices",
    "auto": "the least one that leaves little noise on this graph",
    "rehearsal": "found by a rehearsal on the sums of all devices",
}


def tell_coupling(summary: Summary) -> Row:
    """Return the coupling, and how it was found."""
    return write_figure(summary["coupling"]), f"strength of the links; {_CHOICES.get(summary['coupling_choice'], '')}"


def tell_excess(summary: Summary) -> Row:
    """Return the excess of the mean ratio from noise alone, with labels fixed, and the measured one."""
    ratio = summary["ratio_mean"]
    measured = "" if ratio is None else f"; measured: {write_figure(ratio - 1)}"
    meaning = f"over 1, of the mean device, from noise alone, labels fixed{measured}"
    return write_figure(summary["excess_predicted"]), meaning


def tell_devices(summary: Summary) -> Row:
    """Return the number of devices that have names."""
    names = summary["device_names"]
    return (str(summary["devices"]), str(names)) if names else NO_ROW


def tell_features(summary: Summary) -> Row:
    """Return the names of the features."""
    names = summary["feature_names"]
    return ("", str(names)) if names else NO_ROW


def tell_k(summary: Summary) -> Row:
    """Return the number of clusters if the devices chose it, and how many indices prefer the same."""
    k, best = summary["k_chosen"], summary["k_preferred"]
    if k is None:
        return NO_ROW
    known = [name for name, one in best.items() if one is not None]
    same = sum(best[name] == k for name in known)
    costs = summary["k_indices"]["cost"]
    words = {"none": "no clear clusters; ", "unclear": "unclear; "}.get(summary["k_verdict"], "")
    return str(k), f"{words}of 1 to {len(costs)} considered; preferred by {same} of {len(known)} indices"


def tell_models(summary: Summary) -> Row:
    """Return of how many devices the centroid sets are."""
    return write_figure(summary["centroid_sets"]), f"of {count(summary['devices'], 'device')}"


def tell_centroids(summary: Summary) -> Row:
    """Return the fewest centroids of a device or the server, if these are fewer than were asked for."""
    held, k = summary["centroids_held"], summary["clusters"]
    few = held is not None and held < k
    return (f"{held:g}", f"of {k}, at the device or server with the fewest; the others are absent") if few else NO_ROW


def tell_groups(summary: Summary) -> Row:
    """Return the number of groups if there are several."""
    several = (summary["groups"] or 0) > 1
    return (str(summary["groups"]), "of devices, each with a clustering of its own") if several else NO_ROW


def tell_wire(summary: Summary) -> Row:
    """Return the bytes on the wire if they are others than 8 per number."""
    wire = summary["wire_bytes"]
    shown = wire is not None and wire != summary["bytes"]
    return (write_figure(wire), "as encoded, whole bytes a message") if shown else NO_ROW


def tell_integers(summary: Summary) -> Row:
    """Return how tables travel, of methods whose links have a coupling also if they travel as real numbers."""
    if summary["quantize"] is not None:
        return str(summary["quantize"]), "tables travel as differences in whole steps"
    return NO_ROW if summary["coupling"] is None else ("none", "tables travel as real numbers")


def tell_time(summary: Summary) -> Row:
    """Return the virtual time and the network that it is of."""
    return write_figure(summary["virtual_seconds"]), f"seconds on the network model {summary['link_model']}"


def tell_lost(summary: Summary) -> Row:
    """Return the number of lost messages and the faults."""
    return write_figure(summary["messages_lost"]), f"in transit; faults: {summary['faults']}"


def tell_rejected(summary: Summary) -> Row:
    """Return the number of rejected messages if there are any."""
    return write_figure(summary["messages_rejected"] or None), "non-finite or malformed, never used"


def tell_rounds(summary: Summary) -> Row:
    """Return the rounds of the method and why there are no more."""
    if summary["epsilon"] is not None and summary["termination"] == "converged":
        return str(summary["rounds"]), "all sums have been taken; how many does not depend on the points"
    if summary["epsilon"] is not None and summary.get("noise_seed") is None and summary["termination"] in STOPPED:
        return str(summary["rounds"]), "interrupted; its noise was secret, so it cannot be resumed"
    return str(summary["rounds"]), TERMINATIONS.get(summary["termination"], str(summary["termination"]))


def tell_before(summary: Summary) -> Row:
    """Return the rounds before the method if there are any."""
    return write_figure(summary["rounds_before"] or None), "of all stages before the method; their messages count"


def tell_own(summary: Summary) -> Row:
    """Return the rounds to 1 % of the run's own final ratio."""
    return write_rounds(summary), f"until the ratio is within 1 % of its end ({_place(summary, '')})"


def tell_central(summary: Summary) -> Row:
    """Return the rounds to 1 % of central k-means."""
    return write_rounds(summary, OF_CENTRAL), f"until within 1 % of central k-means ({_place(summary, OF_CENTRAL)})"


def _place(summary: Summary, goal: str) -> str:
    """Return what the rounds in brackets are."""
    total, before = summary[f"rounds_to_1pct{goal}"], summary["rounds_before"]
    return f"in round {total} of the initialization" if 0 < (total or 0) <= (before or 0) else "with initialization"


def tell_privacy(summary: Summary) -> Row:
    """Return what is guaranteed for each point, and against whom."""
    if summary["epsilon"] is None:
        return NO_ROW
    if summary.get("noise_seed") is not None:
        return "none", "no guarantee: seeded noise"
    against = {
        "masks": f"any {count(summary['curious'], 'curious device')}",
        "none": "all other devices together",
        "server": "whoever sees the centroids; devices that add up sums are trusted",
    }[summary["trust"]]
    point = "each point" if summary["relation"] == "add" else "the exchange of each point"
    return f"eps {summary['epsilon']:.3g}", f"at delta {summary['delta']:g} for {point}, against {against}"


def tell_alone(summary: Summary) -> Row:
    """Return what is left against all other devices together, if they hold together less than that."""
    alone = summary["epsilon_alone"]
    shown = alone is not None and summary["trust"] == "masks" and summary.get("noise_seed") is None
    return (f"eps {alone:.3g}", "against all other devices together") if shown else NO_ROW


def tell_count_noise(summary: Summary) -> Row:
    """Return the noise of a count."""
    noise = summary["noise_count"]
    what = "cluster" if summary["steps"] else "cell, of which clusters are made"
    return NO_ROW if noise is None else (f"{noise:.0f} points", f"on the count of a {what}")


def tell_suppression(summary: Summary) -> Row:
    """Return the least size of a cluster if it suppresses anything: every cluster has a point."""
    least = summary["min_cluster_size"] or 0
    return (str(least), "points; smaller clusters are suppressed in all messages") if least > 1 else NO_ROW


def tell_descent(summary: Summary) -> Row:
    """Return whether the objective only fell, and whether it had to."""
    return summary["descent"] or "-", DESCENTS.get(summary["descent"], "")
