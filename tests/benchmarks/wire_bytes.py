"""Quality and bytes of GTVMin with integers and sparse messages, tree Lloyd, FKM: claim encoded-runs of docs/results.

``python -m tests.benchmarks.wire_bytes [--first 0] [--seeds 12]``
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import p2pkm
import topologies
from tests.benchmarks.start_quality import mix

LEAN = "rows:lean=true"
Deal = Callable[[int], tuple[Any, Any, Any, int]]


def grid(n: int, *, skew: bool = True) -> Deal:
    """Return who has which of 16 clusters, by place (beta 0.1) or by Dirichlet 0.3."""

    def deal(seed: int) -> tuple[Any, Any, Any, int]:
        points, labels = p2pkm.grid16(points=200, seed=seed)
        if skew:
            return points, labels, p2pkm.partition.beta(points, n, beta=0.1, seed=seed), n
        return points, labels, p2pkm.partition.dirichlet(labels, n, alpha=0.3, seed=seed), n

    return deal


def digits(seed: int) -> tuple[Any, Any, Any, int]:
    """Return the digits of scikit-learn on ten devices, by Dirichlet 0.3."""
    from sklearn.datasets import load_digits

    points, labels = load_digits(return_X_y=True)
    return points.astype(np.float64), labels, p2pkm.partition.dirichlet(labels, 10, alpha=0.3, seed=seed), 10


def fifty(seed: int) -> tuple[Any, Any, Any, int]:
    """Return 50 clusters at random places on ten devices, by Dirichlet 0.3."""
    points, labels = mix(50, 2, seed)
    return points, labels, p2pkm.partition.dirichlet(labels, 10, alpha=0.3, seed=seed), 10


def list_runs() -> list[tuple[str, Any, Any, Deal, dict[str, Any]]]:
    """Return name, method, graph, division of points and options of every row."""
    # Over-relaxation is refused with sparse messages, so the run without them is made without it, too.
    ring, small = topologies.ring(10), topologies.small_world(10, degree=4, seed=0)
    rice = {"quantize": "rice"}
    best = p2pkm.GTVMin(16, coupling=30, init=LEAN, relaxation="auto")
    return [
        ("gtvmin, real numbers, 8 sweeps", p2pkm.GTVMin(16, coupling=30, init="rows"), ring, grid(10), {"rounds": 8}),
        (
            "gtvmin, rice, relaxation 1.5",
            p2pkm.GTVMin(16, coupling=30, init=LEAN, relaxation=1.5),
            ring,
            grid(10),
            rice,
        ),
        (
            "gtvmin, int8, relaxation 1.5",
            p2pkm.GTVMin(16, coupling=30, init=LEAN, relaxation=1.5),
            ring,
            grid(10),
            {"quantize": "int8"},
        ),
        ("gtvmin, rice, relaxation auto", best, ring, grid(10), rice),
        ("treelloyd", p2pkm.TreeLloyd(16), ring, grid(10), {}),
        ("treelloyd, star", p2pkm.TreeLloyd(16), topologies.star(10), grid(10), {}),
        ("treelloyd, small world", p2pkm.TreeLloyd(16), small, grid(10), {}),
        ("fkm, 10 rounds", p2pkm.FKM(16), None, grid(10), {"rounds": 10}),
        ("fkm, 2 rounds", p2pkm.FKM(16), None, grid(10), {"rounds": 2}),
        ("fkm, rice, 10 rounds", p2pkm.FKM(16), None, grid(10), {"rounds": 10} | rice),
        ("gtvmin, rice, small world", best, small, grid(10), rice),
        ("gtvmin, rice, grid of 32, Dirichlet", best, topologies.grid(32), grid(32, skew=False), rice),
        (
            "gtvmin, rice, digits, k = 10",
            p2pkm.GTVMin(10, coupling=30, init=LEAN, relaxation="auto"),
            ring,
            digits,
            rice,
        ),
        *(
            (name, p2pkm.GTVMin(10, coupling=30, init=LEAN, relaxation=1.0), ring, digits, options)
            for name, options in {
                "gtvmin, real numbers, digits": {"quantize": "none"},
                "gtvmin, topk, digits": {"compress": "topk:share=0.1"},
                "gtvmin, randomk, digits": {"compress": "randomk:share=0.1"},
            }.items()
        ),
        ("treelloyd, digits, k = 10", p2pkm.TreeLloyd(10), ring, digits, {}),
        ("treelloyd, digits, k = 50", p2pkm.TreeLloyd(50), ring, digits, {}),
        ("treelloyd, mix:50", p2pkm.TreeLloyd(50), ring, fifty, {}),
    ]


def main(first: int, seeds: int) -> None:
    """Print a row of means and worst cases for every run."""
    print(f"{'run':38}{'ratio':>9}{'worst':>9}{'device':>9}{'below 1':>9}{'kB':>10}{'kB on the wire':>16}")
    for name, method, graph, deal, options in list_runs():
        found = []
        for seed in range(first, first + seeds):
            points, labels, owner, n = deal(seed)
            shards = p2pkm.Shards.deal(points, owner, devices=n, labels=labels)
            summary = p2pkm.simulate(method, graph, shards, seed=seed, record_every=10**6, **options).summary
            found.append([summary[key] for key in ("ratio_mean", "ratio_worst", "bytes", "wire_bytes")])
        ratio, worst, size, wire = np.array(found, np.float64).T
        print(f"{name:38}{ratio.mean():9.4f}{ratio.max():9.4f}{worst.max():9.4f}{(ratio < 1).sum():6} of {seeds}"
              f"{size.mean() / 1e3:9.1f}{wire.mean() / 1e3:13.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=12)
    given = parser.parse_args()
    main(given.first, given.seeds)
