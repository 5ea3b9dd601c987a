"""Small pictures of the methods: one scene for all, drawn when the documentation is built."""

from pathlib import Path
from typing import Any

import networkx as nx
from matplotlib.figure import Figure

import p2pkm
from p2pkm.methods.registry import METHODS, find

DEVICES, CLUSTERS, SEED = 6, 4, 51
GIVEN: dict[str, Any] = {
    "private": {"epsilon": 8.0, "radius": 20.0, "noise_seed": 0},  # parameters without a default
    "feddp": {"epsilon": 8.0, "radius": 20.0, "noise_seed": 0},
    "deepfeca": {"network": "linear", "shape": "1x2", "views": False},  # images of two pixels
    "deepgossip": {"network": "linear", "shape": "1x2", "views": False},
}
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"]


def draw_missing(folder: Path) -> None:
    """Draw the picture of every method that has none yet."""
    folder.mkdir(exist_ok=True)
    for name in METHODS:
        path = folder / f"{name}.png"
        if not path.exists():
            draw(name).savefig(path, dpi=110)


def scene() -> tuple[Any, Any]:
    """Return the points of all devices and their graph: each device sees mostly one or two of the four clusters."""
    points, labels = p2pkm.blobs(clusters=CLUSTERS, points=45, sd=1.1, box=5, seed=SEED)
    device = p2pkm.partition.dirichlet(labels, DEVICES, alpha=0.4, minimum=6, seed=2)
    return p2pkm.Shards.deal(points, device, devices=DEVICES, labels=labels), nx.cycle_graph(DEVICES)


def draw(name: str) -> Figure:
    """Draw where the centroids of the devices end, and how the ratio came down."""
    shards, graph = scene()
    method = find(name)(CLUSTERS, **GIVEN.get(name, {}))
    peers = not method.traits.needs_hub
    result = p2pkm.simulate(method, graph if peers else None, shards, seed=0)
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    for i in range(DEVICES):
        own = shards.points[shards.offsets[i] : shards.offsets[i + 1]]
        left.scatter(*own.T, s=7, color=COLORS[i], linewidths=0, alpha=0.6)
        left.scatter(*result.centroids[i].T, s=50, facecolors="none", edgecolors=COLORS[i], linewidths=1.2)
    left.set(xticks=[], yticks=[], title="points and centroids, a color per device")
    left.set_aspect("equal", adjustable="datalim")
    trace = [(r["bytes"] / 1000, r["ratio_mean"]) for r in result.rounds if r["ratio_mean"] is not None]
    right.plot(*zip(*trace, strict=True), marker="o", markersize=3, color=COLORS[0])
    right.axhline(1.0, color="#8A8A8A", linewidth=0.8)
    right.set_xlim(left=0, right=1.05 * max(sent for sent, _ in trace) or 1)
    right.set(
        xlabel="kB plain", ylabel="cost / central", title=f"{name}: {result.summary['ratio_mean']:.3f} at the end"
    )
    for ax in (left, right):
        ax.title.set_fontsize(9)
    return figure
