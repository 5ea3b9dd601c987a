"""Execution of one initialization stage to its end, without monitor and result."""

import numpy as np

from p2pkm.engine.build_batch import build_batch
from p2pkm.engine.loop import Start
from p2pkm.kernels import numba as compiled
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork


def state_of(algorithm, graph, shards, *, seed=0, start=None):
    """Return the state after the last message of the stage; `start` is float64[n, k, d] or None."""
    topology = Topology.from_networkx(graph)
    network = LocalNetwork(place(topology, 0, 1))
    devices = build_batch(topology, shards, network, seed, compiled)
    network.open()
    schedule = make(algorithm.schedule, devices, topology.colors)
    given = None if start is None else Start(np.array(start), np.ones(topology.n, bool))
    state = algorithm.initial_state(devices, given)
    messages = algorithm.message(state, devices.at_stage_start(schedule.opening))
    t = 0
    while (messages.rows >= 0).any() and t < 100:
        t += 1
        inbox = network.exchange(messages)
        now = devices.at_turn(t, 0, np.ones(topology.n, bool))
        state = algorithm.update(state, inbox, now)
        messages = algorithm.message(state, now)
    return state
