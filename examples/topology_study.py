"""Which measure of a graph says how fast devices on it come to terms? Twelve graphs, 64 devices, five seeds.

Every device holds ten points of four clusters, dealt at random, and all start from the centroids of one of them, which
are as noisy as ten points are. From there on the graph decides: the ratio falls as fast as the devices average their
noise away. With the default recipe there is nothing to see, for its start is already within 1 % of the end, and rounds
to 1 % are those that the seeding takes to cross the graph.

tracking mixes one message per step into what it knows, so it never forgets what was averaged; consensus starts every
average anew and stops after three messages; gtvmin pulls neighbors together by a coupling.
"""

from pathlib import Path

from scipy.stats import spearmanr

import p2pkm
from p2pkm.cli.main import main
from p2pkm.viz import plot_measures
from p2pkm.viz.save_figure import save_figure

STUDY = Path("topology_study.toml")
OUT = Path("topology_study")
MEASURES = ("effective_neighbors", "spectral_gap", "algebraic_connectivity", "diameter", "mean_path", "degree_mean")

# The study: everything that is the same, then the lists to combine.

STUDY.write_text("""
devices = 64
data = "blobs:clusters=4,points=160,box=30"
partition = "iid"
init = "leader"
rounds = 150
seeds = "0-4"

[grid]
algorithm = ["tracking:gossips=1", "consensus:gossips=3", "gtvmin"]
graph = ["ring", "path", "star", "complete", "grid", "torus", "small-world:degree=4,rewire=0.1",
         "random-regular:degree=4", "erdos-renyi:p=0.1", "barabasi-albert:m=2", "barbell", "caveman:size=8"]
""")
code = main(["sweep", str(STUDY), "--out", str(OUT), "--no-plot", "-q"])
assert code == 0

# One row per run; with pandas, p2pkm.load_study(OUT).to_frame() is the same as a DataFrame.

rows = p2pkm.load_study(OUT).rows
methods = list(dict.fromkeys(row["algorithm"] for row in rows))

# How well does each measure order the runs? 1 and -1: perfectly; 0: it says nothing.

print("\nrank correlation with rounds to 1 % of the final ratio")
print(f"{'':24}" + "".join(f"{name:>22}" for name in methods))
for measure in MEASURES:
    found = []
    for name in methods:
        own = [row for row in rows if row["algorithm"] == name]
        found.append(spearmanr([row[measure] for row in own], [row["rounds_to_1pct"] for row in own]).statistic)
    print(f"{measure:24}" + "".join(f"{value:>22.2f}" for value in found))

# A picture: methods are colors, the graphs stand above.

paths = save_figure(lambda: plot_measures(rows), Path(), "topology_study", ("png",))
print(f"\ndrawn: {paths[0]}")
