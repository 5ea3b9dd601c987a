"""Decentralized or with a server? The same points, partition and seeds for all, the same way of counting.

Ten devices get points of 16 clusters by distance, so each holds only a few clusters. Methods without a server run on
four graphs, those with a server on a star. The busiest device carries all traffic if it is the center of a star, server
or not. Run it as ``python examples/server_or_not.py``; it writes server_or_not.png.
"""

import matplotlib.pyplot as plt

import p2pkm

comparison = p2pkm.compare(
    ["gtvmin:coupling=strong", "consensus", "tracking", "fkm:server_n_init=10", "feca"],
    ["ring", "star", "small-world:degree=4", "complete"],
    devices=10, data="grid16:points=50", partition="beta:beta=0.1", rounds=10, seeds=[0, 1], progress=False,
)  # fmt: skip
runs = comparison.to_frame().groupby(["algorithm", "graph"], sort=False)
found = runs[["ratio_mean", "bytes", "bytes_busiest"]].mean().reset_index()
print(found.to_string(index=False))

# %% The same as a picture: quality against the plain bytes of the busiest device
MARKS = {"ring": "o", "star": "*", "small-world:degree=4": "D", "complete": "s", "server": "X"}
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
for number, (method, rows) in enumerate(found.groupby("algorithm", sort=False)):
    excess = (rows["ratio_mean"] - 1).clip(lower=1e-6)
    for graph, busiest, cost in zip(rows["graph"], rows["bytes_busiest"] / 1000, excess, strict=True):
        axes.loglog(busiest, cost, MARKS[graph], color=f"C{number}", markersize=9)
    axes.plot([], [], "o", color=f"C{number}", label=method)
for graph, mark in MARKS.items():
    axes.plot([], [], mark, color="gray", label=graph)
axes.set_xlabel("plain kB that the busiest device sends and receives")
axes.set_ylabel("cost above central k-means (0.01 = 1 %)")
axes.grid(alpha=0.3)
figure.legend(loc="outside right upper", fontsize=9)
figure.savefig("server_or_not.png", dpi=120)
