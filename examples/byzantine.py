"""Quality of honest devices against the number and the place of Byzantine devices, on five graphs, with robust rules.

All Byzantine devices send the same far set of centroids in every round. Without a rule a single one spoils all that are
connected with it, however far away. Trim needs three neighbors, so there is none on the ring; it gives way first
where Byzantine devices share neighbors. Clip holds on the ring and wherever a device has more honest than Byzantine
neighbors. Saturate holds best elsewhere and breaks on the ring once two Byzantine devices are neighbors. Three central
ones of an uneven graph are most of what many devices receive: there no rule holds, and peripheral ones do no harm.
"""

from functools import cache
from pathlib import Path

import matplotlib as mpl
import numpy as np

import p2pkm
import topologies

mpl.use("Agg")
import matplotlib.pyplot as plt

DEVICES, ROUNDS = 16, 15
COUNTS, PLACES = (0, 1, 3), {"central": "-", "peripheral": ":"}
RULES = {"none": "#000000", "clip": "#0072b2", "trim": "#e69f00", "saturate": "#009e73"}
GRAPHS = {
    "ring": topologies.ring(DEVICES),
    "grid": topologies.grid(DEVICES),
    "4-regular": topologies.build("random-regular", DEVICES, degree=4, seed=0),
    "preferential attachment": topologies.build("barabasi-albert", DEVICES, m=3, seed=0),
    "complete": topologies.complete(DEVICES),
}


def deal(seed):
    """Return nine clusters, and who has which points: every device prefers some of the clusters."""
    rng = np.random.default_rng(seed)
    centers = 6.0 * np.array([[x, y] for x in range(3) for y in range(3)])
    shares = rng.dirichlet(np.full(9, 0.5), DEVICES)
    drawn = [rng.choice(9, 40, p=share) for share in shares]
    return p2pkm.Shards.from_list([centers[one] + rng.normal(size=(40, 2)) for one in drawn])


@cache
def score(name, rule, byzantine):
    """Return the mean ratio of honest devices to central k-means."""
    # The coupling of all runs with Byzantine devices, so that those without are their baseline.
    method = p2pkm.GTVMin(9, coupling=30, robust=rule)
    result = p2pkm.simulate(method, GRAPHS[name], SHARDS, rounds=ROUNDS, record_every=ROUNDS, byzantine=byzantine)
    return result.summary["ratio_mean"]


SHARDS = deal(0)
figure, axes = plt.subplots(1, len(GRAPHS), figsize=(15, 3.4), sharey=True, layout="constrained")
print(f"{'ratio to central, honest devices':44}" + "".join(f"{count:>9}" for count in COUNTS) + "  Byzantine devices")
for axis, name in zip(axes, GRAPHS, strict=True):
    for place, line in PLACES.items():
        for rule, color in RULES.items():
            if (name, rule) == ("ring", "trim"):  # rejected: it would act at no device
                continue
            ratios = [score(name, rule, f"{count}:kind=collude,place={place}" if count else "0") for count in COUNTS]
            axis.plot(COUNTS, ratios, line, color=color, marker="o", markersize=4, label=f"{rule}, {place}")
            print(f"{name:24}{place:11}{rule:9}" + "".join(f"{ratio:9.3f}" for ratio in ratios))
    axis.set(title=name, xlabel=f"Byzantine devices of {DEVICES}", xticks=COUNTS, yscale="log")
axes[0].set_ylabel("cost / central k-means")
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
figure.savefig(Path("byzantine.png"), dpi=110)
print("the picture is byzantine.png")
