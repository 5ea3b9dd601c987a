"""FKM by p2pkm itself: makes what the peers are given, too. Run by `tests.benchmarks.peers.fkm`."""

import json
import sys
import time
from pathlib import Path

import numpy as np

import p2pkm
from p2pkm.core.batch import Floats
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import pick
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.benchmarks.peers.fkm_twin import tell

_EACH, _K, _D, _SEED = 100, 4, 2, 0


def deal(n: int) -> p2pkm.Shards:
    """Return 100 points for each of so many clients, of four Gaussians in the plane."""
    rng = np.random.default_rng(_SEED)
    means = rng.uniform(-10.0, 10.0, (_K, _D))
    points = means[rng.integers(_K, size=n * _EACH)] + rng.standard_normal((n * _EACH, _D))
    return p2pkm.Shards.deal(points, np.repeat(np.arange(n), _EACH), devices=n)


def write(folder: Path, shards: p2pkm.Shards) -> None:
    """Write points and first messages, as FKM's clients send them."""
    shards, star = shards.with_hub(), Topology.star(shards.n)
    network = LocalNetwork(place(star, 0, 1))
    devices = build_batch(star, shards, network, _SEED, pick(1, 1, 0))
    values, rows, _ = p2pkm.FKM(_K).report(devices, np.full((star.n, _K, _D), np.inf))
    tables: Floats = np.where(np.arange(_K)[:, None] < rows[:, None, None], values, np.inf)
    np.save(folder / "points.npy", shards.points.reshape(star.clients, _EACH, _D))
    np.save(folder / "tables.npy", tables[: star.clients])
    (folder / "key.json").write_text(json.dumps(shared_key(_SEED)))


def main() -> None:
    """Write the task for so many clients and rounds, or run it."""
    folder, n, rounds = Path(sys.argv[1]), *map(int, sys.argv[2:4])
    if sys.argv[4:]:
        write(folder, deal(n))
        return
    points = np.load(folder / "points.npy")
    shards = p2pkm.Shards.deal(points.reshape(-1, _D), np.repeat(np.arange(n), _EACH), devices=n)
    spent = []
    for few in (1, 1, rounds):  # the first time compiles
        began = time.process_time()
        result = p2pkm.simulate(p2pkm.FKM(_K, server_n_init=1), None, shards, rounds=few, seed=_SEED, baselines=False,
                                record_every=few, quantize=None)  # fmt: skip
        spent.append(time.process_time() - began)
    tell(np.asarray(result.server_centroids), 0.0, ("p2pkm", "numpy"), spent[2] - spent[1])  # its server is counted


if __name__ == "__main__":
    main()
