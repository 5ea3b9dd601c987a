"""Tracking against a new run in every round: excess over the refit, and the share of its bytes.

``python -m tests.benchmarks.drift --seeds 0-11`` prints a row per kind of drift: 16 devices x 40 points in 8 Gaussians
(`p2pkm.blobs`), ring, 50 rounds, a tenth of the points replaced in each. Refit: lean seeds and tree Lloyd anew on the
points of every round. Excess: pooled cost of the tracked table over that of the refit, mean over rounds, minus 1.
"""

import argparse

import numpy as np

import p2pkm
import topologies
from p2pkm.data.stream import KINDS, DataStream, build_stream
from p2pkm.data.stream_tape import Limits

DEVICES, CLUSTERS, POINTS, ROUNDS = 16, 8, 80, 50


def deal(seed):
    """Return the points at the start, alike in kind on all devices."""
    x, y = p2pkm.blobs(clusters=CLUSTERS, points=POINTS, seed=seed)
    device = p2pkm.partition.iid(len(x), DEVICES, seed=seed)
    return p2pkm.Shards.deal(x, device, devices=DEVICES, labels=y)


def follow(kind, seed, rounds=ROUNDS):
    """Return the excess of every round, float64[rounds], and the bytes on the wire of tracking and of all refits."""
    shards, ring, asked = deal(seed), topologies.ring(DEVICES), DataStream(kind=kind)
    options = {"seed": seed, "baselines": False}
    run = p2pkm.simulate(p2pkm.TreeLloyd(CLUSTERS), ring, shards, rounds=rounds, stream=asked, **options)
    tracked = [record["objective"] for record in run.rounds if record["stage"] == "treelloyd"][1:]
    stream = build_stream(asked, shards, shards.labels.astype(np.int64), seed, Limits(DEVICES, rounds, CLUSTERS))
    refits = []
    for t in range(1, rounds + 1):
        shards = stream.change(t, shards, np.arange(DEVICES))
        refits.append(p2pkm.simulate(p2pkm.TreeLloyd(CLUSTERS), ring, shards, **options | {"seed": 1000 * seed + t}))
    excess = np.array(tracked) / [one.summary["objective"] for one in refits] - 1.0
    return excess, run.summary["wire_bytes"], sum(one.summary["wire_bytes"] for one in refits)


def main():
    """Print a row per kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-11")
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    print("| kind | excess: mean | worst run | worst round | share of the bytes |\n|---|---|---|---|---|")
    for kind in given.kinds.split(","):
        found = [follow(kind, seed) for seed in range(first, last + 1)]
        means = [float(excess.mean()) for excess, _, _ in found]
        worst = max(float(excess.max()) for excess, _, _ in found)
        share = np.mean([own / refits for _, own, refits in found])
        print(f"| {kind} | {np.mean(means):.4f} | {max(means):.4f} | {worst:.2f} | {share:.3f} |", flush=True)


if __name__ == "__main__":
    main()
