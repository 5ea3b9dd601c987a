"""Table of the README: quality, bytes and disclosed points of five methods on the same data, 12 seeds.

``python docs/readme_table.py`` prints it. The seeds were not used to choose any default.
"""

import sys

import p2pkm
import topologies

SEEDS = range(9100, 9112)
DEVICES = 16
METHODS = {
    "local only": p2pkm.LocalOnly,
    "`gtvmin`": p2pkm.GTVMin,
    "`treelloyd`": p2pkm.TreeLloyd,
    "`fkm` (server)": p2pkm.FKM,
    "central k-means": p2pkm.Central,
}


def measure(kind, seed):
    """Run a method on the data of a seed; return cost ratio, encoded bytes and disclosed points."""
    points, labels = p2pkm.grid16(seed=seed)
    device = p2pkm.partition.dirichlet(labels, DEVICES, alpha=0.3, by="class", seed=seed)
    shards = p2pkm.Shards.deal(points, device, devices=DEVICES, labels=labels)
    method = kind(16)
    graph = None if method.traits.needs_hub else topologies.ring(DEVICES)
    summary = p2pkm.simulate(method, graph, shards, seed=seed).summary
    return summary["ratio_mean"], summary["wire_bytes"], summary["raw_points_disclosed"]


def format_row(name, kind):
    """Format the means over the seeds, and the largest cost ratio, as a row in Markdown."""
    ratios, sizes, disclosed = zip(*(measure(kind, seed) for seed in SEEDS), strict=True)
    n = len(SEEDS)
    return (
        f"| {name} | {sum(ratios) / n:.4f} ({max(ratios):.4f}) | {sum(sizes) / n / 1000:,.1f} | "
        f"{sum(disclosed) / n:,.0f} |"
    )


if __name__ == "__main__":
    rows = [format_row(name, kind) for name, kind in METHODS.items()]
    head = "| method | cost ratio, mean (worst seed) | kB sent | points disclosed |\n|---|---|---|---|"
    sys.stdout.write("\n".join([head, *rows]) + "\n")
