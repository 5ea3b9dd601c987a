"""Digests of data sources, methods, initializations and measures, on points so wide that BLAS uses its threads.

OPENBLAS_NUM_THREADS=2 python tests/support/programs/blas_threads.py sources measures
mpirun -n 3 python tests/support/programs/blas_threads.py methods initializations
"""

import hashlib
import json
import sys
from functools import cache, partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm
import topologies
from p2pkm.data.sources import SOURCES
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.init.registry import INITS
from p2pkm.network.graph import Topology
from p2pkm.network.world import connect
from tests.support.methods import METHODS, build
from topologies import measures

WIDE = {  # what makes a source wide
    "grid16": {"points": 200, "seed": 1},
    "blobs": {"features": 64, "points": 2000, "clusters": 10, "seed": 1},
    "slike": {"seed": 1},
    "balls": {"features": 64, "points": 200, "clusters": 10, "seed": 1},
    "communities": {"seed": 1},
    "shapes": {"seed": 1},
}
UNTIMED = {"wall_seconds", "compile_seconds", "ranks", "rank_partition", "edge_cut", "halo_size", "load_imbalance",
           "load_imbalance_devices"}  # fmt: skip


@cache
def pixels():
    """Load 1,797 points of 64 features and their classes."""
    return p2pkm.digits()


@cache
def wider():
    """Generate 900 points of 300 features and their classes."""
    return p2pkm.blobs(features=300, clusters=10, points=900, sd=5.0, seed=1)


def deal(devices, made=pixels):
    """Build shards of points."""
    points, classes = made()
    return p2pkm.Shards.deal(points, p2pkm.partition.iid(len(points), devices, seed=1), devices=devices, labels=classes)


def play(method, devices=3, made=pixels, **options):
    """Return the summary of a run without seconds and ranks."""
    graph = None if needs_hub(method) else topologies.ring(devices)
    found = p2pkm.simulate(method, graph, deal(devices, made), **{"rounds": 2, "seed": 5, "record_every": 1, **options})
    return {name: value for name, value in found.summary.items() if name not in UNTIMED}


def sources():
    """List all sources of points except files; digits also with principal components."""
    made = {name: partial(source, **WIDE.get(name, {})) for name, source in SOURCES.items() if name != "file"}
    for components in (1, 2, 5, 8, 20, 64):
        made[f"digits:components={components}"] = partial(SOURCES["digits"], components=components)
    return {name: lambda load=load: load().points for name, load in made.items()}


def methods():
    """List all methods; those that calibrate on so many devices that sparse systems of equations are solved."""
    made = {name: partial(play, build(name, 10)) for name in METHODS}
    private = p2pkm.Private(10, epsilon=100.0, radius=100.0, trust="none", noise_seed=0)
    made["private"] = partial(play, private, rounds=9)  # all sums, second moments among them
    made["kfed converged"] = partial(play, p2pkm.KFED(10, local_k=12, finish="converge", labels="induced"))
    made["kfed of 300 features"] = partial(play, p2pkm.KFED(10), made=wider, baselines=False)
    made["coupling strong"] = partial(play, p2pkm.GTVMin(10, coupling="strong"), 100)
    made["coupling auto"] = partial(play, p2pkm.GTVMin(10, coupling="auto"), 40)
    made["stream"] = partial(play, p2pkm.TreeLloyd(10), stream="drawn:kind=jump,at=2", rounds=4)
    return made


def initializations():
    """List all initializations, with a method that accepts any."""
    return {name: partial(play, p2pkm.GTVMin(10, init=name, coupling=10.0), 6) for name in INITS}


def _layout(graph):
    from p2pkm.viz.graph_layout import place_devices

    return place_devices(Topology.from_graph(graph))


def _project():
    from p2pkm.viz.projection import find_components

    points = pixels()[0]
    return find_components(points).place(points)


def _silhouettes():
    from p2pkm.metrics.clustering import silhouettes

    points, classes = pixels()
    return silhouettes(points, np.stack([points[classes == c].mean(axis=0) for c in range(10)]))


def _gossip_attack():
    from p2pkm.privacy.attacks import attack_gossip, gossip_view

    view = gossip_view(Topology.from_graph(topologies.random_regular(150, degree=6, seed=1)), 0, 12)
    return np.stack(attack_gossip(view, 30, 1.0, 3000, 1))


def spectra():
    """Measure graphs: exact measures, Lanczos estimates, and measures of time-varying graphs."""
    small, large = topologies.small_world(400, degree=6, seed=1), topologies.small_world(1500, degree=6, seed=1)
    changing = topologies.one_peer_exponential(256)
    colors = np.arange(400) % 2
    return {
        "describe 400": lambda: repr(measures.describe(small)),
        "describe 1500": lambda: repr(measures.describe(large)),
        "describe a path": lambda: repr(measures.describe(topologies.path(1500))),
        "describe changing": lambda: repr(measures.describe(changing)),
        "predict": lambda: repr(measures.predict(small, coupling=10.0)),
        "predict colored": lambda: repr(measures.predict(small, coupling=10.0, colors=colors)),
        "predict changing": lambda: repr(measures.predict(changing, coupling=10.0)),
        "residual noise": lambda: measures.residual_noise(small, (10.0, 300.0)),
        "residual noise 2500": lambda: measures.residual_noise(topologies.ring(2500), (10.0, 300.0)),
        "fit": lambda: repr(measures.fit(0.9 ** np.arange(3000.0) + 1.0)),
    }


def measurements():
    """Measure points, runs and privacy."""
    points, classes = pixels()
    leaks = partial(p2pkm.pair_leaks, topologies.random_regular(120, degree=6, seed=1), gossips=3)
    return {
        "silhouettes": _silhouettes,
        "linear probe": lambda: repr(p2pkm.linear_probe(points, classes, per_class=20)),
        "projection": _project,
        "layout": lambda: _layout(topologies.small_world(250, degree=6, seed=1)),
        "layout by pivots": lambda: _layout(topologies.small_world(3000, degree=6, seed=1)),
        "pair leaks": lambda: leaks().leak,
        "gossip attack": _gossip_attack,
    }


GROUPS = {"sources": sources, "methods": methods, "initializations": initializations, "spectra": spectra,
          "measurements": measurements}  # fmt: skip


def digests(groups):
    """Compute a digest of each member of these groups; with "/3" after a group, of every third method and all else."""
    found = {}
    for words in groups:
        group, _, step = words.partition("/")
        for number, (name, make) in enumerate(GROUPS[group]().items()):
            if name in METHODS and number % int(step or 1):
                continue
            made = make()
            content = made.tobytes() if isinstance(made, np.ndarray) else json.dumps(made, default=repr).encode()
            found[f"{group}: {name}"] = hashlib.sha256(content).hexdigest()
    return found


if __name__ == "__main__":
    told = digests(sys.argv[1:])
    if connect().rank == 0:
        print(json.dumps(told))
