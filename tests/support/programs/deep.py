"""Deep clustering on any number of ranks, one line per run."""

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm
import topologies
from p2pkm.network.world import connect
from tests.support.images import deal


def runs():
    """Yield one record per run, with and without a server: an empty device, clients with few images, two devices."""
    options = {"network": "mlp", "epochs": 1}
    many, two = deal([30, 2, 0, 20, 15]), deal([30, 20])
    for server in ("feca", "none"):
        for method, graph, shards in (
            (p2pkm.DeepFeCA(5, server=server, **options), None, many),
            (p2pkm.DeepGossip(5, server=server, gossips=2, **options), topologies.path(5), many),
            (p2pkm.DeepGossip(5, server=server, **options), topologies.path(5), many),
            (p2pkm.DeepGossip(5, server=server, **options), topologies.path(2), two),
        ):
            result = p2pkm.simulate(method, graph, shards, rounds=2, seed=3)
            parts = (result.centroids, *result.learned)
            seen = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
            yield {"name": f"{method.name} {server}", "seen": seen, "chain": result.summary["chain_sha256"],
                   "bytes": result.summary["bytes"], "ratio": result.summary["ratio_mean"]}  # fmt: skip


if __name__ == "__main__":
    for record in runs():
        if connect().rank == 0:
            print(json.dumps(record | {"ranks": connect().size}), flush=True)
