"""Rounds of a run as text, in the form that KMeans prints."""

from typing import Any

from p2pkm.core.protocols import Objective
from p2pkm.metrics.result import Result


def list_rounds(result: Result, method: Any) -> str:
    """List the recorded rounds of a method; "inertia and penalty" is an objective with a penalty."""
    cost_name = "inertia" if type(method.objective) is Objective else "inertia and penalty"
    lines = ["Initialization complete"]
    for record in result.rounds:
        if record["stage"] == method.name:
            cost = "" if record["objective"] is None else f"{cost_name} {record['objective']:.8g}, "
            lines.append(f"Iteration {record['round']}, {cost}{record['wire_bytes']:,} encoded bytes sent.")
    end, rounds = result.summary["termination"], result.summary["rounds"]
    tol = method.tol
    reason = f"center shift or decrease of cost within tolerance {tol:g}" if tol > 0.0 else "strict convergence"
    lines.append(f"Converged at iteration {rounds}: {reason}." if end == "converged" else f"Ended at {rounds}: {end}.")
    return "\n".join(lines)
