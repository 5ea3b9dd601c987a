"""Learn features and clusters together, with a server and without: pictures of six shapes on eight devices.

Needs the extra `deep`: pip install "p2pkm[deep]". Training uses no classes; a linear probe measures afterwards how well
the features separate them. docs/howto/deep-clustering.md has results of larger runs.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np

import p2pkm
import topologies
from p2pkm.data.synthetic_shapes import KINDS
from p2pkm.viz import plot_accuracy, plot_features, plot_nearest
from p2pkm.viz.save_figure import save_figure

if find_spec("jax") is None:
    raise SystemExit('deep clustering needs JAX, which is not installed. Use pip install "p2pkm[deep]"')

OUT = Path("deep_clustering")
K, DEVICES, ROUNDS = 18, 8, 4
TRAINING = {"rate": 0.03, "epochs": 3, "batch": 16}

# Systems and controls on the same images, starts and views.
table = p2pkm.deep_table(
    {
        "DeepFeCA": p2pkm.DeepFeCA(K, **TRAINING),
        "without a server, on a ring": (p2pkm.DeepGossip(K, **TRAINING), topologies.ring(DEVICES)),
    },
    "shapes:points=80,side=16,noise=0.05,contrast=0.8", devices=DEVICES, partition="dirichlet:alpha=0.3",
    rounds=ROUNDS, seeds=1, controls=("raw pixels", "untrained body", "pooled"),
)  # fmt: skip
print(table)
hub, ring = (table.mean(name, "bytes_busiest") for name in ("DeepFeCA", "without a server, on a ring"))
print(f"plain bytes at the busiest device: {hub / 1e6:.1f} MB with a server, {ring / 1e6:.1f} MB on a ring")
for against in ("bytes", "bytes_busiest"):
    save_figure(lambda against=against: plot_accuracy(table, against=against), OUT, f"accuracy_{against}")

# One run by itself: what has been learned is part of the result.
images, classes = p2pkm.shapes(points=80, side=16, noise=0.05, contrast=0.8)
shards = p2pkm.Shards.deal(images, p2pkm.partition.iid(len(images), DEVICES), labels=classes)
method = p2pkm.DeepFeCA(K, **TRAINING)
result = p2pkm.simulate(method, None, shards, rounds=ROUNDS, baselines=False)
learned = result.learned
body, _ = method.learner(images.shape[1]).embed(learned.theta[-1], shards.points)
print(f"linear probe of one run: {p2pkm.linear_probe(body, shards.labels).accuracy:.2f}, by chance {1 / 6:.2f}")
centroids, labels = result.centroids[0], learned.labels[-1]
save_figure(lambda: plot_nearest(shards.points, learned.features, centroids, labels=labels), OUT, "nearest")
save_figure(lambda: plot_features(learned.features, shards.labels, names=KINDS), OUT, "features")
assert np.isfinite(learned.features).all()
