"""Rows of a benchmark that no run made: methods with refusals, failures and entries that return their start."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

# Trust and mean decimal logarithm of the excess and of the bytes over those of the points.
METHODS = {
    "treelloyd": ("no server", -3.6, -0.9), "gtvmin": ("no server", -2.6, -0.2), "consensus": ("no server", -2.9, 0.7),
    "gossip-sum": ("no server", -2.4, 0.9), "coreset": ("no server", -1.9, 1.0), "fkm": ("server", -2.0, -0.8),
    "kfed": ("server", -1.0, -1.5), "sharded": ("raw points leave", -3.2, 0.0), "private": ("private", -0.8, -1.1),
}  # fmt: skip
DATA = ("grid16", "blobs", "digits", "wine", "breast-cancer", "outliers")


def row(task: str, entry: str, excess: float | None, **more: Any) -> dict[str, Any]:
    """Build a row; an excess of None is a rejected run."""
    state = {"status": "done", "reason": None} if excess is not None else {"status": "rejected", "reason": "k is 9"}
    return {
        "task": task, "graph": "ring", "seed": 0, "entry": entry, "defaults": "ours", "encoding": "real",
        "trust": "no server", "excess": excess, "start_excess": None, "bytes_over_raw": 1.0, "busiest_over_raw": 0.1,
        **state, **more,
    }  # fmt: skip


def draw_rows(
    methods: Mapping[str, tuple[str, float, float]] = METHODS, data: Sequence[str] = DATA, *, seeds: int = 5,
    seed: int = 0,
) -> list[dict[str, Any]]:  # fmt: skip
    """Draw a benchmark with two partitions of each data set, two graphs, and variants of some methods.

    Methods differ by data set, so blocks of one data set are dependent.
    """
    draw = np.random.default_rng(seed)
    listed = []
    for name in data:
        effects = dict(zip(methods, draw.normal(0, 0.5, len(methods)), strict=True))
        for task, number, method in product((f"{name}-skew", f"{name}-iid"), range(seeds), methods):
            trust, excess, size = methods[method]
            for graph in ("ring", "small-world") if trust == "no server" else ("server",):
                value = 10 ** (excess + effects[method] + draw.normal(0, 0.2))
                where = {"graph": graph, "seed": number, "trust": trust, "start_excess": 1.1 * value}
                rejected = method == "private" and name == "wine"
                size_drawn = 10 ** (size + draw.normal(0, 0.1))
                listed += _vary(task, method, None if rejected else value, size_drawn, where)
        listed += [
            row(f"{name}-{part}", "local", 3.0, graph="server", seed=number, trust="baseline", bytes_over_raw=0.0)
            for part, number in product(("skew", "iid"), range(seeds))
        ]
    return listed


def _vary(
    task: str, method: str, excess: float | None, size: float, where: Mapping[str, Any]
) -> list[dict[str, Any]]:  # fmt: skip
    """Build the row of a run, for some methods also with real numbers and with the defaults of the paper."""
    rows = [row(task, method, excess, **where, encoding="integer", bytes_over_raw=size)]
    if method in ("gtvmin", "fkm"):
        paper = None if excess is None else 3 * excess
        rows.append(row(task, f"{method} (real numbers)", excess, **where, bytes_over_raw=8 * size))
        rows.append(
            row(task, f"{method} (paper)", paper, **where, defaults="paper", encoding="integer", bytes_over_raw=size)
        )
    return rows
