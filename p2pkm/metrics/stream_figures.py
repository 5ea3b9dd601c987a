"""Metrics of runs with a data stream: excess over central k-means on the points of each round, and bytes."""

from typing import Any

import numpy as np

from p2pkm.metrics.result import Result


def list_rounds(result: Result) -> list[dict[str, Any]]:
    """List the records of the method, beginning with the initial exchange; empty without a stream."""
    records = [record for record in result.rounds if record["stage"] == result.summary["algorithm"]]
    return records if result.summary["stream"] is not None else []


def mean_excess(result: Result) -> float | None:
    """Compute the mean cost ratio over the recorded rounds, minus 1."""
    known = _excesses(result)
    return float(np.cumsum(known)[-1] / len(known)) if known else None


def worst_excess(result: Result) -> float | None:
    """Compute the largest mean cost ratio of all recorded rounds, minus 1."""
    return max(_excesses(result), default=None)


def bytes_per_round(result: Result) -> float | None:
    """Compute the encoded bytes per round of the method."""
    records = list_rounds(result)
    if not records or not records[-1]["round"]:
        return None
    return float((records[-1]["wire_bytes"] - records[0]["wire_bytes"]) / records[-1]["round"])


def _excesses(result: Result) -> list[float]:
    known = (record["ratio_mean"] for record in list_rounds(result) if record["round"])
    return [ratio - 1.0 for ratio in known if ratio is not None]
