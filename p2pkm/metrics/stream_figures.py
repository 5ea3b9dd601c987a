"""What following points that change is worth: excess over central k-means on the points of every round, and bytes."""

from typing import Any

import numpy as np

from p2pkm.metrics.result import Result


def list_rounds(result: Result) -> list[dict[str, Any]]:
    """Return the records of the method's stage, its opening first; none where the points stay as they are."""
    own = [record for record in result.rounds if record["stage"] == result.summary["algorithm"]]
    return own if result.summary["stream"] is not None else []


def mean_excess(result: Result) -> float | None:
    """Return the mean over the recorded rounds of the mean cost ratio, minus 1."""
    known = _excesses(result)
    return float(np.cumsum(known)[-1] / len(known)) if known else None


def worst_excess(result: Result) -> float | None:
    """Return the largest mean cost ratio of all recorded rounds, minus 1."""
    return max(_excesses(result), default=None)


def bytes_per_round(result: Result) -> float | None:
    """Return the bytes on the wire of a round of the method."""
    own = list_rounds(result)
    if not own or not own[-1]["round"]:
        return None
    return float((own[-1]["wire_bytes"] - own[0]["wire_bytes"]) / own[-1]["round"])


def _excesses(result: Result) -> list[float]:
    known = (record["ratio_mean"] for record in list_rounds(result) if record["round"])
    return [ratio - 1.0 for ratio in known if ratio is not None]
