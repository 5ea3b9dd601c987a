"""Execution of a method turn by turn, without initialization, monitor and result, for tests of single turns."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.core.messages import SparseMessages
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.loop import Start
from p2pkm.kernels import numba as compiled
from p2pkm.methods.init.registry import InitContext
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork


class Table(NamedTuple):
    """Batch of all devices, and the network between them."""

    topology: Topology
    devices: Devices
    network: LocalNetwork


def arrange(data, links, *, d=None, kernels=compiled, seed=0, colors=None, weights=None):
    """Build a batch of devices from a list of arrays, which may be empty, and links (i, j) or (i, j, weight)."""
    links = np.array([(*link, 1.0)[:3] for link in links], float).reshape(-1, 3)
    topology = Topology.from_links(len(data), links)
    if colors is not None:
        topology = replace(topology, colors=np.array(colors))
    filled = [np.asarray(points, float) for points in data if len(points)]
    width = d if d is not None else filled[0].shape[1]
    points = np.concatenate([np.zeros((0, width)), *filled])
    offsets = np.concatenate(([0], np.cumsum([len(points) for points in data]))).astype(np.int64)
    mass = np.ones(len(points)) if weights is None else np.asarray(weights, float)
    shards = Shards(points, offsets, mass, None, np.arange(len(points)))
    network = LocalNetwork(place(topology, 0, 1))
    network.open()
    return Table(topology, build_batch(topology, shards, network, seed, kernels), network)


def describe(table, k=3):
    """Return the public facts from which stages are created."""
    devices = table.devices
    return InitContext(table.topology, devices.sizes, devices.shared_key, k, devices.d, weights=devices.masses)


def play(algorithm, table, start, rounds, schedule=None, frames=None):
    """Return the centroids after the initial exchange and after each turn, [1 + turns, n, k, d], and the last state.

    With `frames`, the points of round t are frames[t]; the number of points of each device is constant.
    """
    devices, network = table.devices, table.network
    schedule = schedule or make(algorithm.schedule, devices, table.topology.colors)
    network.open()
    start = np.array(start, float)
    state = algorithm.initial_state(devices, Start(start, np.ones(len(devices), np.bool_)))
    inbox = _deliver(network, algorithm.message(state, devices.at_stage_start(schedule.opening)))
    history = [state.centroids.copy()]
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            now = devices.at_turn(t, turn, awake)
            now = now if frames is None else replace(now, stored=frames[t])
            state = algorithm.update(state, inbox, now)
            inbox = _deliver(network, algorithm.message(state, now))
            history.append(state.centroids.copy())
    return np.array(history), state


def _deliver(network, messages):
    return network.deliver(messages) if isinstance(messages, SparseMessages) else network.exchange(messages)


def last(algorithm, table, start, rounds):
    """Return the centroids after `rounds` rounds, [n, k, d]."""
    return play(algorithm, table, start, rounds)[0][-1]


def objective(algorithm, table, centroids):
    """Compute objective (7) literally: the sum of (8) over the devices, with each link counted once."""
    devices, alpha = table.devices, algorithm.objective.link_alpha(table.devices)
    total = sum(loss(points_of(devices, i), centroids[i]) for i in range(len(devices)))
    for i in range(len(devices)):
        for e in range(devices.indptr[i], devices.indptr[i + 1]):
            if i < devices.indices[e]:
                total += alpha[e] * variation(centroids[i], centroids[devices.indices[e]])
    return total


def points_of(devices, i):
    """Return the points of device i."""
    return devices.points[devices.offsets[i] : devices.offsets[i + 1]]


def loss(points, centroids):
    """Compute the local loss (6)."""
    return squared(points, centroids).min(axis=1).sum() if len(points) else 0.0


def variation(a, b):
    """Compute the total variation (4) of two sets without absent rows."""
    distances = squared(a, b)
    return distances.min(axis=0).sum() + distances.min(axis=1).sum()


def squared(a, b):
    """Compute all squared distances between the rows of a and b."""
    return ((np.asarray(a, float)[:, None] - np.asarray(b, float)[None]) ** 2).sum(axis=2)


def random_links(rng, n, share=0.5, *, connected=False):
    """Draw the links of a random graph with random weights; if `connected`, they contain a path."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    return [(i, j, rng.uniform(0.2, 3.0)) for i, j in pairs if rng.random() < share or (connected and j == i + 1)]
