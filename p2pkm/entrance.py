"""What scripts hand to `simulate`, as a job needs it."""

from typing import Any

import numpy as np

from p2pkm.data.shards import Shards
from p2pkm.devices import Floats
from p2pkm.errors import DataError, TopologyError
from p2pkm.recipe import needs_hub
from p2pkm.topology import Topology


def lay_out_graph(algorithm: Any, graph: Any, shards: Shards) -> Topology:
    """Return the star of a server method, or the graph that was given to any other one."""
    if needs_hub(algorithm):
        if graph is not None:
            raise TopologyError(
                f"{algorithm.name} talks to a server, so its graph is a star around a hub without points, which is "
                "built for it; got a graph. Give None, or take a peer-to-peer method such as GTVMin"
            )
        return Topology.star(shards.n)
    if graph is None:
        raise TopologyError(f"{algorithm.name} needs a graph; got None. Give a networkx.Graph")
    return Topology.from_graph(graph)


def check_start(start: Any, n: int, k: int, d: int) -> Floats:
    """Return given centroids, float64[n, k, d], with absent rows at +inf; refuse anything else."""
    centroids = np.ascontiguousarray(start, np.float64)
    if centroids.shape != (n, k, d):
        raise DataError(f"start has shape {centroids.shape}; expected {(n, k, d)}: devices x clusters x features")
    absent = np.isposinf(centroids)
    if not np.all(np.isfinite(centroids) | absent) or np.any(absent.any(axis=2) != absent.all(axis=2)):
        raise DataError("start has NaN, -inf or rows that are only partly +inf; expected numbers, or a whole row +inf")
    return centroids
