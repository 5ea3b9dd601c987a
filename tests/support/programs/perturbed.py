"""Runs in which every message is changed on its way, as lines of JSON on rank 0; started by mpirun, and imported.

mpirun -n 3 python tests/support/programs/perturbed.py 0.05
"""

import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm
import topologies
from p2pkm.channel.registry import TRANSFORMS
from p2pkm.channel.transform import Order, ReshapesMethod, Transform
from p2pkm.core.messages import SparseMessages, Tables
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.init.registry import INITS
from p2pkm.methods.registry import find
from p2pkm.network.world import connect
from tests.support.methods import METHODS, build

KEYS = ("centroids_sha256", "chain_sha256", "messages", "bytes", "termination", "rounds", "groups")
PURPOSE = 999  # of the draws, beside those of `p2pkm.core.batch`
SEALED = ("mufc",)  # what clients say is exact arithmetic over a finite field; noise goes on what the server says alone
LONGER = {"private": {"rounds": 5}}  # no centroids before the fourth of its five sums
OPTIONS = {  # beside each seeding as it is, these
    "d2-sampling": ("greedy=false", "draw=centroids", "draw=uniform"),
    "flooded-summaries": ("hops=2,candidates=2", "candidates=3"),
    "tree-summaries": ("candidates=3", "rows=60"),
}


def deal(n, seed=0):
    """Generate points of n devices in two dimensions; every sixth device has none."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(4.0 * rng.integers(0, 3, (0 if i % 6 == 2 else 9, 1)), 1.0, (0 if i % 6 == 2 else 9, 2))
              for i in range(n)]  # fmt: skip
    return p2pkm.Shards.from_list(blocks)


def configurations():
    """List (name, graph, method, options) of all runs: each method, initialization and scaling."""
    graph, brief = topologies.small_world(14, degree=4, rewire=0.2, seed=1), {"rounds": 3}
    for name in METHODS:
        method = build(name, 3)
        yield name, None if needs_hub(method) else graph, method, brief | LONGER.get(name, {})
    masked = p2pkm.Private(3, epsilon=100.0, radius=40.0, noise_seed=0)
    yield "private behind masks", graph, masked, LONGER["private"]
    yield "coreset over a tree", graph, p2pkm.Coreset(3, size=9, spread="tree"), brief
    for seeding in INITS:
        for options in ("", *OPTIONS.get(seeding, ())):
            spec = f"{seeding}:{options}" if options else seeding
            yield f"init {spec}", graph, p2pkm.GTVMin(3, init=spec), brief
    yield "deep tree", topologies.path(14), p2pkm.GTVMin(3, init="tree-summaries:candidates=3"), brief
    for schedule in ("colored", "async"):
        yield schedule, graph, p2pkm.GTVMin(3, schedule=schedule), brief
    for robust in ("clip", "trim", "saturate"):
        yield robust, graph, p2pkm.GTVMin(3, robust=robust), brief
    yield "groups", graph, p2pkm.GTVMin(3, groups=True), brief
    yield "groups swap", graph, p2pkm.GTVMin(3, groups=True, swaps=True), brief
    for scale in ("standard", "minmax"):
        yield f"scale {scale}", graph, p2pkm.GTVMin(3, init="local"), brief | {"scale": scale}
    struck = {"faults": "loss=0.1,delay=0.2,dropout=0.1,straggler=0.1,stages=all", "rounds": 8}
    yield "faults", graph, p2pkm.GTVMin(3), struck
    yield "faults and Byzantine", graph, p2pkm.GTVMin(3), struck | {"byzantine": "2:kind=random,stages=all"}
    yield "one peer", topologies.one_peer_exponential(14), find("pushsum")(3), brief


def runs(size):
    """Return one record per configuration, with noise of this size on each row sent."""
    for name, graph, method, options in configurations():
        with changing(size, server_alone=name in SEALED):
            result = p2pkm.simulate(method, graph, deal(14), seed=5, baselines=False, **options)
            yield {"name": name, **{key: result.summary[key] for key in KEYS}}


@contextmanager
def changing(size, *, server_alone=False):
    """Add noise to each counted value sent, and check that no state stores a delivered array."""

    class Perturbation(ReshapesMethod, Transform):
        name, order = "perturbation", Order.DELIVER

        @classmethod
        def configure(cls, options):
            return {}

        def wrap(self, algorithm, schedule, network):
            return Watched(algorithm), schedule

        def outgoing(self, messages, context):
            devices = context.devices
            if server_alone and not (devices.round and devices.turn == 0):
                return messages
            key = ((context.stage + 2) << 40) + (devices.round << 20) + devices.turn
            change = _change_sparse if isinstance(messages, SparseMessages) else _change_messages
            return change(messages, devices.ids, key, size)

    TRANSFORMS["perturbation"] = Perturbation
    try:
        yield
    finally:
        del TRANSFORMS["perturbation"]


def noise(key, senders, rows, width):
    """Draw one number in [-1, 1) per value as a function of key, sender and row, float64[..., width]."""
    streams = (senders.astype(np.uint64) << np.uint64(32)) + rows.astype(np.uint64)
    return 2.0 * uniforms(key, PURPOSE, streams, width) - 1.0 if len(streams) else np.zeros((0, width))


def _change_messages(messages, ids, key, size):
    values, (device, row) = (
        messages.values.copy(),
        np.nonzero(np.arange(messages.values.shape[1]) < messages.rows[:, None]),
    )
    change = size * noise(key, ids[device], row, values.shape[2] - messages.header)
    with np.errstate(invalid="ignore"):  # words of a secure sum may look like a signaling NaN
        values[device, row, messages.header :] += change
    return messages._replace(values=values)


def _change_sparse(sparse, ids, key, size):
    values, rows = sparse.tables.flat(), sparse.tables.rows
    starts = np.cumsum(rows) - rows
    row = np.arange(len(values)) - np.repeat(starts, rows)
    values[:, sparse.header :] += size * noise(key, np.repeat(ids[sparse.senders], rows), row,
                                                values.shape[1] - sparse.header)  # fmt: skip
    return sparse._replace(tables=Tables(values, starts, rows))


@dataclass(frozen=True)
class Watched:
    """Algorithm whose state must not share memory with delivered arrays, which a later exchange may change."""

    algorithm: Any

    def initial_state(self, devices, start):
        """Create the state before the initial exchange."""
        return self.algorithm.initial_state(devices, start)

    def message(self, state, devices):
        """Create the messages."""
        return self.algorithm.message(state, devices)

    def update(self, state, inbox, devices):
        """Compute the state after a turn."""
        after = self.algorithm.update(state, inbox, devices)
        delivered = inbox.tables.values if isinstance(inbox.tables, Tables) else inbox.tables
        for leaf in _leaves(after):
            assert not np.may_share_memory(leaf, delivered), f"{self.algorithm} keeps what was delivered"
        return after


def _leaves(tree):
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree:
            yield from _leaves(part)


if __name__ == "__main__":
    for record in runs(float(sys.argv[1])):
        if connect().rank == 0:
            print(json.dumps(record | {"ranks": connect().size}), flush=True)
