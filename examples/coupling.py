"""How strongly should neighbors pull? Bias, variance and test cost of GTVMin, predicted and measured.

The clusters of 36 devices on a torus differ smoothly along its links, and a device has 20 points. With fixed labels
GTVMin is a linear smoother: cluster c of all devices is W = S M, from the local means M, with S = (N + 2 c L)^-1 N, the
numbers of local points N, and the Laplacian L of the links with the weights of coupling 1. A true field F that is known
gives the expected test cost of a device: its true centers cost what they cost; S F - F is what neighbors that differ
add to it (bias), and S N^-1 S' what the noise of few points adds (variance).

The couplings "bayes" and "links" are estimated from the points, and know none of this.
"""

from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd

import p2pkm
import topologies
from p2pkm.viz.save_figure import save_figure

COUPLINGS = np.geomspace(0.03, 100, 40)
MEASURED = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
SEED = 7101


def predict(graph, data, coupling):
    """Return the mean squared bias and the mean variance of a centroid, summed over the features."""
    n, k, d = data.centers.shape
    counts = np.zeros((n, k))
    np.add.at(counts, (data.device, data.labels), 1)
    weights = nx.to_numpy_array(graph, nodelist=range(n))
    degrees = weights.sum(axis=1)
    weights *= counts.sum() / n / k / np.sqrt(np.outer(degrees, degrees))
    laplacian = np.diag(weights.sum(axis=1)) - weights
    bias = variance = 0.0
    for cluster in range(k):
        local = counts[:, cluster]
        smoother = np.linalg.solve(np.diag(local) + 2 * coupling * laplacian, np.diag(local))
        field = data.centers[:, cluster]
        bias += np.square(smoother @ field - field).sum() / (n * k)
        variance += d * np.sum(smoother**2 / np.maximum(local, 1)) / (n * k)
    return bias, variance


def measure(graph, data, method):
    """Return coupling and test cost of a run, with that of the true centers, and those of common and alone."""
    summary = p2pkm.simulate(method, graph, data.shards, seed=1).summary
    own = np.square(data.tests.points[:, None] - data.centers[data.tests.device]).sum(axis=2).min(axis=1).mean()
    cost = own * summary["test_ratio_centers"]
    return summary["coupling"], cost, own, cost / summary["test_ratio_common"], cost / summary["test_ratio_alone"]


# %% One world: what every coupling costs

torus = topologies.torus(36)
world = p2pkm.device_clusters(graph=torus, amplitude=0.7, seed=SEED)
curves = np.array([predict(torus, world, c) for c in COUPLINGS])
runs = {c: measure(torus, world, f"gtvmin:coupling={c}") for c in MEASURED}
rules = {name: measure(torus, world, f"gtvmin:coupling={name}") for name in ("strong", "bayes", "links")}
own, common, alone = rules["bayes"][2:]
rows = [(f"{c:g}", *predict(torus, world, c), runs[c][1]) for c in MEASURED]
table = pd.DataFrame(rows, columns=["coupling", "bias", "variance", "measured"])
table.insert(3, "predicted", own + table.bias + table.variance)
print(table.to_string(index=False, float_format="%.3f"))
print(f"true centers {own:.3f}, common clustering {common:.3f}, alone {alone:.3f}")
for name, (coupling, cost, *_) in rules.items():
    print(f"{name}: coupling {coupling:.2f}, measured {cost:.3f}")

# %% Which graphs help? The devices differ along the torus; messages take another graph

GRAPHS = {
    "torus": torus,
    "torus with diagonals": nx.Graph([*torus.edges, *((i, (i // 6 + 1) % 6 * 6 + (i + s) % 6)
                                                      for i in range(36) for s in (1, -1))]),
    "ring through the torus": nx.cycle_graph([6 * row + (column if row % 2 == 0 else 5 - column)
                                              for row in range(6) for column in range(6)]),
    "small world": topologies.small_world(36, degree=4, rewire=0.2, seed=1),
    "random, degree 4": topologies.random_regular(36, degree=4, seed=1),
    "complete": topologies.complete(36),
}  # fmt: skip
rows = []
for name, graph in GRAPHS.items():
    best = min(sum(predict(graph, world, c)) for c in COUPLINGS)
    found = [measure(graph, world, f"gtvmin:coupling={rule}") for rule in ("bayes", "links")]
    rows.append((name, own + best, *(row[1] for row in found), *(row[0] for row in found)))
columns = ["messages along", "best predicted", "bayes", "links", "coupling of bayes", "of links"]
print(f"\n{pd.DataFrame(rows, columns=columns).to_string(index=False, float_format='%.2f')}")


def draw():
    """Draw bias, variance and test cost against the coupling."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axis.stackplot(COUPLINGS, curves.T, labels=("bias: neighbors differ", "variance: few points"), alpha=0.35)
    axis.plot(COUPLINGS, curves.sum(axis=1), "k-", label="predicted")
    axis.plot(MEASURED, [runs[c][1] - own for c in MEASURED], "ko", label="measured")
    for text, value, style in (("common", common, "--"), ("alone", alone, ":")):
        axis.axhline(value - own, color="0.4", linestyle=style, label=text)
    for (name, (coupling, cost, *_)), marker in zip(rules.items(), "^sD", strict=True):
        axis.plot(coupling, cost - own, marker, markersize=8, color="C3", label=f"coupling={name}")
    axis.set(xscale="log", xlabel="coupling", ylabel="test cost above that of the true centers")
    axis.set_xticks(MEASURED, [f"{c:g}" for c in MEASURED])
    axis.set_ylim(0, 1.4 * curves.sum(axis=1).max())
    axis.legend(fontsize=8, ncols=3, loc="upper center")
    return figure


print(f"\ndrawn: {save_figure(draw, Path(), 'coupling', ('png',))[0]}")
