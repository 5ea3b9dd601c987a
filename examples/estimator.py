"""The estimator of scikit-learn's kind, on five graphs: what links cost and what they buy.

Covers
    P2PKMeans in place of KMeans, graphs by name, the device of each row, labels of a device, a pipeline, a grid search.

Scenario
    Twenty-four sites hold measurements of eight kinds of things, each site mostly of one or two. They may not pool
    their rows. What does each of five ways to connect them cost, and what does it find?

Run it as ``python examples/estimator.py`` or ``mpirun -n 4 python examples/estimator.py``; it writes estimator.png.
"""

# %% Rows, and the site of each: an array like any other that scikit-learn knows
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import p2pkm
from p2pkm.network.world import connect
from p2pkm.viz.graph_layout import place_devices

SITES = 24
X, y = p2pkm.blobs(clusters=8, points=120, sd=0.9, seed=4)
site = p2pkm.partition.dirichlet(y, SITES, alpha=0.2, seed=0)
say = print if connect().rank == 0 else lambda *words: None

# %% The same four words as ever: choose, fit, predict, score. The graph is one more parameter
pooled = KMeans(8, n_init=10, random_state=0).fit(X)
say(f"all rows in one place: inertia {pooled.inertia_:.0f}\n")
say(f"{'graph':28} {'inertia':>8} {'rounds':>7} {'kB plain':>8} {'ARI':>6}")
fits = {}
for graph in ("ring", "grid", "small-world:degree=4", "star", "complete"):
    model = fits[graph] = p2pkm.P2PKMeans(8, graph=graph, coupling=3, random_state=0).fit(X, devices=site)
    sent, found = model.ledger_.bytes.sum() / 1000, adjusted_rand_score(y, model.labels_)
    say(f"{graph:28} {model.inertia_:8.0f} {model.n_iter_:7} {sent:8.0f} {found:6.3f}")

# %% A method with a server is another name; so is any other one
for algorithm in ("consensus", "fkm"):
    model = p2pkm.P2PKMeans(8, algorithm=algorithm, random_state=0).fit(X, devices=site)
    found = adjusted_rand_score(y, model.labels_)
    say(f"{algorithm:28} {model.inertia_:8.0f} {model.n_iter_:7} {model.ledger_.bytes.sum() / 1000:8.0f} {found:6.3f}")

# %% What a site sees by its own centroids, and what all see by the common ones
model = fits["ring"]
own, common = model.predict(X, devices=site), model.predict(X)
say(f"\nring: {np.mean(own == common):.1%} of the rows get the same label from their own site")

# %% In a pipeline, and the number of clusters by a search
pipeline = make_pipeline(StandardScaler(), p2pkm.P2PKMeans(n_devices=SITES, random_state=0))
search = GridSearchCV(pipeline, {"p2pkmeans__n_clusters": [2, 4, 6, 8]}, cv=3).fit(X)
say(f"least inertia of rows left out: {search.best_params_['p2pkmeans__n_clusters']} clusters")

# %% The picture: rows by label above, below the graphs, whose links are as dark as their ends differ
BLUE, COLORS = "#0072B2", ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A6D00", "#555555"]


def draw_rows(ax, model):
    ax.scatter(*X.T, s=3, c=[COLORS[label] for label in model.labels_], linewidths=0)
    for centers in model.device_centers_:
        ax.scatter(*centers.T, s=12, facecolors="none", edgecolors="black", linewidths=0.5)
    ax.set_xticks([])
    ax.set_yticks([])


def draw_graph(ax, graph, largest):
    places = place_devices(p2pkm.Topology.from_graph(graph))
    links = list(graph.edges(data="gtv"))
    shades = [str(round(0.85 - 0.75 * min(gtv / largest, 1.0), 3)) for *_, gtv in links]
    ends = [(places[i], places[j]) for i, j, _ in links]
    ax.add_collection(LineCollection(ends, colors=shades, linewidths=1.2, zorder=1))
    ax.scatter(*places.T, s=[8 + 0.8 * graph.nodes[i]["points"] for i in graph], color=BLUE, zorder=2)
    ax.set_aspect("equal", adjustable="datalim")
    ax.axis("off")


figure = Figure(figsize=(15, 6.4), layout="constrained")
largest = max(gtv for *_, gtv in fits["ring"].graph_.edges(data="gtv"))
for (name, model), above, below in zip(fits.items(), *figure.subplots(2, 5), strict=True):
    draw_rows(above, model)
    draw_graph(below, model.graph_, largest)
    above.set_title(f"{name}\n{model.n_iter_} rounds, {model.ledger_.bytes.sum() / 1000:.0f} kB plain", fontsize=10)
if connect().rank == 0:
    figure.savefig("estimator.png", dpi=100)
    say("estimator.png: rows by common label, circles: centroids of all sites; size: rows of a site, dark: differing")
