"""Execution of a server method turn by turn, in one process, without monitor and result."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Devices
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import numba as compiled
from p2pkm.methods.building_blocks.spanning_tree import Tree
from p2pkm.methods.init.min_max_scaling import MinMaxScaling
from p2pkm.methods.schedules import make
from p2pkm.methods.server.star import Star
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork


class FinishedRun(NamedTuple):
    """model: float64[k', d] at the server; local: list of float64[q, d]; uplinks: for each turn a table per client."""

    model: np.ndarray
    local: list
    uplinks: list
    ledger: tuple
    state: object
    devices: Devices


def clients_of(data, *, seed=0, weights=None, kernels=compiled, d=None):
    """Build batch (hub last) and network of clients with these points, a list of float64[m_i, d]."""
    filled = [np.asarray(points, float) for points in data if len(points)]
    width = d if d is not None else filled[0].shape[1]
    points = np.concatenate([np.zeros((0, width)), *filled])
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in data]), [len(points)])).astype(np.int64)
    mass = np.ones(len(points)) if weights is None else np.asarray(weights, float)
    topology = Topology.star(len(data))
    network = LocalNetwork(place(topology, 0, 1))
    return build_batch(
        topology, Shards(points, offsets, mass, None, np.arange(len(points))), network, seed, kernels
    ), network


def serve(method, data, rounds=1, **more):
    """Run up to `rounds` rounds of a server method; stop when the clients send nothing."""
    devices, network = clients_of(data, **more)
    start = _measure(devices, network) if method.traits.normalization in ("coordinate", "entries") else None
    network.open()
    algorithm, n = Star(method), len(data)
    schedule = make("star", devices, np.zeros(n + 1, int))
    state = algorithm.initial_state(devices, start)
    messages = algorithm.message(state, devices.at_stage_start(schedule.opening))
    uplinks = []
    for t in range(1, rounds + 1):
        uplinks.append([messages.values[i, : messages.rows[i]].copy() for i in range(n)])
        inbox = network.exchange(messages)
        for turn, awake in enumerate(schedule.turns(t)):
            now = devices.at_turn(t, turn, awake)
            state = algorithm.update(state, inbox, now)
            messages = algorithm.message(state, now)
            inbox = network.exchange(messages) if turn == 0 else inbox
        if (messages.rows < 0).all():
            break
    network.exchange(messages)
    local = [rows[rows[:, 0] < np.inf] for rows in state.local[:n]]
    model = state.centroids[n]
    return FinishedRun(model[model[:, 0] < np.inf], local, uplinks, network.ledger.totals, state, devices)


def _measure(devices, network):
    """Compute the range of each coordinate by messages."""
    network.open()
    n = len(devices) - 1
    stage = MinMaxScaling(1, Tree(np.append(np.full(n, n), -1), np.append(np.ones(n, np.int64), 0)))
    everybody = np.ones(n + 1, bool)
    state = stage.initial_state(devices, None)
    delivery = network.deliver(stage.message(state, devices.at_stage_start(everybody)))
    for turn in range(2):
        now = devices.at_turn(1, turn, everybody)
        state = stage.update(state, delivery, now)
        delivery = network.deliver(stage.message(state, now))
    return state
