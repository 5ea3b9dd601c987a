"""Quality of every method against its encoded bytes: grid16 on a ring and a small world of ten, mix:50 on the ring.

Hollow: plain messages of 8 bytes a value, which need no encoding. Full: encoded messages, by the method itself or by
quantize=rice where it allows that. Means of three seeds; ten devices that see different clusters.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

import p2pkm
import topologies
from p2pkm.core.errors import P2PKMError
from p2pkm.methods.registry import METHODS, find

mpl.use("Agg")
import matplotlib.pyplot as plt

SEEDS, DEVICES, WORST = range(3), 10, 30.0  # per cent
LEAN = p2pkm.Init.rows(lean=True)
PEER, SERVER = "#0072b2", "#d55e00"


def deal_grid(seed):
    """Return 16 clusters whose devices prefer places."""
    points, labels = p2pkm.grid16(points=200, seed=seed)
    return points, labels, p2pkm.partition.beta(points, DEVICES, beta=0.1, seed=seed)


def deal_mix(seed):
    """Return 50 clusters at random places, and who has which by Dirichlet 0.3."""
    rng, k = np.random.default_rng(seed), 50
    labels = np.repeat(np.arange(k), 60)
    points = rng.uniform(0, 3 * k**0.5, (k, 2))[labels] + rng.normal(size=(60 * k, 2))
    return points, labels, p2pkm.partition.dirichlet(labels, DEVICES, alpha=0.3, seed=seed)


PANELS = {
    "grid16, k = 16, ring": (16, deal_grid, topologies.ring(DEVICES)),
    "grid16, k = 16, small world": (16, deal_grid, topologies.small_world(DEVICES, degree=4, seed=0)),
    "mix:50, k = 50, ring": (50, deal_mix, topologies.ring(DEVICES)),
}
# what is drawn besides every method by itself: methods with the start in few bits
MORE = {"gtvmin": (p2pkm.GTVMin, {"coupling": "strong"}),  # its default may choose a clustering for each device
        "gtvmin, lean": (p2pkm.GTVMin, {"coupling": "strong", "init": LEAN, "relaxation": "auto"}),
        "treelloyd, breathing": (p2pkm.TreeLloyd, {"search": "breathing"})}  # fmt: skip


def measure(kind, options, panel, **channel):
    """Return by how much the mean ratio is above 1, per cent, and the mean bytes; None: the method refuses."""
    k, deal, graph = PANELS[panel]
    found = []
    for seed in SEEDS:
        points, labels, owner = deal(seed)
        shards = p2pkm.Shards.deal(points, owner, devices=DEVICES, labels=labels)
        try:
            method = kind(k, **options)
            used = None if method.traits.needs_hub else graph
            result = p2pkm.simulate(method, used, shards, seed=seed, record_every=10**6, **channel)
        except P2PKMError:
            return None
        found.append((result.summary["ratio_mean"], result.summary["wire_bytes"]))
    ratio, spent = np.mean(found, axis=0)
    return 100 * (ratio - 1), spent


def draw(axis, panel):
    """Draw a panel, and print its figures."""
    # Ditto gives each device a clustering of its own.
    methods = {name: (find(name), {}) for name in METHODS if name != "ditto"} | MORE
    labels, over = [], []
    for name, (kind, options) in methods.items():
        color = SERVER if kind(2).traits.needs_hub else PEER
        plain, coded = (measure(kind, options, panel, quantize=numbers) for numbers in ("none", "rice"))
        for found, words in ((plain, ""), (coded, "integers")):
            if found is None or not found[1]:
                continue
            fill = color if words or kind is p2pkm.TreeLloyd else "white"
            print(f"{panel:28} {name:22} {words:9}{found[0]:9.2f} %{found[1] / 1e3:11.1f} kB encoded", flush=True)
            if found[0] > WORST:
                over += [name] * (not words)
                continue
            axis.plot(found[1], found[0], "o", color=color, markerfacecolor=fill, markersize=5)
        shown = [one for one in (plain, coded) if one is not None and one[1] and one[0] <= WORST]
        if len(shown) == 2:
            axis.plot(*np.transpose(shown)[::-1], color=color, linewidth=0.6, zorder=0)
        if shown:
            labels.append((name, min(shown, key=lambda one: one[1]), color))
    axis.set(title=panel, xscale="log", xlabel="encoded bytes (B), all links")
    near = min(low for _, (low, _), _ in labels) > -0.1
    axis.set_yscale("symlog", linthresh=0.1 if near else 1.0)
    axis.set_ylim(-0.08 if near else -2.5, 2 * WORST)
    axis.axhline(0.0, color="#888888", linewidth=0.8, zorder=0)
    write_beside(axis, labels)
    said = f"above {WORST:.0f} %: {', '.join(over)}"
    axis.text(0.98, 0.96, said, transform=axis.transAxes, ha="right", fontsize=6.5, color="#555555")


def write_beside(axis, labels):
    """Write the names beside the points, a name that would cover another one somewhat lower."""
    taken = []
    for name, (excess, spent), color in sorted(labels, key=lambda one: -one[1][0]):
        x, y = axis.transData.transform((spent, excess))
        while any(abs(x - one) < 55 and abs(y - other) < 9 for one, other in taken):
            y -= 3
        taken.append((x, y))
        axis.annotate(name, axis.transData.inverted().transform((x, y)), xytext=(4, 3), textcoords="offset points",
                      fontsize=6.5, color=color)  # fmt: skip


if __name__ == "__main__":
    figure, axes = plt.subplots(1, len(PANELS), figsize=(15, 5.2), layout="constrained")
    for axis, panel in zip(axes, PANELS, strict=True):
        draw(axis, panel)
    axes[0].set_ylabel("cost above central k-means (%)")
    figure.savefig(Path("quality_encoded_bytes.png"), dpi=100)
    sys.stdout.write("the picture is quality_encoded_bytes.png\n")
