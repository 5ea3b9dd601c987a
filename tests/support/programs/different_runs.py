"""Play runs whose arguments differ between the ranks, and print what each rank is told; one line of JSON per rank."""

import json
import os

import numpy as np

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.network.world import connect


def deal(n, shift=0.0):
    return p2pkm.Shards.from_list([np.arange(10.0).reshape(5, 2) + i + shift for i in range(n)])


def main():
    world = connect()
    rank = world.rank
    cases = {
        "seed": {"seed": rank},
        "algorithm": {"method": p2pkm.GTVMin(2, alpha=1.0 + rank)},
        "topology": {"graph": topologies.ring(4) if rank else topologies.path(4)},
        "devices": {"graph": topologies.ring(4 + rank), "shards": deal(4 + rank)},
        "points": {"shards": deal(4, 0.5 * rank)},
        "start": {"start": np.full((4, 2, 2), 1.0 + rank)},
        "channel": {"faults": p2pkm.Faults(loss=0.1 * (rank + 1)), "baselines": rank == 0},
        "scores on rank 0 alone": {"silhouette": rank == 0, "true_centers": None if rank else [[0.0, 0.0]]},
    }
    for name, case in cases.items():
        method, graph, shards = (case.pop(key, None) for key in ("method", "graph", "shards"))
        try:
            given = method or p2pkm.GTVMin(2), graph or topologies.ring(4), shards or deal(4)
            found = p2pkm.simulate(*given, rounds=3, **case).summary
            told = [found["silhouette"] is not None, found["l2_centers"] is not None]
        except ExperimentError as error:
            told = str(error)
        line = json.dumps({"ranks": world.size, "rank": world.rank, "name": name, "told": told})
        os.write(1, f"{line}\n".encode())  # in one piece: two ranks write at the same time


if __name__ == "__main__":
    main()
