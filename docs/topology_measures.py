"""Graph measures and outcomes of the topology study, drawn from its stored values (docs/results/topology.csv).

For each method and outcome: the graph measure with the largest mean rank correlation, at 64 devices, with its 95 %
interval over graphs. Hollow: not significant.
"""

import re
import sys
from pathlib import Path

import matplotlib as mpl
from measured import read_results

mpl.use("Agg")
import matplotlib.pyplot as plt

CLAIM, SIZE = "topology-correlations", "64 devices"
OUTCOMES = {
    "excess": "excess", "rounds": "rounds", "encoded bytes": "encoded bytes",
    "plain bytes of the busiest device": "bytes of the busiest device", "simulated time": "simulated time",
}  # fmt: skip
METHODS = (
    "consensus", "push-sum", "tracking", "gossip", "epidemic", "DGC", "GTVMin", "GTVMin, local start", "tree Lloyd",
)  # fmt: skip
VALUE = re.compile(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\](, not significant)?")
SIGNIFICANT, NOT_SIGNIFICANT = "#0072b2", "#888888"


def read_correlations():
    """Return measure, correlation, interval and significance by method and outcome."""
    found = {}
    for row in read_results()["topology"]:
        if (row.claim, row.statistic) == (CLAIM, SIZE):
            name, _, measure = row.row.rpartition(", ")
            method, _, outcome = name.rpartition(": ")
            correlation, low, high, rejected = VALUE.fullmatch(row.value).groups()
            found[method, outcome] = measure, float(correlation), float(low), float(high), not rejected
    return found


def draw(axis, outcome, correlations):
    """Draw an interval for each method with this outcome, and print the values."""
    for place, method in enumerate(reversed(METHODS)):
        if (method, outcome) not in correlations:
            continue
        measure, correlation, low, high, is_significant = correlations[method, outcome]
        print(f"{method:20} {OUTCOMES[outcome]:28} {measure:23} {correlation:+.2f} [{low:+.2f}, {high:+.2f}]")
        color = SIGNIFICANT if is_significant else NOT_SIGNIFICANT
        axis.plot([low, high], [place, place], color=color, linewidth=1.5)
        axis.plot(correlation, place, "o", color=color, markerfacecolor=color if is_significant else "white")
        # The label stands on the other side of zero, where no interval with a clear sign reaches.
        x, side = (0.08, "left") if correlation < 0 else (-0.08, "right")
        axis.text(x, place, measure.replace(" ", "\n"), ha=side, va="center", fontsize=8, color=color)
    axis.axvline(0.0, color="#bbbbbb", linewidth=0.8, zorder=0)
    axis.set(title=OUTCOMES[outcome], xlim=(-1.05, 1.05), xticks=(-1, 0, 1), ylim=(-0.7, len(METHODS) - 0.3))
    axis.set_yticks(range(len(METHODS)), reversed(METHODS))


if __name__ == "__main__":
    figure, axes = plt.subplots(1, len(OUTCOMES), figsize=(14, 4.2), layout="constrained", sharey=True)
    for axis, outcome in zip(axes, OUTCOMES, strict=True):
        draw(axis, outcome, read_correlations())
    figure.supxlabel("rank correlation of the named graph measure with the outcome, 24 graphs of 64 devices")
    figure.savefig(Path("topology_measures.png"), dpi=100)
    sys.stdout.write("the picture is topology_measures.png\n")
