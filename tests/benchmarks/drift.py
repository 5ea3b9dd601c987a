"""Tracking against a new run in every round: excess over the refit, and the share of its bytes.

``python -m tests.benchmarks.drift --seeds 0-11`` prints a row per kind of drift: 16 devices x 40 points in 8 Gaussians
(`p2pkm.blobs`; with ``--side 8.5`` unit Gaussians whose means are uniform in a square of that side, which overlap),
ring, 50 rounds, a tenth of the points replaced in each. Refit: lean seeds and tree Lloyd anew on the points of every
round; the refits of all rounds are one run, on as many rings, whose messages and sums are those of separate runs.
Excess: pooled cost of the tracked table over that of the refit, mean over rounds, minus 1.
"""

import argparse

import networkx as nx
import numpy as np

import p2pkm
import topologies
from p2pkm.data.stream import KINDS, DataStream, build_stream
from p2pkm.data.stream_tape import Limits

DEVICES, CLUSTERS, POINTS, ROUNDS = 16, 8, 80, 50


def deal(seed, side=None):
    """Return the points at the start, alike in kind on all devices."""
    x, y = p2pkm.blobs(clusters=CLUSTERS, points=POINTS, seed=seed)
    if side is not None:
        draws = np.random.default_rng(seed)
        x = draws.uniform(0.0, side, (CLUSTERS, 2))[y] + draws.standard_normal(x.shape)
    device = p2pkm.partition.iid(len(x), DEVICES, seed=seed)
    return p2pkm.Shards.deal(x, device, devices=DEVICES, labels=y)


def refit(stream, shards, seed, rounds):
    """Return the pooled cost of a new run in every round, float64[rounds], and the bytes on the wire of all."""
    parts = []
    for t in range(1, rounds + 1):
        shards = stream.change(t, shards, np.arange(DEVICES))
        parts.append(shards)
    device = np.repeat(np.arange(DEVICES * rounds), np.concatenate([part.sizes for part in parts]))
    points = p2pkm.Shards.deal(np.concatenate([part.points for part in parts]), device, devices=DEVICES * rounds)
    rings = nx.disjoint_union_all([topologies.ring(DEVICES)] * rounds)
    run = p2pkm.simulate(p2pkm.TreeLloyd(CLUSTERS), rings, points, seed=seed, baselines=False, allow_disconnected=True)
    tables = run.centroids[::DEVICES]
    costs = [((part.points[:, None] - c) ** 2).sum(2).min(1).sum() for part, c in zip(parts, tables, strict=True)]
    return np.array(costs), run.summary["wire_bytes"]


def follow(kind, seed, side=None, rounds=ROUNDS):
    """Return the excess of every round, float64[rounds], and the bytes on the wire of tracking and of all refits."""
    shards, asked = deal(seed, side), DataStream(kind=kind)
    run = p2pkm.simulate(
        p2pkm.TreeLloyd(CLUSTERS), topologies.ring(DEVICES), shards, rounds=rounds, stream=asked, seed=seed,
        baselines=False,
    )  # fmt: skip
    tracked = [record["objective"] for record in run.rounds if record["stage"] == "treelloyd"][1:]
    stream = build_stream(asked, shards, shards.labels.astype(np.int64), seed, Limits(DEVICES, rounds, CLUSTERS))
    costs, sent = refit(stream, shards, seed, rounds)
    return np.array(tracked) / costs - 1.0, run.summary["wire_bytes"], sent


def main():
    """Print a row per kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-11")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--side", type=float)
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    print("| kind | excess: mean | worst run | worst round | share of the bytes |\n|---|---|---|---|---|", flush=True)
    for kind in given.kinds.split(","):
        found = [follow(kind, seed, given.side) for seed in range(first, last + 1)]
        means = [float(excess.mean()) for excess, _, _ in found]
        worst = max(float(excess.max()) for excess, _, _ in found)
        share = np.mean([own / refits for _, own, refits in found])
        print(f"| {kind} | {np.mean(means):.4f} | {max(means):.4f} | {worst:.2f} | {share:.3f} |", flush=True)


if __name__ == "__main__":
    main()
