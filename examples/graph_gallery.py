"""Every family of graphs in one picture, and those that change from round to round in another.

Covers
    Building graphs by name, graphs that bring their own size, time-varying graphs and their rounds.

Scenario
    Which graph for the next experiment? Few links or few hops, hubs or none, the same links for ever or new ones in
    every round: sixteen devices each way, side by side.

Run it as ``python examples/graph_gallery.py``; it writes graph_gallery.png and time_varying_gallery.png here.
"""

# %% All families: sixteen devices, or as many as the real graphs have
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

import topologies
from p2pkm.network.graph import Topology
from p2pkm.viz.graph_layout import place_devices
from topologies import CSRGraph

BLUE, GRAY, PALE = "#0072B2", "#8A8A8A", "#DDDDDD"
OPTIONS = {"communities": {"bridges": 2}, "inner-outer-exponential": {"size": 8}, "inner-outer-ring": {"size": 8},
           "edge-markov": {"over": "torus"}, "random-waypoint": {"radius": 0.25, "speed": 0.1},
           "simple-base": {"peers": 1}}  # fmt: skip
SIZES = {"simple-base": 13} | dict.fromkeys(topologies.FIXED)  # it is made for numbers like 13 = 8 + 4 + 1


def draw(ax, graph, places, color, width=1.0):
    source = topologies.csr_graph.sources(graph)
    ends = [(places[i], places[j]) for i, j in zip(source, graph.indices, strict=True) if i < j]
    ax.add_collection(LineCollection(ends, colors=color, linewidths=width, zorder=1))
    ax.scatter(*places.T, s=min(50, 700 / len(graph)), color=BLUE, edgecolors="white", linewidths=0.6, zorder=2)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.axis("off")


names = [name for name in topologies.FAMILIES if name not in {"file", "gallery"}]
figure = Figure(figsize=(15, 14), layout="constrained")
for name, ax in zip(names, figure.subplots(5, 6).flat, strict=False):
    graph = topologies.build(name, SIZES.get(name, 16), light=True, **OPTIONS.get(name, {}))
    topology = Topology.from_graph(graph)
    diameter = max(int(topology.layers(device).max()) for device in range(topology.n))
    draw(ax, graph, place_devices(topology), GRAY)
    ax.set_title(f"{name}\n{len(graph)} devices, {graph.number_of_edges()} links, diameter {diameter}", fontsize=9)
for ax in figure.axes[len(names) :]:
    ax.remove()
figure.savefig("graph_gallery.png", dpi=90)
print(f"graph_gallery.png         {len(names)} families")

# %% Graphs that change: the links that are ever in use are pale, those of the round dark
SHOWN = 5
figure = Figure(figsize=(13, 21), layout="constrained")
for name, row in zip(topologies.TIME_VARYING, figure.subplots(len(topologies.TIME_VARYING), SHOWN), strict=True):
    graph = topologies.build(name, SIZES.get(name, 16), **OPTIONS.get(name, {}))
    places = place_devices(Topology.from_graph(topologies.ring(len(graph))))
    again = f"again after {graph.period}" if graph.period else "never again"
    for turn, ax in enumerate(row):
        draw(ax, CSRGraph(graph.indptr, graph.indices), places, PALE, 0.7)
        draw(ax, graph.at(turn), places, "#333333", 1.4)
        ax.set_title(f"{name}, {again}\nround 0" if turn == 0 else f"round {turn}", fontsize=9)
    busiest = max(int(graph.degrees(turn).max()) for turn in range(graph.period or 32))
    print(f"{name:<25} {graph.number_of_edges():3} links in all, at most {busiest:2} at a device in a round, {again}")
figure.savefig("time_varying_gallery.png", dpi=90)
