"""Which measure of a graph says how fast devices on it come to terms? Twelve graphs, 64 devices, five seeds.

Every device holds ten points of four clusters, dealt at random, and all start from the centroids of one of them, which
are as noisy as ten points are. From there on the graph decides: the ratio falls as fast as the devices average their
noise away. With the default recipe there is nothing to see, for its start is already within 1 % of the end, and rounds
to 1 % are those that the seeding takes to cross the graph.

tracking mixes one message per step into what it knows, so it never forgets what was averaged; consensus starts every
average anew and stops after three messages; gtvmin pulls neighbors together by a coupling.
"""

from pathlib import Path

import pandas as pd

import p2pkm
from p2pkm.viz import plot_measures
from p2pkm.viz.save_figure import save_figure

MEASURES = ["effective_neighbors", "spectral_gap", "algebraic_connectivity", "diameter", "mean_path", "degree_mean"]
GRAPHS = [
    "ring", "path", "star", "complete", "grid", "torus", "small-world:degree=4,rewire=0.1", "random-regular:degree=4",
    "erdos-renyi:p=0.1", "barabasi-albert:m=2", "barbell", "caveman:size=8",
]  # fmt: skip

# The study: lists to combine, then everything that is the same. A graph may also be an object of networkx.

study = p2pkm.study(
    grid={"algorithm": ["tracking:gossips=1", "consensus:gossips=3", "gtvmin:coupling=strong"], "graph": GRAPHS},
    devices=64, data="blobs:clusters=4,points=160,box=30", partition="iid", init="leader", rounds=150, seeds="0-4",
    progress=False,
)  # fmt: skip

# How well does each measure order the runs? 1 and -1: perfectly; 0: it says nothing.

runs = study.to_frame().groupby("algorithm", sort=False)
found = {name: rows[MEASURES].corrwith(rows["rounds_to_1pct"], method="spearman") for name, rows in runs}
print("rank correlation with rounds to 1 % of the final ratio")
print(pd.DataFrame(found).round(2).to_string())

# A picture: methods are colors, the graphs stand above.

paths = save_figure(lambda: plot_measures(study.rows), Path(), "topology_study", ("png",))
print(f"\ndrawn: {paths[0]}")
