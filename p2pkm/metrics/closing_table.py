"""The rows of the closing table of a run: figure and meaning, in words that a newcomer understands."""

from typing import Any

from p2pkm.core.units import NOT_KEPT, write_number
from p2pkm.core.units import write_figure as _number
from p2pkm.metrics.milestones import OF_CENTRAL, is_worse, write_rounds


def explain(summary: dict[str, Any], notes: list[str]) -> list[tuple[str, str, str]]:
    """Return rows (what, figure, what it means)."""
    rows = [
        ("quality, mean device", _number(summary["ratio_mean"]), "cost on all points / central k-means; 1 is as good"),
        ("quality got worse", *_tell_worse(summary)),
        ("quality, worst device", _number(summary["ratio_worst"]), "the same for the device that fared worst"),
        ("each device alone", _number(summary["ratio_alone"]), "what the devices would reach without talking"),
        ("agreement with labels", _number(summary["ari"]), "adjusted Rand index, mean over devices; 1 is perfect"),
        ("the same, own points", _number(summary["ari_clients"]), "size-weighted mean of each client's own index"),
        ("silhouette", _number(summary["silhouette"]), "of all points, or of a sample of 5,000"),
        ("simplified silhouette", _number(summary["simplified_silhouette"]), "from distances to centroids alone"),
        ("distance to centers", _number(summary["l2_centers"]), "Frobenius norm after matching"),
        ("disagreement", _number(summary["gtv"]), "total variation between neighbours' centroids; 0 is consensus"),
        ("devices", str(summary["devices"]) if summary["device_names"] else "-", summary["device_names"] or ""),
        ("different results", _number(summary["centroid_sets"]), f"distinct centroid sets of {summary['devices']}"),
        ("groups", _number(summary["groups"]), "of devices, tied by links that kept more than half of their strength"),
        ("agreement of groups", _number(summary["groups_ari"]), "adjusted Rand index over devices; 1 is perfect"),
        ("messages", f"{summary['messages']:,}", "over links of the graph, seeding included"),
        ("bytes", f"{summary['bytes']:,}", "8 per number that was sent"),
        ("virtual seconds", _number(summary["virtual_seconds"]), f"that it would take in life: {summary['net']}"),
        ("lost messages", _number(summary["lost"]), f"that were sent and not heard: {summary['faults']}"),
        ("devices away", _number(summary["away"]), "share of all, on average over the rounds"),
        ("rounds", str(summary["rounds"]), STOPS.get(summary["stop"], summary["stop"])),
        ("rounds before", _number(summary["rounds_before"] or None), "scaling and initialization; their bytes count"),
        ("to own 1 %", write_rounds(summary), "rounds until the ratio is within 1 % of its end (with initialization)"),
        ("to central 1 %", write_rounds(summary, OF_CENTRAL), "the same within 1 % of central k-means"),
        ("contraction", _number(summary["contraction"]), "factor per round of the way left, fitted to the objective"),
        ("distance left", _number(summary["distance_left"]), "in units of tol: about last move / (1 - contraction)"),
        ("smallest row", _number(_several(summary["min_count"])), "points; nothing of rows of fewer was said"),
        ("points in the open", _number(summary["raw_points"]), "that left their device as they are"),
        ("seen by one device", _number(summary["exposure_max"]), "other devices at most whose rows may have come"),
        ("refused tables", _number(summary["quarantined"] or None), "not numbers or out of all bounds: never used"),
        ("rows at the server", _number(summary["rows_at_server"]), "that it last aggregated"),
        ("descent", summary["descent"] or "-", DESCENTS.get(summary["descent"], "")),
    ]  # fmt: skip
    kept = [row for row in rows if row[1] != "-" and row[:2] != ("groups", "1")]
    kept += [("note", "", note) for note in notes]
    return [*kept, ("run folder", "", summary["out"] or NOT_KEPT)]


STOPS = {
    "converged": "converged: every move of the last round was within --tol",
    "round-limit": "not converged: stopped at the limit of --rounds",
    "stalled": "stalled: devices swap the same centroids for ever; use --schedule colored",
    "silent": "nobody had anything more to say",
    "interrupted": "interrupted; p2pkm resume goes on",
    "terminated": "ended by SIGTERM; p2pkm resume goes on",
}
DESCENTS = {
    "certified": "the objective provably never rises, and never rose",
    "not claimed": "with these options nothing is promised about the objective",
    "violated": "the objective rose although it must not: please report this run",
}


def _tell_worse(summary: dict[str, Any]) -> tuple[str, str]:
    """Return by how much the mean ratio got worse before the end, and since when; a dash if it did not."""
    ratio, best = summary["ratio_mean"], summary.get("ratio_best")
    if not is_worse(ratio, best):
        return "-", ""
    since = f"round {summary['ratio_best_round']} of {summary['ratio_best_stage']}"
    return (
        f"+{write_number(100 * (ratio - best))} %",
        f"since {since}, where the ratio was {best:.4f}; now {ratio:.4f}",
    )


def _several(count: int | None) -> int | None:
    """Return a least number that has a meaning, else None: every row has a point."""
    return count if count is not None and count > 1 else None
