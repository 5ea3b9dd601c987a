"""FKM over gossipy's simulator, which knows no server: a star whose middle is a node that answers and never asks.

A round of FKM is two of its steps: every client pulls the centroids, every client pushes its rows. Its own
`KMeansHandler` (a point moves a centroid by a tenth) is another algorithm. Run by `tests.benchmarks.peers.fkm`.
"""

# mypy: ignore-errors
# What it imports is in an environment of its own.

import sys

import numpy as np
from gossipy import CACHE
from gossipy.core import AntiEntropyProtocol, MessageType, StaticP2PNetwork
from gossipy.model.handler import ModelHandler
from gossipy.node import GossipNode
from gossipy.simul import GossipSimulator
from scipy.sparse import csr_matrix

from tests.benchmarks.peers.fkm_twin import Task, play, step

_TURNS = (AntiEntropyProtocol.PULL, AntiEntropyProtocol.PUSH)


class Lloyd(ModelHandler):
    """A table; the step from the centroids that arrive is the next one."""

    def init(self):
        self.model = np.zeros(0)

    def __call__(self, recv_model, data):
        self.model = step(data[0], recv_model.model)
        self.n_updates += 1

    def _update(self, data):
        raise NotImplementedError

    _merge = evaluate = _update


class Client(GossipNode):
    """Pulls and pushes in turn."""

    def send(self, t, peer, protocol):
        return super().send(t, peer, _TURNS[t % len(_TURNS)])


class Hub(GossipNode):
    """Keeps what is pushed, answers with its model."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.tables = {}

    def timed_out(self, t):
        return False

    def receive(self, t, msg):
        if msg.type is MessageType.PULL:
            return super().receive(t, msg)
        self.tables[msg.sender] = CACHE.pop(msg.value[0]).model
        return None


class NoTest:
    """No data to evaluate on."""

    def has_test(self):
        return False


def main() -> None:
    """Play the rounds."""
    task = Task.read(sys.argv[1])
    n = len(task.points)
    to_hub = csr_matrix((np.ones(n), (np.arange(n), np.full(n, n))), shape=(n + 1, n + 1))
    network = StaticP2PNetwork(n + 1, to_hub)
    kinds = [(Client, (np.asarray(points), None)) for points in task.points] + [(Hub, (None, None))]
    nodes = {i: kind(i, (data, None), 1, Lloyd(), network) for i, (kind, data) in enumerate(kinds)}
    simulator = GossipSimulator(nodes, NoTest(), len(_TURNS), AntiEntropyProtocol.PULL)
    for node in nodes.values():
        node.init_model(local_train=False)
    simulator.initialized = True
    hub = nodes[n]

    def ask(model, t):
        hub.model_handler.model = model
        hub.model_handler.n_updates = t
        simulator.start(1)
        return [hub.tables[i] for i in range(n)]

    play(task, ask, ("gossipy-dfl", "torch", "numpy"))


if __name__ == "__main__":
    main()
