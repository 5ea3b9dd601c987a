"""Resume a run of `simulate` from the checkpoints in a folder, and print its result."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import p2pkm
import topologies
from p2pkm.network.world import connect

OPTIONS = {
    "plain": {"method": p2pkm.GTVMin(3, init="local", tol=0.0)},
    "scaled, under faults": {"scale": "standard", "faults": "loss=0.2,delay=0.2", "byzantine": "1:kind=flip"},
    "by events": {"method": p2pkm.GTVMin(3, schedule="async"), "link_model": "wan"},
    "along a tree with a stream": {"method": p2pkm.TreeLloyd(3), "stream": "drawn:kind=slow", "scale": "minmax"},
    "with a tape": {"stream": str(Path(__file__).with_name("tape.jsonl"))},
    "from a start": {"start": np.random.default_rng(2).normal(size=(5, 3, 2))},
}


def deal(shift=0.0):
    rng = np.random.default_rng(0)
    return p2pkm.Shards.from_list([rng.normal(size=(6 + i, 2)) + shift for i in range(5)])


def play(name, folder, **more):
    """Return a hash of all arrays and records of a result, and metrics."""
    options = {"method": p2pkm.GTVMin(3, tol=0.0), "shards": deal()} | OPTIONS[name] | more
    method, shards = options.pop("method"), options.pop("shards")
    options = {"rounds": 9, "checkpoint": folder, "checkpoint_every": None if folder is None else 2} | options
    result = p2pkm.simulate(method, topologies.ring(5), shards, **options)
    parts = [*result.ledger, *result.census, *result.chain, result.centroids, result.losses, result.gtv]
    arrays = b"".join(np.ascontiguousarray(part).tobytes() for part in parts if part is not None)
    keys = ("chain_sha256", "messages", "bytes", "rounds", "termination", "ratio_mean")
    found = {key: result.summary[key] for key in keys}
    return {"bits": hashlib.sha256(arrays + json.dumps(result.rounds).encode()).hexdigest(), **found}


if __name__ == "__main__":
    name, _, folder = sys.argv[1].partition("=")
    found = play(name, folder)
    if connect().rank == 0:
        print(json.dumps(found | {"ranks": connect().size}), flush=True)
