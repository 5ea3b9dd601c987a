"""Which method bears which faults? All meet the same: what fails is drawn from (seed, round, device or edge) alone.

Covers
    Message loss and dropout, with and without a server; a trace that is written, edited and given to two methods.

Scenario
    16 devices, each with few of 16 clusters. First a share of all messages is lost, then devices leave for five rounds
    at a time. The seeding before each method is struck, too; the server itself never fails.
"""

# %% The same points and the same graph for all
import contextlib
import io
import json
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import p2pkm
import topologies
from p2pkm.cli.main import main

SEEDS = range(3)
GRAPH = topologies.random_regular(16, degree=4, seed=0)
METHODS = {
    "GTVMin": p2pkm.GTVMin(16, coupling=30),
    "consensus": p2pkm.ConsensusLloyd(16),
    "push-sum": p2pkm.PushSumLloyd(16),
    "FKM, through a server": p2pkm.FKM(16),
}
LEVELS = {"loss": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), "dropout": (0.0, 0.01, 0.02, 0.05, 0.1)}


def deal(seed):
    """Return the points of all devices."""
    points, classes = p2pkm.grid16(points=50, seed=seed)
    device = p2pkm.partition.dirichlet(classes, 16, alpha=0.3, seed=seed)
    return p2pkm.Shards.deal(points, device, devices=16, labels=classes)


def run(method, faults, seed):
    """Return the cost on all points over central k-means, mean over the devices."""
    graph = None if isinstance(method, p2pkm.FKM) else GRAPH
    faults = f"{faults},seed={seed},stages=all"
    summary = p2pkm.simulate(method, graph, deal(seed), seed=seed, rounds=30, record_every=30, faults=faults).summary
    return summary["ratio_mean"]


# %% Quality against the share of messages that are lost, and of devices that leave in a round
found = {
    (kind, name): [np.mean([run(method, f"{kind}={level}", seed) for seed in SEEDS]) for level in levels]
    for kind, levels in LEVELS.items()
    for name, method in METHODS.items()
}
for kind, levels in LEVELS.items():
    print(f"{kind:26} " + " ".join(f"{level:<8g}" for level in levels))
    for name in METHODS:
        print(f"  {name:24} " + " ".join(f"{ratio:<8.4f}" for ratio in found[kind, name]))

# %% The same as a picture
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
labels = {"loss": "share of messages lost", "dropout": "share of devices that drop out in a round, for 5 rounds"}
for axes, (kind, levels) in zip(panels, LEVELS.items(), strict=True):
    for name, mark in zip(METHODS, "os^D", strict=True):
        axes.plot(levels, np.array(found[kind, name]) - 1.0, marker=mark, label=name, alpha=0.85)
    axes.set_xlabel(labels[kind])
    axes.set_yscale("symlog", linthresh=1e-4)
    axes.grid(alpha=0.3)
panels[0].set_ylim(0, 1)
panels[0].set_ylabel("cost above central k-means (0.01 = 1 %)")
panels[0].legend(fontsize=8)
figure.savefig("faults.png", dpi=120)

# %% A trace: written ahead, edited, and given to two methods
spec = "loss=0.1,dropout=0.02"
with contextlib.redirect_stderr(io.StringIO()) as told:
    assert main(["faults", spec, "--devices", "16", "--rounds", "40", "--out", "trace.jsonl"]) == 0
print(told.getvalue().strip())
trace = Path("trace.jsonl")
trace.write_text(trace.read_text() + json.dumps({"kind": "partition", "round": 3, "rounds": 10}) + "\n")
for name in ("gtvmin", "admm"):
    assert main(["--algorithm", name, "--graph", "ring", "--data", "grid16:points=50", "--rounds", "40", "--faults",
                 "trace.jsonl", "--out", "none", "-q"]) == 0  # fmt: skip

# %% What to see: GTVMin hardly notices losses, because what a neighbor said last still pulls in the right direction.
# Consensus averages anew in every round, so it pays for every message that is missing, and most where devices are away.
# Push-sum goes on from round to round with running totals, which bring back whatever was lost. A server that goes on
# with old reports hardly notices either, as long as it does not fail itself: say server=0.05 to see that.
