"""What a graph of very many devices costs: ``python -m tests.benchmarks.graphs``.

The first table: seconds of each step for 1,000,000 devices, from the name of the family to the colors and a spanning
tree. The second: the light form against networkx and the reading of its objects, side by side, for 100,000 devices.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import topologies
from p2pkm.kernels import compile_ahead
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.network.graph import Topology, bound_diameter, walk

OPTIONS: dict[str, dict[str, Any]] = {"small-world": {"degree": 6}, "random-regular": {"degree": 6},
                                      "barabasi-albert": {"m": 3}}  # fmt: skip


def clock(work: Callable[[], Any], trials: int = 1) -> tuple[float, Any]:
    """Return the median of the seconds, and what the work returns."""
    seconds = []
    for _ in range(trials):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return median(seconds), result


def print_steps(name: str, n: int, trials: int) -> None:
    """Print the seconds of each step."""
    made, graph = clock(lambda: topologies.build(name, n, light=True, **OPTIONS.get(name, {})), trials)
    checked, _ = clock(lambda: topologies.check(graph), trials)
    read, topology = clock(lambda: Topology.from_graph(graph), trials)
    links = topology.indptr, topology.indices
    colored, _ = clock(lambda: walk("color", *links), trials)
    bound, _ = clock(lambda: bound_diameter(*links), trials)
    components, _ = clock(lambda: walk("components", *links), trials)
    grown, _ = clock(lambda: build_spanning_tree(topology), trials)
    steps = (made, read, checked, colored, bound, components, grown)
    print(f"{name:17}{graph.number_of_edges():>11,}{''.join(f'{step:10.2f}' for step in steps)}", flush=True)


def print_ratio(name: str, n: int, trials: int) -> None:
    """Print the seconds from the name to the topology in both forms."""
    options = OPTIONS.get(name, {})
    light, _ = clock(lambda: Topology.from_graph(topologies.build(name, n, light=True, **options)), trials)
    heavy, _ = clock(lambda: Topology.from_graph(topologies.build(name, n, light=False, **options)), trials)
    print(f"{name:17}{light:10.2f}{heavy:10.2f}{heavy / light:8.1f}", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1_000_000)
    parser.add_argument("--compared", type=int, default=100_000, help="devices of the comparison with networkx")
    parser.add_argument("--trials", type=int, default=1)
    options = parser.parse_args()
    compile_ahead()
    np.random.default_rng(0).random(1)  # its first call is an import
    print(f"{options.devices:,} devices, seconds; topology = check + colors + bound of the diameter + copies")
    print(f"{'family':17}{'links':>11}" + "".join(
        f"{step:>10}" for step in ("generate", "topology", "check", "colors", "diameter", "parts", "tree")
    ))  # fmt: skip
    for name in topologies.LIGHT:
        print_steps(name, options.devices, options.trials)
    print(f"\n{options.compared:,} devices, from the name to the topology, seconds")
    print(f"{'family':17}{'light':>10}{'networkx':>10}{'ratio':>8}")
    for name in topologies.LIGHT:
        print_ratio(name, options.compared, options.trials)


if __name__ == "__main__":
    main()
